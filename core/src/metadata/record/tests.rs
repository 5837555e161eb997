//! Bytes by hand, both directions; then anything at all.

use proptest::prelude::*;

use super::*;

const ID: &[u8] = b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10";

fn id() -> Uuid {
    Uuid::from_slice(ID).unwrap()
}

#[track_caller]
fn check(record: impl Into<MetadataRecord>, parts: &[&[u8]]) {
    let (record, bytes) = (record.into(), parts.concat());
    assert_eq!(record.encode(), bytes, "{record:?}");
    assert_eq!(MetadataRecord::decode(&bytes), Ok(record));
    for cut in 0..bytes.len() {
        assert!(MetadataRecord::decode(&bytes[..cut]).is_err(), "{cut} of {}", bytes.len());
    }
    let longer = [&bytes[..], b"\0"].concat();
    let error = MetadataRecord::decode(&longer).unwrap_err().to_string();
    assert!(error.ends_with("1 bytes after the last field"), "{error}");
}

#[test]
fn bytes_are_those_of_kafkas_schemas() {
    check(
        RegisterBrokerRecord {
            broker_id: 7,
            incarnation_id: id(),
            broker_epoch: 258,
            end_points: vec![BrokerEndpoint {
                name: "A".into(),
                host: "h".into(),
                port: 40_000,
                security_protocol: 1,
            }],
            features: vec![BrokerFeature {
                name: "f".into(),
                min_supported_version: 0,
                max_supported_version: 1,
            }],
            rack: None,
            fenced: false,
            log_dirs: vec![id()],
            ..RegisterBrokerRecord::default()
        },
        &[
            b"\x01\0\x03",
            b"\0\0\0\x07\0",
            ID,
            b"\0\0\0\0\0\0\x01\x02",
            b"\x02\x02A\x02h\x9c\x40\0\x01\0",
            b"\x02\x02f\0\0\0\x01\0",
            b"\0\0\0",
            b"\x01\0\x11\x02",
            ID,
        ],
    );
    check(
        UnregisterBrokerRecord { broker_id: 1, broker_epoch: 2 },
        &[b"\x01\x01\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0"],
    );
    let topic_id = TopicId(id());
    check(TopicRecord { name: "t".into(), topic_id }, &[b"\x01\x02\0\x02t", ID, b"\0"]);
    let partition = PartitionRecord {
        partition_id: 3,
        topic_id,
        replicas: vec![7],
        isr: vec![7],
        leader: 7,
        leader_epoch: 9,
        partition_epoch: 2,
        directories: vec![Uuid::nil()],
        ..PartitionRecord::default()
    };
    let body = [
        b"\0\0\0\x03",
        ID,
        b"\x02\0\0\0\x07\x02\0\0\0\x07\x01\x01\0\0\0\x07\0\0\0\x09\0\0\0\x02\x02",
        &[0; 16],
    ]
    .concat();
    check(partition.clone(), &[b"\x01\x03\x01", &body, b"\0"]);
    let recovering = PartitionRecord { leader_recovery_state: 1, ..partition };
    check(recovering, &[b"\x01\x03\x01", &body, b"\x01\0\x01\x01"]);
    let config = ConfigRecord {
        resource_type: 64,
        resource_name: "m".into(),
        name: "k".into(),
        value: Some("v".into()),
    };
    check(config.clone(), &[b"\x01\x04\0\x40\x02m\x02k\x02v\0"]);
    check(ConfigRecord { value: None, ..config }, &[b"\x01\x04\0\x40\x02m\x02k\0\0"]);
    check(RemoveTopicRecord { topic_id }, &[b"\x01\x09\0", ID, b"\0"]);
    check(
        FeatureLevelRecord { name: "f".into(), feature_level: 25 },
        &[b"\x01\x0c\0\x02f\0\x19\0"],
    );
    check(NoOpRecord {}, &[b"\x01\x14\0\0"]);
    check(BeginTransactionRecord { name: None }, &[b"\x01\x17\0\0"]);
    check(BeginTransactionRecord { name: Some("n".into()) }, &[b"\x01\x17\0\x01\0\x02\x02n"]);
    check(EndTransactionRecord {}, &[b"\x01\x18\0\0"]);
    check(AbortTransactionRecord { reason: Some("r".into()) }, &[b"\x01\x19\0\x01\0\x02\x02r"]);
}

#[test]
fn tags_are_kafkas() {
    let tagged = [
        ("RegisterBrokerRecord", "LogDirs", 0),
        ("PartitionRecord", "LeaderRecoveryState", 0),
        ("BeginTransactionRecord", "Name", 0),
        ("AbortTransactionRecord", "Reason", 0),
    ];
    assert_eq!(TAGGED, tagged);
}

#[test]
fn what_is_not_known_is_named() {
    let error = |bytes: &[u8]| MetadataRecord::decode(bytes).unwrap_err().to_string();
    insta::assert_snapshot!(error(b"\x02\0\0"), @"a record in a frame of version 2; 1 is known");
    insta::assert_snapshot!(
        error(b"\x01\x05\x02\0"),
        @"a record of type 5, version 2, which this release does not know; start the release that wrote it"
    );
    insta::assert_snapshot!(
        error(b"\x01\x03\x02\0"),
        @"a PartitionRecord (type 3) of version 2, this release knows version 1; start the release that wrote it"
    );
    insta::assert_snapshot!(
        error(b"\x01\x02\0\x02"),
        @"a TopicRecord: Name needs 1 bytes, 0 are left"
    );
    insta::assert_snapshot!(
        error(b"\x01\x02\0\0"),
        @"a TopicRecord: Name is null"
    );
}

