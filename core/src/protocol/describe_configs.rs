//! Configs of source topics that a copy depends on.

use std::sync::Arc;

use bytes::Bytes;
use kafka_protocol::messages::DescribeConfigsRequest;
use kafka_protocol::messages::describe_configs_request as wire;
use kafka_protocol::protocol::StrBytes;

use super::api_versions::throttle;
use super::body::Body;
use super::frame::{EncodeError, RequestId, encode_request};
use super::wire::DecodeError;
use super::{Api, ErrorCode};

/// Kafka's number for a topic among the resources that have configs.
const RESOURCE_TOPIC: i8 = 2;

/// Asks for configs of topics.
#[derive(Clone, Copy, Debug)]
pub struct ConfigsRequest<'a> {
    /// Topic names.
    pub topics: &'a [Arc<str>],
    /// Config names; `None` for all.
    pub keys: Option<&'a [&'static str]>,
}

impl ConfigsRequest<'_> {
    /// What a preflight looks at: how a topic is cleaned, where its segments are, how large they get.
    pub const PREFLIGHT_KEYS: &'static [&'static str] =
        &["cleanup.policy", "remote.storage.enable", "segment.bytes", "max.message.bytes"];

    /// The request as a frame of `version`.
    ///
    /// # Errors
    ///
    /// [`EncodeError`] if a name is too long for the field.
    pub fn encode(&self, version: i16, id: RequestId<'_>) -> Result<Bytes, EncodeError> {
        let keys = self
            .keys
            .map(|keys| keys.iter().map(|&key| StrBytes::from_static_str(key)).collect::<Vec<_>>());
        let resources = self.topics.iter().map(|name| {
            wire::DescribeConfigsResource::default()
                .with_resource_type(RESOURCE_TOPIC)
                .with_resource_name(StrBytes::from_string(name.to_string()))
                .with_configuration_keys(keys.clone())
        });
        let request = DescribeConfigsRequest::default().with_resources(resources.collect());
        encode_request(id, version, &request)
    }
}

/// Configs of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicConfigs {
    /// Topic name.
    pub topic: Arc<str>,
    /// Error of the topic.
    pub error: ErrorCode,
    /// What the broker says about the error.
    pub error_message: Option<String>,
    /// The configs.
    pub configs: Vec<TopicConfig>,
}

/// One config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicConfig {
    /// Kafka's name of it.
    pub name: String,
    /// Value; `None` for null, and where the value is secret.
    pub value: Option<String>,
    /// Whether it was set on the topic itself; otherwise it is the broker's or a default.
    pub set_on_topic: bool,
}

impl TopicConfigs {
    /// Value of the config `name`.
    pub fn value(&self, name: &str) -> Option<&str> {
        self.configs.iter().find(|config| config.name == name)?.value.as_deref()
    }

    /// Reads the body of a response of `version`: throttle time in milliseconds,
    /// and the topics. Resources of another kind are left out.
    ///
    /// # Errors
    ///
    /// [`DecodeError`] that names the field.
    pub fn decode(version: i16, body: &[u8]) -> Result<(u32, Vec<Self>), DecodeError> {
        let mut body = Body::new(body, Api::DescribeConfigs.is_flexible(version));
        let throttle_ms = throttle(&mut body)?;
        let results = body.array("results", 6, |body| {
            let error = ErrorCode(body.i16("error_code")?);
            let error_message = body.nullable_str("error_message")?.map(str::to_owned);
            let kind = body.i8("resource_type")?;
            let topic = Arc::from(body.str("resource_name")?);
            let configs = body.array("configs", 5, |body| config(version, body))?;
            body.tags("tagged fields of a result")?;
            let topic = Self { topic, error, error_message, configs };
            Ok((kind == RESOURCE_TOPIC).then_some(topic))
        })?;
        body.finish()?;
        Ok((throttle_ms, results.into_iter().flatten().collect()))
    }
}

