//! States of a mirrored partition, with the names and numbers of KIP-1279.

use std::fmt;

/// Where a mirrored partition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MirrorState {
    /// The local log is cut back to what it has in common with the source.
    LogTruncation,
    /// The local leader epoch is below a batch's and is being raised.
    EpochFencing,
    /// Batches are fetched and appended.
    Mirroring,
    /// Fetching is being ended, for a pause.
    Pausing,
    /// Nothing is fetched; clients still cannot write.
    Paused,
    /// The failover sequence is running.
    Stopping,
    /// Clients can write; the last mirrored epoch is stored.
    Stopped,
    /// Something failed; it is tried again by itself, or an operator has to act.
    Failed,
    /// Nothing is known of the partition. Never stored.
    Unknown,
}

impl MirrorState {
    /// Every state, by number.
    pub const ALL: [Self; 9] = [
        Self::LogTruncation,
        Self::EpochFencing,
        Self::Mirroring,
        Self::Pausing,
        Self::Paused,
        Self::Stopping,
        Self::Stopped,
        Self::Failed,
        Self::Unknown,
    ];

    /// Number in `__mirror_state` and in the RPCs.
    #[must_use]
    pub const fn id(self) -> i8 {
        match self {
            Self::LogTruncation => 0,
            Self::EpochFencing => 1,
            Self::Mirroring => 2,
            Self::Pausing => 3,
            Self::Paused => 4,
            Self::Stopping => 5,
            Self::Stopped => 6,
            Self::Failed => 7,
            Self::Unknown => 16,
        }
    }

    /// The state of a number; `None` for one that no state has.
    #[must_use]
    pub fn from_id(id: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.id() == id)
    }

    /// As the KIP and its tools spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LogTruncation => "LOG_TRUNCATION",
            Self::EpochFencing => "EPOCH_FENCING",
            Self::Mirroring => "MIRRORING",
            Self::Pausing => "PAUSING",
            Self::Paused => "PAUSED",
            Self::Stopping => "STOPPING",
            Self::Stopped => "STOPPED",
            Self::Failed => "FAILED",
            Self::Unknown => "UNKNOWN",
        }
    }

    /// Whether `next` may follow. A state may follow itself: its action is repeated.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        match next {
            // From PAUSED if it was paused when its alignment had failed.
            Self::LogTruncation => matches!(
                self,
                Self::LogTruncation | Self::Unknown | Self::Stopped | Self::Paused | Self::Failed
            ),
            // A retry goes back to the step that failed, whichever it was.
            Self::EpochFencing => {
                matches!(self, Self::EpochFencing | Self::Mirroring | Self::Failed)
            }
            Self::Mirroring => matches!(
                self,
                Self::Mirroring
                    | Self::LogTruncation
                    | Self::EpochFencing
                    | Self::Paused
                    | Self::Failed
            ),
            Self::Pausing => matches!(self, Self::Pausing | Self::Mirroring | Self::Failed),
            // From FAILED too: an operator who wants peace does not wait for a retry.
            Self::Paused => matches!(self, Self::Paused | Self::Pausing | Self::Failed),
            // From everything that is not stopped: failover is for when the rest does not work.
            Self::Stopping => !matches!(self, Self::Stopped),
            Self::Stopped => matches!(self, Self::Stopped | Self::Stopping),
            Self::Failed => true,
            Self::Unknown => false,
        }
    }

    /// Whether clients may write to the partition.
    #[must_use]
    pub const fn is_writable(self) -> bool {
        matches!(self, Self::Stopped)
    }
}

impl fmt::Display for MirrorState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What the operator wants of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DesiredState {
    /// That it follows the source.
    Mirroring,
    /// That it rests, read-only.
    Paused,
    /// That it is writable.
    Stopped,
}

impl DesiredState {
    /// All wishes.
    pub const ALL: [Self; 3] = [Self::Mirroring, Self::Paused, Self::Stopped];
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_kip() {
        let ids = MirrorState::ALL.map(MirrorState::id);
        assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6, 7, 16]);
        for state in MirrorState::ALL {
            assert_eq!(MirrorState::from_id(state.id()), Some(state));
        }
        assert_eq!(MirrorState::from_id(8), None);
        assert_eq!(MirrorState::from_id(-1), None);
    }

    /// The rows that the KIP leaves no choice in, and the stop that works from everywhere.
    #[test]
    fn few_states_follow_each() {
        let followers = |state: MirrorState| {
            let all = MirrorState::ALL.into_iter().filter(|next| state.may_become(*next));
            all.map(MirrorState::name).collect::<Vec<_>>().join(" ")
        };
        let table = MirrorState::ALL.map(|state| format!("{state}: {}", followers(state)));
        insta::assert_snapshot!(table.join("\n"), @r"
        LOG_TRUNCATION: LOG_TRUNCATION MIRRORING STOPPING FAILED
        EPOCH_FENCING: EPOCH_FENCING MIRRORING STOPPING FAILED
        MIRRORING: EPOCH_FENCING MIRRORING PAUSING STOPPING FAILED
        PAUSING: PAUSING PAUSED STOPPING FAILED
        PAUSED: LOG_TRUNCATION MIRRORING PAUSED STOPPING FAILED
        STOPPING: STOPPING STOPPED FAILED
        STOPPED: LOG_TRUNCATION STOPPED FAILED
        FAILED: LOG_TRUNCATION EPOCH_FENCING MIRRORING PAUSING PAUSED STOPPING FAILED
        UNKNOWN: LOG_TRUNCATION STOPPING FAILED
        ");
    }
}
