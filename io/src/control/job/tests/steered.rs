//! A job in the hands of a host.

use std::cell::RefCell;
use std::rc::Rc;

use heliostat_core::coordinator::LastMirrored;
use heliostat_core::types::BrokerId;

use super::super::super::steering::{Happening, Helm, Order, Outcome, WatchedTopic, steering};
use super::*;

struct Steered {
    helm: Helm,
    log_dir: SharedLogDir,
    handle: JobHandle,
    shard: FakeShard,
    job: tokio::task::JoinHandle<Result<JobReport, JobError>>,
}

fn at() -> TopicPartition {
    TopicPartition::new("t", 0)
}

impl Steered {
    fn start(dir: &Path, source: &Source) -> Self {
        let log_dir = LogDir::open_host(dir, BrokerId(7), None).unwrap();
        let log_dir = Rc::new(RefCell::new(log_dir));
        let (control, shard) = FakeShard::pair();
        let (helm, steering) = steering();
        let (job, handle) =
            Job::steered(config(dir, source, &[]), Rc::clone(&log_dir), steering, |_| {
                Ok(vec![control])
            })
            .unwrap();
        let local_id = TopicId(uuid::Uuid::from_u128(ID));
        let topics = vec![WatchedTopic { name: Arc::from("t"), local_id, source_id: local_id }];
        helm.orders.send(Order::Watch { cluster: Some(Arc::from("source-1")), topics }).unwrap();
        Self { helm, log_dir, handle, shard, job: tokio::task::spawn_local(job.run()) }
    }

    fn order(&self, order: Order) {
        self.helm.orders.send(order).unwrap();
    }

    fn follow(&self, local_epoch: i32) {
        let local_epoch = LeaderEpoch(local_epoch);
        self.order(Order::Follow { at: at(), local_epoch, may_cut: false, unclean: false });
    }

    /// What became of the partition next.
    async fn outcome(&mut self) -> Outcome {
        loop {
            match self.helm.happenings.recv().await.unwrap() {
                Happening::Of(place, outcome) => {
                    assert_eq!(place, at());
                    return outcome;
                }
                Happening::Metadata(_) => {}
            }
        }
    }

    async fn metadata(&mut self) {
        while !matches!(self.helm.happenings.recv().await.unwrap(), Happening::Metadata(_)) {}
    }

    async fn added(&mut self) -> (PartitionKey, i64, i64) {
        match self.shard.next().await {
            Seen::Added { key, log_start, log_end, .. } => (key, log_start, log_end),
            other => panic!("{other:?} instead of Add"),
        }
    }

    async fn stop(mut self) -> SharedLogDir {
        self.handle.cancel();
        assert_eq!(self.shard.next().await, Seen::Stopped);
        self.shard.stop();
        assert!(self.job.await.unwrap().unwrap().clean);
        self.log_dir
    }
}

/// The log of `t-0` as [`prepare`] makes it, in the log dir of a host.
fn prepare_host(dir: &Path, runs: &[(i32, std::ops::Range<i64>)]) {
    prepare(dir, runs);
    std::fs::remove_file(dir.join("meta.properties")).unwrap();
    let held = dir.with_extension("held");
    std::fs::rename(dir.join("t-0"), &held).unwrap();
    drop(LogDir::open_host(dir, BrokerId(7), None).unwrap());
    std::fs::rename(&held, dir.join("t-0")).unwrap();
    // As after a crash.
    std::fs::remove_file(dir.join(".kafka_cleanshutdown")).ok();
}

#[test]
fn nothing_is_followed_without_an_order_and_what_is_released_is_left_alone() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1, 5, 9))]);
        let mut job = Steered::start(dir.path(), &source);
        job.metadata().await;
        job.order(Order::Align { at: at(), last: None });
        assert_eq!(job.outcome().await, Outcome::Aligned, "there is nothing to cut");
        job.follow(11);
        let (key, start, end) = job.added().await;
        assert_eq!((start, end), (5, 5));
        job.shard.progress(key, 9, 9);
        assert_eq!(job.outcome().await, Outcome::Follows);
        job.shard.progress(key, 10, 10);
        job.order(Order::SetLocalEpoch { at: at(), epoch: LeaderEpoch(20) });
        job.shard.other(|it| matches!(it, Command::SetLocalEpoch { .. })).await;
        job.order(Order::Release { at: at() });
        assert_eq!(job.shard.next().await, Seen::Removed(key));
        job.shard.give_back(key, ReturnReason::Asked);
        assert_eq!(job.outcome().await, Outcome::Released, "it is told once that it follows");
        job.order(Order::Release { at: at() });
        assert_eq!(job.outcome().await, Outcome::Released, "whenever it is asked");
        let log_dir = job.stop().await;
        assert!(!dir.path().join(".kafka_cleanshutdown").exists(), "that is the host's to say");
        assert_eq!(log_dir.borrow().source_cluster(), None);
    });
}

