//! A frame: what the model knows, in cells.
//!
//! ```text
//!   heliostat top  HOST:PORT  mirror / topic                    sorted by trouble
//!   what all of it adds up to
//!   what is the matter with the connection, and what rows are left out
//!   MIRROR  STATE  LAG …
//!   rows
//!   ── the selected one ─────
//!   its reason, whole
//!   keys
//! ```

use std::time::Duration;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};

use super::columns::{Column, columns};
use super::format::{bytes, count, cut, cut_end, or_dash, rate, span, wrap};
use super::model::{Mode, Model, Place};
use super::rates::Busy;
use super::rows::{Row, Trouble};

/// A terminal with less than this shows nothing of use.
const WIDTH_MIN: u16 = 50;
const HEIGHT_MIN: u16 = 10;
/// Lines above the rows, beside notes, and below the details.
const HEAD: usize = 3;
const FOOT: usize = 1;
/// Lines of notes.
const NOTES_MAX: usize = 4;
/// Figures are marked as old from then on.
const FRESH: Duration = Duration::from_secs(5);

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const REVERSED: Style = Style::new().add_modifier(Modifier::REVERSED);
const ALARM: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
const WARNING: Style = Style::new().fg(Color::Yellow);

/// Where one draws, line by line.
struct Page<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
}

impl Page<'_> {
    fn width(&self) -> usize {
        self.area.width.into()
    }

    fn height(&self) -> usize {
        self.area.height.into()
    }

    /// Writes at a column of a line; what does not fit is cut.
    fn put(&mut self, line: usize, column: usize, text: &str, style: Style) {
        let place = (u16::try_from(column), u16::try_from(line));
        let (Ok(column), Ok(line)) = place else { return };
        if line < self.area.height && column < self.area.width {
            let (x, y) = (self.area.x + column, self.area.y + line);
            let room = usize::from(self.area.width - column);
            self.buffer.set_stringn(x, y, text, room, style);
        }
    }

    fn line(&mut self, line: usize, text: &str, style: Style) {
        let text = format!("{text:<width$}", width = self.width());
        self.put(line, 0, &text, style);
    }
}

/// Time, as those know it who draw.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    /// Since the program began.
    pub(super) since_start: Duration,
    /// Milliseconds since the Unix epoch.
    pub(super) wall_ms: i64,
}

/// Draws a frame, and says how many rows it has room for.
pub(super) fn draw(buffer: &mut Buffer, area: Rect, model: &Model, now: Now) -> usize {
    let mut page = Page { buffer, area };
    if area.width < WIDTH_MIN || area.height < HEIGHT_MIN {
        too_small(&mut page);
        return 1;
    }
    let head_rows = HEAD + notes(model, now, page.width()).0.len();
    let details = details(model, now, page.width());
    // At most half of the page; there is always a line for the name and one for a reason.
    let room = details.len().clamp(2, page.height() / 2);
    let page_rows = page.height().saturating_sub(head_rows + FOOT + room).max(1);
    head(&mut page, model, now);
    if model.mode == Mode::Help {
        help(&mut page, head_rows - 1);
    } else {
        table(&mut page, model, (head_rows, page_rows), now);
        for (index, (text, style)) in details.into_iter().take(room).enumerate() {
            page.line(head_rows + page_rows + index, &text, style);
        }
    }
    foot(&mut page, model);
    page_rows
}

/// Lines that a frame needs to show every row, and all of the details.
pub(super) fn height_of_all(model: &Model, now: Now, width: usize) -> usize {
    let details = details(model, now, width).len().max(2);
    let head_rows = HEAD + notes(model, now, width).0.len();
    let all = head_rows + model.visible().len().max(1) + details + FOOT;
    // Details take half at most.
    all.max(details * 2).max(HEIGHT_MIN.into())
}

fn too_small(page: &mut Page<'_>) {
    let text = format!(
        "this terminal has {}x{}; heliostat top needs {WIDTH_MIN}x{HEIGHT_MIN}, better 80x24. \
         q quits.",
        page.area.width, page.area.height
    );
    for (index, line) in wrap(&text, page.width()).iter().enumerate() {
        page.line(index, line, Style::new());
    }
}

