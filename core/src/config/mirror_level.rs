//! Configs of a mirror that a host keeps: they are stored with the mirror, checked when it is
//! created and altered, and win over what the host's file says of the same keys.

use std::collections::BTreeMap;
use std::time::Duration;

use super::key::{INT_MAX, KEYS, Key, KeyType, LONG_MAX, number, other};
use super::listen::ListenAddress;
use super::mirror_config::{ConfigError, MirrorConfig};
use super::values::{Values, wrong};
use crate::select::TopicSelector;

/// Identity of the source, resolved at create.
pub const MIRROR_SOURCE_CLUSTER_ID: &str = "mirror.source.cluster.id";

const TOPICS_INCLUDE: &str = "mirror.topics.include";
const TOPICS_EXCLUDE: &str = "mirror.topics.exclude";
const GROUPS_INCLUDE: &str = "mirror.groups.include";
const GROUPS_EXCLUDE: &str = "mirror.groups.exclude";
const ACLS_INCLUDE: &str = "mirror.acls.include";
const TOPIC_PROPERTIES_EXCLUDE: &str = "mirror.topic.properties.exclude";
const SOCKET_TIMEOUT: &str = "mirror.socket.timeout.ms";
const SOCKET_RECEIVE_BUFFER: &str = "mirror.socket.receive.buffer.bytes";

/// What can be in the first field of a rule of [`ACLS_INCLUDE`].
const ACL_RESOURCES: [&str; 7] =
    ["*", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"];

/// Keys of [`KEYS`] that a mirror may set.
const OF_THE_SOURCE: [&str; 15] = [
    "bootstrap.servers",
    "security.protocol",
    "request.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "reconnect.backoff.ms",
    "reconnect.backoff.max.ms",
    "receive.buffer.bytes",
    "send.buffer.bytes",
    "mirror.fetch.wait.max.ms",
    "mirror.fetch.backoff.ms",
    "mirror.fetch.min.bytes",
    "mirror.fetch.linger.ms",
    "mirror.fetch.response.max.bytes",
    "mirror.fetch.max.bytes",
    "mirror.gap.policy",
];

/// Keys that change what is looked for at the next refresh, and nothing that runs.
const FILTERS: [&str; 6] = [
    TOPICS_INCLUDE,
    TOPICS_EXCLUDE,
    GROUPS_INCLUDE,
    GROUPS_EXCLUDE,
    ACLS_INCLUDE,
    TOPIC_PROPERTIES_EXCLUDE,
];

/// Keys that a mirror has beside those of [`KEYS`] that it may set.
pub const MIRROR_LEVEL_KEYS: &[Key] = &[
    other(
        MIRROR_SOURCE_CLUSTER_ID,
        KeyType::Text,
        "",
        "cluster ID of the source; asked of the source at create",
    ),
    number(
        "socket.connection.setup.timeout.max.ms",
        1,
        LONG_MAX,
        "30000",
        "longest wait for a connection to the source after failures, in milliseconds",
    ),
    number(
        "connections.max.idle.ms",
        1,
        LONG_MAX,
        "600000",
        "time without a question, in milliseconds, after which a connection is closed",
    ),
    number(
        SOCKET_TIMEOUT,
        1,
        INT_MAX,
        "30000",
        "longest wait for an answer to a fetch, in milliseconds",
    ),
    number(
        SOCKET_RECEIVE_BUFFER,
        -1,
        INT_MAX,
        "-1",
        "receive buffer of a socket that fetches; -1 leaves it to the kernel, which adapts it",
    ),
    other(
        TOPIC_PROPERTIES_EXCLUDE,
        KeyType::List,
        "follower.replication.throttled.replicas,leader.replication.throttled.replicas,\
         message.timestamp.difference.max.ms,log.message.timestamp.before.max.ms,\
         log.message.timestamp.after.max.ms,message.timestamp.type,\
         unclean.leader.election.enable,min.insync.replicas",
        "topic configs that are not copied",
    ),
    other(
        TOPICS_INCLUDE,
        KeyType::List,
        "",
        "patterns of topics that are mirrored as they appear at the source; none by default",
    ),
    other(TOPICS_EXCLUDE, KeyType::List, "__.*", "patterns of topics that are not; they win"),
    other(GROUPS_INCLUDE, KeyType::List, ".*", "patterns of groups whose offsets are copied"),
    other(GROUPS_EXCLUDE, KeyType::List, "", "patterns of groups whose offsets are not; they win"),
    other(ACLS_INCLUDE, KeyType::List, "*", "rules of the ACLs that are copied"),
];

/// Configs of one mirror, checked.
#[derive(Clone, Debug)]
pub struct MirrorLevelConfig {
    /// The source, and how it is fetched from; the host's values where the mirror has none.
    /// `bootstrap_servers` is not empty.
    pub source: MirrorConfig,
    /// `mirror.source.cluster.id`; `None` until the source has been asked.
    pub source_cluster_id: Option<String>,
    /// `socket.connection.setup.timeout.max.ms`
    pub connection_setup_timeout_max: Duration,
    /// `connections.max.idle.ms`
    pub idle_max: Duration,
    /// `mirror.socket.timeout.ms`
    pub socket_timeout: Duration,
    /// `mirror.topics.include` and `mirror.topics.exclude`. Includes nothing by default.
    pub topics: TopicSelector,
    /// `mirror.topics.include`, as stored.
    pub topics_include: Vec<String>,
    /// `mirror.topics.exclude`, as stored.
    pub topics_exclude: Vec<String>,
    /// `mirror.groups.include`, as stored.
    pub groups_include: Vec<String>,
    /// `mirror.groups.exclude`, as stored.
    pub groups_exclude: Vec<String>,
    /// `mirror.acls.include`, as stored.
    pub acls_include: Vec<String>,
    /// `mirror.topic.properties.exclude`
    pub topic_properties_exclude: Vec<String>,
}

/// What a change of a mirror's configs leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConfigChange {
    /// No value differs from before.
    Nothing,
    /// Other topics, groups or ACLs from the next refresh on; connections stay.
    Filters,
    /// Connections to the source are opened anew.
    Reconnect,
}

