//! The file of API keys: read when flow files are loaded, and again within a second when it has
//! changed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use access::api_keys::ApiKeys;
use component::handler::{LocalFuture, Services};
use component::source::{Source, Started};
use component::state::State;

use crate::source::wait_until;

/// How often the file is looked at.
const EVERY: Duration = Duration::from_secs(1);
/// The most bytes of the file.
const FILE_MAX: u64 = 16 * 1024 * 1024;

/// The keys of a file, as they are now.
pub(crate) struct KeyFile {
    path: PathBuf,
    keys: RwLock<Arc<ApiKeys>>,
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

impl KeyFile {
    /// The keys of a file that has just been read. It is read once more at the first look, for it
    /// may have changed since.
    pub fn new(path: PathBuf, keys: ApiKeys) -> Self {
        Self {
            path,
            keys: RwLock::new(Arc::new(keys)),
            seen: Mutex::default(),
        }
    }

    /// The keys as they are now.
    pub fn keys(&self) -> Arc<ApiKeys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
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
        let keys = ApiKeys::parse(&text).map_err(|problem| problem.to_string())?;
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        Ok(true)
    }
}

impl State for KeyFile {}

/// Looks at the file again and again.
pub(crate) struct Watch(pub Arc<KeyFile>);

impl Source for Watch {
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
