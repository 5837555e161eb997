//! A host with thirty mirrors, one of which fails; what is shown of it, and how keys change that.

mod behaviour;
mod frames;

use std::time::Duration;

use heliostat_core::protocol::mirror::{
    DescribeClusterMirrorsResponse, DescribedClusterMirror, DescribedMirrorPartition,
    DescribedMirrorTopic, MirrorFigures, MirrorShardTime, MirrorStateCount, MirrorTime,
};

use super::draw::Now;
use super::model::{Key, Model};

/// By the wall clock, when the first answer comes.
const WALL_MS: i64 = 1_700_000_000_000;
const REASON: &str = "orders-eu-3: offset 81923 of the source is out of range: the copy ends at \
                      81920 and the source begins at 90112; retention has removed what lies \
                      between. Accept the gap with mirror.gap.policy=skip, or stop the topic and \
                      begin anew";

/// So many seconds after the start.
fn at(seconds: u64) -> Now {
    let since_start = Duration::from_secs(seconds);
    Now { since_start, wall_ms: WALL_MS + i64::try_from(seconds * 1_000).unwrap() }
}

fn states(states: &[(&str, i32)]) -> Vec<MirrorStateCount> {
    let state = |(state, partitions): &(&str, i32)| MirrorStateCount {
        state: (*state).to_owned(),
        partitions: *partitions,
    };
    states.iter().map(state).collect()
}

/// What a mirror has appended and waited for, `seconds` after its start.
fn mirror(index: i64, seconds: i64) -> DescribedClusterMirror {
    let ms = seconds * 1_000;
    let mut figures = MirrorFigures {
        partition_count: 40,
        states: states(&[("MIRRORING", 40)]),
        lag: 0,
        lag_bytes: 0,
        lag_ms: 0,
        bytes_appended: seconds * 1_200_000 * index,
        ..MirrorFigures::default()
    };
    let mut time = MirrorTime {
        elapsed_ms: ms,
        source_ms: ms,
        shards: vec![MirrorShardTime { elapsed_ms: ms, cpu_ms: ms / 5 }],
        ..MirrorTime::default()
    };
    let mut name = format!("site-{index:02}");
    match index {
        3 => {
            // Far behind, by its network.
            (figures.lag, figures.lag_bytes, figures.lag_ms) =
                (48_200_113, 51_300_000_000, 942_000);
            time.network_ms = ms * 6;
        }
        7 => {
            name = "frankfurt-west-to-stockholm".to_owned();
            figures.states = states(&[("FAILED", 1), ("MIRRORING", 39)]);
            (figures.failing, figures.given_up, figures.retry_attempts) = (1, 1, 10);
            (figures.lag, figures.lag_bytes, figures.lag_ms) = (8_192, 9_400_000, 10_920_000);
            figures.error_message = Some(REASON.to_owned());
        }
        11 => {
            (figures.lag, figures.lag_bytes, figures.lag_ms) = (310, 45_000, 61_000);
            figures.failing = 40;
            figures.error_message =
                Some("no broker of kafka-11:9092 answers: connection refused".to_owned());
            figures.failing_since_ms = WALL_MS - 58_000;
        }
        12 => {
            figures.states = states(&[("LOG_TRUNCATION", 12), ("MIRRORING", 28)]);
            (figures.lag, figures.lag_bytes, figures.lag_ms) = (77_000, 8_000_000, 9_000);
            time.throttle_ms = ms * 9;
        }
        19 => {
            (figures.lag, figures.lag_bytes, figures.lag_ms) = (1_000_000, 2_000_000_000, 31_000);
            time.shards = vec![MirrorShardTime { elapsed_ms: ms, cpu_ms: ms * 97 / 100 }];
        }
        _ => {}
    }
    DescribedClusterMirror {
        mirror_name: name,
        source_bootstrap: format!("kafka-{index:02}:9092"),
        topic_count: 10,
        figures,
        time,
        ..DescribedClusterMirror::default()
    }
}

/// All mirrors, `seconds` after the start of their jobs.
fn mirrors(seconds: i64) -> DescribeClusterMirrorsResponse {
    DescribeClusterMirrorsResponse {
        mirrors: (1..=30).map(|index| mirror(index, seconds)).collect(),
        taken_at_ms: seconds * 1_000,
        ..DescribeClusterMirrorsResponse::default()
    }
}

