//! What the source does while it is mirrored, and what an operator changes.

use std::time::{Duration, Instant};

use heliostat_core::types::{BrokerId, LeaderEpoch};
use heliostat_io::admin::{ConfigOp, ConfigResource, DeleteOptions, StartOptions, StopOptions};
use heliostat_io::listener::hosted::Leadership;

use super::world::{Running, Source, all_in, in_step, log_bytes, mirror_all, produce, run, until};

#[test]
fn new_topics_and_partitions_are_mirrored_as_they_appear() {
    let source = Source::start();
    let first = source.topic("a-1", 1);
    produce(&first.partitions[0], 2);
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path());
    let mut client = host.client();
    run(async {
        mirror_all(&mut client, &source, "a-.*").await;
        let second = source.topic("a-2", 1);
        produce(&second.partitions[0], 3);
        source.topic("b-1", 1);
        source.catalog.grow_topic("a-1", 3).unwrap();
        let grown = source.catalog.topic("a-1").unwrap();
        produce(&grown.partitions[2], 4);
        let all = until(&mut client, "m", |all| {
            all.len() == 2 && all["a-1"].len() == 3 && all_in("MIRRORING")(all) && in_step(all)
        })
        .await;
        let ends: Vec<_> =
            all.values().flatten().map(|it| it.destination_offset.unwrap().0).collect();
        assert_eq!(ends, [2, 0, 4, 3]);
    });
    assert!(host.stop().clean);
}

#[test]
fn a_deleted_topic_fails_for_good_and_the_others_go_on() {
    let source = Source::start();
    let [gone, stays] = ["gone", "stays"].map(|name| source.topic(name, 1));
    for topic in [&gone, &stays] {
        produce(&topic.partitions[0], 2);
    }
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path());
    let mut client = host.client();
    run(async {
        mirror_all(&mut client, &source, "gone,stays").await;
        source.catalog.delete_topic("gone").unwrap();
        let all = until(&mut client, "m", |all| all["gone"][0].state == "FAILED").await;
        let failed = &all["gone"][0];
        assert_eq!(failed.retry_attempt, -1);
        let reason = failed.error_message.as_deref().unwrap();
        assert!(reason.contains("deleted at the source"), "{reason}");
        produce(&stays.partitions[0], 1);
        until(&mut client, "m", |all| {
            all["stays"][0].destination_offset.is_some_and(|at| at.0 == 3)
        })
        .await;
        // Failover needs nothing of the source.
        client.stop_mirror_topics("m", &["gone".to_owned()], StopOptions::default()).await.unwrap();
        until(&mut client, "m", |all| all["gone"][0].state == "STOPPED").await;
    });
    assert!(host.stop().clean);
}

/// Elections at the source, one after another: the destination's leader epoch stays ahead, and a
/// stop puts its own records above all of them.
#[test]
fn the_leader_epoch_stays_above_the_sources() {
    let source = Source::start();
    let topic = source.topic("t", 1);
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path());
    let mut client = host.client();
    run(async {
        mirror_all(&mut client, &source, "t").await;
        for epoch in [1, 2, 30, 31] {
            let leadership = Leadership { leader: BrokerId(1), epoch: LeaderEpoch(epoch) };
            topic.partitions[0].elect(leadership).unwrap();
            produce(&topic.partitions[0], 1);
        }
        until(&mut client, "m", |all| {
            all["t"][0].destination_offset.is_some_and(|at| at.0 == 4) && in_step(all)
        })
        .await;
        let metadata = client.metadata(None).await.unwrap();
        let topic = metadata.topics.iter().find(|it| &*it.identity.name == "t").unwrap();
        let local = topic.partitions[0].leader_epoch.0;
        assert!(local > 31, "{local}");
        client.stop_mirror_topics("m", &["t".to_owned()], StopOptions::default()).await.unwrap();
        let all = until(&mut client, "m", all_in("STOPPED")).await;
        assert_eq!(all["t"][0].last_mirror_epoch.0, 31);
    });
    assert!(host.stop().clean);
    let ours = log_bytes(&dir.path().join("t-0"));
    assert!(ours.starts_with(&source.bytes("t-0")));
}

