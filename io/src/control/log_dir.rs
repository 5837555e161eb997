//! The log dir of a copy: whose it is, its checkpoints, its record of gaps, opening logs.
//!
//! Order of durability: a gap is recorded before the log is reset; a log is open, and its
//! recovery point written, before it is appended to; the clean stop's marker is removed
//! before the first log is opened and written after the last checkpoint.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use heliostat_core::log::checkpoint::{self, OffsetCheckpoint};
use heliostat_core::log::config::LogConfig;
use heliostat_core::log::disk::LogPath;
use heliostat_core::log::gaps::{self, GapFile, GapRecord};
use heliostat_core::log::meta_properties::MetaProperties;
use heliostat_core::log::names::{self, SegmentFileKind, SegmentFileName};
use heliostat_core::log::partition::RecoveredLog;
use heliostat_core::log::recovery::{self, LogOpenError, OpenOptions};
use heliostat_core::log::store::{ColdStore, StoreError};
use heliostat_core::log::{FileKind, FormatError};
use heliostat_core::mirror::own_ids::{self, OwnIds};
use heliostat_core::types::{BrokerId, Offset, TopicId, TopicPartition};
use uuid::Uuid;

use super::by_name::ByName;
use super::openers::Openers;
use crate::disk::{DiskSpace, FileStore, LockError, LogDirLock, disk_space};
use crate::served::{ServedLog, ServedLogs};

/// Our key in `meta.properties`: the cluster that was copied.
const SOURCE_CLUSTER_KEY: &str = "mirror.source.cluster.id";
/// Our key in the `meta.properties` of a mirroring host: which says that it is one.
const HOST_KEY: &str = "mirror.host";
/// Logs of a host that are no copies.
const OWN_TOPICS: [&str; 2] = ["__cluster_metadata", "__mirror_state"];
/// Value of it while the source has not said.
const SOURCE_UNKNOWN: &str = "unknown";
/// Node ID of a copy that is nobody's yet.
const NODE: BrokerId = BrokerId(1);
/// Contents of the clean stop's marker as newer brokers write it; older ones look only
/// whether it is there.
const CLEAN_MARKER: &str = r#"{"version":0,"brokerEpoch":-1}"#;
/// Files at the top of the log dir are small; what is larger is not ours.
const TOP_FILE_BYTES_MAX: u64 = 256 << 20;

/// Why a log dir cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogDirError {
    /// The directory cannot be made.
    #[error("log dir {dir} cannot be made: {source}; name a directory that this user may write")]
    Create {
        /// The log dir.
        dir: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Somebody uses it, or it cannot be written.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// It holds something else.
    #[error(
        "log dir {dir} is another program's, a Kafka broker's perhaps, or was made by another \
         command of heliostat; name another directory, or an empty one"
    )]
    NotACopy {
        /// The log dir.
        dir: PathBuf,
    },
    /// It belongs to another cluster or node.
    #[error(
        "log dir {dir} is of {key} {found}, the properties say {wanted}; name another directory, \
         or the right {key}"
    )]
    OtherOwner {
        /// The log dir.
        dir: PathBuf,
        /// `cluster.id` or `node.id`.
        key: &'static str,
        /// Whose it is.
        found: String,
        /// Who wants it.
        wanted: String,
    },
    /// It holds the copy of another cluster.
    #[error(
        "log dir {dir} holds a copy of cluster {found}, the source is cluster {source_cluster}; \
         name another directory, or the right bootstrap servers"
    )]
    OtherSource {
        /// The log dir.
        dir: PathBuf,
        /// Whose copy it holds.
        found: String,
        /// The source at hand.
        source_cluster: String,
    },
    /// A file at its top is damaged.
    #[error("log dir {dir}: {source}; restore the file, or remove it if you know why it is so")]
    Format {
        /// The log dir.
        dir: PathBuf,
        /// What is wrong.
        source: FormatError,
    },
    /// The system refused.
    #[error("log dir {dir}: {source}")]
    Store {
        /// The log dir.
        dir: PathBuf,
        /// What it refused.
        source: StoreError,
    },
}

