//! One side of a comparison in a process of its own: this program, started again.

mod appends;
mod arrivals;
mod child;
mod follow;
mod host;
mod idea;
mod kafka_source;
mod librdkafka;
mod loops;
mod many;
mod mirror;
mod mm2;
mod paced;
mod scale;
mod source;
mod stream;
mod synthetic;
mod timed;
mod tiny;
mod watch;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use heliostat_io::path_emulator::enter_namespace;
use serde::Serialize;

pub(crate) use self::appends::{Latency, Timed};
pub(crate) use self::child::{Child, Seat, run};
pub(crate) use self::follow::Followed;
pub(crate) use self::host::{MIRROR, Percentiles, Standing, Up};
pub(crate) use self::kafka_source::Listening;
pub(crate) use self::librdkafka::available as librdkafka_is_here;
pub(crate) use self::loops::Kind;
pub(crate) use self::mm2::Carried;
pub(crate) use self::paced::Lateness;
pub(crate) use self::scale::Scaled;
pub(crate) use self::tiny::Tiny;
pub(crate) use self::watch::Watched;
use crate::error::BenchError;
use crate::kafka::{KafkaSource, TOPIC};
use crate::place::{Place, SINK_CPU, pin};
use crate::raw::Port;
use crate::side::Side;

/// Arguments of `role`.
#[derive(Args, Debug)]
pub(crate) struct RoleArgs {
    /// Stay on this processor.
    #[arg(long, value_name = "CPU")]
    cpu: Option<usize>,
    /// Be in this network namespace.
    #[arg(long, value_name = "FILE")]
    netns: Option<PathBuf>,
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// The embedded source: generates, serves, and ends with its standard input.
    Source(source::SourceArgs),
    /// A real Kafka: starts a broker, fills it, and ends with its standard input.
    KafkaSource(kafka_source::Arguments),
    /// A loop that only moves bytes, from the raw port of the source.
    Loop(loops::LoopArgs),
    /// The direct loop with one thing done otherwise.
    Idea(idea::IdeaArgs),
    /// A loop that appends to very many files, from the raw port of the synthetic source.
    Many(many::ManyArgs),
    /// A loop that writes each arrival at once, from the raw port of a paced source.
    Arrivals(arrivals::ArrivalsArgs),
    /// The embedded source of a load with a schedule.
    Paced(paced::PacedArgs),
    /// The product: follows, and tells what its appends take.
    Appends(appends::AppendsArgs),
    /// The product: follows, and is watched from outside.
    Watch(watch::WatchArgs),
    /// A source of many partitions that answers from memory.
    Synthetic(synthetic::SyntheticArgs),
    /// The product: copies once, to a clean stop.
    Mirror(mirror::MirrorArgs),
    /// The product: follows very many partitions.
    Scale(scale::ScaleArgs),
    /// The product: a mirroring host.
    Host(host::HostArgs),
    /// MirrorMaker 2: follows for a time.
    Mm2(mm2::Arguments),
    /// The product: follows for a time.
    Follow(follow::FollowArgs),
    /// Plain TCP: sends zeros, and ends with its standard input.
    StreamSource(stream::SourceArgs),
    /// Plain TCP: reads for a time.
    StreamSink(stream::SinkArgs),
    /// The product's decisions alone, on tiny batches from memory.
    Tiny(tiny::TinyArgs),
    /// librdkafka: consumes a topic to nowhere.
    Librdkafka(librdkafka::LibrdkafkaArgs),
}

/// Plays one role to its end.
pub(crate) fn play(args: &RoleArgs) -> Result<(), BenchError> {
    if let Some(cpu) = args.cpu {
        pin(cpu)?;
    }
    if let Some(netns) = &args.netns {
        enter_namespace(netns)?;
    }
    match &args.role {
        Role::Source(args) => source::play(args),
        Role::KafkaSource(args) => kafka_source::play(args),
        Role::Loop(args) => loops::play(args),
        Role::Idea(args) => idea::play(args),
        Role::Many(args) => many::play(args),
        Role::Arrivals(args) => arrivals::play(args),
        Role::Paced(args) => paced::play(args),
        Role::Appends(args) => appends::play(args),
        Role::Watch(args) => watch::play(args),
        Role::Synthetic(args) => synthetic::play(args),
        Role::Mirror(args) => mirror::play(args),
        Role::Scale(args) => scale::play(args),
        Role::Host(args) => host::play(args),
        Role::Mm2(args) => mm2::play(args),
        Role::Follow(args) => follow::play(args),
        Role::StreamSource(args) => stream::source(args),
        Role::StreamSink(args) => stream::sink(args),
        Role::Tiny(args) => tiny::play(args),
        Role::Librdkafka(args) => librdkafka::play(args),
    }
}

/// Our side: a copy of all of a real Kafka's topic, in a directory that is new and goes again.
pub(crate) fn mirror(
    cpu: Option<usize>,
    source: &KafkaSource,
    place: &Place,
) -> Result<Side, BenchError> {
    let side: Side = run(
        cpu,
        &[
            "mirror".to_owned(),
            format!("--source={}", source.bootstrap()),
            format!("--topics={TOPIC}"),
            format!("--to={}", place.named("copy").display()),
        ],
    )?;
    place.clear("copy")?;
    if side.bytes != source.bytes {
        let why = format!("{} bytes of {}", side.bytes, source.bytes);
        return Err(BenchError::Incomplete(why));
    }
    Ok(side)
}

/// A loop over all of a raw port, into files that are new and go again.
pub(crate) fn loop_over(kind: Kind, port: &Port, place: &Place) -> Result<Side, BenchError> {
    let side = run(
        Some(SINK_CPU),
        &[
            "loop".to_owned(),
            kind.name(),
            format!("--source={}", port.address),
            format!("--bytes={}", port.bytes),
            format!("--to={}", place.named("copy").display()),
        ],
    )?;
    place.clear("copy")?;
    Ok(side)
}

/// Figures go to standard output, one line, as JSON.
fn tell(figures: &impl Serialize) -> Result<(), BenchError> {
    let line = serde_json::to_string(figures)
        .map_err(|error| BenchError::Role { role: "figures".to_owned(), why: error.to_string() })?;
    println!("{line}");
    Ok(())
}
