//! What a benchmark prints. A figure without its host, version and command is none.

use heliostat_core::engine::spent::TimeSpent;
use serde_json::{Value, json};

use super::args::BenchArgs;
use super::facts::Facts;
use super::figures::{Figures, Latency, Round, Sum};
use super::lap::LapEnd;
use super::path::Path;
use crate::failure::Failure;
use crate::output::{approximate, counted, say, size, span};

/// All that a report is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Report<'a> {
    pub(super) args: &'a BenchArgs,
    pub(super) facts: &'a Facts,
    pub(super) figures: &'a Figures,
    pub(super) path: Option<&'a Path>,
}

impl Report<'_> {
    /// A table for people: a line a variant.
    pub(super) fn table(&self) -> Result<(), Failure> {
        let Self { args, facts, figures, .. } = self;
        say(format!("heliostat {}, commit {}", facts.version, facts.commit))?;
        say(format!("host:      {}; Linux {}", facts.host, facts.kernel))?;
        say(format!("source:    {}", facts.source))?;
        say(format!("copy:      {}, {}", facts.place, counted(args.shards().into(), "shard")))?;
        say(format!("measured:  {}", self.measured()))?;
        say("")?;
        let indent = self.names().iter().map(String::len).max().unwrap_or(0);
        let (one, two) = if indent == 0 { ("", "") } else { ("", "append   fetch bytes") };
        say(format!(
            "{one:indent$}            CPU     fetch latency, ms       append latency, ms"
        ))?;
        say(format!(
            "{two:indent$}    MB/s   s/GB    p50    p99  p99.9      p50    p99  p99.9   bound by"
        ))?;
        for (index, (sum, name)) in figures.sums.iter().zip(self.names()).enumerate() {
            let (fetch, append) = (Latency::of(&sum.fetch_us), Latency::of(&sum.append_us));
            let ms = |latency: Latency| {
                let of = |us| approximate(us) / 1e3;
                let (p50, p99, p999) = (latency.p50, latency.p99, latency.p999);
                format!("{:6.1} {:6.1} {:6.1}", of(p50), of(p99), of(p999))
            };
            say(format!(
                "{name:indent$}  {:6.0} {:6.3} {}   {}   {}",
                figures.median(index, Round::megabytes_per_second),
                figures.median(index, Round::cpu_seconds_per_gigabyte),
                ms(fetch),
                ms(append),
                bound(&sum.spent),
            ))?;
        }
        say("")?;
        let mut bounds: Vec<_> = figures.sums.iter().filter_map(|sum| sum.spent.bound()).collect();
        bounds.dedup();
        for bound in bounds {
            say(bound.to_string())?;
        }
        say("fetch: from a Fetch sent to the first byte of its answer")?;
        say("append: from the first byte of a write received to the write complete")?;
        say("MB/s: from the first connection to everything durable on the disk")?;
        self.path.map_or(Ok(()), Path::say)
    }

    /// How often, how much, and what ended it.
    pub(super) fn measured(&self) -> String {
        let Figures { sums, rounds, .. } = self.figures;
        let count = sums.iter().map(|sum| sum.rounds).sum::<u64>();
        let bytes = sums.iter().map(|sum| sum.bytes).sum::<u64>();
        let took = sums.iter().map(|sum| sum.took).sum();
        let count = counted(usize::try_from(count).unwrap_or(usize::MAX), "round");
        let mut text = format!("{} in {}, {count}", size(bytes), span(took));
        let several = sums.iter().any(|sum| sum.rounds > 1);
        if several {
            text.push_str(", medians of whole ones");
        }
        let ends = rounds.iter().map(|round| round.ended);
        for end in [LapEnd::CaughtUp, LapEnd::Bytes, LapEnd::Time, LapEnd::NoRoom, LapEnd::Asked] {
            let count = ends.clone().filter(|&it| it == end).count();
            let why = match end {
                LapEnd::CaughtUp => "copied all that the source had",
                LapEnd::Bytes => "ended by --bytes",
                LapEnd::Time => "ended by --seconds",
                LapEnd::NoRoom => "ended because the disk is nearly full",
                LapEnd::Asked => "ended by Ctrl-C",
            };
            if count > 0 {
                let count = if rounds.len() == 1 { String::new() } else { format!("{count} ") };
                text += &["; ", count.as_str(), why].concat();
            }
        }
        text
    }

    /// What tells the variants apart; nothing of a single one.
    pub(super) fn names(&self) -> Vec<String> {
        let sums = &self.figures.sums;
        let name =
            |sum: &Sum| format!("{:8} {:>11}", sum.variant.append.name(), sum.variant.fetch_bytes);
        sums.iter().map(|sum| if sums.len() == 1 { String::new() } else { name(sum) }).collect()
    }

    /// Every round, raw.
    pub(super) fn json(&self, kind: &str) -> Value {
        let Self { args, facts, figures, path } = self;
        let series: Vec<_> = figures
            .series
            .points()
            .iter()
            .map(|point| {
                json!([
                    point.from.as_secs_f64(),
                    point.to.as_secs_f64(),
                    point.bytes,
                    point.cpu.as_secs_f64(),
                    point.variant
                ])
            })
            .collect();
        json!({
            "type": kind,
            "version": facts.version,
            "commit": facts.commit,
            "host": facts.host,
            "kernel": facts.kernel,
            "tcp_congestion_control": facts.congestion,
            "command": facts.command,
            "time": facts.time,
            "source": facts.source,
            "copy": facts.place,
            "partitions": (!args.is_of_a_cluster()).then_some(args.partitions),
            "batch_bytes": (!args.is_of_a_cluster()).then_some(args.batch_bytes),
            "shards": args.shards(),
            "path": path.map(Path::json),
            "rounds": figures.rounds.iter().map(|round| self.round_json(round)).collect::<Vec<_>>(),
            "variants": (0..figures.sums.len()).map(|index| self.sum_json(index)).collect::<Vec<_>>(),
            "series_fields": ["from_seconds", "to_seconds", "bytes", "cpu_seconds", "variant"],
            "series": series,
        })
    }

    fn round_json(&self, round: &Round) -> Value {
        let variant = self.figures.sums.get(round.variant).map(|sum| sum.variant);
        json!({
            "round": round.number,
            "append.direct": variant.map(|variant| variant.append.value()),
            "mirror.fetch.max.bytes": variant.map(|variant| variant.fetch_bytes),
            "ended": round.ended.name(),
            "bytes": round.bytes,
            "seconds": round.took.as_secs_f64(),
            "cpu_seconds": round.cpu.as_secs_f64(),
            "copied_bytes": round.copied_bytes,
            "fetch_us": latency_json(round.fetch),
            "append_us": latency_json(round.append),
            "bound": round.spent.bound().map(|bound| bound.name()),
            "spent_seconds": spent_json(&round.spent),
        })
    }

    fn sum_json(&self, index: usize) -> Value {
        let figures = self.figures;
        let Some(sum) = figures.sums.get(index) else { return Value::Null };
        json!({
            "append.direct": sum.variant.append.value(),
            "mirror.fetch.max.bytes": sum.variant.fetch_bytes,
            "rounds": sum.rounds,
            "bytes": sum.bytes,
            "seconds": sum.took.as_secs_f64(),
            "cpu_seconds": sum.cpu.as_secs_f64(),
            "megabytes_per_second": figures.median(index, Round::megabytes_per_second),
            "cpu_seconds_per_gigabyte": figures.median(index, Round::cpu_seconds_per_gigabyte),
            "fetch_us": latency_json(Latency::of(&sum.fetch_us)),
            "append_us": latency_json(Latency::of(&sum.append_us)),
            "bound": sum.spent.bound().map(|bound| bound.name()),
            "spent_seconds": spent_json(&sum.spent),
            "disconnects": sum.disconnects,
            "gaps": sum.gaps,
            "truncations": sum.truncations,
        })
    }
}

/// One word.
pub(super) fn bound(spent: &TimeSpent) -> &'static str {
    spent.bound().map_or("-", |bound| bound.name())
}

fn latency_json(latency: Latency) -> Value {
    json!({ "p50": latency.p50, "p99": latency.p99, "p999": latency.p999 })
}

fn spent_json(spent: &TimeSpent) -> Value {
    json!({
        "source": spent.waiting.as_secs_f64(),
        "network": spent.receiving.as_secs_f64(),
        "disk": spent.stalled.as_secs_f64(),
        "throttle": spent.throttled.as_secs_f64(),
    })
}
