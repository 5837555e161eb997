//! A stand-in for the control thread: it asks the source, decides by the product's own
//! rules, opens, cuts and resets logs, and hands them to shards. It keeps the oracle's
//! books of each copy as well.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use heliostat_core::config::GapPolicy;
use heliostat_core::engine::Shard;
use heliostat_core::engine::message::{
    AddPartition, BrokerAddress, Command, Leader, PartitionKey, Report, ReturnReason,
};
use heliostat_core::log::config::LogConfig;
use heliostat_core::log::epoch_cache::EpochCache;
use heliostat_core::log::failure::RunError;
use heliostat_core::log::partition::PartitionLog;
use heliostat_core::log::recovery::{self, OpenOptions};
use heliostat_core::mirror::returned::{
    CopyEnds, NextStep, Policy, Repair, StopReason, on_diverged, on_epoch_end, on_offsets,
    on_returned,
};
use heliostat_core::mirror::topics::{Change, Topics};
use heliostat_core::protocol::fetch_stream::DivergingEpoch;
use heliostat_core::protocol::{
    ErrorCode, Metadata, MetadataBroker, MetadataPartition, MetadataTopic, TopicIdentity,
};
use heliostat_core::select::TopicSelector;
use heliostat_core::types::{BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition};

use crate::broker::host;
use crate::cluster::{Batch, Cluster, Origin, Replica, View};
use crate::disk::SimDisk;
use crate::oracle::{Checked, Copied, ensure};
use crate::rng::Chance;
use crate::world::World;

/// Fetch versions below it do not tell of diverging epochs.
const TELLS_DIVERGENCE: i16 = 12;
/// Fetch versions below it go with metadata whose epochs cannot be relied on.
const HAS_EPOCHS: i16 = 9;

/// What the control thread waits for, or is told.
#[derive(Debug)]
pub(crate) enum Question {
    Metadata,
    Answer(Box<Metadata>),
    Offsets(usize),
    EpochEnd(usize, LeaderEpoch),
    Reopen(usize),
    /// The operator says that the topics are what they were.
    Trust,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Not seen yet in this life of the host.
    Aside,
    /// Something is asked or waited for.
    Waiting,
    Shard(usize),
    /// Its topic is gone.
    Ended,
}

#[derive(Debug)]
struct Copy {
    dir: String,
    place: Place,
    opened: bool,
    /// The operator wants it copied from the source's start again.
    anew: bool,
    closed: bool,
    clean: bool,
    attempts: u32,
    returned_at: i64,
    ends: CopyEnds,
    epochs: EpochCache,
    /// Checkpoints at the top of the log dir.
    recovery_point: Offset,
    log_start: Option<Offset>,
    /// Leader epoch that the copy was compared with.
    verified: Option<LeaderEpoch>,
    held: Option<PartitionLog>,
    seen: (i64, i64),
    copied: Copied,
}

#[derive(Debug)]
pub(crate) struct Control {
    chance: Chance,
    log_config: LogConfig,
    /// Oldest Fetch version of the source.
    oldest: i16,
    topics: Topics,
    selector: TopicSelector,
    copies: BTreeMap<usize, Copy>,
    metadata_due: bool,
    healing: bool,
}

fn key(p: usize) -> PartitionKey {
    PartitionKey(u64::try_from(p).expect("small"))
}

fn ms(n: usize) -> Duration {
    Duration::from_millis(u64::try_from(n).expect("small"))
}

fn place_of(cluster: &Cluster, p: usize) -> TopicPartition {
    let partition = &cluster.partitions[p];
    TopicPartition::new(cluster.topics[partition.topic].name.as_str(), partition.index)
}

fn find(cluster: &Cluster, topic: &str, index: i32) -> Option<usize> {
    cluster
        .partitions
        .iter()
        .position(|it| cluster.topics[it.topic].name == topic && it.index == index)
}

impl Control {
    pub(crate) fn new(chance: Chance, log_config: LogConfig, oldest: i16) -> Self {
        Self {
            chance,
            log_config,
            oldest,
            topics: Topics::default(),
            selector: TopicSelector::new("topic.*", "").expect("a legal pattern"),
            copies: BTreeMap::new(),
            metadata_due: true,
            healing: false,
        }
    }

