//! Temporary folders.

use std::fs;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// A folder that goes when nobody needs it any more.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Makes one for this process.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn new(name: &str) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
