//! Puts messages into a store.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use component::handler::{LocalFuture, Services, within};
use component::intake::DeadLetterTarget;
use component::state::States;
use config::{Report, Spanned};
use journal::{Refusal, Room};
use message::{Fault, Kind, Origin, Request, Retry};

use super::depot::Store;
use super::{envelope, name};

/// How long the disk may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// When it makes sense to come again after a full store or disk.
const COME_AGAIN: Duration = Duration::from_secs(5);

/// How much a store of dead letters takes: as much as the step `store` where it says nothing.
const DEAD_LETTERS: Room = Room {
    count: 1_000_000,
    bytes: 1 << 30,
};

/// The store of this name, for dead letters of sources.
pub fn dead_letters(
    name: &Spanned<String>,
    (states, report): (&States, &mut Report),
) -> Option<Arc<dyn DeadLetterTarget>> {
    let writer = StoreWriter::read(name, DEAD_LETTERS, (states, report))?;
    let shown = format!("store {}", writer.name());
    Some(Arc::new(DeadLetterStore { writer, shown }))
}

/// A store for dead letters.
struct DeadLetterStore {
    writer: StoreWriter,
    /// What logs call it.
    shown: String,
}

impl DeadLetterTarget for DeadLetterStore {
    fn name(&self) -> &str {
        &self.shown
    }

    fn keep<'a>(
        &'a self,
        letter: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            let appended = self.writer.append(String::new(), letter, services).await;
            appended.map(drop)
        })
    }
}

/// Puts messages into a store, from which a flow with the trigger `store` takes them.
#[derive(Clone)]
pub struct StoreWriter {
    store: Arc<Store>,
    room: Room,
}

impl StoreWriter {
    /// For the store of this name, which is a name.
    #[must_use]
    pub fn of(name: &str, room: Room, states: &States) -> Self {
        Self {
            store: Store::of(name, states),
            room,
        }
    }

    /// For the store that a file names. What is no name is reported.
    pub fn read(
        name: &Spanned<String>,
        room: Room,
        (states, report): (&States, &mut Report),
    ) -> Option<Self> {
        let before = report.errors();
        name::check(name, report);
        (report.errors() == before).then(|| Self::of(&name.value, room, states))
    }

    /// The store's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.store.name
    }

    /// Puts a message there, and gives its id once it is on the disk. Messages with the same key
    /// may be delivered in order.
    ///
    /// # Errors
    /// `unavailable` when the store is full or the disk takes nothing, `timeout` when it takes too
    /// long.
    pub async fn append(
        &self,
        key: String,
        request: Request,
        services: &dyn Services,
    ) -> Result<String, Fault> {
        let Some(outbox) = self.store.outbox() else {
            let fault = Fault::new(Kind::Internal, Origin::Engine, "the store is not open");
            return Err(fault);
        };
        let bytes = Bytes::from(envelope::encode(&request));
        drop(request);
        let appended = outbox.append(&self.store.name, Bytes::from(key), bytes, self.room);
        match within(PATIENCE, services, appended).await {
            Some(Ok(id)) => Ok(outbox.name(id)),
            Some(Err(refusal)) => Err(self.fault(&refusal)),
            None => Err(
                Fault::new(Kind::Timeout, Origin::Engine, "the disk took too long").with_cause(
                    format_args!("store {}: longer than {PATIENCE:?}", self.store.name),
                ),
            ),
        }
    }

    fn fault(&self, refusal: &Refusal) -> Fault {
        let (detail, retry) = match refusal {
            Refusal::Full => ("the store is full", Retry::Yes),
            Refusal::Busy | Refusal::NoSpace(_) => ("the store takes nothing now", Retry::Yes),
            _ => ("the store takes nothing now", Retry::No),
        };
        let fault = Fault::new(Kind::Unavailable, Origin::Engine, detail).with_retry(retry);
        let fault = match retry {
            Retry::No => fault,
            _ => fault.with_retry_after(COME_AGAIN),
        };
        fault.with_cause(format_args!("store {}: {refusal}", self.store.name))
    }
}
