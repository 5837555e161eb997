//! Records of `__mirror_state`, from and to bytes.
//!
//! Both kinds have the key {mirror, topic ID, partition}, so that compaction keeps one of each for
//! every partition: a key of the mirror's name alone would keep one for all of them. As in every
//! coordinator's topic of Kafka, a key begins with its type and is not flexible, a value begins
//! with its version and is; no value is a tombstone.
//!
//! | type | value, version 0 | tagged |
//! |---|---|---|
//! | 1 | `LastMirrorEpoch` int32 | 1000 `LastMirrorOffset` int64 (-1) |
//! | 2 | `State` int8, `PreviousState` int8 (16), `RetryAttempt` int16 (0), `ErrorMessage` nullable | 1000 `LeaderEpoch` int32 (-1), 1001 `StateEpoch` int32 (0) |
//!
//! What KIP-1279's second generation does not have is a tagged field: its own tools pass over it.

use std::sync::Arc;

use uuid::Uuid;

use super::partition::Stored;
use super::retry::Attempts;
use super::state::MirrorState;
use crate::protocol::DecodeError;
use crate::protocol::mirror::field::{Field, put_tagged, read_tagged};
use crate::protocol::mirror::json::JsonObject;
use crate::protocol::wire::{Reader, utf8};
use crate::types::{LeaderEpoch, Offset, TopicId};

const LAST_MIRRORED: i16 = 1;
const PARTITION_STATE: i16 = 2;
const VALUE_VERSION: i16 = 0;

const LAST_MIRROR_OFFSET: u32 = 1_000;
const LEADER_EPOCH: u32 = 1_000;
const STATE_EPOCH: u32 = 1_001;

/// A longer reason is cut, at a character: it is for a screen.
const REASON_BYTES_MAX: usize = 1_024;

/// What a record is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MirrorKey {
    /// Name of the mirror.
    pub mirror: Arc<str>,
    /// The topic.
    pub topic: TopicId,
    /// Index of the partition.
    pub partition: i32,
}

/// Where a partition's copy ended when it was stopped: a failback cuts the other side back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastMirrored {
    /// Epoch of the last batch that was mirrored.
    pub epoch: LeaderEpoch,
    /// Log end offset before anything was written here, exclusive; [`Offset::NONE`] for unknown.
    pub offset: Offset,
}

/// One record. `None` is a tombstone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateRecord {
    /// Type 1.
    LastMirrored(MirrorKey, Option<LastMirrored>),
    /// Type 2.
    Partition(MirrorKey, Option<Stored>),
}

/// Why bytes are no record of this log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// Written by a later version, perhaps; Kafka's coordinators pass over such records.
    #[error("__mirror_state: a key of type {0}; 1 and 2 are known")]
    KeyType(i16),
    /// The same of a value.
    #[error("__mirror_state: a value of version {0}; 0 is known")]
    ValueVersion(i16),
    /// No state has this number.
    #[error("__mirror_state: state {0} is unknown")]
    State(i8),
    /// The bytes do not follow the schema.
    #[error("__mirror_state: {0}")]
    Field(#[from] DecodeError),
    /// A name that is longer than a key can hold.
    #[error("__mirror_state: a mirror's name of {0} bytes; a key holds 32767")]
    NameLength(usize),
}

impl StateRecord {
    /// What it is about.
    #[must_use]
    pub fn key(&self) -> &MirrorKey {
        match self {
            Self::LastMirrored(key, _) | Self::Partition(key, _) => key,
        }
    }

    /// The record's key.
    ///
    /// # Errors
    /// [`RecordError::NameLength`].
    pub fn encode_key(&self) -> Result<Vec<u8>, RecordError> {
        let (kind, key) = match self {
            Self::LastMirrored(key, _) => (LAST_MIRRORED, key),
            Self::Partition(key, _) => (PARTITION_STATE, key),
        };
        let name = key.mirror.as_bytes();
        let len = i16::try_from(name.len()).map_err(|_| RecordError::NameLength(name.len()))?;
        let mut out = kind.to_be_bytes().to_vec();
        out.extend(len.to_be_bytes());
        out.extend(name);
        out.extend(key.topic.0.as_bytes());
        out.extend(key.partition.to_be_bytes());
        Ok(out)
    }

