//! What each action asks of the host.

use std::fs;
use std::path::Path;

use heliostat_core::log::{FileKind, properties};
use heliostat_core::select::{Selection, TopicSelector, is_legal_name};
use heliostat_io::admin::{
    AdminClient, ConfigResource, DeleteOptions, StartOptions, StopOptions, TopicOutcome,
};

use super::args::{MirrorsArgs, TopicsWish, Verb, Wish};
use super::tables;
use super::wait::{Goal, wait};
use crate::admin_args::{ask, refused};
use crate::failure::Failure;
use crate::output::say;

/// `mirror.failed.retry.max.attempts` of a host that does not say.
const ATTEMPTS_MAX: &str = "10";
/// Refused topics that a failure names.
const TOPICS_SHOWN: usize = 5;

/// Does what the arguments ask for.
pub(crate) fn run(args: &MirrorsArgs) -> Result<bool, Failure> {
    let wish = args.wish()?;
    let mut client = args.admin.client()?;
    ask(async move {
        match wish {
            Wish::Create { mirror, config } => create(&mut client, &mirror, &config).await,
            Wish::Topics(wish) => topics(&mut client, &wish).await,
            Wish::Delete { mirror, dry_run } => delete(&mut client, &mirror, dry_run).await,
            Wish::List => {
                let mirrors = client.list_cluster_mirrors(false).await;
                say(tables::list(&mirrors.map_err(|error| refused("mirrors", error))?))
            }
            Wish::Describe { mirror, json, failed } => {
                describe(&mut client, mirror, json, failed).await
            }
        }
    })?;
    Ok(true)
}

async fn create(client: &mut AdminClient, mirror: &str, config: &Path) -> Result<(), Failure> {
    let name = config.display().to_string();
    let bytes = fs::read(config).map_err(|error| {
        let failure = Failure::from_error(&name, error);
        failure.remedy("name a readable file with --mirror-config")
    })?;
    let pairs = properties::parse(FileKind::Configuration, &bytes)
        .map_err(|error| Failure::from_error(&name, error))?;
    let created = client.create_cluster_mirror(mirror, pairs).await;
    created.map_err(|error| refused(format!("mirror {mirror}"), error))?;
    say(format!("Created mirror {mirror}"))
}

async fn delete(client: &mut AdminClient, mirror: &str, dry_run: bool) -> Result<(), Failure> {
    let options = DeleteOptions { validate_only: dry_run };
    let deleted = client.delete_cluster_mirror(mirror, options).await;
    deleted.map_err(|error| refused(format!("mirror {mirror}"), error))?;
    say(if dry_run {
        format!("Would delete mirror {mirror}")
    } else {
        format!("Deleted mirror {mirror}")
    })
}

async fn describe(
    client: &mut AdminClient,
    mirror: Option<String>,
    json: bool,
    failed: bool,
) -> Result<(), Failure> {
    let names: Vec<String> = mirror.into_iter().collect();
    let mirrors = client.describe_cluster_mirrors(&names).await;
    let what = names.first().map_or("mirrors".to_owned(), |name| format!("mirror {name}"));
    let mirrors = mirrors.map_err(|error| refused(what, error))?;
    let rows = tables::rows(&mirrors, failed);
    if json {
        return say(tables::json(&rows));
    }
    if !failed {
        return say(tables::partitions(&rows));
    }
    let attempts_max = if rows.is_empty() { None } else { attempts_max(client).await };
    say(tables::failed(&rows, attempts_max.as_deref().unwrap_or(ATTEMPTS_MAX)))
}

/// The host's limit of attempts. A right may be missing; then it is left at the default.
async fn attempts_max(client: &mut AdminClient) -> Option<String> {
    let cluster = client.describe_cluster().await.ok()?;
    let (broker, _) = cluster.brokers.first()?;
    let configs = client.describe_configs(&ConfigResource::Broker(*broker)).await.ok()?;
    let limit = configs.into_iter().find(|it| it.name == "mirror.failed.retry.max.attempts")?;
    limit.value
}

async fn topics(client: &mut AdminClient, wish: &TopicsWish) -> Result<(), Failure> {
    let mirror = &wish.mirror;
    let failed = |error| refused(format!("mirror {mirror}"), error);
    let outcomes = match wish.verb {
        // The host matches at the source, which only it can reach.
        Verb::Start => {
            let options = StartOptions {
                include_patterns: wish.patterns.clone(),
                exclude_patterns: wish.exclude.clone(),
                validate_only: wish.dry_run,
            };
            client.start_mirror_topics(mirror, &[], options).await.map_err(failed)?
        }
        verb => {
            let known = mirrored(client, mirror).await?;
            let topics = matching(&wish.patterns, &known)?;
            if topics.is_empty() && verb != Verb::Stop {
                Vec::new()
            } else {
                change(client, wish, &topics).await?
            }
        }
    };
    let accepted: Vec<_> = outcomes.iter().filter(|it| it.refusal.is_none()).collect();
    if let Some(text) = told(wish, &accepted, outcomes.len()) {
        say(text)?;
    }
    all_accepted(&outcomes)?;
    match wish.wait {
        Some(limit) => {
            wait(client, wish.verb, mirror, &Goal::new(wish.verb, &accepted), limit).await
        }
        None => Ok(()),
    }
}

/// What is printed; nothing if every topic was refused.
fn told(wish: &TopicsWish, accepted: &[&TopicOutcome], all: usize) -> Option<String> {
    if accepted.is_empty() && all > 0 {
        return None;
    }
    Some(match wish.verb {
        Verb::Start if wish.dry_run => tables::would_start(&wish.mirror, accepted),
        Verb::Stop if wish.dry_run => tables::would_stop(&wish.mirror, accepted),
        verb => tables::done(verb, &wish.mirror, accepted),
    })
}

