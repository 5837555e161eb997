//! A window of a file as memory, for reading.
#![expect(unsafe_code, reason = "memory that a file backs; see `Window::open`")]

use std::fs::File;
use std::io;

use memmap2::{Advice, Mmap, MmapOptions};

/// Some bytes of a file, mapped read-only and already in memory.
pub(crate) struct Window(Mmap);

impl Window {
    /// Maps `len` bytes from `from` on. The file must not be cut while the window is
    /// open: only sealed files, or those of a log dir whose lock this process holds.
    ///
    /// # Errors
    /// From the system. `EFAULT` where touching the bytes would raise SIGBUS, be it that
    /// the disk cannot read them or that the file has become shorter: a plain read tells
    /// which.
    pub(crate) fn open(file: &File, from: u64, len: usize) -> io::Result<Self> {
        let mut options = MmapOptions::new();
        options.offset(from).len(len);
        // SAFETY: nobody writes to or cuts the file meanwhile, as this function demands:
        // a log dir has one process, by its lock, and the log reads cold files only while
        // nothing of them is in flight.
        let map = unsafe { options.map(file) }?;
        map.advise(Advice::Sequential)?;
        // Reads the pages now and reports what would otherwise be a signal.
        map.advise(Advice::PopulateRead)?;
        Ok(Self(map))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}
