//! Where figures come from: what they mean nothing without.

use std::fs;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use heliostat_core::log::utc;
use heliostat_core::types::TimestampMs;
use heliostat_io::preflight::log_dir_facts;

/// The commit that this was built from; marked if it was changed after.
const COMMIT: &str = env!("HELIOSTAT_COMMIT");

/// About this run.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) version: &'static str,
    pub(super) commit: &'static str,
    pub(super) host: String,
    pub(super) kernel: String,
    pub(super) congestion: String,
    pub(super) command: String,
    pub(super) time: String,
    /// Of the records.
    pub(super) source: String,
    /// Directory, and what it is on.
    pub(super) place: String,
}

impl Facts {
    pub(super) fn now(source: &str, place: &Path) -> Self {
        let of = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let command: Vec<_> = std::env::args().skip(1).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = i64::try_from(now.as_millis()).unwrap_or(0);
        Self {
            version: env!("CARGO_PKG_VERSION"),
            commit: COMMIT,
            host: host(&of("/proc/cpuinfo"), &of("/proc/meminfo")),
            kernel: of("/proc/sys/kernel/osrelease"),
            congestion: of("/proc/sys/net/ipv4/tcp_congestion_control"),
            command: format!("heliostat {}", command.join(" ")),
            time: utc::format(TimestampMs(now)),
            source: source.to_owned(),
            place: place_text(place, &file_system(place)),
        }
    }
}

/// By its name.
fn file_system(dir: &Path) -> String {
    let facts = log_dir_facts(dir);
    let fact = facts.into_iter().find(|fact| fact.name == "log_dir.file_system");
    fact.map_or_else(|| "an unknown file system".to_owned(), |fact| fact.value)
}

fn place_text(dir: &Path, file_system: &str) -> String {
    let warning = match file_system {
        "tmpfs" => ": memory, and no disk; name one with --dir",
        _ => "",
    };
    format!("{} on {file_system}{warning}", dir.display())
}

/// Processors and memory.
fn host(cpus: &str, memory: &str) -> String {
    let models: Vec<_> = cpus.lines().filter(|line| line.starts_with("model name")).collect();
    let model = models.first().and_then(|line| line.split(": ").nth(1)).unwrap_or("processors");
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let kilobytes = memory.split_whitespace().nth(1).and_then(|it| it.parse::<u64>().ok());
    format!("{count} x {model}, {} MiB", kilobytes.unwrap_or(0) >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_in_memory_is_not_taken_for_one_on_a_disk() {
        let dir = Path::new("/x");
        assert_eq!(place_text(dir, "ext4"), "/x on ext4");
        assert!(place_text(dir, "tmpfs").contains("no disk"));
        assert!(!file_system(&std::env::temp_dir()).is_empty());
    }

    #[test]
    fn a_host_is_its_processors_and_memory() {
        let cpus = "processor\t: 0\nmodel name\t: A B\nprocessor\t: 1\nmodel name\t: A B\n";
        assert_eq!(host(cpus, "MemTotal:  2048 kB\n"), "2 x A B, 2 MiB");
        assert_eq!(host("", ""), "0 x processors, 0 MiB");
    }
}