/// Whoever is ordered before the source has told of its topic learns of its leader then.
#[test]
fn a_partition_may_be_ordered_before_the_source_tells_of_it() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1, 0, 9))]);
        let log_dir = LogDir::open_host(dir.path(), BrokerId(7), None).unwrap();
        let log_dir = Rc::new(RefCell::new(log_dir));
        let (control, mut shard) = FakeShard::pair();
        let (mut helm, steering) = steering();
        let config = config(dir.path(), &source, &[]);
        let spawn = |_: &JobConfig| Ok(vec![control]);
        let (job, handle) = Job::steered(config, log_dir, steering, spawn).unwrap();
        let job = tokio::task::spawn_local(job.run());
        // The topic is not watched yet: a refresh says nothing of it.
        assert!(matches!(helm.happenings.recv().await, Some(Happening::Metadata(_))));
        let local_epoch = LeaderEpoch(5);
        let follow = Order::Follow { at: at(), local_epoch, may_cut: false, unclean: false };
        helm.orders.send(follow).unwrap();
        assert!(matches!(shard.next().await, Seen::Added { .. }));
        let local_id = TopicId(uuid::Uuid::from_u128(ID));
        let topics = vec![WatchedTopic { name: Arc::from("t"), local_id, source_id: local_id }];
        helm.orders.send(Order::Watch { cluster: Some(Arc::from("source-1")), topics }).unwrap();
        let leads = |it: &Command| matches!(it, Command::SetLeader { leader, .. } if leader.broker == BrokerId(1));
        shard.other(leads).await;
        assert!(shard.others.iter().any(|it| {
            matches!(it, Command::SetTopicIdentity { topic, .. } if topic.id == local_id)
        }));
        handle.cancel();
        assert_eq!(shard.next().await, Seen::Stopped);
        shard.stop();
        job.await.unwrap().unwrap();
    });
}

#[test]
fn a_batch_above_the_destinations_epoch_is_told_and_followed_once_it_is_raised() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1, 0, 9))]);
        let mut job = Steered::start(dir.path(), &source);
        job.follow(2);
        let (key, ..) = job.added().await;
        job.shard.give_back(key, ReturnReason::EpochFenced { epoch: LeaderEpoch(3) });
        assert_eq!(job.outcome().await, Outcome::EpochFenced(LeaderEpoch(3)));
        job.follow(13);
        let (key, ..) = job.added().await;
        job.shard.give_back(key, ReturnReason::Fatal(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE));
        let Outcome::Failed { reason, retryable: true } = job.outcome().await else { panic!() };
        assert!(reason.contains("UNSUPPORTED_COMPRESSION_TYPE"), "{reason}");
        job.follow(13);
        job.added().await;
        job.stop().await;
    });
}

/// The worked example of KIP-1279: six records were mirrored, two were not before the other side
/// was stopped. With the offset of that stop they are cut at once; by epoch, the source is asked.
#[test]
fn an_alignment_cuts_by_offset_or_by_what_the_source_says_of_the_epoch() {
    for (offset, cut_by) in [(6, "stop"), (-1, "history differs")] {
        run(async {
            let dir = tempfile::tempdir().unwrap();
            prepare_host(dir.path(), &[(0, 0..3), (1, 3..8)]);
            let topic = Topic { epoch: 11, epoch_end: (1, 6), ..Topic::new(ID, 1, 0, 8) };
            let source = Source::start(&[("t", topic)]);
            let mut job = Steered::start(dir.path(), &source);
            let last = LastMirrored { epoch: LeaderEpoch(1), offset: Offset(offset) };
            job.order(Order::Align { at: at(), last: Some(last) });
            assert_eq!(job.outcome().await, Outcome::Aligned);
            let gaps = text(dir.path(), "mirror-gaps");
            assert!(gaps.contains(cut_by) && gaps.contains("\t6\t8\t"), "{gaps}");
            job.follow(12);
            assert_eq!(job.added().await.2, 6);
            job.stop().await;
        });
    }
}

/// Without a position of a stop, nothing is known to be the source's.
#[test]
fn an_alignment_without_a_last_position_begins_anew() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        prepare_host(dir.path(), &[(0, 0..3), (1, 3..8)]);
        let source = Source::start(&[("t", Topic::new(ID, 1, 2, 9))]);
        let mut job = Steered::start(dir.path(), &source);
        job.order(Order::Align { at: at(), last: None });
        assert_eq!(job.outcome().await, Outcome::Aligned);
        let gaps = text(dir.path(), "mirror-gaps");
        assert!(gaps.contains("\t0\t8\t"), "{gaps}");
        job.follow(12);
        let (_, start, end) = job.added().await;
        assert_eq!((start, end), (2, 2));
        job.stop().await;
    });
}

