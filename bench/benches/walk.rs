//! The batch walker's rate over fetched runs, beside that of CRC-32C alone: what
//! splitting and checking costs beyond the checksum that has to be computed anyway.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use heliostat_core::records::{BatchBuilder, BatchWalker, CRC_V2_FROM, NewRecord, WalkLimits};
use heliostat_core::types::{Offset, TimestampMs};

/// Small enough for the processor's caches, where bytes are that a socket has
/// just given: otherwise the memory is what is measured.
const RUN_BYTES: usize = 2 << 20;
/// What one read of a socket gives.
const PIECE_BYTES: usize = 64 << 10;

/// Batches of `batch_bytes` each, one behind another; and their number.
fn run_of(batch_bytes: usize) -> (Vec<u8>, usize) {
    // 61 bytes of header, and a record of one value with up to 13 bytes around it.
    let value = vec![0x5a; batch_bytes - 61 - 13];
    let count = RUN_BYTES / batch_bytes;
    let mut run = Vec::with_capacity(RUN_BYTES);
    for offset in (0_i64..).take(count) {
        let mut batch = BatchBuilder::new(Offset(offset));
        let timestamp = TimestampMs(1_700_000_000_000);
        let record = NewRecord { timestamp, key: None, value: Some(&value), headers: &[] };
        let built = batch.push(&record).and_then(|()| batch.build());
        run.extend_from_slice(&built.unwrap_or_default());
    }
    (run, count)
}

/// Walks `run` in pieces of `piece_bytes`; the number of whole batches.
fn walk(walker: &mut BatchWalker, run: &[u8], piece_bytes: usize) -> usize {
    let mut batches = 0;
    for mut piece in run.chunks(piece_bytes) {
        while !piece.is_empty() {
            let Ok((used, meta)) = walker.feed(piece) else { return batches };
            batches += usize::from(black_box(meta).is_some());
            piece = piece.get(used..).unwrap_or_default();
        }
    }
    batches
}

fn rates(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("walk");
    for batch_bytes in [16 << 10, 1 << 20] {
        let (run, count) = run_of(batch_bytes);
        group.throughput(Throughput::Bytes(u64::try_from(run.len()).unwrap_or(0)));
        let limits = WalkLimits { batch_bytes_max: 2 << 20, check_crcs: true };
        for (name, piece_bytes) in [("whole", run.len()), ("64KiB-pieces", PIECE_BYTES)] {
            group.bench_function(BenchmarkId::new(name, batch_bytes), |bencher| {
                let mut walker = BatchWalker::new(limits);
                bencher.iter(|| {
                    assert_eq!(walk(&mut walker, black_box(&run), piece_bytes), count);
                });
            });
        }
        let size = run.len() / count;
        group.bench_function(BenchmarkId::new("crc32c-alone", batch_bytes), |bencher| {
            bencher.iter(|| {
                for batch in black_box(&run).chunks(size) {
                    black_box(crc32c::crc32c(batch.get(CRC_V2_FROM..).unwrap_or_default()));
                }
            });
        });
        let limits = WalkLimits { check_crcs: false, ..limits };
        group.bench_function(BenchmarkId::new("without-crc", batch_bytes), |bencher| {
            let mut walker = BatchWalker::new(limits);
            bencher.iter(|| assert_eq!(walk(&mut walker, black_box(&run), PIECE_BYTES), count));
        });
    }
    group.finish();
}

criterion_group!(benches, rates);
criterion_main!(benches);