fn head(page: &mut Page<'_>, model: &Model, now: Now) {
    let place = match &model.current().place {
        Place::Mirrors => "mirrors".to_owned(),
        Place::Topics { mirror } => mirror.clone(),
        Place::Partitions { mirror, topic } => format!("{mirror} / {topic}"),
    };
    let order = if model.is_reversed { ", reversed" } else { "" };
    let right = format!("sort: {}{order}", model.sort.name());
    let room = page.width().saturating_sub(right.len() + 2);
    let left = cut(&format!("heliostat top  {}  {place}", model.server), room);
    page.line(0, &left, REVERSED);
    let column = page.width().saturating_sub(right.len());
    page.put(0, column, &right, REVERSED);
    let (text, style) = sums(model);
    page.line(1, &cut_end(&text, page.width()), style);
    let (notes, style) = notes(model, now, page.width());
    for (index, text) in notes.iter().enumerate() {
        page.line(2 + index, text, style);
    }
}

/// What all rows add up to, or what there is to say of the mirror that they are in.
fn sums(model: &Model) -> (String, Style) {
    let listing = model.current();
    if let Some(mirror) = &listing.mirror {
        return (mirror_sums(mirror), Style::new());
    }
    if listing.heard_at.is_none() {
        return (format!("asking {} ...", model.server), DIM);
    }
    let rows = &listing.rows;
    let partitions: u64 = rows.iter().map(|row| row.partitions).sum();
    let failing: u64 = rows.iter().map(|row| row.failing).sum();
    let in_trouble = rows.iter().filter(|row| row.is_in_trouble()).count();
    let sum = |value: fn(&Row) -> Option<u64>| {
        rows.iter().filter_map(value).fold(0_u64, u64::saturating_add)
    };
    let lag_time = rows.iter().filter_map(|row| row.lag_time).max().unwrap_or_default();
    let all_rates: f64 = rows.iter().filter_map(|row| row.rate).sum();
    let trouble = match failing {
        0 if in_trouble > 0 => format!("{in_trouble} of {} mirrors held up", rows.len()),
        0 => format!("{} partitions, none failing", count(partitions)),
        _ => format!("{} of {} partitions failing", count(failing), count(partitions)),
    };
    let text = format!(
        "{trouble}; {} MB/s; behind {}, {}, {}",
        rate(all_rates),
        count(sum(|row| row.lag)),
        bytes(sum(|row| row.lag_bytes)),
        span(lag_time),
    );
    (text, if in_trouble > 0 { ALARM } else { BOLD })
}

fn mirror_sums(mirror: &Row) -> String {
    format!(
        "{} MB/s; behind {}, {}, {}; {}; from {}",
        or_dash(mirror.rate, rate),
        or_dash(mirror.lag, count),
        or_dash(mirror.lag_bytes, bytes),
        or_dash(mirror.lag_time, span),
        binds(mirror),
        mirror.source.as_deref().unwrap_or("an unknown source"),
    )
}

fn binds(mirror: &Row) -> String {
    match mirror.busy {
        None => "binds: -".to_owned(),
        Some(Busy { binds: None, cpu_percent, .. }) => {
            format!("nothing binds, CPU {cpu_percent}%")
        }
        Some(Busy { binds: Some(binds), percent, cpu_percent }) => {
            if binds == super::rates::Binds::Cpu {
                format!("binds: CPU {percent}%")
            } else {
                format!("binds: {binds} {percent}%, CPU {cpu_percent}%")
            }
        }
    }
}

/// What is the matter with the connection, the filters, and rows that are not there; one line at
/// least, so that rows do not jump for a word.
fn notes(model: &Model, now: Now, width: usize) -> (Vec<String>, Style) {
    let (text, style) = note(model, now);
    let mut lines = wrap(&text, width);
    lines.truncate(NOTES_MAX);
    lines.resize(lines.len().max(1), String::new());
    (lines, style)
}

