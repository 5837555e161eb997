//! What must hold of a log after each step, by what the source has.

use heliostat_core::log::epoch_cache::EpochCache;
use heliostat_core::log::index::{OffsetIndexFile, TimeEntry, TimeIndexFile};
use heliostat_core::log::names::{SegmentFileKind as Kind, SegmentFileName};
use heliostat_core::log::producer_state::ProducerState;
use heliostat_core::log::txn_index::{self, AbortedTxn};
use heliostat_core::types::{Offset, TimestampMs};

use crate::disk::SimDisk;
use crate::source::SourceBatch;

/// A promise that was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Bytes below the log end offset are the source's.
    Bytes,
    /// What was durable is still there.
    Durable,
    /// Writes in flight share no block, and other rules of the disk.
    Disk,
    /// Offsets are in order and do not go back.
    Offsets,
    /// The epoch cache is that of the batches.
    Epochs,
    /// Producer state is that of the batches.
    Producers,
    /// Index entries name batches.
    Indexes,
    /// Buffers and reservations come back.
    Buffers,
    /// Everything that was asked for comes to an end.
    Progress,
    /// A log that was left by a crash opens.
    Opens,
}

/// Which promise was broken and how.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) promise: Promise,
    pub(crate) what: String,
}

pub(crate) type Checked = Result<(), Violation>;

pub(crate) fn broken<T>(promise: Promise, what: impl Into<String>) -> Result<T, Violation> {
    Err(Violation { promise, what: what.into() })
}

pub(crate) fn ensure(holds: bool, promise: Promise, what: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { broken(promise, what()) }
}

/// Base offsets of the segments in `dir`.
pub(crate) fn bases(disk: &SimDisk, dir: &str) -> Vec<Offset> {
    let base = |name: &str| {
        SegmentFileName::parse(name)
            .filter(|name| *name == SegmentFileName::live(name.base_offset, Kind::Log))
            .map(|name| name.base_offset)
    };
    disk.files(dir).filter_map(base).collect()
}

fn file<'a>(disk: &'a SimDisk, dir: &str, base: Offset, kind: Kind) -> Option<&'a [u8]> {
    let path = format!("{dir}/{}", SegmentFileName::live(base, kind));
    disk.contents(&path).map(Vec::as_slice)
}

/// A batch and where its segment's file has it.
type Placed<'a> = (usize, &'a SourceBatch);

/// Batches of each segment below `log_end`, with their positions.
fn place<'a>(
    bases: &[Offset],
    batches: &'a [SourceBatch],
    log_end: Offset,
) -> Vec<(Offset, Vec<Placed<'a>>)> {
    // An empty file that kept the start of an empty log goes when the first batch
    // turns out to begin before it.
    let inside = |base: &Offset| {
        let index = batches.partition_point(|batch| batch.meta.last_offset < *base);
        batches.get(index).is_some_and(|batch| batch.meta.base_offset < *base)
    };
    let bases: Vec<_> = bases.iter().copied().filter(|base| !inside(base)).collect();
    let mut out = Vec::new();
    for (index, base) in bases.iter().enumerate() {
        let next = bases.get(index + 1).copied().unwrap_or(Offset(i64::MAX)).min(log_end);
        let from = batches.partition_point(|batch| batch.meta.base_offset < *base);
        let mut position = 0;
        let mut placed = Vec::new();
        for batch in batches[from..].iter().take_while(|batch| batch.meta.last_offset < next) {
            placed.push((position, batch));
            position += batch.bytes.len();
        }
        out.push((*base, placed));
    }
    out
}

/// Compares segment files with the source, the last `tail` bytes of each below `log_end`.
pub(crate) fn check_bytes(
    disk: &SimDisk,
    dir: &str,
    batches: &[SourceBatch],
    log_start: Offset,
    log_end: Offset,
    tail: usize,
) -> Checked {
    let bases = bases(disk, dir);
    let first_wanted = batches.iter().find(|batch| batch.meta.last_offset >= log_start);
    if let Some(first) = first_wanted.filter(|first| first.meta.last_offset < log_end) {
        let covered = bases.first().is_some_and(|base| *base <= first.meta.base_offset);
        ensure(covered, Promise::Bytes, || {
            format!("{} of {log_start}..{log_end} is in no segment", first.meta.base_offset)
        })?;
    }
    for (base, placed) in place(&bases, batches, log_end) {
        let bytes = file(disk, dir, base, Kind::Log).unwrap_or_default();
        let end = placed.last().map_or(0, |(at, batch)| at + batch.bytes.len());
        ensure(bytes.len() >= end, Promise::Bytes, || {
            format!("segment {base} has {} bytes, want {end} below {log_end}", bytes.len())
        })?;
        for (at, batch) in placed.iter().rev() {
            if end - at > tail + batch.bytes.len() {
                break;
            }
            let got = &bytes[*at..at + batch.bytes.len()];
            ensure(got == batch.bytes, Promise::Bytes, || {
                let base = batch.meta.base_offset;
                let byte = got.iter().zip(&batch.bytes).position(|(a, b)| a != b);
                format!("batch {base} at {at} differs from byte {byte:?} on, log end {log_end}")
            })?;
        }
    }
    Ok(())
}

