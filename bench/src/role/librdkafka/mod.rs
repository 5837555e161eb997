//! librdkafka, which consumes a topic to nowhere.

#[cfg(feature = "librdkafka")]
mod consumer;

use clap::Args;

use crate::error::BenchError;

/// The best of what was tried for it here; whatever is not set is at its default. The large
/// answers that are recommended for throughput cost it twice the processor time: they fall out of
/// the processor's caches.
#[cfg(feature = "librdkafka")]
const SETTINGS: [(&str, &str); 6] = [
    ("fetch.message.max.bytes", "524288"),
    ("fetch.max.bytes", "4194304"),
    // Neither count nor bytes hold the fetching back for long, and it goes on at once: the
    // default pause is a second.
    ("queued.min.messages", "1000000"),
    ("queued.max.messages.kbytes", "65536"),
    ("fetch.queue.backoff.ms", "1"),
    ("fetch.wait.max.ms", "10"),
];

/// What it reads.
#[derive(Args, Debug)]
pub(super) struct LibrdkafkaArgs {
    /// Brokers.
    #[arg(long)]
    source: String,
    /// Topic.
    #[arg(long)]
    topic: String,
    /// Where to stop in each partition, exclusive.
    #[arg(long, value_delimiter = ',', required = true)]
    ends: Vec<i64>,
    /// Stored bytes of all that: what its figures are per.
    #[arg(long)]
    stored_bytes: u64,
    /// Properties, `key=value`; a later one wins.
    #[arg(long = "set")]
    sets: Vec<String>,
}

/// Fails, with the remedy, where librdkafka is not compiled in.
pub(crate) fn available() -> Result<(), BenchError> {
    if cfg!(feature = "librdkafka") {
        return Ok(());
    }
    Err(failed("not compiled in; build with `--features librdkafka`".to_owned()))
}

fn failed(why: String) -> BenchError {
    BenchError::Role { role: "librdkafka".to_owned(), why }
}

#[cfg(not(feature = "librdkafka"))]
pub(super) fn play(_args: &LibrdkafkaArgs) -> Result<(), BenchError> {
    available()
}

#[cfg(feature = "librdkafka")]
pub(super) fn play(args: &LibrdkafkaArgs) -> Result<(), BenchError> {
    use std::time::{Duration, Instant};

    use self::consumer::Consumer;
    use crate::process::{cpu_seconds, peak_rss};
    use crate::side::Side;

    /// A source that is silent for so long has failed.
    const SILENCE: Duration = Duration::from_secs(30);

    let given = args.sets.iter().map(|set| set.split_once('=').unwrap_or((set, "")));
    let settings: Vec<_> = [("bootstrap.servers", args.source.as_str())]
        .into_iter()
        .chain(SETTINGS)
        .chain(given)
        .collect();
    let mut left: i64 = args.ends.iter().sum();
    let (begun, cpu) = (Instant::now(), cpu_seconds());
    let partitions = i32::try_from(args.ends.len()).unwrap_or(i32::MAX);
    let mut consumer = Consumer::start(&settings, &args.topic, partitions).map_err(failed)?;
    while left > 0 {
        let mut got = 0;
        consumer
            .batch(usize::try_from(left).unwrap_or(usize::MAX), SILENCE, |partition, offset| {
                let end = usize::try_from(partition).ok().and_then(|it| args.ends.get(it));
                got += i64::from(end.is_some_and(|&end| offset < end));
            })
            .map_err(failed)?;
        if got == 0 {
            return Err(failed(format!("silent for {SILENCE:?}, {left} records missing")));
        }
        left -= got;
    }
    let (seconds, cpu_seconds) = (begun.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    super::tell(&Side {
        bytes: args.stored_bytes,
        seconds,
        cpu_seconds,
        rss_bytes: peak_rss(std::process::id()).unwrap_or(0),
    })
}
