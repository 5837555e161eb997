//! What an admin client asks beside the mirror APIs, each in one flexible version: configs,
//! features, the cluster, coordinators.

mod messages;
mod request;

pub use messages::*;
pub use request::AdminRequest;

#[cfg(test)]
mod tests;
