//! Brokers, topics, features: what a cluster of one host answers.

use std::sync::Arc;

use heliostat_core::coordinator::state_log::MIRROR_STATE_TOPIC;
use heliostat_core::metadata::controller::{
    FeatureUpdate as Update, GrowTopic, NewTopic, Refusal as Refused, TopicDefaults, TopicKey,
    create_partitions, create_topics, delete_topics, update_feature,
};
use heliostat_core::metadata::image::{MIRROR_VERSION, TopicImage};
use heliostat_core::protocol::ErrorCode;
use heliostat_core::protocol::mirror::{CreateTopicsRequest, CreateTopicsResponse, CreatedTopic};
use heliostat_core::serve::NodeEndpoint;
use heliostat_core::types::{TopicId, TopicPartition};
use uuid::Uuid;

use super::super::HostError;
use super::super::run::Host;
use super::refusal;
use crate::listener::control::{
    ClusterAnswer, CoordinatorAnswer, CoordinatorKind, CoordinatorQuery, FeatureOutcome,
    FeaturesUpdate, MetadataAnswer, MetadataQuery, PartitionAnswer, PartitionsCreation, Refusal,
    TopicAnswer, TopicDeleted, TopicOutcome, TopicRef, TopicsDeletion, UpgradeKind,
};

/// `num.partitions`
const DEFAULT_PARTITIONS: i32 = 1;

impl Host {
    fn endpoint(&self) -> NodeEndpoint {
        let registered = self.image().broker(self.config.node_id);
        let end_point = registered.and_then(|broker| broker.registration.end_points.first());
        NodeEndpoint {
            node: self.config.node_id,
            host: end_point.map_or_else(|| Arc::from(""), |it| Arc::from(it.host.as_str())),
            port: end_point.map_or(0, |it| it.port),
        }
    }

    fn cluster_id(&self) -> String {
        self.log_dir.borrow().cluster_id().unwrap_or_default().to_owned()
    }

    pub(super) fn describe_cluster(&self) -> ClusterAnswer {
        ClusterAnswer {
            cluster_id: self.cluster_id(),
            controller: self.config.node_id,
            brokers: vec![self.endpoint()],
            authorized_operations: None,
        }
    }

    pub(super) fn metadata(&self, query: &MetadataQuery) -> MetadataAnswer {
        let image = self.image();
        let topics = match &query.topics {
            None => image.topics().map(Self::topic_answer).collect(),
            Some(asked) => asked.iter().map(|topic| self.find_topic(topic)).collect(),
        };
        MetadataAnswer {
            brokers: vec![self.endpoint()],
            cluster_id: self.cluster_id(),
            controller: self.config.node_id,
            topics,
            authorized_operations: None,
        }
    }

    fn find_topic(&self, asked: &TopicRef) -> TopicAnswer {
        let unknown = |error, name, topic_id| TopicAnswer {
            error,
            name,
            topic_id,
            is_internal: false,
            partitions: Vec::new(),
            authorized_operations: None,
        };
        match asked {
            TopicRef::Name(name) => self.image().topic(name).map_or_else(
                || {
                    let error = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
                    unknown(error, Some(name.clone()), TopicId::NONE)
                },
                Self::topic_answer,
            ),
            TopicRef::Id(id) => self.image().topic_by_id(*id).map_or_else(
                || unknown(ErrorCode::UNKNOWN_TOPIC_ID, None, *id),
                Self::topic_answer,
            ),
        }
    }

    fn topic_answer(topic: &TopicImage) -> TopicAnswer {
        let partition =
            |(partition, it): (i32, &heliostat_core::metadata::image::PartitionImage)| {
                PartitionAnswer {
                    error: ErrorCode::NONE,
                    partition,
                    leader: it.node,
                    leader_epoch: it.leader_epoch,
                    replicas: vec![it.node],
                    isr: vec![it.node],
                    offline_replicas: Vec::new(),
                }
            };
        TopicAnswer {
            error: ErrorCode::NONE,
            name: Some(topic.name.to_string()),
            topic_id: topic.id,
            is_internal: &*topic.name == MIRROR_STATE_TOPIC,
            partitions: (0..).zip(&topic.partitions).map(partition).collect(),
            authorized_operations: None,
        }
    }

