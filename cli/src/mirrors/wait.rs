//! `--wait`: until every partition has reached the state that was asked for.

use std::collections::BTreeMap;
use std::time::Duration;

use heliostat_io::admin::{AdminClient, AdminError, MirrorDescription, TopicOutcome};
use tokio::time::{Instant, sleep_until};

use super::args::Verb;
use crate::failure::Failure;
use crate::output::{Meter, counted};

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Partitions that a failure names.
const NAMES_SHOWN: usize = 3;

/// What is waited for.
#[derive(Clone, Debug)]
pub(super) struct Goal {
    state: &'static str,
    /// Topics, with the number of their partitions if the host told it.
    topics: BTreeMap<String, Option<u32>>,
}

/// How far it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) done: usize,
    pub(super) all: usize,
    /// A topic that is not described yet has partitions that nobody knows.
    pub(super) complete: bool,
    /// Partitions by state, for progress.
    pub(super) states: String,
    /// Some of the partitions that are elsewhere, with their reasons.
    pub(super) missing: String,
}

impl Goal {
    pub(super) fn new(verb: Verb, topics: &[&TopicOutcome]) -> Self {
        let topics = topics.iter().map(|topic| (topic.topic.clone(), topic.partitions));
        Self { state: verb.goal(), topics: topics.collect() }
    }

    /// Holds a description against it.
    pub(super) fn standing(&self, mirror: Option<&MirrorDescription>) -> Standing {
        let (mut done, mut all, mut complete) = (0, 0, true);
        let mut states = BTreeMap::<&str, usize>::new();
        let mut missing = Vec::new();
        for (topic, count) in &self.topics {
            let partitions = mirror.and_then(|mirror| mirror.topics.get(topic));
            let partitions = partitions.map_or(&[][..], Vec::as_slice);
            let known = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(1);
            complete &= partitions.len() >= known;
            all += partitions.len().max(known);
            if partitions.is_empty() {
                missing.push(format!("{topic} is not there yet"));
            }
            for partition in partitions {
                *states.entry(&partition.state).or_default() += 1;
                if partition.state == self.state {
                    done += 1;
                    continue;
                }
                let mut text = format!("{topic}-{} is {}", partition.index, partition.state);
                if let Some(reason) = &partition.error_message {
                    text = format!("{text} ({reason})");
                }
                missing.push(text);
            }
        }
        let states: Vec<_> =
            states.iter().map(|(state, count)| format!("{state} {count}")).collect();
        missing.truncate(NAMES_SHOWN);
        let (states, missing) = (states.join(", "), missing.join("; "));
        Standing { done, all, complete, states, missing }
    }
}

impl Standing {
    fn is_reached(&self) -> bool {
        self.complete && self.done == self.all
    }
}

/// Looks until the goal is reached. A host that does not answer for a while is asked again.
pub(super) async fn wait(
    client: &mut AdminClient,
    verb: Verb,
    mirror: &str,
    goal: &Goal,
    limit: Duration,
) -> Result<(), Failure> {
    let deadline = Instant::now() + limit;
    let names = [mirror.to_owned()];
    let mut meter = Meter::new(verb.name());
    let outcome = loop {
        let look = client.describe_cluster_mirrors(&names).await;
        let standing = match look {
            Ok(found) => Ok(goal.standing(found.iter().find(|it| it.name == mirror))),
            Err(error @ (AdminError::Unanswered { .. } | AdminError::Timeout { .. })) => Err(error),
            Err(error) => break Err(Failure::from_error(format!("mirror {mirror}"), error)),
        };
        if let Ok(standing) = &standing {
            meter.show(count(standing.done), count(standing.all), &standing.states);
            if standing.is_reached() {
                break Ok(());
            }
        }
        if Instant::now() >= deadline {
            break Err(too_late(goal, limit, standing));
        }
        sleep_until((Instant::now() + LOOK_EVERY).min(deadline)).await;
    };
    meter.done();
    outcome
}

fn too_late(goal: &Goal, limit: Duration, standing: Result<Standing, AdminError>) -> Failure {
    let seconds = limit.as_secs();
    match standing {
        Ok(standing) => {
            let left = counted(standing.all - standing.done, "partition");
            let (state, all, missing) = (goal.state, standing.all, standing.missing);
            let text = format!("after {seconds} s {left} of {all} not {state}: {missing}");
            Failure::new(text).remedy("it goes on; look with --describe")
        }
        Err(error) => Failure::from_error(format!("after {seconds} s"), error)
            .remedy("what was asked for stands; look with --describe"),
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use heliostat_core::types::LeaderEpoch;
    use heliostat_io::admin::MirrorPartition;

    use super::*;

    fn outcome(topic: &str, partitions: Option<u32>) -> TopicOutcome {
        TopicOutcome { topic: topic.to_owned(), refusal: None, partitions, lag: None, state: None }
    }

    fn described(topics: &[(&str, &[&str])]) -> MirrorDescription {
        let partition = |(index, state): (i32, &&str)| MirrorPartition {
            index,
            source_offset: None,
            destination_offset: None,
            lag: None,
            state: (*state).to_owned(),
            last_mirror_epoch: LeaderEpoch::NONE,
            last_mirror_offset: None,
            retry_attempt: 0,
            error_message: (*state == "FAILED").then(|| "disk full".to_owned()),
            desired_state: None,
            failing_since: None,
        };
        let topics = topics.iter().map(|(topic, states)| {
            ((*topic).to_owned(), (0..).zip(states.iter()).map(partition).collect())
        });
        MirrorDescription {
            name: "m".to_owned(),
            source_bootstrap: None,
            source_cluster_id: None,
            topics: topics.collect(),
        }
    }

    #[test]
    fn every_partition_counts() {
        let (a, b) = (outcome("a", None), outcome("b", Some(2)));
        let goal = Goal::new(Verb::Stop, &[&a, &b]);
        let mirror = described(&[
            ("a", &["STOPPED", "STOPPING"]),
            ("b", &["STOPPED", "FAILED"]),
            ("other", &["MIRRORING"]),
        ]);
        let standing = goal.standing(Some(&mirror));
        assert_eq!((standing.done, standing.all, standing.complete), (2, 4, true));
        assert_eq!(standing.states, "FAILED 1, STOPPED 2, STOPPING 1");
        assert_eq!(standing.missing, "a-1 is STOPPING; b-1 is FAILED (disk full)");
        assert!(!standing.is_reached());
        let failure = too_late(&goal, Duration::from_secs(5), Ok(standing));
        assert_eq!(
            failure.to_string(),
            "after 5 s 2 partitions of 4 not STOPPED: a-1 is STOPPING; b-1 is FAILED (disk \
             full); it goes on; look with --describe"
        );

        let mirror = described(&[("a", &["STOPPED"]), ("b", &["STOPPED", "STOPPED"])]);
        assert!(goal.standing(Some(&mirror)).is_reached());
    }

    #[test]
    fn what_is_not_described_yet_is_waited_for() {
        let (a, b) = (outcome("a", None), outcome("b", Some(2)));
        let goal = Goal::new(Verb::Start, &[&a, &b]);
        let mirror = described(&[("b", &["MIRRORING"])]);
        let standing = goal.standing(Some(&mirror));
        assert_eq!((standing.done, standing.all, standing.complete), (1, 3, false));
        assert_eq!(standing.missing, "a is not there yet");
        let standing = goal.standing(None);
        assert_eq!((standing.done, standing.all, standing.is_reached()), (0, 3, false));
        assert!(Goal::new(Verb::Start, &[]).standing(None).is_reached());
    }
}
