use super::*;
use crate::metadata::image::TEXT_BYTES_MAX;

fn op(key: &str, kind: ConfigOpKind, value: Option<&str>) -> ConfigOp {
    ConfigOp { key: key.into(), kind, value: value.map(Into::into) }
}

fn set_op(key: &str, value: &str) -> ConfigOp {
    op(key, ConfigOpKind::Set, Some(value))
}

fn change(kind: ResourceType, name: &str, ops: &[ConfigOp]) -> ConfigChange {
    ConfigChange { kind, name: name.into(), ops: ops.to_vec() }
}

/// The code, and the image after it.
fn alter(kind: ResourceType, name: &str, ops: &[ConfigOp]) -> (i16, MetadataImage) {
    alter_in(&image(), kind, name, ops)
}

fn alter_in(
    before: &MetadataImage,
    kind: ResourceType,
    name: &str,
    ops: &[ConfigOp],
) -> (i16, MetadataImage) {
    let decision = alter_configs(before, &[change(kind, name, ops)]);
    let code = code_of(&decision.answer[0].result);
    assert!(code == 0 || decision.records.is_empty(), "what is refused leaves nothing");
    (code, with(before, &decision.records))
}

#[test]
fn tables_hold_each_key_once_and_its_default_is_legal() {
    for keys in [MIRROR_KEYS, TOPIC_KEYS, BROKER_KEYS] {
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].iter().any(|other| other.name == key.name), "{}", key.name);
            assert!(!key.doc.is_empty() && !key.doc.ends_with('.'), "{}", key.name);
            keys::check_value(key, key.default).unwrap();
        }
    }
    assert!(keys_of(ResourceType(16)).is_empty());
}

#[test]
fn values_are_set_and_removed() {
    let (code, after) = alter(TOPIC, "own", &[set_op("retention.ms", " 7 ")]);
    assert_eq!((code, after.config(TOPIC, "own", "retention.ms")), (0, Some("7")));
    let again = alter_configs(&after, &[change(TOPIC, "own", &[set_op("retention.ms", "7")])]);
    assert_eq!(again.records, [], "what holds already is not written");
    let delete = op("retention.ms", ConfigOpKind::Delete, None);
    let (code, after) = alter_in(&after, TOPIC, "own", std::slice::from_ref(&delete));
    assert_eq!((code, after.configs(TOPIC, "own")), (0, None));
    assert_eq!(alter_configs(&after, &[change(TOPIC, "own", &[delete])]).records, []);

    for name in ["", "1"] {
        let key = "mirror.replication.throttled.rate";
        let (code, after) = alter(ResourceType::BROKER, name, &[set_op(key, "1000")]);
        assert_eq!((code, after.config(ResourceType::BROKER, name, key)), (0, Some("1000")));
    }
}

#[test]
fn lists_are_added_to_and_taken_from() {
    let key = "mirror.topics.exclude";
    let value = |image: &MetadataImage| image.config(MIRROR, "west", key).unwrap().to_owned();
    let append = op(key, ConfigOpKind::Append, Some("x{1,2}, tmp.*,__.*"));
    let (code, after) = alter(MIRROR, "west", &[append]);
    assert_eq!((code, value(&after).as_str()), (0, "__.*,x{1,2},tmp.*"), "the default counts");
    let subtract = op(key, ConfigOpKind::Subtract, Some("x{1,2},absent"));
    let (code, after) = alter_in(&after, MIRROR, "west", &[subtract]);
    assert_eq!((code, value(&after).as_str()), (0, "__.*,tmp.*"));
    for kind in [ConfigOpKind::Append, ConfigOpKind::Subtract] {
        assert_eq!(alter(TOPIC, "own", &[op("retention.ms", kind, Some("7"))]).0, 40);
        assert_eq!(alter(TOPIC, "own", &[op("cleanup.policy", kind, None)]).0, 42);
    }
    for (code, kind) in (0..).zip([
        ConfigOpKind::Set,
        ConfigOpKind::Delete,
        ConfigOpKind::Append,
        ConfigOpKind::Subtract,
    ]) {
        assert_eq!(ConfigOpKind::from_code(code), Some(kind));
    }
    assert_eq!([4, -1].map(ConfigOpKind::from_code), [None; 2]);
}

