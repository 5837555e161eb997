//! Checks the counts in a request against its bytes.
//!
//! The decoders behind this reserve memory for as many elements as an array
//! claims. So a request is walked first, and a claim that its bytes cannot back
//! is refused before anything is reserved.

use kafka_protocol::messages::ApiKey;

use super::request::TAG_MIRROR_LEADER_EPOCH;
use crate::protocol::FETCH_VERSION_MIRROR_EPOCH;

/// What is wrong with a request's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestShapeError {
    /// The request ends inside a field.
    #[error("request ends within {field}")]
    Short {
        /// The field.
        field: &'static str,
    },
    /// A length that no request can have.
    #[error("impossible length {length} of {field}")]
    Length {
        /// The field.
        field: &'static str,
        /// As read.
        length: i64,
    },
    /// An API that this check does not know; nothing may decode it.
    #[error("requests of API {0:?} are not taken")]
    UnknownApi(ApiKey),
}

type Shape = Result<(), RequestShapeError>;

/// Walks the body of a request (what follows the header). Bytes behind it are not
/// looked at. A version that is out of range for the API is the caller's to refuse.
///
/// # Errors
///
/// [`RequestShapeError`] at the first claim that the bytes do not back.
pub fn check_request_shape(api: ApiKey, version: i16, body: &[u8]) -> Shape {
    let flexible = api.request_header_version(version) >= 2;
    let mut cursor = Cursor { left: body, flexible };
    match api {
        ApiKey::ApiVersions => cursor.api_versions(version),
        ApiKey::Metadata => cursor.metadata(version),
        ApiKey::Fetch => cursor.fetch(version),
        ApiKey::Produce => cursor.produce(version),
        ApiKey::ListOffsets => cursor.list_offsets(version),
        ApiKey::OffsetForLeaderEpoch => cursor.offset_for_leader_epoch(version),
        ApiKey::DescribeConfigs => cursor.describe_configs(version),
        ApiKey::FindCoordinator => cursor.find_coordinator(version),
        ApiKey::CreateTopics => cursor.create_topics(),
        ApiKey::DeleteTopics => cursor.delete_topics(version),
        ApiKey::CreatePartitions => cursor.create_partitions(),
        ApiKey::IncrementalAlterConfigs => cursor.incremental_alter_configs(),
        ApiKey::UpdateFeatures => cursor.update_features(version),
        ApiKey::DescribeCluster => {
            // One boolean, from v1 the endpoint type, from v2 another boolean.
            let bytes = usize::try_from(version).unwrap_or(0).saturating_add(1);
            cursor.skip(bytes, "options")?;
            cursor.tags()
        }
        other => Err(RequestShapeError::UnknownApi(other)),
    }
}

struct Cursor<'a> {
    left: &'a [u8],
    flexible: bool,
}

