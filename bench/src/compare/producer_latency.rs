//! From the time at which a record is to be produced until it is in the copy, beside
//! MirrorMaker 2: the same load on the same broker, the same clock, the same look at the log.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;
use heliostat_tests::kafka::{Artifacts, Cluster, Driver, KafkaError, MirrorMakerJars};

use crate::bar::{Bar, Limit};
use crate::clock::{quantile_us, wait_until};
use crate::error::BenchError;
use crate::kafka::{self, wait_for_leaders};
use crate::mm2::{Replication, Tuning};
use crate::place::Place;
use crate::process::{cpu_seconds_of, peak_rss};
use crate::produce::{Load, Sent};
use crate::role::{Child, Timed};
use crate::side::{Side, median};
use crate::tail::Tail;

/// Connections of the producer.
const SENDERS: u32 = 4;
/// Time between two looks at the log.
const LOOK_EVERY: Duration = Duration::from_micros(500);
/// Longest time until the first records are in the copy, and from the end of the load to its end.
const WITHIN: Duration = Duration::from_mins(2);

/// Nothing waits for more records, as in the other side's tuning.
const OURS: [&str; 1] = ["mirror.fetch.linger.ms=0"];

/// Arguments of `producer-latency`.
#[derive(Args, Debug)]
pub(crate) struct ProducerLatencyArgs {
    /// Bytes a second.
    #[arg(long, value_name = "BYTES", default_value_t = 10_000_000)]
    rate: u32,
    /// Length of each run that counts.
    #[arg(long, value_name = "SECONDS", default_value_t = 12)]
    seconds: u32,
    /// Before it, at the same rate: a JVM is slow at first.
    #[arg(long, value_name = "SECONDS", default_value_t = 8)]
    skip: u32,
    /// Partitions.
    #[arg(long, value_name = "N", default_value_t = 8)]
    partitions: u16,
    /// Size of a batch.
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 10)]
    batch_bytes: usize,
    /// Runs of each side, in turn.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Further properties of the tuned MirrorMaker, `key=value`; they win.
    #[arg(long = "mm2-set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Further properties of the tuned product, `key=value`; they win.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    ours: Vec<String>,
    /// Where source, destinations and copies are; default: where temporary files are.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// One run of one side.
#[derive(Clone, Copy, Debug)]
struct Run {
    side: Side,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
    /// Until the source broker had acknowledged; part of all of the above.
    acked_p99_us: f64,
    /// From there on.
    after_p99_us: f64,
}

struct Comparison<'a> {
    args: &'a ProducerLatencyArgs,
    artifacts: Artifacts,
    jars: MirrorMakerJars,
    place: Place,
    source: Cluster,
    load: Load,
}

pub(super) fn run(args: &ProducerLatencyArgs) -> Result<Vec<Bar>, BenchError> {
    let place = Place::new(args.dir.as_deref())?;
    let artifacts = kafka::artifacts()?;
    let jars = artifacts.mirror_maker()?;
    let source = kafka::broker(&artifacts, &place.named("source"))?;
    let time = Duration::from_secs((args.skip + args.seconds).into());
    let load = Load::new(args.rate, time, args.partitions, args.batch_bytes)?;
    let driver = Driver::start(&artifacts)?;
    let client = driver.client(source.bootstrap());
    // One for each run: whoever copies it begins at its beginning.
    for number in 0..=3 * args.rounds {
        client.create_topic(&topic(number), args.partitions.into(), 1, &[])?;
        wait_for_leaders(&source, &topic(number), args.partitions)?;
    }
    drop(client);
    drop(driver);
    let it = Comparison { args, artifacts, jars, place, source, load };
    let sets: Vec<_> = OURS.iter().copied().chain(args.ours.iter().map(String::as_str)).collect();
    let (mut ours, mut as_is, mut tuned) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..args.rounds {
        ours.push(it.ours(&topic(3 * round), &sets)?);
        tuned.push(it.theirs(&topic(3 * round + 1), Tuning::Latency)?);
        as_is.push(it.ours(&topic(3 * round + 2), &[])?);
    }
    // Once: no bar depends on it.
    let plain = [it.theirs(&topic(3 * args.rounds), Tuning::Defaults)?];
    Ok(bars(&ours, &as_is, &tuned, &plain))
}

fn topic(number: usize) -> String {
    format!("latency-{number}")
}

