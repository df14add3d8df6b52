//! What keeps other engines out of a session in a store that is shared: a value beside it that
//! expires when its engine is gone. A write of the session itself asks for its version all the
//! same, so that an engine that was held up for longer does no harm.
//!
//! A task has the lease from the first write to the last: whoever asks for it may be dropped at any
//! time. Its value is a random number, so that after a fault of the store, which may or may not
//! have written, the task can tell its own lease from that of others.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use component::handler::{Services, within};
use component::key_value::{KeyValueStore, Version, Write};
use message::{Fault, Kind, Origin};
use tokio::sync::oneshot;
use uuid::Uuid;

/// How long other engines wait for one that is gone.
const TTL: Duration = Duration::from_secs(5);
/// The time from one renewal to the next.
const RENEWAL: Duration = Duration::from_millis(1500);
/// The same where the store has not answered.
const RENEWAL_AGAIN: Duration = Duration::from_millis(300);
/// How often it is tried to give a lease back, and the time from one try to the next. It expires
/// by itself then.
const RELEASES: u32 = 5;
const RELEASE_AGAIN: Duration = Duration::from_secs(1);
/// The time from one try to take it to the next: first and longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(80));

/// A session is this engine's until the lease is dropped.
#[derive(Debug)]
pub(super) struct Lease {
    _held: oneshot::Sender<()>,
}

/// What comes of asking for a lease; `None` when another engine has it.
type Answer = Result<Option<Lease>, Fault>;

impl Lease {
    /// Waits until no other engine has it. Whoever waits has a deadline.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn take(
        store: &Arc<dyn KeyValueStore>,
        name: &[u8],
        services: &dyn Services,
    ) -> Result<Self, Fault> {
        let mut pause = PAUSE.0;
        loop {
            if let Some(lease) = Self::take_now(store, name, services).await? {
                return Ok(lease);
            }
            services.sleep(pause).await;
            pause = (pause * 2).min(PAUSE.1);
        }
    }

    /// The lease, when nobody has it.
    ///
    /// # Errors
    /// When the store does not answer.
    pub async fn take_now(
        store: &Arc<dyn KeyValueStore>,
        name: &[u8],
        services: &dyn Services,
    ) -> Answer {
        let (answer, answered) = oneshot::channel();
        let (store, name) = (Arc::clone(store), [name, b":lease"].concat());
        services.spawn(Box::new(move |services| {
            Box::pin(async move {
                let holder = Holder {
                    store: &*store,
                    name: &name,
                    token: Bytes::copy_from_slice(Uuid::new_v4().as_bytes()),
                    services,
                };
                holder.run(answer).await;
            })
        }));
        answered.await.unwrap_or_else(|_| {
            let detail = "the engine stops";
            Err(Fault::new(Kind::Unavailable, Origin::Engine, detail))
        })
    }
}

/// What is known of a lease.
enum Standing {
    /// It is ours, with this version.
    Ours(Version),
    Free,
    Others,
}

/// The task that has a lease.
struct Holder<'a> {
    store: &'a dyn KeyValueStore,
    name: &'a [u8],
    /// The value, which no other holder has.
    token: Bytes,
    services: &'a dyn Services,
}

impl Holder<'_> {
    /// Takes the lease when nobody has it, and has it until it is dropped.
    async fn run(&self, answer: oneshot::Sender<Answer>) {
        let taken = match self.write(None).await {
            // The answer may have been lost behind the write.
            Err(fault) => match self.look().await {
                Ok(Standing::Free) | Err(_) => Err(fault),
                seen => seen,
            },
            written => written,
        };
        let version = match taken {
            Ok(Standing::Ours(version)) => version,
            Ok(Standing::Free | Standing::Others) => {
                // Whoever asked may have gone away.
                let _ = answer.send(Ok(None));
                return;
            }
            Err(fault) => {
                let _ = answer.send(Err(fault));
                return self.release(None).await;
            }
        };
        let (held, dropped) = oneshot::channel();
        // Where nobody is there to get it, it is dropped here.
        drop(answer.send(Ok(Some(Lease { _held: held }))));
        self.renew(version, dropped).await;
    }

    /// Renews the lease until it is dropped, then releases it.
    async fn renew(&self, version: Version, mut dropped: oneshot::Receiver<()>) {
        let mut version = Some(version);
        let mut pause = RENEWAL;
        while within(pause, self.services, &mut dropped).await.is_none() {
            let renewed = match version {
                Some(_) => self.write(version).await,
                None => self.look().await,
            };
            (version, pause) = match renewed {
                Ok(Standing::Ours(next)) if version.is_some() => (Some(next), RENEWAL),
                // It has been found: it is renewed at once.
                Ok(Standing::Ours(found)) => (Some(found), Duration::ZERO),
                // It had expired, and nobody has taken it.
                Ok(Standing::Free) => match self.write(None).await {
                    Ok(Standing::Ours(next)) => (Some(next), RENEWAL),
                    _ => (None, RENEWAL_AGAIN),
                },
                Ok(Standing::Others) => {
                    let text = "another engine has taken a lease, this one was held up for long";
                    tracing::warn!(target: "menu", "{text}");
                    return;
                }
                Err(fault) => {
                    tracing::debug!(target: "menu", %fault, "a lease is not renewed");
                    (None, RENEWAL_AGAIN)
                }
            };
        }
        self.release(version).await;
    }

    /// Gives the lease back if it is ours. If the store does not answer, it expires.
    async fn release(&self, mut version: Option<Version>) {
        for _ in 0..RELEASES {
            let released = match version {
                Some(version) => self.delete(version).await,
                None => self.look().await,
            };
            match released {
                // It is found only where its version was not known.
                Ok(Standing::Ours(found)) => version = Some(found),
                Ok(Standing::Free | Standing::Others) => return,
                Err(fault) => {
                    tracing::debug!(target: "menu", %fault, "a lease is not released yet");
                    version = None;
                    self.services.sleep(RELEASE_AGAIN).await;
                }
            }
        }
    }

    /// Writes the lease where it has this version. Where it has another one, looks whose it is.
    async fn write(&self, expected: Option<Version>) -> Result<Standing, Fault> {
        let write = Write {
            is_synced: false,
            expected,
            value: self.token.clone(),
            ttl: TTL,
        };
        let written = self.store.compare_and_set(self.name, write, self.services);
        match written.await? {
            Some(version) => Ok(Standing::Ours(version)),
            // A new one is never ours.
            None if expected.is_none() => Ok(Standing::Others),
            None => self.look().await,
        }
    }

    /// Deletes the lease where it has this version. Where it has another one, looks whose it is.
    async fn delete(&self, version: Version) -> Result<Standing, Fault> {
        let deleted = self
            .store
            .compare_and_delete(self.name, version, self.services);
        match deleted.await? {
            true => Ok(Standing::Free),
            false => self.look().await,
        }
    }

    /// Looks whose lease it is.
    async fn look(&self) -> Result<Standing, Fault> {
        let entry = self.store.get(self.name, self.services).await?;
        Ok(match entry {
            Some(entry) if entry.value == self.token => Standing::Ours(entry.version),
            Some(_) => Standing::Others,
            None => Standing::Free,
        })
    }
}
