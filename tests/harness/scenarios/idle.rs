//! A mirror that has nothing to do, run as an operator runs it.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::bad_input::build;
use super::error::{Result, ScenarioError, ensure};
use super::figures::Figures;
use crate::kafka::{Artifacts, Cluster, Driver, Workload, wait};

const PARTITIONS: i32 = 1_000;
/// User and group without rights of their own.
const NOBODY: u32 = 65_534;
/// Lockable memory of a service under systemd and of a shell on most distributions.
const MEMLOCK_BYTES: u64 = 8 << 20;
/// Longest time until everything is copied, and until idle files are closed behind it.
const SETTLED_WITHIN: Duration = Duration::from_mins(5);
/// How long it is looked at.
const WATCHED: Duration = Duration::from_secs(60);
/// Of a core, in a thousand.
const SHARE_MAX_PERMILLE: u128 = 2;

/// Follows 1,000 partitions that nobody writes to, as an ordinary user (`nobody`, for which this
/// process has to be root) with 8 MiB of lockable memory, and adds up its processor time.
///
/// # Errors
///
/// [`ScenarioError`], also when it took more than its share.
pub fn idle(kafka: &Artifacts) -> Result<Figures> {
    let program = build()?;
    let cluster = Cluster::builder(kafka).start()?;
    let client = Driver::start(kafka)?.client(cluster.bootstrap());
    client.create_topic("idle", PARTITIONS, 1, &[])?;
    client.wait_partition("idle", PARTITIONS - 1, "a leader", |p| p.leader == Some(1))?;
    client.produce(&Workload {
        keys: 20_000,
        idempotent: false,
        linger_ms: 1_000,
        ..Workload::new("idle", 30_000)
    })?;

    let scratch = TempDir::with_prefix("idle-");
    let scratch = scratch.map_err(ScenarioError::file(&std::env::temp_dir()))?;
    let mut mirror = Mirror::start(&program, scratch.path(), &cluster.bootstrap())?;
    let settled = format!("{PARTITIONS} of {PARTITIONS} partitions in step");
    mirror.wait_for(&settled)?;
    wait::until("closed files of idle partitions", SETTLED_WITHIN, || {
        let open = fs::read_dir(mirror.proc("fd")).map_or(usize::MAX, Iterator::count);
        Ok((open < 100).then_some(()))
    })?;

    let (before, began) = (mirror.cpu()?, Instant::now());
    // Nothing is to happen meanwhile; only time passes.
    wait::until("a minute", WATCHED * 2, || Ok((began.elapsed() >= WATCHED).then_some(())))?;
    let (cpu, watched) = (mirror.cpu()?.saturating_sub(before), began.elapsed());
    let permille = cpu.as_nanos() * 1_000 / watched.as_nanos().max(1);
    ensure(permille < SHARE_MAX_PERMILLE, || {
        format!("{cpu:?} of processor time in {watched:?}, {SHARE_MAX_PERMILLE} permille at most")
    })?;
    let status = fs::read_to_string(mirror.proc("status"));
    let status = status.map_err(ScenarioError::file(&mirror.proc("status")))?;
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    ensure(!user.split_whitespace().any(|id| id == "0"), || format!("it runs as root: {user}"))?;

    let mut figures = Figures::default();
    figures.add("Kafka", kafka.version().number());
    figures.add("partitions", PARTITIONS);
    figures.add("user", user.split_whitespace().next().unwrap_or_default());
    figures.add("lockable memory, bytes", MEMLOCK_BYTES);
    figures.add("seconds watched", watched.as_secs());
    figures.add("milliseconds of processor time", cpu.as_millis());
    figures.add("share of a core, percent, limit 0.2", percent(cpu, watched));
    Ok(figures)
}

fn percent(cpu: Duration, watched: Duration) -> String {
    format!("{:.3}", 100.0 * cpu.as_secs_f64() / watched.as_secs_f64().max(1e-9))
}

/// The running program.
struct Mirror {
    child: Child,
    /// What it says of itself.
    said: PathBuf,
}

impl Mirror {
    /// Starts the program as `nobody`, from a place where that user may run it.
    fn start(program: &Path, scratch: &Path, bootstrap: &str) -> Result<Self> {
        let own = scratch.join("heliostat");
        fs::copy(program, &own).map_err(ScenarioError::file(&own))?;
        for path in [scratch, &own] {
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(path, mode).map_err(ScenarioError::file(path))?;
        }
        let home = scratch.join("home");
        fs::create_dir(&home).map_err(ScenarioError::file(&home))?;
        chown(&home, Some(NOBODY), Some(NOBODY)).map_err(ScenarioError::file(&home))?;
        let said = scratch.join("said");
        let out = fs::File::create(&said).map_err(ScenarioError::file(&said))?;
        // Both programs become the next one, so the child is the mirror in the end.
        let child = Command::new("prlimit")
            .arg(format!("--memlock={MEMLOCK_BYTES}:{MEMLOCK_BYTES}"))
            .args(["setpriv", "--reuid", &NOBODY.to_string(), "--regid", &NOBODY.to_string()])
            .arg("--clear-groups")
            .arg(&own)
            .args(["mirror", "--follow", "--source", bootstrap, "--topics", "idle", "--to"])
            .arg(home.join("copy"))
            .env_remove("RUST_LOG")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(out)
            .spawn()
            .map_err(ScenarioError::file(&own))?;
        Ok(Self { child, said })
    }

    /// Waits until it has said `text`.
    fn wait_for(&mut self, text: &str) -> Result<()> {
        wait::until(text, SETTLED_WITHIN, || {
            let said = fs::read_to_string(&self.said).unwrap_or_default();
            let ended = self.child.try_wait().ok().flatten();
            Ok((said.contains(text) || ended.is_some()).then_some(()))
        })?;
        let ended = self.child.try_wait().ok().flatten();
        ensure(ended.is_none(), || fs::read_to_string(&self.said).unwrap_or_default())
    }

    fn proc(&self, name: &str) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string()).join(name)
    }

    /// Processor time of its running threads.
    fn cpu(&self) -> Result<Duration> {
        let tasks = self.proc("task");
        let mut nanos = 0;
        for task in fs::read_dir(&tasks).map_err(ScenarioError::file(&tasks))?.flatten() {
            let stat = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
            nanos += stat.split(' ').next().and_then(|on| on.parse::<u64>().ok()).unwrap_or(0);
        }
        ensure(nanos > 0, || "the kernel keeps no schedstat".to_owned())?;
        Ok(Duration::from_nanos(nanos))
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        // Either fails only for a process that is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
