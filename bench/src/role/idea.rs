//! The direct loop with one thing done otherwise.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use heliostat_io::net::set_low_water;

use super::loops::moved;
use crate::error::BenchError;
use crate::loops::{IdeaLoop, Ideas};
use crate::raw::Port;

/// What it moves.
#[derive(Args, Debug)]
pub(super) struct IdeaArgs {
    /// The raw port.
    #[arg(long)]
    source: SocketAddr,
    /// What has to come.
    #[arg(long)]
    bytes: u64,
    /// Directory of the files; it is made.
    #[arg(long)]
    to: PathBuf,
    #[command(flatten)]
    ideas: Ideas,
}

pub(super) fn play(args: &IdeaArgs) -> Result<(), BenchError> {
    let dir = args.to.clone();
    moved(&args.to, args.bytes, || {
        let stream = Port::connect(args.source)?;
        set_low_water(&stream, args.ideas.low_water)?;
        Ok((stream, Box::new(IdeaLoop::new(dir, args.ideas.clone())?)))
    })
}
