//! What a source's metadata changes: identity, epochs, growth, discovery, excludes.

use std::sync::Arc;

use heliostat_core::coordinator::bump::{above, is_near};
use heliostat_core::coordinator::partition::Event;
use heliostat_core::coordinator::{DesiredState, MirrorKey};
use heliostat_core::metadata::controller::{
    GrowTopic, create_partitions, first_refusal, start_mirror_topics, stop_mirror_topics,
};
use heliostat_core::protocol::Metadata;
use heliostat_core::protocol::mirror::{
    MirrorTopic, StartMirrorTopic, StartMirrorTopicsRequest, StopMirrorTopicsRequest,
};
use heliostat_core::types::{LeaderEpoch, TopicId, TopicPartition};
use uuid::Uuid;

use super::HostError;
use super::link::{Doing, Link, Running};
use super::run::Host;
use super::steps::other_cluster;

impl Link {
    /// The source's leader epoch as its metadata has it.
    pub(super) fn source_epoch(&self, at: &TopicPartition) -> LeaderEpoch {
        let topic = self.metadata.as_ref().zip(self.topics_at.get(&at.topic));
        let topic = topic.and_then(|(metadata, place)| metadata.topics.get(*place));
        let mut partitions = topic.into_iter().flat_map(|topic| &topic.partitions);
        let found = partitions.find(|it| it.index == at.partition);
        found.map_or(LeaderEpoch::NONE, |it| it.leader_epoch)
    }

    fn learn(&mut self, metadata: Box<Metadata>) {
        let names = metadata.topics.iter().map(|topic| Arc::clone(&topic.identity.name));
        self.topics_at = names.zip(0..).collect();
        self.metadata = Some(metadata);
    }
}

impl Host {
    /// A refresh, or the first word of a source.
    pub(super) async fn take_metadata(
        &mut self,
        mirror: &Arc<str>,
        metadata: Box<Metadata>,
    ) -> Result<(), HostError> {
        if !self.is_the_source(mirror, &metadata) {
            return Ok(());
        }
        self.grow(mirror, &metadata).await?;
        self.exclude(mirror).await?;
        self.discover(mirror, &metadata).await?;
        self.raise_near(mirror, &metadata).await?;
        if let Some(link) = self.links.get_mut(mirror) {
            link.learn(metadata);
        }
        Ok(())
    }

    /// Whether it is the cluster that the mirror was made of. If not, its partitions end, until
    /// an operator says otherwise.
    fn is_the_source(&mut self, mirror: &str, metadata: &Metadata) -> bool {
        let Some(link) = self.links.get_mut(mirror) else { return false };
        let known = link.config.source_cluster_id.clone();
        let found = metadata.cluster_id.clone();
        let (Some(known), Some(found)) = (known, found) else { return true };
        if known == found {
            link.other_cluster = None;
            return true;
        }
        if link.other_cluster.as_ref() == Some(&found) {
            return false;
        }
        link.other_cluster = Some(found.clone());
        // Stops and pauses need nothing of the source.
        let needs_source = |_: &TopicPartition, it: &mut Running| {
            !matches!(it.doing, Doing::Stops | Doing::Pauses)
        };
        let running: Vec<_> = link.running.extract_if(.., needs_source).collect();
        for (at, _) in &running {
            link.order(crate::control::steering::Order::Release { at: at.clone() });
        }
        for (_, it) in running {
            let failure = other_cluster(Some(&known), &found);
            self.report(&it.key, |run| Event::Failed(run, failure), it.run);
        }
        false
    }

    /// The periodic bump.
    pub(super) async fn raise_near(
        &mut self,
        mirror: &str,
        metadata: &Metadata,
    ) -> Result<(), HostError> {
        let mut wanted = Vec::new();
        for topic in &metadata.topics {
            let name = &topic.identity.name;
            let is_ours = |link: &heliostat_core::metadata::image::MirrorLink<'_>| {
                link.mirror == mirror && link.desired == DesiredState::Mirroring
            };
            let Some(known) = self.image().topic(name) else { continue };
            if !self.image().mirror_of(name).is_some_and(|link| is_ours(&link)) {
                continue;
            }
            for partition in &topic.partitions {
                let Some(local) = known.partition(partition.index) else { continue };
                let source = partition.leader_epoch;
                if is_near(source, local.leader_epoch) {
                    wanted.push((known.id, partition.index, above(source)));
                }
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        for (_, reason) in self.raise(wanted).await? {
            tracing::warn!("mirror {mirror}: leader epoch not raised: {reason}");
        }
        Ok(())
    }

    /// Partitions that the source has got are made here.
    async fn grow(&mut self, mirror: &str, metadata: &Metadata) -> Result<(), HostError> {
        let mut topics = Vec::new();
        for topic in &metadata.topics {
            let Some(known) = self.image().topic(&topic.identity.name) else { continue };
            let link = self.image().mirror_of(&known.name);
            let follows = link
                .is_some_and(|link| link.mirror == mirror && link.desired != DesiredState::Stopped);
            let same = topic.identity.id == TopicId::NONE || topic.identity.id == known.id;
            let count = i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX);
            if follows && same && count > known.partition_count() {
                let name = known.name.to_string();
                topics.push(GrowTopic { name, count, assignments: Vec::new() });
            }
        }
        if topics.is_empty() {
            return Ok(());
        }
        let decision = create_partitions(self.image(), &topics, self.config.node_id);
        if let Some(refusal) = first_refusal(&decision.answer) {
            tracing::warn!("mirror {mirror}: {refusal}");
        }
        self.journal.decide(decision.records).await?;
        for topic in topics {
            self.want(&topic.name);
        }
        Ok(())
    }

