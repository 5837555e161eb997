//! Whole outputs. A bar stands for the end of a line, so that blanks before it are seen.

use std::collections::BTreeMap;

use heliostat_core::protocol::ErrorCode;
use heliostat_core::types::{LeaderEpoch, Offset, TimestampMs};
use heliostat_io::admin::Refusal;

use super::*;

#[track_caller]
fn check(got: &str, want: &[&str]) {
    let lines: Vec<_> = got.split('\n').map(|line| format!("{line}|")).collect();
    assert_eq!(lines, want);
}

fn listing(name: &str, cluster: Option<&str>, bootstrap: Option<&str>) -> MirrorListing {
    MirrorListing {
        name: name.to_owned(),
        source_bootstrap: bootstrap.map(str::to_owned),
        source_cluster_id: cluster.map(str::to_owned),
        topic_count: 3,
        topic_names: Vec::new(),
    }
}

fn partition(index: i32, state: &str) -> MirrorPartition {
    MirrorPartition {
        index,
        source_offset: None,
        destination_offset: None,
        lag: None,
        state: state.to_owned(),
        last_mirror_epoch: LeaderEpoch::NONE,
        last_mirror_offset: None,
        retry_attempt: 0,
        error_message: None,
        desired_state: None,
        failing_since: None,
    }
}

fn mirroring(index: i32, source: i64, destination: i64) -> MirrorPartition {
    MirrorPartition {
        source_offset: Some(Offset(source)),
        destination_offset: Some(Offset(destination)),
        lag: Some(source - destination),
        ..partition(index, "MIRRORING")
    }
}

fn failing(index: i32, retry_attempt: i16, message: &str) -> MirrorPartition {
    MirrorPartition {
        retry_attempt,
        error_message: Some(message.to_owned()),
        ..partition(index, "FAILED")
    }
}

fn mirror(name: &str, topics: Vec<(&str, Vec<MirrorPartition>)>) -> MirrorDescription {
    let topics = topics.into_iter().map(|(topic, them)| (topic.to_owned(), them));
    MirrorDescription {
        name: name.to_owned(),
        source_bootstrap: None,
        source_cluster_id: None,
        topics: topics.collect::<BTreeMap<_, _>>(),
    }
}

#[test]
fn mirrors_in_a_list() {
    let long = "a-name-that-is-longer-than-its-column";
    let servers = "kafka-1.west.example.com:9092,kafka-2.west.example.com:9092";
    let mirrors = [
        listing("my-mirror", Some("MkU3OEVBNTcwNTJENDM2Qk"), Some("kafka1:9092")),
        listing(long, None, Some(servers)),
        listing("new", None, None),
    ];
    check(
        &list(&mirrors),
        &[
            "MIRROR                         TOPICS     CLUSTER-ID                 \
             BOOTSTRAP-SERVER|",
            "my-mirror                      3          MkU3OEVBNTcwNTJENDM2Qk     kafka1:9092|",
            "...t-is-longer-than-its-column 3          -                          \
             ....example.com:9092,kafka-2.west.example.com:9092|",
            "new                            3          -                          -|",
        ],
    );
    check(&list(&[]), &["No mirrors found|"]);
}

/// The KIP's own rows among them.
#[test]
fn partitions_of_mirrors() {
    let topic = "a-topic-whose-name-is-longer-than-the-column-of-topics";
    let mirrors = [
        mirror(
            "my-mirror",
            vec![
                ("foo", vec![mirroring(0, 69, 66), mirroring(1, 5, 5)]),
                ("bar", vec![partition(0, "STOPPED")]),
            ],
        ),
        mirror(
            "new-mirror",
            vec![
                ("baz", vec![partition(0, "PAUSED")]),
                (topic, vec![partition(10, "LOG_TRUNCATION")]),
            ],
        ),
    ];
    check(
        &partitions(&rows(&mirrors, false)),
        &[
            "MIRROR                         TOPIC                                    PARTITION  \
             SOURCE-OFFSET   DESTINATION-OFFSET LAG        STATE       |",
            "my-mirror                      bar                                      0          \
             -               -                  -          STOPPED     |",
            "my-mirror                      foo                                      0          \
             69              66                 3          MIRRORING   |",
            "my-mirror                      foo                                      1          \
             5               5                  0          MIRRORING   |",
            "new-mirror                     ...e-is-longer-than-the-column-of-topics 10         \
             -               -                  -          LOG_TRUNCATION|",
            "new-mirror                     baz                                      0          \
             -               -                  -          PAUSED      |",
        ],
    );
    check(&partitions(&rows(&[], false)), &["No mirror partitions found|"]);
    check(&partitions(&rows(&[mirror("m", vec![])], false)), &["No mirror partitions found|"]);
}

