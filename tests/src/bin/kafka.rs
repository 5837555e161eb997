//! Real Kafka by hand, with the harness of the tests: a cluster to try things on, and the faults
//! that tests cause, one command each. `tests/KAFKA.md` has examples.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "printing is what a command line is for"
)]

use std::error::Error as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use heliostat_tests::kafka::client::Transactions;
use heliostat_tests::kafka::properties::{fast_housekeeping, large_messages};
use heliostat_tests::kafka::{
    Artifacts, Cluster, Compression, Driver, Isolation, KafkaClient, KafkaError, KafkaVersion,
    Skipped, Workload, dump_log, recipes, require,
};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Real Apache Kafka on loopback, for trying things.
#[derive(Debug, Parser)]
#[command(name = "kafka")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a cluster, print where it is, and keep it until Ctrl-C.
    Up(UpArgs),
    /// Create a topic.
    CreateTopic(CreateTopicArgs),
    /// Produce records to a topic.
    Produce(ProduceArgs),
    /// Read a topic and print counts and digests, to compare two servers.
    Consume(TopicArgs),
    /// Roll and clean a partition now; needs `up --fast` and a compacted topic.
    Compact(CompactArgs),
    /// Delete the records below an offset.
    DeleteRecords(DeleteRecordsArgs),
    /// Make the next replica the leader of each partition of a topic.
    MoveLeaders(TopicArgs),
    /// Start three brokers, lose a committed tail through an unclean election, and keep the
    /// cluster until Ctrl-C.
    Unclean(UncleanArgs),
    /// Run Kafka's own dump tool over log files and list its complaints.
    DumpLog(DumpLogArgs),
}

#[derive(Args, Debug)]
struct UpArgs {
    /// Release of Kafka: 4, 3.9, 2.8 or 2.1.
    #[arg(long, default_value = "4")]
    version: KafkaVersion,
    /// Number of brokers.
    #[arg(long, value_name = "N", default_value_t = 1)]
    brokers: usize,
    /// Directory to keep the cluster in; a temporary one by default.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// ZooKeeper instead of `KRaft`, for 3.9.
    #[arg(long)]
    zookeeper: bool,
    /// Retention, cleaner and expiry within a second or two.
    #[arg(long)]
    fast: bool,
    /// JVM options for measuring: 1 GiB of heap and the optimising compiler.
    #[arg(long)]
    load: bool,
    /// Let batches of up to this many bytes through.
    #[arg(long, value_name = "BYTES")]
    batch_bytes_max: Option<u32>,
    /// A broker property; repeat for several.
    #[arg(long = "property", value_name = "KEY=VALUE", value_parser = pair)]
    properties: Vec<(String, String)>,
}

#[derive(Args, Debug)]
struct TopicArgs {
    /// Addresses of the cluster.
    #[arg(long, value_name = "HOST:PORT,…")]
    bootstrap_server: String,
    /// Topic.
    #[arg(long)]
    topic: String,
}

#[derive(Args, Debug)]
struct CreateTopicArgs {
    #[command(flatten)]
    at: TopicArgs,
    /// Number of partitions.
    #[arg(long, default_value_t = 1)]
    partitions: i32,
    /// Replicas of each.
    #[arg(long, default_value_t = 1)]
    replication_factor: i16,
    /// A topic config; repeat for several.
    #[arg(long = "config", value_name = "KEY=VALUE", value_parser = pair)]
    configs: Vec<(String, String)>,
}

#[derive(Args, Debug)]
struct ProduceArgs {
    #[command(flatten)]
    at: TopicArgs,
    /// Partition; by key, or the producer's choice, by default.
    #[arg(long)]
    partition: Option<i32>,
    /// Number of records.
    #[arg(long, default_value_t = 1000)]
    records: u64,
    /// Size of each value.
    #[arg(long, value_name = "BYTES", default_value_t = 100)]
    value_bytes: u32,
    /// Share of each value that compresses away, 0 to 1.
    #[arg(long, default_value_t = 0.5)]
    compressible: f64,
    /// Number of different keys; 0 for none.
    #[arg(long, default_value_t = 0)]
    keys: u64,
    /// Headers of each record.
    #[arg(long, default_value_t = 0)]
    headers: u32,
    /// none, gzip, snappy, lz4 or zstd.
    #[arg(long, default_value = "none", value_parser = compression)]
    compression: Compression,
    /// Size of a batch.
    #[arg(long, value_name = "BYTES", default_value_t = 16_384)]
    batch_bytes: u32,
    /// How long the producer waits for a batch to fill.
    #[arg(long, value_name = "MS", default_value_t = 5)]
    linger_ms: u32,
    /// In transactions of this many records.
    #[arg(long, value_name = "RECORDS")]
    transaction: Option<u64>,
    /// Abort each n-th transaction.
    #[arg(long, value_name = "N", default_value_t = 0)]
    abort_every: u64,
}

