//! The thread of a shard: one glommio executor, pinned, with as little locked memory
//! as glommio allows.

use std::future::Future;
use std::io;
use std::sync::mpsc::{self, SyncSender};

use glommio::{
    BuilderErrorKind, ExecutorJoinHandle, GlommioError, LocalExecutorBuilder, Placement,
};
use heliostat_core::types::ShardId;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::ring::{RingError, features_of};

/// Memory that glommio registers with each of its three rings, in bytes. Its least
/// value: segment files and sockets bring their own buffers, so nothing uses it. The
/// default of 10 MiB would pin 30 MiB a shard, and an ordinary user may lock 8 MiB in
/// all processes together.
pub const IO_MEMORY_BYTES: usize = 64 << 10;

/// Submission entries of each of glommio's rings. They carry polls, timers and the bell;
/// what does not fit waits in glommio's own queue.
pub const RING_DEPTH: usize = 128;

/// Locked memory of one shard, in bytes: three registrations. Disk and socket buffers
/// are not registered.
pub const LOCKED_BYTES_PER_SHARD: u64 = 3 * (64 << 10);

/// Below this limit on locked memory, in bytes, glommio refuses to start, whatever its
/// settings are.
pub const MEMLOCK_BYTES_MIN: u64 = 512 << 10;

/// Why a shard did not start, or how it ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExecutorError {
    /// The limit on locked memory is too low.
    #[error(
        "shard {shard}: the limit on locked memory is {limit} bytes, at least {needed} are \
         needed; type: ulimit -l {}, or set LimitMEMLOCK= of the service", needed.div_ceil(1024)
    )]
    LockedMemory {
        /// The shard.
        shard: u16,
        /// The limit of this process, in bytes.
        limit: u64,
        /// What glommio asks for, in bytes.
        needed: u64,
    },
    /// The CPU is not there, or not ours.
    #[error(
        "shard {shard} cannot be pinned to CPU {cpu}; choose shards and CPUs within the \
         affinity of the process (taskset -p, cpuset of the container)"
    )]
    Cpu {
        /// The shard.
        shard: u16,
        /// The CPU.
        cpu: usize,
    },
    /// No io_uring.
    #[error("shard {shard} has no io_uring")]
    Ring {
        /// The shard.
        shard: u16,
        /// Why, and the remedy.
        #[source]
        source: RingError,
    },
    /// Anything else that keeps the thread from starting.
    #[error("shard {shard} did not start")]
    Start {
        /// The shard.
        shard: u16,
        /// What glommio or the system says.
        #[source]
        source: io::Error,
    },
    /// A bug of ours: the thread panicked.
    #[error("shard {shard} panicked")]
    Panicked {
        /// The shard.
        shard: u16,
    },
}

/// A running shard.
#[derive(Debug)]
#[must_use = "a shard that nobody joins fails unseen"]
pub struct ShardThread<T: Send + 'static> {
    shard: ShardId,
    cpu: Option<usize>,
    handle: ExecutorJoinHandle<T>,
}

impl<T: Send + 'static> ShardThread<T> {
    /// Waits for its future to end and returns what it returned.
    ///
    /// # Errors
    /// [`ExecutorError::Panicked`]; the others only before the future has started.
    pub fn join(self) -> Result<T, ExecutorError> {
        let Self { shard, cpu, handle } = self;
        handle.join().map_err(|error| explain(shard, cpu, error))
    }
}

/// Starts a shard's thread, named `shard-<n>-<executor>` and pinned to `cpu` if given,
/// and runs the future that `make` gives there. `make` is called on that thread, so what
/// belongs to the thread (rings, sockets) is made inside. Returns once the executor
/// works.
///
/// # Errors
/// [`ExecutorError`] with the remedy, if the executor does not come up.
pub fn spawn_pinned<G, F, T>(
    shard: ShardId,
    cpu: Option<usize>,
    make: G,
) -> Result<ShardThread<T>, ExecutorError>
where
    G: FnOnce() -> F + Send + 'static,
    F: Future<Output = T> + 'static,
    T: Send + 'static,
{
    check_system(shard)?;
    let (started, has_started) = mpsc::sync_channel::<()>(1);
    let handle = LocalExecutorBuilder::new(cpu.map_or(Placement::Unbound, Placement::Fixed))
        .name(&format!("shard-{}", shard.0))
        .io_memory(IO_MEMORY_BYTES)
        .ring_depth(RING_DEPTH)
        .spawn(move || {
            announce(&started);
            make()
        })
        .map_err(|error| explain(shard, cpu, error))?;
    let thread = ShardThread { shard, cpu, handle };
    if has_started.recv().is_ok() {
        return Ok(thread);
    }
    // The sender went away unused: the executor failed on its thread, and says why.
    match thread.join() {
        Err(error) => Err(error),
        Ok(_) => Err(ExecutorError::Panicked { shard: shard.0 }),
    }
}

fn announce(started: &SyncSender<()>) {
    // The other end waits for it; were it gone, nobody would want to know.
    let _ = started.send(());
}

/// What glommio answers with a bare sentence or a panic, asked before it can.
fn check_system(shard: ShardId) -> Result<(), ExecutorError> {
    let shard = shard.0;
    let limit = getrlimit(Resource::Memlock).current.unwrap_or(u64::MAX);
    if limit < MEMLOCK_BYTES_MIN {
        return Err(ExecutorError::LockedMemory { shard, limit, needed: MEMLOCK_BYTES_MIN });
    }
    features_of().map(drop).map_err(|source| ExecutorError::Ring { shard, source })
}

fn explain(shard: ShardId, cpu: Option<usize>, error: GlommioError<()>) -> ExecutorError {
    let shard = shard.0;
    match error {
        GlommioError::BuilderError(BuilderErrorKind::NonExistentCpus { cpu }) => {
            ExecutorError::Cpu { shard, cpu }
        }
        GlommioError::BuilderError(BuilderErrorKind::ThreadPanic(_)) => {
            ExecutorError::Panicked { shard }
        }
        other => {
            let source = io::Error::from(other);
            match (Errno::from_io_error(&source), cpu) {
                // Pinning outside the cpuset of the process.
                (Some(Errno::INVAL), Some(cpu)) => ExecutorError::Cpu { shard, cpu },
                _ => ExecutorError::Start { shard, source },
            }
        }
    }
}
