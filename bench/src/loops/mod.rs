//! Loops of one thread that take slices off the raw port ([`crate::raw`]) into a new file a
//! partition and do nothing else: what this machine can do at best.
//!
//! All end with every byte durable: each file has had its fdatasync, its directory its fsync.

mod arrivals;
mod direct;
mod ideas;
mod many;
mod plain;
mod splice;

use std::fs::File;
use std::io::{self, Read};
use std::net::TcpStream;
use std::path::Path;

pub(crate) use self::arrivals::Arrivals;
pub(crate) use self::direct::Direct;
pub(crate) use self::ideas::{IdeaLoop, Ideas};
pub(crate) use self::many::Many;
pub(crate) use self::plain::Plain;
pub(crate) use self::splice::Splice;
use crate::raw::Slice;

/// How bytes get from a socket into files.
pub(crate) trait Mover {
    /// Moves the next bytes of `stream` to the end of the slice's file.
    fn slice(&mut self, slice: Slice, stream: &mut TcpStream) -> io::Result<()>;

    /// Makes the contents of all files durable.
    fn finish(&mut self) -> io::Result<()>;
}

/// Moves all of `stream`; returns how much that was.
pub(crate) fn drain(stream: &mut TcpStream, dir: &Path, mover: &mut dyn Mover) -> io::Result<u64> {
    let mut bytes = 0;
    while let Some(slice) = Slice::read(stream)? {
        mover.slice(slice, stream)?;
        bytes += u64::from(slice.len);
    }
    mover.finish()?;
    File::open(dir)?.sync_all()?;
    Ok(bytes)
}

/// Name of the file of `partition`.
fn file_name(partition: u32) -> String {
    format!("{partition}.bytes")
}

/// At least one byte of a slice. A ring's completions interrupt a read that waits.
fn receive(stream: &mut TcpStream, into: &mut [u8]) -> io::Result<usize> {
    loop {
        match stream.read(into) {
            Ok(0) => return Err(cut_off()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

/// For the end of a stream within a slice.
fn cut_off() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the source closed within a slice")
}
