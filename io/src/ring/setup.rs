//! Setting a ring up: flags that the kernel may refuse, opcodes that it must have.

use std::fs;
use std::io;

use io_uring::{IoUring, Probe, opcode};
use rustix::io::Errno;

/// Size of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// Entries of the submission queue: how many operations one system call hands over.
    /// Rounded up to a power of two by the kernel.
    pub entries: u32,
    /// Operations in flight at most. Also the size of the completion queue, so it is
    /// rounded up to `entries` at least.
    pub in_flight_max: u32,
}

impl Default for RingConfig {
    fn default() -> Self {
        Self { entries: 64, in_flight_max: 256 }
    }
}

/// What the kernel granted beyond the necessary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFeatures {
    /// Completions do not interrupt the shard (5.19).
    pub coop_taskrun: bool,
    /// The kernel skips locks because one thread submits (6.0).
    pub single_issuer: bool,
    /// `ftruncate` through the ring (6.9); a plain call otherwise.
    pub ftruncate: bool,
}

/// Who keeps io_uring from us.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// `kernel.io_uring_disabled` is 2.
    #[error("sysctl kernel.io_uring_disabled is 2; type: sysctl -w kernel.io_uring_disabled=0")]
    DisabledForAll,
    /// `kernel.io_uring_disabled` is 1 and we are not of the group.
    #[error(
        "sysctl kernel.io_uring_disabled is 1; type: sysctl -w kernel.io_uring_disabled=0, or run \
         as a member of the group in kernel.io_uring_group"
    )]
    DisabledForGroup,
    /// A seccomp filter, as container runtimes install it.
    #[error(
        "a seccomp filter of the container blocks it; run the container with a profile that \
         allows io_uring_setup, io_uring_enter and io_uring_register (docker: --security-opt \
         seccomp=unconfined)"
    )]
    Seccomp,
    /// Neither of these; a security module perhaps.
    #[error("a security policy blocks it; look at the audit log for io_uring_setup")]
    Policy,
}

/// Why there is no ring, or no longer one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RingError {
    /// `ENOSYS`.
    #[error("this kernel has no io_uring; Linux 5.15 or later is needed")]
    Missing,
    /// `EPERM`.
    #[error("io_uring is forbidden: {0}")]
    Forbidden(Refusal),
    /// `ENOMEM`: before 5.12 rings count against the limit on locked memory.
    #[error(
        "no memory for io_uring's queues; raise the limit on locked memory (ulimit -l, or \
         LimitMEMLOCK= of the service)"
    )]
    NoMemory,
    /// The kernel is too old.
    #[error("this kernel's io_uring has no {0}; Linux 5.15 or later is needed")]
    OpcodeMissing(&'static str),
    /// Any other failure to set up or to register the eventfd.
    #[error("io_uring setup failed")]
    Setup(#[source] io::Error),
    /// `io_uring_enter` failed for good.
    #[error("io_uring submission failed")]
    Submit(#[source] io::Error),
}

/// Kernel threads of one shard that operations wait in. By default there are four a CPU: fewer
/// than syncs under way at once, and an append waited until one of them had ended.
const WORKERS_MAX: u32 = 64;

/// What the append path cannot do without.
const OPCODES: [(u8, &str); 9] = [
    (opcode::OpenAt::CODE, "openat"),
    (opcode::Close::CODE, "close"),
    (opcode::Write::CODE, "write"),
    (opcode::Read::CODE, "read"),
    (opcode::Fsync::CODE, "fsync"),
    (opcode::Fallocate::CODE, "fallocate"),
    (opcode::RenameAt::CODE, "renameat"),
    (opcode::UnlinkAt::CODE, "unlinkat"),
    (opcode::MkDirAt::CODE, "mkdirat"),
];

/// Sets a small ring up and tears it down again.
///
/// # Errors
/// As [`Ring::new`](super::Ring::new).
pub fn features_of() -> Result<RingFeatures, RingError> {
    set_up(RingConfig { entries: 4, in_flight_max: 8 }).map(|(_, features)| features)
}

/// A ring with as many of the wanted flags as the kernel takes.
pub(super) fn set_up(config: RingConfig) -> Result<(IoUring, RingFeatures), RingError> {
    let wanted = [(true, true), (true, false), (false, false)];
    let mut last = io::Error::from(Errno::INVAL);
    for (coop_taskrun, single_issuer) in wanted {
        let mut builder = IoUring::builder();
        builder.dontfork().setup_clamp();
        builder.setup_cqsize(config.in_flight_max.max(config.entries));
        if coop_taskrun {
            // With the flag, `reap` sees pending work without a system call.
            builder.setup_coop_taskrun().setup_taskrun_flag();
        }
        if single_issuer {
            builder.setup_single_issuer();
        }
        match builder.build(config.entries) {
            Ok(uring) => {
                // Left as they are by a kernel before 5.15.
                let _ = uring.submitter().register_iowq_max_workers(&mut [WORKERS_MAX, 0]);
                let ftruncate = probe(&uring)?;
                return Ok((uring, RingFeatures { coop_taskrun, single_issuer, ftruncate }));
            }
            // Unknown flags are EINVAL.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => last = error,
            Err(error) => return Err(explain(error)),
        }
    }
    Err(RingError::Setup(last))
}

/// Checks the opcodes; returns whether `ftruncate` is there.
fn probe(uring: &IoUring) -> Result<bool, RingError> {
    let mut probe = Probe::new();
    uring.submitter().register_probe(&mut probe).map_err(RingError::Setup)?;
    for (code, name) in OPCODES {
        if !probe.is_supported(code) {
            return Err(RingError::OpcodeMissing(name));
        }
    }
    Ok(probe.is_supported(opcode::Ftruncate::CODE))
}

fn explain(error: io::Error) -> RingError {
    match Errno::from_io_error(&error) {
        Some(Errno::NOSYS) => RingError::Missing,
        Some(Errno::PERM | Errno::ACCESS) => RingError::Forbidden(refusal()),
        Some(Errno::NOMEM) => RingError::NoMemory,
        _ => RingError::Setup(error),
    }
}

fn refusal() -> Refusal {
    let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    match disabled.trim() {
        "2" => return Refusal::DisabledForAll,
        "1" => return Refusal::DisabledForGroup,
        _ => {}
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let filtered = status
        .lines()
        .filter_map(|line| line.strip_prefix("Seccomp:"))
        .any(|mode| mode.trim() == "2");
    if filtered { Refusal::Seccomp } else { Refusal::Policy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_find_a_kernel_thread_beside_all_syncs() {
        let (uring, _) = set_up(RingConfig::default()).unwrap();
        let mut limits = [0, 0];
        // Zeros change nothing and are overwritten with what holds.
        uring.submitter().register_iowq_max_workers(&mut limits).unwrap();
        assert_eq!(limits[0], 64);
    }
}
