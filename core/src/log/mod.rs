//! Rules of the segment log: names, indexes, epochs, producer state, roll, recovery. Decisions only.

pub mod disk;
pub mod slot;
pub mod store;
