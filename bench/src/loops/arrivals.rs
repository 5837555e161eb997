//! Each arrival is written at once, past the page cache, and nothing else is done: the least
//! time from bytes received to bytes written. A thread beside it may make the files durable
//! again and again, as the product does.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use heliostat_core::log::slot::{Slot, SlotClass, SlotPool};
use heliostat_io::huge_page::map_together;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, ftruncate, open};
use rustix::io::pwrite;

use super::{Mover, file_name, receive};
use crate::raw::Slice;

/// Unit of direct writes; covers today's disks.
const BLOCK_BYTES: usize = 4096;
/// How far ahead a file is allocated.
const ALLOCATE_BYTES: u64 = 64 << 20;
/// Buffers are small: one a partition.
const POOL_BYTES: usize = 64 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Arrivals {
    dir: PathBuf,
    files: BTreeMap<u32, Target>,
    pool: SlotPool,
    took: Vec<Duration>,
    syncs: Option<Syncs>,
}

/// A thread that syncs every file, again and again.
#[derive(Debug)]
struct Syncs {
    /// New files; it ends with this end.
    files: Sender<OwnedFd>,
    thread: JoinHandle<io::Result<()>>,
}

impl Syncs {
    fn start(every: Duration) -> Self {
        let (files, new) = mpsc::channel::<OwnedFd>();
        let thread = std::thread::spawn(move || {
            let (mut files, mut due) = (Vec::new(), Instant::now() + every);
            loop {
                match new.recv_timeout(due.saturating_duration_since(Instant::now())) {
                    Ok(file) => files.push(file),
                    Err(RecvTimeoutError::Timeout) => {
                        for file in &files {
                            rustix::fs::fdatasync(file)?;
                        }
                        due += every;
                    }
                    Err(RecvTimeoutError::Disconnected) => return Ok(()),
                }
            }
        });
        Self { files, thread }
    }

    fn end(self) -> io::Result<()> {
        drop(self.files);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the syncs broke off")))
    }
}

/// A file, and the block in which it ends at the front of a buffer.
#[derive(Debug)]
struct Target {
    file: OwnedFd,
    slot: Slot,
    /// Where the buffer lies in the file.
    position: u64,
    /// Bytes of the partial block.
    tail: usize,
    allocated: u64,
}

impl Arrivals {
    /// `sync_every`: how often each file is synced beside the writes; never without.
    pub(crate) fn new(dir: PathBuf, sync_every: Option<Duration>) -> Self {
        let (pool, syncs) = (SlotPool::new(POOL_BYTES, map_together), sync_every.map(Syncs::start));
        Self { dir, files: BTreeMap::new(), pool, took: Vec::new(), syncs }
    }

    /// From the end of each read to the end of its write.
    pub(crate) fn into_times(self) -> Vec<Duration> {
        self.took
    }

    fn target(&mut self, partition: u32) -> io::Result<&mut Target> {
        match self.files.entry(partition) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let path = self.dir.join(file_name(partition));
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let file = open(&path, flags | OFlags::DIRECT, Mode::from_raw_mode(0o644))?;
                let slot = self.pool.take(SlotClass::Large).ok_or(io::ErrorKind::OutOfMemory)?;
                if let Some(syncs) = &self.syncs {
                    // A thread that has ended tells why at its end.
                    let _ = syncs.files.send(file.try_clone()?);
                }
                Ok(entry.insert(Target { file, slot, position: 0, tail: 0, allocated: 0 }))
            }
        }
    }
}

impl Target {
    /// Writes the blocks of the `have` bytes behind the tail.
    fn append(&mut self, have: usize) -> io::Result<()> {
        let end = self.tail + have;
        let len = end.next_multiple_of(BLOCK_BYTES);
        let after = self.position + u64::try_from(len).unwrap_or(u64::MAX);
        if after > self.allocated {
            fallocate(&self.file, FallocateFlags::empty(), self.allocated, ALLOCATE_BYTES)?;
            self.allocated += ALLOCATE_BYTES;
        }
        let blocks = self.slot.bytes().get(..len).unwrap_or_default();
        if pwrite(&self.file, blocks, self.position)? != len {
            return Err(io::Error::new(io::ErrorKind::WriteZero, "a write came back short"));
        }
        let whole = end - end % BLOCK_BYTES;
        self.slot.bytes_mut().copy_within(whole..end, 0);
        self.position += u64::try_from(whole).unwrap_or(u64::MAX);
        self.tail = end - whole;
        Ok(())
    }
}

impl Mover for Arrivals {
    fn slice(&mut self, slice: Slice, stream: &mut TcpStream) -> io::Result<()> {
        let mut left = usize::try_from(slice.len).unwrap_or(usize::MAX);
        while left > 0 {
            let target = self.target(slice.partition)?;
            let tail = target.tail;
            let into = target.slot.bytes_mut().get_mut(tail..).unwrap_or_default();
            let room = into.len().min(left);
            let have = receive(stream, into.get_mut(..room).unwrap_or_default())?;
            let received = Instant::now();
            target.append(have)?;
            self.took.push(received.elapsed());
            left -= have;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.syncs.take().map_or(Ok(()), Syncs::end)?;
        for target in self.files.values() {
            let tail = u64::try_from(target.tail).unwrap_or(0);
            ftruncate(&target.file, target.position + tail)?;
            rustix::fs::fdatasync(&target.file)?;
        }
        Ok(())
    }
}
