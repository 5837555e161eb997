//! Edits the files of a broker that was stopped cleanly, for what no broker accepts.
//!
//! The partition must have one replica, or the others truncate the edit away. When the indexes
//! are deleted, the broker rebuilds them at its next start and meets every batch in doing so: an
//! invalid one, and all behind it, is cut. With the indexes kept, a clean start reads the log's
//! end only, and an invalid batch in the middle stays for a fetch to find.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use crate::kafka::error::{KafkaError, Result};
use crate::kafka::files;

/// What becomes of offset index, time index, transaction index and producer snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Indexes {
    /// Deleted: the broker rebuilds them from the edited log.
    Rebuild,
    /// Left as they are.
    Keep,
}

/// Appends `batches` to the last segment of a partition. Their offsets must go on where the log
/// ends; nothing here checks that.
///
/// # Errors
///
/// [`KafkaError::BrokerFile`] when the directory has no segment, [`KafkaError::File`].
pub fn append_to_log(partition_dir: &Path, batches: &[u8], indexes: Indexes) -> Result<()> {
    let segments = files::segments(partition_dir)?;
    let last = segments.last().ok_or_else(|| KafkaError::BrokerFile {
        path: partition_dir.into(),
        what: "a partition without segment",
    })?;
    let failed = || KafkaError::file("append to", last);
    let mut file = File::options().append(true).open(last).map_err(failed())?;
    file.write_all(batches).map_err(failed())?;
    forget(partition_dir, indexes)
}

/// Replaces the last segment of a partition by what `edit` makes of its bytes.
///
/// # Errors
///
/// Those of [`append_to_log`].
pub fn rewrite_log(
    partition_dir: &Path,
    indexes: Indexes,
    edit: impl FnOnce(Vec<u8>) -> Vec<u8>,
) -> Result<()> {
    let segments = files::segments(partition_dir)?;
    let last = segments.last().ok_or_else(|| KafkaError::BrokerFile {
        path: partition_dir.into(),
        what: "a partition without segment",
    })?;
    let bytes = fs::read(last).map_err(KafkaError::file("read", last))?;
    fs::write(last, edit(bytes)).map_err(KafkaError::file("write", last))?;
    forget(partition_dir, indexes)
}

fn forget(partition_dir: &Path, indexes: Indexes) -> Result<()> {
    if indexes == Indexes::Keep {
        return Ok(());
    }
    for file in files::files_with(partition_dir, &["index", "timeindex", "txnindex", "snapshot"])? {
        fs::remove_file(&file).map_err(KafkaError::file("remove", &file))?;
    }
    Ok(())
}
