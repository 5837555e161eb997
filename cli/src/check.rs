//! `heliostat check`

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use heliostat_core::protocol::{Api, BrokerApis, FETCH_VERSION_ZSTD};
use heliostat_core::select::{Selection, TopicSelector};
use heliostat_io::disk::disk_space;
use heliostat_io::preflight::{Fact, Verdict, lock_fact, log_dir_facts, system_facts};
use heliostat_io::verify::source_cluster;
use serde_json::json;

use crate::failure::Failure;
use crate::output::{approximate, say, size};
use crate::shards::default_shards;
use crate::source_args::SourceArgs;
use crate::survey::{Survey, SurveyedTopic, survey};

/// What a Kafka broker sets unless told otherwise.
const SEND_BUFFER_BYTES: u64 = 100 << 10;
/// Below this, a round trip limits nobody.
const ROUND_TRIP_SHORT: Duration = Duration::from_millis(2);
/// Names that are shown in one fact.
const NAMES_SHOWN: usize = 5;

/// Arguments of `check`.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    source: SourceArgs,

    /// Topics that are to be copied; regular expressions, commas between several.
    #[arg(long, value_name = "REGEX", default_value = ".*")]
    topics: String,

    /// Topics that are not to be copied.
    #[arg(long, value_name = "REGEX", default_value = "")]
    exclude: String,

    /// Log dir that the copy is to be in.
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,

    /// Shards that the mirror is to have; default: one a core, less one.
    #[arg(long, value_name = "N")]
    shards: Option<u16>,

    /// Print one JSON document.
    #[arg(long)]
    json: bool,
}

/// Prints facts; `false` if one of them stands in the way.
pub(crate) fn run(args: &CheckArgs) -> Result<bool, Failure> {
    let settings = args.source.load()?;
    let selector = TopicSelector::new(&args.topics, &args.exclude)
        .map_err(|error| Failure::from_error("--topics", error))?;
    let mut facts = system_facts(args.shards.unwrap_or_else(default_shards));
    if let Some(dir) = &args.to {
        facts.extend(log_dir_facts(existing(dir)));
        facts.push(lock_fact(dir));
    }
    if !settings.bootstrap.is_empty() {
        match survey(&settings.client(), &selector) {
            Ok(found) => {
                facts.extend(source_facts(&found, args.to.as_deref()));
                let names: Vec<_> = found.topics.iter().map(|it| &*it.identity.name).collect();
                facts.extend(unmatched_fact(&args.topics, &names));
            }
            Err(failure) => facts.push(Fact {
                name: "source",
                // The failure begins with the name of the fact.
                value: failure.to_string().trim_start_matches("source: ").to_owned(),
                verdict: Verdict::Fail,
                meaning: "nothing can be copied".to_owned(),
                remedy: "see above; then run check again".to_owned(),
            }),
        }
    }
    if args.json {
        let facts: Vec<_> = facts
            .iter()
            .map(|fact| {
                json!({
                    "name": fact.name,
                    "value": fact.value,
                    "verdict": word(fact.verdict),
                    "meaning": fact.meaning,
                    "remedy": fact.remedy,
                })
            })
            .collect();
        say(json!({ "facts": facts }).to_string())?;
    } else {
        print(&facts)?;
    }
    Ok(facts.iter().all(|fact| fact.verdict != Verdict::Fail))
}

/// The directory itself, or the nearest above it: the mirror makes what is missing.
fn existing(dir: &Path) -> &Path {
    let found = dir.ancestors().find(|dir| dir.exists());
    found.unwrap_or_else(|| if dir.is_absolute() { dir } else { Path::new(".") })
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Ok => "ok",
        Verdict::Warn => "warn",
        Verdict::Fail => "FAIL",
    }
}

fn print(facts: &[Fact]) -> Result<(), Failure> {
    let width = facts.iter().map(|fact| fact.name.len()).max().unwrap_or(0);
    for fact in facts {
        say(format!("{:4}  {:width$}  {}", word(fact.verdict), fact.name, fact.value))?;
        say(format!("      {:width$}  {}", "", fact.meaning))?;
        if !fact.remedy.is_empty() {
            say(format!("      {:width$}  -> {}", "", fact.remedy))?;
        }
    }
    let count = |verdict| facts.iter().filter(|fact| fact.verdict == verdict).count();
    say(format!(
        "{} facts: {} in order, {} with a loss, {} in the way",
        facts.len(),
        count(Verdict::Ok),
        count(Verdict::Warn),
        count(Verdict::Fail),
    ))
}

fn fact(
    name: &'static str,
    value: impl Into<String>,
    remedy: Option<&str>,
    meaning: impl Into<String>,
) -> Fact {
    let verdict = if remedy.is_some() { Verdict::Warn } else { Verdict::Ok };
    let remedy = remedy.unwrap_or_default().to_owned();
    Fact { name, value: value.into(), verdict, meaning: meaning.into(), remedy }
}

