//! How a host starts.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, ToSocketAddrs};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use heliostat_core::config::{ListenAddress, MirrorLevelConfig, ServerConfig};
use heliostat_core::coordinator::state_log::{MIRROR_STATE_TOPIC, StateLogOptions, tombstones};
use heliostat_core::coordinator::{DesiredState, MirrorKey, MirrorState, Mirrors, StateRecord};
use heliostat_core::metadata::controller::{
    BrokerRegistration, Decision, bootstrap, new_epochs_at_start, register_broker,
};
use heliostat_core::metadata::image::{Configs, MIRROR_VERSION, ResourceType};
use heliostat_core::metadata::log::{MetadataLogLimits, MetadataLogOptions};
use heliostat_core::metadata::record::BrokerEndpoint;
use heliostat_core::time::Tick;
use heliostat_core::types::{Offset, TimestampMs, TopicPartition};
use tokio::sync::mpsc;
use tokio::time::Instant;
use uuid::Uuid;

use super::HostError;
use super::failover::LogWorkers;
use super::http::Endpoint;
use super::journal::Journal;
use super::link::{Link, LinkHost};
use super::requests::THROTTLED_RATE;
use super::run::{Host, HostHandle};
use super::snapshot::{Viewer, view};
use crate::control::{Ends, LogDir, cancellation, now_ms};
use crate::listener::control::{ControlLimits, FeatureLevels, control_port};
use crate::listener::{Listener, ListenerConfig};
use crate::served::ServedLogs;

/// The metadata version that a new cluster begins with: 4.0-IV3, whose records are written.
const METADATA_VERSION_FIRST: i16 = 25;
/// Time between two sets of checkpoints.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(5);
/// Longest wait of a client for the control thread.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// `__cluster_metadata-0` among the checkpoints.
const METADATA_TOPIC: &str = "__cluster_metadata";

impl Host {
    /// Opens log dir and logs, starts the listener and a job for each mirror, and goes on with
    /// every partition where it was. Within a `tokio::task::LocalSet`.
    ///
    /// # Errors
    /// [`HostError`] with the remedy.
    pub async fn start(config: ServerConfig) -> Result<(Self, HostHandle), HostError> {
        // First of all: whoever asks hears that logs are being replayed.
        let (publisher, viewer) = view();
        let endpoint = serve_http(&config, &viewer)?;
        let cluster = config.cluster_id.as_deref();
        let mut log_dir = LogDir::open_host(&config.log_dir, config.node_id, cluster)?;
        let served = Arc::new(ServedLogs::new(&config.log_dir));
        let (mut journal, replayed) = open_journal(&config, &log_dir, &served)?;
        log_dir.serve(Arc::clone(&served));
        let log_dir = Rc::new(RefCell::new(log_dir));
        let mut mirrors = Mirrors::new(config.retry);
        for (key, stored) in replayed.states {
            mirrors.restore(StateRecord::Partition(key, Some(stored)));
        }
        for (key, last) in replayed.last_mirrored {
            mirrors.restore(StateRecord::LastMirrored(key, Some(last)));
        }
        let is_new = journal.image().brokers().next().is_none();
        decide(&mut journal, |image| bootstrap(image, METADATA_VERSION_FIRST)).await?;
        if is_new {
            let update = heliostat_core::metadata::controller::FeatureUpdate {
                name: MIRROR_VERSION.to_owned(),
                level: 1,
                allow_downgrade: false,
            };
            let on =
                |image: &_| heliostat_core::metadata::controller::update_feature(image, &update);
            decide(&mut journal, on).await?;
        }
        let level = journal.image().feature(MIRROR_VERSION);
        let features = Arc::new(FeatureLevels::new(level, journal.metadata_end().0));
        let limits = ControlLimits {
            queued_requests_max: usize::try_from(config.limits.queued_requests_max)
                .unwrap_or(usize::MAX),
            request_timeout: REQUEST_TIMEOUT,
        };
        let (port, calls) = control_port(limits, Arc::clone(&features));
        let listener = Listener::start_host(listener_config(&config)?, port, Arc::clone(&served))?;
        let registration = registration(&config, &listener, journal.metadata_end());
        decide(&mut journal, |image| register_broker(image, &registration)).await?;
        // Before anything can be appended: a lost tail is told from what replaces it.
        decide(&mut journal, new_epochs_at_start).await?;
        let (news_sender, news) = mpsc::unbounded_channel();
        let (canceller, cancel) = cancellation();
        let metrics = endpoint.as_ref().map(Endpoint::address);
        let handle = HostHandle {
            cancel: canceller,
            address: listener.address(),
            metrics,
            news: news_sender.clone(),
            viewer,
        };
        let log_workers = LogWorkers::new(&config.log_dir, config.mirror.recovery_threads);
        let mut host = Self {
            config,
            log_dir,
            served,
            journal,
            mirrors,
            links: BTreeMap::new(),
            next_generation: 0,
            to_inspect: Vec::new(),
            inspected: Vec::new(),
            at_logs: 0,
            log_workers,
            aligned: BTreeSet::new(),
            is_tainted: false,
            broken: BTreeSet::new(),
            features,
            listener,
            calls,
            news,
            news_sender,
            cancel,
            origin: Instant::now(),
            shard_errors: Vec::new(),
            checkpoint_due: Tick::ZERO,
            publisher,
            endpoint,
            failures: BTreeMap::new(),
        };
        host.raise_written().await?;
        host.forget_deleted().await;
        host.forget_outdated().await;
        let names: Vec<Arc<str>> = host.image().mirrors().map(Arc::from).collect();
        for mirror in names {
            host.start_link(&mirror);
            host.watch_topics(&mirror);
        }
        let topics: Vec<Arc<str>> =
            host.image().topics().map(|topic| Arc::clone(&topic.name)).collect();
        host.show_resting().await;
        for topic in topics {
            host.want(&topic);
        }
        Ok((host, handle))
    }

