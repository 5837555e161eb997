use std::sync::Arc;

use bytes::Buf;
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::{Decodable, decode_request_header_from_buffer};
use uuid::Uuid;

use super::*;
use crate::protocol::{FetchPartition, FetchPosition, TopicIdentity};
use crate::serve::{FetchRequestFacts, check_request_shape, decode_fetch};
use crate::types::TopicId;

const ID: RequestId<'_> = RequestId { correlation_id: 0x0a0b_0c0d, client_id: "f" };

fn partition(index: i32) -> FetchPartition {
    FetchPartition {
        topic: TopicIdentity { name: Arc::from("t"), id: TopicId(Uuid::from_u128(0x11)) },
        index,
        position: FetchPosition {
            fetch_offset: Offset(8),
            current_leader_epoch: LeaderEpoch(12),
            last_fetched_epoch: LeaderEpoch(5),
            partition_max_bytes: 0x10_0000,
        },
    }
}

fn plan(partitions: &[FetchPartition]) -> FetchPlan<'_> {
    FetchPlan {
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 0xa0_0000,
        session_id: 0,
        session_epoch: -1,
        partitions,
        forgotten: &[],
        rack: "",
    }
}

fn own(epoch: i32) -> FollowerPartition {
    FollowerPartition { log_start: Offset(2), mirror_leader_epoch: LeaderEpoch(epoch) }
}

fn encode(partitions: &[FetchPartition], own: &[FollowerPartition]) -> Bytes {
    let fetch = FollowerFetch {
        plan: plan(partitions),
        replica: BrokerId(2),
        replica_epoch: 7,
        partitions: own,
    };
    fetch.encode(ID).unwrap()
}

/// Written by hand from the schema of Fetch and KIP-1279.
#[rustfmt::skip]
const WIRE: [u8; 113] = [
    0, 0, 0, 109,
    // Header: key 1, version 19, correlation ID, client ID, no tagged fields.
    0, 1, 0, 19, 0x0a, 0x0b, 0x0c, 0x0d, 0, 1, b'f', 0,
    // Longest wait, least bytes, most bytes, isolation, session ID and epoch.
    0, 0, 1, 0xf4, 0, 0, 0, 1, 0, 0xa0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff,
    // One topic by its ID, with one partition.
    2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x11, 2,
    // Index, current leader epoch, offset.
    0, 0, 0, 3, 0, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 8,
    // Last fetched epoch, log start, most bytes.
    0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0x10, 0, 0,
    // One tagged field: 2, of four bytes, MirrorLeaderEpoch 9.
    1, 2, 4, 0, 0, 0, 9,
    // End of the topic; nothing to forget; an empty rack.
    0, 1, 1,
    // One tagged field: 1, of 13 bytes, ReplicaState 2 in epoch 7.
    1, 1, 13, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 7, 0,
];

#[test]
fn request_is_the_bytes_of_the_kip() {
    assert_eq!(encode(&[partition(3)], &[own(9)])[..], WIRE);
}

#[test]
fn server_reads_what_the_follower_says() {
    let body = Bytes::copy_from_slice(&WIRE[16..]);
    check_request_shape(ApiKey::Fetch, 19, &body).unwrap();
    let facts = FetchRequestFacts::from_wire(19, &decode_fetch(19, &body).unwrap());
    assert_eq!(facts.replica, Some(BrokerId(2)));
    let (key, asked) = &facts.partitions[0];
    assert_eq!(key.partition, 3);
    assert_eq!(asked.mirror_leader_epoch, LeaderEpoch(9));
    assert_eq!((asked.fetch_offset, asked.log_start_offset), (Offset(8), Offset(2)));
    assert_eq!(asked.last_fetched_epoch, LeaderEpoch(5));
}

/// The same bytes as version 18 have an unknown tagged field, which says nothing.
#[test]
fn field_of_an_older_version_is_ignored() {
    let body = Bytes::copy_from_slice(&WIRE[16..]);
    check_request_shape(ApiKey::Fetch, 18, &body).unwrap();
    let facts = FetchRequestFacts::from_wire(18, &decode_fetch(18, &body).unwrap());
    assert_eq!(facts.partitions[0].1.mirror_leader_epoch, LeaderEpoch::NONE);
}

#[test]
fn field_of_another_size_and_a_second_one_are_refused() {
    let at = 16 + 21 + 18 + 16 + 16;
    assert_eq!(WIRE[at..at + 3], [1, 2, 4]);
    for field in [
        &[1, 2, 3, 0, 0, 9][..],
        &[1, 2, 5, 0, 0, 0, 9, 9],
        &[2, 2, 4, 0, 0, 0, 9, 2, 4, 0, 0, 0, 9],
    ] {
        let body = [&WIRE[16..at], field, &WIRE[at + 7..]].concat();
        assert!(check_request_shape(ApiKey::Fetch, 19, &body).is_err(), "{field:?}");
        assert!(check_request_shape(ApiKey::Fetch, 18, &body).is_ok(), "{field:?}");
    }
}

#[test]
fn only_mirrors_have_the_field() {
    let mut frame = encode(&[partition(0), partition(1)], &[own(-1), own(0)]);
    frame.advance(4);
    assert_eq!(decode_request_header_from_buffer(&mut frame).unwrap().request_api_version, 19);
    let request = FetchRequest::decode(&mut frame, 18).unwrap();
    assert!(frame.is_empty());
    let fields: Vec<_> = request.topics[0]
        .partitions
        .iter()
        .map(|asked| asked.unknown_tagged_fields.get(&2).map(|field| field.to_vec()))
        .collect();
    assert_eq!(fields, [None, Some(vec![0, 0, 0, 0])]);
}

/// A source gets a plan, and a plan has no version that has the field.
#[test]
fn plan_for_a_source_has_no_version_19() {
    let error = plan(&[partition(0)]).encode(FETCH_VERSION_MIRROR_EPOCH, ID).unwrap_err();
    assert_eq!((error.api_key, error.version), (1, 19));
}
