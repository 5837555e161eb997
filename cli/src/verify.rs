//! `heliostat verify`

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use heliostat_core::log::gaps::GapKind;
use heliostat_core::log::utc;
use heliostat_core::select::TopicSelector;
use heliostat_io::verify::{
    Difference, Outcome, PartitionReport, Progress, Report, VerifyOptions, Why, verify,
};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::output::{Meter, rate, say, size, span};
use crate::source_args::SourceArgs;

/// Ranges that are listed of one partition; the rest is counted.
const RANGES_SHOWN: usize = 20;

const AFTER_HELP: &str = "\
The .log files are compared byte for byte: offsets, leader epochs, batches. Indexes are not;
`heliostat dump-log --index-sanity-check` checks them. Of a range of offsets that is printed, the
end is exclusive. A log that ends below its recovery point, or is not there any more, counts as
different. A mirror may be running.";

/// Arguments of `verify`.
#[derive(Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    source: SourceArgs,

    /// Log dir of the copy.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,

    /// Only these topics of the copy; regular expressions, commas between several.
    #[arg(long, value_name = "REGEX")]
    topics: Option<String>,

    /// Fail too where the source has cleaned or trimmed what was copied.
    #[arg(long)]
    strict: bool,

    /// Do not decode records; bytes and checksums are compared all the same.
    #[arg(long)]
    skip_content: bool,

    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Compares copy and source; `false` if they do not agree.
pub(crate) fn run(args: &VerifyArgs) -> Result<bool, Failure> {
    let settings = args.source.load()?.required()?;
    let topics = args.topics.as_ref().map(|topics| TopicSelector::new(topics, ""));
    let topics = topics.transpose().map_err(|error| Failure::from_error("--topics", error))?;
    let options = VerifyOptions {
        source: settings.client(),
        dir: args.dir.clone(),
        topics,
        check_content: !args.skip_content,
    };
    let start = Instant::now();
    let report = verify_with_meter(&options)?;
    if args.json {
        say(as_json(&report, args.strict).to_string())?;
    } else {
        for partition in &report.partitions {
            say(describe(partition).trim_end())?;
        }
        say(summary(&report, start.elapsed()))?;
    }
    Ok(report.agrees(args.strict))
}

/// Compares, with progress on standard error.
pub(crate) fn verify_with_meter(options: &VerifyOptions) -> Result<Report, Failure> {
    let mut meter = Meter::new("verify");
    let start = Instant::now();
    let mut show = |progress: &Progress| {
        let text = format!(
            "{} of {} partitions, {}, {} {}",
            progress.partitions_done,
            progress.partitions,
            size(progress.bytes_done),
            rate(progress.bytes_done, start.elapsed()),
            progress.current.as_deref().unwrap_or_default(),
        );
        meter.show(progress.bytes_done, progress.bytes, &text);
    };
    let report = verify(options, &mut show);
    meter.done();
    report.map_err(|error| Failure::from_error("verify", error))
}

/// One line that says how it went.
pub(crate) fn summary(report: &Report, time: Duration) -> String {
    let count = |is: fn(&Outcome) -> bool| {
        report.partitions.iter().filter(|partition| is(&partition.outcome)).count()
    };
    let bytes = report.partitions.iter().map(|partition| partition.bytes).sum();
    let batches: u64 = report.partitions.iter().map(|partition| partition.batches).sum();
    let behind: u64 = report.partitions.iter().filter_map(known_behind).sum();
    let behind = match behind {
        0 => String::new(),
        behind => format!("; {behind} records behind the source"),
    };
    let different = count(|outcome| matches!(outcome, Outcome::Different(_)));
    format!(
        "{}: {} partitions: {} equal, {} superseded, {different} different; {batches} batches, {} \
         compared in {} ({}){behind}",
        if different == 0 { "verified" } else { "NOT IDENTICAL" },
        report.partitions.len(),
        count(|outcome| *outcome == Outcome::Equal),
        count(|outcome| *outcome == Outcome::Superseded),
        size(bytes),
        span(time),
        rate(bytes, time),
    )
}

fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Equal => "equal",
        Outcome::Superseded => "superseded",
        Outcome::Different(_) => "different",
    }
}

/// How far behind the copy is; `None` where a difference ended the walk, and the rest was not
/// read.
fn known_behind(report: &PartitionReport) -> Option<u64> {
    (!matches!(report.outcome, Outcome::Different(_))).then(|| report.behind())
}

/// A line for the partition, and one for each thing worth knowing of it.
pub(crate) fn describe(report: &PartitionReport) -> String {
    let (name, word) = (report.partition.to_string(), word(&report.outcome));
    let (start, end) = (report.copy_start, report.copy_end);
    let mut out = format!("{name:32} {word:10}");
    // Where the topic is another one, nothing was read.
    if report.copy_end.0 >= 0 {
        let _ = write!(out, " offsets {start} to {end}, {}", size(report.bytes));
    }
    if let Some(behind) = known_behind(report).filter(|behind| *behind > 0) {
        let _ = write!(out, ", {behind} records behind the source");
    }
    out.push('\n');
    if let Outcome::Different(found) = &report.outcome {
        let _ = writeln!(out, "  {}", difference(found));
    }
    for range in report.superseded.iter().take(RANGES_SHOWN) {
        let why = why(range.why);
        let (from, to, records) = (range.from, range.to, range.records);
        let _ =
            writeln!(out, "  {why}: offsets {from} to {to}, {records} records in the copy only");
    }
    if let Some(more) = report.superseded.len().checked_sub(RANGES_SHOWN).filter(|more| *more > 0) {
        let _ = writeln!(out, "  and {more} more ranges");
    }
    for gap in &report.gaps {
        let what = match gap.kind {
            GapKind::Gap => "known gap",
            GapKind::Truncation => "was cut",
        };
        let (from, to, time) = (gap.from, gap.to, utc::format(gap.time));
        let _ = writeln!(out, "  {what}: offsets {from} to {to}, {time}: {}", gap.reason);
    }
    for warning in &report.warnings {
        let _ = writeln!(out, "  warning: {warning}");
    }
    out
}