/// A second failover is about what was mirrored since the first one.
#[test]
fn a_stopped_topic_can_be_started_and_stopped_again() {
    let source = Source::start();
    let topic = source.topic("t", 1);
    produce(&topic.partitions[0], 2);
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path());
    let mut client = host.client();
    run(async {
        mirror_all(&mut client, &source, "t").await;
        for (end, more) in [(2, 3), (5, 0)] {
            let t = ["t".to_owned()];
            client.stop_mirror_topics("m", &t, StopOptions::default()).await.unwrap();
            let all = until(&mut client, "m", all_in("STOPPED")).await;
            assert_eq!(all["t"][0].last_mirror_offset.unwrap().0, end);
            produce(&topic.partitions[0], more);
            if more > 0 {
                let again =
                    client.start_mirror_topics("m", &t, StartOptions::default()).await.unwrap();
                assert_eq!(again[0].refusal, None);
                until(&mut client, "m", |all| all_in("MIRRORING")(all) && in_step(all)).await;
            }
        }
    });
    assert!(host.stop().clean);
    // What was mirrored before the first stop was not fetched again: only the markers were cut.
    let gaps = std::fs::read_to_string(dir.path().join("mirror-gaps")).unwrap();
    let cuts: Vec<&str> = gaps.lines().skip(1).collect();
    assert!(cuts.len() == 1 && cuts[0].contains("\t2\t3\t"), "{gaps}");
}

#[test]
fn other_filters_keep_the_connections_and_another_address_opens_new_ones() {
    let (source, wrong) = (Source::start(), Source::named("elsewhere"));
    let topic = source.topic("t", 1);
    produce(&topic.partitions[0], 2);
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path());
    let mut client = host.client();
    run(async {
        mirror_all(&mut client, &source, "t").await;
        let mirror = ConfigResource::Mirror("m".to_owned());
        let set = |key: &str, value: String| (key.to_owned(), ConfigOp::Set(value));
        let bootstrap = |source: &Source| [set("bootstrap.servers", source.address())];
        client.incremental_alter_configs(&mirror, bootstrap(&wrong), false).await.unwrap();
        let all = until(&mut client, "m", |all| all["t"][0].state == "FAILED").await;
        let reason = all["t"][0].error_message.as_deref().unwrap();
        assert!(reason.contains("cluster elsewhere answers"), "{reason}");
        assert_eq!(all["t"][0].retry_attempt, -1, "an operator has to act");
        client.incremental_alter_configs(&mirror, bootstrap(&source), false).await.unwrap();
        client.recover_mirror_topics("m", &["t".to_owned()]).await.unwrap();
        produce(&topic.partitions[0], 1);
        until(&mut client, "m", |all| all_in("MIRRORING")(all) && in_step(all)).await;
        let bad = [set("mirror.fetch.max.bytes", "many".to_owned())];
        let error = client.incremental_alter_configs(&mirror, bad, false).await.unwrap_err();
        assert!(error.to_string().contains("INVALID_CONFIG"), "{error}");
    });
    assert!(host.stop().clean);
}

/// Whatever another cluster says of a topic of that name, nothing here is cut by it.
#[test]
fn another_cluster_is_neither_started_from_nor_aligned_with() {
    let (source, wrong) = (Source::start(), Source::named("elsewhere"));
    let topic = source.topic("t", 1);
    wrong.topic("t", 1);
    produce(&topic.partitions[0], 4);
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path());
    let mut client = host.client();
    run(async {
        mirror_all(&mut client, &source, "t").await;
        let t = ["t".to_owned()];
        client.stop_mirror_topics("m", &t, StopOptions::default()).await.unwrap();
        until(&mut client, "m", all_in("STOPPED")).await;
        drop(source);
        // What the source said last does for a start; its alignment waits for the source.
        client.start_mirror_topics("m", &t, StartOptions::default()).await.unwrap();
        until(&mut client, "m", all_in("LOG_TRUNCATION")).await;
        let mirror = ConfigResource::Mirror("m".to_owned());
        let set = ("bootstrap.servers".to_owned(), ConfigOp::Set(wrong.address()));
        client.incremental_alter_configs(&mirror, [set], false).await.unwrap();
        let all = until(&mut client, "m", all_in("FAILED")).await;
        assert_eq!(all["t"][0].retry_attempt, -1, "an operator has to act");
        client.recover_mirror_topics("m", &t).await.unwrap();
        let all = until(&mut client, "m", all_in("FAILED")).await;
        let reason = all["t"][0].error_message.as_deref().unwrap();
        assert!(reason.contains("cluster elsewhere answers"), "{reason}");
        client.stop_mirror_topics("m", &t, StopOptions::default()).await.unwrap();
        until(&mut client, "m", all_in("STOPPED")).await;
        let refused = client.start_mirror_topics("m", &t, StartOptions::default()).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("cluster elsewhere answers"), "{refused}");
        let all = until(&mut client, "m", all_in("STOPPED")).await;
        assert_eq!(all["t"][0].last_mirror_offset.unwrap().0, 4);
    });
    assert!(host.stop().clean);
    let gaps = std::fs::read_to_string(dir.path().join("mirror-gaps")).unwrap_or_default();
    assert_eq!(gaps.lines().nth(1), None, "nothing was cut");
}

