use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::types::Offset;

fn topic(name: &str, id: u128) -> TopicIdentity {
    TopicIdentity { name: Arc::from(name), id: TopicId(Uuid::from_u128(id)) }
}

fn at(offset: i64) -> FetchPosition {
    FetchPosition {
        fetch_offset: Offset(offset),
        current_leader_epoch: LeaderEpoch(1),
        last_fetched_epoch: LeaderEpoch(1),
        partition_max_bytes: 1 << 20,
    }
}

fn named(name: &str) -> TopicRef {
    TopicRef::Name(Arc::from(name))
}

/// Partitions of a request as `topic-index@offset`, forgotten ones as `-topic-index`.
fn shown(request: &SessionRequest) -> Vec<String> {
    let asked = request
        .partitions
        .iter()
        .map(|p| format!("{}-{}@{}", p.topic, p.index, p.position.fetch_offset));
    let gone = request.forgotten.iter().map(|p| format!("-{}-{}", p.topic, p.index));
    asked.chain(gone).collect()
}

/// A session of version 12 over a-0 and b-0 that the broker has opened as 77.
fn opened() -> FetchSession {
    let mut session = FetchSession::new(12);
    session.want(&topic("a", 1), 0, 10, at(0));
    session.want(&topic("b", 2), 0, 20, at(0));
    let request = session.plan();
    assert_eq!((request.session_id, request.session_epoch), (0, 0));
    assert!(request.is_full());
    assert_eq!(shown(&request), ["a-0@0", "b-0@0"]);
    assert_eq!(session.on_response_header(ErrorCode::NONE, 77), HeaderOutcome::InSession);
    session
}

#[test]
fn only_what_changed_is_sent() {
    let mut session = opened();
    session.want(&topic("b", 2), 0, 20, at(5));
    session.want(&topic("c", 3), 1, 30, at(9));
    let request = session.plan();
    assert_eq!((request.session_id, request.session_epoch), (77, 1));
    assert_eq!(shown(&request), ["b-0@5", "c-1@9"]);
    session.on_response_header(ErrorCode::NONE, 77);

    assert!(session.remove("a", 0));
    assert!(!session.remove("a", 0) && !session.remove("x", 0) && !session.remove("a", 9));
    let request = session.plan();
    assert_eq!((request.session_epoch, shown(&request)), (2, vec!["-a-0".to_owned()]));
    session.on_response_header(ErrorCode::NONE, 77);

    let request = session.plan();
    assert_eq!((request.session_epoch, shown(&request)), (3, vec![]));
}

/// What is left out of one request is answered by the one before it, and asked by the next.
#[test]
fn what_is_left_out_comes_back_with_the_request_after() {
    let mut session = opened();
    session.want(&topic("b", 2), 0, 20, at(5));
    session.leave_out("a", 0);
    assert_eq!(shown(&session.plan()), ["b-0@5", "-a-0"]);
    assert!(!session.is_asked("a", 0) && session.is_asked("b", 0));
    // Of the answer before.
    assert_eq!(session.answered(&named("a"), 0, 1), Answered::Wanted { token: 10, sent: at(0) });
    session.on_response_header(ErrorCode::NONE, 77);
    assert_eq!(shown(&session.plan()), ["a-0@0"], "as it was: the broker has forgotten it");
    session.on_response_header(ErrorCode::NONE, 77);

    session.leave_out("a", 0);
    session.plan();
    session.on_response_header(ErrorCode::NONE, 77);
    session.want(&topic("a", 1), 0, 10, at(7));
    session.leave_out("a", 0);
    assert_eq!(shown(&session.plan()), [""; 0], "left out twice, forgotten once");
    session.on_response_header(ErrorCode::NONE, 77);
    session.remove("a", 0);
    assert_eq!(shown(&session.plan()), [""; 0], "removed while the broker has it not");
    assert_eq!(session.len(), 1);
}

#[test]
fn without_a_session_a_full_request_leaves_out_as_well() {
    let mut session = FetchSession::new(12);
    session.want(&topic("a", 1), 0, 10, at(0));
    session.want(&topic("b", 2), 0, 20, at(0));
    session.plan();
    session.on_response_header(ErrorCode::NONE, 0);
    session.leave_out("a", 0);
    assert_eq!(shown(&session.plan()), ["b-0@0"]);
    session.on_response_header(ErrorCode::NONE, 0);
    let mut all = shown(&session.plan());
    all.sort_unstable();
    assert_eq!(all, ["a-0@0", "b-0@0"]);
}

