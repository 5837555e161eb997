//! A server in a process of its own, and what its log dir holds.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::future::Future;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use heliostat_core::config::AdminConfig;
use heliostat_io::admin::{AdminClient, MirrorPartition};
use heliostat_io::source_client::HostPort;
use tempfile::TempDir;

/// Only a hang reaches it.
const DEADLINE: Duration = Duration::from_mins(1);
/// Where a process is to die.
const FAULT_POINT: &str = "HELIOSTAT_FAULT_POINT";
/// Where it is to stand still.
const FAULT_HOLD: &str = "HELIOSTAT_FAULT_HOLD";

/// Partitions of a mirror, by topic.
pub(crate) type Topics = BTreeMap<String, Vec<MirrorPartition>>;

/// A directory with a server's properties, its log dir and what it says.
pub(crate) struct Home {
    dir: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let it = Self { dir: tempfile::tempdir().unwrap() };
        it.configure();
        it
    }

    /// The same log dir once more, as a crash or a clean stop has left it.
    pub(crate) fn copy(&self) -> Self {
        let it = Self { dir: tempfile::tempdir().unwrap() };
        copy_dir(&self.log_dir(), &it.log_dir());
        it.configure();
        it
    }

    fn configure(&self) {
        let lines = [
            "node.id=7".to_owned(),
            "listeners=PLAINTEXT://127.0.0.1:0".to_owned(),
            format!("log.dirs={}", self.log_dir().display()),
            "mirror.state.topic.num.partitions=4".to_owned(),
            "mirror.metadata.refresh.interval.ms=300".to_owned(),
            "mirror.failed.retry.initial.backoff.ms=50".to_owned(),
            "log.dir.free.min.bytes=0".to_owned(),
        ];
        fs::write(self.properties(), lines.join("\n")).unwrap();
    }

    pub(crate) fn properties(&self) -> PathBuf {
        self.dir.path().join("server.properties")
    }

    pub(crate) fn log_dir(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    fn said(&self) -> PathBuf {
        self.dir.path().join("said")
    }

    pub(crate) fn start(&self) -> Server {
        Server::start(self, None)
    }

    /// A server that dies when it gets to `point`.
    pub(crate) fn start_to_die_at(&self, point: &str) -> Server {
        Server::start(self, Some((FAULT_POINT, point)))
    }

    /// A server that stands still when it gets to `point`.
    pub(crate) fn start_to_hold_at(&self, point: &str) -> Server {
        Server::start(self, Some((FAULT_HOLD, point)))
    }

    /// The batches of a partition.
    pub(crate) fn bytes(&self, partition: &str) -> Vec<u8> {
        log_bytes(&self.log_dir().join(partition))
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.log_dir().join(".kafka_cleanshutdown").exists()
    }

    /// What a server says that does not start: one line.
    #[track_caller]
    pub(crate) fn refusal(&self) -> String {
        let run = Command::new(env!("CARGO_BIN_EXE_heliostat"))
            .arg("server")
            .arg(self.properties())
            .output()
            .unwrap();
        let errors = String::from_utf8(run.stderr).unwrap();
        assert_eq!(run.status.code(), Some(1), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
        assert_eq!(run.stdout, b"", "{errors}");
        errors.trim_end().strip_prefix("heliostat: ").unwrap().to_owned()
    }
}

impl Drop for Home {
    #[expect(clippy::print_stderr, reason = "what a server said, beside what is wrong")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", fs::read_to_string(self.said()).unwrap_or_default());
        }
    }
}

