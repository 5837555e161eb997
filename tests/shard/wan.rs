//! Stripes over real sockets: a source that is a long path away.

use heliostat_core::engine::config::StripeLimits;
use heliostat_core::engine::message::PartitionProgress;
use heliostat_core::types::LeaderEpoch;
use heliostat_io::generate::{UniformSpec, generate_uniform};
use heliostat_tests::proxy::Proxy;

use super::*;

const RTT: Duration = Duration::from_millis(100);
const WINDOW: u64 = 64 << 10;

/// Copies `bytes` of one partition: connections that were made, and the round trips of the one
/// that waited for most.
fn copy(bytes: u64, stripes: usize) -> (u64, u64) {
    let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let config = CatalogConfig {
        cluster_id: "source".to_owned(),
        node_id: BrokerId(1),
        log: LogConfig::default(),
    };
    let catalog = Arc::new(Catalog::open(from.path(), config).unwrap());
    let spec = UniformSpec {
        topic: "far".to_owned(),
        seed: 5,
        bytes,
        partitions: 1,
        batch_bytes: 16 << 10,
        value_bytes: 1000,
    };
    let topic = generate_uniform(&catalog, &spec).unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let listener =
        Listener::start(Arc::clone(&catalog), ListenerConfig::new(any, BrokerId(1))).unwrap();
    let proxy = Proxy::start(listener.address()).unwrap();
    proxy.path(RTT, usize::try_from(WINDOW).unwrap());

    let (control, shard_end) = mailbox().unwrap();
    let setup = ShardSetup {
        config: ShardConfig {
            partition_max_bytes: 1 << 20,
            stripes: StripeLimits {
                connections_max: stripes,
                partition_max: stripes,
                measure_for: Duration::from_millis(200),
                // Whatever they bring: that is judged here.
                gain_percent: 0,
                ..StripeLimits::default()
            },
            report_every: Duration::from_millis(50),
            ..ShardConfig::default()
        },
        log_dir: to.path().to_path_buf(),
        disk: DiskConfig::default(),
        sockets: SocketOptions::default(),
        mailbox: shard_end,
        seed: 1,
    };
    let thread = spawn_pinned(ShardId(0), None, move || run(setup)).unwrap();
    let (host, port) = (Arc::from("127.0.0.1"), proxy.address().port());
    let address = BrokerAddress { id: BrokerId(1), host, port };
    control.try_send(Command::SetBrokers(vec![address])).unwrap();
    let partition = &topic.partitions[0];
    let id = partition.id().to_string();
    let log = open_log(&mut FileStore::new(to.path()), &id, &topic);
    let epoch: LeaderEpoch = partition.leadership().epoch;
    control
        .try_send(Command::Add(Box::new(AddPartition {
            key: PartitionKey(1),
            topic: TopicIdentity { name: partition.id().topic.clone(), id: topic.topic_id },
            index: 0,
            log,
            leader: Leader { broker: BrokerId(1), epoch },
            throttled: false,
            local_epoch: LeaderEpoch::NONE,
            readers: None,
        })))
        .unwrap();
    wait_for(&control, |report| match report {
        Report::Progress(progress) => {
            let done = |part: &PartitionProgress| {
                let end = part.source_high_watermark;
                end > Offset::ZERO && part.log_end >= end
            };
            progress.iter().any(done).then_some(())
        }
        Report::Returned { reason, .. } => panic!("{reason:?}"),
        _ => None,
    });
    control.try_send(Command::Stop).unwrap();
    wait_for(&control, |report| matches!(report, Report::Stopped).then_some(()));
    thread.join().unwrap().unwrap();
    listener.stop();
    let (copy, source) = (log_bytes(&to.path().join(&id)), log_bytes(&from.path().join(&id)));
    assert!(copy == source, "{stripes} stripes: the copy differs");
    (proxy.accepted(), proxy.turns_max())
}

/// Goal: stripes do over real sockets, which hold only so much unread, what they do in the
/// simulation. Method: count round trips, and not time, which a busy machine stretches: together
/// they carry what one connection would need as many for as the bytes have windows.
#[test]
fn four_stripes_need_less_than_half_the_round_trips_over_a_long_path() {
    let bytes = 16 << 20;
    let (connections, turns) = copy(bytes, 4);
    println!("{connections} connections, {turns} round trips of {}", bytes / WINDOW);
    assert!(connections >= 5, "{connections} connections");
    assert!(turns * 2 < bytes / WINDOW, "{turns} round trips of {}", bytes / WINDOW);
}
