//! The plan against a source of batches, in any order of answers, losses and refusals.

use proptest::prelude::*;

use super::*;

const RANGE: u32 = 1_000;

/// First and last offset, and bytes.
type Batch = (i64, i64, u64);

fn density(bytes: u64, offsets: u64, batches: u64) -> Density {
    let mut density = Density::default();
    density.observe(bytes, offsets, batches);
    density
}

fn outlook(at: i64, end: i64, density: &Density) -> Outlook<'_> {
    Outlook { at: Offset(at), end: Offset(end), range_bytes: RANGE, ahead: true, density }
}

/// A range ends with the log's end at `at`; how many others are given up.
fn end_of(plan: &mut Stripes, ask: Ask, at: i64, density: &Density) -> usize {
    let range = plan.get(ask.number).unwrap();
    plan.ended(range, Offset(at), density)
}

#[test]
fn the_first_range_is_exact_and_later_ones_begin_a_little_early() {
    let density = density(10_000, 1_000, 100);
    let mut plan = Stripes::default();
    let first = plan.ask(0, outlook(0, 1_000, &density)).unwrap();
    assert!(first.exact && first.from == Offset(0) && first.max_bytes == RANGE);
    let second = plan.ask(1, outlook(0, 1_000, &density)).unwrap();
    assert!(!second.exact && (95..=105).contains(&second.from.0), "{second:?}");
    assert!(plan.ask(1, outlook(0, 1_000, &density)).is_some(), "while one comes, the next");
    assert_eq!(plan.ask(1, outlook(0, 1_000, &density)), None, "it has two");
    // Nothing is asked beyond the high watermark.
    assert_eq!(plan.ask(2, outlook(0, 300, &density)), None);
    assert!(plan.ask(2, outlook(0, 1_000, &density)).is_some());
}

/// The first batch of an answer is whole: the next range must not begin within it.
#[test]
fn a_batch_larger_than_a_range_is_fetched_once() {
    let density = density(40_000, 400, 4);
    let mut plan = Stripes::default();
    plan.ask(0, outlook(0, 4_000, &density)).unwrap();
    assert_eq!(plan.ask(1, outlook(0, 4_000, &density)).unwrap().from, Offset(100));
}

#[test]
fn a_hole_is_filled_before_anything_else_is_asked() {
    let density = density(10_000, 1_000, 100);
    let mut plan = Stripes::default();
    let first = plan.ask(0, outlook(0, 10_000, &density)).unwrap();
    let ahead = plan.ask(1, outlook(0, 10_000, &density)).unwrap();
    plan.finished(first.number);
    let at = ahead.from.0 - 30;
    assert_eq!(plan.ask(0, outlook(at, 10_000, &density)), None, "it may be needed for a hole");
    assert_eq!(plan.turn(ahead.number, Offset(at)), Turn::Wait);
    plan.arrived(ahead.number, Offset(at + 20));
    assert_eq!(plan.turn(ahead.number, Offset(at)), Turn::Hole);
    // Its answer would come behind what waits for it.
    assert!(!plan.ask(1, outlook(at, 10_000, &density)).unwrap().fills);
    let fill = plan.ask(0, outlook(at, 10_000, &density)).unwrap();
    assert!(fill.exact && fill.fills && fill.from == Offset(at), "{fill:?}");
    assert!((200..500).contains(&fill.max_bytes), "{fill:?}");
    assert_eq!(plan.turn(ahead.number, Offset(at)), Turn::Wait);
    assert_eq!(plan.turn(fill.number, Offset(at)), Turn::Go);
}

/// Where a segment of the source ends, so does an answer. A fresh connection would take seconds
/// to bring what is missing.
#[test]
fn who_is_alone_and_was_cut_short_goes_on_there() {
    let density = density(10_000, 1_000, 100);
    let mut plan = Stripes::default();
    let first = plan.ask(0, outlook(0, 10_000, &density)).unwrap();
    let ahead = plan.ask(0, outlook(0, 10_000, &density)).unwrap();
    assert_eq!(end_of(&mut plan, first, 40, &density), 1, "what it was to bring next");
    assert_eq!(plan.get(ahead.number), None);
    let spare = Outlook { ahead: false, ..outlook(40, 10_000, &density) };
    assert_eq!(plan.ask(7, spare), None, "one that is there for holes begins nothing");
    let next = plan.ask(0, outlook(40, 10_000, &density)).unwrap();
    assert!(next.exact && next.from == Offset(40), "{next:?}");
    assert_eq!(plan.turn(next.number, Offset(40)), Turn::Go);
}

