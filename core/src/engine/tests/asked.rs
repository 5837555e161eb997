//! What a source is asked, and what becomes of its refusals.

use super::*;
use crate::protocol::ErrorCode;

/// A mirror's leader fetches as a consumer, whatever the source has: a field of followers
/// never goes to it.
#[test]
fn no_source_sees_a_mirror_leader_epoch() {
    for offered in [13, 16, 18, 19, 25] {
        let mut world = World::new(ShardConfig::default());
        world.fetch_version = offered;
        world.local_epoch = 20;
        world.produce(4, 500);
        world.add();
        world.run(200);
        world.assert_copied(world.log.len());
        let fetches: Vec<_> = world.frames.iter().filter(|it| it[4..6] == [0, 1]).collect();
        assert!(!fetches.is_empty());
        for frame in fetches {
            let version = i16::from_be_bytes([frame[6], frame[7]]);
            assert_eq!(version, offered.min(18), "the newest that both have");
        }
        for asked in &world.fetches {
            assert_eq!((asked.replica_id.0, asked.replica_state.replica_id.0), (-1, -1));
            for partition in asked.topics.iter().flat_map(|topic| &topic.partitions) {
                assert!(partition.unknown_tagged_fields.is_empty(), "{partition:?}");
            }
        }
    }
}

/// A source's tiered storage fails, or loads: the partition waits for it, says why, and is
/// given up by nobody.
#[test]
fn what_passes_at_the_source_is_waited_for() {
    for code in [
        ErrorCode::UNKNOWN_SERVER_ERROR,
        ErrorCode::REQUEST_TIMED_OUT,
        ErrorCode::REPLICA_NOT_AVAILABLE,
        ErrorCode::KAFKA_STORAGE_ERROR,
        ErrorCode::OFFSET_NOT_AVAILABLE,
    ] {
        let mut world = World::new(ShardConfig::default());
        world.error = code.0;
        world.produce(4, 500);
        world.add();
        // Five minutes, in which many tries are more than any bound on attempts.
        for _ in 0..300 {
            world.now = world.now.after(Duration::from_secs(1));
            world.run(3);
        }
        let returned = |it: &Report| matches!(it, Report::Returned { .. });
        assert!(!world.reports.iter().any(returned), "{code}");
        let told = world.reports.iter().rev().find_map(|report| match report {
            Report::Progress(all) => all.iter().find_map(|it| it.trouble.clone()),
            _ => None,
        });
        let (trouble, since) = told.expect("a reason");
        assert_eq!(trouble, Trouble::Source(code));
        assert!(since > 200_000, "{code}: since {since} ms");
        world.error = 0;
        for _ in 0..60 {
            world.now = world.now.after(Duration::from_secs(1));
            world.run(3);
        }
        world.assert_copied(world.log.len());
    }
}

/// It takes us for a follower, which asking again does not mend.
#[test]
fn what_only_followers_are_told_is_for_an_operator() {
    let mut world = World::new(ShardConfig::default());
    world.error = ErrorCode::OFFSET_MOVED_TO_TIERED_STORAGE.0;
    world.produce(1, 500);
    world.add();
    world.run(100);
    let fatal = |report: &Report| match report {
        Report::Returned { reason: ReturnReason::Fatal(code), .. } => {
            *code == ErrorCode::OFFSET_MOVED_TO_TIERED_STORAGE
        }
        _ => false,
    };
    assert!(world.reports.iter().any(fatal), "{:?}", world.reports);
}
