use super::*;
use crate::log::slot::{SlotClass, SlotPool, map_apart};
use proptest::prelude::*;

/// A step of the log or of the disk.
#[derive(Clone, Debug)]
enum Step {
    /// Appends so many bytes.
    Append(u64),
    /// Sends a write, if one may go.
    Send,
    /// Completes write `pick` of those in flight, `percent` of it.
    Complete { pick: usize, percent: usize },
    /// Goes back by so many bytes.
    Reset(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (1..3_000_u64).prop_map(Step::Append),
        4 => Just(Step::Send),
        4 => (any::<usize>(), 0..=100_usize)
            .prop_map(|(pick, percent)| Step::Complete { pick, percent }),
        1 => (0..4_000_u64).prop_map(Step::Reset),
    ]
}

/// Which bytes are in the file: the naive truth.
#[derive(Debug, Default)]
struct Model {
    /// Number of the append that a byte of the file came from last, 0 for none.
    file: Vec<u64>,
    /// The same for what was planned: what the file must hold in the end.
    wanted: Vec<u64>,
    appends: u64,
    in_flight: Vec<Flight>,
}

#[derive(Debug)]
struct Flight {
    id: OpId,
    position: u64,
    from: usize,
    len: usize,
    slot: Slot,
    /// What it writes, by byte.
    content: Vec<u64>,
}

fn index(position: u64) -> usize {
    usize::try_from(position).expect("a small file")
}

fn long(len: usize) -> u64 {
    u64::try_from(len).expect("a small file")
}

struct Bench {
    window: WriteWindow,
    model: Model,
    pool: SlotPool,
    block: u64,
    next_id: u64,
    /// Contents of planned writes by their slot's address.
    contents: Vec<(usize, Vec<u64>)>,
}

impl Bench {
    fn new(block: u64) -> Self {
        Self {
            window: WriteWindow::new(0, block),
            model: Model::default(),
            pool: SlotPool::new(64 << 20, map_apart),
            block,
            next_id: 0,
            contents: Vec::new(),
        }
    }

    fn key(slot: &Slot) -> usize {
        slot.bytes().as_ptr().addr()
    }

    fn end(&self) -> u64 {
        long(self.model.wanted.len())
    }

    fn append(&mut self, bytes: u64) {
        self.model.appends += 1;
        let start = self.end() / self.block * self.block;
        self.model.wanted.extend(std::iter::repeat_n(self.model.appends, index(bytes)));
        let data_end = self.end();
        let len = index((data_end - start).next_multiple_of(self.block));
        let mut content = self.model.wanted[index(start)..].to_vec();
        content.resize(len, 0);
        let slot = self.pool.take(SlotClass::Small).expect("within the budget");
        self.contents.push((Self::key(&slot), content));
        let received_at = Tick::ZERO;
        self.window.plan(PlannedWrite {
            position: start,
            slot,
            from: 0,
            len,
            data_end,
            received_at,
        });
    }

    fn send(&mut self) {
        self.next_id += 1;
        let id = OpId(self.next_id);
        let Some((position, slot, from, len)) = self.window.next_ready(id) else { return };
        let end = position + long(len);
        for other in &self.model.in_flight {
            let apart = end <= other.position || other.position + long(other.len) <= position;
            assert!(apart, "{position}..{end} while {other:?} is in flight");
        }
        assert!(position.is_multiple_of(self.block) && long(len).is_multiple_of(self.block));
        let key = Self::key(&slot);
        let content = self.contents.iter().rev().find(|(at, _)| *at == key).expect("was planned");
        let content = content.1[from..from + len].to_vec();
        self.model.in_flight.push(Flight { id, position, from, len, slot, content });
    }

    fn complete(&mut self, pick: usize, percent: usize) {
        if self.model.in_flight.is_empty() {
            return;
        }
        let flight = self.model.in_flight.remove(pick % self.model.in_flight.len());
        let written = (flight.len * percent).div_ceil(100).max(1);
        let (from, to) = (index(flight.position), index(flight.position) + written);
        if self.model.file.len() < to {
            self.model.file.resize(to, 0);
        }
        self.model.file[from..to].copy_from_slice(&flight.content[..written]);
        let from = flight.from;
        assert!(from + flight.len <= flight.slot.bytes().len());
        match self.window.on_written(flight.id, written, flight.slot) {
            Some(WriteProgress::Whole { slot, .. }) => self.pool.give(slot),
            Some(WriteProgress::Short) => assert!(written < flight.len, "it was whole"),
            None => panic!("the window does not know its write"),
        }
    }

    fn reset(&mut self, back: u64) {
        let end = self.end().saturating_sub(back);
        self.model.wanted.truncate(index(end));
        for slot in self.window.reset_to(end) {
            self.pool.give(slot);
        }
    }

    /// Below the window's claim, the file holds what was wanted.
    fn check(&self) {
        let to = self.window.complete_to();
        assert!(to <= self.end(), "{to} is behind the end {}", self.end());
        let to = index(to);
        assert!(self.model.file.len() >= to, "{} of {to} bytes are there", self.model.file.len());
        let differs = (0..to).find(|&at| self.model.file[at] != self.model.wanted[at]);
        assert_eq!(differs, None, "byte differs below {to}");
    }
}

fn run(block: u64, steps: Vec<Step>) {
    let mut bench = Bench::new(block);
    for step in steps {
        match step {
            Step::Append(bytes) => bench.append(bytes),
            Step::Send => bench.send(),
            Step::Complete { pick, percent } => bench.complete(pick, percent),
            Step::Reset(back) => bench.reset(back),
        }
        bench.check();
    }
    // Everything comes to an end, and then everything counts.
    while !bench.window.is_empty() {
        bench.send();
        bench.complete(0, 100);
        bench.check();
    }
    assert_eq!(bench.window.complete_to(), bench.end());
    assert_eq!(bench.pool.lent_bytes(), 0);
}

proptest! {
    #[test]
    fn claims_hold_whatever_the_disk_does(
        block in prop::sample::select(vec![1_u64, 512, 4096]),
        steps in prop::collection::vec(step(), 1..60),
    ) {
        run(block, steps);
    }
}

#[test]
fn a_failed_write_ends_the_prefix_and_frees_the_rest() {
    let mut bench = Bench::new(1);
    bench.append(100);
    bench.append(100);
    bench.append(100);
    for _ in 0..3 {
        bench.send();
    }
    let failed = bench.model.in_flight.remove(1);
    assert!(bench.window.on_failed(failed.id));
    bench.complete(1, 100);
    bench.complete(0, 100);
    assert_eq!(bench.window.complete_to(), 100);
    assert!(bench.window.is_empty());
}

/// A write that was cut at a block's end, and a way back to just there.
#[test]
fn what_a_short_write_brought_counts_after_a_reset_to_its_end() {
    run(
        512,
        vec![
            Step::Append(2486),
            Step::Send,
            Step::Complete { pick: 0, percent: 20 },
            Step::Reset(1974),
        ],
    );
}
