//! An alignment that dies between any two of its steps: a topic was stopped, so that its logs have
//! records of this host's own, and is started again.

use std::fs;
use std::sync::LazyLock;

use heliostat_core::coordinator::{LastMirrored, StateRecord};
use heliostat_core::log::gaps::GapFile;
use heliostat_core::types::{LeaderEpoch, Offset};

use super::child::{Home, all_in, in_step, positions, run, until};
use super::source::{Source, produce, start_t, stop_t};
use super::stop::{MARKERS, POSITIONS as FIRST_POSITIONS, markers, states, write_states};

const PARTITIONS: [&str; 3] = ["t-0", "t-1", "t-2"];
/// Of the second stop.
const POSITIONS: [(i32, i64); 3] = [(0, 5), (0, 4), (4, 3)];
/// What the alignment has to cut: partition, first offset, next one.
const CUTS: [(i32, i64, i64); 3] = [(0, 3, 4), (1, 4, 7), (2, 2, 3)];

/// A source that has gone on, and a host that has stopped the topic before.
pub(crate) static STOPPED: LazyLock<(Source, Home)> = LazyLock::new(|| {
    let (source, topic) = Source::with_topic();
    let home = stopped(&source);
    produce(&topic.partitions[0], 2);
    produce(&topic.partitions[2], 1);
    (source, home)
});

/// A host that has mirrored all of the source's topic and stopped it.
fn stopped(source: &Source) -> Home {
    let home = Home::new();
    let server = home.start();
    let mut client = server.client();
    run(async {
        source.mirror(&mut client, &["t"]).await;
        until(&mut client, in_step).await;
        stop_t(&mut client).await;
        until(&mut client, all_in("STOPPED")).await;
    });
    server.stop();
    home
}

/// It ends as if nothing had happened: all of it is the source's, and a second stop is about that.
#[track_caller]
fn goes_on(home: &Home, source: &Source, point: &str) {
    let server = home.start();
    let mut client = server.client();
    run(until(&mut client, in_step));
    server.stop();
    for partition in PARTITIONS {
        assert!(home.bytes(partition) == source.bytes(partition), "{point}: {partition} differs");
    }
    assert!(states(home).last_mirrored.is_empty(), "{point}: the first stop counts no more");
    let gaps = fs::read(home.log_dir().join("mirror-gaps")).unwrap();
    let gaps = GapFile::decode(&gaps).unwrap().records;
    let mut cuts: Vec<_> =
        gaps.iter().map(|it| (it.partition.partition, it.from.0, it.to.0)).collect();
    cuts.sort_unstable();
    assert_eq!(cuts, CUTS, "{point}");

    let server = home.start();
    let mut client = server.client();
    let described = run(async {
        stop_t(&mut client).await;
        until(&mut client, all_in("STOPPED")).await
    });
    server.stop();
    assert_eq!(positions(&described), POSITIONS, "{point}");
    for partition in PARTITIONS {
        let (ours, theirs) = (home.bytes(partition), source.bytes(partition));
        assert!(ours.starts_with(&theirs) && ours.len() > theirs.len(), "{point}: {partition}");
    }
}

#[track_caller]
fn dies_at(points: &[&str]) {
    let (source, stopped) = &*STOPPED;
    for point in points {
        let home = stopped.copy();
        let server = home.start_to_die_at(point);
        let mut client = server.client();
        run(start_t(&mut client));
        server.dies(point);
        goes_on(&home, source, point);
    }
}

#[test]
fn an_alignment_without_a_crash() {
    let (source, stopped) = &*STOPPED;
    let home = stopped.copy();
    let server = home.start();
    run(start_t(&mut server.client()));
    server.stop();
    goes_on(&home, source, "no crash");
}

#[test]
fn an_alignment_that_dies_before_its_cut_goes_on() {
    dies_at(&[
        "state-storing.LOG_TRUNCATION",
        "state-stored.LOG_TRUNCATION",
        "truncation.looked-up",
        "truncation.looked-up:3",
        "truncation.recorded",
        "truncation.recorded:3",
    ]);
}