#[test]
fn resources_must_be_there() {
    let key = [set_op("retention.ms", "7")];
    assert_eq!(alter(TOPIC, "absent", &key).0, 3);
    assert_eq!(alter(ResourceType::BROKER, "2", &key).0, 102);
    assert_eq!(alter(ResourceType::BROKER, "x", &key).0, 102);
    assert_eq!(alter(MIRROR, "north", &key).0, 137);
    assert_eq!(alter(ResourceType(16), "x", &key).0, 42);
    assert_eq!(alter_in(&off(), MIRROR, "west", &key).0, 35);
    let twice = alter_configs(&image(), &[change(TOPIC, "own", &key), change(TOPIC, "own", &key)]);
    let codes: Vec<_> = twice.answer.iter().map(|it| code_of(&it.result)).collect();
    assert_eq!((codes, twice.records.len()), (vec![0, 42], 1));
}

#[test]
fn keys_and_values_must_be_known() {
    let decision = alter_configs(&image(), &[change(TOPIC, "own", &[set_op("retention_ms", "7")])]);
    insta::assert_snapshot!(
        decision.answer[0].result.clone().unwrap_err(),
        @"INVALID_CONFIG (40): unknown key retention_ms of a topic; did you mean retention.ms?"
    );
    assert_eq!(alter(TOPIC, "own", &[set_op("min.insync.replicas", "0")]).0, 40);
    assert_eq!(alter(TOPIC, "own", &[set_op("preallocate", "yes")]).0, 40);
    assert_eq!(alter(TOPIC, "own", &[set_op(MIRROR_NAME, "west")]).0, 40);
    assert_eq!(alter(TOPIC, "moving", &[op(MIRROR_NAME, ConfigOpKind::Delete, None)]).0, 40);
    assert_eq!(alter(TOPIC, "own", &[op("flush.ms", ConfigOpKind::Set, None)]).0, 42);
    let twice = [set_op("flush.ms", "1"), set_op("flush.ms", "2")];
    assert_eq!(alter(TOPIC, "own", &twice).0, 42);
    // One wrong key, and none is altered.
    let half = [set_op("flush.ms", "1"), set_op("flush.mss", "2")];
    assert_eq!(alter(TOPIC, "own", &half).0, 40);
    let long = "x".repeat(TEXT_BYTES_MAX + 1);
    let half = [set_op("flush.ms", "1"), set_op("cleanup.policy", &long)];
    assert_eq!(alter(TOPIC, "own", &half).0, 42);
}

#[test]
fn a_mirror_keeps_its_source() {
    let delete = |key| op(key, ConfigOpKind::Delete, None);
    assert_eq!(alter(MIRROR, "west", &[delete("bootstrap.servers")]).0, 40);
    assert_eq!(alter(MIRROR, "west", &[set_op("bootstrap.servers", " , ")]).0, 40);
    assert_eq!(alter(MIRROR, "west", &[set_op("bootstrap.servers", "b:2")]).0, 0);
    assert_eq!(alter(MIRROR, "west", &[set_op(SOURCE_CLUSTER_ID, "another")]).0, 40);
    assert_eq!(alter(MIRROR, "west", &[delete(SOURCE_CLUSTER_ID)]).0, 40);
    assert_eq!(alter(MIRROR, "west", &[set_op(SOURCE_CLUSTER_ID, "source")]).0, 0);
    assert_eq!(alter(MIRROR, "west", &[set_op("mirror.topics.include", "a(")]).0, 40);
}

#[test]
fn secrets_are_in_no_message() {
    let secret = set_op("ssl.key.password", "hunter2");
    assert!(!format!("{secret:?}").contains("hunter2"));
    let decision =
        alter_configs(&image(), &[change(MIRROR, "west", std::slice::from_ref(&secret))]);
    assert!(!format!("{decision:?}").contains("hunter2"));
    let (code, after) = alter(MIRROR, "west", &[secret]);
    assert_eq!((code, after.config(MIRROR, "west", "ssl.key.password")), (0, Some("hunter2")));
    for key in MIRROR_KEYS.iter().filter(|key| crate::metadata::record::is_sensitive(key.name)) {
        assert_eq!(key.values, crate::config::KeyType::Text, "{}: any text is legal", key.name);
    }
}

/// A mirror of KIP-1279 fails where its destination is tiered. Here no topic can be.
#[test]
fn tiered_storage_is_refused() {
    let on = [set_op("remote.storage.enable", "true")];
    for topic in ["own", "moving"] {
        assert_eq!(alter(TOPIC, topic, &on).0, 40, "{topic}");
        assert_eq!(alter(TOPIC, topic, &[set_op("remote.storage.enable", "false")]).0, 0);
    }
    let decision = alter_configs(&image(), &[change(TOPIC, "moving", &on)]);
    insta::assert_snapshot!(
        decision.answer[0].result.clone().unwrap_err(),
        @"INVALID_CONFIG (40): remote.storage.enable stays false: this host has no tiered storage, and keeps all of a copy on its own disks, whatever the source does"
    );
}
