use uuid::Uuid;

use super::*;
use crate::serve::isolation::IsolationLevel;
use crate::serve::request::TopicKey;
use crate::types::{LeaderEpoch, TopicId};

fn key(partition: i32) -> PartitionKey {
    PartitionKey { topic: TopicKey::Id(TopicId(Uuid::from_u128(9))), partition }
}

fn params(offset: i64) -> FetchParams {
    FetchParams {
        fetch_offset: Offset(offset),
        partition_max_bytes: 1 << 20,
        current_leader_epoch: LeaderEpoch::NONE,
        last_fetched_epoch: LeaderEpoch::NONE,
        log_start_offset: Offset::NONE,
        mirror_leader_epoch: LeaderEpoch::NONE,
    }
}

fn request(session_id: i32, session_epoch: i32, partitions: &[i32]) -> FetchRequestFacts {
    FetchRequestFacts {
        version: 16,
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: 1 << 20,
        isolation: IsolationLevel::ReadUncommitted,
        replica: None,
        session_id,
        session_epoch,
        partitions: partitions.iter().map(|&index| (key(index), params(0))).collect(),
        forgotten: Vec::new(),
    }
}

fn answer(partition: i32, high_watermark: i64, records_bytes: u64) -> PartitionAnswer {
    PartitionAnswer {
        key: key(partition),
        error: None,
        high_watermark: Offset(high_watermark),
        last_stable: Offset(high_watermark),
        log_start: Offset(0),
        diverging: None,
        current_leader: None,
        mirror_leader_epoch: LeaderEpoch::NONE,
        aborted: None,
        records_bytes,
    }
}

/// Runs a request with `answers` for it; the session and the partitions answered.
fn exchange(
    cache: &mut FetchSessionCache,
    now: Tick,
    request: &FetchRequestFacts,
    mut answers: Vec<PartitionAnswer>,
) -> (SessionAnswer, Vec<i32>) {
    let (context, _) = cache.begin(now, request).expect("taken");
    let session = cache.finish(now, context, request, &mut answers, 41);
    (session, answers.iter().map(|answer| answer.key.partition).collect())
}

fn served(cache: &mut FetchSessionCache, request: &FetchRequestFacts) -> Vec<i32> {
    let (_, partitions) = cache.begin(Tick::ZERO, request).expect("taken");
    partitions.iter().map(|(key, _)| key.partition).collect()
}

fn cache(slots: usize) -> FetchSessionCache {
    FetchSessionCache::new(SessionLimits { slots, min_eviction_age: Duration::from_secs(1) })
}

/// A cache with session 41 of partitions 0, 1, 2, all told of high watermark 10.
fn with_session() -> FetchSessionCache {
    let mut cache = cache(10);
    let answers = vec![answer(0, 10, 0), answer(1, 10, 0), answer(2, 10, 0)];
    let got = exchange(&mut cache, Tick::ZERO, &request(0, 0, &[0, 1, 2]), answers);
    assert_eq!(got, (SessionAnswer::Session(41), vec![0, 1, 2]));
    cache
}

#[test]
fn incremental_answers_omit_what_is_not_new() {
    let mut cache = with_session();
    let answers = vec![answer(0, 10, 0), answer(1, 11, 0), answer(2, 10, 5)];
    let got = exchange(&mut cache, Tick::ZERO, &request(41, 1, &[]), answers);
    assert_eq!(got, (SessionAnswer::Session(41), vec![1, 2]));
    // Told once is told.
    let answers = vec![answer(0, 10, 0), answer(1, 11, 0), answer(2, 10, 0)];
    let got = exchange(&mut cache, Tick::ZERO, &request(41, 2, &[]), answers);
    assert_eq!(got, (SessionAnswer::Session(41), vec![]));
}

#[test]
fn log_start_that_moved_is_news() {
    let mut cache = with_session();
    let moved = PartitionAnswer { log_start: Offset(3), ..answer(0, 10, 0) };
    let got = exchange(&mut cache, Tick::ZERO, &request(41, 1, &[]), vec![moved]);
    assert_eq!(got.1, [0]);
}

#[test]
fn mirror_leader_epoch_that_changed_is_news() {
    let mut cache = with_session();
    let at =
        |epoch| PartitionAnswer { mirror_leader_epoch: LeaderEpoch(epoch), ..answer(0, 10, 0) };
    for (round, (epoch, told)) in
        [(5, true), (5, false), (7, true), (6, true)].into_iter().enumerate()
    {
        let asked = request(41, i32::try_from(round).unwrap() + 1, &[]);
        let got = exchange(&mut cache, Tick::ZERO, &asked, vec![at(epoch)]);
        assert_eq!(!got.1.is_empty(), told, "epoch {epoch}");
    }
}

#[test]
fn errors_are_always_told_and_so_is_the_recovery() {
    let mut cache = with_session();
    let failed = || PartitionAnswer {
        error: Some(ResponseError::NotLeaderOrFollower),
        high_watermark: Offset::NONE,
        ..answer(1, 0, 0)
    };
    for epoch in [1, 2] {
        let got = exchange(&mut cache, Tick::ZERO, &request(41, epoch, &[]), vec![failed()]);
        assert_eq!(got.1, [1]);
    }
    let got = exchange(&mut cache, Tick::ZERO, &request(41, 3, &[]), vec![answer(1, 10, 0)]);
    assert_eq!(got.1, [1]);
}

