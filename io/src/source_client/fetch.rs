//! Records of single partitions, a whole response in memory at a time: for verification.
//! The mirror itself fetches on the shards and collects nothing.

use std::collections::HashMap;
use std::ops::Range;

use heliostat_core::protocol::fetch_stream::{FetchEvent, FetchLimits, FetchStream};
use heliostat_core::protocol::{Api, DecodeError, ErrorCode, FetchPartition, FetchPlan};
use heliostat_core::types::Offset;

use super::client::ClientConfig;
use super::connection::{Connection, ConnectionOptions};
use super::error::{Cause, SourceError};
use super::host_port::HostPort;

/// Longest wait of a broker for records, in milliseconds.
const WAIT_MS: u32 = 500;

/// Fetches without sessions, over one connection a broker.
#[derive(Debug)]
pub struct FetchClient {
    options: ConnectionOptions,
    connections: HashMap<HostPort, Connection>,
}

/// Answer for one partition.
#[derive(Debug)]
pub struct Fetched {
    /// Error of the response, or of the partition.
    pub error: ErrorCode,
    /// Exclusive; −1 with an error.
    pub high_watermark: Offset,
    /// Inclusive; −1 where the broker does not say.
    pub log_start_offset: Offset,
    frame: Vec<u8>,
    records: Range<usize>,
}

impl Fetched {
    /// Batches, of which the last may be cut off.
    pub fn records(&self) -> &[u8] {
        self.frame.get(self.records.clone()).unwrap_or_default()
    }
}

impl FetchClient {
    /// A client that has not connected yet.
    pub fn new(config: &ClientConfig) -> Self {
        let options = ConnectionOptions {
            client_id: config.client_id.clone(),
            socket: config.socket.clone(),
            request_timeout: config.request_timeout,
            response_bytes_max: config.response_bytes_max,
        };
        Self { options, connections: HashMap::new() }
    }

    /// Asks `peer` for records of one partition. A connection that had been idle and was
    /// closed meanwhile is opened again once.
    ///
    /// # Errors
    ///
    /// [`SourceError`] of the broker. Errors of the partition are in the answer.
    pub async fn fetch(
        &mut self,
        peer: &HostPort,
        partition: &FetchPartition,
    ) -> Result<Fetched, SourceError> {
        let bytes_max = partition.position.partition_max_bytes;
        let plan = FetchPlan {
            max_wait_ms: WAIT_MS,
            min_bytes: 1,
            max_bytes: bytes_max,
            session_id: 0,
            session_epoch: -1,
            partitions: std::slice::from_ref(partition),
            forgotten: &[],
            rack: "",
        };
        let has_id = partition.topic.id.known().is_some();
        let mut asked = None;
        if let Some(mut idle) = self.connections.remove(peer)
            && let Ok(answer) = idle.fetch(&plan, has_id).await
        {
            asked = Some((idle, answer));
        }
        let (connection, (version, frame)) = match asked {
            Some(asked) => asked,
            None => {
                let mut fresh = Connection::open(peer, &self.options).await?;
                let answer = fresh.fetch(&plan, has_id).await?;
                (fresh, answer)
            }
        };
        let fetched = decode(version, frame).map_err(|error| {
            let cause = Cause::Decode { api: Api::Fetch, error };
            SourceError::Broker { peer: peer.clone(), cause }
        })?;
        self.connections.insert(peer.clone(), connection);
        Ok(fetched)
    }
}

/// Reads a response about one partition.
fn decode(version: i16, frame: Vec<u8>) -> Result<Fetched, DecodeError> {
    let mut stream = FetchStream::new(version, FetchLimits::default());
    let size = u32::try_from(frame.len()).unwrap_or(u32::MAX);
    stream.feed(&size.to_be_bytes())?;
    let mut found = Fetched {
        error: ErrorCode::NONE,
        high_watermark: Offset::NONE,
        log_start_offset: Offset::NONE,
        frame: Vec::new(),
        records: 0..0,
    };
    let mut at = 0_usize;
    loop {
        let rest = frame.get(at..).unwrap_or_default();
        let (taken, event) = stream.feed(rest)?;
        at = at.saturating_add(taken);
        match event {
            Some(FetchEvent::Header(header)) => found.error = header.error,
            Some(FetchEvent::Partition(header)) => {
                found.error = header.error;
                found.high_watermark = header.high_watermark;
                found.log_start_offset = header.log_start_offset;
                let len = stream.remaining_records();
                let end = at.saturating_add(usize::try_from(len).unwrap_or(usize::MAX));
                // The decoder holds every length against the frame, so the bytes are there.
                found.records = at..end.min(frame.len());
                stream.records_taken(len);
                at = end;
            }
            Some(FetchEvent::End { .. }) => break,
            // A whole frame was given, so an answer that ends early is a false one.
            None if taken == 0 => {
                let left = stream.frame_remaining();
                return Err(DecodeError::FrameNotConsumed { left });
            }
            Some(FetchEvent::PartitionEnd(_)) | None => {}
        }
    }
    Ok(Fetched { frame, ..found })
}