fn copy_dir(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, name) = entry.map(|it| (it.path(), it.file_name())).unwrap();
        if path.is_dir() {
            copy_dir(&path, &to.join(name));
        } else {
            fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

/// The batches of a log, one file after another.
pub(crate) fn log_bytes(dir: &Path) -> Vec<u8> {
    log_files(dir).iter().flat_map(|file| fs::read(file).unwrap()).collect()
}

/// Its segments, the oldest first.
pub(crate) fn log_files(dir: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    files.sort();
    files
}

/// A running server; it is killed when this is dropped.
pub(crate) struct Server {
    child: Child,
    lines: Receiver<String>,
    address: SocketAddr,
}

impl Server {
    fn start(home: &Home, fault: Option<(&str, &str)>) -> Self {
        let errors = File::options().append(true).create(true).open(home.said()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_heliostat"));
        command.arg("server").arg(home.properties());
        command.stdout(Stdio::piped()).stderr(errors).envs(fault);
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        // Ends with the process.
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let line = lines.recv_timeout(DEADLINE).unwrap();
        let address = line.strip_prefix("listening on ").unwrap().parse().unwrap();
        Self { child, lines, address }
    }

    pub(crate) fn client(&self) -> AdminClient {
        let at = self.address;
        let at = HostPort { host: Arc::from(at.ip().to_string()), port: at.port() };
        AdminClient::new(vec![at], AdminConfig::parse(b"").unwrap())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Waits for its end, at `place`; the last thing that it said.
    #[track_caller]
    fn end(&mut self, place: &str) -> (ExitStatus, String) {
        let mut last = String::new();
        loop {
            match self.lines.recv_timeout(DEADLINE) {
                Ok(line) => last = line,
                Err(RecvTimeoutError::Disconnected) => return (self.child.wait().unwrap(), last),
                Err(RecvTimeoutError::Timeout) => panic!("{place}: the server does not end"),
            }
        }
    }

    /// Waits for its death at the place that it was started to die at.
    #[track_caller]
    pub(crate) fn dies(mut self, point: &str) {
        let (status, _) = self.end(point);
        assert_eq!(status.signal(), Some(9), "{point}: {status}");
    }

    /// Waits until it stands still.
    #[track_caller]
    pub(crate) fn holds(&self) {
        let since = Instant::now();
        let stat = format!("/proc/{}/stat", self.child.id());
        // Behind the name, which is in parentheses.
        while !fs::read_to_string(&stat).unwrap().contains(") T ") {
            assert!(since.elapsed() < DEADLINE, "the server does not stand still");
            std::thread::yield_now();
        }
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        let _ = self.end("killed");
    }

    pub(crate) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// How it ends after a signal: its exit code, and the last thing that it said.
    pub(crate) fn ends(mut self) -> (Option<i32>, String) {
        let (status, last) = self.end("told to stop");
        (status.code(), last)
    }

    /// Stops it cleanly.
    #[track_caller]
    pub(crate) fn stop(self) {
        self.signal("-TERM");
        assert_eq!(self.ends(), (Some(0), "clean stop".to_owned()));
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a client's questions, with a limit that only a hang reaches.
pub(crate) fn run<T>(questions: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(DEADLINE, questions).await.unwrap() })
}

/// Every partition of mirror `m`, by topic, once `holds` is true of them.
pub(crate) async fn until(client: &mut AdminClient, holds: impl Fn(&Topics) -> bool) -> Topics {
    let since = Instant::now();
    loop {
        let all = client.describe_cluster_mirrors(&["m".to_owned()]).await.unwrap();
        let topics = all.into_iter().next().unwrap().topics;
        if holds(&topics) {
            return topics;
        }
        assert!(since.elapsed() < DEADLINE / 2, "it stays so: {topics:#?}");
        tokio::task::yield_now().await;
    }
}

/// Whether all partitions are in a state.
pub(crate) fn all_in(state: &'static str) -> impl Fn(&Topics) -> bool {
    move |topics| {
        let mut all = topics.values().flatten().peekable();
        all.peek().is_some() && all.all(|partition| partition.state == state)
    }
}

/// Whether all are mirrored, and nothing is missing of any.
pub(crate) fn in_step(topics: &Topics) -> bool {
    all_in("MIRRORING")(topics)
        && topics.values().flatten().all(|it| {
            it.lag == Some(0)
                && it.source_offset.is_some()
                && it.source_offset == it.destination_offset
        })
}

/// Last mirrored epoch and offset of each partition of topic `t`.
pub(crate) fn positions(topics: &Topics) -> Vec<(i32, i64)> {
    let all = topics["t"].iter();
    all.map(|it| (it.last_mirror_epoch.0, it.last_mirror_offset.map_or(-1, |at| at.0))).collect()
}