    pub(crate) fn heal(&mut self) {
        self.healing = true;
    }

    /// The host starts again: only what is on disk is left.
    pub(crate) fn restart(&mut self, clean: bool) {
        self.topics = Topics::default();
        self.metadata_due = true;
        for copy in self.copies.values_mut() {
            copy.place = Place::Aside;
            copy.held = None;
            copy.attempts = 0;
            copy.verified = None;
            copy.clean = clean && copy.closed;
            copy.closed = false;
        }
    }

    /// Checkpoints are written now and then; some a moment before a crash.
    pub(crate) fn save_some_checkpoints(&mut self, shards: &[Shard]) {
        for (p, copy) in &mut self.copies {
            let Place::Shard(shard) = copy.place else { continue };
            let Some(log) = shards.get(shard).and_then(|it| it.log(key(*p))) else { continue };
            if self.chance.percent(50) {
                copy.recovery_point = log.recovery_point();
                copy.log_start = Some(log.log_start_offset());
            }
        }
    }

    pub(crate) fn served(&mut self, p: usize, before: i64, batch: &Rc<Batch>) {
        if let Some(copy) = self.copies.get_mut(&p) {
            copy.copied.serve(before, batch);
        }
    }

    pub(crate) fn check(&mut self, shards: &[Shard], disk: &SimDisk, cluster: &Cluster) -> Checked {
        for (p, copy) in &mut self.copies {
            let partition = &cluster.partitions[*p];
            let start = partition.replicas.values().map(|it| it.log_start).max().unwrap_or(0);
            copy.copied.start_max = copy.copied.start_max.max(start);
            let Place::Shard(shard) = copy.place else { continue };
            if let Some(log) = shards.get(shard).and_then(|it| it.log(key(*p))) {
                copy.see(log, disk, &partition.origins)?;
            }
        }
        Ok(())
    }

    pub(crate) fn check_all(&self, disk: &SimDisk) -> Checked {
        // Others were not opened since a crash: their topic is gone.
        let mut closed = self.copies.values().filter(|it| it.closed);
        closed.try_for_each(|it| it.copied.check_all(disk, it.ends.log_start.0))
    }

    pub(crate) fn is_complete(&self, p: usize, cluster: &Cluster) -> bool {
        if cluster.topics[cluster.partitions[p].topic].deleted {
            return true;
        }
        let (Some(copy), Some(leader)) = (self.copies.get(&p), cluster.leader(p)) else {
            return false;
        };
        let origins = &cluster.partitions[p].origins;
        matches!(copy.place, Place::Shard(_))
            && copy.copied.end == leader.end
            && leader.high_watermark == leader.end
            && copy.copied.check_history(origins, cluster.tip(p))
    }

    pub(crate) fn describe(&self, p: usize, cluster: &Cluster) -> String {
        let leader = cluster.leader(p).map(|it| (it.log_start, it.high_watermark, it.end, it.view));
        let copy = self.copies.get(&p);
        let copy = copy.map(|it| (it.place, it.copied.end, it.attempts, it.verified));
        let known = self.topics.leader(&place_of(cluster, p));
        format!("partition {p}: copy {copy:?}, leader {leader:?}, known {known:?}")
    }

    /// The replica that the control thread takes for the leader, if it says so itself.
    fn fenced<'a>(&self, cluster: &'a Cluster, p: usize) -> Option<(&'a Replica, Leader)> {
        let leader = self.topics.leader(&place_of(cluster, p))?;
        let replica = cluster.partitions[p].replicas.get(&leader.broker.0)?;
        let View { leader: id, epoch } = replica.view;
        let fits = cluster.is_up(id)
            && id == leader.broker.0
            && (leader.epoch == LeaderEpoch::NONE || epoch == leader.epoch.0);
        fits.then_some((replica, leader))
    }

    /// Whether the copy has to be compared with the leader's epochs before it goes on.
    fn needs_comparison(&self, cluster: &Cluster, p: usize) -> Option<LeaderEpoch> {
        if self.oldest >= TELLS_DIVERGENCE || self.oldest < HAS_EPOCHS {
            return None;
        }
        let copy = self.copies.get(&p)?;
        let known = self.topics.leader(&place_of(cluster, p))?.epoch;
        let latest = copy.epochs.latest()?.epoch;
        (copy.verified != Some(known)).then_some(latest)
    }
}

