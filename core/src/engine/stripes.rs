//! Ranges of one partition that several connections fetch at the same time.
//!
//! A connection carries at most its bytes in flight per round trip, so one large
//! partition is fetched in ranges, each by a connection of its own, and appended in
//! their order:
//!
//! ```text
//!   log ====|--front, being appended--|--ahead, unread in its socket--|--ahead--|
//!           at                        from                            from
//! ```
//!
//! A connection asks for its next range while the one before is being received: it never
//! carries nothing. A broker is asked for an offset and a number of bytes, so where a range will end is
//! an estimate. Two things go wrong, and both are mended here:
//!
//! * overlap: the range begins below what has been appended by its turn; batches that
//!   are wholly below are skipped;
//! * hole: its first batch begins behind. A connection without a range asks for what is
//!   missing, at the cost of one round trip, so ranges are planned to begin a little early.
//!   A large hole comes where an answer was cut short, as at the end of each of the source's
//!   segments. A connection that is alone fills it itself, and gives up the range that it was to
//!   bring next: its window is open, while that of a fresh one takes seconds on a long path.
//!
//! Invariant: a connection's ranges have their turns in the order in which it asked for them,
//! so nothing that waits unread holds up what comes before it.
//!
//! Invariant: what begins is either the batch at the end of the log, or the first one
//! that the source has from there on. A range whose start was at or below the end of the
//! log has everything from its start on, so a gap in it is the source's own.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use super::pace::Density;
use crate::types::Offset;

/// Parts of a range that margins are counted in.
const WHOLE: u64 = 1024;
const MARGIN_MIN: u64 = 4;
const MARGIN_FIRST: u64 = 32;
const MARGIN_MAX: u64 = 256;
/// A hole costs a round trip of all stripes, an overlap only its bytes: one hole in 16
/// ranges is about where both cost the same.
const MARGIN_AFTER_HOLE: u64 = 32;
const MARGIN_AFTER_RANGE: u64 = 2;
/// A range that lacks more than one of so many parts was cut off, not misjudged.
const SHORT_PARTS: i64 = 4;
/// Ranges that a connection has at once: one that comes, and one that follows it.
const RANGES_AT_ONCE: usize = 2;

/// What a connection has been asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    number: u64,
    connection: usize,
    from: Offset,
    /// Where the next range begins: a little before this one's likely end.
    next_from: Offset,
    /// First offset of what came.
    base: Option<Offset>,
    exact: bool,
}

impl Range {
    /// It was asked for at the end of the log, with nothing before it under way: what the
    /// source answers is about the copy, not about a guess.
    pub(super) fn is_exact(&self) -> bool {
        self.exact
    }

    fn ask(&self, max_bytes: u32, fills: bool) -> Ask {
        let Self { number, from, exact, .. } = *self;
        Ask { number, from, max_bytes, exact, fills }
    }
}

/// What a connection should ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ask {
    /// Name of the range.
    pub(super) number: u64,
    pub(super) from: Offset,
    pub(super) max_bytes: u32,
    pub(super) exact: bool,
    /// It fills a hole.
    pub(super) fills: bool,
}

/// Whether a range that has arrived may be appended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// Others come first.
    Wait,
    Go,
    /// Something is missing before it.
    Hole,
    /// Its first batch reaches across the end of the log: the source has changed.
    Odd,
}

/// Where fetching stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook<'a> {
    /// End of what was appended.
    pub(super) at: Offset,
    /// High watermark of the source.
    pub(super) end: Offset,
    /// Bytes of a range.
    pub(super) range_bytes: u32,
    /// Whether ranges ahead may be asked for.
    pub(super) ahead: bool,
    pub(super) density: &'a Density,
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct Stripes {
    /// In the order of their turns.
    ranges: VecDeque<Range>,
    /// Of the last range.
    number: u64,
    /// How much of a range the next one repeats, in parts of [`WHOLE`].
    margin: u64,
    /// A range ahead brought nothing: no other one before something was appended.
    paused: bool,
}

