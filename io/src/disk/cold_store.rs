//! Plain calls to the files of one log dir: recovery, truncation, checkpoints.
//!
//! For the control thread, never for a shard: each call may block. Large files are
//! scanned through a map of a few MiB at a time, so that neither memory nor address
//! space grows with the file.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use heliostat_core::log::disk::LogPath;
use heliostat_core::log::store::{ColdStore, StoreEntry, StoreError};
use rustix::io::Errno;

use super::group_sync::GroupSync;
use super::lock::LOCK_FILE;
use super::map::Window;

/// Bytes mapped at a time. A multiple of every page size.
const WINDOW_BYTES: u64 = 8 << 20;
/// Files, or ends of files, up to this size are read instead of mapped.
const MAP_BYTES_MIN: u64 = 256 << 10;
/// Kafka's suffix for a file that is written beside the one it will replace.
const TMP_SUFFIX: &str = ".tmp";

/// The files of one log dir, whose lock the process holds.
#[derive(Clone, Debug)]
pub struct FileStore {
    root: PathBuf,
    /// Shared with clones; without it, every sync is one of its own.
    group: Option<Arc<GroupSync>>,
    /// The partition directory that was made last, and that is durable.
    made: String,
}

impl FileStore {
    /// The files below `log_dir`.
    pub fn new(log_dir: &Path) -> Self {
        let group = File::open(log_dir).ok().map(|root| Arc::new(GroupSync::new(root)));
        Self { root: log_dir.to_path_buf(), group, made: String::new() }
    }

    fn sync_file(&self, file: &File) -> io::Result<()> {
        self.group.as_ref().map_or_else(|| file.sync_all(), |group| group.sync(file))
    }

    /// The path of a partition directory or, if `dir` is empty, of the log dir.
    fn dir(&self, action: &'static str, dir: &str) -> Result<PathBuf, StoreError> {
        if !is_plain(dir) {
            return Err(refusal(action, dir.to_owned(), Errno::INVAL));
        }
        Ok(if dir.is_empty() { self.root.clone() } else { self.root.join(dir) })
    }

    fn file(&self, action: &'static str, path: &LogPath) -> Result<PathBuf, StoreError> {
        if path.name.is_empty() || !is_plain(&path.name) {
            return Err(refusal(action, path.to_string(), Errno::INVAL));
        }
        if path.dir.is_empty() && path.name == LOCK_FILE {
            // Closing any descriptor of it would release the lock of this process.
            return Err(refusal(action, path.to_string(), Errno::ACCESS));
        }
        Ok(self.dir(action, &path.dir)?.join(&path.name))
    }

    /// Makes what happened to the names in `dir` durable.
    fn sync_dir(&self, dir: &str) -> Result<(), StoreError> {
        let path = self.dir("sync", dir)?;
        File::open(path)
            .and_then(|dir| self.sync_file(&dir))
            .map_err(|error| failure("sync", dir.to_owned(), &error))
    }

    fn write_tmp(&self, tmp: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(0o644).open(tmp)?;
        file.write_all(bytes)?;
        self.sync_file(&file)
    }
}