impl Comparison<'_> {
    fn ours(&self, topic: &str, sets: &[&str]) -> Result<Run, BenchError> {
        let copy = self.place.named("copy");
        let mut arguments = vec![
            "appends".to_owned(),
            format!("--source={}", self.source.bootstrap()),
            format!("--topics={topic}"),
            format!("--to={}", copy.display()),
            format!("--bytes={}", self.load.bytes()),
        ];
        arguments.extend(sets.iter().map(|set| format!("--set={set}")));
        let mut mirror = Child::start(None, &arguments)?;
        let dirs = |partition| copy.join(format!("{topic}-{partition}"));
        let mut run = self.measure(topic, dirs, || Ok(()))?;
        let timed: Timed = mirror.hear()?;
        mirror.end()?;
        self.place.clear("copy")?;
        run.side = timed.side;
        tell(if sets.is_empty() { "ours, defaults" } else { "ours, tuned" }, &run);
        Ok(run)
    }

    fn theirs(&self, topic: &str, tuning: Tuning) -> Result<Run, BenchError> {
        let pair = |set: &String| {
            let (key, value) = set.split_once('=').unwrap_or((set, ""));
            (key.to_owned(), value.to_owned())
        };
        let is_tuned = tuning == Tuning::Latency;
        let sets: Vec<_> = self.args.sets.iter().filter(|_| is_tuned).map(pair).collect();
        let dir = self.place.named("theirs");
        let what = (topic, tuning, sets.as_slice());
        let tools = (&self.artifacts, &self.jars);
        let mut maker = Replication::start(tools, &dir, &self.source.bootstrap(), what)?;
        let pid = maker.pid();
        let dirs = (0..self.args.partitions)
            .map(|partition| maker.partition_dir(topic, partition.into()))
            .collect::<Result<Vec<_>, _>>()?;
        let begun = (Instant::now(), cpu_seconds_of(pid));
        let at = |partition: u16| dirs[usize::from(partition)].clone();
        let mut run = self.measure(topic, at, || maker.check())?;
        run.side = Side {
            bytes: self.load.bytes(),
            seconds: begun.0.elapsed().as_secs_f64(),
            cpu_seconds: cpu_seconds_of(pid) - begun.1,
            rss_bytes: peak_rss(pid).unwrap_or(0),
        };
        drop(maker);
        self.place.clear("theirs")?;
        tell(&format!("MirrorMaker, {tuning:?}"), &run);
        Ok(run)
    }

    /// Runs the load and looks at the logs meanwhile; `check` tells whether the copying goes on.
    fn measure(
        &self,
        topic: &str,
        dir: impl Fn(u16) -> PathBuf,
        mut check: impl FnMut() -> Result<(), KafkaError>,
    ) -> Result<Run, BenchError> {
        let node = self.source.nodes().first().ok_or(KafkaError::NoNode(1))?;
        let address = node.address();
        let to = (address.as_str(), topic);
        let mut tails: Vec<_> =
            (0..self.args.partitions).map(|partition| Tail::new(&dir(partition))).collect();
        self.load.prime(&address, topic)?;
        let mut follow = |tails: &mut [Tail], ends: &[i64]| -> Result<(), BenchError> {
            let deadline = Instant::now() + WITHIN;
            while tails.iter().zip(ends).any(|(tail, &end)| tail.end() < end) {
                check()?;
                if Instant::now() > deadline {
                    return Err(BenchError::Incomplete(format!("{topic} within {WITHIN:?}")));
                }
                look(tails)?;
            }
            Ok(())
        };
        follow(&mut tails, &vec![1; usize::from(self.args.partitions)])?;
        let begin = Instant::now() + Duration::from_millis(500);
        let sent = std::thread::scope(|scope| {
            let senders: Vec<_> = (0..SENDERS)
                .map(|own| scope.spawn(move || self.load.send(to, begin, (own, SENDERS))))
                .collect();
            while senders.iter().any(|sender| !sender.is_finished()) {
                look(&mut tails)?;
            }
            let mut sent = Vec::new();
            for sender in senders {
                let outcome = sender.join().map_err(|_| BenchError::Role {
                    role: "the producer".to_owned(),
                    why: "it panicked".to_owned(),
                })?;
                sent.extend(outcome?);
            }
            Ok::<_, BenchError>(sent)
        })?;
        let end = |partition| {
            let own = sent.iter().filter(|it| it.partition == usize::from(partition));
            own.map(|it| it.offset + 1).max().unwrap_or(0)
        };
        let ends: Vec<_> = (0..self.args.partitions).map(end).collect();
        follow(&mut tails, &ends)?;
        let exact = tails.iter().zip(&ends).all(|(tail, &end)| tail.end() == end);
        if !exact {
            let why = format!("{topic}: the copy's offsets are not the source's");
            return Err(BenchError::Incomplete(why));
        }
        let counted = begin + Duration::from_secs(self.args.skip.into());
        latencies(&sent, &tails, counted)
    }
}

/// All logs once, at times that do not drift.
fn look(tails: &mut [Tail]) -> Result<(), BenchError> {
    let now = Instant::now();
    tails.iter_mut().try_for_each(|tail| tail.look(now))?;
    wait_until(now + LOOK_EVERY);
    Ok(())
}

