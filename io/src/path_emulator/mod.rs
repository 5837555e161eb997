//! A long path on one machine: two network namespaces, a TUN device in each, and a thread
//! between them that delays, paces, loses and queues what passes.
//!
//! ```text
//!   namespace Near        a thread of this process        namespace Far
//!   10.219.0.1 ── TUN ──▶ Link: queue, rate, loss, delay ──▶ TUN ── 10.219.0.2
//!              ◀────────  one more, the other way  ◀────────
//! ```
//!
//! The kernel's netem does the same where it is built in; this one needs no kernel module but
//! `tun`, loses the same packets for the same seed, and says what it cost.
//!
//! [`Link`] decides, and knows neither clock nor device; `namespace` and `device` make the ends,
//! `pump` carries. What a sender does to the path is all here; what a receiver spends on a
//! packet is charged to the pump, whose write is the packet's arrival.

mod config;
mod device;
mod error;
mod link;
mod namespace;
mod pump;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

pub use self::config::{Loss, ParseError, PathConfig, Rate, duration};
pub use self::error::PathError;
pub use self::link::{Fate, Link, LinkConfig};
pub use self::namespace::enter_namespace;
pub use self::pump::{Direction, LATE, PathReport};

use self::namespace::EndOfPath;
use self::pump::Pump;

/// One of the two ends of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where the mirror is, by custom.
    Near,
    /// Where the source is.
    Far,
}

/// A path that carries packets until it is dropped.
#[derive(Debug)]
pub struct PathEmulator {
    near: EndOfPath,
    far: EndOfPath,
    pump: Pump,
}

impl PathEmulator {
    /// Makes both namespaces and begins to carry.
    ///
    /// # Errors
    ///
    /// [`PathError`] says what this machine or user lacks.
    pub fn start(config: &PathConfig) -> Result<Self, PathError> {
        let link = config.link()?;
        let (near, near_device) = EndOfPath::new(End::Near, config)?;
        let (far, far_device) = EndOfPath::new(End::Far, config)?;
        let pump = Pump::start([near_device, far_device], link, config.mtu)?;
        Ok(Self { near, far, pump })
    }

    /// Address of an end.
    pub fn address(&self, end: End) -> Ipv4Addr {
        address(end)
    }

    /// What another process passes to [`enter_namespace`], as long as this one lives.
    pub fn namespace(&self, end: End) -> PathBuf {
        self.end(end).path()
    }

    /// Moves the calling thread, and whatever it starts from now on, to an end.
    ///
    /// # Errors
    ///
    /// [`PathError::System`].
    pub fn enter(&self, end: End) -> Result<(), PathError> {
        enter_namespace(Path::new(&self.namespace(end)))
    }

    /// What it has carried and what that cost so far.
    pub fn report(&self) -> PathReport {
        self.pump.report()
    }

    fn end(&self, end: End) -> &EndOfPath {
        match end {
            End::Near => &self.near,
            End::Far => &self.far,
        }
    }
}

fn address(end: End) -> Ipv4Addr {
    match end {
        End::Near => Ipv4Addr::new(10, 219, 0, 1),
        End::Far => Ipv4Addr::new(10, 219, 0, 2),
    }
}