    /// The record's value; `None` for a tombstone.
    #[must_use]
    pub fn encode_value(&self) -> Option<Vec<u8>> {
        let mut out = VALUE_VERSION.to_be_bytes().to_vec();
        match self {
            Self::LastMirrored(_, last) => {
                let last = (*last)?;
                out.extend(last.epoch.0.to_be_bytes());
                let offset = (last.offset != Offset::NONE)
                    .then(|| (LAST_MIRROR_OFFSET, last.offset.0.to_be_bytes().to_vec()));
                put_tagged(&mut out, offset);
            }
            Self::Partition(_, stored) => {
                let stored = stored.as_ref()?;
                out.extend(stored.state.id().to_be_bytes());
                out.extend(stored.previous.id().to_be_bytes());
                out.extend(stored.attempts.stored().to_be_bytes());
                stored.reason.as_deref().map(short).write(&mut out);
                let epoch = (stored.leader_epoch != LeaderEpoch::NONE)
                    .then(|| (LEADER_EPOCH, stored.leader_epoch.0.to_be_bytes().to_vec()));
                let count = (stored.state_epoch != 0)
                    .then(|| (STATE_EPOCH, stored.state_epoch.to_be_bytes().to_vec()));
                put_tagged(&mut out, epoch.into_iter().chain(count));
            }
        }
        Some(out)
    }

    /// The key as `--mirror-state-decoder` prints it.
    #[must_use]
    pub fn key_json(&self) -> String {
        let kind = match self {
            Self::LastMirrored(..) => LAST_MIRRORED,
            Self::Partition(..) => PARTITION_STATE,
        };
        let key = self.key();
        let mut out = String::new();
        let mut object = JsonObject::new(&mut out).field("Type", &kind.to_string());
        JsonObject::new(object.name("Data"))
            .field("MirrorName", &*key.mirror)
            .field("TopicId", &key.topic)
            .field("Partition", &key.partition)
            .end();
        object.end();
        out
    }

    /// The value as `--mirror-state-decoder` prints it; `None` for a tombstone.
    #[must_use]
    pub fn value_json(&self) -> Option<String> {
        let mut out = String::new();
        let mut object = JsonObject::new(&mut out).field("Version", &VALUE_VERSION.to_string());
        let data = JsonObject::new(object.name("Data"));
        match self {
            Self::LastMirrored(_, last) => {
                let last = (*last)?;
                data.field("LastMirrorEpoch", &last.epoch.0)
                    .field("LastMirrorOffset", &last.offset.0)
                    .end();
            }
            Self::Partition(_, stored) => {
                let stored = stored.as_ref()?;
                data.field("State", &stored.state.id())
                    .field("PreviousState", &stored.previous.id())
                    .field("RetryAttempt", &stored.attempts.stored())
                    .field("ErrorMessage", &stored.reason.as_deref().map(str::to_owned))
                    .field("LeaderEpoch", &stored.leader_epoch.0)
                    .field("StateEpoch", &stored.state_epoch)
                    .end();
            }
        }
        object.end();
        Some(out)
    }

    /// The record of a key and its value; no value is a tombstone.
    ///
    /// # Errors
    /// [`RecordError`]; nothing of the record is to be used.
    pub fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Self, RecordError> {
        let mut reader = Reader::new(key);
        let kind = reader.i16("key type")?;
        if ![LAST_MIRRORED, PARTITION_STATE].contains(&kind) {
            return Err(RecordError::KeyType(kind));
        }
        let key = decode_key(&mut reader)?;
        let Some(value) = value else {
            return Ok(match kind {
                LAST_MIRRORED => Self::LastMirrored(key, None),
                _ => Self::Partition(key, None),
            });
        };
        let mut reader = Reader::new(value);
        let version = reader.i16("value version")?;
        if version != VALUE_VERSION {
            return Err(RecordError::ValueVersion(version));
        }
        Ok(match kind {
            LAST_MIRRORED => Self::LastMirrored(key, Some(decode_last(&mut reader)?)),
            _ => Self::Partition(key, Some(decode_state(&mut reader)?)),
        })
    }
}

fn decode_key(reader: &mut Reader<'_>) -> Result<MirrorKey, RecordError> {
    const NAME: &str = "MirrorName";
    let len = reader.i16(NAME)?;
    let len = u64::try_from(len)
        .map_err(|_| DecodeError::Negative { field: NAME, got: i64::from(len) })?;
    let mirror = utf8(reader.take(len, NAME)?, NAME)?.into();
    let topic = TopicId(Uuid::from_u128(reader.u128("TopicId")?));
    let partition = reader.i32("Partition")?;
    nothing_left(reader)?;
    Ok(MirrorKey { mirror, topic, partition })
}

