use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::create_partitions_request::{
    CreatePartitionsAssignment, CreatePartitionsTopic,
};
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use kafka_protocol::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::update_features_request::FeatureUpdateKey;
use kafka_protocol::messages::{
    ApiVersionsRequest, BrokerId, CreatePartitionsRequest, CreateTopicsRequest,
    DeleteTopicsRequest, DescribeClusterRequest, DescribeConfigsRequest, FetchRequest,
    FindCoordinatorRequest, IncrementalAlterConfigsRequest, ListOffsetsRequest, MetadataRequest,
    OffsetForLeaderEpochRequest, ProduceRequest, TopicName, UpdateFeaturesRequest,
};
use kafka_protocol::protocol::{Decodable, Encodable, StrBytes};
use proptest::prelude::*;

use super::*;

fn text(value: &str) -> StrBytes {
    StrBytes::from_string(value.to_owned())
}

fn encoded(message: &impl Encodable, version: i16) -> Bytes {
    let mut out = BytesMut::new();
    message.encode(&mut out, version).expect("encodes");
    out.freeze()
}

/// A request of each API, in each version that is served.
fn samples() -> Vec<(ApiKey, i16, Bytes)> {
    let mut all = Vec::new();
    for version in 0..=4 {
        let request = ApiVersionsRequest::default();
        all.push((ApiKey::ApiVersions, version, encoded(&request, version)));
    }
    for version in 0..=13 {
        let topic = MetadataRequestTopic::default().with_name(Some(TopicName(text("one"))));
        let request = MetadataRequest::default().with_topics(Some(vec![topic.clone(), topic]));
        all.push((ApiKey::Metadata, version, encoded(&request, version)));
    }
    for version in 4..=19 {
        let mut topic = FetchTopic::default().with_partitions(vec![FetchPartition::default(); 3]);
        let mut forgotten = ForgottenTopic::default().with_partitions(vec![1, 2]);
        if version < 13 {
            topic.topic = TopicName(text("one"));
            forgotten.topic = TopicName(text("two"));
        }
        let mut request = FetchRequest::default().with_topics(vec![topic]);
        if version >= 7 {
            request.forgotten_topics_data = vec![forgotten];
        }
        // Version 19 is version 18 and a tagged field.
        all.push((ApiKey::Fetch, version, encoded(&request, version.min(18))));
    }
    for version in 3..=13 {
        let mut topic = TopicProduceData::default().with_partition_data(vec![
            PartitionProduceData::default().with_records(Some(Bytes::from_static(b"records"))),
        ]);
        if version < 13 {
            topic.name = TopicName(text("one"));
        }
        let request = ProduceRequest::default().with_topic_data(vec![topic]);
        all.push((ApiKey::Produce, version, encoded(&request, version)));
    }
    for version in 1..=10 {
        let topic = ListOffsetsTopic::default()
            .with_name(TopicName(text("one")))
            .with_partitions(vec![ListOffsetsPartition::default(); 2]);
        let request = ListOffsetsRequest::default().with_topics(vec![topic]);
        all.push((ApiKey::ListOffsets, version, encoded(&request, version)));
    }
    for version in 2..=4 {
        let topic = OffsetForLeaderTopic::default()
            .with_topic(TopicName(text("one")))
            .with_partitions(vec![OffsetForLeaderPartition::default(); 2]);
        let request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
        all.push((ApiKey::OffsetForLeaderEpoch, version, encoded(&request, version)));
    }
    for version in 1..=4 {
        let resource = DescribeConfigsResource::default()
            .with_resource_name(text("one"))
            .with_configuration_keys(Some(vec![text("a"), text("b")]));
        let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
        all.push((ApiKey::DescribeConfigs, version, encoded(&request, version)));
    }
    for version in 0..=2 {
        let request = DescribeClusterRequest::default();
        all.push((ApiKey::DescribeCluster, version, encoded(&request, version)));
    }
    all.extend(changes());
    all
}

