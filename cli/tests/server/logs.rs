//! The host's own logs with a torn end, with damage, and with what this release does not know.

use std::fs;
use std::path::{Path, PathBuf};

use heliostat_core::records::{BatchBuilder, NewRecord};
use heliostat_core::types::{LeaderEpoch, Offset, TimestampMs};

use super::child::{Home, Topics, all_in, in_step, log_files, run, until};
use super::stop::MIRRORED;

const METADATA: &str = "__cluster_metadata-0";

/// A batch of a file.
#[derive(Clone, Copy, Debug)]
struct Batch {
    position: usize,
    size: usize,
    base: i64,
    epoch: i32,
    next: i64,
}

fn batches(bytes: &[u8]) -> Vec<Batch> {
    let int = |at: usize| i32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut position, mut found) = (0, Vec::new());
    while position < bytes.len() {
        let base = i64::from_be_bytes(bytes[position..position + 8].try_into().unwrap());
        let size = usize::try_from(int(position + 8)).unwrap() + 12;
        let (epoch, delta) = (int(position + 12), int(position + 23));
        found.push(Batch { position, size, base, epoch, next: base + i64::from(delta) + 1 });
        position += size;
    }
    found
}

/// The newest segment of each of the host's own logs that hold something.
fn own_logs(home: &Home) -> Vec<PathBuf> {
    let dirs = fs::read_dir(home.log_dir()).unwrap().map(|entry| entry.unwrap().path());
    let own = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name == METADATA || name.starts_with("__mirror_state-")
    };
    let newest = dirs.filter(own).filter_map(|dir| log_files(&dir).pop());
    newest.filter(|file| fs::metadata(file).unwrap().len() > 0).collect()
}

/// A host that was killed when topic `t` was paused; no checkpoint says what was durable.
fn killed_paused() -> Home {
    let home = MIRRORED.1.copy();
    let mut server = home.start();
    let mut client = server.client();
    run(async {
        until(&mut client, in_step).await;
        client.pause_mirror_topics("m", &["t".to_owned()]).await.unwrap();
        until(&mut client, all_in("PAUSED")).await;
    });
    server.kill();
    fs::remove_file(home.log_dir().join("recovery-point-offset-checkpoint")).unwrap();
    home
}

fn desired(topics: &Topics) -> Vec<&str> {
    topics["t"].iter().filter_map(|it| it.desired_state.as_deref()).collect()
}

/// A crash in the middle of a write: what was acknowledged before it holds.
#[test]
fn half_a_batch_behind_the_end_of_each_own_log_is_cut_off() {
    let home = killed_paused();
    let logs = own_logs(&home);
    assert!(logs.len() > 1, "{logs:?}");
    for file in &logs {
        let bytes = fs::read(file).unwrap();
        let last = *batches(&bytes).last().unwrap();
        let half = &bytes[last.position..last.position + last.size / 2];
        fs::write(file, [&bytes[..], half].concat()).unwrap();
    }
    let server = home.start();
    let topics = run(until(&mut server.client(), all_in("PAUSED")));
    assert_eq!(desired(&topics), ["PAUSED"; 3]);
    server.stop();
}

/// The last decision is lost, and no other: the wish of the pause in the metadata log.
#[test]
fn a_metadata_log_that_ends_in_the_middle_of_its_last_batch_is_cut() {
    let home = killed_paused();
    let file = log_files(&home.log_dir().join(METADATA)).pop().unwrap();
    let bytes = fs::read(&file).unwrap();
    let last = *batches(&bytes).last().unwrap();
    fs::write(&file, &bytes[..last.position + last.size / 2]).unwrap();
    let server = home.start();
    let topics = run(until(&mut server.client(), in_step));
    assert_eq!(desired(&topics), ["MIRRORING"; 3]);
    server.stop();
    let now = fs::read(&file).unwrap();
    assert!(now.starts_with(&bytes[..last.position]) && now.len() > last.position);
}

/// The last states are lost: what is wanted says what they have to become.
#[test]
fn state_logs_that_end_in_the_middle_of_their_last_batches_are_cut() {
    let home = killed_paused();
    for file in own_logs(&home).iter().filter(|file| !file.to_str().unwrap().contains(METADATA)) {
        let bytes = fs::read(file).unwrap();
        let last = *batches(&bytes).last().unwrap();
        fs::write(file, &bytes[..last.position + last.size / 2]).unwrap();
    }
    let server = home.start();
    let topics = run(until(&mut server.client(), all_in("PAUSED")));
    assert_eq!(desired(&topics), ["PAUSED"; 3]);
    server.stop();
}

/// Flips a byte in the middle of a file; the same again puts it right.
fn flip(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let first = batches(&bytes)[0];
    bytes[first.position + first.size - 1] ^= 1;
    fs::write(file, bytes).unwrap();
}

/// What was durable is not cut off in silence, and nothing of it is touched.
#[test]
fn damage_below_the_recovery_point_is_refused_with_file_and_position() {
    let home = MIRRORED.1.copy();
    for file in own_logs(&home) {
        flip(&file);
        let damaged = fs::read(&file).unwrap();
        let name = file.strip_prefix(home.log_dir()).unwrap().display().to_string();
        for is_clean in [true, false] {
            if !is_clean {
                fs::remove_file(home.log_dir().join(".kafka_cleanshutdown")).unwrap();
            }
            let said = home.refusal();
            let words = [&*name, "is damaged at position 0", "offset 0"];
            assert!(words.iter().all(|word| said.contains(word)), "{said}");
            assert!(!said.contains("copy it again"), "no source has it: {said}");
            assert_eq!(home.is_clean(), is_clean, "it opened nothing: what was said holds");
            assert!(fs::read(&file).unwrap() == damaged, "{name} was changed");
        }
        flip(&file);
        let server = home.start();
        run(until(&mut server.client(), in_step));
        server.stop();
    }
}

/// Records of a newer release: nothing is decided without them.
#[test]
fn a_metadata_record_of_an_unknown_type_is_refused() {
    let home = MIRRORED.1.copy();
    let file = log_files(&home.log_dir().join(METADATA)).pop().unwrap();
    let bytes = fs::read(&file).unwrap();
    let last = *batches(&bytes).last().unwrap();
    assert!(last.base < last.next);
    let mut batch = BatchBuilder::new(Offset(last.next)).leader_epoch(LeaderEpoch(last.epoch));
    // Frame version, type, version.
    let value = Some(&[1, 99, 0][..]);
    let record = NewRecord { timestamp: TimestampMs(0), key: None, value, headers: &[] };
    batch.push(&record).unwrap();
    fs::write(&file, [bytes, batch.build().unwrap()].concat()).unwrap();
    let said = home.refusal();
    let place = format!("offset {}", last.next);
    let words = [&*place, "a record of type 99, version 0", "start the release that wrote it"];
    assert!(words.iter().all(|word| said.contains(word)), "{said}");
}
