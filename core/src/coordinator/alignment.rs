//! How far a copy and its source agree: what a stop leaves behind, and what an alignment makes of
//! it (KIP-1279, LOG_TRUNCATION and failback).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::partition::Failure;
use super::record::{LastMirrored, MirrorKey};
use super::state::MirrorState;
use crate::log::epoch_cache::EpochCache;
use crate::mirror::returned::CopyEnds;
use crate::protocol::ErrorCode;
use crate::protocol::mirror::DescribeClusterMirrorsResponse;
use crate::types::{LeaderEpoch, Offset, TopicId, TopicPartition};

/// What an alignment does next to a log that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AlignStep {
    /// Nothing: it is aligned.
    Aligned,
    /// Ask the source where this epoch, the newest of the copy, ends there.
    AskEpochEnd(LeaderEpoch),
    /// Cut it to end here, exclusive.
    Truncate(Offset),
    /// Remove all of it: nothing is known to be the source's.
    BeginAnew,
}

/// What to do with a log that is to be aligned. `last` is where mirroring ended, as the source or
/// an earlier stop knows it; `is_checked`: the source has agreed to the newest epoch, and the log
/// was not cut since.
#[must_use]
pub fn align_step(
    last: Option<LastMirrored>,
    ends: CopyEnds,
    epochs: &EpochCache,
    is_checked: bool,
) -> AlignStep {
    let CopyEnds { log_start, log_end } = ends;
    if log_start == log_end {
        return AlignStep::Aligned;
    }
    match last.map(|last| common_end(last, epochs, log_end)) {
        Some(end) if end >= log_end => match epochs.latest() {
            // The source may know better than the position of a stop long ago.
            Some(latest) if !is_checked => AlignStep::AskEpochEnd(latest.epoch),
            _ => AlignStep::Aligned,
        },
        Some(end) if end > log_start => AlignStep::Truncate(end),
        _ => AlignStep::BeginAnew,
    }
}

/// Where what a stop has left is still the source's, exclusive. It is known by epoch, and by
/// offset where that was stored.
#[must_use]
pub fn common_end(last: LastMirrored, epochs: &EpochCache, log_end: Offset) -> Offset {
    let end = match epochs.latest() {
        Some(latest) if latest.epoch > last.epoch => epochs.end_offset_for(last.epoch, log_end).1,
        Some(_) => log_end,
        None => Offset::ZERO,
    };
    if last.offset.0 < 0 { end } else { end.min(last.offset) }
}

/// Where mirroring ended, of a log that is being stopped and was `found` to end so. What an
/// earlier try of the stop has stored holds, unless the log was cut further since: by an
/// alignment that the stop ended.
#[must_use]
pub fn last_mirrored(stored: Option<LastMirrored>, found: LastMirrored) -> LastMirrored {
    match stored {
        None => found,
        Some(stored) if found.offset < stored.offset => {
            LastMirrored { epoch: stored.epoch.min(found.epoch), offset: found.offset }
        }
        Some(stored) => stored,
    }
}

/// What the source's mirrors of this cluster say, by partition.
#[derive(Debug, Default)]
pub struct SourceMirrors {
    /// Where mirrors have got, by topic and partition.
    last: BTreeMap<TopicPartition, LastMirrored>,
    /// The same by the topic's ID.
    last_by_id: BTreeMap<(TopicId, i32), LastMirrored>,
    /// Partitions that a mirror has not stopped: its name and its state.
    loops: BTreeMap<TopicPartition, (String, String)>,
}

impl SourceMirrors {
    /// Takes in what one broker says; its refusal of a mirror, if there is one.
    pub fn add(&mut self, described: &DescribeClusterMirrorsResponse) -> Option<ErrorCode> {
        let codes = described.mirrors.iter().map(|it| it.error_code);
        let refused = codes.chain([described.error_code]).find(|code| *code != 0);
        if refused.is_some() {
            return refused.map(ErrorCode);
        }
        for mirror in &described.mirrors {
            for topic in &mirror.topics {
                for partition in &topic.partitions {
                    let at = TopicPartition::new(&*topic.topic_name, partition.partition_index);
                    if partition.state != MirrorState::Stopped.name() {
                        let name = mirror.mirror_name.clone();
                        self.loops.insert(at.clone(), (name, partition.state.clone()));
                    }
                    let (epoch, offset) =
                        (partition.last_mirror_epoch, partition.last_mirror_offset);
                    further(&mut self.last, at, epoch, offset);
                }
            }
        }
        for topic in &described.lookup_results {
            for found in &topic.partitions {
                let at = (topic.topic_id, found.partition_index);
                further(
                    &mut self.last_by_id,
                    at,
                    found.last_mirror_epoch,
                    found.last_mirror_offset,
                );
            }
        }
        None
    }

