//! Keys and values of records, as the decoder that was asked for understands them.

use std::borrow::Cow;

use super::RecordDecoder;
use super::log::with_causes;
use crate::coordinator::StateRecord;
use crate::coordinator::record::RecordError;
use crate::metadata::record::MetadataRecord;
use crate::records::RecordView;

/// What is printed of a record, and what is wrong with it.
#[derive(Debug, Default)]
pub(super) struct Decoded<'a> {
    pub(super) key: Option<Cow<'a, str>>,
    pub(super) payload: Option<Cow<'a, str>>,
    pub(super) damage: Option<String>,
}

pub(super) fn decode<'a>(decoder: RecordDecoder, record: &RecordView<'a>) -> Decoded<'a> {
    match decoder {
        RecordDecoder::Text => Decoded {
            key: record.key.map(String::from_utf8_lossy),
            payload: record.value.map(String::from_utf8_lossy),
            damage: None,
        },
        RecordDecoder::MirrorState => mirror_state(record),
        RecordDecoder::ClusterMetadata => cluster_metadata(record),
    }
}

/// In the words of Kafka's decoders of coordinators' logs.
fn mirror_state<'a>(record: &RecordView<'_>) -> Decoded<'a> {
    let offset = record.offset;
    let Some(key) = record.key else {
        let damage = format!("offset {offset}: a record of __mirror_state without a key");
        return Decoded { damage: Some(damage), ..Decoded::default() };
    };
    match StateRecord::decode(key, record.value) {
        Ok(decoded) => Decoded {
            key: Some(decoded.key_json().into()),
            payload: Some(decoded.value_json().map_or(Cow::Borrowed("null"), Cow::Owned)),
            damage: None,
        },
        // Passed over by everybody who reads the log, so no damage.
        Err(RecordError::KeyType(kind)) => Decoded {
            key: Some(format!("Unknown record type {kind} at offset {offset}, skipping.").into()),
            ..Decoded::default()
        },
        Err(error @ RecordError::ValueVersion(_)) => Decoded {
            key: Some(format!("Error at offset {offset}, skipping. {error}").into()),
            ..Decoded::default()
        },
        Err(error) => Decoded {
            key: Some(format!("Error at offset {offset}, skipping. {error}").into()),
            damage: Some(format!("offset {offset}: {}", with_causes(&error))),
            payload: None,
        },
    }
}

