//! Bytes by hand, both directions. Compact lengths are one more than what they count; the last
//! byte of a struct counts its tagged fields.

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::types::TopicId;

const ID: &[u8] = b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10";
/// An offset of -1.
const NONE: &[u8] = b"\xff\xff\xff\xff\xff\xff\xff\xff";
/// No throttle, no error, no message.
const FINE: &[u8] = b"\0\0\0\0\0\0\0";

fn id() -> TopicId {
    TopicId(Uuid::from_slice(ID).unwrap())
}

#[track_caller]
fn check<M: Field + PartialEq + std::fmt::Debug>(message: M, parts: &[&[u8]]) {
    let bytes = parts.concat();
    assert_eq!(encode(&message), bytes);
    assert_eq!(decode::<M>(&bytes), Ok(message));
    // No part of it is a message, and none has room behind it.
    for cut in 0..bytes.len() {
        assert!(decode::<M>(&bytes[..cut]).is_err(), "{cut} of {}", bytes.len());
    }
    let longer = [&bytes[..], b"\0"].concat();
    assert_eq!(decode::<M>(&longer), Err(DecodeError::FrameNotConsumed { left: 1 }));
}

#[test]
fn mirrors_are_made_and_removed() {
    let config = |name: &str, value: Option<&str>| ClusterMirrorConfig {
        name: name.into(),
        value: value.map(Into::into),
    };
    check(
        CreateClusterMirrorRequest {
            mirror_name: "west".into(),
            config: vec![config("a", Some("b")), config("c", None)],
        },
        &[b"\x05west\x03", b"\x02a\x02b\0", b"\x02c\0\0", b"\0"],
    );
    check(
        ClusterMirrorResponse {
            throttle_time_ms: 258,
            error_code: 136,
            error_message: Some("no".into()),
        },
        &[b"\0\0\x01\x02\0\x88\x03no\0"],
    );
    let delete =
        |validate_only| DeleteClusterMirrorRequest { mirror_name: "w".into(), validate_only };
    check(delete(false), &[b"\x02w\0"]);
    check(delete(true), &[b"\x02w\x01\xe8\x07\x01\x01"]);
    check(ClusterMirrorResponse::default(), &[FINE, b"\0"]);
}

#[test]
fn topics_are_started_stopped_paused_resumed_and_recovered() {
    let start = StartMirrorTopic { topic_id: id(), topic_name: "t".into(), num_partitions: 3 };
    check(
        StartMirrorTopicsRequest {
            mirror_name: "w".into(),
            include_patterns: vec!["a".into()],
            validate_only: true,
            ..StartMirrorTopicsRequest::default()
        },
        &[b"\x02w\x01\x02\x02a\x01", b"\x01\xe8\x07\x01\x01"],
    );
    check(
        StartMirrorTopicsRequest {
            mirror_name: "w".into(),
            topics: vec![start],
            include_patterns: vec!["a.*".into()],
            exclude_patterns: vec!["b".into(), String::new()],
            validate_only: false,
        },
        &[b"\x02w\x02", ID, b"\x02t\0\0\0\x03\0", b"\x02\x04a.*", b"\x03\x02b\x01", b"\0"],
    );
    let topic = || MirrorTopic { topic_id: id(), topic_name: "t".into() };
    check(
        StopMirrorTopicsRequest {
            mirror_name: "w".into(),
            topics: vec![topic()],
            patterns: vec!["p".into()],
            validate_only: false,
        },
        &[b"\x02w\x02", ID, b"\x02t\0", b"\x02\x02p", b"\0"],
    );
    check(
        StopMirrorTopicsRequest {
            mirror_name: "w".into(),
            validate_only: true,
            ..StopMirrorTopicsRequest::default()
        },
        &[b"\x02w\x01\x01", b"\x01\xe8\x07\x01\x01"],
    );
    check(
        PauseMirrorTopicsRequest { mirror_name: "w".into(), topics: vec![topic()] },
        &[b"\x02w\x02", ID, b"\x02t\0\0"],
    );
    check(
        ResumeMirrorTopicsRequest { mirror_name: "w".into(), topics: Vec::new() },
        &[b"\x02w\x01\0"],
    );
    check(
        RecoverMirrorTopicsRequest {
            mirror_name: "w".into(),
            topics: vec![RecoverMirrorTopic { topic_name: "t".into() }],
        },
        &[b"\x02w\x02\x02t\0\0"],
    );
    let result = |name: &str, error_code, message: Option<&str>| MirrorTopicResult {
        name: name.into(),
        error_code,
        error_message: message.map(Into::into),
        ..MirrorTopicResult::default()
    };
    check(
        MirrorTopicResult {
            name: "t".into(),
            num_partitions: 3,
            lag: 258,
            state: "PAUSED".into(),
            ..MirrorTopicResult::default()
        },
        &[
            b"\x02t\0\0\x03",
            b"\xe9\x07\x04\0\0\0\x03",
            b"\xea\x07\x08\0\0\0\0\0\0\x01\x02",
            b"\xeb\x07\x07\x07PAUSED",
        ],
    );
    check(
        MirrorTopicsResponse {
            mirror_name: "w".into(),
            topics: vec![result("t", 0, None), result("u", 138, Some("x"))],
            ..MirrorTopicsResponse::default()
        },
        &[FINE, b"\x02w\x03", b"\x02t\0\0\0", b"\x02u\0\x8a\x01\xe8\x07\x02\x02x", b"\0"],
    );
}

