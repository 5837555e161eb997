//! What `top` knows and what of it is shown, without a terminal, a clock or a connection.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::time::Duration;

use heliostat_core::protocol::mirror::DescribeClusterMirrorsResponse;
use heliostat_io::admin::FiguresQuery;

use super::rates::Meters;
use super::rows::Row;

/// Rows that are asked for: whoever has more sees those in trouble, and those furthest behind.
const ROWS_MAX: i32 = 5_000;
/// Longest text that is searched for.
const FILTER_MAX: usize = 100;

/// What a table is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Mirrors,
    Topics { mirror: String },
    Partitions { mirror: String, topic: String },
}

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// What has failed before what is held up, and that before the rest; then by lag.
    Trouble,
    Name,
    State,
    Lag,
    LagBytes,
    LagTime,
    Rate,
    Binds,
    Retries,
}

impl Sort {
    const ALL: [Self; 9] = [
        Self::Trouble,
        Self::Name,
        Self::State,
        Self::Lag,
        Self::LagBytes,
        Self::LagTime,
        Self::Rate,
        Self::Binds,
        Self::Retries,
    ];

    /// The one after it; the table of a level may lack its column.
    fn next(self) -> Self {
        let at = Self::ALL.iter().position(|it| *it == self).map_or(0, |at| at + 1);
        Self::ALL.get(at).copied().unwrap_or(Self::Trouble)
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Trouble => "trouble",
            Self::Name => "name",
            Self::State => "state",
            Self::Lag => "lag",
            Self::LagBytes => "bytes behind",
            Self::LagTime => "time behind",
            Self::Rate => "MB/s",
            Self::Binds => "binds",
            Self::Retries => "retries",
        }
    }

    /// What is to be looked at comes first: the most, or the first name.
    fn compare(self, a: &Row, b: &Row) -> Ordering {
        let binds = |row: &Row| row.busy.and_then(|busy| busy.binds);
        match self {
            Self::Trouble => a.trouble.cmp(&b.trouble).then_with(|| b.lag_time.cmp(&a.lag_time)),
            Self::Name => Ordering::Equal,
            Self::State => a.state_rank.cmp(&b.state_rank),
            Self::Lag => b.lag.cmp(&a.lag),
            Self::LagBytes => b.lag_bytes.cmp(&a.lag_bytes),
            Self::LagTime => b.lag_time.cmp(&a.lag_time),
            Self::Rate => b.rate.unwrap_or(-1.0).total_cmp(&a.rate.unwrap_or(-1.0)),
            Self::Binds => binds(b).cmp(&binds(a)),
            Self::Retries => b.retries.cmp(&a.retries),
        }
    }
}

/// A key, as far as one means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Escape,
    Backspace,
    /// Ctrl-C, which ends everything.
    Interrupt,
}

/// What keys go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Table,
    /// The text that rows are filtered by is typed.
    Filter,
    Help,
}

/// Why there are no new figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Silence {
    pub(super) error: String,
    /// When it began.
    pub(super) since: Duration,
    /// When is asked again.
    pub(super) next_try: Duration,
}

/// A table: of mirrors, of a mirror's topics, or of a topic's partitions.
#[derive(Clone, Debug)]
pub(super) struct Listing {
    pub(super) place: Place,
    /// As they came.
    pub(super) rows: Vec<Row>,
    /// Of the mirror that it is in.
    pub(super) mirror: Option<Row>,
    /// Rows that the host has left out.
    pub(super) left_out: i32,
    pub(super) filter: String,
    /// When the rows came.
    pub(super) heard_at: Option<Duration>,
    selected: Option<String>,
    /// Where the selected row was: another one is selected there if it goes.
    cursor: usize,
    meters: Meters,
    mirror_meters: Meters,
}

impl Listing {
    fn new(place: Place) -> Self {
        Self {
            place,
            rows: Vec::new(),
            mirror: None,
            left_out: 0,
            filter: String::new(),
            heard_at: None,
            selected: None,
            cursor: 0,
            meters: Meters::default(),
            mirror_meters: Meters::default(),
        }
    }

