//! Jobs over a temporary log dir, a scripted source and scripted shards.

mod fake;
mod losses;
mod steered;
mod stops;

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use heliostat_core::config::MirrorConfig;
use heliostat_core::engine::message::{Command, PartitionKey, ReturnReason};
use heliostat_core::log::failure::RunError;
use heliostat_core::log::recovery::LogOpenError;
use heliostat_core::log::store::StoreError;
use heliostat_core::protocol::fetch_stream::DivergingEpoch;
use heliostat_core::protocol::{ErrorCode, TopicIdentity};
use heliostat_core::records::{BatchBuilder, NewRecord, RecordError};
use heliostat_core::types::{LeaderEpoch, Offset, TimestampMs, TopicId};

use self::fake::{FakeShard, Seen, Source, Topic};
use super::super::copy::{Copy, Opening, Phase};
use super::super::status::PartitionState;
use super::*;
use crate::shard::mailbox::Received;

const ID: u128 = 0x1234_5678;

fn config(dir: &Path, source: &Source, keys: &[(&str, &str)]) -> JobConfig {
    let base = [("mirror.metadata.refresh.interval.ms", "100"), ("log.dir.free.min.bytes", "0")];
    let pairs = base.iter().chain(keys).map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    JobConfig {
        log_dir: dir.to_path_buf(),
        mirror: MirrorConfig::from_pairs(pairs).unwrap(),
        bootstrap: vec![source.at.clone()],
        selector: TopicSelector::new(".*", "").unwrap(),
        shards: 1,
        follow: true,
        stop_within: Duration::from_secs(20),
    }
}

/// A running job and the shard that it works with.
struct Running {
    handle: JobHandle,
    shard: FakeShard,
    job: tokio::task::JoinHandle<Result<JobReport, JobError>>,
}

impl Running {
    async fn start(config: JobConfig) -> Self {
        let (control, shard) = FakeShard::pair();
        let (job, handle) = Job::start(config, |_| Ok(vec![control])).await.unwrap();
        Self { handle, shard, job: tokio::task::spawn_local(job.run()) }
    }

    /// The next partition that is added: its key, start and end.
    async fn added(&mut self) -> (PartitionKey, i64, i64) {
        match self.shard.next().await {
            Seen::Added { key, log_start, log_end, .. } => (key, log_start, log_end),
            other => panic!("{other:?} instead of Add"),
        }
    }

    /// Waits until the published status satisfies `holds`.
    async fn until(&mut self, holds: impl Fn(&Status) -> bool) -> Arc<Status> {
        let mut watch = self.handle.watch();
        let status = watch.wait_for(|status| holds(status)).await.unwrap();
        Arc::clone(&status)
    }

    async fn failed(&mut self) -> String {
        let is_failed = |s: &Status| s.partitions.iter().any(|p| p.state == PartitionState::Failed);
        let status = self.until(is_failed).await;
        let failed = status.partitions.iter().find(|p| p.state == PartitionState::Failed);
        failed.unwrap().trouble.as_ref().unwrap().0.to_string()
    }

    async fn stop(mut self) -> JobReport {
        self.handle.cancel();
        assert_eq!(self.shard.next().await, Seen::Stopped);
        self.shard.stop();
        self.job.await.unwrap().unwrap()
    }
}

/// Runs a test on one thread, with a limit that only a hang reaches.
fn run(test: impl Future<Output = ()>) {
    run_within(Duration::from_secs(60), test);
}

fn run_within(limit: Duration, test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async {
        let limited = tokio::time::timeout(limit, test);
        limited.await.expect("the test hangs");
    });
}

fn text(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join(name)).unwrap()
}

