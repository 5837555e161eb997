//! A host: the real logs, controller and coordinator, in the order of steps of `io/src/host`.

mod durable;
mod log_dir;
mod news;
mod shards;
mod steps;
mod stops;
mod sync;
mod views;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use heliostat_core::coordinator::partition::{Failure, Run};
use heliostat_core::coordinator::retry::RetryPolicy;
use heliostat_core::coordinator::state_log::{Replayed, StateLog, StateLogOptions, tombstones};
use heliostat_core::coordinator::{
    DesiredState, LastMirrored, MirrorKey, MirrorState, Mirrors, StateRecord,
};
use heliostat_core::log::cold_log::ColdLog;
use heliostat_core::metadata::controller::{
    BrokerRegistration, FeatureUpdate, SOURCE_CLUSTER_ID, bootstrap, new_epochs_at_start,
    register_broker, update_feature,
};
use heliostat_core::metadata::image::{MIRROR_VERSION, MetadataImage, ResourceType};
use heliostat_core::metadata::log::{MetadataLog, MetadataLogLimits, MetadataLogOptions};
use heliostat_core::metadata::record::BrokerEndpoint;
use heliostat_core::time::Tick;
use heliostat_core::types::{BrokerId, LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition};
use uuid::Uuid;

pub(crate) use self::log_dir::Disk;
use crate::engine::Engine;
use crate::job::{Copy, Order, Outcome};
use crate::registry::Registry;
use crate::rng::Chance;
use crate::store::SimStore;

pub(crate) const NODE: BrokerId = BrokerId(1);
const NOW: TimestampMs = TimestampMs(1_000);

/// What is broken on purpose, so that an oracle has something to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    None,
    /// States are called durable that were not written.
    AckEarly,
    /// Wishes likewise.
    WishEarly,
    /// Clients may write to whatever is not being mirrored.
    WriteEarly,
    AppendAbove,
    NoCut,
    /// A stop that is repeated does not look for what it has written.
    MarkTwice,
    /// Open transactions stay open.
    NoAborts,
    /// The position of a stop is not where mirroring ended.
    FreshPosition,
    /// An alignment goes on in the epoch of what it cuts.
    OldEpoch,
    /// What was aligned is forgotten.
    Deaf,
    /// Readers are shown what is accepted, not what is written.
    ShowEarly,
    /// Readers are shown less than before, now and then.
    ShowBack,
    /// Writes are called complete that are not.
    WritesLie,
    /// Syncs of a shard's files do nothing.
    SyncsLie,
    /// A job says that it has released a log that its shard still has.
    ReleaseEarly,
    /// An alignment cuts nothing, and sources do not look at what a fetch says of epochs.
    Blind,
    /// A start goes on in the leader epochs of the life before.
    SameEpoch,
}

/// A decision could not be written: the host ends.
#[derive(Debug)]
pub(crate) struct Down;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    LooksUp,
    Aligns,
    Follows,
    Pauses,
    Stops,
}

#[derive(Clone, Debug)]
struct Running {
    key: MirrorKey,
    run: Run,
    doing: Doing,
    fenced_by: LeaderEpoch,
}

type Begun = (MirrorKey, TopicPartition, Run);

/// What came of asking a source where common ends are.
pub(crate) type LookedUp = Vec<(Begun, Result<Option<LastMirrored>, Failure>)>;

#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) source: String,
    pub(crate) engine: Engine,
    generation: u64,
    running: BTreeMap<TopicPartition, Running>,
    pub(crate) copies: BTreeMap<TopicPartition, Copy>,
    pub(crate) orders: VecDeque<Order>,
    epochs: BTreeMap<TopicPartition, LeaderEpoch>,
    other_cluster: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Stopping {
    key: MirrorKey,
    at: TopicPartition,
    run: Run,
    last: Option<LastMirrored>,
}

/// What other threads and tasks are at.
pub(crate) enum Task {
    LookUp { mirror: Arc<str>, generation: u64, begun: Vec<Begun> },
    Inspect(Stopping),
    Mark { stop: Stopping, last_epoch: LeaderEpoch, leader_epoch: LeaderEpoch },
}

enum News {
    Of { mirror: Arc<str>, generation: u64, at: TopicPartition, outcome: Outcome },
    LookedUp { mirror: Arc<str>, generation: u64, outcome: LookedUp },
    Inspected(Stopping, Result<LastMirrored, Arc<str>>),
    Marked(Stopping, Result<(Offset, Offset), Arc<str>>),
}

