//! `--forever`: copies until Ctrl-C, in bounded room.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use heliostat_io::control::Status;
use serde_json::{Value, json};

use super::Bench;
use super::figures::Figures;
use super::lap::{LapEnd, Limits, Look};
use super::report::bound;
use super::stop::Stop;
use crate::failure::Failure;
use crate::output::{Meter, approximate, say, size, span};
use crate::process::resident_memory;

/// Copies in a row that may fail.
const FAILURES_MAX: u32 = 100;
/// Time between two looks for Ctrl-C where no job hears it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// What was shown last: sums of all copies so far.
#[derive(Debug)]
struct Shown {
    /// Since the start.
    at: Duration,
    bytes: u64,
    fetch_us: Histogram<u64>,
    append_us: Histogram<u64>,
}

/// One line.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    elapsed: Duration,
    lap: u64,
    megabytes_per_second: f64,
    bytes: u64,
    lag_records: u64,
    lag: Duration,
    fetch_p50_us: u64,
    fetch_p99_us: u64,
    append_p50_us: u64,
    append_p99_us: u64,
    disconnects: u64,
    gaps: u64,
    resident: u64,
    bound: &'static str,
}

/// Copies again and again.
pub(super) fn run(bench: &Bench<'_>) -> Result<Figures, Failure> {
    let args = bench.args;
    let mut figures = Figures::new(bench.variants.get(..1).unwrap_or_default());
    let limits = Limits { bytes: bench.origin.copy_bytes, until: None };
    if !args.json {
        say(format!("soak of: {}; ends with Ctrl-C", bench.origin.text))?;
        say(HEAD)?;
    }
    let mut shown = Shown::nothing(bench.begun.elapsed());
    let mut next = bench.begun.elapsed() + args.every();
    let mut failures = 0;
    for number in 0.. {
        let notes = Meter::new("bench").event_notes();
        let mut unwritable = None;
        let lap = bench.lap(&mut figures, limits, (0, number), &notes, &mut |look, figures| {
            let now = bench.begun.elapsed();
            if now >= next {
                // Late ones are left out, not made up for.
                next = now + args.every();
                let line = shown.line(now, number, look, figures);
                let told = if args.json { say(line.json().to_string()) } else { say(line.text()) };
                unwritable = unwritable.take().or(told.err());
            }
        });
        if let Some(error) = unwritable {
            return Err(error);
        }
        match lap {
            Ok(lap) if lap.ended == LapEnd::NoRoom => return Ok(figures),
            Ok(_) => failures = 0,
            // A source may be away for a while; the first copy tells a wrong name from that.
            Err(error) if number == 0 || failures >= FAILURES_MAX => return Err(error),
            Err(error) => {
                failures += 1;
                notes.note(&format!("copy {number}: {error}; begun anew"));
                wait(args.every(), bench.stop);
            }
        }
        if bench.stop.is_asked_for() {
            break;
        }
    }
    Ok(figures)
}

/// Waits, but not for longer than wanted.
fn wait(time: Duration, stop: &Stop) {
    let begun = Instant::now();
    while begun.elapsed() < time && !stop.is_asked_for() {
        std::thread::park_timeout(LOOK_EVERY);
    }
}

const HEAD: &str = "    time  copy   MB/s    held  lag records   lag    fetch p50/p99 ms  append \
                    p50/p99 ms  reconnects  gaps      RSS  bound by";

impl Shown {
    fn nothing(at: Duration) -> Self {
        let empty = Status::default().shards;
        let (fetch_us, append_us) = (empty.fetch_latency_us, empty.append_latency_us);
        Self { at, bytes: 0, fetch_us, append_us }
    }

