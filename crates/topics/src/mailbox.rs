//! Where a worker gets the events of a topic: one message for each event, bounded by bytes.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::event::{Content, Event};

/// The most bytes of events in a mailbox; one event fits in any case.
const BYTES_MAX: usize = 16 << 20;
/// How long whoever publishes waits for a worker that does not take its events.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5000 });

/// No more events come from here: the worker did not take them for so long that some are lost, or
/// the topic has ended. Attach again, and ask the history for what is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// The events of a topic from some moment on, in order.
#[derive(Debug)]
pub struct Mailbox(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    /// There is room again.
    taken: Condvar,
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    waker: Option<Waker>,
    /// Nobody takes any more.
    is_left: bool,
    /// Nothing more comes.
    is_over: bool,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mailbox {
    /// Waits for events and takes all that are there: at least one, the oldest first, put behind
    /// what is in `events`.
    ///
    /// # Errors
    /// When no more events come from here.
    pub async fn take(&mut self, events: &mut Vec<Arc<Event>>) -> Result<(), Lost> {
        poll_fn(|context| self.poll_take(context, events)).await
    }

    /// The same as a poll.
    pub fn poll_take(
        &mut self,
        context: &mut Context<'_>,
        events: &mut Vec<Arc<Event>>,
    ) -> Poll<Result<(), Lost>> {
        let mut state = self.0.state();
        if state.events.is_empty() {
            if state.is_over {
                return Poll::Ready(Err(Lost));
            }
            match &mut state.waker {
                Some(waker) => waker.clone_from(context.waker()),
                waker => *waker = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        events.extend(state.events.drain(..));
        state.bytes = 0;
        drop(state);
        self.0.taken.notify_one();
        Poll::Ready(Ok(()))
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        self.0.state().is_left = true;
        self.0.taken.notify_one();
    }
}

/// The other end of a mailbox.
#[derive(Debug)]
pub(crate) struct Sender(Arc<Inner>);

/// A mailbox and its other end.
pub(crate) fn mailbox() -> (Sender, Mailbox) {
    let inner = Arc::new(Inner::default());
    (Sender(Arc::clone(&inner)), Mailbox(inner))
}

impl Sender {
    /// Puts events in, and waits for room when there is none. False when nobody takes them.
    pub fn put(&self, events: &[Arc<Event>]) -> bool {
        let mut waker = None;
        let mut state = self.0.state();
        for event in events {
            let size = weight(event);
            let mut until = None;
            while state.bytes + size > BYTES_MAX && state.bytes > 0 && !state.is_left {
                if let Some(waker) = state.waker.take() {
                    waker.wake();
                }
                let until = *until.get_or_insert_with(|| Instant::now() + PATIENCE);
                let left = until.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    tracing::error!(
                        target: "topics",
                        "a worker does not take the events of a topic: it has to attach again"
                    );
                    drop(state);
                    self.end(true);
                    return false;
                }
                let waited = self.0.taken.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
            state.bytes += size;
            state.events.push_back(Arc::clone(event));
        }
        if state.is_left {
            return false;
        }
        if !state.events.is_empty() {
            waker = state.waker.take();
        }
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    fn end(&self, is_lost: bool) {
        let mut state = self.0.state();
        state.is_over = true;
        if is_lost {
            // Those behind a gap are not what comes next.
            state.events.clear();
            state.bytes = 0;
        }
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.end(false);
    }
}

/// About how many bytes an event takes.
pub(crate) fn weight(event: &Event) -> usize {
    let content = match &event.content {
        Content::Event(body) => body.len(),
        Content::Snapshot { whole, patch } => whole.len() + patch.as_ref().map_or(0, |it| it.len()),
    };
    content + 128
}