/// Makes `dir` a copy of cluster `source-1` with partition `t-0`: one record a batch, each
/// run of offsets with its epoch. As after a crash: without the clean stop's marker.
fn prepare(dir: &Path, runs: &[(i32, std::ops::Range<i64>)]) {
    let mut log_dir = LogDir::open(dir).unwrap();
    log_dir.bind(Some("source-1")).unwrap();
    drop(log_dir);
    let mut bytes = Vec::new();
    for (epoch, offsets) in runs {
        for offset in offsets.clone() {
            let mut batch = BatchBuilder::new(Offset(offset)).leader_epoch(LeaderEpoch(*epoch));
            let (timestamp, value) = (TimestampMs(1), Some(&b"v"[..]));
            batch.push(&NewRecord { timestamp, key: None, value, headers: &[] }).unwrap();
            bytes.extend(batch.build().unwrap());
        }
    }
    std::fs::create_dir(dir.join("t-0")).unwrap();
    std::fs::write(dir.join("t-0/00000000000000000000.log"), bytes).unwrap();
}

#[test]
fn a_new_copy_begins_at_the_sources_start_and_ends_cleanly() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source =
            Source::start(&[("t", Topic::new(ID, 2, 5, 9)), ("__x", Topic::new(2, 1, 0, 0))]);
        let once = JobConfig { follow: false, ..config(dir.path(), &source, &[]) };
        let mut running = Running::start(once).await;
        for _ in 0..2 {
            let (key, start, end) = running.added().await;
            assert_eq!((start, end), (5, 5));
            running.shard.progress(key, 9, 9);
        }
        assert_eq!(running.shard.next().await, Seen::Stopped);
        running.shard.stop();
        let report = running.job.await.unwrap().unwrap();
        assert_eq!((report.ended, report.clean), (Ended::CaughtUp, true));
        let refused: Vec<_> = report.status.refused.iter().map(|(topic, _)| &**topic).collect();
        assert_eq!(refused, ["__x"]);

        assert!(dir.path().join(".kafka_cleanshutdown").exists());
        // The fake shard gives logs back as it got them, so their ends are those of the start.
        for name in ["log-start-offset-checkpoint", "recovery-point-offset-checkpoint"] {
            assert_eq!(text(dir.path(), name), "0\n2\nt 0 5\nt 1 5\n", "{name}");
        }
        assert!(text(dir.path(), "t-1/partition.metadata").ends_with(&TopicIdText(ID).to_string()));
        let meta = text(dir.path(), "meta.properties");
        assert!(meta.contains("mirror.source.cluster.id=source-1\n"), "{meta}");
        assert!(meta.contains("version=1\n") && meta.contains("directory.id="), "{meta}");
        assert!(!dir.path().join("mirror-gaps").exists());
    });
}

struct TopicIdText(u128);

impl std::fmt::Display for TopicIdText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        TopicId(uuid::Uuid::from_u128(self.0)).fmt(f)
    }
}

#[test]
fn what_cannot_start_says_why() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1, 0, 0))]);
        let start = async |config: JobConfig| {
            let (control, _shard) = FakeShard::pair();
            let started = Job::start(config, |_| Ok(vec![control])).await;
            started.map(|_| ()).unwrap_err().to_string()
        };
        let once = JobConfig { follow: false, ..config(dir.path(), &source, &[]) };

        let selector = TopicSelector::new("nothing", "").unwrap();
        let text = start(JobConfig { selector, ..once.clone() }).await;
        assert!(text.starts_with("no topic of the source is to be copied; check"), "{text}");

        let held = LogDir::open(dir.path()).unwrap();
        let text = start(once.clone()).await;
        assert!(text.contains("is in use by this process"), "{text}");
        drop(held);

        source.change(|world| world.cluster = "source-2");
        let text = start(once.clone()).await;
        assert!(text.contains("holds a copy of cluster source-1, the source is cluster source-2"));

        std::fs::write(dir.path().join("meta.properties"), "version=1\ncluster.id=x\nnode.id=1\n")
            .unwrap();
        let text = start(once).await;
        assert!(text.contains("is another program's, a Kafka broker's perhaps"), "{text}");
    });
}