    /// Partitions that were writable until a wish that has not begun to come true have to have a
    /// new leader epoch as well.
    async fn raise_written(&mut self) -> Result<(), HostError> {
        let image = self.image();
        let mut written = Vec::new();
        for topic in image.topics() {
            let link = image.mirror_of(&topic.name);
            if link.is_none_or(|link| link.desired == DesiredState::Stopped) {
                // It has one.
                continue;
            }
            for (key, known) in self.keys_of(&topic.name).into_iter().zip(&topic.partitions) {
                let state = self.mirrors.get(&key).map_or(MirrorState::Unknown, |it| it.state());
                if matches!(state, MirrorState::Stopped | MirrorState::Unknown) {
                    written.push((key.topic, key.partition, known.leader_epoch));
                }
            }
        }
        for (_, reason) in self.raise(written).await? {
            tracing::warn!("leader epoch not raised: {reason}");
        }
        Ok(())
    }

    /// Writes the tombstones that a crash kept from being written when a mirror was deleted.
    async fn forget_deleted(&mut self) {
        let gone = self.mirrors.gone(self.image());
        let records: Vec<StateRecord> = gone.iter().flat_map(tombstones).collect();
        if let Err(error) = self.journal.store(records.clone()).await {
            tracing::warn!("states of deleted mirrors: {error}; tried again");
            self.mirrors.owe(records);
        }
        for key in gone {
            let _ = self.mirrors.forget(&key);
        }
    }

    /// The position of a stop counts until the partition mirrors again. A crash may have come
    /// between that state and the position's tombstone.
    async fn forget_outdated(&mut self) {
        let outdated = self.mirrors.outdated();
        let tombstone = |key: &MirrorKey| StateRecord::LastMirrored(key.clone(), None);
        let records: Vec<StateRecord> = outdated.iter().map(tombstone).collect();
        if let Err(error) = self.journal.store(records.clone()).await {
            tracing::warn!("positions of earlier stops: {error}; tried again");
            self.mirrors.owe(records);
        }
        for key in &outdated {
            self.mirrors.restore(tombstone(key));
        }
    }

