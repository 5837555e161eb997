//! Receive buffers as halves of a huge page.
//!
//! A direct write hands pages to the disk. As single pages a 1 MiB buffer is 256 of them, more
//! than most queues take in one request (`queue/max_segments`), each to be looked up and pinned;
//! as half of a huge page it is one.
#![expect(unsafe_code, reason = "two owners of one mapping; see `Part`")]

use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::slice;
use std::sync::Arc;

use heliostat_core::log::slot::{SlotMemory, map_apart};
use memmap2::{Advice, MmapOptions, MmapRaw};

/// Maps `count` pieces of `bytes` each side by side, on a boundary of their common size, and asks
/// for a huge page under them. Where the kernel gives none they are ordinary pages.
///
/// # Errors
/// From the system.
pub fn map_together(count: usize, bytes: usize) -> io::Result<Vec<Box<dyn SlotMemory>>> {
    let whole = count.saturating_mul(bytes);
    if count < 2 || !whole.is_power_of_two() {
        return map_apart(count, bytes);
    }
    // Twice, for the boundary; what is never touched takes no memory.
    let area: MmapRaw = MmapOptions::new().len(whole.saturating_mul(2)).map_anon()?.into();
    // A kernel without huge pages refuses, and a buffer is as good.
    let _ = area.advise(Advice::HugePage);
    let first = area.as_ptr().align_offset(whole);
    let area = Arc::new(area);
    let part = |n: usize| -> Box<dyn SlotMemory> {
        let from = first + n * bytes;
        Box::new(Part { area: Arc::clone(&area), range: from..from + bytes })
    };
    Ok((0..count).map(part).collect())
}

/// One piece of a mapping. No two of a mapping overlap, as [`map_together`] alone makes them.
struct Part {
    area: Arc<MmapRaw>,
    /// Inside the mapping.
    range: Range<usize>,
}

impl Deref for Part {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let first = self.area.as_ptr().wrapping_add(self.range.start);
        // SAFETY: the range lies inside the mapping, which lives as long as `area`, was zeroed
        // by the kernel, and has no other owner of these bytes.
        unsafe { slice::from_raw_parts(first, self.range.len()) }
    }
}

impl DerefMut for Part {
    fn deref_mut(&mut self) -> &mut [u8] {
        let first = self.area.as_mut_ptr().wrapping_add(self.range.start);
        // SAFETY: as in `deref`; `&mut self` is the only way to these bytes.
        unsafe { slice::from_raw_parts_mut(first, self.range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use heliostat_core::log::slot::{SLOT_ALIGN, SlotClass};

    use super::*;

    #[test]
    fn parts_are_neighbours_that_do_not_touch_and_outlive_each_other() {
        const BYTES: usize = SlotClass::Large.bytes();
        let mut parts = map_together(2, BYTES).unwrap();
        let mut second = parts.pop().unwrap();
        let mut first = parts.pop().unwrap();
        assert_eq!((first.len(), second.len()), (1 << 20, 1 << 20));
        assert_eq!(first.as_ptr().align_offset(2 << 20), 0, "a huge page begins there");
        assert_eq!(first.as_ptr().wrapping_add(BYTES), second.as_ptr());
        assert!(first.iter().chain(&second[..]).all(|&byte| byte == 0));
        first.fill(1);
        second.fill(2);
        assert!(first.iter().all(|&byte| byte == 1));
        drop(first);
        assert!(second.iter().all(|&byte| byte == 2));
    }

    #[test]
    fn what_is_no_power_of_two_is_mapped_apart() {
        let parts = map_together(3, SLOT_ALIGN).unwrap();
        assert!(
            parts.iter().all(|part| part.len() == 4096 && part.as_ptr().align_offset(4096) == 0)
        );
        assert_eq!(parts.len(), 3);
    }
}
