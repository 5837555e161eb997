//! A mirror job with its shards, until it ends: for `mirror`, `demo` and `bench`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use heliostat_core::log::cx::AppendMode;
use heliostat_io::control::metrics_http::MetricsServer;
use heliostat_io::control::{
    Ended, EventKind, Job, JobConfig, JobReport, ShardFleet, Status, StopSignals, spawn_shards,
};
use heliostat_io::preflight::usable_cpus;

use crate::failure::Failure;
use crate::output::{Notes, counted, size};

/// Longest time between two looks at a job, also when it has nothing new to show.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What a look at a job leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    GoOn,
    /// A clean stop.
    Stop,
}

/// A job that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) report: JobReport,
    /// What went wrong in shards.
    pub(crate) shard_errors: Vec<String>,
}

/// Runs a job to its end. SIGINT and SIGTERM stop it cleanly, a second one at once.
pub(crate) fn run_job(
    config: JobConfig,
    metrics: Option<SocketAddr>,
    notes: &Notes,
    show: &mut dyn FnMut(&Status) -> Next,
) -> Result<Finished, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::from_error("no runtime", error))?;
    let mut fleet = None;
    let outcome = runtime.block_on(run(config, metrics, notes, show, &mut fleet));
    // An abort does not wait for anything.
    let is_aborted = matches!(&outcome, Ok(report) if report.ended == Ended::Aborted);
    let shard_errors = match fleet {
        Some(fleet) if !is_aborted => ShardFleet::join(fleet),
        _ => Vec::new(),
    };
    Ok(Finished { report: outcome?, shard_errors })
}

async fn run(
    config: JobConfig,
    metrics: Option<SocketAddr>,
    notes: &Notes,
    show: &mut dyn FnMut(&Status) -> Next,
    fleet: &mut Option<ShardFleet>,
) -> Result<JobReport, Failure> {
    let server = match metrics {
        Some(address) => {
            let server = MetricsServer::bind(address).await;
            Some(server.map_err(|error| Failure::new(error.to_string()))?)
        }
        None => None,
    };
    let first_cpu = first_cpu(&usable_cpus(), config.shards);
    let spawn = |config: &JobConfig| {
        let (shards, ends) =
            spawn_shards(&config.log_dir, &config.mirror, config.shards, first_cpu)?;
        notes.note_settings(&format!(
            "{} with {} of buffers each; appends are {}",
            counted(config.shards, "shard"),
            size(config.mirror.shard_memory_bytes),
            match shards.mode {
                AppendMode::Buffered => "buffered".to_owned(),
                AppendMode::Direct { block_bytes } => format!("direct, in blocks of {block_bytes}"),
                AppendMode::Auto { block_bytes } => {
                    format!("direct for large answers, in blocks of {block_bytes}, else buffered")
                }
            }
        ));
        *fleet = Some(shards);
        Ok(ends)
    };
    let signals = StopSignals::catch();
    let mut signals = signals.map_err(|error| Failure::from_error("signals", error))?;
    // A source that hangs holds up the start for as long as a request may take.
    let started = tokio::select! {
        started = Job::start(config, spawn) => started,
        () = signals.next() => {
            notes.note("stopped before the source had answered");
            let status = Arc::default();
            return Ok(JobReport { ended: Ended::Stopped, clean: true, status });
        }
    };
    let (job, handle) = started.map_err(|error| Failure::from_error("mirror", error))?;
    if let Some(server) = server {
        tokio::spawn(server.serve(handle.watch()));
    }
    let running = job.run();
    tokio::pin!(running);
    let mut published = handle.watch();
    let mut events_shown = 0;
    let mut looks = tokio::time::interval(LOOK_EVERY);
    // The first signal asks for no more than a limit that was reached does.
    let (mut is_limited, mut is_signalled) = (false, false);
    loop {
        tokio::select! {
            ended = &mut running => {
                note_events(&handle.status(), &mut events_shown, notes);
                return ended.map_err(|error| Failure::from_error("mirror", error));
            }
            Ok(()) = published.changed() => looks.reset(),
            _ = looks.tick() => {}
            () = signals.next() => {
                if is_signalled || !is_limited {
                    handle.cancel();
                }
                is_signalled = true;
            }
        }
        let status = handle.status();
        note_events(&status, &mut events_shown, notes);
        // A second call would abort.
        if show(&status) == Next::Stop && !is_limited {
            is_limited = true;
            if !is_signalled {
                handle.cancel();
            }
        }
    }
}

/// The shards take the last cores, if these follow one another.
fn first_cpu(usable: &[usize], shards: usize) -> Option<usize> {
    let ours = usable.get(usable.len().checked_sub(shards)?..)?;
    let first = *ours.first()?;
    ours.iter().copied().eq(first..first + shards).then_some(first)
}

/// Prints what happened since the last look.
fn note_events(status: &Status, shown: &mut u64, notes: &Notes) {
    let new = status.events_seen.saturating_sub(*shown);
    let new = usize::try_from(new).unwrap_or(usize::MAX);
    for event in status.events.iter().skip(status.events.len().saturating_sub(new)) {
        if matches!(event.kind, EventKind::Added | EventKind::Moved) {
            continue;
        }
        match &event.partition {
            Some(partition) => notes.note(&format!("{partition}: {}", event.text)),
            None => notes.note(&event.text),
        }
    }
    *shown = status.events_seen;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_pinned_to_the_last_cores_that_follow_one_another() {
        assert_eq!(first_cpu(&[0, 1], 1), Some(1));
        assert_eq!(first_cpu(&[0, 1, 2, 3], 3), Some(1));
        assert_eq!(first_cpu(&[0, 2, 4], 2), None);
        assert_eq!(first_cpu(&[0], 2), None);
    }
}
