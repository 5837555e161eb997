//! Whether a directory takes direct writes, and in which units.

use std::fmt;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use heliostat_core::log::slot::{SLOT_ALIGN, SlotClass, SlotPool, map_apart};
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags};
use rustix::io::Errno;

/// What is assumed where neither the file system nor the device tells.
const ALIGNMENT_FALLBACK: usize = 4096;

/// Whether, and how, files of a directory can be written past the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DirectIo {
    /// A direct write worked, or would have if the disk were not full.
    Works {
        /// Unit of positions and lengths in bytes: the larger of what the file system
        /// asks for and the disk's physical block. A power of two.
        alignment: usize,
    },
    /// Appends will be buffered.
    Refused(DirectRefusal),
}

/// Why direct writes do not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DirectRefusal {
    /// The file system refuses to open files with `O_DIRECT`.
    Open,
    /// It wants larger units than slots are aligned to.
    Alignment(usize),
    /// It opens them, but the test write came back with this error number.
    Write(i32),
    /// What was written did not read back.
    Contents,
}

impl fmt::Display for DirectRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open => f.write_str("the file system refuses O_DIRECT"),
            Self::Alignment(bytes) => {
                write!(f, "it wants units of {bytes} bytes, at most {SLOT_ALIGN} are supported")
            }
            Self::Write(errno) => {
                write!(f, "the test write failed: {}", io::Error::from_raw_os_error(*errno))
            }
            Self::Contents => f.write_str("the test write did not read back"),
        }
    }
}

/// Tries a direct write in `dir`, on a file without a name, and removes it again.
///
/// # Errors
/// If no file can be made there at all, whatever the flags.
pub fn probe_direct_io(dir: &Path) -> io::Result<DirectIo> {
    let file = match scratch_file(dir, OFlags::DIRECT) {
        Ok(file) => file,
        Err(Errno::INVAL) => {
            // Any other reason would show without the flag too.
            scratch_file(dir, OFlags::empty())?;
            return Ok(DirectIo::Refused(DirectRefusal::Open));
        }
        Err(errno) => return Err(errno.into()),
    };
    let Some(alignment) = alignment_of(&file)? else {
        return Ok(DirectIo::Refused(DirectRefusal::Open));
    };
    if alignment > SLOT_ALIGN {
        return Ok(DirectIo::Refused(DirectRefusal::Alignment(alignment)));
    }
    match try_write(&file, alignment) {
        // A mirror that starts on a full disk waits for room; a file that refuses direct writes
        // after all is written through the page cache.
        Ok(true) | Err(Errno::NOSPC | Errno::DQUOT) => Ok(DirectIo::Works { alignment }),
        Ok(false) => Ok(DirectIo::Refused(DirectRefusal::Contents)),
        Err(errno) => Ok(DirectIo::Refused(DirectRefusal::Write(errno.raw_os_error()))),
    }
}

/// A file that vanishes with its descriptor.
fn scratch_file(dir: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    match rustix::fs::open(dir, flags | OFlags::TMPFILE, mode) {
        // Not every file system can do without a name.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT) => {}
        result => return result,
    }
    let name = format!(".heliostat-direct-{}", rustix::process::getpid().as_raw_nonzero());
    let path = dir.join(name);
    let file = rustix::fs::open(&path, flags | OFlags::CREATE | OFlags::EXCL, mode);
    // Where the flag is refused the file may have been made nevertheless.
    match (rustix::fs::unlink(&path), &file) {
        (Err(errno), Ok(_)) => Err(errno),
        _ => file,
    }
}

/// The larger of the file system's and the device's unit, `None` without direct I/O.
fn alignment_of(file: &OwnedFd) -> io::Result<Option<usize>> {
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::DIOALIGN;
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, wanted)?;
    let file_system = if StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::DIOALIGN)
    {
        match stat.stx_dio_mem_align.max(stat.stx_dio_offset_align) {
            0 => return Ok(None),
            unit => usize::try_from(unit).ok(),
        }
    } else {
        None
    };
    let larger = file_system.max(physical_block(&stat)).unwrap_or(ALIGNMENT_FALLBACK);
    Ok(Some(larger.next_power_of_two()))
}

/// The physical block of the disk below, in bytes, if it is one disk.
fn physical_block(stat: &Statx) -> Option<usize> {
    let device = format!("/sys/dev/block/{}:{}", stat.stx_dev_major, stat.stx_dev_minor);
    // A partition has no queue; its disk is the directory above.
    ["queue", "../queue"].iter().find_map(|queue| {
        let text = fs::read_to_string(format!("{device}/{queue}/physical_block_size")).ok()?;
        text.trim().parse().ok()
    })
}

/// Writes one unit and reads it back.
fn try_write(file: &OwnedFd, unit: usize) -> Result<bool, Errno> {
    let mut pool = SlotPool::new(2 * SlotClass::Small.bytes(), map_apart);
    let (Some(mut out), Some(mut back)) =
        (pool.take(SlotClass::Small), pool.take(SlotClass::Small))
    else {
        return Err(Errno::NOMEM);
    };
    for (byte, value) in out.bytes_mut().iter_mut().zip((0..=u8::MAX).cycle()) {
        *byte = value;
    }
    let written = rustix::io::pwrite(file, &out.bytes()[..unit], 0)?;
    let read = rustix::io::pread(file, &mut back.bytes_mut()[..unit], 0)?;
    Ok(written == unit && read == unit && out.bytes()[..unit] == back.bytes()[..unit])
}
