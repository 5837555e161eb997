//! One connection's fetch session.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use kafka_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
use kafka_protocol::messages::{FetchRequest, FetchResponse};
use uuid::Uuid;

use super::server::Cluster;

/// Kafka's `fetch.max.bytes`.
const RESPONSE_BYTES_MAX: usize = 55 << 20;
/// No wait is shorter.
const NAP: Duration = Duration::from_micros(50);

/// A partition that the client asks for.
struct Asked {
    /// Among all partitions of the source.
    number: u64,
    topic: Uuid,
    partition: i32,
    offset: i64,
    bytes_max: usize,
    /// Whether it stands in the queue of those that may have something.
    queued: bool,
    /// Not forgotten.
    live: bool,
}

/// What a client asked for on this connection, and what has come for it.
pub(super) struct Session {
    cluster: Arc<Cluster>,
    id: i32,
    asked: Vec<Asked>,
    by_key: HashMap<(Uuid, i32), usize>,
    by_number: HashMap<u64, usize>,
    ready: VecDeque<usize>,
    /// Batches of all partitions that were looked at.
    seen: u64,
    /// Batches come to whoever goes on.
    turning: bool,
}

impl Drop for Session {
    fn drop(&mut self) {
        for asked in self.asked.iter().filter(|asked| asked.live) {
            self.cluster.asked.leave(asked.number);
        }
    }
}

impl Session {
    pub(super) fn new(cluster: &Arc<Cluster>) -> Self {
        Self {
            cluster: Arc::clone(cluster),
            id: cluster.session_id(),
            asked: Vec::new(),
            by_key: HashMap::new(),
            by_number: HashMap::new(),
            ready: VecDeque::new(),
            seen: cluster.births(),
            turning: false,
        }
    }

    /// Answers when there is something, or when the client does not want to wait longer.
    pub(super) fn answer(&mut self, request: &FetchRequest) -> FetchResponse {
        let cluster = &Arc::clone(&self.cluster);
        if request.session_epoch <= 0 {
            *self = Self::new(cluster);
        }
        self.take(cluster, request);
        let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
        let deadline = Instant::now() + wait;
        let bytes_max = usize::try_from(request.max_bytes).unwrap_or(0).min(RESPONSE_BYTES_MAX);
        loop {
            let births = cluster.births();
            self.notice(cluster, births);
            let topics = self.collect(cluster, births, bytes_max);
            let now = Instant::now();
            if !topics.is_empty() || now >= deadline {
                return FetchResponse::default().with_session_id(self.id).with_responses(topics);
            }
            let due = cluster.birth(births).map_or(deadline, |at| at.min(deadline));
            std::thread::park_timeout(due.saturating_duration_since(now).max(NAP));
        }
    }

    fn take(&mut self, cluster: &Cluster, request: &FetchRequest) {
        for topic in &request.topics {
            for partition in &topic.partitions {
                let key = (topic.topic_id, partition.partition);
                let Some(number) = cluster.number(key) else { continue };
                let at = *self.by_key.entry(key).or_insert_with(|| {
                    self.asked.push(Asked {
                        number,
                        topic: key.0,
                        partition: key.1,
                        offset: 0,
                        bytes_max: 0,
                        queued: false,
                        live: false,
                    });
                    self.by_number.insert(number, self.asked.len() - 1);
                    self.asked.len() - 1
                });
                if let Some(asked) = self.asked.get_mut(at) {
                    if !std::mem::replace(&mut asked.live, true) {
                        cluster.asked.join(number);
                    }
                    asked.offset = partition.fetch_offset;
                    asked.bytes_max = usize::try_from(partition.partition_max_bytes).unwrap_or(0);
                }
                self.queue(at);
            }
        }
        for topic in &request.forgotten_topics_data {
            for partition in &topic.partitions {
                let at = self.by_key.get(&(topic.topic_id, *partition));
                if let Some(asked) = at.and_then(|at| self.asked.get_mut(*at))
                    && std::mem::take(&mut asked.live)
                {
                    cluster.asked.leave(asked.number);
                }
            }
        }
    }

    fn queue(&mut self, at: usize) {
        if let Some(asked) = self.asked.get_mut(at).filter(|asked| !asked.queued && asked.live) {
            asked.queued = true;
            self.ready.push_back(at);
        }
    }

    /// Queues the partitions that batches came to since the last look.
    fn notice(&mut self, cluster: &Cluster, births: u64) {
        let partitions = cluster.log.taking_turns();
        for birth in self.seen..births.min(self.seen.saturating_add(partitions)) {
            if let Some(at) = self.by_number.get(&(birth % partitions)).copied() {
                self.queue(at);
            }
        }
        self.seen = births;
        let turning = cluster.log.takes_turns() && cluster.asked.all_since().is_some();
        if turning && !self.turning {
            (0..self.asked.len()).for_each(|at| self.queue(at));
        }
        self.turning = turning;
    }

    fn collect(
        &mut self,
        cluster: &Cluster,
        births: u64,
        bytes_max: usize,
    ) -> Vec<FetchableTopicResponse> {
        let mut topics: Vec<FetchableTopicResponse> = Vec::new();
        let mut left = bytes_max;
        while left > 0
            && let Some(at) = self.ready.pop_front()
        {
            let Some(asked) = self.asked.get_mut(at) else { continue };
            asked.queued = false;
            let next = cluster.log.batch_of(asked.offset);
            let batches = cluster.batches_for(asked.number, births, next);
            if !asked.live || next >= batches {
                continue;
            }
            // The first batch comes whole, whatever its size.
            let room = left.min(asked.bytes_max) / cluster.log.batch_bytes();
            let take = (batches - next).min(u64::try_from(room.max(1)).unwrap_or(u64::MAX));
            let mut records = Vec::new();
            for number in next..next + take {
                cluster.log.write(number, &mut records);
            }
            left = left.saturating_sub(records.len());
            let end = cluster.log.end(batches);
            let data = PartitionData::default()
                .with_partition_index(asked.partition)
                .with_high_watermark(end)
                .with_last_stable_offset(end)
                .with_log_start_offset(0)
                .with_records(Some(Bytes::from(records)));
            match topics.last_mut().filter(|last| last.topic_id == asked.topic) {
                Some(last) => last.partitions.push(data),
                None => topics.push(
                    FetchableTopicResponse::default()
                        .with_topic_id(asked.topic)
                        .with_partitions(vec![data]),
                ),
            }
        }
        topics
    }
}
