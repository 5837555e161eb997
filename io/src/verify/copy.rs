//! The copy: batches of one partition directory, one after another, each checked.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use heliostat_core::log::names::{SegmentFileKind, SegmentFileName, SegmentFileState};
use heliostat_core::records::{
    BatchMeta, BatchWalker, LOG_OVERHEAD_BYTES, RecordError, WalkLimits,
};
use heliostat_core::types::Offset;

use super::VerifyError;
use crate::disk::map::Window;

/// Files are read in such pieces; a larger batch is one piece.
const CHUNK_BYTES: usize = 4 << 20;
/// What the common fields take, magic included.
const HEAD_BYTES: u64 = 17;

/// A segment's file.
#[derive(Clone, Debug)]
pub(super) struct CopySegment {
    pub(super) base_offset: Offset,
    pub(super) path: PathBuf,
    /// Preallocated tail included.
    pub(super) len: u64,
}

/// The segments in a partition directory, in order.
pub(super) fn segments(dir: &Path) -> Result<Vec<CopySegment>, VerifyError> {
    let failed = |source| VerifyError::Read { path: dir.to_path_buf(), source };
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let Some(name) = name.to_str().and_then(SegmentFileName::parse) else { continue };
        if name.kind == SegmentFileKind::Log && name.state == SegmentFileState::Live {
            let len = entry.metadata().map_err(failed)?.len();
            let (base_offset, path) = (name.base_offset, entry.path());
            found.push(CopySegment { base_offset, path, len });
        }
    }
    found.sort_by_key(|segment| segment.base_offset);
    Ok(found)
}

/// What is behind the last batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tail {
    /// Bytes of a batch that is not whole; 0 for none. The zeros of a preallocated file
    /// do not count.
    pub(super) unfinished_bytes: u64,
}

/// Why the copy cannot be read on.
#[derive(Debug)]
pub(super) enum CopyFault {
    Error(VerifyError),
    /// A batch that is none, or whose checksum does not hold.
    Corrupt {
        path: PathBuf,
        position: u64,
        error: RecordError,
    },
}

enum Chunk {
    Mapped(Window),
    Read(Vec<u8>),
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(window) => window.bytes(),
            Self::Read(bytes) => bytes,
        }
    }
}

struct Open {
    segment: CopySegment,
    file: File,
    position: u64,
    chunk: Chunk,
    chunk_at: u64,
}

/// Reads batches in order.
pub(super) struct CopyReader {
    segments: std::vec::IntoIter<CopySegment>,
    open: Option<Open>,
    current: Option<BatchMeta>,
    /// Nobody else writes or cuts the files.
    may_map: bool,
    /// An unfinished end is that of a crash, or of a writer at work.
    may_be_torn: bool,
    tail: Tail,
}

impl CopyReader {
    pub(super) fn new(segments: Vec<CopySegment>, may_map: bool, may_be_torn: bool) -> Self {
        let segments = segments.into_iter();
        Self { segments, open: None, current: None, may_map, may_be_torn, tail: Tail::default() }
    }

    /// What is behind the last batch; known at the end.
    pub(super) fn tail(&self) -> Tail {
        self.tail
    }

    /// The batch that is next, checked; `None` at the end of the log.
    pub(super) fn current(&mut self) -> Result<Option<BatchMeta>, CopyFault> {
        while self.current.is_none() {
            let Some(open) = self.open.as_mut() else {
                match self.segments.next() {
                    Some(segment) => self.open = Some(Open::new(segment)?),
                    None => return Ok(None),
                }
                continue;
            };
            if open.position >= open.segment.len {
                self.open = None;
                continue;
            }
            let is_last = self.segments.len() == 0;
            match open.check(self.may_map, is_last && self.may_be_torn)? {
                Checked::Batch(meta) => self.current = Some(meta),
                Checked::Zeros => self.open = None,
                Checked::Unfinished(bytes) => {
                    self.tail.unfinished_bytes = bytes;
                    self.open = None;
                }
            }
        }
        Ok(self.current)
    }

    /// Bytes of the batch that `current` gave, or of the corrupt one as far as they are there.
    pub(super) fn bytes(&self) -> &[u8] {
        self.open.as_ref().map_or(&[], Open::batch_bytes)
    }

    /// File and position of that batch.
    pub(super) fn place(&self) -> Option<(&Path, u64)> {
        self.open.as_ref().map(|open| (open.segment.path.as_path(), open.position))
    }

    /// Goes on behind it.
    pub(super) fn advance(&mut self) {
        if let (Some(meta), Some(open)) = (self.current.take(), self.open.as_mut()) {
            open.position = open.position.saturating_add(meta.size_bytes.into());
        }
    }
}

enum Checked {
    Batch(BatchMeta),
    /// Only zeros follow.
    Zeros,
    /// This many bytes of a batch that is not whole, and nothing but zeros behind them.
    Unfinished(u64),
}

