//! Which columns a table has in so much room, and what stands in them.

use super::format::{bytes, count, cut, cut_end, or_dash, rate, span};
use super::model::{Place, Sort};
use super::rows::{Row, Trouble};

/// A reason is shown in a column of its own from so much room on.
const REASON_WIDTH_MIN: usize = 24;
/// Names longer than this are cut rather than that reasons go.
const NAME_WIDTH_MAX: usize = 40;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Mark,
    Name,
    Topics,
    Partitions,
    State,
    Lag,
    LagBytes,
    LagTime,
    Rate,
    Binds,
    Retries,
    Source,
    Copy,
    Reason,
}

/// A column and its room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) kind: Kind,
    pub(super) width: usize,
}

impl Kind {
    /// Its room, if that is fixed.
    fn width(self) -> usize {
        match self {
            Self::Mark => 2,
            Self::Name | Self::Reason => 0,
            Self::State => 15,
            Self::Topics
            | Self::Partitions
            | Self::Lag
            | Self::LagBytes
            | Self::LagTime
            | Self::Rate => 6,
            Self::Binds => 8,
            Self::Retries => 5,
            Self::Source | Self::Copy => 13,
        }
    }

    pub(super) fn is_left(self) -> bool {
        matches!(self, Self::Mark | Self::Name | Self::State | Self::Binds | Self::Reason)
    }

    /// What it is sorted by.
    fn sort(self) -> Option<Sort> {
        Some(match self {
            Self::Mark => Sort::Trouble,
            Self::Name => Sort::Name,
            Self::State => Sort::State,
            Self::Lag => Sort::Lag,
            Self::LagBytes => Sort::LagBytes,
            Self::LagTime => Sort::LagTime,
            Self::Rate => Sort::Rate,
            Self::Binds => Sort::Binds,
            Self::Retries => Sort::Retries,
            Self::Topics | Self::Partitions | Self::Source | Self::Copy | Self::Reason => {
                return None;
            }
        })
    }

    fn title(self, place: &Place) -> &'static str {
        match self {
            Self::Mark => "",
            Self::Name => match place {
                Place::Mirrors => "MIRROR",
                Place::Topics { .. } => "TOPIC",
                Place::Partitions { .. } => "PART",
            },
            Self::Topics => "TOPICS",
            Self::Partitions => "PARTS",
            Self::State => "STATE",
            Self::Lag => "LAG",
            Self::LagBytes => "BYTES",
            Self::LagTime => "TIME",
            Self::Rate => "MB/s",
            Self::Binds => "BINDS",
            Self::Retries => "RETRY",
            Self::Source => "SOURCE-END",
            Self::Copy => "COPY-END",
            Self::Reason => "REASON",
        }
    }

    /// Its head; the column that is sorted by has a mark.
    pub(super) fn head(self, place: &Place, sort: Sort, is_reversed: bool) -> String {
        let title = self.title(place);
        match self.sort() == Some(sort) {
            true if is_reversed => format!("{title}^"),
            true => format!("{title}v"),
            false => title.to_owned(),
        }
    }

    /// A text in so much room. Names differ at both ends, sentences say most at the beginning.
    pub(super) fn fit(self, text: &str, width: usize) -> String {
        if self == Self::Name { cut(text, width) } else { cut_end(text, width) }
    }

    pub(super) fn cell(self, row: &Row) -> String {
        match self {
            Self::Mark => match row.trouble {
                Trouble::GivenUp => "!!".to_owned(),
                Trouble::Failed => "!".to_owned(),
                Trouble::HeldUp => "~".to_owned(),
                Trouble::None => String::new(),
            },
            Self::Name => row.name.clone(),
            Self::Topics => or_dash(row.topics, count),
            Self::Partitions => count(row.partitions),
            Self::State => state(row),
            Self::Lag => or_dash(row.lag, count),
            Self::LagBytes => or_dash(row.lag_bytes, bytes),
            Self::LagTime => or_dash(row.lag_time, span),
            Self::Rate => or_dash(row.rate, rate),
            Self::Binds => or_dash(row.busy.and_then(|it| it.binds), |it| it.to_string()),
            // A partition without another try; of others some may have one.
            Self::Retries if row.trouble == Trouble::GivenUp && row.wanted.is_some() => {
                "never".to_owned()
            }
            Self::Retries => count(row.retries),
            Self::Source => or_dash(row.source_offset, |it| it.to_string()),
            Self::Copy => or_dash(row.destination_offset, |it| it.to_string()),
            Self::Reason => row.reason.clone().unwrap_or_default(),
        }
    }
}