/// Requests that change something, and who answers for it.
fn changes() -> Vec<(ApiKey, i16, Bytes)> {
    let mut all = Vec::new();
    for version in 0..=6 {
        let request = if version < 4 {
            FindCoordinatorRequest::default().with_key(text("one"))
        } else {
            FindCoordinatorRequest::default().with_coordinator_keys(vec![text("one"), text("two")])
        };
        all.push((ApiKey::FindCoordinator, version, encoded(&request, version)));
    }
    for version in 2..=7 {
        let config = CreatableTopicConfig::default().with_name(text("a")).with_value(None);
        let assignment =
            CreatableReplicaAssignment::default().with_broker_ids(vec![BrokerId(1), BrokerId(2)]);
        let topic = CreatableTopic::default()
            .with_name(TopicName(text("one")))
            .with_assignments(vec![assignment])
            .with_configs(vec![config]);
        let request = CreateTopicsRequest::default().with_topics(vec![topic.clone(), topic]);
        all.push((ApiKey::CreateTopics, version, encoded(&request, version)));
    }
    for version in 1..=6 {
        let request = if version >= 6 {
            let topic = DeleteTopicState::default().with_name(Some(TopicName(text("one"))));
            DeleteTopicsRequest::default().with_topics(vec![topic, DeleteTopicState::default()])
        } else {
            DeleteTopicsRequest::default().with_topic_names(vec![TopicName(text("one"))])
        };
        all.push((ApiKey::DeleteTopics, version, encoded(&request, version)));
    }
    for version in 0..=3 {
        let assignment =
            CreatePartitionsAssignment::default().with_broker_ids(vec![BrokerId(1), BrokerId(2)]);
        let topic = CreatePartitionsTopic::default()
            .with_name(TopicName(text("one")))
            .with_assignments(Some(vec![assignment]));
        let request = CreatePartitionsRequest::default().with_topics(vec![topic]);
        all.push((ApiKey::CreatePartitions, version, encoded(&request, version)));
    }
    for version in 0..=1 {
        let config = AlterableConfig::default().with_name(text("a")).with_value(Some(text("b")));
        let resource = AlterConfigsResource::default()
            .with_resource_name(text("one"))
            .with_configs(vec![config.clone(), config]);
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        all.push((ApiKey::IncrementalAlterConfigs, version, encoded(&request, version)));
    }
    for version in 0..=2 {
        let update = FeatureUpdateKey::default().with_feature(text("mirror.version"));
        let request =
            UpdateFeaturesRequest::default().with_feature_updates(vec![update.clone(), update]);
        all.push((ApiKey::UpdateFeatures, version, encoded(&request, version)));
    }
    all
}

#[test]
fn honest_requests_pass_and_every_cut_is_refused() {
    for (api, version, body) in samples() {
        assert_eq!(check_request_shape(api, version, &body), Ok(()), "{api:?} v{version}");
        for end in 0..body.len() {
            let cut = check_request_shape(api, version, &body[..end]);
            assert!(cut.is_err(), "{api:?} v{version} cut at {end}");
        }
    }
}

#[test]
fn claim_of_two_billion_topics_is_refused() {
    // replica_id, isolation, then the count.
    let mut body = vec![0; 5];
    body.extend_from_slice(&i32::MAX.to_be_bytes());
    body.extend_from_slice(&[0; 64]);
    let got = check_request_shape(ApiKey::ListOffsets, 2, &body);
    assert_eq!(got, Err(RequestShapeError::Length { field: "topics", length: i32::MAX.into() }));
}

proptest! {
    /// What passes, the decoder can be given: it neither panics nor reserves more
    /// than the bytes back.
    #[test]
    fn decoder_survives_what_passes(
        which in 0..samples().len(), at in 0..200_usize, byte: u8, extra in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let (api, version, body) = samples().swap_remove(which);
        let mut body = body.to_vec();
        let at = at % body.len().max(1);
        if let Some(slot) = body.get_mut(at) {
            *slot = byte;
        }
        body.extend(extra);
        if check_request_shape(api, version, &body).is_ok() {
            let mut body = Bytes::from(body);
            match api {
                ApiKey::Fetch => drop(FetchRequest::decode(&mut body, version)),
                ApiKey::Metadata => drop(MetadataRequest::decode(&mut body, version)),
                ApiKey::ListOffsets => drop(ListOffsetsRequest::decode(&mut body, version)),
                ApiKey::DescribeConfigs => drop(DescribeConfigsRequest::decode(&mut body, version)),
                ApiKey::Produce => drop(ProduceRequest::decode(&mut body, version)),
                ApiKey::FindCoordinator => drop(FindCoordinatorRequest::decode(&mut body, version)),
                ApiKey::CreateTopics => drop(CreateTopicsRequest::decode(&mut body, version)),
                ApiKey::DeleteTopics => drop(DeleteTopicsRequest::decode(&mut body, version)),
                ApiKey::CreatePartitions => {
                    drop(CreatePartitionsRequest::decode(&mut body, version));
                }
                ApiKey::IncrementalAlterConfigs => {
                    drop(IncrementalAlterConfigsRequest::decode(&mut body, version));
                }
                ApiKey::UpdateFeatures => drop(UpdateFeaturesRequest::decode(&mut body, version)),
                _ => {}
            }
        }
    }
}
