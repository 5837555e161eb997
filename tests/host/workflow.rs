//! A mirror from its making to its end.

use heliostat_io::admin::{DeleteOptions, StartOptions, StopOptions};

use super::world::{Running, Source, all_in, in_step, produce, run, until};

fn configs(source: &Source) -> Vec<(String, String)> {
    vec![("bootstrap.servers".to_owned(), source.address())]
}

fn include(patterns: &[&str], exclude: &[&str]) -> StartOptions {
    let owned = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect();
    StartOptions {
        include_patterns: owned(patterns),
        exclude_patterns: owned(exclude),
        ..StartOptions::default()
    }
}

#[test]
fn create_start_pause_resume_stop_delete() {
    let source = Source::start();
    let orders = source.topic("orders", 2);
    source.topic("orders-private", 1);
    source.topic("other", 1);
    for partition in &orders.partitions {
        produce(partition, 20);
    }
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path());
    let mut client = host.client();
    run(async {
        client.create_cluster_mirror("m", configs(&source)).await.unwrap();
        let started = client
            .start_mirror_topics("m", &[], include(&["orders.*"], &["orders-private"]))
            .await
            .unwrap();
        let names: Vec<_> = started.iter().map(|it| (it.topic.as_str(), &it.refusal)).collect();
        assert_eq!(names, [("orders", &None)]);
        until(&mut client, "m", |all| all_in("MIRRORING")(all) && in_step(all)).await;
        let listed = client.list_cluster_mirrors(true).await.unwrap();
        assert_eq!((listed[0].name.as_str(), listed[0].topic_count), ("m", 1));
        assert_eq!(listed[0].source_cluster_id.as_deref(), Some("source"));

        let topics = ["orders".to_owned()];
        client.pause_mirror_topics("m", &topics).await.unwrap();
        until(&mut client, "m", all_in("PAUSED")).await;
        produce(&orders.partitions[0], 5);
        client.resume_mirror_topics("m", &topics).await.unwrap();
        until(&mut client, "m", |all| all_in("MIRRORING")(all) && in_step(all)).await;

        let refused = client.delete_cluster_mirror("m", DeleteOptions::default()).await;
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("CLUSTER_MIRROR_NOT_EMPTY"), "{refused}");
        client.stop_mirror_topics("m", &topics, StopOptions::default()).await.unwrap();
        let stopped = until(&mut client, "m", all_in("STOPPED")).await;
        let first = &stopped["orders"][0];
        assert_eq!((first.last_mirror_epoch.0, first.last_mirror_offset.unwrap().0), (0, 25));
        client.delete_cluster_mirror("m", DeleteOptions::default()).await.unwrap();
        assert!(client.list_cluster_mirrors(true).await.unwrap().is_empty());
    });
    assert!(host.stop().clean);
    for partition in ["orders-0", "orders-1"] {
        let (theirs, ours) =
            (source.bytes(partition), super::world::log_bytes(&dir.path().join(partition)));
        assert!(ours.starts_with(&theirs) && ours.len() > theirs.len(), "{partition}");
    }
    assert!(!dir.path().join("orders-private-0").exists());
}

/// A restart finds everything where it was.
#[test]
fn a_restart_goes_on_with_every_wish_and_state() {
    let source = Source::start();
    let [a, b, c] = ["a", "b", "c"].map(|name| source.topic(name, 1));
    for topic in [&a, &b, &c] {
        produce(&topic.partitions[0], 3);
    }
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path());
    let mut client = host.client();
    run(async {
        client.create_cluster_mirror("m", configs(&source)).await.unwrap();
        let options = include(&["a", "b", "c"], &[]);
        client.start_mirror_topics("m", &[], options).await.unwrap();
        until(&mut client, "m", |all| all_in("MIRRORING")(all) && in_step(all)).await;
        client.pause_mirror_topics("m", &["b".to_owned()]).await.unwrap();
        client.stop_mirror_topics("m", &["c".to_owned()], StopOptions::default()).await.unwrap();
        let rests = |all: &std::collections::BTreeMap<String, Vec<_>>| {
            let state = |topic: &str| {
                let it: &heliostat_io::admin::MirrorPartition = &all[topic][0];
                it.state.clone()
            };
            (state("b"), state("c")) == ("PAUSED".to_owned(), "STOPPED".to_owned())
        };
        until(&mut client, "m", rests).await;
    });
    assert!(host.stop().clean);
    let stopped = super::world::log_bytes(&dir.path().join("c-0"));
    for topic in [&a, &b, &c] {
        produce(&topic.partitions[0], 2);
    }
    let host = Running::start(dir.path());
    let mut client = host.client();
    run(async {
        let ends = until(&mut client, "m", |all| {
            all["a"][0].destination_offset.is_some_and(|at| at.0 == 5)
        })
        .await;
        let states: Vec<_> = ends.values().map(|it| it[0].state.as_str()).collect();
        assert_eq!(states, ["MIRRORING", "PAUSED", "STOPPED"]);
        client.resume_mirror_topics("m", &["b".to_owned()]).await.unwrap();
        until(&mut client, "m", |all| all["b"][0].destination_offset.is_some_and(|at| at.0 == 5))
            .await;
    });
    assert!(host.stop().clean);
    assert_eq!(super::world::log_bytes(&dir.path().join("c-0")), stopped, "it is left alone");
}

#[test]
fn what_cannot_be_is_refused_with_its_code() {
    let source = Source::start();
    source.topic("t", 1);
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path());
    let mut client = host.client();
    run(async {
        let create = |name: &'static str, pairs: Vec<(String, String)>| (name, pairs);
        for ((name, pairs), code) in [
            (create("bad/name", configs(&source)), "INVALID_CLUSTER_MIRROR_NAME"),
            (create("m", Vec::new()), "INVALID_REQUEST"),
            (
                create("m", vec![("bootstrap.servers".to_owned(), "127.0.0.1:1".to_owned())]),
                "INVALID_REQUEST",
            ),
            (
                create(
                    "m",
                    [
                        configs(&source),
                        vec![("mirror.fetch.wait.max.mss".to_owned(), "1".to_owned())],
                    ]
                    .concat(),
                ),
                "INVALID_CONFIG",
            ),
            (
                create(
                    "m",
                    [
                        configs(&source),
                        vec![("mirror.source.cluster.id".to_owned(), "x".to_owned())],
                    ]
                    .concat(),
                ),
                "INVALID_CONFIG",
            ),
            (
                create(
                    "m",
                    vec![("bootstrap.servers".to_owned(), host.handle.address().to_string())],
                ),
                "INVALID_REQUEST",
            ),
        ] {
            let error = client.create_cluster_mirror(name, pairs).await.unwrap_err().to_string();
            assert!(error.contains(code), "{code}: {error}");
        }
        client.create_cluster_mirror("m", configs(&source)).await.unwrap();
        let twice = client.create_cluster_mirror("m", configs(&source)).await.unwrap_err();
        assert!(twice.to_string().contains("CLUSTER_MIRROR_ALREADY_EXISTS"), "{twice}");
        let unknown =
            client.stop_mirror_topics("x", &["t".to_owned()], StopOptions::default()).await;
        assert!(unknown.unwrap_err().to_string().contains("UNKNOWN_CLUSTER_MIRROR"));
        let resumed = client.resume_mirror_topics("m", &["t".to_owned()]).await.unwrap();
        let code = resumed[0].refusal.as_ref().unwrap().code.to_string();
        assert!(code.contains("UNKNOWN_TOPIC_OR_PARTITION"), "{code}");
    });
    assert!(host.stop().clean);
}
