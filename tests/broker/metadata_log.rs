//! Our metadata log and its snapshots, read by Kafka's own tool.
#![expect(clippy::expect_used, reason = "helpers of tests fail like tests")]

use std::fs;
use std::path::{Path, PathBuf};

use heliostat_core::metadata::controller::{
    BrokerRegistration, ConfigChange, ConfigOp, ConfigOpKind, Decision, FeatureUpdate, NewTopic,
    TopicDefaults, TopicKey, alter_configs, bootstrap, bump_leader_epochs, create_mirror,
    create_topics, delete_topics, register_broker, start_mirror_topics, stop_mirror_topics,
    update_feature,
};
use heliostat_core::metadata::image::ResourceType;
use heliostat_core::metadata::log::{
    METADATA_DIR, MetadataLog, MetadataLogLimits, MetadataLogOptions,
};
use heliostat_core::metadata::record::{
    BeginTransactionRecord, BrokerEndpoint, BrokerFeature, MetadataRecord, NoOpRecord, TopicRecord,
    UnregisterBrokerRecord,
};
use heliostat_core::protocol::mirror::{
    BumpLeaderEpochsRequest, BumpPartition, BumpTopic, ClusterMirrorConfig,
    CreateClusterMirrorRequest, MirrorTopic, StartMirrorTopic, StartMirrorTopicsRequest,
    StopMirrorTopicsRequest,
};
use heliostat_core::records::{BatchBuilder, NewRecord};
use heliostat_core::types::{BrokerId, LeaderEpoch, Offset, TimestampMs, TopicId};
use heliostat_io::disk::FileStore;
use heliostat_tests::kafka::{Artifacts, KafkaVersion, Result, dump_log, or_skip};
use uuid::Uuid;

const NODE: BrokerId = BrokerId(7);
const NOW: TimestampMs = TimestampMs(1_700_000_000_000);

/// A log that is written as a host writes it.
struct Host {
    store: FileStore,
    log: MetadataLog,
}

impl Host {
    fn open(dir: &Path) -> Self {
        let limits = MetadataLogLimits { batch_bytes_max: 4_000, ..MetadataLogLimits::default() };
        let options =
            MetadataLogOptions { node: NODE, now: NOW, recovery_point: Offset::ZERO, limits };
        let mut store = FileStore::new(dir);
        let (log, _) = MetadataLog::open(&mut store, &options).expect("opens");
        Self { store, log }
    }

    fn write(&mut self, records: &[MetadataRecord]) {
        self.log.append(&mut self.store, records, NOW).expect("follows");
    }

    fn decided<A>(&mut self, decision: Decision<A>) -> A {
        assert!(!decision.records.is_empty(), "a decision to do something");
        self.write(&decision.records);
        decision.answer
    }
}

fn id(number: u128) -> TopicId {
    TopicId(Uuid::from_u128(number))
}

fn registration(epoch: i64) -> BrokerRegistration {
    BrokerRegistration {
        node: NODE,
        incarnation: Uuid::from_u128(0xabc),
        epoch,
        end_points: vec![BrokerEndpoint {
            name: "PLAINTEXT".into(),
            host: "copy.example".into(),
            port: 39_092,
            security_protocol: 0,
        }],
        features: vec![BrokerFeature {
            name: "metadata.version".into(),
            min_supported_version: 7,
            max_supported_version: 25,
        }],
        rack: Some("rack-1".into()),
        log_dirs: vec![Uuid::from_u128(0xdef)],
    }
}

