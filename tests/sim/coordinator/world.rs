//! Two hosts and a plain cluster, their clients and operators, and what goes wrong.
//!
//! Host A mirrors topics of the plain cluster K and of host S; S mirrors back from A.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use heliostat_core::coordinator::alignment::said_by_source;
use heliostat_core::coordinator::{DesiredState, MirrorKey, MirrorState};
use heliostat_core::engine::message::Command;
use heliostat_core::metadata::controller::SOURCE_CLUSTER_ID;
use heliostat_core::metadata::image::ResourceType;
use heliostat_core::protocol::mirror::{
    DescribeClusterMirrorsResponse, DescribedClusterMirror, DescribedMirrorPartition,
    DescribedMirrorTopic, EpochLookupPartition, EpochLookupResult,
};
use heliostat_core::types::{LeaderEpoch, Offset, TopicId, TopicPartition};
use uuid::Uuid;

use crate::host::{Down, Host, Sabotage, Task, Told};
use crate::oracle;
use crate::registry::{Registry, id};
use crate::rng::Chance;
use crate::source::{Plain, Seen, View, marker, records};

pub(crate) const A: usize = 0;
pub(crate) const S: usize = 1;
const MIRRORS: [(usize, &str, &str); 3] = [(A, "west", "K"), (A, "forth", "S"), (S, "back", "A")];
const TOPICS: [(&str, &[&str]); 3] =
    [("west", &["k0", "k1"]), ("forth", &["s0"]), ("back", &["s0"])];

fn topic_id(number: u128) -> TopicId {
    TopicId(Uuid::from_u128(number))
}

pub(crate) struct World {
    pub(crate) hosts: [Host; 2],
    pub(crate) plain: Plain,
    pub(crate) registry: Rc<RefCell<Registry>>,
    chance: Chance,
    next_id: u128,
    /// Open transactions of clients, by cluster and partition.
    txns: BTreeMap<(&'static str, TopicPartition), Vec<i64>>,
    /// Sources tell no offsets of their last positions.
    pub(crate) hides_offsets: bool,
    pub(crate) network: Chance,
    pub(crate) is_healing: bool,
}

impl World {
    pub(crate) fn new(seed: u64, sabotage: Sabotage) -> Self {
        let registry = Rc::new(RefCell::new(Registry::default()));
        let host = |name, stream| Host::new(name, seed, stream, Rc::clone(&registry), sabotage);
        let mut plain =
            Plain { cluster: "K", is_replaced: false, is_away: false, topics: BTreeMap::new() };
        for (number, name, count) in [(11, "k0", 2), (12, "k1", 1)] {
            let view = View { id: topic_id(number), epoch: LeaderEpoch(0), ..View::default() };
            plain.topics.insert(name.to_owned(), vec![view; count]);
        }
        Self {
            hosts: [host("A", 10), host("S", 20)],
            plain,
            registry,
            chance: Chance::new(seed, 1),
            next_id: 100,
            txns: BTreeMap::new(),
            hides_offsets: false,
            network: Chance::new(seed, 2),
            is_healing: false,
        }
    }

    /// Both hosts run, and S has a topic of its own.
    pub(crate) fn begin(&mut self) {
        for host in &mut self.hosts {
            host.start().expect("an empty disk without faults");
        }
        self.hosts[S].create_topic("s0", topic_id(20)).expect("no faults yet");
    }

    fn say(&self, what: String) {
        self.registry.borrow_mut().say(what);
    }

    pub(crate) fn run(&mut self, steps: usize) -> Result<(), String> {
        self.begin();
        for _ in 0..steps {
            self.step();
            self.check()?;
        }
        self.heal();
        self.converge()
    }

    fn step(&mut self) {
        if self.chance.percent(22) {
            return self.act_on_plain();
        }
        let which = self.chance.below(2);
        let elapsed = Duration::from_millis(u64::try_from(self.chance.below(1_500)).unwrap_or(0));
        for host in &mut self.hosts {
            host.now = host.now.after(elapsed);
        }
        self.fault(which);
        if self.hosts[which].up.is_none() {
            if self.chance.percent(40) {
                let outcome = self.hosts[which].start();
                self.after(which, outcome);
            }
            return;
        }
        let outcome = match self.chance.below(100) {
            0..25 => self.take_news(which),
            25..55 => {
                self.job_step(which);
                Ok(())
            }
            55..70 => {
                self.task(which);
                Ok(())
            }
            70..78 => self.refresh(which),
            78..90 => {
                self.client(which);
                Ok(())
            }
            _ => self.operate(which),
        };
        self.after(which, outcome);
    }