#[test]
fn mirrors_are_listed() {
    check(ListClusterMirrorsRequest::default(), &[b"\0"]);
    check(ListClusterMirrorsRequest { include_topic_names: true }, &[b"\x01\xe8\x07\x01\x01"]);
    let mirror = ListedClusterMirror {
        mirror_name: "w".into(),
        source_bootstrap: "h:1".into(),
        source_cluster_id: String::new(),
        topic_count: 2,
        topic_names: Vec::new(),
    };
    check(
        ListClusterMirrorsResponse {
            mirrors: vec![
                mirror.clone(),
                ListedClusterMirror { topic_names: vec!["t".into()], ..mirror },
            ],
            ..ListClusterMirrorsResponse::default()
        },
        &[
            FINE,
            b"\x03",
            b"\x02w\x04h:1\x01\0\0\0\x02\0",
            b"\x02w\x04h:1\x01\0\0\0\x02\x01\xe8\x07\x03\x02\x02t",
            b"\0",
        ],
    );
}

#[test]
fn mirrors_are_described_and_epochs_looked_up() {
    check(
        DescribeClusterMirrorsRequest {
            mirror_names: vec!["w".into()],
            include_authorized_operations: true,
            cluster_id: Some("c".into()),
            last_mirror_epoch_lookups: vec![EpochLookup { topic_id: id(), partitions: vec![1, 2] }],
            ..DescribeClusterMirrorsRequest::default()
        },
        &[
            b"\x02\x02w\x01",
            b"\x02\xe8\x07\x02\x02c",
            b"\xe9\x07\x1b\x02",
            ID,
            b"\x03\0\0\0\x01\0\0\0\x02\0",
        ],
    );
    let partition = DescribedMirrorPartition {
        partition_index: 4,
        source_offset: 9,
        destination_offset: 7,
        lag: 2,
        state: "MIRRORING".into(),
        ..DescribedMirrorPartition::default()
    };
    let failed = DescribedMirrorPartition {
        partition_index: 5,
        state: "FAILED".into(),
        last_mirror_epoch: 1,
        last_mirror_offset: 8,
        retry_attempt: -1,
        error_message: Some("x".into()),
        ..DescribedMirrorPartition::default()
    };
    check(
        DescribedMirrorPartition {
            state: "A".into(),
            desired_state: "B".into(),
            failing_since_ms: 258,
            ..DescribedMirrorPartition::default()
        },
        &[
            b"\0\0\0\0",
            NONE,
            NONE,
            NONE,
            b"\x02A\xff\xff\xff\xff\x02",
            b"\xeb\x07\x02\x02B",
            b"\xec\x07\x08\0\0\0\0\0\0\x01\x02",
        ],
    );
    check(
        DescribedClusterMirror {
            mirror_name: "w".into(),
            source_bootstrap: "h:1".into(),
            source_cluster_id: "c".into(),
            ..DescribedClusterMirror::default()
        },
        &[b"\0\0\x02w\x80\0\0\0\x01\x02", b"\xe9\x07\x04\x04h:1\xea\x07\x02\x02c"],
    );
    check(
        DescribeClusterMirrorsResponse {
            mirrors: vec![DescribedClusterMirror {
                mirror_name: "w".into(),
                topics: vec![DescribedMirrorTopic {
                    topic_name: "t".into(),
                    partitions: vec![partition, failed],
                    ..DescribedMirrorTopic::default()
                }],
                ..DescribedClusterMirror::default()
            }],
            lookup_results: vec![EpochLookupResult {
                topic_id: id(),
                partitions: vec![EpochLookupPartition {
                    partition_index: 1,
                    last_mirror_epoch: 6,
                    last_mirror_offset: -1,
                }],
            }],
            ..DescribeClusterMirrorsResponse::default()
        },
        &[
            FINE,
            b"\x02\0\0\x02w\x80\0\0\0\x02\x02t\x03",
            b"\0\0\0\x04\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x02",
            b"\x0aMIRRORING\xff\xff\xff\xff\0",
            b"\0\0\0\x05",
            NONE,
            NONE,
            NONE,
            b"\x07FAILED\0\0\0\x01\x03",
            b"\xe8\x07\x08\0\0\0\0\0\0\0\x08\xe9\x07\x02\xff\xff\xea\x07\x02\x02x",
            b"\0\0",
            b"\x01\xe8\x07\x1c\x02",
            ID,
            b"\x02\0\0\0\x01\0\0\0\x06\0\0",
        ],
    );
}

