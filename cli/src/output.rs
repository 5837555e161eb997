//! Standard output, and how numbers read.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::failure::Failure;

/// Time between two lines where there is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// A failure to write to standard output.
pub(crate) fn unwritable(error: io::Error) -> Failure {
    Failure::from_error("standard output", error)
}

/// Writes a line to standard output.
pub(crate) fn say(line: impl AsRef<str>) -> Result<(), Failure> {
    writeln!(io::stdout(), "{}", line.as_ref()).map_err(unwritable)
}

/// A number for arithmetic that ends on a screen; exact up to 2^53.
pub(crate) fn approximate(value: u64) -> f64 {
    let half = |bits: u64| f64::from(u32::try_from(bits & 0xffff_ffff).unwrap_or(0));
    half(value >> 32) * 4_294_967_296.0 + half(value)
}

/// A size in decimal units, as rates are given.
pub(crate) fn size(bytes: u64) -> String {
    let value = approximate(bytes);
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", value / 1e6),
        1_000_000_000.. => format!("{:.2} GB", value / 1e9),
    }
}

/// A number of things.
pub(crate) fn counted(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// A rate.
pub(crate) fn rate(bytes: u64, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 {
        format!("{:.0} MB/s", approximate(bytes) / 1e6 / seconds)
    } else {
        "-".to_owned()
    }
}

/// A span of time for reading.
pub(crate) fn span(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        seconds @ 10..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3_600, seconds / 60 % 60),
    }
}

/// A bar on a terminal, a line every few seconds elsewhere; on standard error.
#[derive(Debug)]
pub(crate) struct Meter {
    name: &'static str,
    bar: Option<ProgressBar>,
    next_line: Instant,
}

impl Meter {
    /// A meter that shows nothing yet.
    pub(crate) fn new(name: &'static str) -> Self {
        let bar = io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(0).with_prefix(name);
            let style = "{prefix:>8} {bar:30} {percent:>3} % {msg}";
            // The template is constant; without it the default style is shown.
            if let Ok(style) = ProgressStyle::with_template(style) {
                bar.set_style(style);
            }
            bar
        });
        Self { name, bar, next_line: Instant::now() + LINE_EVERY }
    }

    /// Shows how far it is.
    pub(crate) fn show(&mut self, done: u64, all: u64, text: &str) {
        if let Some(bar) = &self.bar {
            bar.set_length(all.max(done).max(1));
            bar.set_position(done);
            bar.set_message(text.to_owned());
        } else if Instant::now() >= self.next_line {
            self.next_line = Instant::now() + LINE_EVERY;
            let percent = done.saturating_mul(100).checked_div(all).unwrap_or(100).min(100);
            // Progress is a courtesy; nothing depends on it.
            let _ = writeln!(io::stderr(), "{}: {percent} % {text}", self.name);
        }
    }

    /// For lines that stay, above the bar.
    pub(crate) fn notes(&self) -> Notes {
        Notes { bar: self.bar.clone(), shown: Shown::All }
    }

    /// For what happens, without what was set up.
    pub(crate) fn event_notes(&self) -> Notes {
        Notes { shown: Shown::Events, ..self.notes() }
    }

    /// For lines that nobody wants.
    pub(crate) fn no_notes(&self) -> Notes {
        Notes { shown: Shown::Nothing, ..self.notes() }
    }

    /// Takes the bar away.
    pub(crate) fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Lines on standard error that do not disturb the bar.
#[derive(Clone, Debug)]
pub(crate) struct Notes {
    bar: Option<ProgressBar>,
    shown: Shown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shown {
    All,
    Events,
    Nothing,
}

impl Notes {
    /// Prints a line about how something is set up.
    pub(crate) fn note_settings(&self, line: &str) {
        if self.shown == Shown::All {
            self.note(line);
        }
    }

    /// Prints a line.
    pub(crate) fn note(&self, line: &str) {
        match &self.bar {
            _ if self.shown == Shown::Nothing => {}
            Some(bar) => bar.suspend(|| note(line)),
            None => note(line),
        }
    }
}

fn note(line: &str) {
    // Nothing is left to try when standard error is gone.
    let _ = writeln!(io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(size(999), "999 B");
        assert_eq!(size(1_500_000), "1.5 MB");
        assert_eq!(size(2_340_000_000), "2.34 GB");
        assert_eq!(rate(10_000_000, Duration::from_secs(2)), "5 MB/s");
        assert_eq!(rate(1, Duration::ZERO), "-");
        assert_eq!(span(Duration::from_millis(1_500)), "1.5 s");
        assert_eq!(span(Duration::from_secs(125)), "2 min 5 s");
    }
}