/// Goal: a wrong address costs no recovery of everything at the next start. Method: open a log
/// dir that was closed cleanly, with and without opening a log.
#[test]
fn a_clean_stop_is_undone_by_the_first_log_that_opens() {
    let dir = tempfile::tempdir().unwrap();
    let log = MirrorConfig::default().log;
    prepare(dir.path(), &[(3, 0..4)]);
    let is_marked = || dir.path().join(".kafka_cleanshutdown").exists();

    drop(LogDir::open(dir.path()).unwrap());
    assert!(!is_marked(), "nobody has closed it cleanly yet");
    LogDir::open(dir.path()).unwrap().finish(log).unwrap();
    for _ in 0..2 {
        let opened = LogDir::open(dir.path()).unwrap();
        assert!(opened.was_clean() && !is_marked());
        drop(opened);
        assert!(is_marked());
    }
    let mut opened = LogDir::open(dir.path()).unwrap();
    let _ = opened.open_options(&TopicPartition::new("t", 0), TopicId::NONE, log, None);
    drop(opened);
    assert!(!is_marked(), "the log may have been appended to");
}

#[test]
fn a_range_that_the_source_lost_is_recorded_before_the_copy_goes_on() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1, 5, 9))]);
        let mut running = Running::start(config(dir.path(), &source, &[])).await;
        let (key, ..) = running.added().await;
        source.change(|world| world.topics.get_mut("t").unwrap().earliest = 20);
        let out = || ReturnReason::OutOfRange { fetch_offset: Offset(5) };
        running.shard.give_back(key, out());
        assert_eq!(running.added().await, (key, 20, 20));
        let gaps = text(dir.path(), "mirror-gaps");
        let line = gaps.lines().nth(1).unwrap();
        let start = format!("gap\tt\t0\t{}\t5\t20\t", TopicIdText(ID));
        assert!(line.starts_with(&start), "{line}");
        assert_eq!(text(dir.path(), "log-start-offset-checkpoint"), "0\n1\nt 0 20\n");
        running.shard.progress(key, 25, 30);
        let status = running.until(|status| status.totals.gaps == 1).await;
        assert_eq!(status.partitions.len(), 1);
        let report = running.stop().await;
        assert_eq!((report.ended, report.clean), (Ended::Stopped, true));
    });
}

#[test]
fn the_gap_policy_can_stop_the_partition_instead() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1, 5, 9))]);
        let stop = [("mirror.gap.policy", "stop")];
        let mut running = Running::start(config(dir.path(), &source, &stop)).await;
        let (key, ..) = running.added().await;
        source.change(|world| world.topics.get_mut("t").unwrap().earliest = 20);
        running.shard.give_back(key, ReturnReason::OutOfRange { fetch_offset: Offset(5) });
        let reason = running.failed().await;
        assert!(reason.contains("no longer has offsets 5 to 20"), "{reason}");
        assert!(!dir.path().join("mirror-gaps").exists());
        assert!(running.stop().await.clean);
    });
}

fn diverged(epoch: i32, end: i64) -> ReturnReason {
    let (epoch, end_offset) = (LeaderEpoch(epoch), Offset(end));
    ReturnReason::Diverged(DivergingEpoch { epoch, end_offset })
}

#[test]
fn a_diverged_copy_is_cut_to_the_common_point_where_that_is_allowed() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path(), &[(1, 0..10), (2, 10..20)]);
        let source = Source::start(&[("t", Topic::new(ID, 1, 0, 30))]);
        let allowed = [("mirror.support.unclean.leader.election", "true")];
        let mut running = Running::start(config(dir.path(), &source, &allowed)).await;
        let (key, start, end) = running.added().await;
        assert_eq!((start, end), (0, 20));
        running.shard.give_back(key, diverged(2, 15));
        assert_eq!(running.added().await, (key, 0, 15));
        // The source still disagrees: its epoch 1 ended earlier than ours.
        running.shard.give_back(key, diverged(1, 7));
        assert_eq!(running.added().await, (key, 0, 7));
        let gaps = text(dir.path(), "mirror-gaps");
        let cuts: Vec<_> = gaps
            .lines()
            .skip(1)
            .map(|line| {
                let fields: Vec<_> = line.split('\t').collect();
                (fields[0], fields[4], fields[5])
            })
            .collect();
        assert_eq!(cuts, [("truncation", "15", "20"), ("truncation", "7", "15")]);
        assert_eq!(text(dir.path(), "recovery-point-offset-checkpoint"), "0\n1\nt 0 7\n");
        assert!(running.stop().await.clean);
    });
}

