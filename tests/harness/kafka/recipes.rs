//! Sequences that several tests need: a leader that moves, a log that is compacted now, a tail
//! that an unclean election loses.

use std::path::Path;
use std::time::Duration;

use super::client::{KafkaClient, Workload};
use super::cluster::Cluster;
use super::error::{KafkaError, Result};
use super::files;
use super::wait;

/// Longest time that the cleaner may take with
/// [`fast_housekeeping`](super::properties::fast_housekeeping).
const CLEAN_TIMEOUT: Duration = Duration::from_mins(1);

const CLEANER_CHECKPOINT: &str = "cleaner-offset-checkpoint";

/// Configs of a topic that the cleaner takes up at once. Needs
/// [`fast_housekeeping`](super::properties::fast_housekeeping) on the brokers.
pub const COMPACT_NOW: [(&str, &str); 4] = [
    ("cleanup.policy", "compact"),
    ("min.cleanable.dirty.ratio", "0.001"),
    ("segment.ms", "200"),
    ("delete.retention.ms", "0"),
];

/// Makes `node`, one of the partition's replicas, its leader: puts it first and elects it.
///
/// # Errors
///
/// [`KafkaError::Refused`] when it is no replica, [`KafkaError::Timeout`] when it is not in sync.
pub fn move_leader(client: &KafkaClient, topic: &str, partition: i32, node: i32) -> Result<()> {
    let view = client.wait_partition(topic, partition, "a leader", |p| p.leader.is_some())?;
    let mut replicas = view.replicas;
    replicas.sort_by_key(|&id| id != node); // stable: the others keep their order
    client.reassign(topic, partition, &replicas)?;
    client.wait_partition(topic, partition, "the replica in sync", |p| p.isr.contains(&node))?;
    client.elect_preferred(topic, partition)?;
    client.wait_partition(topic, partition, "the new leader", |p| p.leader == Some(node))?;
    Ok(())
}

/// Waits until the cleaner of a broker has cleaned a partition up to `offset`, exclusive, and
/// returns how far it got. `data_dir` is the broker's: [`Node::data_dir`](super::Node::data_dir).
///
/// # Errors
///
/// [`KafkaError::Timeout`].
pub fn wait_cleaned(data_dir: &Path, topic: &str, partition: i32, offset: i64) -> Result<i64> {
    let what = format!("the cleaner to reach {offset} of {topic}-{partition}");
    wait::until(what, CLEAN_TIMEOUT, || {
        let cleaned = files::checkpoint(data_dir, CLEANER_CHECKPOINT, topic, partition)?;
        Ok(cleaned.filter(|&cleaned| cleaned >= offset))
    })
}

/// Rolls the active segment of a partition with [`COMPACT_NOW`], so that everything before the
/// call is clean when it returns: sends one record a look, because a segment rolls at an append.
/// Returns the offset up to which the log in `data_dir`, the leader's, is clean, exclusive.
///
/// # Errors
///
/// [`KafkaError::Timeout`].
pub fn compact(data_dir: &Path, client: &KafkaClient, topic: &str, partition: i32) -> Result<i64> {
    let nudge =
        Workload { partition: Some(partition), keys: 1, linger_ms: 0, ..Workload::new(topic, 1) };
    let target = client.produce(&nudge)?.offsets.get(&partition).map_or(0, |&(first, _)| first);
    let what = format!("the cleaner to reach {target} of {topic}-{partition}");
    wait::until(what, CLEAN_TIMEOUT, || {
        client.produce(&nudge)?;
        let cleaned = files::checkpoint(data_dir, CLEANER_CHECKPOINT, topic, partition)?;
        Ok(cleaned.filter(|&cleaned| cleaned >= target))
    })
}

/// What [`lose_tail`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LostTail {
    /// Leader that wrote the tail and died; it is back at the end, truncated.
    pub old_leader: i32,
    /// Leader of the unclean election.
    pub new_leader: i32,
    /// Leader epoch of the tail.
    pub old_epoch: i32,
    /// Leader epoch after the election.
    pub new_epoch: i32,
    /// First lost offset: where both logs part.
    pub parted_at: i64,
    /// End of the lost tail, exclusive. The new leader's log may have grown past it since.
    pub lost_end: i64,
}

/// Loses committed records through an unclean election, and returns with all brokers running.
///
/// The topic must have one partition with two replicas, on two of three brokers, and the configs
/// `unclean.leader.election.enable=true` and `min.insync.replicas=1`. The follower is killed, the
/// leader writes `tail` alone, which is committed with itself as the only in-sync replica, and is
/// killed too; then the follower comes back and is elected. The third broker keeps the quorum.
///
/// # Errors
///
/// [`KafkaError::Timeout`] when a step does not show.
pub fn lose_tail(
    cluster: &mut Cluster,
    client: &KafkaClient,
    topic: &str,
    tail: &Workload,
) -> Result<LostTail> {
    lose_tail_seen(cluster, client, topic, tail, |_| Ok(()))
}

/// As [`lose_tail`]; `seen` is called with the end of the tail, exclusive, while it is there. For
/// those who have to have read it.
///
/// # Errors
///
/// [`KafkaError::Timeout`] when a step does not show, and those of `seen`.
pub fn lose_tail_seen<E: From<KafkaError>>(
    cluster: &mut Cluster,
    client: &KafkaClient,
    topic: &str,
    tail: &Workload,
    seen: impl FnOnce(i64) -> Result<(), E>,
) -> Result<LostTail, E> {
    let before = client
        .wait_partition(topic, 0, "two in sync", |p| p.isr.len() == 2 && p.leader.is_some())?;
    let old_leader = before.leader.unwrap_or_default();
    let new_leader = before.isr.iter().copied().find(|&id| id != old_leader).unwrap_or_default();
    cluster.node_mut(new_leader)?.kill()?;
    let alone = client.wait_partition(topic, 0, "the leader alone in sync", |p| {
        p.isr == [old_leader] && p.leader == Some(old_leader)
    })?;
    let written = client.produce(tail)?;
    let (first, last) = written.offsets.get(&0).copied().unwrap_or((-1, -1));
    seen(last.saturating_add(1))?;

    cluster.node_mut(old_leader)?.kill()?;
    cluster.node_mut(new_leader)?.start()?;
    client
        .wait_partition(topic, 0, "no leader, or the new one", |p| p.leader != Some(old_leader))?;
    let what = format!("the unclean election of {topic}-0");
    wait::until(what, CLEAN_TIMEOUT, || {
        // The controller may do it by itself; asking again does no harm.
        let asked = client.elect_unclean(topic, 0);
        let leader = client.describe(topic).ok().flatten().and_then(|t| t.partition(0)?.leader);
        if leader == Some(new_leader) {
            return Ok(Some(()));
        }
        match asked {
            Err(gone @ KafkaError::Exited { .. }) => Err(gone),
            _ => Ok(None),
        }
    })?;
    let after =
        client.wait_partition(topic, 0, "the new leader", |p| p.leader == Some(new_leader))?;
    cluster.node_mut(old_leader)?.start()?;
    client.wait_partition(topic, 0, "both in sync again", |p| p.isr.len() == 2)?;
    Ok(LostTail {
        old_leader,
        new_leader,
        old_epoch: alone.leader_epoch,
        new_epoch: after.leader_epoch,
        parted_at: first,
        lost_end: last.saturating_add(1),
    })
}
