//! The driver of an HTTP/2 connection: it alone reads from the socket and writes to it.

use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use super::link::{Shared, Slot, Stream, StreamError, Suspicion};
use super::{Code, ConnectionError, Event, OpenError};
use crate::Connection;
use crate::budget::{self, Budget};

/// Above so much output that the socket does not take, nothing more is read.
const OUTPUT_MAX: usize = 512 * 1024;

/// With so much output it is written at once. More in one write saves little, and while the driver
/// waits for it the other side has nothing to do: with all of 100 requests in one write the two
/// sides worked in turns, and a sixth of the throughput was gone.
const BATCH: usize = 2048;

/// Moves bytes between the socket and the engine. Whoever owns it polls it, and bounds how long
/// the other side may take: see [`Driver::is_blocked`], [`Driver::unfinished`] and
/// [`Driver::suspicion`]. When it is dropped, every stream has ended.
#[derive(Debug)]
pub struct Driver {
    shared: Rc<Shared>,
    connection: Connection,
    /// Whether there may be input that was there before HTTP/2 began.
    has_early_input: bool,
    /// Whether it has let other tasks go first, so that what they send is in the next write.
    has_yielded: bool,
    /// Whether the socket takes no more for now.
    is_blocked: bool,
    /// Whether the socket takes no more.
    has_write_error: bool,
    written: u64,
    /// What it has received since it last gave way to others.
    budget: Budget,
}

impl Driver {
    pub(super) fn new(shared: Rc<Shared>, connection: Connection) -> Self {
        Self {
            shared,
            has_early_input: !connection.input.is_empty(),
            connection,
            has_yielded: false,
            is_blocked: false,
            has_write_error: false,
            written: 0,
            budget: Budget::default(),
        }
    }

    /// How many bytes the socket has taken; tells progress.
    pub fn written(&self) -> u64 {
        self.written + self.connection.records_taken()
    }

    /// Whether something waits to be written that the socket does not take.
    pub fn is_blocked(&self) -> bool {
        let has_output = !self.shared.engine.borrow().pending().is_empty();
        (self.is_blocked && has_output) || !self.connection.is_flushed()
    }

    /// What the other side has begun to send and not finished, other than DATA: see
    /// [`super::Engine::unfinished`].
    pub fn unfinished(&self) -> Option<u64> {
        let rest = self.connection.input.bytes();
        self.shared.engine.borrow().unfinished(rest)
    }

    /// Why a sign of life is awaited, while it is.
    pub fn suspicion(&self) -> Option<Suspicion> {
        let shared = &self.shared;
        let number = shared.suspicions.get();
        match (shared.probed_at.get(), shared.is_suspected.get()) {
            (None, false) => None,
            (Some(_), false) => Some(Suspicion::Probed(number)),
            (Some(_), true) => Some(Suspicion::Unanswered(number)),
            (None, true) => Some(Suspicion::Overdue(number)),
        }
    }

    /// No further stream is opened until a sign of life comes: a probe has not been answered.
    pub fn hold_back_streams(&self) {
        self.shared.hold_back_streams();
    }

    /// Why the connection has failed, if it has.
    pub fn error(&self) -> Option<ConnectionError> {
        self.shared.engine.borrow().error()
    }

    /// Ends the connection and all its streams for a reason of the owner's. GOAWAY tells the other
    /// side.
    pub fn abort(&mut self, code: Code, reason: &'static str) {
        self.shared.engine.borrow_mut().abort(code, reason);
        self.shared.close();
    }

