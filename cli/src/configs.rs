//! `heliostat configs`: the flags and the output of `kafka-configs.sh`.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use heliostat_core::protocol::ErrorCode;
use heliostat_core::types::BrokerId;
use heliostat_io::admin::{AdminClient, ConfigEntry, ConfigOp, ConfigResource, ConfigSource};

use crate::admin_args::{AdminArgs, ask, refused};
use crate::failure::Failure;
use crate::output::say;

/// Arguments of `configs`.
#[derive(Args, Debug)]
pub(crate) struct ConfigsArgs {
    #[command(flatten)]
    admin: AdminArgs,

    /// What has the configs.
    #[arg(long, value_enum)]
    entity_type: Option<EntityType>,

    /// Name of the mirror or topic, or node ID of the broker.
    #[arg(long, value_name = "NAME")]
    entity_name: Option<String>,

    /// Show what is set.
    #[arg(long)]
    describe: bool,

    /// With --describe: defaults as well.
    #[arg(long)]
    all: bool,

    /// Change what is set.
    #[arg(long)]
    alter: bool,

    /// Configs to set, key=value; commas between several, [a,b] around a value with commas.
    #[arg(long, value_name = "KEY=VALUE", allow_hyphen_values = true)]
    add_config: Option<String>,

    /// Keys to take away; commas between several.
    #[arg(long, value_name = "KEY")]
    delete_config: Option<String>,
}

/// What has configs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum EntityType {
    ClusterMirrors,
    Topics,
    Brokers,
}

impl EntityType {
    /// As the output calls one of them.
    fn singular(self) -> &'static str {
        match self {
            Self::ClusterMirrors => "mirror",
            Self::Topics => "topic",
            Self::Brokers => "broker",
        }
    }

    /// Whether the value was set on the thing itself.
    fn is_own(self, source: ConfigSource) -> bool {
        match self {
            Self::ClusterMirrors => source.is_dynamic(),
            Self::Topics => source == ConfigSource::DYNAMIC_TOPIC_CONFIG,
            Self::Brokers => source == ConfigSource::DYNAMIC_BROKER_CONFIG,
        }
    }

    fn resource(self, name: &str) -> Result<ConfigResource, Failure> {
        Ok(match self {
            Self::ClusterMirrors => ConfigResource::Mirror(name.to_owned()),
            Self::Topics => ConfigResource::Topic(name.to_owned()),
            Self::Brokers => {
                let id = name.parse().map_err(|_| {
                    let text = format!("--entity-name {name}: want the node ID of a broker");
                    Failure::new(text)
                })?;
                ConfigResource::Broker(BrokerId(id))
            }
        })
    }
}

/// What the arguments ask for, checked.
#[derive(Debug)]
enum Wish {
    Describe { all: bool },
    Alter { add: Vec<(String, String)>, delete: Vec<String> },
}

impl ConfigsArgs {
    fn wish(&self) -> Result<Wish, Failure> {
        let alters = self.add_config.is_some() || self.delete_config.is_some();
        match (self.describe, self.alter) {
            (true, false) if alters => {
                Err(Failure::new("--add-config and --delete-config go with --alter only"))
            }
            (true, false) => Ok(Wish::Describe { all: self.all }),
            (false, true) if self.all => Err(Failure::new("--all goes with --describe only")),
            (false, true) if !alters => {
                Err(Failure::new("--alter needs --add-config or --delete-config, or both"))
            }
            (false, true) => {
                let add = added(self.add_config.as_deref().unwrap_or_default())?;
                let delete = self.delete_config.as_deref().unwrap_or_default().split(',');
                let delete: Vec<_> = delete
                    .map(str::trim)
                    .filter(|key| !key.is_empty())
                    .map(str::to_owned)
                    .collect();
                if let Some((key, _)) = add.iter().find(|(key, _)| delete.contains(key)) {
                    let text = format!("{key} is in --add-config and in --delete-config");
                    return Err(Failure::new(text));
                }
                Ok(Wish::Alter { add, delete })
            }
            _ => Err(Failure::new("give exactly one of --describe, --alter")),
        }
    }
}

/// Describes or alters.
pub(crate) fn run(args: &ConfigsArgs) -> Result<bool, Failure> {
    let wish = args.wish()?;
    let types = "--entity-type cluster-mirrors, topics or brokers";
    let kind = args.entity_type.ok_or_else(|| Failure::new(format!("give {types}")))?;
    let name = args.entity_name.as_deref().filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| Failure::new("give --entity-name NAME"))?;
    let resource = kind.resource(name)?;
    let mut client = args.admin.client()?;
    ask(async {
        match wish {
            Wish::Describe { all } => describe(&mut client, kind, name, &resource, all).await,
            Wish::Alter { add, delete } => {
                alter(&mut client, kind, name, &resource, add, delete).await
            }
        }
    })?;
    Ok(true)
}

