//! What is printed. Columns, their widths and what stands in them are the KIP's.

use std::fmt::Write as _;

use heliostat_core::log::utc;
use heliostat_io::admin::{MirrorDescription, MirrorListing, MirrorPartition, TopicOutcome};
use serde_json::Value;

use super::args::Verb;

const MIRROR_WIDTH: usize = 30;
const TOPIC_WIDTH: usize = 40;
const BOOTSTRAP_WIDTH: usize = 50;
const ERROR_WIDTH: usize = 80;

/// A cell that is cut on the left, where names are alike.
fn cut_left(text: &str, width: usize) -> String {
    let chars = text.chars().count();
    if chars <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().skip(chars - (width - 3)).collect();
    format!("...{kept}")
}

/// A sentence that is cut on the right, where it says least.
fn cut_right(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width - 3).collect();
    format!("{kept}...")
}

/// `-` for a number that is not known.
fn or_dash(number: Option<i64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

/// All mirrors.
pub(super) fn list(mirrors: &[MirrorListing]) -> String {
    if mirrors.is_empty() {
        return "No mirrors found".to_owned();
    }
    let mut out = format!(
        "{:<MIRROR_WIDTH$} {:<10} {:<26} {}",
        "MIRROR", "TOPICS", "CLUSTER-ID", "BOOTSTRAP-SERVER"
    );
    for mirror in mirrors {
        // A String takes every write.
        let _ = write!(
            out,
            "\n{:<MIRROR_WIDTH$} {:<10} {:<26} {}",
            cut_left(&mirror.name, MIRROR_WIDTH),
            mirror.topic_count,
            mirror.source_cluster_id.as_deref().unwrap_or("-"),
            cut_left(mirror.source_bootstrap.as_deref().unwrap_or("-"), BOOTSTRAP_WIDTH),
        );
    }
    out
}

/// A partition with the names that lead to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'a> {
    mirror: &'a str,
    topic: &'a str,
    partition: &'a MirrorPartition,
}

/// Partitions of all mirrors, in the order of mirror, topic and index. With `failed` only those
/// that failed, or have not got on for a while.
pub(super) fn rows(mirrors: &[MirrorDescription], failed: bool) -> Vec<Row<'_>> {
    let all = mirrors.iter().flat_map(|mirror| {
        mirror.topics.iter().flat_map(move |(topic, partitions)| {
            let row = move |partition| Row { mirror: &mirror.name, topic, partition };
            partitions.iter().map(row)
        })
    });
    let is_failed =
        |row: &Row<'_>| row.partition.state == "FAILED" || row.partition.failing_since.is_some();
    all.filter(|row| !failed || is_failed(row)).collect()
}

