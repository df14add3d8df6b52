//! The only way to the disk, so that tests can put a faulty one in its place.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Which logs of a data folder have given up what they reserve of the disk. While there is one,
/// none of them takes anything new: what is left belongs to what removes. Copies are the same one.
#[derive(Clone, Debug, Default)]
pub struct LowSpace(Arc<AtomicUsize>);

impl LowSpace {
    /// Whether only what removes may be written.
    pub fn is_low(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A folder of numbered files.
pub trait Disk: Send {
    /// The numbers of the files that are there, the lowest first.
    ///
    /// # Errors
    /// When the folder cannot be read.
    fn list(&mut self) -> io::Result<Vec<u64>>;

    /// Makes a file, or empties the one that is there.
    ///
    /// # Errors
    /// When it cannot be made.
    fn create(&mut self, number: u64) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file that is there.
    ///
    /// # Errors
    /// When it cannot be opened.
    fn open(&mut self, number: u64) -> io::Result<Box<dyn DiskFile>>;

    /// Removes a file.
    ///
    /// # Errors
    /// When it cannot be removed.
    fn remove(&mut self, number: u64) -> io::Result<()>;

    /// Makes durable which files there are.
    ///
    /// # Errors
    /// When it is not certain that it is.
    fn sync(&mut self) -> io::Result<()>;

    /// Takes this many bytes of the disk for nothing, instead of those it took before, so that
    /// they can be given back when the disk is full. On failure those it took before are kept.
    ///
    /// # Errors
    /// When there are not as many.
    fn reserve(&mut self, bytes: u64) -> io::Result<()>;

    /// Whether these files have been there before, with a manifest.
    fn is_made(&self) -> bool;

    /// Notes that they are, durably: from here on it is damage when they are not.
    ///
    /// # Errors
    /// When it is not certain that it is noted.
    fn made(&mut self) -> io::Result<()>;

    /// Opens the manifest; `None` when it is not there.
    ///
    /// # Errors
    /// When it cannot be opened.
    fn manifest(&mut self) -> io::Result<Option<Box<dyn DiskFile>>>;

    /// Makes the manifest, or empties the one that is there.
    ///
    /// # Errors
    /// When it cannot be made.
    fn create_manifest(&mut self) -> io::Result<Box<dyn DiskFile>>;

    /// What all logs on this disk know of its space.
    fn low_space(&self) -> LowSpace {
        LowSpace::default()
    }
}

/// One file. Whoever reads does not wait for whoever writes.
pub trait DiskFile: Send + Sync {
    /// How many bytes it has.
    ///
    /// # Errors
    /// When the system does not say.
    fn size(&self) -> io::Result<u64>;

    /// Whether parts of it that are all zeros take no space.
    ///
    /// # Errors
    /// When the system does not say.
    fn has_holes(&self) -> io::Result<bool> {
        Ok(false)
    }

    /// Fills `bytes` from this place on.
    ///
    /// # Errors
    /// When it cannot be read, or ends before.
    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes all `bytes` from this place on.
    ///
    /// # Errors
    /// When not all of them could be written; some may have been.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Cuts it off.
    ///
    /// # Errors
    /// When it could not be done.
    fn truncate(&self, size: u64) -> io::Result<()>;

    /// Makes durable what has been written.
    ///
    /// # Errors
    /// When it is not certain that it is: what is on the disk is then not known.
    fn sync(&self) -> io::Result<()>;
}