    /// Ends the host if it could not decide; otherwise what is to be done is.
    pub(crate) fn after(&mut self, which: usize, outcome: Result<(), Down>) {
        let host = &mut self.hosts[which];
        let outcome = outcome.and_then(|()| {
            host.wake();
            host.settle()
        });
        if outcome.is_err() || host.disk.store.dead {
            let cluster = host.cluster;
            host.crash();
            self.txns.retain(|(of, _), _| *of != cluster);
            self.say(format!("{cluster} dies"));
        }
    }

    fn take_news(&mut self, which: usize) -> Result<(), Down> {
        self.hosts[which].take_news().map(|_| ())
    }

    fn fault(&mut self, which: usize) {
        let chance = &mut self.chance;
        let store = &mut self.hosts[which].disk.store;
        match chance.below(300) {
            0 => store.dies_in = Some(chance.below(12)),
            1 => store.errors = chance.pick(&[3, 20]),
            2 => store.full = true,
            3..12 => (store.errors, store.full) = (0, false),
            12 => {
                store.dead = true;
                self.hosts[which].crash();
                let cluster = self.hosts[which].cluster;
                self.txns.retain(|(of, _), _| *of != cluster);
                self.say(format!("{cluster} is killed"));
            }
            13 => self.stop(which),
            _ => {}
        }
    }

    /// A clean stop: every shard gives back what it has.
    fn stop(&mut self, which: usize) {
        for (_, mirror, source) in MIRRORS.iter().filter(|it| it.0 == which) {
            let (host, mirror) = (&mut self.hosts[which], Arc::from(*mirror));
            let (now, store) = (host.now, &mut host.disk.store);
            if let Some(link) = host.up.as_mut().and_then(|up| up.links.get_mut(&mirror)) {
                link.engine.command(Command::Stop, now, store);
                self.turn(which, &mirror, source, 200, 20);
            }
        }
        self.hosts[which].stop();
        self.say(format!("{} is stopped", self.hosts[which].cluster));
    }

    // The plain cluster.

    fn act_on_plain(&mut self) {
        let names: Vec<String> = self.plain.topics.keys().cloned().collect();
        match self.chance.below(400) {
            0..4 => self.plain.is_away = !self.plain.is_away,
            4 => self.plain.is_replaced = !self.plain.is_replaced,
            5 => {
                self.next_id += 1;
                let id = topic_id(self.next_id);
                let view = View { id, epoch: LeaderEpoch(0), ..View::default() };
                self.plain.topics.insert("k1".to_owned(), vec![view]);
                self.txns.retain(|(cluster, at), _| *cluster != "K" || &*at.topic != "k1");
                self.say("K makes k1 anew".to_owned());
            }
            6 if names.len() == 2 => drop(self.plain.topics.remove("k1")),
            7 | 8 => {
                if let Some(all) = self.plain.topics.get_mut("k0").filter(|all| all.len() < 3) {
                    let id = all[0].id;
                    all.push(View { id, epoch: LeaderEpoch(0), ..View::default() });
                }
            }
            draw => {
                let Some(name) = names.get(self.chance.below(names.len())) else { return };
                let count = self.plain.topics[name].len();
                let index = self.chance.below(count);
                let at = TopicPartition::new(name.as_str(), i32::try_from(index).unwrap_or(0));
                self.write_plain(&at, index, draw);
            }
        }
    }

    fn write_plain(&mut self, at: &TopicPartition, index: usize, draw: usize) {
        let Some(view) = self.plain.topics.get_mut(&*at.topic).and_then(|it| it.get_mut(index))
        else {
            return;
        };
        if draw < 40 {
            let by = self.chance.pick(&[1, 1, 1, 5, 13]);
            let lost = if draw < 16 { i64::try_from(self.chance.below(6)).unwrap_or(0) } else { 0 };
            let to = Offset((view.end.0 - lost).max(view.start.0));
            view.elect(by, to);
            if lost > 0 {
                self.txns.remove(&("K", at.clone()));
            }
            return;
        }
        if view.end.0 > 60 {
            return;
        }
        let before = view.batches.last().map(id);
        let open = self.txns.entry(("K", at.clone())).or_default();
        let (bytes, count) =
            next_batch(&mut self.chance, &self.registry, view.end, view.epoch, open);
        let partition = (view.id, at.partition);
        let batch = view.push(bytes, count).clone();
        self.registry.borrow_mut().wrote("K", partition, &batch, before);
    }

