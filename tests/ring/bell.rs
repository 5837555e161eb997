//! Completions wake a shard, and nothing else does.

use std::time::Duration;

use heliostat_core::log::disk::{DiskAction, DiskDone, DiskOp, FileId, OpId};
use heliostat_core::log::slot::{SlotClass, SlotPool, map_apart};
use heliostat_core::types::ShardId;
use heliostat_io::shard::executor::{ExecutorError, spawn_pinned};
use rustix::process::{Resource, getrlimit};

use crate::child;
use crate::support::{disk, path};

/// CPU time of the calling thread.
fn thread_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("proc is mounted");
    let nanos = text.split(' ').next().and_then(|ns| ns.parse().ok());
    Duration::from_nanos(nanos.expect("first number is the time on a CPU"))
}

fn open(file: FileId) -> DiskOp {
    let path = path("t-0", "00000000000000000000.log");
    DiskOp { id: OpId(0), action: DiskAction::Open { file, path, create: true, direct: false } }
}

#[test]
fn completions_wake_a_shard_that_sleeps() {
    const WRITES: u64 = 300;
    let dir = tempfile::tempdir().expect("scratch");
    let log_dir = dir.path().to_path_buf();
    let shard = spawn_pinned(ShardId(0), None, move || async move {
        let mut disk = disk(&log_dir, 8, 16);
        let mut all = Vec::new();
        disk.submit([open(FileId(1))]).expect("ring works");
        while all.is_empty() {
            disk.completed().expect("eventfd").await;
            disk.reap(&mut all).expect("ring works");
        }
        let mut pool = SlotPool::new(1 << 20, map_apart);
        let mut done = 0;
        // Each write waits for the one before: a lost wake-up would hang here.
        for number in 0..WRITES {
            let slot = pool.take(SlotClass::Small).expect("one at a time");
            let (file, position) = (FileId(1), number * 4096);
            let action = DiskAction::Write { file, position, slot, from: 0, len: 4096 };
            let sync = DiskAction::Sync { file };
            all.clear();
            disk.submit([DiskOp { id: OpId(1), action }]).expect("ring works");
            if number % 32 == 0 {
                disk.submit([DiskOp { id: OpId(2), action: sync }]).expect("ring works");
            }
            while !disk.is_idle() {
                disk.completed().expect("eventfd").await;
                disk.reap(&mut all).expect("ring works");
            }
            for outcome in all.drain(..) {
                outcome.result.expect("written");
                if let Some(slot) = outcome.slot {
                    pool.give(slot);
                }
                done += 1;
            }
        }
        done
    });
    let done = shard.expect("starts").join().expect("ends");
    assert_eq!(done, WRITES + WRITES.div_ceil(32));
}

/// Goal: a wait that was given up must not swallow the next wake-up.
/// Method: race each wait against a future that is ready, then wait in earnest.
#[test]
fn a_wait_that_was_dropped_loses_no_wake_up() {
    let dir = tempfile::tempdir().expect("scratch");
    let log_dir = dir.path().to_path_buf();
    let shard = spawn_pinned(ShardId(0), None, move || async move {
        let mut disk = disk(&log_dir, 8, 16);
        let mut all = Vec::new();
        for number in 0..200 {
            let replace = DiskAction::Replace { path: path("", "x"), bytes: vec![number; 100] };
            disk.submit([DiskOp { id: OpId(1), action: replace }]).expect("ring works");
            while all.is_empty() {
                for _ in 0..3 {
                    let completed = disk.completed().expect("eventfd");
                    futures_lite::future::or(completed, glommio::yield_if_needed()).await;
                }
                disk.completed().expect("eventfd").await;
                disk.reap(&mut all).expect("ring works");
            }
            assert_eq!(all.drain(..).map(|o| o.result).collect::<Vec<_>>(), [Ok(DiskDone::Done)]);
        }
    });
    shard.expect("starts").join().expect("ends");
}

