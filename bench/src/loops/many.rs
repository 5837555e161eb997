//! Slices into very many files, few of them open at a time: what so many appends cost at least.
//!
//! As the product does, it opens a file to append to it, closes none before it is synced, and
//! leaves nothing unsynced for longer than a second; files that wait are synced together.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::cut_off;
use crate::raw::Slice;

/// One read takes many slices.
const BUFFER_BYTES: usize = 1 << 20;
/// The product's `flush.ms`.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// See the module.
#[derive(Debug)]
pub(crate) struct Many {
    dir: PathBuf,
    open_max: usize,
    syncs: bool,
    open: HashMap<u32, File>,
    synced_at: Instant,
    buffer: Vec<u8>,
}

impl Many {
    /// Appends to the files of `dir`; without `syncs`, the system writes them when it likes.
    pub(crate) fn new(dir: PathBuf, open_max: usize, syncs: bool) -> Self {
        let (open, synced_at) = (HashMap::new(), Instant::now());
        Self { dir, open_max, syncs, open, synced_at, buffer: vec![0; BUFFER_BYTES] }
    }

    /// Makes the files, each in a directory of its own as a log is.
    pub(crate) fn prepare(dir: &Path, partitions: u32) -> io::Result<()> {
        for partition in 0..partitions {
            let path = path_of(dir, partition);
            fs::create_dir_all(path.parent().unwrap_or(dir))?;
            OpenOptions::new().create(true).append(true).open(path)?;
        }
        sync_all(&File::open(dir)?)
    }

    /// Appends what comes until `stream` ends; tells `written` of each slice's length.
    pub(crate) fn drain(
        &mut self,
        stream: &mut TcpStream,
        mut written: impl FnMut(u64),
    ) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut filled = 0;
        loop {
            let have = stream.read(buffer.get_mut(filled..).unwrap_or_default())?;
            if have == 0 {
                return if filled == 0 { Ok(()) } else { Err(cut_off()) };
            }
            filled += have;
            let mut rest = buffer.get(..filled).unwrap_or_default();
            loop {
                let mut after = rest;
                let Some(slice) = Slice::read(&mut after).ok().flatten() else { break };
                let len = usize::try_from(slice.len).unwrap_or(usize::MAX);
                let Some((bytes, after)) = after.split_at_checked(len) else { break };
                self.append(slice.partition, bytes)?;
                written(u64::from(slice.len));
                rest = after;
            }
            let left = rest.len();
            if left == buffer.len() {
                return Err(io::Error::other("a slice larger than the buffer"));
            }
            buffer.copy_within(filled - left..filled, 0);
            filled = left;
        }
    }

    fn append(&mut self, partition: u32, bytes: &[u8]) -> io::Result<()> {
        if !self.open.contains_key(&partition) {
            if self.open.len() >= self.open_max {
                self.sync()?;
                self.open.clear();
            }
            let file = OpenOptions::new().append(true).open(path_of(&self.dir, partition))?;
            self.open.insert(partition, file);
        }
        if let Some(file) = self.open.get_mut(&partition) {
            file.write_all(bytes)?;
        }
        if self.synced_at.elapsed() >= SYNC_EVERY {
            self.sync()?;
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.synced_at = Instant::now();
        match self.open.values().next() {
            Some(file) if self.syncs => sync_all(file),
            _ => Ok(()),
        }
    }
}

/// One call for all files: cheaper than one for each of a thousand.
fn sync_all(of_its_file_system: &File) -> io::Result<()> {
    Ok(rustix::fs::syncfs(of_its_file_system)?)
}

fn path_of(dir: &Path, partition: u32) -> PathBuf {
    dir.join(format!("many-{partition}/00000000000000000000.log"))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn slices_find_their_files_whoever_is_open() {
        let dir = tempfile::tempdir().expect("a directory");
        Many::prepare(dir.path(), 3).expect("room");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut sender = TcpStream::connect(listener.local_addr().expect("bound")).expect("there");
        for (partition, bytes) in [(0, "a"), (1, "bb"), (2, "c"), (0, "dd")] {
            let len = u32::try_from(bytes.len()).expect("short");
            sender.write_all(&Slice { partition, len }.encode()).expect("sent");
            sender.write_all(bytes.as_bytes()).expect("sent");
        }
        drop(sender);
        let mut moved = 0;
        let mut many = Many::new(dir.path().to_path_buf(), 2, true);
        let (mut stream, _) = listener.accept().expect("connected");
        many.drain(&mut stream, |bytes| moved += bytes).expect("appended");
        let read = |partition| fs::read(path_of(dir.path(), partition)).expect("a file");
        assert_eq!(
            (moved, read(0), read(1), read(2)),
            (6, b"add".into(), b"bb".into(), b"c".into())
        );
    }
}
