//! Sends a laid out response: headers from memory, records from files.

use std::os::unix::fs::FileExt;

use futures_lite::AsyncWriteExt;
use glommio::net::TcpStream;
use heliostat_core::serve::{FetchResponseLayout, Piece};

use super::frame::ConnectionError;
use super::net::{Sent, send_file};
use super::reading::RecordsRun;

/// One call of sendfile: other connections have their turn in between.
const SEND_BYTES: u64 = 1 << 20;
/// What is copied when the socket is full: enough to wait with.
const COPY_BYTES: usize = 16 << 10;
const COPY_BYTES_U64: u64 = 16 << 10;

/// Sends `layout`. `runs` are the records of its answers, by index.
pub(super) async fn send_response(
    stream: &mut TcpStream,
    layout: &FetchResponseLayout,
    runs: &[Option<RecordsRun>],
) -> Result<(), ConnectionError> {
    for piece in &layout.pieces {
        match piece {
            Piece::Bytes(range) => {
                stream.write_all(layout.bytes.get(range.clone()).unwrap_or_default()).await?;
            }
            Piece::Records(index) => {
                if let Some(run) = runs.get(*index).and_then(Option::as_ref) {
                    send_run(stream, run).await?;
                }
            }
        }
    }
    Ok(())
}

async fn send_run(stream: &mut TcpStream, run: &RecordsRun) -> Result<(), ConnectionError> {
    let file = &run.file;
    let (mut position, end) = (run.position, run.position.saturating_add(run.len));
    let mut buffer = Vec::new();
    let mut by_copy = false;
    while position < end {
        let left = end.saturating_sub(position);
        // The end goes last, when it is known that all before it was right.
        let by_file = if run.still.is_some() { left.saturating_sub(COPY_BYTES_U64) } else { left };
        let settled = run.settled_to.saturating_sub(position).min(by_file);
        let sent = if by_copy || settled == 0 {
            Sent::Full
        } else {
            send_file(stream, file, position, settled.min(SEND_BYTES))?
        };
        match sent {
            Sent::Bytes(sent) => position = position.saturating_add(sent),
            Sent::Ended => return Err(ConnectionError::Truncated),
            Sent::Full | Sent::Unsupported => {
                by_copy |= sent == Sent::Unsupported;
                // A small write waits until the socket takes bytes again, which is all
                // that glommio has for waiting.
                buffer.resize(COPY_BYTES, 0);
                let wanted = usize::try_from(left).unwrap_or(COPY_BYTES).min(COPY_BYTES);
                let into = buffer.get_mut(..wanted).unwrap_or_default();
                let read = file.read_at(into, position)?;
                if read == 0 || !run.is_still_there() {
                    return Err(ConnectionError::Truncated);
                }
                let sent = stream.write(into.get(..read).unwrap_or_default()).await?;
                position = position.saturating_add(u64::try_from(sent).unwrap_or(u64::MAX));
            }
        }
        glommio::yield_if_needed().await;
    }
    Ok(())
}
