//! A real Kafka as the source, where its broker may have another network than this machine.

use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use super::tell;
use crate::error::BenchError;
use crate::kafka::{KafkaSource, KafkaSourceArgs, artifacts};

/// What it holds, and where it listens.
#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(flatten)]
    source: KafkaSourceArgs,
    /// Directory.
    #[arg(long)]
    dir: PathBuf,
    /// Address of the broker's listener.
    #[arg(long, default_value_t = Ipv4Addr::LOCALHOST)]
    listen: Ipv4Addr,
    /// `socket.send.buffer.bytes` of the broker; default: Kafka's, 102400.
    #[arg(long, allow_negative_numbers = true)]
    send_buffer_bytes: Option<i64>,
}

/// What others need to know of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Listening {
    pub(crate) bootstrap: String,
    /// Stored bytes, and records.
    pub(crate) bytes: u64,
    pub(crate) records: u64,
}

/// Starts and fills a broker, and ends with its standard input.
pub(super) fn play(args: &Arguments) -> Result<(), BenchError> {
    let own: Vec<(&str, String)> = args
        .send_buffer_bytes
        .map(|bytes| ("socket.send.buffer.bytes", bytes.to_string()))
        .into_iter()
        .collect();
    let source =
        KafkaSource::start_at(&artifacts()?, &args.dir, (args.listen, &own), &args.source)?;
    let (bootstrap, bytes, records) = (source.bootstrap(), source.bytes, source.records);
    tell(&Listening { bootstrap, bytes, records })?;
    // The end of the input is the end of the measurement, however it went.
    let _ = io::copy(&mut io::stdin().lock().take(u64::MAX), &mut io::sink());
    Ok(())
}
