//! `heliostat dump-log`

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use heliostat_core::dump::{
    DumpOptions, Findings, Named, RecordDecoder, dump_checkpoint, dump_log, dump_offset_index,
    dump_snapshot, dump_time_index, dump_txn_index,
};
use heliostat_core::log::names::{SegmentFileKind, SegmentFileName, SegmentFileState};
use heliostat_core::types::TopicPartition;
use heliostat_io::disk::LogDirLock;

use crate::failure::Failure;
use crate::file_view::FileView;
use crate::output::unwritable;

/// Arguments of `dump-log`.
#[derive(Args, Debug)]
pub(crate) struct DumpLogArgs {
    /// Files, partition directories or a whole log dir; commas between several.
    #[arg(long, required = true, value_delimiter = ',', value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Print keys and values, decompressed; implies --deep-iteration.
    #[arg(long)]
    print_data_log: bool,

    /// Print each record instead of batches only.
    #[arg(long)]
    deep_iteration: bool,

    /// Only check whether a broker would take an index as it is.
    #[arg(long)]
    index_sanity_check: bool,

    /// Check indexes against the log without printing their entries.
    #[arg(long)]
    verify_index_only: bool,

    /// Taken for the sake of scripts; batches of any size are read.
    #[arg(long, value_name = "BYTES", default_value_t = 5 << 20)]
    max_message_size: u32,

    /// Leave out what is not key or value.
    #[arg(long)]
    skip_record_metadata: bool,

    /// Read records as those of `__mirror_state`; implies --print-data-log.
    #[arg(long, conflicts_with = "cluster_metadata_decoder")]
    mirror_state_decoder: bool,

    /// Read records as those of `__cluster_metadata`; implies --print-data-log.
    #[arg(long)]
    cluster_metadata_decoder: bool,
}

impl DumpLogArgs {
    /// `None` if no decoder is asked for.
    fn decoder(&self) -> Option<RecordDecoder> {
        match (self.mirror_state_decoder, self.cluster_metadata_decoder) {
            (true, _) => Some(RecordDecoder::MirrorState),
            (false, true) => Some(RecordDecoder::ClusterMetadata),
            (false, false) => None,
        }
    }
}

/// Prints the files; `false` if one of them is not as it should be.
pub(crate) fn run(args: &DumpLogArgs) -> Result<bool, Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut findings = Findings::default();
    tracing::debug!(args.max_message_size, "no limit is needed");
    for path in &args.files {
        for path in expand(path)? {
            dump(&path, args, &mut out, &mut findings)?;
        }
    }
    out.flush().map_err(unwritable)?;
    findings.print(&mut io::stderr().lock()).map_err(unwritable)?;
    Ok(findings.is_clean())
}

/// A directory stands for its files, and for those of the partitions in it.
fn expand(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let failed = |error| Failure::from_error(path.display().to_string(), error);
    let mut entries = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        entries.push(entry.map_err(failed)?.path());
    }
    entries.sort();
    let mut files = Vec::new();
    for entry in entries {
        let name = entry.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if entry.is_dir() {
            if TopicPartition::from_dir_name(name).is_some() {
                files.extend(expand(&entry)?);
            }
        } else if !name.starts_with('.') {
            files.push(entry);
        }
    }
    Ok(files)
}

fn dump(
    path: &Path,
    args: &DumpLogArgs,
    out: &mut dyn Write,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let text = path.display().to_string();
    writeln!(out, "Dumping {text}").map_err(unwritable)?;
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let segment = SegmentFileName::parse(name);
    let is_live = holder_of(path).is_some();
    let file = match FileView::open(path) {
        Ok(file) => file,
        // Retention goes on while a live directory is read.
        Err(error) if error.kind() == io::ErrorKind::NotFound && is_live => {
            return writeln!(out, "{text} was deleted meanwhile.").map_err(unwritable);
        }
        Err(error) => {
            let failure = Failure::from_error(text, error);
            return Err(failure.remedy("name files that this user can read, with --files"));
        }
    };
    let result = match (segment, Named::new(&absolute(path))) {
        (Some(segment), Some(named)) => {
            let options = DumpOptions {
                deep_iteration: args.deep_iteration,
                print_data: args.print_data_log || args.decoder().is_some(),
                decoder: args.decoder().unwrap_or_default(),
                skip_record_metadata: args.skip_record_metadata,
                index_sanity_only: args.index_sanity_check,
                verify_index_only: args.verify_index_only,
                is_live: is_live && segment.state == SegmentFileState::Live,
            };
            let named = Named { shown: &text, ..named };
            dump_segment_file(path, segment, named, &file, options, out, findings)?
        }
        _ => dump_checkpoint(&text, &file, out, findings).map(|known| {
            if !known {
                findings.ignored(&text);
            }
        }),
    };
    result.map_err(|error| Failure::from_error(text, error))
}