impl Cursor<'_> {
    fn skip(&mut self, bytes: usize, field: &'static str) -> Shape {
        let left = self.left.get(bytes..).ok_or(RequestShapeError::Short { field })?;
        self.left = left;
        Ok(())
    }

    fn i16(&mut self, field: &'static str) -> Result<i16, RequestShapeError> {
        let (bytes, left) =
            self.left.split_first_chunk().ok_or(RequestShapeError::Short { field })?;
        self.left = left;
        Ok(i16::from_be_bytes(*bytes))
    }

    fn i32(&mut self, field: &'static str) -> Result<i32, RequestShapeError> {
        let (bytes, left) =
            self.left.split_first_chunk().ok_or(RequestShapeError::Short { field })?;
        self.left = left;
        Ok(i32::from_be_bytes(*bytes))
    }

    fn uvarint(&mut self, field: &'static str) -> Result<u32, RequestShapeError> {
        let mut value = 0_u64;
        for shift in [0, 7, 14, 21, 28] {
            let (&byte, left) =
                self.left.split_first().ok_or(RequestShapeError::Short { field })?;
            self.left = left;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value)
                    .map_err(|_| RequestShapeError::Length { field, length: i64::MAX });
            }
        }
        Err(RequestShapeError::Length { field, length: i64::MAX })
    }

    fn string(&mut self, field: &'static str) -> Shape {
        // Null counts as empty; whether it is allowed is the decoder's question.
        let length = if self.flexible {
            self.uvarint(field)?.saturating_sub(1)
        } else {
            u32::from(self.i16(field)?.max(0).unsigned_abs())
        };
        self.skip(usize::try_from(length).unwrap_or(usize::MAX), field)
    }

    fn bytes(&mut self, field: &'static str) -> Shape {
        let length = if self.flexible {
            self.uvarint(field)?.saturating_sub(1)
        } else {
            self.i32(field)?.max(0).unsigned_abs()
        };
        self.skip(usize::try_from(length).unwrap_or(usize::MAX), field)
    }

    /// An array whose elements `element` walks. Each has at least one byte, so the
    /// count is checked before the first.
    fn array(&mut self, field: &'static str, element: impl Fn(&mut Self) -> Shape) -> Shape {
        let count = if self.flexible {
            i64::from(self.uvarint(field)?) - 1
        } else {
            i64::from(self.i32(field)?)
        };
        let fits = |count: i64| usize::try_from(count).is_ok_and(|n| n <= self.left.len());
        if count < -1 || (count > 0 && !fits(count)) {
            return Err(RequestShapeError::Length { field, length: count });
        }
        for _ in 0..count {
            element(self)?;
        }
        Ok(())
    }

    fn tags(&mut self) -> Shape {
        if !self.flexible {
            return Ok(());
        }
        for _ in 0..self.uvarint("tagged fields")? {
            self.uvarint("tag")?;
            let bytes = self.uvarint("tagged field")?;
            self.skip(usize::try_from(bytes).unwrap_or(usize::MAX), "tagged field")?;
        }
        Ok(())
    }

    /// Tagged fields of a partition of a Fetch request: the one that kafka-protocol passes
    /// over as unknown is an `int32`, and is there once.
    fn fetch_partition_tags(&mut self, version: i16) -> Shape {
        if !self.flexible {
            return Ok(());
        }
        let mut seen = false;
        for _ in 0..self.uvarint("tagged fields")? {
            let tag = self.uvarint("tag")?;
            let bytes = self.uvarint("tagged field")?;
            if version >= FETCH_VERSION_MIRROR_EPOCH && tag == TAG_MIRROR_LEADER_EPOCH {
                if bytes != 4 || seen {
                    let field = "mirror_leader_epoch";
                    return Err(RequestShapeError::Length { field, length: i64::from(bytes) });
                }
                seen = true;
            }
            self.skip(usize::try_from(bytes).unwrap_or(usize::MAX), "tagged field")?;
        }
        Ok(())
    }

    fn api_versions(&mut self, version: i16) -> Shape {
        if version >= 3 {
            self.string("client_software_name")?;
            self.string("client_software_version")?;
        }
        self.tags()
    }

    fn metadata(&mut self, version: i16) -> Shape {
        self.array("topics", |topic| {
            topic.skip(if version >= 10 { 16 } else { 0 }, "topic_id")?;
            topic.string("name")?;
            topic.tags()
        })?;
        let flags = usize::from(version >= 4)
            + usize::from((8..=10).contains(&version))
            + usize::from(version >= 8);
        self.skip(flags, "options")?;
        self.tags()
    }

    fn fetch(&mut self, version: i16) -> Shape {
        let replica = if version <= 14 { 4 } else { 0 };
        let session = if version >= 7 { 8 } else { 0 };
        self.skip(replica + 13 + session, "limits")?;
        let topic_name = |cursor: &mut Self| {
            if version >= 13 { cursor.skip(16, "topic_id") } else { cursor.string("topic") }
        };
        self.array("topics", |topic| {
            topic_name(topic)?;
            topic.array("partitions", |partition| {
                let epoch = if version >= 9 { 4 } else { 0 };
                let last_epoch = if version >= 12 { 4 } else { 0 };
                let log_start = if version >= 5 { 8 } else { 0 };
                partition.skip(16 + epoch + last_epoch + log_start, "partition")?;
                partition.fetch_partition_tags(version)
            })?;
            topic.tags()
        })?;
        if version >= 7 {
            self.array("forgotten_topics_data", |topic| {
                topic_name(topic)?;
                topic.array("partitions", |partition| partition.skip(4, "partition"))?;
                topic.tags()
            })?;
        }
        if version >= 11 {
            self.string("rack_id")?;
        }
        self.tags()
    }

    fn produce(&mut self, version: i16) -> Shape {
        self.string("transactional_id")?;
        self.skip(6, "acks and timeout_ms")?;
        self.array("topic_data", |topic| {
            if version >= 13 {
                topic.skip(16, "topic_id")?;
            } else {
                topic.string("name")?;
            }
            topic.array("partition_data", |partition| {
                partition.skip(4, "index")?;
                partition.bytes("records")?;
                partition.tags()
            })?;
            topic.tags()
        })?;
        self.tags()
    }

    fn list_offsets(&mut self, version: i16) -> Shape {
        self.skip(if version >= 2 { 5 } else { 4 }, "replica_id")?;
        self.array("topics", |topic| {
            topic.string("name")?;
            topic.array("partitions", |partition| {
                partition.skip(if version >= 4 { 16 } else { 12 }, "partition")?;
                partition.tags()
            })?;
            topic.tags()
        })?;
        self.skip(if version >= 10 { 4 } else { 0 }, "timeout_ms")?;
        self.tags()
    }

    fn offset_for_leader_epoch(&mut self, version: i16) -> Shape {
        self.skip(if version >= 3 { 4 } else { 0 }, "replica_id")?;
        self.array("topics", |topic| {
            topic.string("topic")?;
            topic.array("partitions", |partition| {
                partition.skip(12, "partition")?;
                partition.tags()
            })?;
            topic.tags()
        })?;
        self.tags()
    }

    fn describe_configs(&mut self, version: i16) -> Shape {
        self.array("resources", |resource| {
            resource.skip(1, "resource_type")?;
            resource.string("resource_name")?;
            resource.array("configuration_keys", |key| key.string("configuration key"))?;
            resource.tags()
        })?;
        self.skip(if version >= 3 { 2 } else { 1 }, "options")?;
        self.tags()
    }

    fn find_coordinator(&mut self, version: i16) -> Shape {
        if version <= 3 {
            self.string("key")?;
        }
        self.skip(usize::from(version >= 1), "key_type")?;
        if version >= 4 {
            self.array("coordinator_keys", |key| key.string("coordinator key"))?;
        }
        self.tags()
    }

    /// Up to version 7: the next one has a decoder that checks by itself.
    fn create_topics(&mut self) -> Shape {
        self.array("topics", |topic| {
            topic.string("name")?;
            topic.skip(6, "num_partitions and replication_factor")?;
            topic.array("assignments", |assignment| {
                assignment.skip(4, "partition_index")?;
                assignment.array("broker_ids", |broker| broker.skip(4, "broker ID"))?;
                assignment.tags()
            })?;
            topic.array("configs", |config| {
                config.string("config name")?;
                config.string("config value")?;
                config.tags()
            })?;
            topic.tags()
        })?;
        self.skip(5, "timeout_ms and validate_only")?;
        self.tags()
    }

    fn delete_topics(&mut self, version: i16) -> Shape {
        self.array("topics", |topic| {
            topic.string("name")?;
            if version >= 6 {
                topic.skip(16, "topic_id")?;
                topic.tags()?;
            }
            Ok(())
        })?;
        self.skip(4, "timeout_ms")?;
        self.tags()
    }

    fn create_partitions(&mut self) -> Shape {
        self.array("topics", |topic| {
            topic.string("name")?;
            topic.skip(4, "count")?;
            topic.array("assignments", |assignment| {
                assignment.array("broker_ids", |broker| broker.skip(4, "broker ID"))?;
                assignment.tags()
            })?;
            topic.tags()
        })?;
        self.skip(5, "timeout_ms and validate_only")?;
        self.tags()
    }

    fn incremental_alter_configs(&mut self) -> Shape {
        self.array("resources", |resource| {
            resource.skip(1, "resource_type")?;
            resource.string("resource_name")?;
            resource.array("configs", |config| {
                config.string("config name")?;
                config.skip(1, "config_operation")?;
                config.string("config value")?;
                config.tags()
            })?;
            resource.tags()
        })?;
        self.skip(1, "validate_only")?;
        self.tags()
    }

    fn update_features(&mut self, version: i16) -> Shape {
        self.skip(4, "timeout_ms")?;
        self.array("feature_updates", |update| {
            update.string("feature")?;
            // The last byte says whether, and from version 1 how, it may go down.
            update.skip(3, "max_version_level and upgrade_type")?;
            update.tags()
        })?;
        self.skip(usize::from(version >= 1), "validate_only")?;
        self.tags()
    }
}

#[cfg(test)]
mod tests;
