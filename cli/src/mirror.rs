//! `heliostat mirror`

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use heliostat_core::config::ThrottledPartitions;
use heliostat_core::log::gaps::{GapFile, GapKind, GapRecord};
use heliostat_core::log::{names, utc};
use heliostat_core::select::TopicSelector;
use heliostat_io::control::{Ended, JobConfig, JobPhase, PartitionState, Status};
use serde_json::{Value, json};

use crate::check::source_facts;
use crate::failure::Failure;
use crate::output::{Meter, approximate, counted, rate, say, size, span};
use crate::run_job::{Finished, Next, run_job};
use crate::shards::default_shards;
use crate::source_args::{SourceArgs, SourceSettings};
use crate::survey::{Survey, survey};

/// Longest time for a clean stop.
const STOP_WITHIN: Duration = Duration::from_secs(60);
/// Time between two JSON lines.
const JSON_EVERY: Duration = Duration::from_secs(5);
/// Gaps and failed partitions that are listed at the end.
const LISTED: usize = 20;

/// Arguments of `mirror`.
#[derive(Args, Debug)]
pub(crate) struct MirrorArgs {
    #[command(flatten)]
    source: SourceArgs,

    /// Topics to copy: regular expressions, anchored; commas between several.
    #[arg(long, value_name = "REGEX")]
    topics: String,

    /// Topics not to copy; wins over --topics.
    #[arg(long, value_name = "REGEX", default_value = "")]
    exclude: String,

    /// Log dir of the copy; made if it is not there.
    #[arg(long, value_name = "DIR")]
    to: PathBuf,

    /// Go on after everything that the source had at the start is copied.
    #[arg(long)]
    follow: bool,

    /// Bytes a second for all partitions together; k, M and G are powers of 1000.
    #[arg(long, value_name = "BYTES/S", value_parser = bytes_per_second)]
    throttle: Option<u64>,

    /// Shards; default: one a core, less one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    shards: Option<u16>,

    /// List what would be copied, how much, and what would be refused; copy nothing.
    #[arg(long)]
    dry_run: bool,

    /// Print JSON lines: progress every few seconds, and a summary at the end.
    #[arg(long)]
    json: bool,

    /// Serve metrics in the Prometheus text format on this address.
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
}

/// Copies; `false` if a partition failed or the job was aborted.
pub(crate) fn run(args: &MirrorArgs) -> Result<bool, Failure> {
    let mut settings = args.source.load()?.required()?;
    let selector = TopicSelector::new(&args.topics, &args.exclude)
        .map_err(|error| Failure::from_error("--topics, --exclude", error))?;
    if args.dry_run {
        return dry_run(args, &settings, &selector);
    }
    if let Some(limit) = args.throttle {
        settings.mirror.throttled_rate = Some(limit);
        settings.mirror.throttled = ThrottledPartitions::All;
    }
    let named: Vec<String> = selector.literal_names().map(str::to_owned).collect();
    let config = JobConfig {
        log_dir: args.to.clone(),
        mirror: settings.mirror,
        bootstrap: settings.bootstrap,
        selector,
        shards: args.shards.unwrap_or_else(default_shards).into(),
        follow: args.follow,
        stop_within: STOP_WITHIN,
    };
    let mut meter = Meter::new("mirror");
    let notes = meter.notes();
    let mut next_json = Instant::now() + JSON_EVERY;
    let mut show = |status: &Status| {
        if !args.json {
            show_status(&mut meter, status);
        } else if Instant::now() >= next_json {
            next_json = Instant::now() + JSON_EVERY;
            // A reader that has gone is noticed at the end.
            let _ = say(progress_json(status).to_string());
        }
        Next::GoOn
    };
    let finished = run_job(config, args.metrics, &notes, &mut show);
    meter.done();
    let finished = finished?;
    let missing = not_there(&finished.report.status, named);
    if args.json {
        let mut out = summary_json(&finished, &args.to);
        if let Value::Object(fields) = &mut out {
            fields.insert("topicsNotThere".to_owned(), json!(missing));
        }
        say(out.to_string())?;
    } else {
        summary(&finished, &args.to)?;
        for topic in missing {
            say(format!("not copied: {topic}: not there, or not shown to this client"))?;
        }
    }
    Ok(is_success(&finished))
}

