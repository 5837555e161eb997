//! Requests that take several operations, one after another.
//!
//! A chain is a list of steps and what they work on. It turns its first step into a ring
//! operation, takes the completion, and goes on or fails. It decides nothing about the
//! log: the order of steps is what makes each request durable.

use std::collections::VecDeque;
use std::ffi::CString;
use std::rc::Rc;
use std::sync::Arc;

use heliostat_core::log::disk::{DiskError, FileId, LogPath, OpId};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::ring::{Completion, File, RingOp, RingReply};

/// Permissions of files, less the umask, as Kafka's.
const FILE_MODE: Mode = Mode::from_raw_mode(0o644);
/// Permissions of partition directories, less the umask, as Kafka's.
const DIR_MODE: Mode = Mode::from_raw_mode(0o755);

/// Kafka's suffix for a file that is written beside the one it will replace.
const TMP_SUFFIX: &str = ".tmp";

/// One step of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Makes the partition's directory; one that is there is fine.
    MakeDir,
    /// Syncs the log dir, so that the partition's directory lasts.
    SyncRoot,
    /// Opens the file.
    Open(OFlags),
    /// Creates the file; one that is there must be empty.
    Create(OFlags),
    /// Opens a file that must be empty.
    OpenEmpty(OFlags),
    /// Opens the file beside the one to replace.
    OpenTmp,
    /// Writes what is left of the bytes.
    Write,
    /// Sets the length.
    Truncate(u64),
    /// Makes the file durable, its length included.
    Sync,
    /// Closes the file.
    Close,
    /// Puts the file beside in the place of the one to replace.
    Rename,
    /// Removes the file. One that is not there ends the chain well.
    Unlink,
    /// Removes the file beside, after a failure.
    UnlinkTmp,
    /// Opens the partition's directory.
    OpenDir,
    /// Makes the entries of the directory durable.
    SyncDir,
}

/// Where a file is, in the forms that the kernel takes.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) path: LogPath,
    file: CString,
    tmp: CString,
    dir: CString,
}

impl Place {
    /// # Errors
    /// `EINVAL` for a name that would leave the log dir or its partition directory.
    pub(super) fn new(path: LogPath) -> Result<Self, DiskError> {
        let plain = |name: &str| !name.contains('/') && name != "." && name != "..";
        if path.name.is_empty() || !plain(&path.name) || !plain(&path.dir) {
            return Err(DiskError::Io(Errno::INVAL.raw_os_error()));
        }
        let c_string = |text: String| {
            CString::new(text).map_err(|_| DiskError::Io(Errno::INVAL.raw_os_error()))
        };
        Ok(Self {
            file: c_string(path.to_string())?,
            tmp: c_string(format!("{path}{TMP_SUFFIX}"))?,
            dir: c_string(path.dir.to_string())?,
            path,
        })
    }

    /// Whether the file lies in the log dir itself.
    fn is_top(&self) -> bool {
        self.path.dir.is_empty()
    }
}

/// What a chain came to.
#[derive(Debug)]
pub(super) enum Progress {
    /// Another step is to be done.
    More,
    /// The request is done.
    Finished(Result<(), DiskError>),
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) id: OpId,
    /// `None` for a chain on a file that is already open.
    pub(super) place: Option<Place>,
    /// The file to know by this name once the chain is done.
    pub(super) opens: Option<(FileId, bool)>,
    /// The file that the steps work on.
    pub(super) file: Option<File>,
    /// Its directory was synced in the log dir by this chain.
    pub(super) dir_synced: Option<Arc<str>>,
    steps: VecDeque<Step>,
    dir: Option<File>,
    bytes: Vec<u8>,
    written: usize,
    position: u64,
    failed: Option<DiskError>,
    /// The directory was taken for granted; it may have been removed since.
    may_make_dir: bool,
}

impl Chain {
    fn new(id: OpId, place: Option<Place>, steps: impl IntoIterator<Item = Step>) -> Self {
        Self {
            id,
            place,
            opens: None,
            file: None,
            dir_synced: None,
            steps: steps.into_iter().collect(),
            dir: None,
            bytes: Vec::new(),
            written: 0,
            position: 0,
            failed: None,
            may_make_dir: false,
        }
    }

