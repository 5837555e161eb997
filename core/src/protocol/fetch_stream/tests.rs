//! The kafka-protocol crate is the oracle: what it encodes must come out as the
//! same fields here, however the bytes are cut.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::fetch_response as theirs;
use kafka_protocol::messages::{FetchResponse, ResponseHeader as TheirHeader, TopicName};
use kafka_protocol::protocol::{Encodable, StrBytes};
use proptest::prelude::*;

use super::*;
use crate::protocol::wire::len64;
use crate::types::LeaderEpoch;

/// What came out of a decoder, record bytes included.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Event(FetchEvent),
    Records(Vec<u8>),
}

/// Feeds `bytes` in pieces of the given sizes, over and over, and takes the
/// records as the shard does: straight from the input, piece by piece.
fn decode(
    stream: &mut FetchStream,
    bytes: &[u8],
    sizes: &[usize],
) -> Result<Vec<Seen>, DecodeError> {
    let mut seen = Vec::new();
    let mut sizes = sizes.iter().copied().cycle();
    let mut rest = bytes;
    loop {
        let (mut piece, tail) = rest.split_at(sizes.next().unwrap_or(rest.len()).min(rest.len()));
        rest = tail;
        loop {
            let due = stream.remaining_records();
            let before = stream.frame_remaining();
            let (used, event) = stream.feed(piece)?;
            assert!(due == 0 || (used == 0 && event.is_none()), "records are the caller's");
            if before > 4 && stream.frame_remaining() > 0 {
                assert_eq!(before - stream.frame_remaining(), len64(&piece[..used]));
            }
            piece = &piece[used..];
            if let Some(event) = event {
                seen.push(Seen::Event(event));
                continue;
            }
            if due == 0 {
                assert!(piece.is_empty() || stream.remaining_records() > 0);
            }
            let take = piece.len().min(usize::try_from(stream.remaining_records()).unwrap());
            if take == 0 {
                break;
            }
            match seen.last_mut() {
                Some(Seen::Records(have)) => have.extend_from_slice(&piece[..take]),
                _ => seen.push(Seen::Records(piece[..take].to_vec())),
            }
            piece = &piece[take..];
            stream.records_taken(u64::try_from(take).unwrap());
        }
        if rest.is_empty() {
            return Ok(seen);
        }
    }
}

fn decode_whole(version: i16, bytes: &[u8]) -> Result<Vec<Seen>, DecodeError> {
    decode(&mut FetchStream::new(version, FetchLimits::default()), bytes, &[bytes.len().max(1)])
}

/// A response as it travels: size, header, body. The oracle ends at version 18;
/// what it writes as 18 is valid as 19.
fn encode(version: i16, correlation_id: i32, response: &FetchResponse) -> Vec<u8> {
    let mut frame = BytesMut::new();
    let header = TheirHeader::default().with_correlation_id(correlation_id);
    header.encode(&mut frame, i16::from(version >= 12)).unwrap();
    response.encode(&mut frame, version.min(18)).unwrap();
    let mut out = BytesMut::new();
    out.put_i32(i32::try_from(frame.len()).unwrap());
    out.extend_from_slice(&frame);
    out.to_vec()
}

