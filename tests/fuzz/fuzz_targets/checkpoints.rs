//! See `heliostat_fuzz_bodies`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| heliostat_fuzz_bodies::checkpoints(input));