/// A checkpoint's name, its kind, and what stands in it.
type Checkpoint = (&'static str, FileKind, fn(&mut Known) -> &mut Offset);

/// The checkpoints in the order in which they are written, and what stands in them.
const CHECKPOINTS: [Checkpoint; 3] = [
    (names::LOG_START_CHECKPOINT, FileKind::LogStartCheckpoint, |known| &mut known.log_start),
    (names::REPLICATION_CHECKPOINT, FileKind::ReplicationCheckpoint, |known| {
        &mut known.high_watermark
    }),
    (names::RECOVERY_POINT_CHECKPOINT, FileKind::RecoveryPointCheckpoint, |known| {
        &mut known.recovery_point
    }),
];

/// Offsets of one partition for the three checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) log_start: Offset,
    /// Durable below.
    pub(crate) recovery_point: Offset,
    pub(crate) high_watermark: Offset,
}

/// The same as the files have them; [`Offset::NONE`] where one has no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    log_start: Offset,
    recovery_point: Offset,
    high_watermark: Offset,
}

impl Known {
    const NOTHING: Self = Self {
        log_start: Offset::NONE,
        recovery_point: Offset::NONE,
        high_watermark: Offset::NONE,
    };

    fn known(offset: Offset) -> Option<Offset> {
        Some(offset).filter(|offset| offset.0 >= 0)
    }
}

/// One log dir for several jobs of the control thread.
pub type SharedLogDir = Rc<RefCell<LogDir>>;

/// A log dir that this process holds.
#[derive(Debug)]
pub struct LogDir {
    root: PathBuf,
    store: FileStore,
    meta: Option<MetaProperties>,
    clean: bool,
    /// The marker was there, and no log was opened since: what it says still holds.
    vouched: bool,
    /// The three checkpoints.
    offsets: ByName<Known>,
    dirty: bool,
    /// A log must not be appended to before the checkpoints are written.
    owes_checkpoints: bool,
    gaps: Vec<GapRecord>,
    /// The newest of each partition.
    last_gap: ByName<usize>,
    has_gap_file: bool,
    own_ids: OwnIds,
    /// Directories that the last process may not have closed, and that were not opened yet.
    unvouched: BTreeSet<String>,
    warnings: Vec<String>,
    /// Those who read the logs, if anybody may.
    served: Option<Arc<ServedLogs>>,
    lock: Arc<LogDirLock>,
}

impl LogDir {
    /// Makes the directory if needed, locks it, and reads what is at its top. The clean
    /// stop's marker is gone afterwards; it comes back if this is dropped before any log was
    /// opened, so that a start that fails costs no recovery.
    ///
    /// # Errors
    /// [`LogDirError`] with the remedy.
    pub fn open(root: &Path) -> Result<Self, LogDirError> {
        Self::open_as(root, SOURCE_CLUSTER_KEY)
    }

    /// The same for a mirroring host, node `node` of `cluster`; a new directory without a
    /// cluster gets one made up.
    ///
    /// # Errors
    /// [`LogDirError`] with the remedy.
    pub fn open_host(
        root: &Path,
        node: BrokerId,
        cluster: Option<&str>,
    ) -> Result<Self, LogDirError> {
        let mut it = Self::open_as(root, HOST_KEY)?;
        let Some(meta) = &it.meta else {
            let cluster =
                cluster.map_or_else(|| TopicId(Uuid::new_v4()).to_string(), str::to_owned);
            let mut meta = MetaProperties::new(cluster, node, Uuid::new_v4());
            meta.other.insert(HOST_KEY.to_owned(), "true".to_owned());
            let path = top(names::META_PROPERTIES);
            let written = it.store.replace(&path, meta.encode().as_bytes());
            written.map_err(|error| it.refused(error))?;
            it.meta = Some(meta);
            return Ok(it);
        };
        let found_node = meta.node_id.unwrap_or(NODE);
        let found_cluster = meta.cluster_id.as_deref().unwrap_or_default();
        let other = |key, found: String, wanted: String| LogDirError::OtherOwner {
            dir: root.to_path_buf(),
            key,
            found,
            wanted,
        };
        match cluster {
            _ if found_node != node => {
                Err(other("node.id", found_node.to_string(), node.to_string()))
            }
            Some(wanted) if wanted != found_cluster => {
                Err(other("cluster.id", found_cluster.to_owned(), wanted.to_owned()))
            }
            _ => Ok(it),
        }
    }

    /// What becomes of its logs is shown to readers from now on.
    pub(crate) fn serve(&mut self, logs: Arc<ServedLogs>) {
        self.served = Some(logs);
    }

