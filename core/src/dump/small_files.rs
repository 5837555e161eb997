//! `.snapshot` and `.txnindex`.

use std::io;

use super::log::with_causes;
use super::{FileBytes, Findings, Named, Out, optional};
use crate::log::{producer_snapshot, txn_index};

/// Prints producer state.
///
/// # Errors
///
/// From the system, reading or writing. What is wrong with the file goes into `findings`.
pub fn dump_snapshot(
    at: Named<'_>,
    file: &dyn FileBytes,
    out: Out<'_>,
    findings: &mut Findings,
) -> io::Result<()> {
    let entries = match producer_snapshot::decode(&file.read_all()?) {
        Ok(entries) => entries,
        Err(error) => {
            findings.damage(format!("{}: {}", at.path, with_causes(&error)));
            return Ok(());
        }
    };
    for entry in entries {
        let open = entry.current_txn_first_offset.0;
        write!(
            out,
            "producerId: {} producerEpoch: {} coordinatorEpoch: {} currentTxnFirstOffset: {} \
             lastTimestamp: {}",
            entry.producer_id,
            entry.producer_epoch,
            entry.coordinator_epoch,
            optional((open >= 0).then_some(open)),
            entry.last_timestamp.0,
        )?;
        if entry.last_offset.0 >= 0 {
            write!(
                out,
                " firstSequence: {} lastSequence: {} lastOffset: {} offsetDelta: {} timestamp: {}",
                sequence_before(entry.last_sequence, entry.offset_delta),
                entry.last_sequence,
                entry.last_offset,
                entry.offset_delta,
                entry.last_timestamp.0,
            )?;
        }
        writeln!(out)?;
    }
    Ok(())
}

/// Kafka's rule: 0 is preceded by 2147483647.
fn sequence_before(sequence: i32, delta: i32) -> i32 {
    let first = i64::from(sequence).saturating_sub(delta.into());
    let wrapped = if first < 0 { first.saturating_add(i64::from(i32::MAX) + 1) } else { first };
    i32::try_from(wrapped).unwrap_or(-1)
}

/// Prints aborted transactions.
///
/// # Errors
///
/// From the system, reading or writing. What is wrong with the file goes into `findings`.
pub fn dump_txn_index(
    at: Named<'_>,
    file: &dyn FileBytes,
    out: Out<'_>,
    findings: &mut Findings,
) -> io::Result<()> {
    let entries = match txn_index::decode(at.base_offset, &file.read_all()?) {
        Ok(entries) => entries,
        Err(error) => {
            findings.damage(format!("{}: {}", at.path, with_causes(&error)));
            return Ok(());
        }
    };
    for entry in entries {
        // Files of another version are refused above.
        writeln!(
            out,
            "version: 0 producerId: {} firstOffset: {} lastOffset: {} lastStableOffset: {}",
            entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset,
        )?;
    }
    Ok(())
}
