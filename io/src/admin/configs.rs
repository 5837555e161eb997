//! Configs of topics, brokers and mirrors.

use heliostat_core::protocol::Api;
use heliostat_core::protocol::admin::{
    AlterConfigsRequest, AlterConfigsResource, AlteredConfig, ConfigNames, DescribeConfigsRequest,
    DescribeConfigsResource, DescribedConfig,
};
use heliostat_core::types::BrokerId;

use super::client::AdminClient;
use super::error::AdminError;
use crate::source_client::HostPort;

/// Something that has configs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConfigResource {
    /// A topic, by name.
    Topic(String),
    /// A broker, by node ID.
    Broker(BrokerId),
    /// A mirror, by name.
    Mirror(String),
}

impl ConfigResource {
    /// Kafka's number of the kind.
    fn kind(&self) -> i8 {
        match self {
            Self::Topic(_) => 2,
            Self::Broker(_) => 4,
            Self::Mirror(_) => 64,
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Topic(name) | Self::Mirror(name) => name.clone(),
            Self::Broker(id) => id.0.to_string(),
        }
    }
}

/// Where a value comes from, by Kafka's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConfigSource(pub i8);

impl ConfigSource {
    /// Set on the topic.
    pub const DYNAMIC_TOPIC_CONFIG: Self = Self(1);
    /// Set on the broker.
    pub const DYNAMIC_BROKER_CONFIG: Self = Self(2);
    /// In the broker's file.
    pub const STATIC_BROKER_CONFIG: Self = Self(4);
    /// Set nowhere.
    pub const DEFAULT_CONFIG: Self = Self(5);

    /// Kafka's name of it.
    pub fn name(self) -> &'static str {
        match self.0 {
            1 => "DYNAMIC_TOPIC_CONFIG",
            2 => "DYNAMIC_BROKER_CONFIG",
            3 => "DYNAMIC_DEFAULT_BROKER_CONFIG",
            4 => "STATIC_BROKER_CONFIG",
            5 => "DEFAULT_CONFIG",
            6 => "DYNAMIC_BROKER_LOGGER_CONFIG",
            7 => "DYNAMIC_CLIENT_METRICS_CONFIG",
            8 => "DYNAMIC_GROUP_CONFIG",
            _ => "UNKNOWN",
        }
    }

    /// Whether it was set at run time, so that it can be taken away again.
    pub fn is_dynamic(self) -> bool {
        self != Self::STATIC_BROKER_CONFIG && self != Self::DEFAULT_CONFIG
    }
}

/// A config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// The key.
    pub name: String,
    /// The value; `None` for none, and for a secret.
    pub value: Option<String>,
    /// Where it comes from.
    pub source: ConfigSource,
    /// Whether the value is a secret.
    pub is_sensitive: bool,
    /// Whether nobody can alter it.
    pub is_read_only: bool,
    /// Where it could come from; the first counts.
    pub synonyms: Vec<ConfigSynonym>,
}

/// Where a value could come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigSynonym {
    /// The key there.
    pub name: String,
    /// The value there; `None` for none, and for a secret.
    pub value: Option<String>,
    /// Which place.
    pub source: ConfigSource,
}

/// What to do with a config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigOp {
    /// Give it this value.
    Set(String),
    /// Go back to the default.
    Delete,
    /// Add entries to the list.
    Append(String),
    /// Take entries from the list.
    Subtract(String),
}

impl ConfigOp {
    fn wire(&self) -> (i8, Option<String>) {
        match self {
            Self::Set(value) => (0, Some(value.clone())),
            Self::Delete => (1, None),
            Self::Append(value) => (2, Some(value.clone())),
            Self::Subtract(value) => (3, Some(value.clone())),
        }
    }
}

impl AdminClient {
    /// Configs of a resource, in the order of their names. A server sends no secret, and if
    /// one does, it goes no further.
    ///
    /// # Errors
    ///
    /// [`AdminError`].
    pub async fn describe_configs(
        &mut self,
        resource: &ConfigResource,
    ) -> Result<Vec<ConfigEntry>, AdminError> {
        let request = DescribeConfigsRequest {
            resources: vec![DescribeConfigsResource {
                resource_type: resource.kind(),
                resource_name: resource.name(),
                configuration_keys: ConfigNames(None),
            }],
            include_synonyms: true,
            include_documentation: false,
        };
        let answer = match self.owner(resource).await? {
            Some(peer) => self.read_of(&peer, &request).await?,
            None => self.read(&request).await?,
        };
        let found = answer.results.into_iter().find(|result| {
            result.resource_type == resource.kind() && result.resource_name == resource.name()
        });
        let missing =
            || AdminError::Incomplete { api: Api::DescribeConfigs, missing: resource.name() };
        let found = found.ok_or_else(missing)?;
        let mut entries: Vec<_> = found.configs.into_iter().map(entry).collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    /// Alters configs of a resource: all of them, or none. With `validate_only` they are only
    /// checked.
    ///
    /// # Errors
    ///
    /// [`AdminError`].
    pub async fn incremental_alter_configs(
        &mut self,
        resource: &ConfigResource,
        ops: impl IntoIterator<Item = (String, ConfigOp)>,
        validate_only: bool,
    ) -> Result<(), AdminError> {
        let altered = |(name, op): (String, ConfigOp)| {
            let (config_operation, value) = op.wire();
            AlteredConfig { name, config_operation, value }
        };
        let request = AlterConfigsRequest {
            resources: vec![AlterConfigsResource {
                resource_type: resource.kind(),
                resource_name: resource.name(),
                configs: ops.into_iter().map(altered).collect(),
            }],
            validate_only,
        };
        let peer = self.owner(resource).await?;
        self.change_of(peer.as_ref(), &request).await.map(drop)
    }

    /// The broker whose configs they are, if there are several: only it knows them.
    async fn owner(&mut self, resource: &ConfigResource) -> Result<Option<HostPort>, AdminError> {
        let ConfigResource::Broker(id) = resource else { return Ok(None) };
        let brokers = self.brokers().await?;
        if brokers.len() < 2 {
            return Ok(None);
        }
        Ok(brokers.into_iter().find(|(node, _)| node == id).map(|(_, peer)| peer))
    }
}

fn entry(config: DescribedConfig) -> ConfigEntry {
    let is_sensitive = config.is_sensitive;
    let shown = |value: Option<String>| value.filter(|_| !is_sensitive);
    let synonyms = config.synonyms.into_iter().map(|synonym| ConfigSynonym {
        name: synonym.name,
        value: shown(synonym.value),
        source: ConfigSource(synonym.source),
    });
    ConfigEntry {
        synonyms: synonyms.collect(),
        name: config.name,
        value: shown(config.value),
        source: ConfigSource(config.config_source),
        is_sensitive,
        is_read_only: config.read_only,
    }
}
