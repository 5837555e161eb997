//! The product over a window of time, for sources that have more than is copied meanwhile.

use std::fs;

use clap::Args;
use heliostat_core::engine::ShardStats;
use serde::{Deserialize, Serialize};

use super::mirror::MirrorArgs;
use super::tell;
use super::timed::{Measured, Window};
use crate::error::BenchError;
use crate::process::{cpu_seconds, peak_rss};
use crate::side::Side;

/// What it copies, and for how long.
#[derive(Args, Debug)]
pub(super) struct FollowArgs {
    #[command(flatten)]
    mirror: MirrorArgs,
    #[command(flatten)]
    window: Window,
}

/// Figures of the window.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Followed {
    pub(crate) side: Side,
    /// Connections for fetching at the end, the idle ones too.
    pub(crate) connections: u32,
    /// What held it up, as its own figures tell; whole run.
    pub(crate) account: String,
    /// Bytes of each second, and connections at its end.
    pub(crate) each_second: Vec<(u64, u32)>,
}

/// The control thread's own, for metadata: it carries no records, so that plain TCP does not get
/// one for it.
const CONTROL_CONNECTIONS: u32 = 1;

pub(super) fn play(args: &FollowArgs) -> Result<(), BenchError> {
    let job = args.mirror.copy().follow()?;
    let fetching = || established().saturating_sub(CONTROL_CONNECTIONS);
    let mut seen = Vec::new();
    let figures = || {
        seen.push(fetching());
        Ok((job.status().shards.stats.append.bytes_appended, cpu_seconds()))
    };
    let window = args.window.measure_each(figures, || job.check().is_err());
    let connections = fetching();
    let account = account(&job.status().shards.stats);
    let report = job.end()?;
    let Measured { bytes, seconds, cpu_seconds, each_second } = window?;
    if !report.clean {
        return Err(BenchError::Incomplete(format!("{:?}", report.ended)));
    }
    let rss_bytes = peak_rss(std::process::id()).unwrap_or(0);
    let side = Side { bytes, seconds, cpu_seconds, rss_bytes };
    // The first look is before the first second.
    let each_second = each_second.into_iter().zip(seen.into_iter().skip(1)).collect();
    tell(&Followed { side, connections, account, each_second })
}

fn account(stats: &ShardStats) -> String {
    let (spent, stripes) = (stats.spent, stats.stripes);
    format!(
        "connections waited {:.1} s, received {:.1} s, stalled {:.1} s, out of turn {:.1} s; ranges \
         of stripes {}, holes {}, lost {}, {} kB twice; {} questions, {} of them ahead",
        spent.waiting.as_secs_f64(),
        spent.receiving.as_secs_f64(),
        spent.stalled.as_secs_f64(),
        spent.out_of_turn.as_secs_f64(),
        stripes.ranges,
        stripes.holes,
        stripes.lost,
        stripes.overlap_bytes / 1_000,
        stats.fetches,
        stats.fetches_ahead,
    )
}

/// Of this network namespace.
fn established() -> u32 {
    let table = fs::read_to_string("/proc/self/net/tcp").unwrap_or_default();
    // Columns: number, local address, remote address, state; 01 is ESTABLISHED.
    let open = table.lines().filter(|line| line.split_whitespace().nth(3) == Some("01")).count();
    u32::try_from(open).unwrap_or(u32::MAX)
}
