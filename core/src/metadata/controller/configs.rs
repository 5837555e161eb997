//! Configs of topics, brokers and mirrors, altered one key at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::code;
use super::decision::{Decision, Draft, Refusal, check_mirror, shown};
use super::keys::{BOOTSTRAP_SERVERS, SOURCE_CLUSTER_ID, check_value, find};
use super::patterns::{EXCLUDE, INCLUDE, Patterns};
use crate::config::{Key, KeyType};
use crate::metadata::image::{MetadataImage, ResourceType, config_record};
use crate::protocol::ErrorCode;
use crate::select::split_patterns;
use crate::types::BrokerId;

/// What is done with a key. The numbers are the protocol's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConfigOpKind {
    /// 0: the value holds from now on.
    Set,
    /// 1: the default holds from now on.
    Delete,
    /// 2: adds to a list.
    Append,
    /// 3: takes out of a list.
    Subtract,
}

impl ConfigOpKind {
    /// The kind of a number.
    #[must_use]
    pub const fn from_code(code: i8) -> Option<Self> {
        match code {
            0 => Some(Self::Set),
            1 => Some(Self::Delete),
            2 => Some(Self::Append),
            3 => Some(Self::Subtract),
            _ => None,
        }
    }
}

/// One key of a change.
#[derive(Clone, PartialEq, Eq)]
pub struct ConfigOp {
    /// The key.
    pub key: String,
    /// What is done with it.
    pub kind: ConfigOpKind,
    /// The value; none for [`ConfigOpKind::Delete`].
    pub value: Option<String>,
}

impl fmt::Debug for ConfigOp {
    /// Without the value, which may be a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut it = f.debug_struct("ConfigOp");
        it.field("key", &self.key).field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// A change of one resource's configs: all of it is done, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigChange {
    /// Kind of the resource.
    pub kind: ResourceType,
    /// Its name; for a broker its node ID, or empty for all.
    pub name: String,
    /// Each key once.
    pub ops: Vec<ConfigOp>,
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigResult {
    /// Kind of the resource.
    pub kind: ResourceType,
    /// Its name.
    pub name: String,
    /// What came of it.
    pub result: Result<(), Refusal>,
}

/// Alters configs. A value that holds already leaves no record.
///
/// Codes of a resource: INVALID_CONFIG for a key or value that it does not take, a list operation
/// on another type, or a mirror's other source; INVALID_REQUEST for a key that stands twice, a
/// missing value, an unknown kind; UNKNOWN_TOPIC_OR_PARTITION, BROKER_ID_NOT_REGISTERED,
/// UNKNOWN_CLUSTER_MIRROR for one that is not there; UNSUPPORTED_VERSION while mirrors are off.
#[must_use]
pub fn alter_configs(
    image: &MetadataImage,
    changes: &[ConfigChange],
) -> Decision<Vec<ConfigResult>> {
    let mut draft = Draft::new(image);
    let mut seen = BTreeSet::new();
    let mut results = Vec::new();
    for change in changes {
        let result = if seen.insert((change.kind, &change.name)) {
            draft.attempt(|draft| alter(draft, change))
        } else {
            let message = format!("{} {} stands twice", change.kind, shown(&change.name));
            Err(Refusal::new(code::INVALID_REQUEST, message))
        };
        results.push(ConfigResult { kind: change.kind, name: change.name.clone(), result });
    }
    draft.finish(results)
}

fn alter(draft: &mut Draft<'_>, change: &ConfigChange) -> Result<(), Refusal> {
    check_resource(draft.image(), change)?;
    let mut seen = BTreeSet::new();
    for op in &change.ops {
        if !seen.insert(&op.key) {
            let message = format!("key {} stands twice", shown(&op.key));
            return Err(Refusal::new(code::INVALID_REQUEST, message));
        }
    }
    let stored: BTreeMap<&str, &str> = draft
        .image()
        .configs(change.kind, &change.name)
        .map(|configs| configs.iter().collect())
        .unwrap_or_default();
    let mut records = Vec::new();
    for op in &change.ops {
        let key = find(change.kind, &op.key)?;
        let was = stored.get(key.name).copied();
        let value = new_value(op, key, was)?;
        check_change(change.kind, key, was, value.as_deref())?;
        if was != value.as_deref() {
            records.push(config_record(change.kind, &change.name, key.name, value.as_deref()));
        }
    }
    records.into_iter().try_for_each(|record| draft.push(record))
}

fn check_resource(image: &MetadataImage, change: &ConfigChange) -> Result<(), Refusal> {
    let name = &change.name;
    match change.kind {
        ResourceType::MIRROR => check_mirror(image, name),
        ResourceType::TOPIC if image.topic(name).is_some() => Ok(()),
        ResourceType::TOPIC => {
            let message = format!("topic {} does not exist", shown(name));
            Err(Refusal::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, message))
        }
        ResourceType::BROKER if name.is_empty() => Ok(()),
        ResourceType::BROKER => {
            let id = name.parse().ok().map(BrokerId);
            if id.is_some_and(|id| image.broker(id).is_some()) {
                return Ok(());
            }
            let message = format!("no broker has node ID {}", shown(name));
            Err(Refusal::new(code::BROKER_ID_NOT_REGISTERED, message))
        }
        kind => {
            let message = format!("a {kind} has no configs here; topics, brokers, mirrors have");
            Err(Refusal::new(code::INVALID_REQUEST, message))
        }
    }
}

