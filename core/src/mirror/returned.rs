//! What becomes of a partition that a shard gave back.
//!
//! Records are never skipped, cut or replaced in silence: each such step is a value here,
//! which the control thread records durably before it carries it out.

use crate::config::GapPolicy;
use crate::engine::message::ReturnReason;
use crate::log::disk::DiskError;
use crate::log::epoch_cache::EpochCache;
use crate::log::failure::RunError;
use crate::protocol::ErrorCode;
use crate::protocol::fetch_stream::DivergingEpoch;
use crate::types::{LeaderEpoch, Offset};

/// Times in a row, without a record appended between them, that something which another
/// try may mend is tried.
pub const ATTEMPTS_MAX: u32 = 3;

/// What an operator has decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// `mirror.gap.policy`
    pub gap: GapPolicy,
    /// `mirror.support.unclean.leader.election`: a copy that was following may be cut.
    pub unclean_leader_election: bool,
}

/// Why a partition is not copied any more. An operator has to act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StopReason {
    /// The source lost records that the copy has.
    #[error(
        "the source's history differs from the copy's from offset {at} on ({} records are here and \
         not there): an unclean leader election at the source; set \
         mirror.support.unclean.leader.election=true to cut them here as well", log_end.records_since(*at)
    )]
    Diverged {
        /// End of what both have, exclusive.
        at: Offset,
        /// End of the copy, exclusive.
        log_end: Offset,
    },
    /// The histories differ, and no common point can be found.
    #[error(
        "the source's history differs from the copy's, and no common point is known; compare with \
         heliostat verify, or move the directory away to copy the partition anew"
    )]
    NothingCommon,
    /// The source no longer has what comes next.
    #[error(
        "the source no longer has offsets {from} to {to} (exclusive), and mirror.gap.policy=stop; \
         set it to continue to go on at {to}"
    )]
    Gap {
        /// End of the copy: the first offset that is missing.
        from: Offset,
        /// The source's first offset.
        to: Offset,
    },
    /// The copy is longer than the source.
    #[error(
        "the copy ends at {log_end}, the source at {latest}: the source lost records or the topic \
         was recreated; set mirror.support.unclean.leader.election=true to cut the copy, or move \
         the directory away to copy the partition anew"
    )]
    AheadOfSource {
        /// End of the copy, exclusive.
        log_end: Offset,
        /// End of the source, exclusive.
        latest: Offset,
    },
    /// The source keeps refusing an offset that it says it has.
    #[error(
        "the source refuses offset {log_end} though it has {earliest} to {latest}: its leader \
         epochs do not fit the copy's, or its tiered storage has lost that part; compare with \
         heliostat verify"
    )]
    InRangeRefused {
        /// End of the copy, exclusive.
        log_end: Offset,
        /// First offset of the source.
        earliest: Offset,
        /// End of the source, exclusive.
        latest: Offset,
    },
    /// What the source sends cannot be appended.
    #[error("the source keeps sending what cannot be appended: {0}")]
    Refused(RunError),
    /// An answer that asking again does not mend.
    #[error("the source answers {0}, which asking again does not mend")]
    Fatal(ErrorCode),
    /// The disk keeps failing.
    #[error("{action} keeps failing ({error}); check the disk")]
    Disk {
        /// What was tried.
        action: &'static str,
        /// How the disk answered.
        error: DiskError,
    },
}

impl StopReason {
    /// Whether trying again later may help, without an operator's decision.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Diverged { .. }
            | Self::NothingCommon
            | Self::Gap { .. }
            | Self::AheadOfSource { .. } => false,
            Self::InRangeRefused { .. } | Self::Refused(_) | Self::Fatal(_) | Self::Disk { .. } => {
                true
            }
        }
    }
}

/// What to do with a partition that was returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// It was asked for; nothing by itself.
    Nothing,
    /// Open the log (which recovers it) and add it again after a wait.
    Reopen,
    /// The same, once there is room on the disk.
    ReopenWhenRoom,
    /// The same, fetching from another replica where there is one.
    ReopenElsewhere,
    /// Refresh metadata; if the topic is still the same, open and add it again after a wait.
    CheckIdentity,
    /// Ask the source for its first and last offset, then see [`on_offsets`].
    AskOffsets,
    /// Ask the source where this epoch ends, then see [`on_epoch_end`].
    AskEpochEnd(LeaderEpoch),
    /// The histories part: see [`on_diverged`].
    Align(DivergingEpoch),
    /// The destination's leader epoch has to be raised to this one, or above, before it goes on.
    RaiseEpoch(LeaderEpoch),
    /// An operator has to act.
    Stop(StopReason),
}

