//! Operations of a ring as values that own what the kernel touches.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::rc::Rc;

use heliostat_core::log::slot::Slot;
use io_uring::{opcode, squeue, types};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// An open file, kept open by every operation in flight on it.
pub type File = Rc<OwnedFd>;

/// Most bytes that one read or write asks for. Larger ones come back short.
const TRANSFER_BYTES_MAX: usize = 1 << 30;

/// One operation. Positions and lengths are bytes; paths are relative to `dir`.
#[derive(Debug)]
pub enum RingOp {
    /// `openat`.
    Open {
        /// Directory that `path` is relative to.
        dir: File,
        /// What to open.
        path: CString,
        /// Flags; the caller adds `O_CLOEXEC`.
        flags: OFlags,
        /// Permissions of a file that is created.
        mode: Mode,
    },
    /// `close`. The descriptor is gone whatever the result is; `None` on completion.
    Close {
        /// What to close.
        file: Option<OwnedFd>,
    },
    /// Writes `slot[from..from + len]` at `position`; may be short.
    WriteSlot {
        /// The file.
        file: File,
        /// Where in the file.
        position: u64,
        /// The bytes.
        slot: Slot,
        /// First byte of the slot.
        from: usize,
        /// Bytes to write.
        len: usize,
    },
    /// Writes `bytes[from..]` at `position`; may be short.
    WriteBytes {
        /// The file.
        file: File,
        /// Where in the file.
        position: u64,
        /// The bytes.
        bytes: Vec<u8>,
        /// First of them to write.
        from: usize,
    },
    /// Reads into `buffer[from..]` from `position`; may be short, 0 at the end of the file.
    Read {
        /// The file.
        file: File,
        /// Where in the file.
        position: u64,
        /// Initialised bytes to overwrite.
        buffer: Vec<u8>,
        /// First of them to overwrite.
        from: usize,
    },
    /// `fsync`, or `fdatasync` with `data_only`.
    Sync {
        /// The file or directory.
        file: File,
        /// Leave out what reading the data back does not need.
        data_only: bool,
    },
    /// `fallocate` mode 0.
    Allocate {
        /// The file.
        file: File,
        /// From this position.
        from: u64,
        /// This many bytes.
        len: u64,
    },
    /// `ftruncate`.
    Truncate {
        /// The file.
        file: File,
        /// The new length.
        len: u64,
    },
    /// `renameat` within `dir`.
    Rename {
        /// Directory of both paths.
        dir: File,
        /// The old name.
        from: CString,
        /// The new name; replaced if it exists.
        to: CString,
    },
    /// `unlinkat` of a file.
    Unlink {
        /// Directory that `path` is relative to.
        dir: File,
        /// What to remove.
        path: CString,
    },
    /// `mkdirat`.
    MakeDir {
        /// Directory that `path` is relative to.
        dir: File,
        /// What to make.
        path: CString,
        /// Its permissions.
        mode: Mode,
    },
}

/// What an operation returned.
#[derive(Debug)]
pub enum RingReply {
    /// The file that was opened.
    Opened(OwnedFd),
    /// Bytes moved by a read or write.
    Bytes(usize),
    /// Nothing but success.
    Done,
}

/// A finished operation: everything that was lent to the kernel comes back.
#[derive(Debug)]
pub struct Completion<T> {
    /// What the caller pushed with it.
    pub tag: T,
    /// The operation itself.
    pub op: RingOp,
    /// How it ended; never `EINTR` or `EAGAIN`, except for a close that was interrupted.
    pub result: Result<RingReply, Errno>,
}

impl RingOp {
    /// # Panics
    /// If the operation names bytes outside its buffer.
    pub(super) fn assert_in_bounds(&self) {
        let (end, have) = match self {
            Self::WriteSlot { slot, from, len, .. } => {
                (from.saturating_add(*len), slot.bytes().len())
            }
            Self::WriteBytes { bytes, from, .. } => (*from, bytes.len()),
            Self::Read { buffer, from, .. } => (*from, buffer.len()),
            _ => return,
        };
        assert!(end <= have, "operation stays inside its buffer: {end} of {have}");
    }

    /// The submission entry. It points into `self`: the caller keeps `self` in place,
    /// untouched, until the completion has been reaped.
    pub(super) fn entry(&mut self) -> squeue::Entry {
        match self {
            Self::Open { dir, path, flags, mode } => {
                opcode::OpenAt::new(types::Fd(dir.as_raw_fd()), path.as_ptr())
                    .flags(flags.bits().cast_signed())
                    .mode(mode.bits())
                    .build()
            }
            Self::Close { file } => {
                // A close without a file is refused by the kernel with EBADF.
                let raw: RawFd = file.as_ref().map_or(-1, AsRawFd::as_raw_fd);
                opcode::Close::new(types::Fd(raw)).build()
            }
            Self::WriteSlot { file, position, slot, from, len } => {
                write_entry(file, *position, &slot.bytes()[*from..*from + *len])
            }
            Self::WriteBytes { file, position, bytes, from } => {
                write_entry(file, *position, &bytes[*from..])
            }
            Self::Read { file, position, buffer, from } => {
                let target = &mut buffer[*from..];
                let len = transfer_len(target.len());
                opcode::Read::new(types::Fd(file.as_raw_fd()), target.as_mut_ptr(), len)
                    .offset(*position)
                    .build()
            }
            Self::Sync { file, data_only } => {
                let flags = if *data_only {
                    types::FsyncFlags::DATASYNC
                } else {
                    types::FsyncFlags::empty()
                };
                opcode::Fsync::new(types::Fd(file.as_raw_fd())).flags(flags).build()
            }
            Self::Allocate { file, from, len } => {
                opcode::Fallocate::new(types::Fd(file.as_raw_fd()), *len).offset(*from).build()
            }
            Self::Truncate { file, len } => {
                opcode::Ftruncate::new(types::Fd(file.as_raw_fd()), *len).build()
            }
            Self::Rename { dir, from, to } => {
                let fd = types::Fd(dir.as_raw_fd());
                opcode::RenameAt::new(fd, from.as_ptr(), fd, to.as_ptr()).build()
            }
            Self::Unlink { dir, path } => {
                opcode::UnlinkAt::new(types::Fd(dir.as_raw_fd()), path.as_ptr()).build()
            }
            Self::MakeDir { dir, path, mode } => {
                opcode::MkDirAt::new(types::Fd(dir.as_raw_fd()), path.as_ptr())
                    .mode(mode.bits())
                    .build()
            }
        }
    }
}

fn write_entry(file: &File, position: u64, bytes: &[u8]) -> squeue::Entry {
    opcode::Write::new(types::Fd(file.as_raw_fd()), bytes.as_ptr(), transfer_len(bytes.len()))
        .offset(position)
        .build()
}

fn transfer_len(len: usize) -> u32 {
    // Bounded by the constant, so the conversion cannot fail.
    u32::try_from(len.min(TRANSFER_BYTES_MAX)).unwrap_or(u32::MAX)
}