impl Copy {
    fn new(dir: String) -> Self {
        Self {
            copied: Copied::new(&dir),
            dir,
            place: Place::Waiting,
            opened: false,
            anew: false,
            closed: false,
            clean: false,
            attempts: 0,
            returned_at: -1,
            ends: CopyEnds { log_start: Offset::ZERO, log_end: Offset::ZERO },
            epochs: EpochCache::default(),
            recovery_point: Offset::ZERO,
            log_start: None,
            verified: None,
            held: None,
            seen: (-1, -1),
        }
    }

    /// Compares a log with the books.
    fn see(
        &mut self,
        log: &PartitionLog,
        disk: &SimDisk,
        origins: &BTreeMap<u64, Origin>,
    ) -> Checked {
        let (start, end) = (log.log_start_offset().0, log.log_end_offset().0);
        let (durable, accepted) = (log.recovery_point().0, log.fetch_offset().0);
        ensure(start <= end && end <= accepted && durable <= end, || {
            format!("{}: offsets {start} {durable} {end} {accepted}", self.dir)
        })?;
        ensure(start <= self.copied.start_max, || {
            format!("{}: starts at {start}, the source at {}", self.dir, self.copied.start_max)
        })?;
        self.copied.durable = self.copied.durable.max(durable);
        if self.seen == (start, end) {
            return Ok(());
        }
        ensure(end >= self.copied.end, || {
            format!("{}: the end went back from {} to {end}", self.dir, self.copied.end)
        })?;
        self.copied.grow(disk, origins, start, end)?;
        if log.failure().is_none() {
            self.copied.check_epochs(log.epochs(), start)?;
        }
        self.seen = (start, end);
        Ok(())
    }

    fn take_note(&mut self, log: &PartitionLog) {
        self.ends = CopyEnds { log_start: log.log_start_offset(), log_end: log.log_end_offset() };
        self.epochs = log.epochs().clone();
        self.recovery_point = log.recovery_point();
        self.log_start = Some(log.log_start_offset());
    }
}

/// What happens to a log as it is opened.
#[derive(Clone, Copy, Debug)]
enum Opening {
    AsItIs,
    Start(Offset),
    Truncate(Offset),
    Reset(Offset),
}

impl World {
    fn copy(&mut self, p: usize) -> &mut Copy {
        self.control.copies.get_mut(&p).expect("a partition that is copied")
    }

    fn refresh_soon(&mut self) {
        if !self.control.metadata_due {
            self.control.metadata_due = true;
            let wait = self.control.chance.between(5, 80);
            self.ask(ms(wait), Question::Metadata);
        }
    }

    pub(crate) fn on_report(&mut self, shard: usize, report: Report) -> Checked {
        match report {
            Report::Returned { key, log, reason } => {
                let p = usize::try_from(key.0).expect("small");
                let place = self.copy(p).place;
                ensure(place == Place::Shard(shard), || format!("{p} returned from {place:?}"))?;
                self.on_returned(p, &log, &reason)
            }
            Report::WantMetadata => {
                self.refresh_soon();
                Ok(())
            }
            Report::LeaderHint { key, leader } => {
                let p = usize::try_from(key.0).expect("small");
                self.count("leader hint followed");
                let place = place_of(&self.cluster, p);
                self.control.topics.note_leader(&place, leader);
                Ok(())
            }
            Report::BadBatch { .. } => {
                self.count("batch refused");
                Ok(())
            }
            Report::Progress(_) | Report::Stopped => Ok(()),
        }
    }

