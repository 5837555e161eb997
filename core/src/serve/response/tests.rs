use bytes::{Buf, Bytes};
use kafka_protocol::messages::{ApiKey, FetchResponse, ResponseHeader};
use kafka_protocol::protocol::Decodable;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::protocol::fetch_stream::{FetchEvent, FetchLimits, FetchStream};
use crate::types::{ProducerId, TopicId};

/// The records of answer `index` in these tests.
fn records(index: usize, bytes: u64) -> Vec<u8> {
    vec![u8::try_from(index % 251).expect("small"); usize::try_from(bytes).expect("small")]
}

fn assemble(layout: &FetchResponseLayout, answers: &[PartitionAnswer]) -> Bytes {
    let mut out = Vec::new();
    for piece in &layout.pieces {
        match piece {
            Piece::Bytes(range) => out.extend_from_slice(&layout.bytes[range.clone()]),
            Piece::Records(index) => {
                out.extend_from_slice(&records(*index, answers[*index].records_bytes));
            }
        }
    }
    out.into()
}

fn answer(version: i16) -> impl Strategy<Value = PartitionAnswer> {
    let aborted = prop::option::of(prop::collection::vec((0..9_i64, 0..99_i64), 0..4));
    let leader = (0..9_i32, 0..9_i32);
    let diverging = prop::option::of((0..9_i32, 0..99_i64));
    (
        0..3_u8,
        0..9_i32,
        any::<bool>(),
        0..99_i64,
        aborted,
        diverging,
        (prop::option::of(leader), -1..9_i32),
        0..300_u64,
    )
        .prop_map(
            move |(
                topic,
                partition,
                failed,
                offset,
                aborted,
                diverging,
                (leader, mirror),
                bytes,
            )| {
                let topic = if version >= 13 {
                    TopicKey::Id(TopicId(Uuid::from_u128(topic.into())))
                } else {
                    TopicKey::Name(format!("topic-{topic}").into())
                };
                PartitionAnswer {
                    key: PartitionKey { topic, partition },
                    error: failed.then_some(ResponseError::OffsetOutOfRange),
                    high_watermark: Offset(offset),
                    last_stable: Offset(offset + 1),
                    log_start: Offset(offset + 2),
                    diverging: diverging.map(|(epoch, end)| Divergence {
                        epoch: LeaderEpoch(epoch),
                        end: Offset(end),
                    }),
                    current_leader: leader.map(|(leader, epoch)| CurrentLeader {
                        leader: BrokerId(leader),
                        epoch: LeaderEpoch(epoch),
                    }),
                    mirror_leader_epoch: LeaderEpoch(mirror),
                    aborted: aborted.map(|list| {
                        list.into_iter()
                            .map(|(pid, first)| AbortedTxn {
                                producer_id: ProducerId(pid),
                                first_offset: Offset(first),
                                last_offset: Offset(first),
                                last_stable_offset: Offset(first),
                            })
                            .collect()
                    }),
                    records_bytes: bytes,
                }
            },
        )
}

fn case() -> impl Strategy<Value = (i16, Vec<PartitionAnswer>)> {
    (4..=19_i16)
        .prop_flat_map(|version| (Just(version), prop::collection::vec(answer(version), 0..8)))
}

