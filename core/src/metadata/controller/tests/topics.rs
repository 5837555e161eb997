use super::*;
use crate::protocol::mirror::{BumpLeaderEpochsRequest, BumpPartition, BumpTopic};
use crate::types::LeaderEpoch;

const DEFAULTS: TopicDefaults = TopicDefaults { node: NODE, partitions: 6 };

fn new(name: &str) -> NewTopic {
    NewTopic {
        name: name.into(),
        topic_id: TopicId::NONE,
        partitions: 2,
        replication_factor: 1,
        assignments: vec![],
        configs: vec![],
    }
}

fn create(topics: &[NewTopic]) -> Decision<Vec<Named<CreatedTopic>>> {
    create_topics(&image(), topics, DEFAULTS, &mut ids())
}

/// The code of one that must be refused without a trace.
#[track_caller]
fn refused_topic(topic: NewTopic) -> i16 {
    let decision = create(&[topic]);
    assert_eq!(decision.records, []);
    code_of(&decision.answer[0].result)
}

#[test]
fn topics_are_made_as_they_are_asked_for() {
    let configs = vec![("retention.ms".into(), Some("7".into())), ("flush.ms".into(), None)];
    let decision = create(&[
        NewTopic { configs, ..new("a") },
        NewTopic { topic_id: id(70), partitions: -1, replication_factor: -1, ..new("b") },
        NewTopic {
            partitions: -1,
            replication_factor: -1,
            assignments: vec![(1, vec![1]), (0, vec![1]), (2, vec![1])],
            ..new("c")
        },
    ]);
    let made: Vec<_> = decision.answer.iter().map(|it| it.result.clone().unwrap()).collect();
    assert_eq!(made[0], CreatedTopic { id: id(1_000), partitions: 2 });
    assert_eq!(made[1], CreatedTopic { id: id(70), partitions: 6 });
    assert_eq!(made[2], CreatedTopic { id: id(1_001), partitions: 3 });
    let after = with(&image(), &decision.records);
    assert_eq!(after.topic("b").unwrap().partition_count(), 6);
    assert_eq!(after.config(TOPIC, "a", "retention.ms"), Some("7"));
    assert_eq!(after.config(TOPIC, "a", "flush.ms"), None);
    assert_eq!(after.mirror_of("a"), None);
}

#[test]
fn new_topics_are_checked() {
    for name in ["", "..", "a b", "__cluster_metadata"] {
        assert_eq!(refused_topic(new(name)), 17, "{name}");
    }
    assert_eq!(refused_topic(new("own")), 36);
    assert_eq!(refused_topic(NewTopic { topic_id: id(14), ..new("own") }), 36);
    assert_eq!(refused_topic(NewTopic { topic_id: id(99), ..new("own") }), 103);
    assert_eq!(refused_topic(NewTopic { topic_id: id(14), ..new("fresh") }), 36);
    for partitions in [0, -2, i32::MAX] {
        assert_eq!(refused_topic(NewTopic { partitions, ..new("fresh") }), 37, "{partitions}");
    }
    for replication_factor in [0, 2, -2] {
        assert_eq!(refused_topic(NewTopic { replication_factor, ..new("fresh") }), 38);
    }
    let assigned = |assignments: Vec<(i32, Vec<i32>)>| NewTopic {
        assignments,
        partitions: -1,
        replication_factor: -1,
        ..new("fresh")
    };
    for wrong in [
        vec![(0, vec![2])],
        vec![(0, vec![1, 2])],
        vec![(0, vec![])],
        vec![(1, vec![1])],
        vec![(0, vec![1]), (0, vec![1])],
    ] {
        assert_eq!(refused_topic(assigned(wrong.clone())), 39, "{wrong:?}");
    }
    let both = NewTopic { partitions: 1, ..assigned(vec![(0, vec![1])]) };
    assert_eq!(refused_topic(both), 42);
    let with_config = |key: &str, value: &str| NewTopic {
        configs: vec![(key.into(), Some(value.into()))],
        ..new("fresh")
    };
    assert_eq!(refused_topic(with_config("retention.m", "7")), 40);
    assert_eq!(refused_topic(with_config("retention.ms", "week")), 40);
    assert_eq!(refused_topic(with_config(MIRROR_NAME, "west")), 40);
    assert_eq!(refused_topic(with_config("cleanup.policy", &"x".repeat(40_000))), 42);

    let decision =
        create(&[new("twice"), new("twice"), NewTopic { topic_id: id(1_000), ..new("x") }]);
    assert_eq!(codes(&decision.answer), [("twice", 0), ("twice", 42), ("x", 36)]);
    let decision = create_topics(
        &image(),
        &[new("fresh")],
        TopicDefaults { node: BrokerId(9), partitions: 1 },
        &mut ids(),
    );
    assert_eq!(codes(&decision.answer), [("fresh", 38)]);
}

