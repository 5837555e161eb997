//! Socket, pipe, file: through the page cache, without a copy to this process.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe, splice};

use super::plain::file_of;
use super::{Mover, cut_off};
use crate::raw::Slice;

/// What an ordinary user may ask for.
const PIPE_BYTES: usize = 1 << 20;

/// See the module.
#[derive(Debug)]
pub(crate) struct Splice {
    dir: PathBuf,
    files: BTreeMap<u32, (File, u64)>,
    pipe_out: OwnedFd,
    pipe_in: OwnedFd,
}

impl Splice {
    pub(crate) fn new(dir: PathBuf) -> io::Result<Self> {
        let (pipe_out, pipe_in) = pipe()?;
        fcntl_setpipe_size(&pipe_in, PIPE_BYTES)?;
        Ok(Self { dir, files: BTreeMap::new(), pipe_out, pipe_in })
    }
}

impl Mover for Splice {
    fn slice(&mut self, slice: Slice, stream: &mut TcpStream) -> io::Result<()> {
        let (file, end) = file_of(&mut self.files, &self.dir, slice.partition)?;
        let mut left = usize::try_from(slice.len).unwrap_or(usize::MAX);
        while left > 0 {
            let wanted = left.min(PIPE_BYTES);
            let mut piped = splice(&*stream, None, &self.pipe_in, None, wanted, SpliceFlags::MOVE)?;
            if piped == 0 {
                return Err(cut_off());
            }
            left = left.saturating_sub(piped);
            while piped > 0 {
                // It moves `end` on.
                let moved =
                    splice(&self.pipe_out, None, &*file, Some(end), piped, SpliceFlags::MOVE)?;
                if moved == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                piped = piped.saturating_sub(moved);
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.files.values().try_for_each(|(file, _)| file.sync_data())
    }
}
