//! Files for reading, whoever else writes to them.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use heliostat_core::dump::FileBytes;

/// A file by plain reads: nothing happens to the reader when another process cuts it.
#[derive(Debug)]
pub(crate) struct FileView {
    file: File,
    len: u64,
}

impl FileView {
    /// Opens a file as long as it is now; what is appended later is not seen.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        Ok(Self { file, len: metadata.len() })
    }
}

impl FileBytes for FileView {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, from: u64, len: usize) -> io::Result<Cow<'_, [u8]>> {
        let left = self.len.saturating_sub(from);
        let len = usize::try_from(left).map_or(len, |left| len.min(left));
        let mut bytes = vec![0; len];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let at = from.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX));
            match self.file.read_at(rest, at) {
                Ok(0) => break,
                Ok(read) => filled = filled.saturating_add(read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(Cow::Owned(bytes))
    }
}