    /// The one host coordinates all mirrors, and nothing else.
    pub(super) fn find_coordinator(&self, query: CoordinatorQuery) -> Vec<CoordinatorAnswer> {
        let of = |key: String| {
            let result = match query.kind {
                CoordinatorKind::ClusterMirror if key.is_empty() => {
                    Err(Refusal::new(ErrorCode::INVALID_REQUEST, "the key is empty"))
                }
                CoordinatorKind::ClusterMirror => Ok(self.endpoint()),
                CoordinatorKind::Group | CoordinatorKind::Transaction | CoordinatorKind::Share => {
                    let message = "this host coordinates mirrors, and neither groups nor \
                                   transactions";
                    Err(Refusal::new(ErrorCode::COORDINATOR_NOT_AVAILABLE, message))
                }
            };
            CoordinatorAnswer { key, result }
        };
        query.keys.into_iter().map(of).collect()
    }

    pub(super) async fn create_topics(
        &mut self,
        asked: CreateTopicsRequest,
    ) -> Result<CreateTopicsResponse, HostError> {
        let new = |topic: &heliostat_core::protocol::mirror::CreatableTopic| NewTopic {
            name: topic.name.clone(),
            topic_id: topic.mirror_info.as_ref().map_or(TopicId::NONE, |info| info.topic_id),
            partitions: topic.num_partitions,
            replication_factor: topic.replication_factor,
            assignments: topic
                .assignments
                .iter()
                .map(|it| {
                    let brokers = it.broker_ids.iter().map(|broker| broker.0).collect();
                    (it.partition_index, brokers)
                })
                .collect(),
            configs: topic.configs.iter().map(|it| (it.name.clone(), it.value.clone())).collect(),
        };
        let is_own = |topic: &NewTopic| topic.name == MIRROR_STATE_TOPIC;
        let (own, topics): (Vec<NewTopic>, Vec<NewTopic>) =
            asked.topics.iter().map(new).partition(is_own);
        let defaults = TopicDefaults { node: self.config.node_id, partitions: DEFAULT_PARTITIONS };
        let decision =
            create_topics(self.image(), &topics, defaults, &mut || TopicId(Uuid::new_v4()));
        if !asked.validate_only {
            self.journal.decide(decision.records).await?;
            for topic in &topics {
                self.show_made(&topic.name);
            }
        }
        let result = |named: heliostat_core::metadata::controller::Named<_>| {
            let mut out = CreatedTopic { name: named.name, ..CreatedTopic::default() };
            let result: Result<heliostat_core::metadata::controller::CreatedTopic, _> =
                named.result;
            match result {
                Ok(made) => {
                    out.topic_id = made.id;
                    out.num_partitions = made.partitions;
                    out.replication_factor = 1;
                }
                Err(refused) => {
                    out.error_code = refused.code.0;
                    out.error_message = Some(refused.message);
                }
            }
            out
        };
        let refused = own.into_iter().map(|topic| CreatedTopic {
            name: topic.name,
            error_code: ErrorCode::INVALID_TOPIC_EXCEPTION.0,
            error_message: Some("the first mirror makes it".to_owned()),
            ..CreatedTopic::default()
        });
        Ok(CreateTopicsResponse {
            topics: decision.answer.into_iter().map(result).chain(refused).collect(),
            ..CreateTopicsResponse::default()
        })
    }

    /// Topics of a mirror are not deleted here: it would copy them again.
    fn check_deletable(&self, key: &TopicKey) -> Result<(), Refusal> {
        let name = match key {
            TopicKey::Name(name) => Some(name.as_str()),
            TopicKey::Id(id) => self.image().topic_by_id(*id).map(|topic| &*topic.name),
        };
        if name == Some(MIRROR_STATE_TOPIC) {
            let message = "the states of all mirrors are in it";
            return Err(Refusal::new(ErrorCode::INVALID_REQUEST, message));
        }
        match name.and_then(|name| self.image().mirror_of(name)) {
            Some(link) => {
                let message = format!(
                    "the topic belongs to mirror {}: stop it there, and delete the mirror first",
                    link.mirror
                );
                Err(Refusal::new(ErrorCode::INVALID_REQUEST, message))
            }
            None => Ok(()),
        }
    }

