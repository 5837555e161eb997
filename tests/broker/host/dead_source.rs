//! Failover is what one does when the source is gone: it takes no longer for that.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use heliostat_io::admin::MirrorPartition;
use heliostat_tests::host::{Admin, Running, all_in, alone, show};
use heliostat_tests::kafka::forge::ForgedBatch;
use heliostat_tests::kafka::{Cluster, Driver, KafkaError, KafkaVersion, Result, or_skip, wait};

const TOPIC: &str = "t";
const PARTITIONS: usize = 200;
/// All attempts that these allow are used up within a second.
const IMPATIENT: [(&str, &str); 3] = [
    ("mirror.failed.retry.initial.backoff.ms", "50"),
    ("mirror.failed.retry.max.backoff.ms", "100"),
    ("mirror.failed.retry.max.attempts", "3"),
];
/// Much longer than that.
const LONG_AWAY: Duration = Duration::from_secs(3);
const NOT_LEADER_OR_FOLLOWER: i16 = 6;
/// Only a hang reaches it. What is wanted is 5 s: see the figures.
const STOPS_WITHIN: Duration = Duration::from_secs(30);

#[test]
fn two_hundred_partitions_stop_without_their_source() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let _alone = alone();
    let mut cluster = Cluster::builder(&kafka).start()?;
    let client = Driver::start(&kafka)?.client(cluster.bootstrap());
    let partitions = i32::try_from(PARTITIONS).unwrap();
    client.create_topic(TOPIC, partitions, 1, &[("retention.ms", "-1")])?;
    let batch = ForgedBatch::of(&[b"a", b"b", b"c"]).encode();
    for partition in 0..partitions {
        // It is known to lead before it does.
        wait::until("a leader", STOPS_WITHIN, || {
            match cluster.wire(1)?.produce(TOPIC, partition, batch.clone().into()) {
                Err(KafkaError::ErrorCode { code: NOT_LEADER_OR_FOLLOWER, .. }) => Ok(None),
                produced => produced.map(Some),
            }
        })?;
    }
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path(), &IMPATIENT);
    let mut admin = host.admin();
    admin.mirror(cluster.bootstrap(), &[TOPIC]);
    admin.until_in_step();
    stop(&mut admin, "alive");

    again(&mut admin);
    cluster.node_mut(1)?.pause()?;
    stop(&mut admin, "it hangs");
    cluster.node_mut(1)?.resume()?;

    again(&mut admin);
    cluster.node_mut(1)?.kill()?;
    stop(&mut admin, "killed just now");
    cluster.node_mut(1)?.start()?;

    again(&mut admin);
    cluster.node_mut(1)?.kill()?;
    let all = admin.until("all to wait for their source", |all| {
        all_in("MIRRORING")(all) && all[TOPIC].iter().all(has_waited_long)
    });
    let first = &all[TOPIC][0];
    show("while it is away", (&first.error_message, first.retry_attempt));
    assert!(all[TOPIC].iter().all(|it| it.retry_attempt == 0 && it.error_message.is_some()));
    stop(&mut admin, "killed long ago");
    cluster.node_mut(1)?.start()?;

    again(&mut admin);
    client.delete_topic(TOPIC)?;
    admin.until("all to fail", all_in("FAILED"));
    cluster.node_mut(1)?.kill()?;
    stop(&mut admin, "failed, and killed");
    assert!(host.stop().clean);
    Ok(())
}

/// Whether it says since when it has not got on, and that is longer than all attempts.
fn has_waited_long(it: &MirrorPartition) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    let since = it.failing_since.map(|since| u128::try_from(since.0).unwrap());
    since.is_some_and(|since| now.saturating_sub(since) > LONG_AWAY.as_millis())
}

/// Mirrors what has been stopped: its markers are cut off.
fn again(admin: &mut Admin) {
    let begun = Instant::now();
    admin.start(&[TOPIC]);
    admin.until_in_step();
    show("until all are in step again", begun.elapsed());
}

/// Stops all, and shows how long that takes.
fn stop(admin: &mut Admin, source: &str) {
    let begun = Instant::now();
    admin.stop(&[TOPIC]);
    let accepted = begun.elapsed();
    let all = admin.until("the stop", all_in("STOPPED"));
    let took = begun.elapsed();
    show(&format!("{PARTITIONS} partitions, source: {source}"), (accepted, took));
    assert_eq!(all[TOPIC].len(), PARTITIONS);
    assert!(took < STOPS_WITHIN, "{source}: {took:?}");
}
