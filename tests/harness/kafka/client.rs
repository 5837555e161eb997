//! What Kafka's own clients do for a test: topics, leaders, offsets, records in and out.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::driver::Driver;
use super::error::{KafkaError, Result};
use super::node::START_TIMEOUT;
use super::wait;
use super::wire::{PartitionView, TopicView, Wire};

/// A broker that takes longer to describe a topic is passed over: it may be paused.
const DESCRIBE_TIMEOUT: Duration = Duration::from_secs(3);

/// A client of one cluster. Cheap to clone; clones share the driver's connections.
#[derive(Clone, Debug)]
pub struct KafkaClient {
    driver: Driver,
    bootstrap: String,
}

/// Codec that the producer uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Compression {
    /// None.
    #[default]
    None,
    /// gzip.
    Gzip,
    /// snappy, in the xerial frame.
    Snappy,
    /// lz4, in the LZ4 frame.
    Lz4,
    /// zstd.
    Zstd,
}

impl Compression {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// Name as in `compression.type`.
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// Which records a consumer sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Isolation {
    /// All below the high watermark.
    #[default]
    ReadUncommitted,
    /// Those of finished, committed transactions and of none, below the last stable offset.
    ReadCommitted,
}

impl Isolation {
    fn name(self) -> &'static str {
        match self {
            Self::ReadUncommitted => "read_uncommitted",
            Self::ReadCommitted => "read_committed",
        }
    }
}

/// Where [`KafkaClient::offset`] looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffsetAt {
    /// Log start offset.
    Earliest,
    /// High watermark, or last stable offset with [`Isolation::ReadCommitted`].
    Latest,
    /// Record with the highest timestamp.
    MaxTimestamp,
    /// First record at or after this time, in milliseconds since 1970.
    Timestamp(i64),
}

/// Answer of [`KafkaClient::offset`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundOffset {
    /// Offset, or −1 when no record fits.
    pub offset: i64,
    /// Timestamp of the record, or −1.
    pub timestamp_ms: i64,
    /// Leader epoch of the record, or −1.
    pub leader_epoch: i32,
}

/// Transactions of a [`Workload`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transactions {
    /// `transactional.id`.
    pub id: String,
    /// Records in each; 0 puts all into one.
    pub records: u64,
    /// Each n-th is aborted; 0 commits all.
    pub abort_every: u64,
    /// Leave the last one open until [`KafkaClient::end_transaction`], or for ever.
    pub leave_open: bool,
    /// `transaction.timeout.ms`: when the broker aborts what is left open.
    pub timeout: Duration,
}

impl Transactions {
    /// Transactions of `records` each, all committed.
    pub fn committed(id: &str, records: u64) -> Self {
        Self {
            id: id.into(),
            records,
            abort_every: 0,
            leave_open: false,
            timeout: Duration::from_mins(1),
        }
    }
}

/// Records to produce. The same workload gives the same keys, values and headers each time.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Topic.
    pub topic: String,
    /// Partition; `None` lets the producer choose, by key where there is one.
    pub partition: Option<i32>,
    /// How many records.
    pub count: u64,
    /// Index of the first; keys and values follow from the index.
    pub first_index: u64,
    /// Size of each value in bytes.
    pub value_bytes: u32,
    /// Share of each value that compresses away, 0.0 to 1.0.
    pub compressible: f64,
    /// Number of different keys, used in turn; 0 writes records without key.
    pub keys: u64,
    /// Null values instead of values.
    pub tombstones: bool,
    /// Headers of each record.
    pub headers: u32,
    /// Timestamp of index 0 in milliseconds since 1970; `None` is the time of sending.
    pub timestamp_ms: Option<i64>,
    /// Added to the timestamp with each index.
    pub timestamp_step_ms: i64,
    /// Another seed gives other values.
    pub seed: u64,
    /// `compression.type`.
    pub compression: Compression,
    /// `batch.size` in bytes; the producer's request and buffer limits follow.
    pub batch_bytes: u32,
    /// `linger.ms`.
    pub linger_ms: u32,
    /// `acks`: −1 is all.
    pub acks: i16,
    /// `enable.idempotence`; needs acks −1.
    pub idempotent: bool,
    /// Transactions; imply idempotence.
    pub transactions: Option<Transactions>,
    /// Further producer properties; they win.
    pub properties: BTreeMap<String, String>,
}

