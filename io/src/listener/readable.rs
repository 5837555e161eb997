//! What Fetch, `ListOffsets` and `OffsetForLeaderEpoch` read from: the logs of a catalog, or of a
//! host.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use heliostat_core::log::read_plan::ReadRequest;
use heliostat_core::log::txn_index::AbortedTxn;
use heliostat_core::serve::{NodeEndpoint, ServedFacts};
use heliostat_core::types::{BrokerId, LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition};
use kafka_protocol::error::ResponseError;

use super::hosted::{Catalog, HostedError, Leadership, Look, Partition};
use super::reading::{RecordsRun, TimedOffset};

/// An epoch and its end, exclusive.
pub(super) type EpochEnd = (LeaderEpoch, Offset);

/// A set of topics that can be read.
pub(super) trait ReadableTopics: Debug + Send + Sync {
    /// A partition by name.
    fn partition(&self, topic: &str, partition: i32) -> Option<Arc<dyn ReadablePartition>>;

    /// Name of a topic.
    fn name_of(&self, id: TopicId) -> Option<Arc<str>>;

    /// The brokers that may be named as leaders.
    fn nodes(&self) -> Vec<NodeEndpoint>;
}

/// A partition of a request, or why there is none.
pub(super) type Place = Result<Arc<dyn ReadablePartition>, ResponseError>;

/// One of its partitions. What is asked may meet a log that is not to be read at the moment;
/// then the error says what clients do about it.
pub(super) trait ReadablePartition: Debug {
    /// Topic and partition.
    fn at(&self) -> &TopicPartition;

    /// Who leads it.
    fn leadership(&self) -> Leadership;

    /// Where it stands, as `node` sees it.
    fn facts(&self, node: BrokerId) -> Result<ServedFacts, ResponseError>;

    /// The largest epoch not above `epoch` and its end; `None` if that cannot be told.
    fn epoch_end(&self, epoch: LeaderEpoch) -> Result<Option<EpochEnd>, ResponseError>;

    /// Epoch of the record at `offset`.
    fn epoch_at(&self, offset: Offset) -> LeaderEpoch;

    /// Where it stands and what it holds from `from` on, both at one moment.
    fn look(
        &self,
        node: BrokerId,
        from: Offset,
    ) -> Result<Box<dyn ReadableLook + '_>, ResponseError>;

    /// The first record at or after `timestamp`.
    fn offset_for_time(&self, timestamp: TimestampMs) -> Result<Option<TimedOffset>, HostedError>;

    /// The first record with the largest timestamp.
    fn max_timestamp(&self) -> Result<Option<TimedOffset>, HostedError>;

    /// The next change wakes whoever waits on listener thread `thread`. Called before a look.
    fn ask(&self, thread: usize);

    /// Its number among those that can be waited for; `None` where every change wakes all.
    fn waited_for_as(&self) -> Option<u64>;
}

/// A partition at one moment.
pub(super) trait ReadableLook {
    /// Where it stands.
    fn facts(&self) -> ServedFacts;

    /// Latest epoch in the log, [`LeaderEpoch::NONE`] for none; `None` unless followers of a
    /// mirror are told.
    fn mirror_epoch(&self) -> Option<LeaderEpoch>;

    /// Bytes that answer `request`.
    fn read(&self, request: &ReadRequest) -> Result<Option<RecordsRun>, HostedError>;

    /// Aborted transactions among the records of `run` from `from` on.
    fn aborted(&self, run: &RecordsRun, from: Offset) -> io::Result<Vec<AbortedTxn>>;
}

impl ReadableTopics for Catalog {
    fn partition(&self, topic: &str, partition: i32) -> Option<Arc<dyn ReadablePartition>> {
        Some(Self::partition(self, topic, partition)?)
    }

    fn name_of(&self, id: TopicId) -> Option<Arc<str>> {
        self.topic_by_id(id).map(|topic| topic.name)
    }

    fn nodes(&self) -> Vec<NodeEndpoint> {
        Self::nodes(self)
    }
}

impl ReadablePartition for Partition {
    fn at(&self) -> &TopicPartition {
        self.id()
    }

    fn leadership(&self) -> Leadership {
        Self::leadership(self)
    }

    fn facts(&self, node: BrokerId) -> Result<ServedFacts, ResponseError> {
        Ok(Self::facts(self, node))
    }

    fn epoch_end(&self, epoch: LeaderEpoch) -> Result<Option<EpochEnd>, ResponseError> {
        Ok(Self::epoch_end(self, epoch))
    }

    fn epoch_at(&self, offset: Offset) -> LeaderEpoch {
        Self::epoch_at(self, offset)
    }

    fn look(&self, node: BrokerId, from: Offset) -> Result<Box<dyn ReadableLook>, ResponseError> {
        Ok(Box::new(Self::look(self, node, from)))
    }

    fn offset_for_time(&self, timestamp: TimestampMs) -> Result<Option<TimedOffset>, HostedError> {
        Self::offset_for_time(self, timestamp)
    }

    fn max_timestamp(&self) -> Result<Option<TimedOffset>, HostedError> {
        Self::max_timestamp(self)
    }

    fn ask(&self, _: usize) {}

    fn waited_for_as(&self) -> Option<u64> {
        None
    }
}

impl ReadableLook for Look {
    fn facts(&self) -> ServedFacts {
        self.facts
    }

    fn mirror_epoch(&self) -> Option<LeaderEpoch> {
        self.mirror_epoch
    }

    fn read(&self, request: &ReadRequest) -> Result<Option<RecordsRun>, HostedError> {
        Self::read(self, request)
    }

    fn aborted(&self, run: &RecordsRun, from: Offset) -> io::Result<Vec<AbortedTxn>> {
        Self::aborted(self, run, from)
    }
}