    // Clients of hosts.

    /// Partitions that a client may write to, or thinks so.
    fn client(&mut self, which: usize) {
        let all: Vec<TopicPartition> = partitions(&self.hosts[which]);
        if all.is_empty() {
            return;
        }
        let at = &all[self.chance.below(all.len())];
        self.write(which, at);
    }

    pub(crate) fn write(&mut self, which: usize, at: &TopicPartition) {
        let host = &mut self.hosts[which];
        if host.broken.len() + self.registry.borrow().broken.len() > 0 {
            return;
        }
        let keys = host.keys_of(&at.topic);
        let key = keys.iter().find(|key| key.partition == at.partition);
        let early = host.sabotaged(Sabotage::WriteEarly)
            && key.is_some_and(|key| host.state(key) == MirrorState::Paused);
        if !host.is_writable(at) && !early {
            return;
        }
        if let Some(key) = key {
            let durable = host.durable_states().states.get(key).map(|it| it.state);
            if durable != Some(MirrorState::Stopped) {
                host.broken.push(format!("a write to {at} was accepted in {durable:?}"));
            }
        }
        let Some(id) = host.image().topic(&at.topic).map(|topic| topic.id) else { return };
        let own = host.up.as_mut().and_then(|up| up.own.remove(at));
        let mut log = match own {
            Some(log) if !log.is_poisoned() => log,
            _ => match host.open(at, id) {
                Ok(log) => log,
                Err(_) => return,
            },
        };
        let epoch = host.local_epoch(at);
        let open = self.txns.entry((host.cluster, at.clone())).or_default();
        if log.log_end().0 < 80 {
            let (bytes, _) =
                next_batch(&mut self.chance, &self.registry, log.log_end(), epoch, open);
            host.disk.store.lazy = true;
            let written = host.append(&mut log, (id, at.partition), bytes, epoch);
            host.disk.store.lazy = false;
            if written.is_err() {
                return;
            }
            host.disk.count("client wrote");
        }
        if let Some(up) = host.up.as_mut() {
            up.own.insert(at.clone(), log);
        }
    }

    // Jobs and tasks.

    pub(crate) fn seen(&self, cluster: &str, at: &TopicPartition, wanted: TopicId) -> Seen {
        let is_known = |view: &View| wanted == TopicId::NONE || view.id == wanted;
        if cluster == "K" {
            if self.plain.is_away || self.plain.is_replaced {
                return Seen::Away;
            }
            let index = usize::try_from(at.partition).unwrap_or(usize::MAX);
            let view = self.plain.topics.get(&*at.topic).and_then(|all| all.get(index));
            return match view.filter(|view| is_known(view)) {
                Some(view) => Seen::Is(Box::new(view.clone())),
                None => Seen::Gone,
            };
        }
        let host = &self.hosts[if cluster == "A" { A } else { S }];
        match host.view(at) {
            Some(view) if is_known(&view) => Seen::Is(Box::new(view)),
            _ => Seen::Away,
        }
    }

    fn job_step(&mut self, which: usize) {
        let Some(up) = self.hosts[which].up.as_ref() else { return };
        let all: Vec<(Arc<str>, String, TopicPartition, TopicId)> = up
            .links
            .iter()
            .flat_map(|(mirror, link)| {
                let image = up.metadata.image();
                let topics = image.topics_of(mirror).flat_map(|(topic, _)| {
                    let at = |index| TopicPartition::new(Arc::clone(&topic.name), index);
                    (0..topic.partition_count()).map(move |index| (at(index), topic.id))
                });
                topics.map(|(at, id)| (Arc::clone(mirror), link.source.clone(), at, id))
            })
            .collect();
        if all.is_empty() {
            return;
        }
        let (mirror, source, at, id) = &all[self.chance.below(all.len())];
        self.job_step_of(which, mirror, source, at, *id);
        let events = self.chance.between(0, 30);
        self.turn(which, mirror, source, events, 2);
    }

