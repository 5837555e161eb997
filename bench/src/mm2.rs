//! MirrorMaker 2 with a destination of its own, and what one copy by it costs.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use heliostat_tests::kafka::{
    Artifacts, Cluster, KafkaError, MirrorMaker, MirrorMakerJars, Properties, Wire, wait,
};

use crate::error::BenchError;
use crate::kafka::{KafkaSource, TOPIC, broker};
use crate::process::{cpu_seconds_of, peak_rss};
use crate::side::Side;

/// Longest start and copy.
const DEADLINE: Duration = Duration::from_mins(5);
/// What Kafka's own start script gives the JVM.
pub(crate) const JVM: [&str; 6] = [
    "-Xms256m",
    "-Xmx2g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
];

/// How it is configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Tuning {
    /// What works on one broker and nothing more.
    Defaults,
    /// What is published for throughput.
    Published,
    /// Nothing waits for more records.
    Latency,
}

/// What a destination of one broker needs, and nothing that moves the figures.
const NEEDED: [(&str, &str); 9] = [
    ("clusters", "source, destination"),
    ("source->destination.enabled", "true"),
    ("replication.factor", "1"),
    ("checkpoints.topic.replication.factor", "1"),
    ("heartbeats.topic.replication.factor", "1"),
    ("offset-syncs.topic.replication.factor", "1"),
    ("offset.storage.replication.factor", "1"),
    ("status.storage.replication.factor", "1"),
    ("config.storage.replication.factor", "1"),
];

/// What is published for throughput; `bench/README.md` says what each is for.
const PUBLISHED: [(&str, &str); 21] = [
    ("tasks.max", "4"),
    ("emit.heartbeats.enabled", "false"),
    ("emit.checkpoints.enabled", "false"),
    ("sync.group.offsets.enabled", "false"),
    ("sync.topic.configs.enabled", "false"),
    ("sync.topic.acls.enabled", "false"),
    ("offset.lag.max", "100000"),
    ("source.consumer.max.poll.records", "20000"),
    ("source.consumer.fetch.min.bytes", "1048576"),
    ("source.consumer.fetch.max.bytes", "104857600"),
    ("source.consumer.max.partition.fetch.bytes", "16777216"),
    ("source.consumer.receive.buffer.bytes", "-1"),
    ("destination.producer.batch.size", "1048576"),
    ("destination.producer.linger.ms", "50"),
    ("destination.producer.buffer.memory", "268435456"),
    ("destination.producer.max.request.size", "16777216"),
    ("destination.producer.max.in.flight.requests.per.connection", "5"),
    ("destination.producer.acks", "1"),
    ("destination.producer.send.buffer.bytes", "-1"),
    ("destination.producer.compression.type", "none"),
    ("destination.offset.flush.timeout.ms", "60000"),
];

/// What does not hold records up, and does nothing beside the data.
const LATENCY: [(&str, &str); 15] = [
    ("tasks.max", "1"),
    ("emit.heartbeats.enabled", "false"),
    ("emit.checkpoints.enabled", "false"),
    ("sync.group.offsets.enabled", "false"),
    ("sync.topic.configs.enabled", "false"),
    ("sync.topic.acls.enabled", "false"),
    ("offset.lag.max", "100000"),
    ("source.consumer.fetch.min.bytes", "1"),
    ("source.consumer.receive.buffer.bytes", "-1"),
    ("destination.producer.linger.ms", "0"),
    ("destination.producer.batch.size", "262144"),
    ("destination.producer.max.in.flight.requests.per.connection", "5"),
    ("destination.producer.acks", "1"),
    ("destination.producer.send.buffer.bytes", "-1"),
    ("destination.producer.compression.type", "none"),
];

/// A running MirrorMaker and the broker that it writes to.
#[derive(Debug)]
pub(crate) struct Replication {
    // Ends first.
    maker: MirrorMaker,
    destination: Cluster,
}

/// One copy of the source's topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    /// MirrorMaker alone, from the first record at the destination to the last.
    pub(crate) side: Side,
    /// The destination broker's processor time in that span.
    pub(crate) destination_cpu_seconds: f64,
    /// From the start of its JVM to the first record.
    pub(crate) start_seconds: f64,
}

