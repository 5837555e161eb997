//! What operators ask of a host, as `io/src/host/requests` does it.

use std::sync::Arc;

use heliostat_core::coordinator::partition::Event;
use heliostat_core::coordinator::state_log::tombstones;
use heliostat_core::coordinator::{DesiredState, MirrorKey, MirrorState, StateRecord};
use heliostat_core::metadata::controller::{
    NewTopic, SOURCE_CLUSTER_ID, TopicDefaults, create_mirror, create_topics, delete_mirror,
    pause_mirror_topics, resume_mirror_topics, start_mirror_topics, stop_mirror_topics,
};
use heliostat_core::metadata::image::{ResourceType, config_record};
use heliostat_core::protocol::mirror::{
    ClusterMirrorConfig, CreateClusterMirrorRequest, DeleteClusterMirrorRequest, MirrorTopic,
    PauseMirrorTopicsRequest, ResumeMirrorTopicsRequest, StartMirrorTopic,
    StartMirrorTopicsRequest, StopMirrorTopicsRequest,
};
use heliostat_core::types::{TopicId, TopicPartition};

use crate::host::{Down, Host, NODE};

impl Host {
    pub(crate) fn create_topic(&mut self, name: &str, id: TopicId) -> Result<(), Down> {
        let topic = NewTopic {
            name: name.to_owned(),
            topic_id: id,
            partitions: 1,
            replication_factor: 1,
            assignments: Vec::new(),
            configs: Vec::new(),
        };
        let defaults = TopicDefaults { node: NODE, partitions: 1 };
        let decision = create_topics(self.image(), &[topic], defaults, &mut || TopicId::NONE);
        self.decide(&decision.records)
    }

    pub(crate) fn create(&mut self, mirror: &str, source: &str) -> Result<(), Down> {
        let config = |name: &str, value: &str| ClusterMirrorConfig {
            name: name.to_owned(),
            value: Some(value.to_owned()),
        };
        let request = CreateClusterMirrorRequest {
            mirror_name: mirror.to_owned(),
            config: vec![config("bootstrap.servers", "h:1"), config(SOURCE_CLUSTER_ID, source)],
        };
        let Ok(decision) = create_mirror(self.image(), &request) else { return Ok(()) };
        self.decide(&decision.records)?;
        self.start_link(&Arc::from(mirror));
        Ok(())
    }

    pub(crate) fn keys_of(&self, topic: &str) -> Vec<MirrorKey> {
        let image = self.image();
        let (Some(link), Some(known)) = (image.mirror_of(topic), image.topic(topic)) else {
            return Vec::new();
        };
        let mirror: Arc<str> = Arc::from(link.mirror);
        (0..known.partition_count())
            .map(|partition| MirrorKey { mirror: Arc::clone(&mirror), topic: known.id, partition })
            .collect()
    }

    pub(crate) fn state(&self, key: &MirrorKey) -> MirrorState {
        let mirrors = self.up.as_ref().map(|up| &up.mirrors);
        mirrors.and_then(|it| it.get(key)).map_or(MirrorState::Unknown, |it| it.state())
    }

    fn is_stopped(&self, topic: &str) -> bool {
        let rests = |key| matches!(self.state(key), MirrorState::Stopped | MirrorState::Unknown);
        self.keys_of(topic).iter().all(rests)
    }

    /// `count` and `id` as the source has them.
    pub(crate) fn start_topic(
        &mut self,
        mirror: &str,
        topic: &str,
        id: TopicId,
        count: i32,
    ) -> Result<(), Down> {
        let link = self.image().mirror_of(topic);
        let waits = link.is_some_and(|link| link.desired == DesiredState::Stopped);
        if waits && !self.is_stopped(topic) {
            return Ok(());
        }
        let request = StartMirrorTopicsRequest {
            mirror_name: mirror.to_owned(),
            topics: vec![StartMirrorTopic {
                topic_id: id,
                topic_name: topic.to_owned(),
                num_partitions: count,
            }],
            ..StartMirrorTopicsRequest::default()
        };
        let decision = start_mirror_topics(self.image(), &request, NODE, &mut || TopicId::NONE);
        let Ok(decision) = decision else { return Ok(()) };
        self.decide(&decision.records)?;
        self.want(topic);
        Ok(())
    }

    pub(crate) fn wish(
        &mut self,
        mirror: &str,
        topic: &str,
        desired: DesiredState,
    ) -> Result<(), Down> {
        let mirror_name = mirror.to_owned();
        let topics = vec![MirrorTopic { topic_id: TopicId::NONE, topic_name: topic.to_owned() }];
        let image = self.image();
        let decision = match desired {
            DesiredState::Stopped => {
                let request = StopMirrorTopicsRequest { mirror_name, topics, ..Default::default() };
                stop_mirror_topics(image, &request)
            }
            DesiredState::Paused => {
                let request = PauseMirrorTopicsRequest { mirror_name, topics };
                pause_mirror_topics(image, &request)
            }
            DesiredState::Mirroring => {
                let request = ResumeMirrorTopicsRequest { mirror_name, topics };
                resume_mirror_topics(image, &request)
            }
        };
        let Ok(decision) = decision else { return Ok(()) };
        let is_done = decision.answer.iter().all(|it| it.result.is_ok());
        self.decide(&decision.records)?;
        if is_done {
            self.want(topic);
        }
        Ok(())
    }

    pub(crate) fn recover(&mut self, topic: &str) {
        for key in self.keys_of(topic) {
            let now = self.now;
            let up = self.up.as_mut().expect("up");
            up.mirrors.tell(&key, Event::Recover, now, 0);
        }
    }

    pub(crate) fn delete(&mut self, mirror: &str) -> Result<(), Down> {
        let request =
            DeleteClusterMirrorRequest { mirror_name: mirror.to_owned(), ..Default::default() };
        let Ok(decision) = delete_mirror(self.image(), &request) else { return Ok(()) };
        let topics: Vec<_> =
            self.image().topics_of(mirror).map(|(topic, _)| topic.name.to_string()).collect();
        if !topics.iter().all(|topic| self.is_stopped(topic)) {
            return Ok(());
        }
        self.disk.count("mirror deleted");
        self.decide(&decision.records)?;
        let keys = self.up.as_ref().map(|up| up.mirrors.keys_of(mirror)).unwrap_or_default();
        let records: Vec<StateRecord> = keys.iter().flat_map(tombstones).collect();
        let is_stored = self.store(&records).is_empty();
        let up = self.up.as_mut().expect("up");
        if !is_stored {
            up.mirrors.owe(records);
        }
        for key in &keys {
            let _ = up.mirrors.forget(key);
        }
        up.links.remove(mirror);
        Ok(())
    }

    pub(crate) fn allow_cuts(&mut self, topic: &str) -> Result<(), Down> {
        let key = "mirror.support.unclean.leader.election";
        let record = config_record(ResourceType::TOPIC, topic, key, Some("true"));
        self.decide(&[record.into()])
    }

    /// Whether a client may write.
    pub(crate) fn is_writable(&self, at: &TopicPartition) -> bool {
        let image = self.image();
        let Some(topic) = image.topic(&at.topic) else { return false };
        let Some(link) = image.mirror_of(&at.topic) else { return true };
        let key =
            MirrorKey { mirror: Arc::from(link.mirror), topic: topic.id, partition: at.partition };
        let up = self.up.as_ref().expect("up");
        up.mirrors.get(&key).is_some_and(|it| it.is_writable())
    }
}
