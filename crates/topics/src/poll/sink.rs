//! Who takes the documents that polls bring.

use bytes::Bytes;
use component::handler::{LocalFuture, Services};
use message::Fault;

use super::memory::Last;

/// A document, and what the sink has to know beside it.
pub(super) struct Brought<'a> {
    /// The document as JSON; nothing when the other system has none.
    pub document: Option<Bytes>,
    /// What is known of the poll before; the sink keeps its own part up to date.
    pub last: &'a mut Last,
}

/// Who takes the documents that polls bring.
pub(super) trait Sink: Send + Sync {
    /// Whether anybody wants documents now.
    fn is_wanted(&self) -> bool {
        true
    }

    /// Is ready when somebody may want documents.
    fn wanted(&self) -> LocalFuture<'_, ()> {
        Box::pin(std::future::ready(()))
    }

    /// The place that the last document must be at: what was learnt for another is of no use.
    fn place(&self) -> LocalFuture<'_, Option<String>> {
        Box::pin(std::future::ready(None))
    }

    /// What was remembered before the engine was started, when there is a disk for it.
    fn remembered(&self) -> LocalFuture<'_, Option<Last>> {
        Box::pin(std::future::ready(None))
    }

    /// Whether it does no harm to remember what came before this after a restart: the place tells
    /// then that the document has to come again, and the sink that it has it already.
    fn may_lag(&self, _last: &Last) -> bool {
        false
    }

    /// Remembers over a restart, when there is a disk for it.
    fn remember<'a>(&'a self, _last: &'a Last) -> LocalFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    /// Takes a document; whether it was another one than the last.
    ///
    /// # Errors
    /// When it cannot be taken: it counts as not brought.
    fn take<'a>(
        &'a self,
        brought: Brought<'a>,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<bool, Fault>>;
}
