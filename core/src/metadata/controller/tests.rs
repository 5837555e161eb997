//! Every check and code. One image for all: node 1, mirrors `west` and `east`; of `west` the
//! topics `moving`, `resting` (paused) and `standing` (stopped), of `east` the topic `other`, and
//! `own` of none. Topic IDs are 10, 11, 12, 13, 14.

mod answers;
mod cluster;
mod configs;
mod members;
mod mirrors;
mod start;
mod topics;

use uuid::Uuid;

use super::*;
use crate::coordinator::DesiredState;
use crate::metadata::image::{
    MIRROR_NAME, MIRROR_VERSION, MetadataImage, ResourceType, config_record,
};
use crate::metadata::record::{
    FeatureLevelRecord, MetadataRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord,
};
use crate::protocol::ErrorCode;
use crate::protocol::mirror::MirrorTopic;
use crate::types::{BrokerId, TopicId};

const NODE: BrokerId = BrokerId(1);
const MIRROR: ResourceType = ResourceType::MIRROR;
const TOPIC: ResourceType = ResourceType::TOPIC;

fn id(number: u128) -> TopicId {
    TopicId(Uuid::from_u128(number))
}

/// IDs from 1000 on.
fn ids() -> impl FnMut() -> TopicId {
    let mut next = 999;
    move || {
        next += 1;
        id(next)
    }
}

fn with(image: &MetadataImage, records: &[MetadataRecord]) -> MetadataImage {
    let mut image = image.clone();
    for record in records {
        image.apply(record).unwrap();
    }
    image
}

fn set(kind: ResourceType, resource: &str, key: &str, value: &str) -> MetadataRecord {
    config_record(kind, resource, key, Some(value)).into()
}

fn partition(topic: u128, index: i32, leader_epoch: i32) -> MetadataRecord {
    let record = PartitionRecord {
        partition_id: index,
        topic_id: id(topic),
        replicas: vec![1],
        isr: vec![1],
        leader: 1,
        leader_epoch,
        partition_epoch: leader_epoch,
        directories: vec![Uuid::nil()],
        ..PartitionRecord::default()
    };
    record.into()
}

fn image() -> MetadataImage {
    let broker = RegisterBrokerRecord {
        broker_id: 1,
        broker_epoch: 5,
        fenced: false,
        ..RegisterBrokerRecord::default()
    };
    let mut records = vec![
        FeatureLevelRecord { name: MIRROR_VERSION.into(), feature_level: 1 }.into(),
        broker.into(),
    ];
    for mirror in ["west", "east"] {
        records.push(set(MIRROR, mirror, "bootstrap.servers", "a:1"));
        records.push(set(MIRROR, mirror, SOURCE_CLUSTER_ID, "source"));
    }
    for (number, name, value) in [
        (10, "moving", Some("west")),
        (11, "resting", Some("west.paused")),
        (12, "standing", Some("west.stopped")),
        (13, "other", Some("east")),
        (14, "own", None),
    ] {
        records.push(TopicRecord { name: name.into(), topic_id: id(number) }.into());
        records.push(partition(number, 0, 3));
        records.extend(value.map(|value| set(TOPIC, name, MIRROR_NAME, value)));
    }
    with(&MetadataImage::default(), &records)
}

/// The same with mirrors turned off.
fn off() -> MetadataImage {
    let record = FeatureLevelRecord { name: MIRROR_VERSION.into(), feature_level: 0 };
    with(&image(), &[record.into()])
}

fn topics(names: &[&str]) -> Vec<MirrorTopic> {
    let topic = |name: &&str| MirrorTopic { topic_id: TopicId::NONE, topic_name: (*name).into() };
    names.iter().map(topic).collect()
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn code_of<T>(result: &Result<T, Refusal>) -> i16 {
    result.as_ref().err().map_or(0, |refusal| refusal.code.0)
}

/// Name and code of each result.
fn codes<T>(results: &[Named<T>]) -> Vec<(&str, i16)> {
    results.iter().map(|it| (it.name.as_str(), code_of(&it.result))).collect()
}

/// Code of what must be refused as a whole.
#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<Decision<T>, Refusal>) -> ErrorCode {
    let refusal = result.unwrap_err();
    assert!(!refusal.message.is_empty() && !refusal.message.ends_with('.'), "{refusal}");
    refusal.code
}

fn desired(image: &MetadataImage, topic: &str) -> Option<(String, DesiredState)> {
    image.mirror_of(topic).map(|link| (link.mirror.to_owned(), link.desired))
}

fn west(desired: DesiredState) -> (String, DesiredState) {
    ("west".to_owned(), desired)
}
