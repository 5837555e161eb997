//! A copy to disk beside MirrorMaker 2, which copies into a second Kafka. The whole chain of
//! either side shares all processors.

use std::path::PathBuf;

use clap::Args;

use crate::bar::{Bar, Limit};
use crate::error::BenchError;
use crate::kafka::{self, KafkaSource, KafkaSourceArgs, TOPIC};
use crate::mm2::{Copied, Replication, Tuning};
use crate::place::Place;
use crate::role;
use crate::side::{Side, approximate};

/// Arguments of `mm2`.
#[derive(Args, Debug)]
pub(crate) struct Mm2Args {
    #[command(flatten)]
    source: KafkaSourceArgs,
    /// Runs of each side, in turn.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Further properties of the tuned MirrorMaker, `key=value`; they win.
    #[arg(long = "mm2-set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Where source, destinations and copies are; default: where temporary files are.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn run(args: &Mm2Args) -> Result<Vec<Bar>, BenchError> {
    let place = Place::new(args.dir.as_deref())?;
    let artifacts = kafka::artifacts()?;
    let jars = artifacts.mirror_maker()?;
    let source = KafkaSource::start(&artifacts, &place.named("source"), &args.source)?;
    println!("{}", source.line(&args.source));

    let pair = |set: &String| {
        let (key, value) = set.split_once('=').unwrap_or((set, ""));
        (key.to_owned(), value.to_owned())
    };
    let sets: Vec<_> = args.sets.iter().map(pair).collect();
    let theirs = |tuning, sets: &[(String, String)]| {
        let dir = place.named("theirs");
        let what = (TOPIC, tuning, sets);
        let copied = Replication::start((&artifacts, &jars), &dir, &source.bootstrap(), what)?
            .copied(&source)?;
        place.clear("theirs")?;
        print(tuning, &copied);
        Ok::<_, BenchError>(copied)
    };
    let (mut ours, mut tuned) = (Vec::new(), Vec::new());
    for _ in 0..args.rounds {
        ours.push(role::mirror(None, &source, &place)?);
        tuned.push(theirs(Tuning::Published, &sets)?);
    }
    // Once: no bar depends on it, and it takes longest.
    let plain = [theirs(Tuning::Defaults, &[])?];
    Ok(bars(&ours, &tuned, &plain))
}

fn print(tuning: Tuning, copied: &Copied) {
    println!(
        "MirrorMaker, {tuning:?}: {:.1} s to the first record, {:.1} s to the last, CPU {:.1} s, \
         of its destination {:.1} s, {} MiB",
        copied.start_seconds,
        copied.side.seconds,
        copied.side.cpu_seconds,
        copied.destination_cpu_seconds,
        copied.side.rss_bytes >> 20,
    );
}

fn bars(ours: &[Side], tuned: &[Copied], plain: &[Copied]) -> Vec<Bar> {
    let sides = |runs: &[Copied]| runs.iter().map(|run| run.side).collect::<Vec<_>>();
    let with_destination = |run: &Copied| Side {
        cpu_seconds: run.side.cpu_seconds + run.destination_cpu_seconds,
        ..run.side
    };
    let both: Vec<_> = tuned.iter().map(with_destination).collect();
    let (tuned, plain) = (sides(tuned), sides(plain));
    let tuned = (ours, tuned.as_slice());
    let plain = (ours, plain.as_slice());
    let both = (ours, both.as_slice());
    let rate = |ours: &Side, theirs: &Side| {
        ours.megabytes_per_second() / theirs.megabytes_per_second().max(1e-9)
    };
    let cost = |ours: &Side, theirs: &Side| {
        ours.cpu_seconds_per_gigabyte() / theirs.cpu_seconds_per_gigabyte().max(1e-9)
    };
    let memory = |ours: &Side, theirs: &Side| {
        approximate(ours.rss_bytes) / approximate(theirs.rss_bytes.max(1))
    };
    let mebibytes = |ours: &Side, _: &Side| approximate(ours.rss_bytes) / f64::from(1 << 20);
    vec![
        Bar::new(4, "MB/s, ours / MM2 tuned", Limit::AtLeast(10.0), tuned, rate),
        Bar::new(4, "MB/s, ours / MM2 defaults", Limit::None, plain, rate),
        Bar::new(5, "CPU s/GB, ours / MM2 tuned", Limit::AtMost(0.05), tuned, cost),
        Bar::new(5, "CPU s/GB, ours / MM2 tuned + destination", Limit::None, both, cost),
        Bar::new(5, "CPU s/GB, ours / MM2 defaults", Limit::None, plain, cost),
        Bar::new(5, "peak RSS, ours / MM2 tuned", Limit::AtMost(0.1), tuned, memory),
        Bar::new(5, "peak RSS, ours / MM2 defaults", Limit::None, plain, memory),
        Bar::new(5, "peak RSS in MiB, ours", Limit::AtMost(96.0), (ours, &[]), mebibytes),
    ]
}