#[test]
fn a_diverged_copy_stops_where_cutting_is_not_allowed() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path(), &[(1, 0..10), (2, 10..20)]);
        let source = Source::start(&[("t", Topic::new(ID, 1, 0, 30))]);
        let mut running = Running::start(config(dir.path(), &source, &[])).await;
        let (key, ..) = running.added().await;
        running.shard.give_back(key, diverged(2, 15));
        let reason = running.failed().await;
        assert!(
            reason.contains("from offset 15 on (5 records are here and not there)"),
            "{reason}"
        );
        running.stop().await;
        let mut again = Running::start(config(dir.path(), &source, &[])).await;
        // Nothing was cut.
        assert_eq!(again.added().await.2, 20);
        again.stop().await;
    });
}

#[test]
fn sources_that_do_not_tell_of_divergence_are_asked_before_anything_is_fetched() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path(), &[(1, 0..10), (2, 10..20)]);
        let source = Source::start(&[("t", Topic::new(ID, 1, 0, 30))]);
        source.change(|world| {
            world.is_old = true;
            world.topics.get_mut("t").unwrap().epoch_end = (2, 16);
        });
        let allowed = [("mirror.support.unclean.leader.election", "true")];
        let mut running = Running::start(config(dir.path(), &source, &allowed)).await;
        let (key, _, end) = running.added().await;
        assert_eq!(end, 16);
        // A made-up ID, since the source has none.
        let own = text(dir.path(), "mirror-topics");
        let id = own.lines().nth(1).unwrap().strip_prefix("t\t").unwrap();
        assert!(text(dir.path(), "t-0/partition.metadata").ends_with(id), "{own}");

        // A new epoch: asked again, and nothing more to cut.
        source.change(|world| {
            let topic = world.topics.get_mut("t").unwrap();
            (topic.epoch, topic.epoch_end) = (4, (2, 18));
        });
        assert_eq!(running.shard.next().await, Seen::Removed(key));
        running.shard.give_back(key, ReturnReason::Asked);
        assert_eq!(running.added().await, (key, 0, 16));

        // The source is upgraded: its ID is adopted.
        source.change(|world| world.is_old = false);
        running.shard.other(|command| matches!(command, Command::SetTopicIdentity { .. })).await;
        let adopted = text(dir.path(), "t-0/partition.metadata");
        assert!(adopted.ends_with(&TopicIdText(ID).to_string()), "{adopted}");
        assert_eq!(text(dir.path(), "mirror-topics"), "mirror-topics\t1\n");
        running.stop().await;
    });
}

#[test]
fn a_recreated_topic_stops_and_its_bytes_are_never_mixed() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1, 0, 9))]);
        let mut running = Running::start(config(dir.path(), &source, &[])).await;
        let (key, ..) = running.added().await;
        source.change(|world| {
            world.topics.insert("t", Topic::new(ID + 1, 1, 0, 9_999));
        });
        assert_eq!(running.shard.next().await, Seen::Removed(key));
        running.shard.give_back(key, ReturnReason::Asked);
        let reason = running.failed().await;
        assert!(reason.contains("the topic was recreated at the source"), "{reason}");
        running.stop().await;

        let mut again = Running::start(config(dir.path(), &source, &[])).await;
        let reason = again.failed().await;
        assert!(reason.contains("move the directory away"), "{reason}");
        again.stop().await;
    });
}

#[test]
fn an_unknown_topic_goes_on_if_metadata_says_that_it_is_the_same() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1, 0, 9))]);
        let mut running = Running::start(config(dir.path(), &source, &[])).await;
        let (key, ..) = running.added().await;
        running.shard.give_back(key, ReturnReason::UnknownTopic(ErrorCode::UNKNOWN_TOPIC_ID));
        assert_eq!(running.added().await.0, key);
        running.stop().await;
    });
}

