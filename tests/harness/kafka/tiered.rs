//! Tiered storage of a broker: Kafka's own store for its tests, which keeps segments in files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::error::{KafkaError, Result};
use super::files;
use super::properties::Properties;

/// A store in a directory of its own, for brokers of [`Artifacts::tiered`](super::Artifacts::tiered).
#[derive(Clone, Debug)]
pub struct TieredStore {
    dir: PathBuf,
}

impl TieredStore {
    /// A store in `dir`, which need not be there.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_path_buf() }
    }

    /// What makes a broker use it, and move segments within a second.
    pub fn properties(&self) -> Properties {
        let mut p = Properties::default();
        p.set("remote.log.storage.system.enable", true)
            .set(
                "remote.log.storage.manager.class.name",
                "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
            )
            .set("remote.log.metadata.manager.listener.name", "PLAINTEXT")
            .set("rsm.config.dir", self.dir.display())
            .set("rsm.config.delete.on.close", false)
            .set("rlmm.config.remote.log.metadata.topic.replication.factor", 1)
            .set("rlmm.config.remote.log.metadata.topic.num.partitions", 1)
            .set("remote.log.manager.task.interval.ms", 500);
        p
    }

    /// Takes the store away: reads and writes fail. A file in its place keeps the broker from
    /// making another.
    ///
    /// # Errors
    ///
    /// [`KafkaError::File`].
    pub fn take_away(&self) -> Result<()> {
        fs::rename(&self.dir, self.away()).map_err(KafkaError::file("move", &self.dir))?;
        fs::write(&self.dir, "away").map_err(KafkaError::file("write", &self.dir))
    }

    /// Brings it back.
    ///
    /// # Errors
    ///
    /// [`KafkaError::File`].
    pub fn bring_back(&self) -> Result<()> {
        fs::remove_file(&self.dir).map_err(KafkaError::file("remove", &self.dir))?;
        fs::rename(self.away(), &self.dir).map_err(KafkaError::file("move", &self.dir))
    }

    fn away(&self) -> PathBuf {
        self.dir.with_extension("away")
    }

    /// Segments of a partition in the store, by first offset.
    ///
    /// # Errors
    ///
    /// [`KafkaError::File`] when it cannot be read.
    pub fn segments(&self, topic: &str, partition: i32) -> Result<BTreeMap<i64, Vec<u8>>> {
        let mut found = BTreeMap::new();
        self.collect(&self.dir, &format!("{topic}-{partition}-"), &mut found)?;
        Ok(found)
    }

    /// The partition's directory lies in one that is named after the store.
    fn collect(&self, dir: &Path, prefix: &str, found: &mut BTreeMap<i64, Vec<u8>>) -> Result<()> {
        for entry in fs::read_dir(dir).map_err(KafkaError::file("read", dir))? {
            let path = entry.map_err(KafkaError::file("read", dir))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(prefix) {
                found.extend(by_offset(&files::segments(&path)?)?);
            } else if path.is_dir() && dir == self.dir {
                self.collect(&path, prefix, found)?;
            }
        }
        Ok(())
    }

    /// All bytes of a partition of which the store has the head and a broker the tail, perhaps
    /// some segments both.
    ///
    /// # Errors
    ///
    /// [`KafkaError::File`].
    pub fn whole_log(&self, broker: &Path, topic: &str, partition: i32) -> Result<Vec<u8>> {
        let mut all = self.segments(topic, partition)?;
        all.extend(by_offset(&files::segments(broker)?)?);
        Ok(all.into_values().flatten().collect())
    }
}

/// Contents of segments by their first offset; none of empty ones.
fn by_offset(paths: &[PathBuf]) -> Result<BTreeMap<i64, Vec<u8>>> {
    let mut found = BTreeMap::new();
    for path in paths {
        let bytes = fs::read(path).map_err(KafkaError::file("read", path))?;
        if let Some(base) = bytes.first_chunk() {
            found.insert(i64::from_be_bytes(*base), bytes);
        }
    }
    Ok(found)
}