fn decode_last(reader: &mut Reader<'_>) -> Result<LastMirrored, RecordError> {
    let epoch = LeaderEpoch(reader.i32("LastMirrorEpoch")?);
    let mut offset = Offset::NONE;
    read_tagged(reader, |tag, field| {
        if tag == LAST_MIRROR_OFFSET {
            offset = Offset(field.i64("LastMirrorOffset")?);
        }
        Ok(tag == LAST_MIRROR_OFFSET)
    })?;
    nothing_left(reader)?;
    Ok(LastMirrored { epoch, offset })
}

fn decode_state(reader: &mut Reader<'_>) -> Result<Stored, RecordError> {
    let state = |id: i8| MirrorState::from_id(id).ok_or(RecordError::State(id));
    let mut stored = Stored {
        state: state(reader.i8("State")?)?,
        previous: state(reader.i8("PreviousState")?)?,
        attempts: Attempts::new(reader.i16("RetryAttempt")?),
        reason: reader.compact_str("ErrorMessage")?.map(Arc::from),
        ..Stored::default()
    };
    read_tagged(reader, |tag, field| {
        match tag {
            LEADER_EPOCH => stored.leader_epoch = LeaderEpoch(field.i32("LeaderEpoch")?),
            STATE_EPOCH => stored.state_epoch = field.i32("StateEpoch")?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    nothing_left(reader)?;
    Ok(stored)
}

fn nothing_left(reader: &Reader<'_>) -> Result<(), RecordError> {
    match reader.left() {
        0 => Ok(()),
        left => Err(DecodeError::FrameNotConsumed { left }.into()),
    }
}

fn short(reason: &str) -> String {
    reason.get(..reason.floor_char_boundary(REASON_BYTES_MAX)).unwrap_or(reason).to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: u128 = 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10;

    fn key() -> MirrorKey {
        MirrorKey { mirror: "west".into(), topic: TopicId(Uuid::from_u128(ID)), partition: 7 }
    }

    /// Bytes by hand, from the table above.
    const KEY_TAIL: &[u8] =
        b"\0\x04west\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\0\0\0\x07";

    fn check(record: StateRecord, kind: u8, value: Option<&[u8]>) {
        let key = [&[0, kind], KEY_TAIL].concat();
        assert_eq!(record.encode_key().as_deref(), Ok(&key[..]), "{record:?}");
        assert_eq!(record.encode_value().as_deref(), value, "{record:?}");
        assert_eq!(StateRecord::decode(&key, value), Ok(record));
    }

    #[test]
    fn bytes_are_those_of_the_schemas() {
        let failed = Stored {
            state: MirrorState::Failed,
            previous: MirrorState::Mirroring,
            attempts: Attempts::new(3),
            reason: Some("no".into()),
            leader_epoch: LeaderEpoch(9),
            state_epoch: 300,
        };
        check(
            StateRecord::Partition(key(), Some(failed)),
            2,
            Some(b"\0\0\x07\x02\0\x03\x03no\x02\xe8\x07\x04\0\0\0\x09\xe9\x07\x04\0\0\x01\x2c"),
        );
        // What has its default is not written: these are the KIP's own bytes.
        let plain = Stored { state: MirrorState::Stopped, ..Stored::default() };
        check(StateRecord::Partition(key(), Some(plain)), 2, Some(b"\0\0\x06\x10\0\0\0\0"));
        check(StateRecord::Partition(key(), None), 2, None);
        let last = LastMirrored { epoch: LeaderEpoch(5), offset: Offset(258) };
        check(
            StateRecord::LastMirrored(key(), Some(last)),
            1,
            Some(b"\0\0\0\0\0\x05\x01\xe8\x07\x08\0\0\0\0\0\0\x01\x02"),
        );
        let unknown = LastMirrored { offset: Offset::NONE, ..last };
        check(StateRecord::LastMirrored(key(), Some(unknown)), 1, Some(b"\0\0\0\0\0\x05\0"));
        check(StateRecord::LastMirrored(key(), None), 1, None);
    }

    #[test]
    fn what_is_not_of_this_log_is_named() {
        let tail = |kind: u8| [&[0, kind], KEY_TAIL].concat();
        let value = |key: &[u8], value: &[u8]| StateRecord::decode(key, Some(value));
        assert_eq!(value(&tail(3), b"\0\0"), Err(RecordError::KeyType(3)));
        assert_eq!(value(&tail(2), b"\0\x01\x06"), Err(RecordError::ValueVersion(1)));
        assert_eq!(value(&tail(2), b"\0\0\x08\x10\0\0\0\0"), Err(RecordError::State(8)));
        let left = DecodeError::FrameNotConsumed { left: 1 };
        assert_eq!(value(&tail(2), b"\0\0\x06\x10\0\0\0\0\0"), Err(left.clone().into()));
        assert_eq!(StateRecord::decode(&[&tail(2)[..], b"x"].concat(), None), Err(left.into()));
        let short = value(&tail(1), b"\0\0\0\0\0\x05\x01\xe8\x07\x09\0\0\0\0\0\0\x01\x02\x03");
        assert!(matches!(short, Err(RecordError::Field(DecodeError::TaggedSize { used: 8, .. }))));
        let twice = value(&tail(1), b"\0\0\0\0\0\x05\x02\x07\0\x07\0");
        assert!(matches!(twice, Err(RecordError::Field(DecodeError::Repeated { .. }))));
    }

    #[test]
    fn fields_of_a_later_version_are_passed_over() {
        let key = [&[0, 1], KEY_TAIL].concat();
        let value = b"\0\0\0\0\0\x05\x02\x07\x01x\xe8\x07\x08\0\0\0\0\0\0\x01\x02";
        let Ok(StateRecord::LastMirrored(_, Some(last))) = StateRecord::decode(&key, Some(value))
        else {
            panic!("a record")
        };
        assert_eq!(last.offset, Offset(258));
    }

    #[test]
    fn a_long_reason_is_cut_at_a_character() {
        let reason: String = "a".repeat(REASON_BYTES_MAX - 1) + "\u{fc}\u{fc}";
        let stored = Stored { reason: Some(reason.into()), ..Stored::default() };
        let record = StateRecord::Partition(key(), Some(stored));
        let bytes = record.encode_value().unwrap();
        let key = record.encode_key().unwrap();
        let Ok(StateRecord::Partition(_, Some(read))) = StateRecord::decode(&key, Some(&bytes))
        else {
            panic!("a record")
        };
        assert_eq!(read.reason.as_deref(), Some("a".repeat(REASON_BYTES_MAX - 1).as_str()));
    }

    fn records() -> impl Strategy<Value = StateRecord> {
        let key = (".{0,40}", any::<u128>(), any::<i32>()).prop_map(|(name, id, partition)| {
            MirrorKey { mirror: name.into(), topic: TopicId(Uuid::from_u128(id)), partition }
        });
        let state = || prop::sample::select(MirrorState::ALL.to_vec());
        let reason = prop::option::of("\\PC{0,60}".prop_map(Arc::<str>::from));
        let stored = (state(), state(), any::<i16>(), reason, any::<i32>(), any::<i32>()).prop_map(
            |(state, previous, attempts, reason, epoch, state_epoch)| Stored {
                state,
                previous,
                attempts: Attempts::new(attempts),
                reason,
                leader_epoch: LeaderEpoch(epoch),
                state_epoch,
            },
        );
        let last = (any::<i32>(), any::<i64>()).prop_map(|(epoch, offset)| LastMirrored {
            epoch: LeaderEpoch(epoch),
            offset: Offset(offset),
        });
        (key, prop::option::of(stored), prop::option::of(last), any::<bool>()).prop_map(
            |(key, stored, last, state)| {
                if state {
                    StateRecord::Partition(key, stored)
                } else {
                    StateRecord::LastMirrored(key, last)
                }
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(record in records()) {
            let (key, value) = (record.encode_key().unwrap(), record.encode_value());
            prop_assert_eq!(StateRecord::decode(&key, value.as_deref()), Ok(record));
        }

        /// Anything is a record or an error, and a record that is cut off is no record.
        #[test]
        fn arbitrary_bytes_are_no_danger(
            key in prop::collection::vec(any::<u8>(), 0..80),
            value in prop::collection::vec(any::<u8>(), 0..80),
            record in records(),
            cut in any::<prop::sample::Index>(),
        ) {
            let _ = StateRecord::decode(&key, Some(&value));
            let whole = record.encode_key().unwrap();
            prop_assert!(StateRecord::decode(&whole[..cut.index(whole.len())], None).is_err());
            let _ = StateRecord::decode(&whole, Some(&value));
            if let Some(value) = record.encode_value() {
                let short = StateRecord::decode(&whole, Some(&value[..cut.index(value.len())]));
                prop_assert!(short.is_err());
            }
        }
    }
}
