//! Pictures of where the product's processor time goes, all by one command.
//!
//! Each scene plays one role of a comparison under `perf record`: the processor clock's ticks with
//! their stacks, kernel included, of the role's process alone.

mod perf;
mod scenes;

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use inferno::flamegraph::{Options, from_lines};

use self::perf::{Perf, Stacks};
use self::scenes::Scene;
use crate::error::BenchError;
use crate::host;
use crate::place::Place;

/// Narrower frames are left out: a picture is for reading. Percent.
const WIDTH_MIN: f64 = 0.2;

/// Arguments of `flamegraphs`.
#[derive(Args, Debug)]
pub(crate) struct FlamegraphsArgs {
    /// Only these; all without.
    #[arg(long, value_enum, value_name = "SCENE")]
    only: Vec<Scene>,
    /// Where the pictures go.
    #[arg(long, value_name = "DIR", default_value = "flamegraphs")]
    to: PathBuf,
    /// Ticks a second.
    #[arg(long, value_name = "HERTZ", default_value_t = 997)]
    frequency: u32,
    /// Where sources and copies are; default: where temporary files are.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Makes the pictures, and tells of those that this machine does not allow.
pub(crate) fn run(args: &FlamegraphsArgs) -> Result<(), BenchError> {
    perf::look()?;
    let scenes = if args.only.is_empty() { Scene::value_variants() } else { &args.only };
    for &scene in scenes {
        let place = Place::new(args.dir.as_deref())?;
        let perf = Perf::new(place.named("perf.data"), args.frequency);
        match scene.play(&place, &perf) {
            Err(missing @ (BenchError::NoKafka(_) | BenchError::Path(_))) => {
                eprintln!("{}: left out: {missing}", scene.name());
            }
            other => {
                other?;
                let stacks = perf.stacks(scene.within())?;
                let path = args.to.join(format!("{}.svg", scene.name()));
                draw(scene, &stacks, &path)?;
                println!("{}: {:.2} s", path.display(), stacks.cpu.as_secs_f64());
            }
        }
    }
    Ok(())
}

fn draw(scene: Scene, stacks: &Stacks, path: &Path) -> Result<(), BenchError> {
    let mut options = Options::default();
    scene.title().clone_into(&mut options.title);
    options.subtitle = Some(host::line());
    options.min_width = WIDTH_MIN;
    "ns".clone_into(&mut options.count_name);
    // The same frames have the same colours in all pictures.
    options.hash = true;
    let mut svg = Vec::new();
    from_lines(&mut options, stacks.folded.iter().map(String::as_str), &mut svg)
        .map_err(BenchError::system("draw a flame graph"))?;
    std::fs::write(path, svg).map_err(BenchError::file(path))
}