fn note(model: &Model, now: Now) -> (String, Style) {
    let listing = model.current();
    let since = |then: Duration| now.since_start.saturating_sub(then);
    let age = listing.heard_at.map(since);
    if let Some(silence) = &model.silence {
        let old = match age {
            Some(age) => format!("FIGURES {} OLD", span(age)),
            None => "NO FIGURES".to_owned(),
        };
        let wait = silence.next_try.saturating_sub(now.since_start).as_secs();
        let text = format!("{old}, next try in {wait}s: {}", silence.error);
        return (text, ALARM);
    }
    let mut notes = Vec::new();
    let mut style = WARNING;
    if let Some(age) = age.filter(|age| *age >= FRESH) {
        notes.push(format!("FIGURES {} OLD, the host is asked", span(age)));
        style = ALARM;
    }
    if model.only_trouble {
        notes.push("only what is failing (f shows all)".to_owned());
    }
    if !listing.filter.is_empty() && model.mode != Mode::Filter {
        notes.push(format!("filter: {} (Esc clears it)", listing.filter));
    }
    if listing.left_out > 0 {
        notes.push(format!("{} are left out: not failing, and least behind", listing.left_out));
    }
    (notes.join("; "), style)
}

/// `lines` are those above the rows, and those that rows have.
fn table(page: &mut Page<'_>, model: &Model, lines: (usize, usize), now: Now) {
    let (head_rows, page_rows) = lines;
    let listing = model.current();
    let columns = columns(&listing.place, page.width());
    let heads = |it: &Column| it.kind.head(&listing.place, model.sort, model.is_reversed);
    page.line(head_rows - 1, "", BOLD.add_modifier(Modifier::UNDERLINED));
    cells(page, head_rows - 1, &columns, heads, BOLD.add_modifier(Modifier::UNDERLINED));
    let rows = model.visible();
    if rows.is_empty() {
        page.put(head_rows, 3, nothing(model), DIM);
    }
    let is_old = model.silence.is_some()
        || listing.heard_at.is_some_and(|at| now.since_start.saturating_sub(at) >= FRESH);
    let selected = model.selected().unwrap_or(0);
    // Whole pages, so that a row stays where it is while one moves within its page.
    let first = selected / page_rows.max(1) * page_rows;
    for (index, row) in rows.iter().enumerate().skip(first).take(page_rows) {
        let mut style = match row.trouble {
            Trouble::GivenUp | Trouble::Failed => ALARM,
            Trouble::HeldUp => WARNING,
            Trouble::None => Style::new(),
        };
        if is_old {
            style = style.patch(DIM);
        }
        if index == selected {
            style = style.patch(REVERSED);
        }
        let line = head_rows + index - first;
        page.line(line, "", style);
        cells(page, line, &columns, |it| it.kind.cell(row), style);
    }
}

/// Why there is no row.
fn nothing(model: &Model) -> &'static str {
    let listing = model.current();
    match (&listing.place, listing.heard_at) {
        (_, None) => "no figures yet",
        _ if !listing.rows.is_empty() && model.only_trouble && listing.filter.is_empty() => {
            "nothing is failing (f shows all)"
        }
        _ if !listing.rows.is_empty() || !listing.filter.is_empty() => {
            "nothing passes the filter (Esc clears it)"
        }
        (Place::Mirrors, _) => "no mirrors: heliostat mirrors --create makes one",
        (Place::Topics { .. }, _) => "no topics: heliostat mirrors --start mirrors some",
        (Place::Partitions { .. }, _) => "no partitions: the topic has gone",
    }
}

fn cells(
    page: &mut Page<'_>,
    line: usize,
    columns: &[Column],
    text: impl Fn(&Column) -> String,
    style: Style,
) {
    let mut at = 0;
    for column in columns {
        let text = column.kind.fit(&text(column), column.width);
        let indent = if column.kind.is_left() { 0 } else { column.width - text.chars().count() };
        page.put(line, at + indent, &text, style);
        at += column.width + 1;
    }
}

/// The selected row, whole.
fn details(model: &Model, now: Now, width: usize) -> Vec<(String, Style)> {
    let rows = model.visible();
    let selected = model.selected();
    let Some(row) = selected.and_then(|at| rows.get(at)) else {
        return vec![("─".repeat(width), DIM)];
    };
    let at = selected.map_or(0, |at| at + 1);
    let name = match &model.current().place {
        Place::Partitions { topic, .. } => format!("{topic}-{}", row.name),
        Place::Mirrors | Place::Topics { .. } => row.name.clone(),
    };
    let position = format!(" {at} of {} ─", rows.len());
    let room = width.saturating_sub(position.chars().count() + 5);
    let rule = format!("─ {} ", cut(&name, room));
    let fill = width.saturating_sub(rule.chars().count() + position.chars().count());
    let mut lines = vec![(format!("{rule}{}{position}", "─".repeat(fill)), DIM)];
    let style = match row.trouble {
        Trouble::GivenUp | Trouble::Failed => ALARM,
        Trouble::HeldUp => WARNING,
        Trouble::None => Style::new(),
    };
    lines.extend(wrap(&facts(row, model, now), width).into_iter().map(|text| (text, Style::new())));
    if let Some(reason) = &row.reason {
        lines.extend(wrap(reason, width).into_iter().map(|text| (text, style)));
    }
    lines
}

