//! An HTTP/2 connection over a socket: a [`Driver`] moves bytes between the socket and the engine,
//! and [`Stream`]s, each in a task of its own, use the engine between them. All belong to one
//! thread. What many streams have to say goes out in one write.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use message::Field;

use super::{Code, Engine, Event, Fields, Head, Limits, NotOpen, OpenError, Role, StreamId};
use crate::Connection;
use crate::queue::Queue;

/// Why a stream has ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// The other side, or the engine in its name, has reset it.
    Reset(Code),
    /// The connection has ended.
    Closed,
}

/// One connection, to be used by its streams' tasks.
#[derive(Clone, Debug)]
pub struct Link(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    is_server: bool,
    engine: RefCell<Engine>,
    slots: RefCell<HashMap<StreamId, Slot, BuildHasherDefault<ById>>>,
    driver: RefCell<Option<Waker>>,
    is_closed: Cell<bool>,
    /// Whether no stream will be opened any more, so that the last one's end is the connection's.
    is_going: Cell<bool>,
    /// Those who wait for a stream to be free.
    queue: Rc<Queue>,
}

/// What a stream's task waits for and has not been told yet.
#[derive(Debug, Default)]
struct Slot {
    waker: Option<Waker>,
    reset: Option<Code>,
}

/// Numbers of streams are as good as their hashes.
#[derive(Default)]
struct ById(u64);

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

/// Moves bytes between the socket and the engine. Whoever owns it polls it.
#[derive(Debug)]
pub struct Driver {
    shared: Rc<Shared>,
    connection: Connection,
    /// Whether there may be input that was there before HTTP/2 began.
    has_early_input: bool,
    moved: u64,
}

/// One request and its response.
#[derive(Debug)]
pub struct Stream {
    shared: Rc<Shared>,
    id: StreamId,
}

impl Link {
    /// Begins HTTP/2 on a connection. `queue` is called when a stream has become free.
    pub fn new(
        connection: Connection,
        role: Role,
        limits: Limits,
        queue: Rc<Queue>,
    ) -> (Self, Driver) {
        let shared = Rc::new(Shared {
            is_server: role == Role::Server,
            engine: RefCell::new(Engine::new(role, limits)),
            slots: RefCell::default(),
            driver: RefCell::default(),
            is_closed: Cell::new(false),
            is_going: Cell::new(false),
            queue,
        });
        let driver = Driver {
            shared: Rc::clone(&shared),
            has_early_input: !connection.input.is_empty(),
            connection,
            moved: 0,
        };
        (Self(shared), driver)
    }

    /// Whether a stream can be opened now, and if not, whether one will be later.
    pub fn may_open(&self) -> Result<(), OpenError> {
        if self.0.is_closed.get() {
            return Err(OpenError::Closed);
        }
        self.0.engine.borrow().may_open()
    }

    /// Whether no stream is open.
    pub fn is_idle(&self) -> bool {
        self.0.engine.borrow().is_idle()
    }

    /// How many streams are open.
    pub fn stream_count(&self) -> usize {
        self.0.slots.borrow().len()
    }

    /// Whether the connection is of no more use: it has ended, failed or is going away.
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
        if self.0.is_closed.get() {
            return Err(OpenError::Closed);
        }
        let RequestLine {
            method,
            scheme,
            authority,
            path,
        } = head;
        let mut engine = self.0.engine.borrow_mut();
        let id = engine.open(method, scheme, authority, path, fields, end)?;
        drop(engine);
        self.0.slots.borrow_mut().insert(id, Slot::default());
        self.0.wake_driver();
        Ok(Stream {
            shared: Rc::clone(&self.0),
            id,
        })
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
        } else {
            self.0.is_going.set(true);
        }
        drop(engine);
        self.0.wake_driver();
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
    fn wake_driver(&self) {
        if let Some(waker) = self.driver.borrow_mut().take() {
            waker.wake();
        }
    }

    #[inline]
    fn wake(&self, id: StreamId, reset: Option<Code>) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(&id) {
            slot.reset = slot.reset.or(reset);
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
    }

    fn close(&self) {
        self.is_closed.set(true);
        for slot in self.slots.borrow_mut().values_mut() {
            if let Some(waker) = slot.waker.take() {
                waker.wake();
            }
        }
        self.queue.wake_all();
    }
}

/// Without its driver a connection moves no bytes: its streams must not wait for any. The driver's
/// task may have panicked, or given up on a client that takes nothing.
impl Drop for Driver {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Driver {
    /// How many bytes have gone either way; tells progress.
    pub fn moved(&self) -> u64 {
        self.moved
    }

