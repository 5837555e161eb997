//! Error codes of the Kafka protocol, and what the fetcher does about each.
//!
//! Codes are mapped to a [`Reaction`] here and nowhere else.

use std::fmt;

/// An error code as the wire carries it. Codes that this release does not know
/// are kept and shown by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ErrorCode(pub i16);

/// What the fetcher does about an error code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reaction {
    /// No error.
    Proceed,
    /// Passes by itself: back off and ask the same broker again.
    Retry,
    /// The broker is not the one to ask: refresh metadata, then retry.
    RefreshMetadata,
    /// Another broker leads: follow the hints of the answer, or metadata where there are none.
    LeaderMoved,
    /// Our leader epoch is older than the leader's: take the newer one from the hints or metadata.
    FencedEpoch,
    /// The fetch offset is outside the leader's log: find out on which side.
    OffsetOutOfRange,
    /// The broker does not have the topic, the partition or this topic ID:
    /// refresh metadata and check the topic's identity.
    UnknownTopic,
    /// The fetch session is gone: start over with a full fetch. Positions stay.
    SessionReset(SessionFault),
    /// The broker has data or features that the negotiated version cannot carry.
    TooOld,
    /// The principal lacks a right. Retried with back-off; an operator has to act.
    Unauthorized,
    /// The broker met bytes that are no valid batch: a bounded number of retries.
    Corrupt,
    /// Asking again in the same way cannot help.
    Fatal,
}

/// Why a broker does not go on with a fetch session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SessionFault {
    /// The broker has evicted the session, or restarted.
    NotFound,
    /// Client and broker disagree on the number of requests made.
    InvalidEpoch,
    /// A topic of the session changed between having and not having an ID.
    TopicId,
}

