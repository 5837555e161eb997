//! Limits of this process: locked memory, open files, CPUs.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity};

use super::{Fact, Verdict, size};
use crate::shard::executor::{LOCKED_BYTES_PER_SHARD, MEMLOCK_BYTES_MIN};

/// Open files below which a mirror of some size opens and closes all the time: each partition
/// that is written has one, and another while it is closed; each connection has one.
const FILES_WARN: u64 = 8_192;
/// Too few to start with.
const FILES_FAIL: u64 = 1_024;

pub(super) fn facts(shards: u16) -> Vec<Fact> {
    let cpus = sched_getaffinity(None).map_or(0, |set| set.count());
    let present = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    vec![
        judge_memlock(getrlimit(Resource::Memlock).current, shards),
        judge_files(getrlimit(Resource::Nofile).maximum),
        judge_cpus(cpus, present, shards),
    ]
}

/// `None` stands for no limit.
fn judge_memlock(limit: Option<u64>, shards: u16) -> Fact {
    let wanted = LOCKED_BYTES_PER_SHARD.saturating_mul(u64::from(shards));
    let verdict = match limit {
        Some(limit) if limit < MEMLOCK_BYTES_MIN => Verdict::Fail,
        Some(limit) if limit < wanted => Verdict::Warn,
        _ => Verdict::Ok,
    };
    let meaning = match verdict {
        Verdict::Ok => format!("{} for this number of shards: {shards}", size(wanted)),
        Verdict::Warn => format!(
            "{shards} shards would lock {}; those beyond the limit run without registered \
             buffers, with a warning each",
            size(wanted)
        ),
        Verdict::Fail => format!("no shard starts below {}", size(MEMLOCK_BYTES_MIN)),
    };
    let needed = wanted.max(MEMLOCK_BYTES_MIN).div_ceil(1024);
    Fact::new("limits.locked_memory", limit.map_or("unlimited".to_owned(), size), verdict)
        .meaning(meaning)
        .remedy(format!("ulimit -l {needed}, or LimitMEMLOCK={needed}K of the service"))
}

/// The hard limit: a mirror raises its soft one to it.
fn judge_files(hard: Option<u64>) -> Fact {
    let verdict = match hard.unwrap_or(u64::MAX) {
        0..FILES_FAIL => Verdict::Fail,
        FILES_FAIL..FILES_WARN => Verdict::Warn,
        _ => Verdict::Ok,
    };
    let shown = hard.map_or("unlimited".to_owned(), |n| n.to_string());
    Fact::new("limits.open_files", format!("{shown} (the hard limit)"), verdict)
        .meaning("one for each partition that is written at the moment and each connection")
        .remedy("ulimit -Hn 100000 as root, or LimitNOFILE=100000 of the service")
}

/// Lets the process open as many files as it may, and returns how many that are.
pub fn raise_open_files() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

/// `usable`: CPUs in the affinity mask. `granted`: less what a container's quota takes.
fn judge_cpus(usable: u32, granted: usize, shards: u16) -> Fact {
    let wanted = u32::from(shards).saturating_add(1);
    let enough = usable >= wanted && u32::try_from(granted).is_ok_and(|granted| granted >= wanted);
    let verdict = if enough { Verdict::Ok } else { Verdict::Warn };
    let value = format!("{usable} in the affinity mask, {granted} granted");
    Fact::new("cpu", value, verdict)
        .meaning(format!(
            "one for each shard ({shards}), and one more for the control thread and the kernel's \
             own work"
        ))
        .remedy("start fewer shards, or give the process more CPUs (taskset, cpuset, cpu quota)")
}

/// Numbers of the CPUs that this process may run on, in order; empty if unknown.
pub fn usable_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locked_memory_of_an_ordinary_user_is_enough() {
        assert_eq!(judge_memlock(Some(8 << 20), 32).verdict, Verdict::Ok);
        assert_eq!(judge_memlock(None, u16::MAX).verdict, Verdict::Ok);
        assert_eq!(judge_memlock(Some(512 << 10), 32).verdict, Verdict::Warn);
        let fact = judge_memlock(Some(64 << 10), 1);
        assert_eq!(fact.verdict, Verdict::Fail);
        assert!(fact.remedy.starts_with("ulimit -l 512,"), "{}", fact.remedy);
    }

    #[test]
    fn files_and_cpus_are_judged() {
        for (limit, verdict) in [
            (Some(100), Verdict::Fail),
            (Some(1_024), Verdict::Warn),
            (Some(100_000), Verdict::Ok),
            (None, Verdict::Ok),
        ] {
            assert_eq!(judge_files(limit).verdict, verdict, "{limit:?}");
        }
        assert_eq!(judge_cpus(2, 2, 1).verdict, Verdict::Ok);
        assert_eq!(judge_cpus(2, 2, 2).verdict, Verdict::Warn);
        assert_eq!(judge_cpus(8, 1, 2).verdict, Verdict::Warn, "a quota counts");
        assert!(!usable_cpus().is_empty());
    }

    #[test]
    fn the_limit_is_raised_as_far_as_it_goes() {
        let hard = getrlimit(Resource::Nofile).maximum;
        assert_eq!(raise_open_files(), hard.unwrap_or(u64::MAX));
        assert_eq!(getrlimit(Resource::Nofile).current, hard);
    }
}
