//! The product's decisions alone, from received bytes to completed writes, in batches of one
//! record of 100 bytes.

use std::time::Instant;

use clap::Args;
use heliostat_hot::{Mirror, RUN_BYTES, Size};
use serde::{Deserialize, Serialize};

use super::tell;
use crate::error::BenchError;
use crate::process::{cpu_seconds, peak_rss};
use crate::side::Side;

/// Arguments of `tiny`.
#[derive(Args, Debug)]
pub(crate) struct TinyArgs {
    /// Answers of a run of 1 MiB each.
    #[arg(long, value_name = "N")]
    answers: usize,
    /// Take no times: valgrind hides the kernel's clock page, which rustix reads.
    #[arg(long)]
    untimed: bool,
}

/// What passed, and how fast.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Tiny {
    pub(crate) batches: u64,
    pub(crate) side: Side,
}

pub(super) fn play(args: &TinyArgs) -> Result<(), BenchError> {
    let mut mirror = Mirror::new(Size::Tiny, args.answers);
    if args.untimed {
        return tell(&Tiny { batches: batches_pass(&mut mirror), side: Side::default() });
    }
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let batches = batches_pass(&mut mirror);
    let side = Side {
        bytes: u64::try_from(args.answers * RUN_BYTES).unwrap_or(0),
        seconds: began.elapsed().as_secs_f64(),
        cpu_seconds: cpu_seconds() - cpu,
        rss_bytes: peak_rss(std::process::id()).unwrap_or(0),
    };
    tell(&Tiny { batches, side })
}

/// What callgrind counts: `compare tiny` names it.
#[inline(never)]
fn batches_pass(mirror: &mut Mirror) -> u64 {
    let answers = std::iter::from_fn(|| Some(mirror.answer()).filter(|batches| *batches > 0));
    u64::try_from(answers.sum::<usize>()).unwrap_or(0)
}