#[test]
fn partitions_that_gave_data_go_to_the_end_of_the_order() {
    let mut cache = with_session();
    let answers = vec![answer(0, 10, 9), answer(1, 10, 0), answer(2, 10, 0)];
    exchange(&mut cache, Tick::ZERO, &request(41, 1, &[]), answers);
    assert_eq!(served(&mut cache, &request(41, 2, &[])), [1, 2, 0]);
}

#[test]
fn full_fetch_keeps_the_clients_order() {
    assert_eq!(served(&mut cache(10), &request(0, 0, &[2, 0, 1])), [2, 0, 1]);
}

#[test]
fn forgotten_partitions_leave_and_an_empty_session_ends() {
    let mut cache = with_session();
    let mut forget = request(41, 1, &[]);
    forget.forgotten = vec![key(1)];
    assert_eq!(served(&mut cache, &forget), [0, 2]);
    forget.session_epoch = 2;
    forget.forgotten = vec![key(0), key(2)];
    let got = exchange(&mut cache, Tick::ZERO, &forget, vec![]);
    assert_eq!(got, (SessionAnswer::Session(0), vec![]));
    assert!(cache.is_empty());
}

#[test]
fn changed_partitions_keep_their_place_and_new_ones_join_at_the_end() {
    let mut cache = with_session();
    let mut change = request(41, 1, &[3]);
    change.partitions.push((key(1), params(77)));
    let (_, partitions) = cache.begin(Tick::ZERO, &change).expect("taken");
    let seen: Vec<_> =
        partitions.iter().map(|(key, asked)| (key.partition, asked.fetch_offset.0)).collect();
    assert_eq!(seen, [(0, 0), (1, 77), (2, 0), (3, 0)]);
}

#[test]
fn wrong_session_epoch_and_topic_kind_are_refused() {
    let mut cache = with_session();
    let mut refused = |id, epoch, version| {
        let asked = FetchRequestFacts { version, ..request(id, epoch, &[]) };
        cache.begin(Tick::ZERO, &asked).err()
    };
    assert_eq!(refused(40, 1, 16), Some(ResponseError::FetchSessionIdNotFound));
    assert_eq!(refused(41, 2, 16), Some(ResponseError::InvalidFetchSessionEpoch));
    assert_eq!(refused(41, 1, 12), Some(ResponseError::FetchSessionTopicIdError));
    // A refusal changes nothing.
    assert_eq!(refused(41, 1, 16), None);
}

#[test]
fn full_fetch_with_a_session_replaces_it() {
    let mut cache = with_session();
    let (context, _) = cache.begin(Tick::ZERO, &request(41, -1, &[0])).expect("taken");
    assert_eq!(context, FetchContext::Sessionless);
    assert!(cache.is_empty());
}

#[test]
fn session_taken_over_while_a_request_waited_is_an_error() {
    let mut cache = with_session();
    let first = request(41, 1, &[]);
    let (context, _) = cache.begin(Tick::ZERO, &first).expect("taken");
    cache.begin(Tick::ZERO, &request(41, 2, &[])).expect("taken");
    let mut answers = vec![answer(0, 99, 0)];
    let got = cache.finish(Tick::ZERO, context, &first, &mut answers, 0);
    assert_eq!(got, SessionAnswer::Error(ResponseError::InvalidFetchSessionEpoch));
    assert!(answers.is_empty());
}

#[test]
fn full_cache_gives_no_session_until_one_is_old_enough() {
    let mut cache = cache(1);
    let open = |cache: &mut FetchSessionCache, ms: u64, partitions: &[i32]| {
        let now = Tick::ZERO.after(Duration::from_millis(ms));
        exchange(cache, now, &request(0, 0, partitions), vec![]).0
    };
    assert_eq!(open(&mut cache, 0, &[0]), SessionAnswer::Session(41));
    assert_eq!(open(&mut cache, 900, &[0, 1]), SessionAnswer::Session(0));
    assert_eq!(cache.evictions(), 0);
    // Unused for more than the age: goes even for one of its own size.
    assert_eq!(open(&mut cache, 1100, &[0]), SessionAnswer::Session(41));
    // In use, so only a larger one replaces it once it is old.
    let used = Tick::ZERO.after(Duration::from_secs(2));
    cache.begin(used, &request(41, 1, &[])).expect("taken");
    assert_eq!(open(&mut cache, 2300, &[0]), SessionAnswer::Session(0));
    assert_eq!(open(&mut cache, 2300, &[0, 1]), SessionAnswer::Session(41));
    assert_eq!(cache.evictions(), 2);
}

#[test]
fn epochs_wrap_past_the_sentinels() {
    assert_eq!(epoch_after(i32::MAX), 1);
    assert_eq!(epoch_after(1), 2);
    assert_eq!(epoch_after(-1), -1);
}