async fn describe(
    client: &mut AdminClient,
    kind: EntityType,
    name: &str,
    resource: &ConfigResource,
    all: bool,
) -> Result<(), Failure> {
    let entries = match client.describe_configs(resource).await {
        Ok(entries) => entries,
        Err(error)
            if kind == EntityType::Topics
                && error.code() == Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) =>
        {
            return say(format!(
                "The topic '{name}' doesn't exist and doesn't have dynamic config."
            ));
        }
        Err(error) => return Err(refused(format!("{} {name}", kind.singular()), error)),
    };
    say(described(kind, name, &entries, all))
}

/// As `kafka-configs.sh` prints it.
fn described(kind: EntityType, name: &str, entries: &[ConfigEntry], all: bool) -> String {
    let which = if all { "All" } else { "Dynamic" };
    let mut out = format!("{which} configs for {} {name} are:", kind.singular());
    for entry in entries.iter().filter(|entry| all || kind.is_own(entry.source)) {
        let synonyms = entry.synonyms.iter().map(|synonym| {
            format!(
                "{}:{}={}",
                synonym.source.name(),
                synonym.name,
                or_null(synonym.value.as_deref())
            )
        });
        // A String takes every write.
        let _ = write!(
            out,
            "\n  {}={} sensitive={} synonyms={{{}}}",
            entry.name,
            or_null(entry.value.as_deref()),
            entry.is_sensitive,
            synonyms.collect::<Vec<_>>().join(", "),
        );
    }
    out
}

fn or_null(value: Option<&str>) -> &str {
    value.unwrap_or("null")
}

async fn alter(
    client: &mut AdminClient,
    kind: EntityType,
    name: &str,
    resource: &ConfigResource,
    add: Vec<(String, String)>,
    delete: Vec<String>,
) -> Result<(), Failure> {
    let what = || format!("{} {name}", kind.singular());
    if !delete.is_empty() {
        let entries = client.describe_configs(resource).await;
        let entries = entries.map_err(|error| refused(what(), error))?;
        not_set(kind, &entries, &delete)?;
    }
    let set = add.into_iter().map(|(key, value)| (key, ConfigOp::Set(value)));
    let ops = delete.into_iter().map(|key| (key, ConfigOp::Delete)).chain(set);
    let altered = client.incremental_alter_configs(resource, ops, false).await;
    altered.map_err(|error| refused(what(), error))?;
    say(format!("Completed updating config for {} {name}.", kind.singular()))
}

/// Refuses to take away what is not there: a typo would look like success.
fn not_set(kind: EntityType, entries: &[ConfigEntry], delete: &[String]) -> Result<(), Failure> {
    let own: BTreeSet<_> = entries
        .iter()
        .filter(|entry| kind.is_own(entry.source))
        .map(|entry| entry.name.as_str())
        .collect();
    let invalid: Vec<_> =
        delete.iter().map(String::as_str).filter(|key| !own.contains(key)).collect();
    if invalid.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format!("Invalid config(s): {}", invalid.join(","))))
}

