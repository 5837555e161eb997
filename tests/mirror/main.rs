//! Whole mirrors of the embedded source: real shards, sockets, disk and control thread,
//! and what a source can do to them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod world;

use heliostat_core::types::{BrokerId, LeaderEpoch, Offset};
use heliostat_io::control::Ended;
use heliostat_io::generate::{DemoSpec, generate};
use heliostat_io::listener::hosted::Leadership;

use self::world::{World, find, produce};

const ALLOW_UNCLEAN: (&str, &str) = ("mirror.support.unclean.leader.election", "true");

#[test]
fn one_shot_copies_everything_and_a_second_one_nothing() {
    let world = World::new();
    let spec = DemoSpec { seed: 5, bytes: 12 << 20, partitions: 2 };
    let topics = generate(&world.catalog, &spec, &mut |_| {}).unwrap();
    let report = world.copy("demo.*", &[]);
    assert_eq!((report.ended, report.clean), (Ended::CaughtUp, true));
    let totals = report.status.totals;
    assert_eq!((totals.caught_up, totals.failed), (totals.partitions, 0));
    for topic in &topics {
        for partition in &topic.partitions {
            world.assert_equal(&partition.id().to_string());
        }
    }
    assert!(world.copy_dir().join(".kafka_cleanshutdown").exists());
    let again = world.copy("demo.*", &[]);
    assert_eq!((again.ended, again.status.totals.bytes_appended), (Ended::CaughtUp, 0));
    assert_eq!(world.gaps(), "");
}

#[test]
fn following_copies_what_comes_and_new_topics_and_partitions() {
    let world = World::new();
    let first = world.topic("live.a", 1);
    produce(&first.partitions[0], 3, "before");
    let mirror = world.start("live.*", true, &[]).unwrap();
    mirror.wait_for_end("live.a-0", Offset(9));
    let end = produce(&first.partitions[0], 5, "while");
    mirror.wait_for_end("live.a-0", end);

    let second = world.topic("live.b", 1);
    let end = produce(&second.partitions[0], 2, "new topic");
    mirror.wait_for_end("live.b-0", end);

    world.catalog.grow_topic("live.a", 3).unwrap();
    let grown = world.catalog.partition("live.a", 2).unwrap();
    let end = produce(&grown, 4, "new partition");
    mirror.wait_for_end("live.a-2", end);

    assert!(mirror.stop().clean);
    for partition in ["live.a-0", "live.a-2", "live.b-0"] {
        world.assert_equal(partition);
    }
}

#[test]
fn a_log_start_inside_a_batch_is_kept() {
    let world = World::new();
    let topic = world.topic("t", 1);
    produce(&topic.partitions[0], 10, "data");
    topic.partitions[0].delete_records(Offset(13)).unwrap();
    let report = world.copy("t", &[]);
    let part = find(&report.status, "t-0").unwrap();
    assert_eq!((part.log_start, part.log_end), (Offset(13), Offset(30)));
    // The batch 12..=14 is whole, and the first one of the copy.
    let source = world.source_bytes("t-0");
    assert!(source.ends_with(&world.copy_bytes("t-0")));
    assert_eq!(world.copy_bytes("t-0")[..8], 12_i64.to_be_bytes());
    // Opened again it says the same.
    let again = world.copy("t", &[]);
    assert_eq!(find(&again.status, "t-0").unwrap().log_start, Offset(13));
}

#[test]
fn the_log_start_follows_the_source() {
    let world = World::new();
    let topic = world.topic("t", 1);
    produce(&topic.partitions[0], 10, "data");
    let mirror = world.start("t", true, &[]).unwrap();
    mirror.wait_for_end("t-0", Offset(30));
    topic.partitions[0].delete_records(Offset(20)).unwrap();
    produce(&topic.partitions[0], 1, "more");
    mirror.wait("log start at 20", |status| {
        find(status, "t-0").is_some_and(|part| part.log_start == Offset(20))
    });
    assert!(mirror.stop().clean);
}