    pub(super) async fn delete_topics(
        &mut self,
        asked: TopicsDeletion,
    ) -> Result<Vec<TopicDeleted>, HostError> {
        let mut out = Vec::new();
        let mut keys = Vec::new();
        for topic in asked.topics {
            let (key, name, topic_id) = match topic {
                TopicRef::Name(name) => (TopicKey::Name(name.clone()), Some(name), TopicId::NONE),
                TopicRef::Id(id) => (TopicKey::Id(id), None, id),
            };
            match self.check_deletable(&key) {
                Ok(()) => keys.push(key),
                Err(refused) => {
                    out.push(TopicDeleted { name, topic_id, result: Err(refused) });
                }
            }
        }
        let decision = delete_topics(self.image(), &keys);
        self.journal.decide(decision.records).await?;
        let gone = decision.answer.iter().filter(|it| it.result.is_ok());
        let gone: Vec<String> = gone.map(|it| it.name.clone()).collect();
        self.remove_files(gone).await;
        for named in decision.answer {
            let name = Some(named.name).filter(|name| !name.is_empty());
            let (topic_id, result) = match named.result {
                Ok(id) => (id, Ok(())),
                Err(refused) => (TopicId::NONE, Err(refusal(refused))),
            };
            out.push(TopicDeleted { name, topic_id, result });
        }
        Ok(out)
    }

    /// Removes the partitions' directories of topics that are no more. What a crash leaves of
    /// them is in nobody's way until a topic of the same name is made.
    async fn remove_files(&mut self, topics: Vec<String>) {
        for topic in &topics {
            self.log_dir.borrow_mut().forget_topic(topic);
        }
        let root = self.config.log_dir.clone();
        let removed = tokio::task::spawn_blocking(move || {
            for entry in std::fs::read_dir(&root)?.flatten() {
                let name = entry.file_name().into_string().unwrap_or_default();
                let at = TopicPartition::from_dir_name(&name);
                if at.is_some_and(|at| topics.iter().any(|topic| **topic == *at.topic)) {
                    std::fs::remove_dir_all(entry.path())?;
                }
            }
            std::fs::File::open(&root)?.sync_all()
        });
        match removed.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!("files of deleted topics are left: {error}; remove them by hand");
            }
            Err(bug) => std::panic::resume_unwind(bug.into_panic()),
        }
    }

    pub(super) async fn create_partitions(
        &mut self,
        asked: PartitionsCreation,
    ) -> Result<Vec<TopicOutcome>, HostError> {
        let grow = |topic: &crate::listener::control::PartitionsOfTopic| GrowTopic {
            name: topic.name.clone(),
            count: topic.count,
            assignments: topic
                .assignments
                .iter()
                .flatten()
                .map(|brokers| brokers.iter().map(|broker| broker.0).collect())
                .collect(),
        };
        let is_own = |topic: &GrowTopic| topic.name == MIRROR_STATE_TOPIC;
        let (own, topics): (Vec<GrowTopic>, Vec<GrowTopic>) =
            asked.topics.iter().map(grow).partition(is_own);
        let decision = create_partitions(self.image(), &topics, self.config.node_id);
        if !asked.validate_only {
            self.journal.decide(decision.records).await?;
            for topic in &topics {
                self.show_made(&topic.name);
                self.want(&topic.name);
            }
        }
        let outcome = |named: heliostat_core::metadata::controller::Named<()>| TopicOutcome {
            name: named.name,
            result: named.result.map_err(refusal),
        };
        let refused = own.into_iter().map(|topic| {
            let message = "where a state lives hangs on their number, which never changes";
            let result = Err(Refusal::new(ErrorCode::INVALID_PARTITIONS, message));
            TopicOutcome { name: topic.name, result }
        });
        Ok(decision.answer.into_iter().map(outcome).chain(refused).collect())
    }

    pub(super) async fn update_features(
        &mut self,
        asked: FeaturesUpdate,
    ) -> Result<Vec<FeatureOutcome>, HostError> {
        let mut out = Vec::new();
        for update in asked.updates {
            let wanted = Update {
                name: update.feature.clone(),
                level: update.level,
                allow_downgrade: update.upgrade != UpgradeKind::Upgrade,
            };
            let result = match update_feature(self.image(), &wanted) {
                Ok(decision) => {
                    if !asked.validate_only {
                        self.journal.decide(decision.records).await?;
                        let level = self.image().feature(MIRROR_VERSION);
                        let end = self.journal.metadata_end().0;
                        self.features.set_mirror_version(level, end);
                    }
                    Ok(())
                }
                Err(refused) => Err(refusal(refused)),
            };
            out.push(FeatureOutcome { feature: update.feature, result });
        }
        Ok(out)
    }
}

/// An error of the controller in the listener's words.
impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        refusal(refused)
    }
}
