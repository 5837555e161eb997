//! Segment files that readers have open: few of very many, those used last.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use heliostat_core::log::index::{IndexEntry, OffsetEntry, TimeEntry};
use heliostat_core::log::names::{SegmentFileKind, SegmentFileName};
use heliostat_core::log::read_plan::SegmentExtent;
use heliostat_core::log::txn_index::{self, AbortedTxn};
use heliostat_core::types::{Offset, TimestampMs};

use super::log::ServedLog;

/// Segments that are open at once; each has at most three files.
const SEGMENTS_OPEN_MAX: usize = 256;
/// A segment that was deleted gives its room back at the latest so long after its last use, once
/// another one is opened.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Places of batches that are remembered: readers go on where they, or others, have stopped.
const MARKS_MAX: usize = 32;
/// Largest index of transactions that is read.
const TXN_INDEX_BYTES_MAX: u64 = 64 << 20;

/// Number of the log, base offset, set of files.
type Key = (u64, Offset, u64);

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    open: Mutex<HashMap<Key, (Arc<SegmentFiles>, Instant)>>,
}

impl OpenFiles {
    /// The files of a segment, which are opened if they are not.
    ///
    /// # Errors
    /// The system's, for its `.log`.
    pub(crate) fn segment(
        &self,
        log_dir: &Path,
        log: &ServedLog,
        base: Offset,
        files: u64,
    ) -> io::Result<Arc<SegmentFiles>> {
        let key = (log.id(), base, files);
        let now = Instant::now();
        if let Some((found, used)) = self.open().get_mut(&key) {
            *used = now;
            return Ok(Arc::clone(found));
        }
        let opened = Arc::new(SegmentFiles::open(log_dir.join(log.at().to_string()), base)?);
        let mut open = self.open();
        open.retain(|_, (_, used)| now.duration_since(*used) < IDLE_MAX);
        if open.len() >= SEGMENTS_OPEN_MAX
            && let Some(oldest) = open.iter().min_by_key(|(_, (_, used))| *used).map(|it| *it.0)
        {
            open.remove(&oldest);
        }
        open.insert(key, (Arc::clone(&opened), now));
        Ok(opened)
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Key, (Arc<SegmentFiles>, Instant)>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The files of one segment, to be read by position.
#[derive(Debug)]
pub(crate) struct SegmentFiles {
    dir: PathBuf,
    base: Offset,
    log: Arc<File>,
    /// Opened at the first use; an active segment may not have them yet.
    index: OnceLock<File>,
    time_index: OnceLock<File>,
    /// Base offsets of batches and where they begin.
    marks: Mutex<VecDeque<(Offset, u64)>>,
}

impl SegmentFiles {
    fn open(dir: PathBuf, base: Offset) -> io::Result<Self> {
        let log = Arc::new(File::open(path_of(&dir, base, SegmentFileKind::Log))?);
        Ok(Self {
            dir,
            base,
            log,
            index: OnceLock::new(),
            time_index: OnceLock::new(),
            marks: Mutex::default(),
        })
    }

    /// The `.log`.
    pub(crate) fn log(&self) -> &Arc<File> {
        &self.log
    }

    /// Fills `into` from `position` on as far as the file goes, and says how far.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn read_at(&self, position: u64, into: &mut [u8]) -> io::Result<usize> {
        read_at(&self.log, position, into)
    }

    /// A batch that begins at or below `target`, as near to it as is known.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn floor(&self, extent: SegmentExtent, target: Offset) -> io::Result<u64> {
        let mark = self.mark_below(extent, target);
        let Some(index) = self.side(&self.index, SegmentFileKind::Index)? else {
            return Ok(mark.unwrap_or(0));
        };
        let index = Entries::<OffsetEntry>::new(index, self.base)?;
        let counts =
            |entry: &OffsetEntry| entry.position > 0 && u64::from(entry.position) < extent.len;
        // Most readers are at the end, beyond what is indexed by now.
        let last = index.last(counts)?.map_or(0, |entry| u64::from(entry.position));
        if let Some(mark) = mark.filter(|mark| *mark >= last) {
            return Ok(mark);
        }
        let after = index.partition_point(|entry| counts(entry) && entry.offset <= target)?;
        let entry = match after.checked_sub(1) {
            Some(before) => index.get(before)?,
            None => None,
        };
        let indexed = entry.map_or(0, |entry| u64::from(entry.position));
        Ok(mark.map_or(indexed, |mark| mark.max(indexed)))
    }

