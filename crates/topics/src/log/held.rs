//! `keep: { for: webhooks }`: events that an endpoint of a topic's webhooks has not got stay,
//! whatever else `keep` says. What that takes is bounded by refusing publishers, so that nothing
//! that was acknowledged is lost.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use message::{Fault, Kind, Origin, Retry};

use super::Log;
use crate::settings::{Payload, Settings};
use crate::store::{Kept, RecordKind};
use crate::webhooks::EndpointState;

/// When a publisher that is refused may come again.
const COME_AGAIN: Duration = Duration::from_secs(5);

/// Who holds events of a log.
#[derive(Default)]
pub(super) struct Held {
    by: Mutex<Arc<[Arc<EndpointState>]>>,
    /// From which event on they were held when that was last told the store.
    from: AtomicU64,
    /// Whether it has been logged that publishers are refused.
    is_told: AtomicBool,
}

/// The endpoint that is furthest behind of those that hold events, and the last event that it has
/// got. One that is paused or disabled holds none: nobody knows whether it ever comes back.
fn slowest(by: &[Arc<EndpointState>]) -> Option<(&Arc<EndpointState>, u64)> {
    let holding = by.iter().filter_map(|it| Some((it, it.holds_behind()?)));
    holding.min_by_key(|(_, done)| *done)
}

impl Log {
    /// The first event that somebody needs, with those before it that it is made from.
    fn first_needed(&self, by: &[Arc<EndpointState>]) -> u64 {
        let Some((_, done)) = slowest(by) else {
            return u64::MAX;
        };
        let first = done + 1;
        match self.payload {
            Payload::Event => first,
            // What cannot be found is not given up.
            Payload::Snapshot => {
                let whole = RecordKind::Whole;
                let found = self.store.last_of_kind(&self.stored_as, whole, first);
                found.ok().flatten().unwrap_or(0)
            }
        }
    }

    /// What the store has to keep for these settings, with these endpoints.
    pub fn kept_as(&self, settings: &Settings, by: &[Arc<EndpointState>]) -> Kept {
        let from = match settings.keep.for_webhooks {
            true => self.first_needed(by),
            false => u64::MAX,
        };
        Kept {
            from,
            ..settings.kept()
        }
    }

    /// What the store has to keep now.
    pub fn kept(&self) -> Kept {
        self.kept_as(&self.settings(), &self.holders())
    }

    /// From here on these endpoints hold events, if the settings say so.
    pub fn set_holders(&self, by: Arc<[Arc<EndpointState>]>) {
        *self.held.by.lock().unwrap_or_else(PoisonError::into_inner) = by;
    }

    fn holders(&self) -> Arc<[Arc<EndpointState>]> {
        let by = self.held.by.lock();
        Arc::clone(&by.unwrap_or_else(PoisonError::into_inner))
    }

    /// Lets go of what no endpoint needs any more.
    pub fn release(self: &Arc<Self>) {
        let settings = self.settings();
        if !settings.keep.for_webhooks {
            return;
        }
        let from = self.first_needed(&self.holders());
        if self.held.from.swap(from, Ordering::AcqRel) == from {
            return;
        }
        let log = Arc::clone(self);
        // What is kept is looked at when it is the chore's turn: it may be said anew before.
        let chore = async move {
            let kept = log.kept();
            log.store.declare(&log.stored_as, kept).await.map(drop)
        };
        self.sequencer.chore(self.durability, Box::pin(chore));
    }

    /// Why nothing new may be published now, if nothing may: as much is held as is to be kept.
    pub fn is_full(self: &Arc<Self>) -> Option<Fault> {
        let settings = self.settings();
        if !settings.keep.for_webhooks {
            return None;
        }
        let holders = self.holders();
        let found = self.store.find(&self.stored_as);
        let found = found
            .filter(|it| it.bytes > settings.keep.bytes && it.first >= self.first_needed(&holders));
        let behind = found.zip(slowest(&holders));
        let behind = behind.filter(|(found, (_, done))| done + 1 < found.next);
        let Some((found, (endpoint, done))) = behind else {
            if self.held.is_told.swap(false, Ordering::Relaxed) {
                let topic = &*self.name;
                tracing::info!(target: "topics", topic, "publishers are accepted again");
            }
            return None;
        };
        // It may have got further since.
        self.release();
        let (topic, endpoint, bytes) = (&*self.name, &*endpoint.name, found.bytes);
        let waiting = found.next.saturating_sub(done + 1);
        if !self.held.is_told.swap(true, Ordering::Relaxed) {
            tracing::error!(
                target: "topics", topic, endpoint, waiting, bytes,
                "publishers are refused: as much waits for a webhook as may be kept"
            );
        }
        let detail = "the topic takes nothing now: its webhooks have not got what is kept for them";
        let fault = Fault::new(Kind::Unavailable, Origin::Engine, detail)
            .with_retry(Retry::Yes)
            .with_retry_after(COME_AGAIN)
            .with_cause(format_args!(
                "topic {topic}: {waiting} events wait for the webhook {endpoint}"
            ));
        Some(fault)
    }
}
