//! Produce: every partition is refused. The topics of a catalog are read-only, and so are those
//! that a host mirrors; into others a host takes no records over its listener yet.
//!
//! It is answered all the same: librdkafka takes a broker without Produce for one that speaks no
//! newer Fetch, and reads nothing.

use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};

use super::apis::text;

/// `READ_ONLY_TOPIC`, newer than the codecs.
const READ_ONLY_TOPIC: i16 = 134;
/// First version with room for a message.
const VERSION_MESSAGE: i16 = 8;
/// First version that names topics by ID.
const VERSION_TOPIC_IDS: i16 = 13;

/// Why a topic of a catalog takes no records.
pub(super) const OF_A_MIRROR: &str = "this topic is read-only here: it is served by a mirror";
/// Why a topic of a host takes none, mirrored or stopped.
pub(super) const OF_A_HOST: &str =
    "this topic is read-only here: a mirroring host takes no records from producers";

/// The refusal with `reason`; `None` for `acks=0`, whose producer waits for no answer and is
/// told by the end of its connection.
pub(super) fn refuse(
    version: i16,
    request: &ProduceRequest,
    reason: &str,
) -> Option<ProduceResponse> {
    if request.acks == 0 {
        return None;
    }
    let topics = request.topic_data.iter().map(|topic| {
        let partitions = topic.partition_data.iter().map(|partition| {
            let mut out = PartitionProduceResponse::default()
                .with_index(partition.index)
                .with_error_code(READ_ONLY_TOPIC)
                .with_base_offset(-1);
            if version >= VERSION_MESSAGE {
                out.error_message = Some(text(reason));
            }
            out
        });
        let out = TopicProduceResponse::default().with_partition_responses(partitions.collect());
        if version >= VERSION_TOPIC_IDS {
            out.with_topic_id(topic.topic_id)
        } else {
            out.with_name(topic.name.clone())
        }
    });
    Some(ProduceResponse::default().with_responses(topics.collect()))
}
