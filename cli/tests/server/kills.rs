//! `kill -9` at any moment, while a client starts, pauses, resumes and stops topics: every wish
//! that was acknowledged holds, and nothing of the source is lost.

use std::collections::BTreeMap;
use std::convert::Infallible;

use heliostat_core::log::gaps::{GapFile, GapKind};
use heliostat_core::records::read_marker;
use heliostat_io::admin::{AdminClient, AdminError, StartOptions, StopOptions, TopicOutcome};
use heliostat_io::listener::hosted::Topic;

use super::child::{Home, Topics, in_step, run, until};
use super::source::{Source, produce};

const SEED: u64 = 7;
const ROUNDS: usize = 12;
const TOPICS: [&str; 3] = ["a", "b", "c"];
const PARTITIONS: i32 = 2;

/// splitmix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % u64::try_from(limit).unwrap()).unwrap()
    }
}

/// What a client knows of its wishes.
struct Wishes {
    acknowledged: BTreeMap<&'static str, &'static str>,
    /// Asked, and not answered yet.
    asked: Option<(&'static str, &'static str)>,
}

/// Asks for one thing after another, until it is dropped.
async fn wish(
    client: &mut AdminClient,
    wishes: &mut Wishes,
    topics: &[Topic],
    chance: &mut Chance,
) -> Infallible {
    loop {
        let index = chance.below(TOPICS.len());
        let (name, now) = (TOPICS[index], wishes.acknowledged[TOPICS[index]]);
        let (wanted, answer) = {
            let named = [name.to_owned()];
            match (now, chance.below(2)) {
                ("MIRRORING", 0) => {
                    wishes.asked = Some((name, "PAUSED"));
                    ("PAUSED", client.pause_mirror_topics("m", &named).await)
                }
                ("MIRRORING", _) | ("PAUSED", 0) => {
                    wishes.asked = Some((name, "STOPPED"));
                    let options = StopOptions::default();
                    ("STOPPED", client.stop_mirror_topics("m", &named, options).await)
                }
                ("PAUSED", _) => {
                    wishes.asked = Some((name, "MIRRORING"));
                    ("MIRRORING", client.resume_mirror_topics("m", &named).await)
                }
                _ => {
                    wishes.asked = Some((name, "MIRRORING"));
                    let options = StartOptions::default();
                    ("MIRRORING", client.start_mirror_topics("m", &named, options).await)
                }
            }
        };
        if is_done(answer) {
            wishes.acknowledged.insert(name, wanted);
        }
        wishes.asked = None;
        produce(&topics[index].partitions[chance.below(2)], 1);
    }
}

/// A topic that is being stopped is not started before it is.
fn is_done(answer: Result<Vec<TopicOutcome>, AdminError>) -> bool {
    match answer {
        Ok(topics) => topics.iter().all(|topic| topic.refusal.is_none()),
        Err(AdminError::Refused { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

/// Returns after so many looks, which the server answers between the wishes.
async fn look(client: &mut AdminClient, count: usize) {
    for _ in 0..count {
        client.describe_cluster_mirrors(&["m".to_owned()]).await.unwrap();
        tokio::task::yield_now().await;
    }
}

/// Each partition is where it is wanted to be.
fn has_what_is_wanted(topics: &Topics) -> bool {
    topics.values().flatten().all(|it| it.desired_state.as_deref() == Some(&*it.state))
}

/// What was acknowledged holds; of what was asked last either may be.
fn hold(wishes: &mut Wishes, topics: &Topics, round: usize) {
    for (name, acknowledged) in &mut wishes.acknowledged {
        let asked = wishes.asked.filter(|(asked, _)| asked == name).map(|(_, wanted)| wanted);
        for partition in &topics[*name] {
            let found = partition.desired_state.as_deref();
            let wish =
                [Some(*acknowledged), asked].into_iter().flatten().find(|it| found == Some(*it));
            let Some(wish) = wish else {
                panic!("round {round}: {name} is wanted {found:?}, not {acknowledged} or {asked:?}")
            };
            *acknowledged = wish;
        }
    }
    wishes.asked = None;
}

/// A stopped log is the source's up to where mirroring ended, then one reset.
fn stopped_logs_are_whole(home: &Home, source: &Source, topics: &Topics) {
    for (name, partitions) in topics {
        for it in partitions.iter().filter(|it| it.state == "STOPPED") {
            let partition = format!("{name}-{}", it.index);
            let (ours, theirs) = (home.bytes(&partition), source.bytes(&partition));
            let end = usize::try_from(it.last_mirror_offset.unwrap().0).unwrap();
            // All batches of the source are of one size.
            let size =
                usize::try_from(i32::from_be_bytes(theirs[8..12].try_into().unwrap())).unwrap();
            let (copied, own) = ours.split_at(end * (size + 12));
            assert!(theirs.starts_with(copied), "{partition} is not the source's");
            assert_eq!(read_marker(&own[61..]).unwrap().control.code(), 7, "{partition}");
        }
    }
}

#[test]
fn whatever_was_acknowledged_holds_after_kills_at_any_moment() {
    let source = Source::start();
    let topics = TOPICS.map(|name| source.topic(name, PARTITIONS));
    for partition in topics.iter().flat_map(|topic| &topic.partitions) {
        produce(partition, 3);
    }
    let home = Home::new();
    let mut server = home.start();
    let mut chance = Chance(SEED);
    let acknowledged = TOPICS.map(|name| (name, "MIRRORING")).into();
    let mut wishes = Wishes { acknowledged, asked: None };
    run(async {
        let mut client = server.client();
        source.mirror(&mut client, &TOPICS).await;
        until(&mut client, in_step).await;
    });
    for round in 0..ROUNDS {
        let (mut client, mut watcher) = (server.client(), server.client());
        let looks = chance.below(40);
        run(async {
            tokio::select! {
                never = wish(&mut client, &mut wishes, &topics, &mut chance) => match never {},
                () = look(&mut watcher, looks) => {}
            }
        });
        server.kill();
        server = home.start();
        // In every other round it dies in the middle of what it has found.
        let mut client = server.client();
        let found = run(until(&mut client, |found| round % 2 == 0 || has_what_is_wanted(found)));
        hold(&mut wishes, &found, round);
    }
    let found = run(until(&mut server.client(), has_what_is_wanted));
    server.stop();
    stopped_logs_are_whole(&home, &source, &found);

    let server = home.start();
    let mut client = server.client();
    run(async {
        for (name, wanted) in wishes.acknowledged {
            let named = [name.to_owned()];
            let options = StartOptions::default();
            assert!(is_done(match wanted {
                "PAUSED" => client.resume_mirror_topics("m", &named).await,
                _ => client.start_mirror_topics("m", &named, options).await,
            }));
        }
        until(&mut client, in_step).await;
    });
    server.stop();
    for partition in
        TOPICS.iter().flat_map(|name| (0..PARTITIONS).map(move |it| format!("{name}-{it}")))
    {
        assert!(home.bytes(&partition) == source.bytes(&partition), "{partition} differs");
    }
    // What was cut is the one record of each stop.
    let gaps = std::fs::read(home.log_dir().join("mirror-gaps")).unwrap_or_default();
    let records = GapFile::decode(&gaps).unwrap().records;
    assert!(!records.is_empty(), "no topic was stopped and started again: another seed");
    for cut in records {
        assert_eq!((cut.kind, cut.to.0 - cut.from.0), (GapKind::Truncation, 1), "{cut:?}");
    }
}
