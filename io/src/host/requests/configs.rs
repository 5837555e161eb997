//! Configs of mirrors, topics and this broker; and what a change of them leads to.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use heliostat_core::config::{
    ConfigChange as Effect, Key, KeyType, MirrorLevelConfig, ThrottledPartitions,
};
use heliostat_core::metadata::controller::{
    ConfigChange, ConfigOp, ConfigOpKind, alter_configs, keys_of,
};
use heliostat_core::metadata::image::{MIRROR_NAME, MetadataImage, ResourceType};
use heliostat_core::metadata::record::is_sensitive;
use heliostat_core::protocol::ErrorCode;

use super::super::HostError;
use super::super::run::Host;
use super::refusal;
use crate::listener::control::{
    AlterOperation, ConfigEntry, ConfigResource, ConfigSynonym, ConfigsAnswer, ConfigsChange,
    ConfigsQuery, Refusal, ResourceKind, ResourceOutcome, ResourceQuery,
};

/// Kafka's numbers of where a value comes from.
const DYNAMIC_TOPIC: i8 = 1;
const DYNAMIC_BROKER: i8 = 2;
const DYNAMIC_DEFAULT_BROKER: i8 = 3;
const DEFAULT: i8 = 5;
/// Of a mirror: what Kafka's tools know as a dynamic value of no kind of theirs.
const DYNAMIC_MIRROR: i8 = 0;

/// Applied to mirrors at once, without new connections.
pub(in crate::host) const THROTTLED_RATE: &str = "mirror.replication.throttled.rate";
const THROTTLED_REPLICAS: &str = "mirror.replication.throttled.replicas";

impl Host {
    pub(super) fn describe_configs(&self, query: &ConfigsQuery) -> Vec<ConfigsAnswer> {
        let of = |asked: &ResourceQuery| ConfigsAnswer {
            resource: asked.resource.clone(),
            result: self.configs_of(asked, query),
        };
        query.resources.iter().map(of).collect()
    }

    fn configs_of(
        &self,
        asked: &ResourceQuery,
        query: &ConfigsQuery,
    ) -> Result<Vec<ConfigEntry>, Refusal> {
        let ConfigResource { kind, name } = &asked.resource;
        self.check_resource(*kind, name)?;
        let image = self.image();
        let kind = ResourceType(kind.0);
        let is_asked = |key: &str| {
            asked.keys.as_ref().is_none_or(|keys| keys.iter().any(|asked| asked == key))
        };
        let entries = keys_of(kind).iter().filter(|key| is_asked(key.name)).map(|key| {
            let set = image.config(kind, name, key.name);
            // The defaults of all brokers have no name.
            let shared = (kind == ResourceType::BROKER && !name.is_empty())
                .then(|| image.config(kind, "", key.name))
                .flatten();
            entry(key, kind, name, (set, shared), query)
        });
        Ok(entries.collect())
    }

