//! What keeps other engines out of a session in a store that is shared: a value beside it that
//! expires when its engine is gone. A write of the session itself asks for its version all the
//! same, so that an engine that was held up for longer does no harm.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use component::handler::{Services, within};
use component::key_value::{KeyValueStore, Version, Write};
use message::Fault;
use tokio::sync::oneshot;

/// How long other engines wait for one that is gone.
const TTL: Duration = Duration::from_secs(5);
/// The time from one renewal to the next.
const RENEWAL: Duration = Duration::from_millis(1500);
/// The time from one try to the next: first and longest.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(80));

/// A session is this engine's until the lease is dropped.
pub(super) struct Lease {
    _held: oneshot::Sender<()>,
}

fn write(expected: Option<Version>) -> Write {
    Write {
        is_synced: false,
        expected,
        value: Bytes::new(),
        ttl: TTL,
    }
}

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
    ) -> Result<Option<Self>, Fault> {
        let name = [name, b":lease"].concat();
        let taken = store.compare_and_set(&name, write(None), services).await?;
        let Some(version) = taken else {
            return Ok(None);
        };
        let (held, dropped) = oneshot::channel();
        let store = Arc::clone(store);
        services.spawn(Box::new(move |services| {
            Box::pin(async move { renew(&*store, &name, version, dropped, services).await })
        }));
        Ok(Some(Self { _held: held }))
    }
}

/// Renews the lease until it is dropped, then releases it. If the store does not answer, it
/// expires.
async fn renew(
    store: &dyn KeyValueStore,
    name: &[u8],
    mut version: Version,
    mut dropped: oneshot::Receiver<()>,
    services: &dyn Services,
) {
    while within(RENEWAL, services, &mut dropped).await.is_none() {
        let renewed = store.compare_and_set(name, write(Some(version)), services);
        match renewed.await {
            Ok(Some(next)) => version = next,
            Ok(None) => return,
            Err(fault) => {
                tracing::debug!(target: "menu", %fault, "a lease is not renewed");
            }
        }
    }
    if let Err(fault) = store.compare_and_delete(name, version, services).await {
        tracing::debug!(target: "menu", %fault, "a lease is not released and will expire");
    }
}
