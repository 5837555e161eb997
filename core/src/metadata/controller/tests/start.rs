use super::*;
use crate::metadata::controller::patterns::stored;
use crate::protocol::mirror::{StartMirrorTopic, StartMirrorTopicsRequest};

fn topic(name: &str, number: u128, num_partitions: i32) -> StartMirrorTopic {
    StartMirrorTopic { topic_id: id(number), topic_name: name.into(), num_partitions }
}

fn request(topics: &[StartMirrorTopic]) -> StartMirrorTopicsRequest {
    StartMirrorTopicsRequest {
        mirror_name: "west".into(),
        topics: topics.to_vec(),
        ..StartMirrorTopicsRequest::default()
    }
}

fn start_in(
    image: &MetadataImage,
    request: &StartMirrorTopicsRequest,
) -> Result<Decision<TopicResults>, Refusal> {
    start_mirror_topics(image, request, NODE, &mut ids())
}

fn start(topics: &[StartMirrorTopic]) -> Decision<TopicResults> {
    start_in(&image(), &request(topics)).unwrap()
}

fn patterns(include: &[&str], exclude: &[&str]) -> StartMirrorTopicsRequest {
    StartMirrorTopicsRequest {
        include_patterns: strings(include),
        exclude_patterns: strings(exclude),
        ..request(&[])
    }
}

#[test]
fn a_new_topic_is_made_as_at_the_source() {
    let decision = start(&[topic("fresh", 50, 4)]);
    assert_eq!(codes(&decision.answer), [("fresh", 0)]);
    let after = with(&image(), &decision.records);
    let made = after.topic("fresh").unwrap();
    assert_eq!((made.id, made.partition_count()), (id(50), 4));
    assert!(made.partitions.iter().all(|it| it.node == NODE && it.leader_epoch.0 == 0));
    assert_eq!(desired(&after, "fresh"), Some(west(DesiredState::Mirroring)));
}

#[test]
fn a_source_without_ids_gets_one() {
    let decision = start(&[topic("fresh", 0, 1), topic("fresher", 0, 1)]);
    let after = with(&image(), &decision.records);
    assert_eq!(after.topic("fresh").unwrap().id, id(1_000));
    assert_eq!(after.topic("fresher").unwrap().id, id(1_001));
    // One that is here already is matched by name.
    let decision = start(&[topic("standing", 0, 1)]);
    assert_eq!(codes(&decision.answer), [("standing", 0)]);
}

#[test]
fn wishes_decide_what_may_start() {
    let decision = start(&[
        topic("moving", 10, 1),
        topic("resting", 11, 1),
        topic("standing", 12, 1),
        topic("other", 13, 1),
        topic("own", 14, 1),
    ]);
    assert_eq!(
        codes(&decision.answer),
        [("moving", 0), ("resting", 146), ("standing", 0), ("other", 138), ("own", 0)]
    );
    let after = with(&image(), &decision.records);
    assert_eq!(desired(&after, "resting"), Some(west(DesiredState::Paused)));
    assert_eq!(desired(&after, "standing"), Some(west(DesiredState::Mirroring)));
    assert_eq!(desired(&after, "own"), Some(west(DesiredState::Mirroring)));
    assert_eq!(desired(&after, "other").unwrap().0, "east");
    let again = start_in(&after, &request(&[topic("moving", 10, 1)])).unwrap();
    assert_eq!((codes(&again.answer), again.records.len()), (vec![("moving", 0)], 0));
    // Stopped in another mirror, it may start in this one.
    let left = with(&image(), &[set(TOPIC, "other", MIRROR_NAME, "east.stopped")]);
    let decision = start_in(&left, &request(&[topic("other", 13, 1)])).unwrap();
    assert_eq!(
        desired(&with(&left, &decision.records), "other"),
        Some(west(DesiredState::Mirroring))
    );
}

#[test]
fn identity_is_the_id() {
    let decision = start(&[
        topic("standing", 99, 1),
        topic("fresh", 14, 1),
        topic("a b", 60, 1),
        topic("__cluster_metadata", 61, 1),
        topic("fine", 62, 1),
        topic("fine", 62, 1),
        topic("twin", 62, 1),
    ]);
    assert_eq!(
        codes(&decision.answer),
        [
            ("standing", 103),
            ("fresh", 36),
            ("a b", 17),
            ("__cluster_metadata", 17),
            ("fine", 0),
            ("fine", 42),
            ("twin", 36),
        ]
    );
    assert_eq!(first_refusal(&decision.answer).unwrap().code.0, 103);
    let after = with(&image(), &decision.records);
    assert_eq!(desired(&after, "standing"), Some(west(DesiredState::Stopped)));
    assert!(after.topic("fresh").is_none() && after.topic("twin").is_none());
    assert_eq!(stored(&after, "west").0.as_deref(), Some("fine"), "nor are they remembered");
}

#[test]
fn a_topic_of_unknown_size_waits_for_the_next_look() {
    let decision = start(&[topic("later", 50, 0), topic("latest", 0, -1)]);
    assert_eq!(codes(&decision.answer), [("later", 0), ("latest", 0)]);
    let after = with(&image(), &decision.records);
    assert!(after.topic("later").is_none());
    assert_eq!(stored(&after, "west").0.as_deref(), Some("later,latest"));
}