    fn on_returned(&mut self, p: usize, log: &PartitionLog, reason: &ReturnReason) -> Checked {
        let stopping = self.is_stopping();
        let copy = self.control.copies.get_mut(&p).expect("a partition that is copied");
        copy.place = Place::Waiting;
        copy.seen = (-1, -1);
        copy.see(log, &self.disk, &self.cluster.partitions[p].origins)?;
        copy.take_note(log);
        copy.closed = log.is_closed();
        let failed = matches!(reason, ReturnReason::Disk { .. });
        ensure(copy.closed != failed, || format!("{p} returned for {reason:?}: {log:?}"))?;
        if copy.closed {
            let (end, durable) = (log.log_end_offset(), log.recovery_point());
            ensure(end == durable && log.fetch_offset() == end, || {
                format!("{p} closed at {end}, durable to {durable}")
            })?;
            copy.copied.check_all(&self.disk, log.log_start_offset().0)?;
        }
        let grew = copy.ends.log_end.0 > copy.returned_at;
        copy.returned_at = copy.ends.log_end.0;
        copy.attempts = if grew { 1 } else { copy.attempts + 1 };
        if stopping {
            copy.place = Place::Aside;
            return Ok(());
        }
        let latest = copy.epochs.latest().map_or(LeaderEpoch::NONE, |it| it.epoch);
        let step = on_returned(reason, copy.attempts, latest);
        self.take_step(p, step)
    }

    fn take_step(&mut self, p: usize, step: NextStep) -> Checked {
        match step {
            NextStep::Nothing => self.ask(ms(1), Question::Reopen(p)),
            NextStep::Reopen | NextStep::ReopenElsewhere => self.ask(ms(100), Question::Reopen(p)),
            NextStep::ReopenWhenRoom => {
                self.count("waited for room");
                self.ask(ms(300), Question::Reopen(p));
            }
            NextStep::CheckIdentity => {
                self.refresh_soon();
                self.ask(ms(200), Question::Reopen(p));
            }
            NextStep::AskOffsets => self.ask(ms(20), Question::Offsets(p)),
            NextStep::AskEpochEnd(epoch) => self.ask(ms(20), Question::EpochEnd(p, epoch)),
            NextStep::Align(diverging) => {
                let copy = self.copy(p);
                let repair = on_diverged(diverging, copy.ends, &copy.epochs, true);
                return self.repair(p, repair);
            }
            NextStep::Stop(reason) => self.operator(p, &reason),
            NextStep::RaiseEpoch(epoch) => {
                return Err(format!(
                    "partition {p} is held to an epoch below {epoch}, and has none"
                ));
            }
        }
        Ok(())
    }

    /// The operator looks at a partition that stopped, and starts it again.
    fn operator(&mut self, p: usize, reason: &StopReason) {
        self.note(format_args!("partition {p} stops: {reason}"));
        self.count(match reason {
            StopReason::Disk { .. } => "stopped: disk",
            StopReason::Refused(_) => "stopped: refused",
            StopReason::InRangeRefused { .. } => "stopped: in range, yet refused",
            StopReason::NothingCommon => "stopped: nothing common",
            _ => "stopped: other",
        });
        let copy = self.copy(p);
        copy.attempts = 0;
        // Nothing else mends these: the directory is moved away.
        let anew = matches!(
            reason,
            StopReason::Refused(RunError::Overlap { .. } | RunError::EpochGoesBack { .. })
                | StopReason::NothingCommon
                | StopReason::InRangeRefused { .. }
        );
        copy.anew = anew;
        let next = if anew { Question::Offsets(p) } else { Question::Reopen(p) };
        self.ask(ms(800), next);
    }

    fn repair(&mut self, p: usize, repair: Repair) -> Checked {
        self.note(format_args!("partition {p}: {repair:?}"));
        match repair {
            Repair::Reopen => {
                self.ask(ms(50), Question::Reopen(p));
                Ok(())
            }
            Repair::Truncate { to } => {
                self.count("copy truncated");
                self.open(p, Opening::Truncate(to))
            }
            Repair::Reset { start } => {
                let end = self.copy(p).ends.log_end;
                self.count(if start > end { "gap recorded" } else { "copy emptied" });
                self.open(p, Opening::Reset(start))
            }
            Repair::Stop(reason) => {
                self.operator(p, &reason);
                Ok(())
            }
        }
    }