/// What the source means for a mirror of it.
pub(crate) fn source_facts(found: &Survey, to: Option<&Path>) -> Vec<Fact> {
    let mut facts = vec![cluster_fact(found.cluster_id.as_deref(), found.brokers.len(), to)];
    facts.extend(found.apis.iter().map(|(broker, apis)| {
        let peer = found.brokers.get(broker);
        let peer = peer.map_or_else(|| broker.to_string(), |peer| format!("{broker} at {peer}"));
        match apis {
            Ok(apis) => broker_fact(&peer, *apis),
            Err(error) => Fact {
                name: "source.broker",
                value: format!("{peer}: {error}"),
                verdict: Verdict::Fail,
                meaning: "partitions that it leads cannot be copied".to_owned(),
                remedy: "let this host connect to the advertised listener of every broker"
                    .to_owned(),
            },
        }
    }));
    facts.push(round_trip_fact(found.round_trip));
    let selected: Vec<_> =
        found.topics.iter().filter(|topic| topic.selection.is_selected()).collect();
    facts.push(ids_fact(&selected));
    facts.extend(topic_facts(&selected));
    facts.push(size_fact(&selected, to));
    facts
}

/// Whether the copy that is there, if any, is this cluster's.
fn cluster_fact(cluster: Option<&str>, brokers: usize, to: Option<&Path>) -> Fact {
    const NAME: &str = "source.cluster";
    let value = format!("{} with {brokers} brokers", cluster.unwrap_or("without ID"));
    let fail = |meaning: String, remedy: &str| Fact {
        name: NAME,
        value: value.clone(),
        verdict: Verdict::Fail,
        meaning,
        remedy: remedy.to_owned(),
    };
    let Some(to) = to else {
        return fact(NAME, value, None, "the copy is bound to this cluster");
    };
    match (source_cluster(to), cluster) {
        (Err(error), _) => {
            fail(error.to_string(), "restore the file, or name another directory with --to")
        }
        (Ok(Some(owner)), Some(cluster)) if owner != cluster => fail(
            format!("{} holds a copy of cluster {owner}, not of this one", to.display()),
            "name the right source, or another directory with --to",
        ),
        (Ok(_), _) => fact(NAME, value, None, "the copy is bound to this cluster"),
    }
}

/// Patterns that no topic of the source matches; `names` are of those that any matches.
fn unmatched_fact(patterns: &str, names: &[&str]) -> Option<Fact> {
    let matches_none = |pattern: &&str| {
        // What does not compile was refused as a whole.
        TopicSelector::new(pattern, "").is_ok_and(|pattern| {
            names.iter().all(|name| pattern.decide(name, false) == Selection::NotIncluded)
        })
    };
    let unmatched: Vec<_> = patterns.split(',').map(str::trim).filter(matches_none).collect();
    (!unmatched.is_empty()).then(|| {
        fact(
            "source.topics",
            format!("nothing matches {}", unmatched.join(", ")),
            Some("check the patterns of --topics, and this client's rights to describe topics"),
            "no topic of the source has such a name, or none that is shown to this client",
        )
    })
}

fn broker_fact(peer: &str, apis: BrokerApis) -> Fact {
    const NAME: &str = "source.broker";
    let fetch = apis.fetch_version(true).or_else(|_| apis.fetch_version(false));
    match fetch {
        Ok(version) => {
            let remedy = (version < FETCH_VERSION_ZSTD)
                .then_some("upgrade the broker to Kafka 2.1 or newer, or do without zstd");
            let epochs = if apis.negotiate(Api::OffsetForLeaderEpoch).is_ok() { "" } else { "no " };
            let value = format!("{peer}: Fetch version {version}, {epochs}OffsetForLeaderEpoch");
            let meaning = match version {
                ..10 => "it refuses to send zstd data to this version",
                10..12 => "topics go by name; truncation shows itself only after a request more",
                12 => "topics go by name, so that a recreated one shows itself late",
                _ => "topics go by ID, and truncation shows itself at once",
            };
            fact(NAME, value, remedy, meaning)
        }
        Err(error) => Fact {
            name: NAME,
            value: format!("{peer}: {error}"),
            verdict: Verdict::Fail,
            meaning: "partitions that it leads cannot be copied".to_owned(),
            remedy: "upgrade the broker to Kafka 2.1 or newer".to_owned(),
        },
    }
}

/// What one connection carries, if the broker's send buffer is Kafka's default.
fn round_trip_fact(round_trip: Duration) -> Fact {
    let seconds = round_trip.as_secs_f64().max(1e-6);
    let per_connection = approximate(SEND_BUFFER_BYTES) / seconds / 1e6;
    let value = format!("{:.2} ms", round_trip.as_secs_f64() * 1e3);
    let meaning = format!(
        "a broker with the default send buffer of 100 KiB sends at most {per_connection:.0} MB/s \
         on one connection"
    );
    let remedy = (round_trip > ROUND_TRIP_SHORT).then_some(
        "set socket.send.buffer.bytes=-1 on the source's brokers, or more connections with \
         mirror.num.replica.fetchers",
    );
    fact("source.round_trip", value, remedy, meaning)
}