/// Checks that the cache gives each batch the epoch that it carries, and knows no other.
pub(crate) fn check_epochs(
    got: &EpochCache,
    batches: &[SourceBatch],
    log_start: Offset,
    log_end: Offset,
) -> Checked {
    let here = |batch: &&SourceBatch| {
        batch.meta.last_offset >= log_start && batch.meta.last_offset < log_end
    };
    let mut wanted = Vec::new();
    for batch in batches.iter().filter(here) {
        let (at, epoch) = (batch.meta.base_offset.max(log_start), batch.meta.leader_epoch);
        ensure(got.epoch_for_offset(at) == Some(epoch), Promise::Epochs, || {
            format!("batch {at} is of epoch {epoch}, but {:?}", got.entries())
        })?;
        if wanted.last() != Some(&epoch) {
            wanted.push(epoch);
        }
    }
    // An epoch of records that are gone may be remembered, in front of the others.
    let known: Vec<_> = got.entries().iter().map(|entry| entry.epoch).collect();
    let extra = known.len().saturating_sub(wanted.len());
    ensure(known.ends_with(&wanted) && extra <= 1, Promise::Epochs, || {
        format!("{:?}, but the batches have {wanted:?}", got.entries())
    })
}

/// The producer state that `batches` make, and the aborted transactions.
pub(crate) fn producers(
    batches: &[SourceBatch],
    from: Offset,
    log_end: Offset,
) -> (ProducerState, Vec<AbortedTxn>) {
    let mut state = ProducerState::new(Offset::ZERO);
    let mut aborted = Vec::new();
    for batch in batches.iter().take_while(|batch| batch.meta.last_offset < log_end) {
        if batch.meta.base_offset >= from {
            aborted.extend(state.on_batch(&batch.meta).and_then(|txn| txn.aborted()));
            state.on_high_watermark(batch.meta.next_offset());
        }
    }
    (state, aborted)
}

pub(crate) fn check_producers(got: &ProducerState, want: &ProducerState) -> Checked {
    ensure(got.snapshot() == want.snapshot(), Promise::Producers, || {
        format!("{:?}\n  want {:?}", got.snapshot(), want.snapshot())
    })?;
    let (got, want): (Vec<_>, Vec<_>) = (got.open_txns().collect(), want.open_txns().collect());
    ensure(got == want, Promise::Producers, || format!("open {got:?}, want {want:?}"))
}

/// Checks the index files. `complete`: as a clean stop leaves them.
pub(crate) fn check_indexes(
    disk: &SimDisk,
    dir: &str,
    batches: &[SourceBatch],
    aborted: &[AbortedTxn],
    log_end: Offset,
    complete: bool,
) -> Checked {
    let bases = bases(disk, dir);
    let wrong = |base: Offset, kind: &'static str| {
        move |what: String| Violation {
            promise: Promise::Indexes,
            what: format!("{kind} index of segment {base}: {what}"),
        }
    };
    for (base, placed) in place(&bases, batches, log_end) {
        let fail = wrong(base, "offset");
        let bytes = file(disk, dir, base, Kind::Index).unwrap_or_default();
        let index = OffsetIndexFile::parse(base, bytes).map_err(|error| fail(error.to_string()))?;
        for entry in index.iter() {
            let found = placed.iter().find(|(_, batch)| batch.meta.last_offset == entry.offset);
            if found.is_none_or(|(at, _)| u32::try_from(*at).ok() != Some(entry.position)) {
                return Err(fail(format!("{entry:?} is no batch below {log_end}")));
            }
        }
        let fail = wrong(base, "time");
        let bytes = file(disk, dir, base, Kind::TimeIndex).unwrap_or_default();
        let index = TimeIndexFile::parse(base, bytes).map_err(|error| fail(error.to_string()))?;
        let latest = |up_to: Offset| {
            let mut max = TimestampMs::NONE;
            for (_, batch) in placed.iter().take_while(|(_, it)| it.meta.last_offset <= up_to) {
                max = max.max(batch.meta.max_timestamp);
            }
            max
        };
        for TimeEntry { timestamp, offset } in index.iter() {
            if latest(offset) != timestamp {
                return Err(fail(format!("{timestamp:?} is not the largest up to {offset}")));
            }
        }
        let last = index.last().map_or(TimestampMs::NONE, |entry| entry.timestamp);
        if complete && last != latest(log_end) {
            return Err(fail(format!("ends with {last:?}, want {:?}", latest(log_end))));
        }
        let fail = wrong(base, "transaction");
        let bytes = file(disk, dir, base, Kind::TxnIndex).unwrap_or_default();
        let got = txn_index::decode(base, bytes).map_err(|error| fail(error.to_string()))?;
        let next = bases.iter().find(|next| **next > base).copied().unwrap_or(log_end);
        let mut want: Vec<_> = aborted
            .iter()
            .filter(|entry| entry.last_offset >= base && entry.last_offset < next)
            .copied()
            .collect();
        if !complete {
            want.truncate(got.len());
        }
        if got != want {
            return Err(fail(format!("{got:?}\n  want {want:?}")));
        }
    }
    Ok(())
}
