//! A host: the real logs, controller and coordinator, in the order of steps of `io/src/host`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use heliostat_core::coordinator::alignment::last_mirrored;
use heliostat_core::coordinator::bump::{above, is_near};
use heliostat_core::coordinator::markers::StopMarkers;
use heliostat_core::coordinator::partition::{Event, Failure, Run};
use heliostat_core::coordinator::retry::RetryPolicy;
use heliostat_core::coordinator::state_log::{
    AppendAs, Replayed, StateAppendError, StateLog, StateLogOptions, tombstones,
};
use heliostat_core::coordinator::{
    DesiredState, LastMirrored, MirrorKey, MirrorState, Mirrors, StateRecord, Step,
};
use heliostat_core::engine::message::{PartitionKey, Report};
use heliostat_core::log::cold_log::ColdLog;
use heliostat_core::log::config::{LogConfig, LogConfigValues};
use heliostat_core::log::disk::DiskOutcome;
use heliostat_core::log::recovery::OpenOptions;
use heliostat_core::metadata::controller::{
    BrokerRegistration, Decision, FeatureUpdate, GrowTopic, Refusal, SOURCE_CLUSTER_ID, bootstrap,
    bump_leader_epochs, create_partitions, new_epochs_at_start, register_broker, update_feature,
};
use heliostat_core::metadata::image::{MIRROR_VERSION, MetadataImage, ResourceType};
use heliostat_core::metadata::log::{MetadataLog, MetadataLogLimits, MetadataLogOptions};
use heliostat_core::metadata::record::{BrokerEndpoint, MetadataRecord};
use heliostat_core::protocol::mirror::{BumpLeaderEpochsRequest, BumpPartition, BumpTopic};
use heliostat_core::time::Tick;
use heliostat_core::types::{BrokerId, LeaderEpoch, Offset, TimestampMs, TopicId, TopicPartition};
use uuid::Uuid;

use crate::engine::{Engine, untagged};
use crate::job::{At, Copy, Order, Outcome, read};
use crate::registry::{Registry, id};
use crate::rng::Chance;
use crate::shown::{Book, read_shown};
use crate::source::{Batch, View};
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

/// The log dir.
pub(crate) struct Disk {
    pub(crate) store: SimStore,
    /// Checkpoints: log start and recovery point.
    known: BTreeMap<TopicPartition, (Offset, Offset)>,
    config: LogConfig,
    /// What readers were shown of copies.
    pub(crate) books: BTreeMap<TopicPartition, Book>,
    /// What an alignment cuts, and the newest epoch in which clients read it.
    pub(crate) cuts: Vec<(TopicPartition, LeaderEpoch)>,
    /// Logs that were closed by a clean stop, and not touched since.
    clean: BTreeSet<TopicPartition>,
    pub(crate) broken: Vec<String>,
    pub(crate) registry: Rc<RefCell<Registry>>,
    pub(crate) sabotage: Sabotage,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl Disk {
    pub(crate) fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    pub(crate) fn note(&mut self, at: &TopicPartition, start: Offset, durable: Offset) {
        self.known.insert(at.clone(), (start, durable));
    }

    pub(crate) fn options(
        &self,
        at: &TopicPartition,
        topic_id: TopicId,
        truncate_to: Option<Offset>,
    ) -> OpenOptions {
        let known = self.known.get(at);
        OpenOptions {
            config: self.config,
            topic_id,
            clean: self.clean.contains(at),
            recovery_point: known.map_or(Offset::ZERO, |known| known.1),
            log_start: known.map(|known| known.0),
            truncate_to,
            now_ms: NOW.0,
        }
    }
}

impl Disk {
    /// A copy's log is about to be opened, and cut.
    pub(crate) fn may_lose(&mut self, at: &TopicPartition, is_whole: bool, to: Option<Offset>) {
        match (is_whole, to, self.books.get_mut(at)) {
            (false, None, _) => drop(self.books.remove(at)),
            (false, Some(to), Some(book)) => {
                book.durable = book.durable.min(to);
                book.batches.retain(|batch| batch.end <= to);
            }
            _ => {}
        }
    }

    /// Everything below `end` is durable.
    pub(crate) fn is_durable(&mut self, at: &TopicPartition, end: Offset) {
        if let Some(book) = self.books.get_mut(at) {
            book.durable = book.durable.max(end);
        }
    }

    /// A log was opened: what it holds was written by somebody, and is what was known of it.
    pub(crate) fn found(&mut self, at: &TopicPartition, id: TopicId, log: &ColdLog) {
        let batches = read(log, &self.store);
        let (start, end) = (log.log_start(), log.log_end());
        self.clean.remove(at);
        if let Some(book) = self.books.get(at)
            && let Err(what) = book.compare(&batches, start, end_of_time())
        {
            self.broken.push(format!("{at} is opened: {what}"));
        }
        let mut before = None;
        for batch in &batches {
            self.registry.borrow_mut().note((id, at.partition), batch, before);
            before = Some(crate::registry::id(batch));
        }
        let segments = log.segments().collect();
        let book = Book { batches, segments, start, end, durable: end };
        self.books.insert(at.clone(), book);
    }