#[test]
fn others_ranges_and_estimates_gone_wrong_are_kept() {
    let density = density(10_000, 1_000, 100);
    for (other, at) in [(1, 40), (0, 80)] {
        let mut plan = Stripes::default();
        let first = plan.ask(0, outlook(0, 10_000, &density)).unwrap();
        let ahead = plan.ask(other, outlook(0, 10_000, &density)).unwrap();
        assert_eq!(end_of(&mut plan, first, at, &density), 0);
        assert!(plan.get(ahead.number).is_some());
    }
}

/// What was lost between others is asked for before more is, by one that has nothing behind it.
#[test]
fn a_range_lost_between_others_is_asked_for_again() {
    let density = density(10_000, 1_000, 100);
    let mut plan = Stripes::default();
    plan.ask(0, outlook(0, 10_000, &density)).unwrap();
    let lost = plan.ask(1, outlook(0, 10_000, &density)).unwrap();
    plan.ask(2, outlook(0, 10_000, &density)).unwrap();
    assert_eq!(plan.lost_all(1), 1);
    let behind = plan.ask(2, outlook(0, 10_000, &density)).unwrap();
    assert!(behind.from > lost.from, "its answer comes behind what it holds: {behind:?}");
    let again = plan.ask(0, outlook(0, 10_000, &density)).unwrap();
    assert!(again.from == lost.from && !again.exact, "{again:?}");
    assert!(plan.ask(1, outlook(0, 10_000, &density)).unwrap().from > behind.from);
}

/// A batch's base has no checksum: damage at the source must not end the shard.
#[test]
fn a_hole_up_to_a_damaged_base_is_asked_for() {
    let density = density(10_000, 1_000, 100);
    let mut plan = Stripes::default();
    let first = plan.ask(0, outlook(0, 10_000, &density)).unwrap();
    let ahead = plan.ask(1, outlook(0, 10_000, &density)).unwrap();
    plan.finished(first.number);
    plan.arrived(ahead.number, Offset(i64::MAX));
    let fill = plan.ask(0, outlook(ahead.from.0 - 30, 10_000, &density)).unwrap();
    assert!(fill.fills && fill.max_bytes == RANGE, "{fill:?}");
}

/// What the source refused once it would refuse again, a round trip each.
#[test]
fn after_a_refusal_nothing_is_asked_ahead_before_something_came() {
    let density = density(10_000, 1_000, 100);
    let mut plan = Stripes::default();
    let first = plan.ask(0, outlook(0, 10_000, &density)).unwrap();
    let ahead = plan.ask(1, outlook(0, 10_000, &density)).unwrap();
    plan.lost(ahead.number, true);
    assert_eq!(plan.ask(1, outlook(0, 10_000, &density)), None);
    plan.finished(first.number);
    assert!(plan.ask(0, outlook(90, 10_000, &density)).unwrap().exact);
    assert!(!plan.ask(1, outlook(90, 10_000, &density)).unwrap().exact);
}

#[test]
fn a_batch_across_the_end_is_odd() {
    let density = density(10_000, 1_000, 100);
    let mut plan = Stripes::default();
    let first = plan.ask(0, outlook(0, 10_000, &density)).unwrap();
    let ahead = plan.ask(1, outlook(0, 10_000, &density)).unwrap();
    plan.finished(first.number);
    plan.arrived(ahead.number, Offset(ahead.from.0 - 5));
    assert_eq!(plan.turn(ahead.number, Offset(ahead.from.0 - 3)), Turn::Odd);
}

/// Batches of all sizes, with gaps.
fn batches() -> impl Strategy<Value = Vec<Batch>> {
    let one = (0..3_i64, 1..20_i64, 20..900_u64, prop::bool::weighted(0.1));
    prop::collection::vec(one, 1..60).prop_map(|list| {
        let mut base = 0;
        list.into_iter()
            .map(|(gap, offsets, bytes, large)| {
                base += if gap == 2 { 7 } else { 0 };
                let batch = (base, base + offsets - 1, if large { bytes * 3 } else { bytes });
                base += offsets;
                batch
            })
            .collect()
    })
}

