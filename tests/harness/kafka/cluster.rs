//! A cluster of one to three brokers on loopback, in a directory of its own.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use uuid::Uuid;

use super::artifacts::Artifacts;
use super::error::{KafkaError, Result};
use super::node::{Launch, Node, NodeState, STOP_TIMEOUT};
use super::ports::free_port;
use super::process::Process;
use super::properties::{Properties, common};
use super::wait;
use super::wire::{self, ClusterView, Wire};

/// JVM options of a broker that serves a test: small, quick to start, no optimising compiler.
pub(crate) const JVM_TEST: [&str; 3] = ["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"];
/// JVM options of a broker that is measured: Kafka's own, with a 1 GiB heap.
const JVM_LOAD: [&str; 5] = [
    "-Xmx1g",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
];

/// Longest time that what is left of a quorum gets to end by itself.
const ALONE_GRACE: Duration = Duration::from_secs(10);

/// What a cluster is made of. Start with [`Cluster::builder`].
#[derive(Clone, Debug)]
#[must_use = "nothing runs before `start`"]
pub struct ClusterBuilder {
    artifacts: Artifacts,
    brokers: usize,
    zookeeper: bool,
    dir: Option<PathBuf>,
    properties: Properties,
    node_properties: BTreeMap<i32, Properties>,
    jvm: Vec<String>,
    cluster_id: Option<String>,
    host: Ipv4Addr,
}

impl ClusterBuilder {
    /// Number of brokers, one by default. With `KRaft` each is a controller too, so that two of
    /// three must live for the cluster to change anything.
    pub fn brokers(mut self, brokers: usize) -> Self {
        self.brokers = brokers.max(1);
        self
    }

    /// ZooKeeper instead of `KRaft`, for versions that have both.
    pub fn zookeeper(mut self) -> Self {
        self.zookeeper = true;
        self
    }

    /// Directory to keep everything in, which stays; by default a temporary one.
    pub fn dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.dir = Some(dir.into());
        self
    }

    /// Address that clients reach the brokers at, loopback by default. The starting thread must
    /// reach it too.
    pub fn host(mut self, host: Ipv4Addr) -> Self {
        self.host = host;
        self
    }

    /// A property of all brokers.
    pub fn property(mut self, key: &str, value: impl ToString) -> Self {
        self.properties.set(key, value);
        self
    }

    /// Properties of all brokers, such as [`fast_housekeeping`](super::properties::fast_housekeeping).
    pub fn properties(mut self, properties: &Properties) -> Self {
        self.properties.extend(properties);
        self
    }

    /// A property of one broker; it wins over the cluster's.
    pub fn node_property(mut self, node: i32, key: &str, value: impl ToString) -> Self {
        self.node_properties.entry(node).or_default().set(key, value);
        self
    }

    /// JVM options for brokers that are measured instead of merely needed: Kafka's garbage
    /// collector settings, the optimising compiler, 1 GiB of heap.
    pub fn jvm_for_load(self) -> Self {
        self.jvm(JVM_LOAD)
    }

    /// JVM options of the brokers.
    pub fn jvm<I: Into<String>>(mut self, options: impl IntoIterator<Item = I>) -> Self {
        self.jvm = options.into_iter().map(Into::into).collect();
        self
    }

    /// Cluster ID to format with: 22 characters of URL-safe base 64. Random by default; a fixed
    /// one makes two clusters pass for the same. ZooKeeper clusters choose their own.
    pub fn cluster_id(mut self, id: &str) -> Self {
        self.cluster_id = Some(id.to_owned());
        self
    }

    /// Starts everything and waits until each broker knows all others.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Exited`] with the end of the log when a broker does not come up.
    pub fn start(self) -> Result<Cluster> {
        let version = self.artifacts.version();
        let zookeeper = self.zookeeper || !version.has_kraft();
        if zookeeper && !version.has_zookeeper() {
            return Err(KafkaError::Unsupported { version: version.number(), what: "ZooKeeper" });
        }
        let (dir, temp) = if let Some(dir) = &self.dir {
            (dir.clone(), None)
        } else {
            let temp = TempDir::with_prefix("kafka-")
                .map_err(KafkaError::file("create", std::env::temp_dir()))?;
            (temp.path().to_path_buf(), Some(temp))
        };
        fs::create_dir_all(&dir).map_err(KafkaError::file("create", &dir))?;
        let dir = dir.canonicalize().map_err(KafkaError::file("find", &dir))?;
        let mut cluster =
            if zookeeper { self.with_zookeeper(dir, temp)? } else { self.with_kraft(dir, temp)? };
        cluster.spawn_all()?;
        cluster.wait_ready()?;
        Ok(cluster)
    }

    fn with_kraft(self, dir: PathBuf, temp: Option<TempDir>) -> Result<Cluster> {
        let cluster_id = self.cluster_id.clone().unwrap_or_else(random_cluster_id);
        let mut ports = Vec::new();
        for _ in 0..self.brokers {
            ports.push((free_port()?, free_port()?));
        }
        let voters: Vec<String> = (1..)
            .zip(&ports)
            .map(|(id, (_, controller)): (i32, _)| format!("{id}@127.0.0.1:{controller}"))
            .collect();
        let (host, mut nodes) = (self.host, Vec::new());
        for (id, &(port, controller)) in (1..).zip(&ports) {
            let mut p = common(self.brokers);
            p.set("process.roles", "broker,controller")
                .set("node.id", id)
                .set("controller.quorum.voters", voters.join(","))
                .set(
                    "listeners",
                    format!("PLAINTEXT://{host}:{port},CONTROLLER://127.0.0.1:{controller}"),
                )
                .set("advertised.listeners", format!("PLAINTEXT://{host}:{port}"))
                .set("controller.listener.names", "CONTROLLER")
                .set("inter.broker.listener.name", "PLAINTEXT")
                .set("listener.security.protocol.map", "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT")
                // A killed broker is noticed after five seconds instead of nine. Less would take
                // a broker for dead that waits for a processor.
                .set("broker.session.timeout.ms", 5_000)
                .set("broker.heartbeat.interval.ms", 500);
            if self.brokers > 1 {
                p.set("controller.quorum.election.timeout.ms", 500);
            }
            nodes.push(self.node(id, port, &dir, p, Some(cluster_id.clone()))?);
        }
        Ok(Cluster { nodes, zookeeper: None, dir, _temp: temp })
    }

    fn with_zookeeper(self, dir: PathBuf, temp: Option<TempDir>) -> Result<Cluster> {
        let zookeeper_port = free_port()?;
        let zookeeper = start_zookeeper(&self.artifacts, &dir.join("zookeeper"), zookeeper_port)?;
        let (host, mut nodes) = (self.host, Vec::new());
        for id in (1..).take(self.brokers) {
            let port = free_port()?;
            let mut p = common(self.brokers);
            p.set("broker.id", id)
                .set("listeners", format!("PLAINTEXT://{host}:{port}"))
                .set("zookeeper.connect", format!("127.0.0.1:{zookeeper_port}"))
                .set("zookeeper.connection.timeout.ms", 30_000)
                .set("zookeeper.session.timeout.ms", 5_000);
            nodes.push(self.node(id, port, &dir, p, None)?);
        }
        Ok(Cluster { nodes, zookeeper: Some(zookeeper), dir, _temp: temp })
    }

    /// Puts the properties together: the harness's, then the cluster's, then the node's.
    fn node(
        &self,
        id: i32,
        port: u16,
        dir: &Path,
        mut properties: Properties,
        format: Option<String>,
    ) -> Result<Node> {
        let dir = dir.join(format!("broker-{id}"));
        properties.set("log.dirs", dir.join("data").display());
        properties.extend(&self.properties);
        if let Some(own) = self.node_properties.get(&id) {
            properties.extend(own);
        }
        let launch = Launch { artifacts: self.artifacts.clone(), jvm: self.jvm.clone(), format };
        let address = SocketAddrV4::new(self.host, port);
        Node::new(id, address, dir, properties, launch)
    }
}

