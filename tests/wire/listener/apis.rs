//! Every API in every version, and what each says.

use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, DescribeClusterRequest,
    DescribeConfigsRequest, FindCoordinatorRequest, ListOffsetsRequest, MetadataRequest,
    OffsetForLeaderEpochRequest, ProduceRequest, TopicName,
};
use kafka_protocol::protocol::Decodable;

use heliostat_core::records::Compression;
use heliostat_core::types::{LeaderEpoch, Offset};
use heliostat_io::listener::hosted::{Leadership, Partition};

use crate::client::{
    Client, NODE, Served, append, ask, batch, batch_at, compressed, fetch, marker, only, records,
    text, topic_id, transactional,
};

#[test]
fn api_versions_lists_what_is_served_in_every_version() {
    let served = Served::new();
    for version in 0..=4 {
        let response = served.client().call(version, &ApiVersionsRequest::default());
        assert_eq!(response.error_code, 0);
        let fetch = response.api_keys.iter().find(|api| api.api_key == 1).expect("Fetch");
        assert_eq!((fetch.min_version, fetch.max_version), (4, 18), "v{version}");
    }
}

#[test]
fn unknown_version_of_api_versions_is_answered_in_version_0() {
    let served = Served::new();
    let mut client = served.client();
    // Version 4 encodes the same header that a version 99 would have.
    let id = {
        use std::io::Write;
        let mut frame = Vec::new();
        frame.extend_from_slice(&18_i16.to_be_bytes());
        frame.extend_from_slice(&99_i16.to_be_bytes());
        frame.extend_from_slice(&7_i32.to_be_bytes());
        frame.extend_from_slice(&[0, 1, b'x', 0, 9, 9, 9]);
        let length = i32::try_from(frame.len()).expect("small").to_be_bytes();
        client.stream.write_all(&length).expect("sent");
        client.stream.write_all(&frame).expect("sent");
        7
    };
    let mut frame = client.frame();
    assert_eq!(bytes::Buf::get_i32(&mut frame), id);
    let response = ApiVersionsResponse::decode(&mut frame, 0).expect("v0");
    assert_eq!(response.error_code, 35);
    assert!(!response.api_keys.is_empty());
    // The connection goes on, with a version that is known.
    assert_eq!(client.call(3, &ApiVersionsRequest::default()).error_code, 0);
}

#[test]
fn api_that_is_not_served_closes_the_connection() {
    let served = Served::new();
    let mut client = served.client();
    client.send(3, &FindCoordinatorRequest::default());
    assert!(client.is_closed());
}

/// Sends records for partition 0 of topic `one` in every version: READ_ONLY_TOPIC, in words where
/// there is room for them, and for `acks=0` the end of the connection.
pub(crate) fn refuses_records(client: &mut Client, in_words: &str) {
    for version in 3..=13 {
        let data = PartitionProduceData::default().with_records(Some(batch(1, 10).into()));
        let mut topic = TopicProduceData::default().with_partition_data(vec![data]);
        if version >= 13 {
            topic.topic_id = topic_id("one").0;
        } else {
            topic.name = TopicName(text("one"));
        }
        let request = ProduceRequest::default().with_acks(-1).with_topic_data(vec![topic]);
        let response = client.call(version, &request);
        let refused = &response.responses[0].partition_responses[0];
        assert_eq!((refused.index, refused.error_code), (0, 134), "v{version}");
        let words = refused.error_message.as_ref().map(|words| words.contains(in_words));
        assert_eq!(words, (version >= 8).then_some(true), "v{version}: {refused:?}");
    }
    client.send(9, &ProduceRequest::default());
    assert!(client.is_closed(), "acks=0 has no answer");
}

#[test]
fn produce_is_refused_partition_by_partition() {
    let served = Served::new();
    let partition = &served.topic("one", 1)[0];
    refuses_records(&mut served.client(), "served by a mirror");
    assert_eq!(partition.facts(NODE).log_end, Offset(0));
}

