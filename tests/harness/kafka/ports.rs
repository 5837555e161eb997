//! Free loopback ports below the range that the kernel gives to outgoing connections, so that a
//! broker finds its port again after a restart.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Mutex;

use super::error::{KafkaError, Result};

const FROM: u16 = 20_000;
const TO: u16 = 32_000;

/// Ports given out by this process, whether or not somebody listens yet.
static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A port that nobody listens on and that this process has not given out before.
pub(crate) fn free_port() -> Result<u16> {
    let mut given = GIVEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    // Processes side by side start at different places, so that they rarely try the same port.
    let span = u32::from(TO - FROM);
    let start = std::process::id().wrapping_mul(7919) % span;
    for step in 0..span {
        let port = FROM + u16::try_from((start + step) % span).unwrap_or(0);
        if given.contains(&port) {
            continue;
        }
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            given.insert(port);
            return Ok(port);
        }
    }
    Err(KafkaError::NoPort { from: FROM, to: TO })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice_and_all_are_in_range() {
        let ports: BTreeSet<u16> = (0..20).map(|_| free_port().unwrap()).collect();

        assert_eq!(ports.len(), 20);
        assert!(ports.iter().all(|port| (FROM..TO).contains(port)), "{ports:?}");
    }
}
