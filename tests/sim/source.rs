//! The source's log: batches that grow on demand, and change history when asked to.

use std::collections::BTreeMap;

use heliostat_core::records::{
    BatchBuilder, BatchMeta, BatchWalker, Compression, ControlType, NewRecord, WalkLimits,
};
use heliostat_core::types::{LeaderEpoch, Offset, ProducerEpoch, ProducerId, TimestampMs};

use crate::rng::Chance;

/// One batch of the source.
#[derive(Clone, Debug)]
pub(crate) struct SourceBatch {
    pub(crate) meta: BatchMeta,
    pub(crate) bytes: Vec<u8>,
}

/// Sizes of the batches of one world.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Bytes of a value.
    pub(crate) small_max: usize,
    /// In 1000 batches so many are large.
    pub(crate) large_permille: usize,
    pub(crate) large_max: usize,
}

#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) batches: Vec<SourceBatch>,
    chance: Chance,
    sizes: Sizes,
    next: Offset,
    epoch: i32,
    clock_ms: i64,
    /// Next sequence and whether a transaction is open, by producer.
    producers: BTreeMap<i64, (i32, bool)>,
}

impl Source {
    pub(crate) fn new(chance: Chance, sizes: Sizes, start: Offset) -> Self {
        Self {
            batches: Vec::new(),
            chance,
            sizes,
            next: start,
            epoch: 0,
            clock_ms: 1_000_000,
            producers: BTreeMap::new(),
        }
    }

    /// Index of the first batch that ends behind `offset`; there is one afterwards.
    pub(crate) fn index_at(&mut self, offset: Offset) -> usize {
        while self.next <= offset {
            self.grow();
        }
        let index = self.batches.partition_point(|batch| batch.meta.last_offset < offset);
        while self.batches.len() <= index + 100 {
            self.grow();
        }
        index
    }

    /// Unclean election: everything from `offset` on is another history, of a newer epoch.
    pub(crate) fn diverge_at(&mut self, offset: Offset) -> Offset {
        let keep = self.batches.partition_point(|batch| batch.meta.last_offset < offset);
        self.batches.truncate(keep);
        self.next = self.batches.last().map_or(self.next.min(offset), |it| it.meta.next_offset());
        if keep > 0 && self.chance.percent(30) {
            self.next = self.next.plus(3);
        }
        self.epoch += 1;
        self.producers.clear();
        self.batches.last().map_or(offset, |it| it.meta.next_offset())
    }

    fn grow(&mut self) {
        if self.chance.percent(8) {
            // Compaction left a gap.
            self.next = self.next.plus(i64::try_from(self.chance.between(1, 20)).unwrap_or(1));
        }
        if self.chance.percent(6) {
            self.epoch += i32::try_from(self.chance.between(1, 3)).unwrap_or(1);
        }
        let open: Vec<i64> =
            self.producers.iter().filter(|(_, (_, open))| *open).map(|(id, _)| *id).collect();
        let bytes = if !open.is_empty() && self.chance.percent(25) {
            let id = self.chance.pick(&open);
            self.marker(id)
        } else {
            self.data()
        };
        let meta = facts(&bytes);
        self.next = meta.next_offset();
        self.batches.push(SourceBatch { meta, bytes });
    }

    fn marker(&mut self, id: i64) -> Vec<u8> {
        if let Some((_, open)) = self.producers.get_mut(&id) {
            *open = false;
        }
        let abort = self.chance.percent(50);
        let code = if abort { ControlType::Abort } else { ControlType::Commit }.code();
        let mut key = vec![0, 0];
        key.extend(code.to_be_bytes());
        let value = [0, 0, 0, 0, 0, 7];
        let mut builder =
            self.builder().transactional().control().producer(ProducerId(id), ProducerEpoch(0), -1);
        self.push(&mut builder, Some(&key), &value);
        builder.build().expect("a marker can be built")
    }

    fn data(&mut self) -> Vec<u8> {
        let mut builder = self.builder();
        if self.chance.percent(50) {
            let id = i64::try_from(self.chance.between(1, 5)).unwrap_or(1);
            let transactional = id > 2;
            let (sequence, _) = *self.producers.entry(id).or_insert((0, false));
            builder = builder.producer(ProducerId(id), ProducerEpoch(0), sequence);
            if transactional {
                builder = builder.transactional();
            }
            self.producers.insert(id, (sequence + 4, transactional));
        }
        let large = self.chance.below(1_000) < self.sizes.large_permille;
        let max = if large { self.sizes.large_max } else { self.sizes.small_max };
        let mut value = vec![0; self.chance.between(0, max)];
        self.chance.fill(&mut value);
        let records = self.chance.between(0, 2);
        for _ in 0..records {
            let part = value.len() / records;
            self.push(&mut builder, None, &value[..part]);
        }
        let delta = i32::try_from(self.chance.between(records.max(1) - 1, 3)).unwrap_or(0);
        builder.last_offset_delta(delta).build().expect("a batch can be built")
    }

    fn builder(&self) -> BatchBuilder {
        BatchBuilder::new(self.next)
            .leader_epoch(LeaderEpoch(self.epoch))
            .compression(Compression::None)
    }

    fn push(&mut self, builder: &mut BatchBuilder, key: Option<&[u8]>, value: &[u8]) {
        self.clock_ms += i64::try_from(self.chance.between(0, 30)).unwrap_or(0) - 5;
        let timestamp = TimestampMs(self.clock_ms);
        let record = NewRecord { timestamp, key, value: Some(value), headers: &[] };
        builder.push(&record).expect("a record fits");
    }
}

/// Facts of a whole batch.
pub(crate) fn facts(bytes: &[u8]) -> BatchMeta {
    let limits = WalkLimits { batch_bytes_max: u32::MAX, check_crcs: true };
    let (used, meta) = BatchWalker::new(limits).feed(bytes).expect("the batch is valid");
    assert_eq!(used, bytes.len(), "one batch");
    meta.expect("the batch is whole")
}