#[test]
fn secrets_are_not_printed() {
    for key in [
        "ssl.key.password",
        "ssl.keystore.password",
        "ssl.truststore.password",
        "ssl.keystore.key",
        "private.key.passphrase",
        "sasl.jaas.config",
        "listener.name.a.ssl.key.password",
        "listener.name.a.plain.sasl.jaas.config",
        "sasl.oauthbearer.client.credentials.client.secret",
    ] {
        assert!(is_sensitive(key), "{key}");
        let record = ConfigRecord {
            resource_type: 64,
            resource_name: "m".into(),
            name: key.into(),
            value: Some("hunter2".into()),
        };
        let text = format!("{:?}", MetadataRecord::from(record));
        assert!(text.contains("[hidden]") && !text.contains("hunter2"), "{text}");
    }
    for key in ["bootstrap.servers", "ssl.protocol", "ssl.keystore.location", "sasl.mechanism"] {
        assert!(!is_sensitive(key), "{key}");
    }
}

fn records() -> impl Strategy<Value = MetadataRecord> {
    let text = || "\\PC{0,20}";
    let id = || any::<u128>().prop_map(Uuid::from_u128);
    let numbers = || prop::collection::vec(any::<i32>(), 0..4);
    let register = (any::<(i32, i64, u16, i16, bool)>(), text(), id(), prop::option::of(text()))
        .prop_map(|((broker_id, broker_epoch, port, level, flag), name, id, rack)| {
            RegisterBrokerRecord {
                broker_id,
                is_migrating_zk_broker: flag,
                incarnation_id: id,
                broker_epoch,
                end_points: vec![BrokerEndpoint {
                    name: name.clone(),
                    host: name.clone(),
                    port,
                    security_protocol: level,
                }],
                features: vec![BrokerFeature {
                    name,
                    min_supported_version: level,
                    max_supported_version: level,
                }],
                rack,
                fenced: flag,
                in_controlled_shutdown: !flag,
                log_dirs: if flag { vec![id] } else { Vec::new() },
            }
        });
    let partition = (any::<(i32, i32, i32, i8)>(), numbers(), numbers(), id()).prop_map(
        |((partition_id, leader, epoch, state), replicas, others, id)| PartitionRecord {
            partition_id,
            topic_id: TopicId(id),
            directories: vec![id; replicas.len()],
            isr: replicas.clone(),
            replicas,
            removing_replicas: others.clone(),
            adding_replicas: others,
            leader,
            leader_epoch: epoch,
            partition_epoch: epoch,
            leader_recovery_state: state,
        },
    );
    let config = (any::<i8>(), text(), text(), prop::option::of(text())).prop_map(
        |(resource_type, resource_name, name, value)| ConfigRecord {
            resource_type,
            resource_name,
            name,
            value,
        },
    );
    prop_oneof![
        register.prop_map(Into::into),
        partition.prop_map(Into::into),
        config.prop_map(Into::into),
        (text(), id()).prop_map(|(name, id)| TopicRecord { name, topic_id: TopicId(id) }.into()),
        id().prop_map(|id| RemoveTopicRecord { topic_id: TopicId(id) }.into()),
        (text(), any::<i16>()).prop_map(|(name, feature_level)| {
            FeatureLevelRecord { name, feature_level }.into()
        }),
        prop::option::of(text()).prop_map(|name| BeginTransactionRecord { name }.into()),
        prop::option::of(text()).prop_map(|reason| AbortTransactionRecord { reason }.into()),
        Just(EndTransactionRecord {}.into()),
        Just(NoOpRecord {}.into()),
        any::<(i32, i64)>().prop_map(|(broker_id, broker_epoch)| {
            UnregisterBrokerRecord { broker_id, broker_epoch }.into()
        }),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(record in records()) {
        prop_assert_eq!(MetadataRecord::decode(&record.encode()), Ok(record));
    }

    /// Anything is a record or an error; what is a record is the same record when written again.
    #[test]
    fn arbitrary_bytes_are_no_danger(
        key in 0_u8..30,
        version in 0_u8..4,
        body in prop::collection::vec(any::<u8>(), 0..80),
        bytes in prop::collection::vec(any::<u8>(), 0..80),
    ) {
        let _ = MetadataRecord::decode(&bytes);
        let framed = [&[1, key, version], &body[..]].concat();
        if let Ok(record) = MetadataRecord::decode(&framed) {
            prop_assert_eq!(MetadataRecord::decode(&record.encode()), Ok(record));
        }
    }

    #[test]
    fn a_record_that_is_cut_off_is_none(record in records(), cut in any::<prop::sample::Index>()) {
        let bytes = record.encode();
        prop_assert!(MetadataRecord::decode(&bytes[..cut.index(bytes.len())]).is_err());
    }
}