/// A running cluster. Dropping it kills its processes and removes its temporary directory.
#[derive(Debug)]
pub struct Cluster {
    // Order matters on drop: processes first, their directory last.
    nodes: Vec<Node>,
    zookeeper: Option<Process>,
    dir: PathBuf,
    _temp: Option<TempDir>,
}

impl Cluster {
    /// A cluster of one broker of the version of `artifacts`, unless told otherwise.
    pub fn builder(artifacts: &Artifacts) -> ClusterBuilder {
        ClusterBuilder {
            artifacts: artifacts.clone(),
            brokers: 1,
            zookeeper: false,
            dir: None,
            properties: Properties::default(),
            node_properties: BTreeMap::new(),
            jvm: JVM_TEST.map(str::to_owned).to_vec(),
            cluster_id: None,
            host: Ipv4Addr::LOCALHOST,
        }
    }

    /// Addresses of all brokers, as `bootstrap.servers` wants them.
    pub fn bootstrap(&self) -> String {
        self.nodes.iter().map(Node::address).collect::<Vec<_>>().join(",")
    }

    /// Directory of the cluster.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// All nodes, by ID.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node of that ID.
    ///
    /// # Errors
    ///
    /// [`KafkaError::NoNode`].
    pub fn node(&self, id: i32) -> Result<&Node> {
        self.nodes.iter().find(|n| n.id() == id).ok_or(KafkaError::NoNode(id))
    }

    /// The node of that ID, to stop, kill, pause or start it.
    ///
    /// # Errors
    ///
    /// [`KafkaError::NoNode`].
    pub fn node_mut(&mut self, id: i32) -> Result<&mut Node> {
        self.nodes.iter_mut().find(|n| n.id() == id).ok_or(KafkaError::NoNode(id))
    }

    /// Process ID of ZooKeeper, where there is one.
    pub fn zookeeper_pid(&self) -> Option<u32> {
        self.zookeeper.as_ref().map(Process::pid)
    }

