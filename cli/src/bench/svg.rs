//! Charts as SVG: no script, no assets; colours are the page's.

use std::fmt::Write as _;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::series::Point;
use crate::output::approximate;

/// Units of a chart: few, so that its text is readable where the page is narrow.
const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 230.0;
const LEFT: f64 = 44.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 34.0;
/// Classes of lines, one after the other.
pub(super) const COLOURS: usize = 6;
/// One in so many is the rarest that the latency chart tells apart.
const RAREST: f64 = 1e6;
/// Points of a latency curve each time that the rest is halved.
const STEPS_PER_HALF: u32 = 6;

/// A direction of a chart.
#[derive(Clone, Copy, Debug)]
struct Axis {
    from: f64,
    to: f64,
    is_log: bool,
}

impl Axis {
    fn linear(most: f64) -> Self {
        let step = step(most);
        Self { from: 0.0, to: (most / step).ceil().max(1.0) * step, is_log: false }
    }

    /// Whole decades.
    fn log(least: f64, most: f64) -> Self {
        let from = least.max(1e-9).log10().floor();
        let to = most.max(1e-9).log10().ceil().max(from + 1.0);
        Self { from: 10_f64.powf(from), to: 10_f64.powf(to), is_log: true }
    }

    /// Share of the way from its beginning to its end.
    fn at(&self, value: f64) -> f64 {
        let share = if self.is_log {
            (value.max(self.from) / self.from).log10() / (self.to / self.from).log10()
        } else {
            (value - self.from) / (self.to - self.from)
        };
        share.clamp(0.0, 1.0)
    }

    fn ticks(&self) -> Vec<f64> {
        let next =
            |value: &f64| Some(if self.is_log { value * 10.0 } else { value + step(self.to) });
        let end = self.to * 1.000_001;
        std::iter::successors(Some(self.from), next).take_while(|&tick| tick <= end).collect()
    }
}

/// 1, 2 or 5 times a power of ten, about four of them.
fn step(most: f64) -> f64 {
    let least = most.max(1e-9) / 4.0;
    let power = 10_f64.powf(least.log10().floor());
    let times = [1.0, 2.0, 5.0].into_iter().find(|times| times * power >= least * 0.999);
    times.unwrap_or(10.0) * power
}

/// As short as it can be read.
fn short(value: f64) -> String {
    let text = format!("{value:.3}");
    if value >= 1_000.0 {
        format!("{value:.0}")
    } else {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    }
}

fn x(axis: Axis, value: f64) -> f64 {
    LEFT + axis.at(value) * (WIDTH - LEFT - RIGHT)
}

fn y(axis: Axis, value: f64) -> f64 {
    HEIGHT - BOTTOM - axis.at(value) * (HEIGHT - TOP - BOTTOM)
}

/// The frame of a chart around `content`.
fn chart(title: &str, axes: (Axis, Axis), labels: &[(f64, String)], content: &str) -> String {
    let (across, up) = axes;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH:.0} {HEIGHT:.0}\" role=\"img\" aria-label=\"{title}\">\
         <title>{title}</title>"
    );
    // Writing to a string cannot fail.
    for tick in up.ticks() {
        let at = y(up, tick);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT:.1}\" x2=\"{:.1}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 5.0,
            at + 4.0,
            short(tick),
        );
    }
    let floor = HEIGHT - BOTTOM;
    for (value, label) in labels {
        let at = x(across, *value);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP:.1}\" y2=\"{floor:.1}\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            floor + 16.0,
        );
    }
    let _ = write!(
        svg,
        "<line class=\"axis\" x1=\"{LEFT:.1}\" x2=\"{:.1}\" y1=\"{floor:.1}\" y2=\"{floor:.1}\"/>\
         {content}</svg>",
        WIDTH - RIGHT,
    );
    svg
}