    pub(crate) fn on_question(&mut self, question: Question) -> Checked {
        if self.is_stopping() {
            return Ok(());
        }
        match question {
            Question::Metadata => {
                self.ask_metadata();
                Ok(())
            }
            Question::Answer(metadata) => self.on_metadata(&metadata),
            Question::Reopen(p) => {
                if self.copy(p).place != Place::Waiting {
                    return Ok(());
                }
                if self.copy(p).opened {
                    self.open(p, Opening::AsItIs)
                } else {
                    self.ask(ms(1), Question::Offsets(p));
                    Ok(())
                }
            }
            Question::Trust => {
                self.control.topics = Topics::default();
                self.refresh_soon();
                Ok(())
            }
            Question::Offsets(p) => self.on_offsets(p),
            Question::EpochEnd(p, asked) => self.on_epoch_end(p, asked),
        }
    }

    fn on_offsets(&mut self, p: usize) -> Checked {
        if self.copy(p).place != Place::Waiting {
            return Ok(());
        }
        // A new leader does not know its high watermark before it has passed its start.
        let range = self.control.fenced(&self.cluster, p).and_then(|(replica, _)| {
            let start = replica.epochs.latest().map_or(0, |it| it.start_offset.0);
            let knows = replica.high_watermark >= start;
            knows.then_some((Offset(replica.log_start), Offset(replica.high_watermark)))
        });
        let Some((earliest, latest)) = range else {
            self.refresh_soon();
            self.ask(ms(60), Question::Offsets(p));
            return Ok(());
        };
        let copy = self.copy(p);
        if !copy.opened {
            return self.open(p, Opening::Start(earliest));
        }
        if std::mem::take(&mut copy.anew) {
            return self.open(p, Opening::Reset(earliest));
        }
        let policy = Policy { gap: GapPolicy::Continue, unclean_leader_election: true };
        let repair = on_offsets(copy.ends, earliest, latest, policy, true, copy.attempts);
        self.repair(p, repair)
    }

    fn on_epoch_end(&mut self, p: usize, asked: LeaderEpoch) -> Checked {
        if self.copy(p).place != Place::Waiting {
            return Ok(());
        }
        let Some((replica, leader)) = self.control.fenced(&self.cluster, p) else {
            self.refresh_soon();
            self.ask(ms(60), Question::EpochEnd(p, asked));
            return Ok(());
        };
        let (epoch, end_offset) = replica.epochs.end_offset_for(asked, Offset(replica.end));
        let answer = DivergingEpoch { epoch, end_offset };
        self.note(format_args!("partition {p}: epoch {asked} ends {answer:?}"));
        self.count("epoch end asked");
        let copy = self.copy(p);
        let repair = on_epoch_end(asked, answer, copy.ends, &copy.epochs, true);
        if repair == Repair::Reopen {
            copy.verified = Some(leader.epoch);
            if let Some(log) = copy.held.take() {
                return self.add(p, log);
            }
        }
        copy.held = None;
        self.repair(p, repair)
    }

