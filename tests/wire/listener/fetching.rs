//! What a fetch gets: caps, order, watermarks, epochs, long polls.

use std::sync::Arc;
use std::time::Instant;

use heliostat_core::types::{BrokerId, LeaderEpoch, Offset};
use heliostat_io::listener::Listener;
use heliostat_io::listener::hosted::{Leadership, Partition};
use kafka_protocol::messages::{ApiVersionsRequest, FetchRequest};

use crate::client::{
    Ask, NODE, PATIENCE, Served, append, ask, batch, fetch, listener_config, only, partitions,
    records, topic_id,
};

#[test]
fn records_are_the_logs_bytes_in_every_version() {
    let served = Served::new();
    let partition = &served.topic("one", 1)[0];
    let mut log = Vec::new();
    for _ in 0..50 {
        log.extend(append(partition, batch(3, 700)));
    }
    let mut client = served.client();
    for version in 4..=18 {
        let response = client.call(version, &fetch(version, "one", &[ask(0, 0)]));
        let got = only(&response);
        assert_eq!((got.error_code, got.high_watermark), (0, 150), "v{version}");
        assert!(records(got) == log, "v{version}: other bytes than the log's");
    }
}

/// A receiver that is slower than the sender: sendfile finds the socket full.
#[test]
fn large_response_through_a_small_send_buffer_is_whole() {
    let served = Served::with(|config| config.socket_send_buffer_bytes = Some(32 << 10));
    let partition = &served.topic("one", 1)[0];
    let mut log = Vec::new();
    for _ in 0..200 {
        log.extend(append(partition, batch(100, 1000)));
    }
    let whole = Ask { max_bytes: i32::MAX, ..ask(0, 0) };
    let response = served.client().call(12, &fetch(12, "one", &[whole]));
    assert!(records(only(&response)) == log);
}

#[test]
fn first_partition_with_data_may_exceed_every_limit_and_no_other() {
    let served = Served::with(|config| config.fetch_max_bytes = 1000);
    let topic = served.topic("one", 3);
    let large = append(&topic[1], batch(1, 50_000));
    append(&topic[2], batch(1, 10));
    let small = |partition| Ask { max_bytes: 100, ..ask(partition, 0) };
    let mut client = served.client();
    // Partition 0 is empty, so the exception is left to partition 1.
    let response = client.call(11, &fetch(11, "one", &[small(0), small(1), small(2)]));
    let sizes: Vec<_> =
        partitions(&response).iter().map(|partition| records(partition).len()).collect();
    assert_eq!(sizes, [0, large.len(), 0]);
    // In another order partition 2 goes first, and partition 1 does not fit.
    let response = client.call(11, &fetch(11, "one", &[small(2), small(1)]));
    assert_eq!(partitions(&response)[0].partition_index, 2);
    assert!(!records(partitions(&response)[0]).is_empty());
    assert!(records(partitions(&response)[1]).is_empty());
}

#[test]
fn brokers_cap_holds_whatever_the_client_asks() {
    let served = Served::with(|config| config.fetch_max_bytes = 5000);
    let partition = &served.topic("one", 1)[0];
    for _ in 0..20 {
        append(partition, batch(1, 1000));
    }
    let response = served.client().call(12, &fetch(12, "one", &[ask(0, 0)]));
    // The last batch is cut off, as a broker cuts it.
    assert_eq!(records(only(&response)).len(), 5000);
}

#[test]
fn fetch_from_within_a_batch_gets_the_whole_batch() {
    let served = Served::new();
    let partition = &served.topic("one", 1)[0];
    append(partition, batch(10, 10));
    let second = append(partition, batch(10, 10));
    let response = served.client().call(12, &fetch(12, "one", &[ask(0, 15)]));
    assert!(records(only(&response)) == second);
}

#[test]
fn high_watermark_bounds_what_is_read() {
    let served = Served::new();
    let partition = &served.topic("one", 1)[0];
    let first = append(partition, batch(5, 10));
    append(partition, batch(5, 10));
    partition.hold_high_watermark(Some(Offset(5)));
    let mut client = served.client();
    let response = client.call(12, &fetch(12, "one", &[ask(0, 0)]));
    assert_eq!(only(&response).high_watermark, 5);
    assert!(records(only(&response)) == first);
    let response = client.call(12, &fetch(12, "one", &[ask(0, 7)]));
    assert_eq!((only(&response).error_code, records(only(&response)).len()), (0, 0));
    partition.hold_high_watermark(None);
    let response = client.call(12, &fetch(12, "one", &[ask(0, 5)]));
    assert!(!records(only(&response)).is_empty());
}

fn elect(partition: &Partition, leader: BrokerId, epoch: i32) {
    partition.elect(Leadership { leader, epoch: LeaderEpoch(epoch) }).expect("elected");
}