    /// A log as its readers see it, if it may be read.
    pub(crate) fn served(&self, at: &TopicPartition) -> Option<Arc<ServedLog>> {
        self.served.as_ref()?.log_at(at)
    }

    fn open_as(root: &Path, owner_key: &str) -> Result<Self, LogDirError> {
        let dir = || root.to_path_buf();
        std::fs::create_dir_all(root)
            .map_err(|source| LogDirError::Create { dir: dir(), source })?;
        let lock = Arc::new(LogDirLock::acquire(root)?);
        let mut it = Self {
            root: dir(),
            store: FileStore::new(root),
            meta: None,
            clean: false,
            vouched: false,
            offsets: ByName::default(),
            dirty: false,
            owes_checkpoints: false,
            gaps: Vec::new(),
            last_gap: ByName::default(),
            has_gap_file: false,
            own_ids: OwnIds::new(),
            unvouched: BTreeSet::new(),
            warnings: Vec::new(),
            served: None,
            lock,
        };
        it.load(owner_key)?;
        Ok(it)
    }

    fn load(&mut self, owner_key: &str) -> Result<(), LogDirError> {
        let entries = self.store.list("").map_err(|error| self.refused(error))?;
        let partitions: BTreeSet<String> = entries
            .iter()
            .filter(|entry| entry.is_dir)
            .filter(|entry| {
                TopicPartition::from_dir_name(&entry.name)
                    .is_some_and(|partition| !OWN_TOPICS.contains(&&*partition.topic))
            })
            .map(|entry| entry.name.clone())
            .collect();
        if let Some(bytes) = self.read(names::META_PROPERTIES)? {
            let meta = MetaProperties::decode(&bytes).map_err(|error| self.broken(error))?;
            self.meta = Some(meta);
        }
        let is_ours = self.meta.as_ref().is_some_and(|meta| meta.other.contains_key(owner_key));
        if !is_ours && (self.meta.is_some() || !partitions.is_empty()) {
            return Err(LogDirError::NotACopy { dir: self.root.clone() });
        }
        self.clean = self.read(names::CLEAN_SHUTDOWN)?.is_some();
        let marker = top(names::CLEAN_SHUTDOWN);
        self.store.remove(&marker).map_err(|error| self.refused(error))?;
        self.vouched = self.clean;
        if !self.clean {
            self.unvouched = partitions;
        }
        for (name, kind, field) in CHECKPOINTS {
            for (at, offset) in self.read_offsets(name, kind)? {
                *field(self.offsets.entry(&at, || Known::NOTHING)) = offset;
            }
        }
        if let Some(bytes) = self.read(names::MIRROR_TOPICS)? {
            self.own_ids = own_ids::decode(&bytes).map_err(|error| self.broken(error))?;
        }
        self.load_gaps()
    }

    fn load_gaps(&mut self) -> Result<(), LogDirError> {
        let Some(bytes) = self.read(names::MIRROR_GAPS)? else { return Ok(()) };
        let file = GapFile::decode(&bytes).map_err(|error| self.broken(error))?;
        self.gaps = file.records;
        self.has_gap_file = !bytes.is_empty();
        for (place, gap) in self.gaps.iter().enumerate() {
            *self.last_gap.entry(&gap.partition, || 0) = place;
        }
        if file.torn_bytes > 0 {
            let path = top(names::MIRROR_GAPS);
            let cut = self.store.set_len(&path, file.valid_bytes);
            cut.map_err(|error| self.refused(error))?;
        }
        Ok(())
    }

    /// A checkpoint that cannot be read costs a longer recovery and no data.
    fn read_offsets(
        &mut self,
        name: &'static str,
        kind: FileKind,
    ) -> Result<OffsetCheckpoint, LogDirError> {
        let bytes = self.read(name)?.unwrap_or_default();
        Ok(checkpoint::decode_offsets(kind, &bytes).unwrap_or_else(|error| {
            self.warnings.push(format!("{error}; the file is made anew"));
            OffsetCheckpoint::new()
        }))
    }

    fn read(&self, name: &'static str) -> Result<Option<Vec<u8>>, LogDirError> {
        self.store.read(&top(name), TOP_FILE_BYTES_MAX).map_err(|error| self.refused(error))
    }

    fn refused(&self, source: StoreError) -> LogDirError {
        LogDirError::Store { dir: self.root.clone(), source }
    }

    fn broken(&self, source: FormatError) -> LogDirError {
        LogDirError::Format { dir: self.root.clone(), source }
    }

