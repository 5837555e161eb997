//! Why there is no path, and what to do.

use std::io;

use thiserror::Error;

/// A path that could not be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PathError {
    /// Only root, or root of a user namespace, makes network namespaces.
    #[error(
        "this user may not make network namespaces ({source}): run as root, or under `unshare -Ur`"
    )]
    NotAllowed {
        /// What the kernel said.
        source: io::Error,
    },
    /// No TUN devices.
    #[error("/dev/net/tun: {source}: load the kernel's module with `modprobe tun`")]
    NoTun {
        /// What the kernel said.
        source: io::Error,
    },
    /// No iproute2.
    #[error("`ip` cannot be run ({source}): install iproute2")]
    NoIp {
        /// What the system said.
        source: io::Error,
    },
    /// `ip` did not do it.
    #[error("`ip {arguments}` failed: {output}")]
    Ip {
        /// Its arguments.
        arguments: String,
        /// What it printed.
        output: String,
    },
    /// A setting of a namespace.
    #[error("{name}={value} cannot be set in a new network namespace: {source}")]
    Setting {
        /// As a path below `/proc/sys`.
        name: &'static str,
        /// The value wanted.
        value: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A congestion control that is not there, or that namespaces may not use.
    #[error(
        "congestion control {name}: {source}: choose one of `sysctl \
         net.ipv4.tcp_available_congestion_control`, and add it to \
         net.ipv4.tcp_allowed_congestion_control"
    )]
    CongestionControl {
        /// The one asked for.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Another call.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// Packets of that size cannot be carried.
    #[error("an MTU of {mtu} is not from {min} to {max}")]
    Mtu {
        /// The one asked for.
        mtu: u16,
        /// The least one.
        min: u16,
        /// The largest one.
        max: u16,
    },
    /// Too much would be held in memory.
    #[error(
        "a direction would hold {held} bytes, {max} at most: choose a lower rate, round trip or \
         queue"
    )]
    TooLong {
        /// Bytes in flight and in the queue.
        held: u64,
        /// The limit.
        max: u64,
    },
}

impl PathError {
    /// For `map_err`.
    pub(super) fn system<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::System { what, source: source.into() }
    }
}