#[test]
fn bad_batches_stop_the_partition_after_some_tries() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1, 0, 9))]);
        let fast = [("reconnect.backoff.ms", "1"), ("reconnect.backoff.max.ms", "2")];
        let mut running = Running::start(config(dir.path(), &source, &fast)).await;
        let (base_offset, stored, computed) = (Offset(3), 0xabcd, 0x1234);
        let bad = RunError::Record(RecordError::CrcMismatch { base_offset, stored, computed });
        for _ in 0..3 {
            let (key, ..) = running.added().await;
            running.shard.give_back(key, ReturnReason::Refused(bad));
        }
        let reason = running.failed().await;
        for part in ["offset 3", "0000abcd", "00001234"] {
            assert!(reason.contains(part), "{part} in {reason}");
        }
        running.stop().await;
    });
}

#[test]
fn new_partitions_and_throttle_changes_reach_the_shard() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1, 0, 9))]);
        source.change(|world| world.topics.get_mut("t").unwrap().cleanup = "compact,delete");
        let mut running = Running::start(config(dir.path(), &source, &[])).await;
        running.added().await;
        let warns = |e: &Event| e.text.starts_with("t: the topic is compacted at the source");
        running.until(|status| status.events.iter().any(warns)).await;
        source.change(|world| world.topics.get_mut("t").unwrap().partitions = 2);
        running.added().await;
        let throttled = ThrottledPartitions::parse("t:1").unwrap();
        assert!(running.handle.set_throttle(Some(1_000), throttled));
        running.shard.other(|c| matches!(c, Command::SetThrottleRate(Some(1_000)))).await;
        let is_off = |c: &Command| matches!(c, Command::SetThrottled { throttled: false, .. });
        running.shard.other(is_off).await;
        running.stop().await;
    });
}

#[test]
fn low_space_parks_and_a_dead_shard_ends_the_job() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1, 0, 9))]);
        let full = i64::MAX.to_string();
        let low = [("log.dir.free.min.bytes", full.as_str())];
        let mut running = Running::start(config(dir.path(), &source, &low)).await;
        running.shard.other(|command| matches!(command, Command::SetParked(true))).await;
        assert!(running.until(|status| status.parked).await.free_bytes > 0);
        drop(running.shard);
        let error = running.job.await.unwrap().unwrap_err();
        assert!(matches!(error, JobError::ShardLost { shard: 0 }), "{error}");
        assert!(!dir.path().join(".kafka_cleanshutdown").exists());
    });
}

/// Goal: a source may be away for as long as it likes. Method: its port is closed for twenty
/// minutes of a clock that runs as fast as the job lets it, then opens again.
#[test]
fn a_source_that_is_away_for_twenty_minutes_is_waited_for() {
    const AWAY: Duration = Duration::from_secs(20 * 60);
    /// An address that no other test listens on while the port is closed.
    const HOST: &str = "127.83.71.1";
    run_within(AWAY + Duration::from_secs(60), async {
        let dir = tempfile::tempdir().unwrap();
        let topics = [("t", Topic::new(ID, 1, 5, 9))];
        let source = Source::listen(HOST, 0, &topics);
        let at = source.at.clone();
        let mut running = Running::start(config(dir.path(), &source, &[])).await;
        let (key, ..) = running.added().await;
        running.shard.progress(key, 9, 9);

        source.change(|world| world.is_down = true);
        drop(source);
        running.until(|status| status.source_trouble.is_some()).await;
        tokio::time::pause();
        let failing = |s: &Status| s.source_trouble.as_ref().map(|(_, since)| *since);
        let status = running.until(|status| failing(status) >= Some(AWAY)).await;
        tokio::time::resume();
        let (why, _) = status.source_trouble.clone().unwrap();
        assert!(why.contains(HOST) && why.contains("refused"), "{why}");
        assert_eq!(status.partitions[0].state, PartitionState::Mirroring);
        let told = status.events.iter().filter(|it| it.kind == EventKind::Source).count();
        assert_eq!(told, 1, "told once, not at every attempt: {:?}", status.events);

        // Were the waits not capped, the next attempt would be minutes away.
        let source = Source::listen(HOST, at.port, &[("t", Topic::new(ID, 2, 5, 9))]);
        let status = running.until(|status| status.source_trouble.is_none()).await;
        assert_eq!(status.totals.failed, 0);
        let (_, start, end) = running.added().await;
        assert_eq!((start, end), (5, 5), "a partition that came meanwhile");
        assert!(running.stop().await.clean);
        drop(source);
    });
}

