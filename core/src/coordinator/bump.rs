//! How far a destination's leader epoch is kept above its source's (KIP-1279, 3.3).

use crate::types::LeaderEpoch;

/// By so much it is put above, so that few elections at the source need a change here
/// (LEADER_EPOCH_BUMP_INCREMENT).
pub const BUMP_INCREMENT: i32 = 10;

/// So near to the source's, it is raised before a batch needs it (LEADER_EPOCH_BUMP_THRESHOLD).
pub const BUMP_THRESHOLD: i32 = 3;

/// What a destination's leader epoch is put above, for a source's.
#[must_use]
pub fn above(source: LeaderEpoch) -> LeaderEpoch {
    LeaderEpoch(source.0.max(0).saturating_add(BUMP_INCREMENT).min(i32::MAX - 1))
}

/// Whether the source's epoch has come so near that the destination's is to be raised.
#[must_use]
pub fn is_near(source: LeaderEpoch, local: LeaderEpoch) -> bool {
    source.0 > local.0.saturating_sub(BUMP_THRESHOLD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_above_once_it_is_nearer_than_three() {
        assert!(is_near(LeaderEpoch(0), LeaderEpoch(0)));
        assert!(is_near(LeaderEpoch(9), LeaderEpoch(11)));
        assert!(!is_near(LeaderEpoch(8), LeaderEpoch(11)));
        assert_eq!(above(LeaderEpoch(1)), LeaderEpoch(11));
        assert_eq!(above(LeaderEpoch::NONE), LeaderEpoch(10));
        assert_eq!(above(LeaderEpoch(i32::MAX)), LeaderEpoch(i32::MAX - 1), "one is left");
    }
}
