//! Bodies of the fuzz targets: any bytes in, no panic, no unbounded memory, and the
//! promises of each decoder kept. `tests/fuzz` runs them under a fuzzer, `tests/replay`
//! over the stored corpora.
//!
//! The first bytes of an input say how it is read, each body's own text says what they
//! mean. Where a checksum stands in the fuzzer's way, one of them has it put right.

mod batches;
mod checkpoints;
mod fetch_oracle;
mod fetch_stream;
mod recovery;
mod store;
mod walker;

pub use self::checkpoints::checkpoints;
pub use self::fetch_stream::fetch_stream;
pub use self::recovery::recovery;
pub use self::walker::walker;

/// A body, by the name of its target and of its corpus.
pub type Body = fn(&[u8]);

/// All targets.
pub const TARGETS: [(&str, Body); 4] = [
    ("fetch_stream", fetch_stream),
    ("walker", walker),
    ("recovery", recovery),
    ("checkpoints", checkpoints),
];