    /// Holds the log dir against the cluster at hand, and makes it that cluster's copy if
    /// it is new. `None`: the source did not say.
    ///
    /// # Errors
    /// [`LogDirError::OtherSource`] if it holds another cluster's copy.
    pub fn bind(&mut self, source_cluster: Option<&str>) -> Result<(), LogDirError> {
        let found = self.source_cluster().map(str::to_owned);
        match (found, source_cluster) {
            (Some(found), Some(source)) if found != source => {
                let (dir, source_cluster) = (self.root.clone(), source.to_owned());
                return Err(LogDirError::OtherSource { dir, found, source_cluster });
            }
            (Some(_), _) => return Ok(()),
            (None, _) => {}
        }
        let mut meta = self.meta.take().unwrap_or_else(|| {
            MetaProperties::new(TopicId(Uuid::new_v4()).to_string(), NODE, Uuid::new_v4())
        });
        let value = source_cluster.unwrap_or(SOURCE_UNKNOWN).to_owned();
        meta.other.insert(SOURCE_CLUSTER_KEY.to_owned(), value);
        let written = self.store.replace(&top(names::META_PROPERTIES), meta.encode().as_bytes());
        self.meta = Some(meta);
        written.map_err(|error| self.refused(error))
    }

    /// The cluster that it belongs to.
    pub fn cluster_id(&self) -> Option<&str> {
        self.meta.as_ref()?.cluster_id.as_deref()
    }

    /// The cluster whose copy it holds; `None` if it is new, or the source never said.
    pub fn source_cluster(&self) -> Option<&str> {
        let value = self.meta.as_ref()?.other.get(SOURCE_CLUSTER_KEY)?;
        (value != SOURCE_UNKNOWN).then_some(value.as_str())
    }

    /// Whether it already holds a copy.
    pub fn has_copy(&self) -> bool {
        self.meta.is_some()
    }

    /// Whether the last process stopped cleanly.
    pub fn was_clean(&self) -> bool {
        self.clean
    }

    /// Whether there are logs that the last process may not have closed.
    pub(super) fn needs_recovery(&self) -> bool {
        !self.unvouched.is_empty()
    }