    /// Last offset of the first indexed batch at or behind `position`.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn indexed_from(
        &self,
        extent: SegmentExtent,
        position: u64,
    ) -> io::Result<Option<Offset>> {
        if position >= extent.len {
            return Ok(None);
        }
        let Some(index) = self.side(&self.index, SegmentFileKind::Index)? else { return Ok(None) };
        let index = Entries::<OffsetEntry>::new(index, self.base)?;
        let at = |entry: &OffsetEntry| u64::from(entry.position);
        let first = index.partition_point(|entry| at(entry) > 0 && at(entry) < position)?;
        let entry = index.get(first)?;
        let entry = entry.filter(|entry| at(entry) >= position && at(entry) < extent.len);
        Ok(entry.map(|entry| entry.offset))
    }

    /// The last entry of the time index.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn last_time(&self) -> io::Result<Option<TimeEntry>> {
        let Some(index) = self.side(&self.time_index, SegmentFileKind::TimeIndex)? else {
            return Ok(None);
        };
        Entries::<TimeEntry>::new(index, self.base)?.last(|entry| entry.timestamp.0 > 0)
    }

    /// An offset up to which every record is older than `timestamp`.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn time_floor(&self, timestamp: TimestampMs) -> io::Result<Option<Offset>> {
        let Some(index) = self.side(&self.time_index, SegmentFileKind::TimeIndex)? else {
            return Ok(None);
        };
        let index = Entries::<TimeEntry>::new(index, self.base)?;
        let older = |entry: &TimeEntry| entry.timestamp.0 > 0 && entry.timestamp < timestamp;
        let after = index.partition_point(older)?;
        let Some(before) = after.checked_sub(1) else { return Ok(None) };
        Ok(index.get(before)?.map(|entry| entry.offset))
    }

    /// Remembers that a batch with this base offset begins at `position`.
    pub(crate) fn mark(&self, offset: Offset, position: u64) {
        let mut marks = self.marks();
        if marks.contains(&(offset, position)) {
            return;
        }
        if marks.len() >= MARKS_MAX {
            marks.pop_front();
        }
        marks.push_back((offset, position));
    }

    fn mark_below(&self, extent: SegmentExtent, target: Offset) -> Option<u64> {
        let marks = self.marks();
        let below =
            marks.iter().filter(|(offset, position)| *offset <= target && *position < extent.len);
        below.map(|(_, position)| *position).max()
    }

    fn marks(&self) -> MutexGuard<'_, VecDeque<(Offset, u64)>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn side<'a>(
        &self,
        file: &'a OnceLock<File>,
        kind: SegmentFileKind,
    ) -> io::Result<Option<&'a File>> {
        if file.get().is_none() {
            match File::open(path_of(&self.dir, self.base, kind)) {
                // Another thread may have been faster.
                Ok(opened) => drop(file.set(opened)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(file.get())
    }
}

/// Aborted transactions of a segment, by the offsets of their markers. Nothing else of it is
/// opened.
///
/// # Errors
/// The system's, or that the file is damaged.
pub(crate) fn aborted(
    log_dir: &Path,
    log: &ServedLog,
    base: Offset,
) -> io::Result<Vec<AbortedTxn>> {
    let dir = log_dir.join(log.at().to_string());
    let file = match File::open(path_of(&dir, base, SegmentFileKind::TxnIndex)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let bytes = file.metadata()?.len();
    if bytes > TXN_INDEX_BYTES_MAX {
        // Half of it would be a lie.
        return Err(io::Error::other("the .txnindex file is larger than 64 MiB"));
    }
    // The owner may be in the midst of an entry.
    let entry = u64::try_from(AbortedTxn::BYTES).unwrap_or(1);
    let mut read = vec![0; usize::try_from(bytes / entry * entry).unwrap_or(0)];
    let have = read_at(&file, 0, &mut read)?;
    read.truncate(have / AbortedTxn::BYTES * AbortedTxn::BYTES);
    txn_index::decode(base, &read)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

fn path_of(dir: &Path, base: Offset, kind: SegmentFileKind) -> PathBuf {
    dir.join(SegmentFileName::live(base, kind).to_string())
}

fn read_at(file: &File, position: u64, into: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = into.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        let at = position.saturating_add(u64::try_from(filled).unwrap_or(u64::MAX));
        match file.read_at(rest, at) {
            Ok(0) => break,
            Ok(read) => filled = filled.saturating_add(read),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Entries of an index file as it is now, read one by one: it may still grow.
struct Entries<'a, E> {
    file: &'a File,
    base: Offset,
    count: u64,
    entry: std::marker::PhantomData<E>,
}

impl<'a, E: IndexEntry> Entries<'a, E> {
    fn new(file: &'a File, base: Offset) -> io::Result<Self> {
        let entry_bytes = u64::try_from(E::ENTRY_BYTES).unwrap_or(1);
        let count = file.metadata()?.len() / entry_bytes;
        Ok(Self { file, base, count, entry: std::marker::PhantomData })
    }

    /// `None`: there is no such entry, or it cannot be one.
    fn get(&self, index: u64) -> io::Result<Option<E>> {
        const BYTES_MAX: usize = 16;
        let mut bytes = [0; BYTES_MAX];
        let Some(own) = bytes.get_mut(..E::ENTRY_BYTES) else { return Ok(None) };
        let entry_bytes = u64::try_from(E::ENTRY_BYTES).unwrap_or(1);
        let read = read_at(self.file, index.saturating_mul(entry_bytes), own)?;
        Ok((read == own.len()).then(|| E::decode(self.base, own).ok()).flatten())
    }

    /// How many entries from the front on fulfil `is_below`, which those behind them do not.
    fn partition_point(&self, is_below: impl Fn(&E) -> bool) -> io::Result<u64> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.get(middle)?.is_some_and(|entry| is_below(&entry)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// The last entry that counts; those that count are in front.
    fn last(&self, counts: impl Fn(&E) -> bool) -> io::Result<Option<E>> {
        let Some(last) = self.count.checked_sub(1) else { return Ok(None) };
        if let Some(entry) = self.get(last)?.filter(|entry| counts(entry)) {
            return Ok(Some(entry));
        }
        match self.partition_point(counts)?.checked_sub(1) {
            Some(last) => self.get(last),
            None => Ok(None),
        }
    }
}
