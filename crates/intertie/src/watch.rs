//! Tells when flow files may have changed.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

/// How long files must be quiet before they are read: editors write in several steps.
const QUIET: Duration = Duration::from_millis(100);

/// The folder in which a file lies: the current one when its path names none.
pub(crate) fn parent(file: &Path) -> PathBuf {
    let parent = file.parent().filter(|it| !it.as_os_str().is_empty());
    parent.unwrap_or(Path::new(".")).to_path_buf()
}

/// Tells when flow files may have changed.
pub(crate) struct Watcher {
    changes: mpsc::UnboundedReceiver<()>,
    /// Whether there was a change that nobody has been told of. Kept here, since whoever waits may
    /// stop waiting at any moment.
    is_dirty: bool,
    /// Stops telling when it is dropped.
    watcher: RecommendedWatcher,
    /// The folders that are watched with all within, and those without, with device and inode:
    /// another folder may take the place of one.
    whole: Vec<PathBuf>,
    single: BTreeMap<PathBuf, (u64, u64)>,
}

impl Watcher {
    /// Watches files and folders. Of a file its folder is watched, for editors replace files.
    ///
    /// # Errors
    /// When the system cannot watch them.
    pub fn new(paths: &[PathBuf]) -> anyhow::Result<Self> {
        let (tell, changes) = mpsc::unbounded_channel();
        let mut watcher =
            notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
                // Reading a file is an event too, and we read them at every change.
                if !event.is_ok_and(|event| event.kind.is_access()) {
                    // The receiver is gone when the process stops.
                    let _ = tell.send(());
                }
            })
            .context("cannot watch files")?;
        for path in paths {
            let (folder, mode) = if path.is_dir() {
                (path.clone(), RecursiveMode::Recursive)
            } else {
                (parent(path), RecursiveMode::NonRecursive)
            };
            watcher
                .watch(&folder, mode)
                .with_context(|| format!("cannot watch {}", folder.display()))?;
        }
        Ok(Self {
            changes,
            is_dirty: false,
            watcher,
            whole: paths.iter().filter(|it| it.is_dir()).cloned().collect(),
            single: BTreeMap::new(),
        })
    }

    /// Watches these folders too: files name something in them.
    pub fn add(&mut self, folders: BTreeSet<PathBuf>) {
        for folder in folders {
            // Asked first: it needs no system call, and this is done at each turn of the process.
            if self.whole.iter().any(|it| folder.starts_with(it)) {
                continue;
            }
            // One that is not there yet is tried again at the next turn.
            let Ok(found) = folder.metadata().map(|it| (it.dev(), it.ino())) else {
                continue;
            };
            if self.single.get(&folder) == Some(&found) {
                continue;
            }
            // What was watched before under this name is gone, perhaps with its watch.
            let _ = self.watcher.unwatch(&folder);
            match self.watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => drop(self.single.insert(folder, found)),
                Err(error) => tracing::debug!(%error, "a folder cannot be watched"),
            }
        }
    }

    /// Waits for a change and for the quiet behind it; for ever without a watcher.
    pub async fn changed(watcher: &mut Option<Self>) {
        let Some(watcher) = watcher else {
            return std::future::pending().await;
        };
        loop {
            if !watcher.is_dirty {
                match watcher.changes.recv().await {
                    Some(()) => watcher.is_dirty = true,
                    None => return std::future::pending().await,
                }
            }
            if tokio::time::timeout(QUIET, watcher.changes.recv())
                .await
                .is_err()
            {
                watcher.is_dirty = false;
                return;
            }
        }
    }
}
