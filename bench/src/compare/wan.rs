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
use crate::kafka;
use crate::place::{Place, SINK_CPU, SOURCE_CPU};
use crate::role::{self, Carried, Child, Followed, Listening, Seat};
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
    /// Length of a run; default: 30, with --cells 60.
    #[arg(long, value_parser = clap::value_parser!(u32).range(2..=600))]
    seconds: Option<u32>,
    /// Of these, the first ones that do not count.
    #[arg(long, default_value_t = 10)]
    skip: u32,
    /// Runs of each side, in turn; default: 2, with --cells 3.
    #[arg(long)]
    rounds: Option<usize>,
    /// 80 and 250 ms, each without losses and with 0.1 %, in turn; with --mm2 the first and the
    /// last of these.
    #[arg(long, conflicts_with_all = ["rtt", "loss"])]
    cells: bool,
    /// MirrorMaker 2 in the place of plain TCP, tuned and with defaults, its destination on the
    /// side of the mirror; the source is a real Kafka.
    #[arg(long)]
    mm2: bool,
    /// Further properties of the tuned MirrorMaker, `key=value`; they win.
    #[arg(long = "mm2-set", value_name = "KEY=VALUE")]
    mm2_sets: Vec<String>,
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

/// Round trip in milliseconds and losses in a million of the cells of bar 10.
const CELLS: [(u64, u32); 4] = [(80, 0), (80, 1_000), (250, 0), (250, 1_000)];

/// Sides of one topic: ours, and plain TCP with as many connections.
#[derive(Default)]
struct Pair {
    ours: Vec<Side>,
    theirs: Vec<Side>,
    connections: Vec<u32>,
}

pub(super) fn run(args: &WanArgs) -> Result<Vec<Bar>, BenchError> {
    if args.mm2 {
        // The namespaces of a path have no other network.
        kafka::artifacts()?.mirror_maker()?;
    }
    let mut cells = vec![(args.rtt, args.loss)];
    if args.cells {
        let cell =
            |&(rtt, per_million): &(u64, u32)| (Duration::from_millis(rtt), Loss { per_million });
        cells = CELLS.iter().map(cell).collect();
        if args.mm2 {
            cells.drain(1..CELLS.len() - 1);
        }
    }
    let mut bars = Vec::new();
    for (rtt, loss) in cells {
        let config = PathConfig {
            queue_bytes: args.queue_bytes,
            mtu: args.mtu,
            seed: args.seed,
            congestion_control: args.congestion.clone(),
            ..PathConfig::new(rtt, args.rate, loss)
        };
        let (place, path) = (Place::new(args.dir.as_deref())?, PathEmulator::start(&config)?);
        let wan = Wan { args, rtt, loss, place, path };
        let of_cell = if args.mm2 { wan.beside_mm2() } else { wan.beside_plain() };
        bars.extend(of_cell?);
    }
    Ok(bars)
}

struct Wan<'a> {
    args: &'a WanArgs,
    rtt: Duration,
    loss: Loss,
    place: Place,
    path: PathEmulator,
}