#[test]
fn figures_are_described() {
    check(
        DescribeClusterMirrorsRequest {
            include_figures: true,
            depth: 1,
            topic_names: vec!["t".into()],
            contains: "x".into(),
            rows_max: 258,
            ..DescribeClusterMirrorsRequest::default()
        },
        &[
            b"\x01\0\x05",
            b"\xea\x07\x01\x01",
            b"\xeb\x07\x01\x01",
            b"\xec\x07\x03\x02\x02t",
            b"\xed\x07\x02\x02x",
            b"\xee\x07\x04\0\0\x01\x02",
        ],
    );
    check(
        DescribedMirrorPartition {
            state: "A".into(),
            lag_bytes: 1,
            lag_ms: 2,
            bytes_appended: 3,
            given_up: true,
            ..DescribedMirrorPartition::default()
        },
        &[
            b"\0\0\0\0",
            NONE,
            NONE,
            NONE,
            b"\x02A\xff\xff\xff\xff\x04",
            b"\xed\x07\x08\0\0\0\0\0\0\0\x01",
            b"\xee\x07\x08\0\0\0\0\0\0\0\x02",
            b"\xef\x07\x08\0\0\0\0\0\0\0\x03",
            b"\xf0\x07\x01\x01",
        ],
    );
}

/// Sums over partitions, and their bytes.
fn sums() -> (MirrorFigures, Vec<u8>) {
    let figures = MirrorFigures {
        partition_count: 3,
        states: vec![MirrorStateCount { state: "A".into(), partitions: 2 }],
        failing: 1,
        given_up: 2,
        retry_attempts: 4,
        lag: 5,
        lag_bytes: 6,
        lag_ms: 7,
        bytes_appended: 8,
        error_message: Some("x".into()),
        failing_since_ms: 9,
    };
    let figures_bytes = [
        &b"\0\0\0\x03\x02\x02A\0\0\0\x02\0\0\0\0\x01\0\0\0\x02"[..],
        b"\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0\x06",
        b"\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0\x08\x02x\0\0\0\0\0\0\0\x09\0",
    ]
    .concat();
    (figures, figures_bytes)
}

#[test]
fn sums_of_partitions_are_described() {
    let (figures, figures_bytes) = sums();
    check(figures.clone(), &[&figures_bytes]);
    check(
        MirrorFigures::default(),
        &[b"\0\0\0\0\x01", &[0; 16], NONE, NONE, NONE, NONE, b"\0", NONE, b"\0"],
    );
    let topic = DescribedMirrorTopic {
        topic_name: "t".into(),
        partitions_left_out: 3,
        figures: figures.clone(),
        ..DescribedMirrorTopic::default()
    };
    let size = [u8::try_from(figures_bytes.len()).unwrap()];
    check(topic, &[b"\x02t\x01\x02\xe8\x07\x04\0\0\0\x03\xe9\x07", &size, &figures_bytes]);
    let time = MirrorTime {
        elapsed_ms: 1,
        source_ms: 2,
        network_ms: 3,
        disk_ms: 4,
        throttle_ms: 5,
        shards: vec![MirrorShardTime { elapsed_ms: 6, cpu_ms: 7 }],
    };
    let time_bytes = [
        &b"\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03"[..],
        b"\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x05\x02",
        b"\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0\x07\0\0",
    ]
    .concat();
    check(time.clone(), &[&time_bytes]);
    check(
        DescribeClusterMirrorsResponse {
            mirrors: vec![DescribedClusterMirror {
                mirror_name: "w".into(),
                topic_count: 2,
                topics_left_out: 1,
                figures,
                time,
                ..DescribedClusterMirror::default()
            }],
            taken_at_ms: 258,
            ..DescribeClusterMirrorsResponse::default()
        },
        &[
            FINE,
            b"\x02\0\0\x02w\x80\0\0\0\x01\x04",
            b"\xeb\x07\x04\0\0\0\x02\xec\x07\x04\0\0\0\x01",
            b"\xed\x07",
            &size,
            &figures_bytes,
            b"\xee\x07\x3b",
            &time_bytes,
            b"\x01\xe9\x07\x08\0\0\0\0\0\0\x01\x02",
        ],
    );
}

