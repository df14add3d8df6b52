//! The back end of a column: plays each request's script over either version of HTTP, and verifies
//! that every request is well formed and has its own bytes.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

use testkit::http1::{BodyReader, Fields, Framing, Problem, Reader, values};
use testkit::http2::{self, Role, code};
use testkit::wire::{ServerTls, Wire};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::spawn_local;

use super::content::{Verifier, reply_content};

/// A future of one thread.
pub type Local<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What the back end does with a request.
pub type Script = Rc<dyn for<'a> Fn(&'a mut Exchange) -> Local<'a, ()>>;

/// Makes a script of a closure.
pub fn script(work: impl for<'a> Fn(&'a mut Exchange) -> Local<'a, ()> + 'static) -> Script {
    Rc::new(work)
}

/// A request that came.
#[derive(Clone, Debug, Default)]
pub struct Arrival {
    /// Bytes of its body.
    pub received: usize,
    /// Whether all of it came.
    pub complete: bool,
    pub trailers: Fields,
    /// Whether the engine gave it up before the reply's end.
    pub cancelled: bool,
}

/// What all connections of a column's back end share.
#[derive(Default)]
pub struct Backend {
    scripts: RefCell<HashMap<String, Script>>,
    arrivals: RefCell<HashMap<String, Vec<Arrival>>>,
    violations: RefCell<Vec<String>>,
    h2: RefCell<Vec<http2::Connection>>,
    /// Exchanges that go on.
    busy: Cell<usize>,
    connections: Cell<usize>,
    released: Cell<bool>,
    changed: Notify,
}

impl Backend {
    /// Serves a listener for ever.
    pub async fn serve(self: Rc<Self>, listener: TcpListener, tls: Option<ServerTls>, is_h2: bool) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                return;
            };
            let (backend, tls) = (Rc::clone(&self), tls.clone());
            let number = backend.connections.get();
            backend.connections.set(number + 1);
            spawn_local(async move {
                let Ok(wire) = Wire::accept(stream, tls.as_ref()).await else {
                    return;
                };
                match is_h2 {
                    true => backend.serve_h2(wire, number).await,
                    false => backend.serve_h1(wire, number).await,
                }
            });
        }
    }

    async fn serve_h1(self: Rc<Self>, wire: Wire, number: usize) {
        let mut reader = Reader::new(wire.clone());
        loop {
            let head = match reader.head().await {
                Ok(Some(head)) => head,
                Ok(None) => return,
                // A connection that is reset between two requests is no fault.
                Err(Problem::Ended(_)) if reader.waiting.is_empty() => return,
                Err(problem) => return self.violate(format!("connection {number}: {problem}")),
            };
            let (request, framing) = match Request::of_http1(&head.start, head.fields) {
                Ok(request) => request,
                Err(problem) => {
                    self.violate(format!("connection {number}: {problem}: {:?}", head.start));
                    return wire.close();
                }
            };
            let side = Side::Http1 {
                wire: wire.clone(),
                reader,
                body: BodyReader::new(framing),
            };
            match self.clone().play(request, side).await {
                Some(next) => reader = next,
                None => return,
            }
        }
    }

    async fn serve_h2(self: Rc<Self>, wire: Wire, number: usize) {
        let connection = http2::Connection::start(wire, Role::Server);
        self.h2.borrow_mut().push(connection.clone());
        while let Some(stream) = connection.accept().await {
            let fields = connection.with(|state| state.streams[&stream].heads[0].clone());
            let request = match Request::of_http2(fields) {
                Ok(request) => request,
                Err(problem) => {
                    self.violate(format!("connection {number}: {problem}"));
                    continue;
                }
            };
            let side = Side::Http2 {
                connection: connection.clone(),
                stream,
            };
            let backend = Rc::clone(&self);
            spawn_local(async move { backend.play(request, side).await });
        }
    }

    /// Plays the request's script and reads the rest of it. Returns what the next request of an
    /// HTTP/1.1 connection is read from.
    async fn play(self: Rc<Self>, request: Request, side: Side) -> Option<Reader> {
        let script = self.scripts.borrow().get(&request.id).cloned();
        if script.is_none() {
            self.violate(format!("nobody has sent a request {:?}", request.id));
        }
        let attempt = self.arrive(&request);
        self.busy.set(self.busy.get() + 1);
        let mut exchange = Exchange {
            verifier: Verifier::new(&request.id),
            request,
            attempt,
            side,
            chunked: false,
            padding: 0,
            replied: false,
            broken: false,
            backend: Rc::clone(&self),
        };
        if let Some(script) = script {
            script(&mut exchange).await;
        }
        exchange.finish().await;
        self.busy.set(self.busy.get() - 1);
        self.changed.notify_waiters();
        exchange.reader()
    }

    fn arrive(&self, request: &Request) -> usize {
        let mut arrivals = self.arrivals.borrow_mut();
        let same = arrivals.entry(request.id.clone()).or_default();
        same.push(Arrival::default());
        self.changed.notify_waiters();
        same.len() - 1
    }

    /// Says what is done with a request.
    pub fn expect(&self, id: &str, script: Script) {
        self.scripts.borrow_mut().insert(id.to_owned(), script);
    }

    /// Notes that something is wrong with what came.
    pub fn violate(&self, what: String) {
        self.violations.borrow_mut().push(what);
    }

    /// Takes what was wrong so far.
    pub fn take_violations(&self) -> Vec<String> {
        let mut all = std::mem::take(&mut *self.violations.borrow_mut());
        for connection in self.h2.borrow().iter() {
            all.extend(connection.with(|state| std::mem::take(&mut state.violations)));
        }
        all
    }

    /// The times a request came.
    pub fn arrivals(&self, id: &str) -> Vec<Arrival> {
        self.arrivals.borrow().get(id).cloned().unwrap_or_default()
    }

    /// Waits until something is so that requests change.
    pub async fn wait(&self, mut ready: impl FnMut(&Self) -> bool) {
        while !ready(self) {
            self.changed.notified().await;
        }
    }

    /// Waits until a request has come this often.
    pub async fn arrived(&self, id: &str, times: usize) {
        self.wait(|it| it.arrivals(id).len() >= times).await;
    }

    /// Whether no exchange goes on.
    pub fn is_quiet(&self) -> bool {
        self.busy.get() == 0
    }

    /// Lets back ends go on that have waited for the client's end, or has them wait.
    pub fn release(&self, released: bool) {
        self.released.set(released);
        self.changed.notify_waiters();
    }
}