/// The selected row in words.
fn facts(row: &Row, model: &Model, now: Now) -> String {
    let mut facts = Vec::new();
    match &model.current().place {
        Place::Mirrors => {
            let source = row.source.as_deref().unwrap_or("an unknown source");
            let topics = or_dash(row.topics, count);
            let partitions = count(row.partitions);
            facts.push(format!("{topics} topics, {partitions} partitions from {source}"));
            facts.push(binds(row));
        }
        Place::Topics { .. } => facts.push(format!("{} partitions", count(row.partitions))),
        Place::Partitions { .. } => {
            facts.push(format!(
                "source ends at {}, copy at {}",
                or_dash(row.source_offset, |it| it.to_string()),
                or_dash(row.destination_offset, |it| it.to_string()),
            ));
            if let Some(wanted) = row.wanted.as_ref().filter(|wanted| **wanted != row.state) {
                facts.push(format!("wanted {wanted}"));
            }
        }
    }
    let since = row.since_ms.map(|since| {
        let ms = u64::try_from(now.wall_ms.saturating_sub(since)).unwrap_or(0);
        format!(" for {}", span(Duration::from_millis(ms)))
    });
    if row.is_in_trouble() {
        let how_many = if row.partitions == 1 { String::new() } else { count(row.failing) + " " };
        facts.push(format!("{how_many}failing{}", since.unwrap_or_default()));
    }
    match row.trouble {
        Trouble::GivenUp => facts
            .push("not tried again: mend the cause, then heliostat mirrors --recover".to_owned()),
        Trouble::Failed => facts.push(format!("{} retries so far, goes on", row.retries)),
        Trouble::HeldUp | Trouble::None => {}
    }
    facts.join("; ")
}

fn foot(page: &mut Page<'_>, model: &Model) {
    let line = page.height().saturating_sub(1);
    let (text, style) = match model.mode {
        Mode::Filter => {
            (format!("/{}_   Enter keeps it, Esc clears it", model.current().filter), BOLD)
        }
        Mode::Help => ("any key goes back".to_owned(), DIM),
        Mode::Table => {
            let enter = match model.current().place {
                Place::Mirrors => "Enter in  ",
                Place::Topics { .. } => "Enter in  Esc back  ",
                Place::Partitions { .. } => "Esc back  ",
            };
            (format!("{enter}s sort  r reverse  / filter  f failing only  ? help  q quit"), DIM)
        }
    };
    page.line(line, &text, style);
}

const HELP: [&str; 18] = [
    "Enter  into the selected mirror or topic       Esc  back, or clears the filter",
    "s      sorts by the next column                r    reverses the order",
    "/      filters by name, state or reason        f    only what is failing",
    "Up Down PgUp PgDn Home End (k j g G) select    q    quits",
    "",
    "!!     has failed, is not tried again: heliostat mirrors --recover",
    "!      has failed, is tried again by itself",
    "~      is held up: its source is away, it has no leader, no room",
    "STATE  the least advanced one; FAILED 2/120: two of 120 partitions are in it",
    "LAG    records of the source that the copy lacks; BYTES: their size, estimated",
    "TIME   for how long the copy has lacked something",
    "MB/s   appended, over the last five seconds; RETRY: failures since a success",
    "BINDS  what most of the time goes to; - while the copy keeps up:",
    "       source    answers begin late         network  answers take long to come",
    "       throttle  the mirror's rate limit    disk     writes are slow",
    "       CPU       a shard has no processor time left",
    "Of very many topics or partitions one sees those that fail, and those furthest",
    "behind; a filter finds the others.",
];

fn help(page: &mut Page<'_>, first: usize) {
    let room = page.height().saturating_sub(first + FOOT);
    for (index, text) in HELP.iter().take(room).enumerate() {
        page.line(first + index, text, Style::new());
    }
}