#[test]
fn states_are_read_and_written() {
    check(
        ReadMirrorStatesRequest {
            mirror_name: "w".into(),
            topics: vec![ReadStatesTopic {
                name: "t".into(),
                partitions: vec![ReadStatesPartition { partition_index: 3 }],
            }],
        },
        &[b"\x02w\x02\x02t\x02\0\0\0\x03\0\0\0"],
    );
    let state = StateOfPartition {
        partition_index: 3,
        last_mirror_epoch: -1,
        state: 7,
        error_code: 0,
        previous_state: 2,
        retry_attempt: 4,
        error_message: Some("x".into()),
        leader_epoch: 5,
        state_epoch: 6,
        last_mirror_offset: 1,
    };
    check(
        ReadMirrorStatesResponse {
            topics: vec![StatesOfTopic { name: "t".into(), partitions: vec![state] }],
            ..ReadMirrorStatesResponse::default()
        },
        &[
            FINE,
            b"\x02\x02t\x02\0\0\0\x03\xff\xff\xff\xff\x07\0\0\x06",
            b"\0\x01\x02\x01\x02\0\x04\xe8\x07\x02\x02x\xe9\x07\x04\0\0\0\x05",
            b"\xea\x07\x04\0\0\0\x06\xeb\x07\x08\0\0\0\0\0\0\0\x01",
            b"\0\0",
        ],
    );
    let plain = StateOfPartition { partition_index: 1, state: 16, ..StateOfPartition::default() };
    check(plain, &[b"\0\0\0\x01\xff\xff\xff\xff\x10\0\0\0"]);
    let write = WriteStatesPartition {
        partition_index: 3,
        last_mirror_epoch: 2,
        state: 6,
        leader_epoch: 5,
        state_epoch: 0,
        last_mirror_offset: 1,
        error_message: Some("x".into()),
        retry_attempt: 0,
        non_retryable: true,
    };
    check(
        WriteMirrorStatesRequest {
            mirror_name: "w".into(),
            topics: vec![WriteStatesTopic { name: "t".into(), partitions: vec![write] }],
            stopped_topics: vec!["t".into()],
        },
        &[
            b"\x02w\x02\x02t\x02\0\0\0\x03\0\0\0\x02\x06\x06",
            b"\xe8\x07\x04\0\0\0\x05\xe9\x07\x04\0\0\0\0\xea\x07\x08\0\0\0\0\0\0\0\x01",
            b"\xeb\x07\x02\x02x\xec\x07\x04\0\0\0\0\xed\x07\x01\x01",
            b"\0\x02\x02t\0",
        ],
    );
    check(
        WriteMirrorStatesResponse {
            topics: vec![WrittenTopic {
                name: "t".into(),
                partitions: vec![WrittenPartition {
                    partition_index: 3,
                    error_code: 145,
                    error_message: Some("x".into()),
                    state_epoch: 9,
                }],
            }],
            ..WriteMirrorStatesResponse::default()
        },
        &[
            FINE,
            b"\x02\x02t\x02\0\0\0\x03\0\x91\x02\xe8\x07\x02\x02x\xe9\x07\x04\0\0\0\x09",
            b"\0\0",
        ],
    );
}

#[test]
fn epochs_are_bumped() {
    check(
        BumpLeaderEpochsRequest {
            topics: vec![BumpTopic {
                topic_id: id(),
                partitions: vec![BumpPartition { partition_index: 1, min_leader_epoch: 8 }],
            }],
        },
        &[b"\x02", ID, b"\x02\0\0\0\x01\0\0\0\x08\0\0\0"],
    );
    check(
        BumpLeaderEpochsResponse {
            topics: vec![BumpedTopic {
                topic_name: "t".into(),
                partitions: vec![BumpedPartition {
                    partition_index: 1,
                    error_code: 3,
                    error_message: Some("x".into()),
                }],
            }],
            ..BumpLeaderEpochsResponse::default()
        },
        &[FINE, b"\x02\x02t\x02\0\0\0\x01\0\x03\x01\xe8\x07\x02\x02x\0\0"],
    );
}

