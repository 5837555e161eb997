//! One broker: its directory, its process, its faults.

use std::fs;
use std::net::SocketAddrV4;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use super::archive;
use super::artifacts::Artifacts;
use super::error::{KafkaError, Result};
use super::files;
use super::process::Process;
use super::properties::Properties;
use super::wait;
use super::wire::Wire;

/// Longest time from start to readiness. An idle machine needs two seconds, one with a load of
/// eight a core half a minute.
pub(crate) const START_TIMEOUT: Duration = Duration::from_mins(3);
/// Longest time that a clean stop may take before it counts as hanging.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_mins(2);

/// What a node's process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// There is none.
    Stopped,
    /// It runs.
    Running,
    /// It was stopped by [`Node::pause`] and holds its connections.
    Paused,
}

impl NodeState {
    fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Running => "running",
            Self::Paused => "paused",
        }
    }
}

/// How a node's JVM is started.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub(crate) artifacts: Artifacts,
    pub(crate) jvm: Vec<String>,
    /// Cluster ID to format with; `None` with ZooKeeper, which needs no format.
    pub(crate) format: Option<String>,
}

/// One broker, which with `KRaft` is a controller too.
#[derive(Debug)]
pub struct Node {
    id: i32,
    address: SocketAddrV4,
    dir: PathBuf,
    properties: Properties,
    launch: Launch,
    process: Option<Process>,
    paused: bool,
}

impl Node {
    pub(crate) fn new(
        id: i32,
        address: SocketAddrV4,
        dir: PathBuf,
        properties: Properties,
        launch: Launch,
    ) -> Result<Self> {
        fs::create_dir_all(&dir).map_err(KafkaError::file("create", &dir))?;
        Ok(Self { id, address, dir, properties, launch, process: None, paused: false })
    }

    /// Node ID, from 1.
    pub fn id(&self) -> i32 {
        self.id
    }

