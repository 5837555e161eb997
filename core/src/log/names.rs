//! Names of the files of a log dir and of a partition directory, as Kafka gives them.

use std::fmt;

use crate::types::Offset;

/// Epochs of a partition, in its directory.
pub const LEADER_EPOCH_CHECKPOINT: &str = "leader-epoch-checkpoint";
/// Topic ID of a partition, in its directory.
pub const PARTITION_METADATA: &str = "partition.metadata";
/// Flushed ends of the partitions, at the top of a log dir.
pub const RECOVERY_POINT_CHECKPOINT: &str = "recovery-point-offset-checkpoint";
/// Log start offsets of the partitions, at the top of a log dir.
pub const LOG_START_CHECKPOINT: &str = "log-start-offset-checkpoint";
/// High watermarks of the partitions, at the top of a log dir.
pub const REPLICATION_CHECKPOINT: &str = "replication-offset-checkpoint";
/// How far the cleaner of a broker got, at the top of a log dir. Never written here.
pub const CLEANER_CHECKPOINT: &str = "cleaner-offset-checkpoint";
/// Whose log dir it is, at its top.
pub const META_PROPERTIES: &str = "meta.properties";
/// There after a clean stop only, at the top of a log dir. Its being there counts;
/// newer brokers write their epoch into it.
pub const CLEAN_SHUTDOWN: &str = ".kafka_cleanshutdown";
/// Locked by the process that uses the log dir, at its top.
pub const LOCK: &str = ".lock";
/// Our own record of what the source no longer had and of what was cut, at the
/// top of a log dir. A plain file: a broker ignores it.
pub const MIRROR_GAPS: &str = "mirror-gaps";
/// Our own record of topics whose source has no topic IDs, at the top of a log dir.
pub const MIRROR_TOPICS: &str = "mirror-topics";
/// Suffix of a file that is being written and will be renamed over its predecessor.
/// Kafka's name for it; what a crash leaves of it is waste.
pub const TEMPORARY_SUFFIX: &str = ".tmp";

/// The per-segment files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SegmentFileKind {
    /// Record batches.
    Log,
    /// Offset index.
    Index,
    /// Time index.
    TimeIndex,
    /// Aborted transactions. Not there if there are none.
    TxnIndex,
    /// Producer state of everything below the offset in the name. One belongs to
    /// each segment but the first, and one more is written at a clean stop.
    Snapshot,
}

impl SegmentFileKind {
    /// All kinds, the log first.
    pub const ALL: [Self; 5] =
        [Self::Log, Self::Index, Self::TimeIndex, Self::TxnIndex, Self::Snapshot];

    /// With its dot.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Log => ".log",
            Self::Index => ".index",
            Self::TimeIndex => ".timeindex",
            Self::TxnIndex => ".txnindex",
            Self::Snapshot => ".snapshot",
        }
    }
}

/// What a second suffix says of a segment file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SegmentFileState {
    /// No second suffix: part of the log.
    Live,
    /// `.deleted`: no longer part of the log, waits for removal.
    Deleted,
    /// `.cleaned`: a cleaner or splitter was writing it. Waste after a crash.
    Cleaned,
    /// `.swap`: a finished replacement; recovery puts it into the log.
    Swap,
}

impl SegmentFileState {
    const MARKED: [Self; 3] = [Self::Deleted, Self::Cleaned, Self::Swap];

    /// With its dot; empty for a live file.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Live => "",
            Self::Deleted => ".deleted",
            Self::Cleaned => ".cleaned",
            Self::Swap => ".swap",
        }
    }
}

/// Name of a file that belongs to a segment, or to an offset for snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentFileName {
    /// Base offset of the segment; for a snapshot the offset that it ends at, exclusive.
    pub base_offset: Offset,
    /// Which of the segment's files.
    pub kind: SegmentFileKind,
    /// Whether it is part of the log.
    pub state: SegmentFileState,
}

impl SegmentFileName {
    /// Name of a live file.
    pub const fn live(base_offset: Offset, kind: SegmentFileKind) -> Self {
        Self { base_offset, kind, state: SegmentFileState::Live }
    }

    /// Reads a file name back; `None` if it is no segment file's. Strict: what
    /// [`fmt::Display`] would spell differently is not ours.
    pub fn parse(name: &str) -> Option<Self> {
        const DIGITS: usize = 20;
        let (digits, suffixes) = name.split_at_checked(DIGITS)?;
        if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        // 20 digits hold more than an offset can be.
        let base_offset = Offset(digits.parse().ok()?);
        let (suffix, state) = SegmentFileState::MARKED
            .into_iter()
            .find_map(|state| Some((suffixes.strip_suffix(state.suffix())?, state)))
            .unwrap_or((suffixes, SegmentFileState::Live));
        let kind = SegmentFileKind::ALL.into_iter().find(|kind| kind.suffix() == suffix)?;
        Some(Self { base_offset, kind, state })
    }
}

impl fmt::Display for SegmentFileName {
    /// A negative base offset, which no segment has, is spelled with its sign and
    /// does not parse.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:020}{}{}", self.base_offset.0, self.kind.suffix(), self.state.suffix())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_kafkas() {
        let index = SegmentFileName::live(Offset(4_211), SegmentFileKind::TimeIndex);
        assert_eq!(index.to_string(), "00000000000000004211.timeindex");
        let dropped = SegmentFileName { state: SegmentFileState::Deleted, ..index };
        assert_eq!(dropped.to_string(), "00000000000000004211.timeindex.deleted");
        assert_eq!(SegmentFileName::parse("00000000000000004211.timeindex.deleted"), Some(dropped));
    }

    #[test]
    fn other_names_are_nobodys() {
        for not in [
            "",
            "0.log",
            "00000000000000000000",
            "00000000000000000000.",
            "00000000000000000000.logs",
            "00000000000000000000.log.tmp",
            "00000000000000000000.log.swap.swap",
            "0000000000000000000x.log",
            "+0000000000000000000.log",
            "99999999999999999999.log",
            "leader-epoch-checkpoint",
            "0000000000000000000é.log",
        ] {
            assert_eq!(SegmentFileName::parse(not), None, "{not}");
        }
    }

    fn any_name() -> impl Strategy<Value = SegmentFileName> {
        let states = vec![
            SegmentFileState::Live,
            SegmentFileState::Deleted,
            SegmentFileState::Cleaned,
            SegmentFileState::Swap,
        ];
        (0..=i64::MAX, prop::sample::select(&SegmentFileKind::ALL), prop::sample::select(states))
            .prop_map(|(base, kind, state)| SegmentFileName {
                base_offset: Offset(base),
                kind,
                state,
            })
    }

    proptest! {
        #[test]
        fn names_round_trip(name in any_name()) {
            prop_assert_eq!(SegmentFileName::parse(&name.to_string()), Some(name));
        }

        /// Whatever is accepted is spelled the one way it can be.
        #[test]
        fn accepted_text_is_canonical(text in "[0-9]{19,21}\\.(log|index|snapshot|x)?(\\.swap|\\.deleted)?") {
            if let Some(name) = SegmentFileName::parse(&text) {
                prop_assert_eq!(name.to_string(), text);
            }
        }
    }
}