    /// Whether something waits to be written.
    pub fn has_output(&self) -> bool {
        !self.shared.engine.borrow().pending().is_empty()
    }

    /// Why the connection has failed, if it has.
    pub fn error(&self) -> Option<super::ConnectionError> {
        self.shared.engine.borrow().error()
    }

    /// Moves what can be moved. Ready with the next stream that the other side has opened, or with
    /// nothing when the connection has ended.
    pub fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Stream>> {
        self.register(context);
        if std::mem::take(&mut self.has_early_input) {
            self.receive();
        }
        loop {
            if let Some(stream) = self.take_events() {
                return Poll::Ready(Some(stream));
            }
            match self.write(context) {
                Err(_) => return self.end(),
                // What has room again now is told first.
                Ok(true) => continue,
                Ok(false) if self.is_finished() => return self.end(),
                Ok(false) if self.error().is_some() => return Poll::Pending,
                Ok(false) => {}
            }
            match self.connection.poll_fill(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(count)) if count > 0 => {
                    self.moved += count as u64;
                    self.receive();
                }
                Poll::Ready(_) => return self.end(),
            }
        }
    }

    /// Says that nothing more will be sent. Ready when the other side has ended too; what it still
    /// sends is dropped, for closing at once would make its kernel throw our last words away.
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
        let mut engine = self.shared.engine.borrow_mut();
        let input = &mut self.connection.input;
        // What failed is noted in the engine, and GOAWAY is in its output.
        let used = engine.receive(input.bytes(), Instant::now());
        match used {
            Ok(used) => input.consume(used),
            Err(_) => input.consume(input.len()),
        }
    }

    /// Writes what waits, as far as the socket takes it. True when it took anything.
    fn write(&mut self, context: &mut Context<'_>) -> std::io::Result<bool> {
        let mut engine = self.shared.engine.borrow_mut();
        let mut wrote = false;
        while !engine.pending().is_empty() {
            match self.connection.poll_write(context, engine.pending()) {
                Poll::Pending => break,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Ready(Ok(count)) => {
                    self.moved += count as u64;
                    engine.written(count);
                    wrote = true;
                }
            }
        }
        Ok(wrote)
    }

    /// Whether nothing is left to do: the connection has failed or is going away, nothing is under
    /// way, and everything has been said.
    fn is_finished(&self) -> bool {
        let engine = self.shared.engine.borrow();
        let going = self.shared.is_going.get() && engine.is_idle();
        (going || engine.error().is_some()) && engine.pending().is_empty()
    }

    /// Tells streams what has happened to them. Returns a stream that the other side has opened.
    fn take_events(&mut self) -> Option<Stream> {
        loop {
            let event = self.shared.engine.borrow_mut().next_event()?;
            match event {
                Event::Head { stream, .. } if self.shared.is_server => {
                    let mut slots = self.shared.slots.borrow_mut();
                    slots.insert(stream, Slot::default());
                    return Some(Stream {
                        shared: Rc::clone(&self.shared),
                        id: stream,
                    });
                }
                Event::Head { stream, .. }
                | Event::Data { stream }
                | Event::Writable { stream } => self.shared.wake(stream, None),
                Event::Reset { stream, code } => self.shared.wake(stream, Some(code)),
                Event::Settings | Event::GoAway { .. } => self.shared.queue.wake_all(),
                Event::Pong => {
                    self.shared.engine.borrow_mut().finish_going_away();
                    self.shared.is_going.set(true);
                }
            }
        }
    }
}

impl Stream {
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
        if self.shared.is_closed.get() {
            return Some(StreamError::Closed);
        }
        let mut slots = self.shared.slots.borrow_mut();
        let slot = slots.get_mut(&self.id)?;
        if let Some(code) = slot.reset {
            return Some(StreamError::Reset(code));
        }
        match &slot.waker {
            Some(waker) if waker.will_wake(context.waker()) => {}
            _ => slot.waker = Some(context.waker().clone()),
        }
        None
    }

    /// Hands what has been received of the body to `take`, with whether the body ends behind it;
    /// as much as it says it has used is dropped.
    pub fn read<T>(&self, take: impl FnOnce(&[u8], bool) -> (usize, T)) -> T {
        let (used, result) = {
            let engine = self.shared.engine.borrow();
            let (bytes, end) = engine.readable(self.id);
            take(bytes, end)
        };
        if used > 0 {
            let mut engine = self.shared.engine.borrow_mut();
            let had_output = !engine.pending().is_empty();
            engine.consume(self.id, used);
            if !had_output && !engine.pending().is_empty() {
                drop(engine);
                self.shared.wake_driver();
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
        self.shared.queue.wake_one();
    }
}
