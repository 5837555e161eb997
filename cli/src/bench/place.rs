//! The directory of a benchmark: made for it, bounded, and gone with it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heliostat_io::disk::disk_space;

use crate::failure::Failure;
use crate::output::size;

/// A job sees what it has copied a few times a second, and its files may be preallocated: so
/// much more than was asked for may lie on the disk for a moment.
const SLACK_BYTES: u64 = 1 << 30;

/// Shards of a job that was aborted may make files for a moment.
const ABORTED_WITHIN: Duration = Duration::from_secs(5);

/// A directory that goes with the benchmark.
#[derive(Debug)]
pub(super) struct Place(PathBuf);

impl Place {
    /// In `base`, or where temporary files are.
    pub(super) fn new(base: Option<&Path>) -> Result<Self, Failure> {
        let base = base.map_or_else(std::env::temp_dir, Path::to_path_buf);
        let root = base.join(format!("heliostat-bench-{}", std::process::id()));
        let failed = |error| {
            let failure = Failure::from_error(root.display().to_string(), error);
            failure.remedy("name a directory that this user can write with --dir")
        };
        fs::create_dir_all(&base).map_err(failed)?;
        // One that is there already is somebody else's.
        fs::create_dir(&root).map_err(failed)?;
        Ok(Self(root))
    }

    pub(super) fn root(&self) -> &Path {
        &self.0
    }

    pub(super) fn source(&self) -> PathBuf {
        self.0.join("source")
    }

    pub(super) fn copy(&self) -> PathBuf {
        self.0.join("copy")
    }

    /// Its pages must not be written back during the next round.
    pub(super) fn remove_copy(&self) -> Result<(), Failure> {
        let copy = self.copy();
        match fs::remove_dir_all(&copy) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Failure::from_error(copy.display().to_string(), error))
            }
            _ => Ok(()),
        }
    }

    /// What a copy may hold at most, of the bytes that are wanted `times`; `is_exact` if less
    /// will not do.
    pub(super) fn room_for(
        &self,
        wanted: u64,
        times: u64,
        keep_free: u64,
        is_exact: bool,
    ) -> Result<u64, Failure> {
        let space = disk_space(&self.0)
            .map_err(|error| Failure::from_error(self.0.display().to_string(), error))?;
        let most = most_bytes(space.free_bytes, times, keep_free);
        if most >= wanted {
            return Ok(wanted);
        }
        if is_exact || most == 0 {
            let needed = wanted.saturating_mul(times) + SLACK_BYTES + keep_free;
            let have = size(space.free_bytes);
            let failure = Failure::new(format!(
                "{}: {have} free, {} needed for {} and what is kept free",
                self.0.display(),
                size(needed),
                size(wanted),
            ));
            return Err(failure.remedy("name another directory with --dir, or fewer --bytes"));
        }
        Ok(most)
    }
}

/// The low-water mark, and room for what is seen late, stay free.
fn most_bytes(free: u64, times: u64, keep_free: u64) -> u64 {
    free.saturating_sub(keep_free).saturating_sub(SLACK_BYTES) / times.max(1)
}

impl Drop for Place {
    fn drop(&mut self) {
        let begun = Instant::now();
        while let Err(error) = fs::remove_dir_all(&self.0)
            && error.kind() == io::ErrorKind::DirectoryNotEmpty
            && begun.elapsed() < ABORTED_WITHIN
        {
            std::thread::park_timeout(ABORTED_WITHIN / 100);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_leaves_the_low_water_mark_free() {
        let gib = 1 << 30;
        assert_eq!(most_bytes(10 * gib, 1, 2 * gib), 7 * gib);
        assert_eq!(most_bytes(10 * gib, 2, gib), 4 * gib);
        assert_eq!(most_bytes(gib / 2, 1, 0), 0);
    }

    #[test]
    fn a_place_goes_with_all_that_is_in_it() {
        let place = Place::new(None).unwrap();
        let root = place.root().to_path_buf();
        fs::create_dir_all(place.copy()).unwrap();
        assert!(Place::new(None).is_err(), "one of the same name is not taken over");
        place.remove_copy().unwrap();
        assert!(root.exists() && !place.copy().exists());
        assert!(place.room_for(1, 1, 0, true).is_ok());
        let refused = place.room_for(u64::MAX / 4, 2, 0, true).unwrap_err().to_string();
        assert!(refused.contains("--bytes"), "{refused}");
        drop(place);
        assert!(!root.exists());
    }
}
