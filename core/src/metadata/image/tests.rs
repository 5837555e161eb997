use std::convert::Infallible;

use super::*;
use crate::metadata::record::{
    BeginTransactionRecord, NoOpRecord, RemoveTopicRecord, UnregisterBrokerRecord,
};

fn id(number: u128) -> TopicId {
    TopicId(Uuid::from_u128(number))
}

fn topic(name: &str, number: u128) -> MetadataRecord {
    TopicRecord { name: name.into(), topic_id: id(number) }.into()
}

fn partition(number: u128, index: i32, leader_epoch: i32, partition_epoch: i32) -> PartitionRecord {
    PartitionRecord {
        partition_id: index,
        topic_id: id(number),
        replicas: vec![1],
        isr: vec![1],
        leader: 1,
        leader_epoch,
        partition_epoch,
        directories: vec![Uuid::nil()],
        ..PartitionRecord::default()
    }
}

fn config(kind: ResourceType, resource: &str, key: &str, value: Option<&str>) -> MetadataRecord {
    config_record(kind, resource, key, value).into()
}

fn of(records: impl IntoIterator<Item = MetadataRecord>) -> MetadataImage {
    let mut image = MetadataImage::default();
    for record in records {
        image.apply(&record).unwrap();
    }
    image
}

fn some() -> MetadataImage {
    of([
        FeatureLevelRecord { name: METADATA_VERSION.into(), feature_level: 25 }.into(),
        FeatureLevelRecord { name: MIRROR_VERSION.into(), feature_level: 1 }.into(),
        RegisterBrokerRecord { broker_id: 1, broker_epoch: 3, ..Default::default() }.into(),
        topic("orders", 1),
        partition(1, 0, 0, 0).into(),
        partition(1, 1, 4, 2).into(),
        topic("clicks", 2),
        partition(2, 0, 7, 0).into(),
        config(ResourceType::MIRROR, "west", "bootstrap.servers", Some("a:1")),
        config(ResourceType::MIRROR, "west", "ssl.key.password", Some("hunter2")),
        config(ResourceType::TOPIC, "orders", MIRROR_NAME, Some("west.paused")),
        config(ResourceType::TOPIC, "clicks", MIRROR_NAME, Some("west")),
        config(ResourceType::BROKER, "", "mirror.replication.throttled.rate", Some("9")),
    ])
}

fn copy(image: &MetadataImage) -> MetadataImage {
    let mut copy = MetadataImage::default();
    let done: Result<(), Infallible> = image.records(|record| {
        copy.apply(&record).unwrap();
        Ok(())
    });
    assert_eq!(done, Ok(()));
    copy
}

#[test]
fn partitions_are_small() {
    assert!(size_of::<PartitionImage>() <= 12);
}

#[test]
fn questions_are_answered() {
    let image = some();
    assert_eq!((image.feature(MIRROR_VERSION), image.feature("other")), (1, 0));
    assert_eq!(image.broker(BrokerId(1)).unwrap().registration.broker_epoch, 3);
    assert_eq!(image.topic("orders").unwrap().id, id(1));
    assert_eq!(&*image.topic_by_id(id(2)).unwrap().name, "clicks");
    assert_eq!(image.leader_epoch("orders", 1), Some(LeaderEpoch(4)));
    assert_eq!((image.leader_epoch("orders", 2), image.leader_epoch("orders", -1)), (None, None));
    assert_eq!(image.partition_count(), 3);
    assert_eq!(image.mirrors().collect::<Vec<_>>(), ["west"]);
    assert!(image.has_mirror("west") && !image.has_mirror("east"));
    let topics: Vec<_> =
        image.topics_of("west").map(|(it, desired)| (&*it.name, desired)).collect();
    assert_eq!(topics, [("clicks", DesiredState::Mirroring), ("orders", DesiredState::Paused)]);
    assert_eq!(image.topics_of("east").count(), 0);
    assert_eq!(
        image.config(ResourceType::BROKER, "", "mirror.replication.throttled.rate"),
        Some("9")
    );
    assert!(image.configs(ResourceType::BROKER, "1").is_none());
}

#[test]
fn an_image_is_that_of_its_own_records() {
    assert_eq!(copy(&some()), some());
    assert_ne!(copy(&some()), MetadataImage::default());
}

#[test]
fn wishes_are_suffixes() {
    for (value, mirror, desired) in [
        ("west", "west", DesiredState::Mirroring),
        ("west.paused", "west", DesiredState::Paused),
        ("a.stopped", "a", DesiredState::Stopped),
    ] {
        let link = MirrorLink { mirror, desired };
        assert_eq!(MirrorLink::parse(value), link);
        assert_eq!(link.to_value(), value);
    }
}