/// A figure over time, as steps: what happened between two looks is not known.
pub(super) fn over_time(title: &str, points: &[Point], of: impl Fn(&Point) -> f64) -> String {
    let seconds = |time: Duration| time.as_secs_f64();
    // Shortest spans say nothing: clocks are coarse.
    let is_shown = |point: &&Point| seconds(point.to) - seconds(point.from) > 0.05;
    let values: Vec<_> = points.iter().filter(is_shown).map(|point| (point, of(point))).collect();
    let most = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let end = points.last().map_or(1.0, |point| seconds(point.to));
    let across = Axis { from: 0.0, to: end.max(0.1), is_log: false };
    let up = Axis::linear(most);
    let mut paths = String::new();
    let mut last = None;
    for (point, value) in values {
        let at = y(up, value);
        let (from, to) = (x(across, seconds(point.from)), x(across, seconds(point.to)));
        // Writing to a string cannot fail.
        if last == Some((point.lap, point.variant)) {
            let _ = write!(paths, "V{at:.1}H{to:.1}");
        } else {
            let end = if last.is_some() { "\"/>" } else { "" };
            let class = point.variant % COLOURS;
            let _ =
                write!(paths, "{end}<path class=\"line s{class}\" d=\"M{from:.1} {at:.1}H{to:.1}");
        }
        last = Some((point.lap, point.variant));
    }
    if last.is_some() {
        paths.push_str("\"/>");
    }
    let (unit, divisor) = match end {
        0.0..300.0 => ("s", 1.0),
        300.0..10_800.0 => ("min", 60.0),
        _ => ("h", 3_600.0),
    };
    let ticks = Axis { to: end / divisor, ..across };
    let labels: Vec<_> = ticks
        .ticks()
        .into_iter()
        .map(|tick| (tick * divisor, format!("{} {unit}", short(tick))))
        .collect();
    chart(title, (across, up), &labels, &paths)
}

/// Latency against rarity, 1 / (1 − p): each decade is one more nine. Curves have a class and
/// microseconds; shown are milliseconds.
pub(super) fn latencies(title: &str, curves: &[(String, &Histogram<u64>)]) -> String {
    let milliseconds = |us: u64| approximate(us.max(1)) / 1e3;
    let filled = || curves.iter().filter(|(_, histogram)| !histogram.is_empty());
    let least = filled().map(|(_, it)| milliseconds(it.min())).fold(f64::MAX, f64::min);
    let most = filled().map(|(_, it)| milliseconds(it.max())).fold(0.0, f64::max);
    let count = filled().map(|(_, it)| it.len()).max().unwrap_or(10);
    let across = Axis::log(1.0, approximate(count).clamp(100.0, RAREST));
    let up = if most > 0.0 { Axis::log(least, most) } else { Axis::log(0.1, 1.0) };
    let mut paths = String::new();
    for (class, histogram) in filled() {
        let _ = write!(paths, "<path class=\"line {class}\" d=\"");
        let mut letter = 'M';
        let rarest = approximate(histogram.len()).min(across.to);
        for step in histogram.iter_quantiles(STEPS_PER_HALF) {
            let rarity = (1.0 / (1.0 - step.quantile_iterated_to()).max(1e-12)).min(rarest);
            let value = milliseconds(step.value_iterated_to());
            let _ = write!(paths, "{letter}{:.1} {:.1}", x(across, rarity), y(up, value));
            letter = 'L';
            if rarity >= rarest {
                break;
            }
        }
        paths.push_str("\"/>");
    }
    let mut labels = vec![(2.0, "50 %".to_owned())];
    for (index, tick) in across.ticks().into_iter().enumerate() {
        labels.push((tick, nines(index)));
    }
    labels.retain(|(_, label)| !label.is_empty());
    chart(title, (across, up), &labels, &paths)
}

/// A percentile of so many nines.
fn nines(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => "90 %".to_owned(),
        2 => "99 %".to_owned(),
        _ => format!("99.{} %", "9".repeat(count - 2)),
    }
}

