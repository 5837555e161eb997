//! What a path is like, and how people write that.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

use super::error::PathError;
use super::link::LinkConfig;

/// Least limit of a queue by default.
const QUEUE_BYTES_MIN: u64 = 1 << 20;
/// What one direction may hold: bytes in flight and its queue. They are all in memory.
const HELD_BYTES_MAX: u64 = 512 << 20;
const MTU: std::ops::RangeInclusive<u16> = 576..=9_000;
const RTT_MAX: Duration = Duration::from_secs(10);

/// A path. Both directions are alike; a sender and its receiver need no more than this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathConfig {
    /// Round trip of a small packet; half of it each way.
    pub rtt: Duration,
    /// Of IP packets, each way.
    pub rate: Rate,
    /// Share of packets that is lost, each way.
    pub loss: Loss,
    /// Bytes that may wait in a direction; `None` is one product of rate and round trip, and at
    /// least 1 MiB.
    pub queue_bytes: Option<u64>,
    /// Largest IP packet, 576 to 9000.
    pub mtu: u16,
    /// Equal seeds lose the packets of equal numbers.
    pub seed: u64,
    /// Congestion control of both ends, one that this kernel has.
    pub congestion_control: String,
}

impl PathConfig {
    /// 1500 bytes an IP packet, cubic, a queue of one bandwidth-delay product.
    pub fn new(rtt: Duration, rate: Rate, loss: Loss) -> Self {
        let congestion_control = "cubic".to_owned();
        Self { rtt, rate, loss, queue_bytes: None, mtu: 1_500, seed: 1, congestion_control }
    }

    /// Bytes that fill the path: rate times round trip.
    pub fn bandwidth_delay_product(&self) -> u64 {
        let bits = u128::from(self.rate.0) * self.rtt.as_nanos() / 1_000_000_000;
        u64::try_from(bits / 8).unwrap_or(u64::MAX)
    }

    /// One direction of it.
    pub(super) fn link(&self) -> Result<LinkConfig, PathError> {
        if !MTU.contains(&self.mtu) {
            return Err(PathError::Mtu { mtu: self.mtu, min: *MTU.start(), max: *MTU.end() });
        }
        let product = self.bandwidth_delay_product();
        let queue_bytes_max = self.queue_bytes.unwrap_or(product.max(QUEUE_BYTES_MIN));
        let held = product.saturating_add(queue_bytes_max);
        if held > HELD_BYTES_MAX || self.rtt > RTT_MAX {
            return Err(PathError::TooLong { held, max: HELD_BYTES_MAX });
        }
        Ok(LinkConfig {
            delay: self.rtt / 2,
            bits_per_second: self.rate.0,
            lost_per_million: self.loss.per_million,
            seed: self.seed,
            queue_bytes_max,
        })
    }
}

/// Bits a second, at least 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub u64);

/// Packets of a million.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// At most a million.
    pub per_million: u32,
}

/// Not what was expected.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("expected {expected}")]
pub struct ParseError {
    expected: &'static str,
}

/// Of units and what each is worth; the number may have decimals.
fn scaled(text: &str, units: &[(&str, u64)], expected: &'static str) -> Result<u64, ParseError> {
    let text = text.trim().to_ascii_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let worth = units.iter().find(|(name, _)| *name == unit.trim()).map(|&(_, worth)| worth);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let value = || {
        let worth = u128::from(worth?);
        let scale = 10_u128.checked_pow(u32::try_from(part.len()).ok()?)?;
        let whole: u128 = whole.parse().ok()?;
        let part: u128 = if part.is_empty() { 0 } else { part.parse().ok()? };
        let sum = whole.checked_mul(scale)?.checked_add(part)?.checked_mul(worth)?;
        u64::try_from(sum / scale).ok()
    };
    value().ok_or(ParseError { expected })
}

/// `80ms`, `250us`, `1.5s`.
///
/// # Errors
///
/// [`ParseError`].
pub fn duration(text: &str) -> Result<Duration, ParseError> {
    let units = [("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];
    scaled(text, &units, "a time such as 80ms, 250us or 1.5s").map(Duration::from_nanos)
}

impl FromStr for Rate {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let expected = "a rate such as 100mbit, 1gbit or 2.5gbit, at least 1kbit";
        let units = [("kbit", 1_000), ("mbit", 1_000_000), ("gbit", 1_000_000_000)];
        let bits = scaled(text, &units, expected)?;
        if bits < 1_000 { Err(ParseError { expected }) } else { Ok(Self(bits)) }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bits if bits % 1_000_000_000 == 0 => write!(f, "{}gbit", bits / 1_000_000_000),
            bits if bits % 1_000_000 == 0 => write!(f, "{}mbit", bits / 1_000_000),
            bits => write!(f, "{}.{:03}kbit", bits / 1_000, bits % 1_000),
        }
    }
}

impl FromStr for Loss {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let expected = "a share of packets such as 0, 0.1% or 1%, at most 100%";
        // Without a unit only nothing is clear.
        let per_million = match text.trim() {
            "0" => 0,
            text => scaled(text, &[("%", 10_000)], expected)?,
        };
        match u32::try_from(per_million) {
            Ok(per_million @ ..=1_000_000) => Ok(Self { per_million }),
            Ok(_) | Err(_) => Err(ParseError { expected }),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = format!("{}.{:04}", self.per_million / 10_000, self.per_million % 10_000);
        write!(f, "{}%", share.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_write_units() {
        assert_eq!(duration("80ms"), Ok(Duration::from_millis(80)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1_500)));
        assert_eq!("1gbit".parse(), Ok(Rate(1_000_000_000)));
        assert_eq!("2.5 Gbit".parse(), Ok(Rate(2_500_000_000)));
        assert_eq!("0.1%".parse(), Ok(Loss { per_million: 1_000 }));
        assert_eq!("0".parse(), Ok(Loss { per_million: 0 }));
        for wrong in ["", "80", "ms", "-1ms", "1.2.3ms", "80 parsecs"] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
        assert!("1".parse::<Rate>().is_err() && "0mbit".parse::<Rate>().is_err());
        assert!("0.1".parse::<Loss>().is_err() && "101%".parse::<Loss>().is_err());
    }

    #[test]
    fn what_is_shown_can_be_typed() {
        for text in ["1gbit", "2500mbit", "100mbit"] {
            assert_eq!(text.parse::<Rate>().unwrap().to_string(), text);
        }
        for text in ["0%", "0.1%", "12.5%", "100%"] {
            assert_eq!(text.parse::<Loss>().unwrap().to_string(), text);
        }
    }

    fn path(rtt_ms: u64, rate: &str) -> PathConfig {
        let loss = Loss { per_million: 0 };
        PathConfig::new(Duration::from_millis(rtt_ms), rate.parse().unwrap(), loss)
    }

    #[test]
    fn a_queue_holds_what_fills_the_path_and_not_less_than_a_mebibyte() {
        assert_eq!(path(80, "1gbit").link().unwrap().queue_bytes_max, 10_000_000);
        assert_eq!(path(80, "1gbit").link().unwrap().delay, Duration::from_millis(40));
        assert_eq!(path(1, "10mbit").link().unwrap().queue_bytes_max, 1 << 20);
    }

    #[test]
    fn a_path_that_does_not_fit_into_memory_is_refused() {
        assert!(matches!(path(5_000, "10gbit").link(), Err(PathError::TooLong { .. })));
        let tiny = PathConfig { mtu: 100, ..path(80, "1gbit") };
        assert!(matches!(tiny.link(), Err(PathError::Mtu { mtu: 100, .. })));
    }
}
