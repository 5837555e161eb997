//! Named places where a test lets the process die, as `kill -9` would, or stand still.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Signal, getpid, kill_process};

/// Variables that name a place, and what happens there. The place is `NAME`, or `NAME:N` for its
/// N-th passing, from 1. At a kill nothing is flushed, closed or told; what is held stands still
/// until SIGCONT.
const VARIABLES: [(&str, Signal); 2] =
    [("HELIOSTAT_FAULT_POINT", Signal::KILL), ("HELIOSTAT_FAULT_HOLD", Signal::STOP)];

/// A place of this process.
#[derive(Debug)]
struct Place {
    name: String,
    /// Of the passings, the one that counts.
    passing: u64,
    passed: AtomicU64,
    signal: Signal,
}

impl Place {
    fn parse(text: &str, signal: Signal) -> Self {
        let counted = text.rsplit_once(':').and_then(|(name, n)| Some((name, n.parse().ok()?)));
        let (name, passing) = counted.unwrap_or((text, 1));
        Self { name: name.to_owned(), passing, passed: AtomicU64::new(0), signal }
    }

    fn pass(&self) {
        if self.passed.fetch_add(1, Ordering::Relaxed) + 1 == self.passing {
            // Always allowed to oneself.
            let _ = kill_process(getpid(), self.signal);
        }
    }
}

/// Dies or stands still here if the environment names this place.
pub(crate) fn point(name: &str) {
    pass(|wanted| wanted == name);
}

/// The same for a place of many kinds, which is named `NAME.KIND`.
pub(crate) fn point_of(name: &str, kind: &str) {
    let is_kind = |rest: &str| rest.strip_prefix('.') == Some(kind);
    pass(|wanted| wanted.strip_prefix(name).is_some_and(is_kind));
}

fn pass(is_here: impl Fn(&str) -> bool) {
    static PLACES: OnceLock<Vec<Place>> = OnceLock::new();
    let places = PLACES.get_or_init(|| {
        let named = VARIABLES.into_iter().filter_map(|(variable, signal)| {
            Some(Place::parse(&std::env::var(variable).ok()?, signal))
        });
        named.collect()
    });
    places.iter().filter(|place| is_here(&place.name)).for_each(Place::pass);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_name_and_a_passing() {
        let parse = |text| {
            let place = Place::parse(text, Signal::KILL);
            (place.name, place.passing)
        };
        assert_eq!(parse("stop.marked"), ("stop.marked".to_owned(), 1));
        assert_eq!(parse("stop.marker-written:3"), ("stop.marker-written".to_owned(), 3));
        assert_eq!(parse("a:b"), ("a:b".to_owned(), 1));
    }
}