    fn take(&mut self, answer: &DescribeClusterMirrorsResponse, now: Duration) {
        let (at_ms, meters) = (answer.taken_at_ms, &mut self.meters);
        let mirror = answer.mirrors.first();
        let (rows, left_out): (Vec<Row>, _) = match &self.place {
            Place::Mirrors => {
                // One that went while all were looked at has only an error.
                let mirrors = answer.mirrors.iter().filter(|it| it.error_code == 0);
                (mirrors.map(|it| Row::of_mirror(it, meters)).collect(), 0)
            }
            Place::Topics { .. } => {
                let topics = mirror.into_iter().flat_map(|it| &it.topics);
                let rows = topics.map(|it| Row::of_topic(it, at_ms, meters)).collect();
                (rows, mirror.map_or(0, |it| it.topics_left_out))
            }
            Place::Partitions { .. } => {
                let topic = mirror.and_then(|it| it.topics.first());
                let partitions = topic.into_iter().flat_map(|it| &it.partitions);
                let rows = partitions.map(|it| Row::of_partition(it, at_ms, meters)).collect();
                (rows, topic.map_or(0, |it| it.partitions_left_out))
            }
        };
        if self.place != Place::Mirrors {
            self.mirror = mirror.map(|it| Row::of_mirror(it, &mut self.mirror_meters));
        }
        self.meters.retain(&rows.iter().map(|row| row.name.as_str()).collect::<BTreeSet<_>>());
        self.rows = rows;
        self.left_out = left_out;
        self.heard_at = Some(now);
    }
}

/// See the module's text.
#[derive(Clone, Debug)]
pub(super) struct Model {
    /// Who is asked.
    pub(super) server: String,
    /// Where we are, and behind it where we came from.
    current: Listing,
    behind: Vec<Listing>,
    pub(super) sort: Sort,
    pub(super) is_reversed: bool,
    pub(super) only_trouble: bool,
    pub(super) mode: Mode,
    pub(super) silence: Option<Silence>,
    /// Rows on the screen, by which one pages.
    pub(super) page: usize,
    pub(super) is_over: bool,
}

impl Model {
    /// Nothing is known yet. `mirror` and `topic` name where to begin.
    pub(super) fn new(server: String, mirror: Option<String>, topic: Option<String>) -> Self {
        let mut model = Self {
            server,
            current: Listing::new(Place::Mirrors),
            behind: Vec::new(),
            sort: Sort::Trouble,
            is_reversed: false,
            only_trouble: false,
            mode: Mode::Table,
            silence: None,
            page: 1,
            is_over: false,
        };
        if let Some(mirror) = mirror {
            model.enter(Place::Topics { mirror: mirror.clone() });
            if let Some(topic) = topic {
                model.enter(Place::Partitions { mirror, topic });
            }
        }
        model
    }

    pub(super) fn current(&self) -> &Listing {
        &self.current
    }

    /// What is to be asked for.
    pub(super) fn query(&self) -> FiguresQuery {
        match self.current.place.clone() {
            Place::Mirrors => FiguresQuery::Mirrors,
            Place::Topics { mirror } => FiguresQuery::Topics {
                mirror,
                contains: self.current.filter.clone(),
                rows_max: ROWS_MAX,
            },
            Place::Partitions { mirror, topic } => {
                FiguresQuery::Partitions { mirror, topic, rows_max: ROWS_MAX }
            }
        }
    }

    /// An answer. One to what is no longer asked comes to nothing.
    pub(super) fn take(
        &mut self,
        asked: &FiguresQuery,
        answer: &DescribeClusterMirrorsResponse,
        now: Duration,
    ) {
        self.silence = None;
        if *asked == self.query() {
            self.current.take(answer, now);
            self.settle();
        }
    }

    /// No answer; the next try is at `next_try`. What is known stays.
    pub(super) fn miss(&mut self, error: &str, now: Duration, next_try: Duration) {
        let since = self.silence.as_ref().map_or(now, |silence| silence.since);
        let error = super::format::plain(error);
        self.silence = Some(Silence { error, since, next_try });
    }

    /// What is shown, in its order.
    pub(super) fn visible(&self) -> Vec<&Row> {
        let text = self.current.filter.to_lowercase();
        let rows = self.current.rows.iter();
        let mut rows: Vec<&Row> = rows
            .filter(|row| text.is_empty() || row.holds_text(&text))
            .filter(|row| !self.only_trouble || row.is_in_trouble())
            .collect();
        rows.sort_by(|a, b| {
            let by_name = a.index.cmp(&b.index).then_with(|| a.name.cmp(&b.name));
            let order = self.sort.compare(a, b);
            match (self.is_reversed, self.sort) {
                (false, _) => order.then(by_name),
                (true, Sort::Name) => by_name.reverse(),
                // Rows that are alike stay in the order of their names.
                (true, _) => order.reverse().then(by_name),
            }
        });
        rows
    }

