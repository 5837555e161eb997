//! A long path: the product against plain TCP over the same emulated one.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use heliostat_io::path_emulator::{
    Direction, End, Loss, PathConfig, PathEmulator, PathReport, Rate, duration,
};

use crate::bar::{Bar, Limit};
use crate::error::BenchError;
use crate::place::{Place, SINK_CPU, SOURCE_CPU};
use crate::role::{self, Child, Followed, Listening, Seat};
use crate::side::{Side, approximate};

/// Arguments of `wan`.
#[derive(Args, Debug)]
pub(crate) struct WanArgs {
    /// Round trip of the path.
    #[arg(long, default_value = "80ms", value_parser = duration)]
    rtt: Duration,
    /// Its rate, each way.
    #[arg(long, default_value = "1gbit")]
    rate: Rate,
    /// Share of packets lost, each way.
    #[arg(long, default_value = "0")]
    loss: Loss,
    /// Largest IP packet; 9000 costs the emulator less.
    #[arg(long, default_value_t = 1_500)]
    mtu: u16,
    /// Bytes that may wait in a direction; default: rate times round trip, 1 MiB at least.
    #[arg(long, value_name = "BYTES")]
    queue_bytes: Option<u64>,
    /// Of the losses.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Congestion control of both ends.
    #[arg(long, value_name = "NAME", default_value = "cubic")]
    congestion: String,
    /// Length of a run.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(2..=600))]
    seconds: u32,
    /// Of these, the first ones that do not count.
    #[arg(long, default_value_t = 10)]
    skip: u32,
    /// Runs of each side, in turn.
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// Partitions of the topic with many.
    #[arg(long, default_value_t = 24)]
    partitions: i32,
    /// A real Kafka as the source, with as many partitions as the topic with many, and not the
    /// embedded one.
    #[arg(long)]
    kafka: bool,
    /// `socket.send.buffer.bytes` of the source; -1 leaves it to the system. Default: that for
    /// the embedded source, and 102400, as Kafka has it, for a real one.
    #[arg(long, allow_negative_numbers = true)]
    send_buffer_bytes: Option<i64>,
    /// Size of a batch.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 10)]
    batch_bytes: u32,
    /// Stored bytes of the source; default: a fifth more than the path carries in a run.
    #[arg(long, value_name = "BYTES")]
    bytes: Option<u64>,
    /// Connections of plain TCP; default: as many as the product had in the run before.
    #[arg(long)]
    connections: Option<u32>,
    /// Properties of the product, `key=value`.
    #[arg(long = "set")]
    sets: Vec<String>,
    /// Where source and copies are; default: where temporary files are.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Sides of one topic: ours, and plain TCP with as many connections.
#[derive(Default)]
struct Pair {
    ours: Vec<Side>,
    theirs: Vec<Side>,
    connections: Vec<u32>,
}

pub(super) fn run(args: &WanArgs) -> Result<Vec<Bar>, BenchError> {
    let config = PathConfig {
        queue_bytes: args.queue_bytes,
        mtu: args.mtu,
        seed: args.seed,
        congestion_control: args.congestion.clone(),
        ..PathConfig::new(args.rtt, args.rate, args.loss)
    };
    let wan =
        Wan { args, place: Place::new(args.dir.as_deref())?, path: PathEmulator::start(&config)? };
    let mut streams = Child::start(
        wan.far(),
        &["stream-source".to_owned(), format!("--listen={}", wan.path.address(End::Far))],
    )?;
    let plain: String = streams.hear()?;
    let mut bars = Vec::new();
    let mut counts = if args.kafka { vec![args.partitions] } else { vec![args.partitions, 1] };
    counts.dedup();
    for partitions in counts {
        let (source, address) =
            if args.kafka { wan.kafka(partitions)? } else { wan.source(partitions)? };
        let mut pair = Pair::default();
        for _ in 0..args.rounds {
            let followed = wan.follow(&address)?;
            let connections = args.connections.unwrap_or(followed.connections.max(1));
            pair.ours.push(followed.side);
            pair.theirs.push(wan.plain(&plain, connections)?);
            pair.connections.push(followed.connections);
        }
        source.end()?;
        wan.place.clear("source")?;
        bars.push(wan.bar(partitions, &pair));
    }
    streams.end()?;
    Ok(bars)
}

struct Wan<'a> {
    args: &'a WanArgs,
    place: Place,
    path: PathEmulator,
}