impl ErrorCode {
    /// No error.
    pub const NONE: Self = Self(0);
    /// The broker failed in a way that it does not explain. Also what it says while its
    /// remote (tiered) storage cannot be read.
    pub const UNKNOWN_SERVER_ERROR: Self = Self(-1);
    /// The offset is below the log start or past the log end.
    pub const OFFSET_OUT_OF_RANGE: Self = Self(1);
    /// The broker found a batch whose CRC or size is wrong.
    pub const CORRUPT_MESSAGE: Self = Self(2);
    /// The broker does not host the partition.
    pub const UNKNOWN_TOPIC_OR_PARTITION: Self = Self(3);
    /// The partition has no leader at the moment.
    pub const LEADER_NOT_AVAILABLE: Self = Self(5);
    /// The broker is not a replica, or not the leader, of the partition.
    pub const NOT_LEADER_OR_FOLLOWER: Self = Self(6);
    /// No answer within the time that the request, or the listener, gives.
    pub const REQUEST_TIMED_OUT: Self = Self(7);
    /// The replica exists but cannot serve, its list of remote segments not being read yet
    /// for instance.
    pub const REPLICA_NOT_AVAILABLE: Self = Self(9);
    /// The coordinator still reads its log.
    pub const COORDINATOR_LOAD_IN_PROGRESS: Self = Self(14);
    /// No coordinator for the key at the moment.
    pub const COORDINATOR_NOT_AVAILABLE: Self = Self(15);
    /// The broker does not coordinate the key.
    pub const NOT_COORDINATOR: Self = Self(16);
    /// No topic may have this name, or clients may not touch it.
    pub const INVALID_TOPIC_EXCEPTION: Self = Self(17);
    /// A right on the topic is missing.
    pub const TOPIC_AUTHORIZATION_FAILED: Self = Self(29);
    /// A right on the cluster is missing.
    pub const CLUSTER_AUTHORIZATION_FAILED: Self = Self(31);
    /// The broker does not speak this version of the request.
    pub const UNSUPPORTED_VERSION: Self = Self(35);
    /// A topic has this name or ID already.
    pub const TOPIC_ALREADY_EXISTS: Self = Self(36);
    /// No topic can have so many partitions, or it would lose some.
    pub const INVALID_PARTITIONS: Self = Self(37);
    /// There are not so many brokers.
    pub const INVALID_REPLICATION_FACTOR: Self = Self(38);
    /// The assignment names brokers or partitions that it may not.
    pub const INVALID_REPLICA_ASSIGNMENT: Self = Self(39);
    /// A config has a value that it may not have.
    pub const INVALID_CONFIG: Self = Self(40);
    /// The broker is not the controller.
    pub const NOT_CONTROLLER: Self = Self(41);
    /// The request contradicts itself or the protocol.
    pub const INVALID_REQUEST: Self = Self(42);
    /// A rule of the operator forbids it.
    pub const POLICY_VIOLATION: Self = Self(44);
    /// Another part of the request failed before its turn.
    pub const OPERATION_NOT_ATTEMPTED: Self = Self(55);
    /// A log directory of the broker is offline.
    pub const KAFKA_STORAGE_ERROR: Self = Self(56);
    /// The broker does not have the fetch session (any more).
    pub const FETCH_SESSION_ID_NOT_FOUND: Self = Self(70);
    /// The epoch of the fetch session is not the expected one.
    pub const INVALID_FETCH_SESSION_EPOCH: Self = Self(71);
    /// The leader epoch of the request is older than the leader's.
    pub const FENCED_LEADER_EPOCH: Self = Self(74);
    /// The leader epoch of the request is newer than the leader's.
    pub const UNKNOWN_LEADER_EPOCH: Self = Self(75);
    /// The data is zstd and the Fetch version below 10.
    pub const UNSUPPORTED_COMPRESSION_TYPE: Self = Self(76);
    /// A new leader does not know its high watermark yet.
    pub const OFFSET_NOT_AVAILABLE: Self = Self(78);
    /// The broker found a record that it must refuse.
    pub const INVALID_RECORD: Self = Self(87);
    /// There is no such resource.
    pub const RESOURCE_NOT_FOUND: Self = Self(91);
    /// The feature has no such level here.
    pub const INVALID_UPDATE_VERSION: Self = Self(95);
    /// The feature is not changed.
    pub const FEATURE_UPDATE_FAILED: Self = Self(96);
    /// The broker does not have a topic with this ID.
    pub const UNKNOWN_TOPIC_ID: Self = Self(100);
    /// The topic ID differs from the one of the broker's log.
    pub const INCONSISTENT_TOPIC_ID: Self = Self(103);
    /// Topics of a session changed between having and not having IDs.
    pub const FETCH_SESSION_TOPIC_ID_ERROR: Self = Self(106);
    /// The offset is in remote (tiered) storage, from which followers are not served.
    pub const OFFSET_MOVED_TO_TIERED_STORAGE: Self = Self(109);
    /// The request is for a controller and came to a broker, or the reverse.
    pub const MISMATCHED_ENDPOINT_TYPE: Self = Self(114);
    /// No such kind of endpoint is known.
    pub const UNSUPPORTED_ENDPOINT_TYPE: Self = Self(115);
    /// The state of a mirrored partition has changed since the writer read it.
    pub const FENCED_STATE_EPOCH: Self = Self(124);
    /// The topic is a mirror and not stopped.
    pub const READ_ONLY_TOPIC: Self = Self(134);
    /// No mirror may have this name.
    pub const INVALID_CLUSTER_MIRROR_NAME: Self = Self(135);
    /// A mirror has this name already.
    pub const CLUSTER_MIRROR_ALREADY_EXISTS: Self = Self(136);
    /// There is no such mirror, or the topic is in none.
    pub const UNKNOWN_CLUSTER_MIRROR: Self = Self(137);
    /// The topic is active in another mirror.
    pub const TOPIC_ALREADY_IN_CLUSTER_MIRROR: Self = Self(138);
    /// The topic is in another mirror.
    pub const TOPIC_NOT_IN_CLUSTER_MIRROR: Self = Self(139);
    /// The topic is paused.
    pub const MIRROR_TOPIC_ALREADY_PAUSED: Self = Self(140);
    /// Only a paused topic can be resumed.
    pub const MIRROR_TOPIC_NOT_PAUSED: Self = Self(141);
    /// The topic is stopped, or about to be.
    pub const MIRROR_TOPIC_BEING_STOPPED: Self = Self(142);
    /// The mirror has a topic that is not stopped.
    pub const CLUSTER_MIRROR_NOT_EMPTY: Self = Self(143);
    /// A right on the mirror is missing.
    pub const CLUSTER_MIRROR_AUTHORIZATION_FAILED: Self = Self(144);
    /// Partitions are in states that do not allow it.
    pub const INVALID_CLUSTER_MIRROR_STATES: Self = Self(145);
    /// The topic is paused: it is resumed, not started.
    pub const MIRROR_TOPIC_NOT_STOPPED: Self = Self(146);