/// The head of a request.
#[derive(Clone, Debug)]
pub struct Request {
    pub id: String,
}

impl Request {
    fn of_http1(start: &str, fields: Fields) -> Result<(Self, Framing), String> {
        let words: Vec<&str> = start.split(' ').collect();
        let [method, target, "HTTP/1.1"] = words.as_slice() else {
            return Err("no request line".to_owned());
        };
        if values(&fields, "host").len() != 1 {
            return Err("no Host".to_owned());
        }
        let framing = Framing::of(&fields, Framing::None).map_err(|it| it.to_string())?;
        Ok((Self::new(method, target, &fields)?, framing))
    }

    fn of_http2(fields: Fields) -> Result<Self, String> {
        let value = |name| values(&fields, name).first().copied().unwrap_or_default();
        let (method, target) = (value(":method").to_owned(), value(":path").to_owned());
        Self::new(&method, &target, &fields)
    }

    /// The path and a field name the request: both must be of the same one.
    fn new(method: &str, target: &str, fields: &Fields) -> Result<Self, String> {
        if fields.iter().any(|(name, _)| is_identity(name)) {
            return Err(format!("{method} {target} has a client's identity header"));
        }
        let id = target.rsplit('/').next().unwrap_or_default().to_owned();
        match values(fields, "x-id").as_slice() {
            [field] if **field == *id => Ok(Self { id }),
            other => Err(format!("{method} {target} has the fields of {other:?}")),
        }
    }
}

/// Whether a field is the identity header of all columns, by a reader that cannot tell `_` and `-`
/// apart.
pub fn is_identity(name: &str) -> bool {
    name.replace('_', "-").eq_ignore_ascii_case(IDENTITY)
}

/// The identity header: nothing that a client sends in it comes through.
pub const IDENTITY: &str = "X-Who-Calls";

enum Side {
    Http1 {
        wire: Wire,
        reader: Reader,
        body: BodyReader,
    },
    Http2 {
        connection: http2::Connection,
        stream: u32,
    },
}

/// A request and the reply to it, as a script sees them. What cannot be done because the engine has
/// ended the exchange does nothing.
pub struct Exchange {
    pub request: Request,
    /// How often the request has come before.
    pub attempt: usize,
    /// Bytes of padding of each DATA frame.
    pub padding: u8,
    verifier: Verifier,
    side: Side,
    chunked: bool,
    replied: bool,
    broken: bool,
    backend: Rc<Backend>,
}

impl Exchange {
    /// The number of the stream.
    pub fn stream(&self) -> u32 {
        match &self.side {
            Side::Http2 { stream, .. } => *stream,
            Side::Http1 { .. } => 0,
        }
    }

    /// Content of the reply.
    pub fn content(&self, length: usize) -> Vec<u8> {
        reply_content(&self.request.id, length)
    }

    fn note(&self, change: impl FnOnce(&mut Arrival)) {
        let mut arrivals = self.backend.arrivals.borrow_mut();
        let same = arrivals.get_mut(&self.request.id);
        if let Some(arrival) = same.and_then(|it| it.get_mut(self.attempt)) {
            change(arrival);
        }
        drop(arrivals);
        self.backend.changed.notify_waiters();
    }