/// Topics of these names that the source has not shown; none if it never answered.
fn not_there(status: &Status, mut named: Vec<String>) -> Vec<String> {
    if status.partitions.is_empty() {
        return Vec::new();
    }
    named.retain(|name| {
        !status.partitions.iter().any(|partition| *partition.partition.topic == **name)
            && !status.refused.iter().any(|(topic, _)| **topic == **name)
    });
    named
}

/// Reads a rate such as `50M`.
pub(crate) fn bytes_per_second(text: &str) -> Result<u64, String> {
    let refused =
        || format!("{text:?} is no rate; want a number of bytes, such as 50000000 or 50M");
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k' | 'K')) => (text.get(..at), 1_000),
        Some((at, 'M')) => (text.get(..at), 1_000_000),
        Some((at, 'G')) => (text.get(..at), 1_000_000_000),
        _ => (Some(text), 1),
    };
    let number: Option<u64> = digits.and_then(|digits| digits.parse().ok());
    number.and_then(|number| number.checked_mul(unit)).filter(|rate| *rate > 0).ok_or_else(refused)
}

/// Whether nothing needs an operator.
pub(crate) fn is_success(finished: &Finished) -> bool {
    let report = &finished.report;
    report.ended != Ended::Aborted
        && report.status.totals.failed == 0
        && finished.shard_errors.is_empty()
}

/// The status as a bar, or as a line now and then.
pub(crate) fn show_status(meter: &mut Meter, status: &Status) {
    let totals = &status.totals;
    let seconds = totals.bytes_per_second / 1e6;
    let mut text = format!(
        "{} at {seconds:.0} MB/s, {} of {} partitions in step, lag {} records, {}, {}",
        size(totals.bytes_appended),
        totals.caught_up,
        totals.partitions,
        totals.lag_records,
        size(totals.lag_bytes),
        span(totals.lag),
    );
    if totals.failed > 0 {
        let _ = write!(text, ", {} FAILED", totals.failed);
    }
    if status.phase == JobPhase::Copying
        && let Some(eta) = totals.eta()
    {
        // Writing to a string cannot fail.
        let _ = write!(text, ", {} to go", span(eta));
    }
    if status.phase == JobPhase::Stopping {
        text.push_str(", stopping");
    }
    if status.parked {
        text.push_str(", waiting for room on the disk");
    }
    if let Some((why, since)) = &status.source_trouble {
        let _ = write!(text, ", source failing for {}: {why}", span(*since));
    }
    let all = totals.bytes_appended.saturating_add(totals.lag_bytes);
    meter.show(totals.bytes_appended, all, &text);
}

/// What happened, on standard output.
fn summary(finished: &Finished, dir: &Path) -> Result<(), Failure> {
    let status = &finished.report.status;
    let totals = &status.totals;
    say(format!(
        "{}: {} in {} copied in {} ({}), {}; {}",
        match finished.report.ended {
            Ended::CaughtUp if totals.failed > 0 => "copied what could be copied",
            Ended::CaughtUp => "caught up",
            Ended::Stopped => "stopped",
            Ended::Aborted => "ABORTED",
        },
        size(totals.bytes_appended),
        counted(totals.partitions, "partition"),
        span(status.elapsed),
        rate(totals.bytes_appended, status.elapsed),
        match totals.partitions.saturating_sub(totals.caught_up) {
            0 => "none behind".to_owned(),
            behind => format!("{behind} behind by {} records", totals.lag_records),
        },
        if finished.report.clean { "clean stop" } else { "the next start recovers" },
    ))?;
    if let Some(bound) = status.shards.stats.spent.bound() {
        say(format!("bound by the {bound}"))?;
    }
    for (topic, why) in &status.refused {
        say(format!("not copied: {topic}: {why}"))?;
    }
    for partition in failed(status).take(LISTED) {
        let why = partition.trouble.as_ref().map_or("unknown", |(why, _)| why);
        say(format!("FAILED {} at offset {}: {why}", partition.partition, partition.log_end))?;
    }
    let gaps = gaps_of(dir);
    for gap in gaps.iter().rev().take(LISTED) {
        let what = match gap.kind {
            GapKind::Gap => "gap",
            GapKind::Truncation => "truncation",
        };
        let (partition, from, to) = (&gap.partition, gap.from, gap.to);
        let time = utc::format(gap.time);
        say(format!("{what}: {partition}: offsets {from} to {to}, {time}: {}", gap.reason))?;
    }
    if let Some(more) = gaps.len().checked_sub(LISTED).filter(|more| *more > 0) {
        say(format!("and {more} older ones in {}", dir.join(names::MIRROR_GAPS).display()))?;
    }
    for error in &finished.shard_errors {
        say(format!("FAILED shard: {error}"))?;
    }
    Ok(())
}

