//! Leaders that move and brokers that die while they are copied.

use std::time::{Duration, Instant};

use super::chance::pause_until;
use super::compare::{Census, leaders, same_epochs, same_log};
use super::copy::{Copy, Ends};
use super::error::{Result, ScenarioError, ensure};
use super::figures::Figures;
use super::load;
use crate::kafka::{Artifacts, Cluster, Driver, KafkaClient, recipes};

const TOPIC: &str = "moved";
const ASSIGNMENT: [&[i32]; 4] = [&[1, 2, 3], &[2, 3, 1], &[3, 1, 2], &[1, 3, 2]];

/// What is done to the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// Leaders moved, one after another, partition by partition.
    pub moves: usize,
    /// Brokers killed with SIGKILL, each after the last one is back and in sync.
    pub kills: usize,
    /// Records per second of each producer.
    pub records_per_s: u32,
    /// Time from the beginning of a move to that of the next one, by the clock; without it, the
    /// next one comes as soon as the last one is done.
    pub pace: Option<Duration>,
}

impl Faults {
    /// For the fast tests.
    pub const FEW: Self = Self { moves: 4, kills: 1, records_per_s: 200, pace: None };
    /// For the campaign.
    pub const MANY: Self = Self { moves: 60, kills: 9, records_per_s: 1_000, pace: None };
    /// For the campaign: a leader moves every second for a minute.
    pub const PACED: Self =
        Self { moves: 60, kills: 0, records_per_s: 1_000, pace: Some(Duration::from_secs(1)) };
}

/// Three brokers, four partitions, producers of all codecs: leaders move, then leaders are
/// killed and come back. The copy follows, and is the leaders' logs in the end.
///
/// # Errors
///
/// [`ScenarioError`] with the first difference.
pub fn leaders_move_and_die(kafka: &Artifacts, faults: Faults) -> Result<Figures> {
    let began = Instant::now();
    let mut cluster = Cluster::builder(kafka).brokers(3).start()?;
    let client = Driver::start(kafka)?.client(cluster.bootstrap());
    client.create_topic_on(TOPIC, &ASSIGNMENT, &[("min.insync.replicas", "2")])?;
    let copy = Copy::new(&cluster.bootstrap(), TOPIC)?;
    let mirror = copy.follow()?;
    let producers = load::each_codec(&client, TOPIC, faults.records_per_s)?;

    let moving = Instant::now();
    let (mut due, mut late) = (moving, Duration::ZERO);
    for (index, partition) in (0..4).cycle().take(faults.moves).enumerate() {
        if let Some(pace) = faults.pace {
            pause_until(due);
            late = late.max(due.elapsed());
            due += pace;
        }
        let from = leader(&client, partition)?;
        recipes::move_leader(&client, TOPIC, partition, from % 3 + 1)?;
        if faults.pace.is_none() && index % 4 == 3 {
            reaches_present(&client, &mirror)?;
        }
    }
    let moved_within = moving.elapsed();
    for (partition, _) in (0..4).cycle().zip(0..faults.kills) {
        let victim = leader(&client, partition)?;
        cluster.node_mut(victim)?.kill()?;
        client.wait_partition(TOPIC, partition, "another leader", |p| {
            p.leader.is_some_and(|id| id != victim)
        })?;
        reaches_present(&client, &mirror)?;
        cluster.start_all()?;
        for partition in 0..4 {
            client.wait_partition(TOPIC, partition, "all in sync", |p| p.isr.len() == 3)?;
        }
    }
    let (acked, failed) = load::stop(producers)?;
    let ends = load::final_ends(&client, TOPIC, 4)?;
    mirror.wait_for_ends(&ends)?;
    mirror.stop()?;
    ensure(copy.gaps().is_empty(), || format!("on record: {}", copy.gaps()))?;

    let moved = epochs_passed(&client)?;
    ensure(moved >= faults.moves, || format!("{moved} leader epochs passed only"))?;
    let leaders = leaders(&client, &[TOPIC])?;
    cluster.stop_all()?;
    let mut census = Census::default();
    let mut epochs = 0;
    for (name, leader) in &leaders {
        let (source, dir) =
            (cluster.node(*leader)?.data_dir().join(name), copy.partition_dir(name));
        census.add(&same_log(&source, &dir)?);
        same_epochs(&source, &dir, ends.get(name).copied().unwrap_or(i64::MAX))?;
        epochs += crate::kafka::files::epoch_checkpoint(&dir)?.len();
    }
    ensure(epochs > 4, || "no leader moved under load".to_owned())?;
    let mut figures = Figures::default();
    figures.add("Kafka", kafka.version().number());
    figures.add("leaders moved", faults.moves);
    figures.add("moved within, ms", moved_within.as_millis());
    if faults.pace.is_some() {
        figures.add("latest beginning of a move behind its time, ms", late.as_millis());
        figures.add("leader epochs passed", moved);
    }
    figures.add("brokers killed", faults.kills);
    figures.add("records acknowledged", acked);
    figures.add("records failed", failed);
    figures.add("leader epochs with records", epochs);
    figures.extend(census.figures());
    figures.add("seconds", began.elapsed().as_secs());
    Ok(figures)
}

fn leader(client: &KafkaClient, partition: i32) -> Result<i32> {
    let view = client.wait_partition(TOPIC, partition, "a leader", |p| p.leader.is_some())?;
    view.leader.ok_or_else(|| ScenarioError::Wrong(format!("{TOPIC}-{partition}: no leader")))
}

/// Leader epochs of all partitions since their creation.
fn epochs_passed(client: &KafkaClient) -> Result<usize> {
    let view = client.describe(TOPIC)?;
    let epochs = view.into_iter().flat_map(|topic| topic.partitions).map(|p| p.leader_epoch);
    Ok(usize::try_from(epochs.sum::<i32>()).unwrap_or(0))
}

/// The copy gets as far as the source is now.
fn reaches_present(client: &KafkaClient, mirror: &super::Mirror) -> Result<()> {
    use crate::kafka::{Isolation, OffsetAt};
    let mut now = Ends::new();
    for partition in 0..4 {
        let end = client.offset(TOPIC, partition, OffsetAt::Latest, Isolation::ReadUncommitted)?;
        now.insert(format!("{TOPIC}-{partition}"), end.offset);
    }
    mirror.wait_for_ends(&now)
}
