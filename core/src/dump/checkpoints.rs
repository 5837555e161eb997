//! Text files of a log dir, in a shape of our own: Kafka's tool reads none of them.

use std::io;

use super::log::with_causes;
use super::{FileBytes, Findings, Out};
use crate::log::checkpoint::{decode_offsets, decode_partition_metadata};
use crate::log::epoch_cache::EpochCache;
use crate::log::format_error::{FileKind, FormatError};
use crate::log::gaps::{GapFile, GapKind};
use crate::log::meta_properties::MetaProperties;
use crate::log::names;
use crate::log::utc;
use crate::types::TopicId;

/// Prints the file if its name is that of a checkpoint, of `partition.metadata`,
/// `meta.properties` or `mirror-gaps`; `false` if it is none of them.
///
/// # Errors
///
/// From the system, reading or writing. What is wrong with the file goes into `findings`.
pub fn dump_checkpoint(
    path: &str,
    file: &dyn FileBytes,
    out: Out<'_>,
    findings: &mut Findings,
) -> io::Result<bool> {
    let name = path.rsplit('/').next().unwrap_or(path);
    let lines: fn(&[u8]) -> Result<Vec<String>, FormatError> = match name {
        names::LEADER_EPOCH_CHECKPOINT => epochs,
        names::RECOVERY_POINT_CHECKPOINT => {
            |bytes| offsets(FileKind::RecoveryPointCheckpoint, bytes)
        }
        names::LOG_START_CHECKPOINT => |bytes| offsets(FileKind::LogStartCheckpoint, bytes),
        names::REPLICATION_CHECKPOINT | names::CLEANER_CHECKPOINT => {
            |bytes| offsets(FileKind::ReplicationCheckpoint, bytes)
        }
        names::PARTITION_METADATA => topic_id,
        names::META_PROPERTIES => owner,
        names::MIRROR_GAPS => gaps,
        _ => return Ok(false),
    };
    match lines(&file.read_all()?) {
        Ok(lines) => {
            for line in lines {
                writeln!(out, "{line}")?;
            }
        }
        Err(error) => findings.damage(format!("{path}: {}", with_causes(&error))),
    }
    Ok(true)
}

fn epochs(bytes: &[u8]) -> Result<Vec<String>, FormatError> {
    let cache = EpochCache::decode(bytes)?;
    let line = |entry: &crate::log::epoch_cache::EpochEntry| {
        format!("epoch: {} startOffset: {}", entry.epoch, entry.start_offset)
    };
    Ok(cache.entries().iter().map(line).collect())
}

fn offsets(file: FileKind, bytes: &[u8]) -> Result<Vec<String>, FormatError> {
    let offsets = decode_offsets(file, bytes)?;
    let line = |(at, offset): (&crate::types::TopicPartition, &crate::types::Offset)| {
        format!("topic: {} partition: {} offset: {offset}", at.topic, at.partition)
    };
    Ok(offsets.iter().map(line).collect())
}

fn topic_id(bytes: &[u8]) -> Result<Vec<String>, FormatError> {
    Ok(vec![format!("topicId: {}", decode_partition_metadata(bytes)?)])
}

fn owner(bytes: &[u8]) -> Result<Vec<String>, FormatError> {
    let owner = MetaProperties::decode(bytes)?;
    let or_none = |value: Option<String>| value.unwrap_or_else(|| "none".to_owned());
    Ok(vec![format!(
        "version: {} clusterId: {} nodeId: {} directoryId: {}",
        owner.version,
        or_none(owner.cluster_id),
        or_none(owner.node_id.map(|id| id.to_string())),
        or_none(owner.directory_id.map(|id| TopicId(id).to_string())),
    )])
}

fn gaps(bytes: &[u8]) -> Result<Vec<String>, FormatError> {
    let file = GapFile::decode(bytes)?;
    let line = |gap: &crate::log::gaps::GapRecord| {
        let kind = match gap.kind {
            GapKind::Gap => "gap",
            GapKind::Truncation => "truncation",
        };
        format!(
            "{kind} topic: {} partition: {} topicId: {} from: {} to: {} time: {} reason: {}",
            gap.partition.topic,
            gap.partition.partition,
            gap.topic_id,
            gap.from,
            gap.to,
            utc::format(gap.time),
            gap.reason,
        )
    };
    Ok(file.records.iter().map(line).collect())
}