/// A sync for each of very many would hold up the control thread for minutes.
#[test]
fn what_is_cut_next_is_recorded_together() {
    let (source, stopped) = &*STOPPED;
    let home = stopped.copy();
    let mut server = home.start_to_hold_at("truncation.recorded");
    let mut client = server.client();
    run(start_t(&mut client));
    server.holds();
    let gaps = fs::read(home.log_dir().join("mirror-gaps")).unwrap();
    assert_eq!(GapFile::decode(&gaps).unwrap().records.len(), PARTITIONS.len());
    for partition in PARTITIONS {
        assert!(home.bytes(partition) == stopped.bytes(partition), "{partition} is not cut yet");
    }
    server.kill();
    goes_on(&home, source, "recorded together");
}

#[test]
fn an_alignment_that_dies_in_its_cut_goes_on() {
    dies_at(&[
        "disk.shortened",
        "disk.shortened:2",
        "disk.removed.log",
        "disk.removed.index",
        "disk.removed.timeindex",
        "truncation.cut",
        "truncation.cut:2",
        "truncation.cut:3",
    ]);
}

#[test]
fn an_alignment_that_dies_behind_its_cut_goes_on() {
    dies_at(&[
        "truncation.aligned",
        "truncation.aligned:3",
        "state-storing.MIRRORING",
        "state-stored.MIRRORING",
        "state-stored.MIRRORING:3",
    ]);
}

/// Three deaths, each with one more log cut.
#[test]
fn an_alignment_that_dies_behind_each_cut_in_turn_ends() {
    let (source, stopped) = &*STOPPED;
    let home = stopped.copy();
    let server = home.start_to_die_at("truncation.recorded");
    run(start_t(&mut server.client()));
    server.dies("the first record");
    home.start_to_die_at("truncation.cut").dies("a cut");
    home.start_to_die_at("truncation.aligned").dies("an alignment");
    goes_on(&home, source, "three deaths");
}

/// MIRRORING and the tombstone of the last position are in one batch, unless very many partitions
/// are started at once: then a crash may come between them.
#[test]
fn a_position_whose_tombstone_was_lost_counts_no_more() {
    let (source, stopped) = &*STOPPED;
    let home = stopped.copy();
    let server = home.start();
    let mut client = server.client();
    run(async {
        start_t(&mut client).await;
        until(&mut client, in_step).await;
    });
    server.stop();
    let last = LastMirrored { epoch: LeaderEpoch(0), offset: Offset(1) };
    let stale: Vec<StateRecord> = states(&home)
        .states
        .keys()
        .map(|key| StateRecord::LastMirrored(key.clone(), Some(last)))
        .collect();
    assert_eq!(stale.len(), 3);
    write_states(&home, &stale);
    assert_eq!(states(&home).last_mirrored.len(), 3);
    goes_on(&home, source, "a lost tombstone");
}

/// The source dies in the middle of an alignment, and the host with it: some logs are cut, others
/// have the records of the first stop. A failover ends with the markers of one stop all the same.
#[test]
fn a_failover_in_the_middle_of_an_alignment_leaves_one_set_of_markers() {
    for point in ["truncation.looked-up:2", "disk.shortened", "truncation.cut", "truncation.cut:2"]
    {
        let (source, _) = Source::with_topic();
        let theirs = PARTITIONS.map(|partition| source.bytes(partition));
        let home = stopped(&source);
        let server = home.start_to_die_at(point);
        run(start_t(&mut server.client()));
        server.dies(point);
        drop(source);
        let server = home.start();
        let mut client = server.client();
        let described = run(async {
            stop_t(&mut client).await;
            until(&mut client, all_in("STOPPED")).await
        });
        server.stop();
        assert_eq!(positions(&described), FIRST_POSITIONS, "{point}");
        for ((partition, theirs), codes) in PARTITIONS.into_iter().zip(&theirs).zip(MARKERS) {
            let found = markers(&home.bytes(partition), theirs);
            let found: Vec<i16> = found.iter().map(|(code, _)| *code).collect();
            assert_eq!(found, codes, "{point}, {partition}");
        }
    }
}
