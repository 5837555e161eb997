//! Incremental fetch sessions over the wire.

use kafka_protocol::messages::fetch_request::ForgottenTopic;
use kafka_protocol::messages::{FetchRequest, FetchResponse};

use crate::client::{Ask, Client, Served, append, ask, batch, fetch, partitions, topic_id};

const NOTHING: [i32; 0] = [];

fn in_session(id: i32, epoch: i32, asks: &[Ask]) -> FetchRequest {
    let mut request = fetch(16, "one", asks);
    request.session_id = id;
    request.session_epoch = epoch;
    request
}

fn indexes(response: &FetchResponse) -> Vec<i32> {
    partitions(response).iter().map(|partition| partition.partition_index).collect()
}

/// Opens a session on partitions 0 to 2 of topic "one"; its ID.
fn open(client: &mut Client) -> i32 {
    let response = client.call(16, &in_session(0, 0, &[ask(0, 0), ask(1, 0), ask(2, 0)]));
    assert_eq!(indexes(&response), [0, 1, 2]);
    assert_ne!(response.session_id, 0);
    response.session_id
}

#[test]
fn session_tells_only_what_is_new() {
    let served = Served::new();
    let topic = served.topic("one", 3);
    let mut client = served.client();
    let id = open(&mut client);
    assert_eq!(indexes(&client.call(16, &in_session(id, 1, &[]))), NOTHING);
    append(&topic[1], batch(2, 10));
    let response = client.call(16, &in_session(id, 2, &[]));
    assert_eq!((response.session_id, indexes(&response)), (id, vec![1]));
    // The position moves on, and partition 1 says nothing more.
    assert_eq!(indexes(&client.call(16, &in_session(id, 3, &[ask(1, 2)]))), NOTHING);
    let mut forget = in_session(id, 4, &[]);
    forget.forgotten_topics_data =
        vec![ForgottenTopic::default().with_topic_id(topic_id("one").0).with_partitions(vec![0])];
    client.call(16, &forget);
    append(&topic[0], batch(1, 10));
    append(&topic[2], batch(1, 10));
    assert_eq!(indexes(&client.call(16, &in_session(id, 5, &[]))), [2]);
}

#[test]
fn wrong_epoch_and_unknown_session_are_errors_of_the_response() {
    let served = Served::new();
    served.topic("one", 3);
    let mut client = served.client();
    let id = open(&mut client);
    let code = |client: &mut Client, id, epoch| {
        let response = client.call(16, &in_session(id, epoch, &[]));
        (response.error_code, response.session_id, response.responses.len())
    };
    assert_eq!(code(&mut client, id, 7), (71, 0, 0));
    assert_eq!(code(&mut client, id.wrapping_add(1).max(1), 1), (70, 0, 0));
    assert_eq!(code(&mut client, id, 1), (0, id, 0));
    served.listener.as_ref().expect("running").forget_sessions();
    assert_eq!(code(&mut client, id, 2), (70, 0, 0));
}

#[test]
fn no_slot_means_no_session_and_data_all_the_same() {
    let served = Served::with(|config| config.sessions.slots = 1);
    served.topic("one", 3);
    open(&mut served.client());
    let response = served.client().call(16, &in_session(0, 0, &[ask(0, 0)]));
    assert_eq!((response.session_id, indexes(&response)), (0, vec![0]));
}

#[test]
fn error_of_a_partition_repeats_until_it_is_well() {
    let served = Served::new();
    let topic = served.topic("one", 3);
    let mut client = served.client();
    let id = open(&mut client);
    let code = |response: &FetchResponse| {
        let told = partitions(response);
        told.iter()
            .map(|partition| (partition.partition_index, partition.error_code))
            .collect::<Vec<_>>()
    };
    assert_eq!(code(&client.call(16, &in_session(id, 1, &[ask(2, 5)]))), [(2, 1)]);
    assert_eq!(code(&client.call(16, &in_session(id, 2, &[]))), [(2, 1)]);
    append(&topic[2], batch(5, 10));
    assert_eq!(code(&client.call(16, &in_session(id, 3, &[]))), [(2, 0)]);
    assert_eq!(code(&client.call(16, &in_session(id, 4, &[]))), []);
}
