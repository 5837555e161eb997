//! The directory of a measurement, and which processors it uses.

use std::path::{Path, PathBuf};

use rustix::thread::{CpuSet, Pid, sched_setaffinity};
use tempfile::TempDir;

use crate::error::BenchError;

/// The processor of sources.
pub(crate) const SOURCE_CPU: usize = 0;
/// The processor of whatever is measured.
pub(crate) const SINK_CPU: usize = 1;

/// A directory that goes with the measurement.
#[derive(Debug)]
pub(crate) struct Place(TempDir);

impl Place {
    /// In `base`, or where temporary files are.
    pub(crate) fn new(base: Option<&Path>) -> Result<Self, BenchError> {
        let base = base.map_or_else(std::env::temp_dir, Path::to_path_buf);
        TempDir::with_prefix_in("heliostat-bench-", &base)
            .map(Self)
            .map_err(BenchError::file(&base))
    }

    /// A directory of its own for each run; the run makes it.
    pub(crate) fn named(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Removes what a run left: its pages must not be written back during the next one.
    pub(crate) fn clear(&self, name: &str) -> Result<(), BenchError> {
        let path = self.named(name);
        match std::fs::remove_dir_all(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(BenchError::file(&path)(error))
            }
            _ => Ok(()),
        }
    }
}

/// Keeps this thread, and whatever it starts, on one processor; on all if there is only one.
pub(crate) fn pin(cpu: usize) -> Result<(), BenchError> {
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    if here < 2 {
        return Ok(());
    }
    set_processor(None, cpu)
}

/// Keeps another thread, by the kernel's number, on one processor.
pub(crate) fn pin_thread(thread: i32, cpu: usize) -> Result<(), BenchError> {
    set_processor(Pid::from_raw(thread), cpu)
}

fn set_processor(thread: Option<Pid>, cpu: usize) -> Result<(), BenchError> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(thread, &set)
        .map_err(|error| BenchError::system("pin to a processor")(error.into()))
}
