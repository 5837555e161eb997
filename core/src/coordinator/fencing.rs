//! Who may write the state of a partition: nobody who leads it no more, and nobody who has not
//! seen the newest state.

use super::partition::Stored;
use crate::protocol::ErrorCode;
use crate::types::LeaderEpoch;

/// State epoch of a writer that does not care.
pub const ANY_STATE_EPOCH: i32 = -1;

/// Whether a write may replace `recorded`: `leader_epoch` is that of the writer's partition,
/// `state_epoch` the state's that it has seen; −1 skips the check of either.
///
/// # Errors
/// `FENCED_LEADER_EPOCH` for a leader that is none any more, `FENCED_STATE_EPOCH` for a writer
/// that has missed a state; the writer reads the state again.
pub fn admit(
    recorded: &Stored,
    leader_epoch: LeaderEpoch,
    state_epoch: i32,
) -> Result<(), ErrorCode> {
    if leader_epoch.known().is_some_and(|epoch| epoch < recorded.leader_epoch) {
        return Err(ErrorCode::FENCED_LEADER_EPOCH);
    }
    if state_epoch != ANY_STATE_EPOCH && state_epoch < recorded.state_epoch {
        return Err(ErrorCode::FENCED_STATE_EPOCH);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_leaders_and_older_states_are_refused() {
        let recorded = Stored { leader_epoch: LeaderEpoch(5), state_epoch: 9, ..Stored::default() };
        let admit = |leader, state| admit(&recorded, LeaderEpoch(leader), state);
        assert_eq!(admit(5, 9), Ok(()));
        assert_eq!(admit(6, 9), Ok(()));
        assert_eq!(admit(4, 9), Err(ErrorCode::FENCED_LEADER_EPOCH));
        assert_eq!(admit(5, 8), Err(ErrorCode::FENCED_STATE_EPOCH));
        assert_eq!(admit(4, 8), Err(ErrorCode::FENCED_LEADER_EPOCH), "the older leader first");
        assert_eq!(admit(-1, 8), Err(ErrorCode::FENCED_STATE_EPOCH));
        assert_eq!(admit(5, -1), Ok(()));
        assert_eq!(admit(-1, -1), Ok(()));
    }
}
