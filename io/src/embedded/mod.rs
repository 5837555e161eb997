//! The embedded source in a process of its own, so that what is measured beside it has its
//! processor time and memory for itself: one program plays both, started again as a child.

mod child;
mod source;

pub use child::{Child, Heard};
pub use source::wait_for_input_end;
pub use source::{EmbeddedError, EmbeddedSource, SourceSpec, empty_catalog, listener_config};
