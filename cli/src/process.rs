//! What this process used: processor time and memory, from `/proc`.

use std::fs;
use std::time::Duration;

/// Ticks a second in `/proc`, which Linux keeps at 100 for every program.
const TICKS_PER_SECOND: u64 = 100;

/// Processor time of the whole process, threads that have ended included.
pub(crate) fn cpu_time() -> Duration {
    cpu_of(&fs::read_to_string("/proc/self/stat").unwrap_or_default())
}

/// Processor time of the running threads whose name begins so.
pub(crate) fn cpu_time_of_threads(prefix: &str) -> Duration {
    let Ok(threads) = fs::read_dir("/proc/self/task") else { return Duration::ZERO };
    let mut sum = Duration::ZERO;
    for thread in threads.flatten() {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        let name = stat.split_once('(').map_or("", |(_, rest)| rest);
        if name.starts_with(prefix) {
            sum += cpu_of(&stat);
        }
    }
    sum
}

/// User and system time in a line of `stat`.
fn cpu_of(stat: &str) -> Duration {
    // The name may hold anything, so fields count from behind it.
    let fields = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND)
}

/// Largest resident memory since [`reset_peak`], in bytes.
pub(crate) fn peak_memory() -> Option<u64> {
    memory("VmHWM:")
}

/// Resident memory now, in bytes.
pub(crate) fn resident_memory() -> Option<u64> {
    memory("VmRSS:")
}

fn memory(field: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kilobytes: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1_024)
}

/// Lets the peak begin anew, where the kernel allows it.
pub(crate) fn reset_peak() {
    // Without it the peak is that of the whole run, and higher.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_behind_any_name() {
        let stat = "7 (a) b(c) S 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20";
        assert_eq!(cpu_of(stat), Duration::from_secs(2));
        assert_eq!(cpu_of(""), Duration::ZERO);
    }

    #[test]
    fn this_process_uses_memory() {
        assert!(peak_memory().is_some_and(|bytes| bytes > 1 << 20));
        assert!(resident_memory().is_some_and(|bytes| bytes > 1 << 20));
    }
}
