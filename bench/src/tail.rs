//! When records are in a log, as its segment file shows: the same for a copy of ours and for a
//! broker, and sooner than any client could see them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{SeekFrom, seek};

use crate::error::BenchError;

/// Of a batch, up to its last offset delta.
const HEAD_BYTES: usize = 27;
/// Of a batch, in front of what its length counts.
const LENGTH_END: u64 = 12;

/// The first segment of a partition; the logs of a comparison do not get a second one.
#[derive(Debug)]
pub(crate) struct Tail {
    path: PathBuf,
    file: Option<File>,
    /// Where the next batch begins.
    position: u64,
    /// Last offset of each batch and when it was there, in order.
    arrived: Vec<(i64, Instant)>,
}

impl Tail {
    /// Of a directory that need not exist yet.
    pub(crate) fn new(partition_dir: &Path) -> Self {
        let path = partition_dir.join("00000000000000000000.log");
        Self { path, file: None, position: 0, arrived: Vec::new() }
    }

    /// Offset behind the last record that has arrived.
    pub(crate) fn end(&self) -> i64 {
        self.arrived.last().map_or(0, |(last, _)| last + 1)
    }

    /// Notes every batch that is complete by now.
    pub(crate) fn look(&mut self, now: Instant) -> Result<(), BenchError> {
        let failed = BenchError::file(&self.path);
        if self.file.is_none() {
            match File::open(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                opened => self.file = Some(opened.map_err(BenchError::file(&self.path))?),
            }
        }
        let Some(file) = &self.file else { return Ok(()) };
        // The tail of a preallocated file is a hole.
        let size = match seek(file, SeekFrom::Hole(self.position)) {
            Err(rustix::io::Errno::NXIO) => return Ok(()),
            found => found.map_err(|error| failed(error.into()))?,
        };
        let mut head = [0; HEAD_BYTES];
        while self.position + 27 <= size {
            file.read_exact_at(&mut head, self.position).map_err(BenchError::file(&self.path))?;
            let Some((last, bytes)) = batch(&head) else { break };
            if self.position + bytes > size {
                break;
            }
            self.arrived.push((last, now));
            self.position += bytes;
        }
        Ok(())
    }

    /// Last offset of each batch and when it was there, in order.
    pub(crate) fn arrivals(&self) -> &[(i64, Instant)] {
        &self.arrived
    }

    /// When each of these offsets was there; they rise. `None` if one is not.
    pub(crate) fn times(&self, offsets: impl IntoIterator<Item = i64>) -> Option<Vec<Instant>> {
        let mut arrived = self.arrived.iter().copied().peekable();
        let mut times = Vec::new();
        for offset in offsets {
            while arrived.next_if(|&(last, _)| last < offset).is_some() {}
            times.push(arrived.peek()?.1);
        }
        Some(times)
    }
}

/// Last offset of a batch and its size; `None` of what is not written yet.
fn batch(head: &[u8; HEAD_BYTES]) -> Option<(i64, u64)> {
    let base = i64::from_be_bytes(head[..8].try_into().ok()?);
    let length = i32::from_be_bytes(head[8..12].try_into().ok()?);
    let delta = i32::from_be_bytes(head[23..].try_into().ok()?);
    let length = u64::try_from(length).ok().filter(|&length| length > 0)?;
    Some((base + i64::from(delta), LENGTH_END + length))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use heliostat_core::records::{BatchBuilder, NewRecord};
    use heliostat_core::types::{Offset, TimestampMs};

    use super::*;

    fn records(base: i64, count: usize) -> Vec<u8> {
        let mut builder = BatchBuilder::new(Offset(base));
        for _ in 0..count {
            let timestamp = TimestampMs(1);
            let value = Some([7; 40].as_slice());
            builder.push(&NewRecord { timestamp, key: None, value, headers: &[] }).unwrap();
        }
        builder.build().unwrap()
    }

    #[test]
    fn a_batch_has_arrived_when_all_of_it_has() {
        let dir = tempfile::tempdir().unwrap();
        let partition = dir.path().join("t-0");
        let mut tail = Tail::new(&partition);
        let now = Instant::now();
        tail.look(now).unwrap();
        std::fs::create_dir(&partition).unwrap();
        let mut file = File::create(partition.join("00000000000000000000.log")).unwrap();
        let (first, second) = (records(0, 3), records(3, 5));
        file.write_all(&first).unwrap();
        file.write_all(&second[..second.len() - 1]).unwrap();
        tail.look(now).unwrap();
        assert_eq!(tail.end(), 3);
        file.write_all(&second[second.len() - 1..]).unwrap();
        // What is preallocated is no batch.
        file.set_len(1 << 20).unwrap();
        let later = Instant::now();
        tail.look(later).unwrap();
        tail.look(Instant::now()).unwrap();
        assert_eq!(tail.end(), 8);
        assert_eq!(tail.times([0, 2, 3, 7]), Some(vec![now, now, later, later]));
        assert_eq!(tail.times([0, 8]), None);
    }
}
