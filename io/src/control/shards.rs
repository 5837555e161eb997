//! The shards of a job: threads, their settings, and their ends of the mailboxes.

use std::path::Path;
use std::time::Duration;

use heliostat_core::config::{AppendDirect, MirrorConfig};
use heliostat_core::engine::config::{ShardConfig, StripeLimits};
use heliostat_core::log::cx::{AppendLimits, AppendMode};
use heliostat_core::types::ShardId;

use crate::disk::{DirectIo, DiskConfig, disk_space, probe_direct_io};
use crate::huge_page::map_together;
use crate::net::SocketOptions;
use crate::preflight::raise_open_files;
use crate::shard::executor::{ExecutorError, ShardThread, spawn_pinned};
use crate::shard::mailbox::{ControlEnd, mailbox};
use crate::shard::run::{ShardError, ShardSetup, run};

/// Space that all shards together may reserve beyond their data, in bytes; never more
/// than a twentieth of what is free.
const PREALLOCATE_BYTES_MAX: u64 = 8 << 30;

/// Open files that are not `.log` files of a shard: connections, threads that open logs, side
/// files on their way.
const OPEN_FILES_BESIDE: usize = 512;
/// What a shard cannot do without, whatever the limit.
const OPEN_FILES_MIN: usize = 16;
/// More are not worth their memory: who has so many partitions opens and closes.
const OPEN_FILES_MAX: usize = 4_096;

/// Why shards did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardsError {
    /// No thread, or no io_uring.
    #[error(transparent)]
    Executor(#[from] ExecutorError),
    /// Out of file descriptors, most likely.
    #[error("no mailbox for a shard; raise the limit on open files (ulimit -n)")]
    Mailbox(#[source] std::io::Error),
    /// The log dir cannot be written.
    #[error("log dir cannot be probed for direct writes; it must be writable and have room")]
    Probe(#[source] std::io::Error),
    /// `append.direct=true` on a file system that refuses.
    #[error("append.direct=true, but {reason}; set it to auto or false")]
    Direct {
        /// Why direct writes do not work.
        reason: String,
    },
}

/// Threads of running shards.
#[derive(Debug)]
#[must_use = "a shard that nobody joins fails unseen"]
pub struct ShardFleet {
    threads: Vec<ShardThread<Result<(), ShardError>>>,
    /// How segment files are written.
    pub mode: AppendMode,
}

impl ShardFleet {
    /// Waits until every shard has ended, and returns what went wrong. The job's ends of
    /// the mailboxes must be gone, or the shards told to stop.
    pub fn join(self) -> Vec<String> {
        let outcome = |thread: ShardThread<Result<(), ShardError>>| match thread.join() {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        self.threads.into_iter().filter_map(outcome).collect()
    }
}

/// What a fleet has of this machine, and its name at the source.
#[derive(Clone, Copy)]
pub struct FleetShare<'a> {
    /// So many fleets share the limit on open files and the room that is reserved.
    pub of: usize,
    /// Client ID of a shard's fetch connections, by its index.
    pub client_id: &'a dyn Fn(usize) -> String,
}

impl std::fmt::Debug for FleetShare<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FleetShare").field("of", &self.of).finish_non_exhaustive()
    }
}

/// Starts `count` shards on CPUs `first_cpu`, `first_cpu + 1`, … (`None`: not pinned).
///
/// # Errors
/// [`ShardsError`] with the remedy; shards that had started end by themselves.
pub fn spawn_shards(
    log_dir: &Path,
    config: &MirrorConfig,
    count: usize,
    first_cpu: Option<usize>,
) -> Result<(ShardFleet, Vec<ControlEnd>), ShardsError> {
    let client_id = |_| config.client_id.clone();
    spawn_fleet(log_dir, config, count, first_cpu, FleetShare { of: 1, client_id: &client_id })
}