/// What must come out of `response`.
fn expected(version: i16, correlation_id: i32, response: &FetchResponse) -> Vec<Seen> {
    let mut seen = vec![Seen::Event(FetchEvent::Header(ResponseHeader {
        correlation_id,
        throttle_ms: u32::try_from(response.throttle_time_ms).unwrap(),
        error: if version >= 7 { ErrorCode(response.error_code) } else { ErrorCode::NONE },
        session_id: response.session_id,
    }))];
    for topic in &response.responses {
        let named = if version >= 13 {
            TopicRef::Id(TopicId(topic.topic_id))
        } else {
            TopicRef::Name(Arc::from(topic.topic.0.as_str()))
        };
        for data in &topic.partitions {
            let records = data.records.clone().unwrap_or_default();
            let aborted = data.aborted_transactions.as_ref().map_or(0, Vec::len);
            seen.push(Seen::Event(FetchEvent::Partition(PartitionHeader {
                topic: named.clone(),
                index: data.partition_index,
                error: ErrorCode(data.error_code),
                high_watermark: Offset(data.high_watermark),
                last_stable_offset: Offset(data.last_stable_offset),
                log_start_offset: Offset(if version >= 5 { data.log_start_offset } else { -1 }),
                aborted_count: u32::try_from(aborted).unwrap(),
                preferred_read_replica: BrokerId(data.preferred_read_replica.0),
                records_bytes: len64(&records),
            })));
            if !records.is_empty() {
                seen.push(Seen::Records(records.to_vec()));
            }
            seen.push(Seen::Event(FetchEvent::PartitionEnd(expected_end(version, data))));
        }
    }
    let node_endpoints = response.node_endpoints.iter().map(|node| NodeEndpoint {
        node: BrokerId(node.node_id.0),
        host: node.host.to_string(),
        port: u16::try_from(node.port).unwrap(),
        rack: node.rack.as_ref().map(ToString::to_string),
    });
    seen.push(Seen::Event(FetchEvent::End { node_endpoints: node_endpoints.collect() }));
    seen
}

fn expected_end(version: i16, data: &theirs::PartitionData) -> PartitionEnd {
    let (diverging, leader) = (&data.diverging_epoch, &data.current_leader);
    let snapshot = &data.snapshot_id;
    let mirror = data.unknown_tagged_fields.get(&3).filter(|_| version >= 19);
    PartitionEnd {
        index: data.partition_index,
        diverging_epoch: (diverging.epoch >= 0).then_some(DivergingEpoch {
            epoch: LeaderEpoch(diverging.epoch),
            end_offset: Offset(diverging.end_offset),
        }),
        current_leader: (leader.leader_id.0 >= 0 || leader.leader_epoch >= 0).then_some(
            LeaderHint {
                leader: BrokerId(leader.leader_id.0),
                epoch: LeaderEpoch(leader.leader_epoch),
            },
        ),
        snapshot_id: (snapshot.end_offset >= 0).then_some(SnapshotId {
            end_offset: Offset(snapshot.end_offset),
            epoch: LeaderEpoch(snapshot.epoch),
        }),
        mirror_leader_epoch: mirror
            .map(|bytes| LeaderEpoch(i32::from_be_bytes(bytes[..].try_into().unwrap())))
            .and_then(LeaderEpoch::known),
    }
}

/// Tagged fields from a later release; none where the version has no tagged fields.
fn unknown_tags(
    version: i16,
    first: i32,
) -> impl Strategy<Value = std::collections::BTreeMap<i32, Bytes>> {
    let most = if version >= 12 { 3 } else { 1 };
    let value = prop::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from);
    prop::collection::btree_map(first..first + 400, value, 0..most)
}

prop_compose! {
    fn partition(version: i16)(
        fixed in (0..i32::MAX, any::<i16>(), any::<i64>(), any::<i64>(), any::<i64>()),
        aborted in prop::option::of(prop::collection::vec(
            (any::<i64>(), any::<i64>(), unknown_tags(version, 0)), 0..4)),
        replica in -1..9_i32,
        records in prop::option::of(prop::collection::vec(any::<u8>(), 0..400)),
        diverging in prop::option::of((-1..9_i32, 0..i64::MAX)),
        leader in prop::option::of((-1..9_i32, -1..9_i32)),
        snapshot in prop::option::of((-1..i64::MAX, any::<i32>())),
        mirror in prop::option::of(any::<i32>()),
        tags in unknown_tags(version, 4),
    ) -> theirs::PartitionData {
        let aborted = aborted.map(|all| all.into_iter().map(|(id, first, tags)| {
            theirs::AbortedTransaction::default()
                .with_producer_id(id.into())
                .with_first_offset(first)
                .with_unknown_tagged_fields(tags)
        }).collect());
        let mut data = theirs::PartitionData::default()
            .with_partition_index(fixed.0)
            .with_error_code(fixed.1)
            .with_high_watermark(fixed.2)
            .with_last_stable_offset(fixed.3)
            .with_log_start_offset(fixed.4)
            .with_aborted_transactions(aborted)
            .with_records(records.map(Bytes::from));
        if version >= 11 {
            data.preferred_read_replica = replica.into();
        }
        if version < 12 {
            return data;
        }
        data.unknown_tagged_fields = tags;
        if let Some((epoch, end)) = diverging {
            data.diverging_epoch.epoch = epoch;
            data.diverging_epoch.end_offset = end;
        }
        if let Some((id, epoch)) = leader {
            data.current_leader.leader_id = id.into();
            data.current_leader.leader_epoch = epoch;
        }
        if let Some((end, epoch)) = snapshot {
            data.snapshot_id.end_offset = end;
            data.snapshot_id.epoch = epoch;
        }
        if let Some(epoch) = mirror.filter(|_| version >= 18) {
            data.unknown_tagged_fields.insert(3, Bytes::copy_from_slice(&epoch.to_be_bytes()));
        }
        data
    }
}

