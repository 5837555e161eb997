//! From batches to an image.

use super::snapshot::SnapshotName;
use super::{MetadataLogError, Place};
use crate::metadata::image::MetadataImage;
use crate::metadata::record::{MetadataRecord, MetadataRecordError};
use crate::protocol::DecodeError;
use crate::records::{BatchMeta, DecodedBatch};

/// Largest batch in memory, decompressed or not.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// Follows records; those of a transaction once it has ended.
#[derive(Debug)]
pub(super) struct Replay {
    image: MetadataImage,
    /// Of the transaction that is open.
    pending: Option<Vec<(Place, MetadataRecord)>>,
    records: u64,
}

impl Replay {
    pub(super) fn new(image: MetadataImage) -> Self {
        Self { image, pending: None, records: 0 }
    }

    pub(super) fn batch(
        &mut self,
        snapshot: Option<SnapshotName>,
        meta: &BatchMeta,
        bytes: &[u8],
    ) -> Result<(), MetadataLogError> {
        if meta.is_control() {
            return Ok(());
        }
        let place = |offset| Place { snapshot, offset };
        let wrong = |source| MetadataLogError::Batch { place: place(meta.base_offset), source };
        let batch = DecodedBatch::decode(meta, bytes, BATCH_BYTES_MAX).map_err(wrong)?;
        for record in batch.records() {
            let record = record.map_err(wrong)?;
            let place = place(record.offset);
            let value = record.value.ok_or(MetadataRecordError::Field {
                name: "record",
                source: DecodeError::Null { field: "value" },
            });
            let decoded = value.and_then(MetadataRecord::decode);
            let record = decoded.map_err(|source| MetadataLogError::Record { place, source })?;
            self.records += 1;
            self.record(place, record)?;
        }
        Ok(())
    }

    fn record(&mut self, place: Place, record: MetadataRecord) -> Result<(), MetadataLogError> {
        use MetadataRecord as R;
        let name = record.name();
        let out_of_place = || MetadataLogError::Transaction { place, name };
        match (record, self.pending.take()) {
            (R::BeginTransaction(_), None) => {
                self.pending = Some(Vec::new());
                Ok(())
            }
            (R::EndTransaction(_), Some(records)) => {
                records.iter().try_for_each(|(place, record)| self.apply(*place, record))
            }
            (R::AbortTransaction(_), Some(_)) => Ok(()),
            (R::BeginTransaction(_), Some(_))
            | (R::EndTransaction(_) | R::AbortTransaction(_), None) => Err(out_of_place()),
            (record, Some(mut records)) => {
                records.push((place, record));
                self.pending = Some(records);
                Ok(())
            }
            (record, None) => self.apply(place, &record),
        }
    }

    fn apply(&mut self, place: Place, record: &MetadataRecord) -> Result<(), MetadataLogError> {
        let applied = self.image.apply(record);
        applied.map_err(|source| MetadataLogError::Image { place, source })
    }

    /// Records that were read.
    pub(super) fn records(&self) -> u64 {
        self.records
    }

    /// Records of a transaction that has not ended; `None`: there is none.
    pub(super) fn pending(&self) -> Option<usize> {
        self.pending.as_ref().map(Vec::len)
    }

    pub(super) fn into_image(self) -> MetadataImage {
        self.image
    }
}
