//! A shard on real sockets and a real ring, against the embedded source: no control
//! thread, the test sends the commands itself.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail like tests")]

mod wan;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use heliostat_core::engine::config::ShardConfig;
use heliostat_core::engine::message::{
    AddPartition, BrokerAddress, Command, Leader, PartitionKey, Report, ReturnReason,
};
use heliostat_core::log::config::LogConfig;
use heliostat_core::log::cx::AppendMode;
use heliostat_core::log::partition::PartitionLog;
use heliostat_core::log::recovery::{self, OpenOptions};
use heliostat_core::protocol::TopicIdentity;
use heliostat_core::types::{BrokerId, LeaderEpoch, Offset, ShardId};
use heliostat_io::disk::{DiskConfig, FileStore};
use heliostat_io::generate::{DemoSpec, generate};
use heliostat_io::listener::hosted::{Catalog, CatalogConfig, Topic};
use heliostat_io::listener::{Listener, ListenerConfig};
use heliostat_io::net::SocketOptions;
use heliostat_io::shard::executor::spawn_pinned;
use heliostat_io::shard::mailbox::{ControlEnd, Received, mailbox};
use heliostat_io::shard::run::{ShardSetup, run};

const DEADLINE: Duration = Duration::from_secs(60);

struct Copied {
    partition: String,
    size_bytes: u64,
    log_end: Offset,
}

fn open_log(store: &mut FileStore, dir: &str, topic: &Topic) -> PartitionLog {
    let options = OpenOptions {
        config: LogConfig::default(),
        topic_id: topic.topic_id,
        clean: false,
        recovery_point: Offset::ZERO,
        log_start: None,
        truncate_to: None,
        now_ms: 0,
    };
    PartitionLog::new(recovery::open(store, dir, &options).unwrap().0)
}

/// Waits for a report that `wanted` makes something of.
fn wait_for<T>(control: &ControlEnd, mut wanted: impl FnMut(Report) -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        assert!(since.elapsed() < DEADLINE, "nothing came within {DEADLINE:?}");
        match control.next_report() {
            Received::Message(report) => {
                if let Some(found) = wanted(report) {
                    return found;
                }
            }
            Received::Empty => {
                control.silence();
                let mut fds = [rustix::event::PollFd::from_borrowed_fd(
                    control.bell(),
                    rustix::event::PollFlags::IN,
                )];
                let wait = rustix::event::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
                rustix::event::poll(&mut fds, Some(&wait)).unwrap();
            }
            Received::Closed => panic!("the shard is gone"),
        }
    }
}

/// Mirrors all topics into `to`, to the end, and stops.
fn mirror(topics: &[Topic], source: SocketAddr, to: &Path, config: ShardConfig) -> Vec<Copied> {
    let (control, shard_end) = mailbox().unwrap();
    let setup = ShardSetup {
        config,
        log_dir: to.to_path_buf(),
        disk: DiskConfig::default(),
        sockets: SocketOptions::default(),
        mailbox: shard_end,
        seed: 1,
    };
    let thread = spawn_pinned(ShardId(0), None, move || run(setup)).unwrap();
    let address = BrokerAddress {
        id: BrokerId(1),
        host: Arc::from(source.ip().to_string()),
        port: source.port(),
    };
    control.try_send(Command::SetBrokers(vec![address])).unwrap();
    let mut store = FileStore::new(to);
    let mut left = std::collections::BTreeMap::new();
    for topic in topics {
        for partition in &topic.partitions {
            let id = partition.id();
            let key = PartitionKey(u64::try_from(left.len()).unwrap());
            left.insert(key, id.to_string());
            let log = open_log(&mut store, &id.to_string(), topic);
            control
                .try_send(Command::Add(Box::new(AddPartition {
                    key,
                    topic: TopicIdentity { name: id.topic.clone(), id: topic.topic_id },
                    index: id.partition,
                    log,
                    leader: Leader { broker: BrokerId(1), epoch: LeaderEpoch::NONE },
                    throttled: false,
                    local_epoch: LeaderEpoch::NONE,
                    readers: None,
                })))
                .unwrap();
        }
    }
    let mut behind = left.clone();
    wait_for(&control, |report| match report {
        Report::Progress(progress) => {
            for part in progress {
                if part.source_high_watermark >= Offset::ZERO
                    && part.log_end >= part.source_high_watermark
                {
                    behind.remove(&part.key);
                }
            }
            behind.is_empty().then_some(())
        }
        Report::Returned { key, reason, .. } => panic!("{}: {reason:?}", left[&key]),
        _ => None,
    });
    control.try_send(Command::Stop).unwrap();
    let mut copied = Vec::new();
    wait_for(&control, |report| match report {
        Report::Returned { key, log, reason } => {
            assert_eq!(reason, ReturnReason::Asked);
            copied.push(Copied {
                partition: left[&key].clone(),
                size_bytes: log.size_bytes(),
                log_end: log.log_end_offset(),
            });
            None
        }
        Report::Stopped => Some(()),
        _ => None,
    });
    thread.join().unwrap().unwrap();
    copied
}

/// All `.log` files of a partition, one after the other.
fn log_bytes(dir: &Path) -> Vec<u8> {
    let mut names: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    names.sort();
    names.iter().flat_map(|path| std::fs::read(path).unwrap()).collect()
}

fn copies_everything(mode: AppendMode) {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = CatalogConfig {
        cluster_id: "source".to_owned(),
        node_id: BrokerId(1),
        log: LogConfig::default(),
    };
    let catalog = Arc::new(Catalog::open(from.path(), config).unwrap());
    let spec = DemoSpec { seed: 3, bytes: 24 << 20, partitions: 2 };
    let topics = generate(&catalog, &spec, &mut |_| {}).unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener =
        Listener::start(Arc::clone(&catalog), ListenerConfig::new(any, BrokerId(1))).unwrap();
    let mut config = ShardConfig::default();
    config.append.mode = mode;
    let copied = mirror(&topics, listener.address(), to.path(), config);
    listener.stop();

    let count: usize = topics.iter().map(|topic| topic.partitions.len()).sum();
    assert_eq!(copied.len(), count);
    for part in copied {
        let (copy, source) = (
            log_bytes(&to.path().join(&part.partition)),
            log_bytes(&from.path().join(&part.partition)),
        );
        let differs = copy.iter().zip(&source).position(|(a, b)| a != b);
        assert_eq!((copy.len(), differs), (source.len(), None), "{}", part.partition);
        assert_eq!(part.size_bytes, u64::try_from(copy.len()).unwrap());
        assert!(part.log_end > Offset::ZERO);
    }
}

#[test]
fn buffered_copy_equals_the_source() {
    copies_everything(AppendMode::Buffered);
}

#[test]
fn direct_copy_equals_the_source() {
    copies_everything(AppendMode::Direct { block_bytes: 4096 });
}

#[test]
fn automatic_copy_equals_the_source() {
    copies_everything(AppendMode::Auto { block_bytes: 4096 });
}
