//! A mirror's job: its partitions, its shard, and what its readers are shown.

use std::collections::BTreeMap;
use std::sync::Arc;

use heliostat_core::engine::message::{PartitionKey, Report};
use heliostat_core::log::disk::DiskOutcome;
use heliostat_core::types::{TopicId, TopicPartition};

use super::{Disk, Host, Link, News, Sabotage};
use crate::engine::untagged;
use crate::job::{At, Copy, Order};
use crate::registry::id;

impl Host {
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

    pub(super) fn completed(&mut self, mut outcome: DiskOutcome) {
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
                        if let Some(copy) = found {
                            copy.on_progress(&progress, disk);
                        }
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
