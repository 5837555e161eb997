//! Heliostat.
fn main() {}
