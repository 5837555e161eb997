//! What a connection shows of the path to its broker: the round trip, and the bytes that
//! it has in flight.

use std::time::Duration;

use super::spent::TimeSpent;
use crate::time::Tick;

/// An older minimum of the round trip is forgotten: routes change.
const RTT_MEMORY: Duration = Duration::from_secs(60);
/// A shorter answer says nothing about the rate.
const BYTES_MIN: u64 = 64 << 10;
/// How long received bytes may lie in the socket before somebody is woken for them.
const GATHER: Duration = Duration::from_millis(1);
/// Fewer bytes are not worth a system call that says so.
const GATHER_BYTES_MIN: u64 = 64 << 10;
/// More than a slot cannot be taken at once.
const GATHER_BYTES_MAX: u64 = 1 << 20;

/// Measured on one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Path {
    /// Minima of this period and of the one before.
    rtt: Option<Duration>,
    rtt_before: Option<Duration>,
    period_began: Tick,
    /// Rate times round trip, smoothed.
    in_flight_bytes: u64,
    /// What comes within [`GATHER`] while an answer is being received, smoothed.
    gather_bytes: u64,
    answer: Option<Answer>,
}

/// An answer that is being received.
#[derive(Clone, Copy, Debug)]
struct Answer {
    waited: Duration,
    began: Tick,
    bytes: u64,
    /// Time in which we did not read: no buffer was free, or others had their turn.
    stalled: Duration,
    took_turns: Duration,
    /// Since when, and whether for a turn.
    idle_since: Option<(Tick, bool)>,
}

impl Path {
    /// A question was answered after so long.
    pub(super) fn answered_after(&mut self, took: Duration, now: Tick) {
        if now.since(self.period_began) >= RTT_MEMORY {
            self.rtt_before = self.rtt.take();
            self.period_began = now;
        }
        self.rtt = Some(self.rtt.map_or(took, |rtt| rtt.min(took)));
    }

    /// The least round trip of late; zero if none was seen.
    pub(super) fn rtt(&self) -> Duration {
        self.rtt.into_iter().chain(self.rtt_before).min().unwrap_or_default()
    }

    /// The first byte of an answer came after so long.
    pub(super) fn answer_begins(&mut self, waited: Duration, now: Tick) {
        self.answer = Some(Answer {
            waited,
            began: now,
            bytes: 0,
            stalled: Duration::ZERO,
            took_turns: Duration::ZERO,
            idle_since: None,
        });
    }

    pub(super) fn announced(&mut self, bytes: u64) {
        if let Some(answer) = &mut self.answer {
            answer.bytes += bytes;
        }
    }

    /// We stop reading for want of a buffer, or go on.
    pub(super) fn stalls(&mut self, stalled: bool, now: Tick) {
        self.idles(stalled.then_some(false), now);
    }

    /// We stop reading until those before have had their turn.
    pub(super) fn waits_for_turn(&mut self, now: Tick) {
        self.idles(Some(true), now);
    }

    fn idles(&mut self, for_turn: Option<bool>, now: Tick) {
        let Some(answer) = &mut self.answer else { return };
        if let Some((since, turn)) = answer.idle_since.take() {
            let part = if turn { &mut answer.took_turns } else { &mut answer.stalled };
            *part += now.since(since);
        }
        answer.idle_since = for_turn.map(|turn| (now, turn));
    }

    /// The answer is complete; what it took, if it brought records. `striped`: it had to wait
    /// for its turn, while it went on to arrive.
    pub(super) fn answer_ends(&mut self, striped: bool, now: Tick) -> TimeSpent {
        self.idles(None, now);
        let Some(answer) = self.answer.take().filter(|answer| answer.bytes > 0) else {
            return TimeSpent::default();
        };
        let whole = now.since(answer.began).saturating_sub(answer.stalled);
        let receiving = whole.saturating_sub(answer.took_turns);
        if striped {
            // It came while others had their turn; how fast beyond that, its socket does not tell.
            self.learn(answer.bytes, whole + answer.waited);
        } else if answer.bytes >= BYTES_MIN {
            self.learn(answer.bytes, receiving);
        }
        let (waiting, stalled) = (answer.waited, answer.stalled);
        let out_of_turn = answer.took_turns;
        TimeSpent { waiting, receiving, stalled, out_of_turn, throttled: Duration::ZERO }
    }

    fn learn(&mut self, bytes: u64, took: Duration) {
        // An answer that came at once was in flight as a whole.
        let rtt = self.rtt();
        let in_flight = u128::from(bytes) * rtt.as_nanos() / took.max(rtt).as_nanos().max(1);
        let in_flight = u64::try_from(in_flight).unwrap_or(u64::MAX);
        self.in_flight_bytes = match self.in_flight_bytes {
            // A window grows faster than it is worth to wait for.
            before if in_flight > before && before > 0 => before / 2 + in_flight / 2,
            before => smooth(before, in_flight),
        };
        let gather = u128::from(bytes) * GATHER.as_nanos() / took.as_nanos().max(1);
        self.gather_bytes = smooth(self.gather_bytes, u64::try_from(gather).unwrap_or(u64::MAX));
    }

