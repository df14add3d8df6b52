//! An HTTP/2 connection over a socket: a [`Driver`] moves bytes between the socket and the engine,
//! and [`Stream`]s, each in a task of its own, use the engine between them. All belong to one
//! thread. What many streams send goes out in one write.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use message::Field;

use super::driver::Driver;
use super::{Code, Engine, Fields, Head, Limits, NotOpen, OpenError, Role, StreamId};
use crate::Connection;
use crate::stream_observer::StreamObserver;

/// Why a stream has ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// The other side, or the engine in its name, has reset it.
    Reset(Code),
    /// The head of the response, or the trailers, are above the limits (431 in HTTP/1.1). The
    /// engine has reset the stream, and the connection goes on.
    TooLarge,
    /// The connection has ended.
    Closed,
}

/// One connection, to be used by its streams' tasks.
#[derive(Clone, Debug)]
pub struct Link(Rc<Shared>);

/// What the handles of a connection, its streams and its driver share.
#[derive(Debug)]
pub(super) struct Shared {
    pub is_server: bool,
    pub engine: RefCell<Engine>,
    pub slots: RefCell<HashMap<StreamId, Slot, BuildHasherDefault<ById>>>,
    /// Wakes the driver; none while it is about to be polled anyway.
    pub driver: RefCell<Option<Waker>>,
    pub is_closed: Cell<bool>,
    /// Whether no stream will be opened any more, so that the last one's end is the connection's.
    pub is_going: Cell<bool>,
    /// Whether the other side is asked for a sign of life, and no stream is opened meanwhile.
    pub is_suspected: Cell<bool>,
    /// Since when a sign of life is awaited that a stream has given up waiting for, while streams
    /// are opened as ever.
    pub probed_at: Cell<Option<Instant>>,
    /// When that may be asked for again, while the other side sends nothing but answers to it.
    pub next_probe: Cell<Option<Instant>>,
    /// How often it was asked.
    pub suspicions: Cell<u32>,
    /// How often something has arrived; it wraps around.
    pub arrivals: Cell<u32>,
    /// How many writes the socket has taken.
    pub writes: Cell<u64>,
    /// Called when a stream may be opened, and when none will be any more.
    pub observer: Rc<StreamObserver>,
}

/// What a stream's task waits for, and the error that it has not seen yet.
#[derive(Debug, Default)]
pub(super) struct Slot {
    waker: Option<Waker>,
    error: Option<StreamError>,
}

/// Numbers of streams are as good as their hashes.
#[derive(Default)]
pub(super) struct ById(u64);

impl Hasher for ById {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 << 8) | u64::from(*byte);
        }
    }

    fn write_u32(&mut self, id: u32) {
        // Odd multiplier: neighbours fall apart in the upper bits, which the map looks at too.
        self.0 = u64::from(id).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// One request and its response.
#[derive(Debug)]
pub struct Stream {
    shared: Rc<Shared>,
    id: StreamId,
    /// [`Shared::arrivals`] when it was opened.
    arrivals: u32,
}

/// How long a link may be asked for a sign of life before another stream that is given up on it
/// has further ones opened elsewhere.
const PROBE_TIME: Duration = Duration::from_secs(1);
/// How long a link is not asked again that has answered, unless it sends replies meanwhile.
const PROBE_PAUSE: Duration = Duration::from_secs(60);

/// Why a sign of life of the other side is awaited, with a number that tells one time from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suspicion {
    /// A stream was given up for which nothing had come. Streams are opened as ever.
    Probed(u32),
    /// The same, and there was no answer for a while. No stream is opened.
    Unanswered(u32),
    /// A reply is overdue ([`Link::suspect`]). No stream is opened.
    Overdue(u32),
}

/// What has been written to the socket so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batches {
    /// Writes that the socket has taken.
    pub writes: u64,
    /// HEADERS and DATA frames that were sent in them.
    pub frames: u64,
}

impl Link {
    /// Begins HTTP/2 on a connection. `observer` is told when a stream may be opened, and all
    /// that wait are when [`Link::may_open`] changes for all of them: at the peer's settings, when
    /// the connection is suspected, goes away or ends.
    pub fn new(
        connection: Connection,
        role: Role,
        limits: Limits,
        observer: Rc<StreamObserver>,
    ) -> (Self, Driver) {
        let shared = Rc::new(Shared {
            is_server: role == Role::Server,
            engine: RefCell::new(Engine::new(role, limits)),
            slots: RefCell::default(),
            driver: RefCell::default(),
            is_closed: Cell::new(false),
            is_going: Cell::new(false),
            is_suspected: Cell::new(false),
            probed_at: Cell::new(None),
            next_probe: Cell::new(None),
            suspicions: Cell::new(0),
            arrivals: Cell::new(0),
            writes: Cell::new(0),
            observer,
        });
        let driver = Driver::new(Rc::clone(&shared), connection);
        (Self(shared), driver)
    }

