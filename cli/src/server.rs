//! `heliostat server`

use std::path::PathBuf;

use clap::Args;
use heliostat_core::config::ServerConfig;
use heliostat_io::control::StopSignals;
use heliostat_io::host::{Host, HostReport};

use crate::failure::Failure;
use crate::output::say;

/// Arguments of `server`.
#[derive(Args, Debug)]
pub(crate) struct ServerArgs {
    /// Properties of the host: node.id, listeners, log.dirs, and the mirror.* keys.
    #[arg(value_name = "FILE.properties")]
    file: PathBuf,
}

/// Runs a mirroring host until it is told to stop; `false` if it did not end cleanly.
pub(crate) fn run(args: &ServerArgs) -> Result<bool, Failure> {
    let file = args.file.display().to_string();
    let bytes =
        std::fs::read(&args.file).map_err(|error| Failure::from_error(file.clone(), error))?;
    let config = ServerConfig::parse(&bytes).map_err(|error| Failure::from_error(file, error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::from_error("no runtime", error))?;
    let report = tokio::task::LocalSet::new().block_on(&runtime, serve(config))?;
    for error in &report.shard_errors {
        say(format!("shard: {error}"))?;
    }
    say(if report.clean { "clean stop" } else { "stopped; the next start recovers" })?;
    Ok(report.clean)
}

async fn serve(config: ServerConfig) -> Result<HostReport, Failure> {
    let signals = StopSignals::catch();
    let mut signals = signals.map_err(|error| Failure::from_error("signals", error))?;
    let (host, handle) =
        Host::start(config).await.map_err(|error| Failure::from_error("server", error))?;
    say(format!("listening on {}", handle.address()))?;
    let running = host.run();
    tokio::pin!(running);
    loop {
        tokio::select! {
            ended = &mut running => {
                return ended.map_err(|error| Failure::from_error("server", error));
            }
            () = signals.next() => handle.cancel(),
        }
    }
}
