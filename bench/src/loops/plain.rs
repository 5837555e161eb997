//! read, pwrite: through the page cache, by copying.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use super::{Mover, file_name, receive};
use crate::raw::Slice;

/// What one read takes at most: it stays in the processor's cache until it is written.
const BUFFER_BYTES: usize = 256 << 10;

/// See the module.
#[derive(Debug)]
pub(crate) struct Plain {
    dir: PathBuf,
    files: BTreeMap<u32, (File, u64)>,
    buffer: Vec<u8>,
}

impl Plain {
    pub(crate) fn new(dir: PathBuf) -> Self {
        Self { dir, files: BTreeMap::new(), buffer: vec![0; BUFFER_BYTES] }
    }
}

/// The file of `partition` and where it ends; made at its first slice.
pub(super) fn file_of<'a>(
    files: &'a mut BTreeMap<u32, (File, u64)>,
    dir: &std::path::Path,
    partition: u32,
) -> io::Result<&'a mut (File, u64)> {
    use std::collections::btree_map::Entry;
    match files.entry(partition) {
        Entry::Occupied(entry) => Ok(entry.into_mut()),
        Entry::Vacant(entry) => {
            Ok(entry.insert((File::create_new(dir.join(file_name(partition)))?, 0)))
        }
    }
}

impl Mover for Plain {
    fn slice(&mut self, slice: Slice, stream: &mut TcpStream) -> io::Result<()> {
        let (file, end) = file_of(&mut self.files, &self.dir, slice.partition)?;
        let mut left = u64::from(slice.len);
        while left > 0 {
            let room = self.buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let have = receive(stream, self.buffer.get_mut(..room).unwrap_or_default())?;
            file.write_all_at(self.buffer.get(..have).unwrap_or_default(), *end)?;
            let have = u64::try_from(have).unwrap_or(u64::MAX);
            *end = end.saturating_add(have);
            left = left.saturating_sub(have);
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.files.values().try_for_each(|(file, _)| file.sync_data())
    }
}
