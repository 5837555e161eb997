use super::*;
use crate::types::LeaderEpoch;

fn refusal(code: i16) -> Refusal {
    Refusal { code: ErrorCode(code), message: format!("because {code}") }
}

#[test]
fn the_first_error_is_that_of_the_whole() {
    let named = |name: &str, result| Named { name: name.into(), result };
    let results =
        vec![named("a", Ok(())), named("b", Err(refusal(142))), named("c", Err(refusal(3)))];
    let response = topics_response("west", Ok(&results));
    assert_eq!((response.error_code, &*response.mirror_name), (142, "west"));
    assert_eq!(response.error_message.as_deref(), Some("because 142"));
    let codes: Vec<_> = response.topics.iter().map(|it| (&*it.name, it.error_code)).collect();
    assert_eq!(codes, [("a", 0), ("b", 142), ("c", 3)]);
    assert_eq!(response.topics[2].error_message.as_deref(), Some("because 3"));
    assert_eq!(topics_response("west", Ok(&results[..1].to_vec())).error_code, 0);
    let whole = topics_response("north", Err(&refusal(137)));
    assert_eq!((whole.error_code, whole.topics.len()), (137, 0));
}

#[test]
fn answers_about_mirrors_and_epochs_carry_their_errors() {
    assert_eq!(mirror_response(Ok(())).error_code, 0);
    let response = mirror_response(Err(&refusal(136)));
    assert_eq!((response.error_code, response.error_message), (136, Some("because 136".into())));
    let result = BumpResult {
        topic_id: id(1),
        topic_name: "t".into(),
        partitions: vec![(0, Ok(LeaderEpoch(4))), (7, Err(refusal(3)))],
    };
    let response = bump_response(&[result]);
    let topic = &response.topics[0];
    let codes: Vec<_> =
        topic.partitions.iter().map(|it| (it.partition_index, it.error_code)).collect();
    assert_eq!((response.error_code, &*topic.topic_name), (0, "t"));
    assert_eq!(codes, [(0, 0), (7, 3)]);
}

#[test]
fn mirrors_are_listed_with_their_topics() {
    let listed = list_mirrors(&image(), true);
    let rows: Vec<_> = listed
        .iter()
        .map(|it| (&*it.mirror_name, &*it.source_bootstrap, &*it.source_cluster_id, it.topic_count))
        .collect();
    assert_eq!(rows, [("east", "a:1", "source", 1), ("west", "a:1", "source", 1)]);
    assert_eq!(listed[1].topic_names, ["moving", "resting"]);
    assert!(list_mirrors(&image(), false).iter().all(|it| it.topic_names.is_empty()));
}
