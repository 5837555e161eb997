use super::*;
use crate::protocol::mirror::{
    ClusterMirrorConfig, CreateClusterMirrorRequest, DeleteClusterMirrorRequest,
};

const NEEDED: [(&str, &str); 2] = [("bootstrap.servers", "b:9092"), (SOURCE_CLUSTER_ID, "src")];

fn request(name: &str, configs: &[(&str, &str)]) -> CreateClusterMirrorRequest {
    let config = |(name, value): &(&str, &str)| ClusterMirrorConfig {
        name: (*name).into(),
        value: Some((*value).into()),
    };
    CreateClusterMirrorRequest {
        mirror_name: name.into(),
        config: configs.iter().map(config).collect(),
    }
}

fn create(name: &str, more: &[(&str, &str)]) -> Result<Decision<()>, Refusal> {
    create_mirror(&image(), &request(name, &[&NEEDED, more].concat()))
}

#[test]
fn a_mirror_is_its_configs() {
    let mut request =
        request("new", &[&NEEDED[..], &[("mirror.topics.include", " pay.* ")]].concat());
    request.config.push(ClusterMirrorConfig { name: "ssl.protocol".into(), value: None });
    let decision = create_mirror(&image(), &request).unwrap();
    assert_eq!(decision.records.len(), 3, "a null is the default");
    let after = with(&image(), &decision.records);
    assert_eq!(after.mirrors().collect::<Vec<_>>(), ["east", "new", "west"]);
    assert_eq!(after.config(MIRROR, "new", "bootstrap.servers"), Some("b:9092"));
    assert_eq!(after.config(MIRROR, "new", "mirror.topics.include"), Some("pay.*"));
}

#[test]
fn names_are_those_of_topics_without_the_suffixes_of_wishes() {
    let long = "x".repeat(250);
    for name in ["", ".", "..", "a b", "a/b", "ü", "x.stopped", "x.paused", &long] {
        assert_eq!(refused(create(name, &[])), code::INVALID_CLUSTER_MIRROR_NAME, "{name}");
    }
    for name in ["a", "stopped", "a.b-c_D9", &long[..249]] {
        assert!(create(name, &[]).is_ok(), "{name}");
    }
}

#[test]
fn a_mirror_is_made_once() {
    assert_eq!(refused(create("west", &[])), code::CLUSTER_MIRROR_ALREADY_EXISTS);
}

#[test]
fn without_the_feature_there_are_no_mirrors() {
    let result = create_mirror(&off(), &request("new", &NEEDED));
    assert_eq!(refused(result), ErrorCode::UNSUPPORTED_VERSION);
    let delete = DeleteClusterMirrorRequest { mirror_name: "west".into(), validate_only: false };
    assert_eq!(refused(delete_mirror(&off(), &delete)), ErrorCode::UNSUPPORTED_VERSION);
}

#[test]
fn a_mirror_needs_its_source() {
    for configs in [
        &NEEDED[..1],
        &NEEDED[1..],
        &[],
        &[("bootstrap.servers", " "), (SOURCE_CLUSTER_ID, "s")],
        &[("bootstrap.servers", "a:1"), (SOURCE_CLUSTER_ID, "")],
    ] {
        let result = create_mirror(&image(), &request("new", configs));
        assert_eq!(refused(result), code::INVALID_REQUEST, "{configs:?}");
    }
}

#[test]
fn configs_of_a_mirror_are_checked() {
    for (key, value) in [
        ("mirror.topic.include", "a"),
        ("mirror.fetch.max.bytes", "0"),
        ("mirror.fetch.max.bytes", "many"),
        ("security.protocol", "TLS"),
        ("mirror.topics.include", "a,(b"),
        ("mirror.topics.exclude", "["),
        ("bootstrap.servers", ","),
    ] {
        let configs: Vec<_> =
            NEEDED.into_iter().filter(|it| it.0 != key).chain([(key, value)]).collect();
        let result = create_mirror(&image(), &request("new", &configs));
        assert_eq!(refused(result), code::INVALID_CONFIG, "{key}={value}");
    }
    let refusal = create("new", &[("mirror.topic.include", "a")]).unwrap_err();
    insta::assert_snapshot!(
        refusal,
        @"INVALID_CONFIG (40): unknown key mirror.topic.include of a mirror; did you mean mirror.topics.include?"
    );
    let twice = [("client.id", "a"), ("client.id", "b")];
    assert_eq!(refused(create("new", &twice)), code::INVALID_REQUEST);
    let long = "x".repeat(40_000);
    assert_eq!(refused(create("new", &[("client.id", &long)])), code::INVALID_REQUEST);
}

#[test]
fn there_is_a_limit_to_mirrors() {
    let mut records = Vec::new();
    for number in 2..1_000 {
        records.push(set(MIRROR, &format!("m{number}"), "bootstrap.servers", "a:1"));
    }
    let full = with(&image(), &records);
    let result = create_mirror(&full, &request("new", &NEEDED));
    assert_eq!(refused(result), code::INVALID_REQUEST);
    let almost = with(&image(), &records[1..]);
    assert!(create_mirror(&almost, &request("new", &NEEDED)).is_ok());
}

fn delete(image: &MetadataImage, mirror: &str) -> Result<Decision<()>, Refusal> {
    delete_mirror(
        image,
        &DeleteClusterMirrorRequest { mirror_name: mirror.into(), validate_only: false },
    )
}

#[test]
fn a_mirror_goes_once_all_its_topics_are_stopped() {
    assert_eq!(refused(delete(&image(), "north")), code::UNKNOWN_CLUSTER_MIRROR);
    assert_eq!(refused(delete(&image(), "west")), code::CLUSTER_MIRROR_NOT_EMPTY);
    // Paused is not stopped.
    let moved = with(&image(), &[set(TOPIC, "moving", MIRROR_NAME, "west.stopped")]);
    assert_eq!(refused(delete(&moved, "west")), code::CLUSTER_MIRROR_NOT_EMPTY);
    let stopped = with(&moved, &[set(TOPIC, "resting", MIRROR_NAME, "west.stopped")]);
    let after = with(&stopped, &delete(&stopped, "west").unwrap().records);
    assert_eq!(after.mirrors().collect::<Vec<_>>(), ["east"]);
    for topic in ["moving", "resting", "standing"] {
        assert!(after.topic(topic).is_some(), "topics stay");
        assert_eq!(after.mirror_of(topic), None);
    }
    assert!(after.mirror_of("other").is_some());
}