fn dump_segment_file(
    path: &Path,
    segment: SegmentFileName,
    named: Named<'_>,
    file: &FileView,
    options: DumpOptions,
    out: &mut dyn Write,
    findings: &mut Findings,
) -> Result<io::Result<()>, Failure> {
    let beside = |kind| {
        let path = path.with_file_name(SegmentFileName { kind, ..segment }.to_string());
        FileView::open(&path).map_err(|error| {
            let failure = Failure::from_error(path.display().to_string(), error);
            failure.remedy("an index is checked against the segment's other files beside it")
        })
    };
    Ok(match segment.kind {
        SegmentFileKind::Log => dump_log(named, file, &options, out, findings),
        SegmentFileKind::Index => {
            let log = beside(SegmentFileKind::Log)?;
            dump_offset_index(named, file, &log, &options, out, findings)
        }
        SegmentFileKind::TimeIndex => {
            let (index, log) = (beside(SegmentFileKind::Index)?, beside(SegmentFileKind::Log)?);
            dump_time_index(named, file, &index, &log, &options, out, findings)
        }
        SegmentFileKind::TxnIndex => dump_txn_index(named, file, out, findings),
        SegmentFileKind::Snapshot => dump_snapshot(named, file, out, findings),
    })
}

/// Complaints name files as Kafka does: absolute, links not followed.
fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string()
}

/// The process that writes to the file's log dir.
fn holder_of(path: &Path) -> Option<u32> {
    let path = std::path::absolute(path).ok()?;
    // A partition's file lies two levels below, a checkpoint one.
    path.ancestors().skip(1).take(2).find_map(LogDirLock::holder)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use heliostat_core::coordinator::state_log::{AppendAs, StateLog, StateLogOptions, tombstones};
    use heliostat_core::coordinator::{LastMirrored, MirrorKey, StateRecord};
    use heliostat_core::types::{LeaderEpoch, Offset, TimestampMs, TopicId};
    use heliostat_io::disk::FileStore;

    use super::*;

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        args: DumpLogArgs,
    }

    fn parse(flags: &[&str]) -> Result<DumpLogArgs, clap::Error> {
        let words = ["dump-log"].iter().chain(flags);
        Only::try_parse_from(words).map(|only| only.args)
    }

    #[test]
    fn one_decoder_at_a_time() {
        let files = ["--files", "a.log"];
        let decoder = |flags: &[&str]| parse(&[&files, flags].concat()).unwrap().decoder();
        assert_eq!(decoder(&[]), None);
        assert_eq!(decoder(&["--mirror-state-decoder"]), Some(RecordDecoder::MirrorState));
        assert_eq!(decoder(&["--cluster-metadata-decoder"]), Some(RecordDecoder::ClusterMetadata));
        let both = ["--mirror-state-decoder", "--cluster-metadata-decoder"];
        let refused = parse(&[&files[..], &both].concat()).unwrap_err().to_string();
        assert!(refused.contains("cannot be used with '--cluster-metadata-decoder'"), "{refused}");
    }

    /// A state log on real files, as a host writes it, compacted and opened again.
    #[test]
    fn the_state_log_of_a_host_can_be_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut store = FileStore::new(dir.path());
        let options = || StateLogOptions {
            partitions: 3,
            compact_bytes_min: 1_000,
            ..StateLogOptions::default()
        };
        let (mut log, _) = StateLog::open(&mut store, options()).unwrap();
        let key = |partition| MirrorKey { mirror: "west".into(), topic: TopicId::NONE, partition };
        let with = AppendAs { timestamp: TimestampMs(7), leader_epoch: LeaderEpoch(1) };
        for offset in 0..40 {
            let last = LastMirrored { epoch: LeaderEpoch(3), offset: Offset(offset) };
            let records = [0, 1].map(|it| StateRecord::LastMirrored(key(it), Some(last)));
            log.append(&mut store, &records, with).unwrap();
            while log.compact_due(&mut store).unwrap().is_some() {}
        }
        log.append(&mut store, &tombstones(&key(1)), with).unwrap();
        let before: Vec<_> = log.ends().collect();
        let (log, replayed) = StateLog::open(&mut store, options()).unwrap();
        assert_eq!(log.ends().collect::<Vec<_>>(), before);
        let found: Vec<_> = replayed.last_mirrored.values().map(|last| last.offset.0).collect();
        assert_eq!((found, replayed.cuts.len()), (vec![39], 0));
        assert!(log.size_bytes() < 3_000, "{}", log.size_bytes());

        let args = parse(&["--files", "x", "--mirror-state-decoder"]).unwrap();
        let (mut out, mut findings) = (Vec::new(), Findings::default());
        for path in expand(dir.path()).unwrap() {
            dump(&path, &args, &mut out, &mut findings).unwrap();
        }
        assert!(findings.is_clean(), "{findings:?}");
        let out = String::from_utf8(out).unwrap();
        let payload =
            r#"payload: {"version":"0","data":{"lastMirrorEpoch":3,"lastMirrorOffset":39}}"#;
        assert_eq!(out.matches(payload).count(), 2, "the newest of each key\n{out}");
        assert_eq!(out.matches(" payload: null").count(), 2, "{out}");
        assert!(out.contains("__mirror_state-2/00000000000000000000.log"), "{out}");
    }
}