/// Batches of a segment.
const SEGMENT_BATCHES: usize = 23;

/// What a broker answers: whole batches of one segment up to the limit, the first one in any case.
fn answer(source: &[Batch], ask: Ask) -> Vec<Batch> {
    let mut left = u64::from(ask.max_bytes);
    let mut got = Vec::new();
    for (n, &batch) in source.iter().enumerate().filter(|(_, batch)| batch.1 >= ask.from.0) {
        if !got.is_empty() && (batch.2 > left || n % SEGMENT_BATCHES == 0) {
            break;
        }
        left = left.saturating_sub(batch.2);
        got.push(batch);
    }
    got
}

/// A question of a connection, and the batches of its answer that wait in the socket.
#[derive(Clone, Debug)]
struct Question {
    ask: Ask,
    holds: Option<Vec<Batch>>,
}

proptest! {
    /// Goal: whatever comes when, each batch is appended once, in order. Method: random
    /// steps of connections that ask, are answered in the order of their questions, break or
    /// are refused, and at the end no more losses: the copy must be the source.
    #[test]
    fn every_batch_is_appended_once_and_in_order(
        source in batches(),
        stripes in 1..5_usize,
        guess in (1..40_u64, 1..30_u64),
        steps in prop::collection::vec((0..5_usize, 0..24_u8), 0..300),
    ) {
        let end = source.last().map_or(0, |batch| batch.1 + 1);
        let density = density(guess.0 * 100, guess.1 * 10, 10);
        let mut plan = Stripes::default();
        let mut sockets = vec![VecDeque::<Question>::new(); stripes];
        let mut copy: Vec<Batch> = Vec::new();
        let quiet = (0..8_000).flat_map(|n| [(n, 5), (n, 23)]);
        for (n, luck) in steps.into_iter().chain(quiet) {
            let n = n % stripes;
            let at = copy.last().map_or(0, |batch| batch.1 + 1);
            if at == end {
                break;
            }
            let refusable = sockets[n].front().is_some_and(|it| it.holds.is_none() && !it.ask.exact);
            match luck {
                // The connection broke: of the front, all is begun anew.
                0 if plan.front() == Some(n) => {
                    plan = Stripes::default();
                    sockets.fill(VecDeque::new());
                }
                0 => {
                    prop_assert_eq!(plan.lost_all(n), sockets[n].len());
                    sockets[n].clear();
                }
                1..=2 if refusable => {
                    if let Some(question) = sockets[n].pop_front() {
                        plan.lost(question.ask.number, true);
                    }
                }
                3..=10 => {
                    if let Some(ask) = plan.ask(n, outlook(at, end, &density)) {
                        prop_assert!(!ask.exact || ask.from.0 == at, "{ask:?} at {at}");
                        sockets[n].push_back(Question { ask, holds: None });
                    }
                }
                _ => {
                    let free = sockets.iter().any(VecDeque::is_empty);
                    let Some(question) = sockets[n].front_mut() else { continue };
                    let ask = question.ask;
                    let got = question.holds.get_or_insert_with(|| answer(&source, ask));
                    let mut gone = false;
                    loop {
                        let at = copy.last().map_or(0, |batch| batch.1 + 1);
                        let Some(&next) = got.first() else {
                            gone = true;
                            if end_of(&mut plan, ask, at, &density) > 0 {
                                sockets[n].truncate(1);
                            }
                            break;
                        };
                        plan.arrived(ask.number, Offset(next.0));
                        match plan.turn(ask.number, Offset(at)) {
                            Turn::Go => {
                                got.remove(0);
                                if next.1 >= at {
                                    prop_assert!(next.0 >= at, "{next:?} laps over {at}");
                                    copy.push(next);
                                }
                            }
                            Turn::Wait => break,
                            // Somebody free fills it, or else this one does.
                            Turn::Hole if free => break,
                            Turn::Hole => {
                                plan.lost_all(n);
                                sockets[n].clear();
                                break;
                            }
                            Turn::Odd => prop_assert!(false, "{next:?} is odd at {at}"),
                        }
                    }
                    if gone {
                        sockets[n].pop_front();
                    }
                }
            }
        }
        prop_assert_eq!(copy, source);
    }
}