    /// Where mirrors of a partition ended there, if they have it. `topic` is its name.
    ///
    /// # Errors
    /// [`Failure`] if one of them has not ended: two mirrors would feed each other.
    pub fn common_end(
        &self,
        key: &MirrorKey,
        topic: &str,
    ) -> Result<Option<LastMirrored>, Failure> {
        let at = TopicPartition::new(topic, key.partition);
        if let Some((mirror, state)) = self.loops.get(&at) {
            let reason = format!(
                "a mirror loop: mirror {mirror} at the source mirrors this partition from here, \
                 and is in state {state}; stop the topic there first"
            );
            return Err(Failure { reason: Arc::from(reason), retryable: true });
        }
        let by_name = self.last.get(&at).copied();
        let by_id = self.last_by_id.get(&(key.topic, key.partition)).copied();
        Ok(by_name.into_iter().chain(by_id).max_by_key(|last| (last.epoch, last.offset)))
    }
}

/// Of several mirrors, the one that got furthest.
fn further<K: Ord>(all: &mut BTreeMap<K, LastMirrored>, at: K, epoch: i32, offset: i64) {
    if epoch < 0 {
        return;
    }
    let found = LastMirrored { epoch: LeaderEpoch(epoch), offset: Offset(offset.max(-1)) };
    let known = all.entry(at).or_insert(found);
    if (found.epoch, found.offset) > (known.epoch, known.offset) {
        *known = found;
    }
}

