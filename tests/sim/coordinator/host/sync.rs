//! What a source's metadata changes.

use std::sync::Arc;

use heliostat_core::coordinator::DesiredState;
use heliostat_core::coordinator::bump::{above, is_near};
use heliostat_core::coordinator::partition::Event;
use heliostat_core::metadata::controller::{GrowTopic, create_partitions};
use heliostat_core::types::TopicPartition;

use super::{Down, Host, NODE, Sabotage, Told, other_cluster};
use crate::job::Order;

impl Host {
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

    pub(super) fn is_the_source(&mut self, mirror: &Arc<str>, told: &Told) -> bool {
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

    pub(super) fn grow(&mut self, mirror: &str, told: &Told) -> Result<(), Down> {
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
}