    /// What is new since the last line.
    fn line(&mut self, now: Duration, lap: u64, look: &Look<'_>, figures: &Figures) -> Line {
        let status = look.status;
        let shards = &status.shards;
        let own = shards.stats.append.bytes_appended;
        let (mut fetch_us, mut append_us) =
            (shards.fetch_latency_us.clone(), shards.append_latency_us.clone());
        let mut bytes = own;
        let sum = figures.sums.first();
        if let Some(sum) = sum {
            bytes += sum.bytes;
            // The bounds are the same, so adding cannot fail.
            let _ = fetch_us.add(&sum.fetch_us);
            let _ = append_us.add(&sum.append_us);
        }
        let seconds = now.saturating_sub(self.at).as_secs_f64().max(1e-3);
        let new = |all: &Histogram<u64>, before: &Histogram<u64>| {
            let mut new = all.clone();
            // What was there before is in it.
            let _ = new.subtract(before);
            (new.value_at_quantile(0.5), new.value_at_quantile(0.99))
        };
        let (fetch_p50_us, fetch_p99_us) = new(&fetch_us, &self.fetch_us);
        let (append_p50_us, append_p99_us) = new(&append_us, &self.append_us);
        let gaps = u64::try_from(status.totals.gaps).unwrap_or(u64::MAX);
        let line = Line {
            elapsed: now,
            lap,
            megabytes_per_second: approximate(bytes.saturating_sub(self.bytes)) / 1e6 / seconds,
            bytes: own,
            lag_records: status.totals.lag_records,
            lag: status.totals.lag,
            fetch_p50_us,
            fetch_p99_us,
            append_p50_us,
            append_p99_us,
            disconnects: shards.stats.disconnects + sum.map_or(0, |sum| sum.disconnects),
            gaps: gaps + sum.map_or(0, |sum| sum.gaps),
            resident: resident_memory().unwrap_or(0),
            bound: bound(&shards.stats.spent),
        };
        *self = Self { at: now, bytes, fetch_us, append_us };
        line
    }
}

impl Line {
    fn text(&self) -> String {
        let ms = |us: u64| approximate(us) / 1e3;
        format!(
            "{:>8} {:>5} {:>6.0} {:>7} {:>12} {:>5} {:>10.1} / {:>6.1} {:>9.1} / {:>6.1} {:>11} {:>5} {:>8}  {}",
            span(self.elapsed),
            self.lap,
            self.megabytes_per_second,
            size(self.bytes),
            self.lag_records,
            span(self.lag),
            ms(self.fetch_p50_us),
            ms(self.fetch_p99_us),
            ms(self.append_p50_us),
            ms(self.append_p99_us),
            self.disconnects,
            self.gaps,
            size(self.resident),
            self.bound,
        )
    }

    fn json(&self) -> Value {
        json!({
            "type": "progress",
            "elapsed_seconds": self.elapsed.as_secs_f64(),
            "copy": self.lap,
            "megabytes_per_second": self.megabytes_per_second,
            "copy_bytes": self.bytes,
            "lag_records": self.lag_records,
            "lag_seconds": self.lag.as_secs_f64(),
            "fetch_us": { "p50": self.fetch_p50_us, "p99": self.fetch_p99_us },
            "append_us": { "p50": self.append_p50_us, "p99": self.append_p99_us },
            "disconnects": self.disconnects,
            "gaps": self.gaps,
            "rss_bytes": self.resident,
            "bound": self.bound,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::args::Append;
    use super::super::origin::Variant;
    use super::*;

    #[test]
    fn a_line_tells_what_is_new() {
        let figures = Figures::new(&[Variant { append: Append::Auto, fetch_bytes: 1 }]);
        let mut shown = Shown::nothing(Duration::ZERO);
        let mut status = Status::default();
        status.shards.stats.append.bytes_appended = 4_000_000;
        status.shards.append_latency_us.record_n(1_000, 100).unwrap();
        let second = Duration::from_secs(1);
        let line =
            shown.line(second * 2, 0, &Look { status: &status, cpu: Duration::ZERO }, &figures);
        assert!((line.megabytes_per_second - 2.0).abs() < 1e-9);
        assert!((990..1_010).contains(&line.append_p99_us), "{line:?}");
        status.shards.stats.append.bytes_appended = 9_000_000;
        status.shards.append_latency_us.record_n(5_000, 10).unwrap();
        let line =
            shown.line(second * 3, 0, &Look { status: &status, cpu: Duration::ZERO }, &figures);
        assert!((line.megabytes_per_second - 5.0).abs() < 1e-9);
        assert!((4_900..5_100).contains(&line.append_p50_us), "of the last second: {line:?}");
    }
}
