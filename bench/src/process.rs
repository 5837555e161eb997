//! What a process used, from the kernel's counters.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

/// Processor seconds of this process, all its threads and kernel workers, ended ones included.
#[expect(clippy::cast_precision_loss, clippy::as_conversions, reason = "a figure for people")]
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Largest resident memory of a process, in bytes.
pub(crate) fn peak_rss(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_figures() {
        let pid = std::process::id();
        assert!(cpu_seconds() > 0.0);
        assert!(peak_rss(pid).is_some_and(|bytes| bytes > 1 << 20));
    }
}
