//! Record batches as they travel and as they are stored: views, checks, decoding.

mod meta;

pub use meta::{BatchMeta, Compression, ControlType};