/// What one broker's answer says of a partition; see [`SourceMirrors::common_end`].
///
/// # Errors
/// As there; and for a refusal.
pub fn said_by_source(
    described: &DescribeClusterMirrorsResponse,
    key: &MirrorKey,
    topic: &str,
) -> Result<Option<LastMirrored>, Failure> {
    let mut there = SourceMirrors::default();
    if let Some(refused) = there.add(described) {
        let reason = format!("the source refuses to describe its mirrors: {refused}");
        return Err(Failure { reason: Arc::from(reason), retryable: true });
    }
    there.common_end(key, topic)
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::protocol::mirror::{
        DescribedClusterMirror, DescribedMirrorPartition, DescribedMirrorTopic,
        EpochLookupPartition, EpochLookupResult,
    };

    fn at(epoch: i32, offset: i64) -> LastMirrored {
        LastMirrored { epoch: LeaderEpoch(epoch), offset: Offset(offset) }
    }

    fn epochs(entries: &[(i32, i64)]) -> EpochCache {
        let mut cache = EpochCache::default();
        for (epoch, start) in entries {
            cache.assign(LeaderEpoch(*epoch), Offset(*start));
        }
        cache
    }

    #[track_caller]
    fn steps(last: Option<LastMirrored>, log: (i64, i64), entries: &[(i32, i64)], want: AlignStep) {
        let ends = CopyEnds { log_start: Offset(log.0), log_end: Offset(log.1) };
        assert_eq!(align_step(last, ends, &epochs(entries), false), want);
    }

    /// KIP-1279, 4.5: with the offset it is cut at once, without it the source has to be asked.
    #[test]
    fn a_log_is_cut_to_the_last_mirrored_position() {
        let log = [(0, 0), (1, 3)];
        steps(Some(at(1, 6)), (0, 8), &log, AlignStep::Truncate(Offset(6)));
        steps(Some(at(1, -1)), (0, 8), &log, AlignStep::AskEpochEnd(LeaderEpoch(1)));
        // It was restarted before it wrote on.
        steps(Some(at(1, -1)), (0, 8), &[(0, 0), (1, 3), (2, 6)], AlignStep::Truncate(Offset(6)));
        steps(Some(at(1, 6)), (6, 8), &[(2, 6)], AlignStep::BeginAnew);
        steps(None, (0, 8), &log, AlignStep::BeginAnew);
        steps(None, (8, 8), &[], AlignStep::Aligned);
        steps(Some(at(1, 9)), (0, 8), &[], AlignStep::BeginAnew);
        let ends = CopyEnds { log_start: Offset(0), log_end: Offset(6) };
        let step = align_step(Some(at(1, 6)), ends, &epochs(&log), true);
        assert_eq!(step, AlignStep::Aligned);
    }

    /// After a crash behind the markers the log ends with our own epoch, which is no mirrored one.
    #[test]
    fn the_position_of_a_stop_that_was_interrupted_holds() {
        assert_eq!(last_mirrored(None, at(1, 6)), at(1, 6));
        assert_eq!(last_mirrored(Some(at(1, 6)), at(11, 7)), at(1, 6));
        assert_eq!(last_mirrored(Some(at(1, 6)), at(1, 6)), at(1, 6));
        assert_eq!(last_mirrored(Some(at(5, 60)), at(3, 40)), at(3, 40), "it was aligned since");
        assert_eq!(last_mirrored(Some(at(5, 60)), at(12, 41)), at(5, 41));
    }

    #[test]
    fn the_mirror_that_got_furthest_counts_and_one_that_runs_is_a_loop() {
        let key =
            MirrorKey { mirror: "m".into(), topic: TopicId(Uuid::from_u128(7)), partition: 0 };
        let end = |mirrors: &[(&str, i32, i64)], looked_up: (i32, i64)| {
            let mirror = |&(state, epoch, offset): &(&str, i32, i64)| DescribedClusterMirror {
                mirror_name: "back".to_owned(),
                topics: vec![DescribedMirrorTopic {
                    topic_name: "t".to_owned(),
                    partitions: vec![DescribedMirrorPartition {
                        state: state.to_owned(),
                        last_mirror_epoch: epoch,
                        last_mirror_offset: offset,
                        ..DescribedMirrorPartition::default()
                    }],
                    ..DescribedMirrorTopic::default()
                }],
                ..DescribedClusterMirror::default()
            };
            let found = EpochLookupPartition {
                partition_index: 0,
                last_mirror_epoch: looked_up.0,
                last_mirror_offset: looked_up.1,
            };
            let described = DescribeClusterMirrorsResponse {
                mirrors: mirrors.iter().map(mirror).collect(),
                lookup_results: vec![EpochLookupResult {
                    topic_id: key.topic,
                    partitions: vec![found],
                }],
                ..DescribeClusterMirrorsResponse::default()
            };
            said_by_source(&described, &key, "t").map_err(|failure| failure.reason.to_string())
        };
        assert_eq!(end(&[], (-1, 7)), Ok(None));
        assert_eq!(end(&[("STOPPED", 1, -1)], (-1, -1)), Ok(Some(at(1, -1))));
        assert_eq!(end(&[("STOPPED", 1, 6), ("STOPPED", 2, 4)], (1, 9)), Ok(Some(at(2, 4))));
        assert_eq!(end(&[("STOPPED", 1, 6)], (1, 9)), Ok(Some(at(1, 9))));
        let looped = end(&[("STOPPED", 1, 6), ("PAUSED", 3, 9)], (3, 9)).unwrap_err();
        assert!(looped.contains("mirror back") && looped.contains("PAUSED"), "{looped}");
    }

    #[test]
    fn a_refusal_is_no_lack_of_a_position() {
        let described = DescribeClusterMirrorsResponse {
            mirrors: vec![DescribedClusterMirror {
                error_code: ErrorCode::CLUSTER_MIRROR_AUTHORIZATION_FAILED.0,
                ..DescribedClusterMirror::default()
            }],
            ..DescribeClusterMirrorsResponse::default()
        };
        let key = MirrorKey { mirror: "m".into(), topic: TopicId::NONE, partition: 0 };
        let failure = said_by_source(&described, &key, "t").unwrap_err();
        assert!(
            failure.retryable && failure.reason.contains("CLUSTER_MIRROR_AUTHORIZATION_FAILED"),
            "{failure:?}"
        );
    }
}
