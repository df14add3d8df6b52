//! Sessions that flows begin, while the gateway has yet to say which ones they are: a subscriber
//! may be quicker with a key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use component::dialogue::SessionEvent;
use component::handler::{Services, within};
use tokio::sync::watch;

use crate::sessions::RecordKey;

/// How long a key waits for the gateway to say of which session it is.
const WAIT: Duration = Duration::from_secs(5);

/// The sessions that are begun, by their subscribers.
#[derive(Default)]
pub(crate) struct Pushing(Mutex<HashMap<RecordKey, Arc<Ended>>>);

/// How many have been begun or given up.
type Ended = watch::Sender<u64>;

/// A session that is begun, until this is dropped.
pub(crate) struct Push {
    pushing: Arc<Pushing>,
    subscriber: RecordKey,
    ended: Arc<Ended>,
}

impl Pushing {
    fn all(&self) -> MutexGuard<'_, HashMap<RecordKey, Arc<Ended>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a session of a subscriber is begun.
    pub fn begin(self: &Arc<Self>, subscriber: RecordKey) -> Push {
        let ended = Arc::clone(self.all().entry(subscriber).or_default());
        Push {
            pushing: Arc::clone(self),
            subscriber,
            ended,
        }
    }

    /// What there is to wait for where something happened in an unknown session, which may be of
    /// one that is begun. The session is not held meanwhile: it is kept by whoever begins it.
    pub fn under_way(&self, subscriber: RecordKey, event: &SessionEvent) -> Option<UnderWay> {
        let goes_on = match event {
            SessionEvent::Reply { .. } | SessionEvent::End => true,
            SessionEvent::Typed { text, .. } => !text.is_empty(),
            SessionEvent::Dial(_) | SessionEvent::Push(_) => false,
        };
        let all = self.all();
        let ended = all.get(&subscriber).filter(|_| goes_on)?;
        Some(UnderWay(ended.subscribe()))
    }
}

/// A session that is begun by somebody else.
pub(crate) struct UnderWay(watch::Receiver<u64>);

impl UnderWay {
    /// Waits until it has been begun or given up, for a while.
    pub async fn ended(mut self, services: &dyn Services) {
        within(WAIT, services, self.0.changed()).await;
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        let mut all = self.pushing.all();
        // One reference is this one, the other that of the map.
        if Arc::strong_count(&self.ended) == 2 {
            all.remove(&self.subscriber);
        }
        self.ended.send_modify(|ended| *ended += 1);
    }
}