    /// What was odd about it and did not matter; taken once.
    pub(super) fn take_warnings(&mut self) -> Vec<String> {
        std::mem::take(&mut self.warnings)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// Everything that was recorded as lost or cut, oldest first.
    pub fn gaps(&self) -> &[GapRecord] {
        &self.gaps
    }

    /// Whether there is a log of this partition. A directory alone is none: its making was
    /// interrupted, and where it was to begin is not known.
    pub(crate) fn has_log(&self, partition: &TopicPartition) -> bool {
        let dir = partition.to_string();
        let is_dir = self.root.join(&dir).is_dir();
        if !is_dir || self.known(partition).log_start.0 >= 0 {
            return is_dir;
        }
        let is_segment = |name: &str| {
            SegmentFileName::parse(name).is_some_and(|name| name.kind == SegmentFileKind::Log)
        };
        // What cannot be listed is not begun anew.
        self.store.list(&dir).map_or(true, |all| all.iter().any(|entry| is_segment(&entry.name)))
    }

    /// Room of its file system.
    ///
    /// # Errors
    /// From the system.
    pub fn space(&self) -> io::Result<DiskSpace> {
        disk_space(&self.root)
    }

    /// The ID that the copy's files carry for a topic of the source. A source without IDs
    /// gets one made up; a topic that has got an ID since takes it over.
    ///
    /// # Errors
    /// [`StoreError`] from the system; it may be called again.
    pub(super) fn adopt_id(
        &mut self,
        topic: &Arc<str>,
        source_id: TopicId,
    ) -> Result<TopicId, StoreError> {
        let own = self.own_ids.get(topic).copied();
        match (source_id.known(), own) {
            (Some(id), None) => Ok(id),
            (None, Some(own)) => Ok(own),
            (None, None) => {
                let own = TopicId(Uuid::new_v4());
                self.own_ids.insert(Arc::clone(topic), own);
                self.write_own_ids().map(|()| own)
            }
            (Some(id), Some(_)) => {
                let contents = checkpoint::encode_partition_metadata(id);
                for entry in self.store.list("")? {
                    let partition = TopicPartition::from_dir_name(&entry.name);
                    if entry.is_dir && partition.is_some_and(|p| p.topic == *topic) {
                        let dir = Arc::from(entry.name);
                        let path = LogPath { dir, name: names::PARTITION_METADATA.to_owned() };
                        self.store.replace(&path, contents.as_bytes())?;
                    }
                }
                self.own_ids.remove(topic);
                self.write_own_ids().map(|()| id)
            }
        }
    }

    /// The ID that was made up for a topic whose source had none, if it was.
    pub(crate) fn made_up_id(&self, topic: &str) -> Option<TopicId> {
        self.own_ids.get(topic).copied()
    }

    /// Takes note of an ID that was made up for a topic whose source has none. Durable on return.
    ///
    /// # Errors
    /// [`StoreError`] from the system.
    pub(crate) fn make_up_id(&mut self, topic: &Arc<str>, id: TopicId) -> Result<(), StoreError> {
        if self.own_ids.insert(Arc::clone(topic), id) == Some(id) {
            return Ok(());
        }
        self.write_own_ids()
    }

    /// Nothing is known any more of the partitions of a topic that was deleted.
    pub(crate) fn forget_topic(&mut self, topic: &str) {
        self.dirty |= self.offsets.remove(topic);
        self.own_ids.remove(topic);
    }

    fn write_own_ids(&mut self) -> Result<(), StoreError> {
        let contents = own_ids::encode(&self.own_ids);
        self.store.replace(&top(names::MIRROR_TOPICS), contents.as_bytes())
    }

    /// Threads that open its logs.
    ///
    /// # Errors
    /// From the system, when it gives no more threads.
    pub(super) fn openers(&self, threads: usize) -> io::Result<Openers> {
        Openers::start(&self.root, Arc::clone(&self.lock), threads)
    }

    /// Whether [`Self::adopt_id`] has to change files of logs that may be open.
    pub(super) fn changes_id(&self, topic: &str, source_id: TopicId) -> bool {
        source_id.known().is_some() && self.own_ids.contains_key(topic)
    }

    /// How a partition's log is to be opened, cut to `truncate_to` if given. From here on the
    /// marker of the last clean stop does not come back by itself.
    pub(crate) fn open_options(
        &mut self,
        partition: &TopicPartition,
        topic_id: TopicId,
        config: LogConfig,
        truncate_to: Option<Offset>,
    ) -> OpenOptions {
        self.vouched = false;
        let Known { log_start, recovery_point, .. } = self.known(partition);
        OpenOptions {
            config,
            topic_id,
            clean: !self.unvouched.contains(&partition.to_string()),
            recovery_point: recovery_point.max(Offset::ZERO),
            log_start: Known::known(log_start),
            truncate_to,
            now_ms: now_ms(),
        }
    }

    fn known(&self, partition: &TopicPartition) -> Known {
        self.offsets.get(partition).copied().unwrap_or(Known::NOTHING)
    }

    /// Takes over the offsets of a log that was opened. If this says so, [`Self::settle`] must
    /// have succeeded before it is appended to.
    #[must_use]
    pub(crate) fn opened(&mut self, partition: &TopicPartition, log: &RecoveredLog) -> bool {
        self.unvouched.remove(&partition.to_string());
        let before = self.known(partition);
        let high_watermark = before.high_watermark.max(Offset::ZERO);
        self.note(
            partition,
            Ends {
                log_start: log.log_start,
                recovery_point: log.recovery_point,
                high_watermark: high_watermark.min(log.log_end).max(log.log_start),
            },
        );
        let owes = before.recovery_point > log.recovery_point
            || before.log_start.max(Offset::ZERO) != log.log_start;
        self.owes_checkpoints |= owes;
        owes
    }

    /// Writes the checkpoints if an opened log needs it: a higher recovery point in the file
    /// would vouch for what is appended next, and a log that begins elsewhere must be known to
    /// before it holds anything.
    ///
    /// # Errors
    /// As [`Self::write_checkpoints`].
    pub(crate) fn settle(&mut self) -> Result<(), StoreError> {
        if self.owes_checkpoints { self.write_checkpoints() } else { Ok(()) }
    }

    /// Below it everything of a partition is durable, as far as the checkpoints know.
    pub(crate) fn recovery_point(&self, partition: &TopicPartition) -> Offset {
        self.known(partition).recovery_point.max(Offset::ZERO)
    }

    /// A log that was opened and written to is closed, and ends here.
    pub(crate) fn closed(&mut self, partition: &TopicPartition, ends: Ends) {
        self.unvouched.remove(&partition.to_string());
        self.note(partition, ends);
    }

    /// The next opening of the partition must not trust its files: its log failed.
    pub(crate) fn distrust(&mut self, partition: &TopicPartition) {
        self.unvouched.insert(partition.to_string());
    }

    /// Takes over a partition's offsets; they are written by [`Self::write_checkpoints`].
    pub(crate) fn note(&mut self, partition: &TopicPartition, ends: Ends) {
        let Ends { log_start, recovery_point, high_watermark } = ends;
        let new = Known { log_start, recovery_point, high_watermark };
        let known = self.offsets.entry(partition, || Known::NOTHING);
        self.dirty |= std::mem::replace(known, new) != new;
    }

    /// Writes the checkpoints if something changed. Durable on return.
    ///
    /// # Errors
    /// [`StoreError`] from the system; the old checkpoints still stand and are right.
    pub(crate) fn write_checkpoints(&mut self) -> Result<(), StoreError> {
        if !self.dirty {
            return Ok(());
        }
        for (name, kind, field) in CHECKPOINTS {
            let lines = self.offsets.iter().filter_map(|(topic, partition, known)| {
                Some((topic, partition, Known::known(*field(&mut { *known }))?))
            });
            // Names with white space were refused when the topic was selected.
            let Ok(contents) = checkpoint::encode_offset_lines(kind, lines) else { continue };
            self.store.replace(&top(name), contents.as_bytes())?;
        }
        self.dirty = false;
        self.owes_checkpoints = false;
        Ok(())
    }

    /// Records what was lost or cut, in one write. Durable on return; a record that is there
    /// already (of a step that a crash interrupted) is not repeated.
    ///
    /// # Errors
    /// [`StoreError`] from the system; nothing may be cut then.
    pub(super) fn record_gaps(
        &mut self,
        records: impl IntoIterator<Item = GapRecord>,
    ) -> Result<(), StoreError> {
        let new = records.into_iter().filter(|record| !self.has_gap(record));
        // One that cannot be written has a name that no topic has.
        let new = new.filter_map(|record| record.encode().ok().map(|line| (record, line)));
        let (records, lines): (Vec<_>, Vec<_>) = new.unzip();
        if records.is_empty() {
            return Ok(());
        }
        let header = if self.has_gap_file { String::new() } else { gaps::header() };
        let lines = header + &lines.concat();
        self.store.append(&top(names::MIRROR_GAPS), lines.as_bytes())?;
        self.has_gap_file = true;
        for record in records {
            *self.last_gap.entry(&record.partition, || 0) = self.gaps.len();
            self.gaps.push(record);
        }
        Ok(())
    }

    /// Whether this is the newest record of its partition.
    pub(super) fn has_gap(&self, record: &GapRecord) -> bool {
        let last = self.last_gap.get(&record.partition).and_then(|place| self.gaps.get(*place));
        last.is_some_and(|last| {
            (last.kind, last.from, last.to) == (record.kind, record.from, record.to)
        })
    }

    /// Ends a clean stop: recovers what nobody opened since a crash, writes the
    /// checkpoints, then the marker. Every log that was opened must be closed.
    ///
    /// # Errors
    /// Why there is no marker: the next start recovers.
    pub(crate) fn finish(&mut self, config: LogConfig) -> Result<(), LogOpenError> {
        for dir in self.unvouched.clone() {
            let Some(partition) = TopicPartition::from_dir_name(&dir) else { continue };
            let options = self.open_options(&partition, TopicId::NONE, config, None);
            let (log, _) = recovery::open(&mut self.store, &dir, &options)?;
            // What it may owe is written with the rest.
            let _ = self.opened(&partition, &log);
        }
        self.write_checkpoints()?;
        self.write_marker()?;
        self.vouched = false;
        Ok(())
    }

    fn write_marker(&mut self) -> Result<(), StoreError> {
        self.store.replace(&top(names::CLEAN_SHUTDOWN), CLEAN_MARKER.as_bytes())
    }
}

impl Drop for LogDir {
    fn drop(&mut self) {
        if self.vouched {
            // Without it the next start recovers, which costs time only.
            let _ = self.write_marker();
        }
    }
}

fn top(name: &str) -> LogPath {
    LogPath { dir: Arc::from(""), name: name.to_owned() }
}

/// Wall-clock time in milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