#[test]
fn a_second_cancel_and_a_missed_deadline_leave_no_marker() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1, 0, 9))]);
        for cancels in [1, 2] {
            let short = Duration::from_millis(if cancels == 1 { 50 } else { 60_000 });
            let config = JobConfig { stop_within: short, ..config(dir.path(), &source, &[]) };
            let mut running = Running::start(config).await;
            running.added().await;
            for _ in 0..cancels {
                running.handle.cancel();
            }
            // The shard never answers.
            let report = running.job.await.unwrap().unwrap();
            assert_eq!((report.ended, report.clean), (Ended::Aborted, false));
            assert!(!dir.path().join(".kafka_cleanshutdown").exists());
        }
    });
}

#[test]
fn a_stop_while_logs_are_being_opened_is_clean() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1_000, 5, 9))]);
        let mut running = Running::start(config(dir.path(), &source, &[])).await;
        let mut added = vec![running.added().await];
        running.handle.cancel();
        // What was given to the shard before it was told to stop comes back.
        loop {
            match running.shard.next().await {
                Seen::Added { key, log_start, log_end, .. } => {
                    added.push((key, log_start, log_end));
                }
                Seen::Stopped => break,
                other @ Seen::Removed(_) => panic!("{other:?}"),
            }
        }
        running.shard.stop();
        let report = running.job.await.unwrap().unwrap();
        // A shard that is told to stop gets nothing more.
        while let Received::Message(command) = running.shard.end.next_command() {
            assert!(!matches!(command, Command::Add(_)), "{command:?}");
        }
        assert!(added.len() < 1_000, "the stop came in between");
        assert!(report.clean);
        // Every log that was opened is accounted for, whether a shard had it or not.
        let entries = std::fs::read_dir(dir.path()).unwrap();
        let logs = entries.filter(|e| e.as_ref().unwrap().path().is_dir()).count();
        let starts = text(dir.path(), "log-start-offset-checkpoint");
        assert_eq!(starts.lines().filter(|line| line.ends_with(" 5")).count(), logs);
        assert!(logs >= added.len());
    });
}

#[test]
fn a_job_without_room_waits_and_does_not_spin() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 2, 5, 9))]);
        let (control, _shard) = FakeShard::pair();
        let no_room = [("log.dir.free.min.bytes", "9000000000000000000")];
        let config = config(dir.path(), &source, &no_room);
        let (mut job, _handle) = Job::start(config, |_| Ok(vec![control])).await.unwrap();
        let opens =
            |job: &Job| job.copies.values().all(|copy| matches!(copy.phase, Phase::Opens { .. }));
        while !(job.parked && opens(&job)) {
            job.step();
            job.wait().await;
        }
        job.step();
        assert!(opens(&job) && job.next_deadline() > job.now(), "nothing is to be done now");
    });
}

/// A job that has just ordered `t-0` to be opened, which was answered, and was not told yet.
async fn ordered(
    dir: &Path,
    source: &Source,
    keys: &[(&str, &str)],
) -> (Job, FakeShard, PartitionKey) {
    let (control, shard) = FakeShard::pair();
    let config = config(dir, source, keys);
    let (mut job, _) = Job::start(config, |_| Ok(vec![control])).await.unwrap();
    loop {
        job.step();
        let is_ordered = |copy: &&Copy| matches!(copy.phase, Phase::Opening { .. });
        let ordered = job.copies.values().find(is_ordered).map(|copy| copy.key);
        if let Some(key) = ordered {
            return (job, shard, key);
        }
        job.wait().await;
    }
}

fn refused(errno: i32) -> LogOpenError {
    LogOpenError::Store(StoreError { action: "write", path: "t-0".to_owned(), errno })
}