#[test]
fn each_part_of_a_position_is_a_change_where_the_version_sends_it() {
    type Change = fn(&mut FetchPosition);
    let changes: [(Change, i16); 4] = [
        (|p| p.fetch_offset.0 += 1, 7),
        (|p| p.partition_max_bytes += 1, 7),
        (|p| p.current_leader_epoch.0 += 1, 9),
        (|p| p.last_fetched_epoch.0 += 1, 12),
    ];
    for (change, from) in changes {
        for version in [7, 9, 12, 18] {
            let mut session = FetchSession::new(version);
            session.want(&topic("a", 1), 0, 0, at(0));
            session.plan();
            session.on_response_header(ErrorCode::NONE, 5);
            let mut position = at(0);
            change(&mut position);
            session.want(&topic("a", 1), 0, 0, position);
            assert_eq!(session.plan().partitions.len(), usize::from(version >= from), "{version}");
        }
    }
}

#[test]
fn removed_and_wanted_again_between_requests_is_no_removal() {
    let mut session = opened();
    session.remove("a", 0);
    session.want(&topic("a", 1), 0, 11, at(0));
    assert_eq!(shown(&session.plan()), [""; 0], "the broker has it as it is");
    session.on_response_header(ErrorCode::NONE, 77);
    assert_eq!(
        session.answered(&named("a"), 0, 1),
        Answered::Wanted { token: 11, sent: at(0) },
        "the new handle counts"
    );

    session.want(&topic("c", 3), 0, 0, at(0));
    session.remove("c", 0);
    assert_eq!(shown(&session.plan()), [""; 0], "the broker never had it");
    assert_eq!(session.len(), 2);
}

#[test]
fn another_topic_id_is_another_topic_where_topics_go_by_id() {
    let mut session = FetchSession::new(17);
    for index in 0..2 {
        session.want(&topic("a", 1), index, 0, at(9));
    }
    session.plan();
    session.on_response_header(ErrorCode::NONE, 5);

    session.want(&topic("a", 2), 0, 0, at(0));
    let request = session.plan();
    assert_eq!(shown(&request), ["a-0@0", "-a-0", "-a-1"]);
    assert_eq!(request.partitions[0].topic.id, topic("a", 2).id);
    assert!(request.forgotten.iter().all(|gone| gone.topic.id == topic("a", 1).id));
    assert_eq!(session.len(), 1);
    session.on_response_header(ErrorCode::NONE, 5);
    assert_eq!(session.answered(&TopicRef::Id(topic("a", 1).id), 0, 1), Answered::NotAsked);
}

#[test]
fn an_id_that_appears_is_only_noted_where_topics_go_by_name() {
    let mut session = FetchSession::new(12);
    session.want(&topic("a", 0), 0, 0, at(0));
    session.want(&topic("b", 2), 0, 0, at(0));
    assert!(!session.all_topics_have_ids());
    session.plan();
    session.on_response_header(ErrorCode::NONE, 5);

    session.want(&topic("a", 1), 0, 0, at(0));
    assert!(session.all_topics_have_ids());
    assert_eq!(shown(&session.plan()), [""; 0]);
    session.on_response_header(ErrorCode::NONE, 5);

    session.set_version(17);
    let request = session.plan();
    assert_eq!((request.session_id, request.session_epoch), (5, 0), "closed, and opened anew");
    assert_eq!(shown(&request), ["a-0@0", "b-0@0"]);
    session.on_response_header(ErrorCode::NONE, 6);
    let found = session.answered(&TopicRef::Id(topic("a", 1).id), 0, 0);
    assert!(matches!(found, Answered::Wanted { .. }));
}

#[test]
fn errors_start_over_and_keep_positions() {
    use HeaderOutcome::{Failed, Reset};
    for (error, outcome, closes) in [
        (ErrorCode::FETCH_SESSION_ID_NOT_FOUND, Reset(SessionFault::NotFound), 0),
        (ErrorCode::INVALID_FETCH_SESSION_EPOCH, Reset(SessionFault::InvalidEpoch), 77),
        (ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR, Reset(SessionFault::TopicId), 77),
        (ErrorCode::UNKNOWN_SERVER_ERROR, Failed(ErrorCode::UNKNOWN_SERVER_ERROR), 77),
    ] {
        let mut session = opened();
        session.want(&topic("a", 1), 0, 10, at(3));
        session.plan();
        assert_eq!(session.on_response_header(error, 0), outcome);
        let request = session.plan();
        assert_eq!((request.session_id, request.session_epoch), (closes, 0), "{error}");
        assert_eq!(shown(&request), ["a-0@3", "b-0@0"]);
    }

    let mut session = opened();
    session.plan();
    session.on_request_failed();
    let request = session.plan();
    assert_eq!((request.session_id, request.session_epoch), (77, 0));
}

