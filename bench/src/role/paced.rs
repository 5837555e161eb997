//! The embedded source of a load that does not wait for whoever receives it.
//!
//! Batches are due at fixed times; one that comes late does not move those behind it, so that
//! a slow receiver cannot thin out the load that it is measured with.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use heliostat_core::records::{BatchBuilder, Compression, NewRecord};
use heliostat_core::types::{Offset, TimestampMs};
use heliostat_io::embedded::{empty_catalog, listener_config, wait_for_input_end};
use heliostat_io::generate::{UniformSpec, generate_uniform};
use heliostat_io::listener::Listener;
use heliostat_io::listener::hosted::{Catalog, Topic};

use super::tell;
use crate::clock::{quantile_us, wait_until};
use crate::error::BenchError;
use crate::raw::{self, Port, Slice};

/// Different batches, in turn.
const BATCHES: usize = 16;
/// What one record's value takes; it does not compress.
const VALUE_BYTES: usize = 1_024;
/// Longest wait for a receiver.
const RECEIVER_TIMEOUT: Duration = Duration::from_secs(60);
/// Between its arrival and the first batch.
const LEAD: Duration = Duration::from_millis(500);

/// The load.
#[derive(Args, Debug)]
pub(super) struct PacedArgs {
    /// Directory.
    #[arg(long)]
    dir: PathBuf,
    /// Bytes a second.
    #[arg(long)]
    rate: u32,
    /// How long.
    #[arg(long)]
    seconds: u32,
    /// Partitions, each in turn.
    #[arg(long)]
    partitions: i32,
    /// Size of a batch.
    #[arg(long)]
    batch_bytes: usize,
    /// To the raw port, and not over Kafka's protocol.
    #[arg(long)]
    raw: bool,
}

/// How well the times were kept, in microseconds: what a batch was late when it was appended.
#[derive(Clone, Copy, Debug, serde::Serialize, serde::Deserialize)]
pub(crate) struct Lateness {
    /// Half of them were no later.
    pub(crate) p50_us: f64,
    /// 99 of 100 were no later.
    pub(crate) p99_us: f64,
}

pub(super) fn play(args: &PacedArgs) -> Result<(), BenchError> {
    let failed = |why: String| BenchError::Role { role: "the paced source".to_owned(), why };
    let catalog = empty_catalog(&args.dir).map_err(|error| failed(error.to_string()))?;
    let spec = UniformSpec {
        topic: "bench".to_owned(),
        seed: 1,
        bytes: 0,
        partitions: args.partitions,
        batch_bytes: args.batch_bytes,
        value_bytes: VALUE_BYTES,
    };
    let topic = generate_uniform(&catalog, &spec).map_err(|error| failed(error.to_string()))?;
    let mut load = Load::new(args, topic).map_err(BenchError::system("make batches"))?;
    let late = if args.raw {
        let socket = raw::bind(&listener_config(Ipv4Addr::LOCALHOST))
            .map_err(BenchError::system("open the raw port"))?;
        let address = socket.local_addr().map_err(BenchError::system("open the raw port"))?;
        tell(&Port { address, bytes: load.bytes() })?;
        let (mut stream, _) = socket.accept().map_err(BenchError::system("accept"))?;
        raw::prepare(&stream).map_err(BenchError::system("accept"))?;
        load.run(Some(&mut stream)).map_err(BenchError::system("keep the load up"))?
    } else {
        let listener = listen(&catalog)?;
        tell(&Port { address: listener.address(), bytes: load.bytes() })?;
        let begun = Instant::now();
        while listener.sessions() == 0 {
            if begun.elapsed() > RECEIVER_TIMEOUT {
                return Err(failed("nobody fetches".to_owned()));
            }
            wait_until(Instant::now() + Duration::from_millis(1));
        }
        let late = load.run(None).map_err(BenchError::system("keep the load up"))?;
        tell(&late)?;
        wait_for_input_end();
        listener.stop();
        return Ok(());
    };
    tell(&late)
}

fn listen(catalog: &Arc<Catalog>) -> Result<Listener, BenchError> {
    Listener::start(Arc::clone(catalog), listener_config(Ipv4Addr::LOCALHOST)).map_err(|error| {
        BenchError::Role { role: "the paced source".to_owned(), why: error.to_string() }
    })
}

#[derive(Debug)]
struct Load {
    topic: Topic,
    batches: Vec<Vec<u8>>,
    count: u32,
    every: Duration,
}

impl Load {
    fn new(args: &PacedArgs, topic: Topic) -> io::Result<Self> {
        let mut noise = File::open("/dev/urandom")?;
        let mut batches = Vec::with_capacity(BATCHES);
        for _ in 0..BATCHES {
            batches.push(batch(&mut noise, args.batch_bytes)?);
        }
        // All are of one size: their values are.
        let size = batches.first().map_or(1, Vec::len);
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        let every = Duration::from_secs_f64(f64::from(size) / f64::from(args.rate.max(1)));
        let bytes = u64::from(args.rate) * u64::from(args.seconds);
        let count = u32::try_from(bytes / u64::from(size)).unwrap_or(u32::MAX);
        Ok(Self { topic, batches, count, every })
    }

    fn bytes(&self) -> u64 {
        let size = self.batches.first().map_or(0, Vec::len);
        u64::from(self.count) * u64::try_from(size).unwrap_or(0)
    }

    /// Appends all, each at its time, and sends it to `stream` too.
    fn run(&mut self, mut stream: Option<&mut TcpStream>) -> io::Result<Lateness> {
        let begin = Instant::now() + LEAD;
        let mut late = Vec::with_capacity(usize::try_from(self.count).unwrap_or(0));
        let mut message = Vec::new();
        let turns = (0_u32..).zip(&self.topic.partitions).cycle();
        for (number, (index, partition)) in (0..self.count).zip(turns) {
            let kind = usize::try_from(number).unwrap_or(0) % self.batches.len().max(1);
            let Some(batch) = self.batches.get_mut(kind) else { break };
            let due = begin + self.every * number;
            wait_until(due);
            partition.append_as_leader(batch).map_err(io::Error::other)?;
            late.push(due.elapsed());
            if let Some(stream) = &mut stream {
                let len = u32::try_from(batch.len()).unwrap_or(u32::MAX);
                message.clear();
                message.extend_from_slice(&Slice { partition: index, len }.encode());
                message.extend_from_slice(batch);
                stream.write_all(&message)?;
            }
        }
        Ok(Lateness { p50_us: quantile_us(&mut late, 50), p99_us: quantile_us(&mut late, 99) })
    }
}

fn batch(noise: &mut File, bytes: usize) -> io::Result<Vec<u8>> {
    let mut builder = BatchBuilder::new(Offset::ZERO).compression(Compression::None);
    let mut value = [0; VALUE_BYTES];
    while builder.records_count() == 0 || builder.records_bytes().len() < bytes {
        noise.read_exact(&mut value)?;
        let timestamp = TimestampMs(1_700_000_000_000);
        builder
            .push(&NewRecord { timestamp, key: None, value: Some(&value), headers: &[] })
            .map_err(io::Error::other)?;
    }
    builder.build().map_err(io::Error::other)
}
