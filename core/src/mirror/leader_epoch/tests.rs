use proptest::prelude::*;

use super::*;
use crate::types::Offset;

fn told(epoch: i32) -> PartitionEnd {
    PartitionEnd { mirror_leader_epoch: Some(LeaderEpoch(epoch)), ..PartitionEnd::default() }
}

fn verdicts<const N: usize>(follower: &mut FollowerEpoch, epochs: [i32; N]) -> [bool; N] {
    epochs.map(|epoch| follower.on_batch(LeaderEpoch(epoch)) == Verdict::Append)
}

#[test]
fn leader_tells_followers_of_mirrors_and_nobody_else() {
    let (asked, latest) = (LeaderEpoch(0), Some(LeaderEpoch(5)));
    assert_eq!(leader_answer(true, asked, latest), LeaderEpoch(5));
    assert_eq!(leader_answer(false, asked, latest), LeaderEpoch::NONE, "a consumer");
    assert_eq!(leader_answer(true, LeaderEpoch::NONE, latest), LeaderEpoch::NONE, "not sent");
    assert_eq!(leader_answer(true, asked, None), LeaderEpoch::NONE, "no mirror");
}

#[test]
fn begins_at_zero_and_takes_what_was_told_before() {
    let mut follower = FollowerEpoch::new(LeaderEpoch::NONE);
    assert_eq!(follower.value(), LeaderEpoch(0));
    assert_eq!(verdicts(&mut follower, [0, 3, 0]), [true, false, false], "one drops the rest");
    assert_eq!(follower.on_answer_end(&told(5)), Next::Fetch);
    assert_eq!(follower.value(), LeaderEpoch(5));
    assert_eq!(verdicts(&mut follower, [3, 5, 7]), [true, true, false]);
    assert_eq!(follower.last_fetched(), LeaderEpoch(5));
    assert_eq!(follower.on_answer_end(&told(4)), Next::Fetch);
    assert_eq!(follower.value(), LeaderEpoch(5), "an answer only raises it");
}

#[test]
fn epochs_of_the_log_never_fall_and_old_formats_have_none() {
    let mut follower = FollowerEpoch::new(LeaderEpoch(5));
    follower.on_answer_end(&told(9));
    assert_eq!(verdicts(&mut follower, [-1, 5, -1, 4]), [true, true, true, false]);
    assert_eq!(follower.last_fetched(), LeaderEpoch(5));
}

#[test]
fn diverging_epoch_is_aligned_and_takes_the_value_back() {
    let mut follower = FollowerEpoch::new(LeaderEpoch(5));
    let diverging = DivergingEpoch { epoch: LeaderEpoch(3), end_offset: Offset(10) };
    let end = PartitionEnd { diverging_epoch: Some(diverging), ..told(7) };
    assert_eq!(follower.on_answer_end(&end), Next::Align(diverging));
    follower.truncated(LeaderEpoch(3));
    assert_eq!((follower.value(), follower.last_fetched()), (LeaderEpoch(3), LeaderEpoch(3)));
    follower.truncated(LeaderEpoch::NONE);
    assert_eq!(follower.value(), LeaderEpoch(0), "an emptied log");
}

#[test]
fn silent_leader_is_told_from_one_without_news() {
    let mut follower = FollowerEpoch::new(LeaderEpoch::NONE);
    assert_eq!(follower.on_answer_end(&PartitionEnd::default()), Next::Fetch, "nothing came");
    follower.on_batch(LeaderEpoch(1));
    assert_eq!(follower.on_answer_end(&PartitionEnd::default()), Next::LeaderSilent);
}

#[test]
fn other_leader_begins_at_zero() {
    let mut follower = FollowerEpoch::new(LeaderEpoch(4));
    follower.on_answer_end(&told(9));
    follower.new_leader();
    assert_eq!((follower.value(), follower.last_fetched()), (LeaderEpoch(0), LeaderEpoch(4)));
}

/// A log: the epoch of each record.
type Log = Vec<i32>;

/// Kafka's answer to "where does `last` end", among the epochs of `log`.
fn epoch_end(log: &Log, last: i32) -> Option<DivergingEpoch> {
    let below = log.partition_point(|&epoch| epoch <= last);
    let epoch = *log.get(below.checked_sub(1)?)?;
    let end_offset = Offset(i64::try_from(below).ok()?);
    Some(DivergingEpoch { epoch: LeaderEpoch(epoch), end_offset })
}

/// A leader with all the histories that it has had, and its follower.
struct World {
    leader: Log,
    histories: Vec<Log>,
    epoch_max: i32,
    log: Log,
    follower: FollowerEpoch,
    /// The rule under test.
    checks: bool,
}