fn check(version: i16, answers: &[PartitionAnswer]) {
    let head = FetchResponseHead {
        version,
        correlation_id: 77,
        throttle_time_ms: 5,
        error: (version >= 7).then_some(ResponseError::FetchSessionIdNotFound),
        session_id: 42,
        node_endpoints: vec![NodeEndpoint { node: BrokerId(3), host: "h".into(), port: 9092 }],
    };
    let layout = FetchResponseLayout::new(&head, answers).expect("small");
    let mut wire = assemble(&layout, answers);
    assert_eq!(usize::try_from(wire.get_i32()), Ok(wire.remaining()));
    let header = ResponseHeader::decode(&mut wire, ApiKey::Fetch.response_header_version(version));
    assert_eq!(header.expect("header").correlation_id, 77);
    let body = FetchResponse::decode(&mut wire, version.min(18)).expect("body");
    assert_eq!(wire.remaining(), 0, "v{version} leaves bytes behind");
    assert_eq!(body.throttle_time_ms, 5);
    if version >= 7 {
        assert_eq!((body.error_code, body.session_id), (70, 42));
    }
    assert_eq!(body.node_endpoints.len(), usize::from(version >= 16));
    let mut decoded = body
        .responses
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(move |partition| (topic, partition)));
    for (index, want) in answers.iter().enumerate() {
        let (topic, got) = decoded.next().expect("as many partitions as answers");
        match &want.key.topic {
            TopicKey::Name(name) => assert_eq!(topic.topic.as_str(), &**name),
            TopicKey::Id(id) => assert_eq!(topic.topic_id, id.0),
        }
        assert_eq!(got.partition_index, want.key.partition);
        assert_eq!(got.error_code, want.error.map_or(0, |error| error.code()));
        assert_eq!(got.high_watermark, want.high_watermark.0);
        assert_eq!(got.last_stable_offset, want.last_stable.0);
        if version >= 5 {
            assert_eq!(got.log_start_offset, want.log_start.0);
        }
        // Version 19 is version 18 and this field.
        let mirror = got.unknown_tagged_fields.get(&3).map(|field| field.to_vec());
        let want_mirror = want.mirror_leader_epoch.known().filter(|_| version >= 19);
        assert_eq!(mirror, want_mirror.map(|epoch| epoch.0.to_be_bytes().to_vec()), "v{version}");
        if version >= 12 {
            let (epoch, end) = want.diverging.map_or((-1, -1), |d| (d.epoch.0, d.end.0));
            assert_eq!((got.diverging_epoch.epoch, got.diverging_epoch.end_offset), (epoch, end));
            let (leader, epoch) = want.current_leader.map_or((-1, -1), |l| (l.leader.0, l.epoch.0));
            let current = &got.current_leader;
            assert_eq!((current.leader_id.0, current.leader_epoch), (leader, epoch));
        }
        let aborted = got.aborted_transactions.as_ref().map(|list| {
            list.iter().map(|txn| (txn.producer_id.0, txn.first_offset)).collect::<Vec<_>>()
        });
        let want_aborted = want.aborted.as_ref().map(|list| {
            list.iter().map(|txn| (txn.producer_id.0, txn.first_offset.0)).collect::<Vec<_>>()
        });
        assert_eq!(aborted, want_aborted);
        let got_records = got.records.as_ref().expect("never null");
        assert_eq!(got_records[..], records(index, want.records_bytes)[..]);
    }
    assert!(decoded.next().is_none());
}

proptest! {
    /// The oracle is kafka-protocol's decoder, in every version.
    #[test]
    fn layout_is_what_a_client_decodes((version, answers) in case()) {
        check(version, &answers);
    }
}

#[test]
fn response_larger_than_a_frame_is_refused() {
    let key = PartitionKey { topic: TopicKey::Name("t".into()), partition: 0 };
    let huge = PartitionAnswer {
        error: None,
        records_bytes: 1 << 31,
        ..PartitionAnswer::failed(key, ResponseError::UnknownServerError)
    };
    let head = FetchResponseHead {
        version: 11,
        correlation_id: 0,
        throttle_time_ms: 0,
        error: None,
        session_id: 0,
        node_endpoints: Vec::new(),
    };
    assert!(FetchResponseLayout::new(&head, &[huge]).is_err());
}

/// Written by hand from the schema of Fetch and KIP-1279: response tag 3.
#[test]
fn mirror_leader_epoch_is_the_bytes_of_the_kip() {
    let key = PartitionKey { topic: TopicKey::Id(TopicId(Uuid::from_u128(0x11))), partition: 3 };
    let answer = PartitionAnswer {
        error: None,
        high_watermark: Offset(8),
        last_stable: Offset(8),
        log_start: Offset(2),
        mirror_leader_epoch: LeaderEpoch(9),
        ..PartitionAnswer::failed(key, ResponseError::UnknownServerError)
    };
    let laid_out = |version| {
        let head = FetchResponseHead {
            version,
            correlation_id: 77,
            throttle_time_ms: 0,
            error: None,
            session_id: 0,
            node_endpoints: Vec::new(),
        };
        FetchResponseLayout::new(&head, std::slice::from_ref(&answer)).expect("small").bytes
    };
    #[rustfmt::skip]
    let body = [
        // Correlation ID, no tagged fields; throttle time, error, session.
        0, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        // One topic by its ID, with one partition: index, error.
        2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x11, 2, 0, 0, 0, 3, 0, 0,
        // High watermark, last stable offset, log start.
        0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 2,
        // No list of aborted transactions, no preferred replica, no records.
        0, 0xff, 0xff, 0xff, 0xff, 1,
    ];
    let frame = |tags: &[u8]| {
        // The topic and the response have no tagged fields.
        let all = [&body[..], tags, &[0, 0]].concat();
        let length = u32::try_from(all.len()).expect("small");
        [&length.to_be_bytes()[..], &all].concat()
    };
    assert_eq!(laid_out(19), frame(&[1, 3, 4, 0, 0, 0, 9]));
    assert_eq!(laid_out(18), frame(&[0]));

    // The other direction: the follower's decoder.
    let mut stream = FetchStream::new(19, FetchLimits::default());
    let wire = laid_out(19);
    let mut rest = &wire[..];
    let mut told = None;
    while let (used, Some(event)) = stream.feed(rest).expect("a response") {
        rest = &rest[used..];
        if let FetchEvent::PartitionEnd(end) = event {
            told = end.mirror_leader_epoch;
        }
    }
    assert_eq!(told, Some(LeaderEpoch(9)));
}