fn config(version: i16, body: &mut Body<'_>) -> Result<TopicConfig, DecodeError> {
    /// Kafka's number for "set on the topic".
    const SOURCE_TOPIC: i8 = 1;

    let name = body.str("configs.name")?.to_owned();
    let value = body.nullable_str("configs.value")?.map(str::to_owned);
    body.bool("configs.read_only")?;
    let set_on_topic = body.i8("configs.config_source")? == SOURCE_TOPIC;
    body.bool("configs.is_sensitive")?;
    body.array("configs.synonyms", 4, |body| {
        body.str("synonyms.name")?;
        body.nullable_str("synonyms.value")?;
        body.i8("synonyms.source")?;
        body.tags("tagged fields of a synonym")
    })?;
    if version >= 3 {
        body.i8("configs.config_type")?;
        body.nullable_str("configs.documentation")?;
    }
    body.tags("tagged fields of a config")?;
    Ok(TopicConfig { name, value, set_on_topic })
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::DescribeConfigsResponse;
    use kafka_protocol::messages::describe_configs_response as theirs;
    use kafka_protocol::protocol::{Decodable, Encodable, decode_request_header_from_buffer};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_version_agrees_with_the_oracle(
            version in 1..=4_i16,
            rows in prop::collection::vec(
                ("[a-z.]{1,9}", prop::option::of("[a-z]{0,9}"), 0..6_i8, 0..3_usize), 0..5),
            kind in 1..4_i8,
            error: i16,
            damage: (prop::sample::Index, u8),
        ) {
            let text = |text: &str| StrBytes::from_string(text.to_owned());
            let configs = rows.iter().map(|(name, value, source, synonyms)| {
                let synonym = theirs::DescribeConfigsSynonym::default().with_name(text("s"));
                theirs::DescribeConfigsResourceResult::default()
                    .with_name(text(name))
                    .with_value(value.as_deref().map(text))
                    .with_config_source(*source)
                    .with_synonyms(vec![synonym; *synonyms])
            });
            let result = theirs::DescribeConfigsResult::default()
                .with_error_code(error)
                .with_error_message(Some(text("why")))
                .with_resource_type(kind)
                .with_resource_name(text("topic"))
                .with_configs(configs.collect());
            let response = DescribeConfigsResponse::default().with_results(vec![result]);
            let mut bytes = bytes::BytesMut::new();
            response.encode(&mut bytes, version).unwrap();

            let want = TopicConfigs {
                topic: Arc::from("topic"),
                error: ErrorCode(error),
                error_message: Some("why".to_owned()),
                configs: rows.iter().map(|(name, value, source, _)| TopicConfig {
                    name: name.clone(),
                    value: value.clone(),
                    set_on_topic: *source == 1,
                }).collect(),
            };
            let want = if kind == 2 { vec![want] } else { vec![] };
            prop_assert_eq!(TopicConfigs::decode(version, &bytes), Ok((0, want)));
            let at = damage.0.index(bytes.len());
            bytes[at] = damage.1;
            let _ = TopicConfigs::decode(version, &bytes);
        }
    }

    #[test]
    fn requests_name_topics_and_keys() {
        for version in 1..=4 {
            let id = RequestId { correlation_id: 1, client_id: "c" };
            let topics = [Arc::from("a")];
            let keys = Some(ConfigsRequest::PREFLIGHT_KEYS);
            let request = ConfigsRequest { topics: &topics, keys };
            let mut frame = request.encode(version, id).unwrap().slice(4..);
            decode_request_header_from_buffer(&mut frame).unwrap();
            let read = DescribeConfigsRequest::decode(&mut frame, version).unwrap();
            let resource = &read.resources[0];
            assert_eq!((resource.resource_type, resource.resource_name.as_str()), (2, "a"));
            assert_eq!(resource.configuration_keys.as_ref().map(Vec::len), Some(4));
        }
    }
}