    fn task(&mut self, which: usize) {
        let Some(up) = self.hosts[which].up.as_mut() else { return };
        let Some(task) = up.tasks.pop_front() else { return };
        let Task::LookUp { mirror, generation, begun } = task else {
            self.hosts[which].run_task(task);
            return;
        };
        let source = up.links.get(&mirror).map(|link| link.source.clone()).unwrap_or_default();
        let away = match source.as_str() {
            "K" => self.plain.is_away,
            "A" => self.hosts[A].up.is_none(),
            _ => self.hosts[S].up.is_none(),
        };
        if away {
            let up = self.hosts[which].up.as_mut().expect("up");
            up.tasks.push_back(Task::LookUp { mirror, generation, begun });
            return;
        }
        let outcome = begun
            .into_iter()
            .map(|begun| {
                let common = match source.as_str() {
                    "K" => Ok(None),
                    other => {
                        let there = if other == "A" { A } else { S };
                        let described = self.describe(there, self.hosts[which].cluster, &begun.0);
                        said_by_source(&described, &begun.0, &begun.1.topic)
                    }
                };
                (begun, common)
            })
            .collect();
        self.hosts[which].looked_up(mirror, generation, outcome);
    }

    /// What a host says of its mirrors of a cluster.
    fn describe(
        &self,
        which: usize,
        of: &str,
        asked: &MirrorKey,
    ) -> DescribeClusterMirrorsResponse {
        let host = &self.hosts[which];
        let image = host.image();
        let up = host.up.as_ref().expect("only a host that is up is asked");
        let mut response = DescribeClusterMirrorsResponse::default();
        let offset = |offset: Offset| if self.hides_offsets { -1 } else { offset.0 };
        for mirror in image.mirrors() {
            if image.config(ResourceType::MIRROR, mirror, SOURCE_CLUSTER_ID) != Some(of) {
                continue;
            }
            let key = |topic, partition| MirrorKey { mirror: Arc::from(mirror), topic, partition };
            let topics = image.topics_of(mirror).map(|(topic, _)| {
                let partitions = (0..topic.partition_count()).map(|index| {
                    let key = key(topic.id, index);
                    let last = up.mirrors.last_mirrored(&key);
                    DescribedMirrorPartition {
                        partition_index: index,
                        state: host.state(&key).name().to_owned(),
                        last_mirror_epoch: last.map_or(-1, |last| last.epoch.0),
                        last_mirror_offset: last.map_or(-1, |last| offset(last.offset)),
                        ..DescribedMirrorPartition::default()
                    }
                });
                DescribedMirrorTopic {
                    topic_name: topic.name.to_string(),
                    partitions: partitions.collect(),
                    ..DescribedMirrorTopic::default()
                }
            });
            response.mirrors.push(DescribedClusterMirror {
                mirror_name: mirror.to_owned(),
                topics: topics.collect(),
                ..DescribedClusterMirror::default()
            });
            let last = up.mirrors.last_mirrored(&key(asked.topic, asked.partition));
            response.lookup_results.push(EpochLookupResult {
                topic_id: asked.topic,
                partitions: vec![EpochLookupPartition {
                    partition_index: asked.partition,
                    last_mirror_epoch: last.map_or(-1, |last| last.epoch.0),
                    last_mirror_offset: last.map_or(-1, |last| offset(last.offset)),
                }],
            });
        }
        response
    }

    fn told(&self, cluster: &str) -> Option<Told> {
        if cluster == "K" {
            let cluster = if self.plain.is_replaced { "X" } else { self.plain.cluster };
            let topics = self.plain.topics.iter().map(|(name, all)| {
                (name.clone(), all[0].id, all.iter().map(|view| view.epoch).collect())
            });
            let told = Told { cluster: cluster.to_owned(), topics: topics.collect() };
            return (!self.plain.is_away).then_some(told);
        }
        let host = &self.hosts[if cluster == "A" { A } else { S }];
        host.up.as_ref()?;
        let topics = host.image().topics().map(|topic| {
            let epochs = topic.partitions.iter().map(|it| it.leader_epoch).collect();
            (topic.name.to_string(), topic.id, epochs)
        });
        Some(Told { cluster: cluster.to_owned(), topics: topics.collect() })
    }

    fn refresh(&mut self, which: usize) -> Result<(), Down> {
        for (host, mirror, source) in MIRRORS {
            if host == which
                && let Some(told) = self.told(source)
            {
                self.hosts[which].take_metadata(&Arc::from(mirror), &told)?;
            }
        }
        Ok(())
    }

    // Operators.

    pub(crate) fn start_topic(
        &mut self,
        which: usize,
        mirror: &str,
        topic: &str,
    ) -> Result<(), Down> {
        let source = MIRRORS.iter().find(|it| it.1 == mirror).map_or("", |it| it.2);
        let told = self.told(source).unwrap_or_default();
        let Some((_, id, epochs)) = told.topics.iter().find(|it| it.0 == topic) else {
            return Ok(());
        };
        let count = i32::try_from(epochs.len()).unwrap_or(0);
        let host = &mut self.hosts[which];
        host.start_topic(mirror, topic, *id, count)?;
        // An alignment's epoch comes first.
        host.settle()?;
        host.raise_near(mirror, &told)
    }