#[test]
fn topics_are_removed_by_name_or_id() {
    let keys = [
        TopicKey::Name("own".into()),
        TopicKey::Id(id(12)),
        TopicKey::Name("own".into()),
        TopicKey::Name("absent".into()),
        TopicKey::Id(id(99)),
    ];
    let decision = delete_topics(&image(), &keys);
    assert_eq!(
        codes(&decision.answer),
        [("own", 0), ("standing", 0), ("own", 3), ("absent", 3), ("", 100)]
    );
    assert_eq!(decision.answer[1].result, Ok(id(12)));
    let after = with(&image(), &decision.records);
    assert!(after.topic("own").is_none() && after.topic("standing").is_none());
    assert_eq!(after.mirror_of("standing"), None);
}

#[test]
fn topics_grow_and_never_shrink() {
    let grow = |name: &str, count, assignments: &[&[i32]]| GrowTopic {
        name: name.into(),
        count,
        assignments: assignments.iter().map(|it| it.to_vec()).collect(),
    };
    let asked = [
        grow("own", 3, &[]),
        grow("own", 4, &[]),
        grow("moving", 1, &[]),
        grow("resting", 0, &[]),
        grow("standing", i32::MAX, &[]),
        grow("absent", 3, &[]),
    ];
    let decision = create_partitions(&image(), &asked, NODE);
    assert_eq!(
        codes(&decision.answer),
        [("own", 0), ("own", 42), ("moving", 37), ("resting", 37), ("standing", 37), ("absent", 3)]
    );
    let after = with(&image(), &decision.records);
    assert_eq!(after.topic("own").unwrap().partition_count(), 3);
    assert_eq!(after.leader_epoch("own", 0), Some(LeaderEpoch(3)), "what is there stays");

    let asked =
        [grow("own", 3, &[&[1], &[1]]), grow("moving", 3, &[&[1]]), grow("resting", 2, &[&[2]])];
    let decision = create_partitions(&image(), &asked, NODE);
    assert_eq!(codes(&decision.answer), [("own", 0), ("moving", 39), ("resting", 39)]);
    assert_eq!(decision.records.len(), 2);
}

fn bump(topics: &[(u128, &[(i32, i32)])]) -> (MetadataImage, Vec<BumpResult>, usize) {
    let topic = |(number, asked): &(u128, &[(i32, i32)])| BumpTopic {
        topic_id: id(*number),
        partitions: asked
            .iter()
            .map(|&(partition_index, min_leader_epoch)| BumpPartition {
                partition_index,
                min_leader_epoch,
            })
            .collect(),
    };
    let request = BumpLeaderEpochsRequest { topics: topics.iter().map(topic).collect() };
    let decision = bump_leader_epochs(&image(), &request);
    (with(&image(), &decision.records), decision.answer, decision.records.len())
}

#[test]
fn epochs_rise_above_what_is_requested() {
    // The epoch is 3.
    for (requested, want, records) in
        [(-1, 3, 0), (2, 3, 0), (3, 4, 1), (40, 41, 1), (i32::MAX / 2, i32::MAX / 2 + 1, 1)]
    {
        let (after, answer, count) = bump(&[(10, &[(0, requested)])]);
        assert_eq!(after.leader_epoch("moving", 0), Some(LeaderEpoch(want)), "{requested}");
        assert_eq!(answer[0].partitions, [(0, Ok(LeaderEpoch(want)))]);
        assert_eq!((count, &*answer[0].topic_name), (records, "moving"));
        let partition = after.topic("moving").unwrap().partitions[0];
        assert_eq!(partition.partition_epoch, 3 + i32::try_from(records).unwrap());
    }
}

#[test]
fn what_cannot_be_bumped_is_named() {
    let (_, answer, count) = bump(&[
        (10, &[(0, i32::MAX / 2 + 1), (1, 5), (-1, 5)]),
        (99, &[(0, 5)]),
        (14, &[(0, 5), (0, 5)]),
    ]);
    let codes: Vec<Vec<_>> = answer
        .iter()
        .map(|it| it.partitions.iter().map(|(_, result)| code_of(result)).collect())
        .collect();
    assert_eq!(codes, [vec![42, 3, 3], vec![100], vec![0, 0]]);
    assert_eq!((count, &*answer[1].topic_name), (1, ""));
}

#[test]
fn writable_partitions_get_a_new_epoch_at_each_start() {
    let decision = new_epochs_at_start(&image()).unwrap();
    assert_eq!(decision.answer, 2);
    let after = with(&image(), &decision.records);
    let epoch = |topic| after.leader_epoch(topic, 0).unwrap().0;
    assert_eq!((epoch("own"), epoch("standing")), (4, 4));
    assert_eq!((epoch("moving"), epoch("resting"), epoch("other")), (3, 3, 3));
    let full = with(&image(), &[partition(14, 0, i32::MAX)]);
    let rest = new_epochs_at_start(&full).unwrap().answer;
    assert!(rest > 0 && rest + 1 == decision.answer, "one stays as it is: {rest}");
}
