//! The fuzz targets over their stored corpora, and over damaged copies of each input.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use std::path::{Path, PathBuf};

use heliostat_fuzz_bodies::TARGETS;

/// The stored inputs of a target, in no order.
fn corpus(target: &str) -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn stored_inputs_hold() {
    for (target, body) in TARGETS {
        let inputs = corpus(target);
        assert!(inputs.len() >= 4, "the corpus of {target} is there");
        for path in inputs {
            body(&std::fs::read(path).unwrap());
        }
    }
}

#[test]
fn damaged_inputs_hold() {
    for (target, body) in TARGETS {
        for path in corpus(target) {
            let input = std::fs::read(path).unwrap();
            // Every prefix of a small input, and every byte flipped in its front.
            for cut in 0..input.len().min(600) {
                body(&input[..cut]);
                let mut damaged = input.clone();
                damaged[cut] ^= 0x55;
                body(&damaged);
            }
        }
    }
}