    /// Index of the selected row among those that are shown.
    pub(super) fn selected(&self) -> Option<usize> {
        let rows = self.visible();
        let selected = self.current.selected.as_deref();
        let found = selected.and_then(|name| rows.iter().position(|row| row.name == name));
        found.or_else(|| rows.len().checked_sub(1).map(|last| self.current.cursor.min(last)))
    }

    /// The selection keeps to its row; if that goes, to its place.
    fn settle(&mut self) {
        // Without a choice of the operator the first row is the selected one.
        if self.current.selected.is_some()
            && let Some(at) = self.selected()
        {
            self.select(at);
        }
    }

    fn select(&mut self, at: usize) {
        let rows = self.visible();
        let at = at.min(rows.len().saturating_sub(1));
        let name = rows.get(at).map(|row| row.name.clone());
        if name.is_some() {
            self.current.selected = name;
            self.current.cursor = at;
        }
    }

    fn move_by(&mut self, rows: isize) {
        let at = self.selected().unwrap_or(0);
        self.select(at.saturating_add_signed(rows));
    }

    fn enter(&mut self, place: Place) {
        let from = std::mem::replace(&mut self.current, Listing::new(place));
        self.behind.push(from);
    }

    fn enter_selected(&mut self) {
        let rows = self.visible();
        let Some(name) = self.selected().and_then(|at| rows.get(at)).map(|row| row.name.clone())
        else {
            return;
        };
        self.current.selected = Some(name.clone());
        match &self.current.place {
            Place::Mirrors => self.enter(Place::Topics { mirror: name }),
            Place::Topics { mirror } => {
                let mirror = mirror.clone();
                self.enter(Place::Partitions { mirror, topic: name });
            }
            Place::Partitions { .. } => {}
        }
    }

    /// Back by one: out of the filter, or to where we came from.
    fn leave(&mut self) {
        if !self.current.filter.is_empty() {
            self.current.filter.clear();
        } else if let Some(before) = self.behind.pop() {
            self.current = before;
        }
        self.settle();
    }

    /// A key was pressed.
    pub(super) fn press(&mut self, key: Key) {
        match (self.mode, key) {
            (_, Key::Interrupt) => self.is_over = true,
            (Mode::Help, _) => self.mode = Mode::Table,
            (Mode::Filter, key) => self.type_filter(key),
            (Mode::Table, key) => self.press_in_table(key),
        }
    }

    fn type_filter(&mut self, key: Key) {
        let filter = &mut self.current.filter;
        match key {
            Key::Char(letter) if filter.chars().count() < FILTER_MAX => filter.push(letter),
            Key::Backspace => {
                filter.pop();
            }
            Key::Enter => self.mode = Mode::Table,
            Key::Escape => {
                filter.clear();
                self.mode = Mode::Table;
            }
            _ => {}
        }
        self.settle();
    }

    fn press_in_table(&mut self, key: Key) {
        let page = isize::try_from(self.page.max(1)).unwrap_or(isize::MAX);
        match key {
            Key::Char('q') => self.is_over = true,
            Key::Char('?' | 'h') => self.mode = Mode::Help,
            Key::Char('/') => self.mode = Mode::Filter,
            Key::Char('s') => self.sort = self.next_sort(),
            Key::Char('r') => self.is_reversed = !self.is_reversed,
            Key::Char('f') => {
                self.only_trouble = !self.only_trouble;
                self.settle();
            }
            Key::Up | Key::Char('k') => self.move_by(-1),
            Key::Down | Key::Char('j') => self.move_by(1),
            Key::PageUp => self.move_by(-page),
            Key::PageDown | Key::Char(' ') => self.move_by(page),
            Key::Home | Key::Char('g') => self.select(0),
            Key::End | Key::Char('G') => self.select(usize::MAX),
            Key::Enter => self.enter_selected(),
            Key::Escape | Key::Backspace => self.leave(),
            Key::Char(_) | Key::Interrupt => {}
        }
    }

    /// What binds is told of mirrors alone.
    fn next_sort(&self) -> Sort {
        match self.sort.next() {
            Sort::Binds if self.current.place != Place::Mirrors => Sort::Binds.next(),
            next => next,
        }
    }
}
