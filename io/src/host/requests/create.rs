//! A mirror is made: its source is asked who it is first.

use std::collections::BTreeMap;
use std::str::FromStr;

use heliostat_core::config::{AdminConfig, MIRROR_SOURCE_CLUSTER_ID, MirrorLevelConfig};
use heliostat_core::coordinator::state_log::MIRROR_STATE_TOPIC;
use heliostat_core::metadata::controller::{
    NewTopic, Refusal as Refused, TopicDefaults, create_mirror, create_topics,
};
use heliostat_core::metadata::record::MetadataRecord;
use heliostat_core::protocol::ErrorCode;
use heliostat_core::protocol::mirror::{
    ClusterMirrorConfig, ClusterMirrorResponse, CreateClusterMirrorRequest,
};
use heliostat_core::types::TopicId;
use uuid::Uuid;

use super::super::HostError;
use super::super::run::{Host, News};
use super::{Ready, named, of_mirror};
use crate::admin::AdminClient;
use crate::listener::control::{ControlReply, ControlResponse};
use crate::source_client::HostPort;

fn refused(code: ErrorCode, message: impl Into<String>) -> Refused {
    Refused { code, message: message.into() }
}

impl Host {
    /// Asks the source of a mirror that is to be made for its cluster ID.
    pub(super) fn resolve_source(
        &mut self,
        asked: CreateClusterMirrorRequest,
        reply: ControlReply,
    ) {
        let level = match self.checked(&asked) {
            Ok(level) => level,
            Err(refused) => {
                let response = of_mirror(Err(refused));
                reply.answer(ControlResponse::CreateClusterMirror(response));
                return;
            }
        };
        let mut client = self.source_admin(&asked.mirror_name, &level);
        let sender = self.news_sender.clone();
        tokio::task::spawn_local(async move {
            let resolved = client.metadata(Some(&[])).await;
            let resolved =
                resolved.map(|metadata| metadata.cluster_id).map_err(|error| error.to_string());
            let _ = sender.send(News::Ready(Box::new(Ready::Create(asked, reply, resolved))));
        });
    }

    /// The configs of a mirror that is to be made, once all is checked that needs no source.
    fn checked(&self, asked: &CreateClusterMirrorRequest) -> Result<MirrorLevelConfig, Refused> {
        let mut placed = asked.clone();
        if !placed.config.iter().any(|it| it.name == MIRROR_SOURCE_CLUSTER_ID) {
            let name = MIRROR_SOURCE_CLUSTER_ID.to_owned();
            placed.config.push(ClusterMirrorConfig { name, value: Some("unknown".to_owned()) });
        }
        create_mirror(self.image(), &placed)?;
        if self.links.contains_key(asked.mirror_name.as_str()) {
            let message = format!(
                "a mirror {} was deleted a moment ago and still ends; try again",
                asked.mirror_name
            );
            return Err(refused(ErrorCode::INVALID_CLUSTER_MIRROR_STATES, message));
        }
        let pairs = asked.config.iter().filter_map(|it| Some((it.name.clone(), it.value.clone()?)));
        let pairs: BTreeMap<String, String> = pairs.collect();
        if pairs.get("bootstrap.servers").is_none_or(|servers| servers.trim().is_empty()) {
            let message = "bootstrap.servers is missing: name brokers of the source";
            return Err(refused(ErrorCode::INVALID_REQUEST, message));
        }
        MirrorLevelConfig::from_pairs(&self.mirror_defaults(), pairs)
            .map_err(|error| refused(ErrorCode::INVALID_CONFIG, error.to_string()))
    }