    /// Whether there is no error.
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// Kafka's name of the code, those of KIP-1279 included; `None` if it is not known here.
    pub fn name(self) -> Option<&'static str> {
        let index = usize::try_from(i32::from(self.0) - NAMES_FIRST).ok()?;
        NAMES.get(index).copied()
    }

    /// What an operator should know about the code and its name does not tell.
    pub fn hint(self) -> Option<&'static str> {
        match self {
            Self::UNKNOWN_SERVER_ERROR => {
                Some("see that broker's log; it says so while its tiered storage fails, too")
            }
            Self::REPLICA_NOT_AVAILABLE => {
                Some("its tiered storage may still be loading; see that broker's log")
            }
            Self::KAFKA_STORAGE_ERROR => Some("a log directory of that broker is offline"),
            Self::OFFSET_MOVED_TO_TIERED_STORAGE => {
                Some("which it says to followers; this is none, so see what stands in between")
            }
            _ => None,
        }
    }

    /// What the fetcher does about it. What passes by itself at the source, its remote
    /// (tiered) storage included, is retried for ever and counts as no attempt. A code that is
    /// not known here is retried, as Kafka's own clients do: later releases add codes.
    pub fn reaction(self) -> Reaction {
        match self.0 {
            0 => Reaction::Proceed,
            1 => Reaction::OffsetOutOfRange,
            2 | 87 => Reaction::Corrupt,
            3 | 100 | 103 => Reaction::UnknownTopic,
            // A leader that cannot serve its disk is about to be replaced.
            5 | 8 | 9 | 56 | 57 | 129 => Reaction::RefreshMetadata,
            6 => Reaction::LeaderMoved,
            29..=31 | 53 | 58 | 65 | 144 => Reaction::Unauthorized,
            35 | 43 | 76 => Reaction::TooOld,
            70 => Reaction::SessionReset(SessionFault::NotFound),
            71 => Reaction::SessionReset(SessionFault::InvalidEpoch),
            106 => Reaction::SessionReset(SessionFault::TopicId),
            74 => Reaction::FencedEpoch,
            // A request that is wrong in itself; it would be as wrong the next time. 109 goes
            // to followers only: to a consumer a leader reads from remote storage.
            4 | 10 | 17 | 33 | 34 | 40 | 42 | 72 | 104 | 109 => Reaction::Fatal,
            _ => Reaction::Retry,
        }
    }
}

impl fmt::Display for ErrorCode {
    /// `NAME (code)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name().unwrap_or("unknown error"), self.0)
    }
}

/// Code of the first entry of [`NAMES`].
const NAMES_FIRST: i32 = -1;

