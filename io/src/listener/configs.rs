//! DescribeConfigs of topics: their own settings, and the defaults of the rest.

use std::collections::BTreeMap;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult,
};
use kafka_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};

use super::apis::text;
use super::service::CatalogService;

/// Resource types.
const TOPIC: i8 = 2;
/// Where a setting comes from.
const SOURCE_TOPIC: i8 = 1;
const SOURCE_DEFAULT: i8 = 5;
/// Kafka's type numbers of values.
const TYPE_BOOLEAN: i8 = 1;
const TYPE_STRING: i8 = 2;
const TYPE_INT: i8 = 3;
const TYPE_LONG: i8 = 5;
const TYPE_LIST: i8 = 7;

/// Settings that clients and mirrors look at, with Kafka's defaults.
const DEFAULTS: [(&str, &str, i8); 15] = [
    ("cleanup.policy", "delete", TYPE_LIST),
    ("compression.type", "producer", TYPE_STRING),
    ("delete.retention.ms", "86400000", TYPE_LONG),
    ("index.interval.bytes", "4096", TYPE_INT),
    ("max.message.bytes", "1048588", TYPE_INT),
    ("message.timestamp.type", "CreateTime", TYPE_STRING),
    ("min.compaction.lag.ms", "0", TYPE_LONG),
    ("min.insync.replicas", "1", TYPE_INT),
    ("remote.storage.enable", "false", TYPE_BOOLEAN),
    ("retention.bytes", "-1", TYPE_LONG),
    ("retention.ms", "604800000", TYPE_LONG),
    ("segment.bytes", "1073741824", TYPE_INT),
    ("segment.index.bytes", "10485760", TYPE_INT),
    ("segment.ms", "604800000", TYPE_LONG),
    ("unclean.leader.election.enable", "false", TYPE_BOOLEAN),
];

pub(super) fn describe(
    service: &CatalogService,
    version: i16,
    request: &DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let results = request.resources.iter().map(|resource| {
        let out = DescribeConfigsResult::default()
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name.clone());
        match own_configs(service, resource) {
            Ok(own) => out.with_configs(entries(&own, resource, version)),
            Err((error, message)) => {
                out.with_error_code(error.code()).with_error_message(Some(text(message)))
            }
        }
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

fn own_configs(
    service: &CatalogService,
    resource: &DescribeConfigsResource,
) -> Result<BTreeMap<String, String>, (ResponseError, &'static str)> {
    if resource.resource_type != TOPIC {
        let message = "only topics have configs that this listener describes";
        return Err((ResponseError::InvalidRequest, message));
    }
    let topic = service.catalog().topic(&resource.resource_name);
    topic
        .map(|topic| topic.configs)
        .ok_or((ResponseError::UnknownTopicOrPartition, "this server hosts no such topic"))
}

fn entries(
    own: &BTreeMap<String, String>,
    resource: &DescribeConfigsResource,
    version: i16,
) -> Vec<DescribeConfigsResourceResult> {
    let wanted = |name: &str| {
        let keys = resource.configuration_keys.as_ref();
        keys.is_none_or(|keys| keys.iter().any(|key| key.as_str() == name))
    };
    let known = DEFAULTS.iter().map(|&(name, default, kind)| match own.get(name) {
        Some(value) => (name, value.as_str(), SOURCE_TOPIC, kind),
        None => (name, default, SOURCE_DEFAULT, kind),
    });
    let others = own
        .iter()
        .filter(|(name, _)| DEFAULTS.iter().all(|(known, ..)| known != name))
        .map(|(name, value)| (name.as_str(), value.as_str(), SOURCE_TOPIC, TYPE_STRING));
    known
        .chain(others)
        .filter(|(name, ..)| wanted(name))
        .map(|(name, value, source, kind)| {
            let mut out = DescribeConfigsResourceResult::default()
                .with_name(text(name))
                .with_value(Some(text(value)))
                .with_config_source(source);
            if version >= 3 {
                out.config_type = kind;
            }
            out
        })
        .collect()
}