impl Replication {
    /// Starts a broker and MirrorMaker in `dir`; `sets` win.
    pub(crate) fn start(
        (artifacts, jars): (&Artifacts, &MirrorMakerJars),
        dir: &Path,
        source: &str,
        (topic, tuning, sets): (&str, Tuning, &[(String, String)]),
    ) -> Result<Self, BenchError> {
        let destination = broker(artifacts, &dir.join("destination"))?;
        let mut properties = Properties::default();
        let tuned = match tuning {
            Tuning::Defaults => [].as_slice(),
            Tuning::Published => &PUBLISHED,
            Tuning::Latency => &LATENCY,
        };
        for (key, value) in NEEDED.iter().chain(tuned) {
            properties.set(*key, value);
        }
        properties
            .set("source.bootstrap.servers", source)
            .set("destination.bootstrap.servers", destination.bootstrap())
            .set("source->destination.topics", topic);
        for (key, value) in sets {
            properties.set(key, value);
        }
        let maker = MirrorMaker::start(artifacts, jars, &dir.join("mm2"), &properties, &JVM)?;
        Ok(Self { maker, destination })
    }

    /// MirrorMaker's process.
    pub(crate) fn pid(&self) -> u32 {
        self.maker.pid()
    }

    /// Fails once MirrorMaker has ended.
    pub(crate) fn check(&mut self) -> Result<(), KafkaError> {
        self.maker.check()
    }

    /// Where the destination keeps a partition of a topic of the source.
    pub(crate) fn partition_dir(&self, topic: &str, partition: i32) -> Result<PathBuf, KafkaError> {
        let node = self.destination.nodes().first().ok_or(KafkaError::NoNode(1))?;
        Ok(node.partition_dir(&format!("source.{topic}"), partition))
    }

    /// Waits for the first record; seconds that it took.
    pub(crate) fn begins(&mut self, partitions: u16) -> Result<f64, BenchError> {
        let begun = Instant::now();
        wait::until("MirrorMaker's first record", DEADLINE, || {
            Ok((self.figures(partitions)?.0 > 0).then_some(()))
        })?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Records at the destination, and MirrorMaker's processor seconds.
    pub(crate) fn figures(&mut self, partitions: u16) -> Result<(u64, f64), KafkaError> {
        self.maker.check()?;
        let node = self.destination.nodes().first().ok_or(KafkaError::NoNode(1))?;
        let mut wire = Wire::connect(&node.address())?;
        // The topic is not there at first.
        let there: i64 =
            wire.ends(&format!("source.{TOPIC}"), i32::from(partitions))?.values().sum();
        Ok((u64::try_from(there).unwrap_or(0), cpu_seconds_of(self.maker.pid())))
    }

    /// MirrorMaker's largest resident memory.
    pub(crate) fn peak_rss(&self) -> u64 {
        peak_rss(self.maker.pid()).unwrap_or(0)
    }

    /// Waits until all of the source's topic is there.
    pub(crate) fn copied(mut self, source: &KafkaSource) -> Result<Copied, BenchError> {
        let begun = Instant::now();
        let node = self.destination.nodes().first().ok_or(KafkaError::NoNode(1))?;
        let (maker_pid, broker_pid) = (self.maker.pid(), node.pid().unwrap_or(0));
        let mut wire = Wire::connect(&node.address())?;
        // MirrorMaker's default names.
        let topic = format!("source.{TOPIC}");
        let partitions = i32::try_from(source.ends.len()).unwrap_or(i32::MAX);
        let cpu = || (cpu_seconds_of(maker_pid), cpu_seconds_of(broker_pid));
        let wanted = i64::try_from(source.records).unwrap_or(i64::MAX);
        let mut first = None;
        let end = wait::until("MirrorMaker to copy everything", DEADLINE, || {
            self.maker.check()?;
            // The topic is not there at first.
            let there: i64 = wire.ends(&topic, partitions)?.values().sum();
            if there > 0 && first.is_none() {
                first = Some((Instant::now(), cpu()));
            }
            Ok((there >= wanted).then(|| (Instant::now(), cpu(), there)))
        });
        let (ended, (maker_cpu, broker_cpu), there) = end?;
        let (first, (maker_first, broker_first)) =
            first.unwrap_or((ended, (maker_cpu, broker_cpu)));
        if there != wanted {
            return Err(BenchError::Incomplete(format!("{there} records, not {wanted}")));
        }
        Ok(Copied {
            side: Side {
                bytes: source.bytes,
                seconds: ended.duration_since(first).as_secs_f64(),
                cpu_seconds: maker_cpu - maker_first,
                rss_bytes: peak_rss(maker_pid).unwrap_or(0),
            },
            destination_cpu_seconds: broker_cpu - broker_first,
            start_seconds: first.duration_since(begun).as_secs_f64(),
        })
    }
}
