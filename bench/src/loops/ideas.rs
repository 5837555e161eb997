//! The `direct` loop with one thing done otherwise: what each idea for the append path is worth
//! where nothing else is in its way.
//!
//! It has a ring of its own, because the product's takes none of these.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hint::black_box;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use io_uring::types::Fd;
use io_uring::{IoUring, opcode, squeue};
use memmap2::{Advice, MmapMut};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, ftruncate, open};

use super::{Mover, cut_off, file_name, receive};
use crate::raw::Slice;

/// Bytes that are in flight and being filled, whatever the size of a write.
const BUFFER_BYTES: usize = 16 << 20;
/// As the product at most.
const ALLOCATE_BYTES: u64 = 64 << 20;
/// Unit of direct writes; covers today's disks.
const BLOCK_BYTES: usize = 4096;
const RING_ENTRIES: u32 = 256;
/// User data of a receive; a write's is the index of its buffer.
const RECEIVE: u64 = u64::MAX;

/// What is done otherwise.
#[derive(Args, Clone, Debug)]
pub(crate) struct Ideas {
    /// Size of a write.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20)]
    pub(crate) write_bytes: usize,
    /// Buffers are registered with the ring.
    #[arg(long)]
    pub(crate) registered: bool,
    /// Buffers are huge pages.
    #[arg(long)]
    pub(crate) huge: bool,
    /// Completions are taken when no buffer is free, half of the buffers at once.
    #[arg(long)]
    pub(crate) batched: bool,
    /// A buffer is filled by one receive of the ring.
    #[arg(long)]
    pub(crate) ring_receive: bool,
    /// The reader is woken once so many bytes are there.
    #[arg(long, value_name = "BYTES", default_value_t = 1)]
    pub(crate) low_water: usize,
    /// Whose checksum.
    #[arg(long, value_enum, default_value_t = Checksum::Crc32c)]
    pub(crate) checksum: Checksum,
}

/// Who computes CRC-32C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Checksum {
    /// Nobody.
    None,
    /// The crate that the product uses.
    Crc32c,
    /// Another one, with the widest carry-less multiplication of the processor.
    CrcFast,
}

/// See the module.
pub(crate) struct IdeaLoop {
    ideas: Ideas,
    dir: PathBuf,
    files: BTreeMap<u32, Target>,
    // Before the buffers: it is dropped first, and nothing is in flight after it.
    ring: IoUring,
    buffers: MmapMut,
    free: Vec<usize>,
    in_flight: usize,
    received: Option<i32>,
    crc: u32,
    fast: crc_fast::Digest,
}

struct Target {
    file: OwnedFd,
    len: u64,
    allocated: u64,
}

impl IdeaLoop {
    pub(crate) fn new(dir: PathBuf, ideas: Ideas) -> io::Result<Self> {
        let buffers = MmapMut::map_anon(BUFFER_BYTES)?;
        if ideas.huge {
            buffers.advise(Advice::HugePage)?;
        }
        let count = BUFFER_BYTES / ideas.write_bytes;
        if count < 2 || !ideas.write_bytes.is_multiple_of(BLOCK_BYTES) {
            let why = format!("writes are whole blocks, at most {} bytes", BUFFER_BYTES / 2);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let mut this = Self {
            ring: IoUring::builder().setup_single_issuer().build(RING_ENTRIES)?,
            dir,
            files: BTreeMap::new(),
            buffers,
            free: (0..count).collect(),
            in_flight: 0,
            received: None,
            crc: 0,
            fast: crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi),
            ideas,
        };
        if this.ideas.registered {
            this.register(count)?;
        }
        Ok(this)
    }

    #[expect(unsafe_code, reason = "the kernel keeps the addresses of the buffers")]
    fn register(&mut self, count: usize) -> io::Result<()> {
        let len = self.ideas.write_bytes;
        let buffer = |index: usize| libc::iovec {
            iov_base: self.buffers.as_ptr().wrapping_add(index * len).cast_mut().cast(),
            iov_len: len,
        };
        let vectors: Vec<_> = (0..count).map(buffer).collect();
        // SAFETY: the map lives longer than the ring and never moves.
        unsafe { self.ring.submitter().register_buffers(&vectors) }
    }

    fn buffer(&mut self, index: usize) -> &mut [u8] {
        let from = index * self.ideas.write_bytes;
        self.buffers.get_mut(from..from + self.ideas.write_bytes).unwrap_or_default()
    }

    /// A buffer that no write uses.
    fn take(&mut self) -> io::Result<usize> {
        if !self.ideas.batched {
            self.reap()?;
        }
        while self.free.is_empty() {
            let some = if self.ideas.batched { self.in_flight.div_ceil(2) } else { 1 };
            self.wait(some)?;
        }
        Ok(self.free.pop().unwrap_or_default())
    }

    fn wait(&mut self, completions: usize) -> io::Result<()> {
        match self.ring.submit_and_wait(completions) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        self.reap()
    }

