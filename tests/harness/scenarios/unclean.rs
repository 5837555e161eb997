//! An unclean election loses records that are copied already.

use super::compare::{same_epochs, same_log};
use super::copy::{Copy, Ends, find};
use super::error::{Result, ensure};
use super::figures::Figures;
use crate::kafka::{Artifacts, Cluster, Driver, Workload, files, recipes};

const POLICY: &str = "mirror.support.unclean.leader.election";
const NAME: &str = "unclean-0";

/// Two copies have the tail that an unclean election loses: one is allowed to cut it and goes on;
/// the other stops, keeps what it has, and cuts it at a later start with the permission.
///
/// # Errors
///
/// [`ScenarioError`](super::ScenarioError) with what is wrong.
pub fn unclean_election(kafka: &Artifacts) -> Result<Figures> {
    let mut cluster = Cluster::builder(kafka).brokers(3).start()?;
    let client = Driver::start(kafka)?.client(cluster.bootstrap());
    let configs = [("unclean.leader.election.enable", "true"), ("min.insync.replicas", "1")];
    client.create_topic_on("unclean", &[&[2, 3]], &configs)?;
    client.produce(&Workload::new("unclean", 500))?;
    let allowed = Copy::new(&cluster.bootstrap(), "unclean")?.with(POLICY, true);
    let strict = Copy::new(&cluster.bootstrap(), "unclean")?;
    let (cutting, stopping) = (allowed.follow()?, strict.follow()?);

    let tail = Workload { seed: 1, ..Workload::new("unclean", 200) };
    let lost = recipes::lose_tail_seen(&mut cluster, &client, "unclean", &tail, |end| {
        let ends = Ends::from([(NAME.to_owned(), end)]);
        cutting.wait_for_ends(&ends)?;
        stopping.wait_for_ends(&ends)
    })?;
    // Past the lost tail, so that the offset alone shows nothing.
    let other = Workload { seed: 2, value_bytes: 170, ..Workload::new("unclean", 400) };
    client.produce(&other)?;
    let end = lost.parted_at + 400;
    let rewritten = |status: &heliostat_io::control::Status| {
        find(status, NAME).is_some_and(|p| p.log_end.0 >= end) && status.totals.truncations == 1
    };
    cutting.wait("the tail cut and replaced", rewritten)?;
    let why = stopping.wait_for_failure(NAME)?;
    ensure(why.contains(POLICY), || format!("the reason names no remedy: {why}"))?;
    cutting.stop()?;
    stopping.stop()?;
    let kept = files::log_bytes(&strict.partition_dir(NAME))?;
    let record = format!("\t{}\t{}\t", lost.parted_at, lost.lost_end);
    ensure(allowed.gaps().contains(&record), || format!("record: {}", allowed.gaps()))?;

    let strict = strict.with(POLICY, true);
    strict.once()?;
    let leader = super::compare::leaders(&client, &["unclean"])?.get(NAME).copied().unwrap_or(-1);
    cluster.stop_all()?;
    let source = cluster.node(leader)?.data_dir().join(NAME);
    for copy in [&allowed, &strict] {
        same_log(&source, &copy.partition_dir(NAME))?;
        same_epochs(&source, &copy.partition_dir(NAME), end)?;
    }
    let theirs = files::log_bytes(&source)?;
    let common = theirs.iter().zip(&kept).take_while(|(a, b)| a == b).count();
    ensure(common < kept.len() && common < theirs.len(), || "the stopped copy was cut".to_owned())?;
    let mut figures = Figures::default();
    figures.add("Kafka", kafka.version().number());
    figures.add("offsets lost", format!("{}..{}", lost.parted_at, lost.lost_end));
    figures.add("reason of the copy that stopped", why);
    figures.add("record of the copy that went on", allowed.gaps().trim());
    Ok(figures)
}