#[test]
fn an_idle_shard_costs_no_cpu() {
    const IDLE: Duration = Duration::from_millis(500);
    let dir = tempfile::tempdir().expect("scratch");
    let log_dir = dir.path().to_path_buf();
    let shard = spawn_pinned(ShardId(0), None, move || async move {
        let mut disk = disk(&log_dir, 8, 16);
        let mut all = Vec::new();
        disk.submit([open(FileId(1))]).expect("ring works");
        while !disk.is_idle() {
            disk.completed().expect("eventfd").await;
            disk.reap(&mut all).expect("ring works");
        }
        let before = thread_cpu();
        let mut timer = std::pin::pin!(glommio::timer::sleep(IDLE));
        let mut rings = 0;
        loop {
            let completed = disk.completed().expect("eventfd");
            let bell = async {
                completed.await;
                true
            };
            let idle = async {
                timer.as_mut().await;
                false
            };
            if !futures_lite::future::or(bell, idle).await {
                return (rings, thread_cpu().saturating_sub(before));
            }
            rings += 1;
            disk.reap(&mut all).expect("ring works");
        }
    });
    let (rings, cpu) = shard.expect("starts").join().expect("ends");
    // What was reaped before its eventfd was read rings once more, for nothing.
    assert!(rings <= 1, "{rings} rings with nothing in flight");
    assert!(cpu < IDLE / 20, "{cpu:?} of CPU in {IDLE:?} of idleness");
}

#[test]
fn a_disk_dropped_in_the_midst_leaves_whole_files() {
    let dir = tempfile::tempdir().expect("scratch");
    let log_dir = dir.path().to_path_buf();
    let shard = spawn_pinned(ShardId(0), None, move || async move {
        for rounds in 0..20 {
            let mut disk = disk(&log_dir, 8, 16);
            let replace = DiskAction::Replace { path: path("", "x"), bytes: vec![1; 100] };
            disk.submit([DiskOp { id: OpId(1), action: replace }]).expect("ring works");
            let mut all = Vec::new();
            for _ in 0..rounds % 8 {
                disk.completed().expect("eventfd").await;
                disk.reap(&mut all).expect("ring works");
                if !all.is_empty() {
                    break;
                }
            }
            drop(disk);
            if let Ok(bytes) = std::fs::read(log_dir.join("x")) {
                assert_eq!(bytes, [1; 100]);
            }
        }
    });
    shard.expect("starts").join().expect("ends");
    assert!(dir.path().join("x").exists(), "some of them came to their end");
}

#[test]
fn a_shard_says_why_it_cannot_be_pinned() {
    let spawned = spawn_pinned(ShardId(3), Some(100_000), || async {});
    assert!(matches!(spawned, Err(ExecutorError::Cpu { shard: 3, cpu: 100_000 })), "{spawned:?}");
}

#[test]
fn a_panic_is_told() {
    let shard = spawn_pinned(ShardId(3), None, || async { panic!("on purpose") });
    let ended: Result<(), _> = shard.expect("starts").join();
    assert!(matches!(ended, Err(ExecutorError::Panicked { shard: 3 })), "{ended:?}");
}

/// The limit that an ordinary user has must do; run the suite with `ulimit -l 8192`.
#[test]
fn eight_shards_fit_an_ordinary_limit_on_locked_memory() {
    let limit = getrlimit(Resource::Memlock).current;
    let shards: Vec<_> = (0..8).map(|n| spawn_pinned(ShardId(n), None, || async { 1 })).collect();
    for shard in shards {
        let ended = shard.expect("starts").join();
        assert!(ended.is_ok_and(|one| one == 1), "limit {limit:?}");
    }
}

#[test]
fn a_shard_that_may_not_lock_memory_says_what_to_type() {
    if child::argument().is_some() {
        let refused = spawn_pinned(ShardId(3), None, || async {});
        child::answer(&match refused {
            Ok(_) => "started".to_owned(),
            Err(error) => error.to_string(),
        });
        return;
    }
    let test = "bell::a_shard_that_may_not_lock_memory_says_what_to_type";
    let answer = child::run(test, "", "ulimit -l 256");
    assert!(answer.contains("shard 3") && answer.contains("ulimit -l 512"), "{answer}");
}
