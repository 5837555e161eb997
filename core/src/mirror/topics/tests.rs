use uuid::Uuid;

use super::*;
use crate::protocol::{MetadataBroker, MetadataPartition};
use crate::select::TopicSelector;

const NO_ID: u128 = 0;

/// Partitions of topic `t`, each with leader and epoch.
fn metadata(id: u128, leaders: &[(i32, i32)]) -> Metadata {
    let partitions = leaders.iter().zip(0..).map(|(&(leader, epoch), index)| MetadataPartition {
        error: ErrorCode::NONE,
        index,
        leader: BrokerId(leader),
        leader_epoch: LeaderEpoch(epoch),
        replicas: vec![BrokerId(1), BrokerId(2)],
        isr: vec![BrokerId(1), BrokerId(2)],
        offline_replicas: Vec::new(),
    });
    let topic = MetadataTopic {
        error: ErrorCode::NONE,
        identity: identity(id),
        is_internal: false,
        partitions: partitions.collect(),
    };
    Metadata { topics: vec![topic], ..nothing() }
}

/// A live cluster without topics.
fn nothing() -> Metadata {
    let broker = MetadataBroker { node: BrokerId(1), host: "h".into(), port: 1, rack: None };
    Metadata {
        throttle_ms: 0,
        brokers: vec![broker],
        cluster_id: None,
        controller: BrokerId(1),
        topics: Vec::new(),
        error: ErrorCode::NONE,
    }
}

fn identity(id: u128) -> TopicIdentity {
    TopicIdentity { name: Arc::from("t"), id: TopicId(Uuid::from_u128(id)) }
}

fn leader(broker: i32, epoch: i32) -> Leader {
    Leader { broker: BrokerId(broker), epoch: LeaderEpoch(epoch) }
}

fn new_partition(id: u128, index: i32, broker: i32, epoch: i32) -> Change {
    Change::NewPartition { topic: identity(id), index, leader: leader(broker, epoch) }
}

fn new_leader(index: i32, broker: i32, epoch: i32, epoch_rose: bool) -> Change {
    let partition = TopicPartition::new("t", index);
    Change::NewLeader { partition, leader: leader(broker, epoch), epoch_rose }
}

fn ended(how: TopicEnd) -> Change {
    Change::Ended { topic: Arc::from("t"), how }
}

/// Feeds refreshes one after the other; each has to change exactly what is listed.
#[track_caller]
fn check(steps: &[(Metadata, &[Change])]) -> Topics {
    let selector = TopicSelector::new(".*", "").unwrap();
    let mut topics = Topics::default();
    for (number, (metadata, want)) in steps.iter().enumerate() {
        assert_eq!(topics.refresh(metadata, &selector).changes, *want, "refresh {number}");
    }
    topics
}

#[test]
fn partitions_and_leaders_are_told_once() {
    check(&[
        (metadata(7, &[(1, 4)]), &[new_partition(7, 0, 1, 4)]),
        (metadata(7, &[(1, 4)]), &[]),
        (metadata(7, &[(1, 4), (2, 0)]), &[new_partition(7, 1, 2, 0)]),
        (metadata(7, &[(2, 5), (2, 0)]), &[new_leader(0, 2, 5, true)]),
        (metadata(7, &[(2, 5), (-1, 0)]), &[new_leader(1, -1, 0, false)]),
    ]);
}

#[test]
fn older_epochs_are_ignored_for_ever_where_there_are_ids() {
    let stale = || metadata(7, &[(1, 3)]);
    let first = metadata(7, &[(2, 5)]);
    let none: &[Change] = &[];
    check(&[
        (first.clone(), &[new_partition(7, 0, 2, 5)]),
        (stale(), none),
        (stale(), none),
        (stale(), none),
        (stale(), none),
        (first, none),
    ]);
    let selector = TopicSelector::new(".*", "").unwrap();
    let mut topics = check(&[(metadata(7, &[(2, 5)]), &[new_partition(7, 0, 2, 5)])]);
    assert_eq!(topics.refresh(&stale(), &selector).stale_leaders, 1);
}

#[test]
fn minus_one_replaces_no_epoch() {
    let topics = check(&[
        (metadata(7, &[(1, 5)]), &[new_partition(7, 0, 1, 5)]),
        (metadata(7, &[(-1, -1)]), &[new_leader(0, -1, 5, false)]),
        (metadata(7, &[(-1, -1)]), &[]),
        // An invented epoch 0 is no news either.
        (metadata(7, &[(1, 0)]), &[]),
        (metadata(7, &[(1, 6)]), &[new_leader(0, 1, 6, true)]),
    ]);
    assert_eq!(topics.leader(&TopicPartition::new("t", 0)), Some(leader(1, 6)));
}

