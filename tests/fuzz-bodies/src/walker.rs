//! Target `walker`: flags, size of the pieces, a run of batches.

use heliostat_core::records::{BatchMeta, BatchWalker, DecodedBatch, RecordError, WalkLimits};

use crate::batches::{PlainBatch, plain, seal};

/// Bytes that a batch may unpack to.
const UNPACKED_BYTES_MAX: usize = 1 << 17;

/// A run of batches, whole and in pieces: the same batches, the same end; and those that
/// are found when it is read the plain way. Each opens, or is refused, within its limits.
///
/// # Panics
/// When the walker breaks its promises: that is what the fuzzer looks for.
pub fn walker(input: &[u8]) {
    let Some((&[flags, piece], bytes)) = input.split_first_chunk::<2>() else { return };
    let mut bytes = bytes.to_vec();
    if flags & 2 != 0 {
        seal(&mut bytes);
    }
    let limits = WalkLimits {
        batch_bytes_max: if flags & 4 == 0 { 1 << 20 } else { 128 },
        check_crcs: flags & 1 == 0,
    };
    let whole = Walked::of(limits, &bytes, usize::MAX);
    let pieces = Walked::of(limits, &bytes, usize::from(piece).max(1));
    assert_eq!(whole, pieces, "how bytes are cut changes what they mean");

    let size_max = usize::try_from(limits.batch_bytes_max).unwrap_or(usize::MAX);
    let want = plain(&bytes, size_max, limits.check_crcs);
    assert_eq!(whole.batches.len(), want.len(), "{:?}", whole.error);
    for (meta, want) in whole.batches.iter().zip(&want) {
        check_batch(meta, want);
        open(meta, bytes.get(want.at..want.end()).unwrap_or_default());
    }
}

#[derive(Debug, PartialEq)]
struct Walked {
    batches: Vec<BatchMeta>,
    /// Bytes of the unfinished batch; with an error, those that the batch before it left.
    pending: u64,
    error: Option<RecordError>,
}

impl Walked {
    fn of(limits: WalkLimits, bytes: &[u8], piece: usize) -> Self {
        let mut walker = BatchWalker::new(limits);
        let mut batches = Vec::new();
        let mut done = 0;
        for part in bytes.chunks(piece.min(bytes.len().max(1))) {
            let mut rest = part;
            while !rest.is_empty() {
                let (used, batch) = match walker.feed(rest) {
                    Ok(fed) => fed,
                    Err(error) => {
                        assert_eq!(walker.feed(bytes), Err(error), "an error stays");
                        // What came before the error does not stick to what comes next.
                        walker.reset();
                        let again = walker.feed(bytes.get(done..).unwrap_or_default());
                        assert_eq!(again, Err(error), "the same batch, another error");
                        return Self { batches, pending: 0, error: Some(error) };
                    }
                };
                rest = rest.get(used..).unwrap_or_default();
                assert!(batch.is_some() || rest.is_empty(), "without a batch it takes all");
                if let Some(batch) = batch {
                    done += usize::try_from(batch.size_bytes).unwrap_or(usize::MAX);
                    batches.push(batch);
                    assert_eq!((walker.pending_bytes(), walker.current()), (0, None));
                }
            }
        }
        let pending = walker.pending_bytes();
        assert_eq!(u64::try_from(bytes.len() - done), Ok(pending), "bytes are lost");
        assert_ne!(walker.remaining_bytes(), Some(0), "a complete batch is given out");
        Self { batches, pending, error: None }
    }
}

fn check_batch(meta: &BatchMeta, want: &PlainBatch) {
    assert_eq!(usize::try_from(meta.size_bytes), Ok(want.size));
    assert_eq!((meta.base_offset.0, meta.last_offset.0), (want.base, want.last));
    assert_eq!((meta.magic, meta.max_timestamp.0), (want.magic, want.max_timestamp));
}

/// Reads the batch's records, which no checksum vouches for.
fn open(meta: &BatchMeta, bytes: &[u8]) {
    let Ok(batch) = DecodedBatch::decode(meta, bytes, UNPACKED_BYTES_MAX) else { return };
    let mut found = 0;
    let mut is_whole = true;
    for record in batch.records() {
        match record {
            Ok(record) => {
                found += 1;
                // Wrappers of format 0, and those at 0, do not bind what they hold, as in Kafka.
                let is_bound = meta.magic == 2 || (meta.magic == 1 && meta.last_offset.0 != 0);
                assert!(!is_bound || record.offset <= meta.last_offset, "one behind its batch");
                assert!(meta.magic < 2 || record.offset >= meta.base_offset, "one before it");
                assert!(record.headers.count() <= UNPACKED_BYTES_MAX.max(bytes.len()));
            }
            Err(_) => is_whole = false,
        }
    }
    let is_counted = is_whole && meta.magic == 2;
    assert!(!is_counted || found == meta.records_count, "{found} of {}", meta.records_count);
}
