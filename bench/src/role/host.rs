//! The product's mirroring host, as `heliostat server` runs it. Each line of input is answered
//! with how its mirror stands; the end of the input is a clean stop.

use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Instant;

use clap::Args;
use hdrhistogram::Histogram;
use heliostat_core::config::ServerConfig;
use heliostat_io::control::Status;
use heliostat_io::host::{Host, HostError, HostHandle, HostReport, MirrorStanding};
use serde::{Deserialize, Serialize};

use super::tell;
use crate::error::BenchError;
use crate::process::{cpu_seconds_of_thread, this_thread};
use crate::side::approximate;

/// The mirror that is looked at.
pub(crate) const MIRROR: &str = "bench";

/// Where it is, and how.
#[derive(Args, Debug)]
pub(super) struct HostArgs {
    /// Log dir.
    #[arg(long)]
    dir: PathBuf,
    /// Properties, `key=value`.
    #[arg(long = "set")]
    sets: Vec<String>,
}

/// A host that answers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Up {
    /// Where clients ask.
    pub(crate) address: SocketAddr,
    /// Where metrics are.
    pub(crate) metrics: SocketAddr,
    /// From its begin until it answers.
    pub(crate) start_seconds: f64,
}

/// How the mirror stands.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Standing {
    /// Partitions by state.
    pub(crate) states: BTreeMap<String, usize>,
    /// Partitions that a shard follows.
    pub(crate) followed: usize,
    /// Of them, those that have all that the source has.
    pub(crate) caught_up: usize,
    /// Partitions whose log holds nothing.
    pub(crate) empty: usize,
    /// Since the line before.
    pub(crate) bytes_appended: u64,
    /// Since the line before: Fetch sent to the first byte of its answer.
    pub(crate) fetch: Percentiles,
    /// Since the line before: first byte of a write received to write complete.
    pub(crate) append: Percentiles,
    /// Processor seconds of the control thread since its start.
    pub(crate) control_cpu_seconds: f64,
}

impl Standing {
    /// Partitions in a state.
    pub(crate) fn is_in(&self, state: &str) -> usize {
        self.states.get(state).copied().unwrap_or(0)
    }
}

/// Of latencies, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Percentiles {
    /// Half took no longer.
    pub(crate) p50_us: f64,
    /// 99 of 100 took no longer.
    pub(crate) p99_us: f64,
    /// 999 of 1,000 took no longer.
    pub(crate) p999_us: f64,
    /// How many there were.
    pub(crate) count: u64,
}

impl Percentiles {
    fn of(histogram: &Histogram<u64>) -> Self {
        let at = |quantile| approximate(histogram.value_at_quantile(quantile));
        Self { p50_us: at(0.5), p99_us: at(0.99), p999_us: at(0.999), count: histogram.len() }
    }
}

/// What was known at the line before.
#[derive(Debug, Default)]
struct Before(Option<Arc<Status>>);

impl Before {
    fn look(&mut self, standing: Option<MirrorStanding>, control_cpu_seconds: f64) -> Standing {
        let Some(MirrorStanding { states, job }) = standing else {
            return Standing { control_cpu_seconds, ..Standing::default() };
        };
        let states = states.into_iter().map(|(state, count)| (state.name().to_owned(), count));
        let mut it =
            Standing { states: states.collect(), control_cpu_seconds, ..Standing::default() };
        if let Some(job) = job {
            let (shards, totals) = (&job.shards, &job.totals);
            let (mut fetch, mut append) =
                (shards.fetch_latency_us.clone(), shards.append_latency_us.clone());
            let mut bytes = shards.stats.append.bytes_appended;
            if let Some(before) = &self.0 {
                // Histograms only grow, unless another job has begun.
                let _ = fetch.subtract(&before.shards.fetch_latency_us);
                let _ = append.subtract(&before.shards.append_latency_us);
                bytes = bytes.saturating_sub(before.shards.stats.append.bytes_appended);
            }
            it.bytes_appended = bytes;
            (it.fetch, it.append) = (Percentiles::of(&fetch), Percentiles::of(&append));
            (it.followed, it.caught_up, it.empty) =
                (totals.mirroring, totals.caught_up, totals.empty);
            self.0 = Some(job);
        }
        it
    }
}

pub(super) fn play(args: &HostArgs) -> Result<(), BenchError> {
    let failed = |why: String| BenchError::Role { role: "the host".to_owned(), why };
    let begun = Instant::now();
    let fixed = [
        ("node.id", "7".to_owned()),
        ("listeners", "PLAINTEXT://127.0.0.1:0".to_owned()),
        ("metrics.listener", "127.0.0.1:0".to_owned()),
        ("log.dirs", args.dir.display().to_string()),
    ];
    let fixed = fixed.map(|(key, value)| (key.to_owned(), value));
    let sets = args.sets.iter().map(|set| {
        let (key, value) = set.split_once('=').unwrap_or((set, ""));
        (key.to_owned(), value.to_owned())
    });
    let config = ServerConfig::from_pairs(fixed.into_iter().chain(sets));
    let config = config.map_err(|error| failed(error.to_string()))?;
    let (started, heard) = mpsc::channel();
    let thread = std::thread::Builder::new().name("control".to_owned());
    let control = thread
        .spawn(move || run(config, &started))
        .map_err(BenchError::system("start the control thread"))?;
    let joined = |control: std::thread::JoinHandle<_>| -> Result<HostReport, BenchError> {
        let ended: Result<HostReport, HostError> =
            control.join().map_err(|_| failed("a bug; see above".to_owned()))?;
        ended.map_err(|error| failed(error.to_string()))
    };
    let Ok((handle, tid)) = heard.recv() else {
        return joined(control).map(drop);
    };
    let metrics = handle.metrics_address().ok_or_else(|| failed("no metrics".to_owned()))?;
    let start_seconds = begun.elapsed().as_secs_f64();
    tell(&Up { address: handle.address(), metrics, start_seconds })?;
    let looks = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let looks = looks.map_err(BenchError::system("start a runtime"))?;
    let mut before = Before::default();
    for _ in io::stdin().lock().lines().map_while(Result::ok) {
        let standing = looks.block_on(handle.mirror(MIRROR));
        tell(&before.look(standing, cpu_seconds_of_thread(tid)))?;
    }
    handle.cancel();
    let report = joined(control)?;
    if !report.clean {
        return Err(BenchError::Incomplete(format!("no clean stop: {:?}", report.shard_errors)));
    }
    Ok(())
}

fn run(
    config: ServerConfig,
    started: &mpsc::Sender<(HostHandle, u32)>,
) -> Result<HostReport, HostError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    #[expect(clippy::expect_used, reason = "a machine that has no runtime measures nothing")]
    let runtime = runtime.expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let (host, handle) = Host::start(config).await?;
        // Nobody waits any more if this fails.
        let _ = started.send((handle, this_thread()));
        host.run().await
    })
}
