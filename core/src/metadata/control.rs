//! Control records of a KRaft log and of its snapshots, version 0 of each.

use crate::protocol::mirror::field::structs;

structs! {
    /// Who leads from here on.
    struct LeaderChangeMessage {
        /// Version of this message.
        version: i16 = "Version",
        /// The new leader.
        leader_id: i32 = "LeaderId",
        /// Who could vote.
        voters: Vec<Voter> = "Voters",
        /// Who voted for it.
        granting_voters: Vec<Voter> = "GrantingVoters",
    }

    /// A voter.
    struct Voter {
        /// Its node ID.
        voter_id: i32 = "VoterId",
    }

    /// Opens a snapshot.
    struct SnapshotHeaderRecord {
        /// Version of this record.
        version: i16 = "Version",
        /// When the last record that it sums up was appended.
        last_contained_log_timestamp: i64 = "LastContainedLogTimestamp",
    }

    /// Closes a snapshot.
    struct SnapshotFooterRecord {
        /// Version of this record.
        version: i16 = "Version",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::mirror::{decode, encode};

    #[test]
    fn bytes_are_those_of_kafkas_schemas() {
        assert_eq!(TAGGED, []);
        let voters = vec![Voter { voter_id: 7 }];
        let change = LeaderChangeMessage {
            version: 0,
            leader_id: 7,
            granting_voters: voters.clone(),
            voters,
        };
        let bytes = encode(&change);
        assert_eq!(bytes, b"\0\0\0\0\0\x07\x02\0\0\0\x07\0\x02\0\0\0\x07\0\0");
        assert_eq!(decode(&bytes), Ok(change));
        let header = SnapshotHeaderRecord { version: 0, last_contained_log_timestamp: 258 };
        assert_eq!(encode(&header), b"\0\0\0\0\0\0\0\0\x01\x02\0");
        assert_eq!(encode(&SnapshotFooterRecord { version: 0 }), b"\0\0\0");
    }
}
