//! A small file system of its own, which can be filled, grown and made read-only.

use std::ffi::CString;
use std::io;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use tempfile::TempDir;

use super::error::{Result, ScenarioError};

/// A tmpfs in a fresh directory; dropping it unmounts it.
#[derive(Debug)]
pub struct TmpFs {
    dir: TempDir,
}

impl TmpFs {
    /// Mounts one of so many bytes.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::Wrong`] where this process may not mount.
    pub fn new(bytes: u64) -> Result<Self> {
        let dir =
            TempDir::with_prefix("tmpfs-").map_err(ScenarioError::file(&std::env::temp_dir()))?;
        let options = size_option(bytes)?;
        mount("tmpfs", dir.path(), "tmpfs", MountFlags::empty(), options.as_c_str()).map_err(
            |error| {
                ScenarioError::Wrong(format!(
                    "no tmpfs can be mounted here ({error}): this needs root, or CAP_SYS_ADMIN in \
                     a mount namespace of its own"
                ))
            },
        )?;
        Ok(Self { dir })
    }

    /// Whether this process may mount.
    pub fn is_allowed() -> bool {
        Self::new(1 << 20).is_ok()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Gives it another size.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::File`].
    pub fn resize(&self, bytes: u64) -> Result<()> {
        self.remount(MountFlags::empty(), size_option(bytes)?)
    }

    /// Lets nobody write to it any more, root included.
    ///
    /// # Errors
    ///
    /// [`ScenarioError::File`].
    pub fn make_read_only(&self) -> Result<()> {
        self.remount(MountFlags::RDONLY, CString::default())
    }

    fn remount(&self, flags: MountFlags, options: CString) -> Result<()> {
        mount_remount(self.path(), flags, options.as_c_str())
            .map_err(|error| ScenarioError::file(self.path())(io::Error::from(error)))
    }
}

impl Drop for TmpFs {
    fn drop(&mut self) {
        // Detached: a file that is still open must not keep it in the tree.
        let _ = unmount(self.dir.path(), UnmountFlags::DETACH);
    }
}

fn size_option(bytes: u64) -> Result<CString> {
    CString::new(format!("size={bytes}")).map_err(|error| ScenarioError::Wrong(error.to_string()))
}