prop_compose! {
    fn topic(version: i16)(
        name in "[a-zA-Z0-9._-]{0,60}|[äöß漢]{1,9}",
        id: u128,
        partitions in prop::collection::vec(partition(version), 0..5),
        tags in unknown_tags(version, 0),
    ) -> theirs::FetchableTopicResponse {
        let topic = theirs::FetchableTopicResponse::default()
            .with_partitions(partitions)
            .with_unknown_tagged_fields(tags);
        if version >= 13 {
            topic.with_topic_id(Uuid::from_u128(id))
        } else {
            topic.with_topic(TopicName(StrBytes::from_string(name)))
        }
    }
}

prop_compose! {
    fn response_of(version: i16)(
        throttle in 0..i32::MAX,
        error: i16,
        session: i32,
        topics in prop::collection::vec(topic(version), 0..4),
        nodes in prop::collection::vec(
            (any::<i32>(), "[a-z.]{0,30}", any::<u16>(), prop::option::of("[a-z]{0,5}")), 0..4),
        tags in unknown_tags(version, 1),
    ) -> FetchResponse {
        let mut response = FetchResponse::default()
            .with_throttle_time_ms(throttle)
            .with_responses(topics)
            .with_unknown_tagged_fields(tags);
        if version >= 7 {
            response = response.with_error_code(error).with_session_id(session);
        }
        if version >= 16 {
            response.node_endpoints = nodes.into_iter().map(|(id, host, port, rack)| {
                theirs::NodeEndpoint::default()
                    .with_node_id(id.into())
                    .with_host(StrBytes::from_string(host))
                    .with_port(i32::from(port))
                    .with_rack(rack.map(StrBytes::from_string))
            }).collect();
        }
        response
    }
}

