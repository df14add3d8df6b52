//! Files of API keys and of users: read when flow files are loaded, and again within a second when
//! they have changed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
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
use crate::source::wait_until;

/// How often the file is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// The most bytes of the file.
const FILE_MAX: u64 = 16 * 1024 * 1024;

/// What such a file has.
pub(crate) trait Content: Sized + Send + Sync + 'static {
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
            let message = format!("the file of keys cannot be used: {problem}");
            report.error(BAD_KEY_FILE, name.span, message).hint(hint);
        })
        .ok()
}

/// The content of a file, as it is now.
pub(crate) struct WatchedFile<T> {
    path: PathBuf,
    content: RwLock<Arc<T>>,
    /// What the file was when it was last read, whether its keys were taken or not.
    seen: Mutex<Option<Stamp>>,
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

    /// Reads the file if it has changed. Blocks.
    ///
    /// # Errors
    /// In words for the log: the keys stay as they are, and the same file is told once.
    fn look(&self) -> Result<bool, String> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = Stamp::of(&self.path);
        let now = stamp.as_ref().ok().copied();
        if now.is_some() && *seen == now {
            return Ok(false);
        }
        let was_missing = std::mem::replace(&mut *seen, now).is_none();
        let stamp = match stamp {
            Ok(stamp) => stamp,
            Err(_) if was_missing => return Ok(false),
            Err(error) => return Err(error.to_string()),
        };
        if stamp.length > FILE_MAX {
            return Err("it is too large".to_owned());
        }
        let text = fs::read_to_string(&self.path).map_err(|error| error.to_string())?;
        let content = T::parse(&text).map_err(|problem| problem.to_string())?;
        *self.content.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(content);
        Ok(true)
    }
}

impl<T: Content> State for WatchedFile<T> {}

/// Looks at the file again and again.
pub(crate) struct Watch<T>(pub Arc<WatchedFile<T>>);

impl<T: Content> Source for Watch<T> {
    fn run<'a>(
        &'a self,
        flow: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        mut stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            let mut is_first = true;
            loop {
                let file = Arc::clone(&self.0);
                let name = Arc::clone(flow.name());
                let work = move || match file.look() {
                    Ok(true) if !is_first => {
                        tracing::info!(target: "auth", keys = %name, "keys have changed");
                    }
                    Ok(_) => {}
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