/// Of what was due from `counted` on.
fn latencies(sent: &[Sent], tails: &[Tail], counted: Instant) -> Result<Run, BenchError> {
    let (mut took, mut acked, mut after) = (Vec::new(), Vec::new(), Vec::new());
    for (partition, tail) in tails.iter().enumerate() {
        let own = || sent.iter().filter(|it| it.partition == partition && it.due >= counted);
        let times = tail.times(own().map(|it| it.offset));
        let times =
            times.ok_or_else(|| BenchError::Incomplete("a record is missing".to_owned()))?;
        let pairs = || own().zip(times.iter().copied());
        took.extend(pairs().map(|(it, there)| there.saturating_duration_since(it.due)));
        after.extend(pairs().map(|(it, there)| there.saturating_duration_since(it.acked)));
        acked.extend(own().map(|it| it.acked.saturating_duration_since(it.due)));
    }
    Ok(Run {
        side: Side::default(),
        p50_us: quantile_us(&mut took, 50),
        p99_us: quantile_us(&mut took, 99),
        max_us: quantile_us(&mut took, 100),
        acked_p99_us: quantile_us(&mut acked, 99),
        after_p99_us: quantile_us(&mut after, 99),
    })
}

fn tell(side: &str, run: &Run) {
    let ms = |us: f64| us / 1e3;
    println!(
        "{side}: p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms; acknowledged p99 {:.1} ms, after it p99 \
         {:.1} ms; CPU {:.1} s, {} MiB",
        ms(run.p50_us),
        ms(run.p99_us),
        ms(run.max_us),
        ms(run.acked_p99_us),
        ms(run.after_p99_us),
        run.side.cpu_seconds,
        run.side.rss_bytes >> 20,
    );
}

fn bars(ours: &[Run], as_is: &[Run], tuned: &[Run], plain: &[Run]) -> Vec<Bar> {
    let p50: fn(&Run) -> f64 = |run| run.p50_us;
    let p99: fn(&Run) -> f64 = |run| run.p99_us;
    let after: fn(&Run) -> f64 = |run| run.after_p99_us;
    // Ours needs no tuning; without its linger it wakes up more often, which the brokers feel.
    let (held, both, neither) = ((as_is, tuned), (ours, tuned), (as_is, plain));
    vec![
        bar("p99 due to copied, ours default", Limit::AtMost(0.2), held, p99),
        bar("p50 due to copied, ours default", Limit::None, held, p50),
        bar("p99 acked to copied, ours default", Limit::None, held, after),
        bar("p99 due to copied, both tuned", Limit::None, both, p99),
        bar("p50 due to copied, both tuned", Limit::None, both, p50),
        bar("p99 due to copied, both default", Limit::None, neither, p99),
        bar("p50 due to copied, both default", Limit::None, neither, p50),
    ]
}

fn bar(what: &str, limit: Limit, (ours, theirs): (&[Run], &[Run]), of: fn(&Run) -> f64) -> Bar {
    let sides = |runs: &[Run]| runs.iter().map(|run| run.side).collect::<Vec<_>>();
    let all = |runs: &[Run], of: fn(&Run) -> f64| runs.iter().map(of).collect::<Vec<_>>();
    let (a, b) = (median(all(ours, of)), median(all(theirs, of)));
    let name = format!("{what}, ours / MM2; {:.1} / {:.1} ms", a / 1e3, b / 1e3);
    Bar::new(8, name, limit, (&sides(ours), &sides(theirs)), |_, _| a / b.max(1.0))
        .with("our_us", all(ours, of))
        .with("their_us", all(theirs, of))
        .with("our_max_us", all(ours, |run| run.max_us))
        .with("their_max_us", all(theirs, |run| run.max_us))
        .with("our_acked_p99_us", all(ours, |run| run.acked_p99_us))
        .with("their_acked_p99_us", all(theirs, |run| run.acked_p99_us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_begin_when_a_batch_is_due_and_the_first_ones_do_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let partition = dir.path().join("t-0");
        std::fs::create_dir(&partition).unwrap();
        let mut tail = Tail::new(&partition);
        let begin = Instant::now();
        let ms = Duration::from_millis;
        let mut header = [0_u8; 61];
        header[8..12].copy_from_slice(&49_i32.to_be_bytes());
        let mut file = Vec::new();
        for (offset, at) in [(0_i64, 500), (1, 30), (2, 40)] {
            header[..8].copy_from_slice(&offset.to_be_bytes());
            file.extend_from_slice(&header);
            std::fs::write(partition.join("00000000000000000000.log"), &file).unwrap();
            tail.look(begin + ms(at)).unwrap();
        }
        let sent = [(0, 0), (1, 10), (2, 20)].map(|(offset, due)| Sent {
            partition: 0,
            offset,
            due: begin + ms(due),
            acked: begin + ms(due + 5),
        });
        let run = latencies(&sent, &[tail], begin + ms(10)).unwrap();
        let close = |a: f64, b: f64| (a - b).abs() < 1.0;
        assert!(close(run.p50_us, 20_000.0) && close(run.max_us, 20_000.0), "{run:?}");
        assert!(close(run.acked_p99_us, 5_000.0) && close(run.after_p99_us, 15_000.0), "{run:?}");
    }
}