impl Wan<'_> {
    fn far(&self) -> Seat {
        Seat { cpu: Some(SOURCE_CPU), namespace: Some(self.path.namespace(End::Far)) }
    }

    fn near(&self) -> Seat {
        Seat { cpu: Some(SINK_CPU), namespace: Some(self.path.namespace(End::Near)) }
    }

    /// More than the path carries in a run.
    fn source_bytes(&self) -> u64 {
        let seconds = u64::from(self.args.seconds);
        self.args.bytes.unwrap_or(self.args.rate.0 / 8 * seconds / 10 * 12)
    }

    fn kafka(&self, partitions: i32) -> Result<(Child, String), BenchError> {
        let mut arguments = vec![
            "kafka-source".to_owned(),
            format!("--dir={}", self.place.named("source").display()),
            format!("--bytes={}", self.source_bytes()),
            format!("--partitions={partitions}"),
            format!("--batch-bytes={}", self.args.batch_bytes),
            format!("--listen={}", self.path.address(End::Far)),
        ];
        arguments.extend(self.args.send_buffer_bytes.map(|it| format!("--send-buffer-bytes={it}")));
        let mut source = Child::start(self.far(), &arguments)?;
        let listening: Listening = source.hear()?;
        Ok((source, listening.bootstrap))
    }

    fn source(&self, partitions: i32) -> Result<(Child, String), BenchError> {
        let listen: Ipv4Addr = self.path.address(End::Far);
        let mut source = Child::start(
            self.far(),
            &[
                "source".to_owned(),
                format!("--dir={}", self.place.named("source").display()),
                format!("--bytes={}", self.source_bytes()),
                format!("--partitions={partitions}"),
                format!("--batch-bytes={}", self.args.batch_bytes),
                format!("--listen={listen}"),
                format!("--send-buffer-bytes={}", self.args.send_buffer_bytes.unwrap_or(-1)),
            ],
        )?;
        let address = source.hear()?;
        Ok((source, address))
    }

    fn window(&self) -> [String; 2] {
        [format!("--seconds={}", self.args.seconds), format!("--skip={}", self.args.skip)]
    }

    fn follow(&self, source: &str) -> Result<Followed, BenchError> {
        let before = self.path.report();
        let mut arguments = vec![
            "follow".to_owned(),
            format!("--source={source}"),
            "--topics=bench".to_owned(),
            format!("--to={}", self.place.named("copy").display()),
        ];
        arguments.extend(self.window());
        arguments.extend(self.args.sets.iter().map(|set| format!("--set={set}")));
        let followed: Followed = role::run(self.near(), &arguments)?;
        self.place.clear("copy")?;
        self.tell("product", followed.connections, &followed.side, &before);
        eprintln!("  {}", followed.account);
        Ok(followed)
    }

    fn plain(&self, from: &str, connections: u32) -> Result<Side, BenchError> {
        let before = self.path.report();
        let mut arguments = vec![
            "stream-sink".to_owned(),
            format!("--from={from}"),
            format!("--connections={connections}"),
        ];
        arguments.extend(self.window());
        let side = role::run(self.near(), &arguments)?;
        self.tell("plain TCP", connections, &side, &before);
        Ok(side)
    }

    /// One line a run: what the path did and cost belongs to the figure.
    fn tell(&self, side: &str, connections: u32, figures: &Side, before: &PathReport) {
        let after = self.path.report();
        let home = |of: fn(&Direction) -> u64| of(&after.homeward) - of(&before.homeward);
        eprintln!(
            "{side}: {:.0} Mbit/s, {connections} connections, CPU {:.1} s; path: {} packets, \
             {} MB, lost {}, dropped {}, refused {}, queue {} kB, late {}, CPU {:.1} s",
            figures.megabytes_per_second() * 8.0,
            figures.cpu_seconds,
            home(|it| it.packets),
            home(|it| it.bytes) / 1_000_000,
            home(|it| it.lost),
            home(|it| it.dropped),
            home(|it| it.refused),
            after.homeward.queue_bytes_max / 1_000,
            home(|it| it.late),
            after.cpu.saturating_sub(before.cpu).as_secs_f64(),
        );
    }

    fn bar(&self, partitions: i32, pair: &Pair) -> Bar {
        let args = self.args;
        let lossless = args.loss.per_million == 0 && args.rtt <= Duration::from_millis(80);
        let (number, limit) = match (lossless, args.kafka) {
            (true, false) => (9, 0.95),
            (true, true) => (9, 0.7),
            (false, _) => (10, 0.9),
        };
        let source = if args.kafka { "Kafka" } else { "embedded" };
        let connections = pair.connections.iter().copied().max().unwrap_or(0);
        let name = format!(
            "of plain TCP, {source}, {} ms {} {}, {partitions} partitions, {connections} connections",
            args.rtt.as_millis(),
            args.rate,
            args.loss,
        );
        let rate = |side: &Side| approximate(side.bytes) / side.seconds.max(1e-9);
        let value = |ours: &Side, theirs: &Side| rate(ours) / rate(theirs).max(1.0);
        Bar::new(number, name, Limit::AtLeast(limit), (&pair.ours, &pair.theirs), value)
    }
}
