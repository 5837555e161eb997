//! One copy, from nothing to a clean stop, within limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use heliostat_io::control::{Ended, JobConfig, PartitionState, Status};

use super::path::Path;
use crate::failure::Failure;
use crate::output::Notes;
use crate::process::cpu_time;
use crate::run_job::{Next, run_job};

/// Why a copy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LapEnd {
    /// It has what the source had at its start.
    CaughtUp,
    /// It holds as much as it was to hold.
    Bytes,
    /// The time was over.
    Time,
    /// The disk has no more room than is to stay free.
    NoRoom,
    /// Ctrl-C.
    Asked,
}

impl LapEnd {
    /// A word or two.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::CaughtUp => "caught up",
            Self::Bytes => "byte limit",
            Self::Time => "time limit",
            Self::NoRoom => "no room",
            Self::Asked => "stopped",
        }
    }
}

/// What ends a copy before it is complete.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    pub(super) bytes: Option<u64>,
    pub(super) until: Option<Instant>,
}

impl Limits {
    fn reached(&self, status: &Status, now: Instant) -> Option<LapEnd> {
        if status.parked {
            return Some(LapEnd::NoRoom);
        }
        if self.bytes.is_some_and(|most| status.totals.bytes_appended >= most) {
            return Some(LapEnd::Bytes);
        }
        self.until.is_some_and(|until| now >= until).then_some(LapEnd::Time)
    }
}

/// One look at a copy that runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look<'a> {
    pub(super) status: &'a Status,
    /// Processor time of the mirror since the copy began.
    pub(super) cpu: Duration,
}

/// A copy that has ended; all of it is durable.
#[derive(Debug)]
pub(super) struct Lap {
    pub(super) ended: LapEnd,
    pub(super) took: Duration,
    pub(super) cpu: Duration,
    pub(super) status: Arc<Status>,
}

impl Lap {
    /// Copies; the copy is left for the caller to remove.
    pub(super) fn run(
        config: JobConfig,
        limits: Limits,
        (path, notes): (Option<&Path>, &Notes),
        look: &mut dyn FnMut(&Look<'_>),
    ) -> Result<Self, Failure> {
        // What the path costs is not the mirror's.
        let own_cpu = || cpu_time().saturating_sub(Path::cpu(path));
        let (begun, cpu_before) = (Instant::now(), own_cpu());
        let mut reached = None;
        let mut show = |status: &Status| {
            look(&Look { status, cpu: own_cpu().saturating_sub(cpu_before) });
            reached = reached.or_else(|| limits.reached(status, Instant::now()));
            if reached.is_some() { Next::Stop } else { Next::GoOn }
        };
        let finished = run_job(config, None, notes, &mut show)?;
        let (took, cpu) = (begun.elapsed(), own_cpu().saturating_sub(cpu_before));
        let report = finished.report;
        if let Some(error) = finished.shard_errors.first() {
            return Err(Failure::new(format!("a shard failed: {error}")));
        }
        let failed = report.status.partitions.iter().find(|p| p.state == PartitionState::Failed);
        if let Some(partition) = failed {
            let why = partition.trouble.as_ref().map_or("unknown", |(why, _)| why);
            let at = &partition.partition;
            let failure =
                Failure::new(format!("{at} is not copied, so nothing is measured: {why}"));
            return Err(failure.remedy("leave its topic out with --exclude"));
        }
        let ended = match report.ended {
            Ended::CaughtUp => LapEnd::CaughtUp,
            Ended::Stopped => reached.unwrap_or(LapEnd::Asked),
            Ended::Aborted => LapEnd::Asked,
        };
        Ok(Self { ended, took, cpu, status: report.status })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_limit_ends_a_copy() {
        let now = Instant::now();
        let status = |bytes, parked| {
            let mut status = Status { parked, ..Status::default() };
            status.totals.bytes_appended = bytes;
            status
        };
        let limits = Limits { bytes: Some(10), until: Some(now + Duration::from_secs(1)) };
        assert_eq!(limits.reached(&status(9, false), now), None);
        assert_eq!(limits.reached(&status(10, false), now), Some(LapEnd::Bytes));
        let later = now + Duration::from_secs(1);
        assert_eq!(limits.reached(&status(9, false), later), Some(LapEnd::Time));
        assert_eq!(limits.reached(&status(9, true), later), Some(LapEnd::NoRoom));
        assert_eq!(Limits::default().reached(&status(u64::MAX, false), later), None);
    }
}