/// What a source's metadata says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) cluster: String,
    pub(crate) topics: Vec<(String, TopicId, Vec<LeaderEpoch>)>,
}

pub(crate) struct Up {
    pub(crate) metadata: MetadataLog,
    states: StateLog,
    pub(crate) mirrors: Mirrors,
    pub(crate) links: BTreeMap<Arc<str>, Link>,
    generation: u64,
    to_inspect: Vec<Stopping>,
    aligned: BTreeSet<MirrorKey>,
    news: VecDeque<News>,
    pub(crate) tasks: VecDeque<Task>,
    /// Logs that clients write to.
    pub(crate) own: BTreeMap<TopicPartition, ColdLog>,
}

/// What has been acknowledged, and what may be found beside it.
#[derive(Default)]
struct Acked {
    image: MetadataImage,
    image_maybe: Option<MetadataImage>,
    states: Replayed,
    maybe: Vec<StateRecord>,
}

pub(crate) struct Host {
    pub(crate) cluster: &'static str,
    pub(crate) disk: Disk,
    pub(crate) up: Option<Up>,
    pub(crate) now: Tick,
    chance: Chance,
    /// Of what shards are configured with.
    engine_chance: Chance,
    engines: u64,
    acked: Acked,
    pub(crate) broken: Vec<String>,
    starts: u128,
}

fn state_options() -> StateLogOptions {
    StateLogOptions { partitions: 2, compact_bytes_min: 4_000, ..StateLogOptions::default() }
}

impl Host {
    pub(crate) fn new(
        cluster: &'static str,
        seed: u64,
        stream: u64,
        registry: Rc<RefCell<Registry>>,
        sabotage: Sabotage,
    ) -> Self {
        let mut engine_chance = Chance::new(seed, stream + 3);
        let mut store = SimStore::new(Chance::new(seed, stream), Chance::new(seed, stream + 2));
        store.disk.syncs_lie = sabotage == Sabotage::SyncsLie;
        let disk = Disk::new(store, &mut engine_chance, registry, sabotage);
        Self {
            cluster,
            disk,
            engine_chance,
            up: None,
            now: Tick::ZERO,
            chance: Chance::new(seed, stream + 1),
            acked: Acked::default(),
            engines: 0,
            broken: Vec::new(),
            starts: 0,
        }
    }

    pub(crate) fn sabotaged(&self, how: Sabotage) -> bool {
        self.disk.sabotage == how
    }