    /// Reads at most this much of the body. None at its end, or when it is broken off.
    pub async fn read(&mut self, max: usize) -> Option<Vec<u8>> {
        if self.broken {
            return None;
        }
        let part = match &mut self.side {
            Side::Http1 { reader, body, .. } => body.next(reader, max).await,
            Side::Http2 { connection, stream } => connection
                .take_data(*stream, max)
                .await
                .map_err(Problem::Ended),
        };
        match part {
            Ok(Some(part)) => {
                if let Err(wrong) = self.verifier.take(&part) {
                    self.backend.violate(wrong);
                    self.break_off();
                }
                self.note(|it| it.received += part.len());
                Some(part)
            }
            Ok(None) => {
                let trailers = self.trailers();
                self.note(|it| (it.complete, it.trailers) = (true, trailers));
                None
            }
            Err(Problem::Ended(_)) => {
                self.broken = true;
                self.note(|it| it.cancelled = true);
                None
            }
            Err(problem) => {
                let id = &self.request.id;
                self.backend.violate(format!("the body of {id}: {problem}"));
                self.break_off();
                None
            }
        }
    }

    fn break_off(&mut self) {
        self.broken = true;
        if let Side::Http1 { wire, .. } = &self.side {
            wire.close();
        }
    }

    fn trailers(&self) -> Fields {
        match &self.side {
            Side::Http1 { body, .. } => body.trailers.clone(),
            Side::Http2 { connection, stream } => connection.with(|state| {
                let heads = &state.streams[stream].heads;
                heads.get(1).cloned().unwrap_or_default()
            }),
        }
    }

    /// Reads this much of the body.
    pub async fn read_exactly(&mut self, count: usize) {
        let mut left = count;
        while left > 0 {
            let Some(part) = self.read(left).await else {
                return;
            };
            left -= part.len();
        }
    }

    /// Reads the body to its end.
    pub async fn read_all(&mut self) {
        while self.read(usize::MAX).await.is_some() {}
    }

    async fn write(&mut self, bytes: &[u8]) {
        if let Side::Http1 { wire, .. } = &self.side {
            self.broken |= wire.write(bytes).await.is_err();
        }
    }

    /// Sends an interim head.
    pub async fn interim(&mut self, status: u16, fields: &[(&str, &str)]) {
        let number = status.to_string();
        match &self.side {
            Side::Http1 { .. } => {
                let head = format!("HTTP/1.1 {number} Interim\r\n{}\r\n", lines(fields));
                self.write(head.as_bytes()).await;
            }
            Side::Http2 { connection, stream } => {
                let all = [&[(":status", &*number)], fields].concat();
                connection.send_head(*stream, &all, false);
            }
        }
    }

    /// Sends the head of the reply. Over HTTP/2 `Framing::None` ends the stream.
    pub async fn head(&mut self, status: u16, fields: &[(&str, &str)], framing: Framing) {
        if self.broken {
            return;
        }
        let (number, id) = (status.to_string(), self.request.id.clone());
        let length = match framing {
            Framing::Length(length) => length.to_string(),
            _ => String::new(),
        };
        let mut all = vec![("x-re", &*id)];
        all.extend(fields);
        if !length.is_empty() {
            all.push(("content-length", &length));
        }
        match &self.side {
            Side::Http1 { .. } => {
                self.chunked = framing == Framing::Chunked;
                if self.chunked {
                    all.push(("transfer-encoding", "chunked"));
                }
                let head = format!("HTTP/1.1 {number} Some Words\r\n{}\r\n", lines(&all));
                self.write(head.as_bytes()).await;
            }
            Side::Http2 { connection, stream } => {
                all.insert(0, (":status", &number));
                let end = framing == Framing::None;
                connection.send_head(*stream, &all, end);
                self.replied = end;
            }
        }
        self.replied |= framing == Framing::None;
    }

    /// Sends a part of the reply's body.
    pub async fn body(&mut self, bytes: &[u8]) {
        if self.broken {
            return;
        }
        match &self.side {
            Side::Http1 { .. } if self.chunked => {
                let mut chunk = format!("{:x}\r\n", bytes.len()).into_bytes();
                chunk.extend_from_slice(bytes);
                chunk.extend_from_slice(b"\r\n");
                self.write(&chunk).await;
            }
            Side::Http1 { .. } => self.write(bytes).await,
            Side::Http2 { connection, stream } => {
                let sent = connection.send_data(*stream, bytes, false, self.padding);
                self.broken |= !sent.await;
            }
        }
    }