async fn change(
    client: &mut AdminClient,
    wish: &TopicsWish,
    topics: &[String],
) -> Result<Vec<TopicOutcome>, Failure> {
    let mirror = &wish.mirror;
    let changed = match wish.verb {
        Verb::Pause => client.pause_mirror_topics(mirror, topics).await,
        Verb::Resume => client.resume_mirror_topics(mirror, topics).await,
        Verb::Recover => client.recover_mirror_topics(mirror, topics).await,
        Verb::Start | Verb::Stop => {
            let (patterns, validate_only) = (wish.patterns.clone(), wish.dry_run);
            let options = StopOptions { patterns, validate_only };
            client.stop_mirror_topics(mirror, topics, options).await
        }
    };
    changed.map_err(|error| refused(format!("mirror {mirror}"), error))
}

/// Topics of the mirror.
async fn mirrored(client: &mut AdminClient, mirror: &str) -> Result<Vec<String>, Failure> {
    let found = client.describe_cluster_mirrors(&[mirror.to_owned()]).await;
    let found = found.map_err(|error| refused(format!("mirror {mirror}"), error))?;
    Ok(found.into_iter().flat_map(|it| it.topics.into_keys()).collect())
}

/// Topics that the patterns match, and names that are none of them: the host says what is wrong
/// with those.
fn matching(patterns: &[String], known: &[String]) -> Result<Vec<String>, Failure> {
    let mut topics: Vec<String> = Vec::new();
    for pattern in patterns {
        let selector = TopicSelector::for_discovery(("--topics", pattern), ("--exclude", ""))
            .map_err(|error| Failure::new(error.to_string()))?;
        // What Kafka made for itself is refused at a start and not at a failover.
        let is_matched = |topic: &&String| selector.decide(topic, false) != Selection::NotIncluded;
        let matched: Vec<_> = known.iter().filter(is_matched).cloned().collect();
        if matched.is_empty() && is_legal_name(pattern) {
            topics.push(pattern.clone());
        }
        topics.extend(matched);
    }
    topics.sort_unstable();
    topics.dedup();
    Ok(topics)
}

/// One line of the topics that were refused.
fn all_accepted(outcomes: &[TopicOutcome]) -> Result<(), Failure> {
    let refusal = |it: &TopicOutcome| {
        it.refusal.as_ref().map(|refusal| format!("topic {}: {refusal}", it.topic))
    };
    let refused: Vec<_> = outcomes.iter().filter_map(refusal).collect();
    if refused.is_empty() {
        return Ok(());
    }
    let mut text = refused.iter().take(TOPICS_SHOWN).cloned().collect::<Vec<_>>().join("; ");
    if refused.len() > TOPICS_SHOWN {
        text = format!("{text}; and {} more topics", refused.len() - TOPICS_SHOWN);
    }
    Err(Failure::new(text))
}

#[cfg(test)]
mod tests {
    use heliostat_core::protocol::ErrorCode;
    use heliostat_io::admin::Refusal;

    use super::*;

    #[test]
    fn patterns_are_matched_among_the_mirrors_topics() {
        let known = ["orders-a", "orders-b", "pay", "app-x-changelog"].map(str::to_owned);
        let matched = |patterns: &[&str]| {
            let patterns: Vec<_> = patterns.iter().map(|it| (*it).to_owned()).collect();
            matching(&patterns, &known).unwrap()
        };
        assert_eq!(matched(&["orders-.*"]), ["orders-a", "orders-b"]);
        assert_eq!(matched(&["pay", "p.*"]), ["pay"]);
        assert_eq!(matched(&[".*"]).len(), 4, "a failover takes all");
        assert_eq!(matched(&["typo", "x.*"]), ["typo"], "a name is asked for, a pattern is not");
    }

    fn outcome(topic: &str, code: i16) -> TopicOutcome {
        let refusal = Refusal { code: ErrorCode(code), message: Some("why".to_owned()) };
        TopicOutcome {
            topic: topic.to_owned(),
            refusal: Some(refusal).filter(|_| code != 0),
            partitions: None,
            lag: None,
            state: None,
        }
    }

    #[test]
    fn refused_topics_are_one_line() {
        assert!(all_accepted(&[outcome("a", 0)]).is_ok());
        let failure = all_accepted(&[outcome("a", 139), outcome("b", 0)]).unwrap_err();
        assert_eq!(failure.to_string(), "topic a: TOPIC_NOT_IN_CLUSTER_MIRROR (139): why");
        let many: Vec<_> = (0..8).map(|n| outcome(&n.to_string(), 3)).collect();
        let failure = all_accepted(&many).unwrap_err().to_string();
        assert!(
            failure.ends_with("topic 4: UNKNOWN_TOPIC_OR_PARTITION (3): why; and 3 more topics")
        );
    }

    #[test]
    fn nothing_is_said_to_be_done_where_all_is_refused() {
        let wish = TopicsWish {
            verb: Verb::Pause,
            mirror: "m".to_owned(),
            patterns: vec!["a".to_owned()],
            exclude: Vec::new(),
            dry_run: false,
            wait: None,
        };
        assert_eq!(told(&wish, &[], 1), None);
        let nothing = "Paused mirroring for 0 topic(s) in mirror m: []";
        assert_eq!(told(&wish, &[], 0).as_deref(), Some(nothing));
        let a = outcome("a", 0);
        let stop = TopicsWish { verb: Verb::Stop, dry_run: true, ..wish };
        assert!(told(&stop, &[&a], 1).unwrap().starts_with("Would stop mirroring for 1 topic(s)"));
    }
}
