//! The files that flow files name, such as schemas, service descriptions and texts: as they were
//! when they were read.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;

use crate::load::folder_of;
use crate::regular_file;
use crate::tls::hash;
use crate::watch::parent;

/// The most bytes of such a file.
const SIZE_MAX: u64 = 16 * 1024 * 1024;

/// Files by their paths, with hashes of what was in them; nothing of those that were not there.
#[derive(Debug, Default)]
pub(crate) struct NamedFiles(RefCell<BTreeMap<PathBuf, Option<u64>>>);

impl NamedFiles {
    /// Reads the file whose name is relative to the flow file that names it, and lies in its
    /// folder or below; and remembers it.
    ///
    /// # Errors
    /// What is wrong with the name or the file.
    pub fn read(&self, flow_file: &str, name: &str) -> Result<Bytes, String> {
        let is_inside = Path::new(name)
            .components()
            .all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if !is_inside {
            let message = "a file is named relative to the flow file, and lies in its folder";
            return Err(message.to_owned());
        }
        let path = folder_of(flow_file).join(name);
        let read = regular_file::read(&path, SIZE_MAX);
        let seen = read.as_ref().ok().map(|bytes| hash(bytes));
        self.0.borrow_mut().insert(path, seen);
        read.map(Bytes::from).map_err(|error| error.to_string())
    }

    /// Whether one of the files has changed since it was read.
    pub fn has_changed(&self) -> bool {
        self.0.borrow().iter().any(|(path, then)| {
            let now = regular_file::read(path, SIZE_MAX).ok();
            now.map(|bytes| hash(&bytes)) != *then
        })
    }

    /// The folders in which they are.
    pub fn folders(&self) -> BTreeSet<PathBuf> {
        let files = self.0.borrow();
        files.keys().map(|path| parent(path)).collect()
    }
}