    /// Topics that are excluded by now are stopped.
    async fn exclude(&mut self, mirror: &str) -> Result<(), HostError> {
        let Some(link) = self.links.get(mirror) else { return Ok(()) };
        let config = &link.config;
        let excluded: Vec<MirrorTopic> = self
            .image()
            .topics_of(mirror)
            .filter(|(topic, desired)| {
                *desired == DesiredState::Mirroring && config.topics.excludes(&topic.name)
            })
            .map(|(topic, _)| MirrorTopic {
                topic_id: topic.id,
                topic_name: topic.name.to_string(),
            })
            .collect();
        if excluded.is_empty() {
            return Ok(());
        }
        let request = StopMirrorTopicsRequest {
            mirror_name: mirror.to_owned(),
            topics: excluded,
            ..StopMirrorTopicsRequest::default()
        };
        match stop_mirror_topics(self.image(), &request) {
            Ok(decision) => {
                self.journal.decide(decision.records).await?;
                for topic in request.topics {
                    self.want(&topic.topic_name);
                }
            }
            Err(refusal) => tracing::warn!("mirror {mirror}: {refusal}"),
        }
        Ok(())
    }

    /// Topics that the mirror's patterns include, and that are new here, are started.
    async fn discover(&mut self, mirror: &str, metadata: &Metadata) -> Result<(), HostError> {
        let Some(link) = self.links.get(mirror) else { return Ok(()) };
        let config = std::rc::Rc::clone(&link.config);
        let mut topics = Vec::new();
        for topic in &metadata.topics {
            let name = &topic.identity.name;
            // One that is here already is an operator's to name: clients may write to it.
            if self.image().topic(name).is_some() {
                continue;
            }
            let is_selected = config.topics.decide(name, topic.is_internal).is_selected();
            if is_selected && topic.error.is_none() && !topic.partitions.is_empty() {
                topics.push(StartMirrorTopic {
                    topic_id: topic.identity.id,
                    topic_name: name.to_string(),
                    num_partitions: i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX),
                });
            }
        }
        if topics.is_empty() {
            return Ok(());
        }
        let request = StartMirrorTopicsRequest {
            mirror_name: mirror.to_owned(),
            topics,
            ..StartMirrorTopicsRequest::default()
        };
        let mut new_id = || TopicId(Uuid::new_v4());
        match start_mirror_topics(self.image(), &request, self.config.node_id, &mut new_id) {
            Ok(decision) => {
                for refusal in decision.answer.iter().filter_map(|it| it.result.as_ref().err()) {
                    tracing::warn!(
                        "mirror {mirror}: a discovered topic is not mirrored: {refusal}"
                    );
                }
                self.journal.decide(decision.records).await?;
                self.note_made_up(&request.topics);
                self.watch_topics(mirror);
                for topic in request.topics {
                    self.want(&topic.topic_name);
                }
            }
            Err(refusal) => tracing::warn!("mirror {mirror}: {refusal}"),
        }
        Ok(())
    }

    /// Takes note of the IDs of topics whose source has none.
    pub(super) fn note_made_up(&mut self, topics: &[StartMirrorTopic]) {
        for topic in topics.iter().filter(|topic| topic.topic_id == TopicId::NONE) {
            let Some(known) = self.journal.image().topic(&topic.topic_name) else { continue };
            let noted = self.log_dir.borrow_mut().make_up_id(&known.name, known.id);
            if let Err(error) = noted {
                tracing::warn!("topic {}: its ID is not noted: {error}", topic.topic_name);
            }
        }
    }

    /// Keys of a topic's partitions in its mirror.
    pub(super) fn keys_of(&self, topic: &str) -> Vec<MirrorKey> {
        let image = self.image();
        let (Some(link), Some(known)) = (image.mirror_of(topic), image.topic(topic)) else {
            return Vec::new();
        };
        let mirror: Arc<str> = Arc::from(link.mirror);
        (0..known.partition_count())
            .map(|partition| MirrorKey { mirror: Arc::clone(&mirror), topic: known.id, partition })
            .collect()
    }
}