    /// Whether a stream can be opened now, and if not, whether one will be later.
    pub fn may_open(&self) -> Result<(), OpenError> {
        if self.0.is_closed.get() {
            return Err(OpenError::Closed);
        }
        let may_open = self.0.engine.borrow().may_open();
        match may_open {
            Ok(()) | Err(OpenError::TooManyStreams) if self.0.is_suspected.get() => {
                Err(OpenError::Suspected)
            }
            may_open => may_open,
        }
    }

    /// Whether no stream is open.
    pub fn is_idle(&self) -> bool {
        self.0.engine.borrow().is_idle()
    }

    /// How many streams are open.
    pub fn stream_count(&self) -> usize {
        self.0.slots.borrow().len()
    }

    /// How many frames have gone out in how many writes.
    pub fn batches(&self) -> Batches {
        Batches {
            writes: self.0.writes.get(),
            frames: self.0.engine.borrow().message_frames(),
        }
    }

    /// Whether the connection takes no more streams for good: it has ended, failed or is going
    /// away, whatever is still under way on it.
    pub fn is_over(&self) -> bool {
        matches!(
            self.may_open(),
            Err(OpenError::Closed | OpenError::GoingAway)
        )
    }

    /// Sends the head of a request; `end` tells that nothing follows.
    ///
    /// # Errors
    /// When no stream can be opened now.
    pub fn open<'a>(
        &self,
        head: RequestLine<'_>,
        fields: impl IntoIterator<Item = (Field, &'a [u8], &'a [u8])>,
        end: bool,
    ) -> Result<Stream, OpenError> {
        self.open_with(head, fields, &[], end)
            .map(|(stream, _)| stream)
    }

    /// Sends the head of a request and the beginning of its body; `end` tells that nothing follows.
    /// The answer is the stream, and how many bytes of the body were taken: `end` holds when all
    /// were, otherwise the rest is for [`Stream::send`].
    ///
    /// # Errors
    /// When no stream can be opened now.
    pub fn open_with<'a>(
        &self,
        head: RequestLine<'_>,
        fields: impl IntoIterator<Item = (Field, &'a [u8], &'a [u8])>,
        body: &[u8],
        end: bool,
    ) -> Result<(Stream, usize), OpenError> {
        if self.0.is_closed.get() {
            return Err(OpenError::Closed);
        }
        if self.0.is_suspected.get() {
            return Err(OpenError::Suspected);
        }
        let RequestLine {
            method,
            scheme,
            authority,
            path,
        } = head;
        let mut engine = self.0.engine.borrow_mut();
        let is_whole = end && body.is_empty();
        let id = engine.open(method, scheme, authority, path, fields, is_whole)?;
        let taken = match body {
            [] => 0,
            // invariant: a stream that was just opened takes data.
            body => engine.send_data(id, body, end).unwrap_or_default(),
        };
        drop(engine);
        self.0.slots.borrow_mut().insert(id, Slot::default());
        self.0.wake_driver();
        Ok((Stream::new(&self.0, id), taken))
    }

    /// How many more streams can be opened now.
    pub fn room(&self) -> usize {
        match self.may_open() {
            Ok(()) => self.0.engine.borrow().streams_left(),
            Err(_) => 0,
        }
    }

    /// Whether both are the same connection.
    pub fn is_same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }

    /// Frees the memory that a connection can do without on which nothing is under way.
    pub fn trim(&self) {
        self.0.engine.borrow_mut().trim();
        let mut slots = self.0.slots.borrow_mut();
        if slots.is_empty() {
            slots.shrink_to_fit();
        }
    }

    /// Begins a graceful end: nothing new is taken or opened, what is under way ends.
    pub fn go_away(&self) {
        let mut engine = self.0.engine.borrow_mut();
        engine.go_away(Code::NONE);
        if self.0.is_server {
            // Its answer tells that the other side has heard, so that what it had sent is here too.
            engine.ping(*b"goodbye!");
        }
        drop(engine);
        if !self.0.is_server {
            self.0.go();
        }
        self.0.wake_driver();
    }

    /// Asks the other side of a client's connection for a sign of life, because a reply is overdue.
    /// Until something arrives no stream is opened ([`OpenError::Suspected`]); streams under way go
    /// on. The driver's owner bounds the time ([`Driver::suspicion`]).
    pub fn suspect(&self) {
        let shared = &self.0;
        let is_overdue = shared.is_suspected.get() && shared.probed_at.get().is_none();
        if shared.is_server || shared.is_closed.get() || is_overdue {
            return;
        }
        shared.ask_for_sign_of_life();
        if shared.probed_at.take().is_some() {
            // The time for an answer begins anew, and is a shorter one.
            shared.suspicions.set(shared.suspicions.get() + 1);
        }
        shared.hold_back_streams();
    }

    /// Whether a sign of life is awaited.
    pub fn is_suspected(&self) -> bool {
        self.0.is_suspected.get()
    }
}