#[test]
fn what_goes_leaves_nothing() {
    let mut image = some();
    for record in [
        RemoveTopicRecord { topic_id: id(1) }.into(),
        RemoveTopicRecord { topic_id: id(2) }.into(),
        config(ResourceType::MIRROR, "west", "bootstrap.servers", None),
        config(ResourceType::MIRROR, "west", "ssl.key.password", None),
        config(ResourceType::MIRROR, "west", "never.set", None),
        config(ResourceType::BROKER, "", "mirror.replication.throttled.rate", None),
        FeatureLevelRecord { name: METADATA_VERSION.into(), feature_level: 0 }.into(),
        FeatureLevelRecord { name: MIRROR_VERSION.into(), feature_level: 0 }.into(),
        UnregisterBrokerRecord { broker_id: 1, broker_epoch: 3 }.into(),
        NoOpRecord {}.into(),
    ] {
        image.apply(&record).unwrap();
    }
    assert_eq!(image, MetadataImage::default());
}

#[test]
fn a_clone_does_not_follow_its_original() {
    let mut image = some();
    let before = image.clone();
    image.apply(&partition(1, 0, 9, 1).into()).unwrap();
    image.apply(&config(ResourceType::TOPIC, "orders", MIRROR_NAME, Some("west"))).unwrap();
    assert_eq!(before, some());
    assert_eq!(image.leader_epoch("orders", 0), Some(LeaderEpoch(9)));
    assert_eq!(image.mirror_of("orders").unwrap().desired, DesiredState::Mirroring);
}

#[track_caller]
fn refused(record: impl Into<MetadataRecord>) -> String {
    let mut image = some();
    let error = image.apply(&record.into()).unwrap_err();
    assert_eq!(image, some(), "nothing changes with an error");
    error.to_string()
}

#[test]
fn records_that_do_not_follow_are_refused() {
    insta::assert_snapshot!(refused(topic("orders", 9)), @"topic orders exists already");
    insta::assert_snapshot!(
        refused(topic("new", 1)),
        @"topic new would have ID AAAAAAAAAAAAAAAAAAAAAQ, which another topic has"
    );
    insta::assert_snapshot!(
        refused(RemoveTopicRecord { topic_id: id(9) }),
        @"topic ID AAAAAAAAAAAAAAAAAAAACQ is unknown"
    );
    assert!(refused(partition(9, 0, 0, 0)).ends_with("is unknown"));
    insta::assert_snapshot!(
        refused(partition(1, 3, 0, 0)),
        @"partition 3 of topic orders, which has 2 partitions"
    );
    assert!(refused(partition(1, -1, 0, 0)).starts_with("partition -1 "));
    insta::assert_snapshot!(
        refused(partition(1, 1, 3, 3)),
        @"partition orders-1: leader epoch 3 after 4"
    );
    insta::assert_snapshot!(
        refused(partition(1, 1, 4, 2)),
        @"partition orders-1: partition epoch 2 after 2"
    );
    insta::assert_snapshot!(
        refused(UnregisterBrokerRecord { broker_id: 1, broker_epoch: 2 }),
        @"broker 1 of epoch 2 is not registered"
    );
    insta::assert_snapshot!(
        refused(config(ResourceType::TOPIC, "t", "k", Some(&"v".repeat(TEXT_BYTES_MAX + 1)))),
        @"value of a config has 32768 bytes; a record holds 32767"
    );
    assert!(refused(BeginTransactionRecord { name: None }).starts_with("BeginTransactionRecord"));
    for wrong in [
        PartitionRecord { replicas: vec![1, 2], ..partition(1, 2, 0, 0) },
        PartitionRecord { isr: Vec::new(), ..partition(1, 2, 0, 0) },
        PartitionRecord { leader: -1, ..partition(1, 2, 0, 0) },
        PartitionRecord { adding_replicas: vec![2], ..partition(1, 2, 0, 0) },
        PartitionRecord { removing_replicas: vec![2], ..partition(1, 2, 0, 0) },
    ] {
        let text = refused(wrong);
        assert_eq!(text, "partition orders-2 is not of one node; a standalone host has no other");
    }
}

#[test]
fn secrets_are_not_printed() {
    let text = format!("{:?}", some());
    assert!(text.contains("ssl.key.password") && !text.contains("hunter2"));
}