#[test]
fn a_deleted_topic_ends_when_it_is_missing_twice() {
    let found: &[Change] = &[new_partition(7, 0, 1, 4)];
    check(&[
        (metadata(7, &[(1, 4)]), found),
        (nothing(), &[]),
        (metadata(7, &[(1, 4)]), &[]),
        (nothing(), &[]),
        // A broker that starts says nothing about topics.
        (Metadata { brokers: Vec::new(), ..nothing() }, &[]),
        (nothing(), &[ended(TopicEnd::Gone)]),
        (nothing(), &[]),
        // Another one of its name is not copied into the same directory.
        (metadata(8, &[(1, 0)]), &[]),
    ]);
}

#[test]
fn a_recreated_topic_ends_though_its_offsets_may_fit() {
    let known = TopicId(Uuid::from_u128(7));
    let found = TopicId(Uuid::from_u128(8));
    let topics = check(&[
        (metadata(7, &[(1, 4)]), &[new_partition(7, 0, 1, 4)]),
        (metadata(8, &[(1, 0)]), &[]),
        (metadata(8, &[(1, 0)]), &[ended(TopicEnd::Recreated { known, found })]),
        (metadata(8, &[(1, 0)]), &[]),
    ]);
    assert_eq!(topics.identity("t"), None);
}

#[test]
fn an_id_that_appears_is_adopted() {
    let topics = check(&[
        (metadata(NO_ID, &[(1, 4)]), &[new_partition(NO_ID, 0, 1, 4)]),
        (metadata(7, &[(1, 4)]), &[Change::IdAppeared { topic: identity(7) }]),
        // A broker that was not rolled yet.
        (metadata(NO_ID, &[(1, 4)]), &[]),
        (metadata(7, &[(1, 4), (1, 0)]), &[new_partition(7, 1, 1, 0)]),
    ]);
    assert_eq!(topics.identity("t"), Some(identity(7)));
}

#[test]
fn without_ids_epochs_that_stay_back_and_fewer_partitions_end_a_topic() {
    let (known, found) = (LeaderEpoch(4), LeaderEpoch(0));
    let back = || metadata(NO_ID, &[(1, 0)]);
    check(&[
        (metadata(NO_ID, &[(1, 4)]), &[new_partition(NO_ID, 0, 1, 4)]),
        (back(), &[]),
        (back(), &[]),
        (metadata(NO_ID, &[(1, 4)]), &[]),
        (back(), &[]),
        (back(), &[]),
        (back(), &[ended(TopicEnd::EpochsWentBack { known, found })]),
    ]);
    let fewer = || metadata(NO_ID, &[(1, 4)]);
    let two: &[Change] = &[new_partition(NO_ID, 0, 1, 4), new_partition(NO_ID, 1, 1, 4)];
    check(&[
        (metadata(NO_ID, &[(1, 4), (1, 4)]), two),
        (fewer(), &[]),
        (fewer(), &[]),
        (fewer(), &[ended(TopicEnd::Shrunk)]),
    ]);
}

#[test]
fn suspicion_asks_for_another_look() {
    let selector = TopicSelector::new(".*", "").unwrap();
    let mut topics = Topics::default();
    assert!(!topics.refresh(&metadata(7, &[(1, 4)]), &selector).confirm_soon);
    assert!(topics.refresh(&nothing(), &selector).confirm_soon);
    assert!(!topics.refresh(&metadata(7, &[(1, 4)]), &selector).confirm_soon);
}

#[test]
fn hints_make_older_metadata_stale() {
    let mut topics = check(&[(metadata(7, &[(1, 4)]), &[new_partition(7, 0, 1, 4)])]);
    let at = TopicPartition::new("t", 0);
    assert!(topics.note_leader(&at, leader(2, 6)));
    assert!(!topics.note_leader(&at, leader(1, 5)));
    assert!(!topics.note_leader(&TopicPartition::new("u", 0), leader(1, 5)));
    assert_eq!(topics.other_replica(&at), Some(BrokerId(1)));
    let selector = TopicSelector::new(".*", "").unwrap();
    assert_eq!(topics.refresh(&metadata(7, &[(1, 5)]), &selector).changes, []);
}

#[test]
fn what_is_not_selected_is_not_copied_and_refusals_are_kept() {
    let selector = TopicSelector::new(".*", "t").unwrap();
    let mut topics = Topics::default();
    assert_eq!(topics.refresh(&metadata(7, &[(1, 4)]), &selector).changes, []);
    assert_eq!(topics.refused().get("t"), Some(&Selection::Excluded));
    assert!(!topics.contains("t"));
}
