//! Producers that write while a copy runs.

use super::copy::Ends;
use super::error::Result;
use crate::kafka::client::{BackgroundProducer, Transactions};
use crate::kafka::{Compression, Isolation, KafkaClient, OffsetAt, Workload};

/// One producer a codec on `topic`, which writes to all its partitions in turn; the first is not
/// idempotent.
///
/// # Errors
///
/// Those of the driver.
pub(crate) fn each_codec(
    client: &KafkaClient,
    topic: &str,
    records_per_s: u32,
) -> Result<Vec<BackgroundProducer>> {
    let start = |compression: Compression| {
        let workload = Workload {
            value_bytes: 700,
            compressible: 0.5,
            keys: 50,
            headers: 1,
            compression,
            idempotent: compression != Compression::None,
            ..Workload::new(topic, 0)
        };
        let handle = format!("{topic}-{}", compression.name());
        Ok(client.start_producer(&handle, &workload, records_per_s)?)
    };
    Compression::ALL.into_iter().map(start).collect()
}

/// Twenty transactions over all partitions of `topic`, every third aborted, with a codec that
/// changes by `round`.
///
/// # Errors
///
/// Those of the driver.
pub(crate) fn transactions(client: &KafkaClient, topic: &str, round: u64) -> Result<u64> {
    let codec = usize::try_from(round).unwrap_or(0) % Compression::ALL.len();
    let id = format!("{topic}-tx-{}", round % 3);
    let produced = client.produce(&Workload {
        value_bytes: 300,
        compressible: 0.5,
        keys: 40,
        first_index: round * 1000,
        compression: Compression::ALL.get(codec).copied().unwrap_or_default(),
        transactions: Some(Transactions { abort_every: 3, ..Transactions::committed(&id, 30) }),
        ..Workload::new(topic, 600)
    })?;
    Ok(produced.acked)
}

/// Stops them; returns how many records were acknowledged and how many failed.
///
/// # Errors
///
/// Those of the driver.
pub(crate) fn stop(producers: Vec<BackgroundProducer>) -> Result<(u64, u64)> {
    let (mut acked, mut failed) = (0, 0);
    for producer in producers {
        let produced = producer.stop()?;
        acked += produced.acked;
        failed += produced.failed;
    }
    Ok((acked, failed))
}

/// Where the partitions end, once all markers are written. Nobody may produce any more.
///
/// # Errors
///
/// Those of the driver.
pub(crate) fn final_ends(client: &KafkaClient, topic: &str, partitions: i32) -> Result<Ends> {
    let mut ends = Ends::new();
    for partition in 0..partitions {
        let found =
            client.offset(topic, partition, OffsetAt::Latest, Isolation::ReadUncommitted)?;
        client.wait_end(topic, partition, Isolation::ReadCommitted, found.offset)?;
        // Markers may have come meanwhile.
        let found = client.offset(topic, partition, OffsetAt::Latest, Isolation::ReadCommitted)?;
        ends.insert(format!("{topic}-{partition}"), found.offset);
    }
    Ok(ends)
}