impl Default for Stripes {
    fn default() -> Self {
        Self { ranges: VecDeque::new(), number: 0, margin: MARGIN_FIRST, paused: false }
    }
}

impl Stripes {
    /// The next range for a connection; `None` if there is nothing to ask, or it has enough.
    pub(super) fn ask(&mut self, connection: usize, outlook: Outlook<'_>) -> Option<Ask> {
        let Outlook { at, end, range_bytes, ahead, density } = outlook;
        let held = self.held(connection);
        if held >= RANGES_AT_ONCE {
            return None;
        }
        let Some(front) = self.ranges.front().copied() else {
            // One that is there for holes begins nothing.
            return ahead.then(|| self.begin(connection, outlook));
        };
        if at < front.from && held == 0 {
            // Perhaps a hole: its answer tells, and somebody has to be free then.
            let base = front.base?;
            if base > at {
                return Some(self.fill(connection, base, outlook));
            }
        }
        if !ahead || self.paused {
            return None;
        }
        if let Some(place) = self.gap(connection) {
            return Some(self.close_gap(connection, place, outlook));
        }
        let from = self.ranges.back()?.next_from;
        let left = density.bytes(end.0.saturating_sub(from.0));
        if left < u64::from(range_bytes / 2).max(1) {
            return None;
        }
        let next_from = self.estimate(from, range_bytes, false, density);
        let range = self.range(connection, from, next_from, false);
        self.ranges.push_back(range);
        Some(range.ask(range_bytes, false))
    }

    /// Where a range was lost between others, and behind all that the connection holds.
    fn gap(&self, connection: usize) -> Option<usize> {
        let held = self.ranges.iter().rposition(|it| it.connection == connection);
        let first = held.map_or(1, |place| place + 1);
        (first..self.ranges.len()).find(|&place| {
            let before = place.checked_sub(1).and_then(|before| self.ranges.get(before));
            let next = self.ranges.get(place);
            before.zip(next).is_some_and(|(before, next)| before.next_from < next.from)
        })
    }

    fn close_gap(&mut self, connection: usize, place: usize, outlook: Outlook<'_>) -> Ask {
        let from = self.ranges[place - 1].next_from;
        let to = self.ranges[place].from;
        let (likely, density) =
            (self.estimate(from, outlook.range_bytes, false, outlook.density), outlook.density);
        let missing = density.bytes(to.0 - from.0).saturating_add(density.batch_bytes());
        let max_bytes = u32::try_from(missing).unwrap_or(u32::MAX).clamp(1, outlook.range_bytes);
        let range = self.range(connection, from, likely.min(to), false);
        self.ranges.insert(place, range);
        range.ask(max_bytes, false)
    }

    fn begin(&mut self, connection: usize, outlook: Outlook<'_>) -> Ask {
        let (from, max_bytes) = (outlook.at, outlook.range_bytes);
        let next_from = self.estimate(from, max_bytes, true, outlook.density);
        let range = self.range(connection, from, next_from, true);
        self.ranges.push_back(range);
        range.ask(max_bytes, false)
    }

    fn fill(&mut self, connection: usize, base: Offset, outlook: Outlook<'_>) -> Ask {
        let (from, density) = (outlook.at, outlook.density);
        let missing = density.bytes(base.0 - from.0);
        // A damaged batch may name any base.
        let wanted = missing.saturating_add(missing / 4).saturating_add(density.batch_bytes());
        let max_bytes = u32::try_from(wanted).unwrap_or(u32::MAX).clamp(1, outlook.range_bytes);
        // More than that was lost, not misjudged.
        if missing < u64::from(outlook.range_bytes / 2) {
            self.margin = (self.margin + MARGIN_AFTER_HOLE).min(MARGIN_MAX);
        }
        let range = self.range(connection, from, base, true);
        self.ranges.push_front(range);
        range.ask(max_bytes, true)
    }