    /// Starts every stopped node and waits until each broker knows all others.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Exited`] with the end of the log when a broker does not come up.
    pub fn start_all(&mut self) -> Result<()> {
        self.spawn_all()?;
        self.wait_ready()
    }

    fn spawn_all(&mut self) -> Result<()> {
        let mut stopped = self.nodes.iter_mut().filter(|n| n.state() == NodeState::Stopped);
        stopped.try_for_each(Node::spawn)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let brokers = self.nodes.len();
        self.nodes.iter_mut().try_for_each(|node| node.wait_ready(brokers))
    }

    /// Stops all running nodes, at the same time and cleanly. ZooKeeper stays for a restart.
    ///
    /// A broker leaves by permission of a controller. Those of a quorum end with their brokers, so
    /// the last node may find nobody to ask and would wait for minutes: it is killed. Nothing was
    /// written to it by then since the leaders were gone, and its files hold what it was sent.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Timeout`] when one hangs that could have left.
    pub fn stop_all(&mut self) -> Result<()> {
        let running = |n: &&mut Node| n.state() == NodeState::Running;
        self.nodes.iter_mut().filter(running).try_for_each(Node::terminate)?;
        let majority = if self.zookeeper.is_some() { 0 } else { self.nodes.len() / 2 + 1 };
        let mut alone_since = None;
        wait::until("the end of all brokers", STOP_TIMEOUT, || {
            let mut left = 0;
            for node in self.nodes.iter_mut().filter(running) {
                left += usize::from(!node.has_stopped()?);
            }
            if 0 < left && left < majority {
                let since = *alone_since.get_or_insert_with(Instant::now);
                if since.elapsed() > ALONE_GRACE {
                    self.nodes.iter_mut().filter(running).try_for_each(Node::kill)?;
                    return Ok(Some(()));
                }
            }
            Ok((left == 0).then_some(()))
        })
    }

    /// View of a running broker of the cluster and of `topics`.
    ///
    /// # Errors
    ///
    /// [`KafkaError::Wire`] when no broker answers.
    pub fn metadata(&self, topics: &[&str]) -> Result<ClusterView> {
        let mut failed = KafkaError::NoNode(0);
        for node in self.nodes.iter().filter(|n| n.state() == NodeState::Running) {
            match Wire::connect(&node.address()).and_then(|mut wire| wire.metadata(topics)) {
                Ok(view) => return Ok(view),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Connection to a broker, for instance to the leader that a description names.
    ///
    /// # Errors
    ///
    /// [`KafkaError::NoNode`], [`KafkaError::Wire`].
    pub fn wire(&self, node: i32) -> Result<Wire> {
        Wire::connect(&self.node(node)?.address())
    }
}

fn start_zookeeper(artifacts: &Artifacts, dir: &Path, port: u16) -> Result<Process> {
    fs::create_dir_all(dir).map_err(KafkaError::file("create", dir))?;
    let mut p = Properties::default();
    p.set("dataDir", dir.join("data").display())
        .set("clientPort", port)
        .set("clientPortAddress", "127.0.0.1")
        .set("maxClientCnxns", 0)
        .set("admin.enableServer", false)
        .set("tickTime", 500);
    let file = dir.join("zookeeper.properties");
    fs::write(&file, p.to_file()).map_err(KafkaError::file("write", &file))?;
    let mut command = Command::new(artifacts.java());
    command
        .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
        .arg(artifacts.logging(true))
        .arg("-cp")
        .arg(artifacts.class_path())
        .args(["Launcher", "org.apache.zookeeper.server.quorum.QuorumPeerMain"])
        .arg(&file);
    let mut process = Process::start("zookeeper", command, &dir.join("zookeeper.log"))?;
    wait::until("ZooKeeper to listen", Duration::from_secs(30), || {
        process.check_alive()?;
        Ok(wire::listens(&format!("127.0.0.1:{port}")).then_some(()))
    })?;
    Ok(process)
}

/// 16 random bytes as Kafka writes them: URL-safe base 64 without padding.
fn random_cluster_id() -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    // The top bit is cleared, so that the first character is a letter: Kafka's command line would
    // take a leading dash for an option.
    let number = Uuid::new_v4().as_u128() & (u128::MAX >> 1);
    // 128 bits and four of padding: 22 groups of six.
    (0..22_u32)
        .map(|group| {
            let bits = if group == 21 { number << 4 } else { number >> (122 - 6 * group) };
            let index = usize::try_from(bits & 0x3f).unwrap_or(0);
            ALPHABET.get(index).map_or('A', |&b| char::from(b))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_ids_are_22_characters_and_never_an_option() {
        for _ in 0..200 {
            let id = random_cluster_id();
            assert_eq!(id.len(), 22);
            assert!(!id.starts_with('-'), "{id}");
            // The last character carries two bits only.
            assert!(id.ends_with(['A', 'Q', 'g', 'w']), "{id}");
        }
    }
}