/// Pairs of `--add-config`. Commas and brackets inside of brackets belong to the value.
fn added(text: &str) -> Result<Vec<(String, String)>, Failure> {
    let mut depth = 0_u32;
    let divides = |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    let mut pairs: Vec<(String, String)> = Vec::new();
    for pair in text.split(divides).map(str::trim).filter(|pair| !pair.is_empty()) {
        let is_key = |key: &str| {
            let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            !key.is_empty() && key.chars().all(legal)
        };
        let found = pair.split_once('=').map(|(key, value)| (key.trim(), value.trim()));
        let Some((key, value)) = found.filter(|(key, _)| is_key(key)) else {
            // What stands there may be a secret.
            let text = format!("--add-config, entry {}: want key=value", pairs.len() + 1);
            return Err(Failure::new(text).remedy("write [a,b] around a value with commas"));
        };
        let bare = value.strip_prefix('[').and_then(|value| value.strip_suffix(']'));
        pairs.push((key.to_owned(), bare.unwrap_or(value).trim().to_owned()));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use heliostat_io::admin::ConfigSynonym;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: ConfigsArgs,
    }

    /// What is wrong with a line, found before anything is asked.
    fn refusal(line: &str) -> String {
        let words = ["configs"].into_iter().chain(line.split_whitespace());
        run(&Line::try_parse_from(words).unwrap().args).unwrap_err().to_string()
    }

    fn entry(name: &str, value: Option<&str>, source: i8) -> ConfigEntry {
        let synonym = |source, value: Option<&str>| ConfigSynonym {
            name: name.to_owned(),
            value: value.map(str::to_owned),
            source: ConfigSource(source),
        };
        ConfigEntry {
            name: name.to_owned(),
            value: value.map(str::to_owned),
            source: ConfigSource(source),
            is_sensitive: value.is_none(),
            is_read_only: false,
            synonyms: vec![synonym(source, value), synonym(5, Some("0"))],
        }
    }

    #[test]
    fn configs_are_printed_as_kafkas_tool_prints_them() {
        let entries = [entry("retention.ms", Some("5"), 1), entry("segment.ms", Some("7"), 5)];
        assert_eq!(
            described(EntityType::Topics, "t", &entries, false),
            "Dynamic configs for topic t are:\n  retention.ms=5 sensitive=false \
             synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5, DEFAULT_CONFIG:retention.ms=0}"
        );
        let all = described(EntityType::Topics, "t", &entries, true);
        assert!(all.starts_with("All configs for topic t are:\n") && all.contains("segment.ms=7"));
        let secret = [entry("sasl.jaas.config", None, 9)];
        assert_eq!(
            described(EntityType::ClusterMirrors, "west", &secret, false),
            "Dynamic configs for mirror west are:\n  sasl.jaas.config=null sensitive=true \
             synonyms={UNKNOWN:sasl.jaas.config=null, DEFAULT_CONFIG:sasl.jaas.config=0}"
        );
        let none = described(EntityType::Brokers, "1", &entries, false);
        assert_eq!(none, "Dynamic configs for broker 1 are:");
    }

    #[test]
    fn pairs_are_divided_as_kafkas_tool_divides_them() {
        let pairs = |text: &str| {
            let pairs = added(text).unwrap().into_iter();
            pairs.map(|(key, value)| format!("{key} {value}")).collect::<Vec<_>>()
        };
        assert_eq!(pairs("a=1, b = 2,"), ["a 1", "b 2"]);
        assert_eq!(pairs("a=[x,y],b="), ["a x,y", "b "]);
        assert_eq!(pairs("a=[[a-z]{1,2},b]"), ["a [a-z]{1,2},b"]);
        assert_eq!(pairs("a=b=c"), ["a b=c"]);
        for bad in ["a", "=1", "a b=1", "a=1,s3cret"] {
            let error = added(bad).unwrap_err().to_string();
            assert!(error.contains("want key=value") && !error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn what_is_not_set_is_not_deleted() {
        let entries = [entry("a", Some("1"), 1), entry("b", Some("1"), 5)];
        let delete = |keys: &[&str]| {
            let keys: Vec<_> = keys.iter().map(|key| (*key).to_owned()).collect();
            not_set(EntityType::Topics, &entries, &keys).map_err(|error| error.to_string())
        };
        assert_eq!(delete(&["a"]), Ok(()));
        assert_eq!(delete(&["a", "b", "c"]), Err("Invalid config(s): b,c".to_owned()));
    }

    #[test]
    fn wrong_options_are_one_line() {
        let entity = "--entity-type topics --entity-name t";
        assert_eq!(refusal(entity), "give exactly one of --describe, --alter");
        assert_eq!(
            refusal(&format!("{entity} --describe --alter")),
            "give exactly one of --describe, --alter"
        );
        assert_eq!(
            refusal(&format!("{entity} --alter")),
            "--alter needs --add-config or --delete-config, or both"
        );
        assert_eq!(
            refusal(&format!("{entity} --describe --add-config a=1")),
            "--add-config and --delete-config go with --alter only"
        );
        assert_eq!(
            refusal(&format!("{entity} --alter --all --add-config a=1")),
            "--all goes with --describe only"
        );
        assert_eq!(
            refusal(&format!("{entity} --alter --add-config a=1 --delete-config a")),
            "a is in --add-config and in --delete-config"
        );
        assert_eq!(refusal("--describe"), "give --entity-type cluster-mirrors, topics or brokers");
        assert_eq!(refusal("--describe --entity-type topics"), "give --entity-name NAME");
        assert_eq!(
            refusal("--describe --entity-type brokers --entity-name x"),
            "--entity-name x: want the node ID of a broker"
        );
        assert_eq!(
            refusal(&format!("{entity} --describe")),
            "no server is named; give --bootstrap-server HOST:PORT"
        );
        assert_eq!(
            refusal(&format!("{entity} --describe --bootstrap-server a")),
            "--bootstrap-server: \"a\" is no broker: want host:port, for example \
             kafka1.example.com:9092"
        );
    }
}