    fn operate(&mut self, which: usize) -> Result<(), Down> {
        let mine: Vec<_> = MIRRORS.iter().filter(|it| it.0 == which).collect();
        let (_, mirror, source) = mine[self.chance.below(mine.len())];
        let topics = TOPICS.iter().find(|it| it.0 == *mirror).map_or(&[][..], |it| it.1);
        let topic = topics[self.chance.below(topics.len())];
        let draw = self.chance.below(100);
        self.say(format!("{} {mirror} {topic} does {draw}", self.hosts[which].cluster));
        let host = &mut self.hosts[which];
        match draw {
            0..15 => host.create(mirror, source),
            15..50 => self.start_topic(which, mirror, topic),
            50..64 => host.wish(mirror, topic, DesiredState::Stopped),
            64..74 => host.wish(mirror, topic, DesiredState::Paused),
            74..86 => host.wish(mirror, topic, DesiredState::Mirroring),
            86..94 => {
                host.recover(topic);
                Ok(())
            }
            94..97 => host.delete(mirror),
            _ if host.image().topic(topic).is_some() => host.allow_cuts(topic),
            _ => Ok(()),
        }
    }

    // Oracles.

    pub(crate) fn check(&mut self) -> Result<(), String> {
        let mut broken = self.registry.borrow().broken.clone();
        for host in &mut self.hosts {
            host.check_shown();
            broken.extend(host.disk.broken.iter().chain(&host.broken).cloned());
            broken.extend(host.disk.store.disk.broken.iter().cloned());
            let Some(up) = host.up.as_ref() else { continue };
            let copies = up.links.values().flat_map(|link| {
                link.copies
                    .values()
                    .filter_map(|copy| Some((&copy.at, link.engine.log(copy.key)?.epochs())))
            });
            for (at, epochs) in copies.chain(up.own.iter().map(|(at, log)| (at, log.epochs()))) {
                let newest = epochs.latest().map_or(LeaderEpoch::NONE, |it| it.epoch);
                let epoch = host.local_epoch(at);
                if newest > epoch {
                    broken.push(format!("{at} has epoch {newest}, its leader is at {epoch}"));
                }
            }
        }
        match broken.first() {
            None => Ok(()),
            Some(what) => Err(what.clone()),
        }
    }

    fn heal(&mut self) {
        self.is_healing = true;
        (self.plain.is_away, self.plain.is_replaced) = (false, false);
        for host in &mut self.hosts {
            host.crash();
            let store = &mut host.disk.store;
            (store.errors, store.full, store.dies_in) = (0, false, None);
        }
        for which in [A, S] {
            let outcome = self.hosts[which].start();
            self.after(which, outcome);
        }
        let wants = |host: &Host| {
            host.image().mirror_of("s0").map(|link| link.desired != DesiredState::Stopped)
        };
        if self.hosts.iter().all(|host| host.up.is_some() && wants(host) == Some(true)) {
            let outcome = self.hosts[S].wish("back", "s0", DesiredState::Stopped);
            self.after(S, outcome);
        }
    }

    /// One round without faults: everybody does all that there is to do.
    pub(crate) fn round(&mut self, seconds: u64) {
        for which in [A, S] {
            let host = &mut self.hosts[which];
            if host.up.is_none() {
                continue;
            }
            host.now = host.now.after(Duration::from_secs(seconds));
            for at in partitions(&self.hosts[which]) {
                self.open_own(which, &at);
            }
            let outcome = self.refresh(which);
            self.after(which, outcome);
            for _ in 0..4 {
                self.task(which);
                self.after(which, Ok(()));
            }
            for (host, mirror, source) in MIRRORS {
                if host != which {
                    continue;
                }
                for at in partitions(&self.hosts[which]) {
                    let image = self.hosts[which].image();
                    let link = image.mirror_of(&at.topic);
                    let id = image.topic(&at.topic).map_or(TopicId::NONE, |topic| topic.id);
                    if link.is_some_and(|link| link.mirror == mirror) {
                        self.job_step_of(which, &Arc::from(mirror), source, &at, id);
                    }
                }
                self.turn(which, &Arc::from(mirror), source, 200, 8);
            }
            while self.hosts[which].up.is_some() {
                let news = self.hosts[which].take_news();
                let more = matches!(news, Ok(true));
                self.after(which, news.map(|_| ()));
                if !more {
                    break;
                }
            }
        }
    }