fn any_response() -> impl Strategy<Value = (i16, FetchResponse)> {
    (FETCH_VERSION_MIN..=FETCH_VERSION_MAX)
        .prop_flat_map(|version| (Just(version), response_of(version)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Two responses, one after the other on one connection, cut anywhere.
    #[test]
    fn agrees_with_the_oracle_in_any_pieces(
        (version, response) in any_response(),
        id: i32,
        sizes in prop::collection::vec(1..300_usize, 1..20),
    ) {
        let mut bytes = encode(version, id, &response);
        bytes.extend(encode(version, 7, &FetchResponse::default()));
        let mut want = expected(version, id, &response);
        want.extend(expected(version, 7, &FetchResponse::default()));

        for sizes in [&sizes[..], &[1], &[bytes.len()]] {
            let mut stream = FetchStream::new(version, FetchLimits::default());
            let seen = decode(&mut stream, &bytes, sizes);
            prop_assert_eq!(seen.as_ref(), Ok(&want));
            prop_assert!(stream.is_idle());
        }
    }

    /// A broken broker costs its connection, never more.
    #[test]
    fn damaged_responses_never_panic(
        (version, response) in any_response(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        as_version in FETCH_VERSION_MIN..=FETCH_VERSION_MAX,
        sizes in prop::collection::vec(1..64_usize, 1..8),
    ) {
        let mut bytes = encode(version, 1, &response);
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        for version in [version, as_version] {
            let whole = decode_whole(version, &bytes);
            let mut stream = FetchStream::new(version, FetchLimits::default());
            let cut = decode(&mut stream, &bytes, &sizes);
            prop_assert_eq!(&whole, &cut);
            if let Err(error) = cut {
                prop_assert_eq!(stream.feed(&[0; 9]), Err(error), "an error stays");
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(
        version in FETCH_VERSION_MIN..=FETCH_VERSION_MAX,
        // A plausible size in front, so that the rest is read at all.
        size in 0..300_i32,
        bytes in prop::collection::vec(any::<u8>(), 0..300),
    ) {
        let framed = [&size.to_be_bytes()[..], &bytes].concat();
        let _ = decode_whole(version, &framed);
        let _ = decode_whole(version, &bytes);
    }
}

/// Puts the size in front.
fn framed(body: &[u8]) -> Vec<u8> {
    let size = i32::try_from(body.len()).unwrap().to_be_bytes();
    [&size[..], body].concat()
}

/// Bytes from a text of hexadecimal pairs; what follows a `;` in a line is a remark.
fn hex(text: &str) -> Vec<u8> {
    text.lines()
        .flat_map(|line| line.split(';').next().unwrap().split_whitespace())
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

fn named(name: &str) -> TopicRef {
    TopicRef::Name(Arc::from(name))
}

#[test]
fn wire_bytes_of_version_4() {
    let bytes = framed(&hex("
        00 00 00 07                   ; correlation ID 7
        00 00 00 00                   ; throttle
        00 00 00 01                   ; one topic
        00 01 61                      ; a
        00 00 00 01                   ; one partition
        00 00 00 02                   ; index 2
        00 00                         ; no error
        00 00 00 00 00 00 00 0a       ; high watermark 10
        00 00 00 00 00 00 00 09       ; last stable offset 9
        ff ff ff ff                   ; no aborted transactions
        00 00 00 03 de ad 00          ; records
    "));
    let header = PartitionHeader {
        topic: named("a"),
        index: 2,
        error: ErrorCode::NONE,
        high_watermark: Offset(10),
        last_stable_offset: Offset(9),
        log_start_offset: Offset::NONE,
        aborted_count: 0,
        preferred_read_replica: BrokerId::NONE,
        records_bytes: 3,
    };
    let end = PartitionEnd { index: 2, ..PartitionEnd::default() };
    assert_eq!(
        decode_whole(4, &bytes),
        Ok(vec![
            Seen::Event(FetchEvent::Header(ResponseHeader {
                correlation_id: 7,
                throttle_ms: 0,
                error: ErrorCode::NONE,
                session_id: 0,
            })),
            Seen::Event(FetchEvent::Partition(header)),
            Seen::Records(vec![0xde, 0xad, 0]),
            Seen::Event(FetchEvent::PartitionEnd(end)),
            Seen::Event(FetchEvent::End { node_endpoints: vec![] }),
        ])
    );
}

#[test]
fn wire_bytes_of_version_11() {
    let bytes = framed(&hex("
        00 00 00 07                   ; correlation ID
        00 00 01 00                   ; throttle 256 ms
        00 47                         ; INVALID_FETCH_SESSION_EPOCH
        00 00 00 63                   ; session 99
        00 00 00 01                   ; one topic
        00 02 61 62                   ; ab
        00 00 00 01                   ; one partition
        00 00 00 00                   ; index 0
        00 06                         ; NOT_LEADER_OR_FOLLOWER
        ff ff ff ff ff ff ff ff       ; high watermark -1
        ff ff ff ff ff ff ff ff       ; last stable offset -1
        00 00 00 00 00 00 00 05       ; log start offset 5
        00 00 00 01                   ; one aborted transaction
        00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 02
        00 00 00 04                   ; preferred replica 4
        ff ff ff ff                   ; no records
    "));
    let header = PartitionHeader {
        topic: named("ab"),
        index: 0,
        error: ErrorCode::NOT_LEADER_OR_FOLLOWER,
        high_watermark: Offset::NONE,
        last_stable_offset: Offset::NONE,
        log_start_offset: Offset(5),
        aborted_count: 1,
        preferred_read_replica: BrokerId(4),
        records_bytes: 0,
    };
    assert_eq!(
        decode_whole(11, &bytes),
        Ok(vec![
            Seen::Event(FetchEvent::Header(ResponseHeader {
                correlation_id: 7,
                throttle_ms: 256,
                error: ErrorCode::INVALID_FETCH_SESSION_EPOCH,
                session_id: 99,
            })),
            Seen::Event(FetchEvent::Partition(header)),
            Seen::Event(FetchEvent::PartitionEnd(PartitionEnd::default())),
            Seen::Event(FetchEvent::End { node_endpoints: vec![] }),
        ])
    );
}

/// One partition of version 12 with a diverging epoch, a leader hint and a field of a later release.
const VERSION_12: &str = "
        00 00 00 07 00                ; correlation ID, no tagged fields
        00 00 00 00                   ; throttle
        00 00                         ; no error
        00 00 00 63                   ; session 99
        02                            ; one topic
        03 61 62                      ; ab
        02                            ; one partition
        00 00 00 01                   ; index 1
        00 00                         ; no error
        00 00 00 00 00 00 01 00       ; high watermark 256
        00 00 00 00 00 00 00 ff       ; last stable offset 255
        00 00 00 00 00 00 00 00       ; log start offset 0
        01                            ; no aborted transactions
        ff ff ff ff                   ; no preferred replica
        03 aa bb                      ; records
        03                            ; three tagged fields
        00 0d 00 00 00 05 00 00 00 00 00 00 00 64 00  ; epoch 5 ends at 100
        01 09 00 00 00 03 00 00 00 06 00              ; node 3 leads in epoch 6
        7f 02 cc cc                   ; not known
        00                            ; of the topic
        00                            ; of the response
";

#[test]
fn wire_bytes_of_version_12() {
    let header = PartitionHeader {
        topic: named("ab"),
        index: 1,
        error: ErrorCode::NONE,
        high_watermark: Offset(256),
        last_stable_offset: Offset(255),
        log_start_offset: Offset::ZERO,
        aborted_count: 0,
        preferred_read_replica: BrokerId::NONE,
        records_bytes: 2,
    };
    let end = PartitionEnd {
        index: 1,
        diverging_epoch: Some(DivergingEpoch { epoch: LeaderEpoch(5), end_offset: Offset(100) }),
        current_leader: Some(LeaderHint { leader: BrokerId(3), epoch: LeaderEpoch(6) }),
        ..PartitionEnd::default()
    };
    assert_eq!(
        decode_whole(12, &framed(&hex(VERSION_12))),
        Ok(vec![
            Seen::Event(FetchEvent::Header(ResponseHeader {
                correlation_id: 7,
                throttle_ms: 0,
                error: ErrorCode::NONE,
                session_id: 99,
            })),
            Seen::Event(FetchEvent::Partition(header)),
            Seen::Records(vec![0xaa, 0xbb]),
            Seen::Event(FetchEvent::PartitionEnd(end)),
            Seen::Event(FetchEvent::End { node_endpoints: vec![] }),
        ])
    );
}

#[test]
fn wire_bytes_of_version_16() {
    let bytes = framed(&hex("
        00 00 00 07 00                ; correlation ID, no tagged fields
        00 00 00 00 00 00             ; throttle, no error
        00 00 00 63                   ; session 99
        02                            ; one topic
        00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 01
        02                            ; one partition
        00 00 00 00                   ; index 0
        00 4a                         ; FENCED_LEADER_EPOCH
        ff ff ff ff ff ff ff ff
        ff ff ff ff ff ff ff ff
        ff ff ff ff ff ff ff ff
        00                            ; null for aborted transactions
        ff ff ff ff                   ; no preferred replica
        01                            ; empty records
        01 01 09 00 00 00 02 00 00 00 09 00   ; node 2 leads in epoch 9
        00                            ; of the topic
        01                            ; one tagged field of the response
        00 0e                         ; node endpoints, 14 bytes
        02 00 00 00 02 02 68 00 00 23 84 02 72 00  ; one: node 2, h, 9092, rack r
    "));
    let header = PartitionHeader {
        topic: TopicRef::Id(TopicId(Uuid::from_u128(1))),
        index: 0,
        error: ErrorCode::FENCED_LEADER_EPOCH,
        high_watermark: Offset::NONE,
        last_stable_offset: Offset::NONE,
        log_start_offset: Offset::NONE,
        aborted_count: 0,
        preferred_read_replica: BrokerId::NONE,
        records_bytes: 0,
    };
    let end = PartitionEnd {
        current_leader: Some(LeaderHint { leader: BrokerId(2), epoch: LeaderEpoch(9) }),
        ..PartitionEnd::default()
    };
    let node = NodeEndpoint {
        node: BrokerId(2),
        host: "h".to_owned(),
        port: 9092,
        rack: Some("r".to_owned()),
    };
    let seen = decode_whole(16, &bytes).unwrap();
    assert_eq!(
        seen[1..],
        [
            Seen::Event(FetchEvent::Partition(header)),
            Seen::Event(FetchEvent::PartitionEnd(end)),
            Seen::Event(FetchEvent::End { node_endpoints: vec![node] }),
        ]
    );
}

/// A response of version 12 with one byte string replaced.
fn altered(from: &str, to: &str) -> Result<Vec<Seen>, DecodeError> {
    assert!(VERSION_12.contains(from), "{from}");
    decode_whole(12, &framed(&hex(&VERSION_12.replacen(from, to, 1))))
}

#[test]
fn what_a_broker_must_not_send_is_named() {
    let past = |field, need, left| Err(DecodeError::PastFrame { field, need, left });
    let null = |field| Err(DecodeError::Null { field });
    let tags = "tagged fields of a partition";

    assert_eq!(
        altered("00 00 00 00                   ; throttle", "ff ff ff fe"),
        Err(DecodeError::Negative { field: "throttle_time_ms", got: -2 })
    );
    assert_eq!(altered("02                            ; one topic", "00"), null("topic count"));
    assert_eq!(altered("03 61 62", "00"), null("topic name"));
    assert_eq!(altered("02                            ; one part", "00;"), null("partition count"));
    assert_eq!(
        altered("03 61 62", "03 61 ff"),
        Err(DecodeError::Utf8 { field: "topic name", at: 1 })
    );
    assert_eq!(
        altered("00 00 00 01                   ; index 1", "80 00 00 00"),
        Err(DecodeError::Negative { field: "partition_index", got: -2_147_483_648 })
    );
    // 35 bytes follow the length, and three counts of tagged fields follow the records.
    assert_eq!(altered("03 aa bb", "22 aa bb"), past("records", 36, 35));
    assert_eq!(altered("7f 02 cc cc", "7f 05 cc cc"), past(tags, 5, 4));
    assert_eq!(
        altered("ff ff ff ff                   ; no pref", "ff ff ff ff ff ff ff ff ff ;"),
        Err(DecodeError::Varint { field: "records" })
    );
    assert_eq!(
        altered("01 09 00 00 00 03", "00 09 00 00 00 03"),
        past("diverging_epoch", 8, 5),
        "12 bytes cannot be had from 9"
    );
    assert_eq!(
        altered("01 09 00 00 00 03 00 00 00 06 00", "01 0a 00 00 00 03 00 00 00 06 00 00"),
        Err(DecodeError::TaggedSize { field: "current_leader", size: 10, used: 9 })
    );
    let twice = "00 0d 00 00 00 05 00 00 00 00 00 00 00 64 00";
    assert_eq!(
        altered("01 09 00 00 00 03 00 00 00 06 00", twice),
        Err(DecodeError::Repeated { field: "diverging_epoch" })
    );
    assert_eq!(
        altered("00 00 00 05 00 00 00 00 00 00 00 64", "00 00 00 05 ff ff ff ff ff ff ff ff"),
        Err(DecodeError::Negative { field: "diverging_epoch.end_offset", got: -1 })
    );
    assert_eq!(
        altered("00                            ; of the response", "00 00"),
        Err(DecodeError::FrameNotConsumed { left: 1 })
    );
    assert_eq!(
        altered("00                            ; of the topic", "; gone"),
        past("tagged fields of the response", 1, 0)
    );
}

#[test]
fn negative_lengths_of_old_versions_are_refused() {
    let head = "00 00 00 07  00 00 00 00 ";
    let topic = format!("{head} 00 00 00 01  00 01 61 ");
    let fixed = "00 00 00 00 00 00  00 00 00 00 00 00 00 00  00 00 00 00 00 00 00 00";
    let decode = |text: &str| decode_whole(4, &framed(&hex(text)));
    let negative = |field, got| Err(DecodeError::Negative { field, got });

    assert_eq!(
        decode(&format!("{head} ff ff ff ff")),
        Err(DecodeError::Null { field: "topic count" })
    );
    assert_eq!(decode(&format!("{head} ff ff ff fe")), negative("topic count", -2));
    let padding = "00 ".repeat(64);
    assert_eq!(
        decode(&format!("{head} 00 00 00 01 80 00 {padding}")),
        negative("topic name", -32_768)
    );
    assert_eq!(decode(&format!("{topic} ff ff ff f0 {padding}")), negative("partition count", -16));
    assert_eq!(
        decode(&format!("{topic} 00 00 00 01 {fixed} ff ff ff fe {padding}")),
        negative("aborted_transactions count", -2)
    );
    assert_eq!(
        decode(&format!("{topic} 00 00 00 01 {fixed} ff ff ff ff ff ff ff fe {padding}")),
        negative("records", -2)
    );
}

/// A peer that is no broker, and counts that would be gigabytes.
#[test]
fn sizes_and_counts_are_held_against_limits() {
    let max = FetchLimits::default().frame_bytes_max;
    for (text, got) in [
        (&b"HTTP/1.1 400 Bad Request\r\n"[..], 0x4854_5450),
        (&[0xff; 8], -1),
        (&[0, 0, 0, 15, 9], 15),
    ] {
        let error = decode_whole(12, text).unwrap_err();
        assert_eq!(error, DecodeError::FrameSize { got, min: 17, max });
    }

    let limits = FetchLimits {
        frame_bytes_max: 1 << 20,
        topics_max: 2,
        partitions_max: 3,
        aborted_max: 1,
        name_bytes_max: 4,
        tagged_bytes_max: 8,
    };
    let refused = |response: &FetchResponse| {
        let bytes = encode(12, 0, response);
        decode(&mut FetchStream::new(12, limits), &bytes, &[bytes.len()]).unwrap_err()
    };
    let topic = |name: &str, partitions: usize| {
        theirs::FetchableTopicResponse::default()
            .with_topic(TopicName(StrBytes::from_string(name.to_owned())))
            .with_partitions(vec![theirs::PartitionData::default(); partitions])
    };
    let of = |topics| FetchResponse::default().with_responses(topics);
    let above = |field, got, max| DecodeError::AboveLimit { field, got, max };

    assert_eq!(refused(&of(vec![topic("a", 0); 3])), above("topic count", 3, 2));
    assert_eq!(refused(&of(vec![topic("a", 2); 2])), above("partition count", 4, 3));
    assert_eq!(refused(&of(vec![topic("abcde", 1)])), above("topic name", 5, 4));
    let mut aborted = topic("a", 1);
    aborted.partitions[0].aborted_transactions =
        Some(vec![theirs::AbortedTransaction::default(); 2]);
    assert_eq!(refused(&of(vec![aborted])), above("aborted_transactions count", 2, 1));
    let tagged = of(vec![]).with_unknown_tagged_field(9, Bytes::from_static(&[0; 9]));
    assert_eq!(refused(&tagged), above("tagged fields of the response", 9, 8));
}

/// A count is refused by the bytes that are announced, not by those that came.
#[test]
fn huge_counts_are_refused_at_once() {
    let count = |at: &str| {
        let bytes = hex(&format!("00 10 00 00 {at}"));
        decode_whole(4, &bytes).unwrap_err()
    };
    let head = "00 00 00 07  00 00 00 00 ";
    assert_eq!(
        count(&format!("{head} 00 0f 00 00")),
        DecodeError::PastFrame { field: "topic count", need: 983_040 * 6, left: 1_048_564 }
    );
    assert_eq!(
        count(&format!("{head} 00 00 00 01 00 01 61 00 0f 00 00")),
        DecodeError::PastFrame { field: "partition count", need: 983_040 * 30, left: 1_048_557 }
    );
}

#[test]
#[should_panic(expected = "record bytes taken")]
fn taking_more_than_the_records_is_a_bug() {
    FetchStream::new(12, FetchLimits::default()).records_taken(1);
}