impl ColdStore for FileStore {
    fn list(&self, dir: &str) -> Result<Vec<StoreEntry>, StoreError> {
        let failed = |error: &io::Error| failure("list", dir.to_owned(), error);
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.dir("list", dir)?).map_err(|error| failed(&error))? {
            let entry = entry.map_err(|error| failed(&error))?;
            let metadata = match fs::metadata(entry.path()) {
                Ok(metadata) => metadata,
                // Removed since, or a link to nothing.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(failed(&error)),
            };
            // Names of ours and of Kafka's are ASCII; others are nobody's business here.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let is_dir = metadata.is_dir();
            entries.push(StoreEntry { name, len: if is_dir { 0 } else { metadata.len() }, is_dir });
        }
        Ok(entries)
    }

    fn read(&self, path: &LogPath, bytes_max: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let failed = |error: &io::Error| failure("read", path.to_string(), error);
        let file = match File::open(self.file("read", path)?) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        let mut bytes = Vec::new();
        // One more than allowed, to tell a file at the limit from one above.
        let limit = bytes_max.saturating_add(1);
        file.take(limit).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        if u64::try_from(bytes.len()).is_ok_and(|len| len > bytes_max) {
            return Err(refusal("read", path.to_string(), Errno::FBIG));
        }
        Ok(Some(bytes))
    }

    fn scan(
        &self,
        path: &LogPath,
        from: u64,
        see: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let at = self.file("read", path)?;
        let scanned = File::open(at).and_then(|mut file| {
            let end = file.metadata()?.len();
            let mut position = from;
            while position < end {
                let len = (end - position).min(WINDOW_BYTES);
                if show(&mut file, position, len, see)?.is_break() {
                    break;
                }
                position += len;
            }
            Ok(())
        });
        scanned.map_err(|error| failure("read", path.to_string(), &error))
    }

    fn replace(&mut self, path: &LogPath, bytes: &[u8]) -> Result<(), StoreError> {
        let at = self.file("write", path)?;
        self.create_dir(&path.dir)?;
        let tmp = at.with_file_name(format!("{}{TMP_SUFFIX}", path.name));
        let replaced = self.write_tmp(&tmp, bytes).and_then(|()| fs::rename(&tmp, &at));
        if let Err(error) = replaced {
            // The room it takes may be what the disk lacks; if it cannot be removed
            // either, the next replace overwrites it.
            let _ = fs::remove_file(&tmp);
            return Err(failure("write", path.to_string(), &error));
        }
        self.sync_dir(&path.dir)
    }

    fn append(&mut self, path: &LogPath, bytes: &[u8]) -> Result<(), StoreError> {
        let at = self.file("append", path)?;
        let mut options = OpenOptions::new();
        let appended =
            options.append(true).create(true).mode(0o644).open(at).and_then(|mut file| {
                file.write_all(bytes)?;
                self.sync_file(&file)
            });
        appended.map_err(|error| failure("append", path.to_string(), &error))?;
        // Cheap when the name was there already.
        self.sync_dir(&path.dir)
    }

    fn set_len(&mut self, path: &LogPath, len: u64) -> Result<(), StoreError> {
        let at = self.file("truncate", path)?;
        let cut = OpenOptions::new().write(true).open(at).and_then(|file| {
            file.set_len(len)?;
            crate::fault::point("disk.shortened");
            self.sync_file(&file)
        });
        cut.map_err(|error| failure("truncate", path.to_string(), &error))
    }

    fn sync(&mut self, path: &LogPath) -> Result<(), StoreError> {
        let at = self.file("sync", path)?;
        let synced = OpenOptions::new().write(true).open(at).and_then(|file| self.sync_file(&file));
        synced.map_err(|error| failure("sync", path.to_string(), &error))
    }

    fn remove(&mut self, path: &LogPath) -> Result<(), StoreError> {
        match fs::remove_file(self.file("remove", path)?) {
            Ok(()) => {
                let kind = path.name.rsplit('.').next().unwrap_or_default();
                crate::fault::point_of("disk.removed", kind);
                self.sync_dir(&path.dir)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(failure("remove", path.to_string(), &error)),
        }
    }

    fn rename(&mut self, path: &LogPath, to_name: &str) -> Result<(), StoreError> {
        let to = LogPath { dir: path.dir.clone(), name: to_name.to_owned() };
        fs::rename(self.file("rename", path)?, self.file("rename", &to)?)
            .map_err(|error| failure("rename", path.to_string(), &error))?;
        self.sync_dir(&path.dir)
    }

    fn create_dir(&mut self, dir: &str) -> Result<(), StoreError> {
        if dir.is_empty() || (self.made == dir && self.dir("find", dir)?.is_dir()) {
            return Ok(());
        }
        match DirBuilder::new().mode(0o755).create(self.dir("create", dir)?) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failure("create", dir.to_owned(), &error)),
        }
        // Even if it was there: whoever made it may have died before the sync.
        self.sync_dir("")?;
        dir.clone_into(&mut self.made);
        Ok(())
    }
}

/// Shows `len` bytes from `position` on; fewer if the file has become shorter.
fn show(
    file: &mut File,
    position: u64,
    len: u64,
    see: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
) -> io::Result<ControlFlow<()>> {
    let bytes = usize::try_from(len).map_err(|_| Errno::OVERFLOW)?;
    if len >= MAP_BYTES_MIN
        && let Ok(window) = Window::open(file, position, bytes)
    {
        return Ok(see(window.bytes()));
    }
    // Also where mapping fails: a plain read says what is wrong.
    let mut buffer = Vec::new();
    file.seek(SeekFrom::Start(position))?;
    file.take(len).read_to_end(&mut buffer)?;
    Ok(if buffer.is_empty() { ControlFlow::Break(()) } else { see(&buffer) })
}

/// Whether a name stays where it is put.
fn is_plain(name: &str) -> bool {
    !name.contains(['/', '\0']) && name != "." && name != ".."
}

fn failure(action: &'static str, path: String, error: &io::Error) -> StoreError {
    let errno = error.raw_os_error().unwrap_or(Errno::IO.raw_os_error());
    StoreError { action, path, errno }
}

fn refusal(action: &'static str, path: String, errno: Errno) -> StoreError {
    StoreError { action, path, errno: errno.raw_os_error() }
}