    fn range(&mut self, connection: usize, from: Offset, next_from: Offset, exact: bool) -> Range {
        self.number += 1;
        Range { number: self.number, connection, from, next_from, base: None, exact }
    }

    /// A broker cuts its answer within a batch, and a range that begins within that one gets all
    /// of it; so whole batches are counted from the middle of one to the middle of another, and
    /// an error of less than half a batch costs nothing. The first batch of an answer is whole
    /// whatever its size, so nothing begins before the next one.
    fn estimate(&self, from: Offset, bytes: u32, exact: bool, density: &Density) -> Offset {
        let bytes = u64::from(bytes);
        let cut = bytes.checked_rem(density.batch_bytes()).unwrap_or(0);
        let whole = if cut < bytes { bytes - cut } else { bytes };
        let likely = density.offsets(whole - whole / WHOLE * self.margin);
        // An exact range begins where a batch does.
        let middle = if exact { density.batch_offsets() / 2 } else { 0 };
        let likely = likely.max(density.batch_offsets() - middle).max(1);
        Offset(from.0.saturating_add(likely).saturating_add(middle))
    }

    /// A range that is still wanted.
    pub(super) fn get(&self, number: u64) -> Option<Range> {
        self.ranges.iter().find(|range| range.number == number).copied()
    }

    /// Ranges that a connection has been asked for.
    pub(super) fn held(&self, connection: usize) -> usize {
        self.ranges.iter().filter(|range| range.connection == connection).count()
    }

    /// Connection of the range whose turn it is.
    pub(super) fn front(&self) -> Option<usize> {
        self.ranges.front().map(|range| range.connection)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// What comes of a range begins, or goes on, with a batch at `base`.
    pub(super) fn arrived(&mut self, number: u64, base: Offset) {
        if let Some(range) = self.ranges.iter_mut().find(|it| it.number == number) {
            range.base = Some(base);
        }
    }

    /// Whether a range that has arrived is next, with the log's end at `at`.
    pub(super) fn turn(&self, number: u64, at: Offset) -> Turn {
        match self.ranges.front() {
            Some(front) if front.number == number => match front.base {
                _ if front.from <= at => Turn::Go,
                None => Turn::Wait,
                Some(base) if base > at => Turn::Hole,
                Some(base) if base == at => Turn::Go,
                Some(_) => Turn::Odd,
            },
            _ => Turn::Wait,
        }
    }

    /// `range` has been appended to its end, which is that of the log: `at`. Where it was cut off
    /// long before it should end, and its connection alone has others, nothing comes of these;
    /// returns how many.
    pub(super) fn ended(&mut self, range: Range, at: Offset, density: &Density) -> usize {
        self.finished(range.number);
        let planned = range.next_from.0.saturating_sub(range.from.0);
        let missing = self.ranges.front().map_or(0, |next| next.from.0.saturating_sub(at.0));
        let is_short =
            missing > planned / SHORT_PARTS && missing > density.batch_offsets().saturating_mul(2);
        let is_alone = self.ranges.iter().all(|it| it.connection == range.connection);
        if is_short && is_alone { self.lost_all(range.connection) } else { 0 }
    }

    /// A range has been appended, or skipped, to its end.
    fn finished(&mut self, number: u64) {
        self.remove(number);
        self.paused = false;
        self.margin = self.margin.saturating_sub(MARGIN_AFTER_RANGE).max(MARGIN_MIN);
    }

    /// Nothing comes of a range; what it was to bring is a hole now. `refused`: the source had
    /// nothing to give there.
    pub(super) fn lost(&mut self, number: u64, refused: bool) {
        self.remove(number);
        self.paused |= refused;
    }

    /// Nothing comes of all that a connection was asked for; returns how many ranges that were.
    pub(super) fn lost_all(&mut self, connection: usize) -> usize {
        let before = self.ranges.len();
        self.ranges.retain(|range| range.connection != connection);
        before - self.ranges.len()
    }

    fn remove(&mut self, number: u64) {
        self.ranges.retain(|range| range.number != number);
    }
}
