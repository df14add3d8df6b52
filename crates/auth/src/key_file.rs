//! Files of keys and of users: read when flow files are loaded, and again within a second when they
//! have changed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime};

use access::api_keys::ApiKeys;
use access::basic::Users;
use component::audit::{Audit, Changes, Event, EventKind};
use component::definition::Surroundings;
use component::handler::{LocalFuture, Services};
use component::source::SourcePlan;
use component::state::{State, StateKey, States};
use config::{Report, Spanned};

use crate::codes::BAD_KEY_FILE;
use crate::revocation::Revocations;
use crate::source::{self, Periodic, Repeated};

/// How often the file is looked at. Streams of a credential that is gone end within a second.
pub(crate) const EVERY: Duration = Duration::from_millis(500);
/// The most bytes of the file.
const FILE_MAX: u64 = 16 * 1024 * 1024;

/// What such a file has.
pub(crate) trait Content: Sized + Send + Sync + 'static {
    /// What the file is, for messages.
    const NAME: &'static str = "file of keys";
    /// What the audit stream calls a change of it.
    const CHANGED: EventKind;
    /// What it takes to read it.
    type Settings: Send + Sync + 'static;

    /// Reads it.
    ///
    /// # Errors
    /// What is wrong, and in which line if it has any.
    fn parse(text: &str, settings: &Self::Settings) -> Result<Self, String>;

    /// What tells it from all others, where anybody asks.
    fn generation(&self) -> u64 {
        0
    }

    /// Whether it says the same as before, so that the old one may stay.
    fn is_same(&self, _before: &Self) -> bool {
        false
    }

    /// What of it is not used, a sentence each.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// How it differs from what it was, by the names of its entries.
    fn changes(&self, before: &Self) -> Changes;
}

impl Content for ApiKeys {
    const CHANGED: EventKind = EventKind::KeysChanged;
    type Settings = ();

    fn parse(text: &str, (): &()) -> Result<Self, String> {
        Self::parse(text).map_err(|problem| problem.to_string())
    }

    fn changes(&self, before: &Self) -> Changes {
        Changes::between(
            before.entries().iter().map(|it| (it.id.as_str(), it)),
            self.entries().iter().map(|it| (it.id.as_str(), it)),
        )
    }
}

impl Content for Users {
    const CHANGED: EventKind = EventKind::UsersChanged;
    type Settings = ();

    fn parse(text: &str, (): &()) -> Result<Self, String> {
        Self::parse(text).map_err(|problem| problem.to_string())
    }

    fn changes(&self, before: &Self) -> Changes {
        Changes::between(
            before.entries().map(|it| (it.id.as_str(), it)),
            self.entries().map(|it| (it.id.as_str(), it)),
        )
    }
}

/// Tells the audit stream how a file has changed, if it has.
pub(crate) fn audit_change<T: Content>(audit: &Audit, target: &str, before: &T, now: &T) {
    if !audit.is_on() {
        return;
    }
    let changes = now.changes(before);
    if !changes.is_empty() {
        let event = || {
            Event::success(T::CHANGED)
                .with_target(target)
                .with_changes(&changes)
        };
        audit.record(event);
    }
}

/// Tells the audit stream that a changed file is not taken.
pub(crate) fn audit_problem<T: Content>(audit: &Audit, target: &str, problem: &str) {
    audit.record(|| Event::failure(T::CHANGED, problem).with_target(target));
}

/// The content of a file that flow files name. Every problem is reported.
pub(crate) fn read_file<T: Content>(
    name: &Spanned<String>,
    settings: &T::Settings,
    hint: &str,
    surroundings: &Surroundings<'_>,
    report: &mut Report,
) -> Option<T> {
    let bytes = (surroundings.files)(name.span.source, &name.value);
    let parsed = bytes.and_then(|bytes| {
        let text = std::str::from_utf8(&bytes).map_err(|_| "it is not UTF-8".to_owned())?;
        T::parse(text, settings)
    });
    let parsed = parsed
        .map_err(|problem| {
            let message = format!("the {} cannot be used: {problem}", T::NAME);
            report.error(BAD_KEY_FILE, name.span, message).hint(hint);
        })
        .ok()?;
    for warning in parsed.warnings() {
        report.warning(BAD_KEY_FILE, name.span, warning);
    }
    Some(parsed)
}