impl Wan<'_> {
    fn beside_plain(&self) -> Result<Vec<Bar>, BenchError> {
        let args = self.args;
        let listen = format!("--listen={}", self.path.address(End::Far));
        let mut streams = Child::start(self.far(), &["stream-source".to_owned(), listen])?;
        let plain: String = streams.hear()?;
        let mut bars = Vec::new();
        let only_many = args.kafka || args.cells;
        let mut counts = if only_many { vec![args.partitions] } else { vec![args.partitions, 1] };
        counts.dedup();
        for partitions in counts {
            let (source, address) = if args.kafka {
                let (source, listening) = self.kafka(partitions)?;
                (source, listening.bootstrap)
            } else {
                self.source(partitions)?
            };
            let mut pair = Pair::default();
            for _ in 0..self.rounds() {
                let followed = self.follow(&address)?;
                let connections = args.connections.unwrap_or(followed.connections.max(1));
                pair.ours.push(followed.side);
                pair.theirs.push(self.plain(&plain, connections)?);
                pair.connections.push(followed.connections);
            }
            source.end()?;
            self.place.clear("source")?;
            bars.push(self.bar(partitions, &pair));
        }
        streams.end()?;
        Ok(bars)
    }

    fn beside_mm2(&self) -> Result<Vec<Bar>, BenchError> {
        let (source, listening) = self.kafka(self.args.partitions)?;
        let (mut ours, mut tuned, mut defaults) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.rounds() {
            ours.push(self.follow(&listening.bootstrap)?.side);
            tuned.push(self.mm2(&listening, "published")?);
            defaults.push(self.mm2(&listening, "defaults")?);
        }
        source.end()?;
        self.place.clear("source")?;
        let rate = |side: &Side| approximate(side.bytes) / side.seconds.max(1e-9);
        let value = |ours: &Side, theirs: &Side| rate(ours) / rate(theirs).max(1.0);
        let bar = |name: &str, theirs: &[Side]| {
            let name = format!("MB/s, ours / MM2 {name}, {}", self.path_name());
            Bar::new(10, name, Limit::None, (&ours, theirs), value)
        };
        Ok(vec![bar("tuned", &tuned), bar("defaults", &defaults)])
    }

    fn mm2(&self, source: &Listening, tuning: &str) -> Result<Side, BenchError> {
        let before = self.path.report();
        let mut arguments = vec![
            "mm2".to_owned(),
            format!("--source={}", source.bootstrap),
            format!("--bytes={}", source.bytes),
            format!("--records={}", source.records),
            format!("--partitions={}", self.args.partitions),
            format!("--dir={}", self.place.named("theirs").display()),
            format!("--tuning={tuning}"),
        ];
        if tuning == "published" {
            arguments.extend(self.args.mm2_sets.iter().map(|set| format!("--set={set}")));
        }
        arguments.extend(self.window());
        // A JVM and its destination: on all processors.
        let carried: Carried = role::run(Seat { cpu: None, ..self.near() }, &arguments)?;
        self.place.clear("theirs")?;
        self.tell(&format!("MirrorMaker, {tuning}"), "its own", &carried.side, &before);
        eprintln!("  {:.1} s to the first record; each second, Mbit/s:", carried.start_seconds);
        eprintln!("  {}", numbers(carried.each_second.iter().map(|&bytes| megabits(bytes))));
        Ok(carried.side)
    }

    fn rounds(&self) -> usize {
        self.args.rounds.unwrap_or(if self.args.cells { 3 } else { 2 })
    }

    fn seconds(&self) -> u32 {
        self.args.seconds.unwrap_or(if self.args.cells { 60 } else { 30 })
    }

    fn path_name(&self) -> String {
        format!("{} ms {} {}", self.rtt.as_millis(), self.args.rate, self.loss)
    }

    fn far(&self) -> Seat {
        Seat { cpu: Some(SOURCE_CPU), namespace: Some(self.path.namespace(End::Far)) }
    }

    fn near(&self) -> Seat {
        Seat { cpu: Some(SINK_CPU), namespace: Some(self.path.namespace(End::Near)) }
    }

    /// More than the path carries in a run.
    fn source_bytes(&self) -> u64 {
        let seconds = u64::from(self.seconds());
        self.args.bytes.unwrap_or(self.args.rate.0 / 8 * seconds / 10 * 12)
    }

    fn kafka(&self, partitions: i32) -> Result<(Child, Listening), BenchError> {
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
        let listening = source.hear()?;
        Ok((source, listening))
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
        [format!("--seconds={}", self.seconds()), format!("--skip={}", self.args.skip)]
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
        self.tell("product", &followed.connections.to_string(), &followed.side, &before);
        eprintln!("  {}", followed.account);
        let rates = numbers(followed.each_second.iter().map(|&(bytes, _)| megabits(bytes)));
        let connections = numbers(followed.each_second.iter().map(|&(_, it)| u64::from(it)));
        eprintln!("  each second, Mbit/s: {rates}; connections: {connections}");
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
        self.tell("plain TCP", &connections.to_string(), &side, &before);
        Ok(side)
    }

    /// One line a run: what the path did and cost belongs to the figure.
    fn tell(&self, side: &str, connections: &str, figures: &Side, before: &PathReport) {
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
        let lossless = self.loss.per_million == 0 && self.rtt <= Duration::from_millis(80);
        let (number, limit) = match (lossless && !args.cells, args.kafka) {
            (true, false) => (9, Limit::AtLeast(0.95)),
            (true, true) => (9, Limit::AtLeast(0.7)),
            (false, false) => (10, Limit::AtLeast(0.9)),
            // Its send buffer is no part of the path.
            (false, true) => (10, Limit::None),
        };
        let source = if args.kafka { "Kafka" } else { "embedded" };
        let connections = pair.connections.iter().copied().max().unwrap_or(0);
        let name = format!(
            "of plain TCP, {source}, {}, {partitions} partitions, {connections} connections",
            self.path_name(),
        );
        let rate = |side: &Side| approximate(side.bytes) / side.seconds.max(1e-9);
        let value = |ours: &Side, theirs: &Side| rate(ours) / rate(theirs).max(1.0);
        Bar::new(number, name, limit, (&pair.ours, &pair.theirs), value)
    }
}

fn megabits(bytes: u64) -> u64 {
    bytes * 8 / 1_000_000
}

fn numbers(values: impl Iterator<Item = u64>) -> String {
    values.map(|value| value.to_string()).collect::<Vec<_>>().join(" ")
}