    /// Opens a segment file. `dir_known`: its directory is durable already.
    pub(super) fn open(
        id: OpId,
        place: Place,
        (file, create, direct): (FileId, bool, bool),
        dir_known: bool,
    ) -> Self {
        let mut flags = OFlags::RDWR | OFlags::CLOEXEC;
        flags.set(OFlags::DIRECT, direct);
        let mut steps = Vec::new();
        if create {
            if !place.is_top() && !dir_known {
                // Even if it was there: whoever made it may have died before the sync.
                steps.extend([Step::MakeDir, Step::SyncRoot]);
            }
            steps.extend([Step::Create(flags), Step::OpenDir, Step::SyncDir]);
        } else {
            steps.push(Step::Open(flags));
        }
        let may_make_dir = create && dir_known && !place.is_top();
        Self { opens: Some((file, direct)), may_make_dir, ..Self::new(id, Some(place), steps) }
    }

    /// Sets the length of an open file, durably.
    pub(super) fn set_length(id: OpId, file: File, len: u64) -> Self {
        Self { file: Some(file), ..Self::new(id, None, [Step::Truncate(len), Step::Sync]) }
    }

    /// Writes into a side file.
    pub(super) fn write_at(
        id: OpId,
        place: Place,
        (position, bytes): (u64, Vec<u8>),
        sync: bool,
    ) -> Self {
        let end = position.saturating_add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
        let mut steps = vec![Step::Open(flags), Step::Write, Step::Truncate(end)];
        if sync {
            steps.extend([Step::Sync, Step::OpenDir, Step::SyncDir]);
        }
        steps.push(Step::Close);
        Self { bytes, position, ..Self::new(id, Some(place), steps) }
    }

    /// Replaces a small file.
    pub(super) fn replace(id: OpId, place: Place, bytes: Vec<u8>) -> Self {
        let steps = [
            Step::OpenTmp,
            Step::Write,
            // Before the rename: otherwise a power failure could leave the new name on a
            // file without contents.
            Step::Sync,
            Step::Close,
            Step::Rename,
            Step::OpenDir,
            Step::SyncDir,
        ];
        Self { bytes, ..Self::new(id, Some(place), steps) }
    }

    /// Removes a file.
    pub(super) fn remove(id: OpId, place: Place) -> Self {
        Self::new(id, Some(place), [Step::Unlink, Step::OpenDir, Step::SyncDir])
    }

    /// The operation of the first step, or `None` if the step needs none and is done.
    pub(super) fn next_op(&mut self, root: &File) -> Result<Option<RingOp>, DiskError> {
        while let Some(step) = self.steps.front().copied() {
            if let Some(op) = self.op_of(step, root)? {
                return Ok(Some(op));
            }
            self.steps.pop_front();
        }
        Ok(None)
    }

