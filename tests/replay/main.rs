//! The fuzz targets over their stored corpora, and over damaged copies of each input.

use heliostat_tests::fuzz::{TARGETS, corpus};

#[test]
fn stored_inputs_hold() {
    for (target, body) in TARGETS {
        let inputs = corpus(target).unwrap();
        assert!(inputs.len() >= 4, "the corpus of {target} is there");
        for path in inputs {
            body(&std::fs::read(path).unwrap());
        }
    }
}

#[test]
fn damaged_inputs_hold() {
    for (target, body) in TARGETS {
        for path in corpus(target).unwrap() {
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
