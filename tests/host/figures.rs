//! Figures of mirrors, as a live view asks for them.

use std::time::{Duration, Instant};

use heliostat_core::protocol::mirror::{DescribedClusterMirror, MirrorStateCount};
use heliostat_io::admin::{AdminClient, FiguresQuery, StopOptions};

use super::world::{Running, Source, all_in, mirror_all, produce, run, until};

fn topics(contains: &str, rows_max: i32) -> FiguresQuery {
    FiguresQuery::Topics { mirror: "m".to_owned(), contains: contains.to_owned(), rows_max }
}

fn partitions(topic: &str, rows_max: i32) -> FiguresQuery {
    FiguresQuery::Partitions { mirror: "m".to_owned(), topic: topic.to_owned(), rows_max }
}

/// Mirror `m`, once `holds` is true of it.
async fn ask(
    client: &mut AdminClient,
    query: &FiguresQuery,
    holds: impl Fn(&DescribedClusterMirror) -> bool,
) -> DescribedClusterMirror {
    let since = Instant::now();
    loop {
        let answer = client.mirror_figures(query).await.unwrap();
        assert!(answer.taken_at_ms >= 0);
        let mirror = answer.mirrors.into_iter().next().unwrap();
        if holds(&mirror) {
            return mirror;
        }
        assert!(since.elapsed() < Duration::from_secs(30), "it stays so: {mirror:#?}");
        tokio::task::yield_now().await;
    }
}

fn in_states(states: &[(&str, i32)]) -> Vec<MirrorStateCount> {
    let state = |(state, partitions): &(&str, i32)| MirrorStateCount {
        state: (*state).to_owned(),
        partitions: *partitions,
    };
    states.iter().map(state).collect()
}

fn names(mirror: &DescribedClusterMirror) -> Vec<&str> {
    mirror.topics.iter().map(|topic| topic.topic_name.as_str()).collect()
}

