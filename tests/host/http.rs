//! The HTTP endpoint: what scrapers, probes and others get.

use std::time::{Duration, Instant};

use super::world::{Running, Source, mirror_all, produce, properties, run, until};

const METRICS: (&str, &str) = ("metrics.listener", "127.0.0.1:0");

fn start(dir: &std::path::Path, more: &[(&str, &str)]) -> Running {
    Running::start_with(properties(dir, &[&[METRICS], more].concat()))
}

/// The metrics, once all of these lines are among them. Jobs show how they stand from time to
/// time.
async fn metrics_with(host: &Running, lines: &[&str]) -> String {
    let since = Instant::now();
    loop {
        let (status, text) = host.page("/metrics").await;
        assert_eq!(status, 200, "{text}");
        let missing: Vec<_> =
            lines.iter().filter(|line| !text.lines().any(|it| it == **line)).collect();
        if missing.is_empty() {
            return text;
        }
        assert!(since.elapsed() < Duration::from_secs(30), "{missing:#?} in {text}");
    }
}

#[test]
fn probes_and_metrics_follow_a_mirror() {
    let source = Source::start();
    let [gone, stays] = ["gone", "stays"].map(|name| source.topic(name, 1));
    for topic in [&gone, &stays] {
        produce(&topic.partitions[0], 20);
    }
    let dir = tempfile::tempdir().unwrap();
    let host = start(dir.path(), &[]);
    let mut client = host.client();
    run(async {
        // It listens before it has taken its first look at itself.
        while host.page("/health").await.1 == "starting\n" {}
        assert_eq!(host.page("/health").await, (200, "ok\n".to_owned()));
        assert_eq!(host.page("/ready").await, (200, "ready\n".to_owned()));
        mirror_all(&mut client, &source, "gone,stays").await;
        let text = metrics_with(
            &host,
            &[
                "heliostat_ready 1",
                "heliostat_shard_failures 0",
                "heliostat_mirrors 1",
                "heliostat_mirror_topics{mirror=\"m\"} 2",
                "heliostat_mirror_partitions{mirror=\"m\",state=\"MIRRORING\"} 2",
                "heliostat_mirror_partitions{mirror=\"m\",state=\"FAILED\"} 0",
                "heliostat_mirror_lag_records{mirror=\"m\"} 0",
                "heliostat_mirror_stable_lag_records{mirror=\"m\"} 0",
                "heliostat_mirror_appended_batches_total{mirror=\"m\"} 40",
                "heliostat_mirror_source_unreachable_seconds{mirror=\"m\"} 0",
                "heliostat_mirror_partition_log_end_offset{mirror=\"m\",topic=\"gone\",\
                 partition=\"0\"} 20",
                "heliostat_mirror_partition_state{mirror=\"m\",topic=\"stays\",partition=\"0\",\
                 state=\"MIRRORING\"} 1",
            ],
        )
        .await;
        let written = "heliostat_mirror_append_latency_seconds_count{mirror=\"m\"} ";
        let written = text.lines().find_map(|line| line.strip_prefix(written)).unwrap();
        assert!(written.parse::<u64>().unwrap() > 0, "{written}");

        source.catalog.delete_topic("gone").unwrap();
        until(&mut client, "m", |all| all["gone"][0].state == "FAILED").await;
        metrics_with(
            &host,
            &[
                "heliostat_mirror_partitions{mirror=\"m\",state=\"MIRRORING\"} 1",
                "heliostat_mirror_partitions{mirror=\"m\",state=\"FAILED\"} 1",
                "heliostat_mirror_given_up_partitions{mirror=\"m\"} 1",
                "heliostat_mirror_errors_total{mirror=\"m\",kind=\"partition_failed\"} 1",
                "heliostat_mirror_partition_retries{mirror=\"m\",topic=\"gone\",\
                 partition=\"0\"} -1",
            ],
        )
        .await;
        // A partition of a source is no reason to restart a host.
        assert_eq!(host.page("/health").await.0, 200);
        assert_eq!(host.page("/ready").await.0, 200);
    });
    assert!(host.stop().clean);
}

#[test]
fn a_source_that_is_gone_is_no_fault_of_the_host() {
    let source = Source::start();
    let topic = source.topic("t", 3);
    produce(&topic.partitions[0], 5);
    let dir = tempfile::tempdir().unwrap();
    let host = start(dir.path(), &[("metrics.partitions.max", "2")]);
    let mut client = host.client();
    run(async {
        mirror_all(&mut client, &source, "t").await;
        let text = metrics_with(&host, &["heliostat_partitions_without_series 3"]).await;
        assert!(!text.contains("heliostat_mirror_partition_lag_records{"), "{text}");
        drop(source);
        let unreachable = |text: &str| {
            let name = "heliostat_mirror_source_unreachable_seconds{mirror=\"m\"} ";
            let value = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            value.parse::<f64>().unwrap() > 0.0
        };
        let since = Instant::now();
        while !unreachable(&host.page("/metrics").await.1) {
            assert!(since.elapsed() < Duration::from_secs(30));
        }
        let failures =
            "heliostat_mirror_errors_total{mirror=\"m\",kind=\"topic_metadata_refresh\"} ";
        let text = host.page("/metrics").await.1;
        let count = text.lines().find_map(|line| line.strip_prefix(failures)).unwrap();
        assert_ne!(count, "0");
        assert_eq!(host.page("/health").await.0, 200);
        assert_eq!(host.page("/ready").await.0, 200);
    });
    assert!(host.stop().clean);
}

#[test]
fn what_is_no_request_for_a_page_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let host = start(dir.path(), &[]);
    run(async {
        for (request, status) in [
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "404"),
            (b"GET /metrics/x HTTP/1.1\r\n\r\n".to_vec(), "404"),
            (b"GET /metrics?a=b HTTP/1.1\r\n\r\n".to_vec(), "200"),
            (b"POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n".to_vec(), "405"),
            (b"HEAD /health HTTP/1.1\r\n\r\n".to_vec(), "405"),
            (b"\0\x01\xff\xfe\r\n\r\n".to_vec(), "400"),
            (b"GET /metrics\r\n\r\n".to_vec(), "400"),
            (b"GET /metrics SPDY/3\r\n\r\n".to_vec(), "400"),
            // Of a client that speaks Kafka's protocol.
            (b"\0\0\0\x0a\0\x12\0\0\0\0\0\x01\xff\xff".repeat(1_000), "400"),
            ([b"GET /metrics HTTP/1.1\r\nX: ", "x".repeat(20_000).as_bytes()].concat(), "400"),
        ] {
            let answer = host.http(&request).await;
            let want = format!("HTTP/1.1 {status} ");
            assert!(answer.starts_with(&want), "{want}: {answer}");
        }
        assert_eq!(host.page("/health").await.0, 200);
    });
    let address = host.handle.metrics_address().unwrap();
    assert!(host.stop().clean);
    assert!(std::net::TcpStream::connect(address).is_err(), "it ends with the host");
}
