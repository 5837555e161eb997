//! Bodies of the fuzz targets: any bytes in, no panic, no unbounded memory, and the
//! promises of each decoder kept. `tests/fuzz` runs them under a fuzzer, `tests/replay`
//! over the stored corpora.

mod store;

use std::ops::ControlFlow;

use heliostat_core::log::config::LogConfig;
use heliostat_core::log::disk::LogPath;
use heliostat_core::log::epoch_cache::EpochCache;
use heliostat_core::log::gaps::GapFile;
use heliostat_core::log::index::{OffsetIndexFile, TimeIndexFile};
use heliostat_core::log::meta_properties::MetaProperties;
use heliostat_core::log::recovery::{self, OpenOptions};
use heliostat_core::log::store::ColdStore;
use heliostat_core::log::{FileKind, checkpoint, producer_snapshot, txn_index};
use heliostat_core::protocol::fetch_stream::{FetchEvent, FetchLimits, FetchStream};
use heliostat_core::records::{BatchWalker, WalkLimits};
use heliostat_core::types::{Offset, TopicId};

pub use self::store::MemoryStore;

/// A body, by the name of its target and of its corpus.
pub type Body = fn(&[u8]);

/// All targets.
pub const TARGETS: [(&str, Body); 4] = [
    ("fetch_stream", fetch_stream),
    ("walker", walker),
    ("recovery", recovery),
    ("checkpoints", checkpoints),
];

/// A Fetch response of any version, in pieces whose sizes the input chooses. Cut
/// otherwise, it must decode to the same.
///
/// # Panics
/// When the decoder breaks its promises: that is what the fuzzer looks for.
pub fn fetch_stream(input: &[u8]) {
    let Some((&[version, piece], bytes)) = input.split_first_chunk::<2>() else { return };
    let version = 4 + i16::from(version % 16);
    let whole = decode(version, bytes, usize::MAX);
    let pieces = decode(version, bytes, usize::from(piece).max(1));
    assert_eq!(whole, pieces, "how bytes are cut changes what they mean");
}

/// Events, and whether it ended in an error.
fn decode(version: i16, bytes: &[u8], piece: usize) -> (Vec<FetchEvent>, bool) {
    let limits = FetchLimits { frame_bytes_max: 1 << 20, ..FetchLimits::default() };
    let mut stream = FetchStream::new(version, limits);
    let mut events = Vec::new();
    let mut at = 0;
    let mut shown = 0;
    loop {
        let left = stream.remaining_records();
        if left > 0 {
            let take = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len() - at);
            if take == 0 {
                return (events, false);
            }
            stream.records_taken(u64::try_from(take).unwrap_or(0));
            at += take;
            shown = shown.max(at);
            continue;
        }
        match stream.feed(&bytes[at..shown.max(at)]) {
            Err(_) => return (events, true),
            Ok((used, event)) => {
                at += used;
                let nothing = used == 0 && event.is_none();
                events.extend(event);
                if nothing {
                    if shown >= bytes.len() {
                        return (events, false);
                    }
                    shown = shown.max(at).saturating_add(piece).min(bytes.len());
                }
            }
        }
    }
}

/// A run of batches, whole and in pieces: the same batches, the same end.
///
/// # Panics
/// As [`fetch_stream`].
pub fn walker(input: &[u8]) {
    let Some((&piece, bytes)) = input.split_first() else { return };
    let limits = WalkLimits { batch_bytes_max: 1 << 20, check_crcs: piece % 2 == 0 };
    let whole = walk(limits, bytes, usize::MAX);
    let pieces = walk(limits, bytes, usize::from(piece).max(1));
    assert_eq!(whole, pieces, "how bytes are cut changes what they mean");
}

type Walked = (Vec<heliostat_core::records::BatchMeta>, Option<String>);

fn walk(limits: WalkLimits, bytes: &[u8], piece: usize) -> Walked {
    let mut walker = BatchWalker::new(limits);
    let mut batches = Vec::new();
    for part in bytes.chunks(piece.min(bytes.len().max(1))) {
        let mut at = 0;
        while at < part.len() {
            match walker.feed(&part[at..]) {
                Err(error) => return (batches, Some(error.to_string())),
                Ok((used, batch)) => {
                    at += used;
                    batches.extend(batch);
                }
            }
        }
    }
    (batches, None)
}