fn topic(name: &str, failing: i32, lag: i64, seconds: i64) -> DescribedMirrorTopic {
    DescribedMirrorTopic {
        topic_name: name.to_owned(),
        figures: MirrorFigures {
            partition_count: 4,
            states: if failing > 0 {
                states(&[("FAILED", failing), ("MIRRORING", 4 - failing)])
            } else {
                states(&[("MIRRORING", 4)])
            },
            failing,
            given_up: failing,
            retry_attempts: i64::from(failing) * 10,
            lag,
            lag_bytes: lag * 100,
            lag_ms: lag * 2,
            bytes_appended: seconds * 250_000,
            error_message: (failing > 0).then(|| REASON.to_owned()),
            ..MirrorFigures::default()
        },
        ..DescribedMirrorTopic::default()
    }
}

/// The topics of the mirror that fails.
fn topics(seconds: i64) -> DescribeClusterMirrorsResponse {
    let of_mirror = DescribedClusterMirror {
        topics: vec![
            topic("clicks", 0, 12, seconds),
            topic("orders-eu", 1, 8_192, seconds),
            topic("orders-us-with-a-name-that-is-longer-than-others", 0, 0, seconds),
        ],
        ..mirror(7, seconds)
    };
    DescribeClusterMirrorsResponse { mirrors: vec![of_mirror], ..mirrors(seconds) }
}

/// The partitions of its topic that fails.
fn partitions(seconds: i64) -> DescribeClusterMirrorsResponse {
    let partition = |partition_index: i32| DescribedMirrorPartition {
        partition_index,
        source_offset: 90_112,
        destination_offset: 90_112,
        lag: 0,
        state: "MIRRORING".to_owned(),
        desired_state: "MIRRORING".to_owned(),
        lag_bytes: 0,
        lag_ms: 0,
        bytes_appended: seconds * 100_000,
        ..DescribedMirrorPartition::default()
    };
    let failed = DescribedMirrorPartition {
        destination_offset: 81_920,
        lag: 8_192,
        lag_bytes: 819_200,
        lag_ms: 10_920_000,
        bytes_appended: 0,
        state: "FAILED".to_owned(),
        retry_attempt: 10,
        given_up: true,
        error_message: Some(REASON.to_owned()),
        ..partition(3)
    };
    let held_up = DescribedMirrorPartition {
        error_message: Some("it has no leader".to_owned()),
        failing_since_ms: WALL_MS - 3_000,
        ..partition(1)
    };
    let topic = DescribedMirrorTopic {
        partitions: vec![partition(0), held_up, partition(2), failed],
        ..topic("orders-eu", 1, 8_192, seconds)
    };
    let of_mirror = DescribedClusterMirror { topics: vec![topic], ..mirror(7, seconds) };
    DescribeClusterMirrorsResponse { mirrors: vec![of_mirror], ..mirrors(seconds) }
}

fn empty() -> Model {
    Model::new("127.0.0.1:9192".to_owned(), None, None)
}

/// Two looks, so that there are rates.
fn look(model: &mut Model, answer: impl Fn(i64) -> DescribeClusterMirrorsResponse) {
    for seconds in [100, 101] {
        let now = Duration::from_secs(u64::try_from(seconds - 100).unwrap());
        model.take(&model.query(), &answer(seconds), now);
    }
}

/// All mirrors are known.
fn full() -> Model {
    let mut model = empty();
    look(&mut model, mirrors);
    model
}

/// Inside the mirror that fails.
fn in_topics() -> Model {
    let mut model = full();
    model.press(Key::Enter);
    look(&mut model, topics);
    model
}

/// Inside its topic that fails.
fn in_partitions() -> Model {
    let mut model = in_topics();
    model.press(Key::Enter);
    look(&mut model, partitions);
    model
}

fn type_in(model: &mut Model, text: &str) {
    for letter in text.chars() {
        model.press(Key::Char(letter));
    }
}

fn names(model: &Model) -> Vec<String> {
    model.visible().iter().map(|row| row.name.clone()).collect()
}
