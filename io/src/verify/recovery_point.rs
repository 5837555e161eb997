//! The copy against its own checkpoint: what was durable once must still be there.
//!
//! Comparing batches cannot tell a log that was cut at the end of a batch from one that is
//! behind its source.

use std::path::Path;

use heliostat_core::log::checkpoint::{OffsetCheckpoint, decode_offsets};
use heliostat_core::log::format_error::FileKind;
use heliostat_core::log::names;
use heliostat_core::types::{Offset, TopicPartition};

use super::report::{Difference, Outcome, PartitionReport};
use super::{VerifyError, VerifyOptions, is_wanted, read_as, undescribed};

const REMEDY: &str = "start the mirror again: it fetches what is missing";

/// Recovery points of the selected partitions.
#[derive(Debug, Default)]
pub(super) struct RecoveryPoints(OffsetCheckpoint);

impl RecoveryPoints {
    /// Of a copy that is being written: before its segments are listed, so that no point
    /// can be above what is found.
    pub(super) fn read(options: &VerifyOptions) -> Result<Self, VerifyError> {
        let mut points = read_as(&options.dir, names::RECOVERY_POINT_CHECKPOINT, |bytes| {
            decode_offsets(FileKind::RecoveryPointCheckpoint, bytes)
        })?;
        points.retain(|partition, _| is_wanted(options, partition));
        Ok(Self(points))
    }

    /// Only what both vouch for: a mirror may have cut a log meanwhile.
    pub(super) fn and(mut self, later: &Self) -> Self {
        self.0.retain(|partition, point| match later.0.get(partition) {
            Some(later) => {
                *point = (*point).min(*later);
                true
            }
            None => false,
        });
        self
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes a difference of a log that ends below its recovery point.
    pub(super) fn hold(&self, report: &mut PartitionReport) {
        let (partition, end) = (&report.partition, report.copy_end);
        let point = self.0.get(partition).copied().unwrap_or(Offset::ZERO);
        if end >= point || matches!(report.outcome, Outcome::Different(_)) {
            return;
        }
        let meaning = format!(
            "{partition} ends at {end}, below its recovery point {point}: records that were on \
             disk are gone; {REMEDY}"
        );
        report.outcome = Outcome::Different(Box::new(Difference {
            offset: Some(end),
            field: "log end".to_owned(),
            copy: end.to_string(),
            source: report.source_end.to_string(),
            place: Some(names::RECOVERY_POINT_CHECKPOINT.to_owned()),
            meaning,
        }));
    }

    /// Reports of partitions that have no directory any more.
    pub(super) fn lost<'a>(&'a self, dir: &'a Path) -> impl Iterator<Item = PartitionReport> + 'a {
        let is_there = |partition: &TopicPartition| dir.join(partition.to_string()).is_dir();
        let lost = self.0.iter().filter(move |(partition, _)| !is_there(partition));
        lost.map(|(partition, point)| {
            let meaning = format!(
                "{partition} has no directory, and its recovery point is {point}: its records are \
                 gone; {REMEDY}"
            );
            let difference = Difference {
                field: "directory".to_owned(),
                copy: "none".to_owned(),
                source: "not asked".to_owned(),
                place: Some(names::RECOVERY_POINT_CHECKPOINT.to_owned()),
                meaning,
                ..Difference::default()
            };
            undescribed(partition, difference, Vec::new())
        })
    }
}