/// A cluster with a mirror of two topics, one stopped, and a topic of its own.
fn live(host: &mut Host) {
    let decision = bootstrap(host.log.image(), 25).expect("a level");
    host.decided(decision);
    let decision = register_broker(host.log.image(), &registration(host.log.log_end().0));
    host.decided(decision.expect("registered"));
    let update = FeatureUpdate { name: "mirror.version".into(), level: 1, allow_downgrade: false };
    let decision = update_feature(host.log.image(), &update).expect("a level");
    host.decided(decision);
    let config = [("bootstrap.servers", "source.example:9092"), ("mirror.source.cluster.id", "s")];
    let config = config
        .map(|(name, value)| ClusterMirrorConfig { name: name.into(), value: Some(value.into()) });
    let request = CreateClusterMirrorRequest { mirror_name: "west".into(), config: config.into() };
    let decision = create_mirror(host.log.image(), &request).expect("made");
    host.decided(decision);
    let topic = |number: u128, name: &str, num_partitions| StartMirrorTopic {
        topic_id: id(number),
        topic_name: name.into(),
        num_partitions,
    };
    let request = StartMirrorTopicsRequest {
        mirror_name: "west".into(),
        // More than one batch holds: a transaction.
        topics: vec![topic(100, "orders", 3), topic(101, "clicks", 60)],
        include_patterns: vec!["pay.*".into()],
        exclude_patterns: vec![],
        validate_only: false,
    };
    let decision = start_mirror_topics(host.log.image(), &request, NODE, &mut || id(1));
    host.decided(decision.expect("started"));
    let request = StopMirrorTopicsRequest {
        mirror_name: "west".into(),
        topics: vec![MirrorTopic { topic_id: id(100), topic_name: "orders".into() }],
        patterns: vec![],
        validate_only: false,
    };
    let decision = stop_mirror_topics(host.log.image(), &request).expect("stopped");
    host.decided(decision);
    let asked = BumpPartition { partition_index: 2, min_leader_epoch: 41 };
    let request = BumpLeaderEpochsRequest {
        topics: vec![BumpTopic { topic_id: id(100), partitions: vec![asked] }],
    };
    let decision = bump_leader_epochs(host.log.image(), &request);
    host.decided(decision);
    let new = |name: &str| NewTopic {
        name: name.into(),
        topic_id: TopicId::NONE,
        partitions: 2,
        replication_factor: 1,
        assignments: vec![],
        configs: vec![("retention.ms".into(), Some("-1".into()))],
    };
    let mut next = 200;
    let mut new_id = || {
        next += 1;
        id(next)
    };
    let defaults = TopicDefaults { node: NODE, partitions: 1 };
    let topics = [new("local"), new("short-lived")];
    let decision = create_topics(host.log.image(), &topics, defaults, &mut new_id);
    host.decided(decision);
    let decision = delete_topics(host.log.image(), &[TopicKey::Name("short-lived".into())]);
    host.decided(decision);
    let op = ConfigOp { key: "retention.ms".into(), kind: ConfigOpKind::Delete, value: None };
    let change = ConfigChange { kind: ResourceType::TOPIC, name: "local".into(), ops: vec![op] };
    let decision = alter_configs(host.log.image(), &[change]);
    host.decided(decision);
}

/// A transaction that a crash has cut off.
fn torn(dir: &Path, host: &Host) {
    let records = [
        MetadataRecord::from(BeginTransactionRecord { name: Some("a large decision".into()) }),
        TopicRecord { name: "never".into(), topic_id: id(300) }.into(),
    ];
    let mut batch = BatchBuilder::new(host.log.log_end()).leader_epoch(host.log.epoch());
    for record in records {
        let value = record.encode();
        let record = NewRecord { timestamp: NOW, key: None, value: Some(&value), headers: &[] };
        batch.push(&record).expect("fits");
    }
    let path = dir.join(METADATA_DIR).join("00000000000000000000.log");
    let mut bytes = fs::read(&path).expect("there");
    bytes.extend(batch.build().expect("valid"));
    fs::write(&path, bytes).expect("writable");
}

/// What the tool prints; nothing of it may be a complaint.
fn dump(kafka: &Artifacts, path: &Path) -> Result<String> {
    let output = dump_log(kafka, &[path], &["--cluster-metadata-decoder", "--deep-iteration"])?;
    assert!(output.success, "{}", output.stderr);
    assert_eq!(output.complaints(false), [], "{}", output.stdout);
    for stream in [&output.stdout, &output.stderr] {
        assert!(!stream.contains("Error at"), "{}\n{}", output.stdout, output.stderr);
    }
    Ok(output.stdout)
}

