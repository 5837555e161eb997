//! A host and its source, each a process of its own, and what is asked of the host from here.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use heliostat_core::config::AdminConfig;
use heliostat_io::admin::{AdminClient, AdminError, MirrorDescription, StartOptions, StopOptions};
use heliostat_io::source_client::HostPort;
use tokio::runtime::Runtime;

use crate::error::BenchError;
use crate::place::pin_thread;
use crate::process::{cpu_seconds_of, peak_rss, rss};
use crate::role::{Child, MIRROR, Standing, Up};

/// Between two looks at the host.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Longest wait for an answer of the host.
const ANSWERS_WITHIN_MS: u32 = 600_000;

/// What the source holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) partitions: u32,
    pub(super) per_topic: u32,
    /// Records of 1 KiB in a batch; each partition holds a batch.
    pub(super) records: u32,
    /// Partitions that more comes to, once the source is told so.
    pub(super) active: u32,
    /// Bytes a second over all of them.
    pub(super) rate: u32,
}

/// The source that answers from memory.
#[derive(Debug)]
pub(super) struct Source {
    child: Child,
    address: String,
}

impl Source {
    pub(super) fn start(cpu: Option<usize>, held: Held) -> Result<Self, BenchError> {
        let role = [
            "synthetic".to_owned(),
            format!("--partitions={}", held.partitions),
            format!("--per-topic={}", held.per_topic),
            format!("--records={}", held.records),
            format!("--active={}", held.active),
            format!("--rate={}", held.rate),
        ];
        let mut child = Child::start(cpu, &role)?;
        let (address, _): (String, SocketAddr) = child.hear()?;
        Ok(Self { child, address })
    }

    /// Data begins to come; since when, by the clock of all processes, in nanoseconds.
    pub(super) fn begin(&mut self) -> Result<u64, BenchError> {
        self.child.say("begin")?;
        self.child.hear()
    }
}

/// A running host.
#[derive(Debug)]
pub(super) struct Host {
    child: Child,
    pub(super) up: Up,
    asks: Runtime,
}

impl Host {
    pub(super) fn start(
        cpu: Option<usize>,
        dir: &Path,
        sets: &[String],
    ) -> Result<Self, BenchError> {
        let mut role = vec!["host".to_owned(), format!("--dir={}", dir.display())];
        role.extend(sets.iter().map(|set| format!("--set={set}")));
        let mut child = Child::start(cpu, &role)?;
        let up = child.hear()?;
        let asks = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let asks = asks.map_err(BenchError::system("start a runtime"))?;
        Ok(Self { child, up, asks })
    }

    /// How the mirror stands; latencies since the last look.
    pub(super) fn look(&mut self) -> Result<Standing, BenchError> {
        self.child.say("look")?;
        self.child.hear()
    }