/// As Kafka prints them: the records have no keys.
fn cluster_metadata<'a>(record: &RecordView<'_>) -> Decoded<'a> {
    match MetadataRecord::decode(record.value.unwrap_or_default()) {
        Ok(decoded) => Decoded { payload: Some(decoded.to_json().into()), ..Decoded::default() },
        Err(error) => Decoded {
            payload: Some(format!("Error at {}, skipping. {error}", record.offset).into()),
            damage: Some(format!("offset {}: {}", record.offset, with_causes(&error))),
            key: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;
    use crate::coordinator::partition::Stored;
    use crate::coordinator::retry::Attempts;
    use crate::coordinator::{LastMirrored, MirrorKey, MirrorState};
    use crate::dump::{DumpOptions, Findings, Named, dump_log};
    use crate::metadata::record::{ConfigRecord, PartitionRecord, TopicRecord};
    use crate::records::{BatchBuilder, NewRecord};
    use crate::types::{LeaderEpoch, Offset, TimestampMs, TopicId};

    type Raw = (Option<Vec<u8>>, Option<Vec<u8>>);

    /// The lines of a log of these records, and what was complained about.
    fn dumped(decoder: RecordDecoder, records: &[Raw]) -> (Vec<String>, Vec<String>) {
        let mut batch = BatchBuilder::new(Offset(3)).leader_epoch(LeaderEpoch(1));
        for (key, value) in records {
            let (key, value) = (key.as_deref(), value.as_deref());
            let timestamp = TimestampMs(5);
            batch.push(&NewRecord { timestamp, key, value, headers: &[] }).unwrap();
        }
        let options = DumpOptions {
            deep_iteration: true,
            print_data: true,
            decoder,
            skip_record_metadata: true,
            ..DumpOptions::default()
        };
        let (mut out, mut findings, mut complaints) = (Vec::new(), Findings::default(), Vec::new());
        let at = Named::new("/x/__mirror_state-0/00000000000000000003.log").unwrap();
        let log = batch.build().unwrap();
        dump_log(at, &log.as_slice(), &options, &mut out, &mut findings).unwrap();
        findings.print(&mut complaints).unwrap();
        let lines = |bytes| {
            String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let mut out = lines(out);
        out.retain(|line| line.starts_with('|'));
        (out, lines(complaints))
    }

    fn raw(record: &StateRecord) -> Raw {
        (Some(record.encode_key().unwrap()), record.encode_value())
    }

    #[test]
    fn mirror_states_have_the_kips_shape() {
        let topic = TopicId(Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));
        let key = MirrorKey { mirror: "we\"st".into(), topic, partition: 7 };
        let failed = Stored {
            state: MirrorState::Failed,
            previous: MirrorState::Mirroring,
            attempts: Attempts::new(3),
            reason: Some(Arc::from("no\nroute")),
            leader_epoch: LeaderEpoch(9),
            state_epoch: 300,
        };
        let last = LastMirrored { epoch: LeaderEpoch(5), offset: Offset(258) };
        let records = [
            StateRecord::Partition(key.clone(), Some(failed)),
            StateRecord::LastMirrored(key.clone(), Some(last)),
            StateRecord::Partition(key.clone(), Some(Stored::default())),
            StateRecord::Partition(key, None),
        ];
        let (lines, complaints) =
            dumped(RecordDecoder::MirrorState, &records.iter().map(raw).collect::<Vec<_>>());
        assert!(complaints.is_empty(), "{complaints:?}");
        let id = "ASNFZ4mrze8BI0VniavN7w";
        let key = |kind: &str| {
            String::from(r#"| key: {"type":""#)
                + kind
                + r#"","data":{"mirrorName":"we\"st","topicId":""#
                + id
                + r#"","partition":7}} payload: "#
        };
        let want = [
            key("2")
                + r#"{"version":"0","data":{"state":7,"previousState":2,"retryAttempt":3,"#
                + r#""errorMessage":"no\nroute","leaderEpoch":9,"stateEpoch":300}}"#,
            key("1") + r#"{"version":"0","data":{"lastMirrorEpoch":5,"lastMirrorOffset":258}}"#,
            key("2")
                + r#"{"version":"0","data":{"state":16,"previousState":16,"retryAttempt":0,"#
                + r#""errorMessage":null,"leaderEpoch":-1,"stateEpoch":0}}"#,
            key("2") + "null",
        ];
        assert_eq!(lines, want);
    }

    #[test]
    fn what_is_no_mirror_state_is_passed_over_and_named() {
        let key = raw(&StateRecord::Partition(
            MirrorKey { mirror: "m".into(), topic: TopicId::NONE, partition: 0 },
            None,
        ));
        let records = [
            (Some(b"\0\x09x".to_vec()), Some(b"y".to_vec())),
            (key.0.clone(), Some(b"\0\x04".to_vec())),
            (key.0.clone(), Some(b"\0\0\x0b\x10\0\0\0\0".to_vec())),
            (None, Some(b"y".to_vec())),
        ];
        let (lines, complaints) = dumped(RecordDecoder::MirrorState, &records);
        let skipped = |offset, what| {
            format!("| key: Error at offset {offset}, skipping. __mirror_state: {what}")
        };
        assert_eq!(
            lines,
            [
                "| key: Unknown record type 9 at offset 3, skipping.".to_owned(),
                skipped(4, "a value of version 4; 0 is known"),
                skipped(5, "state 11 is unknown"),
            ]
        );
        let path = "/x/__mirror_state-0/00000000000000000003.log";
        assert_eq!(
            complaints,
            [
                format!("{path}, offset 5: __mirror_state: state 11 is unknown"),
                format!("{path}, offset 6: a record of __mirror_state without a key"),
            ]
        );
    }

    #[test]
    fn metadata_records_are_as_kafka_prints_them() {
        let topic_id = TopicId(Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef));
        let config = |name: &str, value: &str| ConfigRecord {
            resource_type: 64,
            resource_name: "west".into(),
            name: name.into(),
            value: Some(value.into()),
        };
        let partition = PartitionRecord {
            partition_id: 0,
            topic_id,
            replicas: vec![1],
            isr: vec![1],
            leader: 1,
            leader_epoch: 4,
            partition_epoch: 2,
            directories: vec![Uuid::nil()],
            ..PartitionRecord::default()
        };
        let records: [MetadataRecord; 4] = [
            TopicRecord { name: "foo".into(), topic_id }.into(),
            partition.into(),
            config("bootstrap.servers", "a:1").into(),
            config("sasl.jaas.config", "password=x").into(),
        ];
        let mut raw: Vec<_> = records.iter().map(|it| (None, Some(it.encode()))).collect();
        raw.push((None, Some(b"\x01\x63\0".to_vec())));
        let (lines, complaints) = dumped(RecordDecoder::ClusterMetadata, &raw);
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        let id = "ASNFZ4mrze8BI0VniavN7w";
        let config = |name: &str, value: &str| {
            String::from(r#"| payload: {"type":"CONFIG_RECORD","version":0,"data":{"#)
                + r#""resourceType":64,"resourceName":"west","#
                + &format!(r#""name":"{name}","value":"{value}"}}}}"#)
        };
        let want = [
            String::from(r#"| payload: {"type":"TOPIC_RECORD","version":0,"data":{"#)
                + &format!(r#""name":"foo","topicId":"{id}"}}}}"#),
            String::from(r#"| payload: {"type":"PARTITION_RECORD","version":1,"data":{"#)
                + &format!(r#""partitionId":0,"topicId":"{id}","replicas":[1],"isr":[1],"#)
                + r#""removingReplicas":[],"addingReplicas":[],"leader":1,"leaderEpoch":4,"#
                + r#""partitionEpoch":2,"directories":["AAAAAAAAAAAAAAAAAAAAAA"]}}"#,
            config("bootstrap.servers", "a:1"),
            config("sasl.jaas.config", "[hidden]"),
        ];
        assert_eq!(lines[..4], want);
        assert!(lines[4].starts_with("| payload: Error at 7, skipping. "), "{}", lines[4]);
    }
}
