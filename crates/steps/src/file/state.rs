//! What the source of a folder remembers over reloads, and shows.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use component::state::{Measure, State};

use crate::file::disk::Verdict;

/// What the source of a folder remembers.
#[derive(Default)]
pub(super) struct FileState {
    pub errors: AtomicU64,
    pub waiting: AtomicU64,
    /// Files whose flow has ended but that could not be moved yet.
    decided: Mutex<HashMap<OsString, Verdict>>,
}

impl FileState {
    /// Notes what became of a file until it has been moved.
    pub fn decide(&self, name: &OsStr, verdict: Verdict) {
        let mut decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        decided.insert(name.to_owned(), verdict);
    }

    /// What became of a file that has not been moved yet.
    pub fn decided(&self, name: &OsStr) -> Option<Verdict> {
        let decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        decided.get(name).cloned()
    }

    /// The file has been moved.
    pub fn settle(&self, name: &OsStr) {
        let mut decided = self.decided.lock().unwrap_or_else(PoisonError::into_inner);
        decided.remove(name);
    }
}

impl State for FileState {
    fn measures(&self, _now: Instant) -> Vec<Measure> {
        vec![
            Measure::count(
                "file_waiting",
                "Files in the folder that have not been taken yet.",
                &self.waiting,
            ),
            Measure::count(
                "file_errors_total",
                "Times that a folder or file could not be read or moved.",
                &self.errors,
            ),
        ]
    }
}
