//! Partitions come, get leaders, wait, and go.

use super::{Action, Shard};
use crate::engine::connection::{Lane, RunTarget};
use crate::engine::message::{
    AddPartition, BrokerAddress, Leader, PartitionKey, Report, ReturnReason, Trouble,
};
use crate::engine::partition::{Partition, Status};
use crate::engine::timers::Timer;
use crate::log::disk::DiskError;
use crate::protocol::{FetchPosition, TopicIdentity};
use crate::types::{BrokerId, LeaderEpoch};

impl Shard {
    pub(super) fn add(&mut self, add: AddPartition) {
        let key = add.key;
        assert!(!self.by_key.contains_key(&key), "a partition is added once");
        let partition = Box::new(Partition::new(add, self.now));
        self.count_topic(&partition.topic, true);
        let index = match self.free.pop() {
            Some(index) => {
                self.partitions[index] = Some(partition);
                index
            }
            None => {
                self.partitions.push(Some(partition));
                self.partitions.len() - 1
            }
        };
        self.by_key.insert(key, index);
        self.mark_dirty(index);
        self.show(index);
        if self.stopping {
            self.begin_return(index, ReturnReason::Asked);
        } else {
            self.resume(index);
        }
    }

    fn count_topic(&mut self, topic: &TopicIdentity, added: bool) {
        match (topic.id.known(), added) {
            (Some(_), _) => {}
            (None, true) => self.without_id += 1,
            (None, false) => self.without_id -= 1,
        }
    }

    pub(super) fn set_leader(&mut self, key: PartitionKey, leader: Leader) {
        let Some(index) = self.index_of(key) else { return };
        let Some(partition) = self.partition(index) else { return };
        let moved = partition.learn_leader(leader);
        if moved || partition.status == Status::AwaitingLeader {
            self.restart(index);
        }
    }

    /// Fetches anew with what is known now, unless it backs off or leaves.
    pub(super) fn restart(&mut self, index: usize) {
        let Some(partition) = self.partition(index) else { return };
        if matches!(partition.status, Status::Fetching | Status::AwaitingLeader) {
            self.delist(index);
            self.resume(index);
        }
    }

    pub(super) fn set_topic(&mut self, key: PartitionKey, topic: TopicIdentity) {
        let Some(index) = self.index_of(key) else { return };
        let Some(partition) = self.partition(index) else { return };
        if partition.topic == topic {
            return;
        }
        self.delist(index);
        let Some(partition) = self.partition(index) else { return };
        let old = std::mem::replace(&mut partition.topic, topic.clone());
        self.count_topic(&old, false);
        self.count_topic(&topic, true);
        self.restart(index);
    }

    pub(super) fn set_local_epoch(&mut self, key: PartitionKey, epoch: LeaderEpoch) {
        let Some(index) = self.index_of(key) else { return };
        let Some(partition) = self.partition(index) else { return };
        // It only rises. What is being received goes by the old one and is fetched again.
        partition.local_epoch = partition.local_epoch.max(epoch);
    }

    pub(super) fn set_throttled(&mut self, key: PartitionKey, throttled: bool) {
        let Some(index) = self.index_of(key) else { return };
        let Some(partition) = self.partition(index) else { return };
        if partition.throttled != throttled {
            partition.throttled = throttled;
            self.restart(index);
        }
    }

    /// A throttle has come or gone: what it holds for changes its connection.
    pub(super) fn sort_throttled(&mut self) {
        for index in 0..self.partitions.len() {
            if self.partition(index).is_some_and(|partition| partition.throttled) {
                self.restart(index);
            }
        }
    }

    pub(super) fn set_brokers(&mut self, brokers: Vec<BrokerAddress>) {
        self.metadata_wanted = false;
        let gone: Vec<BrokerId> = self
            .brokers
            .keys()
            .filter(|id| !brokers.iter().any(|broker| broker.id == **id))
            .copied()
            .collect();
        for id in gone {
            self.forget_broker(id);
        }
        for address in brokers {
            self.know_broker(address);
        }
        self.resume_waiting();
    }

    /// Partitions that waited for a leader's address may have it now.
    pub(super) fn resume_waiting(&mut self) {
        for index in 0..self.partitions.len() {
            if self.partition(index).is_some_and(|p| p.status == Status::AwaitingLeader) {
                self.resume(index);
            }
        }
    }

    /// Puts a partition into the session of a connection to its leader, if it has one.
    pub(super) fn resume(&mut self, index: usize) {
        let now = self.now;
        let limited = self.throttle.is_limited();
        let Some(partition) = self.partition(index) else { return };
        let fetched = partition.connection.is_some() || partition.striping.is_some();
        if matches!(partition.status, Status::Returning(_)) || fetched {
            return;
        }
        let leader = partition.leader.broker;
        let lane = if partition.throttled && limited {
            None
        } else if partition.is_caught_up() {
            Some(Lane::Tail)
        } else {
            partition.active_at = now;
            Some(Lane::Busy(0))
        };
        if !self.brokers.contains_key(&leader) {
            let Some(partition) = self.partition(index) else { return };
            partition.status = Status::AwaitingLeader;
            partition.trouble.get_or_insert_with(|| Box::new((Trouble::NoLeader, now)));
            self.mark_dirty(index);
            self.want_metadata();
            return;
        }
        let connection = self.connection_for(leader, lane);
        let Some(partition) = self.partition(index) else { return };
        partition.status = Status::Fetching;
        partition.connection = Some(connection);
        self.connections[connection].members.insert(index);
        self.set_position(index);
        self.drive(connection);
    }

