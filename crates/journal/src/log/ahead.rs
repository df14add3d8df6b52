//! Reads a file from its beginning in large parts, whatever small ones are asked for.

use std::io;

use crate::disk::DiskFile;

/// How many bytes are read at once.
const PART: u64 = 1 << 20;

/// A file that is read from its beginning to its end.
pub(super) struct Ahead<'a> {
    file: &'a dyn DiskFile,
    size: u64,
    /// Where the bytes begin that have been read.
    at: u64,
    bytes: Vec<u8>,
}

impl<'a> Ahead<'a> {
    pub fn new(file: &'a dyn DiskFile, size: u64) -> Self {
        Self {
            file,
            size,
            at: 0,
            bytes: Vec::new(),
        }
    }

    /// How many bytes follow this place.
    pub fn left(&self, at: u64) -> u64 {
        self.size.saturating_sub(at)
    }

    /// So many bytes from this place on.
    ///
    /// # Errors
    /// When they cannot be read, or the file ends before.
    pub fn get(&mut self, at: u64, count: u64) -> io::Result<&[u8]> {
        if count > self.left(at) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let has = self.at + self.bytes.len() as u64;
        if at < self.at || at + count > has {
            let wanted = count.max(PART).min(self.left(at));
            self.bytes.resize(wanted as usize, 0);
            self.at = at;
            self.file.read_at(at, &mut self.bytes)?;
        }
        let start = (at - self.at) as usize;
        let part = self.bytes.get(start..start + count as usize);
        part.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}
