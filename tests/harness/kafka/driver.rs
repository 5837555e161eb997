//! The long-lived JVM with Kafka's clients: one line of JSON a request, one a reply.
//!
//! A JVM costs a second to start, so a test starts one and asks it for everything. Requests from
//! several threads run side by side. The JVM ends with the last [`Driver`] clone and the last
//! [`KafkaClient`], or when this process is gone.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::{Map, Value};
use tempfile::TempDir;

use super::archive;
use super::artifacts::Artifacts;
use super::client::KafkaClient;
use super::error::{KafkaError, Result};
use super::process::tail;
use super::wait;

/// Time that a request may take beyond its own `timeout_ms`.
const GRACE: Duration = Duration::from_secs(30);
/// Time for a request that names none; Kafka's clients give up after a minute by themselves.
const TIMEOUT: Duration = Duration::from_mins(2);

type Pending = Arc<Mutex<HashMap<u64, Sender<Value>>>>;

/// Handle of the JVM; clones share it.
#[derive(Clone, Debug)]
pub struct Driver(Arc<Jvm>);

#[derive(Debug)]
struct Jvm {
    child: Mutex<Child>,
    stdin: Mutex<ChildStdin>,
    pending: Pending,
    next_id: AtomicU64,
    log: PathBuf,
    _dir: TempDir,
}

impl Driver {
    /// Starts the JVM. `artifacts` may be of any version: the driver always runs the newest
    /// clients, which talk to brokers from 2.1 on.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Process`], and what [`call`](Self::call) says about the first request.
    pub fn start(artifacts: &Artifacts) -> Result<Self> {
        Self::start_with(artifacts, &archive::options(&artifacts.driver_archive()))
    }

    /// [`start`](Self::start) with other JVM options for the class-data archive.
    pub(crate) fn start_with(artifacts: &Artifacts, options: &[String]) -> Result<Self> {
        let dir = TempDir::with_prefix("kafka-driver-")
            .map_err(KafkaError::file("create", std::env::temp_dir()))?;
        let log = dir.path().join("driver.log");
        let err = File::create(&log).map_err(KafkaError::file("create", &log))?;
        let failed = |source| KafkaError::Process { name: "driver".into(), source };
        let mut child = Command::new(artifacts.java())
            .args(["-Xmx2g", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .args(options)
            .arg(artifacts.driver_logging())
            .arg("-cp")
            .arg(artifacts.driver_class_path())
            .arg("Driver")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(err)
            .spawn()
            .map_err(failed)?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(std::io::Error::other("no pipes")));
        };
        let pending = Pending::default();
        let routes = Arc::clone(&pending);
        // Ends with the JVM: its standard output closes.
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let Ok(reply) = serde_json::from_str::<Value>(&line) else { continue };
                let waiting = reply["id"].as_u64().and_then(|id| lock(&routes).remove(&id));
                if let Some(waiting) = waiting {
                    // A caller that gave up is no error here.
                    let _ = waiting.send(reply);
                }
            }
            // Dropping the senders wakes everybody who still waits.
            lock(&routes).clear();
        });
        let driver = Self(Arc::new(Jvm {
            child: Mutex::new(child),
            stdin: Mutex::new(stdin),
            pending,
            next_id: AtomicU64::new(1),
            log,
            _dir: dir,
        }));
        driver.call("ping", Map::new())?;
        Ok(driver)
    }

    /// Client of the cluster at `bootstrap`.
    pub fn client(&self, bootstrap: impl Into<String>) -> KafkaClient {
        KafkaClient::new(self.clone(), bootstrap.into())
    }

    /// Ends the JVM in an orderly way and waits for it.
    pub(crate) fn exit(&self) -> Result<()> {
        let answer = self.call("exit", Map::new());
        wait::until("the end of the driver", TIMEOUT, || {
            let failed = |source| KafkaError::Process { name: "driver".into(), source };
            lock(&self.0.child).try_wait().map_err(failed)
        })?;
        answer.map(drop)
    }

    /// Peak resident memory of the JVM so far, in bytes.
    ///
    /// # Errors
    ///
    /// [`KafkaError::File`] when the JVM is gone.
    pub fn memory_peak_bytes(&self) -> Result<u64> {
        let pid = lock(&self.0.child).id();
        super::files::memory_peak_bytes(&PathBuf::from(format!("/proc/{pid}/status")))
    }

    /// Sends operation `op` with `fields` and waits for its answer.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Refused`] with Java's exception, [`KafkaError::Timeout`],
    /// [`KafkaError::Exited`] when the JVM is gone.
    pub fn call(&self, op: &str, mut fields: Map<String, Value>) -> Result<Value> {
        let jvm = &*self.0;
        let timeout = fields
            .get("timeout_ms")
            .and_then(Value::as_u64)
            .map_or(TIMEOUT, |ms| Duration::from_millis(ms).saturating_add(GRACE));
        let id = jvm.next_id.fetch_add(1, Ordering::Relaxed);
        fields.insert("id".into(), id.into());
        fields.insert("op".into(), op.into());
        let mut line = Value::Object(fields).to_string();
        line.push('\n');
        let (sender, receiver) = mpsc::channel();
        lock(&jvm.pending).insert(id, sender);
        {
            let mut stdin = lock(&jvm.stdin);
            if stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()).is_err() {
                return Err(self.gone());
            }
        }
        let mut reply = match receiver.recv_timeout(timeout) {
            Ok(reply) => reply,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                lock(&jvm.pending).remove(&id);
                return Err(KafkaError::Timeout { what: op.into(), waited: timeout });
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return Err(self.gone()),
        };
        if let Some(error) = reply.get("error") {
            let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
            return Err(KafkaError::Refused {
                op: op.into(),
                class: text("class"),
                message: text("message"),
            });
        }
        Ok(reply["ok"].take())
    }

    fn gone(&self) -> KafkaError {
        KafkaError::Exited {
            name: "driver".into(),
            status: lock(&self.0.child)
                .try_wait()
                .ok()
                .flatten()
                .map_or_else(|| "no status".into(), |status| status.to_string()),
            log_tail: tail(&self.0.log, 30),
        }
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// A panic of another test thread leaves nothing half done behind these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
