//! Figures over time, in bounded memory.

use std::time::Duration;

/// What happened between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    /// Since the start of the benchmark.
    pub(super) from: Duration,
    pub(super) to: Duration,
    pub(super) bytes: u64,
    pub(super) cpu: Duration,
    /// Index of what was measured.
    pub(super) variant: usize,
    /// Number of the copy; a line is not drawn from one to the next.
    pub(super) lap: u64,
}

/// Points in order of time. When there are too many, neighbours become one: half the
/// resolution, all of the time.
#[derive(Clone, Debug)]
pub(super) struct Series {
    points: Vec<Point>,
    most: usize,
}

impl Series {
    /// Keeps at most `most` points, two at least.
    pub(super) fn new(most: usize) -> Self {
        Self { points: Vec::new(), most: most.max(2) }
    }

    /// One that is shorter than `least` becomes part of the one before, if it is of the same
    /// copy.
    pub(super) fn push(&mut self, point: Point, least: Duration) {
        let is_short = point.to.saturating_sub(point.from) < least;
        let same = |last: &&mut Point| (last.variant, last.lap) == (point.variant, point.lap);
        if let Some(last) = self.points.last_mut().filter(same).filter(|_| is_short) {
            *last = joined(*last, point);
            return;
        }
        if self.points.len() >= self.most {
            let halves = self.points.chunks(2);
            self.points = halves.filter_map(|pair| pair.iter().copied().reduce(joined)).collect();
        }
        self.points.push(point);
    }

    pub(super) fn points(&self) -> &[Point] {
        &self.points
    }
}

fn joined(a: Point, b: Point) -> Point {
    Point { from: a.from, bytes: a.bytes + b.bytes, cpu: a.cpu + b.cpu, ..b }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_rest_belongs_to_what_came_before() {
        let mut series = Series::new(16);
        let ms = Duration::from_millis;
        let point = |from, to, lap| Point {
            from: ms(from),
            to: ms(to),
            bytes: 10,
            cpu: ms(1),
            variant: 0,
            lap,
        };
        for one in [point(0, 300, 0), point(300, 310, 0), point(310, 320, 1)] {
            series.push(one, ms(200));
        }
        let joined = Point { bytes: 20, cpu: ms(2), ..point(0, 310, 0) };
        assert_eq!(series.points(), [joined, point(310, 320, 1)]);
    }

    #[test]
    fn a_long_run_keeps_its_sums_and_its_span_in_few_points() {
        let mut series = Series::new(16);
        let second = Duration::from_secs(1);
        for number in 0..10_000_u32 {
            series.push(
                Point {
                    from: second * number,
                    to: second * (number + 1),
                    bytes: 3,
                    cpu: second,
                    variant: 0,
                    lap: u64::from(number / 100),
                },
                Duration::ZERO,
            );
            assert!(series.points().len() <= 16);
        }
        let points = series.points();
        assert_eq!(points.iter().map(|point| point.bytes).sum::<u64>(), 30_000);
        assert_eq!(points.iter().map(|point| point.cpu).sum::<Duration>(), second * 10_000);
        assert_eq!(
            (points[0].from, points[points.len() - 1].to),
            (Duration::ZERO, second * 10_000)
        );
        assert!(points.windows(2).all(|two| two[0].to == two[1].from), "nothing is left out");
    }
}