#[track_caller]
fn check_names(dump: &str, texts: &[&str]) {
    for text in texts {
        assert!(dump.contains(text), "{text} is missing in\n{dump}");
    }
}

const OF_BOTH: [&str; 12] = [
    r#"{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"metadata.version","featureLevel":25}}"#,
    r#"{"type":"FEATURE_LEVEL_RECORD","version":0,"data":{"name":"mirror.version","featureLevel":1}}"#,
    r#""type":"REGISTER_BROKER_RECORD","version":3,"data":{"brokerId":7"#,
    r#""host":"copy.example","port":39092,"securityProtocol":0"#,
    r#""rack":"rack-1","fenced":false"#,
    r#""name":"metadata.version","minSupportedVersion":7,"maxSupportedVersion":25"#,
    r#"{"type":"TOPIC_RECORD","version":0,"data":{"name":"orders","topicId":"AAAAAAAAAAAAAAAAAAAAZA"}}"#,
    r#""leader":7,"leaderEpoch":42,"partitionEpoch":1"#,
    r#"{"type":"CONFIG_RECORD","version":0,"data":{"resourceType":64,"resourceName":"west","name":"bootstrap.servers","value":"source.example:9092"}}"#,
    r#""resourceType":2,"resourceName":"orders","name":"mirror.name","value":"west.stopped""#,
    r#""resourceType":2,"resourceName":"clicks","name":"mirror.name","value":"west""#,
    r#""name":"mirror.topics.include","value":"pay.*,orders,clicks""#,
];

const OF_THE_LOG: [&str; 11] = [
    "LeaderChange: ",
    r#""leaderId":7"#,
    r#"{"type":"BEGIN_TRANSACTION_RECORD","version":0,"data":{}}"#,
    r#"{"type":"END_TRANSACTION_RECORD","version":0,"data":{}}"#,
    r#""type":"ABORT_TRANSACTION_RECORD","version":0"#,
    r#""name":"a large decision""#,
    r#""type":"REMOVE_TOPIC_RECORD","version":0"#,
    r#""type":"UNREGISTER_BROKER_RECORD","version":0,"data":{"brokerId":7"#,
    r#"{"type":"NO_OP_RECORD","version":0,"data":{}}"#,
    r#""resourceName":"local","name":"retention.ms","value":null"#,
    r#""type":"PARTITION_RECORD","version":1"#,
];

#[test]
fn kafka_reads_the_log_and_its_snapshot() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let dir = tempfile::tempdir().expect("scratch");
    let mut host = Host::open(dir.path());
    live(&mut host);
    torn(dir.path(), &host);
    let mut host = Host::open(dir.path());
    assert_eq!(host.log.epoch(), LeaderEpoch(2));
    assert!(host.log.image().topic("never").is_none());
    let broker_epoch = host.log.image().broker(NODE).expect("registered").registration.broker_epoch;
    host.write(&[
        NoOpRecord {}.into(),
        UnregisterBrokerRecord { broker_id: NODE.0, broker_epoch }.into(),
    ]);
    let decision = register_broker(host.log.image(), &registration(host.log.log_end().0));
    host.decided(decision.expect("registered"));

    let in_dir = |name: &str| -> PathBuf { dir.path().join(METADATA_DIR).join(name) };
    let log = dump(&kafka, &in_dir("00000000000000000000.log"))?;
    check_names(&log, &OF_BOTH);
    check_names(&log, &OF_THE_LOG);

    let name = host.log.take_snapshot(&mut host.store).expect("taken");
    let snapshot = dump(&kafka, &in_dir(&name.to_string()))?;
    check_names(&snapshot, &OF_BOTH);
    check_names(&snapshot, &["SnapshotHeader", "SnapshotFooter"]);
    assert!(!snapshot.contains("short-lived") && !snapshot.contains("never"), "{snapshot}");

    let image = host.log.image().clone();
    drop(host);
    assert_eq!(*Host::open(dir.path()).log.image(), image);
    Ok(())
}