/// Kafka's names in the order of their codes, without holes.
const NAMES: [&str; 148] = [
    "UNKNOWN_SERVER_ERROR",
    "NONE",
    "OFFSET_OUT_OF_RANGE",
    "CORRUPT_MESSAGE",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "INVALID_FETCH_SIZE",
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_OR_FOLLOWER",
    "REQUEST_TIMED_OUT",
    "BROKER_NOT_AVAILABLE",
    "REPLICA_NOT_AVAILABLE",
    "MESSAGE_TOO_LARGE",
    "STALE_CONTROLLER_EPOCH",
    "OFFSET_METADATA_TOO_LARGE",
    "NETWORK_EXCEPTION",
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "INVALID_TOPIC_EXCEPTION",
    "RECORD_LIST_TOO_LARGE",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "INVALID_REQUIRED_ACKS",
    "ILLEGAL_GENERATION",
    "INCONSISTENT_GROUP_PROTOCOL",
    "INVALID_GROUP_ID",
    "UNKNOWN_MEMBER_ID",
    "INVALID_SESSION_TIMEOUT",
    "REBALANCE_IN_PROGRESS",
    "INVALID_COMMIT_OFFSET_SIZE",
    "TOPIC_AUTHORIZATION_FAILED",
    "GROUP_AUTHORIZATION_FAILED",
    "CLUSTER_AUTHORIZATION_FAILED",
    "INVALID_TIMESTAMP",
    "UNSUPPORTED_SASL_MECHANISM",
    "ILLEGAL_SASL_STATE",
    "UNSUPPORTED_VERSION",
    "TOPIC_ALREADY_EXISTS",
    "INVALID_PARTITIONS",
    "INVALID_REPLICATION_FACTOR",
    "INVALID_REPLICA_ASSIGNMENT",
    "INVALID_CONFIG",
    "NOT_CONTROLLER",
    "INVALID_REQUEST",
    "UNSUPPORTED_FOR_MESSAGE_FORMAT",
    "POLICY_VIOLATION",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "DUPLICATE_SEQUENCE_NUMBER",
    "INVALID_PRODUCER_EPOCH",
    "INVALID_TXN_STATE",
    "INVALID_PRODUCER_ID_MAPPING",
    "INVALID_TRANSACTION_TIMEOUT",
    "CONCURRENT_TRANSACTIONS",
    "TRANSACTION_COORDINATOR_FENCED",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "SECURITY_DISABLED",
    "OPERATION_NOT_ATTEMPTED",
    "KAFKA_STORAGE_ERROR",
    "LOG_DIR_NOT_FOUND",
    "SASL_AUTHENTICATION_FAILED",
    "UNKNOWN_PRODUCER_ID",
    "REASSIGNMENT_IN_PROGRESS",
    "DELEGATION_TOKEN_AUTH_DISABLED",
    "DELEGATION_TOKEN_NOT_FOUND",
    "DELEGATION_TOKEN_OWNER_MISMATCH",
    "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED",
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
    "DELEGATION_TOKEN_EXPIRED",
    "INVALID_PRINCIPAL_TYPE",
    "NON_EMPTY_GROUP",
    "GROUP_ID_NOT_FOUND",
    "FETCH_SESSION_ID_NOT_FOUND",
    "INVALID_FETCH_SESSION_EPOCH",
    "LISTENER_NOT_FOUND",
    "TOPIC_DELETION_DISABLED",
    "FENCED_LEADER_EPOCH",
    "UNKNOWN_LEADER_EPOCH",
    "UNSUPPORTED_COMPRESSION_TYPE",
    "STALE_BROKER_EPOCH",
    "OFFSET_NOT_AVAILABLE",
    "MEMBER_ID_REQUIRED",
    "PREFERRED_LEADER_NOT_AVAILABLE",
    "GROUP_MAX_SIZE_REACHED",
    "FENCED_INSTANCE_ID",
    "ELIGIBLE_LEADERS_NOT_AVAILABLE",
    "ELECTION_NOT_NEEDED",
    "NO_REASSIGNMENT_IN_PROGRESS",
    "GROUP_SUBSCRIBED_TO_TOPIC",
    "INVALID_RECORD",
    "UNSTABLE_OFFSET_COMMIT",
    "THROTTLING_QUOTA_EXCEEDED",
    "PRODUCER_FENCED",
    "RESOURCE_NOT_FOUND",
    "DUPLICATE_RESOURCE",
    "UNACCEPTABLE_CREDENTIAL",
    "INCONSISTENT_VOTER_SET",
    "INVALID_UPDATE_VERSION",
    "FEATURE_UPDATE_FAILED",
    "PRINCIPAL_DESERIALIZATION_FAILURE",
    "SNAPSHOT_NOT_FOUND",
    "POSITION_OUT_OF_RANGE",
    "UNKNOWN_TOPIC_ID",
    "DUPLICATE_BROKER_REGISTRATION",
    "BROKER_ID_NOT_REGISTERED",
    "INCONSISTENT_TOPIC_ID",
    "INCONSISTENT_CLUSTER_ID",
    "TRANSACTIONAL_ID_NOT_FOUND",
    "FETCH_SESSION_TOPIC_ID_ERROR",
    "INELIGIBLE_REPLICA",
    "NEW_LEADER_ELECTED",
    "OFFSET_MOVED_TO_TIERED_STORAGE",
    "FENCED_MEMBER_EPOCH",
    "UNRELEASED_INSTANCE_ID",
    "UNSUPPORTED_ASSIGNOR",
    "STALE_MEMBER_EPOCH",
    "MISMATCHED_ENDPOINT_TYPE",
    "UNSUPPORTED_ENDPOINT_TYPE",
    "UNKNOWN_CONTROLLER_ID",
    "UNKNOWN_SUBSCRIPTION_ID",
    "TELEMETRY_TOO_LARGE",
    "INVALID_REGISTRATION",
    "TRANSACTION_ABORTABLE",
    "INVALID_RECORD_STATE",
    "SHARE_SESSION_NOT_FOUND",
    "INVALID_SHARE_SESSION_EPOCH",
    "FENCED_STATE_EPOCH",
    "INVALID_VOTER_KEY",
    "DUPLICATE_VOTER",
    "VOTER_NOT_FOUND",
    "INVALID_REGULAR_EXPRESSION",
    "REBOOTSTRAP_REQUIRED",
    "STREAMS_INVALID_TOPOLOGY",
    "STREAMS_INVALID_TOPOLOGY_EPOCH",
    "STREAMS_TOPOLOGY_FENCED",
    "SHARE_SESSION_LIMIT_REACHED",
    "READ_ONLY_TOPIC",
    "INVALID_CLUSTER_MIRROR_NAME",
    "CLUSTER_MIRROR_ALREADY_EXISTS",
    "UNKNOWN_CLUSTER_MIRROR",
    "TOPIC_ALREADY_IN_CLUSTER_MIRROR",
    "TOPIC_NOT_IN_CLUSTER_MIRROR",
    "MIRROR_TOPIC_ALREADY_PAUSED",
    "MIRROR_TOPIC_NOT_PAUSED",
    "MIRROR_TOPIC_BEING_STOPPED",
    "CLUSTER_MIRROR_NOT_EMPTY",
    "CLUSTER_MIRROR_AUTHORIZATION_FAILED",
    "INVALID_CLUSTER_MIRROR_STATES",
    "MIRROR_TOPIC_NOT_STOPPED",
];

