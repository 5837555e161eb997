//! What the control thread and a shard say to each other. Bounded queues carry these
//! values; nothing else is shared.

use std::sync::Arc;

use crate::log::disk::DiskError;
use crate::log::failure::RunError;
use crate::log::partition::PartitionLog;
use crate::log::shown::LogReaders;
use crate::protocol::fetch_stream::DivergingEpoch;
use crate::protocol::{ErrorCode, TopicIdentity};
use crate::types::{BrokerId, LeaderEpoch, Offset};

/// A mirrored partition, named by a number that the control thread chose and never
/// uses for another partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionKey(pub u64);

/// Who leads a partition at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Node ID; [`BrokerId::NONE`] while there is none.
    pub broker: BrokerId,
    /// Its epoch; [`LeaderEpoch::NONE`] if the source does not say.
    pub epoch: LeaderEpoch,
}

/// Where a source broker listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerAddress {
    /// Node ID.
    pub id: BrokerId,
    /// Host name or address; resolved again at each connect.
    pub host: Arc<str>,
    /// TCP port.
    pub port: u16,
}

/// From the control thread to a shard.
#[derive(Debug)]
pub enum Command {
    /// Mirror this partition from the end of its log on.
    Add(Box<AddPartition>),
    /// Stop mirroring it: finish, close its log as a clean stop would, and answer with
    /// [`Report::Returned`].
    Remove {
        /// The partition.
        key: PartitionKey,
    },
    /// Metadata says who leads now. An epoch below the known one is stale and ignored.
    SetLeader {
        /// The partition.
        key: PartitionKey,
        /// The leader.
        leader: Leader,
    },
    /// The destination's leader epoch has risen: batches up to it are taken.
    SetLocalEpoch {
        /// The partition.
        key: PartitionKey,
        /// The new epoch.
        epoch: LeaderEpoch,
    },
    /// The source's topic has got an ID where it had none.
    SetTopicIdentity {
        /// The partition.
        key: PartitionKey,
        /// Name and ID.
        topic: TopicIdentity,
    },
    /// The brokers of the source: those that are not named are gone.
    SetBrokers(Vec<BrokerAddress>),
    /// This shard's part of the throttle, bytes per second; `None` for no limit.
    SetThrottleRate(Option<u64>),
    /// Whether the throttle holds for the partition.
    SetThrottled {
        /// The partition.
        key: PartitionKey,
        /// Whether it is slowed.
        throttled: bool,
    },
    /// Free space ran low (`true`): fetch nothing more, finish what is under way.
    SetParked(bool),
    /// Close every log as a clean stop would, answer with [`Report::Returned`] for
    /// each, then with [`Report::Stopped`].
    Stop,
}

/// A partition that a shard takes over.
#[derive(Debug)]
pub struct AddPartition {
    /// Its name from here on.
    pub key: PartitionKey,
    /// Topic at the source.
    pub topic: TopicIdentity,
    /// Partition index.
    pub index: i32,
    /// Its log, at rest. Its end is where fetching starts.
    pub log: PartitionLog,
    /// Who leads at the source, as far as it is known.
    pub leader: Leader,
    /// Whether the throttle holds for it.
    pub throttled: bool,
    /// Leader epoch at the destination: nothing above it is appended.
    /// [`LeaderEpoch::NONE`] where there is no destination that has one.
    pub local_epoch: LeaderEpoch,
    /// Those who read it meanwhile, if anybody may.
    pub readers: Option<Arc<dyn LogReaders>>,
}

/// Why a partition came back from its shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReturnReason {
    /// [`Command::Remove`] or [`Command::Stop`]; the log is closed cleanly.
    Asked,
    /// The disk refused. The log is abandoned: recover it before it is used again.
    Disk {
        /// What was tried.
        action: &'static str,
        /// How the disk answered.
        error: DiskError,
    },
    /// The source's history differs from the copy's behind this point. Closed cleanly.
    Diverged(DivergingEpoch),
    /// The source does not have the offset that comes next. Closed cleanly.
    OutOfRange {
        /// The copy's log end offset.
        fetch_offset: Offset,
    },
    /// The source knows no such topic, or another one of this name. Closed cleanly.
    UnknownTopic(ErrorCode),
    /// A batch's epoch is above the destination's, which has to be raised first. What came
    /// before it was appended. Closed cleanly.
    EpochFenced {
        /// The batch's.
        epoch: LeaderEpoch,
    },
    /// The source keeps sending what cannot be appended. Closed cleanly.
    Refused(RunError),
    /// The source's answer cannot be mended by asking again. Closed cleanly.
    Fatal(ErrorCode),
}

/// What holds a partition up; it is retried for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The source answers with an error.
    Source(ErrorCode),
    /// No broker leads, as far as the metadata says.
    NoLeader,
    /// The connection to the leader fails.
    Connection(Arc<str>),
    /// A batch was refused and is fetched again.
    Refused(RunError),
}

/// A partition's figures, sent when they have changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionProgress {
    /// The partition.
    pub key: PartitionKey,
    /// Inclusive.
    pub log_start: Offset,
    /// Exclusive; what is below is in the files.
    pub log_end: Offset,
    /// Exclusive; what is below is durable.
    pub recovery_point: Offset,
    /// End of what a read_committed reader sees, exclusive.
    pub last_stable: Offset,
    /// The source's high watermark as last seen, exclusive; −1 before the first answer.
    pub source_high_watermark: Offset,
    /// The source's last stable offset as last seen; −1 for unknown.
    pub source_last_stable: Offset,
    /// Bytes appended since the partition was added.
    pub bytes_appended: u64,
    /// Bytes of the log.
    pub size_bytes: u64,
    /// What holds it up, and for how long in milliseconds.
    pub trouble: Option<(Trouble, u64)>,
}

/// From a shard to the control thread.
#[derive(Debug)]
pub enum Report {
    /// Changed figures.
    Progress(Vec<PartitionProgress>),
    /// A partition left the shard. For a log that was not closed cleanly only its
    /// directory and offsets are of use.
    Returned {
        /// The partition.
        key: PartitionKey,
        /// Its log, quiet.
        log: Box<PartitionLog>,
        /// Why.
        reason: ReturnReason,
    },
    /// The shard's knowledge of the source is stale: refresh metadata soon.
    WantMetadata,
    /// A broker's answer named a new leader.
    LeaderHint {
        /// The partition.
        key: PartitionKey,
        /// The leader.
        leader: Leader,
    },
    /// A batch failed its checks and is fetched again.
    BadBatch {
        /// The partition.
        key: PartitionKey,
        /// What is wrong.
        error: RunError,
    },
    /// Answer to [`Command::Stop`]: no partition is left.
    Stopped,
}