/// Shares of a whole, side by side; each has a class.
pub(super) fn shares(title: &str, parts: &[(&str, f64)]) -> String {
    let all = parts.iter().map(|(_, part)| part).sum::<f64>().max(1e-12);
    let mut svg = format!(
        "<svg class=\"bar\" viewBox=\"0 0 {WIDTH:.0} 24\" role=\"img\" aria-label=\"{title}\">\
         <title>{title}</title>"
    );
    let mut at = 0.0;
    for (class, part) in parts {
        let width = part / all * WIDTH;
        let _ = write!(
            svg,
            "<rect class=\"{class}\" x=\"{at:.1}\" y=\"0\" width=\"{width:.1}\" height=\"24\"/>"
        );
        at += width;
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-6
    }

    #[test]
    fn axes_end_at_round_numbers() {
        assert!(near(Axis::linear(0.0).at(0.0), 0.0));
        let axis = Axis::linear(870.0);
        assert!(near(axis.to, 1_000.0) && near(axis.at(500.0), 0.5), "{axis:?}");
        assert_eq!(
            axis.ticks().iter().map(|&tick| short(tick)).collect::<Vec<_>>(),
            ["0", "500", "1000"]
        );
        let axis = Axis::log(0.3, 25.0);
        assert!(near(axis.from, 0.1) && near(axis.to, 100.0), "{axis:?}");
        assert!(near(axis.at(1.0), 1.0 / 3.0) && near(axis.at(0.0), 0.0));
        assert_eq!(axis.ticks().len(), 4);
    }

    /// Numbers of a path in order.
    fn numbers(svg: &str, class: &str) -> Vec<f64> {
        let path = svg.split(&format!("class=\"line {class}\" d=\"")).nth(1).unwrap();
        let path = path.split('"').next().unwrap();
        let number = |text: &str| text.parse().ok();
        path.split(|c: char| c.is_alphabetic() || c == ' ').filter_map(number).collect()
    }

    #[test]
    fn each_nine_is_as_far_as_the_one_before() {
        let mut histogram = Histogram::<u64>::new_with_max(60_000_000, 3).unwrap();
        for us in 1..=10_000 {
            histogram.record(us).unwrap();
        }
        let svg = latencies("latency", &[("s0".to_owned(), &histogram)]);
        let curve = numbers(&svg, "s0");
        assert!(curve.len() > 40, "{curve:?}");
        let (across, up): (Vec<_>, Vec<_>) =
            curve.chunks(2).map(|point| (point[0], point[1])).unzip();
        assert!(across.is_sorted() && up.is_sorted_by(|a, b| a >= b), "rarer is slower: {curve:?}");
        // One in 10,000 is at the fourth decade of four: the right edge.
        assert!((across[across.len() - 1] - (WIDTH - RIGHT)).abs() < 0.2, "{across:?}");
        for label in ["50 %", "90 %", "99 %", "99.9 %", "99.99 %"] {
            assert!(svg.contains(&format!(">{label}<")), "{label} in {svg}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn charts_of_nothing_are_charts() {
        for svg in [
            over_time("t", &[], |_| 1.0),
            latencies("l", &[]),
            shares("s", &[("source", 0.0), ("disk", 0.0)]),
        ] {
            assert!(svg.starts_with("<svg") && svg.ends_with("</svg>"));
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
    }

    #[test]
    fn time_is_drawn_as_steps_and_not_from_one_copy_to_the_next() {
        let second = Duration::from_secs(1);
        let point = |number: u32, lap| Point {
            from: second * number,
            to: second * (number + 1),
            bytes: 1_000_000 * u64::from(number),
            cpu: Duration::ZERO,
            variant: 1,
            lap,
        };
        let points = [point(0, 0), point(1, 0), point(2, 1)];
        let svg = over_time("t", &points, |point| approximate(point.bytes) / 1e6);
        assert_eq!(svg.matches("<path").count(), 2);
        assert_eq!(svg.matches("class=\"line s1\"").count(), 2);
        assert_eq!(numbers(&svg, "s1").len(), 5, "{svg}");
        assert!(svg.contains(">3 s<"), "{svg}");
    }
}