#[test]
fn a_throttled_empty_answer_keeps_the_session() {
    let mut session = opened();
    session.want(&topic("a", 1), 0, 10, at(3));
    session.plan();
    assert_eq!(session.on_response_header(ErrorCode::NONE, 77), HeaderOutcome::InSession);
    let request = session.plan();
    assert_eq!((request.session_id, request.session_epoch), (77, 2));
    assert_eq!(shown(&request), [""; 0], "the broker took the change before it throttled");
}

#[test]
fn without_a_session_full_fetches_go_on_and_rotate() {
    let mut session = FetchSession::new(12);
    for name in ["a", "b", "c"] {
        session.want(&topic(name, 0), 0, 0, at(0));
    }
    let mut round = |answered: Option<&str>| {
        let request = session.plan();
        assert_eq!((request.session_id, request.session_epoch), (0, 0));
        assert_eq!(session.on_response_header(ErrorCode::NONE, 0), HeaderOutcome::NoSession);
        if let Some(name) = answered {
            session.answered(&named(name), 0, 1);
        }
        shown(&request).concat()
    };
    assert_eq!(round(Some("a")), "a-0@0b-0@0c-0@0");
    assert_eq!(round(None), "b-0@0c-0@0a-0@0", "after the one that had records");
    assert_eq!(round(Some("c")), "b-0@0c-0@0a-0@0", "nothing was served");
    assert_eq!(round(None), "a-0@0b-0@0c-0@0");
}

#[test]
fn the_broker_may_end_a_session() {
    let mut session = opened();
    session.plan();
    assert_eq!(session.on_response_header(ErrorCode::NONE, 0), HeaderOutcome::NoSession);
    assert_eq!(session.plan().session_id, 0);

    let mut session = opened();
    session.plan();
    assert_eq!(session.on_response_header(ErrorCode::NONE, 78), HeaderOutcome::NoSession);
    let request = session.plan();
    assert_eq!((request.session_id, request.session_epoch), (77, 0));
}

#[test]
fn what_was_not_asked_is_dropped_and_starts_over() {
    let mut session = opened();
    session.remove("a", 0);
    assert_eq!(session.answered(&named("a"), 0, 5), Answered::Unwanted);
    session.plan();
    session.on_response_header(ErrorCode::NONE, 77);
    assert_eq!(session.answered(&named("a"), 0, 5), Answered::NotAsked, "it was forgotten");
    let request = session.plan();
    assert_eq!((request.session_id, request.session_epoch), (77, 0));
    assert_eq!(shown(&request), ["b-0@0"]);
    session.on_response_header(ErrorCode::NONE, 78);

    session.want(&topic("d", 4), 0, 0, at(0));
    assert_eq!(session.answered(&named("d"), 0, 5), Answered::NotAsked, "not sent yet");
}

#[test]
fn the_epoch_skips_what_has_a_meaning() {
    let mut session = opened();
    session.next = Next::Incremental { id: 77, epoch: i32::MAX };
    assert_eq!(session.plan().session_epoch, i32::MAX);
    session.on_response_header(ErrorCode::NONE, 77);
    assert_eq!(session.plan().session_epoch, 1);
}

#[test]
fn old_versions_have_no_sessions() {
    let mut session = FetchSession::new(6);
    session.want(&topic("a", 0), 0, 0, at(0));
    for _ in 0..2 {
        let request = session.plan();
        assert_eq!((request.session_id, request.session_epoch), (0, -1));
        assert_eq!(shown(&request), ["a-0@0"]);
        assert_eq!(session.on_response_header(ErrorCode::NONE, 0), HeaderOutcome::NoSession);
    }
}

/// A request looks at the changed partitions only.
#[test]
fn a_large_session_costs_what_changed() {
    let mut session = FetchSession::new(17);
    for index in 0..100_000 {
        session.want(&topic("big", 1), index, 0, at(0));
    }
    assert_eq!(session.plan().partitions.len(), 100_000);
    session.on_response_header(ErrorCode::NONE, 5);
    for round in 1..1_000 {
        session.want(&topic("big", 1), round * 7, 0, at(i64::from(round)));
        session.want(&topic("big", 1), round * 7, 0, at(i64::from(round) + 1));
        assert_eq!(session.changed, [usize::try_from(round * 7).unwrap()]);
        let request = session.plan();
        assert_eq!(request.partitions.len(), 1);
        session.on_response_header(ErrorCode::NONE, 5);
    }
}

