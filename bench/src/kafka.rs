//! A real Kafka as the source: one broker, one topic, filled before anything is measured.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use heliostat_tests::kafka::{
    Artifacts, Cluster, Compression, Driver, KafkaError, KafkaVersion, Wire, Workload, files,
    require, wait,
};

use crate::error::BenchError;
use crate::side::approximate;

/// The topic that is copied.
pub(crate) const TOPIC: &str = "bench";
/// Bytes around a value without key and headers, about; only the number of records follows from it.
const RECORD_OVERHEAD: u64 = 10;
/// Longest time from the creation of a topic to its leaders.
const LEADERS_WITHIN: Duration = Duration::from_mins(1);
/// Long enough for a batch to fill up.
const LINGER_MS: u32 = 1_000;

/// What the source holds.
#[derive(Args, Clone, Debug)]
pub(crate) struct KafkaSourceArgs {
    /// Bytes of the records before compression, about.
    #[arg(long, value_name = "BYTES", default_value_t = 1_500_000_000)]
    pub(crate) bytes: u64,
    /// Partitions of the topic.
    #[arg(long, value_name = "N", default_value_t = 24)]
    pub(crate) partitions: u16,
    /// Size of a value; records have neither key nor headers.
    #[arg(long, value_name = "BYTES", default_value_t = 1_024)]
    pub(crate) value_bytes: u32,
    /// The producer's `batch.size`; batches are full.
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 10)]
    pub(crate) batch_bytes: u32,
    /// The producer's `compression.type`. Compressed values are half zeros, others random.
    #[arg(long, value_name = "CODEC", default_value = "none", value_parser = codec)]
    pub(crate) compression: Compression,
}

fn codec(text: &str) -> Result<Compression, String> {
    let found = Compression::ALL.into_iter().find(|codec| codec.name() == text);
    found.ok_or_else(|| {
        let names = Compression::ALL.map(Compression::name).join(", ");
        format!("no such codec; there are {names}")
    })
}

/// The broker; it ends with this.
#[derive(Debug)]
pub(crate) struct KafkaSource {
    cluster: Cluster,
    /// Stored bytes: sizes of the segments.
    pub(crate) bytes: u64,
    /// Records, over all partitions.
    pub(crate) records: u64,
    /// Log end offset of each partition.
    pub(crate) ends: Vec<i64>,
}

impl KafkaSource {
    /// Starts a broker in `dir`, on the processors of this thread, and fills it.
    pub(crate) fn start(
        artifacts: &Artifacts,
        dir: &Path,
        args: &KafkaSourceArgs,
    ) -> Result<Self, BenchError> {
        Self::start_at(artifacts, dir, (Ipv4Addr::LOCALHOST, &[]), args)
    }

    /// The same, with an address and properties of its own.
    pub(crate) fn start_at(
        artifacts: &Artifacts,
        dir: &Path,
        (host, properties): (Ipv4Addr, &[(&str, String)]),
        args: &KafkaSourceArgs,
    ) -> Result<Self, BenchError> {
        let builder = Cluster::builder(artifacts).dir(dir).jvm_for_load().host(host);
        let builder = properties.iter().fold(builder, |it, (key, value)| it.property(key, value));
        let cluster = builder.start()?;
        let driver = Driver::start(artifacts)?;
        let client = driver.client(cluster.bootstrap());
        client.create_topic(TOPIC, i32::from(args.partitions), 1, &[])?;
        wait_for_leaders(&cluster, TOPIC, args.partitions)?;
        let record = u64::from(args.value_bytes).saturating_add(RECORD_OVERHEAD);
        let count = (args.bytes / record / u64::from(args.partitions)).max(1);
        let compressed = args.compression != Compression::None;
        let mut ends = Vec::new();
        for partition in 0..i32::from(args.partitions) {
            let produced = client.produce(&Workload {
                partition: Some(partition),
                value_bytes: args.value_bytes,
                batch_bytes: args.batch_bytes,
                compression: args.compression,
                compressible: if compressed { 0.5 } else { 0.0 },
                linger_ms: LINGER_MS,
                seed: u64::try_from(partition).unwrap_or(0),
                ..Workload::new(TOPIC, count)
            })?;
            let last = produced.offsets.get(&partition).map_or(-1, |&(_, last)| last);
            ends.push(last.saturating_add(1));
        }
        let bytes = stored_bytes(&cluster, TOPIC, args.partitions)?;
        let records = count.saturating_mul(u64::from(args.partitions));
        Ok(Self { cluster, bytes, records, ends })
    }

    /// Addresses.
    pub(crate) fn bootstrap(&self) -> String {
        self.cluster.bootstrap()
    }

    /// What a result means nothing without.
    pub(crate) fn line(&self, args: &KafkaSourceArgs) -> String {
        format!(
            "source: Kafka {}, one broker; {} partitions, {:.2} GB in {} records of {} bytes, \
             batch.size={}, compression.type={}",
            KafkaVersion::V4.number(),
            args.partitions,
            approximate(self.bytes) / 1e9,
            self.records,
            args.value_bytes,
            args.batch_bytes,
            args.compression.name(),
        )
    }
}

/// The newest Kafka, from the cache or through Maven into it.
pub(crate) fn artifacts() -> Result<Artifacts, BenchError> {
    Ok(require(KafkaVersion::V4)?)
}

/// One broker with Kafka's own JVM options and a heap of 1 GiB, on the processors of this thread.
pub(crate) fn broker(artifacts: &Artifacts, dir: &Path) -> Result<Cluster, BenchError> {
    Ok(Cluster::builder(artifacts).dir(dir).jvm_for_load().start()?)
}

/// A topic is created before its broker leads it. An idempotent producer whose first batch comes
/// in between, and whose second one comes after, never gets the first one in.
pub(crate) fn wait_for_leaders(
    cluster: &Cluster,
    topic: &str,
    partitions: u16,
) -> Result<(), BenchError> {
    let mut wire = Wire::connect(&cluster.bootstrap())?;
    Ok(wait::until("the leaders of all partitions", LEADERS_WITHIN, || {
        let led = wire.ends(topic, i32::from(partitions))?.len();
        Ok((led == usize::from(partitions)).then_some(()))
    })?)
}

/// Sizes of the segments of a topic on the first broker.
pub(crate) fn stored_bytes(
    cluster: &Cluster,
    topic: &str,
    partitions: u16,
) -> Result<u64, BenchError> {
    let node = cluster.nodes().first().ok_or(KafkaError::NoNode(1))?;
    let mut bytes = 0_u64;
    for partition in 0..i32::from(partitions) {
        for segment in files::segments(&node.partition_dir(topic, partition))? {
            let length = std::fs::metadata(&segment).map_err(BenchError::file(&segment))?.len();
            bytes = bytes.saturating_add(length);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_are_named_as_kafka_names_them() {
        assert_eq!(codec("zstd"), Ok(Compression::Zstd));
        assert!(codec("brotli").is_err_and(|why| why.contains("lz4")));
    }
}