#[test]
fn each_api_has_the_kips_key() {
    fn check<M: MirrorRequest>() {
        assert_eq!(M::API.key(), M::API_KEY);
        assert!(std::any::type_name::<M>().ends_with(&format!("::{}Request", M::API)));
    }

    assert_eq!(MIRROR_API_KEYS, [94, 95, 96, 98, 99, 100, 101, 102, 103, 104, 105, 107]);
    check::<CreateClusterMirrorRequest>();
    check::<StartMirrorTopicsRequest>();
    check::<StopMirrorTopicsRequest>();
    check::<ListClusterMirrorsRequest>();
    check::<DescribeClusterMirrorsRequest>();
    check::<ReadMirrorStatesRequest>();
    check::<WriteMirrorStatesRequest>();
    check::<PauseMirrorTopicsRequest>();
    check::<ResumeMirrorTopicsRequest>();
    check::<DeleteClusterMirrorRequest>();
    check::<BumpLeaderEpochsRequest>();
    check::<RecoverMirrorTopicsRequest>();
}

/// An operator of another implementation reads the table, not the code.
#[test]
fn the_table_has_every_tagged_field() {
    let table = include_str!("TAGS.md");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split('|').map(str::trim).collect())
        .filter(|cells: &Vec<&str>| cells.len() == 8)
        .skip(2)
        .collect();
    let listed: Vec<_> =
        rows.iter().map(|row| (row[2], row[3], row[5].parse::<u32>().unwrap())).collect();
    assert_eq!(listed, TAGGED);
}

/// The KIP's own later generations add plain fields as tagged ones here; an older peer must not
/// mind, nor we theirs.
#[test]
fn unknown_tags_are_passed_over_and_wrong_ones_refused() {
    let tagged = |tail: &[u8]| decode::<DeleteClusterMirrorRequest>(&[b"\x02w", tail].concat());
    assert_eq!(tagged(b"\x02\x05\x01x\x07\0").unwrap().mirror_name, "w");
    assert!(matches!(tagged(b"\x02\x05\0\x05\0"), Err(DecodeError::Repeated { .. })));
    assert!(matches!(tagged(b"\x02\x05\0\x04\0"), Err(DecodeError::Repeated { .. })));
    let names = |tail: &[u8]| decode::<ListClusterMirrorsRequest>(tail);
    assert!(names(b"\x01\xe8\x07\x01\x01").unwrap().include_topic_names);
    let long = names(b"\x01\xe8\x07\x02\x01\0");
    assert!(matches!(long, Err(DecodeError::TaggedSize { size: 2, used: 1, .. })), "{long:?}");
    assert!(names(b"\x01\xe8\x07\0").is_err(), "a bool of no byte");
}

#[test]
fn a_count_that_the_bytes_cannot_hold_is_refused_at_once() {
    let error = decode::<PauseMirrorTopicsRequest>(b"\x02w\xff\xff\xff\xff\x0f");
    assert!(matches!(error, Err(DecodeError::PastFrame { field: "Topics", .. })), "{error:?}");
    let null = decode::<PauseMirrorTopicsRequest>(b"\x02w\0\0");
    assert_eq!(null, Err(DecodeError::Null { field: "Topics" }));
    let name = decode::<DeleteClusterMirrorRequest>(b"\0\0");
    assert_eq!(name, Err(DecodeError::Null { field: "MirrorName" }));
}

proptest! {
    /// Anything is a message or an error; what is read is written the same way, but for tags that
    /// nobody knows and defaults that somebody wrote.
    #[test]
    fn arbitrary_bytes_are_no_danger(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        fn read<M: Field + PartialEq + std::fmt::Debug>(bytes: &[u8]) {
            if let Ok(message) = decode::<M>(bytes) {
                assert_eq!(decode::<M>(&encode(&message)), Ok(message));
            }
        }
        read::<CreateClusterMirrorRequest>(&bytes);
        read::<StartMirrorTopicsRequest>(&bytes);
        read::<StopMirrorTopicsRequest>(&bytes);
        read::<RecoverMirrorTopicsRequest>(&bytes);
        read::<MirrorTopicsResponse>(&bytes);
        read::<ListClusterMirrorsRequest>(&bytes);
        read::<ListClusterMirrorsResponse>(&bytes);
        read::<DescribeClusterMirrorsRequest>(&bytes);
        read::<DescribeClusterMirrorsResponse>(&bytes);
        read::<ReadMirrorStatesResponse>(&bytes);
        read::<WriteMirrorStatesRequest>(&bytes);
        read::<WriteMirrorStatesResponse>(&bytes);
        read::<BumpLeaderEpochsRequest>(&bytes);
        read::<BumpLeaderEpochsResponse>(&bytes);
    }
}
