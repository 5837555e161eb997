//! What a broker leaves on its disk: segments and checkpoints.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::{KafkaError, Result};

/// Log segments of a partition's directory, lowest offset first.
///
/// # Errors
///
/// [`KafkaError::File`] when the directory cannot be read.
pub fn segments(partition_dir: &Path) -> Result<Vec<PathBuf>> {
    files_with(partition_dir, &["log"])
}

/// Files of a directory whose extension is one of `extensions`, by name.
///
/// # Errors
///
/// [`KafkaError::File`] when the directory cannot be read.
pub fn files_with(dir: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>> {
    let failed = || KafkaError::file("read", dir);
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed())? {
        let path = entry.map_err(failed())?.path();
        let extension = path.extension().and_then(|e| e.to_str());
        if extension.is_some_and(|e| extensions.contains(&e)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// All bytes of a partition's segments, one after another: the batches as the broker stores them.
/// Two replicas may cut the same batches into other segments, so this is what can be compared.
///
/// # Errors
///
/// [`KafkaError::File`].
pub fn log_bytes(partition_dir: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for segment in segments(partition_dir)? {
        bytes.extend(fs::read(&segment).map_err(KafkaError::file("read", &segment))?);
    }
    Ok(bytes)
}

/// Offset of a partition in one of a broker's checkpoints, such as `cleaner-offset-checkpoint`,
/// `recovery-point-offset-checkpoint`, `replication-offset-checkpoint` (the high watermark) or
/// `log-start-offset-checkpoint`. `None` without the file or the partition.
///
/// # Errors
///
/// [`KafkaError::File`], [`KafkaError::BrokerFile`].
pub fn checkpoint(data_dir: &Path, file: &str, topic: &str, partition: i32) -> Result<Option<i64>> {
    let path = data_dir.join(file);
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path).map_err(KafkaError::file("read", &path))?;
    let prefix = format!("{topic} {partition} ");
    // Two lines come first: version and count.
    let line = text.lines().skip(2).find_map(|line| line.strip_prefix(&prefix));
    line.map(|offset| {
        offset
            .trim()
            .parse()
            .map_err(|_| KafkaError::BrokerFile { path, what: "an offset that is no number" })
    })
    .transpose()
}

/// Epochs and their start offsets from a partition's `leader-epoch-checkpoint`, in file order.
/// Empty without the file.
///
/// # Errors
///
/// [`KafkaError::File`], [`KafkaError::BrokerFile`].
pub fn epoch_checkpoint(partition_dir: &Path) -> Result<Vec<(i32, i64)>> {
    let path = partition_dir.join("leader-epoch-checkpoint");
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = fs::read_to_string(&path).map_err(KafkaError::file("read", &path))?;
    let parse = |line: &str| {
        let (epoch, start) = line.trim().split_once(' ')?;
        Some((epoch.parse().ok()?, start.parse().ok()?))
    };
    text.lines()
        .skip(2)
        .map(|line| {
            parse(line).ok_or_else(|| KafkaError::BrokerFile {
                path: path.clone(),
                what: "a line that is not epoch and offset",
            })
        })
        .collect()
}

/// `VmHWM` of a process's status file, in bytes.
pub(crate) fn memory_peak_bytes(status: &Path) -> Result<u64> {
    let text = fs::read_to_string(status).map_err(KafkaError::file("read", status))?;
    text.lines()
        .find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok())
        .map(|kib: u64| kib.saturating_mul(1024))
        .ok_or_else(|| KafkaError::BrokerFile { path: status.into(), what: "no VmHWM line" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_read_by_topic_and_partition() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("c"), "0\n2\na 1 5\na 11 7\n").unwrap();

        let read = |topic, partition| checkpoint(dir.path(), "c", topic, partition).unwrap();

        assert_eq!(read("a", 1), Some(5));
        assert_eq!(read("a", 11), Some(7));
        assert_eq!(read("b", 1), None);
        assert_eq!(checkpoint(dir.path(), "absent", "a", 1).unwrap(), None);
    }

    #[test]
    fn an_epoch_line_that_is_no_pair_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("leader-epoch-checkpoint");

        fs::write(&path, "0\n2\n0 0\n3 17\n").unwrap();
        assert_eq!(epoch_checkpoint(dir.path()).unwrap(), [(0, 0), (3, 17)]);

        fs::write(&path, "0\n1\nseventeen\n").unwrap();
        assert!(epoch_checkpoint(dir.path()).is_err());
    }
}