#[test]
fn errors_of_offset_epoch_and_topic() {
    let served = Served::new();
    let partition = &served.topic("one", 1)[0];
    append(partition, batch(10, 10));
    partition.delete_records(Offset(3)).expect("within the log");
    elect(partition, NODE, 5);
    let mut client = served.client();
    let mut code = |version, topic, asked| {
        only(&client.call(version, &fetch(version, topic, &[asked]))).error_code
    };
    assert_eq!(code(12, "one", ask(0, 2)), 1, "OFFSET_OUT_OF_RANGE below");
    assert_eq!(code(12, "one", ask(0, 11)), 1, "OFFSET_OUT_OF_RANGE above");
    assert_eq!(code(12, "one", ask(0, 10)), 0);
    assert_eq!(code(12, "one", Ask { epoch: 4, ..ask(0, 3) }), 74, "FENCED_LEADER_EPOCH");
    assert_eq!(code(12, "one", Ask { epoch: 6, ..ask(0, 3) }), 75, "UNKNOWN_LEADER_EPOCH");
    assert_eq!(code(12, "none", ask(0, 0)), 3, "UNKNOWN_TOPIC_OR_PARTITION");
    assert_eq!(code(13, "none", ask(0, 0)), 100, "UNKNOWN_TOPIC_ID");
    assert_eq!(code(13, "one", ask(7, 0)), 3, "UNKNOWN_TOPIC_OR_PARTITION");
}

#[test]
fn lost_tail_shows_as_a_diverging_epoch() {
    let served = Served::new();
    let partition = &served.topic("one", 1)[0];
    append(partition, batch(10, 10));
    elect(partition, NODE, 2);
    append(partition, batch(10, 10));
    // An unclean election: the new leader has only the first batch.
    assert_eq!(partition.truncate(Offset(14)).expect("within the log"), Offset(10));
    elect(partition, NODE, 3);
    let other = append(partition, batch(15, 20));
    let mut client = served.client();
    let behind = Ask { last_epoch: 2, ..ask(0, 20) };
    let response = client.call(12, &fetch(12, "one", &[behind]));
    let got = only(&response);
    assert_eq!((got.error_code, records(got).len()), (0, 0));
    assert_eq!((got.diverging_epoch.epoch, got.diverging_epoch.end_offset), (0, 10));
    let common = Ask { last_epoch: 0, ..ask(0, 10) };
    let response = client.call(12, &fetch(12, "one", &[common]));
    assert!(records(only(&response)) == other);
}

#[test]
fn other_leader_is_named_with_its_address() {
    let served = Served::new();
    let mut config = listener_config();
    config.node_id = BrokerId(2);
    let second = Listener::start(Arc::clone(&served.catalog), config).expect("loopback");
    let partition = &served.topic("one", 1)[0];
    let log = append(partition, batch(1, 10));
    elect(partition, BrokerId(2), 1);
    let response = served.client().call(16, &fetch(16, "one", &[ask(0, 0)]));
    let got = only(&response);
    assert_eq!(got.error_code, 6, "NOT_LEADER_OR_FOLLOWER");
    assert_eq!((got.current_leader.leader_id.0, got.current_leader.leader_epoch), (2, 1));
    let [endpoint] = &response.node_endpoints[..] else { panic!("one endpoint") };
    assert_eq!(endpoint.port, i32::from(second.address().port()));
    let mut client = crate::client::Client::connect(second.address());
    let response = client.call(16, &fetch(16, "one", &[ask(0, 0)]));
    assert!(records(only(&response)) == log);
}

#[test]
fn long_poll_wakes_on_append() {
    let served = Served::new();
    let partition = &served.topic("one", 1)[0];
    let mut client = served.client();
    let mut request = fetch(12, "one", &[ask(0, 0)]).with_min_bytes(1);
    // Longer than the client's patience: only the append can end it.
    request.max_wait_ms = 60_000;
    for round in 0..20 {
        request.topics[0].partitions[0].fetch_offset = round;
        let id = client.send(12, &request);
        // Another round trip, so that the fetch has been looked at and waits.
        served.client().call(3, &ApiVersionsRequest::default());
        let appended = append(partition, batch(1, 10));
        let response = client.receive::<FetchRequest>(12, id);
        assert!(records(only(&response)) == appended);
    }
}

#[test]
fn long_poll_ends_by_itself() {
    let served = Served::new();
    served.topic("one", 1);
    let mut request = fetch(12, "one", &[ask(0, 0)]).with_min_bytes(1);
    request.max_wait_ms = 150;
    let begun = Instant::now();
    let response = served.client().call(12, &request);
    let waited = begun.elapsed();
    assert_eq!(records(only(&response)).len(), 0);
    assert!(waited.as_millis() >= 150 && waited < PATIENCE, "{waited:?}");
}

#[test]
fn error_in_hand_ends_a_long_poll() {
    let served = Served::new();
    served.topic("one", 2);
    let mut request = fetch(12, "one", &[ask(0, 0), ask(1, 99)]).with_min_bytes(1);
    request.max_wait_ms = 60_000;
    let response = served.client().call(12, &request);
    let codes: Vec<_> =
        partitions(&response).iter().map(|partition| partition.error_code).collect();
    assert_eq!(codes, [0, 1]);
}

#[test]
fn deleted_and_recreated_topic_is_another() {
    let served = Served::new();
    served.topic("one", 1);
    let mut client = served.client();
    assert!(served.catalog.delete_topic("one").expect("removed"));
    let response = client.call(13, &fetch(13, "one", &[ask(0, 0)]));
    assert_eq!(only(&response).error_code, 100);
    assert_eq!(served.catalog.partition_by_id(topic_id("one"), 0).map(|_| ()), None);
}