/// First reaction. `attempts` counts this return and those before it since the copy last
/// grew, from 1; `latest` is the newest epoch of the copy.
pub fn on_returned(reason: &ReturnReason, attempts: u32, latest: LeaderEpoch) -> NextStep {
    let bounded = |step, stop| if attempts < ATTEMPTS_MAX { step } else { NextStep::Stop(stop) };
    match reason {
        ReturnReason::Asked => NextStep::Nothing,
        ReturnReason::Disk { error: DiskError::NoSpace, .. } => NextStep::ReopenWhenRoom,
        ReturnReason::Disk { action, error } => {
            bounded(NextStep::Reopen, StopReason::Disk { action, error: *error })
        }
        ReturnReason::Diverged(diverging) => NextStep::Align(*diverging),
        ReturnReason::OutOfRange { .. } => NextStep::AskOffsets,
        ReturnReason::UnknownTopic(_) => NextStep::CheckIdentity,
        ReturnReason::EpochFenced { epoch } => NextStep::RaiseEpoch(*epoch),
        ReturnReason::Refused(error) => match error {
            // The metadata lags behind the data; it always catches up.
            RunError::EpochAhead { .. } => NextStep::CheckIdentity,
            RunError::EpochGoesBack { .. } | RunError::Overlap { .. } => {
                let step = match latest.known() {
                    Some(latest) => NextStep::AskEpochEnd(latest),
                    None => NextStep::Reopen,
                };
                bounded(step, StopReason::Refused(*error))
            }
            _ => bounded(NextStep::ReopenElsewhere, StopReason::Refused(*error)),
        },
        ReturnReason::Fatal(code) => NextStep::Stop(StopReason::Fatal(*code)),
    }
}

/// A step that changes what the copy holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// Nothing to cut: open and add again after a wait.
    Reopen,
    /// Cut the copy to end here, exclusive. Records up to its old end are gone.
    Truncate {
        /// The new end.
        to: Offset,
    },
    /// Remove every record, and begin again at `start`. What lies between the copy's old
    /// end and `start` is a gap if `start` is higher, and the copy's old records were cut
    /// if it is not.
    Reset {
        /// Where the log begins again.
        start: Offset,
    },
    /// An operator has to act.
    Stop(StopReason),
}

/// Where a copy stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyEnds {
    /// First offset, inclusive.
    pub log_start: Offset,
    /// End, exclusive.
    pub log_end: Offset,
}

/// The source says where its history parts from the copy's. The common point is where the
/// older of both sides' ends of the largest common epoch lies; the source may then still
/// disagree with what is left, and says so at the next fetch.
///
/// `may_cut`: the copy is aligned for the first time, or the operator allows it.
pub fn on_diverged(
    diverging: DivergingEpoch,
    copy: CopyEnds,
    epochs: &EpochCache,
    may_cut: bool,
) -> Repair {
    let CopyEnds { log_start, log_end } = copy;
    if diverging.epoch.known().is_none() || diverging.end_offset.0 < 0 {
        return Repair::Stop(StopReason::NothingCommon);
    }
    let (_, own_end) = epochs.end_offset_for(diverging.epoch, log_end);
    // −1: everything here is of older epochs, so the source's end decides.
    let own_end = if own_end.0 < 0 { log_end } else { own_end };
    let at = diverging.end_offset.min(own_end).min(log_end);
    if at >= log_end {
        return Repair::Reopen;
    }
    if !may_cut {
        return Repair::Stop(StopReason::Diverged { at: at.max(log_start), log_end });
    }
    if at <= log_start { Repair::Reset { start: at } } else { Repair::Truncate { to: at } }
}

/// Answer of the source's `OffsetForLeaderEpoch` for `asked`, the copy's newest epoch.
/// Sources whose Fetch cannot tell of a divergence are asked so.
pub fn on_epoch_end(
    asked: LeaderEpoch,
    answer: DivergingEpoch,
    copy: CopyEnds,
    epochs: &EpochCache,
    may_cut: bool,
) -> Repair {
    if answer.epoch == LeaderEpoch::NONE || answer.end_offset.0 < 0 {
        // The source has no epochs (old formats, or all trimmed): nothing can be told from
        // them, and nothing may be cut for it.
        return Repair::Reopen;
    }
    if answer.epoch == asked && answer.end_offset >= copy.log_end {
        return Repair::Reopen;
    }
    on_diverged(answer, copy, epochs, may_cut)
}

