//! How many shards there are unless told otherwise.

use heliostat_io::preflight::usable_cpus;

/// One a core, less one for the control thread and the kernel's own work; at least one.
pub(crate) fn default_shards() -> u16 {
    let cpus = usable_cpus().len().saturating_sub(1).max(1);
    u16::try_from(cpus).unwrap_or(u16::MAX)
}