/// The value after an operation; `None` for the default.
fn new_value(op: &ConfigOp, key: &Key, was: Option<&str>) -> Result<Option<String>, Refusal> {
    let given = || {
        op.value.as_deref().map(str::trim).ok_or_else(|| {
            Refusal::new(code::INVALID_REQUEST, format!("key {} without a value", key.name))
        })
    };
    match op.kind {
        ConfigOpKind::Delete => Ok(None),
        ConfigOpKind::Set => Ok(Some(given()?.to_owned())),
        ConfigOpKind::Append | ConfigOpKind::Subtract if key.values != KeyType::List => {
            let message = format!("{} is no list: set it instead", key.name);
            Err(Refusal::new(code::INVALID_CONFIG, message))
        }
        ConfigOpKind::Append | ConfigOpKind::Subtract => {
            // The default counts, or the first append would lose it.
            let was = was.unwrap_or(key.default);
            let mut parts = parts(was);
            let given = self::parts(given()?);
            if op.kind == ConfigOpKind::Subtract {
                parts.retain(|part| !given.contains(part));
            } else {
                for part in given {
                    if !parts.contains(&part) {
                        parts.push(part);
                    }
                }
            }
            Ok(Some(parts.join(",")))
        }
    }
}

fn parts(list: &str) -> Vec<&str> {
    split_patterns(list).into_iter().filter(|part| !part.is_empty()).collect()
}

/// What the value may be, beyond its type.
pub(super) fn check_change(
    kind: ResourceType,
    key: &Key,
    was: Option<&str>,
    value: Option<&str>,
) -> Result<(), Refusal> {
    if let Some(value) = value {
        check_value(key, value)?;
    }
    if kind != ResourceType::MIRROR {
        return Ok(());
    }
    let refused = |message: &str| Err(Refusal::new(code::INVALID_CONFIG, message));
    match key.name {
        BOOTSTRAP_SERVERS if value.is_none_or(|value| parts(value).is_empty()) => {
            refused("a mirror needs bootstrap.servers: give host:port of brokers of the source")
        }
        SOURCE_CLUSTER_ID if was.is_some() && was != value => refused(
            "mirror.source.cluster.id stays what it is: a copy of one cluster cannot go on with \
             another; create another mirror",
        ),
        INCLUDE | EXCLUDE => {
            let parsed = Patterns::parse(value.unwrap_or_default()).map(|_| ());
            parsed.map_err(|it| Refusal { code: code::INVALID_CONFIG, ..it })
        }
        _ => Ok(()),
    }
}
