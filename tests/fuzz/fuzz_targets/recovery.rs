//! See `heliostat_tests::fuzz`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| heliostat_tests::fuzz::recovery(input));