#[test]
fn metadata_names_topics_leaders_and_brokers() {
    let served = Served::new();
    served.topic("one", 3);
    let mut client = served.client();
    for version in 0..=13 {
        let all = if version == 0 { Some(Vec::new()) } else { None };
        let response = client.call(version, &MetadataRequest::default().with_topics(all));
        let [topic] = &response.topics[..] else { panic!("v{version}: one topic") };
        assert_eq!(topic.name.as_ref().map(|name| name.as_str()), Some("one"));
        assert_eq!(topic.partitions.len(), 3);
        assert!(topic.partitions.iter().all(|partition| partition.leader_id.0 == NODE.0));
        if version >= 10 {
            assert_eq!(topic.topic_id, topic_id("one").0);
        }
        if version >= 2 {
            assert_eq!(response.cluster_id.as_deref(), Some("test-cluster"));
        }
        let [broker] = &response.brokers[..] else { panic!("v{version}: one broker") };
        assert_eq!(broker.port, i32::from(served.address().port()));
    }
}

#[test]
fn metadata_tells_unknown_names_from_unknown_ids() {
    let served = Served::new();
    let mut client = served.client();
    let by_name = MetadataRequestTopic::default().with_name(Some(TopicName(text("none"))));
    let by_id = MetadataRequestTopic::default().with_name(None).with_topic_id(topic_id("none").0);
    let request = MetadataRequest::default().with_topics(Some(vec![by_name, by_id]));
    let response = client.call(12, &request);
    let codes: Vec<_> = response.topics.iter().map(|topic| topic.error_code).collect();
    assert_eq!(codes, [3, 100]);
}

/// Offset and timestamp that ListOffsets gives.
fn list_offset(
    client: &mut Client,
    version: i16,
    topic: &str,
    timestamp: i64,
    committed: bool,
) -> (i64, i64) {
    let partition = ListOffsetsPartition::default().with_timestamp(timestamp);
    let asked = ListOffsetsTopic::default()
        .with_name(TopicName(text(topic)))
        .with_partitions(vec![partition]);
    let mut request = ListOffsetsRequest::default().with_topics(vec![asked]);
    if version >= 2 {
        request.isolation_level = i8::from(committed);
    }
    let response = client.call(version, &request);
    let found = &response.topics[0].partitions[0];
    assert_eq!(found.error_code, 0, "v{version}");
    (found.offset, found.timestamp)
}

#[test]
fn list_offsets_knows_both_ends_and_times() {
    let served = Served::new();
    let partition = &served.topic("one", 1)[0];
    append(partition, batch_at(5, 10, 1000));
    append(partition, compressed(Compression::Zstd, 5, 100, 2000));
    append(partition, batch_at(5, 10, 1500));
    partition.delete_records(Offset(2)).expect("within the log");
    let mut client = served.client();
    for version in 1..=10 {
        assert_eq!(list_offset(&mut client, version, "one", -1, false), (15, -1));
        assert_eq!(list_offset(&mut client, version, "one", -2, false), (2, -1));
        // A record within a compressed batch is found by its own time.
        assert_eq!(list_offset(&mut client, version, "one", 2003, false), (8, 2003));
        // Below the log start the first record that is left counts.
        assert_eq!(list_offset(&mut client, version, "one", 0, false), (2, 1002));
        assert_eq!(list_offset(&mut client, version, "one", 9999, false), (-1, -1));
        if version >= 7 {
            assert_eq!(list_offset(&mut client, version, "one", -3, false), (9, 2004));
        }
    }
}

#[test]
fn times_are_found_across_many_segments() {
    let served = Served::new();
    let partition = &served.topic("one", 1)[0];
    for index in 0..20 {
        append(partition, batch_at(10, 500, 1000 + 100 * index));
        if index % 5 == 4 {
            partition.roll().expect("rolled");
        }
    }
    let mut client = served.client();
    for index in 0..20 {
        let want = (index * 10 + 3, 1003 + 100 * index);
        assert_eq!(list_offset(&mut client, 5, "one", want.1, false), want);
    }
}

