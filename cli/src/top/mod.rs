//! `heliostat top`: mirrors, topics and partitions of a host, live.
//!
//! `model` is what is known and what of it is shown; `rows`, `rates`, `format` and `columns`
//! serve it; `draw` makes a frame of it. None of them has a clock, a connection or a terminal:
//! those are in `ask` and `terminal`, and come together here.

mod ask;
mod columns;
mod draw;
mod format;
mod model;
mod rates;
mod rows;
mod terminal;

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use heliostat_io::admin::AdminClient;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::time::MissedTickBehavior;

use crate::admin_args::{AdminArgs, ask as run_to_the_end};
use crate::failure::Failure;
use crate::output::say;

use ask::{Heard, ask, ask_for_ever};
use draw::{Now, draw, height_of_all};
use model::Model;
use terminal::{Input, Keys, Screen};

/// Ages on the screen are counted so often, whatever the host says.
const TICK: Duration = Duration::from_secs(1);
/// Columns of `--once`: reasons in full, as a pipe has no width.
const ONCE_WIDTH: u16 = 200;

/// Arguments of `top`.
#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// Where the host is.
    #[command(flatten)]
    admin: AdminArgs,

    /// Begin at the topics of this mirror.
    #[arg(long, value_name = "NAME")]
    mirror: Option<String>,

    /// Begin at the partitions of this topic.
    #[arg(long, value_name = "NAME", requires = "mirror")]
    topic: Option<String>,

    /// Seconds from an answer to the next question; longer if answers take long.
    #[arg(long, value_name = "SECONDS", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..=3_600))]
    interval: u64,

    /// Print one frame as text and end. Rates take two looks, an interval apart.
    #[arg(long)]
    once: bool,
}

/// Shows a host until the operator has seen enough.
pub(crate) fn run(args: &TopArgs) -> Result<bool, Failure> {
    let client = args.admin.client()?;
    let model = Model::new(args.admin.servers(), args.mirror.clone(), args.topic.clone());
    let interval = Duration::from_secs(args.interval);
    if args.once {
        return run_to_the_end(print_once(client, model, interval));
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Failure::new("standard input and output are not a terminal")
            .remedy("`heliostat top --once` prints one frame as text"));
    }
    run_to_the_end(live(client, model, interval))
}

fn now(origin: Instant) -> Now {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let wall_ms = i64::try_from(wall.as_millis()).unwrap_or(i64::MAX);
    Now { since_start: origin.elapsed(), wall_ms }
}

/// One frame with every row.
async fn print_once(
    mut client: AdminClient,
    mut model: Model,
    interval: Duration,
) -> Result<bool, Failure> {
    let origin = Instant::now();
    let query = model.query();
    for look in 0..2 {
        if look > 0 {
            tokio::time::sleep(interval).await;
        }
        let answer = ask(&mut client, &query).await?;
        model.take(&query, &answer, origin.elapsed());
    }
    say(text(&model, now(origin), ONCE_WIDTH))?;
    Ok(true)
}

/// A frame as text, as high as it has to be.
fn text(model: &Model, now: Now, width: u16) -> String {
    let height = height_of_all(model, now, width.into());
    let area = Rect::new(0, 0, width, u16::try_from(height).unwrap_or(u16::MAX));
    let mut buffer = Buffer::empty(area);
    draw(&mut buffer, area, model, now);
    let mut out = String::new();
    // Without the line of keys, which nobody can press.
    for y in 0..area.height.saturating_sub(1) {
        let cells = (0..area.width).filter_map(|x| buffer.cell((x, y)));
        let line: String = cells.map(|cell| cell.symbol()).collect();
        // A String takes every write.
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out.truncate(out.trim_end().len());
    out
}

/// Signals that end it; the terminal is given back first.
struct Ends {
    all: Vec<Signal>,
}

impl Ends {
    fn catch() -> std::io::Result<Self> {
        let kinds = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()];
        Ok(Self { all: kinds.into_iter().map(signal).collect::<Result<_, _>>()? })
    }

    async fn next(&mut self) {
        std::future::poll_fn(|cx| {
            let is_raised = self.all.iter_mut().any(|signal| signal.poll_recv(cx).is_ready());
            if is_raised { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
        })
        .await;
    }
}

async fn live(client: AdminClient, mut model: Model, interval: Duration) -> Result<bool, Failure> {
    let lost = |error| Failure::from_error("the terminal", error);
    let origin = Instant::now();
    let mut ends = Ends::catch().map_err(|error| Failure::from_error("signals", error))?;
    let (wanted, wants) = watch::channel(model.query());
    let (sender, mut heard) = mpsc::channel(1);
    let asking = ask_for_ever(client, wants, sender, interval);
    tokio::pin!(asking);
    let mut screen = Screen::open().map_err(lost)?;
    let mut keys = Keys::read().map_err(lost)?;
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while !model.is_over {
        screen.show(&mut model, now(origin)).map_err(lost)?;
        tokio::select! {
            // It ends when nobody listens, which is us.
            () = &mut asking => break,
            Some(news) = heard.recv() => take(&mut model, news, origin.elapsed()),
            input = keys.next() => match input {
                Some(Input::Key(key)) => model.press(key),
                Some(Input::Resized) => {}
                None => return Err(Failure::new("the terminal has gone")),
            },
            () = ends.next() => break,
            _ = ticks.tick() => {}
        }
        let query = model.query();
        wanted.send_if_modified(|last| {
            let is_new = *last != query;
            *last = query;
            is_new
        });
    }
    Ok(true)
}

fn take(model: &mut Model, news: Heard, now: Duration) {
    match news.outcome {
        Ok(answer) => model.take(&news.asked, &answer, now),
        Err(error) => model.miss(&error, now, now.saturating_add(news.next_in)),
    }
}

#[cfg(test)]
mod tests;