    /// Opens a log, compares it with the books, and hands it to a shard.
    fn open(&mut self, p: usize, how: Opening) -> Checked {
        let wall_ms = self.wall_ms();
        let partition = &self.cluster.partitions[p];
        let id = TopicId(self.cluster.topics[partition.topic].id);
        let copy = self.control.copies.get_mut(&p).expect("a partition that is copied");
        let truncate_to = if let Opening::Truncate(to) = how { Some(to) } else { None };
        let options = OpenOptions {
            config: self.control.log_config,
            topic_id: id,
            clean: copy.clean,
            recovery_point: copy.recovery_point,
            log_start: if let Opening::Start(at) = how { Some(at) } else { copy.log_start },
            truncate_to,
            now_ms: wall_ms,
        };
        let opened = match how {
            Opening::Reset(start) => recovery::reset(&mut self.disk, &copy.dir, start, &options),
            _ => recovery::open(&mut self.disk, &copy.dir, &options),
        };
        let (recovered, report) = opened.map_err(|error| {
            format!("{}: {error}: {:?}", copy.dir, std::error::Error::source(&error))
        })?;
        let (start, end) = (recovered.log_start.0, recovered.log_end.0);
        let before = (copy.copied.end, copy.copied.durable);
        let promised = copy.copied.batch_end(copy.copied.durable);
        match how {
            Opening::Start(_) | Opening::Reset(_) => copy.copied.reset(end),
            _ if report.ended_below_start.is_some() => copy.copied.reset(end),
            Opening::Truncate(to) => {
                ensure(end <= to.0, || format!("{p} cut to {to}, ends at {end}"))?;
                ensure(end >= copy.copied.batch_end(to.0), || {
                    format!("{p} cut to {to}, ends at {end}, loses a whole batch")
                })?;
                copy.copied.shrink(end);
            }
            Opening::AsItIs => {
                ensure(end >= promised, || {
                    format!(
                        "{p}: ends at {end}, was {before:?}, {promised} was durable: {report:?}"
                    )
                })?;
                if end < copy.copied.end {
                    copy.copied.shrink(end);
                }
                copy.copied.grow(&self.disk, &partition.origins, start, end)?;
            }
        }
        copy.opened = true;
        copy.clean = false;
        copy.closed = false;
        copy.seen = (-1, -1);
        copy.copied.durable = end;
        copy.copied.opened(&recovered.epochs, start, end)?;
        copy.copied.check_all(&self.disk, start)?;
        let log = PartitionLog::new(recovered);
        copy.see(&log, &self.disk, &partition.origins)?;
        copy.take_note(&log);
        self.note(format_args!("partition {p} opened {how:?}: {start}..{end}, was {before:?}"));
        self.add(p, log)
    }

    fn add(&mut self, p: usize, log: PartitionLog) -> Checked {
        if let Some(latest) = self.control.needs_comparison(&self.cluster, p) {
            self.copy(p).held = Some(log);
            self.ask(ms(10), Question::EpochEnd(p, latest));
            return Ok(());
        }
        let place = place_of(&self.cluster, p);
        let known = self.control.topics.identity(&place.topic);
        let leader = self.control.topics.leader(&place);
        let (Some(topic), Some(leader)) = (known, leader) else {
            self.copy(p).place = Place::Ended;
            return Ok(());
        };
        let shard = self.control.chance.below(self.shards.len());
        let throttled = self.control.chance.percent(15);
        self.copy(p).place = Place::Shard(shard);
        let (key, index) = (key(p), place.partition);
        let add = AddPartition {
            key,
            topic,
            index,
            log,
            leader,
            throttled,
            local_epoch: LeaderEpoch::NONE,
            readers: None,
        };
        self.command(shard, Command::Add(Box::new(add)))
    }

    /// Takes a partition off its shard, for another one or for a comparison.
    pub(crate) fn rebalance(&mut self, p: usize) -> Checked {
        match self.control.copies.get(&p).map(|copy| copy.place) {
            Some(Place::Shard(shard)) => self.command(shard, Command::Remove { key: key(p) }),
            _ => Ok(()),
        }
    }

    fn ask_metadata(&mut self) {
        self.control.metadata_due = false;
        let up: Vec<i32> =
            self.cluster.up.iter().filter(|(_, up)| **up).map(|(id, _)| *id).collect();
        if up.is_empty() {
            self.refresh_soon();
            return;
        }
        let broker = self.control.chance.pick(&up);
        let metadata = self.metadata_of(broker, &up);
        let took = self.control.chance.between(1, 20);
        self.ask(ms(took), Question::Answer(Box::new(metadata)));
    }

