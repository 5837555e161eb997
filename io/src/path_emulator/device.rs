//! The two calls of a namespace's making that Rust cannot vouch for.
#![expect(unsafe_code, reason = "rustix leaves the meaning of ioctl and unshare to the caller")]

use std::fs::File;
use std::io;

use rustix::ioctl::{Updater, ioctl};
use rustix::thread::{UnshareFlags, unshare_unsafe};

use super::error::PathError;

/// Name of the device in both namespaces.
pub(super) const NAME: &str = "path0";
/// TUNSETIFF: `_IOW('T', 202, int)`, as the kernel's header spells it.
const SET_INTERFACE: u32 = 0x4004_54ca;
/// IP packets, with nothing before them.
const IFF_TUN_NO_PI: u16 = 0x0001 | 0x1000;
const NAME_BYTES: usize = 16;

/// The kernel's `struct ifreq`: 40 bytes, of which TUNSETIFF uses name and flags.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; NAME_BYTES],
    flags: u16,
    rest: [u8; 22],
}

/// Gives the calling thread a network namespace of its own.
pub(super) fn leave_network() -> io::Result<()> {
    // SAFETY: only what a thread may have for itself is unshared: no memory, and no table of
    // descriptors that others rely on.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(())
}

/// A TUN device in the network namespace of the calling thread; it goes with the file.
pub(super) fn open() -> Result<File, PathError> {
    let no_tun = |source| PathError::NoTun { source };
    let file = File::options().read(true).write(true).open("/dev/net/tun").map_err(no_tun)?;
    let mut request =
        InterfaceRequest { name: [0; NAME_BYTES], flags: IFF_TUN_NO_PI, rest: [0; 22] };
    for (to, from) in request.name.iter_mut().zip(NAME.bytes()) {
        *to = from;
    }
    // SAFETY: TUNSETIFF reads and writes one `struct ifreq`, which `InterfaceRequest` is.
    let set = unsafe { Updater::<SET_INTERFACE, InterfaceRequest>::new(&mut request) };
    // SAFETY: the request and its opcode belong together, see above; it outlives the call.
    unsafe { ioctl(&file, set) }.map_err(|errno| no_tun(errno.into()))?;
    rustix::io::ioctl_fionbio(&file, true).map_err(PathError::system("a TUN device"))?;
    Ok(file)
}
