//! Prometheus' text format, as far as it is written here.

use std::fmt::{Display, Write as _};
use std::time::Duration;

use hdrhistogram::Histogram;

/// Every name begins so.
const PREFIX: &str = "heliostat_";
/// Upper ends of the buckets of latencies, inclusive, in microseconds.
const BUCKETS_US: [u64; 14] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Only grows.
    Counter,
    /// Goes both ways.
    Gauge,
    /// Counts by upper ends.
    Histogram,
    /// Percentiles.
    Summary,
}

/// A text that grows.
#[derive(Debug, Default)]
pub(crate) struct Text(String);

impl Text {
    /// Begins a metric; its samples follow.
    pub(crate) fn head(&mut self, name: &str, kind: Kind, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}");
    }

    /// One sample.
    pub(crate) fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(PREFIX);
        self.0.push_str(name);
        for (index, (label, value)) in labels.iter().enumerate() {
            self.0.push(if index == 0 { '{' } else { ',' });
            self.0.push_str(label);
            self.0.push_str("=\"");
            escape(&mut self.0, value);
            self.0.push('"');
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    /// The samples of a histogram of microseconds, in seconds. Its sum is as exact as its slots.
    pub(crate) fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        histogram: &Histogram<u64>,
    ) {
        let bucket = format!("{name}_bucket");
        for end in BUCKETS_US {
            let count = histogram.count_between(0, end);
            let end = Duration::from_micros(end).as_secs_f64().to_string();
            self.line(&bucket, &[labels, &[("le", &end)]].concat(), count);
        }
        self.line(&bucket, &[labels, &[("le", "+Inf")]].concat(), histogram.len());
        let us = histogram.iter_recorded().fold(0_u64, |sum, slot| {
            let middle = histogram.median_equivalent(slot.value_iterated_to());
            sum.saturating_add(middle.saturating_mul(slot.count_at_value()))
        });
        self.line(&format!("{name}_sum"), labels, Duration::from_micros(us).as_secs_f64());
        self.line(&format!("{name}_count"), labels, histogram.len());
    }

    /// All of it.
    pub(crate) fn finish(self) -> String {
        self.0
    }
}

/// Names of mirrors and topics need it no more than legal ones do; reasons may hold anything.
fn escape(out: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => out.push_str(r"\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str(r"\n"),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut text = Text::default();
        text.head("x", Kind::Gauge, "Some");
        text.line("x", &[("a", "q\"b\\c\nd"), ("b", "")], 1.5);
        text.line("x", &[], 7);
        let want = "# HELP heliostat_x Some\n# TYPE heliostat_x gauge\n\
                    heliostat_x{a=\"q\\\"b\\\\c\\nd\",b=\"\"} 1.5\nheliostat_x 7\n";
        assert_eq!(text.finish(), want);
    }

    #[test]
    fn buckets_add_up() {
        let mut histogram = Histogram::new_with_max(60_000_000, 2).unwrap();
        for us in [400, 900, 900, 30_000_000] {
            histogram.record(us).unwrap();
        }
        let mut text = Text::default();
        text.histogram("x", &[("m", "a")], &histogram);
        let text = text.finish();
        for line in [
            "heliostat_x_bucket{m=\"a\",le=\"0.0005\"} 1",
            "heliostat_x_bucket{m=\"a\",le=\"0.001\"} 3",
            "heliostat_x_bucket{m=\"a\",le=\"10\"} 3",
            "heliostat_x_bucket{m=\"a\",le=\"+Inf\"} 4",
            "heliostat_x_count{m=\"a\"} 4",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line} in {text}");
        }
        let sum = text.lines().find_map(|line| line.strip_prefix("heliostat_x_sum{m=\"a\"} "));
        let sum: f64 = sum.unwrap().parse().unwrap();
        assert!((sum - 30.0).abs() < 0.5, "{sum}");
    }
}
