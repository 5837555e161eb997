//! Rules of the segment log: names, indexes, epochs, producer state, roll, recovery. Decisions only.