    fn metadata_of(&mut self, asked: i32, up: &[i32]) -> Metadata {
        let Self { control, cluster, disk, .. } = self;
        let mut brokers: Vec<i32> = up.to_vec();
        if !control.healing && control.chance.percent(8) {
            disk.faults.count("metadata without a broker");
            brokers.remove(control.chance.below(brokers.len()));
        }
        let mut topics = Vec::new();
        for (at, topic) in cluster.topics.iter().enumerate().filter(|(_, it)| !it.deleted) {
            let mut partitions = Vec::new();
            for partition in cluster.partitions.iter().filter(|it| it.topic == at) {
                let own = partition.replicas.get(&asked).map(|it| it.view);
                let mut view = own.unwrap_or(partition.truth);
                if view != partition.truth {
                    disk.faults.count("stale metadata");
                }
                if !control.healing && control.chance.percent(2) {
                    disk.faults.count("metadata without leader and epoch");
                    view = View { leader: -1, epoch: -1 };
                }
                let epoch = if control.oldest < HAS_EPOCHS { -1 } else { view.epoch };
                partitions.push(MetadataPartition {
                    error: ErrorCode::NONE,
                    index: partition.index,
                    leader: BrokerId(view.leader),
                    leader_epoch: LeaderEpoch(epoch),
                    replicas: partition.replicas.keys().copied().map(BrokerId).collect(),
                    isr: Vec::new(),
                    offline_replicas: Vec::new(),
                });
            }
            let identity =
                TopicIdentity { name: Arc::from(topic.name.as_str()), id: TopicId(topic.id) };
            let error = ErrorCode::NONE;
            topics.push(MetadataTopic { error, identity, is_internal: false, partitions });
        }
        let broker =
            |id: i32| MetadataBroker { node: BrokerId(id), host: host(id), port: 9092, rack: None };
        Metadata {
            throttle_ms: 0,
            brokers: brokers.into_iter().map(broker).collect(),
            cluster_id: None,
            controller: BrokerId::NONE,
            topics,
            error: ErrorCode::NONE,
        }
    }

    fn on_metadata(&mut self, metadata: &Metadata) -> Checked {
        let refresh = self.control.topics.refresh(metadata, &self.control.selector);
        for change in refresh.changes {
            self.note(format_args!("change {change:?}"));
            self.on_change(change)?;
        }
        let address = |broker: &MetadataBroker| BrokerAddress {
            id: broker.node,
            host: Arc::from(broker.host.as_str()),
            port: broker.port,
        };
        let brokers: Vec<_> = metadata.brokers.iter().map(address).collect();
        for shard in 0..self.shards.len() {
            self.command(shard, Command::SetBrokers(brokers.clone()))?;
        }
        if refresh.confirm_soon {
            self.refresh_soon();
        } else if !self.control.metadata_due {
            self.control.metadata_due = true;
            self.ask(Duration::from_secs(1), Question::Metadata);
        }
        Ok(())
    }

    fn on_change(&mut self, change: Change) -> Checked {
        match change {
            Change::NewPartition { topic, index, leader } => {
                let Some(p) = find(&self.cluster, &topic.name, index) else { return Ok(()) };
                let dir = format!("{}-{index}", topic.name);
                let copy = self.control.copies.entry(p).or_insert_with(|| Copy::new(dir));
                match copy.place {
                    Place::Shard(shard) => {
                        return self.command(shard, Command::SetLeader { key: key(p), leader });
                    }
                    Place::Waiting if copy.opened => {}
                    Place::Waiting | Place::Aside | Place::Ended => {
                        copy.place = Place::Waiting;
                        self.ask(ms(1), Question::Reopen(p));
                    }
                }
            }
            Change::NewLeader { partition, leader, epoch_rose } => {
                let found = find(&self.cluster, &partition.topic, partition.partition);
                let Some(p) = found else { return Ok(()) };
                let Place::Shard(shard) = self.copy(p).place else { return Ok(()) };
                let compares = (HAS_EPOCHS..TELLS_DIVERGENCE).contains(&self.control.oldest);
                if epoch_rose && compares {
                    return self.rebalance(p);
                }
                return self.command(shard, Command::SetLeader { key: key(p), leader });
            }
            Change::IdAppeared { .. } => {}
            Change::Ended { topic, .. } => {
                let gone = self.cluster.topics.iter().any(|it| it.deleted && it.name == *topic);
                if !gone {
                    // A broker whose view lags for long looks like one with another topic.
                    self.count("topic taken for recreated");
                    self.ask(ms(900), Question::Trust);
                }
                for p in 0..self.cluster.partitions.len() {
                    if *place_of(&self.cluster, p).topic == *topic {
                        self.rebalance(p)?;
                    }
                }
            }
        }
        Ok(())
    }
}