/// The same for one of several fleets.
///
/// # Errors
/// As [`spawn_shards`].
pub fn spawn_fleet(
    log_dir: &Path,
    config: &MirrorConfig,
    count: usize,
    first_cpu: Option<usize>,
    share: FleetShare<'_>,
) -> Result<(ShardFleet, Vec<ControlEnd>), ShardsError> {
    let mode = append_mode(log_dir, config.append_direct)?;
    let reserve = disk_space(log_dir).map_err(ShardsError::Probe)?.free_bytes / 20;
    let shards = count.max(1).saturating_mul(share.of.max(1));
    let reserve = reserve.min(PREALLOCATE_BYTES_MAX) / u64::try_from(shards).unwrap_or(u64::MAX);
    let open_files_max = open_files_each(raise_open_files(), shards);
    let (mut threads, mut ends) = (Vec::new(), Vec::new());
    for index in 0..count {
        let (control, shard) = mailbox().map_err(ShardsError::Mailbox)?;
        let setup = ShardSetup {
            config: ShardConfig {
                open_files_max,
                client_id: (share.client_id)(index),
                ..shard_config(config, mode, reserve)
            },
            log_dir: log_dir.to_path_buf(),
            disk: disk_config(mode),
            sockets: SocketOptions {
                receive_buffer_bytes: config
                    .receive_buffer_bytes
                    .map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX)),
                ..SocketOptions::default()
            },
            mailbox: shard,
            seed: super::job::random(),
        };
        let id = ShardId(u16::try_from(index).unwrap_or(u16::MAX));
        threads.push(spawn_pinned(id, first_cpu.map(|cpu| cpu + index), move || run(setup))?);
        ends.push(control);
    }
    Ok((ShardFleet { threads, mode }, ends))
}

/// `.log` files that each shard may have open: as many again wait for the sync before they are
/// closed, and the rest of the process wants some.
fn open_files_each(limit: u64, shards: usize) -> usize {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let each = limit.saturating_sub(OPEN_FILES_BESIDE) / 2 / shards.max(1);
    each.clamp(OPEN_FILES_MIN, OPEN_FILES_MAX)
}

fn append_mode(log_dir: &Path, wanted: AppendDirect) -> Result<AppendMode, ShardsError> {
    if wanted == AppendDirect::Never {
        return Ok(AppendMode::Buffered);
    }
    match (probe_direct_io(log_dir).map_err(ShardsError::Probe)?, wanted) {
        (DirectIo::Works { alignment }, _) => {
            let block_bytes = u32::try_from(alignment).unwrap_or(4096);
            Ok(match wanted {
                AppendDirect::Always => AppendMode::Direct { block_bytes },
                AppendDirect::Auto | AppendDirect::Never => AppendMode::Auto { block_bytes },
            })
        }
        (DirectIo::Refused(reason), AppendDirect::Always) => {
            Err(ShardsError::Direct { reason: reason.to_string() })
        }
        (DirectIo::Refused(_), _) => Ok(AppendMode::Buffered),
    }
}

fn disk_config(mode: AppendMode) -> DiskConfig {
    match mode {
        AppendMode::Buffered => DiskConfig::default(),
        AppendMode::Direct { block_bytes } | AppendMode::Auto { block_bytes } => DiskConfig {
            alignment: usize::try_from(block_bytes).unwrap_or(4096),
            ..DiskConfig::default()
        },
    }
}

fn shard_config(config: &MirrorConfig, mode: AppendMode, preallocate_bytes: u64) -> ShardConfig {
    let base = ShardConfig::default();
    let connections = usize::try_from(config.fetch.connections_per_broker).unwrap_or(1);
    ShardConfig {
        client_id: config.client_id.clone(),
        buffer_bytes: usize::try_from(config.shard_memory_bytes).unwrap_or(usize::MAX),
        map_slots: map_together,
        append: AppendLimits {
            mode,
            check_crcs: config.check_crcs,
            flush_bytes: config.log.flush_bytes(),
            flush_after: config.log.flush_after(),
            ..base.append.clone()
        },
        preallocate_bytes,
        fetch_wait: Duration::from_millis(config.fetch.wait_max_ms.into()),
        fetch_min_bytes: config.fetch.min_bytes,
        fetch_linger: config.fetch.linger,
        fetch_max_bytes: config.fetch.response_max_bytes,
        partition_max_bytes: config.fetch.partition_max_bytes,
        busy_connections: connections,
        stripes: StripeLimits {
            connections_max: usize::try_from(config.fetch.connections_max).unwrap_or(1),
            partition_max: usize::try_from(config.fetch.stripes_max).unwrap_or(1),
            range_bytes_min: config.fetch.stripe_bytes,
            ..base.stripes
        },
        connect_timeout: config.connection_setup_timeout,
        request_timeout: config.request_timeout,
        backoff: (
            config.reconnect_backoff.max(Duration::from_millis(1)),
            config.reconnect_backoff_max.max(Duration::from_millis(1)),
        ),
        ..base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_files_are_shared_out_and_leave_room_for_the_rest() {
        // As many again may be open while they are closed: together they stay within the limit.
        for (limit, shards, each) in [
            (1_024, 1, 256),
            (1_024, 2, 128),
            (20_000, 4, 2_436),
            (1 << 20, 1, 4_096),
            (600, 8, 16),
        ] {
            assert_eq!(open_files_each(limit, shards), each, "{limit} for {shards}");
        }
        assert_eq!(open_files_each(u64::MAX, 1), 4_096);
    }
}
