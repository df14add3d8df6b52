//! What `redb` gets for a file: it notes when an `fsync` has failed, which `redb` does not tell
//! from other failures.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redb::StorageBackend;

use crate::disk::DiskFile;

/// A file for `redb`.
pub(super) struct Backend {
    file: Box<dyn DiskFile>,
    /// Whether an `fsync` has failed.
    has_failed: Arc<AtomicBool>,
}

impl Backend {
    pub fn new(file: Box<dyn DiskFile>, has_failed: Arc<AtomicBool>) -> Self {
        Self { file, has_failed }
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Backend")
    }
}

impl StorageBackend for Backend {
    fn len(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.truncate(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let synced = self.file.sync();
        if synced.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        synced
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_at(offset, data)
    }
}
