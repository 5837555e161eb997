//! The kernel and its io_uring.

use super::{Fact, Verdict};
use crate::ring::{RingError, RingFeatures, features_of};

/// `mkdirat` through io_uring, the youngest operation without a substitute.
const VERSION_MIN: (u32, u32) = (5, 15);
/// From here on no flag is missing but `ftruncate`, and `STATX_DIOALIGN` tells alignments.
const VERSION_GOOD: (u32, u32) = (6, 1);

pub(super) fn version() -> Fact {
    let uname = rustix::system::uname();
    judge_version(&uname.release().to_string_lossy())
}

fn judge_version(release: &str) -> Fact {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    let verdict = match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= VERSION_GOOD => Verdict::Ok,
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < VERSION_MIN => Verdict::Fail,
        _ => Verdict::Warn,
    };
    let meaning = match verdict {
        Verdict::Ok => "everything that the append path uses is there",
        Verdict::Warn => "the append path works, with more CPU and assumed alignments",
        Verdict::Fail => "io_uring lacks operations that the append path needs",
    };
    Fact::new("kernel.version", release, verdict)
        .meaning(meaning)
        .remedy("run Linux 6.1 or later; 5.15 is the oldest that works")
}

pub(super) fn io_uring() -> Vec<Fact> {
    judge_ring(features_of())
}

fn judge_ring(features: Result<RingFeatures, RingError>) -> Vec<Fact> {
    let features = match features {
        Ok(features) => features,
        Err(error) => {
            let (found, remedy) = match &error {
                RingError::Forbidden(refusal) => ("forbidden", refusal.to_string()),
                RingError::Missing => ("missing", error.to_string()),
                RingError::OpcodeMissing(_) => ("too old", error.to_string()),
                RingError::NoMemory => ("no memory", error.to_string()),
                RingError::Setup(source) | RingError::Submit(source) => {
                    ("refused", format!("look up why the kernel says: {source}"))
                }
            };
            let fact = Fact::new("io_uring", found, Verdict::Fail)
                .meaning("shards cannot run without io_uring")
                .remedy(remedy);
            return vec![fact];
        }
    };
    let flags = match (features.coop_taskrun, features.single_issuer) {
        (true, true) => ("coop_taskrun, single_issuer", Verdict::Ok),
        (true, false) => ("coop_taskrun", Verdict::Warn),
        (false, _) => ("none", Verdict::Warn),
    };
    let truncate = if features.ftruncate { "through the ring" } else { "a plain call" };
    vec![
        Fact::new("io_uring", "works", Verdict::Ok)
            .meaning("a ring was set up, and has every operation that the append path needs"),
        Fact::new("io_uring.flags", flags.0, flags.1)
            .meaning("flags that save CPU; single_issuer needs Linux 6.0, coop_taskrun 5.19")
            .remedy("run Linux 6.1 or later"),
        // A rare operation, so that neither is worth a warning.
        Fact::new("io_uring.ftruncate", truncate, Verdict::Ok)
            .meaning("how a segment is cut when it rolls; through the ring from Linux 6.9 on"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Refusal;

    #[test]
    fn versions_are_judged_by_their_numbers() {
        for (release, verdict) in [
            ("6.18.44-fc", Verdict::Ok),
            ("6.1.0-13-amd64", Verdict::Ok),
            ("10.0", Verdict::Ok),
            ("5.15.0", Verdict::Warn),
            ("5.4.0-generic", Verdict::Fail),
            ("4.19", Verdict::Fail),
            ("strange", Verdict::Warn),
        ] {
            assert_eq!(judge_version(release).verdict, verdict, "{release}");
        }
    }

    #[test]
    fn a_refused_ring_says_who_refuses_and_what_to_type() {
        let facts = judge_ring(Err(RingError::Forbidden(Refusal::DisabledForAll)));
        assert_eq!((facts.len(), facts[0].verdict), (1, Verdict::Fail));
        assert!(facts[0].remedy.contains("sysctl -w kernel.io_uring_disabled=0"));
        let old = RingFeatures { coop_taskrun: true, single_issuer: false, ftruncate: false };
        let facts = judge_ring(Ok(old));
        assert_eq!(facts.iter().filter(|fact| fact.verdict == Verdict::Warn).count(), 1);
    }
}
