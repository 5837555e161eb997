//! Named places where a test lets the process die, as `kill -9` would.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// The variable that names the place: `NAME`, or `NAME:N` for its N-th passing, from 1.
const VARIABLE: &str = "HELIOSTAT_FAULT_POINT";

/// The place of this process, if it has one.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    name: String,
    /// Of the passings, the one that kills.
    passing: u64,
}

impl Place {
    fn parse(text: &str) -> Self {
        let counted = text.rsplit_once(':').and_then(|(name, n)| Some((name, n.parse().ok()?)));
        let (name, passing) = counted.unwrap_or((text, 1));
        Self { name: name.to_owned(), passing }
    }
}

/// Dies here if the environment names this place, and it is passed for the time that is wanted.
pub(crate) fn point(name: &str) {
    pass(|wanted| wanted == name);
}

/// The same for a place of many kinds, which is named `NAME.KIND`.
pub(crate) fn point_of(name: &str, kind: &str) {
    let is_kind = |rest: &str| rest.strip_prefix('.') == Some(kind);
    pass(|wanted| wanted.strip_prefix(name).is_some_and(is_kind));
}

fn pass(is_here: impl Fn(&str) -> bool) {
    static PLACE: OnceLock<Option<Place>> = OnceLock::new();
    static PASSED: AtomicU64 = AtomicU64::new(0);
    let place = PLACE.get_or_init(|| std::env::var(VARIABLE).ok().map(|text| Place::parse(&text)));
    let Some(place) = place.as_ref().filter(|place| is_here(&place.name)) else { return };
    if PASSED.fetch_add(1, Ordering::Relaxed) + 1 == place.passing {
        let me = rustix::process::getpid();
        // Nothing is flushed, closed or told.
        let _ = rustix::process::kill_process(me, rustix::process::Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_name_and_a_passing() {
        let place = |name: &str, passing| Place { name: name.to_owned(), passing };
        assert_eq!(Place::parse("stop.marked"), place("stop.marked", 1));
        assert_eq!(Place::parse("stop.marker-written:3"), place("stop.marker-written", 3));
        assert_eq!(Place::parse("a:b"), place("a:b", 1));
    }
}