    fn check_resource(&self, kind: ResourceKind, name: &str) -> Result<(), Refusal> {
        match kind {
            ResourceKind::TOPIC if self.image().topic(name).is_none() => {
                Err(Refusal::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, format!("no topic {name}")))
            }
            ResourceKind::CLUSTER_MIRROR if !self.image().has_mirror(name) => {
                let message = format!("mirror {name} is not known");
                Err(Refusal::new(ErrorCode::UNKNOWN_CLUSTER_MIRROR, message))
            }
            ResourceKind::BROKER
                if !name.is_empty() && *name != self.config.node_id.to_string() =>
            {
                let message = format!("this is broker {}", self.config.node_id);
                Err(Refusal::new(ErrorCode::INVALID_REQUEST, message))
            }
            ResourceKind::TOPIC | ResourceKind::CLUSTER_MIRROR | ResourceKind::BROKER => Ok(()),
            ResourceKind(other) => {
                let message = format!("resources of type {other} have no configs here");
                Err(Refusal::new(ErrorCode::INVALID_REQUEST, message))
            }
        }
    }

    pub(super) async fn alter_configs(
        &mut self,
        asked: ConfigsChange,
    ) -> Result<Vec<ResourceOutcome>, HostError> {
        let mut refused = BTreeMap::new();
        let mut changes = Vec::new();
        for one in &asked.resources {
            let ops = one.changes.iter().map(|change| ConfigOp {
                key: change.name.clone(),
                kind: match change.operation {
                    AlterOperation::Set => ConfigOpKind::Set,
                    AlterOperation::Delete => ConfigOpKind::Delete,
                    AlterOperation::Append => ConfigOpKind::Append,
                    AlterOperation::Subtract => ConfigOpKind::Subtract,
                },
                value: change.value.clone(),
            });
            let kind = ResourceType(one.resource.kind.0);
            let name = one.resource.name.clone();
            let change = ConfigChange { kind, name, ops: ops.collect() };
            match self.check_effect(&change) {
                Ok(()) => changes.push(change),
                Err(refusal) => drop(refused.insert(one.resource.clone(), refusal)),
            }
        }
        let decision = alter_configs(self.image(), &changes);
        let mirrors: Vec<String> = changes
            .iter()
            .filter(|change| change.kind == ResourceType::MIRROR)
            .map(|change| change.name.clone())
            .collect();
        let is_default = |op: &ConfigOp| op.key != THROTTLED_RATE;
        let defaults_changed = changes
            .iter()
            .any(|it| it.kind == ResourceType::BROKER && it.ops.iter().any(is_default));
        if !asked.validate_only {
            self.journal.decide(decision.records).await?;
            for mirror in mirrors {
                self.reload(&mirror);
            }
            if defaults_changed {
                // Every mirror may go by them: its end starts the next job.
                self.links.values_mut().for_each(|link| link.end());
            }
            self.apply_throttle();
        }
        let mut answers = decision.answer.into_iter();
        let mut out = Vec::new();
        for one in asked.resources {
            let result = match refused.remove(&one.resource) {
                Some(refusal) => Err(refusal),
                None => answers.next().map_or(Ok(()), |it| it.result.map_err(refusal)),
            };
            out.push(ResourceOutcome { resource: one.resource, result });
        }
        Ok(out)
    }

    /// A mirror's configs have to be such that its fetchers can start with them.
    fn check_effect(&self, change: &ConfigChange) -> Result<(), Refusal> {
        if change.kind != ResourceType::MIRROR || !self.image().has_mirror(&change.name) {
            return Ok(());
        }
        let decision = alter_configs(self.image(), std::slice::from_ref(change));
        let mut image = self.image().clone();
        for record in &decision.records {
            if image.apply(record).is_err() {
                // The controller says what is wrong with it.
                return Ok(());
            }
        }
        let after = pairs(&image, &change.name);
        let invalid = |error: heliostat_core::config::ConfigError| {
            Refusal::new(ErrorCode::INVALID_CONFIG, error.to_string())
        };
        MirrorLevelConfig::check_identity(&pairs(self.image(), &change.name), &after)
            .map_err(invalid)?;
        MirrorLevelConfig::from_pairs(&self.mirror_defaults(), after).map_err(invalid)?;
        Ok(())
    }

    /// The mirror goes by what is stored now: with new connections, if need be.
    fn reload(&mut self, mirror: &str) {
        let after = pairs(self.image(), mirror);
        let Some(link) = self.links.get_mut(mirror) else {
            // It could not start with what it had before.
            let mirror: Arc<str> = Arc::from(mirror);
            self.start_link(&mirror);
            self.watch_topics(&mirror);
            return;
        };
        match MirrorLevelConfig::change(&link.stored, &after) {
            Effect::Nothing => {}
            Effect::Filters => self.reload_filters(mirror),
            // Its end starts the next one.
            Effect::Reconnect => link.end(),
        }
    }

    /// The mirror's patterns are those that are stored now.
    pub(in crate::host) fn reload_filters(&mut self, mirror: &str) {
        let after = pairs(self.image(), mirror);
        let defaults = self.mirror_defaults();
        let Some(link) = self.links.get_mut(mirror) else { return };
        match MirrorLevelConfig::from_pairs(&defaults, after.clone()) {
            Ok(config) => {
                link.config = Rc::new(config);
                link.stored = after;
            }
            Err(error) => tracing::error!("mirror {mirror}: {error}"),
        }
    }

    /// The throttle of all mirrors, as the broker's and the topics' configs have it.
    pub(in crate::host) fn apply_throttle(&mut self) {
        let image = self.image();
        let node = self.config.node_id.to_string();
        let rate = image
            .config(ResourceType::BROKER, &node, THROTTLED_RATE)
            .or_else(|| image.config(ResourceType::BROKER, "", THROTTLED_RATE))
            .and_then(|rate| rate.parse::<u64>().ok());
        let unlimited = u64::try_from(i64::MAX).unwrap_or(u64::MAX);
        let rate = rate.filter(|rate| *rate < unlimited);
        let mut named = BTreeMap::new();
        for topic in image.topics() {
            let Some(value) = image.config(ResourceType::TOPIC, &topic.name, THROTTLED_REPLICAS)
            else {
                continue;
            };
            throttle(&mut named, &topic.name, value, &node);
        }
        let partitions = ThrottledPartitions::Named(named);
        for (mirror, link) in &self.links {
            if !link.handle.set_throttle(rate, partitions.clone()) {
                tracing::warn!("mirror {mirror}: the throttle was not changed; alter it again");
            }
        }
    }
}