#[test]
fn read_committed_ends_at_the_oldest_open_transaction() {
    let served = Served::new();
    let partition = &served.topic("one", 1)[0];
    append(partition, transactional(7, 2)); // 0, 1
    append(partition, transactional(8, 1)); // 2
    append(partition, marker(7, false)); // 3
    append(partition, batch(1, 10)); // 4
    let mut client = served.client();
    assert_eq!(list_offset(&mut client, 5, "one", -1, true), (2, -1));
    assert_eq!(list_offset(&mut client, 5, "one", -1, false), (5, -1));
    let mut request = fetch(12, "one", &[ask(0, 0)]);
    request.isolation_level = 1;
    let response = client.call(12, &request);
    let got = only(&response);
    assert_eq!((got.last_stable_offset, got.high_watermark), (2, 5));
    let aborted = got.aborted_transactions.as_ref().expect("read_committed");
    let aborted: Vec<_> = aborted.iter().map(|txn| (txn.producer_id.0, txn.first_offset)).collect();
    assert_eq!(aborted, [(7, 0)]);
    let stable = records(got).len();
    append(partition, marker(8, true)); // 5
    let response = client.call(12, &request);
    assert_eq!(only(&response).last_stable_offset, 6);
    assert!(records(only(&response)).len() > stable);
}

fn epoch_end(client: &mut Client, version: i16, epoch: i32) -> (i16, i32, i64) {
    let partition =
        OffsetForLeaderPartition::default().with_current_leader_epoch(-1).with_leader_epoch(epoch);
    let topic = OffsetForLeaderTopic::default()
        .with_topic(TopicName(text("one")))
        .with_partitions(vec![partition]);
    let request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
    let response = client.call(version, &request);
    let found = &response.topics[0].partitions[0];
    (found.error_code, found.leader_epoch, found.end_offset)
}

fn elect(partition: &Partition, epoch: i32) {
    let leadership = Leadership { leader: NODE, epoch: LeaderEpoch(epoch) };
    partition.elect(leadership).expect("elected");
}

#[test]
fn offset_for_leader_epoch_gives_the_end_of_each_epoch() {
    let served = Served::new();
    let partition = &served.topic("one", 1)[0];
    append(partition, batch(4, 10));
    elect(partition, 3);
    append(partition, batch(2, 10));
    elect(partition, 5);
    let mut client = served.client();
    for version in 2..=4 {
        assert_eq!(epoch_end(&mut client, version, 0), (0, 0, 4));
        assert_eq!(epoch_end(&mut client, version, 2), (0, 0, 4));
        assert_eq!(epoch_end(&mut client, version, 3), (0, 3, 6));
        assert_eq!(epoch_end(&mut client, version, 5), (0, 5, 6));
        assert_eq!(epoch_end(&mut client, version, 6), (0, -1, -1));
    }
}

#[test]
fn describe_configs_gives_own_values_and_defaults() {
    let served = Served::new();
    served.topic("one", 1);
    let mut client = served.client();
    for version in 1..=4 {
        let keys = vec![text("cleanup.policy"), text("retention.ms")];
        let resource = DescribeConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text("one"))
            .with_configuration_keys(Some(keys));
        let unknown = DescribeConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text("none"));
        let request = DescribeConfigsRequest::default().with_resources(vec![resource, unknown]);
        let response = client.call(version, &request);
        let seen: Vec<_> = response.results[0]
            .configs
            .iter()
            .map(|config| (config.name.as_str(), config.value.as_deref(), config.config_source))
            .collect();
        assert_eq!(
            seen,
            [("cleanup.policy", Some("compact"), 1), ("retention.ms", Some("604800000"), 5)]
        );
        assert_eq!(response.results[1].error_code, 3);
    }
}

#[test]
fn describe_cluster_names_the_broker() {
    let served = Served::new();
    let mut client = served.client();
    for version in 0..=2 {
        let response = client.call(version, &DescribeClusterRequest::default());
        assert_eq!(response.cluster_id.as_str(), "test-cluster");
        assert_eq!(response.brokers.len(), 1);
    }
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let served = Served::new();
    served.topic("one", 1);
    let mut client = served.client();
    let first = client.send(9, &MetadataRequest::default());
    let second = client.send(12, &fetch(12, "one", &[ask(0, 0)]));
    let third = client.send(3, &ApiVersionsRequest::default());
    client.receive::<MetadataRequest>(9, first);
    client.receive::<kafka_protocol::messages::FetchRequest>(12, second);
    client.receive::<ApiVersionsRequest>(3, third);
    assert_eq!(ApiKey::try_from(1), Ok(ApiKey::Fetch));
}
