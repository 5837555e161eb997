//! Scenarios: a real Kafka, a copy of it, and what happens to either. The fast tests run the short
//! ones, the campaign runs all of them.
//!
//! Each scenario is a function that ends with [`Figures`], or with the first thing that is not as
//! it must be ([`ScenarioError`]). It starts its own cluster and leaves nothing behind.

pub mod bad_input;
pub mod chance;
pub mod changes;
pub mod child;
pub mod compacted;
pub mod compare;
pub mod copy;
pub mod damaged;
pub mod disk_full;
pub mod error;
pub mod faults;
pub mod figures;
pub mod formats;
pub mod identity;
pub mod idle;
pub mod kills;
pub mod load;
pub mod mount;
pub mod retention;
pub mod rolling;
pub mod sizes;
pub mod source_away;
pub mod takeover;
pub mod unclean;
pub mod verified;

pub use copy::{Copy, Mirror};
pub use error::{Result, ScenarioError};
pub use figures::Figures;
