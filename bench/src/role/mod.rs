//! One side of a comparison in a process of its own: this program, started again.

mod child;
mod loops;
mod mirror;
mod source;

use clap::{Args, Subcommand};
use serde::Serialize;

pub(crate) use self::child::{Child, run};
use crate::error::BenchError;
use crate::place::pin;

/// Arguments of `role`.
#[derive(Args, Debug)]
pub(crate) struct RoleArgs {
    /// Stay on this processor.
    #[arg(long, value_name = "CPU")]
    cpu: Option<usize>,
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// The embedded source: generates, serves, and ends with its standard input.
    Source(source::SourceArgs),
    /// A loop that only moves bytes, from the raw port of the source.
    Loop(loops::LoopArgs),
    /// The product: copies once, to a clean stop.
    Mirror(mirror::MirrorArgs),
}

/// Plays one role to its end.
pub(crate) fn play(args: &RoleArgs) -> Result<(), BenchError> {
    if let Some(cpu) = args.cpu {
        pin(cpu)?;
    }
    match &args.role {
        Role::Source(args) => source::play(args),
        Role::Loop(args) => loops::play(args),
        Role::Mirror(args) => mirror::play(args),
    }
}

/// Figures go to standard output, one line, as JSON.
fn tell(figures: &impl Serialize) -> Result<(), BenchError> {
    let line = serde_json::to_string(figures)
        .map_err(|error| BenchError::Role { role: "figures".to_owned(), why: error.to_string() })?;
    println!("{line}");
    Ok(())
}