#[derive(Args, Debug)]
struct CompactArgs {
    #[command(flatten)]
    at: TopicArgs,
    /// Partition.
    #[arg(long, default_value_t = 0)]
    partition: i32,
    /// Data directory of the leader, as `up` prints it.
    #[arg(long, value_name = "DIR")]
    data_dir: PathBuf,
}

#[derive(Args, Debug)]
struct DeleteRecordsArgs {
    #[command(flatten)]
    at: TopicArgs,
    /// Partition.
    #[arg(long, default_value_t = 0)]
    partition: i32,
    /// First offset that stays; -1 is the high watermark.
    #[arg(long, allow_negative_numbers = true)]
    before: i64,
}

#[derive(Args, Debug)]
struct UncleanArgs {
    /// Release of Kafka: 4, 3.9, 2.8 or 2.1.
    #[arg(long, default_value = "4")]
    version: KafkaVersion,
    /// Directory to keep the cluster in; a temporary one by default.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Topic to create.
    #[arg(long, default_value = "unclean")]
    topic: String,
    /// Records that both replicas have.
    #[arg(long, default_value_t = 100)]
    records: u64,
    /// Records that are lost.
    #[arg(long, default_value_t = 100)]
    tail: u64,
}

#[derive(Args, Debug)]
struct DumpLogArgs {
    /// Release of Kafka whose tool to run.
    #[arg(long, default_value = "4")]
    version: KafkaVersion,
    /// The log is compacted: gaps between offsets are no complaint.
    #[arg(long)]
    compacted: bool,
    /// Flag for the tool, such as --deep-iteration; repeat for several.
    #[arg(long = "flag", allow_hyphen_values = true)]
    flags: Vec<String>,
    /// Segments, indexes, snapshots.
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
enum CommandError {
    #[error(transparent)]
    Kafka(#[from] KafkaError),
    #[error(transparent)]
    Skipped(#[from] Skipped),
    #[error("topic {0} does not exist")]
    NoTopic(String),
    #[error("{0} complaints")]
    Complaints(usize),
    #[error("signals")]
    Signals(#[source] std::io::Error),
}

fn main() -> ExitCode {
    let Err(error) = run() else { return ExitCode::SUCCESS };
    eprintln!("kafka: {error}");
    let mut cause = error.source();
    while let Some(inner) = cause {
        eprintln!("  because: {inner}");
        cause = inner.source();
    }
    ExitCode::FAILURE
}

fn run() -> Result<(), CommandError> {
    match Cli::parse().command {
        Command::Up(args) => up(&args),
        Command::CreateTopic(args) => {
            let configs: Vec<_> =
                args.configs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
            let factor = args.replication_factor;
            client(&args.at)?.create_topic(&args.at.topic, args.partitions, factor, &configs)?;
            Ok(())
        }
        Command::Produce(args) => produce(&args),
        Command::Consume(args) => consume(&args),
        Command::Compact(args) => {
            let client = client(&args.at)?;
            let clean = recipes::compact(&args.data_dir, &client, &args.at.topic, args.partition)?;
            println!("clean up to {clean}");
            Ok(())
        }
        Command::DeleteRecords(args) => {
            let client = client(&args.at)?;
            let start = client.delete_records(&args.at.topic, args.partition, args.before)?;
            println!("log start offset {start}");
            Ok(())
        }
        Command::MoveLeaders(args) => move_leaders(&args),
        Command::Unclean(args) => unclean(&args),
        Command::DumpLog(args) => dump(&args),
    }
}

fn client(at: &TopicArgs) -> Result<KafkaClient, CommandError> {
    Ok(Driver::start(&require(KafkaVersion::V4)?)?.client(at.bootstrap_server.clone()))
}

fn up(args: &UpArgs) -> Result<(), CommandError> {
    let mut builder = Cluster::builder(&require(args.version)?).brokers(args.brokers);
    if let Some(dir) = &args.dir {
        builder = builder.dir(dir);
    }
    if args.zookeeper {
        builder = builder.zookeeper();
    }
    if args.fast {
        builder = builder.properties(&fast_housekeeping());
    }
    if args.load {
        builder = builder.jvm_for_load();
    }
    if let Some(bytes) = args.batch_bytes_max {
        builder = builder.properties(&large_messages(bytes));
    }
    for (key, value) in &args.properties {
        builder = builder.property(key, value);
    }
    keep(builder.start()?)
}

/// Prints where the cluster is, and ends it cleanly at a signal; a second signal is not waited
/// for, because dropping the cluster kills it.
fn keep(mut cluster: Cluster) -> Result<(), CommandError> {
    println!("bootstrap  {}", cluster.bootstrap());
    println!("directory  {}", cluster.dir().display());
    if let Some(pid) = cluster.zookeeper_pid() {
        println!("zookeeper  pid {pid}");
    }
    for node in cluster.nodes() {
        let pid = node.pid().unwrap_or_default();
        let data = node.data_dir();
        println!("broker {}   {}  pid {pid}  {}", node.id(), node.address(), data.display());
    }
    if let Some(node) = cluster.nodes().first() {
        let wire = cluster.wire(node.id())?;
        for (name, key) in [("Produce", 0), ("Fetch", 1), ("Metadata", 3), ("ApiVersions", 18)] {
            if let Some((oldest, newest)) = wire.offered(key) {
                println!("{name:<12} v{oldest} to v{newest}");
            }
        }
    }
    println!("Ctrl-C ends it.");
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(CommandError::Signals)?;
    let _ = signals.forever().next();
    println!("stopping");
    Ok(cluster.stop_all()?)
}

fn produce(args: &ProduceArgs) -> Result<(), CommandError> {
    let transactions = args.transaction.map(|records| Transactions {
        abort_every: args.abort_every,
        ..Transactions::committed("kafka-produce", records)
    });
    let produced = client(&args.at)?.produce(&Workload {
        partition: args.partition,
        value_bytes: args.value_bytes,
        compressible: args.compressible,
        keys: args.keys,
        headers: args.headers,
        compression: args.compression,
        batch_bytes: args.batch_bytes,
        linger_ms: args.linger_ms,
        transactions,
        ..Workload::new(&args.at.topic, args.records)
    })?;
    println!("{} records", produced.acked);
    for (partition, (first, last)) in produced.offsets {
        println!("{}-{partition}  {first} to {last}", args.at.topic);
    }
    Ok(())
}

fn consume(at: &TopicArgs) -> Result<(), CommandError> {
    let client = client(at)?;
    let topic =
        client.describe(&at.topic)?.ok_or_else(|| CommandError::NoTopic(at.topic.clone()))?;
    for partition in topic.partitions {
        let index = partition.partition;
        let read = client.consume(&at.topic, index, Isolation::default())?;
        println!(
            "{}-{index}  {} records, {} bytes, end offset {}  {}",
            at.topic, read.count, read.bytes, read.end_offset, read.sha256
        );
    }
    Ok(())
}

fn move_leaders(at: &TopicArgs) -> Result<(), CommandError> {
    let client = client(at)?;
    let topic =
        client.describe(&at.topic)?.ok_or_else(|| CommandError::NoTopic(at.topic.clone()))?;
    for partition in topic.partitions {
        let position = partition.replicas.iter().position(|&id| Some(id) == partition.leader);
        let mut after = partition.replicas.iter().cycle().skip(position.map_or(0, |p| p + 1));
        if let Some(&next) = after.next() {
            recipes::move_leader(&client, &at.topic, partition.partition, next)?;
            println!("{}-{}  leader {next}", at.topic, partition.partition);
        }
    }
    Ok(())
}

fn unclean(args: &UncleanArgs) -> Result<(), CommandError> {
    let artifacts: Artifacts = require(args.version)?;
    let mut builder = Cluster::builder(&artifacts).brokers(3);
    if let Some(dir) = &args.dir {
        builder = builder.dir(dir);
    }
    let mut cluster = builder.start()?;
    let client = Driver::start(&artifacts)?.client(cluster.bootstrap());
    let configs = [("unclean.leader.election.enable", "true"), ("min.insync.replicas", "1")];
    client.create_topic_on(&args.topic, &[&[2, 3]], &configs)?;
    client.produce(&Workload::new(&args.topic, args.records))?;
    let tail = Workload { seed: 1, ..Workload::new(&args.topic, args.tail) };
    let lost = recipes::lose_tail(&mut cluster, &client, &args.topic, &tail)?;
    println!(
        "lost {} to {} (exclusive) of {}-0: epoch {} of broker {} gave way to epoch {} of broker {}",
        lost.parted_at,
        lost.lost_end,
        args.topic,
        lost.old_epoch,
        lost.old_leader,
        lost.new_epoch,
        lost.new_leader
    );
    keep(cluster)
}

fn dump(args: &DumpLogArgs) -> Result<(), CommandError> {
    let flags: Vec<_> = args.flags.iter().map(String::as_str).collect();
    let output = dump_log(&require(args.version)?, &args.files, &flags)?;
    print!("{}", output.stdout);
    let complaints = output.complaints(args.compacted);
    for complaint in &complaints {
        println!("complaint ({}): {}", complaint.kind, complaint.line);
    }
    if complaints.is_empty() { Ok(()) } else { Err(CommandError::Complaints(complaints.len())) }
}

fn pair(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .ok_or_else(|| "KEY=VALUE is wanted".to_owned())
}

fn compression(text: &str) -> Result<Compression, String> {
    Compression::ALL
        .into_iter()
        .find(|c| c.name() == text)
        .ok_or_else(|| "none, gzip, snappy, lz4 or zstd is wanted".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn arguments_are_consistent() {
        Cli::command().debug_assert();
    }
}
