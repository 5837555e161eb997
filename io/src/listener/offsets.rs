//! ListOffsets and OffsetForLeaderEpoch.

use heliostat_core::serve::{IsolationLevel, ServedFacts, check_leader_epoch};
use heliostat_core::types::{LeaderEpoch, Offset, TimestampMs};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{
    ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
};

use super::hosted::HostedError;
use super::readable::ReadablePartition;
use super::reading::TimedOffset;
use super::service::Service;

/// Timestamps of a request that mean something else.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
/// Versions from which these are legal.
const VERSION_MAX_TIMESTAMP: i16 = 7;
const VERSION_EARLIEST_LOCAL: i16 = 8;
const VERSION_LATEST_TIERED: i16 = 9;

pub(super) fn list_offsets(
    service: &Service,
    version: i16,
    request: &ListOffsetsRequest,
) -> ListOffsetsResponse {
    let isolation = IsolationLevel::from_wire(request.isolation_level);
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let mut out =
                ListOffsetsPartitionResponse::default().with_partition_index(asked.partition_index);
            let found = service
                .topics()
                .partition(&topic.name, asked.partition_index)
                .ok_or(ResponseError::UnknownTopicOrPartition)
                .and_then(|partition| {
                    one_offset(service, partition.as_ref(), version, isolation, asked)
                });
            match found {
                Ok(Found { offset, timestamp, epoch }) => {
                    out.offset = offset.0;
                    out.timestamp = timestamp.0;
                    if version >= 4 {
                        out.leader_epoch = epoch.0;
                    }
                }
                Err(error) => out.error_code = error.code(),
            }
            out
        });
        ListOffsetsTopicResponse::default()
            .with_name(topic.name.clone())
            .with_partitions(partitions.collect())
    });
    ListOffsetsResponse::default().with_topics(topics.collect())
}

struct Found {
    offset: Offset,
    timestamp: TimestampMs,
    epoch: LeaderEpoch,
}

/// No record fits.
const NOTHING: Found =
    Found { offset: Offset::NONE, timestamp: TimestampMs::NONE, epoch: LeaderEpoch::NONE };

fn one_offset(
    service: &Service,
    partition: &dyn ReadablePartition,
    version: i16,
    isolation: IsolationLevel,
    asked: &ListOffsetsPartition,
) -> Result<Found, ResponseError> {
    let facts = partition.facts(service.config().node_id)?;
    check_leader_epoch(LeaderEpoch(asked.current_leader_epoch), &facts)?;
    let end = facts.readable_end(isolation);
    let at =
        |offset: Offset, epoch: LeaderEpoch| Found { offset, timestamp: TimestampMs::NONE, epoch };
    match asked.timestamp {
        LATEST => Ok(at(end, facts.leader_epoch)),
        EARLIEST => Ok(at(facts.log_start, partition.epoch_at(facts.log_start))),
        EARLIEST_LOCAL if version >= VERSION_EARLIEST_LOCAL => {
            Ok(at(facts.log_start, partition.epoch_at(facts.log_start)))
        }
        // Nothing is tiered here.
        LATEST_TIERED if version >= VERSION_LATEST_TIERED => Ok(NOTHING),
        MAX_TIMESTAMP if version >= VERSION_MAX_TIMESTAMP => {
            timed(service, partition, &facts, end, |it| it.max_timestamp())
        }
        timestamp if timestamp >= 0 => {
            timed(service, partition, &facts, end, |it| it.offset_for_time(TimestampMs(timestamp)))
        }
        _ => Err(ResponseError::UnsupportedVersion),
    }
}

/// A record that is not readable yet counts as none. Clients ask again about what cannot be
/// read: that there is no such record would be taken for the truth.
fn timed(
    service: &Service,
    partition: &dyn ReadablePartition,
    facts: &ServedFacts,
    end: Offset,
    find: impl Fn(&dyn ReadablePartition) -> Result<Option<TimedOffset>, HostedError>,
) -> Result<Found, ResponseError> {
    // A segment may have been deleted between the look at the log and that at its files.
    let found = find(partition).or_else(|_| find(partition));
    match found {
        Ok(Some(found)) if found.offset >= facts.log_start && found.offset < end => Ok(Found {
            offset: found.offset,
            timestamp: found.timestamp,
            epoch: partition.epoch_at(found.offset),
        }),
        Ok(_) => Ok(NOTHING),
        Err(error) => {
            partition.facts(service.config().node_id)?;
            let cause: &dyn std::error::Error = &error;
            tracing::warn!(
                partition = %partition.at(),
                error = cause,
                "offset by time not found"
            );
            Err(ResponseError::KafkaStorageError)
        }
    }
}

pub(super) fn offset_for_leader_epoch(
    service: &Service,
    request: &OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let out = EpochEndOffset::default().with_partition(asked.partition);
            let found = service
                .topics()
                .partition(&topic.topic, asked.partition)
                .ok_or(ResponseError::UnknownTopicOrPartition)
                .and_then(|partition| epoch_end(service, partition.as_ref(), asked));
            match found {
                Ok((epoch, end)) => out.with_leader_epoch(epoch.0).with_end_offset(end.0),
                Err(error) => out.with_error_code(error.code()),
            }
        });
        OffsetForLeaderTopicResult::default()
            .with_topic(topic.topic.clone())
            .with_partitions(partitions.collect())
    });
    OffsetForLeaderEpochResponse::default().with_topics(topics.collect())
}

fn epoch_end(
    service: &Service,
    partition: &dyn ReadablePartition,
    asked: &OffsetForLeaderPartition,
) -> Result<(LeaderEpoch, Offset), ResponseError> {
    let facts = partition.facts(service.config().node_id)?;
    check_leader_epoch(LeaderEpoch(asked.current_leader_epoch), &facts)?;
    let undefined = (LeaderEpoch::NONE, Offset::NONE);
    Ok(partition.epoch_end(LeaderEpoch(asked.leader_epoch))?.unwrap_or(undefined))
}
