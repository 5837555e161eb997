//! Stripes over real sockets: a source that is a long path away.

use heliostat_core::engine::config::StripeLimits;
use heliostat_core::types::LeaderEpoch;
use heliostat_io::generate::{UniformSpec, generate_uniform};
use heliostat_tests::proxy::Proxy;

use super::*;

/// Slow enough that a busy machine keeps up.
const RTT: Duration = Duration::from_millis(100);
const WINDOW: usize = 64 << 10;

/// Copies `bytes` of one partition: bytes a second behind the first `warm_up` bytes, and
/// the connections that were made.
fn rate(bytes: u64, warm_up: u64, stripes: usize) -> (f64, u64) {
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
    proxy.path(RTT, WINDOW);

    let (control, shard_end) = mailbox().unwrap();
    let setup = ShardSetup {
        config: ShardConfig {
            partition_max_bytes: 1 << 20,
            stripes: StripeLimits {
                connections_max: stripes,
                partition_max: stripes,
                measure_for: Duration::from_millis(500),
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
        })))
        .unwrap();
    let mut warm = None;
    let rate = wait_for(&control, |report| match report {
        Report::Progress(progress) => progress.into_iter().find_map(|part| {
            let (at, got) = (Instant::now(), part.bytes_appended);
            if got >= warm_up && warm.is_none() {
                warm = Some((at, got));
            }
            let (since, before) = warm?;
            let done = part.log_end >= part.source_high_watermark;
            let got = u32::try_from(got - before).unwrap();
            done.then(|| f64::from(got) / (at - since).as_secs_f64())
        }),
        Report::Returned { reason, .. } => panic!("{reason:?}"),
        _ => None,
    });
    control.try_send(Command::Stop).unwrap();
    wait_for(&control, |report| matches!(report, Report::Stopped).then_some(()));
    thread.join().unwrap().unwrap();
    listener.stop();
    let (copy, source) = (log_bytes(&to.path().join(&id)), log_bytes(&from.path().join(&id)));
    assert!(copy == source, "{stripes} stripes: the copy differs");
    (rate, proxy.accepted())
}

/// Goal: stripes do over real sockets, which hold only so much unread, what they do in the
/// simulation, where four are nearly four times as fast. Method: the same path with and
/// without; delays dominate both, and what a busy machine adds to either is allowed for.
#[test]
fn four_stripes_are_faster_over_a_long_path() {
    let (one, connections) = rate(5 << 20, 1 << 20, 1);
    assert_eq!(connections, 1);
    let (four, connections) = rate(22 << 20, 9 << 20, 4);
    println!("{one:.0} B/s, with stripes {four:.0} B/s: {:.2}", four / one);
    assert!(connections >= 5, "{connections} connections");
    assert!(four >= 1.5 * one, "{one:.0} B/s became {four:.0} B/s");
}