#[test]
fn sums_of_mirrors_topics_and_partitions_come_through() {
    let source = Source::start();
    let orders = source.topic("orders", 3);
    let clicks = source.topic("clicks", 1);
    let gone = source.topic("gone", 1);
    for partition in orders.partitions.iter().chain(&clicks.partitions).chain(&gone.partitions) {
        produce(partition, 10);
    }
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path());
    let mut client = host.client();
    run(async {
        mirror_all(&mut client, &source, "orders,clicks,gone").await;
        // What the job publishes follows what is appended.
        let all = ask(&mut client, &FiguresQuery::Mirrors, |it| {
            it.figures.lag == 0
                && it.figures.bytes_appended > 0
                && it.time.shards.iter().any(|shard| shard.cpu_ms > 0)
        })
        .await;
        assert!(all.topics.is_empty(), "nothing is listed");
        assert_eq!((all.topic_count, all.figures.partition_count), (3, 5));
        assert_eq!(all.figures.states, in_states(&[("MIRRORING", 5)]));
        assert_eq!((all.figures.failing, &all.figures.error_message), (0, &None));
        assert_eq!((all.figures.lag_bytes, all.figures.lag_ms), (0, 0));
        assert_eq!(all.source_bootstrap, source.address());
        assert!(all.time.elapsed_ms > 0, "{:?}", all.time);
        let shard = &all.time.shards[0];
        assert!(shard.cpu_ms <= shard.elapsed_ms, "a thread has one processor: {shard:?}");

        let by_topic = ask(&mut client, &topics("", -1), |_| true).await;
        assert_eq!(names(&by_topic), ["clicks", "gone", "orders"]);
        assert!(by_topic.topics.iter().all(|topic| topic.partitions.is_empty()));
        let sums = by_topic.topics.iter().map(|it| it.figures.bytes_appended).sum::<i64>();
        assert_eq!(sums, all.figures.bytes_appended);
        let of_orders = &by_topic.topics[2].figures;
        assert_eq!((of_orders.partition_count, of_orders.lag, of_orders.lag_ms), (3, 0, 0));

        let by_partition = ask(&mut client, &partitions("orders", -1), |_| true).await;
        assert_eq!(names(&by_partition), ["orders"]);
        let all = &by_partition.topics[0].partitions;
        let ends: Vec<_> = all.iter().map(|it| (it.partition_index, it.source_offset)).collect();
        assert_eq!(ends, [(0, 10), (1, 10), (2, 10)]);
        assert!(all.iter().all(|it| it.bytes_appended > 0 && it.lag_bytes == 0 && it.lag_ms == 0));

        // Who does not ask for figures gets none.
        let plain = client.describe_cluster_mirrors(&["m".to_owned()]).await.unwrap();
        assert_eq!(plain[0].topics.len(), 3);

        source.catalog.delete_topic("gone").unwrap();
        let failed = ask(&mut client, &FiguresQuery::Mirrors, |it| it.figures.failing == 1).await;
        assert_eq!(failed.figures.states, in_states(&[("MIRRORING", 4), ("FAILED", 1)]));
        assert_eq!(failed.figures.given_up, 1);
        let reason = failed.figures.error_message.unwrap();
        assert!(reason.starts_with("gone-0: ") && reason.contains("deleted"), "{reason}");

        // The worst is what a limit leaves; and what is searched for is found in reasons.
        for (query, left_out) in [(topics("", 1), 2), (topics("DELETED", 1), 0)] {
            let worst = ask(&mut client, &query, |_| true).await;
            assert_eq!((names(&worst), worst.topics_left_out), (vec!["gone"], left_out));
        }
        let found = ask(&mut client, &topics("Click", -1), |_| true).await;
        assert_eq!((names(&found), found.topics_left_out), (vec!["clicks"], 0));
        let some = ask(&mut client, &partitions("orders", 2), |_| true).await;
        let of_gone = ask(&mut client, &partitions("gone", -1), |_| true).await;
        let failed = &of_gone.topics[0].partitions[0];
        assert_eq!((failed.state.as_str(), failed.given_up), ("FAILED", true));
        let some = &some.topics[0];
        assert_eq!((some.partitions.len(), some.partitions_left_out), (2, 1));
        assert_eq!(some.figures.partition_count, 3, "the sums are of all");

        let unknown = FiguresQuery::Topics {
            mirror: "nobody".to_owned(),
            contains: String::new(),
            rows_max: 1,
        };
        let refused = client.mirror_figures(&unknown).await.unwrap_err().to_string();
        assert!(refused.contains("UNKNOWN_CLUSTER_MIRROR"), "{refused}");
    });
    assert!(host.stop().clean);
}

/// A source that has gone is told of with the time, and needs nobody to stop.
#[test]
fn a_source_that_is_away_is_the_trouble_of_its_mirror() {
    let source = Source::start();
    let topic = source.topic("t", 1);
    produce(&topic.partitions[0], 10);
    let dir = tempfile::tempdir().unwrap();
    let host = Running::start(dir.path());
    let mut client = host.client();
    run(async {
        mirror_all(&mut client, &source, "t").await;
        drop(source);
        let away =
            ask(&mut client, &FiguresQuery::Mirrors, |it| it.figures.error_message.is_some()).await;
        assert!(away.figures.failing_since_ms > 1_600_000_000_000, "{:?}", away.figures);
        client.stop_mirror_topics("m", &["t".to_owned()], StopOptions::default()).await.unwrap();
        until(&mut client, "m", all_in("STOPPED")).await;
        let stopped = ask(&mut client, &FiguresQuery::Mirrors, |_| true).await;
        assert_eq!(stopped.figures.lag, -1, "whoever is stopped lacks nothing");
        assert_eq!(stopped.figures.states, in_states(&[("STOPPED", 1)]));
    });
    assert!(host.stop().clean);
}