/// The content of a file, as it is now.
pub(crate) struct WatchedFile<T: Content> {
    path: PathBuf,
    settings: T::Settings,
    content: RwLock<Arc<T>>,
    /// That of the content.
    generation: AtomicU64,
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
    pub fn new(path: PathBuf, settings: T::Settings, content: Arc<T>) -> Self {
        Self {
            path,
            settings,
            generation: content.generation().into(),
            content: RwLock::new(content),
            seen: Mutex::default(),
        }
    }

    /// The content as it is now.
    pub fn content(&self) -> Arc<T> {
        Arc::clone(&self.content.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The generation of the content as it is now.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
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
        let content = T::parse(&text, &self.settings)?;
        Ok(self.take(Arc::new(content)))
    }

    /// Goes by this from now on. Whether it is another one than before.
    fn take(&self, content: Arc<T>) -> bool {
        if content.is_same(&self.content()) {
            return false;
        }
        let mut current = self.content.write().unwrap_or_else(PoisonError::into_inner);
        self.generation
            .store(content.generation(), Ordering::Release);
        *current = content;
        true
    }
}

impl<T: Content> State for WatchedFile<T> {}

/// What a load has read of a file becomes the state of the process, which may be an earlier plan's:
/// nobody has followed the file since that was replaced. `target` is its name in the audit stream.
pub(crate) fn shared_file<T: Content>(
    target: &str,
    (key, path): (StateKey, PathBuf),
    (settings, content): (T::Settings, T),
    states: &States,
) -> Arc<WatchedFile<T>> {
    let content = Arc::new(content);
    let file = states.get(key, || {
        WatchedFile::new(path, settings, Arc::clone(&content))
    });
    let before = file.content();
    if !Arc::ptr_eq(&before, &content) && file.take(Arc::clone(&content)) {
        audit_change(&Audit::of(states), target, &*before, &*content);
        // Whoever follows the file finds nothing changed any more, also where the load is refused.
        Revocations::of(states).sweep();
    }
    file
}

/// What logs and the audit stream call what follows the file of a way.
pub(crate) fn source_name(way: &str) -> String {
    format!("auth {way}")
}

/// Takes a changed file. The first turn reads it in any case: it may have changed since it was
/// loaded.
struct Watch<T: Content> {
    name: String,
    file: Arc<WatchedFile<T>>,
    /// Told that this file admits callers now.
    come_into_force: Box<dyn Fn(&Revocations) + Send + Sync>,
    revocations: Arc<Revocations>,
    /// Told how the content has changed.
    audit: Arc<Audit>,
}

/// The plan that watches the file of the way of this name, and checks the credentials of open
/// streams when its content has changed.
pub(crate) fn watch_file<T: Content>(
    way: &str,
    file: &Arc<WatchedFile<T>>,
    (revocations, audit): (&Arc<Revocations>, &Arc<Audit>),
    come_into_force: impl Fn(&Revocations) + Send + Sync + 'static,
) -> SourcePlan {
    let name = source_name(way);
    let watch = Watch {
        name: name.clone(),
        file: Arc::clone(file),
        come_into_force: Box::new(come_into_force),
        revocations: Arc::clone(revocations),
        audit: Arc::clone(audit),
    };
    source::plan(name, Arc::new(Repeated(watch)))
}

impl<T: Content> Periodic for Watch<T> {
    fn turn<'a>(
        &'a self,
        is_first: bool,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Option<Instant>> {
        Box::pin(async move {
            if is_first {
                self.file.forget();
                (self.come_into_force)(&self.revocations);
            }
            let (file, revocations) = (Arc::clone(&self.file), Arc::clone(&self.revocations));
            let (name, audit) = (self.name.clone(), Arc::clone(&self.audit));
            let work = move || {
                let before = file.content();
                match file.look() {
                    Ok(true) => {
                        audit_change(&audit, &name, &*before, &*file.content());
                        if !is_first {
                            tracing::info!(target: "auth", keys = %name, "keys have changed");
                            for warning in file.content().warnings() {
                                tracing::warn!(target: "auth", keys = %name, "{warning}");
                            }
                        }
                        revocations.sweep();
                    }
                    Ok(false) => {}
                    Err(problem) => {
                        tracing::warn!(
                            target: "auth", keys = %name, problem,
                            "the file of keys cannot be used; the keys stay as they are"
                        );
                        audit_problem::<T>(&audit, &name, &problem);
                    }
                }
            };
            services.blocking(Box::new(work)).await;
            Some(services.now() + EVERY)
        })
    }
}

#[cfg(test)]
mod tests;
