//! `heliostat dump-log`

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use heliostat_core::dump::{
    DumpOptions, Findings, Named, dump_checkpoint, dump_log, dump_offset_index, dump_snapshot,
    dump_time_index, dump_txn_index,
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
                print_data: args.print_data_log,
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