/// A broker as KIP-227 describes it, in the plainest way.
#[derive(Debug, Default)]
struct Broker {
    sessions: HashMap<i32, BrokerSession>,
    opened: i32,
}

#[derive(Debug, Default)]
struct BrokerSession {
    by_id: bool,
    epoch: i32,
    partitions: BTreeMap<(String, i32), FetchPosition>,
}

/// How a topic is named in a request.
fn wire_name(topic: &TopicIdentity, by_id: bool) -> String {
    if by_id { topic.id.to_string() } else { topic.name.to_string() }
}

impl Broker {
    /// Error, session ID, and the partitions that the answer is about.
    fn answer(
        &mut self,
        request: &SessionRequest,
        by_id: bool,
        room: bool,
    ) -> (ErrorCode, i32, BTreeMap<(String, i32), FetchPosition>) {
        let asked: BTreeMap<_, _> = request
            .partitions
            .iter()
            .map(|p| ((wire_name(&p.topic, by_id), p.index), p.position))
            .collect();
        assert_eq!(asked.len(), request.partitions.len(), "a partition twice in one request");
        if request.is_full() {
            self.sessions.remove(&request.session_id);
            assert!(request.forgotten.is_empty(), "nothing to forget in a full request");
            if !room {
                return (ErrorCode::NONE, 0, asked);
            }
            self.opened += 1;
            let session = BrokerSession { by_id, epoch: 1, partitions: asked.clone() };
            self.sessions.insert(self.opened, session);
            return (ErrorCode::NONE, self.opened, asked);
        }
        let Some(session) = self.sessions.get_mut(&request.session_id) else {
            return (ErrorCode::FETCH_SESSION_ID_NOT_FOUND, 0, BTreeMap::new());
        };
        if session.epoch != request.session_epoch {
            return (ErrorCode::INVALID_FETCH_SESSION_EPOCH, 0, BTreeMap::new());
        }
        if session.by_id != by_id {
            return (ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR, 0, BTreeMap::new());
        }
        session.partitions.extend(asked);
        // Forgetting comes last, so that a partition must not be in both lists.
        for gone in &request.forgotten {
            let known = session.partitions.remove(&(wire_name(&gone.topic, by_id), gone.index));
            assert!(known.is_some(), "forgets what the broker does not have");
        }
        session.epoch = if session.epoch == i32::MAX { 1 } else { session.epoch + 1 };
        (ErrorCode::NONE, request.session_id, session.partitions.clone())
    }
}

#[derive(Clone, Debug)]
enum Op {
    Want {
        topic: usize,
        id: u128,
        index: i32,
        offset: i64,
    },
    Remove {
        topic: usize,
        index: i32,
    },
    RoundTrip {
        room: bool,
    },
    /// The broker never sees the request, or its answer is lost.
    Lost {
        seen: bool,
    },
    /// The broker drops the session, for room or by a restart.
    Evict,
    /// The broker's count runs ahead.
    EpochWrong,
}

fn op() -> impl Strategy<Value = Op> {
    // Few topics, partitions and offsets: collisions are where the bugs are.
    prop_oneof![
        8 => (0..3_usize, 0..3_u128, 0..3_i32, 0..3_i64)
            .prop_map(|(topic, id, index, offset)| Op::Want { topic, id, index, offset }),
        3 => (0..3_usize, 0..3_i32).prop_map(|(topic, index)| Op::Remove { topic, index }),
        8 => prop::bool::weighted(0.8).prop_map(|room| Op::RoundTrip { room }),
        1 => any::<bool>().prop_map(|seen| Op::Lost { seen }),
        1 => Just(Op::Evict),
        1 => Just(Op::EpochWrong),
    ]
}

