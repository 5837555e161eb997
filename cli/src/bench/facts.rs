//! Where figures come from: what they mean nothing without.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use heliostat_core::log::utc;
use heliostat_core::types::TimestampMs;

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
    /// Directory.
    pub(super) place: String,
}

impl Facts {
    pub(super) fn now(source: &str, place: &std::path::Path) -> Self {
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
            place: place.display().to_string(),
        }
    }
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
    fn a_host_is_its_processors_and_memory() {
        let cpus = "processor\t: 0\nmodel name\t: A B\nprocessor\t: 1\nmodel name\t: A B\n";
        assert_eq!(host(cpus, "MemTotal:  2048 kB\n"), "2 x A B, 2 MiB");
        assert_eq!(host("", ""), "0 x processors, 0 MiB");
    }
}
