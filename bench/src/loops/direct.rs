//! Socket to buffer, buffer past the page cache into preallocated files through io_uring:
//! what appends cost at least, with the checksum of all bytes if wanted.
//!
//! The ring is the product's own ([`heliostat_io::ring`]): it keeps what the kernel may touch,
//! and makes one system call for many operations.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hint::black_box;
use std::io;
use std::net::TcpStream;
use std::path::PathBuf;
use std::rc::Rc;

use heliostat_core::log::slot::{Slot, SlotClass, SlotPool};
use heliostat_io::huge_page::map_together;
use heliostat_io::ring::{Completion, File, Ring, RingConfig, RingOp, RingReply};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, ftruncate, open};

use super::{Mover, file_name, receive};
use crate::raw::Slice;

/// Writes of 1 MiB in flight at once.
const IN_FLIGHT_MAX: usize = 8;
/// One more is being filled.
const BUFFERS: usize = IN_FLIGHT_MAX + 1;
/// How far ahead a file is allocated, as the product does at most.
const ALLOCATE_BYTES: u64 = 64 << 20;
/// Unit of direct writes; covers today's disks.
const BLOCK_BYTES: usize = 4096;

/// See the module.
#[derive(Debug)]
pub(crate) struct Direct {
    dir: PathBuf,
    files: BTreeMap<u32, Target>,
    ring: Ring<()>,
    pool: SlotPool,
    completions: Vec<Completion<()>>,
    /// CRC-32C of everything so far.
    crc: Option<u32>,
}

#[derive(Debug)]
struct Target {
    file: File,
    len: u64,
    allocated: u64,
}

impl Direct {
    /// With `crc` every byte is checksummed on its way.
    pub(crate) fn new(dir: PathBuf, crc: bool) -> io::Result<Self> {
        Ok(Self {
            dir,
            files: BTreeMap::new(),
            ring: Ring::new(RingConfig::default()).map_err(io::Error::other)?,
            pool: SlotPool::new(BUFFERS * SlotClass::Large.bytes(), map_together),
            completions: Vec::new(),
            crc: crc.then_some(0),
        })
    }

    /// Where the next `len` bytes of `partition` go. The file is long enough then.
    fn place(&mut self, partition: u32, len: usize) -> io::Result<(File, u64)> {
        let target = match self.files.entry(partition) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let path = self.dir.join(file_name(partition));
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let file = open(&path, flags | OFlags::DIRECT, Mode::from_raw_mode(0o644))?;
                entry.insert(Target { file: Rc::new(file), len: 0, allocated: 0 })
            }
        };
        let (position, len) = (target.len, u64::try_from(len).unwrap_or(u64::MAX));
        let block = u64::try_from(BLOCK_BYTES).unwrap_or(1);
        if position % block != 0 {
            return Err(io::Error::other("a slice follows the last one of its partition"));
        }
        target.len += len;
        if target.len.next_multiple_of(block) > target.allocated {
            fallocate(&target.file, FallocateFlags::empty(), target.allocated, ALLOCATE_BYTES)?;
            target.allocated += ALLOCATE_BYTES;
        }
        Ok((Rc::clone(&target.file), position))
    }

    /// A buffer that no write uses.
    fn slot(&mut self) -> io::Result<Slot> {
        loop {
            if let Some(slot) = self.pool.take(SlotClass::Large) {
                return Ok(slot);
            }
            self.ring.wait().map_err(io::Error::other)?;
            self.reap()?;
        }
    }

    fn push(&mut self, op: RingOp) -> io::Result<()> {
        while !self.ring.has_room().map_err(io::Error::other)? {
            self.ring.wait().map_err(io::Error::other)?;
            self.reap()?;
        }
        self.ring.push((), op);
        self.ring.submit().map_err(io::Error::other)
    }

    fn reap(&mut self) -> io::Result<()> {
        self.ring.reap(&mut self.completions).map_err(io::Error::other)?;
        for Completion { op, result, .. } in self.completions.drain(..) {
            let reply = result?;
            let RingOp::WriteSlot { slot, len, .. } = op else { continue };
            self.pool.give(slot);
            if !matches!(reply, RingReply::Bytes(written) if written == len) {
                return Err(io::Error::new(io::ErrorKind::WriteZero, "a write came back short"));
            }
        }
        Ok(())
    }

    fn wait_for_all(&mut self) -> io::Result<()> {
        while self.ring.in_flight() > 0 {
            self.ring.wait().map_err(io::Error::other)?;
            self.reap()?;
        }
        Ok(())
    }
}

impl Mover for Direct {
    fn slice(&mut self, slice: Slice, stream: &mut TcpStream) -> io::Result<()> {
        let mut left = usize::try_from(slice.len).unwrap_or(usize::MAX);
        while left > 0 {
            let mut slot = self.slot()?;
            let len = left.min(slot.bytes().len());
            let into = slot.bytes_mut().get_mut(..len).unwrap_or_default();
            let mut filled = 0;
            while filled < len {
                let rest = into.get_mut(filled..).unwrap_or_default();
                let have = receive(stream, rest)?;
                if let Some(crc) = &mut self.crc {
                    *crc = crc32c::crc32c_append(*crc, rest.get(..have).unwrap_or_default());
                }
                filled += have;
            }
            left -= len;
            let (file, position) = self.place(slice.partition, len)?;
            // What is beyond the end is cut again by `finish`.
            let len = len.next_multiple_of(BLOCK_BYTES);
            self.push(RingOp::WriteSlot { file, position, slot, from: 0, len })?;
            self.reap()?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.wait_for_all()?;
        black_box(self.crc);
        let files: Vec<_> = self.files.values().map(|it| (Rc::clone(&it.file), it.len)).collect();
        for (file, len) in files {
            ftruncate(&file, len)?;
            self.push(RingOp::Sync { file, data_only: true })?;
        }
        self.wait_for_all()
    }
}