/// The state of all, or that of some and how many of how many they are.
fn state(row: &Row) -> String {
    if row.in_state == row.partitions || row.in_state == 0 {
        return row.state.clone();
    }
    let counts = format!(" {}/{}", count(row.in_state), count(row.partitions));
    format!("{}{counts}", cut_end(&row.state, Kind::State.width().saturating_sub(counts.len())))
}

/// The columns of a table `width` columns wide. One lies between two of them.
pub(super) fn columns(place: &Place, width: usize) -> Vec<Column> {
    use Kind as K;
    let base: &[Kind] = match place {
        Place::Mirrors => &[
            K::Mark,
            K::Name,
            K::State,
            K::Lag,
            K::LagBytes,
            K::LagTime,
            K::Rate,
            K::Binds,
            K::Retries,
        ],
        Place::Topics { .. } | Place::Partitions { .. } => {
            &[K::Mark, K::Name, K::State, K::Lag, K::LagBytes, K::LagTime, K::Rate, K::Retries]
        }
    };
    let more: &[(Kind, Kind)] = match place {
        Place::Mirrors => &[(K::Topics, K::Name), (K::Partitions, K::Topics)],
        Place::Topics { .. } => &[(K::Partitions, K::Name)],
        Place::Partitions { .. } => &[(K::Source, K::Name), (K::Copy, K::Source)],
    };
    let name_min = match place {
        Place::Partitions { .. } => 6,
        Place::Mirrors | Place::Topics { .. } => 16,
    };
    let fixed =
        |kinds: &[Kind]| kinds.iter().map(|kind| kind.width() + 1).sum::<usize>() + name_min;
    let mut kinds = base.to_vec();
    if fixed(&kinds) + more.iter().map(|(kind, _)| kind.width() + 1).sum::<usize>() + 10 <= width {
        for (kind, after) in more {
            let at = kinds.iter().position(|it| it == after).map_or(0, |at| at + 1);
            kinds.insert(at, *kind);
        }
    }
    // Too narrow: the last ones go, as far as names and states.
    while fixed(&kinds) > width + 1 && kinds.len() > 3 {
        kinds.pop();
    }
    let left = (width + 1).saturating_sub(fixed(&kinds));
    let name_max =
        if matches!(place, Place::Partitions { .. }) { name_min } else { NAME_WIDTH_MAX };
    // Between name and reason: half each, until the name has enough.
    let mut name = name_min + left;
    let for_reason = if name > name_max { name - name_max } else { left / 2 };
    if for_reason > REASON_WIDTH_MIN {
        name -= for_reason;
        kinds.push(K::Reason);
    }
    let reason = for_reason.saturating_sub(1);
    let room = |kind: Kind| match kind {
        K::Name => name,
        K::Reason => reason,
        other => other.width(),
    };
    kinds.into_iter().map(|kind| Column { kind, width: room(kind) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_fit_whatever_the_width() {
        let topics = Place::Topics { mirror: "m".into() };
        let partitions = Place::Partitions { mirror: "m".into(), topic: "t".into() };
        for place in [Place::Mirrors, topics, partitions] {
            for width in 50..300 {
                let columns = columns(&place, width);
                let used = columns.iter().map(|it| it.width + 1).sum::<usize>() - 1;
                assert!(used <= width, "{used} of {width}: {columns:?}");
                assert!(columns.iter().all(|it| it.width > 0), "{width}: {columns:?}");
                let has = |kind| columns.iter().any(|it| it.kind == kind);
                let wants = [Kind::State, Kind::Lag, Kind::LagBytes, Kind::LagTime, Kind::Rate];
                assert!(width < 80 || wants.into_iter().all(has), "{width}: {columns:?}");
                assert!(width < 80 || has(Kind::Retries));
                assert_eq!(has(Kind::Binds), place == Place::Mirrors && width >= 72, "{width}");
            }
        }
    }
}