fn failed(status: &Status) -> impl Iterator<Item = &heliostat_io::control::PartitionStatus> {
    status.partitions.iter().filter(|partition| partition.state == PartitionState::Failed)
}

/// What the copy is known to lack; nothing if the file cannot be read, which the job has
/// said by then.
fn gaps_of(dir: &Path) -> Vec<GapRecord> {
    let bytes = fs::read(dir.join(names::MIRROR_GAPS)).unwrap_or_default();
    GapFile::decode(&bytes).map(|file| file.records).unwrap_or_default()
}

fn progress_json(status: &Status) -> Value {
    let totals = &status.totals;
    json!({
        "type": "progress",
        "phase": format!("{:?}", status.phase).to_lowercase(),
        "elapsedSeconds": status.elapsed.as_secs_f64(),
        "partitions": totals.partitions,
        "caughtUp": totals.caught_up,
        "failed": totals.failed,
        "bytesAppended": totals.bytes_appended,
        "bytesPerSecond": totals.bytes_per_second,
        "lagRecords": totals.lag_records,
        "lagBytes": totals.lag_bytes,
        "lagSeconds": totals.lag.as_secs_f64(),
        "etaSeconds": totals.eta().map(|eta| eta.as_secs_f64()),
        "gaps": totals.gaps,
        "truncations": totals.truncations,
        "sourceTrouble": status.source_trouble.as_ref().map(|(why, _)| &**why),
        "parked": status.parked,
        "boundBy": status.shards.stats.spent.bound().map(|bound| bound.name()),
    })
}

fn summary_json(finished: &Finished, dir: &Path) -> Value {
    let status = &finished.report.status;
    let failed: Vec<_> = failed(status)
        .map(|partition| {
            json!({
                "topic": &*partition.partition.topic,
                "partition": partition.partition.partition,
                "logEndOffset": partition.log_end.0,
                "reason": partition.trouble.as_ref().map(|(why, _)| &**why),
            })
        })
        .collect();
    let gaps: Vec<_> = gaps_of(dir)
        .iter()
        .map(|gap| {
            json!({
                "kind": if gap.kind == GapKind::Gap { "gap" } else { "truncation" },
                "topic": &*gap.partition.topic,
                "partition": gap.partition.partition,
                "from": gap.from.0,
                "to": gap.to.0,
                "time": utc::format(gap.time),
                "reason": &*gap.reason,
            })
        })
        .collect();
    let mut out = progress_json(status);
    if let Value::Object(fields) = &mut out {
        fields.insert("type".to_owned(), json!("summary"));
        let ended = match finished.report.ended {
            Ended::CaughtUp => "caughtUp",
            Ended::Stopped => "stopped",
            Ended::Aborted => "aborted",
        };
        // Of the whole run; that of a moment has ended with it.
        let per_second =
            approximate(status.totals.bytes_appended) / status.elapsed.as_secs_f64().max(1e-3);
        fields.insert("bytesPerSecond".to_owned(), json!(per_second.round()));
        fields.insert("ended".to_owned(), json!(ended));
        fields.insert("clean".to_owned(), json!(finished.report.clean));
        fields.insert("success".to_owned(), json!(is_success(finished)));
        fields.insert("failedPartitions".to_owned(), json!(failed));
        fields.insert("gapRecords".to_owned(), json!(gaps));
        fields.insert("shardErrors".to_owned(), json!(finished.shard_errors));
    }
    out
}