    fn reap(&mut self) -> io::Result<()> {
        let wanted = i32::try_from(self.ideas.write_bytes).unwrap_or(i32::MAX);
        for entry in self.ring.completion() {
            if entry.user_data() == RECEIVE {
                self.received = Some(entry.result());
                continue;
            }
            self.in_flight -= 1;
            self.free.push(usize::try_from(entry.user_data()).unwrap_or_default());
            // The last write of a slice may be shorter, none is longer.
            if entry.result() <= 0 || entry.result() > wanted {
                return Err(io::Error::from_raw_os_error(-entry.result()));
            }
        }
        Ok(())
    }

    #[expect(unsafe_code, reason = "the ring takes addresses")]
    fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: the buffers outlive the ring, a buffer under way is in no other operation and is
        // not touched until its completion, and descriptors stay open until `finish`.
        let pushed = unsafe { self.ring.submission().push(entry) };
        pushed.map_err(io::Error::other)?;
        self.ring.submit().map(|_| ())
    }

    fn fill(&mut self, index: usize, len: usize, stream: &mut TcpStream) -> io::Result<()> {
        let mut filled = 0;
        while filled < len {
            filled += if self.ideas.ring_receive {
                self.receive(index, filled, len, stream)?
            } else {
                let rest = self.buffer(index).get_mut(filled..len).unwrap_or_default();
                receive(stream, rest)?
            };
        }
        Ok(())
    }

    fn receive(
        &mut self,
        index: usize,
        filled: usize,
        len: usize,
        stream: &TcpStream,
    ) -> io::Result<usize> {
        let into = self.buffer(index).get_mut(filled..len).unwrap_or_default();
        let rest = u32::try_from(into.len()).unwrap_or(u32::MAX);
        let receive = opcode::Recv::new(Fd(stream.as_raw_fd()), into.as_mut_ptr(), rest)
            .flags(libc::MSG_WAITALL)
            .build()
            .user_data(RECEIVE);
        self.push(&receive)?;
        loop {
            self.reap()?;
            match self.received.take() {
                None => self.wait(1)?,
                Some(0) => return Err(cut_off()),
                Some(have) => {
                    let failed = |_| io::Error::from_raw_os_error(-have);
                    return usize::try_from(have).map_err(failed);
                }
            }
        }
    }

    fn check(&mut self, index: usize, len: usize) {
        let from = index * self.ideas.write_bytes;
        let bytes = self.buffers.get(from..from + len).unwrap_or_default();
        match self.ideas.checksum {
            Checksum::None => {}
            Checksum::Crc32c => self.crc = crc32c::crc32c_append(self.crc, bytes),
            Checksum::CrcFast => self.fast.update(bytes),
        }
    }

    /// Where the next `len` bytes of `partition` go.
    fn place(&mut self, partition: u32, len: usize) -> io::Result<(RawFd, u64)> {
        let target = match self.files.entry(partition) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let path = self.dir.join(file_name(partition));
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let file = open(&path, flags | OFlags::DIRECT, Mode::from_raw_mode(0o644))?;
                entry.insert(Target { file, len: 0, allocated: 0 })
            }
        };
        let position = target.len;
        target.len += u64::try_from(len).unwrap_or(u64::MAX);
        let block = u64::try_from(BLOCK_BYTES).unwrap_or(1);
        while target.len.next_multiple_of(block) > target.allocated {
            fallocate(&target.file, FallocateFlags::empty(), target.allocated, ALLOCATE_BYTES)?;
            target.allocated += ALLOCATE_BYTES;
        }
        Ok((target.file.as_raw_fd(), position))
    }

    fn write(&mut self, index: usize, len: usize, (fd, position): (RawFd, u64)) -> io::Result<()> {
        let padded = len.next_multiple_of(BLOCK_BYTES);
        let bytes = self.buffer(index).get_mut(..padded).unwrap_or_default();
        let (start, len) = (bytes.as_ptr(), u32::try_from(bytes.len()).unwrap_or(u32::MAX));
        let number = u64::try_from(index).unwrap_or(u64::MAX);
        let entry = if self.ideas.registered {
            let buffer = u16::try_from(index).unwrap_or(u16::MAX);
            opcode::WriteFixed::new(Fd(fd), start, len, buffer).offset(position).build()
        } else {
            opcode::Write::new(Fd(fd), start, len).offset(position).build()
        };
        self.in_flight += 1;
        self.push(&entry.user_data(number))
    }
}

impl Mover for IdeaLoop {
    fn slice(&mut self, slice: Slice, stream: &mut TcpStream) -> io::Result<()> {
        let mut left = usize::try_from(slice.len).unwrap_or(usize::MAX);
        while left > 0 {
            let len = left.min(self.ideas.write_bytes);
            let index = self.take()?;
            self.fill(index, len, stream)?;
            self.check(index, len);
            let place = self.place(slice.partition, len)?;
            self.write(index, len, place)?;
            left -= len;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        while self.in_flight > 0 {
            self.wait(1)?;
        }
        black_box((self.crc, self.fast.finalize()));
        for target in self.files.values() {
            ftruncate(&target.file, target.len)?;
            rustix::fs::fdatasync(&target.file)?;
        }
        Ok(())
    }
}