    fn random(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.chance.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn up(&mut self) -> &mut Up {
        self.up.as_mut().expect("only a host that is up is asked")
    }

    pub(crate) fn image(&self) -> &MetadataImage {
        self.up.as_ref().expect("only a host that is up is asked").metadata.image()
    }

    pub(crate) fn crash(&mut self) {
        if self.up.take().is_some() {
            self.disk.count("crash");
        }
        self.disk.store.crash();
        self.disk.clean.clear();
        self.disk.check_books();
    }

    /// Ends as a signal would have it, once its shards have stopped.
    pub(crate) fn stop(&mut self) {
        let Some(up) = &self.up else { return };
        let copies = up.links.values().flat_map(|link| link.copies.values());
        let (open, closed): (Vec<&Copy>, Vec<&Copy>) = copies.partition(|it| it.is_on_shard());
        if !open.is_empty() {
            return self.crash();
        }
        let closed: Vec<_> = closed.iter().filter(|it| it.was_closed).collect();
        self.disk.clean = closed.iter().map(|it| it.at.clone()).collect();
        if !closed.is_empty() {
            self.disk.count("clean stop");
        }
        for at in self.up().own.keys().cloned().collect::<Vec<_>>() {
            self.close_own(&at);
        }
        self.up = None;
        self.disk.store.ends();
        self.disk.check_books();
    }

    /// Starts; `Down` if the disk does not let it.
    pub(crate) fn start(&mut self) -> Result<(), Down> {
        let options = MetadataLogOptions {
            node: NODE,
            now: NOW,
            recovery_point: Offset::ZERO,
            limits: MetadataLogLimits { snapshot_records: 60, ..MetadataLogLimits::default() },
        };
        let store = &mut self.disk.store;
        let (metadata, _) = MetadataLog::open(store, &options).map_err(|_| Down)?;
        let (states, replayed) = StateLog::open(store, state_options()).map_err(|_| Down)?;
        self.check_found(metadata.image(), &replayed);
        let mut mirrors = Mirrors::new(RetryPolicy::default());
        for (key, stored) in replayed.states {
            mirrors.restore(StateRecord::Partition(key, Some(stored)));
        }
        for (key, last) in replayed.last_mirrored {
            mirrors.restore(StateRecord::LastMirrored(key, Some(last)));
        }
        self.up = Some(Up {
            metadata,
            states,
            mirrors,
            links: BTreeMap::new(),
            generation: 0,
            to_inspect: Vec::new(),
            aligned: BTreeSet::new(),
            news: VecDeque::new(),
            tasks: VecDeque::new(),
            own: BTreeMap::new(),
        });
        self.begin()
    }

    fn begin(&mut self) -> Result<(), Down> {
        self.decide_by(|image| bootstrap(image, 25))?;
        let update =
            FeatureUpdate { name: MIRROR_VERSION.to_owned(), level: 1, allow_downgrade: false };
        self.decide_by(|image| update_feature(image, &update))?;
        self.starts += 1;
        let registration = BrokerRegistration {
            node: NODE,
            incarnation: Uuid::from_u128(self.starts),
            epoch: self.up().metadata.log_end().0,
            end_points: vec![BrokerEndpoint {
                name: "PLAINTEXT".to_owned(),
                host: "h".to_owned(),
                port: 1,
                security_protocol: 0,
            }],
            features: Vec::new(),
            rack: None,
            log_dirs: Vec::new(),
        };
        self.decide_by(|image| register_broker(image, &registration))?;
        if !self.sabotaged(Sabotage::SameEpoch) {
            self.decide_by(new_epochs_at_start)?;
        }
        // Those as well that were writable until a wish that has not begun to come true.
        let mut written = Vec::new();
        for topic in self.image().topics().cloned().collect::<Vec<_>>() {
            let is_wanted = self.image().mirror_of(&topic.name);
            if is_wanted.is_none_or(|link| link.desired == DesiredState::Stopped) {
                continue;
            }
            for key in self.keys_of(&topic.name) {
                let state = self.state(&key);
                if matches!(state, MirrorState::Stopped | MirrorState::Unknown)
                    && let Some(known) = topic.partition(key.partition)
                {
                    written.push((key.topic, key.partition, known.leader_epoch));
                }
            }
        }
        if !written.is_empty() {
            self.raise(written)?;
        }
        let image = self.image().clone();
        let gone = self.up().mirrors.gone(&image);
        let records: Vec<StateRecord> = gone.iter().flat_map(tombstones).collect();
        if !self.store(&records).is_empty() {
            self.up().mirrors.owe(records);
        }
        for key in gone {
            let _ = self.up().mirrors.forget(&key);
        }
        let outdated = self.up().mirrors.outdated();
        let tombstone = |key: &MirrorKey| StateRecord::LastMirrored(key.clone(), None);
        let records: Vec<StateRecord> = outdated.iter().map(tombstone).collect();
        if !self.store(&records).is_empty() {
            self.up().mirrors.owe(records);
        }
        for key in &outdated {
            self.up().mirrors.restore(tombstone(key));
        }
        let names: Vec<Arc<str>> = self.image().mirrors().map(Arc::from).collect();
        for mirror in &names {
            self.start_link(mirror);
        }
        let topics: Vec<Arc<str>> = self.image().topics().map(|it| Arc::clone(&it.name)).collect();
        for topic in &topics {
            self.want(topic);
        }
        Ok(())
    }

    pub(crate) fn start_link(&mut self, mirror: &Arc<str>) {
        let source = self.image().config(ResourceType::MIRROR, mirror, SOURCE_CLUSTER_ID);
        let source = source.unwrap_or_default().to_owned();
        self.engines += 1;
        let engine = Engine::new(self.engines, &mut self.engine_chance, self.now);
        let up = self.up();
        up.generation += 1;
        let link = Link {
            source,
            engine,
            generation: up.generation,
            running: BTreeMap::new(),
            copies: BTreeMap::new(),
            orders: VecDeque::new(),
            epochs: BTreeMap::new(),
            other_cluster: false,
        };
        up.links.insert(Arc::clone(mirror), link);
    }
}

fn other_cluster() -> Failure {
    Failure { reason: Arc::from("another cluster answers"), retryable: false }
}