    /// `host:port` of the client listener; the same after each start.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Process ID while there is a process.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(Process::pid)
    }

    /// What its process does, as far as this handle knows.
    pub fn state(&self) -> NodeState {
        match (&self.process, self.paused) {
            (None, _) => NodeState::Stopped,
            (Some(_), false) => NodeState::Running,
            (Some(_), true) => NodeState::Paused,
        }
    }

    /// Directory of the node's logs (Kafka's `log.dirs`).
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Directory of one partition.
    pub fn partition_dir(&self, topic: &str, partition: i32) -> PathBuf {
        self.data_dir().join(format!("{topic}-{partition}"))
    }

    /// The broker's own log, at INFO.
    pub fn log_file(&self) -> PathBuf {
        self.dir.join("server.log")
    }

    /// Properties for the next start; a change does not reach a running process.
    pub fn properties_mut(&mut self) -> &mut Properties {
        &mut self.properties
    }

    /// Starts the process and returns at once. For nodes that cannot be ready alone, such as the
    /// first of a quorum; else use [`start`](Self::start).
    ///
    /// # Errors
    ///
    /// [`KafkaError::NodeState`] when it runs already.
    pub fn spawn(&mut self) -> Result<()> {
        self.expect_state(NodeState::Stopped, "start")?;
        let file = self.dir.join("server.properties");
        fs::write(&file, self.properties.to_file()).map_err(KafkaError::file("write", &file))?;
        let mut command = Command::new(self.launch.artifacts.java());
        command
            .args(&self.launch.jvm)
            .args(archive::options(&self.launch.artifacts.broker_archive()))
            .arg(self.launch.artifacts.logging(false))
            .arg("-cp")
            .arg(self.launch.artifacts.class_path())
            .arg("Launcher")
            .current_dir(&self.dir);
        if let Some(cluster_id) = &self.launch.format {
            command.args(["--format", cluster_id]).arg(&file);
        }
        command.arg("kafka.Kafka").arg(&file);
        let name = format!("broker-{}", self.id);
        self.process = Some(Process::start(&name, command, &self.log_file())?);
        Ok(())
    }

    /// Starts the process and waits until it serves as a registered broker.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Exited`] with the end of its log when it ends instead.
    pub fn start(&mut self) -> Result<()> {
        self.spawn()?;
        self.wait_ready(1)
    }

    /// Waits until this broker lists itself and `brokers` in all.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Exited`] with the end of its log, [`KafkaError::Timeout`].
    pub fn wait_ready(&mut self, brokers: usize) -> Result<()> {
        let (id, address) = (self.id, self.address());
        let what = format!("broker {id} to list {brokers} brokers and itself");
        wait::until(what, START_TIMEOUT, || {
            if let Some(process) = &mut self.process {
                process.check_alive()?;
            }
            // Refused and broken connections are what a start looks like.
            let view = Wire::connect(&address).and_then(|mut wire| wire.metadata(&[]));
            Ok(view.ok().filter(|v| v.brokers.contains_key(&id) && v.brokers.len() >= brokers))
        })?;
        Ok(())
    }

    /// Asks the process to end (SIGTERM) and waits: the broker hands over its leaderships, syncs
    /// its logs and writes `.kafka_cleanshutdown`.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Timeout`] when it hangs, as the last nodes of a quorum do (see
    /// [`Cluster::stop_all`](super::Cluster::stop_all)).
    pub fn stop(&mut self) -> Result<()> {
        self.terminate()?;
        self.wait_stopped()
    }

    /// Sends SIGTERM and returns at once.
    ///
    /// # Errors
    ///
    /// [`KafkaError::NodeState`] when it does not run.
    pub fn terminate(&mut self) -> Result<()> {
        self.expect_state(NodeState::Running, "stop")?;
        self.signal(Signal::TERM)
    }

    /// Waits for the end of a process that was asked to [`terminate`](Self::terminate).
    ///
    /// # Errors
    ///
    /// [`KafkaError::Timeout`].
    pub fn wait_stopped(&mut self) -> Result<()> {
        let what = format!("the end of broker-{}", self.id);
        wait::until(what, STOP_TIMEOUT, || Ok(self.has_stopped()?.then_some(())))
    }

    /// Whether there is no process, or none any more.
    pub(crate) fn has_stopped(&mut self) -> Result<bool> {
        if let Some(process) = &mut self.process
            && process.exited()?.is_none()
        {
            return Ok(false);
        }
        self.process = None;
        Ok(true)
    }

    /// Kills the process (SIGKILL), running or paused: nothing is synced or handed over. Nothing
    /// happens when there is none.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Process`].
    pub fn kill(&mut self) -> Result<()> {
        if let Some(mut process) = self.process.take() {
            process.kill()?;
        }
        self.paused = false;
        Ok(())
    }

    /// Halts the process where it is (SIGSTOP) and waits until it is: connections stay open and
    /// nobody answers.
    ///
    /// # Errors
    ///
    /// [`KafkaError::NodeState`] unless it runs, [`KafkaError::Timeout`].
    pub fn pause(&mut self) -> Result<()> {
        self.expect_state(NodeState::Running, "pause")?;
        self.signal(Signal::STOP)?;
        self.paused = true;
        match &mut self.process {
            Some(process) => process.wait_paused(STOP_TIMEOUT),
            None => Ok(()),
        }
    }

    /// Lets a paused process go on (SIGCONT).
    ///
    /// # Errors
    ///
    /// [`KafkaError::NodeState`] unless it is paused.
    pub fn resume(&mut self) -> Result<()> {
        self.expect_state(NodeState::Paused, "resume")?;
        self.signal(Signal::CONT)?;
        self.paused = false;
        Ok(())
    }

    /// Forgets everything that is stored: at its next start an empty cluster with another ID
    /// answers at the same address. For clusters of one broker, with `KRaft`.
    ///
    /// # Errors
    ///
    /// [`KafkaError::NodeState`] unless it is stopped, [`KafkaError::File`].
    pub fn replace_cluster(&mut self, cluster_id: &str) -> Result<()> {
        self.expect_state(NodeState::Stopped, "another cluster")?;
        let data = self.data_dir();
        fs::remove_dir_all(&data).map_err(KafkaError::file("remove", data))?;
        self.launch.format = Some(cluster_id.to_owned());
        Ok(())
    }

    /// Peak resident memory of the process so far, in bytes.
    ///
    /// # Errors
    ///
    /// [`KafkaError::NodeState`] when there is no process.
    pub fn memory_peak_bytes(&self) -> Result<u64> {
        let pid = self.pid().ok_or(KafkaError::NodeState {
            node: self.id,
            state: NodeState::Stopped.name(),
            action: "memory",
        })?;
        files::memory_peak_bytes(Path::new(&format!("/proc/{pid}/status")))
    }

    fn signal(&mut self, signal: Signal) -> Result<()> {
        match &mut self.process {
            Some(process) => process.signal(signal),
            None => Ok(()),
        }
    }

    fn expect_state(&self, wanted: NodeState, action: &'static str) -> Result<()> {
        let state = self.state();
        if state == wanted {
            return Ok(());
        }
        Err(KafkaError::NodeState { node: self.id, state: state.name(), action })
    }
}
