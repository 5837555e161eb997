//! A copy to disk beside librdkafka, which consumes to nowhere: the least that a consumer of
//! that library costs, whatever it does with the records.

use std::path::PathBuf;

use clap::Args;

use crate::bar::{Bar, Limit};
use crate::error::BenchError;
use crate::kafka::{self, KafkaSource, KafkaSourceArgs, TOPIC};
use crate::place::{Place, SINK_CPU, SOURCE_CPU, pin};
use crate::raw::Port;
use crate::role::{self, Child, Kind};
use crate::side::Side;

/// Arguments of `librdkafka`.
#[derive(Args, Debug)]
pub(crate) struct LibrdkafkaArgs {
    #[command(flatten)]
    source: KafkaSourceArgs,
    /// Runs of each side, in turn.
    #[arg(long, value_name = "N", default_value_t = 9)]
    rounds: usize,
    /// Further properties of librdkafka, `key=value`; they win.
    #[arg(long = "librdkafka-set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Where source and copies are; default: where temporary files are.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn run(args: &LibrdkafkaArgs) -> Result<Vec<Bar>, BenchError> {
    role::librdkafka_is_here()?;
    let place = Place::new(args.dir.as_deref())?;
    // Before the driver too: whatever it leaves behind is on the source's processor.
    pin(SOURCE_CPU)?;
    let source = KafkaSource::start(&kafka::artifacts()?, &place.named("source"), &args.source)?;
    println!("{}", source.line(&args.source));

    let (floor_source, port) = floor(&place, &args.source)?;
    let (mut ours, mut checking, mut trusting) = (Vec::new(), Vec::new(), Vec::new());
    let (mut moving, mut summing) = (Vec::new(), Vec::new());
    // The first round is not counted: it compiles the broker's fetch path.
    for round in 0..=args.rounds {
        let our = role::mirror(Some(SINK_CPU), &source, &place)?;
        let check = theirs(&source, args, true)?;
        let trust = theirs(&source, args, false)?;
        let bare = role::loop_over(Kind::Direct, &port, &place)?;
        let summed = role::loop_over(Kind::DirectCrc, &port, &place)?;
        if round > 0 {
            ours.push(our);
            checking.push(check);
            trusting.push(trust);
            moving.push(bare);
            summing.push(summed);
        }
    }
    floor_source.end()?;
    let rate = |ours: &Side, theirs: &Side| {
        ours.megabytes_per_second() / theirs.megabytes_per_second().max(1e-9)
    };
    let cost = |ours: &Side, theirs: &Side| {
        ours.cpu_seconds_per_gigabyte() / theirs.cpu_seconds_per_gigabyte().max(1e-9)
    };
    let checked = (ours.as_slice(), checking.as_slice());
    let trusted = (ours.as_slice(), trusting.as_slice());
    // What no copy to a disk can be below, whatever it is made of.
    let moved = (moving.as_slice(), checking.as_slice());
    let summed = (summing.as_slice(), checking.as_slice());
    Ok(vec![
        Bar::new(6, "MB/s, ours / librdkafka", Limit::AtLeast(0.95), checked, rate),
        Bar::new(6, "CPU s/GB, ours / librdkafka", Limit::AtMost(0.5), checked, cost),
        Bar::new(6, "MB/s, ours / librdkafka, check.crcs=false", Limit::None, trusted, rate),
        Bar::new(6, "CPU s/GB, ours / librdkafka, check.crcs=false", Limit::None, trusted, cost),
        Bar::new(6, "MB/s, the direct loop / librdkafka", Limit::None, moved, rate),
        Bar::new(6, "CPU s/GB, the direct loop / librdkafka", Limit::None, moved, cost),
        Bar::new(6, "MB/s, direct-crc / librdkafka", Limit::None, summed, rate),
        Bar::new(6, "CPU s/GB, direct-crc / librdkafka", Limit::None, summed, cost),
    ])
}

/// The embedded source with as many bytes, for the loops.
fn floor(place: &Place, source: &KafkaSourceArgs) -> Result<(Child, Port), BenchError> {
    let source = [
        "source".to_owned(),
        format!("--dir={}", place.named("floor").display()),
        format!("--bytes={}", source.bytes),
        format!("--partitions={}", source.partitions),
        format!("--batch-bytes={}", source.batch_bytes),
        "--raw".to_owned(),
    ];
    let mut source = Child::start(Some(SOURCE_CPU), &source)?;
    let _: String = source.hear()?;
    let port = source.hear()?;
    Ok((source, port))
}

fn theirs(
    source: &KafkaSource,
    args: &LibrdkafkaArgs,
    check_crcs: bool,
) -> Result<Side, BenchError> {
    let ends: Vec<_> = source.ends.iter().map(ToString::to_string).collect();
    let mut role = vec![
        "librdkafka".to_owned(),
        format!("--source={}", source.bootstrap()),
        format!("--topic={TOPIC}"),
        format!("--ends={}", ends.join(",")),
        format!("--stored-bytes={}", source.bytes),
        format!("--set=check.crcs={check_crcs}"),
    ];
    role.extend(args.sets.iter().map(|set| format!("--set={set}")));
    role::run(Some(SINK_CPU), &role)
}