/// A partition directory of any bytes: opening it ends, and what it leaves opens again
/// to the same end with nothing left to cut.
///
/// # Panics
/// As [`fetch_stream`].
pub fn recovery(input: &[u8]) {
    let Some((&[flags, split], bytes)) = input.split_first_chunk::<2>() else { return };
    let mut store = MemoryStore::default();
    let cut = bytes.len() * usize::from(split) / 255;
    let (log, other) = bytes.split_at(cut);
    store.put("t-0", "00000000000000000000.log", log);
    let side = match flags >> 5 {
        0 => "00000000000000000000.index",
        1 => "00000000000000000000.timeindex",
        2 => "00000000000000000000.txnindex",
        3 => "00000000000000000001.snapshot",
        4 => "leader-epoch-checkpoint",
        5 => "00000000000000000003.log",
        6 => "partition.metadata",
        _ => "00000000000000000000.log.swap",
    };
    store.put("t-0", side, other);
    let options = OpenOptions {
        config: LogConfig::default(),
        topic_id: TopicId::NONE,
        clean: flags & 1 == 1,
        recovery_point: Offset(i64::from(flags >> 1 & 7)),
        log_start: None,
        truncate_to: None,
        now_ms: 1_700_000_000_000,
    };
    let Ok((opened, _)) = recovery::open(&mut store, "t-0", &options) else { return };
    let again = OpenOptions { clean: false, recovery_point: opened.log_end, ..options };
    match recovery::open(&mut store, "t-0", &again) {
        Ok((reopened, report)) => {
            assert_eq!(reopened.log_end, opened.log_end, "opened twice, two ends");
            assert!(report.cut.is_none(), "the first opening left something to cut: {report:?}");
        }
        Err(error) => panic_again(&error.to_string()),
    }
    let path = LogPath { dir: "t-0".into(), name: "00000000000000000000.log".to_owned() };
    let mut seen = 0;
    let scanned = store.scan(&path, 0, &mut |part| {
        seen += part.len();
        ControlFlow::Continue(())
    });
    assert!(scanned.is_err() || seen <= log.len(), "recovery made records up");
}

#[expect(clippy::panic, reason = "how a fuzz target says that it found something")]
fn panic_again(error: &str) {
    panic!("what was opened does not open again: {error}");
}

/// Every small file format, each with any bytes; what decodes encodes to the same value.
///
/// # Panics
/// As [`fetch_stream`].
pub fn checkpoints(input: &[u8]) {
    let Some((&kind, bytes)) = input.split_first() else { return };
    match kind % 8 {
        0 => {
            if let Ok(cache) = EpochCache::decode(bytes) {
                assert_eq!(EpochCache::decode(cache.encode().as_bytes()), Ok(cache));
            }
        }
        1 => {
            let file = FileKind::RecoveryPointCheckpoint;
            if let Ok(offsets) = checkpoint::decode_offsets(file, bytes)
                && let Ok(text) = checkpoint::encode_offsets(file, &offsets)
            {
                assert_eq!(checkpoint::decode_offsets(file, text.as_bytes()), Ok(offsets));
            }
        }
        2 => {
            if let Ok(id) = checkpoint::decode_partition_metadata(bytes) {
                let text = checkpoint::encode_partition_metadata(id);
                assert_eq!(checkpoint::decode_partition_metadata(text.as_bytes()), Ok(id));
            }
        }
        3 => {
            if let Ok(meta) = MetaProperties::decode(bytes) {
                assert_eq!(MetaProperties::decode(meta.encode().as_bytes()), Ok(meta));
            }
        }
        4 => {
            if let Ok(entries) = producer_snapshot::decode(bytes) {
                let again = producer_snapshot::encode(&entries);
                assert_eq!(producer_snapshot::decode(&again), Ok(entries));
            }
        }
        5 => {
            if let Ok(file) = GapFile::decode(bytes) {
                let valid = usize::try_from(file.valid_bytes).unwrap_or(usize::MAX);
                assert!(valid <= bytes.len());
            }
        }
        6 => {
            if let Ok(index) = OffsetIndexFile::parse(Offset(0), bytes) {
                assert!(index.iter().count() <= bytes.len() / 8);
            }
        }
        _ => {
            if let Ok(index) = TimeIndexFile::parse(Offset(0), bytes) {
                assert!(index.iter().count() <= bytes.len() / 12);
            }
            if let Ok(entries) = txn_index::decode(Offset(0), bytes) {
                let again: Vec<u8> = entries.iter().flat_map(|entry| entry.encode()).collect();
                assert_eq!(again, bytes);
            }
        }
    }
}
