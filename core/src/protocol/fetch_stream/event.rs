//! What the streaming decoder reports, and the limits it holds a broker to.

use std::fmt;
use std::sync::Arc;

use crate::protocol::ErrorCode;
use crate::types::{BrokerId, LeaderEpoch, Offset, TopicId};

/// Limits of one response. Nothing is allocated for a length or count before
/// its bytes are there, so these bound time and nonsense rather than memory;
/// only names and known tagged fields are buffered, up to their own limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    /// Whole response in bytes, without its 4-byte size. The default of 1 GiB is
    /// above every batch that Kafka takes by default, and below the size that
    /// an HTTP answer would be read as.
    pub frame_bytes_max: u64,
    /// Topics in one response.
    pub topics_max: u32,
    /// Partitions in one response, over all topics.
    pub partitions_max: u32,
    /// Aborted transactions of one partition.
    pub aborted_max: u32,
    /// A topic name in bytes. Kafka allows 249.
    pub name_bytes_max: u32,
    /// One tagged field in bytes, known or not.
    pub tagged_bytes_max: u32,
}

impl Default for FetchLimits {
    fn default() -> Self {
        Self {
            frame_bytes_max: 1 << 30,
            topics_max: 1_000_000,
            partitions_max: 1_000_000,
            aborted_max: 1_000_000,
            name_bytes_max: 255,
            tagged_bytes_max: 1 << 20,
        }
    }
}

/// How a response names a topic: by name up to version 12, by ID from 13 on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TopicRef {
    /// Version 12 and older.
    Name(Arc<str>),
    /// Version 13 and newer.
    Id(TopicId),
}

impl fmt::Display for TopicRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Id(id) => id.fmt(f),
        }
    }
}

/// One step through a Fetch response. The order is `Header`, then for each
/// partition `Partition`, its record bytes, `PartitionEnd`, and at last `End`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchEvent {
    /// The fields in front of the topics.
    Header(ResponseHeader),
    /// The fields of a partition in front of its records.
    Partition(PartitionHeader),
    /// The fields of a partition behind its records.
    PartitionEnd(PartitionEnd),
    /// The response has been consumed to its last byte.
    End {
        /// Where the new leaders of moved partitions are (version 16 and newer).
        node_endpoints: Vec<NodeEndpoint>,
    },
}

/// The fields of a response in front of its topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseHeader {
    /// Correlation ID of the request that this answers.
    pub correlation_id: i32,
    /// How long the broker's quota asks the client to keep silent, in milliseconds.
    pub throttle_ms: u32,
    /// Error of the whole request; none below version 7.
    pub error: ErrorCode,
    /// Fetch session; 0 for none, and below version 7.
    pub session_id: i32,
}

/// The fields of a partition in front of its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionHeader {
    /// Topic of the partition.
    pub topic: TopicRef,
    /// Partition index.
    pub index: i32,
    /// Error of the partition.
    pub error: ErrorCode,
    /// Exclusive; −1 where the error leaves it unknown.
    pub high_watermark: Offset,
    /// Exclusive; −1 for unknown.
    pub last_stable_offset: Offset,
    /// Inclusive; −1 for unknown, and below version 5.
    pub log_start_offset: Offset,
    /// Aborted transactions that were listed and skipped: empty unless the
    /// request asked for committed records only.
    pub aborted_count: u32,
    /// Replica that the broker would rather have asked; −1 for none.
    pub preferred_read_replica: BrokerId,
    /// Bytes of records that follow on the wire; 0 for null as well.
    pub records_bytes: u64,
}

/// The fields of a partition behind its records. All are absent below version 12.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionEnd {
    /// Partition index, as in the header before.
    pub index: i32,
    /// The last fetched epoch and fetch offset do not fit the leader's log.
    pub diverging_epoch: Option<DivergingEpoch>,
    /// Who leads, where the broker does not or the epoch is another.
    pub current_leader: Option<LeaderHint>,
    /// Snapshot to load in place of the log; a metadata log's matter.
    pub snapshot_id: Option<SnapshotId>,
    /// Latest epoch in a mirror leader's log (version 19).
    pub mirror_leader_epoch: Option<LeaderEpoch>,
}

impl PartitionEnd {
    /// Without the fields that are there but hold Kafka's "none".
    pub(super) fn known(self) -> Self {
        Self {
            index: self.index,
            diverging_epoch: self.diverging_epoch.filter(|found| found.epoch.known().is_some()),
            current_leader: self
                .current_leader
                .filter(|hint| hint.leader > BrokerId::NONE || hint.epoch.known().is_some()),
            snapshot_id: self.snapshot_id.filter(|id| id.end_offset > Offset::NONE),
            mirror_leader_epoch: self.mirror_leader_epoch.and_then(LeaderEpoch::known),
        }
    }
}

/// The largest epoch of the leader's log that is not above the last fetched one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DivergingEpoch {
    /// The epoch.
    pub epoch: LeaderEpoch,
    /// Where it ends in the leader's log, exclusive.
    pub end_offset: Offset,
}

/// A leader as a broker that is not it knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaderHint {
    /// Node ID of the leader; −1 while there is none.
    pub leader: BrokerId,
    /// Its epoch; −1 for unknown.
    pub epoch: LeaderEpoch,
}

/// Name of a snapshot of a metadata log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotId {
    /// End of the snapshot, exclusive.
    pub end_offset: Offset,
    /// Epoch at its end.
    pub epoch: LeaderEpoch,
}

/// Address of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEndpoint {
    /// Node ID.
    pub node: BrokerId,
    /// Host name or address, as the broker advertises it.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Rack of the broker, if it has one.
    pub rack: Option<String>,
}