fn ids_fact(topics: &[&SurveyedTopic]) -> Fact {
    let without = topics.iter().filter(|topic| topic.identity.id.known().is_none()).count();
    let value = format!("{} topics, {without} without ID", topics.len());
    let remedy = (without > 0)
        .then_some("nothing, or raise inter.broker.protocol.version to 2.8 or newer at the source");
    let meaning = if without > 0 {
        "that a topic without ID was deleted and created again may go unnoticed"
    } else {
        "a topic that is deleted and created again is noticed at once"
    };
    fact("source.topic_ids", value, remedy, meaning)
}

fn names(topics: &[&&SurveyedTopic]) -> String {
    let shown = topics.iter().take(NAMES_SHOWN).map(|topic| &*topic.identity.name);
    let mut text = shown.collect::<Vec<_>>().join(", ");
    if let Some(more) = topics.len().checked_sub(NAMES_SHOWN).filter(|more| *more > 0) {
        // Writing to a string cannot fail.
        let _ = write!(text, " and {more} more");
    }
    text
}

fn topic_facts(topics: &[&SurveyedTopic]) -> Vec<Fact> {
    let mut facts = Vec::new();
    let compacted: Vec<_> = topics.iter().filter(|topic| topic.is_compacted()).collect();
    if !compacted.is_empty() {
        let meaning = "the copy is not compacted here: it grows, and verify calls it superseded";
        let remedy = "plan room for it; exclude what need not be copied with --exclude";
        facts.push(fact("source.compacted", names(&compacted), Some(remedy), meaning));
    }
    let tiered: Vec<_> = topics.iter().filter(|topic| topic.is_tiered()).collect();
    if !tiered.is_empty() {
        let meaning = "old segments are read from tiered storage, slowly, and its size is not in \
                       the broker's directories";
        let remedy = "plan time and room for it; exclude what need not be copied with --exclude";
        facts.push(fact("source.tiered", names(&tiered), Some(remedy), meaning));
    }
    let silent = topics.iter().flat_map(|topic| &topic.partitions);
    let silent: Vec<_> = silent.filter_map(|partition| partition.trouble.as_deref()).collect();
    if let Some(first) = silent.first() {
        let value = format!("{} partitions, the first: {first}", silent.len());
        let remedy = "bring the leaders back; the mirror waits for them";
        let meaning = "their leaders do not answer";
        facts.push(fact("source.leaders", value, Some(remedy), meaning));
    }
    facts
}

fn size_fact(topics: &[&SurveyedTopic], to: Option<&Path>) -> Fact {
    let bytes = topics.iter().map(|topic| topic.bytes()).sum();
    let partitions: usize = topics.iter().map(|topic| topic.partitions.len()).sum();
    let offsets: u64 = topics.iter().map(|topic| topic.offsets()).sum();
    let value = format!("about {} in {partitions} partitions, {offsets} offsets", size(bytes));
    let name = "source.size";
    let free = to.and_then(|dir| disk_space(existing(dir)).ok());
    match free {
        Some(free) if free.free_bytes < bytes => Fact {
            name,
            value,
            verdict: Verdict::Fail,
            meaning: format!("by a sample of records; only {} are free", size(free.free_bytes)),
            remedy: "free some room, name another directory, or copy fewer topics".to_owned(),
        },
        Some(free) => fact(name, value, None, format!("{} are free", size(free.free_bytes))),
        None => fact(name, value, None, "by a sample of records; --to says whether there is room"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_round_trip_names_the_send_buffer() {
        let near = round_trip_fact(Duration::from_micros(200));
        assert_eq!(near.verdict, Verdict::Ok);
        let far = round_trip_fact(Duration::from_millis(100));
        assert_eq!(far.verdict, Verdict::Warn);
        assert!(far.meaning.contains("1 MB/s"), "{}", far.meaning);
        assert!(far.remedy.contains("socket.send.buffer.bytes"), "{}", far.remedy);
    }

    #[test]
    fn a_missing_directory_is_judged_by_the_one_above() {
        assert_eq!(existing(Path::new("/tmp/absent/deeper")), Path::new("/tmp"));
        assert_eq!(existing(Path::new("absent")), Path::new("."));
    }

    #[test]
    fn a_pattern_that_matches_nothing_is_told() {
        let names = ["orders.eu", "__consumer_offsets"];
        let fact = unmatched_fact("orders.*, nosuch,__consumer.*", &names).unwrap();
        assert_eq!((fact.verdict, fact.value.as_str()), (Verdict::Warn, "nothing matches nosuch"));
        assert_eq!(unmatched_fact("orders.*", &names), None);
    }
}