#[test]
fn partitions_and_nodes_have_limits() {
    let all = i32::try_from(PARTITIONS_MAX).unwrap();
    let decision = start(&[topic("huge", 50, all)]);
    assert_eq!((codes(&decision.answer), decision.records.len()), (vec![("huge", 37)], 0));
    let request = request(&[topic("fresh", 50, 1)]);
    let decision = start_mirror_topics(&image(), &request, BrokerId(2), &mut ids()).unwrap();
    assert_eq!(codes(&decision.answer), [("fresh", 38)]);
    let fenced = RegisterBrokerRecord { broker_id: 1, broker_epoch: 6, ..Default::default() };
    let decision = start_in(&with(&image(), &[fenced.into()]), &request).unwrap();
    assert_eq!((codes(&decision.answer), decision.records.len()), (vec![("fresh", 38)], 0));
}

#[test]
fn the_request_is_checked_first() {
    let names = request(&[topic("moving", 10, 1)]);
    let elsewhere = StartMirrorTopicsRequest { mirror_name: "north".into(), ..names.clone() };
    assert_eq!(refused(start_in(&off(), &names)), ErrorCode::UNSUPPORTED_VERSION);
    assert_eq!(refused(start_in(&image(), &elsewhere)), code::UNKNOWN_CLUSTER_MIRROR);
    assert_eq!(refused(start_in(&image(), &request(&[]))), code::INVALID_REQUEST);
    assert_eq!(refused(start_in(&image(), &patterns(&["a("], &[]))), code::INVALID_REQUEST);
    assert_eq!(refused(start_in(&image(), &patterns(&[], &["*"]))), code::INVALID_REQUEST);
    let many: Vec<_> = (0..1_001).map(|number| format!("p{number}")).collect();
    let many: Vec<_> = many.iter().map(String::as_str).collect();
    assert_eq!(refused(start_in(&image(), &patterns(&many, &[]))), code::INVALID_REQUEST);
}

#[test]
fn the_first_start_does_not_lose_the_default() {
    let decision = start_in(&image(), &patterns(&["pay.*"], &[])).unwrap();
    assert_eq!(decision.answer, []);
    let after = with(&image(), &decision.records);
    assert_eq!(stored(&after, "west"), (Some("pay.*".into()), None), "unset: the default holds");
    let decision = start_in(&after, &patterns(&[], &["tmp.*", "x{1,2}"])).unwrap();
    let after = with(&after, &decision.records);
    assert_eq!(stored(&after, "west").1.as_deref(), Some("__.*,tmp.*,x{1,2}"));
    let decision = start_in(&after, &request(&[topic("xx", 51, 1)])).unwrap();
    assert_eq!(codes(&decision.answer), [("xx", 42)], "a stored pattern is read as it was");
}

#[test]
fn patterns_move_from_one_list_to_the_other() {
    let lists = [
        set(MIRROR, "west", "mirror.topics.include", "a.*,b.*"),
        set(MIRROR, "west", "mirror.topics.exclude", "c.*,d.*,own"),
    ];
    let before = with(&image(), &lists);
    let mut request = patterns(&["c.*", "e.*"], &["b.*"]);
    request.topics = vec![topic("own", 14, 1), topic("apple", 51, 1)];
    let decision = start_in(&before, &request).unwrap();
    assert_eq!(codes(&decision.answer), [("own", 0), ("apple", 0)]);
    let (include, exclude) = stored(&with(&before, &decision.records), "west");
    // A name that a pattern brings needs none of its own.
    assert_eq!(include.as_deref(), Some("a.*,c.*,e.*,own"));
    assert_eq!(exclude.as_deref(), Some("d.*,b.*"));
}

#[test]
fn a_refused_topic_stays_excluded() {
    let before = with(&image(), &[set(MIRROR, "west", "mirror.topics.exclude", "standing,own")]);
    let topics = [topic("standing", 99, 1), topic("own", 14, 1)];
    let decision = start_in(&before, &request(&topics)).unwrap();
    assert_eq!(codes(&decision.answer), [("standing", 103), ("own", 0)]);
    let (include, exclude) = stored(&with(&before, &decision.records), "west");
    assert_eq!((include.as_deref(), exclude.as_deref()), (Some("own"), Some("standing")));
}

#[test]
fn exclusion_wins() {
    let decision = start(&[topic("__consumer_offsets", 51, 50)]);
    assert_eq!(codes(&decision.answer), [("__consumer_offsets", 42)]);
    assert_eq!(decision.records, []);
    insta::assert_snapshot!(
        first_refusal(&decision.answer).unwrap(),
        @r#"INVALID_REQUEST (42): topic __consumer_offsets matches "__.*" of mirror.topics.exclude, which wins; take the pattern out of the list of mirror west first"#
    );
    // What is excluded from now on is stopped, in this mirror.
    let decision = start_in(&image(), &patterns(&[], &["mov.*", "rest.*", "oth.*"])).unwrap();
    assert_eq!(decision.answer, []);
    let after = with(&image(), &decision.records);
    assert_eq!(desired(&after, "moving"), Some(west(DesiredState::Stopped)));
    assert_eq!(desired(&after, "resting"), Some(west(DesiredState::Stopped)));
    assert_eq!(desired(&after, "other").unwrap().1, DesiredState::Mirroring);
}

#[test]
fn a_failed_topic_leaves_no_records_behind() {
    // The topic could be made, but the list of patterns is full.
    let full: Vec<_> = (0..1_000).map(|number| format!("p{number}")).collect();
    let before = with(&image(), &[set(MIRROR, "west", "mirror.topics.include", &full.join(","))]);
    let decision =
        start_in(&before, &request(&[topic("p7", 50, 2), topic("fresh", 51, 2)])).unwrap();
    assert_eq!(codes(&decision.answer), [("p7", 0), ("fresh", 42)]);
    let after = with(&before, &decision.records);
    assert!(after.topic("p7").is_some() && after.topic("fresh").is_none());
    assert_eq!(decision.records.len(), 4);
}
