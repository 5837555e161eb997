//! One direction of a path as arithmetic: a packet of so many bytes at such a time, and what
//! becomes of it. No clock, no device, no state but two numbers.

use std::time::Duration;

const NANOS: u128 = 1_000_000_000;
const MILLION: u64 = 1_000_000;

/// What a direction does to packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// From the last bit sent to its arrival.
    pub delay: Duration,
    /// Bits a second; at least 1.
    pub bits_per_second: u64,
    /// Packets of a million that are lost.
    pub lost_per_million: u32,
    /// Equal seeds lose the packets of equal numbers.
    pub seed: u64,
    /// Bytes that may wait to be sent; what comes on top is dropped.
    pub queue_bytes_max: u64,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It comes out at the other end, so long after the beginning of time.
    Arrives(Duration),
    /// It took its time on the wire, and is lost.
    Lost,
    /// The queue was full.
    Dropped,
}

/// One direction. Times are since any beginning and never go back; packets leave in the order
/// in which they came.
#[derive(Clone, Debug)]
pub struct Link {
    config: LinkConfig,
    offered: u64,
    /// When the last packet taken will have been sent, in nanoseconds.
    free_at: u128,
}

impl Link {
    /// An idle one.
    pub fn new(config: LinkConfig) -> Self {
        Self { config, offered: 0, free_at: 0 }
    }

    /// Decides about a packet of `bytes` that comes at `now`.
    pub fn offer(&mut self, bytes: u64, now: Duration) -> Fate {
        let number = self.offered;
        self.offered += 1;
        if self.queued(now) + bytes > self.config.queue_bytes_max {
            return Fate::Dropped;
        }
        let rate = u128::from(self.config.bits_per_second.max(1));
        // Rounded up: what is carried never exceeds the rate.
        let sending = (u128::from(bytes) * 8 * NANOS).div_ceil(rate);
        self.free_at = self.free_at.max(now.as_nanos()) + sending;
        if self.loses(number) {
            return Fate::Lost;
        }
        let sent = Duration::from_nanos(u64::try_from(self.free_at).unwrap_or(u64::MAX));
        Fate::Arrives(sent.saturating_add(self.config.delay))
    }

    /// Bytes that wait to be sent, the rest of the one that is being sent included.
    pub fn queued(&self, now: Duration) -> u64 {
        let ahead = self.free_at.saturating_sub(now.as_nanos());
        let bits = ahead * u128::from(self.config.bits_per_second) / NANOS;
        u64::try_from(bits / 8).unwrap_or(u64::MAX)
    }

    /// Each packet by its number alone: neither time nor queue shifts the losses of a seed.
    fn loses(&self, number: u64) -> bool {
        let stream = self.config.seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        mix(stream) % MILLION < u64::from(self.config.lost_per_million)
    }
}

/// The finaliser of SplitMix64.
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 1 byte a microsecond, 40 ms.
    const PLAIN: LinkConfig = LinkConfig {
        delay: Duration::from_millis(40),
        bits_per_second: 8_000_000,
        lost_per_million: 0,
        seed: 7,
        queue_bytes_max: 10_000,
    };

    fn micros(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    #[test]
    fn an_idle_link_sends_at_its_rate_and_then_delays() {
        let mut link = Link::new(PLAIN);
        assert_eq!(link.offer(1_000, micros(500)), Fate::Arrives(micros(500 + 1_000 + 40_000)));
    }

    #[test]
    fn packets_wait_for_those_before_them() {
        let mut link = Link::new(PLAIN);
        assert_eq!(link.offer(1_000, micros(0)), Fate::Arrives(micros(41_000)));
        assert_eq!(link.offer(1_000, micros(0)), Fate::Arrives(micros(42_000)));
        assert_eq!(link.queued(micros(0)), 2_000);
        assert_eq!(link.queued(micros(1_500)), 500);
        // Idle in between: nothing is saved up.
        assert_eq!(link.offer(1_000, micros(9_000)), Fate::Arrives(micros(50_000)));
    }

    #[test]
    fn a_full_queue_drops_what_comes_last() {
        let mut link = Link::new(PLAIN);
        for _ in 0..10 {
            assert!(matches!(link.offer(1_000, micros(0)), Fate::Arrives(_)));
        }
        assert_eq!(link.offer(1, micros(0)), Fate::Dropped);
        // A dropped one takes no time on the wire.
        assert_eq!(link.queued(micros(0)), 10_000);
        assert_eq!(link.offer(1_000, micros(1_000)), Fate::Arrives(micros(51_000)));
    }

    fn losses(config: LinkConfig, packets: u64) -> Vec<u64> {
        let mut link = Link::new(config);
        let lost = |&at: &u64| link.offer(100, micros(at * 1_000)) == Fate::Lost;
        (0..packets).filter(lost).collect()
    }

    #[test]
    fn a_seed_loses_the_same_packets_and_about_as_many_as_asked() {
        let config = LinkConfig { lost_per_million: 10_000, ..PLAIN };
        let lost = losses(config, 100_000);
        assert_eq!(lost, losses(config, 100_000));
        assert_ne!(lost, losses(LinkConfig { seed: 8, ..config }, 100_000));
        assert!((800..1_200).contains(&lost.len()), "{}", lost.len());
        assert_eq!(losses(LinkConfig { lost_per_million: 0, ..config }, 1_000), Vec::<u64>::new());
        assert_eq!(losses(LinkConfig { lost_per_million: 1_000_000, ..config }, 50).len(), 50);
    }

    #[test]
    fn losses_do_not_depend_on_the_queue() {
        let config = LinkConfig { lost_per_million: 200_000, ..PLAIN };
        let mut crowded = Link::new(config);
        // All at once: most are dropped, and those that are lost have the same numbers.
        let lost = |_: &u64| crowded.offer(100, micros(0)) == Fate::Lost;
        let of_crowded: Vec<u64> = (0..1_000).filter(lost).collect();
        let of_idle = losses(config, 1_000);
        assert!(!of_crowded.is_empty());
        assert_eq!(of_crowded, of_idle.get(..of_crowded.len()).unwrap());
    }

    proptest! {
        /// In order, never faster than light or rate, never more queued than allowed.
        #[test]
        fn a_link_keeps_its_promises(
            packets in prop::collection::vec((40_u64..9_000, 0_u64..3_000), 1..200),
            rate in 1_000_u64..10_000_000_000,
            lost_per_million in 0_u32..300_000,
        ) {
            let config = LinkConfig { bits_per_second: rate, lost_per_million, ..PLAIN };
            let mut link = Link::new(config);
            let (mut now, mut last, mut carried) = (Duration::ZERO, Duration::ZERO, 0_u64);
            for (bytes, pause) in packets {
                now += micros(pause);
                let fate = link.offer(bytes, now);
                prop_assert!(link.queued(now) <= config.queue_bytes_max);
                if let Fate::Arrives(at) = fate {
                    carried += bytes;
                    let sent = at.checked_sub(config.delay).unwrap();
                    prop_assert!(at > last && sent > now);
                    let room = sent.as_nanos() * u128::from(rate) / 8;
                    prop_assert!(u128::from(carried) * NANOS <= room);
                    last = at;
                }
            }
        }
    }
}
