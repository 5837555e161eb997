//! Plain TCP: what a path carries when nothing but bytes is asked of it.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::Args;

use super::tell;
use super::timed::Window;
use crate::error::BenchError;
use crate::process::peak_rss;
use crate::side::Side;

/// Bytes of a call.
const CALL_BYTES: usize = 256 << 10;
/// A path that brings nothing for so long is broken.
const SILENCE_MAX: Duration = Duration::from_secs(20);

/// Where it listens.
#[derive(Args, Clone, Debug)]
pub(super) struct SourceArgs {
    /// Address of the listener.
    #[arg(long, default_value_t = Ipv4Addr::LOCALHOST)]
    listen: Ipv4Addr,
}

/// What it reads.
#[derive(Args, Clone, Debug)]
pub(super) struct SinkArgs {
    /// Where the bytes come from.
    #[arg(long)]
    from: SocketAddr,
    /// Connections.
    #[arg(long, default_value_t = 1)]
    connections: u32,
    #[command(flatten)]
    window: Window,
}

/// Sends zeros to whoever connects, and ends with its standard input.
pub(super) fn source(args: &SourceArgs) -> Result<(), BenchError> {
    let failed = BenchError::system("listen for plain TCP");
    let listener = TcpListener::bind((args.listen, 0)).map_err(failed)?;
    let address = listener.local_addr().map_err(BenchError::system("find the own address"))?;
    tell(&address.to_string())?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || send(stream));
        }
    });
    // The end of the input is the end of the measurement, however it went.
    let _ = io::copy(&mut io::stdin().lock().take(u64::MAX), &mut io::sink());
    Ok(())
}

fn send(mut stream: TcpStream) {
    let zeros = vec![0; CALL_BYTES];
    // Until the sink goes.
    while stream.write_all(&zeros).is_ok() {}
}

/// Reads from all connections at once and throws everything away.
pub(super) fn sink(args: &SinkArgs) -> Result<(), BenchError> {
    let (received, enough) = (AtomicU64::new(0), AtomicBool::new(false));
    let (bytes, seconds, cpu) = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..args.connections)
            .map(|_| scope.spawn(|| receive(args.from, &received, &enough)))
            .collect();
        let figures = args.window.measure(
            || Ok(received.load(Ordering::Relaxed)),
            || readers.iter().any(|reader| reader.is_finished()),
        );
        enough.store(true, Ordering::Relaxed);
        for reader in readers {
            match reader.join() {
                Ok(outcome) => outcome.map_err(BenchError::system("plain TCP"))?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        figures
    })?;
    let rss_bytes = peak_rss(std::process::id()).unwrap_or(0);
    tell(&Side { bytes, seconds, cpu_seconds: cpu, rss_bytes })
}

fn receive(from: SocketAddr, received: &AtomicU64, enough: &AtomicBool) -> io::Result<()> {
    let mut stream = TcpStream::connect(from)?;
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    let mut bytes = vec![0; CALL_BYTES];
    while !enough.load(Ordering::Relaxed) {
        let count = stream.read(&mut bytes)?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        received.fetch_add(u64::try_from(count).unwrap_or(0), Ordering::Relaxed);
    }
    Ok(())
}
