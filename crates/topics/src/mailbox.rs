//! Where a worker gets the events of a topic: one message for each event, bounded by bytes.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::event::{Content, Event};

/// With so many bytes of events a mailbox is full: its topic takes nothing more until the worker
/// has taken them. What is on its way by then still goes in.
pub(crate) const BYTES_MAX: usize = if cfg!(test) { 256 << 10 } else { 16 << 20 };
/// How long publishers of a topic wait for a worker that does not take its events.
pub(crate) const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 300 } else { 5000 });

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
}

#[derive(Debug, Default)]
struct State {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    waker: Option<Waker>,
    /// Since when somebody waits for room, and who does.
    full_since: Option<Instant>,
    publisher: Option<Waker>,
    /// Nobody takes any more.
    is_left: bool,
    /// Nothing more comes.
    is_over: bool,
}

impl State {
    /// There is room again: who waits for it.
    fn make_room(&mut self) -> Option<Waker> {
        self.full_since = None;
        self.publisher.take()
    }
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
        let publisher = state.make_room();
        drop(state);
        if let Some(publisher) = publisher {
            publisher.wake();
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.is_left = true;
        let publisher = state.make_room();
        drop(state);
        if let Some(publisher) = publisher {
            publisher.wake();
        }
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

/// How a mailbox is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fill {
    /// It has room.
    Room,
    /// It has none, and is waited for since then.
    Full(Instant),
    /// Nobody takes any more.
    Left,
}

impl Sender {
    /// Puts events in, and never waits: what is on its way has to go somewhere. `None` when nobody
    /// takes them, else whether there is room for more.
    pub fn put(&self, events: &[Arc<Event>]) -> Option<bool> {
        let mut state = self.0.state();
        if state.is_left {
            return None;
        }
        for event in events {
            state.bytes += weight(event);
            state.events.push_back(Arc::clone(event));
        }
        let has_room = state.bytes < BYTES_MAX;
        let waker = match state.events.is_empty() {
            true => None,
            false => state.waker.take(),
        };
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Some(has_room)
    }

    /// How it is; without room, this publisher is woken when there is some.
    pub fn fill(&self, now: Instant, publisher: &Waker) -> Fill {
        let mut state = self.0.state();
        if state.is_left {
            return Fill::Left;
        }
        if state.bytes < BYTES_MAX {
            return Fill::Room;
        }
        state.publisher = Some(publisher.clone());
        Fill::Full(*state.full_since.get_or_insert(now))
    }

    /// The worker has not taken its events for too long: it has to attach again.
    pub fn lose(&self) {
        self.end(true);
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
