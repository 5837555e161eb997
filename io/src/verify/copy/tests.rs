//! A copy that is written while it is read.

use heliostat_core::records::{BatchBuilder, NewRecord};
use heliostat_core::types::TimestampMs;

use super::*;

const FILE_BYTES: u64 = 16 << 10;

fn batch(base: i64) -> Vec<u8> {
    let mut batch = BatchBuilder::new(Offset(base));
    let value = [b'v'; 100];
    let timestamp = TimestampMs(1_000);
    batch.push(&NewRecord { timestamp, key: None, value: Some(&value), headers: &[] }).unwrap();
    batch.build().unwrap()
}

/// A preallocated segment, and where each of its batches is to be.
struct Segment {
    dir: tempfile::TempDir,
    file: File,
    batches: Vec<(u64, Vec<u8>)>,
}

impl Segment {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("00000000000000000000.log")).unwrap();
        file.set_len(FILE_BYTES).unwrap();
        let mut at = 0;
        let mut place = |base| {
            let bytes = batch(base);
            at += u64::try_from(bytes.len()).unwrap();
            (at - u64::try_from(bytes.len()).unwrap(), bytes)
        };
        let batches = (0..4).map(&mut place).collect();
        Self { dir, file, batches }
    }

    fn write(&self, index: usize) {
        let (at, bytes) = &self.batches[index];
        self.file.write_all_at(bytes, *at).unwrap();
    }

    fn write_half(&self, index: usize) {
        let (at, bytes) = &self.batches[index];
        self.file.write_all_at(&bytes[..bytes.len() / 2], *at).unwrap();
    }

    fn reader(&self, is_alone: bool) -> CopyReader {
        CopyReader::new(segments(self.dir.path()).unwrap(), is_alone, !is_alone)
    }
}

fn next(reader: &mut CopyReader) -> Option<Offset> {
    let found = reader.current().unwrap().map(|batch| batch.base_offset);
    reader.advance();
    found
}

#[test]
fn zeros_that_became_batches_since_are_read_again() {
    let segment = Segment::new();
    segment.write(0);
    let mut reader = segment.reader(false);
    assert_eq!(next(&mut reader), Some(Offset(0)));
    segment.write(1);
    segment.write(2);
    assert_eq!(next(&mut reader), Some(Offset(1)));
    assert_eq!(next(&mut reader), Some(Offset(2)));
    assert_eq!(next(&mut reader), None);
    assert_eq!(reader.tail(), Tail::default());
}

#[test]
fn a_batch_that_was_half_there_is_read_again_or_is_the_end() {
    let segment = Segment::new();
    segment.write(0);
    segment.write_half(1);
    let mut reader = segment.reader(false);
    assert_eq!(next(&mut reader), Some(Offset(0)));
    segment.write(1);
    segment.write_half(2);
    assert_eq!(next(&mut reader), Some(Offset(1)));
    assert_eq!(next(&mut reader), None);
    assert!(reader.tail().unfinished_bytes > 0);
}

#[test]
fn a_hole_is_corrupt_until_it_is_filled() {
    let segment = Segment::new();
    segment.write(0);
    segment.write(2);
    for is_alone in [true, false] {
        let mut reader = segment.reader(is_alone);
        assert_eq!(next(&mut reader), Some(Offset(0)));
        assert!(matches!(reader.current(), Err(CopyFault::Corrupt { .. })), "{is_alone}");
    }
    let mut reader = segment.reader(false);
    assert_eq!(next(&mut reader), Some(Offset(0)));
    assert!(reader.current().is_err());
    segment.write(1);
    assert_eq!(next(&mut reader), Some(Offset(1)));
    assert_eq!(next(&mut reader), Some(Offset(2)));
}

#[test]
fn a_file_that_lost_its_zeros_meanwhile_ends_there() {
    let segment = Segment::new();
    segment.write(0);
    let mut reader = segment.reader(false);
    segment.file.set_len(segment.batches[1].0).unwrap();
    assert_eq!(next(&mut reader), Some(Offset(0)));
    assert_eq!(next(&mut reader), None);
}