/// The control data of a request (RFC 9113, section 8.3.1).
#[derive(Clone, Copy, Debug)]
pub struct RequestLine<'a> {
    /// `:method`
    pub method: &'a [u8],
    /// `:scheme`
    pub scheme: &'a [u8],
    /// `:authority`
    pub authority: &'a [u8],
    /// `:path`
    pub path: &'a [u8],
}

impl Shared {
    #[inline]
    pub fn wake_driver(&self) {
        if let Some(waker) = self.driver.borrow_mut().take() {
            waker.wake();
        }
    }

    #[inline]
    pub fn wake(&self, id: StreamId, error: Option<StreamError>) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(&id) {
            slot.error = slot.error.or(error);
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
    }

    /// No stream will be opened any more.
    pub fn go(&self) {
        if !self.is_going.replace(true) {
            self.observer.capacity_changed();
        }
    }

    /// The other side has given a sign of life.
    pub fn clear_suspicion(&self) {
        self.probed_at.set(None);
        if self.is_suspected.replace(false) {
            self.observer.capacity_changed();
        }
    }

    /// Whether a sign of life is awaited.
    pub fn is_asked(&self) -> bool {
        self.is_suspected.get() || self.probed_at.get().is_some()
    }

    /// Sends a PING, unless the answer to one is awaited already.
    fn ask_for_sign_of_life(&self) {
        if self.is_asked() {
            return;
        }
        self.suspicions.set(self.suspicions.get() + 1);
        self.engine.borrow_mut().ping(*b"suspect?");
        self.wake_driver();
    }

    /// Until something arrives, no stream is opened: those who wait for one need another
    /// connection.
    pub fn hold_back_streams(&self) {
        if !self.is_suspected.replace(true) {
            self.observer.capacity_changed();
        }
    }

    /// The other side has answered a PING, and nothing else: it lives. Servers of gRPC end a
    /// connection that asks them again and again while they send no reply (`too_many_pings`).
    pub fn answered_ping(&self) {
        self.next_probe.set(Some(Instant::now() + PROBE_PAUSE));
    }

    /// A stream was given up and nothing at all has arrived since it was opened: whoever waited
    /// was impatient, or the connection is dead, which nobody else would find out who is as
    /// impatient. Streams are opened as ever for a while, for most of those who leave early do so
    /// for reasons of their own.
    #[cold]
    fn probe(&self) {
        match self.probed_at.get() {
            None if self.next_probe.get().is_some_and(|at| Instant::now() < at) => {}
            None => {
                self.ask_for_sign_of_life();
                if !self.is_suspected.get() {
                    self.probed_at.set(Some(Instant::now()));
                }
            }
            Some(at) if at.elapsed() >= PROBE_TIME => self.hold_back_streams(),
            Some(_) => {}
        }
    }

    /// The connection has ended, and with it every stream.
    pub fn close(&self) {
        if self.is_closed.replace(true) {
            return;
        }
        for slot in self.slots.borrow_mut().values_mut() {
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
        self.observer.capacity_changed();
    }
}

impl Stream {
    pub(super) fn new(shared: &Rc<Shared>, id: StreamId) -> Self {
        Self {
            shared: Rc::clone(shared),
            id,
            arrivals: shared.arrivals.get(),
        }
    }

    /// The head of the request at a server.
    pub fn take_head(&self) -> Option<Head> {
        self.shared.engine.borrow_mut().take_head(self.id)
    }

    /// Gives a head back that is no longer needed, for its memory.
    pub fn recycle(&self, head: Head) {
        self.shared.engine.borrow_mut().recycle(head);
    }

    /// Ready with the next head of the response at a client, interim ones included.
    ///
    /// # Errors
    /// When the stream has ended before one.
    pub fn poll_head(&self, context: &mut Context<'_>) -> Poll<Result<Head, StreamError>> {
        if let Some(head) = self.take_head() {
            return Poll::Ready(Ok(head));
        }
        match self.fate(context) {
            Some(error) => Poll::Ready(Err(error)),
            None => Poll::Pending,
        }
    }