    /// What recovery finds on a copy of the disk is what was known.
    fn check_books(&mut self) {
        if self.books.is_empty() {
            return;
        }
        let mut view = self.store.view();
        for (at, book) in &self.books {
            let dir = at.to_string();
            if !view.has_log(&dir) {
                continue;
            }
            let options = self.options(at, TopicId::NONE, None);
            let what = match ColdLog::open(&mut view, &dir, &options) {
                Ok((log, _)) => book.compare(&read(&log, &view), log.log_start(), end_of_time()),
                Err(error) => Err(error.to_string()),
            };
            if let Err(what) = what {
                self.broken.push(format!("{at} after a crash: {what}"));
            }
        }
    }
}

fn end_of_time() -> Offset {
    Offset(i64::MAX)
}

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

fn log_config(chance: &mut Chance) -> LogConfig {
    let values = LogConfigValues {
        segment_bytes: chance.pick(&[400, 1_500, 1 << 30]),
        index_interval_bytes: chance.pick(&[0, 300, 4_096]),
        ..LogConfigValues::default()
    };
    LogConfig::new(values).expect("the settings are legal")
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
        let mut store = SimStore::new(Chance::new(seed, stream), Chance::new(seed, stream + 2));
        store.disk.syncs_lie = sabotage == Sabotage::SyncsLie;
        let mut engine_chance = Chance::new(seed, stream + 3);
        let disk = Disk {
            store,
            known: BTreeMap::new(),
            config: log_config(&mut engine_chance),
            books: BTreeMap::new(),
            cuts: Vec::new(),
            clean: BTreeSet::new(),
            broken: Vec::new(),
            registry,
            sabotage,
            counts: BTreeMap::new(),
        };
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

    // What is durable.

    fn decide_by<A>(
        &mut self,
        decision: impl FnOnce(&MetadataImage) -> Result<Decision<A>, Refusal>,
    ) -> Result<(), Down> {
        let Decision { records, .. } = decision(self.image()).map_err(|_| Down)?;
        self.decide(&records)
    }

    pub(crate) fn decide(&mut self, records: &[MetadataRecord]) -> Result<(), Down> {
        if records.is_empty() {
            return Ok(());
        }
        let mut next = self.image().clone();
        records.iter().try_for_each(|record| next.apply(record)).map_err(|_| Down)?;
        self.acked.image_maybe = Some(next.clone());
        let has_topics = self.image().topics().next().is_some();
        if self.sabotaged(Sabotage::WishEarly) && has_topics && self.chance.percent(20) {
            self.acked.image = next;
            return Err(Down);
        }
        let up = self.up.as_mut().expect("up");
        up.metadata.append(&mut self.disk.store, records, NOW).map_err(|_| Down)?;
        self.acked.image = next;
        self.acked.image_maybe = None;
        // The log goes on without.
        let _ = up.metadata.maintain(&mut self.disk.store);
        Ok(())
    }

    /// Which are not known to be durable.
    pub(crate) fn store(&mut self, records: &[StateRecord]) -> BTreeSet<usize> {
        if records.is_empty() {
            return BTreeSet::new();
        }
        let up = self.up.as_mut().expect("up");
        let with = AppendAs { timestamp: NOW, leader_epoch: up.metadata.epoch() };
        let lost = match up.states.append(&mut self.disk.store, records, with) {
            Ok(()) => BTreeSet::new(),
            Err(StateAppendError::NotDurable { not_durable, .. }) => {
                not_durable.into_iter().collect()
            }
            Err(_) => (0..records.len()).collect(),
        };
        if lost.is_empty() {
            while matches!(up.states.compact_due(&mut self.disk.store), Ok(Some(_))) {
                *self.disk.counts.entry("states compacted").or_default() += 1;
            }
        } else {
            self.disk.count("states not stored");
        }
        let lost = if self.sabotaged(Sabotage::AckEarly) { BTreeSet::new() } else { lost };
        for (place, record) in records.iter().enumerate() {
            if lost.contains(&place) {
                self.acked.maybe.push(record.clone());
                continue;
            }
            let is_same = |other: &StateRecord| {
                other.key() == record.key()
                    && std::mem::discriminant(other) == std::mem::discriminant(record)
            };
            self.acked.maybe.retain(|other| !is_same(other));
            let known = &mut self.acked.states;
            match record.clone() {
                StateRecord::Partition(key, Some(it)) => drop(known.states.insert(key, it)),
                StateRecord::Partition(key, None) => drop(known.states.remove(&key)),
                StateRecord::LastMirrored(key, Some(it)) => {
                    known.last_mirrored.insert(key, it);
                }
                StateRecord::LastMirrored(key, None) => drop(known.last_mirrored.remove(&key)),
            }
        }
        lost
    }

    /// Oracle: what was acknowledged is found.
    fn check_found(&mut self, image: &MetadataImage, found: &Replayed) {
        let acked = std::mem::take(&mut self.acked);
        if *image != acked.image && Some(image) != acked.image_maybe.as_ref() {
            self.broken.push("acknowledged metadata was lost".to_owned());
        }
        let keys = acked.states.states.keys().chain(found.states.keys());
        for key in keys.collect::<BTreeSet<_>>() {
            let now = StateRecord::Partition(key.clone(), found.states.get(key).cloned());
            let was = StateRecord::Partition(key.clone(), acked.states.states.get(key).cloned());
            if now != was && !acked.maybe.contains(&now) {
                self.broken.push(format!("acknowledged state was lost: {was:?}, found {now:?}"));
            }
        }
        let keys = acked.states.last_mirrored.keys().chain(found.last_mirrored.keys());
        for key in keys.collect::<BTreeSet<_>>() {
            let of = |it: &Replayed| it.last_mirrored.get(key).copied();
            let now = StateRecord::LastMirrored(key.clone(), of(found));
            let was = StateRecord::LastMirrored(key.clone(), of(&acked.states));
            if now != was && !acked.maybe.contains(&now) {
                self.broken.push(format!("acknowledged position was lost: {was:?}, {now:?}"));
            }
        }
        self.acked.image = image.clone();
        self.acked.states = Replayed { states: found.states.clone(), ..Replayed::default() };
        self.acked.states.last_mirrored.clone_from(&found.last_mirrored);
    }

    // The loop.

    pub(crate) fn want(&mut self, topic: &str) {
        let image = self.image();
        let Some(link) = image.mirror_of(topic) else { return };
        let (mirror, desired): (Arc<str>, DesiredState) = (Arc::from(link.mirror), link.desired);
        let Some(known) = image.topic(topic) else { return };
        let (id, epochs): (_, Vec<LeaderEpoch>) =
            (known.id, known.partitions.iter().map(|it| it.leader_epoch).collect());
        for (partition, epoch) in (0..).zip(epochs) {
            let key = MirrorKey { mirror: Arc::clone(&mirror), topic: id, partition };
            let (now, random) = (self.now, self.random());
            self.up().mirrors.wanted(&key, desired, now, random);
            self.up().mirrors.set_leader_epoch(&key, epoch);
        }
    }

    pub(crate) fn wake(&mut self) {
        let (now, random) = (self.now, self.random());
        self.up().mirrors.wake(now, || random);
    }

    pub(crate) fn settle(&mut self) -> Result<(), Down> {
        loop {
            let to_store = self.up().mirrors.take_records();
            let had_states = !to_store.is_empty();
            if had_states {
                let records = to_store.records();
                let lost = self.store(&records);
                let stopped: Vec<MirrorKey> = records
                    .iter()
                    .enumerate()
                    .filter(|(place, _)| !lost.contains(place))
                    .filter_map(|(_, record)| match record {
                        StateRecord::Partition(key, Some(it)) => {
                            (it.state == MirrorState::Stopped).then(|| key.clone())
                        }
                        _ => None,
                    })
                    .collect();
                let (now, random) = (self.now, self.random());
                self.up().mirrors.on_stored(to_store, &lost, now, || random);
                for record in &records {
                    if let StateRecord::Partition(key, Some(it)) = record {
                        let what = format!(
                            "{} {}-{} {} lost {lost:?}",
                            self.cluster, key.mirror, key.partition, it.state
                        );
                        self.disk.registry.borrow_mut().say(what);
                    }
                }
                for key in &stopped {
                    self.check_stopped(key);
                }
            }
            let steps = self.up().mirrors.take_steps();
            if !had_states && steps.is_empty() {
                break;
            }
            self.carry_out(steps)?;
        }
        let up = self.up();
        let stopping = std::mem::take(&mut up.to_inspect);
        up.tasks.extend(stopping.into_iter().map(Task::Inspect));
        Ok(())
    }

    pub(crate) fn place(&self, key: &MirrorKey) -> Option<TopicPartition> {
        let topic = self.image().topic_by_id(key.topic)?;
        Some(TopicPartition::new(Arc::clone(&topic.name), key.partition))
    }

    fn report(&mut self, key: &MirrorKey, event: Event) {
        let (now, random) = (self.now, self.random());
        self.up().mirrors.tell(key, event, now, random);
    }

    fn carry_out(&mut self, steps: Vec<Step>) -> Result<(), Down> {
        let mut look_up = BTreeMap::<Arc<str>, Vec<Begun>>::new();
        let mut raise = Vec::new();
        for step in steps {
            match step {
                Step::Abandon(key, run) => self.abandon(&key, run),
                Step::Begin(key, state, run) => {
                    let Some(at) = self.place(&key) else { continue };
                    match state {
                        MirrorState::LogTruncation => {
                            look_up
                                .entry(Arc::clone(&key.mirror))
                                .or_default()
                                .push((key, at, run));
                        }
                        MirrorState::EpochFencing => raise.push((key, at, run)),
                        MirrorState::Mirroring => self.follow((key, at, run)),
                        MirrorState::Pausing => self.release((key, at, run), Doing::Pauses),
                        MirrorState::Stopping => self.release((key, at, run), Doing::Stops),
                        _ => {}
                    }
                }
            }
        }
        let mut used = Vec::new();
        for (key, at, _) in look_up.values().flatten() {
            if self.disk.store.has_log(&at.to_string()) && !self.sabotaged(Sabotage::OldEpoch) {
                used.push((key.topic, at.partition, self.local_epoch(at)));
            }
        }
        if !used.is_empty() {
            self.raise(used)?;
        }
        for (mirror, begun) in look_up {
            for (_, at, _) in &begun {
                // No client writes to it any more.
                self.close_own(at);
            }
            for one in &begun {
                self.runs(one, Doing::LooksUp);
            }
            let up = self.up();
            let Some(generation) = up.links.get(&mirror).map(|link| link.generation) else {
                continue;
            };
            up.tasks.push_back(Task::LookUp { mirror, generation, begun });
        }
        self.raise_fenced(raise)
    }

    pub(crate) fn close_own(&mut self, at: &TopicPartition) {
        if let Some(log) = self.up().own.remove(at) {
            self.disk.store.sync_dir(&at.to_string());
            self.disk.note(at, log.log_start(), log.log_end());
        }
    }

    fn abandon(&mut self, key: &MirrorKey, run: Run) {
        let Some(at) = self.place(key) else { return };
        if let Some(link) = self.up().links.get_mut(&key.mirror)
            && link.running.get(&at).is_some_and(|it| it.run == run)
        {
            link.running.remove(&at);
        }
    }

    fn runs(&mut self, begun: &Begun, doing: Doing) {
        let (key, at, run) = begun.clone();
        let Some(link) = self.up().links.get_mut(&key.mirror) else { return };
        let fenced_by = link.running.get(&at).map_or(LeaderEpoch::NONE, |it| it.fenced_by);
        link.running.insert(at, Running { key, run, doing, fenced_by });
    }

    fn order(&mut self, mirror: &Arc<str>, order: Order) {
        if let Some(link) = self.up().links.get_mut(mirror) {
            link.orders.push_back(order);
        }
    }

    fn follow(&mut self, begun: Begun) {
        let (key, at, run) = begun.clone();
        let may_cut = self.up().aligned.remove(&key);
        let (local_epoch, unclean) = (self.local_epoch(&at), self.is_unclean(&at));
        self.runs(&begun, Doing::Follows);
        if self.up().links.get(&key.mirror).is_some_and(|link| link.other_cluster) {
            return self.report(&key, Event::Failed(run, other_cluster()));
        }
        self.order(&key.mirror, Order::Follow { at, local_epoch, may_cut, unclean });
    }

    fn release(&mut self, begun: Begun, doing: Doing) {
        self.runs(&begun, doing);
        self.order(&begun.0.mirror, Order::Release { at: begun.1 });
    }

    fn released(&mut self, running: &Running, at: TopicPartition) {
        if running.doing == Doing::Pauses {
            return self.report(&running.key, Event::Finished(running.run));
        }
        let up = self.up();
        let last = up.mirrors.last_mirrored(&running.key);
        up.to_inspect.push(Stopping { key: running.key.clone(), at, run: running.run, last });
    }

    fn raise_fenced(&mut self, begun: Vec<Begun>) -> Result<(), Down> {
        if begun.is_empty() {
            return Ok(());
        }
        let mut wanted = Vec::new();
        for (key, at, _) in &begun {
            let link = self.up().links.get(&key.mirror);
            let met = link.and_then(|link| link.running.get(at)).map(|it| it.fenced_by);
            let source = link.and_then(|link| link.epochs.get(at)).copied();
            let known = met.max(source).unwrap_or(LeaderEpoch::NONE);
            wanted.push((key.topic, at.partition, above(known.max(self.local_epoch(at)))));
        }
        self.raise(wanted)?;
        for (key, _, run) in begun {
            self.report(&key, Event::Finished(run));
        }
        Ok(())
    }

    fn raise(&mut self, wanted: Vec<(TopicId, i32, LeaderEpoch)>) -> Result<(), Down> {
        let topic = |(topic_id, partition_index, epoch): (TopicId, i32, LeaderEpoch)| {
            let bump = BumpPartition { partition_index, min_leader_epoch: epoch.0 };
            BumpTopic { topic_id, partitions: vec![bump] }
        };
        let topics = wanted.into_iter().map(topic).collect();
        let decision = bump_leader_epochs(self.image(), &BumpLeaderEpochsRequest { topics });
        self.decide(&decision.records)?;
        for topic in decision.answer {
            for (partition, result) in topic.partitions {
                let Ok(epoch) = result else { continue };
                let at = TopicPartition::new(topic.topic_name.as_str(), partition);
                let link = self.image().mirror_of(&at.topic).map(|it| Arc::<str>::from(it.mirror));
                let Some(mirror) = link else { continue };
                let key =
                    MirrorKey { mirror: Arc::clone(&mirror), topic: topic.topic_id, partition };
                self.up().mirrors.set_leader_epoch(&key, epoch);
                self.order(&mirror, Order::SetLocalEpoch { at, epoch });
            }
        }
        Ok(())
    }

    fn is_unclean(&self, at: &TopicPartition) -> bool {
        let key = "mirror.support.unclean.leader.election";
        self.image().config(ResourceType::TOPIC, &at.topic, key) == Some("true")
    }

    pub(crate) fn local_epoch(&self, at: &TopicPartition) -> LeaderEpoch {
        self.image().leader_epoch(&at.topic, at.partition).unwrap_or(LeaderEpoch::NONE)
    }

    // News.

    /// Takes the oldest news. `false`: there is none.
    pub(crate) fn take_news(&mut self) -> Result<bool, Down> {
        let Some(news) = self.up().news.pop_front() else { return Ok(false) };
        let is_current = |up: &Up, mirror: &Arc<str>, generation| {
            up.links.get(mirror).is_some_and(|link| link.generation == generation)
        };
        match news {
            News::Of { mirror, generation, at, outcome } => {
                if is_current(self.up(), &mirror, generation) {
                    self.take_outcome(&mirror, &at, outcome);
                }
            }
            News::LookedUp { mirror, generation, outcome } => {
                if is_current(self.up(), &mirror, generation) {
                    self.take_looked_up(&mirror, outcome);
                }
            }
            News::Inspected(stop, outcome) => self.take_inspected(stop, outcome)?,
            News::Marked(stop, outcome) => match outcome {
                Ok((start, end)) => {
                    self.disk.note(&stop.at, start, end);
                    self.report(&stop.key, Event::Finished(stop.run));
                }
                Err(reason) => self.stop_failed(&stop, reason),
            },
        }
        Ok(true)
    }

    fn take_outcome(&mut self, mirror: &Arc<str>, at: &TopicPartition, outcome: Outcome) {
        let Some(link) = self.up().links.get_mut(mirror) else { return };
        let Some(running) = link.running.get_mut(at) else { return };
        let Running { key, run, doing, .. } = running.clone();
        match (doing, outcome) {
            (Doing::Aligns, Outcome::Aligned) => {
                link.running.remove(at);
                self.up().aligned.insert(key.clone());
                self.up().mirrors.outdate(&key);
                if !self.sabotaged(Sabotage::Deaf) {
                    self.report(&key, Event::Finished(run));
                }
            }
            (Doing::Follows, Outcome::Follows) => self.report(&key, Event::Fetched(run)),
            (Doing::Follows, Outcome::EpochFenced(epoch)) => {
                running.fenced_by = epoch;
                self.report(&key, Event::EpochExceeded(run));
            }
            (Doing::Aligns | Doing::Follows, Outcome::Failed { reason, retryable }) => {
                link.running.remove(at);
                self.disk.count(if retryable { "failed" } else { "failed for good" });
                self.report(&key, Event::Failed(run, Failure { reason, retryable }));
            }
            (Doing::Pauses | Doing::Stops, Outcome::Released) => {
                let Some(running) = link.running.remove(at) else { return };
                self.released(&running, at.clone());
            }
            _ => {}
        }
    }

    fn take_looked_up(&mut self, mirror: &Arc<str>, outcome: LookedUp) {
        for ((key, at, run), common) in outcome {
            let own = self.up().mirrors.last_mirrored(&key);
            let Some(link) = self.up().links.get_mut(mirror) else { return };
            let current = link.running.get_mut(&at);
            let Some(running) = current.filter(|it| it.run == run && it.doing == Doing::LooksUp)
            else {
                continue;
            };
            match common {
                Ok(found) => {
                    running.doing = Doing::Aligns;
                    self.order(mirror, Order::Align { at, last: found.or(own) });
                }
                Err(failure) => {
                    link.running.remove(&at);
                    self.disk.count("loop refused");
                    self.report(&key, Event::Failed(run, failure));
                }
            }
        }
    }

    fn take_inspected(
        &mut self,
        stop: Stopping,
        outcome: Result<LastMirrored, Arc<str>>,
    ) -> Result<(), Down> {
        let found = match outcome {
            Ok(found) => found,
            Err(reason) => {
                self.stop_failed(&stop, reason);
                return Ok(());
            }
        };
        let last = match self.disk.sabotage {
            Sabotage::FreshPosition => LastMirrored { offset: found.offset.plus(1), ..found },
            _ => last_mirrored(stop.last, found),
        };
        // Also of a log that has mirrored nothing: what lies in it is ours.
        let position = Some(last);
        let is_stored = if position == stop.last {
            true
        } else {
            self.store(&[StateRecord::LastMirrored(stop.key.clone(), position)]).is_empty()
        };
        if is_stored {
            self.up().mirrors.set_last_mirrored(stop.key.clone(), position);
        }
        let link = self.up().links.get(&stop.key.mirror);
        let source = link.and_then(|link| link.epochs.get(&stop.at)).copied();
        let source = source.unwrap_or(LeaderEpoch::NONE);
        let used = match last.epoch.known() {
            Some(epoch) => source.max(epoch),
            None => above(source),
        };
        self.raise(vec![(stop.key.topic, stop.at.partition, used)])?;
        if is_stored {
            let leader_epoch = self.local_epoch(&stop.at);
            let task = Task::Mark { stop, last_epoch: last.epoch, leader_epoch };
            self.up().tasks.push_back(task);
        } else {
            self.stop_failed(&stop, Arc::from("its position could not be stored"));
        }
        Ok(())
    }

    fn stop_failed(&mut self, stop: &Stopping, reason: Arc<str>) {
        self.disk.count("stop failed");
        let failure = Failure { reason, retryable: true };
        self.report(&stop.key, Event::Failed(stop.run, failure));
    }

    // Threads and tasks.

    pub(crate) fn looked_up(&mut self, mirror: Arc<str>, generation: u64, outcome: LookedUp) {
        self.up().news.push_back(News::LookedUp { mirror, generation, outcome });
    }

    /// Does what a thread does. A look-up is the world's to answer.
    pub(crate) fn run_task(&mut self, task: Task) {
        let news = match task {
            Task::LookUp { .. } => return self.up().tasks.push_back(task),
            Task::Inspect(stop) => {
                let outcome = self.inspect(&stop).map_err(|error| Arc::from(error.as_str()));
                News::Inspected(stop, outcome)
            }
            Task::Mark { stop, last_epoch, leader_epoch } => {
                let outcome = self.mark(&stop, last_epoch, leader_epoch);
                News::Marked(stop, outcome.map_err(|error| Arc::from(error.as_str())))
            }
        };
        self.up().news.push_back(news);
    }

    pub(crate) fn open(&mut self, at: &TopicPartition, id: TopicId) -> Result<ColdLog, String> {
        let copies = self.up().links.values().filter_map(|link| link.copies.get(at));
        if copies.clone().any(Copy::is_on_shard) {
            self.broken.push(format!("{at} is opened while a shard has it"));
        }
        let options = self.disk.options(at, id, None);
        let opened = ColdLog::open(&mut self.disk.store, &at.to_string(), &options);
        let (log, _) = opened.map_err(|error| error.to_string())?;
        self.disk.note(at, log.log_start(), log.log_end());
        self.disk.found(at, id, &log);
        // It is written by others from here on.
        self.disk.books.remove(at);
        Ok(log)
    }

    fn inspect(&mut self, stop: &Stopping) -> Result<LastMirrored, String> {
        let log = self.open(&stop.at, stop.key.topic)?;
        let epoch = log.epochs().latest().map_or(LeaderEpoch::NONE, |entry| entry.epoch);
        Ok(LastMirrored { epoch, offset: log.log_end() })
    }

    fn mark(
        &mut self,
        stop: &Stopping,
        last_mirrored: LeaderEpoch,
        leader_epoch: LeaderEpoch,
    ) -> Result<(Offset, Offset), String> {
        let mut log = self.open(&stop.at, stop.key.topic)?;
        let markers = StopMarkers {
            last_mirrored,
            leader_epoch,
            source_cluster_id: "source",
            timestamp: TimestampMs(i64::try_from(self.now.0 / 1_000).unwrap_or(0)),
        };
        let from = markers.written_from(log.epochs(), log.log_end());
        let mut has_reset = false;
        if from < log.log_end() {
            let store = &self.disk.store;
            let see = &mut |meta: &heliostat_core::records::BatchMeta, _: &[u8]| {
                has_reset |= markers.is_reset(meta);
                std::ops::ControlFlow::Continue(())
            };
            log.read(store, from, see).map_err(|error| error.to_string())?;
        }
        has_reset &= !self.sabotaged(Sabotage::MarkTwice);
        let missing = markers.missing(log.log_end(), log.producers(), has_reset);
        let mut missing = missing.map_err(|error| error.to_string())?;
        if self.sabotaged(Sabotage::NoAborts) && missing.len() > 1 {
            missing = markers
                .missing(
                    log.log_end(),
                    &heliostat_core::log::producer_state::ProducerState::new(log.log_end()),
                    false,
                )
                .map_err(|error| error.to_string())?;
        }
        for bytes in missing {
            self.append(&mut log, (stop.key.topic, stop.at.partition), bytes, leader_epoch)?;
        }
        Ok((log.log_start(), log.log_end()))
    }

    /// Appends one batch that is made here.
    pub(crate) fn append(
        &mut self,
        log: &mut ColdLog,
        at: (TopicId, i32),
        bytes: Vec<u8>,
        epoch: LeaderEpoch,
    ) -> Result<(), String> {
        let (base, before) = (log.log_end(), read(log, &self.disk.store).last().map(id));
        let appended = log.append(&mut self.disk.store, &bytes);
        let what = format!(
            "{} appends {} at {base}, epoch {epoch}: {}",
            self.cluster,
            log.dir(),
            appended.is_ok()
        );
        self.disk.registry.borrow_mut().say(what);
        // Where it failed it may be there all the same, or not: who finds it notes it.
        appended.map_err(|error| error.to_string())?;
        let batch = Batch { base, end: log.log_end(), epoch, bytes: bytes.into() };
        self.disk.registry.borrow_mut().wrote(self.cluster, at, &batch, before);
        Ok(())
    }

    /// One step of a job.
    pub(crate) fn job_step(
        &mut self,
        mirror: &Arc<str>,
        at: &TopicPartition,
        seen: &crate::source::Seen,
    ) {
        let (now, disk) = (self.now, &mut self.disk);
        let Some(up) = self.up.as_mut() else { return };
        let Some(link) = up.links.get_mut(mirror) else { return };
        let Link { engine, copies, orders, .. } = link;
        let image = up.metadata.image();
        let mut cx = At { disk, engine, now };
        while let Some(order) = orders.pop_front() {
            let at = match &order {
                Order::Align { at, .. }
                | Order::Follow { at, .. }
                | Order::SetLocalEpoch { at, .. }
                | Order::Release { at } => at.clone(),
            };
            let id = image.topic(&at.topic).map_or(TopicId::NONE, |topic| topic.id);
            copy_of(copies, &at, id, cx.disk.sabotage).obey(order, &mut cx);
        }
        let id = image.topic(&at.topic).map_or(TopicId::NONE, |topic| topic.id);
        copy_of(copies, at, id, cx.disk.sabotage).step(seen, &mut cx);
        self.take_reports(mirror);
    }

    /// An operation of some shard ends.
    pub(crate) fn complete_one(&mut self) {
        let store = &mut self.disk.store;
        if self.disk.sabotage == Sabotage::WritesLie
            && let Some(outcome) = store.disk.lie()
        {
            return self.completed(outcome);
        }
        let Some(outcome) = store.complete_one() else { return };
        if !store.disk.has_lied_about(outcome.id) {
            self.completed(outcome);
        }
    }

    fn completed(&mut self, mut outcome: DiskOutcome) {
        let (tag, own) = untagged(outcome.id);
        outcome.id = own;
        let (now, store) = (self.now, &mut self.disk.store);
        let mut links = self.up.iter_mut().flat_map(|up| up.links.values_mut());
        if let Some(link) = links.find(|link| link.engine.tag == tag) {
            link.engine.on_disk(outcome, now, store);
        }
    }

    /// What the shard of a job says.
    pub(crate) fn take_reports(&mut self, mirror: &Arc<str>) {
        let Some(up) = self.up.as_mut() else { return };
        let Some(link) = up.links.get_mut(mirror) else { return };
        let (generation, disk) = (link.generation, &mut self.disk);
        while let Some(report) = link.engine.reports.pop_front() {
            match report {
                Report::Progress(all) => {
                    for progress in all {
                        let found = link.copies.values_mut().find(|it| it.key == progress.key);
                        found.into_iter().for_each(|copy| copy.on_progress(&progress, disk));
                    }
                }
                Report::Returned { key, log, reason } => {
                    let found = link.copies.values_mut().find(|it| it.key == key);
                    let copy = found.expect("only what was added is returned");
                    copy.on_returned(&log, &reason, disk);
                }
                Report::BadBatch { .. } => disk.count("batch refused"),
                Report::WantMetadata | Report::LeaderHint { .. } | Report::Stopped => {}
            }
        }
        for copy in link.copies.values_mut() {
            for outcome in copy.outcomes.drain(..) {
                let (mirror, at) = (Arc::clone(mirror), copy.at.clone());
                up.news.push_back(News::Of { mirror, generation, at, outcome });
            }
        }
    }

    /// Oracle: readers are shown what is written and verified, and never less than before.
    pub(crate) fn check_shown(&mut self) {
        for (at, epoch) in std::mem::take(&mut self.disk.cuts) {
            if self.up.is_some() && self.local_epoch(&at) <= epoch {
                self.broken.push(format!("{at} goes on in epoch {epoch}, of which it was cut"));
            }
        }
        let Some(up) = self.up.as_ref() else { return };
        let Disk { store, books, registry, broken, counts, .. } = &mut self.disk;
        for link in up.links.values() {
            for copy in link.copies.values() {
                broken.extend(copy.reader.take_broken());
                let Some(log) = link.engine.log(copy.key) else { continue };
                let Some(shown) = copy.reader.shown() else { continue };
                let (at, end) = (&copy.at, log.log_end_offset());
                if shown.log_end > end {
                    broken.push(format!("{at} is shown to {}, written to {end}", shown.log_end));
                    continue;
                }
                let book = books.entry(at.clone()).or_default();
                book.durable = book.durable.max(log.recovery_point());
                let known = match book.see(&shown, store, &at.to_string()) {
                    Ok(known) => known,
                    Err(what) => {
                        broken.push(what);
                        continue;
                    }
                };
                let mut registry = registry.borrow_mut();
                if known < book.batches.len() {
                    *counts.entry("shown more").or_default() += 1;
                }
                let mut before = known.checked_sub(1).map(|last| id(&book.batches[last]));
                for batch in &book.batches[known..] {
                    let place = (copy.id, at.partition);
                    if !registry.knows(place, batch) {
                        broken.push(format!("{at} is shown {:?}, which nobody wrote", id(batch)));
                    }
                    registry.note(place, batch, before);
                    before = Some(id(batch));
                }
            }
        }
    }

    // What a source's metadata changes.

    pub(crate) fn take_metadata(&mut self, mirror: &Arc<str>, told: &Told) -> Result<(), Down> {
        if !self.is_the_source(mirror, told) {
            return Ok(());
        }
        self.grow(mirror, told)?;
        self.raise_near(mirror, told)?;
        let epochs = told.topics.iter().flat_map(|(topic, _, epochs)| {
            let at = |index| TopicPartition::new(topic.as_str(), index);
            (0..).zip(epochs).map(move |(index, epoch)| (at(index), *epoch))
        });
        if let Some(link) = self.up().links.get_mut(mirror) {
            link.epochs = epochs.collect();
        }
        Ok(())
    }

    fn is_the_source(&mut self, mirror: &Arc<str>, told: &Told) -> bool {
        let Some(link) = self.up().links.get_mut(mirror) else { return false };
        if link.source == told.cluster {
            link.other_cluster = false;
            return true;
        }
        if link.other_cluster {
            return false;
        }
        link.other_cluster = true;
        let running: Vec<_> = std::mem::take(&mut link.running).into_iter().collect();
        let releases = running.iter().map(|(at, _)| Order::Release { at: at.clone() });
        link.orders.extend(releases);
        self.disk.count("another cluster answers");
        for (_, it) in running {
            self.report(&it.key, Event::Failed(it.run, other_cluster()));
        }
        false
    }

    pub(crate) fn raise_near(&mut self, mirror: &str, told: &Told) -> Result<(), Down> {
        let mut wanted = Vec::new();
        if self.sabotaged(Sabotage::AppendAbove) {
            return Ok(());
        }
        for (topic, _, epochs) in &told.topics {
            let link = self.image().mirror_of(topic);
            let is_ours =
                link.is_some_and(|it| it.mirror == mirror && it.desired == DesiredState::Mirroring);
            let Some(known) = self.image().topic(topic).filter(|_| is_ours) else { continue };
            for (index, source) in (0..).zip(epochs) {
                let Some(local) = known.partition(index) else { continue };
                if is_near(*source, local.leader_epoch) {
                    wanted.push((known.id, index, above(*source)));
                }
            }
        }
        if wanted.is_empty() { Ok(()) } else { self.raise(wanted) }
    }

    fn grow(&mut self, mirror: &str, told: &Told) -> Result<(), Down> {
        let mut topics = Vec::new();
        for (name, id, epochs) in &told.topics {
            let Some(known) = self.image().topic(name) else { continue };
            let link = self.image().mirror_of(name);
            let follows =
                link.is_some_and(|it| it.mirror == mirror && it.desired != DesiredState::Stopped);
            let count = i32::try_from(epochs.len()).unwrap_or(i32::MAX);
            if follows && *id == known.id && count > known.partition_count() {
                topics.push(GrowTopic { name: name.clone(), count, assignments: Vec::new() });
            }
        }
        if topics.is_empty() {
            return Ok(());
        }
        self.disk.count("topic grows");
        let decision = create_partitions(self.image(), &topics, NODE);
        self.decide(&decision.records)?;
        for topic in &topics {
            self.want(&topic.name);
        }
        Ok(())
    }

    /// A partition as those see it who fetch from it.
    pub(crate) fn view(&self, at: &TopicPartition) -> Option<View> {
        let up = self.up.as_ref()?;
        let topic = self.image().topic(&at.topic)?;
        let epoch = topic.partition(at.partition)?.leader_epoch;
        if let Some(log) = up.own.get(at) {
            return Some(View {
                id: topic.id,
                start: log.log_start(),
                end: log.log_end(),
                epoch,
                epochs: log.epochs().clone(),
                batches: read(log, &self.disk.store),
            });
        }
        let mut copies = up.links.values().filter_map(|link| link.copies.get(at));
        let shown = copies.find_map(|copy| copy.reader.shown())?;
        let batches = read_shown(&self.disk.store, &at.to_string(), &shown.segments);
        Some(View {
            id: topic.id,
            start: shown.log_start,
            end: shown.log_end,
            epoch,
            epochs: shown.epochs,
            // The oracle says what is wrong.
            batches: batches.unwrap_or_default(),
        })
    }

    /// What the files hold, on a disk without faults.
    pub(crate) fn look(&self, at: &TopicPartition) -> Option<(ColdLog, Vec<Batch>)> {
        let mut store = self.disk.store.view();
        if !store.has_log(&at.to_string()) {
            return None;
        }
        let options = self.disk.options(at, TopicId::NONE, None);
        let (log, _) = ColdLog::open(&mut store, &at.to_string(), &options).ok()?;
        let batches = read(&log, &store);
        Some((log, batches))
    }

    /// The newest states that the files hold.
    pub(crate) fn durable_states(&self) -> Replayed {
        let mut store = self.disk.store.view();
        StateLog::open(&mut store, state_options()).map(|it| it.1).unwrap_or_default()
    }

    fn check_stopped(&mut self, key: &MirrorKey) {
        let Some(at) = self.place(key) else { return };
        let last = self.up().mirrors.last_mirrored(key);
        let epoch = self.local_epoch(&at);
        let Some((log, batches)) = self.look(&at) else {
            return self.broken.push(format!("{at} is STOPPED without a log"));
        };
        self.disk.count("stopped");
        if let Err(what) = crate::oracle::stopped(&log, &batches, last, epoch) {
            self.broken.push(format!("{} {at} is STOPPED: {what}", self.cluster));
        }
    }
}

fn copy_of<'a>(
    copies: &'a mut BTreeMap<TopicPartition, Copy>,
    at: &TopicPartition,
    id: TopicId,
    sabotage: Sabotage,
) -> &'a mut Copy {
    let key = PartitionKey(u64::try_from(copies.len()).unwrap_or(0));
    copies.entry(at.clone()).or_insert_with(|| Copy::new(at.clone(), id, key, sabotage))
}

fn other_cluster() -> Failure {
    Failure { reason: Arc::from("another cluster answers"), retryable: false }
}