/// Goal: a full disk is no gap. Method: the opening of a new partition, which begins at the
/// source's first offset, finds no room after it has made the directory.
#[test]
fn an_opening_without_room_is_done_again_as_it_was_meant() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1, 5, 9))]);
        let (mut job, _shard, key) = ordered(dir.path(), &source, &[]).await;
        let mut opened = job.openers.next().await;
        std::fs::remove_dir_all(dir.path().join("t-0")).unwrap();
        std::fs::create_dir(dir.path().join("t-0")).unwrap();
        opened.outcome = Err(refused(rustix::io::Errno::NOSPC.raw_os_error()));
        job.take_opened(opened);
        assert!(matches!(job.copies.get(key).unwrap().phase, Phase::NoRoom { .. }));
        job.look_at_space();
        while job.copies.get(key).unwrap().phase.shard().is_none() {
            job.step();
            job.wait().await;
        }
        assert_eq!(job.copies.get(key).unwrap().ends.log_start, Offset(5));
    });
}

/// Goal: nor is a crash in the making of a new partition. Method: its directory, still empty.
#[test]
fn a_directory_without_a_log_is_no_copy() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path(), &[]);
        std::fs::remove_file(dir.path().join("t-0/00000000000000000000.log")).unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1, 5, 9))]);
        let mut running = Running::start(config(dir.path(), &source, &[])).await;
        let (_, log_start, log_end) = running.added().await;
        assert_eq!((log_start, log_end), (5, 5));
        running.stop().await;
    });
}

/// Goal: a source that takes long to answer costs no processor time. Method: metadata is wanted
/// again, as when connections break, while it is being asked for.
#[test]
fn a_job_whose_source_is_slow_does_not_spin() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1, 5, 9))]);
        let (mut job, _shard, _) = ordered(dir.path(), &source, &[]).await;
        job.health.refreshing = true;
        job.health.refreshed_at = Tick::ZERO;
        job.due.refresh = Tick::ZERO;
        job.refresh_soon();
        job.step();
        assert!(job.next_deadline() > job.now(), "nothing is to be done now");
        job.health.refreshing = false;
        assert!(job.next_deadline() <= job.now());
    });
}

/// Goal: the marker of a clean stop does not vouch for a log whose opening stopped half-way.
#[test]
fn a_log_that_was_not_opened_to_the_end_is_not_trusted() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        prepare(dir.path(), &[(3, 0..4)]);
        let log = MirrorConfig::default().log;
        LogDir::open(dir.path()).unwrap().finish(log).unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1, 0, 9))]);
        let (mut job, _shard, key) = ordered(dir.path(), &source, &[]).await;
        assert!(!job.log_dir.borrow().needs_recovery());
        let mut opened = job.openers.next().await;
        opened.outcome = Err(refused(rustix::io::Errno::IO.raw_os_error()));
        job.take_opened(opened);
        assert!(matches!(job.copies.get(key).unwrap().phase, Phase::Opens { .. }));
        assert!(job.log_dir.borrow().needs_recovery());
    });
}

/// Goal: an ID that appears does not change files under a log that is being opened, which
/// would then be another topic's.
#[test]
fn an_id_that_appears_waits_for_logs_that_are_being_opened() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1, 5, 9))]);
        source.change(|world| world.is_old = true);
        let (mut job, _shard, key) = ordered(dir.path(), &source, &[]).await;
        let id = TopicId(uuid::Uuid::from_u128(ID));
        job.adopt_id(&TopicIdentity { name: Arc::from("t"), id });
        assert!(job.log_dir.borrow().changes_id("t", id), "not yet");
        // Nor does the opening of another log, before the one under way has ended.
        job.copies.get_mut(key).unwrap().phase =
            Phase::Opens { how: Opening::Whole, due: Tick::ZERO };
        job.step();
        assert!(matches!(job.copies.get(key).unwrap().phase, Phase::Opens { .. }));
        let opened = job.openers.next().await;
        job.take_opened(opened);
        while job.copies.get(key).unwrap().phase.shard().is_none() {
            job.step();
            job.wait().await;
        }
        assert_eq!(job.copies.get(key).unwrap().topic_id, id);
        assert!(!job.log_dir.borrow().changes_id("t", id));
    });
}
