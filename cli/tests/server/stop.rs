//! A stop that dies between any two of its steps.

use std::sync::LazyLock;

use heliostat_core::coordinator::state_log::{AppendAs, Replayed, StateLog, StateLogOptions};
use heliostat_core::coordinator::{LastMirrored, MirrorState, StateRecord};
use heliostat_core::records::read_marker;
use heliostat_core::types::{LeaderEpoch, Offset, TimestampMs};
use heliostat_io::disk::FileStore;

use super::child::{Home, Topics, all_in, in_step, positions, run, until};
use super::source::{Source, stop_t};

/// Last mirrored epoch and offset of the partitions of [`Source::with_topic`].
pub(crate) const POSITIONS: [(i32, i64); 3] = [(0, 3), (0, 4), (4, 2)];
/// Codes of the markers behind them: ABORT is 0, a reset 7.
pub(crate) const MARKERS: [&[i16]; 3] = [&[7], &[0, 0, 7], &[7]];
const PARTITIONS: [&str; 3] = ["t-0", "t-1", "t-2"];

/// A source, and a host that has mirrored all of it and stopped cleanly.
pub(crate) static MIRRORED: LazyLock<(Source, Home)> = LazyLock::new(|| {
    let (source, _) = Source::with_topic();
    let home = Home::new();
    let server = home.start();
    let mut client = server.client();
    run(async {
        source.mirror(&mut client, &["t"]).await;
        until(&mut client, in_step).await;
    });
    server.stop();
    (source, home)
});

/// What `__mirror_state` holds.
pub(crate) fn states(home: &Home) -> Replayed {
    let options = StateLogOptions { clean: true, ..StateLogOptions::default() };
    StateLog::open(&mut FileStore::new(&home.log_dir()), options).unwrap().1
}

/// Writes what a crash may have left in `__mirror_state` of a host that has stopped.
pub(crate) fn write_states(home: &Home, records: &[StateRecord]) {
    let mut store = FileStore::new(&home.log_dir());
    let options = StateLogOptions { clean: true, ..StateLogOptions::default() };
    let (mut log, _) = StateLog::open(&mut store, options).unwrap();
    // That of the second start, which was the last one.
    let with = AppendAs { timestamp: TimestampMs(0), leader_epoch: LeaderEpoch(2) };
    log.append(&mut store, records, with).unwrap();
}

/// Control types and epochs of the batches behind the source's bytes.
pub(crate) fn markers(ours: &[u8], theirs: &[u8]) -> Vec<(i16, i32)> {
    assert!(ours.starts_with(theirs), "it is not the source's");
    let mut rest = &ours[theirs.len()..];
    let mut found = Vec::new();
    while !rest.is_empty() {
        let length = i32::from_be_bytes(rest[8..12].try_into().unwrap());
        let epoch = i32::from_be_bytes(rest[12..16].try_into().unwrap());
        let size = usize::try_from(length).unwrap() + 12;
        found.push((read_marker(&rest[61..size]).unwrap().control.code(), epoch));
        rest = &rest[size..];
    }
    found
}

/// The stop has ended as if nothing had happened, in the logs and in what is said of them.
#[track_caller]
fn is_stopped(home: &Home, source: &Source, described: &Topics, point: &str) {
    assert_eq!(positions(described), POSITIONS, "{point}");
    for (index, partition) in PARTITIONS.into_iter().enumerate() {
        let found = markers(&home.bytes(partition), &source.bytes(partition));
        let codes: Vec<i16> = found.iter().map(|(code, _)| *code).collect();
        assert_eq!(codes, MARKERS[index], "{point}, {partition}");
        let epochs: Vec<i32> = found.iter().map(|(_, epoch)| *epoch).collect();
        assert!(epochs.is_sorted() && epochs[0] > POSITIONS[index].0, "{point}: {epochs:?}");
    }
    let replayed = states(home);
    assert_eq!((replayed.unknown, replayed.cuts.len()), (0, 0), "{point}");
    assert!(replayed.states.values().all(|it| it.state == MirrorState::Stopped), "{point}");
    let last = POSITIONS
        .map(|(epoch, offset)| LastMirrored { epoch: LeaderEpoch(epoch), offset: Offset(offset) });
    assert!(replayed.last_mirrored.values().eq(&last), "{point}: {replayed:?}");
}

