use proptest::prelude::*;

use super::*;

/// A log of v2 batches: base offset, records covered, size.
#[derive(Default)]
struct Log {
    segments: Vec<(Offset, Vec<u8>)>,
    batches: Vec<(Offset, BatchPlace)>,
    end: i64,
    reads: usize,
}

impl Log {
    fn roll(&mut self) {
        self.segments.push((Offset(self.end), Vec::new()));
    }

    fn batch(&mut self, gap: i64, records: i32, size: usize) {
        let (base, bytes) = self.segments.last_mut().expect("rolled");
        let offset = self.end + gap;
        let place = BatchPlace {
            position: u64::try_from(bytes.len()).expect("small"),
            size: u64::try_from(size).expect("small"),
            base_offset: Offset(offset),
            last_offset: Offset(offset + i64::from(records) - 1),
        };
        let mut batch = vec![0xaa; size];
        batch[..8].copy_from_slice(&offset.to_be_bytes());
        batch[8..12].copy_from_slice(&i32::try_from(size - 12).expect("small").to_be_bytes());
        batch[16] = 2;
        batch[23..27].copy_from_slice(&(records - 1).to_be_bytes());
        bytes.extend(batch);
        self.batches.push((*base, place));
        self.end = place.last_offset.0 + 1;
    }

    fn extents(&self) -> Vec<SegmentExtent> {
        let extent = |(base, bytes): &(Offset, Vec<u8>)| SegmentExtent {
            base: *base,
            len: u64::try_from(bytes.len()).expect("small"),
        };
        self.segments.iter().map(extent).collect()
    }

    fn plan(&mut self, from: i64, to: i64, bytes_max: u64, whole: bool) -> Option<ReadRun> {
        let request = ReadRequest {
            from: Offset(from),
            to: Offset(to),
            log_end: Offset(self.end),
            bytes_max,
            first_batch_whole: whole,
        };
        match plan_read(&self.extents(), &request, self).expect("readable") {
            ReadPlan::Run(run) => Some(run),
            ReadPlan::Nothing | ReadPlan::Beyond => None,
        }
    }
}

impl SegmentRead for Log {
    type Error = std::convert::Infallible;

    fn index_floor(&mut self, segment: Offset, target: Offset) -> Result<u64, Self::Error> {
        // Every third batch is indexed, by its last offset as Kafka does.
        let indexed = self.batches.iter().filter(|(base, _)| *base == segment).step_by(3).skip(1);
        let below = indexed.filter(|(_, batch)| batch.last_offset <= target);
        Ok(below.last().map_or(0, |(_, batch)| batch.position))
    }

    fn read_at(
        &mut self,
        segment: Offset,
        position: u64,
        into: &mut [u8],
    ) -> Result<usize, Self::Error> {
        self.reads += 1;
        let bytes = &self.segments.iter().find(|(base, _)| *base == segment).expect("known").1;
        let from = usize::try_from(position).expect("small").min(bytes.len());
        let len = into.len().min(bytes.len() - from);
        into[..len].copy_from_slice(&bytes[from..from + len]);
        Ok(len)
    }
}

/// Offsets 0..10, 10..20, 20..30 at 100 bytes each, then a segment with 30..40.
fn log() -> Log {
    let mut log = Log::default();
    log.roll();
    for _ in 0..3 {
        log.batch(0, 10, 100);
    }
    log.roll();
    log.batch(0, 10, 100);
    log
}

fn span(run: Option<ReadRun>) -> Option<(i64, u64, u64)> {
    run.map(|run| (run.segment.0, run.position, run.len))
}

#[test]
fn read_starts_at_the_batch_that_holds_the_offset() {
    let mut log = log();
    assert_eq!(span(log.plan(0, 40, 1000, false)), Some((0, 0, 300)));
    let run = log.plan(15, 40, 1000, false).expect("a run");
    assert_eq!((run.position, run.len, run.first_base.0), (100, 200, 10));
    assert_eq!(span(log.plan(30, 40, 1000, false)), Some((30, 0, 100)));
    assert_eq!(log.plan(40, 40, 1000, false), None);
}