    /// The connection has ended: the next one finds its speed anew.
    pub(super) fn ends(&mut self) {
        self.in_flight_bytes = 0;
        self.gather_bytes = 0;
        self.answer = None;
    }

    /// Bytes that a socket may hold before its reader is woken, if the answer under way has
    /// `left` more: what comes within a millisecond, as a power of two so that it seldom changes.
    /// 1 where that is little, and at the end of an answer: it must not wait for the next.
    pub(super) fn low_water(&self, left: u64) -> usize {
        let bytes = self.gather_bytes.min(left).min(GATHER_BYTES_MAX);
        if bytes < GATHER_BYTES_MIN {
            return 1;
        }
        usize::try_from(1 << bytes.ilog2()).unwrap_or(1)
    }

    /// Bytes in flight at full speed: rate times round trip. 0 for unknown.
    pub(super) fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    /// `times` the bytes in flight, within `min` and `max`; `min` if nothing is known: a long
    /// first answer would be long in coming, and nothing be known until its end.
    ///
    /// Where no question is asked ahead, one for B bytes costs a round trip in which nothing
    /// comes, so B of (B + bytes in flight) is what a connection makes of its path: 94 % at 16
    /// times, 89 % at 8 times. More makes little faster and holds up whatever shares it.
    pub(super) fn fetch_bytes(&self, times: u64, min: u32, max: u32) -> u32 {
        let wanted = u32::try_from(self.in_flight_bytes.saturating_mul(times)).unwrap_or(u32::MAX);
        wanted.max(min).min(max)
    }
}

/// A quarter of what is new.
fn smooth(before: u64, new: u64) -> u64 {
    if before == 0 { new } else { before - before / 4 + new / 4 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Tick {
        Tick(ms * 1_000_000)
    }

    #[test]
    fn bytes_in_flight_are_rate_times_round_trip() {
        let mut path = Path::default();
        assert_eq!(path.fetch_bytes(16, 1 << 20, 8 << 20), 1 << 20);
        path.answered_after(Duration::from_millis(55), ms(0));
        path.answered_after(Duration::from_millis(40), ms(100));
        assert_eq!(path.rtt(), Duration::from_millis(40));
        // 1 MB in 400 ms, and 600 ms of waiting for ourselves.
        path.answer_begins(Duration::from_millis(40), ms(1_000));
        path.announced(1_000_000);
        path.stalls(true, ms(1_100));
        path.stalls(false, ms(1_700));
        let spent = path.answer_ends(false, ms(2_000));
        let parts = [spent.waiting, spent.receiving, spent.stalled].map(|part| part.as_millis());
        assert_eq!(parts, [40, 400, 600]);
        assert_eq!(path.in_flight_bytes(), 100_000);
        assert_eq!(path.fetch_bytes(16, 1 << 20, 8 << 20), 1_600_000);
        assert_eq!(path.fetch_bytes(4, 512 << 10, 8 << 20), 512 << 10);
        assert_eq!(path.fetch_bytes(1_000, 1 << 20, 8 << 20), 8 << 20);
    }

    #[test]
    fn bytes_gather_for_a_millisecond_and_never_beyond_the_answer() {
        let mut path = Path::default();
        assert_eq!(path.low_water(u64::MAX), 1, "nothing is known");
        path.answer_begins(Duration::ZERO, ms(0));
        path.announced(30_000_000);
        path.answer_ends(false, ms(100));
        // 300,000 bytes a millisecond.
        assert_eq!(path.low_water(u64::MAX), 256 << 10);
        assert_eq!(path.low_water(200_000), 128 << 10);
        assert_eq!(path.low_water(65_536), 64 << 10);
        assert_eq!(path.low_water(65_535), 1);
        path.answer_begins(Duration::ZERO, ms(100));
        path.announced(30_000_000_000);
        path.answer_ends(false, ms(200));
        assert_eq!(path.low_water(u64::MAX), 1 << 20, "a slot's size");
        path.ends();
        assert_eq!(path.low_water(u64::MAX), 1, "the next connection is another one");
    }

    #[test]
    fn an_old_minimum_is_forgotten() {
        let mut path = Path::default();
        path.answered_after(Duration::from_millis(10), ms(0));
        for minute in 1..=3 {
            path.answered_after(Duration::from_millis(80), ms(minute * 60_000));
        }
        assert_eq!(path.rtt(), Duration::from_millis(80));
    }
}