/// Fewer bytes than `len` where the file ends before.
fn read_up_to(file: &File, len: usize, position: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut filled = 0_usize;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let at = position.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX));
        match file.read_at(rest, at) {
            Ok(0) => break,
            Ok(read) => filled = filled.saturating_add(read),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

fn unreadable(path: &Path, source: io::Error) -> CopyFault {
    CopyFault::Error(VerifyError::Read { path: path.to_path_buf(), source })
}

impl Open {
    fn new(segment: CopySegment) -> Result<Self, CopyFault> {
        let file = File::open(&segment.path).map_err(|error| unreadable(&segment.path, error))?;
        Ok(Self { segment, file, position: 0, chunk: Chunk::Read(Vec::new()), chunk_at: 0 })
    }

    /// From the position on, as far as the chunk goes.
    fn rest(&self) -> &[u8] {
        let into = usize::try_from(self.position.saturating_sub(self.chunk_at));
        let bytes = self.chunk.bytes();
        if self.position < self.chunk_at {
            &[]
        } else {
            into.ok().and_then(|into| bytes.get(into..)).unwrap_or_default()
        }
    }

    fn left(&self) -> u64 {
        self.segment.len.saturating_sub(self.position)
    }

    /// Makes `len` bytes from the position on be there, or as many as the file has.
    fn load(&mut self, len: u64, may_map: bool) -> Result<(), CopyFault> {
        let want = usize::try_from(len.min(self.left())).unwrap_or(usize::MAX);
        if self.rest().len() >= want {
            return Ok(());
        }
        let left = usize::try_from(self.left()).unwrap_or(usize::MAX);
        let len = want.max(CHUNK_BYTES).min(left);
        let chunk = if may_map {
            Window::open(&self.file, self.position, len).map(Chunk::Mapped)
        } else {
            read_up_to(&self.file, len, self.position).map(Chunk::Read)
        };
        self.chunk = chunk.map_err(|error| unreadable(&self.segment.path, error))?;
        self.chunk_at = self.position;
        let read = u64::try_from(self.chunk.bytes().len()).unwrap_or(u64::MAX);
        if self.chunk.bytes().len() < len {
            // The writer has cut the file since: a finished segment loses its zeros.
            self.segment.len = self.position.saturating_add(read);
        }
        Ok(())
    }

    /// Makes the next load read the file as it is then: a writer may have gone on.
    fn forget(&mut self) -> Result<(), CopyFault> {
        let metadata = self.file.metadata();
        self.segment.len = metadata.map_err(|error| unreadable(&self.segment.path, error))?.len();
        self.chunk = Chunk::Read(Vec::new());
        self.chunk_at = self.position;
        Ok(())
    }

    /// Size of the batch at the position as its length field says.
    fn size(&self) -> u64 {
        let length = self.rest().get(8..12).and_then(|field| <[u8; 4]>::try_from(field).ok());
        let length = u32::from_be_bytes(length.unwrap_or_default());
        u64::from(length).saturating_add(LOG_OVERHEAD_BYTES.into())
    }

    fn batch_bytes(&self) -> &[u8] {
        let size = usize::try_from(self.size()).unwrap_or(usize::MAX);
        let rest = self.rest();
        rest.get(..size).unwrap_or(rest)
    }

    /// Of a copy that is being written, only bytes that were read just now say that a
    /// batch is not there.
    fn check(&mut self, may_map: bool, may_be_torn: bool) -> Result<Checked, CopyFault> {
        match self.judge(may_map, may_be_torn) {
            Ok(Checked::Zeros | Checked::Unfinished(_)) | Err(CopyFault::Corrupt { .. })
                if !may_map =>
            {
                self.forget()?;
                self.judge(may_map, may_be_torn)
            }
            checked => checked,
        }
    }

    fn judge(&mut self, may_map: bool, may_be_torn: bool) -> Result<Checked, CopyFault> {
        self.load(HEAD_BYTES, may_map)?;
        let (size, left) = (self.size(), self.left());
        if size <= left {
            self.load(size, may_map)?;
        }
        let limits = WalkLimits { batch_bytes_max: u32::MAX, check_crcs: true };
        let error = match BatchWalker::new(limits).feed(self.batch_bytes()) {
            Ok((_, Some(meta))) => return Ok(Checked::Batch(meta)),
            Ok((_, None)) => None,
            Err(error) => Some(error),
        };
        let is_torn = error.is_none() || (may_be_torn && self.is_zero_behind(size)?);
        if error == Some(RecordError::ZeroTail) && self.is_zero_behind(0)? {
            return Ok(Checked::Zeros);
        }
        if may_be_torn && is_torn {
            return Ok(Checked::Unfinished(size.min(left)));
        }
        // A batch that the file ends in the middle of has no checksum to name.
        let error = error.unwrap_or(RecordError::BatchTooLarge {
            base_offset: self.base_offset(),
            size_bytes: u32::try_from(size).unwrap_or(u32::MAX),
            size_bytes_max: u32::try_from(left).unwrap_or(u32::MAX),
        });
        let path = self.segment.path.clone();
        Err(CopyFault::Corrupt { path, position: self.position, error })
    }

    fn base_offset(&self) -> Offset {
        let field = self.rest().first_chunk::<8>();
        field.map_or(Offset::NONE, |field| Offset(i64::from_be_bytes(*field)))
    }

    /// Whether only zeros follow from `ahead` bytes behind the position on.
    fn is_zero_behind(&self, ahead: u64) -> Result<bool, CopyFault> {
        let mut at = self.position.saturating_add(ahead);
        let mut bytes = vec![0; 1 << 16];
        while at < self.segment.len {
            let read = self.file.read_at(&mut bytes, at);
            let read = read.map_err(|error| unreadable(&self.segment.path, error))?;
            if read == 0 {
                break;
            }
            if bytes.iter().take(read).any(|byte| *byte != 0) {
                return Ok(false);
            }
            at = at.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