#[test]
fn partitions_that_failed() {
    let cut_off = MirrorPartition {
        failing_since: Some(TimestampMs(1_700_000_000_000)),
        error_message: Some("kafka1:9092: connection\nrefused".to_owned()),
        ..mirroring(3, 9, 9)
    };
    let long = "x".repeat(81);
    let foo = vec![
        mirroring(0, 69, 66),
        failing(1, 3, "the epoch could not be raised"),
        failing(2, -1, &long),
        cut_off,
    ];
    let mirrors = [mirror("my-mirror", vec![("foo", foo)])];
    let head = "my-mirror                      foo                                      ";
    check(
        &failed(&rows(&mirrors, true), "10"),
        &[
            "MIRROR                         TOPIC                                    PARTITION  \
             RETRY   ERROR|",
            &format!("{head}1          3/10    the epoch could not be raised|"),
            &format!("{head}2          NonRetryable {}...|", "x".repeat(77)),
            &format!(
                "{head}3          -       since 2023-11-14T22:13:20.000Z: kafka1:9092: \
                 connection refused|"
            ),
        ],
    );
    check(&failed(&rows(&mirrors[..0], true), "10"), &["No failed partitions found|"]);
}

#[test]
fn partitions_as_json() {
    let mirrors = [mirror(
        "m",
        vec![(
            "t",
            vec![
                mirroring(0, 69, 66),
                MirrorPartition {
                    desired_state: Some("MIRRORING".to_owned()),
                    failing_since: Some(TimestampMs(5)),
                    ..failing(1, 2, "a \"quoted\" reason")
                },
            ],
        )],
    )];
    check(
        &json(&rows(&mirrors, false)),
        &["[{\"mirror\":\"m\",\"topic\":\"t\",\"partition\":0,\"sourceOffset\":69,\
           \"destinationOffset\":66,\"lag\":3,\"state\":\"MIRRORING\",\"retryAttempt\":0,\
           \"errorMessage\":null},\
           {\"mirror\":\"m\",\"topic\":\"t\",\"partition\":1,\"sourceOffset\":-1,\
           \"destinationOffset\":-1,\"lag\":-1,\"state\":\"FAILED\",\"retryAttempt\":2,\
           \"errorMessage\":\"a \\\"quoted\\\" reason\",\"desiredState\":\"MIRRORING\",\
           \"failingSinceMs\":5}]|"],
    );
    check(&json(&[]), &["[]|"]);
}

fn outcome(topic: &str, partitions: u32, lag: Option<u64>) -> TopicOutcome {
    TopicOutcome {
        topic: topic.to_owned(),
        refusal: None,
        partitions: Some(partitions),
        lag,
        state: Some("MIRRORING".to_owned()),
    }
}

#[test]
fn what_was_done_to_topics() {
    let (a, b) = (outcome("a", 1, None), outcome("b", 2, None));
    let both = [&a, &b];
    check(&done(Verb::Start, "m", &both), &["Started 2 mirror topic(s) in mirror m: [a, b]|"]);
    check(
        &done(Verb::Start, "m", &[]),
        &["No matching topics found yet. The patterns are kept in mirror m for discovery.|"],
    );
    check(
        &done(Verb::Stop, "m", &both[..1]),
        &["Stopped mirroring for 1 topic(s) in mirror m: [a]|"],
    );
    check(&done(Verb::Pause, "m", &[]), &["Paused mirroring for 0 topic(s) in mirror m: []|"]);
    check(
        &done(Verb::Resume, "m", &both),
        &["Resumed mirroring for 2 topic(s) in mirror m: [a, b]|"],
    );
    check(
        &done(Verb::Recover, "m", &both),
        &["Recovered mirroring for 2 topic(s) in mirror m: [a, b]|"],
    );
}

#[test]
fn what_a_dry_run_says() {
    let (a, b) = (outcome("a", 1, Some(0)), outcome("b", 12, Some(1_234)));
    let unknown = TopicOutcome {
        partitions: None,
        state: None,
        refusal: Some(Refusal { code: ErrorCode::NONE, message: None }),
        ..outcome("c", 0, None)
    };
    check(
        &would_start("m", &[&a, &unknown]),
        &[
            "Would start 2 mirror topic(s) in mirror m: [a, c]|",
            "TOPIC                                    PARTITIONS STATE       |",
            "a                                        1          MIRRORING   |",
            "c                                        -          -           |",
        ],
    );
    check(
        &would_start("m", &[]),
        &["No matching topics found yet. The patterns would be kept in mirror m for discovery.|"],
    );
    check(
        &would_stop("m", &[&a, &b]),
        &[
            "Would stop mirroring for 2 topic(s) in mirror m: [a, b]|",
            "TOPIC                                    PARTITIONS LAG        STATE       |",
            "a                                        1          0          MIRRORING   |",
            "b                                        12         1234       MIRRORING   |",
            "1234 record(s) that the source had when it answered last are not copied and would be \
             left out|",
        ],
    );
    let with_unknown = would_stop("m", &[&b, &unknown]);
    let last = with_unknown.lines().last().unwrap();
    assert_eq!(
        last,
        "1234 record(s) that the source had when it answered last are not copied and would be left \
         out; of 1 topic(s) it is not known"
    );
    check(&would_stop("m", &[]), &["Would stop mirroring for 0 topic(s) in mirror m: []|"]);
}
