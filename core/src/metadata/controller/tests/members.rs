use super::*;
use crate::metadata::controller::patterns::stored;
use crate::protocol::mirror::{
    PauseMirrorTopicsRequest, RecoverMirrorTopic, RecoverMirrorTopicsRequest,
    ResumeMirrorTopicsRequest, StopMirrorTopicsRequest,
};

type Decided = Result<Decision<TopicResults>, Refusal>;

fn stop_of(image: &MetadataImage, mirror: &str, names: &[&str], patterns: &[&str]) -> Decided {
    let request = StopMirrorTopicsRequest {
        mirror_name: mirror.into(),
        topics: topics(names),
        patterns: strings(patterns),
        validate_only: false,
    };
    stop_mirror_topics(image, &request)
}

fn stop(names: &[&str], patterns: &[&str]) -> Decided {
    stop_of(&image(), "west", names, patterns)
}

fn pause_of(image: &MetadataImage, mirror: &str, names: &[&str]) -> Decided {
    let request = PauseMirrorTopicsRequest { mirror_name: mirror.into(), topics: topics(names) };
    pause_mirror_topics(image, &request)
}

fn resume_of(image: &MetadataImage, mirror: &str, names: &[&str]) -> Decided {
    let request = ResumeMirrorTopicsRequest { mirror_name: mirror.into(), topics: topics(names) };
    resume_mirror_topics(image, &request)
}

fn recover_of(image: &MetadataImage, mirror: &str, names: &[&str]) -> Decided {
    let topic = |name: &&str| RecoverMirrorTopic { topic_name: (*name).into() };
    let topics = names.iter().map(topic).collect();
    let request = RecoverMirrorTopicsRequest { mirror_name: mirror.into(), topics };
    let answer = check_recover_mirror_topics(image, &request)?;
    Ok(Decision { records: Vec::new(), answer })
}

#[test]
fn membership_is_checked_for_each_request() {
    let all = [
        |image: &MetadataImage, mirror: &str, names: &[&str]| stop_of(image, mirror, names, &[]),
        pause_of,
        resume_of,
        recover_of,
    ];
    for request in all {
        assert_eq!(refused(request(&off(), "west", &["moving"])), ErrorCode::UNSUPPORTED_VERSION);
        assert_eq!(refused(request(&image(), "north", &["moving"])), code::UNKNOWN_CLUSTER_MIRROR);
        assert_eq!(refused(request(&image(), "west", &[])), code::INVALID_REQUEST);
        let decision = request(&image(), "west", &["absent", "own", "other"]).unwrap();
        assert_eq!(codes(&decision.answer), [("absent", 3), ("own", 137), ("other", 139)]);
        assert_eq!(decision.records, [], "what is refused leaves nothing");
        assert_eq!(first_refusal(&decision.answer).unwrap().code.0, 3);
    }
}

#[test]
fn a_topic_of_another_id_is_another_topic() {
    let mut request = StopMirrorTopicsRequest {
        mirror_name: "west".into(),
        topics: topics(&["moving", "resting"]),
        patterns: vec![],
        validate_only: false,
    };
    request.topics[0].topic_id = id(99);
    request.topics[1].topic_id = id(11);
    let decision = stop_mirror_topics(&image(), &request).unwrap();
    assert_eq!(codes(&decision.answer), [("moving", 103), ("resting", 0)]);
    assert_eq!(decision.records.len(), 1);
}

#[test]
fn stop_works_from_every_wish() {
    let decision = stop(&["moving", "resting", "standing"], &[]).unwrap();
    assert_eq!(codes(&decision.answer), [("moving", 0), ("resting", 0), ("standing", 0)]);
    assert_eq!(first_refusal(&decision.answer), None);
    assert_eq!(decision.records.len(), 2, "what is stopped already is left");
    let after = with(&image(), &decision.records);
    for topic in ["moving", "resting", "standing"] {
        assert_eq!(desired(&after, topic), Some(west(DesiredState::Stopped)));
    }
    // A topic that stands twice has been stopped when it comes again.
    let twice = stop(&["moving", "moving"], &[]).unwrap();
    assert_eq!((codes(&twice.answer), twice.records.len()), (vec![("moving", 0); 2], 1));
}

#[test]
fn patterns_stop_what_they_match_and_exclude_it() {
    let before = with(&image(), &[set(MIRROR, "west", "mirror.topics.include", "mov.*,pay.*")]);
    let decision = stop_of(&before, "west", &["resting"], &["mov.*", ".*ing"]).unwrap();
    assert_eq!(codes(&decision.answer), [("resting", 0), ("moving", 0)]);
    let after = with(&before, &decision.records);
    assert_eq!(desired(&after, "moving"), Some(west(DesiredState::Stopped)));
    let (include, exclude) = stored(&after, "west");
    assert_eq!(include.as_deref(), Some("pay.*"));
    assert_eq!(exclude.as_deref(), Some("__.*,mov.*,.*ing"), "the default goes on to hold");
    // Names are no patterns: the lists stay.
    assert_eq!(stored(&with(&before, &stop(&["moving"], &[]).unwrap().records), "west").1, None);
}

#[test]
fn a_pattern_that_matches_nothing_is_kept() {
    let decision = stop(&[], &["zzz"]).unwrap();
    assert_eq!(decision.answer, []);
    assert_eq!(stored(&with(&image(), &decision.records), "west").1.as_deref(), Some("__.*,zzz"));
    // Of other mirrors nothing is touched.
    let all = stop(&[], &[".*"]).unwrap();
    assert_eq!(codes(&all.answer), [("moving", 0), ("resting", 0)]);
    assert_eq!(refused(stop(&["moving"], &["("])), code::INVALID_REQUEST);
}

#[test]
fn pause_and_resume_know_where_they_come_from() {
    let decision = pause_of(&image(), "west", &["moving", "resting", "standing"]).unwrap();
    assert_eq!(codes(&decision.answer), [("moving", 0), ("resting", 0), ("standing", 142)]);
    let after = with(&image(), &decision.records);
    assert_eq!(desired(&after, "moving"), Some(west(DesiredState::Paused)));
    assert_eq!(desired(&after, "standing"), Some(west(DesiredState::Stopped)));
    insta::assert_snapshot!(
        first_refusal(&decision.answer).unwrap(),
        @"MIRROR_TOPIC_BEING_STOPPED (142): topic standing of mirror west is stopped, or about to be: start it if it is to follow the source"
    );

    let decision = resume_of(&image(), "west", &["moving", "resting", "standing"]).unwrap();
    assert_eq!(codes(&decision.answer), [("moving", 0), ("resting", 0), ("standing", 141)]);
    let after = with(&image(), &decision.records);
    assert_eq!(desired(&after, "resting"), Some(west(DesiredState::Mirroring)));
    assert_eq!(decision.records.len(), 1);
}

#[test]
fn recover_changes_no_metadata() {
    let decision = recover_of(&image(), "west", &["moving", "standing"]).unwrap();
    assert_eq!(codes(&decision.answer), [("moving", 0), ("standing", 0)]);
}