/// Offsets, lag and state of partitions.
pub(super) fn partitions(rows: &[Row<'_>]) -> String {
    if rows.is_empty() {
        return "No mirror partitions found".to_owned();
    }
    let mut out = format!(
        "{:<MIRROR_WIDTH$} {:<TOPIC_WIDTH$} {:<10} {:<15} {:<18} {:<10} {:<12}",
        "MIRROR", "TOPIC", "PARTITION", "SOURCE-OFFSET", "DESTINATION-OFFSET", "LAG", "STATE"
    );
    for Row { mirror, topic, partition } in rows {
        let _ = write!(
            out,
            "\n{:<MIRROR_WIDTH$} {:<TOPIC_WIDTH$} {:<10} {:<15} {:<18} {:<10} {:<12}",
            cut_left(mirror, MIRROR_WIDTH),
            cut_left(topic, TOPIC_WIDTH),
            partition.index,
            or_dash(partition.source_offset.map(|offset| offset.0)),
            or_dash(partition.destination_offset.map(|offset| offset.0)),
            or_dash(partition.lag),
            partition.state,
        );
    }
    out
}

/// Reasons of failures; `attempts_max` is the host's limit.
pub(super) fn failed(rows: &[Row<'_>], attempts_max: &str) -> String {
    if rows.is_empty() {
        return "No failed partitions found".to_owned();
    }
    let mut out = format!(
        "{:<MIRROR_WIDTH$} {:<TOPIC_WIDTH$} {:<10} {:<7} {}",
        "MIRROR", "TOPIC", "PARTITION", "RETRY", "ERROR"
    );
    for Row { mirror, topic, partition } in rows {
        let _ = write!(
            out,
            "\n{:<MIRROR_WIDTH$} {:<TOPIC_WIDTH$} {:<10} {:<7} {}",
            cut_left(mirror, MIRROR_WIDTH),
            cut_left(topic, TOPIC_WIDTH),
            partition.index,
            retry(partition, attempts_max),
            cut_right(&reason(partition), ERROR_WIDTH),
        );
    }
    out
}

fn retry(partition: &MirrorPartition, attempts_max: &str) -> String {
    match partition.retry_attempt {
        _ if partition.state != "FAILED" => "-".to_owned(),
        ..0 => "NonRetryable".to_owned(),
        attempt => format!("{attempt}/{attempts_max}"),
    }
}

/// One line: an error's text is the server's.
fn reason(partition: &MirrorPartition) -> String {
    let message = partition.error_message.as_deref().unwrap_or_default();
    let message: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match partition.failing_since {
        Some(since) if partition.state != "FAILED" => {
            format!("since {}: {message}", utc::format(since))
        }
        _ => message,
    }
}

/// One array of partitions; their keys are in the KIP's order, what is ours comes behind.
pub(super) fn json(rows: &[Row<'_>]) -> String {
    let objects: Vec<String> = rows.iter().map(object).collect();
    format!("[{}]", objects.join(","))
}

fn object(row: &Row<'_>) -> String {
    let partition = row.partition;
    let offset = |offset: Option<i64>| Value::from(offset.unwrap_or(-1));
    let mut fields = vec![
        ("mirror", Value::from(row.mirror)),
        ("topic", Value::from(row.topic)),
        ("partition", Value::from(partition.index)),
        ("sourceOffset", offset(partition.source_offset.map(|it| it.0))),
        ("destinationOffset", offset(partition.destination_offset.map(|it| it.0))),
        ("lag", offset(partition.lag)),
        ("state", Value::from(partition.state.as_str())),
        ("retryAttempt", Value::from(partition.retry_attempt)),
        ("errorMessage", Value::from(partition.error_message.clone())),
    ];
    if let Some(desired) = &partition.desired_state {
        fields.push(("desiredState", Value::from(desired.as_str())));
    }
    if let Some(since) = partition.failing_since {
        fields.push(("failingSinceMs", Value::from(since.0)));
    }
    let fields: Vec<_> =
        fields.into_iter().map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{{{}}}", fields.join(","))
}

/// `[a, b]`
fn bracketed(topics: &[&TopicOutcome]) -> String {
    let names: Vec<_> = topics.iter().map(|topic| topic.topic.as_str()).collect();
    format!("[{}]", names.join(", "))
}

/// What was done to topics.
pub(super) fn done(verb: Verb, mirror: &str, topics: &[&TopicOutcome]) -> String {
    let (count, names) = (topics.len(), bracketed(topics));
    match verb {
        Verb::Start if topics.is_empty() => format!(
            "No matching topics found yet. The patterns are kept in mirror {mirror} for discovery."
        ),
        Verb::Start => format!("Started {count} mirror topic(s) in mirror {mirror}: {names}"),
        Verb::Stop => {
            format!("Stopped mirroring for {count} topic(s) in mirror {mirror}: {names}")
        }
        Verb::Pause => format!("Paused mirroring for {count} topic(s) in mirror {mirror}: {names}"),
        Verb::Resume => {
            format!("Resumed mirroring for {count} topic(s) in mirror {mirror}: {names}")
        }
        Verb::Recover => {
            format!("Recovered mirroring for {count} topic(s) in mirror {mirror}: {names}")
        }
    }
}

/// What a dry run of a start finds.
pub(super) fn would_start(mirror: &str, topics: &[&TopicOutcome]) -> String {
    if topics.is_empty() {
        return format!(
            "No matching topics found yet. The patterns would be kept in mirror {mirror} for \
             discovery."
        );
    }
    let (count, names) = (topics.len(), bracketed(topics));
    let mut out = format!(
        "Would start {count} mirror topic(s) in mirror {mirror}: {names}\n\
         {:<TOPIC_WIDTH$} {:<10} {:<12}",
        "TOPIC", "PARTITIONS", "STATE"
    );
    for topic in topics {
        let _ = write!(
            out,
            "\n{:<TOPIC_WIDTH$} {:<10} {:<12}",
            cut_left(&topic.topic, TOPIC_WIDTH),
            or_dash(topic.partitions.map(i64::from)),
            topic.state.as_deref().unwrap_or("-"),
        );
    }
    out
}

/// What a dry run of a stop finds: what would be lost comes last, where it is read.
pub(super) fn would_stop(mirror: &str, topics: &[&TopicOutcome]) -> String {
    let (count, names) = (topics.len(), bracketed(topics));
    let mut out = format!("Would stop mirroring for {count} topic(s) in mirror {mirror}: {names}");
    if topics.is_empty() {
        return out;
    }
    let _ = write!(
        out,
        "\n{:<TOPIC_WIDTH$} {:<10} {:<10} {:<12}",
        "TOPIC", "PARTITIONS", "LAG", "STATE"
    );
    for topic in topics {
        let _ = write!(
            out,
            "\n{:<TOPIC_WIDTH$} {:<10} {:<10} {:<12}",
            cut_left(&topic.topic, TOPIC_WIDTH),
            or_dash(topic.partitions.map(i64::from)),
            topic.lag.map_or_else(|| "-".to_owned(), |lag| lag.to_string()),
            topic.state.as_deref().unwrap_or("-"),
        );
    }
    let lags = topics.iter().filter_map(|topic| topic.lag);
    let lag = lags.fold(0_u64, u64::saturating_add);
    let unknown = topics.iter().filter(|topic| topic.lag.is_none()).count();
    let _ = write!(
        out,
        "\n{lag} record(s) that the source had when it answered last are not copied and would be \
         left out"
    );
    if unknown > 0 {
        let _ = write!(out, "; of {unknown} topic(s) it is not known");
    }
    out
}

#[cfg(test)]
mod tests;