    /// Moves what can be moved. Ready with the next stream that the other side has opened, or with
    /// nothing when the connection has ended.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Stream>> {
        let next = self.poll_turn(context);
        if next.is_pending() {
            self.budget.refill();
        }
        next
    }

    #[inline]
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<Option<Stream>> {
        if self.lets_others_go_first(context) {
            return Poll::Pending;
        }
        self.register(context);
        if std::mem::take(&mut self.has_early_input) {
            self.receive();
        }
        loop {
            if let Some(stream) = self.take_events() {
                return Poll::Ready(Some(stream));
            }
            match self.write(context) {
                // The other side has stopped reading. Replies that it sent before are still read:
                // the end of the input is the connection's.
                Err(_) => self.has_write_error = true,
                // Streams that have room again are woken first.
                Ok(true) => continue,
                Ok(false) if self.is_finished() => return self.end(),
                Ok(false) if self.error().is_some() => return Poll::Pending,
                Ok(false) => {}
            }
            if self.holds_too_much() {
                return Poll::Pending;
            }
            if self.budget.yields(context) {
                return Poll::Pending;
            }
            match self.connection.poll_fill(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(count)) if count > 0 => self.receive(),
                Poll::Ready(_) => return self.end(),
            }
        }
    }

    /// Says that nothing more will be sent. Ready when the other side has ended too; what it still
    /// sends is dropped, for closing at once would make its kernel throw our last words away. The
    /// owner bounds the time.
    pub fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if ready!(self.connection.poll_finish(context)).is_err() {
            return Poll::Ready(());
        }
        loop {
            let waiting = self.connection.input.len();
            self.connection.input.consume(waiting);
            if !matches!(ready!(self.connection.poll_fill(context)), Ok(count) if count > 0) {
                return Poll::Ready(());
            }
        }
    }

    /// Before a write, tasks that are ready to run do so once: what they send goes out with it.
    /// Where only one stream is open nobody has anything to add, and there is no delay.
    #[inline]
    fn lets_others_go_first(&mut self, context: &mut Context<'_>) -> bool {
        let pending = self.shared.engine.borrow().pending().len();
        if std::mem::take(&mut self.has_yielded)
            || self.is_blocked
            || self.shared.slots.borrow().len() < 2
            || pending == 0
            || pending >= BATCH
        {
            return false;
        }
        self.has_yielded = true;
        // Streams need not wake the driver: it comes back anyway, behind them.
        *self.shared.driver.borrow_mut() = None;
        // The runtime wakes it once the tasks that are ready have run. The future is done with.
        let _ = pin!(tokio::task::yield_now()).poll(context);
        true
    }

    #[inline]
    fn register(&self, context: &Context<'_>) {
        let mut driver = self.shared.driver.borrow_mut();
        if !driver
            .as_ref()
            .is_some_and(|waker| waker.will_wake(context.waker()))
        {
            *driver = Some(context.waker().clone());
        }
    }

    fn end(&mut self) -> Poll<Option<Stream>> {
        self.shared.close();
        Poll::Ready(None)
    }

    fn receive(&mut self) {
        let arrivals = &self.shared.arrivals;
        arrivals.set(arrivals.get().wrapping_add(1));
        let mut engine = self.shared.engine.borrow_mut();
        let input = &mut self.connection.input;
        let frames = engine.frames();
        let used = engine.receive(input.bytes(), Instant::now());
        let frames = u32::try_from(engine.frames() - frames).unwrap_or(u32::MAX);
        self.budget
            .spend(budget::READ + frames.saturating_mul(budget::FRAME));
        drop(engine);
        match used {
            Ok(used) => {
                input.consume(used);
                if used > 0 {
                    self.shared.clear_suspicion();
                }
            }
            // GOAWAY is in the engine's output. Streams end now, though it may never be written.
            Err(_) => {
                input.consume(input.len());
                self.shared.close();
            }
        }
    }

    /// Writes what waits, as far as the socket takes it. True when it took anything.
    fn write(&mut self, context: &mut Context<'_>) -> std::io::Result<bool> {
        let mut engine = self.shared.engine.borrow_mut();
        let before = self.written;
        self.is_blocked = false;
        if self.has_write_error {
            return Ok(false);
        }
        while !engine.pending().is_empty() {
            match self.connection.poll_write(context, engine.pending()) {
                Poll::Pending => {
                    self.is_blocked = true;
                    break;
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Ready(Ok(count)) => {
                    self.written += count as u64;
                    self.shared.writes.set(self.shared.writes.get() + 1);
                    engine.written(count);
                }
            }
        }
        Ok(self.written > before)
    }

    /// Whether so much waits for a client that nothing is read until it takes some. DATA is bounded
    /// by [`super::Limits::backlog`]; heads are not, and a client could ask for ever and read none.
    fn holds_too_much(&self) -> bool {
        let is_blocked = self.shared.is_server && self.is_blocked;
        is_blocked && self.shared.engine.borrow().pending().len() > OUTPUT_MAX
    }

    /// Whether nothing is left to do: the connection has failed or is going away, nothing is under
    /// way, and everything has been sent.
    fn is_finished(&self) -> bool {
        let engine = self.shared.engine.borrow();
        // At a client also when the stream numbers are used up.
        let is_used_up = !self.shared.is_server && engine.may_open() == Err(OpenError::GoingAway);
        let going = (self.shared.is_going.get() || is_used_up) && engine.is_idle();
        let has_output = !engine.pending().is_empty() && !self.has_write_error;
        (going || engine.error().is_some()) && !has_output
    }

    /// Tells streams what has happened to them. Returns a stream that the other side has opened.
    fn take_events(&mut self) -> Option<Stream> {
        loop {
            let event = self.shared.engine.borrow_mut().next_event()?;
            match event {
                Event::Head { stream, .. } if self.shared.is_server => {
                    let mut slots = self.shared.slots.borrow_mut();
                    slots.insert(stream, Slot::default());
                    drop(slots);
                    return Some(Stream::new(&self.shared, stream));
                }
                Event::Head { stream, .. } | Event::Data { stream } => {
                    self.shared.next_probe.set(None);
                    self.shared.wake(stream, None);
                }
                Event::Writable { stream } => self.shared.wake(stream, None),
                Event::Reset { stream, code } => {
                    self.shared.wake(stream, Some(StreamError::Reset(code)));
                }
                Event::TooLarge { stream } => {
                    self.shared.wake(stream, Some(StreamError::TooLarge));
                }
                Event::Settings => self.shared.observer.capacity_changed(),
                Event::GoAway { .. } if self.shared.is_server => {}
                // The server takes no more streams: the last one's end is the connection's.
                Event::GoAway { .. } => self.shared.go(),
                Event::Pong if self.shared.is_server => {
                    self.shared.engine.borrow_mut().finish_going_away();
                    self.shared.go();
                }
                Event::Pong => self.shared.answered_ping(),
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.close();
    }
}
