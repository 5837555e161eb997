//! What can be typed after `heliostat bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use heliostat_core::config::AppendDirect;

use super::path::PathArgs;
use crate::failure::Failure;
use crate::mirror::bytes_per_second;
use crate::shards::default_shards;
use crate::source_args::SourceArgs;

/// All rounds together, without `--seconds` and `--rounds`.
const SECONDS: u64 = 60;

/// Arguments of `bench`.
#[derive(Args, Debug)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    pub(super) source: SourceArgs,

    /// Topics of a real cluster (--source) to copy: regular expressions, anchored; commas between several.
    #[arg(long, value_name = "REGEX")]
    pub(super) topics: Option<String>,

    /// Topics not to copy; wins over --topics.
    #[arg(long, value_name = "REGEX", default_value = "", requires = "topics")]
    pub(super) exclude: String,

    /// Bytes to copy in each round, about; 2 GiB by default, over a path 128 MiB (1 GiB with
    /// --forever), at most 10 GB of a real cluster. With --forever the copy begins anew when it holds so much.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    bytes: Option<u64>,

    /// Longest time of all rounds together; 60 by default, no limit where --rounds says how
    /// many.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=604_800))]
    seconds: Option<u64>,

    /// Times that each variant is measured; as often as the time allows by default, once of a
    /// real cluster or over a path.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    rounds: Option<u16>,

    /// Run until Ctrl-C and print a line every few seconds; the copy is deleted and begun anew
    /// when it is complete (of a real cluster: when it holds --bytes), so that disk and memory
    /// stay bounded.
    #[arg(long, conflicts_with_all = ["rounds", "seconds"])]
    pub(super) forever: bool,

    /// Seconds between two lines of --forever.
    #[arg(long, value_name = "N", default_value_t = 5, requires = "forever", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    every: u64,

    /// Partitions of the embedded topic.
    #[arg(long, value_name = "N", default_value_t = 24, conflicts_with_all = ["source", "source_config"], value_parser = clap::value_parser!(i32).range(1..=100_000))]
    pub(super) partitions: i32,

    /// Size of an embedded batch; its records have values of 1 KiB that do not compress.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 10, conflicts_with_all = ["source", "source_config"], value_parser = clap::value_parser!(u32).range(1..=64 << 20))]
    pub(super) batch_bytes: u32,

    /// Bytes of a partition in one answer, `mirror.fetch.max.bytes`: several are several
    /// variants.
    #[arg(long, value_name = "BYTES,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=0x7fff_ffff))]
    pub(super) fetch_bytes: Vec<u32>,

    /// How the copy is written, `append.direct`: several are several variants.
    #[arg(long, value_name = "MODE,…", value_delimiter = ',')]
    pub(super) append: Vec<Append>,

    /// Shards; 1 by default, of a real cluster one a core, less one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    shards: Option<u16>,

    /// Bytes a second for all partitions together; k, M and G are powers of 1000.
    #[arg(long, value_name = "BYTES/S", value_parser = bytes_per_second)]
    pub(super) throttle: Option<u64>,

    /// Where source and copy are, in a directory of their own that goes again; default: where
    /// temporary files are.
    #[arg(long, value_name = "DIR")]
    pub(super) dir: Option<PathBuf>,

    #[command(flatten)]
    pub(super) path: PathArgs,

    /// `socket.send.buffer.bytes` of the embedded source; -1 leaves it to the system. Kafka's
    /// default bounds what a connection carries over a long path.
    #[arg(long, value_name = "BYTES", default_value_t = 100 << 10, allow_negative_numbers = true, conflicts_with_all = ["source", "source_config"])]
    pub(super) source_send_buffer: i64,

    /// Print JSON: every round with its raw figures. With --forever a line of JSON for each
    /// line.
    #[arg(long)]
    pub(super) json: bool,

    /// Also write a page of its own into this file: throughput over time, latencies, what bound.
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
}

impl BenchArgs {
    /// Refuses what does not go together.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match (&self.topics, self.is_of_a_cluster()) {
            (None, true) => {
                let remedy = "give --topics REGEX; '.*' is all";
                Err(Failure::new("no topics of the cluster are named").remedy(remedy))
            }
            (Some(_), false) => {
                let remedy = "give --source HOST:PORT too";
                Err(Failure::new("--topics is of a real cluster, and none is named").remedy(remedy))
            }
            _ if self.is_of_a_cluster() && self.path.is_asked_for() => {
                let remedy = "leave out --rtt or --source";
                let failure = Failure::new("an emulated path leads to the embedded source only");
                Err(failure.remedy(remedy))
            }
            _ => Ok(()),
        }
    }

    /// Of a real one.
    pub(super) fn is_of_a_cluster(&self) -> bool {
        !self.source.source.is_empty() || self.source.source_config.is_some()
    }

    /// A lossy path carries a few MB/s, so that the bytes of a loopback would take an hour.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.unwrap_or(match (self.is_of_a_cluster(), self.path.is_asked_for()) {
            (true, _) => 10_000_000_000,
            // Long enough for what a path does over time.
            (false, true) if self.forever => 1 << 30,
            (false, true) => 128 << 20,
            (false, false) => 2 << 30,
        })
    }

    /// `None`: as many as the time allows.
    pub(super) fn rounds(&self) -> Option<u16> {
        let is_once = self.is_of_a_cluster() || self.path.is_asked_for();
        self.rounds.or(is_once.then_some(1))
    }

    /// `None`: however long it takes.
    pub(super) fn time(&self) -> Option<Duration> {
        let is_free = self.rounds.is_some() || self.forever;
        self.seconds.or((!is_free).then_some(SECONDS)).map(Duration::from_secs)
    }

    pub(super) fn every(&self) -> Duration {
        Duration::from_secs(self.every)
    }

    pub(super) fn shards(&self) -> u16 {
        self.shards.unwrap_or_else(|| if self.is_of_a_cluster() { default_shards() } else { 1 })
    }
}

/// `append.direct`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Append {
    /// By the size of what arrives.
    Auto,
    /// Past the page cache.
    Direct,
    /// Through the page cache.
    Buffered,
}

impl Append {
    pub(super) fn of(direct: AppendDirect) -> Self {
        match direct {
            AppendDirect::Auto => Self::Auto,
            AppendDirect::Always => Self::Direct,
            AppendDirect::Never => Self::Buffered,
        }
    }

    /// As it is typed.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Direct => "direct",
            Self::Buffered => "buffered",
        }
    }

    /// Value of `append.direct`.
    pub(super) fn value(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Direct => "true",
            Self::Buffered => "false",
        }
    }

    pub(super) fn direct(self) -> AppendDirect {
        match self {
            Self::Auto => AppendDirect::Auto,
            Self::Direct => AppendDirect::Always,
            Self::Buffered => AppendDirect::Never,
        }
    }
}