impl World {
    fn new(checks: bool) -> Self {
        let follower = FollowerEpoch::new(LeaderEpoch::NONE);
        let (leader, histories) = (Log::new(), vec![Log::new()]);
        Self { leader, histories, epoch_max: 0, log: Log::new(), follower, checks }
    }

    /// The source elects a leader that has `keep` records, and goes on.
    fn elect(&mut self, keep: usize, records: usize) {
        self.epoch_max += 1;
        self.leader.truncate(keep);
        self.leader.extend(std::iter::repeat_n(self.epoch_max, records));
        self.histories.push(self.leader.clone());
    }

    /// An answer whose position was checked in `checked`, and whose records are read now.
    fn fetch(&mut self, checked: &Log, records_max: usize) {
        let from = self.log.len();
        let last = self.log.last().copied();
        let mut end = PartitionEnd::default();
        let parts = last.and_then(|last| {
            let found = epoch_end(checked, last)
                .unwrap_or(DivergingEpoch { epoch: LeaderEpoch(0), end_offset: Offset(0) });
            let here = Offset(i64::try_from(from).expect("small"));
            (found.epoch.0 < last || found.end_offset < here).then_some(found)
        });
        if parts.is_none() && from <= self.leader.len() {
            for &epoch in self.leader[from..].iter().take(records_max) {
                let verdict = self.follower.on_batch(LeaderEpoch(epoch));
                if verdict == Verdict::Append || !self.checks {
                    self.log.push(epoch);
                }
            }
        }
        end.diverging_epoch = parts;
        end.mirror_leader_epoch = self.leader.last().copied().map(LeaderEpoch);
        if let Next::Align(diverging) = self.follower.on_answer_end(&end) {
            let own = epoch_end(&self.log, diverging.epoch.0).map_or(0, |own| own.end_offset.0);
            let to = usize::try_from(diverging.end_offset.0.min(own)).expect("not negative");
            self.log.truncate(to.min(from));
            self.follower.truncated(LeaderEpoch(self.log.last().copied().unwrap_or(-1)));
        }
    }

    fn holds_one_history(&self) -> bool {
        self.histories.iter().any(|history| history.starts_with(&self.log))
    }
}

#[derive(Clone, Debug)]
enum Op {
    Append(usize),
    Elect {
        keep: usize,
        records: usize,
    },
    Fetch {
        most: usize,
    },
    /// The leader's log becomes another between the check and the read.
    Race {
        keep: usize,
        records: usize,
        most: usize,
    },
    NewLeader,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => (1..4_usize).prop_map(Op::Append),
        1 => (0..8_usize, 0..6_usize).prop_map(|(keep, records)| Op::Elect { keep, records }),
        6 => (1..5_usize).prop_map(|most| Op::Fetch { most }),
        2 => (0..8_usize, 0..6_usize, 1..5_usize)
            .prop_map(|(keep, records, most)| Op::Race { keep, records, most }),
        1 => Just(Op::NewLeader),
    ]
}

impl World {
    fn step(&mut self, op: &Op) {
        match *op {
            Op::Append(records) => {
                let keep = self.leader.len();
                let epoch = self.epoch_max;
                self.leader.resize(keep + records, epoch);
                self.histories.push(self.leader.clone());
            }
            Op::Elect { keep, records } => self.elect(keep, records),
            Op::Fetch { most } => self.fetch(&self.leader.clone(), most),
            Op::Race { keep, records, most } => {
                let checked = self.leader.clone();
                self.elect(keep, records);
                self.fetch(&checked, most);
            }
            Op::NewLeader => self.follower.new_leader(),
        }
    }
}

proptest! {
    /// Whatever happens when, the follower holds a beginning of one history, and arrives at
    /// the leader's once that stays as it is.
    #[test]
    fn follower_holds_one_history(ops in prop::collection::vec(op(), 0..80)) {
        let mut world = World::new(true);
        for op in &ops {
            world.step(op);
            prop_assert!(world.holds_one_history(), "after {op:?}: {:?}", world.log);
        }
        for _ in 0..500 {
            world.step(&Op::Fetch { most: 3 });
        }
        prop_assert_eq!(&world.log, &world.leader);
    }
}

/// The oracle must be able to fail: without the rule, one race is enough.
#[test]
fn without_the_check_two_histories_are_held() {
    for checks in [true, false] {
        let mut world = World::new(checks);
        world.elect(0, 4);
        world.elect(4, 2);
        for _ in 0..3 {
            world.step(&Op::Fetch { most: 10 });
        }
        assert_eq!(world.log, [1, 1, 1, 1, 2, 2]);
        world.step(&Op::Race { keep: 4, records: 6, most: 10 });
        assert_eq!(world.holds_one_history(), checks, "{:?}", world.log);
    }
}
