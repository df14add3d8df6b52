//! Sessions that flows begin, while the gateway has yet to say which ones they are: a subscriber
//! may be quicker with a key.

use std::sync::Arc;
use std::time::Duration;

use component::dialogue::SessionEvent;
use component::handler::{Services, within};
use tokio::sync::watch;

use crate::in_use::{InUse, Used};
use crate::sessions::RecordKey;

/// How long a key waits for the gateway to say of which session it is.
pub(crate) const WAIT: Duration = Duration::from_secs(5);

/// The sessions that are begun, by their subscribers.
#[derive(Default)]
pub(crate) struct Pushing(Arc<InUse<Ended>>);

/// How many have been begun or given up.
type Ended = watch::Sender<u64>;

/// A session that is begun, until this is dropped.
pub(crate) struct Push(Used<Ended>);

/// One that is begun by somebody else.
pub(crate) struct UnderWay(watch::Receiver<u64>);

impl Pushing {
    /// Notes that a session of a subscriber is begun.
    pub fn begin(&self, subscriber: RecordKey) -> Push {
        Push(self.0.of(subscriber))
    }

    /// What there is to wait for where something happened in an unknown session, which may be of
    /// one that is begun. The session is not held meanwhile: it is kept by whoever begins it.
    pub fn under_way(&self, subscriber: RecordKey, event: &SessionEvent) -> Option<UnderWay> {
        let goes_on = match event {
            SessionEvent::Reply { .. } | SessionEvent::End => true,
            SessionEvent::Typed { text, .. } => !text.is_empty(),
            SessionEvent::Dial(_) | SessionEvent::Push(_) => false,
        };
        let ended = self.0.peek(subscriber).filter(|_| goes_on)?;
        Some(UnderWay(ended.subscribe()))
    }
}

impl UnderWay {
    /// Waits until one has been begun or given up, for at most this time.
    pub async fn ended(mut self, time: Duration, services: &dyn Services) {
        within(time, services, self.0.changed()).await;
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        self.0.send_modify(|ended| *ended += 1);
    }
}