/// What the client asked for, told plainly: by name and index, with the ID.
type Model = BTreeMap<(&'static str, i32), (u128, FetchPosition)>;

const TOPICS: [&str; 3] = ["a", "b", "c"];

/// Topics have IDs of their own; 0 stays "none".
fn id_of(topic: usize, id: u128) -> u128 {
    if id == 0 { 0 } else { id * 10 + u128::try_from(topic).unwrap() }
}

fn model_want(model: &mut Model, by_id: bool, key: (&'static str, i32), id: u128, offset: i64) {
    if by_id {
        model.retain(|&(name, _), &mut (had, _)| name != key.0 || had == id);
    } else {
        model.iter_mut().filter(|((name, _), _)| *name == key.0).for_each(|(_, v)| v.0 = id);
    }
    model.insert(key, (id, at(offset)));
}

fn check_round(
    session: &mut FetchSession,
    broker: &mut Broker,
    model: &Model,
    room: bool,
) -> Result<(), TestCaseError> {
    let ids = session.all_topics_have_ids();
    prop_assert!(!ids || model.values().all(|&(id, _)| id != 0), "an ID-less topic goes by name");
    session.set_version(if ids { 17 } else { 12 });
    let request = session.plan();
    let (error, session_id, answered) = broker.answer(&request, ids, room);
    let outcome = session.on_response_header(error, session_id);
    if !error.is_none() {
        prop_assert!(matches!(outcome, HeaderOutcome::Reset(_)));
        return Ok(());
    }
    prop_assert_eq!(outcome == HeaderOutcome::NoSession, session_id == 0);
    let want: BTreeMap<_, _> = model
        .iter()
        .map(|(&(name, index), &(id, position))| {
            ((wire_name(&topic(name, id), ids), index), position)
        })
        .collect();
    prop_assert_eq!(&answered, &want, "broker and client agree on the set and the positions");
    prop_assert_eq!(session.len(), want.len());
    for ((name, index), position) in answered {
        let named = if ids { TopicRef::Id(name.parse().unwrap()) } else { named(&name) };
        let found = session.answered(&named, index, 1);
        let agrees = matches!(found, Answered::Wanted { sent, .. } if sent == position);
        prop_assert!(agrees, "{named}-{index}: {found:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_024))]

    #[test]
    fn client_and_broker_agree(ops in prop::collection::vec(op(), 1..60)) {
        let mut session = FetchSession::new(17);
        let mut broker = Broker::default();
        let mut model = Model::new();
        for op in ops {
            match op {
                Op::Want { topic: t, id, index, offset } => {
                    let id = id_of(t, id);
                    let by_id = by_id(session.version());
                    model_want(&mut model, by_id, (TOPICS[t], index), id, offset);
                    session.want(&topic(TOPICS[t], id), index, 0, at(offset));
                }
                Op::Remove { topic, index } => {
                    let had = model.remove(&(TOPICS[topic], index)).is_some();
                    prop_assert_eq!(session.remove(TOPICS[topic], index), had);
                }
                Op::RoundTrip { room } => {
                    check_round(&mut session, &mut broker, &model, room)?;
                }
                Op::Lost { seen } => {
                    let ids = session.all_topics_have_ids();
                    session.set_version(if ids { 17 } else { 12 });
                    let request = session.plan();
                    if seen {
                        broker.answer(&request, ids, true);
                    }
                    session.on_request_failed();
                }
                Op::Evict => broker.sessions.clear(),
                Op::EpochWrong => {
                    broker.sessions.values_mut().for_each(|session| session.epoch += 1);
                }
            }
        }
        // Whatever happened, two rounds with a healthy broker settle it.
        for _ in 0..2 {
            check_round(&mut session, &mut broker, &model, true)?;
        }
        let settled = matches!(session.next, Next::Incremental { .. });
        prop_assert!(settled, "in session at the end");
    }
}

/// Of very many partitions that have caught up, nothing stays behind in the session that they left.
#[test]
fn a_large_session_that_nobody_needs_gives_its_memory_back() {
    let mut session = opened();
    session.rest();
    assert_eq!(session.len(), 2, "what is wanted stays");
    for index in 0..2_000 {
        session.want(&topic("c", 3), index, 1, at(0));
    }
    session.plan();
    session.on_response_header(ErrorCode::NONE, 77);
    for index in 0..2_000 {
        session.remove("c", index);
    }
    session.remove("a", 0);
    session.remove("b", 0);
    session.rest();
    assert_eq!((session.entries.end(), session.names.len(), session.changed.capacity()), (0, 0, 0));

    session.want(&topic("a", 1), 0, 10, at(3));
    let request = session.plan();
    assert_eq!((request.session_id, request.session_epoch), (77, 0));
    assert_eq!(shown(&request), ["a-0@3"]);
}

/// There is one for each of very many partitions.
#[test]
fn an_entry_is_small() {
    assert_eq!(size_of::<Option<Entry>>(), 64);
}