    /// Tells the session where the partition goes on.
    pub(super) fn set_position(&mut self, index: usize) {
        let Some(partition) = self.partitions.get(index).and_then(Option::as_deref) else { return };
        let Some(connection) = partition.connection else { return };
        let partition_max_bytes = self.partition_bytes(connection);
        let position = FetchPosition {
            fetch_offset: partition.log.fetch_offset(),
            current_leader_epoch: partition.leader.epoch,
            last_fetched_epoch: partition.log.last_fetched_epoch(),
            partition_max_bytes,
        };
        // Places are reused, but not while an answer about the old tenant is under way:
        // the position tells them apart.
        let token = u32::try_from(index).unwrap_or(u32::MAX);
        let session = &mut self.connections[connection].session;
        session.want(&partition.topic, partition.index, token, position);
    }

    /// Takes a partition out of its connection's session. A run that is being received
    /// ends here; its remaining bytes are discarded as they come.
    pub(super) fn delist(&mut self, index: usize) {
        let Some(partition) = self.partition(index) else { return };
        let at = partition.connection.take();
        self.end_striping(index);
        if let Some(at) = at {
            self.leave_session(index, at);
        }
        self.with_log(index, |log, cx| log.abort_run(cx));
        self.buffers_freed = true;
    }

    fn leave_session(&mut self, index: usize, at: usize) {
        let Some(partition) = self.partition(index) else { return };
        let (name, partition_index) = (partition.topic.name.clone(), partition.index);
        let connection = &mut self.connections[at];
        connection.members.remove(&index);
        connection.session.remove(&name, partition_index);
        if connection.run == Some(RunTarget::Append(index)) {
            connection.run = Some(RunTarget::Discard);
        }
        if let Some(current) = &mut connection.current
            && current.partition == Some(index)
        {
            current.partition = None;
        }
        // What the path does not need any more is closed with its last partition.
        let extra = matches!(connection.lane, Lane::Busy(n) if n >= self.config.busy_connections);
        if extra && connection.members.is_empty() {
            self.close_connection(at);
        }
    }

    /// An error that passes: out of the session until the back-off is over.
    pub(super) fn back_off(&mut self, index: usize, trouble: Trouble) {
        self.delist(index);
        let random = self.next_random();
        let (now, policy) = (self.now, self.policy);
        let Some(partition) = self.partition(index) else { return };
        if matches!(partition.status, Status::Returning(_)) {
            return;
        }
        partition.status = Status::BackingOff;
        partition.is_held_up(trouble, now);
        let at = partition.backoff.failed(policy, now, random);
        let key = partition.key;
        self.timers.set(at, Timer::Retry(key));
        self.mark_dirty(index);
    }

    pub(super) fn retry(&mut self, key: PartitionKey) {
        let Some(index) = self.index_of(key) else { return };
        let now = self.now;
        let Some(partition) = self.partition(index) else { return };
        if partition.status == Status::BackingOff && partition.backoff.is_due(now) {
            self.resume(index);
        }
    }

    pub(super) fn want_metadata(&mut self) {
        if !self.metadata_wanted {
            self.metadata_wanted = true;
            self.actions.push_back(Action::Report(Report::WantMetadata));
        }
    }

    /// Sends the partition back to the control thread: closes its log first, unless the
    /// disk failed.
    pub(super) fn begin_return(&mut self, index: usize, reason: ReturnReason) {
        let Some(partition) = self.partition(index) else { return };
        if matches!(partition.status, Status::Returning(_)) {
            return;
        }
        partition.status = Status::Returning(Box::new(reason));
        partition.evicting = false;
        self.delist(index);
        if self.partition(index).is_some_and(|partition| partition.log.failure().is_none()) {
            self.with_log(index, |log, cx| log.begin_close(cx));
        } else {
            self.finish_return(index);
        }
    }

    /// The last step, once nothing of the log is under way.
    pub(super) fn finish_return(&mut self, index: usize) {
        let Some(partition) = self.partition(index) else { return };
        let failure = partition.log.failure();
        if !partition.log.is_quiet() || (failure.is_none() && !partition.log.is_closed()) {
            return;
        }
        let Some(partition) = self.partitions[index].take() else { return };
        self.files_open -= usize::from(partition.file_open);
        let Partition { key, topic, log, status, .. } = *partition;
        self.by_key.remove(&key);
        self.free.push(index);
        self.dirty.retain(|&other| other != index);
        self.open_files.retain(|&other| other != index);
        self.count_topic(&topic, false);
        let reason = match (failure, status) {
            (Some(failure), _) => {
                ReturnReason::Disk { action: failure.action, error: failure.error }
            }
            (None, Status::Returning(reason)) => *reason,
            (None, _) => ReturnReason::Disk { action: "close", error: DiskError::Io(0) },
        };
        let report = Report::Returned { key, log: Box::new(log), reason };
        self.actions.push_back(Action::Report(report));
        self.finish_stop();
    }

    pub(super) fn stop(&mut self) {
        self.stopping = true;
        for index in 0..self.partitions.len() {
            self.begin_return(index, ReturnReason::Asked);
        }
        self.finish_stop();
    }

    fn finish_stop(&mut self) {
        if self.stopping && self.by_key.is_empty() && !self.stopped {
            self.stopped = true;
            for index in 0..self.connections.len() {
                self.close_connection(index);
            }
            self.actions.push_back(Action::Report(Report::Stopped));
        }
    }
}