    /// Opens what clients read and write, so that others can fetch from it.
    fn open_own(&mut self, which: usize, at: &TopicPartition) {
        let host = &mut self.hosts[which];
        let is_open = host.up.as_ref().is_some_and(|up| up.own.contains_key(at));
        if is_open || !host.is_writable(at) {
            return;
        }
        let id = host.image().topic(&at.topic).map_or(TopicId::NONE, |topic| topic.id);
        if let Ok(log) = host.open(at, id)
            && let Some(up) = host.up.as_mut()
        {
            up.own.insert(at.clone(), log);
        }
    }

    fn converge(&mut self) -> Result<(), String> {
        let mut trouble = String::new();
        for round in 0..120 {
            self.round(40);
            self.check()?;
            if round % 20 == 10 {
                for which in [A, S] {
                    for at in partitions(&self.hosts[which]) {
                        self.hosts[which].recover(&at.topic);
                    }
                    self.after(which, Ok(()));
                }
            }
            if round < 30 {
                continue;
            }
            trouble = self.unconverged().unwrap_or_default();
            if trouble.is_empty() {
                return self.check();
            }
        }
        Err(format!("never settles: {trouble}"))
    }

    /// What is not as it is wanted.
    fn unconverged(&mut self) -> Option<String> {
        for which in [A, S] {
            let host = &self.hosts[which];
            if host.up.is_none() {
                return Some(format!("{} does not stay up", host.cluster));
            }
            for at in partitions(host) {
                let Some(link) = host.image().mirror_of(&at.topic) else { continue };
                let source = MIRRORS.iter().find(|it| it.1 == link.mirror).map_or("", |it| it.2);
                let keys = host.keys_of(&at.topic);
                let key = keys.iter().find(|key| key.partition == at.partition)?;
                let known = host.up.as_ref()?.mirrors.get(key)?;
                let name =
                    format!("{} {at} of {}, {:?}", host.cluster, link.mirror, known.stored());
                let is_there = match (link.desired, known.state()) {
                    (_, MirrorState::Failed) => {
                        let stored = known.stored();
                        stored.attempts.counted().is_none() && stored.reason.is_some()
                    }
                    (DesiredState::Stopped, MirrorState::Stopped)
                    | (DesiredState::Paused, MirrorState::Paused | MirrorState::Unknown) => true,
                    (DesiredState::Mirroring, MirrorState::Mirroring) => {
                        match self.compare(which, source, &at, key.topic) {
                            Ok(()) => true,
                            Err(what) => return Some(format!("{name}: {what}")),
                        }
                    }
                    _ => false,
                };
                if !is_there {
                    return Some(format!("{name} is wanted {:?}", link.desired));
                }
            }
        }
        None
    }

    fn compare(
        &self,
        which: usize,
        source: &str,
        at: &TopicPartition,
        id: TopicId,
    ) -> Result<(), String> {
        let Seen::Is(view) = self.seen(source, at, id) else { return Err("no source".to_owned()) };
        let Some((log, batches)) = self.hosts[which].look(at) else {
            return Err("no log".to_owned());
        };
        oracle::same(&batches, &view.batches, log.log_start())
    }
}

fn partitions(host: &Host) -> Vec<TopicPartition> {
    if host.up.is_none() {
        return Vec::new();
    }
    let all = host.image().topics().flat_map(|topic| {
        let at = |index| TopicPartition::new(Arc::clone(&topic.name), index);
        (0..topic.partition_count()).map(at).collect::<Vec<_>>()
    });
    all.collect()
}

/// Data, or a transaction's end.
fn next_batch(
    chance: &mut Chance,
    registry: &RefCell<Registry>,
    end: Offset,
    epoch: LeaderEpoch,
    open: &mut Vec<i64>,
) -> (Vec<u8>, i64) {
    let mark = registry.borrow_mut().mark();
    if !open.is_empty() && chance.percent(30) {
        let id = open.remove(chance.below(open.len()));
        return (marker(end, epoch, id, chance.percent(60)), 1);
    }
    let count = i64::try_from(chance.between(1, 3)).unwrap_or(1);
    let producer = chance.percent(25).then(|| {
        // A number that nobody else has.
        let id = i64::try_from(mark).unwrap_or(0);
        open.push(id);
        id
    });
    (records(end, epoch, mark, count, producer), count)
}
