//! Tells at once when something is put into a folder.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use notify::event::{ModifyKind, RenameMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

/// Rings when something has been put into a folder. It may ring for nothing.
#[derive(Default)]
pub(super) struct Bell(Mutex<(bool, Option<Waker>)>);

impl Bell {
    fn ring(&self) {
        let mut bell = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        bell.0 = true;
        if let Some(waker) = bell.1.take() {
            waker.wake();
        }
    }

    /// Ready when it has rung since it was last ready.
    pub fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut bell = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut bell.0) {
            return Poll::Ready(());
        }
        bell.1 = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Watches a folder for as long as it lives.
pub(super) struct Watch {
    /// Stops when it is dropped.
    _watcher: RecommendedWatcher,
}

impl Watch {
    /// Watches a folder.
    ///
    /// # Errors
    /// When the system cannot.
    pub fn new(folder: &Path, bell: &Arc<Bell>) -> notify::Result<Self> {
        let bell = Arc::clone(bell);
        let mut watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.map_or(true, |event| is_news(event.kind)) {
                bell.ring();
            }
        })?;
        watcher.watch(folder, RecursiveMode::NonRecursive)?;
        Ok(Self { _watcher: watcher })
    }
}

/// Whether a file may have come or grown: what we take away ourselves is no news.
fn is_news(kind: EventKind) -> bool {
    match kind {
        EventKind::Create(_) => true,
        EventKind::Modify(ModifyKind::Name(mode)) => mode != RenameMode::From,
        EventKind::Modify(ModifyKind::Metadata(_)) => false,
        EventKind::Modify(_) => true,
        _ => false,
    }
}