    /// What mirrors have that do not say otherwise: the file's, unless the broker's configs were
    /// altered since.
    pub(super) fn mirror_defaults(&self) -> Vec<(String, String)> {
        let node = self.config.node_id.to_string();
        let altered = ["", node.as_str()].into_iter().flat_map(|name| {
            let configs = self.image().configs(ResourceType::BROKER, name).into_iter();
            configs.flat_map(Configs::iter).filter(|(key, _)| *key != THROTTLED_RATE)
        });
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        self.config.mirror_defaults.iter().cloned().chain(altered.map(owned)).collect()
    }

    /// Starts the jobs that could not be started before.
    pub(super) fn start_missing_links(&mut self) {
        let missing: Vec<Arc<str>> = self
            .image()
            .mirrors()
            .filter(|mirror| !self.links.contains_key(*mirror) && !self.broken.contains(*mirror))
            .map(Arc::from)
            .collect();
        for mirror in missing {
            self.start_link(&mirror);
            self.watch_topics(&mirror);
        }
    }

    /// Starts the job of a mirror, with the configs that are stored. A mirror without one stays,
    /// and can be stopped and described all the same.
    pub(super) fn start_link(&mut self, mirror: &Arc<str>) {
        let Some(configs) = self.image().configs(ResourceType::MIRROR, mirror) else { return };
        let stored: BTreeMap<String, String> =
            configs.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let defaults = self.mirror_defaults();
        let level = match MirrorLevelConfig::from_pairs(&defaults, stored.clone()) {
            Ok(level) => level,
            Err(error) => {
                tracing::error!("mirror {mirror} does not start: {error}");
                return;
            }
        };
        self.next_generation += 1;
        let (generation, fleets) = (self.next_generation, self.links.len() + 1);
        let host = LinkHost {
            server: &self.config,
            log_dir: &self.log_dir,
            fleets,
            generation,
            news: &self.news_sender,
        };
        let started = Link::start(mirror, level, stored, host);
        match started {
            Ok(link) => {
                self.links.insert(Arc::clone(mirror), link);
                self.apply_throttle();
            }
            Err(error) => tracing::error!("mirror {mirror} does not start: {error}"),
        }
    }

    /// Notes the ends of the host's own logs, and writes the checkpoints.
    pub(super) fn write_checkpoints(&mut self) {
        self.checkpoint_due = self.now().after(CHECKPOINT_EVERY);
        let mut log_dir = self.log_dir.borrow_mut();
        for (partition, end) in self.journal.states().ends() {
            let at = TopicPartition::new(MIRROR_STATE_TOPIC, i32::from(partition));
            log_dir.note(&at, durable(end));
        }
        log_dir.note(&TopicPartition::new(METADATA_TOPIC, 0), durable(self.journal.metadata_end()));
        if let Err(error) = log_dir.write_checkpoints() {
            // The old ones still stand; a crash only costs a longer recovery.
            tracing::warn!("checkpoints: {error}; tried again");
        }
    }
}

/// The HTTP endpoint, if there is to be one.
fn serve_http(config: &ServerConfig, viewer: &Viewer) -> Result<Option<Endpoint>, HostError> {
    let Some(at) = &config.metrics else { return Ok(None) };
    Endpoint::start(resolve("metrics.listener", at)?, viewer.clone()).map(Some)
}

fn durable(end: Offset) -> Ends {
    Ends { log_start: Offset::ZERO, recovery_point: end, high_watermark: end }
}