#[test]
fn read_ends_at_the_bytes_or_at_the_readable_end() {
    let mut log = log();
    // The last batch may be cut off.
    assert_eq!(span(log.plan(0, 40, 150, false)), Some((0, 0, 150)));
    assert_eq!(span(log.plan(0, 20, 1000, false)), Some((0, 0, 200)));
    // A batch across the readable end stays away.
    assert_eq!(span(log.plan(0, 15, 1000, false)), Some((0, 0, 100)));
    assert_eq!(log.plan(10, 15, 1000, true), None);
}

#[test]
fn first_batch_goes_whole_or_not_at_all() {
    let mut log = log();
    assert_eq!(log.plan(0, 40, 99, false), None);
    assert_eq!(span(log.plan(0, 40, 99, true)), Some((0, 0, 100)));
    assert_eq!(log.plan(0, 40, 0, false), None);
}

#[test]
fn gap_at_the_end_of_a_segment_reads_the_next() {
    let mut log = log();
    log.end = 50;
    log.roll();
    log.batch(5, 1, 80);
    // 40..55 is gone by compaction; segment 30 has nothing for it.
    assert_eq!(span(log.plan(45, 56, 1000, false)), Some((50, 0, 80)));
}

#[test]
fn looking_for_a_batch_reads_little() {
    let mut log = Log::default();
    log.roll();
    for _ in 0..3000 {
        log.batch(0, 1, 100);
    }
    log.reads = 0;
    log.plan(2500, 3000, 10, true).expect("a run");
    assert_eq!(log.reads, 1);
}

/// Whoever has later segments looks there only if these end below the offset.
#[test]
fn what_does_not_fit_is_not_looked_for_further() {
    let mut log = log();
    let mut plan = |from, to, bytes_max| {
        let request = ReadRequest {
            from: Offset(from),
            to: Offset(to),
            log_end: Offset(log.end),
            bytes_max,
            first_batch_whole: false,
        };
        plan_read(&log.extents(), &request, &mut log).expect("readable")
    };
    assert_eq!(plan(0, 40, 1), ReadPlan::Nothing);
    assert_eq!(plan(0, 1, 1 << 20), ReadPlan::Nothing);
    assert_eq!(plan(5_000, 9_000, 1 << 20), ReadPlan::Beyond);
}

#[test]
fn what_is_no_batch_is_an_error() {
    let mut log = log();
    log.segments[0].1[108..112].copy_from_slice(&(-1_i32).to_be_bytes());
    let request = ReadRequest {
        from: Offset(25),
        to: Offset(40),
        log_end: Offset(40),
        bytes_max: 10,
        first_batch_whole: true,
    };
    let got = plan_read(&log.extents(), &request, &mut log);
    assert!(matches!(got, Err(ReadPlanError::Corrupt { segment: Offset(0), position: 100 })));
}

proptest! {
    /// Arbitrary bytes end in a run or an error, never in a panic or a loop.
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), from in 0..50_i64) {
        let mut log = Log { segments: vec![(Offset(0), bytes)], end: 50, ..Log::default() };
        let request = ReadRequest {
            from: Offset(from), to: Offset(50), log_end: Offset(50), bytes_max: 99, first_batch_whole: false,
        };
        let _ = plan_read(&log.extents(), &request, &mut log);
    }

    /// The oracle looks through the list of batches.
    #[test]
    fn runs_are_what_a_full_search_finds(
        shape in prop::collection::vec((0..3_i64, 1..5_i32, 61..400_usize, prop::bool::weighted(0.2)), 1..30),
        from in 0..80_i64, to in 0..80_i64, bytes_max in 0..1500_u64, whole: bool,
    ) {
        let mut log = Log::default();
        log.roll();
        for (gap, records, size, roll) in shape {
            if roll && !log.segments.last().expect("one").1.is_empty() {
                log.roll();
            }
            log.batch(gap, records, size);
        }
        let to = to.min(log.end);
        let readable = |batch: &BatchPlace| batch.last_offset.0 < to;
        let first = log.batches.iter().find(|(_, batch)| batch.last_offset.0 >= from).copied();
        let want = first.filter(|(_, batch)| {
            from < to && readable(batch) && (whole || batch.size <= bytes_max)
        }).map(|(segment, batch)| {
            let same = log.batches.iter().filter(|(base, other)| *base == segment && readable(other));
            let end = same.map(|(_, other)| other.position + other.size).max().unwrap_or(0);
            (segment.0, batch.position, (end - batch.position).min(bytes_max.max(batch.size)))
        });
        prop_assert_eq!(span(log.plan(from, to, bytes_max, whole)), want);
    }
}