/// The source has `earliest` to `latest` (exclusive) and refused the end of the copy.
/// `attempts` as for [`on_returned`].
pub fn on_offsets(
    copy: CopyEnds,
    earliest: Offset,
    latest: Offset,
    policy: Policy,
    may_cut: bool,
    attempts: u32,
) -> Repair {
    let log_end = copy.log_end;
    if log_end < earliest {
        return match policy.gap {
            GapPolicy::Continue => Repair::Reset { start: earliest },
            GapPolicy::Stop => Repair::Stop(StopReason::Gap { from: log_end, to: earliest }),
        };
    }
    if log_end > latest {
        return match may_cut {
            true if latest <= copy.log_start => Repair::Reset { start: latest },
            true => Repair::Truncate { to: latest },
            false => Repair::Stop(StopReason::AheadOfSource { log_end, latest }),
        };
    }
    // It moved meanwhile, or the source cannot place the copy's last epoch.
    if attempts < ATTEMPTS_MAX {
        return Repair::Reopen;
    }
    Repair::Stop(StopReason::InRangeRefused { log_end, earliest, latest })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::records::RecordError;

    const COPY: CopyEnds = CopyEnds { log_start: Offset(10), log_end: Offset(100) };
    const CONTINUE: Policy = Policy { gap: GapPolicy::Continue, unclean_leader_election: false };
    const STOP: Policy = Policy { gap: GapPolicy::Stop, unclean_leader_election: false };

    fn epochs(entries: &[(i32, i64)]) -> EpochCache {
        let mut cache = EpochCache::default();
        for &(epoch, start) in entries {
            cache.assign(LeaderEpoch(epoch), Offset(start));
        }
        cache
    }

    fn diverging(epoch: i32, end: i64) -> DivergingEpoch {
        DivergingEpoch { epoch: LeaderEpoch(epoch), end_offset: Offset(end) }
    }

    #[track_caller]
    fn first(reason: ReturnReason, attempts: u32, want: NextStep) {
        assert_eq!(on_returned(&reason, attempts, LeaderEpoch(4)), want, "{reason:?} {attempts}");
    }

    #[test]
    fn every_reason_has_its_step() {
        use NextStep as N;
        let disk = |error| ReturnReason::Disk { action: "sync", error };
        first(ReturnReason::Asked, 9, N::Nothing);
        first(disk(DiskError::NoSpace), 9, N::ReopenWhenRoom);
        first(disk(DiskError::Io(5)), 2, N::Reopen);
        let failing = StopReason::Disk { action: "sync", error: DiskError::Io(5) };
        first(disk(DiskError::Io(5)), 3, N::Stop(failing));
        first(ReturnReason::Diverged(diverging(1, 2)), 9, N::Align(diverging(1, 2)));
        first(ReturnReason::OutOfRange { fetch_offset: Offset(1) }, 9, N::AskOffsets);
        first(ReturnReason::UnknownTopic(ErrorCode::UNKNOWN_TOPIC_ID), 9, N::CheckIdentity);
        let epoch = LeaderEpoch(12);
        first(ReturnReason::EpochFenced { epoch }, 9, N::RaiseEpoch(epoch));
        let fatal = ErrorCode::UNSUPPORTED_COMPRESSION_TYPE;
        first(ReturnReason::Fatal(fatal), 1, N::Stop(StopReason::Fatal(fatal)));
    }

    #[test]
    fn bad_batches_are_tried_elsewhere_and_then_named() {
        use NextStep as N;
        let bad = RunError::Record(RecordError::CrcMismatch {
            base_offset: Offset(77),
            stored: 1,
            computed: 2,
        });
        first(ReturnReason::Refused(bad), 1, N::ReopenElsewhere);
        first(ReturnReason::Refused(bad), 2, N::ReopenElsewhere);
        first(ReturnReason::Refused(bad), 3, N::Stop(StopReason::Refused(bad)));
        let text = StopReason::Refused(bad).to_string();
        assert!(text.contains("77") && text.contains("00000001"), "{text}");
        let (base_offset, epoch, known) = (Offset(1), LeaderEpoch(5), LeaderEpoch(4));
        let ahead = RunError::EpochAhead { base_offset, epoch, known };
        first(ReturnReason::Refused(ahead), 99, N::CheckIdentity);
        let back = RunError::EpochGoesBack { base_offset, epoch: known, latest: epoch };
        first(ReturnReason::Refused(back), 1, N::AskEpochEnd(LeaderEpoch(4)));
        first(ReturnReason::Refused(back), 3, N::Stop(StopReason::Refused(back)));
    }

    #[track_caller]
    fn diverged(answer: DivergingEpoch, may_cut: bool, want: Repair) {
        let epochs = epochs(&[(1, 10), (3, 40), (5, 80)]);
        assert_eq!(on_diverged(answer, COPY, &epochs, may_cut), want, "{answer:?}");
    }

    #[test]
    fn the_common_point_is_the_lower_end_of_the_common_epoch() {
        // The source lost the tail of epoch 5.
        diverged(diverging(5, 90), true, Repair::Truncate { to: Offset(90) });
        // The source's epoch 3 went on for longer than ours.
        diverged(diverging(3, 95), true, Repair::Truncate { to: Offset(80) });
        diverged(diverging(3, 60), true, Repair::Truncate { to: Offset(60) });
        // An epoch that we never saw: what we have of the ones before it.
        diverged(diverging(4, 85), true, Repair::Truncate { to: Offset(80) });
        // Nothing that we still have is common.
        diverged(diverging(0, 5), true, Repair::Reset { start: Offset(5) });
        diverged(diverging(5, 100), true, Repair::Reopen);
        diverged(diverging(-1, -1), true, Repair::Stop(StopReason::NothingCommon));
    }

    #[test]
    fn a_following_copy_is_cut_only_with_permission() {
        let stop = |at| StopReason::Diverged { at: Offset(at), log_end: Offset(100) };
        diverged(diverging(5, 90), false, Repair::Stop(stop(90)));
        diverged(diverging(0, 5), false, Repair::Stop(stop(10)));
        diverged(diverging(5, 100), false, Repair::Reopen);
        assert!(stop(90).to_string().contains("(10 records are here and not there)"));
    }

    #[test]
    fn epoch_ends_of_old_sources_cut_only_what_they_prove() {
        let epochs = epochs(&[(1, 10), (3, 40), (5, 80)]);
        let check = |answer, want| {
            assert_eq!(on_epoch_end(LeaderEpoch(5), answer, COPY, &epochs, true), want);
        };
        check(diverging(5, 100), Repair::Reopen);
        check(diverging(5, 200), Repair::Reopen);
        check(diverging(-1, -1), Repair::Reopen);
        check(diverging(5, 90), Repair::Truncate { to: Offset(90) });
        check(diverging(3, 70), Repair::Truncate { to: Offset(70) });
    }

    #[track_caller]
    fn offsets(range: (i64, i64), policy: Policy, may_cut: bool, attempts: u32, want: Repair) {
        let (earliest, latest) = (Offset(range.0), Offset(range.1));
        assert_eq!(on_offsets(COPY, earliest, latest, policy, may_cut, attempts), want);
    }

    #[test]
    fn below_the_source_is_a_gap_and_above_it_a_loss() {
        offsets((150, 200), CONTINUE, false, 1, Repair::Reset { start: Offset(150) });
        let gap = StopReason::Gap { from: Offset(100), to: Offset(150) };
        offsets((150, 200), STOP, true, 1, Repair::Stop(gap));
        let ahead = StopReason::AheadOfSource { log_end: Offset(100), latest: Offset(50) };
        offsets((0, 50), CONTINUE, false, 1, Repair::Stop(ahead));
        offsets((0, 50), STOP, true, 1, Repair::Truncate { to: Offset(50) });
        offsets((0, 10), STOP, true, 1, Repair::Reset { start: Offset(10) });
        offsets((0, 100), STOP, false, 1, Repair::Reopen);
        offsets((100, 300), STOP, false, 2, Repair::Reopen);
        let (log_end, earliest, latest) = (Offset(100), Offset(0), Offset(300));
        let refused = StopReason::InRangeRefused { log_end, earliest, latest };
        offsets((0, 300), STOP, true, 3, Repair::Stop(refused));
    }

    proptest! {
        /// Whatever the source says, a cut shortens the copy and needs permission.
        #[test]
        fn cuts_shorten_and_need_permission(
            epoch in -1..8_i32, end in -1..120_i64, may_cut: bool,
            starts in prop::collection::btree_map(0..8_i32, 10..100_i64, 0..5),
        ) {
            let entries: Vec<_> = starts.into_iter().collect();
            let epochs = epochs(&entries);
            match on_diverged(diverging(epoch, end), COPY, &epochs, may_cut) {
                Repair::Truncate { to } => {
                    prop_assert!(may_cut && to > COPY.log_start && to < COPY.log_end);
                }
                Repair::Reset { start } => prop_assert!(may_cut && start <= COPY.log_start),
                Repair::Reopen | Repair::Stop(_) => {}
            }
        }
    }
}
