//! The worked example of KIP-1279 (4.5), number by number: S is the source, D (here host A) its
//! copy, then S mirrors back from D.

use heliostat_core::coordinator::{DesiredState, LastMirrored, MirrorKey, MirrorState};
use heliostat_core::types::{LeaderEpoch, Offset, TopicPartition};

use crate::host::Sabotage;
use crate::source::records;
use crate::world::{A, S, World};

impl World {
    fn settle_all(&mut self) {
        for _ in 0..30 {
            self.round(5);
        }
        self.check().expect("no oracle objects");
    }

    /// A client writes one record.
    fn write_one(&mut self, which: usize, at: &TopicPartition) {
        let mark = self.registry.borrow_mut().mark();
        let host = &mut self.hosts[which];
        assert!(host.is_writable(at));
        let id = host.image().topic(&at.topic).expect("the topic").id;
        let mut log = host.up.as_mut().and_then(|up| up.own.remove(at)).expect("it is open");
        let epoch = host.local_epoch(at);
        let bytes = records(log.log_end(), epoch, mark, 1, None);
        host.append(&mut log, (id, at.partition), bytes, epoch).expect("no faults");
        host.up.as_mut().expect("up").own.insert(at.clone(), log);
    }

    fn epochs(&self, which: usize, at: &TopicPartition) -> (i32, Vec<(i32, i64)>, i64) {
        let (log, _) = self.hosts[which].look(at).expect("a log");
        let entries = log.epochs().entries().iter();
        let entries = entries.map(|it| (it.epoch.0, it.start_offset.0)).collect();
        (self.hosts[which].local_epoch(at).0, entries, log.log_end().0)
    }

    fn state_of(&self, which: usize, topic: &str) -> MirrorState {
        self.hosts[which].state(&self.hosts[which].keys_of(topic)[0])
    }
}

fn run(hides_offsets: bool) -> Vec<(i64, i32)> {
    let mut world = World::new(7, Sabotage::None);
    world.hides_offsets = hides_offsets;
    world.begin();
    let at = TopicPartition::new("s0", 0);
    // 1. Three records of epoch 0, a restart, three of epoch 1.
    world.settle_all();
    (0..3).for_each(|_| world.write_one(S, &at));
    world.hosts[A].create("forth", "S").expect("no faults");
    world.start_topic(A, "forth", "s0").expect("no faults");
    world.settle_all();
    assert_eq!(world.epochs(A, &at), (11, vec![(0, 0)], 3));
    world.hosts[S].crash();
    world.hosts[S].start().expect("no faults");
    world.settle_all();
    (0..3).for_each(|_| world.write_one(S, &at));
    world.settle_all();
    assert_eq!(world.epochs(A, &at), (11, vec![(0, 0), (1, 3)], 6));
    // 2. and 3. S is cut off with two more; D is stopped.
    world.hosts[A].wish("forth", "s0", DesiredState::Stopped).expect("no faults");
    world.after(A, Ok(()));
    (0..2).for_each(|_| world.write_one(S, &at));
    world.settle_all();
    assert_eq!(world.state_of(A, "s0"), MirrorState::Stopped);
    assert_eq!(world.epochs(A, &at), (11, vec![(0, 0), (1, 3), (11, 6)], 7));
    let key = world.hosts[A].keys_of("s0")[0].clone();
    let last = |world: &World, which: usize, key: &MirrorKey| {
        world.hosts[which].up.as_ref().and_then(|up| up.mirrors.last_mirrored(key))
    };
    let want = LastMirrored { epoch: LeaderEpoch(1), offset: Offset(6) };
    assert_eq!(last(&world, A, &key), Some(want));
    // 4. One record here.
    world.write_one(A, &at);
    assert_eq!(world.epochs(S, &at), (1, vec![(0, 0), (1, 3)], 8));
    // 5. to 7. S mirrors back: 6 and 7 are cut, its epoch goes to 22.
    world.hosts[S].create("back", "A").expect("no faults");
    world.start_topic(S, "back", "s0").expect("no faults");
    world.after(S, Ok(()));
    world.settle_all();
    assert_eq!(world.state_of(S, "s0"), MirrorState::Mirroring);
    assert_eq!(world.epochs(S, &at), (22, vec![(0, 0), (1, 3), (11, 6)], 8));
    let cut = world.hosts[S].disk.counts.get("cut to the last mirrored position").copied();
    assert_eq!(cut, (!hides_offsets).then_some(1), "with the offset it is cut at once");
    // 8. The way home.
    world.hosts[S].wish("back", "s0", DesiredState::Stopped).expect("no faults");
    world.settle_all();
    let key = world.hosts[S].keys_of("s0")[0].clone();
    let want = LastMirrored { epoch: LeaderEpoch(11), offset: Offset(8) };
    assert_eq!(last(&world, S, &key), Some(want));
    world.start_topic(A, "forth", "s0").expect("no faults");
    world.settle_all();
    assert_eq!(world.state_of(A, "s0"), MirrorState::Mirroring);
    assert_eq!(world.epochs(A, &at).1, vec![(0, 0), (1, 3), (11, 6), (22, 8)]);
    let (_, batches) = world.hosts[A].look(&at).expect("a log");
    batches.iter().map(|batch| (batch.base.0, batch.epoch.0)).collect()
}

#[test]
fn the_worked_example_of_the_kip() {
    let want = [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 1), (6, 11), (7, 11), (8, 22)];
    assert_eq!(run(false), want);
    assert_eq!(run(true), want, "by the epoch alone it ends the same");
}