    /// A client of a mirror's source.
    pub(in crate::host) fn source_admin(
        &self,
        mirror: &str,
        level: &MirrorLevelConfig,
    ) -> AdminClient {
        let source = &level.source;
        let servers = source.bootstrap_servers.iter();
        let config = AdminConfig {
            client_id: format!("mirror-src-admin-{mirror}-{}", self.config.node_id),
            request_timeout: source.request_timeout.min(super::super::SOURCE_ANSWERS_WITHIN),
            api_timeout: super::super::SOURCE_ANSWERS_WITHIN,
            connection_setup_timeout: source.connection_setup_timeout,
        };
        let servers = servers.filter_map(|server| HostPort::from_str(server).ok()).collect();
        AdminClient::new(servers, config)
    }

    pub(super) async fn create_mirror(
        &mut self,
        mut asked: CreateClusterMirrorRequest,
        resolved: Result<Option<String>, String>,
    ) -> Result<ClusterMirrorResponse, HostError> {
        let mirror = asked.mirror_name.clone();
        if let Err(refused) = self.identify(&mut asked, resolved) {
            return Ok(of_mirror(Err(refused)));
        }
        let decision = match create_mirror(self.image(), &asked) {
            Ok(decision) => decision,
            Err(refused) => return Ok(of_mirror(Err(refused))),
        };
        let mut records = self.state_topic();
        records.extend(decision.records);
        self.journal.decide(records).await?;
        let name = named(&mirror);
        self.start_link(&name);
        self.watch_topics(&mirror);
        self.apply_throttle();
        Ok(of_mirror(Ok(())))
    }

    /// The topic of the states, which comes with the first mirror.
    fn state_topic(&self) -> Vec<MetadataRecord> {
        if self.image().topic(MIRROR_STATE_TOPIC).is_some() {
            return Vec::new();
        }
        let config = |key: &str, value: &str| (key.to_owned(), Some(value.to_owned()));
        let partitions = self.journal.states().partition_count();
        let topic = NewTopic {
            name: MIRROR_STATE_TOPIC.to_owned(),
            topic_id: TopicId::NONE,
            partitions: i32::from(partitions),
            replication_factor: 1,
            assignments: Vec::new(),
            configs: vec![
                config("cleanup.policy", "compact"),
                config("compression.type", "producer"),
                config("retention.ms", "-1"),
            ],
        };
        let node = self.config.node_id;
        let defaults = TopicDefaults { node, partitions: i32::from(partitions) };
        let mut new_id = || TopicId(Uuid::new_v4());
        create_topics(self.image(), &[topic], defaults, &mut new_id).records
    }

    /// Puts the source's cluster ID among the configs. What the client put there is checked.
    fn identify(
        &self,
        asked: &mut CreateClusterMirrorRequest,
        resolved: Result<Option<String>, String>,
    ) -> Result<(), Refused> {
        let found = resolved.map_err(|reason| {
            let message = format!("the source cannot be asked for its cluster ID: {reason}");
            refused(ErrorCode::INVALID_REQUEST, message)
        })?;
        let found = found.ok_or_else(|| {
            let message = "the source tells no cluster ID; Kafka 0.10.1 and newer have one";
            refused(ErrorCode::INVALID_REQUEST, message)
        })?;
        if self.log_dir.borrow().cluster_id() == Some(found.as_str()) {
            let message = format!("cluster {found} is this one: a mirror of itself has no source");
            return Err(refused(ErrorCode::INVALID_REQUEST, message));
        }
        let given = asked.config.iter().find(|it| it.name == MIRROR_SOURCE_CLUSTER_ID);
        match given.and_then(|it| it.value.as_deref()) {
            Some(given) if given != found => {
                let message = format!(
                    "{MIRROR_SOURCE_CLUSTER_ID} is {given}, but cluster {found} answers; correct \
                     either, or leave it out"
                );
                Err(refused(ErrorCode::INVALID_CONFIG, message))
            }
            _ => {
                asked.config.retain(|it| it.name != MIRROR_SOURCE_CLUSTER_ID);
                asked.config.push(ClusterMirrorConfig {
                    name: MIRROR_SOURCE_CLUSTER_ID.to_owned(),
                    value: Some(found),
                });
                Ok(())
            }
        }
    }
}