fn why(why: Why) -> &'static str {
    match why {
        Why::Trimmed => "trimmed at the source since",
        Why::Cleaned => "cleaned at the source since",
    }
}

/// The first difference, on one line.
fn difference(found: &Difference) -> String {
    let mut out = String::from("first difference");
    if let Some(offset) = found.offset {
        let _ = write!(out, " at offset {offset}");
    }
    let _ = write!(out, ": {}: copy {}, source {}", found.field, found.copy, found.source);
    if let Some(place) = &found.place {
        let _ = write!(out, " ({place})");
    }
    if !found.meaning.is_empty() {
        let _ = write!(out, "; {}", found.meaning);
    }
    out
}

fn as_json(report: &Report, strict: bool) -> Value {
    let partitions: Vec<_> = report.partitions.iter().map(partition_json).collect();
    json!({ "agrees": report.agrees(strict), "partitions": partitions })
}

fn partition_json(report: &PartitionReport) -> Value {
    let first = match &report.outcome {
        Outcome::Different(found) => json!({
            "offset": found.offset.map(|offset| offset.0),
            "field": found.field,
            "copy": found.copy,
            "source": found.source,
            "place": found.place,
            "meaning": found.meaning,
        }),
        Outcome::Equal | Outcome::Superseded => Value::Null,
    };
    let superseded = report.superseded.iter().map(|range| {
        let why = match range.why {
            Why::Trimmed => "trimmed",
            Why::Cleaned => "cleaned",
        };
        json!({ "why": why, "from": range.from.0, "to": range.to.0, "records": range.records })
    });
    let gaps = report.gaps.iter().map(|gap| {
        let kind = match gap.kind {
            GapKind::Gap => "gap",
            GapKind::Truncation => "truncation",
        };
        let time = utc::format(gap.time);
        json!({ "kind": kind, "from": gap.from.0, "to": gap.to.0, "time": time, "reason": &*gap.reason })
    });
    json!({
        "topic": &*report.partition.topic,
        "partition": report.partition.partition,
        "result": word(&report.outcome),
        "copyStartOffset": report.copy_start.0,
        "copyEndOffset": report.copy_end.0,
        "sourceStartOffset": report.source_start.0,
        "sourceEndOffset": report.source_end.0,
        "behindRecords": report.behind(),
        "batches": report.batches,
        "bytes": report.bytes,
        "firstDifference": first,
        "superseded": superseded.collect::<Vec<_>>(),
        "gaps": gaps.collect::<Vec<_>>(),
        "warnings": report.warnings,
    })
}

#[cfg(test)]
mod tests {
    use heliostat_core::types::{Offset, TopicPartition};

    use super::*;

    #[test]
    fn a_difference_is_one_line_with_both_values() {
        let found = Difference {
            offset: Some(Offset(7)),
            field: "value".to_owned(),
            copy: "0x01".to_owned(),
            source: "0x00".to_owned(),
            place: Some("/x/0.log at byte 99".to_owned()),
            meaning: "why".to_owned(),
        };
        assert_eq!(
            difference(&found),
            "first difference at offset 7: value: copy 0x01, source 0x00 (/x/0.log at byte 99); why"
        );
    }

    fn report(outcome: Outcome, copy_end: i64, source_end: i64) -> PartitionReport {
        PartitionReport {
            partition: TopicPartition::new("t", 0),
            outcome,
            copy_start: Offset(copy_end.min(0)),
            copy_end: Offset(copy_end),
            source_start: Offset(source_end.min(0)),
            source_end: Offset(source_end),
            batches: 0,
            bytes: 0,
            superseded: Vec::new(),
            warnings: Vec::new(),
            gaps: Vec::new(),
        }
    }

    #[test]
    fn the_summary_says_how_far_behind_the_copy_is() {
        let partitions = vec![report(Outcome::Equal, 30, 40), report(Outcome::Superseded, 30, 35)];
        let text = summary(&Report { partitions }, Duration::from_secs(1));
        assert!(text.ends_with("; 15 records behind the source"), "{text}");
        let partitions = vec![report(Outcome::Equal, 40, 40)];
        let text = summary(&Report { partitions }, Duration::from_secs(1));
        assert!(!text.contains("behind"), "{text}");
    }

    #[test]
    fn a_partition_that_was_not_read_has_no_offsets() {
        let other = Outcome::Different(Box::new(Difference {
            field: "topic ID".to_owned(),
            ..Difference::default()
        }));
        let text = describe(&report(other, -1, -1));
        assert!(text.contains("topic ID") && !text.contains("-1"), "{text}");
        assert!(describe(&report(Outcome::Equal, 40, 40)).contains("offsets 0 to 40,"));
    }
}
