//! What a source does to its leaders, its topics and itself, as `describe` shows it.

use heliostat_io::admin::MirrorPartition;
use heliostat_tests::host::{Admin, Running, all_in, alone, is_in_step, show};
use heliostat_tests::kafka::{
    Cluster, Driver, KafkaClient, KafkaVersion, Result, Workload, or_skip, recipes,
};

const UNCLEAN: &str = "mirror.support.unclean.leader.election";
/// 16 bytes as Kafka writes them.
const OTHER_CLUSTER: &str = "b3RoZXItY2x1c3Rlci0xMQ";

/// That a partition is given up, for good, and why.
#[track_caller]
fn check_given_up(it: &MirrorPartition, why: &str) {
    let shown = (it.state.as_str(), it.retry_attempt);
    assert_eq!(shown, ("FAILED", -1), "an operator has to act: {it:?}");
    let reason = it.error_message.as_deref().unwrap();
    assert!(reason.contains(why), "{reason}");
    show("given up", reason);
}

#[test]
fn unclean_elections_at_the_source() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let _alone = alone();
    let mut cluster = Cluster::builder(&kafka).brokers(3).start()?;
    let client = Driver::start(&kafka)?.client(cluster.bootstrap());
    client.create_topic_on("stays", &[&[1, 2, 3], &[2, 3, 1], &[3, 1, 2]], &[])?;
    let lossy = [("unclean.leader.election.enable", "true"), ("min.insync.replicas", "1")];
    for topic in ["keeps", "cuts"] {
        client.create_topic_on(topic, &[&[2, 3]], &lossy)?;
        client.produce(&Workload::new(topic, 300))?;
    }
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path(), &[]);
    let mut admin = host.admin();
    admin.mirror(cluster.bootstrap(), &["stays", "keeps", "cuts"]);
    admin.set("cuts", UNCLEAN, "true");
    admin.until_in_step();
    lose_tails(&mut cluster, &client, &mut admin, dir.path())?;
    assert!(host.stop().clean);
    Ok(())
}

/// An unclean election loses what is mirrored already: a copy that may not cut is given up until
/// it may, one that may goes on.
fn lose_tails(
    cluster: &mut Cluster,
    client: &KafkaClient,
    admin: &mut Admin,
    dir: &std::path::Path,
) -> Result<()> {
    for topic in ["keeps", "cuts"] {
        recipes::move_leader(client, topic, 0, 2)?;
    }
    let tail = |topic: &str| Workload { seed: 1, ..Workload::new(topic, 100) };
    let lost = recipes::lose_tail_seen(cluster, client, "cuts", &tail("cuts"), |end| {
        client.wait_partition("keeps", 0, "the leader alone in sync", |it| it.isr == [2])?;
        client.produce(&tail("keeps"))?;
        admin.until("the tails to be mirrored", |all| {
            ["keeps", "cuts"]
                .iter()
                .all(|topic| all[*topic][0].destination_offset.is_some_and(|it| it.0 == end))
        });
        Ok(())
    })?;
    client.wait_partition("keeps", 0, "a leader, in sync", |it| {
        it.leader == Some(lost.new_leader) && it.isr.len() == 2
    })?;
    // Past the lost tails, so that offsets alone show nothing.
    for topic in ["keeps", "cuts"] {
        let other = Workload { seed: 2, value_bytes: 170, ..Workload::new(topic, 250) };
        client.produce(&other)?;
    }
    let end = lost.parted_at + 250;
    let all = admin.until("the consequences", |all| {
        let went_on = &all["cuts"][0];
        let ends = went_on.destination_offset.is_some_and(|it| it.0 == end);
        all["keeps"][0].state == "FAILED" && ends && is_in_step(went_on)
    });
    check_given_up(&all["keeps"][0], UNCLEAN);
    assert!(all["stays"].iter().all(|it| it.state == "MIRRORING"), "one's trouble stays its own");
    // Whoever lifts the ban has it tried again.
    admin.set("keeps", UNCLEAN, "true");
    admin.recover("keeps");
    admin.until("the rest to be mirrored", |all| {
        let it = &all["keeps"][0];
        it.destination_offset.is_some_and(|it| it.0 == end) && is_in_step(it)
    });
    let record = format!("\t{}\t{}\t", lost.parted_at, lost.lost_end);
    let gaps = std::fs::read_to_string(dir.join("mirror-gaps")).unwrap();
    assert_eq!(gaps.lines().filter(|line| line.contains(&record)).count(), 2, "{gaps}");
    Ok(())
}

#[test]
fn topics_that_go_and_a_cluster_that_is_another() -> Result<()> {
    let Some(kafka) = or_skip(KafkaVersion::V4) else { return Ok(()) };
    let _alone = alone();
    let mut cluster = Cluster::builder(&kafka).start()?;
    let client = Driver::start(&kafka)?.client(cluster.bootstrap());
    let topics = ["gone", "again", "stays", "rests"];
    for topic in topics {
        client.create_topic(topic, 2, 1, &[])?;
        client.produce(&Workload { keys: 10, ..Workload::new(topic, 100) })?;
    }
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path(), &[]);
    let mut admin = host.admin();
    admin.mirror(cluster.bootstrap(), &topics);
    admin.until_in_step();

    client.delete_topic("gone")?;
    let all = admin.until("the end of a topic", |all| failed(&all["gone"]));
    check_given_up(&all["gone"][1], "deleted at the source");

    // Nobody looks while it is deleted.
    admin.pause("again");
    admin.until("a pause", |all| all["again"].iter().all(|it| it.state == "PAUSED"));
    client.delete_topic("again")?;
    client.create_topic("again", 2, 1, &[])?;
    admin.resume("again");
    let all = admin.until("another topic of that name", |all| failed(&all["again"]));
    check_given_up(&all["again"][0], "recreated at the source");
    assert!(all["stays"].iter().all(|it| it.state == "MIRRORING"), "one's trouble stays its own");

    admin.pause("rests");
    admin.until("a pause", |all| all["rests"].iter().all(|it| it.state == "PAUSED"));
    let node = cluster.node_mut(1)?;
    node.kill()?;
    node.replace_cluster(OTHER_CLUSTER)?;
    node.start()?;
    let all = admin.until("another cluster to be noticed", |all| failed(&all["stays"]));
    let why = format!("cluster {OTHER_CLUSTER} answers");
    all["stays"].iter().for_each(|it| check_given_up(it, &why));
    assert!(all["rests"].iter().all(|it| it.state == "PAUSED"), "it asks for nothing");
    admin.resume("rests");
    let all = admin.until("it to be noticed", |all| failed(&all["rests"]));
    all["rests"].iter().for_each(|it| check_given_up(it, &why));
    // No reason is one to keep a topic from its failover.
    admin.stop(&topics);
    admin.until("the stop", all_in("STOPPED"));
    assert!(host.stop().clean);
    Ok(())
}

fn failed(all: &[MirrorPartition]) -> bool {
    all.iter().all(|it| it.state == "FAILED")
}
