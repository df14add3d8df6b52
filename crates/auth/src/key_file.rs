//! Files of API keys and of users: read when flow files are loaded, and again within a second when
//! they have changed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use access::FileProblem;
use access::api_keys::ApiKeys;
use access::basic::Users;
use component::definition::Surroundings;
use component::handler::{LocalFuture, Services};
use component::source::{Source, Started};
use component::state::State;

use config::{Report, Spanned};

use crate::codes::BAD_KEY_FILE;
use crate::revocation::Revocations;
use crate::source::wait_until;

/// How often the file is looked at. Streams of a credential that is gone end within a second.
pub(crate) const EVERY: Duration = Duration::from_millis(500);
/// The most bytes of the file.
const FILE_MAX: u64 = 16 * 1024 * 1024;

/// What such a file has.
pub(crate) trait Content: Sized + Send + Sync + 'static {
    /// What the file is, for messages.
    const NAME: &'static str = "file of keys";

    /// Reads it.
    ///
    /// # Errors
    /// The first line that is wrong.
    fn parse(text: &str) -> Result<Self, FileProblem>;
}

impl Content for ApiKeys {
    fn parse(text: &str) -> Result<Self, FileProblem> {
        Self::parse(text)
    }
}

impl Content for Users {
    fn parse(text: &str) -> Result<Self, FileProblem> {
        Self::parse(text)
    }
}

/// The content of a file that flow files name. Every problem is reported.
pub(crate) fn read_file<T: Content>(
    name: &Spanned<String>,
    hint: &str,
    surroundings: &Surroundings<'_>,
    report: &mut Report,
) -> Option<T> {
    let bytes = (surroundings.files)(name.span.source, &name.value);
    let parsed = bytes.and_then(|bytes| {
        let text = std::str::from_utf8(&bytes).map_err(|_| "it is not UTF-8".to_owned())?;
        T::parse(text).map_err(|problem| problem.to_string())
    });
    parsed
        .map_err(|problem| {
            let message = format!("the {} cannot be used: {problem}", T::NAME);
            report.error(BAD_KEY_FILE, name.span, message).hint(hint);
        })
        .ok()
}

/// The content of a file, as it is now.
pub(crate) struct WatchedFile<T> {
    path: PathBuf,
    content: RwLock<Arc<T>>,
    seen: Mutex<Seen>,
}

/// The last look at a file.
#[derive(Default)]
struct Seen {
    /// What the file was when it was last read, whether its keys were taken or not. None: it has
    /// not been read since this content came, or its last read failed.
    stamp: Option<Stamp>,
    /// What was wrong, which is told once.
    problem: Option<String>,
}

/// What tells a changed file from an unchanged one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
}

impl Stamp {
    fn of(path: &Path) -> io::Result<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let metadata = fs::metadata(path)?;
        Ok(Self {
            modified: metadata.modified().ok(),
            length: metadata.len(),
            inode: metadata.ino(),
        })
    }
}

impl<T: Content> WatchedFile<T> {
    /// The content of a file that has just been read. It is read once more at the first look, for
    /// it may have changed since.
    pub fn new(path: PathBuf, content: T) -> Self {
        Self {
            path,
            content: RwLock::new(Arc::new(content)),
            seen: Mutex::default(),
        }
    }

    /// The content as it is now.
    pub fn content(&self) -> Arc<T> {
        Arc::clone(&self.content.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the next look read the file, changed or not.
    pub fn forget(&self) {
        *self.seen() = Seen::default();
    }

    /// Reads the file if it has changed. Blocks.
    ///
    /// # Errors
    /// In words for the log: the keys stay as they are, and the same problem is told once.
    pub fn look(&self) -> Result<bool, String> {
        self.look_by(|path| fs::read(path))
    }

    fn look_by(&self, read: impl FnOnce(&Path) -> io::Result<Vec<u8>>) -> Result<bool, String> {
        let mut seen = self.seen();
        let problem = match self.read_changed(&mut seen, read) {
            Ok(has_changed) => {
                if has_changed {
                    seen.problem = None;
                }
                return Ok(has_changed);
            }
            Err(problem) => problem,
        };
        if seen.problem.as_ref() == Some(&problem) {
            return Ok(false);
        }
        seen.problem = Some(problem.clone());
        Err(problem)
    }

    fn read_changed(
        &self,
        seen: &mut Seen,
        read: impl FnOnce(&Path) -> io::Result<Vec<u8>>,
    ) -> Result<bool, String> {
        let stamp = Stamp::of(&self.path);
        if stamp.as_ref().is_ok_and(|now| seen.stamp == Some(*now)) {
            return Ok(false);
        }
        // A read that fails, as when the process has no descriptor left, is tried again.
        seen.stamp = None;
        let stamp = stamp.map_err(|error| error.to_string())?;
        let bytes = match stamp.length > FILE_MAX {
            true => Err("it is too large".to_owned()),
            false => Ok(read(&self.path).map_err(|error| error.to_string())?),
        };
        // Whatever is in it, there is nothing new until it changes; another problem is told.
        seen.stamp = Some(stamp);
        seen.problem = None;
        let text = String::from_utf8(bytes?).map_err(|_| "it is not UTF-8".to_owned())?;
        let content = T::parse(&text).map_err(|problem| problem.to_string())?;
        *self.content.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(content);
        Ok(true)
    }
}

impl<T: Content> State for WatchedFile<T> {}

/// Looks at the file again and again. Its first look reads the file: what a reload has just read
/// is taken by the states of an earlier one, which may have missed it.
pub(crate) struct Watch<T> {
    pub file: Arc<WatchedFile<T>>,
    /// Told when the content has changed.
    pub revocations: Arc<Revocations>,
}

impl<T: Content> Source for Watch<T> {
    fn run<'a>(
        &'a self,
        flow: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        mut stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            let mut is_first = true;
            self.file.forget();
            loop {
                let (file, revocations) = (Arc::clone(&self.file), Arc::clone(&self.revocations));
                let name = Arc::clone(flow.name());
                let work = move || match file.look() {
                    Ok(true) => {
                        if !is_first {
                            tracing::info!(target: "auth", keys = %name, "keys have changed");
                        }
                        revocations.sweep();
                    }
                    Ok(false) => {}
                    Err(problem) => tracing::warn!(
                        target: "auth", keys = %name, problem,
                        "the file of keys cannot be used; the keys stay as they are"
                    ),
                };
                services.blocking(Box::new(work)).await;
                is_first = false;
                let next = services.now() + EVERY;
                if !wait_until(next, &mut stop, services).await {
                    return;
                }
            }
        })
    }
}

#[cfg(test)]
mod tests;
