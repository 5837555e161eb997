//! A network namespace with one end of a path in it.

use std::fs::{self, File};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::config::PathConfig;
use super::error::PathError;
use super::{End, address, device};

/// Packets that a device holds for the pump: more than any window lets out at once.
const DEVICE_PACKETS: &str = "65536";
/// Buffers never bind: 64 MiB carry 6 Gbit/s at 80 ms.
const RECEIVE_BUFFERS: &str = "4096 131072 67108864";
const SEND_BUFFERS: &str = "4096 16384 67108864";

/// Keeps a namespace alive.
#[derive(Debug)]
pub(super) struct EndOfPath {
    namespace: File,
}

impl EndOfPath {
    /// Makes the namespace and its device. The calling thread stays where it is.
    pub(super) fn new(end: End, config: &PathConfig) -> Result<(Self, File), PathError> {
        let _allowed = Allowed::new(&config.congestion_control);
        // A thread of its own: it is lost to the namespace that it makes.
        let built = std::thread::scope(|scope| scope.spawn(|| build(end, config)).join());
        built.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    pub(super) fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.namespace.as_raw_fd()).into()
    }
}

fn build(end: End, config: &PathConfig) -> Result<(EndOfPath, File), PathError> {
    device::leave_network().map_err(|source| PathError::NotAllowed { source })?;
    let namespace = File::open("/proc/thread-self/ns/net")
        .map_err(PathError::system("/proc/thread-self/ns/net"))?;
    let tun = device::open()?;
    set("net/ipv4/tcp_rmem", RECEIVE_BUFFERS)?;
    set("net/ipv4/tcp_wmem", SEND_BUFFERS)?;
    let name = &config.congestion_control;
    fs::write("/proc/sys/net/ipv4/tcp_congestion_control", name)
        .map_err(|source| PathError::CongestionControl { name: name.clone(), source })?;
    // A connection must not begin with what an earlier one learnt: runs are to be alike.
    set("net/ipv4/tcp_no_metrics_save", "1")?;
    // Without it only IPv4 takes numbers of packets. A kernel may have no IPv6.
    let _ = set("net/ipv6/conf/all/disable_ipv6", "1");
    let (here, there) = match end {
        End::Near => (address(End::Near), address(End::Far)),
        End::Far => (address(End::Far), address(End::Near)),
    };
    ip(&["link", "set", "lo", "up"])?;
    ip(&["address", "add", &here.to_string(), "peer", &there.to_string(), "dev", device::NAME])?;
    let mtu = config.mtu.to_string();
    ip(&["link", "set", device::NAME, "mtu", &mtu, "txqueuelen", DEVICE_PACKETS, "up"])?;
    Ok((EndOfPath { namespace }, tun))
}

const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
/// One at a time: each puts back what it found.
static ALLOWING: Mutex<()> = Mutex::new(());

/// Lets namespaces choose a congestion control, as long as it lives: a kernel may keep all but
/// one to its first namespace, and that list is the machine's.
struct Allowed {
    before: Option<String>,
    _alone: MutexGuard<'static, ()>,
}

impl Allowed {
    fn new(name: &str) -> Self {
        let alone = ALLOWING.lock().unwrap_or_else(PoisonError::into_inner);
        let before = fs::read_to_string(ALLOWED).unwrap_or_default();
        let there = before.split_whitespace().any(|allowed| allowed == name);
        // Where it cannot be, the choice fails and says so.
        let widened = !there && fs::write(ALLOWED, format!("{} {name}", before.trim())).is_ok();
        Self { before: widened.then_some(before), _alone: alone }
    }
}

impl Drop for Allowed {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // A name too many in it harms nobody.
            let _ = fs::write(ALLOWED, before);
        }
    }
}

/// A setting of the calling thread's namespace.
fn set(name: &'static str, value: &str) -> Result<(), PathError> {
    fs::write(Path::new("/proc/sys").join(name), value).map_err(|source| PathError::Setting {
        name,
        value: value.to_owned(),
        source,
    })
}

/// Runs iproute2 in the calling thread's namespace.
fn ip(arguments: &[&str]) -> Result<(), PathError> {
    let run = Command::new("ip").args(arguments).output();
    let run = run.map_err(|source| PathError::NoIp { source })?;
    if run.status.success() {
        return Ok(());
    }
    let output = String::from_utf8_lossy(&run.stderr).trim().to_owned();
    Err(PathError::Ip { arguments: arguments.join(" "), output })
}

/// Moves the calling thread, and whatever it starts from now on, into the network namespace
/// behind a path.
///
/// # Errors
///
/// [`PathError::System`].
pub fn enter_namespace(path: &Path) -> Result<(), PathError> {
    let namespace = File::open(path).map_err(PathError::system("open a network namespace"))?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(PathError::system("enter a network namespace"))
}