    /// Looks until it `holds`, and returns when it did.
    pub(super) fn until(
        &mut self,
        what: &str,
        within: Duration,
        holds: impl Fn(&Standing) -> bool,
    ) -> Result<Instant, BenchError> {
        let begun = Instant::now();
        loop {
            let standing = self.look()?;
            if holds(&standing) {
                return Ok(Instant::now());
            }
            if begun.elapsed() > within {
                let why = format!("not {what} after {:?}: {standing:?}", begun.elapsed());
                return Err(BenchError::Incomplete(why));
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    /// Makes the mirror.
    pub(super) fn create(&self, source: &Source) -> Result<(), BenchError> {
        let configs = vec![("bootstrap.servers".to_owned(), source.address.clone())];
        let mut client = client(self.up.address)?;
        self.asks.block_on(client.create_cluster_mirror(MIRROR, configs)).map_err(asked)
    }

    /// Starts these topics, or all of the source for none; what is here already has to be named.
    pub(super) fn start_topics(&self, topics: &[String]) -> Result<(), BenchError> {
        let include_patterns = match topics {
            [] => vec!["synthetic-.*".to_owned()],
            _ => Vec::new(),
        };
        let options = StartOptions { include_patterns, ..StartOptions::default() };
        let mut client = client(self.up.address)?;
        let started = self.asks.block_on(client.start_mirror_topics(MIRROR, topics, options));
        match started.map_err(asked)?.into_iter().find_map(|topic| topic.refusal) {
            None => Ok(()),
            Some(refusal) => Err(BenchError::Incomplete(format!("{refusal:?}"))),
        }
    }

    /// Stops topics, as for a failover.
    pub(super) fn stop_topics(&self, topics: &[String]) -> Result<(), BenchError> {
        let mut client = client(self.up.address)?;
        let stopped = client.stop_mirror_topics(MIRROR, topics, StopOptions::default());
        let stopped = self.asks.block_on(stopped);
        match stopped.map_err(asked)?.into_iter().find_map(|topic| topic.refusal) {
            None => Ok(()),
            Some(refusal) => Err(BenchError::Incomplete(format!("{refusal:?}"))),
        }
    }

    /// Gives its shards, and what they start from now on, another processor than the rest has.
    pub(super) fn pin_shards(&self, cpu: usize) -> Result<(), BenchError> {
        let tasks = PathBuf::from(format!("/proc/{}/task", self.id()));
        for task in std::fs::read_dir(&tasks).map_err(BenchError::file(&tasks))? {
            let task = task.map_err(BenchError::file(&tasks))?.path();
            let name = std::fs::read_to_string(task.join("comm")).unwrap_or_default();
            let thread = task.file_name().and_then(|it| it.to_str()?.parse().ok());
            if name.starts_with("shard-")
                && let Some(thread) = thread
            {
                pin_thread(thread, cpu)?;
            }
        }
        Ok(())
    }

    /// Seconds that a description of the mirror took, and what it says.
    pub(super) fn describe(&self) -> Result<(f64, MirrorDescription), BenchError> {
        let mut client = client(self.up.address)?;
        let mirrors = [MIRROR.to_owned()];
        // The connection is not what is timed.
        self.asks.block_on(client.list_cluster_mirrors(false)).map_err(asked)?;
        let begun = Instant::now();
        let all = self.asks.block_on(client.describe_cluster_mirrors(&mirrors)).map_err(asked)?;
        let seconds = begun.elapsed().as_secs_f64();
        let one = all.into_iter().next();
        let one = one.ok_or_else(|| BenchError::Incomplete("no mirror is described".to_owned()));
        Ok((seconds, one?))
    }

    /// Seconds that a scrape took, and its size in bytes.
    pub(super) fn scrape(&self) -> Result<(f64, usize), BenchError> {
        let begun = Instant::now();
        let read = || -> std::io::Result<usize> {
            let mut stream = TcpStream::connect(self.up.metrics)?;
            stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: host\r\n\r\n")?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)
        };
        let bytes = read().map_err(BenchError::system("scrape the host"))?;
        Ok((begun.elapsed().as_secs_f64(), bytes))
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn cpu_seconds(&self) -> f64 {
        cpu_seconds_of(self.id())
    }

    /// Resident memory now, and at most, in bytes.
    pub(super) fn memory(&self) -> (u64, u64) {
        (rss(self.id()).unwrap_or(0), peak_rss(self.id()).unwrap_or(0))
    }

    /// Stops it cleanly, and returns the seconds that it took.
    pub(super) fn stop(self) -> Result<f64, BenchError> {
        let begun = Instant::now();
        self.child.end()?;
        Ok(begun.elapsed().as_secs_f64())
    }
}

/// A client that waits as long as it takes.
pub(super) fn client(address: SocketAddr) -> Result<AdminClient, BenchError> {
    let at = HostPort { host: Arc::from(address.ip().to_string()), port: address.port() };
    let properties = format!(
        "request.timeout.ms={ANSWERS_WITHIN_MS}\ndefault.api.timeout.ms={ANSWERS_WITHIN_MS}\n"
    );
    let config = AdminConfig::parse(properties.as_bytes());
    let config = config.map_err(|error| BenchError::Incomplete(error.to_string()))?;
    Ok(AdminClient::new(vec![at], config))
}

pub(super) fn asked(error: AdminError) -> BenchError {
    BenchError::Incomplete(format!("the host was asked: {error}"))
}
