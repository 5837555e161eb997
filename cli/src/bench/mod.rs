//! `heliostat bench`: what a copy costs and how fast it is, here and now.

mod args;
mod facts;
mod figures;
mod html;
mod lap;
mod origin;
mod path;
mod place;
mod report;
mod series;
mod soak;
pub(crate) mod source;
mod stop;
mod svg;

use std::fs;
use std::time::{Duration, Instant};

pub(crate) use self::args::BenchArgs;
use self::facts::Facts;
use self::figures::Figures;
use self::lap::{Lap, LapEnd, Limits, Look};
use self::origin::{Origin, Variant};
use self::path::Path;
use self::place::Place;
use self::report::Report;
use self::stop::Stop;
use crate::failure::Failure;
use crate::mirror::show_status;
use crate::output::{Meter, say};

/// The embedded topic.
const TOPIC: &str = "bench";
/// Longest time for a clean stop.
const STOP_WITHIN: Duration = Duration::from_secs(60);

/// What is measured, and where.
struct Bench<'a> {
    args: &'a BenchArgs,
    place: &'a Place,
    path: Option<&'a Path>,
    origin: &'a Origin,
    stop: &'a Stop,
    begun: Instant,
    /// Each in turn.
    variants: &'a [Variant],
}

/// Measures and prints; `false` if there is nothing to tell.
pub(crate) fn run(args: &BenchArgs) -> Result<bool, Failure> {
    args.check()?;
    if let Some(file) = &args.html {
        // An hour's figures are not to be lost by a wrong name.
        html::check(file)?;
    }
    let begun = Instant::now();
    let stop = Stop::catch()?;
    let place = Place::new(args.dir.as_deref())?;
    // Before all threads: they are to be at the near end too.
    let path = args.path.start()?;
    let origin = Origin::open(args, &place, path.as_ref(), &stop)?;
    let Some(origin) = origin else {
        say("stopped before anything was measured")?;
        return Ok(false);
    };
    let facts = Facts::now(&origin.text, place.root());
    let variants = origin.variants(args);
    let (place, path) = (&place, path.as_ref());
    let bench =
        Bench { args, place, path, origin: &origin, stop: &stop, begun, variants: &variants };
    let figures = if args.forever { soak::run(&bench)? } else { bench.rounds()? };
    if figures.rounds.is_empty() {
        say("stopped before anything was measured")?;
        return Ok(false);
    }
    let report = Report { args, facts: &facts, figures: &figures, path };
    if args.json {
        say(report.json(if args.forever { "summary" } else { "benchmark" }).to_string())?;
    } else {
        report.table()?;
    }
    if let Some(file) = &args.html {
        fs::write(file, html::page(&report))
            .map_err(|error| Failure::from_error(file.display().to_string(), error))?;
        if !args.json {
            say(format!("page: {}", file.display()))?;
        }
    }
    let is_complete = figures.rounds.iter().all(|round| round.ended != LapEnd::NoRoom);
    Ok(is_complete && (args.forever || !stop.is_asked_for()))
}

impl Bench<'_> {
    /// All variants in turn, so that what changes on the machine meanwhile meets all alike.
    fn rounds(&self) -> Result<Figures, Failure> {
        let until = self.args.time().map(|time| self.begun + time);
        let limits = Limits { bytes: self.origin.copy_bytes, until };
        let mut figures = Figures::new(self.variants);
        let mut longest = Duration::ZERO;
        for number in 0.. {
            let is_enough = self.args.rounds().is_some_and(|rounds| number >= rounds.into());
            let is_late = until.is_some_and(|until| Instant::now() + longest > until);
            if is_enough || (number > 0 && is_late) {
                break;
            }
            let begun = Instant::now();
            for variant in 0..self.variants.len() {
                let ended = self.round(&mut figures, limits, variant, number)?;
                if self.stop.is_asked_for() || matches!(ended, LapEnd::Time | LapEnd::NoRoom) {
                    return Ok(figures);
                }
            }
            longest = longest.max(begun.elapsed());
        }
        Ok(figures)
    }

    fn round(
        &self,
        figures: &mut Figures,
        limits: Limits,
        variant: usize,
        number: u64,
    ) -> Result<LapEnd, Failure> {
        let mut meter = Meter::new("bench");
        let lap =
            self.lap(figures, limits, (variant, number), &meter.no_notes(), &mut |look, _| {
                show_status(&mut meter, look.status);
            });
        meter.done();
        lap.map(|lap| lap.ended)
    }

    /// Copies once, takes the figures in, and removes the copy.
    fn lap(
        &self,
        figures: &mut Figures,
        limits: Limits,
        (variant, number): (usize, u64),
        notes: &crate::output::Notes,
        see: &mut dyn FnMut(&Look<'_>, &Figures),
    ) -> Result<Lap, Failure> {
        let Some(&settings) = self.variants.get(variant) else {
            return Err(Failure::new("no such variant"));
        };
        let config = self.origin.job(self.args, self.place, settings);
        figures.begin(self.begun.elapsed());
        let mut look = |look: &Look<'_>| {
            figures.look(self.begun.elapsed(), look, variant, number);
            see(look, figures);
        };
        let lap = Lap::run(config, limits, (self.path, notes), &mut look);
        let now = self.begun.elapsed();
        self.place.remove_copy()?;
        let lap = lap?;
        figures.end(now, variant, number, &lap);
        Ok(lap)
    }
}
