//! The error codes that a controller answers with.

use crate::protocol::ErrorCode;

pub(super) const INVALID_TOPIC_EXCEPTION: ErrorCode = ErrorCode(17);
pub(super) const TOPIC_ALREADY_EXISTS: ErrorCode = ErrorCode(36);
pub(super) const INVALID_PARTITIONS: ErrorCode = ErrorCode(37);
pub(super) const INVALID_REPLICATION_FACTOR: ErrorCode = ErrorCode(38);
pub(super) const INVALID_REPLICA_ASSIGNMENT: ErrorCode = ErrorCode(39);
pub(super) const INVALID_CONFIG: ErrorCode = ErrorCode(40);
pub(super) const INVALID_REQUEST: ErrorCode = ErrorCode(42);
pub(super) const INVALID_UPDATE_VERSION: ErrorCode = ErrorCode(95);
pub(super) const FEATURE_UPDATE_FAILED: ErrorCode = ErrorCode(96);
pub(super) const BROKER_ID_NOT_REGISTERED: ErrorCode = ErrorCode(102);
pub(super) const INVALID_REGISTRATION: ErrorCode = ErrorCode(119);
pub(super) const INVALID_CLUSTER_MIRROR_NAME: ErrorCode = ErrorCode(135);
pub(super) const CLUSTER_MIRROR_ALREADY_EXISTS: ErrorCode = ErrorCode(136);
pub(super) const UNKNOWN_CLUSTER_MIRROR: ErrorCode = ErrorCode(137);
pub(super) const TOPIC_ALREADY_IN_CLUSTER_MIRROR: ErrorCode = ErrorCode(138);
pub(super) const TOPIC_NOT_IN_CLUSTER_MIRROR: ErrorCode = ErrorCode(139);
pub(super) const MIRROR_TOPIC_NOT_PAUSED: ErrorCode = ErrorCode(141);
pub(super) const MIRROR_TOPIC_BEING_STOPPED: ErrorCode = ErrorCode(142);
pub(super) const CLUSTER_MIRROR_NOT_EMPTY: ErrorCode = ErrorCode(143);
pub(super) const MIRROR_TOPIC_NOT_STOPPED: ErrorCode = ErrorCode(146);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_their_names() {
        let names = [
            (INVALID_TOPIC_EXCEPTION, "INVALID_TOPIC_EXCEPTION"),
            (TOPIC_ALREADY_EXISTS, "TOPIC_ALREADY_EXISTS"),
            (INVALID_PARTITIONS, "INVALID_PARTITIONS"),
            (INVALID_REPLICATION_FACTOR, "INVALID_REPLICATION_FACTOR"),
            (INVALID_REPLICA_ASSIGNMENT, "INVALID_REPLICA_ASSIGNMENT"),
            (INVALID_CONFIG, "INVALID_CONFIG"),
            (INVALID_REQUEST, "INVALID_REQUEST"),
            (INVALID_UPDATE_VERSION, "INVALID_UPDATE_VERSION"),
            (FEATURE_UPDATE_FAILED, "FEATURE_UPDATE_FAILED"),
            (BROKER_ID_NOT_REGISTERED, "BROKER_ID_NOT_REGISTERED"),
            (INVALID_REGISTRATION, "INVALID_REGISTRATION"),
            (INVALID_CLUSTER_MIRROR_NAME, "INVALID_CLUSTER_MIRROR_NAME"),
            (CLUSTER_MIRROR_ALREADY_EXISTS, "CLUSTER_MIRROR_ALREADY_EXISTS"),
            (UNKNOWN_CLUSTER_MIRROR, "UNKNOWN_CLUSTER_MIRROR"),
            (TOPIC_ALREADY_IN_CLUSTER_MIRROR, "TOPIC_ALREADY_IN_CLUSTER_MIRROR"),
            (TOPIC_NOT_IN_CLUSTER_MIRROR, "TOPIC_NOT_IN_CLUSTER_MIRROR"),
            (MIRROR_TOPIC_NOT_PAUSED, "MIRROR_TOPIC_NOT_PAUSED"),
            (MIRROR_TOPIC_BEING_STOPPED, "MIRROR_TOPIC_BEING_STOPPED"),
            (CLUSTER_MIRROR_NOT_EMPTY, "CLUSTER_MIRROR_NOT_EMPTY"),
            (MIRROR_TOPIC_NOT_STOPPED, "MIRROR_TOPIC_NOT_STOPPED"),
        ];
        for (code, name) in names {
            assert_eq!(code.name(), Some(name));
        }
    }
}
