//! What a wish means in each state.

use super::state::{DesiredState, MirrorState};

/// What to do about a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing: it is where it should be, or waits for something else.
    Stay,
    /// This state's action; the state is stored first if it is another one.
    Enter(MirrorState),
}

/// The decision table of KIP-1279, with two changes.
///
/// A stop and a pause are heard in FAILED: failover is what one does when the source is dead, and
/// by then the partitions have failed. And what is not aligned with its source is never PAUSED,
/// from where mirroring goes on without an alignment: a pause in LOG_TRUNCATION or EPOCH_FENCING
/// waits until the step is done, one in UNKNOWN or STOPPED changes nothing. One in FAILED is heard,
/// and whoever resumes a partition whose alignment had failed aligns it first: that depends on
/// more than the state, see [`PartitionMirror`](super::PartitionMirror).
#[must_use]
#[expect(clippy::match_same_arms, clippy::unnested_or_patterns, reason = "a table, row by row")]
pub const fn decide(current: MirrorState, desired: DesiredState) -> Decision {
    use DesiredState as Want;
    use MirrorState as Is;
    match (current, desired) {
        (Is::Stopped, Want::Stopped | Want::Paused)
        | (Is::Paused, Want::Paused)
        | (Is::Unknown, Want::Paused)
        // Its timer, or an operator, goes on.
        | (Is::Failed, Want::Mirroring) => Decision::Stay,

        (_, Want::Stopped) => Decision::Enter(Is::Stopping),
        // Half a failover is no place to turn round: epochs are raised and markers written.
        (Is::Stopping, Want::Mirroring | Want::Paused) => Decision::Enter(Is::Stopping),

        (Is::Mirroring, Want::Paused) => Decision::Enter(Is::Pausing),
        (Is::Failed, Want::Paused) => Decision::Enter(Is::Paused),

        (Is::Unknown | Is::Stopped, Want::Mirroring) => Decision::Enter(Is::LogTruncation),
        (Is::Paused, Want::Mirroring) => Decision::Enter(Is::Mirroring),

        // What was interrupted is repeated.
        (Is::LogTruncation, _) => Decision::Enter(Is::LogTruncation),
        (Is::EpochFencing, _) => Decision::Enter(Is::EpochFencing),
        (Is::Pausing, _) => Decision::Enter(Is::Pausing),
        (Is::Mirroring, Want::Mirroring) => Decision::Enter(Is::Mirroring),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wish_in_every_state() {
        let mut table = Vec::new();
        for state in MirrorState::ALL {
            let row = DesiredState::ALL.map(|desired| match decide(state, desired) {
                Decision::Stay => "stay",
                Decision::Enter(next) => next.name(),
            });
            table.push(format!("{state}: {}", row.join(" | ")));
        }
        insta::assert_snapshot!(table.join("\n"), @r"
        LOG_TRUNCATION: LOG_TRUNCATION | LOG_TRUNCATION | STOPPING
        EPOCH_FENCING: EPOCH_FENCING | EPOCH_FENCING | STOPPING
        MIRRORING: MIRRORING | PAUSING | STOPPING
        PAUSING: PAUSING | PAUSING | STOPPING
        PAUSED: MIRRORING | stay | STOPPING
        STOPPING: STOPPING | STOPPING | STOPPING
        STOPPED: LOG_TRUNCATION | stay | stay
        FAILED: stay | PAUSED | STOPPING
        UNKNOWN: LOG_TRUNCATION | stay | STOPPING
        ");
    }

    /// Whatever is decided is allowed.
    #[test]
    fn no_decision_breaks_the_transitions() {
        for state in MirrorState::ALL {
            for desired in DesiredState::ALL {
                if let Decision::Enter(next) = decide(state, desired) {
                    assert!(state.may_become(next), "{state} to {next} for {desired:?}");
                }
            }
        }
    }
}