#[test]
fn what_retention_took_is_a_gap_on_record() {
    let world = World::new();
    let topic = world.topic("t", 1);
    produce(&topic.partitions[0], 10, "data");
    world.copy("t", &[]);
    let before = world.copy_bytes("t-0");
    produce(&topic.partitions[0], 10, "later");
    topic.partitions[0].delete_records(Offset(45)).unwrap();

    // By policy the partition stops before anything is lost from the copy.
    let stopping = world.start("t", true, &[("mirror.gap.policy", "stop")]).unwrap();
    let why = stopping.wait_for_failure("t-0");
    assert!(why.contains("30") && why.contains("45"), "{why}");
    stopping.stop();
    assert_eq!(world.copy_bytes("t-0"), before);

    let report = world.copy("t", &[]);
    let part = find(&report.status, "t-0").unwrap();
    assert_eq!((part.log_start, part.log_end), (Offset(45), Offset(60)));
    let gaps = world.gaps();
    assert!(gaps.contains("gap\tt\t0\t") && gaps.contains("\t30\t45\t"), "{gaps}");
}

/// Loses the tail of the source from offset 18 on and writes other records there.
fn lose_tail(world: &World, topic: &heliostat_io::listener::hosted::Topic) {
    let _ = world;
    let partition = &topic.partitions[0];
    partition.truncate(Offset(18)).unwrap();
    partition.elect(Leadership { leader: BrokerId(1), epoch: LeaderEpoch(7) }).unwrap();
    produce(partition, 8, "other history");
}

#[test]
fn a_lost_tail_is_cut_by_policy_and_recorded() {
    let world = World::new();
    let topic = world.topic("t", 1);
    produce(&topic.partitions[0], 10, "data");
    let mirror = world.start("t", true, &[ALLOW_UNCLEAN]).unwrap();
    mirror.wait_for_end("t-0", Offset(30));
    lose_tail(&world, &topic);
    mirror.wait_for_end("t-0", Offset(42));
    assert!(mirror.stop().clean);
    world.assert_equal("t-0");
    let gaps = world.gaps();
    assert!(gaps.contains("truncation\tt\t0\t") && gaps.contains("\t18\t30\t"), "{gaps}");
}

#[test]
fn a_lost_tail_stops_the_partition_otherwise() {
    let world = World::new();
    let topic = world.topic("t", 1);
    let other = world.topic("u", 1);
    produce(&topic.partitions[0], 10, "data");
    let mirror = world.start("t,u", true, &[]).unwrap();
    mirror.wait_for_end("t-0", Offset(30));
    let before = world.source_bytes("t-0");
    lose_tail(&world, &topic);
    let why = mirror.wait_for_failure("t-0");
    assert!(why.contains("mirror.support.unclean.leader.election"), "{why}");
    // One partition's trouble stays its own.
    let end = produce(&other.partitions[0], 2, "goes on");
    mirror.wait_for_end("u-0", end);
    mirror.stop();
    assert_eq!(world.copy_bytes("t-0"), before);
}

#[test]
fn a_recreated_topic_is_another_topic() {
    let world = World::new();
    let topic = world.topic("t", 1);
    produce(&topic.partitions[0], 10, "data");
    let mirror = world.start("t", true, &[]).unwrap();
    mirror.wait_for_end("t-0", Offset(30));
    let before = world.source_bytes("t-0");
    world.catalog.delete_topic("t").unwrap();
    let again = world.topic("t", 1);
    produce(&again.partitions[0], 20, "the other topic");
    let why = mirror.wait_for_failure("t-0");
    assert!(why.contains("recreated") || why.contains("another topic"), "{why}");
    mirror.stop();
    assert_eq!(world.copy_bytes("t-0"), before);
}

#[test]
fn another_clusters_copy_and_a_second_process_are_refused() {
    let world = World::new();
    let topic = world.topic("t", 1);
    produce(&topic.partitions[0], 1, "data");
    let mirror = world.start("t", true, &[]).unwrap();
    mirror.wait_for_end("t-0", Offset(3));
    let second = world.start("t", false, &[]).err().unwrap().to_string();
    assert!(second.contains("in use"), "{second}");
    mirror.stop();
    let meta = world.copy_dir().join("meta.properties");
    let text = std::fs::read_to_string(&meta).unwrap();
    std::fs::write(&meta, text.replace("=source", "=elsewhere")).unwrap();
    let refused = world.start("t", false, &[]).err().unwrap().to_string();
    assert!(refused.contains("elsewhere") && refused.contains("source"), "{refused}");
}