impl Workload {
    /// `count` records of 100 random bytes, without keys or codec, idempotent, in small batches.
    pub fn new(topic: &str, count: u64) -> Self {
        Self {
            topic: topic.into(),
            partition: None,
            count,
            first_index: 0,
            value_bytes: 100,
            compressible: 0.0,
            keys: 0,
            tombstones: false,
            headers: 0,
            timestamp_ms: None,
            timestamp_step_ms: 0,
            seed: 0,
            compression: Compression::None,
            batch_bytes: 16_384,
            linger_ms: 5,
            acks: -1,
            idempotent: true,
            transactions: None,
            properties: BTreeMap::new(),
        }
    }

    fn fields(&self) -> Map<String, Value> {
        let mut fields = object(json!({
            "topic": self.topic,
            "partition": self.partition.unwrap_or(-1),
            "count": self.count,
            "first_index": self.first_index,
            "value_bytes": self.value_bytes,
            "compressible": self.compressible,
            "keys": self.keys,
            "tombstones": self.tombstones,
            "headers": self.headers,
            "timestamp_ms": self.timestamp_ms,
            "timestamp_step_ms": self.timestamp_step_ms,
            "seed": self.seed,
            "properties": self.producer_properties(),
        }));
        if let Some(transactions) = &self.transactions {
            fields.insert("records_per_transaction".into(), transactions.records.into());
            fields.insert("abort_every".into(), transactions.abort_every.into());
            fields.insert("leave_open".into(), transactions.leave_open.into());
        }
        fields
    }

    fn producer_properties(&self) -> BTreeMap<String, String> {
        const MIB: u64 = 1024 * 1024;
        let batch = u64::from(self.batch_bytes);
        let request = batch.max(u64::from(self.value_bytes)).saturating_add(MIB);
        let mut p = BTreeMap::from([
            ("compression.type".to_owned(), self.compression.name().to_owned()),
            ("batch.size".into(), batch.to_string()),
            ("linger.ms".into(), self.linger_ms.to_string()),
            ("acks".into(), self.acks.to_string()),
            ("enable.idempotence".into(), self.idempotent.to_string()),
            ("max.request.size".into(), request.to_string()),
            ("buffer.memory".into(), request.saturating_mul(3).max(32 * MIB).to_string()),
        ]);
        if let Some(transactions) = &self.transactions {
            p.insert("transactional.id".into(), transactions.id.clone());
            p.insert("enable.idempotence".into(), "true".into());
            p.insert("transaction.timeout.ms".into(), transactions.timeout.as_millis().to_string());
        }
        p.extend(self.properties.clone());
        p
    }
}

/// What became of a workload.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Produced {
    /// Acknowledged records.
    pub acked: u64,
    /// Records that failed for good.
    pub failed: u64,
    /// Java's words for the first failure.
    pub first_error: Option<String>,
    /// First and last acknowledged offset by partition, both inclusive.
    pub offsets: BTreeMap<i32, (i64, i64)>,
}

/// What a consumer saw of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Consumed {
    /// Records; control records and gaps do not count.
    pub count: u64,
    /// Bytes of keys, values and headers.
    pub bytes: u64,
    /// Offset of the first record, or −1.
    pub first_offset: i64,
    /// Offset of the last record, or −1.
    pub last_offset: i64,
    /// Where the consumer stopped, exclusive.
    pub end_offset: i64,
    /// SHA-256 over offset, timestamp, key, value and headers of each record.
    pub sha256: String,
    /// SHA-256 over offset, leader epoch and timestamp type of each record.
    pub epochs_sha256: String,
}