fn open_journal(
    config: &ServerConfig,
    log_dir: &LogDir,
    served: &Arc<ServedLogs>,
) -> Result<(Journal, heliostat_core::coordinator::state_log::Replayed), HostError> {
    let metadata = MetadataLogOptions {
        node: config.node_id,
        now: TimestampMs(now_ms()),
        recovery_point: log_dir.recovery_point(&TopicPartition::new(METADATA_TOPIC, 0)),
        limits: MetadataLogLimits::default(),
    };
    let recovery_points = (0..config.state_partitions.max(1)).map(|partition| {
        let at = TopicPartition::new(MIRROR_STATE_TOPIC, i32::from(partition));
        (partition, log_dir.recovery_point(&at))
    });
    let states = StateLogOptions {
        partitions: config.state_partitions,
        clean: log_dir.was_clean(),
        recovery_points: recovery_points.collect(),
        now_ms: now_ms(),
        ..StateLogOptions::default()
    };
    let (journal, report, replayed) =
        Journal::open(&config.log_dir, &metadata, states, Arc::clone(served))?;
    if report.aborted > 0 {
        let count = report.aborted;
        tracing::info!("metadata: {count} records of a decision that was cut off are dropped");
    }
    if replayed.unknown > 0 {
        let count = replayed.unknown;
        tracing::warn!("__mirror_state: {count} records of unknown kinds are passed over");
    }
    Ok((journal, replayed))
}

async fn decide<A>(
    journal: &mut Journal,
    decision: impl FnOnce(
        &heliostat_core::metadata::image::MetadataImage,
    ) -> Result<Decision<A>, heliostat_core::metadata::controller::Refusal>,
) -> Result<A, HostError> {
    let Decision { records, answer } = decision(journal.image())?;
    journal.decide(records).await?;
    Ok(answer)
}

fn listener_config(config: &ServerConfig) -> Result<ListenerConfig, HostError> {
    let address = resolve("listeners", &config.listener)?;
    let limits = &config.limits;
    let size = |value: u32| usize::try_from(value).unwrap_or(usize::MAX);
    let base = ListenerConfig::new(address, config.node_id);
    Ok(ListenerConfig {
        advertised_host: config.advertised.as_ref().map(|it| it.host.clone()),
        threads: usize::from(limits.threads),
        socket_send_buffer_bytes: limits.send_buffer_bytes.map(size),
        socket_receive_buffer_bytes: limits.receive_buffer_bytes.map(size),
        socket_request_max_bytes: limits.request_bytes_max,
        connections_max_idle: limits.idle_max,
        connections_max: size(limits.connections_max),
        connections_per_ip_max: size(limits.connections_per_ip_max),
        ..base
    })
}

/// The first address of a name; every address of this machine for none.
pub(super) fn resolve(key: &'static str, at: &ListenAddress) -> Result<SocketAddr, HostError> {
    let host = if at.host.is_empty() { "0.0.0.0" } else { &at.host };
    let failed = |reason: String| HostError::Address { key, address: at.to_string(), reason };
    let mut all = (host, at.port).to_socket_addrs().map_err(|error| failed(error.to_string()))?;
    all.next().ok_or_else(|| failed("none is known".to_owned()))
}

/// How the host registers with itself, as a broker does with its controller.
fn registration(
    config: &ServerConfig,
    listener: &Listener,
    metadata_end: Offset,
) -> BrokerRegistration {
    let (host, port) = advertised(config, listener.address());
    BrokerRegistration {
        node: config.node_id,
        incarnation: Uuid::new_v4(),
        epoch: metadata_end.0,
        end_points: vec![BrokerEndpoint {
            name: "PLAINTEXT".to_owned(),
            host,
            port,
            security_protocol: 0,
        }],
        features: Vec::new(),
        rack: None,
        log_dirs: Vec::new(),
    }
}

/// Host and port as clients reach the listener.
fn advertised(config: &ServerConfig, bound: SocketAddr) -> (String, u16) {
    let named = config.advertised.as_ref().or(Some(&config.listener)).filter(|it| !it.is_any());
    match named {
        Some(at) => (at.host.clone(), if at.port == 0 { bound.port() } else { at.port }),
        None => {
            let ip = bound.ip();
            let host = if ip.is_unspecified() { own_name() } else { ip.to_string() };
            (host, bound.port())
        }
    }
}

/// What this machine calls itself, as Kafka advertises it.
fn own_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}
