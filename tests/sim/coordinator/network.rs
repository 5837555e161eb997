//! What happens between a shard, its disk and its source, in an order that chance picks.

use std::sync::Arc;
use std::time::Duration;

use heliostat_core::types::{TopicId, TopicPartition};

use crate::broker::{How, answer};
use crate::engine::Next;
use crate::host::Sabotage;
use crate::rng::Chance;
use crate::source::{Seen, View};
use crate::world::{A, S, World};

impl World {
    /// Things happen to the shard of a mirror, at most `events`; where nothing does, time passes, at
    /// most `waits` times.
    pub(crate) fn turn(
        &mut self,
        which: usize,
        mirror: &Arc<str>,
        source: &str,
        events: usize,
        waits: usize,
    ) {
        let mut waits = waits;
        for _ in 0..events {
            let has_source = self.has_source(source);
            let host = &mut self.hosts[which];
            let Some(up) = host.up.as_mut().filter(|_| !host.disk.store.dead) else { return };
            let Some(link) = up.links.get_mut(mirror) else { return };
            let mut all = link.engine.possible(host.now, has_source);
            let on_disk = host.disk.store.disk.in_flight().min(2);
            let draw = self.network.below(all.len() + on_disk);
            if all.is_empty() && on_disk == 0 {
                let next = link.engine.next_deadline();
                if waits == 0 || next > host.now.after(Duration::from_millis(600)) {
                    return host.take_reports(mirror);
                }
                (waits, host.now) = (waits - 1, next);
                continue;
            }
            let is_busy = !self.is_healing && self.network.percent(3);
            link.copies.values().for_each(|copy| copy.reader.set_busy(is_busy));
            if draw >= all.len() {
                host.complete_one();
            } else {
                self.happens(which, mirror, source, all.swap_remove(draw));
            }
        }
        self.hosts[which].take_reports(mirror);
    }

    fn has_source(&self, source: &str) -> bool {
        match source {
            "K" => !self.plain.is_away && !self.plain.is_replaced,
            "A" => self.hosts[A].up.is_some(),
            _ => self.hosts[S].up.is_some(),
        }
    }

    fn happens(&mut self, which: usize, mirror: &Arc<str>, source: &str, next: Next) {
        let goes_wrong = !self.is_healing && self.network.percent(1);
        let refused = !self.has_source(source) || goes_wrong;
        let host = &mut self.hosts[which];
        let Some(link) = host.up.as_mut().and_then(|up| up.links.get_mut(mirror)) else { return };
        let (engine, store, now) = (&mut link.engine, &mut host.disk.store, host.now);
        match next {
            Next::Connect(id) if refused => engine.breaks(id, now, store),
            Next::Connect(id) => engine.connected(id, now, store),
            Next::Break(id) => engine.breaks(id, now, store),
            Next::Deadline => engine.on_deadline(now, store),
            Next::Bytes(id) => {
                let most = self.network.pick(&[40, 300, usize::MAX, usize::MAX]);
                engine.reads(id, most, now, store);
            }
            Next::Answer(id) => {
                let Some(frame) = engine.take_request(id) else { return };
                if goes_wrong && self.network.percent(50) {
                    host.disk.count("answer lost");
                    return;
                }
                let mut network = std::mem::replace(&mut self.network, Chance::new(0, 0));
                let look = |id, index| self.look_up(source, id, index);
                let is_blind = self.hosts[which].sabotaged(Sabotage::Blind);
                let how = How { is_healing: self.is_healing, is_blind };
                let mut answer = answer(&frame, &look, &mut network, how);
                if goes_wrong {
                    answer.truncate(network.between(1, answer.len() - 1));
                }
                self.network = network;
                let host = &mut self.hosts[which];
                let link = host.up.as_mut().and_then(|up| up.links.get_mut(mirror));
                if let Some(link) = link {
                    link.engine.sends(id, &answer, goes_wrong);
                }
            }
        }
    }

    /// A partition of a source by its topic's ID.
    fn look_up(&self, source: &str, id: TopicId, index: i32) -> Seen {
        let name = match source {
            "K" => {
                let has_it = |all: &&Vec<View>| all[0].id == id;
                let found = self.plain.topics.iter().find(|(_, all)| has_it(all));
                found.map(|(name, _)| Arc::from(name.as_str()))
            }
            other => {
                let image = self.hosts[if other == "A" { A } else { S }].image();
                image.topic_by_id(id).map(|topic| Arc::clone(&topic.name))
            }
        };
        match name {
            Some(name) => self.seen(source, &TopicPartition::new(name, index), id),
            None => Seen::Gone,
        }
    }

    pub(crate) fn job_step_of(
        &mut self,
        which: usize,
        mirror: &Arc<str>,
        source: &str,
        at: &TopicPartition,
        id: TopicId,
    ) {
        let seen = self.seen(source, at, id);
        self.hosts[which].job_step(mirror, at, &seen);
    }
}