#[cfg(test)]
mod tests {
    use super::*;
    use kafka_protocol::ResponseError;

    /// `OffsetOutOfRange` as `OFFSETOUTOFRANGE`: how two spellings of a name compare.
    fn folded(name: &str) -> String {
        name.replace('_', "").to_uppercase()
    }

    #[test]
    fn names_agree_with_another_implementation() {
        for code in (-1..=133).filter(|&code| code != 0) {
            let theirs = ResponseError::try_from_code(code).unwrap().to_string();
            assert_eq!(folded(ErrorCode(code).name().unwrap()), folded(&theirs), "{code}");
        }
    }

    #[test]
    fn display_has_name_and_number() {
        assert_eq!(ErrorCode::FENCED_LEADER_EPOCH.to_string(), "FENCED_LEADER_EPOCH (74)");
        assert_eq!(ErrorCode(0).to_string(), "NONE (0)");
        assert_eq!(ErrorCode(146).to_string(), "MIRROR_TOPIC_NOT_STOPPED (146)");
        for code in [i16::MIN, -2, 147, i16::MAX] {
            assert_eq!(ErrorCode(code).to_string(), format!("unknown error ({code})"));
        }
    }

    /// A constant and the table of names cannot tell two stories.
    #[test]
    fn constants_of_mirrors_have_the_kips_numbers() {
        for (code, want) in [
            (ErrorCode::FENCED_STATE_EPOCH, "FENCED_STATE_EPOCH (124)"),
            (ErrorCode::READ_ONLY_TOPIC, "READ_ONLY_TOPIC (134)"),
            (ErrorCode::INVALID_CLUSTER_MIRROR_NAME, "INVALID_CLUSTER_MIRROR_NAME (135)"),
            (ErrorCode::CLUSTER_MIRROR_ALREADY_EXISTS, "CLUSTER_MIRROR_ALREADY_EXISTS (136)"),
            (ErrorCode::UNKNOWN_CLUSTER_MIRROR, "UNKNOWN_CLUSTER_MIRROR (137)"),
            (ErrorCode::TOPIC_ALREADY_IN_CLUSTER_MIRROR, "TOPIC_ALREADY_IN_CLUSTER_MIRROR (138)"),
            (ErrorCode::TOPIC_NOT_IN_CLUSTER_MIRROR, "TOPIC_NOT_IN_CLUSTER_MIRROR (139)"),
            (ErrorCode::MIRROR_TOPIC_ALREADY_PAUSED, "MIRROR_TOPIC_ALREADY_PAUSED (140)"),
            (ErrorCode::MIRROR_TOPIC_NOT_PAUSED, "MIRROR_TOPIC_NOT_PAUSED (141)"),
            (ErrorCode::MIRROR_TOPIC_BEING_STOPPED, "MIRROR_TOPIC_BEING_STOPPED (142)"),
            (ErrorCode::CLUSTER_MIRROR_NOT_EMPTY, "CLUSTER_MIRROR_NOT_EMPTY (143)"),
            (
                ErrorCode::CLUSTER_MIRROR_AUTHORIZATION_FAILED,
                "CLUSTER_MIRROR_AUTHORIZATION_FAILED (144)",
            ),
            (ErrorCode::INVALID_CLUSTER_MIRROR_STATES, "INVALID_CLUSTER_MIRROR_STATES (145)"),
            (ErrorCode::MIRROR_TOPIC_NOT_STOPPED, "MIRROR_TOPIC_NOT_STOPPED (146)"),
        ] {
            assert_eq!(code.to_string(), want);
        }
    }

