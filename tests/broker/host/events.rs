//! What a source does, as `describe` shows it.
