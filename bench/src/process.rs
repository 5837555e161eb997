//! What a process used, from the kernel's counters.

use std::fs;

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

/// Processor seconds of this process, all its threads and kernel workers, ended ones included.
#[expect(clippy::cast_precision_loss, clippy::as_conversions, reason = "a figure for people")]
pub(crate) fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Largest resident memory of a process, in bytes.
pub(crate) fn peak_rss(pid: u32) -> Option<u64> {
    memory(pid, "VmHWM:")
}

/// Resident memory of a process now, in bytes.
pub(crate) fn rss(pid: u32) -> Option<u64> {
    memory(pid, "VmRSS:")
}

fn memory(pid: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Processor seconds of another process, all its threads included; 0 when it is gone. A tick is
/// a hundredth of a second.
#[expect(clippy::cast_precision_loss, clippy::as_conversions, reason = "a figure for people")]
pub(crate) fn cpu_seconds_of(pid: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    ticks(&stat).unwrap_or(0) as f64 / clock_ticks_per_second() as f64
}

/// This thread, by the kernel's number.
pub(crate) fn this_thread() -> u32 {
    u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap_or(0)
}

/// Processor seconds of one thread of this process; 0 when it is gone.
#[expect(clippy::cast_precision_loss, clippy::as_conversions, reason = "a figure for people")]
pub(crate) fn cpu_seconds_of_thread(thread: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    ticks(&stat).unwrap_or(0) as f64 / clock_ticks_per_second() as f64
}

/// User and system time: the 14th and 15th field. The second, a name, may hold spaces.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    user.checked_add(system)
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

    #[test]
    fn ticks_are_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 9 0 0 0 31 11 0 0 20 0 1 0 5 6 7";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks(""), None);
    }
}
