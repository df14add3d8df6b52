//! The order in which the screens of a session are sent, where they are not in the reply: one after
//! the other, and an older one no more when there is a newer.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use component::handler::Services;
use tokio::sync::watch;

use crate::in_use::{InUse, Used};
use crate::sessions::RecordKey;

/// How long a screen that is being sent may still take when there is a newer one: a request that
/// has left is better answered than overtaken.
const GRACE: Duration = Duration::from_secs(1);

/// The screens that are to be sent, by their sessions.
#[derive(Default)]
pub(crate) struct Outbox(Arc<InUse<Queue>>);

/// Those of a session.
#[derive(Default)]
struct Queue {
    /// The number of the newest one.
    newest: watch::Sender<u64>,
    /// Held by the one that is being sent.
    sending: tokio::sync::Mutex<()>,
}

/// A screen's place in the queue of its session.
pub(crate) struct Queued {
    queue: Used<Queue>,
    number: u64,
}

impl Outbox {
    /// Adds a screen behind those of its session: it is the newest one.
    pub fn add(&self, session: RecordKey) -> Queued {
        let queue = self.0.of(session);
        let mut number = 0;
        queue.newest.send_modify(|newest| {
            *newest += 1;
            number = *newest;
        });
        Queued { queue, number }
    }
}

impl Queued {
    /// Sends the screen when those before it have been sent or given up. `None` when it is given up
    /// itself, since there is a newer one.
    pub async fn send<T>(
        &self,
        services: &dyn Services,
        sending: impl Future<Output = T>,
    ) -> Option<T> {
        let mut newest = self.queue.newest.subscribe();
        let overtaken = async {
            // The sender is in the queue, which is held here.
            let _ = newest.wait_for(|newest| *newest > self.number).await;
        };
        let mut overtaken = pin!(overtaken);
        let _turn = unless(overtaken.as_mut(), self.queue.sending.lock()).await?;
        let over = async {
            overtaken.await;
            services.sleep(GRACE).await;
        };
        unless(over, sending).await
    }
}

/// Runs `work` until `stop` is ready: the output of `work`, or `None` when it was cancelled.
async fn unless<T>(stop: impl Future<Output = ()>, work: impl Future<Output = T>) -> Option<T> {
    let (mut stop, mut work) = (pin!(stop), pin!(work));
    poll_fn(|context| {
        if stop.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        work.as_mut().poll(context).map(Some)
    })
    .await
}

#[cfg(test)]
mod tests;