    fn op_of(&mut self, step: Step, root: &File) -> Result<Option<RingOp>, DiskError> {
        let dir = Rc::clone(root);
        let open = |path: CString, flags: OFlags| RingOp::Open {
            dir: Rc::clone(root),
            path,
            flags,
            mode: FILE_MODE,
        };
        Ok(Some(match step {
            Step::MakeDir => {
                RingOp::MakeDir { dir, path: self.place()?.dir.clone(), mode: DIR_MODE }
            }
            Step::SyncRoot => RingOp::Sync { file: dir, data_only: false },
            Step::Open(flags) | Step::OpenEmpty(flags) => open(self.place()?.file.clone(), flags),
            Step::Create(flags) => {
                open(self.place()?.file.clone(), flags | OFlags::CREATE | OFlags::EXCL)
            }
            Step::OpenTmp => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
                open(self.place()?.tmp.clone(), flags)
            }
            Step::Write if self.written == self.bytes.len() => return Ok(None),
            Step::Write => RingOp::WriteBytes {
                file: self.file()?,
                position: self.position.saturating_add(u64_of(self.written)),
                bytes: std::mem::take(&mut self.bytes),
                from: self.written,
            },
            Step::Truncate(len) => RingOp::Truncate { file: self.file()?, len },
            Step::Sync => RingOp::Sync { file: self.file()?, data_only: false },
            Step::Close => {
                // Every operation on it has completed, so this is the last owner.
                let file = self.file.take().and_then(Rc::into_inner);
                if file.is_none() {
                    return Err(DiskError::Io(Errno::BADF.raw_os_error()));
                }
                RingOp::Close { file }
            }
            Step::Rename => {
                let place = self.place()?;
                RingOp::Rename { dir, from: place.tmp.clone(), to: place.file.clone() }
            }
            Step::Unlink => RingOp::Unlink { dir, path: self.place()?.file.clone() },
            Step::UnlinkTmp => RingOp::Unlink { dir, path: self.place()?.tmp.clone() },
            Step::OpenDir if self.place()?.is_top() => {
                self.dir = Some(dir);
                return Ok(None);
            }
            Step::OpenDir => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                open(self.place()?.dir.clone(), flags)
            }
            Step::SyncDir => {
                let file = self.dir.clone().ok_or(DiskError::Io(Errno::BADF.raw_os_error()))?;
                RingOp::Sync { file, data_only: false }
            }
        }))
    }

    /// Takes the completion of the first step.
    pub(super) fn on_completion<T>(&mut self, completion: Completion<T>) -> Progress {
        let Some(step) = self.steps.pop_front() else {
            return Progress::Finished(Err(DiskError::Io(Errno::INVAL.raw_os_error())));
        };
        if let RingOp::WriteBytes { bytes, .. } = completion.op {
            self.bytes = bytes;
        }
        match completion.result {
            Ok(reply) => {
                if let Err(error) = self.on_success(step, reply) {
                    return self.fail(step, error);
                }
            }
            Err(errno) => match self.on_refusal(step, errno) {
                Ok(()) => {}
                Err(error) => return self.fail(step, error),
            },
        }
        match (self.steps.is_empty(), self.failed) {
            (false, _) => Progress::More,
            (true, None) => Progress::Finished(Ok(())),
            (true, Some(error)) => Progress::Finished(Err(error)),
        }
    }

    fn on_success(&mut self, step: Step, reply: RingReply) -> Result<(), DiskError> {
        match (step, reply) {
            (Step::OpenEmpty(_), RingReply::Opened(file)) => {
                // Asking for the length of an open file does not touch the disk.
                let stat = rustix::fs::fstat(&file).map_err(disk_error)?;
                if stat.st_size != 0 {
                    return Err(DiskError::Io(Errno::EXIST.raw_os_error()));
                }
                self.file = Some(Rc::new(file));
            }
            (Step::OpenDir, RingReply::Opened(file)) => self.dir = Some(Rc::new(file)),
            (_, RingReply::Opened(file)) => self.file = Some(Rc::new(file)),
            (Step::Write, RingReply::Bytes(0)) => {
                return Err(DiskError::Io(Errno::IO.raw_os_error()));
            }
            (Step::Write, RingReply::Bytes(bytes)) => {
                self.written += bytes;
                if self.written < self.bytes.len() {
                    self.steps.push_front(Step::Write);
                }
            }
            (Step::SyncRoot, _) => {
                self.dir_synced = self.place.as_ref().map(|place| Arc::clone(&place.path.dir));
            }
            (Step::SyncDir, _) => self.dir = None,
            _ => {}
        }
        Ok(())
    }

    /// What is no failure for this step, or the failure.
    fn on_refusal(&mut self, step: Step, errno: Errno) -> Result<(), DiskError> {
        match (step, errno) {
            (Step::MakeDir, Errno::EXIST) | (Step::UnlinkTmp, _) => Ok(()),
            (Step::Create(flags), Errno::EXIST) => {
                self.steps.push_front(Step::OpenEmpty(flags));
                Ok(())
            }
            (Step::Create(_), Errno::NOENT) if self.may_make_dir => {
                self.may_make_dir = false;
                for step in [step, Step::SyncRoot, Step::MakeDir] {
                    self.steps.push_front(step);
                }
                Ok(())
            }
            (Step::Unlink, Errno::NOENT) => {
                self.steps.clear();
                Ok(())
            }
            (Step::Open(flags) | Step::Create(flags) | Step::OpenEmpty(flags), Errno::INVAL)
                if flags.contains(OFlags::DIRECT) =>
            {
                Err(DiskError::DirectUnsupported)
            }
            (_, errno) => Err(disk_error(errno)),
        }
    }

    /// Ends the chain, after removing a file beside that nobody will want.
    fn fail(&mut self, step: Step, error: DiskError) -> Progress {
        let has_tmp = self.steps.contains(&Step::Rename) || step == Step::Rename;
        self.steps.clear();
        self.file = None;
        self.failed = Some(error);
        if has_tmp && step != Step::OpenTmp {
            self.steps.push_back(Step::UnlinkTmp);
            return Progress::More;
        }
        Progress::Finished(Err(error))
    }

    fn place(&self) -> Result<&Place, DiskError> {
        self.place.as_ref().ok_or(DiskError::Io(Errno::INVAL.raw_os_error()))
    }

    fn file(&self) -> Result<File, DiskError> {
        self.file.clone().ok_or(DiskError::Io(Errno::BADF.raw_os_error()))
    }
}

/// What an error number means to the log.
pub(super) fn disk_error(errno: Errno) -> DiskError {
    match errno {
        Errno::NOSPC | Errno::DQUOT => DiskError::NoSpace,
        other => DiskError::Io(other.raw_os_error()),
    }
}

/// A length in memory as one in a file.
pub(super) fn u64_of(len: usize) -> u64 {
    u64::try_from(len).unwrap_or(u64::MAX)
}