    #[test]
    fn reactions_to_what_sources_send() {
        let session = Reaction::SessionReset;
        for (code, want) in [
            (ErrorCode::NONE, Reaction::Proceed),
            (ErrorCode::UNKNOWN_SERVER_ERROR, Reaction::Retry),
            (ErrorCode::OFFSET_OUT_OF_RANGE, Reaction::OffsetOutOfRange),
            (ErrorCode::CORRUPT_MESSAGE, Reaction::Corrupt),
            (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, Reaction::UnknownTopic),
            (ErrorCode::UNKNOWN_TOPIC_ID, Reaction::UnknownTopic),
            (ErrorCode::INCONSISTENT_TOPIC_ID, Reaction::UnknownTopic),
            (ErrorCode::NOT_LEADER_OR_FOLLOWER, Reaction::LeaderMoved),
            (ErrorCode::KAFKA_STORAGE_ERROR, Reaction::RefreshMetadata),
            (ErrorCode::REPLICA_NOT_AVAILABLE, Reaction::RefreshMetadata),
            (ErrorCode::REQUEST_TIMED_OUT, Reaction::Retry),
            (ErrorCode::OFFSET_MOVED_TO_TIERED_STORAGE, Reaction::Fatal),
            (ErrorCode::FENCED_LEADER_EPOCH, Reaction::FencedEpoch),
            (ErrorCode::UNKNOWN_LEADER_EPOCH, Reaction::Retry),
            (ErrorCode::OFFSET_NOT_AVAILABLE, Reaction::Retry),
            (ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, Reaction::TooOld),
            (ErrorCode::TOPIC_AUTHORIZATION_FAILED, Reaction::Unauthorized),
            (ErrorCode::FETCH_SESSION_ID_NOT_FOUND, session(SessionFault::NotFound)),
            (ErrorCode::INVALID_FETCH_SESSION_EPOCH, session(SessionFault::InvalidEpoch)),
            (ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR, session(SessionFault::TopicId)),
            (ErrorCode(999), Reaction::Retry),
        ] {
            assert_eq!(code.reaction(), want, "{code}");
        }
    }
}