/// Starts what has died, waits for the end of the stop, and looks at it; then once more.
#[track_caller]
fn goes_on(home: &Home, source: &Source, point: &str) {
    let mut before = Vec::new();
    for _ in 0..2 {
        let server = home.start();
        let mut client = server.client();
        let described = run(until(&mut client, all_in("STOPPED")));
        server.stop();
        is_stopped(home, source, &described, point);
        let logs = PARTITIONS.map(|partition| home.bytes(partition));
        assert!(before.is_empty() || before == logs, "{point}: a restart has changed the logs");
        before = logs.into();
    }
}

/// Dies there once, and goes on.
#[track_caller]
fn dies_at(points: &[&str]) {
    let (source, mirrored) = &*MIRRORED;
    for point in points {
        let home = mirrored.copy();
        let server = home.start_to_die_at(point);
        let mut client = server.client();
        run(async {
            until(&mut client, in_step).await;
            stop_t(&mut client).await;
        });
        server.dies(point);
        assert!(!home.is_clean());
        goes_on(&home, source, point);
    }
}

#[test]
fn a_stop_without_a_crash() {
    let (source, mirrored) = &*MIRRORED;
    let home = mirrored.copy();
    let server = home.start();
    let mut client = server.client();
    let described = run(async {
        until(&mut client, in_step).await;
        stop_t(&mut client).await;
        until(&mut client, all_in("STOPPED")).await
    });
    server.stop();
    is_stopped(&home, source, &described, "no crash");
    goes_on(&home, source, "no crash");
}

#[test]
fn a_stop_that_dies_before_anything_is_written_goes_on() {
    dies_at(&[
        "state-storing.STOPPING",
        "state-stored.STOPPING",
        "stop.released",
        "stop.released:2",
        "stop.inspected",
        "stop.position-stored",
        "stop.epoch-raised",
    ]);
}

#[test]
fn a_stop_that_dies_among_its_markers_goes_on() {
    dies_at(&[
        "stop.marker-written:1",
        "stop.marker-written:2",
        "stop.marker-written:3",
        "stop.marker-written:4",
        "stop.marker-written:5",
        "stop.marked",
        "state-storing.STOPPED",
        "state-stored.STOPPED",
        "state-stored.STOPPED:2",
    ]);
}

/// Of the three markers of one partition each is the last that a process writes; others may write
/// theirs at the same time.
#[test]
fn a_stop_that_dies_behind_each_marker_in_turn_ends() {
    let (source, mirrored) = &*MIRRORED;
    let home = mirrored.copy();
    let server = home.start_to_die_at("stop.marker-written");
    let mut client = server.client();
    run(async {
        until(&mut client, in_step).await;
        stop_t(&mut client).await;
    });
    server.dies("the first marker");
    for marker in 2..=3 {
        home.start_to_die_at("stop.marker-written").dies(&format!("marker {marker}"));
    }
    goes_on(&home, source, "three deaths");
}

/// There is no mirrored epoch to tell the markers' from.
#[test]
fn a_stop_of_an_empty_partition_that_dies_behind_its_marker_writes_no_other() {
    let source = Source::start();
    source.topic("t", 1);
    let home = Home::new();
    let server = home.start_to_die_at("stop.marker-written");
    let mut client = server.client();
    run(async {
        source.mirror(&mut client, &["t"]).await;
        until(&mut client, in_step).await;
        stop_t(&mut client).await;
    });
    server.dies("stop.marker-written");
    let server = home.start();
    let described = run(until(&mut server.client(), all_in("STOPPED")));
    server.stop();
    assert_eq!(positions(&described), [(-1, 0)]);
    let found = markers(&home.bytes("t-0"), b"");
    assert_eq!(found.iter().map(|(code, _)| *code).collect::<Vec<_>>(), [7]);
}