impl MirrorLevelConfig {
    /// Checks what is stored, or is to be stored, of a mirror. `defaults` is what the host's
    /// file says of keys that a mirror may set.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] with the first key that is wrong: `INVALID_CONFIG` to a client.
    pub fn from_pairs(
        defaults: &[(String, String)],
        pairs: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let values = Values::from_pairs(known(), pairs)?;
        let is_ours = |name: &str| known().any(|key| key.name == name);
        let of_host = defaults.iter().filter(|(name, _)| is_ours(name)).cloned();
        let own = values.pairs(|_| true);
        // The host's values first, so that the mirror's win.
        let merged = Values::from_pairs(known(), of_host.chain(own))?;
        let rest = defaults.iter().filter(|(name, _)| !is_ours(name)).cloned();
        check(&values, &merged, rest)
    }

    /// What it leads to when the stored pairs become other ones.
    #[must_use]
    pub fn change(
        before: &BTreeMap<String, String>,
        after: &BTreeMap<String, String>,
    ) -> ConfigChange {
        let value = |pairs: &BTreeMap<String, String>, name: &str| {
            let default = known().find(|key| key.name == name).map_or("", |key| key.default);
            pairs.get(name).map_or(default, |value| value.trim()).to_owned()
        };
        let names = before.keys().chain(after.keys());
        let changed = names.filter(|name| value(before, name) != value(after, name));
        let leads_to = |name: &String| {
            if FILTERS.contains(&name.as_str()) {
                ConfigChange::Filters
            } else {
                ConfigChange::Reconnect
            }
        };
        changed.map(leads_to).max().unwrap_or(ConfigChange::Nothing)
    }