/// Lists what would be copied; `false` if nothing would.
fn dry_run(
    args: &MirrorArgs,
    settings: &SourceSettings,
    selector: &TopicSelector,
) -> Result<bool, Failure> {
    let found = survey(&settings.client(), selector)?;
    let selected = || found.topics.iter().filter(|topic| topic.selection.is_selected());
    if args.json {
        say(dry_run_json(&found).to_string())?;
    } else {
        print_plan(args, &found, selector)?;
    }
    if selected().next().is_none() {
        let remedy = "check the patterns (they are anchored), and this client's rights";
        return Err(Failure::new("no topic of the source is to be copied").remedy(remedy));
    }
    Ok(true)
}

fn print_plan(args: &MirrorArgs, found: &Survey, selector: &TopicSelector) -> Result<(), Failure> {
    for topic in &found.topics {
        let name = &topic.identity.name;
        if let Some(why) = topic.selection.refusal() {
            say(format!("{name:40} refused: {why}"))?;
            continue;
        }
        let (partitions, offsets) = (topic.partitions.len(), topic.offsets());
        let bytes = size(topic.bytes());
        say(format!("{name:40} {partitions:4} partitions {offsets:12} offsets, about {bytes}"))?;
        for partition in &topic.partitions {
            if let Some(trouble) = &partition.trouble {
                say(format!("  partition {}: {trouble}", partition.index))?;
            }
        }
    }
    for name in selector.literal_names() {
        if !found.topics.iter().any(|topic| &*topic.identity.name == name) {
            say(format!("{name:40} not there, or not shown to this client"))?;
        }
    }
    for fact in source_facts(found, Some(&args.to)) {
        if !fact.remedy.is_empty() {
            say(format!("{}: {}: {} -> {}", fact.name, fact.value, fact.meaning, fact.remedy))?;
        }
    }
    let selected: Vec<_> =
        found.topics.iter().filter(|topic| topic.selection.is_selected()).collect();
    let bytes: u64 = selected.iter().map(|topic| topic.bytes()).sum();
    let partitions: usize = selected.iter().map(|topic| topic.partitions.len()).sum();
    say(format!(
        "would copy {} topics, {partitions} partitions, about {}; nothing was written",
        selected.len(),
        size(bytes),
    ))
}

fn dry_run_json(found: &Survey) -> Value {
    let topics: Vec<_> = found
        .topics
        .iter()
        .map(|topic| {
            let partitions: Vec<_> = topic
                .partitions
                .iter()
                .map(|partition| {
                    json!({
                        "partition": partition.index,
                        "startOffset": partition.start.map(|offset| offset.0),
                        "endOffset": partition.end.map(|offset| offset.0),
                        "bytesEstimate": partition.bytes,
                        "trouble": partition.trouble,
                    })
                })
                .collect();
            json!({
                "topic": &*topic.identity.name,
                "topicId": topic.identity.id.known().map(|id| id.to_string()),
                "refused": topic.selection.refusal(),
                "partitions": partitions,
            })
        })
        .collect();
    let milliseconds = found.round_trip.as_secs_f64() * 1e3;
    json!({ "clusterId": found.cluster_id, "roundTripMs": milliseconds, "topics": topics })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_units() {
        assert_eq!(bytes_per_second("1500"), Ok(1_500));
        assert_eq!(bytes_per_second("50M"), Ok(50_000_000));
        assert_eq!(bytes_per_second("2k"), Ok(2_000));
        for bad in ["", "0", "M", "-1", "1T", "99999999999G", "1.5M"] {
            assert!(bytes_per_second(bad).is_err(), "{bad}");
        }
    }
}