/// What was mirrored in an epoch that this log never had stays: the source says where it ends.
#[test]
fn a_last_epoch_above_all_epochs_here_cuts_nothing_by_itself() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        prepare_host(dir.path(), &[(0, 0..3), (1, 3..8)]);
        let topic = Topic { epoch_end: (1, 8), ..Topic::new(ID, 1, 0, 8) };
        let source = Source::start(&[("t", topic)]);
        let mut job = Steered::start(dir.path(), &source);
        let last = LastMirrored { epoch: LeaderEpoch(5), offset: Offset::NONE };
        job.order(Order::Align { at: at(), last: Some(last) });
        assert_eq!(job.outcome().await, Outcome::Aligned);
        assert!(!dir.path().join("mirror-gaps").exists());
        job.stop().await;
    });
}

#[test]
fn a_host_has_its_log_dir_and_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let open = |node, cluster| LogDir::open_host(dir.path(), BrokerId(node), cluster);
    let made = open(7, Some("mine")).unwrap();
    assert_eq!(made.cluster_id(), Some("mine"));
    drop(made);
    assert_eq!(open(7, None).unwrap().cluster_id(), Some("mine"));
    let error = open(8, None).unwrap_err().to_string();
    assert!(error.contains("is of node.id 7, the properties say 8"), "{error}");
    let error = open(7, Some("other")).unwrap_err().to_string();
    assert!(error.contains("is of cluster.id mine, the properties say other"), "{error}");
    let error = LogDir::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("another program's"), "{error}");
    let copy = tempfile::tempdir().unwrap();
    LogDir::open(copy.path()).unwrap().bind(Some("source-1")).unwrap();
    assert!(LogDir::open_host(copy.path(), BrokerId(7), None).is_err());
}

/// Whoever answers at the source's addresses may not cost the copy.
#[test]
fn nothing_is_cut_while_another_cluster_answers() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        prepare_host(dir.path(), &[(0, 0..3)]);
        let source = Source::start(&[("t", Topic::new(ID, 1, 0, 9))]);
        source.change(|world| world.cluster = "elsewhere");
        let mut job = Steered::start(dir.path(), &source);
        job.order(Order::Align { at: at(), last: None });
        // Two refreshes: a job that believed it would have asked for offsets by then.
        job.metadata().await;
        job.metadata().await;
        assert!(!dir.path().join("mirror-gaps").exists());
        job.order(Order::Release { at: at() });
        assert_eq!(job.outcome().await, Outcome::Released, "a stop needs no source");
        source.change(|world| world.cluster = "source-1");
        job.order(Order::Align { at: at(), last: None });
        assert_eq!(job.outcome().await, Outcome::Aligned);
        job.stop().await;
    });
}

/// The stop of a topic that ends at the source is told of its end, not of the topic's.
#[test]
fn a_release_is_answered_whatever_becomes_of_the_topic() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1, 0, 9))]);
        let mut job = Steered::start(dir.path(), &source);
        job.follow(5);
        let (key, ..) = job.added().await;
        job.order(Order::Release { at: at() });
        assert_eq!(job.shard.next().await, Seen::Removed(key));
        source.change(|world| world.topics.clear());
        for _ in 0..4 {
            job.metadata().await;
        }
        job.shard.give_back(key, ReturnReason::Asked);
        assert_eq!(job.outcome().await, Outcome::Released);
        job.stop().await;
    });
}

/// A topic that hides for a while, as behind an ACL, is followed again once somebody says so.
#[test]
fn a_topic_that_was_gone_can_be_followed_again() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let source = Source::start(&[("t", Topic::new(ID, 1, 0, 9))]);
        let mut job = Steered::start(dir.path(), &source);
        job.follow(5);
        let (key, ..) = job.added().await;
        source.change(|world| world.topics.clear());
        assert_eq!(job.shard.next().await, Seen::Removed(key));
        job.shard.give_back(key, ReturnReason::Asked);
        let Outcome::Failed { retryable: false, .. } = job.outcome().await else { panic!() };
        source.change(|world| {
            world.topics.insert("t", Topic::new(ID, 1, 0, 9));
        });
        job.follow(5);
        let (key, ..) = job.added().await;
        job.shard.others.clear();
        source.change(|world| world.topics.get_mut("t").unwrap().epoch = 4);
        job.shard.other(|it| matches!(it, Command::SetLeader { .. })).await;
        job.shard.progress(key, 1, 1);
        assert_eq!(job.outcome().await, Outcome::Follows);
        job.stop().await;
    });
}