/// A producer that runs in the driver until it is stopped.
#[derive(Debug)]
pub struct BackgroundProducer {
    client: KafkaClient,
    handle: String,
}

impl BackgroundProducer {
    /// Stops it, waits for the last acknowledgements and returns what became of its records.
    ///
    /// # Errors
    ///
    /// Those of the driver. Failed records are in the result: a test that kills brokers expects
    /// some.
    pub fn stop(self) -> Result<Produced> {
        let answer = self.client.call("stop_producer", json!({ "handle": self.handle }))?;
        Ok(produced(&answer))
    }
}

impl KafkaClient {
    pub(crate) fn new(driver: Driver, bootstrap: String) -> Self {
        Self { driver, bootstrap }
    }

    /// Addresses that the client was made with.
    pub fn bootstrap(&self) -> &str {
        &self.bootstrap
    }

    /// One topic, as the first broker that answers sees it; `None` when it does not exist there
    /// yet. Asks over a connection of its own, without the driver.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Wire`] when no broker answers.
    pub fn describe(&self, topic: &str) -> Result<Option<TopicView>> {
        let mut failed = KafkaError::NoNode(0);
        for address in self.bootstrap.split(',') {
            let asked = Wire::connect_within(address, DESCRIBE_TIMEOUT);
            match asked.and_then(|mut wire| wire.metadata(&[topic])) {
                Ok(view) => {
                    let mut topics = view.topics.into_iter();
                    return Ok(topics.find(|t| t.name == topic && !t.partitions.is_empty()));
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Waits until `condition` holds for a partition, and returns it as it then is.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Timeout`].
    pub fn wait_partition(
        &self,
        topic: &str,
        partition: i32,
        what: &str,
        condition: impl Fn(&PartitionView) -> bool,
    ) -> Result<PartitionView> {
        let what = format!("{topic}-{partition}: {what}");
        wait::until(what, START_TIMEOUT, || {
            // While brokers come and go, failed requests are part of the picture.
            let view = self.describe(topic).ok().flatten();
            Ok(view.and_then(|t| t.partition(partition).cloned()).filter(|p| condition(p)))
        })
    }

    /// Creates a topic with `replication_factor` replicas wherever the cluster puts them.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Refused`], as for all operations here.
    pub fn create_topic(
        &self,
        topic: &str,
        partitions: i32,
        replication_factor: i16,
        configs: &[(&str, &str)],
    ) -> Result<()> {
        self.call(
            "create_topic",
            json!({
                "topic": topic,
                "partitions": partitions,
                "replication_factor": replication_factor,
                "configs": map(configs),
            }),
        )
        .map(drop)
    }

    /// Creates a topic with these replicas: one list of node IDs a partition, preferred leader
    /// first.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Refused`].
    pub fn create_topic_on(
        &self,
        topic: &str,
        assignment: &[&[i32]],
        configs: &[(&str, &str)],
    ) -> Result<()> {
        let fields = json!({ "topic": topic, "assignment": assignment, "configs": map(configs) });
        self.call("create_topic", fields).map(drop)
    }

    /// Deletes a topic. Brokers remove its files a moment later.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Refused`].
    pub fn delete_topic(&self, topic: &str) -> Result<()> {
        self.call("delete_topic", json!({ "topic": topic })).map(drop)
    }

    /// Raises the number of partitions to `total`.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Refused`].
    pub fn create_partitions(&self, topic: &str, total: i32) -> Result<()> {
        self.call("create_partitions", json!({ "topic": topic, "total": total })).map(drop)
    }

    /// Sets configs of a topic.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Refused`].
    pub fn alter_topic_configs(&self, topic: &str, set: &[(&str, &str)]) -> Result<()> {
        self.call("alter_configs", json!({ "resource": "topic", "name": topic, "set": map(set) }))
            .map(drop)
    }

    /// Sets dynamic configs of a broker, or of all with `None`.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Refused`].
    pub fn alter_broker_configs(&self, node: Option<i32>, set: &[(&str, &str)]) -> Result<()> {
        let name = node.map_or_else(String::new, |id| id.to_string());
        self.call("alter_configs", json!({ "resource": "broker", "name": name, "set": map(set) }))
            .map(drop)
    }

    /// Deletes the records below `before`, exclusive, and returns the new log start offset. −1 is
    /// the high watermark.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Refused`].
    pub fn delete_records(&self, topic: &str, partition: i32, before: i64) -> Result<i64> {
        let fields = json!({ "topic": topic, "partition": partition, "before": before });
        Ok(i64_of(&self.call("delete_records", fields)?, "log_start_offset"))
    }

    /// Elects the preferred leader (the first replica). Nothing happens when it leads already.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Refused`], for instance while it is not in sync.
    pub fn elect_preferred(&self, topic: &str, partition: i32) -> Result<()> {
        let fields = json!({ "topic": topic, "partition": partition, "kind": "preferred" });
        self.call("elect_leader", fields).map(drop)
    }

    /// Elects any live replica of a partition that has no leader, in sync or not.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Refused`].
    pub fn elect_unclean(&self, topic: &str, partition: i32) -> Result<()> {
        let fields = json!({ "topic": topic, "partition": partition, "kind": "unclean" });
        self.call("elect_leader", fields).map(drop)
    }

    /// Moves a partition to `replicas` and waits until it is there.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Refused`].
    pub fn reassign(&self, topic: &str, partition: i32, replicas: &[i32]) -> Result<()> {
        let fields = json!({
            "topic": topic, "partition": partition, "replicas": replicas, "timeout_ms": 60_000,
        });
        self.call("reassign", fields).map(drop)
    }

    /// Offset and timestamp of a partition at `at`.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Refused`].
    pub fn offset(
        &self,
        topic: &str,
        partition: i32,
        at: OffsetAt,
        isolation: Isolation,
    ) -> Result<FoundOffset> {
        let (name, timestamp) = match at {
            OffsetAt::Earliest => ("earliest", -1),
            OffsetAt::Latest => ("latest", -1),
            OffsetAt::MaxTimestamp => ("max_timestamp", -1),
            OffsetAt::Timestamp(ms) => ("timestamp", ms),
        };
        let fields = json!({
            "topic": topic, "partition": partition, "at": name, "timestamp_ms": timestamp,
            "isolation": isolation.name(),
        });
        let answer = self.call("list_offset", fields)?;
        Ok(FoundOffset {
            offset: i64_of(&answer, "offset"),
            timestamp_ms: i64_of(&answer, "timestamp_ms"),
            leader_epoch: i32::try_from(i64_of(&answer, "leader_epoch")).unwrap_or(-1),
        })
    }

    /// Waits until a partition ends at `end` or later, and returns where it ends. For what comes
    /// after an acknowledgement: a commit is answered before its markers are in the partitions.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Timeout`], [`KafkaError::Refused`].
    pub fn wait_end(
        &self,
        topic: &str,
        partition: i32,
        isolation: Isolation,
        end: i64,
    ) -> Result<i64> {
        wait::until(format!("{topic}-{partition} to end at {end}"), START_TIMEOUT, || {
            let found = self.offset(topic, partition, OffsetAt::Latest, isolation)?.offset;
            Ok((found >= end).then_some(found))
        })
    }

    /// Produces a workload and waits for all acknowledgements.
    ///
    /// # Errors
    ///
    /// [`KafkaError::NotAcknowledged`] when a record failed for good.
    pub fn produce(&self, workload: &Workload) -> Result<Produced> {
        let mut fields = workload.fields();
        fields.insert("timeout_ms".into(), 300_000.into());
        let produced = produced(&self.call("produce", Value::Object(fields))?);
        match &produced.first_error {
            Some(first) => {
                Err(KafkaError::NotAcknowledged { failed: produced.failed, first: first.clone() })
            }
            None => Ok(produced),
        }
    }

    /// Ends the transaction that a workload with `leave_open` left.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Refused`] when there is none of that ID, or the broker has aborted it.
    pub fn end_transaction(&self, transactional_id: &str, commit: bool) -> Result<()> {
        let fields = json!({ "transactional_id": transactional_id, "commit": commit });
        self.call("end_transaction", fields).map(drop)
    }

    /// Starts a producer that sends `records_per_s` of the workload's records, over and over new
    /// indexes, until it is stopped. `handle` names it in the driver.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Refused`] when the handle is in use.
    pub fn start_producer(
        &self,
        handle: &str,
        workload: &Workload,
        records_per_s: u32,
    ) -> Result<BackgroundProducer> {
        let mut fields = workload.fields();
        fields.insert("handle".into(), handle.into());
        fields.insert("records_per_s".into(), records_per_s.into());
        self.call("start_producer", Value::Object(fields))?;
        Ok(BackgroundProducer { client: self.clone(), handle: handle.into() })
    }

    /// Reads a partition from its log start to its present end.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Refused`] with `TimeoutException` when the end is not reached in a minute.
    pub fn consume(&self, topic: &str, partition: i32, isolation: Isolation) -> Result<Consumed> {
        self.consume_range(topic, partition, isolation, None, None)
    }

    /// Reads a partition from `from` (inclusive; `None` is the log start) to `to` (exclusive;
    /// `None` is the present end).
    ///
    /// # Errors
    ///
    /// Those of [`consume`](Self::consume), and `OffsetOutOfRangeException`.
    pub fn consume_range(
        &self,
        topic: &str,
        partition: i32,
        isolation: Isolation,
        from: Option<i64>,
        to: Option<i64>,
    ) -> Result<Consumed> {
        let fields = json!({
            "topic": topic, "partition": partition, "isolation": isolation.name(),
            "from": from, "to": to, "timeout_ms": 60_000,
        });
        let answer = self.call("consume", fields)?;
        let text = |key: &str| answer[key].as_str().unwrap_or_default().to_owned();
        Ok(Consumed {
            count: answer["count"].as_u64().unwrap_or(0),
            bytes: answer["bytes"].as_u64().unwrap_or(0),
            first_offset: i64_of(&answer, "first_offset"),
            last_offset: i64_of(&answer, "last_offset"),
            end_offset: i64_of(&answer, "end_offset"),
            sha256: text("sha256"),
            epochs_sha256: text("epochs_sha256"),
        })
    }

    fn call(&self, op: &str, fields: Value) -> Result<Value> {
        let mut fields = object(fields);
        fields.insert("bootstrap".into(), self.bootstrap.clone().into());
        self.driver.call(op, fields)
    }
}

fn produced(answer: &Value) -> Produced {
    let partitions = answer["partitions"].as_array().map(Vec::as_slice).unwrap_or_default();
    Produced {
        acked: answer["acked"].as_u64().unwrap_or(0),
        failed: answer["failed"].as_u64().unwrap_or(0),
        first_error: answer["first_error"].as_str().map(str::to_owned),
        offsets: partitions
            .iter()
            .map(|p| {
                let partition = i32::try_from(i64_of(p, "partition")).unwrap_or(-1);
                (partition, (i64_of(p, "first_offset"), i64_of(p, "last_offset")))
            })
            .collect(),
    }
}

fn i64_of(answer: &Value, key: &str) -> i64 {
    answer[key].as_i64().unwrap_or(-1)
}

fn map(pairs: &[(&str, &str)]) -> Value {
    pairs.iter().map(|&(key, value)| (key.to_owned(), Value::from(value))).collect()
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
