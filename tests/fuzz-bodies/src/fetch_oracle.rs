//! The kafka-protocol crate reads the same Fetch response.

use std::ops::Range;

use bytes::{Buf, Bytes};
use heliostat_core::protocol::fetch_stream::{FetchEvent, PartitionEnd, TopicRef};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{FetchResponse, ResponseHeader};
use kafka_protocol::protocol::Decodable;

use crate::fetch_stream::Seen;

/// The oracle knows no later version; what it reads as this one is valid as 19.
const VERSION_MAX: i16 = 18;

/// `response` is what our decoder saw in the bytes of `frame`, and it was content.
pub(crate) fn check_against_oracle(
    version: i16,
    response: &[Seen],
    bytes: &[u8],
    frame: Range<usize>,
) {
    let frame = bytes.get(frame).unwrap_or_default();
    let mut rest = Bytes::copy_from_slice(frame);
    let header = ResponseHeader::decode(&mut rest, i16::from(version >= 12));
    let body = FetchResponse::decode(&mut rest, version.min(VERSION_MAX));
    // It refuses node endpoints in versions that do not have them, where they are one
    // more unknown field to be skipped.
    let may_refuse = (12..16).contains(&version);
    let (Ok(header), Ok(body)) = (header, body) else {
        assert!(may_refuse, "the oracle refuses what was accepted");
        return;
    };
    assert!(!rest.has_remaining(), "the oracle sees the response end earlier");

    let mut partitions = body.responses.iter().flat_map(|topic| {
        let name = if version >= 13 {
            topic.topic_id.to_string()
        } else {
            topic.topic.0.as_str().to_owned()
        };
        topic.partitions.iter().map(move |partition| (name.clone(), partition))
    });
    let mut current = None;
    let mut nodes = None;
    for seen in response {
        match seen {
            Seen::Event(FetchEvent::Header(head), _) => {
                assert_eq!(head.correlation_id, header.correlation_id);
                assert_eq!(i32::try_from(head.throttle_ms), Ok(body.throttle_time_ms));
                assert_eq!((head.error.0, head.session_id), (body.error_code, body.session_id));
            }
            Seen::Event(FetchEvent::Partition(head), _) => {
                current = partitions.next();
                let Some((name, data)) = &current else {
                    assert!(current.is_some(), "a partition that the oracle does not see");
                    return;
                };
                match &head.topic {
                    TopicRef::Name(topic) => assert_eq!(**topic, **name),
                    TopicRef::Id(id) => assert_eq!(id.0.to_string(), *name),
                }
                assert_eq!(
                    (head.index, head.error.0, head.preferred_read_replica.0),
                    (data.partition_index, data.error_code, data.preferred_read_replica.0)
                );
                assert_eq!(
                    (head.high_watermark.0, head.last_stable_offset.0, head.log_start_offset.0),
                    (data.high_watermark, data.last_stable_offset, data.log_start_offset)
                );
                let aborted = data.aborted_transactions.as_ref().map_or(0, Vec::len);
                assert_eq!(usize::try_from(head.aborted_count), Ok(aborted));
                let records = data.records.as_ref().map_or(0, Bytes::len);
                assert_eq!(usize::try_from(head.records_bytes), Ok(records));
            }
            Seen::Records(from, to) => {
                let theirs = current.as_ref().and_then(|(_, data)| data.records.as_deref());
                assert_eq!(bytes.get(*from..*to), theirs);
            }
            Seen::Event(FetchEvent::PartitionEnd(end), _) => {
                let Some((_, data)) = current.take() else { return };
                check_end(end, data);
            }
            Seen::Event(FetchEvent::End { node_endpoints }, _) => nodes = Some(node_endpoints),
        }
    }
    assert!(partitions.next().is_none(), "the oracle sees another partition");
    let theirs: Vec<_> = body.node_endpoints.iter().collect();
    let ours = nodes.map_or(&[][..], Vec::as_slice);
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert_eq!((ours.node.0, i32::from(ours.port)), (theirs.node_id.0, theirs.port));
        assert_eq!(ours.host.as_str(), theirs.host.as_str());
        assert_eq!(ours.rack.as_deref(), theirs.rack.as_deref());
    }
}

fn check_end(end: &PartitionEnd, data: &PartitionData) {
    let theirs = &data.diverging_epoch;
    let diverging = (theirs.epoch >= 0).then_some((theirs.epoch, theirs.end_offset));
    assert_eq!(end.diverging_epoch.map(|found| (found.epoch.0, found.end_offset.0)), diverging);
    let theirs = (data.current_leader.leader_id.0, data.current_leader.leader_epoch);
    if let Some(hint) = end.current_leader {
        assert_eq!((hint.leader.0, hint.epoch.0), theirs);
    }
    let theirs = (data.snapshot_id.end_offset, data.snapshot_id.epoch);
    if let Some(id) = end.snapshot_id {
        assert_eq!((id.end_offset.0, id.epoch.0), theirs);
    }
}
