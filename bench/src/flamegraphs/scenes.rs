//! What is looked at, each as its comparison plays it.

use std::net::SocketAddr;
use std::time::Duration;

use clap::ValueEnum;
use heliostat_io::path_emulator::{End, Loss, PathConfig, PathEmulator, Rate};
use serde::de::DeserializeOwned;

use super::perf::Perf;
use crate::error::BenchError;
use crate::kafka::{self, KafkaSource, KafkaSourceArgs, TOPIC};
use crate::place::{Place, SINK_CPU, SOURCE_CPU};
use crate::role::{Child, Followed, Scaled, Seat, Tiny};
use crate::side::Side;

const BYTES: u64 = 2_000_000_000;
const PARTITIONS: u32 = 24;
const MANY_PARTITIONS: u32 = 1_000;
const TRICKLE: u32 = 100_000_000;
const BATCH_BYTES: usize = 64 << 10;
const RTT: Duration = Duration::from_millis(80);
const RATE: Rate = Rate(1_000_000_000);
/// Of a run over a window; the first of them find their speed.
const SECONDS: u32 = 15;
const SKIP: u32 = 5;

/// One picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scene {
    /// `compare limit`: direct writes, one connection, as fast as it goes.
    DirectSink,
    /// The same through the page cache.
    PageCacheSink,
    /// From a real Kafka, all defaults.
    KafkaSource,
    /// `compare wan`: 80 ms, 1 Gbit/s.
    LongPath,
    /// `compare scale`: 100 MB/s come to 1,000 partitions.
    ManyPartitions,
    /// `compare tiny`: batches of one record of 100 bytes, decisions alone.
    TinyBatches,
}

impl Scene {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::DirectSink => "direct-sink",
            Self::PageCacheSink => "page-cache-sink",
            Self::KafkaSource => "kafka-source",
            Self::LongPath => "long-path",
            Self::ManyPartitions => "many-partitions",
            Self::TinyBatches => "tiny-batches",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::DirectSink => "Direct sink at saturation: one shard, one connection, O_DIRECT",
            Self::PageCacheSink => "The same through the page cache",
            Self::KafkaSource => "From a real Kafka, default settings",
            Self::LongPath => "A path of 80 ms and 1 Gbit/s, 24 partitions",
            Self::ManyPartitions => "1,000 partitions, 100 MB/s come to all of them together",
            Self::TinyBatches => "Batches of one record of 100 bytes, decisions alone",
        }
    }

    /// The frame that everything else of the process is left out for.
    pub(super) fn within(self) -> Option<&'static str> {
        (self == Self::TinyBatches).then_some("batches_pass")
    }

    pub(super) fn play(self, place: &Place, perf: &Perf) -> Result<(), BenchError> {
        match self {
            Self::DirectSink => sink(place, perf, "true"),
            Self::PageCacheSink => sink(place, perf, "false"),
            Self::KafkaSource => real(place, perf),
            Self::LongPath => long_path(place, perf),
            Self::ManyPartitions => many_partitions(place, perf),
            Self::TinyBatches => {
                let role = ["tiny".to_owned(), "--answers=1000".to_owned()];
                record::<Tiny>(perf, 0, Some(SINK_CPU), &role)
            }
        }
    }
}

/// Plays a role to its end under perf.
fn record<T: DeserializeOwned>(
    perf: &Perf,
    skip_seconds: u32,
    seat: impl Into<Seat>,
    role: &[String],
) -> Result<(), BenchError> {
    let before = perf.before(skip_seconds * 1_000);
    let mut child = Child::start_behind(&before, seat, role)?;
    child.hear::<T>()?;
    child.end()
}

fn source(place: &Place, bytes: u64, more: &[String]) -> Vec<String> {
    let mut role = vec![
        "source".to_owned(),
        format!("--dir={}", place.named("source").display()),
        format!("--bytes={bytes}"),
        format!("--partitions={PARTITIONS}"),
        format!("--batch-bytes={BATCH_BYTES}"),
    ];
    role.extend_from_slice(more);
    role
}

fn copy(place: &Place, role: &str, from: &str, topics: &str, more: &[&str]) -> Vec<String> {
    let mut role = vec![
        role.to_owned(),
        format!("--source={from}"),
        format!("--topics={topics}"),
        format!("--to={}", place.named("copy").display()),
    ];
    role.extend(more.iter().map(|&argument| argument.to_owned()));
    role
}

fn sink(place: &Place, perf: &Perf, direct: &str) -> Result<(), BenchError> {
    let mut source = Child::start(Some(SOURCE_CPU), &source(place, BYTES, &[]))?;
    let address: String = source.hear()?;
    let direct = format!("--set=append.direct={direct}");
    let sets =
        ["--set=mirror.num.replica.fetchers=1", "--set=mirror.partition.stripes.max=1", &direct];
    record::<Side>(perf, 0, Some(SINK_CPU), &copy(place, "mirror", &address, "bench", &sets))?;
    source.end()
}

fn real(place: &Place, perf: &Perf) -> Result<(), BenchError> {
    let artifacts = kafka::artifacts()?;
    let holds = KafkaSourceArgs {
        bytes: BYTES,
        partitions: 24,
        value_bytes: 1_024,
        batch_bytes: 256 << 10,
        compression: heliostat_tests::kafka::Compression::None,
    };
    let source = KafkaSource::start(&artifacts, &place.named("kafka"), &holds)?;
    let role = copy(place, "mirror", &source.bootstrap(), TOPIC, &[]);
    record::<Side>(perf, 0, Some(SINK_CPU), &role)
}

fn long_path(place: &Place, perf: &Perf) -> Result<(), BenchError> {
    let config = PathConfig {
        congestion_control: "cubic".to_owned(),
        ..PathConfig::new(RTT, RATE, Loss { per_million: 0 })
    };
    let path = PathEmulator::start(&config)?;
    let seat = |cpu, end| Seat { cpu: Some(cpu), namespace: Some(path.namespace(end)) };
    let bytes = RATE.0 / 8 * u64::from(SECONDS) / 10 * 12;
    let more =
        [format!("--listen={}", path.address(End::Far)), "--send-buffer-bytes=-1".to_owned()];
    let mut source = Child::start(seat(SOURCE_CPU, End::Far), &source(place, bytes, &more))?;
    let address: String = source.hear()?;
    let window = [format!("--seconds={SECONDS}"), format!("--skip={SKIP}")];
    let window: Vec<&str> = window.iter().map(String::as_str).collect();
    let role = copy(place, "follow", &address, "bench", &window);
    record::<Followed>(perf, SKIP, seat(SINK_CPU, End::Near), &role)?;
    source.end()
}

fn many_partitions(place: &Place, perf: &Perf) -> Result<(), BenchError> {
    let role = [
        "synthetic".to_owned(),
        format!("--partitions={MANY_PARTITIONS}"),
        format!("--rate={TRICKLE}"),
    ];
    let mut source = Child::start(Some(SOURCE_CPU), &role)?;
    // The second address is that of the raw port.
    let (address, _): (String, SocketAddr) = source.hear()?;
    let more = [
        format!("--partitions={MANY_PARTITIONS}"),
        format!("--skip={SKIP}"),
        format!("--seconds={SECONDS}"),
        // An ordinary refresh, not that of tests.
        "--set=mirror.metadata.refresh.interval.ms=30000".to_owned(),
    ];
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    let role = copy(place, "scale", &address, "synthetic-.*", &more);
    record::<Scaled>(perf, SKIP, Some(SINK_CPU), &role)?;
    source.end()
}