/// Failover is what one does when the source is gone.
#[test]
fn two_hundred_partitions_stop_without_their_source() {
    let source = Source::start();
    source.topic("t", 200);
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path());
    let mut client = host.client();
    run(async {
        mirror_all(&mut client, &source, "t").await;
        drop(source);
        let begun = Instant::now();
        client.stop_mirror_topics("m", &["t".to_owned()], StopOptions::default()).await.unwrap();
        let all = until(&mut client, "m", all_in("STOPPED")).await;
        assert_eq!(all["t"].len(), 200);
        // The limit of the test is for a hang; the figure is for whoever reads it.
        assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    });
    assert!(host.stop().clean);
}

/// By name and offset the new topic could follow the old one's records.
#[test]
fn a_topic_recreated_while_the_host_was_away_is_another_topic() {
    let source = Source::start();
    let old = source.topic("t", 1);
    produce(&old.partitions[0], 3);
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path());
    let mut client = host.client();
    run(async { mirror_all(&mut client, &source, "t").await });
    assert!(host.stop().clean);
    let copy = log_bytes(&dir.path().join("t-0"));
    source.catalog.delete_topic("t").unwrap();
    let new = source.topic("t", 1);
    produce(&new.partitions[0], 5);
    let host = Running::start(dir.path());
    let mut client = host.client();
    run(async {
        let all = until(&mut client, "m", |all| all["t"][0].state == "FAILED").await;
        let reason = all["t"][0].error_message.as_deref().unwrap();
        assert!(reason.contains("recreated at the source"), "{reason}");
        assert_eq!(all["t"][0].retry_attempt, -1);
    });
    assert!(host.stop().clean);
    assert_eq!(log_bytes(&dir.path().join("t-0")), copy, "nothing of the other is in it");
}

/// What was written after a failover is not lost to a pattern.
#[test]
fn patterns_leave_topics_alone_that_clients_may_write_to() {
    let source = Source::start();
    let topic = source.topic("t", 1);
    produce(&topic.partitions[0], 2);
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path());
    let mut client = host.client();
    run(async {
        mirror_all(&mut client, &source, "t").await;
        client.stop_mirror_topics("m", &["t".to_owned()], StopOptions::default()).await.unwrap();
        until(&mut client, "m", all_in("STOPPED")).await;
        client.delete_cluster_mirror("m", DeleteOptions::default()).await.unwrap();
        let pairs =
            [("bootstrap.servers", source.address()), ("mirror.topics.include", ".*".into())];
        let pairs = pairs.map(|(key, value)| (key.to_owned(), value));
        client.create_cluster_mirror("m2", pairs).await.unwrap();
        let pattern = |text: &str| StartOptions {
            include_patterns: vec![text.to_owned()],
            ..StartOptions::default()
        };
        let started = client.start_mirror_topics("m2", &[], pattern(".*")).await.unwrap();
        assert_eq!(started, []);
        // A discovery has passed by once another topic is there.
        let other = source.topic("u", 1);
        produce(&other.partitions[0], 1);
        let all = until(&mut client, "m2", |all| all_in("MIRRORING")(all) && in_step(all)).await;
        assert_eq!(all.keys().collect::<Vec<_>>(), ["u"]);
        let named = client.start_mirror_topics("m2", &[], pattern("t")).await.unwrap();
        assert_eq!(named.len(), 1, "by its name it is meant");
        until(&mut client, "m2", |all| all.len() == 2 && in_step(all)).await;
    });
    assert!(host.stop().clean);
}
