//! A client that tests write for and read from, services with a clock that tests move, and a
//! flow that answers what it is told to.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use component::handler::{Call, Callee, LocalFuture, Services, Work};
use component::resources::Resources;
use component::stream::Client;
use message::{Fault, Kind, Origin, Reply};
use net::websocket::{self, Deflate, Event, Limits, Reader, Role, Writer};

/// Both directions of a connection.
#[derive(Default)]
pub struct Wire {
    /// What the client has sent and nobody has read.
    pub sent: RefCell<VecDeque<u8>>,
    /// What it got.
    pub got: RefCell<Vec<u8>>,
    /// How many bytes it takes before somebody says more.
    pub takes: Cell<usize>,
    /// How many bytes of TLS records it has taken.
    pub records: Cell<u64>,
    /// Whether it has gone.
    pub is_gone: Cell<bool>,
    /// Whether the other side has ended the connection.
    pub is_finished: Cell<bool>,
    /// Whether the engine stops.
    pub stops: Cell<bool>,
}

impl Wire {
    /// A client that takes everything.
    pub fn new() -> Rc<Self> {
        let wire = Self::default();
        wire.takes.set(usize::MAX);
        Rc::new(wire)
    }

    /// Sends frames as a client does.
    pub fn send(&self, write: impl FnOnce(&Writer, &mut Vec<u8>)) {
        self.send_with(None, write);
    }

    /// The same where compression was agreed on.
    pub fn send_with(&self, deflate: Option<Deflate>, write: impl FnOnce(&Writer, &mut Vec<u8>)) {
        let mut bytes = Vec::new();
        let role = Role::Client;
        write(&Writer { role, deflate }, &mut bytes);
        self.sent.borrow_mut().extend(bytes);
    }

    /// Sends a text.
    pub fn text(&self, text: &str) {
        self.send(|writer, out| writer.message(websocket::Kind::Text, text.as_bytes(), out));
    }

    /// What it got since it was asked last.
    pub fn events(&self) -> Vec<Event> {
        let bytes = std::mem::take(&mut *self.got.borrow_mut());
        let mut reader = Reader::new(Role::Client, Limits::of_message(1 << 24), None);
        let (mut rest, mut events) = (bytes.as_slice(), Vec::new());
        while let (used, Some(event)) = reader.read(rest).unwrap() {
            events.push(event);
            rest = &rest[used..];
        }
        assert!(!reader.is_amid(), "a frame is cut");
        events
    }

    /// The texts among them.
    pub fn texts(&self) -> Vec<String> {
        let texts = self.events().into_iter().map(|event| match event {
            Event::Message(_, payload) => String::from_utf8(payload.to_vec()).unwrap(),
            other => format!("{other:?}"),
        });
        texts.collect()
    }
}

/// The engine's end of it.
pub struct FakeClient {
    pub wire: Rc<Wire>,
    input: Vec<u8>,
}

impl FakeClient {
    pub fn of(wire: &Rc<Wire>) -> Box<dyn Client> {
        Box::new(Self {
            wire: Rc::clone(wire),
            input: Vec::new(),
        })
    }
}

impl Client for FakeClient {
    fn poll_fill(&mut self, _: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let sent: Vec<u8> = self.wire.sent.borrow_mut().drain(..).collect();
        match (sent.len(), self.wire.is_gone.get()) {
            (0, false) => Poll::Pending,
            (0, true) => Poll::Ready(Ok(0)),
            (count, _) => {
                self.input.extend(sent);
                Poll::Ready(Ok(count))
            }
        }
    }

    fn input(&self) -> &[u8] {
        &self.input
    }

    fn consume(&mut self, count: usize) {
        self.input.drain(..count);
    }

    fn poll_write(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        assert!(!self.wire.is_finished.get());
        let count = bytes.len().min(self.wire.takes.get());
        if count == 0 {
            return Poll::Pending;
        }
        self.wire.takes.set(self.wire.takes.get() - count);
        self.wire
            .got
            .borrow_mut()
            .extend_from_slice(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn records_taken(&self) -> u64 {
        self.wire.records.get()
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.wire.is_finished.set(true);
        Poll::Ready(Ok(()))
    }

    fn poll_stop(&mut self, _: &mut Context<'_>) -> Poll<()> {
        match self.wire.stops.get() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    fn is_chunked(&self) -> bool {
        false
    }

    fn peer(&self) -> IpAddr {
        Ipv4Addr::LOCALHOST.into()
    }
}

/// Services with a clock that tests move.
pub struct FakeServices {
    start: Instant,
    passed: Rc<Cell<Duration>>,
    resources: Resources,
    pub works: RefCell<Vec<Work>>,
}

impl FakeServices {
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            passed: Rc::default(),
            resources: Resources::default(),
            works: RefCell::default(),
        }
    }

    pub fn pass(&self, seconds: u64) {
        let time = self.passed.get() + Duration::from_secs(seconds);
        self.passed.set(time);
    }
}

impl Services for FakeServices {
    fn call<'a>(&'a self, _: Call<'a>) -> LocalFuture<'a, Result<Reply, Fault>> {
        let fault = Fault::new(Kind::Internal, Origin::Engine, "nobody is called here");
        Box::pin(async { Err(fault) })
    }

    fn sleep(&self, time: Duration) -> LocalFuture<'static, ()> {
        let (passed, at) = (Rc::clone(&self.passed), self.passed.get() + time);
        Box::pin(std::future::poll_fn(move |_| match passed.get() >= at {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }))
    }

    fn now(&self) -> Instant {
        self.start + self.passed.get()
    }

    fn wall(&self) -> Duration {
        self.passed.get()
    }

    fn random(&self) -> f64 {
        0.5
    }

    fn flow(&self, _: &str) -> Option<Arc<dyn Callee>> {
        None
    }

    fn spawn(&self, work: Work) {
        self.works.borrow_mut().push(work);
    }

    fn blocking(&self, work: Box<dyn FnOnce() + Send>) -> LocalFuture<'static, ()> {
        work();
        Box::pin(std::future::ready(()))
    }

    fn resources(&self) -> &Resources {
        &self.resources
    }
}

/// Polls once with a waker that does nothing.
pub fn poll<T>(what: impl FnOnce(&mut Context<'_>) -> Poll<T>) -> Poll<T> {
    what(&mut Context::from_waker(Waker::noop()))
}