    /// Ends the reply.
    pub async fn end(&mut self, trailers: &[(&str, &str)]) {
        self.replied = true;
        match &self.side {
            Side::Http1 { .. } if self.chunked => {
                let end = format!("0\r\n{}\r\n", lines(trailers));
                self.write(end.as_bytes()).await;
            }
            Side::Http1 { .. } => {}
            Side::Http2 { connection, stream } if trailers.is_empty() => {
                connection.send_data(*stream, &[], true, 0).await;
            }
            Side::Http2 { connection, stream } => connection.send_head(*stream, trailers, true),
        }
    }

    /// Replies with this much content of its own.
    pub async fn reply(&mut self, status: u16, length: usize) {
        self.head(status, &[], Framing::Length(length)).await;
        let content = self.content(length);
        self.body(&content).await;
        self.end(&[]).await;
    }

    /// Ends the connection, or the connection's direction to the engine, behind a reply whose end
    /// nothing else marks.
    pub async fn end_by_close(&mut self) {
        self.replied = true;
        match &self.side {
            Side::Http1 { wire, .. } => {
                wire.finish().await;
                wire.close();
            }
            Side::Http2 { .. } => self.end(&[]).await,
        }
    }

    /// The reply has been ended by bytes of the script's own.
    pub fn end_raw(&mut self) {
        self.replied = true;
    }

    /// The request is no longer this exchange's: it has been refused.
    pub fn forget(&mut self) {
        self.broken = true;
    }

    /// Writes these bytes: over HTTP/2, frames.
    pub async fn raw(&mut self, bytes: &[u8]) {
        match &self.side {
            Side::Http1 { .. } => self.write(bytes).await,
            Side::Http2 { connection, .. } => connection.send_raw(bytes),
        }
    }

    /// The HTTP/2 connection.
    pub fn h2(&self) -> Option<&http2::Connection> {
        match &self.side {
            Side::Http2 { connection, .. } => Some(connection),
            Side::Http1 { .. } => None,
        }
    }

    /// What has been written so far has reached the kernel.
    pub async fn flush(&mut self) {
        if let Side::Http2 { connection, .. } = &self.side {
            connection.flush().await;
        }
    }

    /// Gives the exchange up: the connection by RST, or the stream by RST_STREAM.
    pub async fn reset(&mut self) {
        self.flush().await;
        self.broken = true;
        match &self.side {
            Side::Http1 { wire, .. } => wire.reset(),
            Side::Http2 { connection, stream } => connection.reset(*stream, code::INTERNAL_ERROR),
        }
    }

    /// Closes the connection.
    pub async fn close(&mut self) {
        self.flush().await;
        self.broken = true;
        match &self.side {
            Side::Http1 { wire, .. } => wire.close(),
            Side::Http2 { connection, .. } => connection.close(),
        }
    }

    /// Resets the connection.
    pub async fn reset_connection(&mut self) {
        self.flush().await;
        self.broken = true;
        match &self.side {
            Side::Http1 { wire, .. } => wire.reset(),
            Side::Http2 { connection, .. } => {
                connection.wire().reset();
                connection.close();
            }
        }
    }

    /// Waits until the engine gives the exchange up.
    pub async fn until_cancelled(&mut self) {
        self.read_all().await;
        if !self.broken {
            match &mut self.side {
                Side::Http1 { reader, .. } => {
                    if let Ok(Some(head)) = reader.head().await {
                        let start = head.start;
                        let what = "came behind a request without a reply";
                        self.backend.violate(format!("{start:?} {what}"));
                    }
                }
                Side::Http2 { connection, stream } => {
                    let stream = *stream;
                    let gone = connection.wait(|state| {
                        let is_reset = state.streams[&stream].peer_reset.is_some();
                        (is_reset || state.ended.is_some()).then_some(())
                    });
                    gone.await;
                }
            }
        }
        self.broken = true;
        self.note(|it| it.cancelled = true);
        if let Side::Http1 { wire, .. } = &self.side {
            wire.close();
        }
    }

    /// Waits until the client has got what it gets.
    pub async fn until_released(&self) {
        self.backend.wait(|it| it.released.get()).await;
    }

    /// Reads the rest of the request, as servers do that keep a connection.
    async fn finish(&mut self) {
        if !self.broken && !self.replied {
            return self.close().await;
        }
        self.read_all().await;
    }

    fn reader(self) -> Option<Reader> {
        match self.side {
            Side::Http1 { wire, reader, .. } if !self.broken && wire.is_open() => Some(reader),
            _ => None,
        }
    }
}

fn lines(fields: &[(&str, &str)]) -> String {
    let lines = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"));
    lines.collect()
}

/// Answers with a little content of its own.
pub fn marker() -> Script {
    script(|exchange| {
        Box::pin(async move {
            exchange.read_all().await;
            exchange.reply(200, super::MARKER_LENGTH).await;
        })
    })
}