/// What a topic's value throttles on a node, among the other topics'.
fn throttle(
    named: &mut BTreeMap<Arc<str>, Option<BTreeSet<i32>>>,
    topic: &Arc<str>,
    value: &str,
    node: &str,
) {
    if value.trim() == "*" {
        named.insert(Arc::clone(topic), None);
        return;
    }
    let entries = value.split(',').map(str::trim).filter_map(|entry| entry.split_once(':'));
    let ours = entries.filter(|(_, broker)| *broker == node);
    let partitions: BTreeSet<i32> =
        ours.filter_map(|(partition, _)| partition.parse().ok()).collect();
    if !partitions.is_empty() {
        named.insert(Arc::clone(topic), Some(partitions));
    }
}

fn pairs(image: &MetadataImage, mirror: &str) -> BTreeMap<String, String> {
    let configs = image.configs(ResourceType::MIRROR, mirror).into_iter();
    configs
        .flat_map(heliostat_core::metadata::image::Configs::iter)
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

fn entry(
    key: &Key,
    kind: ResourceType,
    name: &str,
    (set, shared): (Option<&str>, Option<&str>),
    query: &ConfigsQuery,
) -> ConfigEntry {
    let is_sensitive = is_sensitive(key.name);
    let own = match kind {
        ResourceType::TOPIC => DYNAMIC_TOPIC,
        ResourceType::BROKER if name.is_empty() => DYNAMIC_DEFAULT_BROKER,
        ResourceType::BROKER => DYNAMIC_BROKER,
        _ => DYNAMIC_MIRROR,
    };
    let layers = [
        set.map(|value| (value, own)),
        shared.map(|value| (value, DYNAMIC_DEFAULT_BROKER)),
        Some((key.default, DEFAULT)),
    ];
    let layers: Vec<(&str, i8)> = layers.into_iter().flatten().collect();
    let shown = |value: &str| (!is_sensitive).then(|| value.to_owned());
    let (value, source) = layers.first().copied().unwrap_or((key.default, DEFAULT));
    let synonym = |(value, source): &(&str, i8)| ConfigSynonym {
        name: key.name.to_owned(),
        value: shown(value),
        source: *source,
    };
    ConfigEntry {
        name: key.name.to_owned(),
        value: shown(value),
        read_only: key.name == MIRROR_NAME,
        source,
        is_sensitive,
        synonyms: if query.include_synonyms {
            layers.iter().map(synonym).collect()
        } else {
            Vec::new()
        },
        config_type: config_type(key.values),
        documentation: query.include_documentation.then(|| key.doc.to_owned()),
    }
}

/// Numbers within it are of Kafka's type int.
const INT_RANGE: std::ops::RangeInclusive<i64> = -2_147_483_648..=2_147_483_647;

/// Kafka's number of a type.
fn config_type(kind: KeyType) -> i8 {
    match kind {
        KeyType::Boolean => 1,
        KeyType::Text | KeyType::OneOf(_) => 2,
        KeyType::List => 7,
        KeyType::Number { min, max } if INT_RANGE.contains(&min) && INT_RANGE.contains(&max) => 3,
        KeyType::Number { .. } => 5,
    }
}
