//! Where a figure comes from.

use std::fs;
use std::process::Command;

/// Processors, memory, kernel, congestion control, commit: what a figure means nothing without.
pub(crate) fn line() -> String {
    let of = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    let cpus = of("/proc/cpuinfo");
    let models: Vec<_> = cpus.lines().filter(|line| line.starts_with("model name")).collect();
    let model = models.first().and_then(|line| line.split(": ").nth(1)).unwrap_or("?");
    let memory = of("/proc/meminfo");
    let kilobytes = memory.split_whitespace().nth(1).and_then(|it| it.parse::<u64>().ok());
    format!(
        "host: {} x {model}, {} MiB; kernel: {}; tcp: {}; commit: {}",
        models.len(),
        kilobytes.unwrap_or(0) >> 10,
        of("/proc/sys/kernel/osrelease"),
        of("/proc/sys/net/ipv4/tcp_congestion_control"),
        commit(),
    )
}

/// Load of the machine over the last 1, 5 and 15 minutes.
pub(crate) fn load() -> Vec<f64> {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).filter_map(|it| it.parse().ok()).collect()
}

fn commit() -> String {
    let run = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    let text = run.map(|run| String::from_utf8_lossy(&run.stdout).trim().to_owned());
    text.ok().filter(|text| !text.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}
