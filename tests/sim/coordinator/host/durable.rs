//! What has to be in a log before anybody hears of it: decisions, and states.

use std::collections::BTreeSet;

use heliostat_core::coordinator::StateRecord;
use heliostat_core::coordinator::state_log::{AppendAs, Replayed, StateAppendError};
use heliostat_core::metadata::controller::{Decision, Refusal};
use heliostat_core::metadata::image::MetadataImage;
use heliostat_core::metadata::record::MetadataRecord;

use super::{Down, Host, NOW, Sabotage};

impl Host {
    pub(super) fn decide_by<A>(
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
    pub(super) fn check_found(&mut self, image: &MetadataImage, found: &Replayed) {
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
}