    /// Why the stream has ended before its time, if it has; otherwise the task is woken when
    /// something happens to it.
    pub fn fate(&self, context: &mut Context<'_>) -> Option<StreamError> {
        let mut slots = self.shared.slots.borrow_mut();
        let slot = slots.get_mut(&self.id);
        // A stream that was refused before the connection ended can be repeated.
        if let Some(error) = slot.as_ref().and_then(|slot| slot.error) {
            return Some(error);
        }
        if self.shared.is_closed.get() {
            return Some(StreamError::Closed);
        }
        let slot = slot?;
        match &slot.waker {
            Some(waker) if waker.will_wake(context.waker()) => {}
            _ => slot.waker = Some(context.waker().clone()),
        }
        None
    }

    /// Whether nothing of the body is here although it has not ended, while the connection has
    /// other streams. A server that answers several at once writes their heads in front of their
    /// bodies: what follows is probably on its way.
    #[inline]
    pub fn may_follow_soon(&self) -> bool {
        self.shared.slots.borrow().len() > 1
            && self.read(|bytes, is_end| (0, bytes.is_empty() && !is_end))
    }

    /// Hands what has been received of the body to `take`, with whether the body ends behind it;
    /// as much as it says it has used is dropped. `take` may send on streams of other connections,
    /// not of this one.
    pub fn read<T>(&self, take: impl FnOnce(&[u8], bool) -> (usize, T)) -> T {
        let (used, result) = {
            let engine = self.shared.engine.borrow();
            let (bytes, end) = engine.readable(self.id);
            take(bytes, end)
        };
        if used > 0 {
            let mut engine = self.shared.engine.borrow_mut();
            let had_output = !engine.pending().is_empty();
            let was_overfull = engine.is_overfull();
            engine.consume(self.id, used);
            let has_news = !had_output && !engine.pending().is_empty();
            let has_room = was_overfull && !engine.is_overfull();
            drop(engine);
            if has_news {
                self.shared.wake_driver();
            }
            if has_room {
                self.shared.observer.capacity_changed();
            }
        }
        result
    }

    /// The trailers, once the body's end is there.
    pub fn take_trailers(&self) -> Option<Fields> {
        self.shared.engine.borrow_mut().take_trailers(self.id)
    }

    /// Sends the head of a response. A status below 200 makes it interim.
    ///
    /// # Errors
    /// When the stream is over.
    pub fn respond<'a>(
        &self,
        status: u16,
        fields: impl IntoIterator<Item = (Field, &'a [u8], &'a [u8])>,
        end: bool,
    ) -> Result<(), NotOpen> {
        let mut engine = self.shared.engine.borrow_mut();
        engine.respond(self.id, status, fields, end)?;
        drop(engine);
        self.shared.wake_driver();
        Ok(())
    }

    /// Sends some of the data; the answer is how much. When that is not all, the task is woken
    /// once there is room, provided that [`Stream::fate`] has been asked. `end` holds when all was
    /// taken.
    ///
    /// # Errors
    /// When the stream is over.
    pub fn send(&self, data: &[u8], end: bool) -> Result<usize, NotOpen> {
        let mut engine = self.shared.engine.borrow_mut();
        let count = engine.send_data(self.id, data, end)?;
        drop(engine);
        self.shared.wake_driver();
        Ok(count)
    }

    /// How much data [`Stream::send`] would take now.
    pub fn capacity(&self) -> usize {
        self.shared.engine.borrow().capacity(self.id)
    }

    /// Sends trailers, which end the stream.
    ///
    /// # Errors
    /// When the stream is over.
    pub fn send_trailers<'a>(
        &self,
        fields: impl IntoIterator<Item = (Field, &'a [u8], &'a [u8])>,
    ) -> Result<(), NotOpen> {
        let mut engine = self.shared.engine.borrow_mut();
        engine.send_trailers(self.id, fields)?;
        drop(engine);
        self.shared.wake_driver();
        Ok(())
    }

    /// Ends the stream at once.
    pub fn reset(&self, code: Code) {
        self.shared.engine.borrow_mut().reset(self.id, code);
        self.shared.wake_driver();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.slots.borrow_mut().remove(&self.id);
        let mut engine = self.shared.engine.borrow_mut();
        let had_output = engine.pending().len();
        engine.release(self.id);
        let has_more = engine.pending().len() != had_output;
        let is_idle = engine.is_idle();
        drop(engine);
        // An idle connection may have to end, which is the driver's owner's to know.
        if has_more || is_idle {
            self.shared.wake_driver();
        }
        let shared = &self.shared;
        let is_silent = shared.arrivals.get() == self.arrivals;
        if is_silent && !shared.is_server && !shared.is_closed.get() {
            shared.probe();
        }
        self.shared.observer.stream_ended();
    }
}
