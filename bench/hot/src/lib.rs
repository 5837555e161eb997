//! The hot functions of Heliostat, each with an input of a real size, ready to be called.
//!
//! What is measured is always the same: `benches/counts.rs` counts instructions, `benches/hot.rs`
//! takes times, and `heliostat-bench compare tiny` runs the whole path. Making the input is never
//! part of it: a value holds it, and its one method is what counts.

#![expect(clippy::expect_used, reason = "inputs are made here; a bad one is a bug of this crate")]

mod answer;
mod append;
mod batches;
mod disk;
mod lookups;
mod mirror;
mod session;

pub use answer::Answer;
pub use append::Append;
pub use batches::{RUN_BYTES, Run, Size};
pub use lookups::{Epochs, Index, LOOKUPS};
pub use mirror::Mirror;
pub use session::{PARTITIONS, Session};

use std::hint::black_box;

use heliostat_core::records::{BatchMeta, BatchWalker, WalkLimits};

/// Splits and verifies a run; the number of its batches.
///
/// # Panics
/// If it does not verify.
pub fn verify(run: &Run) -> usize {
    walk(run, |_| {})
}

fn walk(run: &Run, mut seen: impl FnMut(BatchMeta)) -> usize {
    let limits = WalkLimits { batch_bytes_max: 2 << 20, check_crcs: true };
    let mut walker = BatchWalker::new(limits);
    let (mut rest, mut batches) = (run.bytes.as_slice(), 0);
    while !rest.is_empty() {
        let (used, meta) = walker.feed(rest).expect("a run of whole batches");
        if let Some(meta) = black_box(meta) {
            seen(meta);
            batches += 1;
        }
        rest = &rest[used..];
    }
    batches
}
