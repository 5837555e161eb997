//! A rolling restart of a host's source.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use super::error::{Result, ScenarioError, ensure};
use super::figures::Figures;
use crate::host::{Admin, Running, is_in_step};
use crate::kafka::{Artifacts, Cluster, Driver, Workload};

const TOPIC: &str = "rolls";

/// Three brokers are restarted, one by one, under load: nothing that an operator of the host
/// sees, and everything that was acknowledged is mirrored.
///
/// # Errors
///
/// [`ScenarioError`] with what is wrong; a panic of the host's helpers is one.
pub fn rolling_restart(kafka: &Artifacts) -> Result<Figures> {
    catch_unwind(AssertUnwindSafe(|| restart_one_by_one(kafka))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map_or("a panic", String::as_str);
        Err(ScenarioError::Wrong(text.to_owned()))
    })
}

fn restart_one_by_one(kafka: &Artifacts) -> Result<Figures> {
    let mut cluster = Cluster::builder(kafka).brokers(3).start()?;
    let client = Driver::start(kafka)?.client(cluster.bootstrap());
    client.create_topic_on(TOPIC, &[&[1, 2, 3], &[2, 3, 1], &[3, 1, 2]], &[])?;
    let dir = tempfile::tempdir().map_err(ScenarioError::file(&std::env::temp_dir()))?;
    let host = Running::start(dir.path(), &[]);
    let mut admin = host.admin();
    admin.mirror(cluster.bootstrap(), &[TOPIC]);
    admin.until_in_step();

    let load = client.start_producer("load", &Workload::new(TOPIC, 0), 200)?;
    let (done, begun) = (AtomicBool::new(false), Instant::now());
    let seen = thread::scope(|scope| {
        let watch = scope.spawn(|| states_until(&mut host.admin(), &done));
        let restarted = (1..=3).try_for_each(|id| {
            cluster.node_mut(id)?.stop()?;
            cluster.node_mut(id)?.start()?;
            (0..3).try_for_each(|partition| {
                let in_sync = "all in sync";
                client.wait_partition(TOPIC, partition, in_sync, |it| it.isr.len() == 3).map(drop)
            })
        });
        done.store(true, Ordering::Relaxed);
        let seen = watch.join().map_err(|_| ScenarioError::Wrong("the watch died".to_owned()))?;
        restarted.map(|()| seen).map_err(ScenarioError::from)
    })?;
    let mut figures = Figures::default();
    figures.add("Kafka", kafka.version().number());
    figures.add("time of three restarts", format!("{:.1?}", begun.elapsed()));
    figures.add("states that were seen", format!("{seen:?}"));
    ensure(seen == BTreeSet::from([("MIRRORING".to_owned(), 0)]), || format!("{seen:?}"))?;

    let acked = load.stop()?.acked;
    let begun = Instant::now();
    admin.until("what was acknowledged to be mirrored", |all| {
        let ends = all[TOPIC].iter().filter_map(|it| it.destination_offset);
        let mirrored: i64 = ends.map(|end| end.0).sum();
        i128::from(mirrored) >= i128::from(acked) && all[TOPIC].iter().all(is_in_step)
    });
    figures.add("records acknowledged, and mirrored", acked);
    figures.add("time until the last was mirrored", format!("{:.1?}", begun.elapsed()));
    ensure(host.stop().clean, || "the host did not stop cleanly".to_owned())?;
    Ok(figures)
}

/// Every state and retry attempt that the topic's partitions are seen in.
fn states_until(admin: &mut Admin, done: &AtomicBool) -> BTreeSet<(String, i16)> {
    let mut seen = BTreeSet::new();
    while !done.load(Ordering::Relaxed) {
        let all = admin.topics();
        seen.extend(all[TOPIC].iter().map(|it| (it.state.clone(), it.retry_attempt)));
        thread::yield_now();
    }
    seen
}