    /// Refuses another source cluster for a mirror that has one: the copy would be of both.
    ///
    /// # Errors
    ///
    /// [`ConfigError::Fixed`].
    pub fn check_identity(
        before: &BTreeMap<String, String>,
        after: &BTreeMap<String, String>,
    ) -> Result<(), ConfigError> {
        let key = MIRROR_SOURCE_CLUSTER_ID;
        match before.get(key).filter(|is| !is.is_empty()) {
            Some(is) if after.get(key) != Some(is) => {
                Err(ConfigError::Fixed { key, is: is.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Every key that a mirror may set, with its default and meaning.
    pub fn keys() -> impl Iterator<Item = &'static Key> {
        known()
    }
}

fn known() -> impl Iterator<Item = &'static Key> {
    let of_the_source = KEYS.iter().filter(|key| OF_THE_SOURCE.contains(&key.name));
    of_the_source.chain(MIRROR_LEVEL_KEYS)
}

fn check(
    own: &Values,
    values: &Values,
    rest: impl Iterator<Item = (String, String)>,
) -> Result<MirrorLevelConfig, ConfigError> {
    servers(own)?;
    values.ordered("mirror.fetch.wait.max.ms", SOCKET_TIMEOUT)?;
    values
        .ordered("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms")?;
    let of_source = values.pairs(|name| OF_THE_SOURCE.contains(&name));
    let mut source = MirrorConfig::from_pairs(rest.chain(of_source))?;
    if values.given(SOCKET_RECEIVE_BUFFER).is_some() {
        source.receive_buffer_bytes = values.buffer(SOCKET_RECEIVE_BUFFER);
    }
    let topics = TopicSelector::for_discovery(
        (TOPICS_INCLUDE, values.text(TOPICS_INCLUDE)),
        (TOPICS_EXCLUDE, values.text(TOPICS_EXCLUDE)),
    )?;
    // Only that they compile: what is kept is the text.
    TopicSelector::for_discovery(
        (GROUPS_INCLUDE, values.text(GROUPS_INCLUDE)),
        (GROUPS_EXCLUDE, values.text(GROUPS_EXCLUDE)),
    )?;
    let source_cluster_id = values.text(MIRROR_SOURCE_CLUSTER_ID);
    Ok(MirrorLevelConfig {
        source,
        source_cluster_id: (!source_cluster_id.is_empty()).then(|| source_cluster_id.to_owned()),
        connection_setup_timeout_max: values.millis("socket.connection.setup.timeout.max.ms"),
        idle_max: values.millis("connections.max.idle.ms"),
        socket_timeout: values.millis(SOCKET_TIMEOUT),
        topics,
        topics_include: patterns(values, TOPICS_INCLUDE),
        topics_exclude: patterns(values, TOPICS_EXCLUDE),
        groups_include: patterns(values, GROUPS_INCLUDE),
        groups_exclude: patterns(values, GROUPS_EXCLUDE),
        acls_include: acl_rules(values)?,
        topic_properties_exclude: values.list(TOPIC_PROPERTIES_EXCLUDE),
    })
}

/// Where the source is: the one thing that a mirror cannot do without.
fn servers(values: &Values) -> Result<(), ConfigError> {
    let key = "bootstrap.servers";
    values.required(key)?;
    let servers = values.list(key);
    let is_server = |text: &String| {
        ListenAddress::parse(text).is_some_and(|at| !at.host.is_empty() && at.port > 0)
    };
    if servers.is_empty() || !servers.iter().all(is_server) {
        return Err(wrong(key, values.text(key), "HOST:PORT of brokers, commas between several"));
    }
    Ok(())
}

/// Divided where patterns are, and not inside of one.
fn patterns(values: &Values, key: &'static str) -> Vec<String> {
    let entries = crate::select::split_patterns(values.text(key)).into_iter();
    entries.filter(|entry| !entry.is_empty()).map(str::to_owned).collect()
}

fn acl_rules(values: &Values) -> Result<Vec<String>, ConfigError> {
    const FIELDS_MAX: usize = 5;
    let rules = values.list(ACLS_INCLUDE);
    for rule in &rules {
        let fields: Vec<_> = rule.split(';').map(str::trim).collect();
        let resource = fields.first().copied().unwrap_or_default();
        if fields.len() > FIELDS_MAX || !ACL_RESOURCES.contains(&resource) {
            let want = format!(
                "resourceType;resourceName;operation;permissionType;principal with one of {}",
                ACL_RESOURCES.join(", ")
            );
            return Err(wrong(ACLS_INCLUDE, rule, want));
        }
    }
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::Selection;

    fn pairs(text: &[(&str, &str)]) -> Vec<(String, String)> {
        text.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn config(more: &[(&str, &str)]) -> Result<MirrorLevelConfig, String> {
        let all = [&[("bootstrap.servers", "a:9092")], more].concat();
        MirrorLevelConfig::from_pairs(&[], pairs(&all)).map_err(|error| error.to_string())
    }

    #[test]
    fn the_least_mirror_has_the_kips_filters() {
        let it = config(&[]).unwrap();
        assert_eq!(it.source.bootstrap_servers, ["a:9092"]);
        assert_eq!((it.source_cluster_id, it.topics_include.len()), (None, 0));
        assert_eq!(
            (it.topics_exclude, it.groups_include),
            (vec!["__.*".into()], vec![".*".into()])
        );
        assert_eq!((it.acls_include, it.topic_properties_exclude.len()), (vec!["*".into()], 8));
        assert_eq!(it.topics.decide("orders", false), Selection::NotIncluded);
        assert_eq!(it.source.fetch, MirrorConfig::default().fetch);
        for key in MirrorLevelConfig::keys().filter(|key| key.name != "bootstrap.servers") {
            assert!(config(&[(key.name, key.default)]).is_ok(), "{}", key.name);
            assert!(!key.doc.ends_with('.'), "{}", key.name);
        }
    }

    #[test]
    fn patterns_are_kafkas() {
        let it = config(&[
            ("mirror.topics.include", " orders.* , pay{1,2}"),
            ("mirror.topics.exclude", ".*-test"),
        ])
        .unwrap();
        assert_eq!(it.topics_include, ["orders.*", "pay{1,2}"]);
        assert_eq!(it.topics.decide("payy", false), Selection::Selected);
        assert_eq!(it.topics.decide("my-orders", false), Selection::NotIncluded);
        assert_eq!(it.topics.decide("orders-test", false), Selection::Excluded);
        // An empty list excludes nothing, but for what is refused anyway.
        let it = config(&[("mirror.topics.include", ".*"), ("mirror.topics.exclude", "")]).unwrap();
        assert_eq!(it.topics.decide("orders-test", false), Selection::Selected);
        assert_eq!(it.topics.decide("__consumer_offsets", true), Selection::Internal);
    }

    #[test]
    fn the_mirror_wins_over_its_host_and_the_host_over_the_defaults() {
        let host = pairs(&[
            ("mirror.fetch.max.bytes", "1000"),
            ("mirror.fetch.min.bytes", "7"),
            ("mirror.socket.receive.buffer.bytes", "4096"),
            ("segment.bytes", "2048"),
        ]);
        let own = pairs(&[("bootstrap.servers", "a:1"), ("mirror.fetch.max.bytes", "2000")]);
        let it = MirrorLevelConfig::from_pairs(&host, own).unwrap();
        assert_eq!((it.source.fetch.partition_max_bytes, it.source.fetch.min_bytes), (2_000, 7));
        assert_eq!(it.source.receive_buffer_bytes, Some(4_096));
        assert_eq!(it.source.log.segment_bytes(), 2_048);
    }

    #[track_caller]
    fn refused(key: &str, value: &str, message: &str) {
        assert_eq!(config(&[(key, value)]).unwrap_err(), message);
    }

    #[test]
    fn errors_name_the_key_the_value_and_what_is_wanted() {
        let nothing = MirrorLevelConfig::from_pairs(&[], []).unwrap_err().to_string();
        assert!(nothing.starts_with("bootstrap.servers is missing: host:port of"), "{nothing}");
        let want = "HOST:PORT of brokers, commas between several";
        for bad in ["kafka1", "a:1,b", "a:0", ":9092", ","] {
            let message = format!("bootstrap.servers={bad}: want {want}");
            refused("bootstrap.servers", bad, &message);
        }
        refused(
            "mirror.topics.includes",
            "a",
            "unknown key mirror.topics.includes; did you mean mirror.topics.include?",
        );
        // The host's, and not a mirror's.
        assert!(config(&[("mirror.shard.memory.bytes", "5000000")]).is_err());
        refused(
            "mirror.topics.include",
            "a,b(",
            "mirror.topics.include: pattern 2 (\"b(\") is no regular expression: unclosed group \
             at character 2; patterns are separated by commas, a literal dot is written \\.",
        );
        refused(
            "mirror.socket.timeout.ms",
            "10",
            "mirror.fetch.wait.max.ms=1000 must not be above mirror.socket.timeout.ms=10",
        );
        let acl = config(&[("mirror.acls.include", "TOPIC;a;READ,QUEUE;b")]).unwrap_err();
        assert!(acl.starts_with("mirror.acls.include=QUEUE;b: want resourceType;"), "{acl}");
        assert!(config(&[("mirror.acls.include", "*;*;*;*;User:app-.*")]).is_ok());
    }

    #[test]
    fn security_is_refused_and_secrets_are_not_shown() {
        assert!(config(&[("security.protocol", "PLAINTEXT")]).is_ok());
        for (key, value) in [
            ("security.protocol", "SASL_SSL"),
            ("sasl.jaas.config", "password=s3cret"),
            ("ssl.truststore.password", "s3cret"),
        ] {
            let error = config(&[(key, value)]).unwrap_err();
            assert!(error.starts_with(key) && error.contains("PLAINTEXT only"), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[track_caller]
    fn changes(before: &[(&str, &str)], after: &[(&str, &str)], want: ConfigChange) {
        let map = |text: &[(&str, &str)]| pairs(text).into_iter().collect();
        assert_eq!(MirrorLevelConfig::change(&map(before), &map(after)), want, "{after:?}");
        assert_eq!(MirrorLevelConfig::change(&map(after), &map(before)), want, "{after:?}");
    }

    #[test]
    fn filters_do_not_reconnect_and_everything_else_does() {
        let base = ("bootstrap.servers", "a:1");
        changes(&[base], &[base], ConfigChange::Nothing);
        changes(&[base], &[("bootstrap.servers", "b:1")], ConfigChange::Reconnect);
        for key in FILTERS {
            changes(&[base], &[base, (key, "x")], ConfigChange::Filters);
            let both = [base, (key, "x"), ("request.timeout.ms", "40000")];
            changes(&[base], &both, ConfigChange::Reconnect);
        }
        // The default, spelled out.
        changes(&[base], &[base, ("request.timeout.ms", "30000")], ConfigChange::Nothing);
        changes(&[base], &[base, ("mirror.topics.exclude", "__.*")], ConfigChange::Nothing);
        for key in MirrorLevelConfig::keys().filter(|key| !FILTERS.contains(&key.name)) {
            changes(&[], &[(key.name, "x")], ConfigChange::Reconnect);
        }
    }

    #[test]
    fn a_mirror_stays_with_its_source() {
        let map = |text: &[(&str, &str)]| pairs(text).into_iter().collect::<BTreeMap<_, _>>();
        let (none, a, b) = (
            map(&[]),
            map(&[(MIRROR_SOURCE_CLUSTER_ID, "a")]),
            map(&[(MIRROR_SOURCE_CLUSTER_ID, "b")]),
        );
        let check = MirrorLevelConfig::check_identity;
        assert_eq!((check(&none, &a), check(&a, &a)), (Ok(()), Ok(())));
        for other in [&b, &none] {
            assert_eq!(
                check(&a, other).unwrap_err().to_string(),
                "mirror.source.cluster.id is a and stays so; make another mirror for another \
                 source"
            );
        }
    }
}
