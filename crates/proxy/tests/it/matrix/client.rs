//! The clients of a column, over either version of HTTP: requests sent and replies read piece by
//! piece, so that a row can stop anywhere.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use testkit::http1::{BodyReader, Fields, Framing, Reader, values};
use testkit::http2::{self, Role, code};
use testkit::wire::{ClientTls, Wire};
use tokio::task::{JoinHandle, spawn_local};

use super::backend::{Backend, Script, marker};
use super::column::{Column, Target};
use super::content::{content, reply_content};

/// What clients of a column share.
pub struct Client {
    pub column: Column,
    pub port: u16,
    pub tls: Option<ClientTls>,
    pub backend: Rc<Backend>,
    /// The row's number, the beginning of the ids of its requests.
    pub row: usize,
    pub target: Target,
    pub count: Cell<usize>,
    /// All connections of the row.
    pub connections: RefCell<Vec<Connection>>,
}

/// How a request's body is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sending {
    /// There is none.
    Nothing,
    /// This much, with its length in the head.
    Length(usize),
    /// This much, in chunks or frames of this size.
    Chunks(usize, usize),
}

impl Sending {
    fn length(&self) -> usize {
        match self {
            Self::Nothing => 0,
            Self::Length(length) | Self::Chunks(length, _) => *length,
        }
    }
}

/// A request to be sent.
#[derive(Clone, Debug)]
pub struct Ask {
    pub method: &'static str,
    pub id: String,
    pub target: Target,
    pub fields: Vec<(&'static str, &'static str)>,
    pub sending: Sending,
    pub trailers: Vec<(&'static str, &'static str)>,
    /// Whether it is one of HTTP/1.0.
    pub is_http10: bool,
    /// Whether head and body are written at once.
    pub is_at_once: bool,
    /// Written behind the size of each chunk; over HTTP/2 each DATA frame is padded by its length.
    pub extension: &'static str,
    /// What `:scheme` says in place of the connection's own.
    pub scheme: Option<&'static str>,
}

impl Ask {
    pub fn method(self, method: &'static str) -> Self {
        Self { method, ..self }
    }

    pub fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.fields.push((name, value));
        self
    }

    pub fn sending(self, sending: Sending) -> Self {
        let method = if self.method == "GET" {
            "POST"
        } else {
            self.method
        };
        Self {
            sending,
            method,
            ..self
        }
    }

    fn path(&self) -> String {
        format!("/{}/{}", self.target.prefix(), self.id)
    }

    /// The head as HTTP/1.1 writes it.
    pub fn http1_head(&self) -> Vec<u8> {
        let version = if self.is_http10 { "1.0" } else { "1.1" };
        let mut head = format!(
            "{} {} HTTP/{version}\r\nHost: matrix\r\nX-Id: {}\r\n",
            self.method,
            self.path(),
            self.id
        );
        for (name, value) in &self.fields {
            head += &format!("{name}: {value}\r\n");
        }
        match self.sending {
            Sending::Nothing => {}
            Sending::Length(length) => head += &format!("Content-Length: {length}\r\n"),
            Sending::Chunks(..) => head += "Transfer-Encoding: chunked\r\n",
        }
        head += "\r\n";
        head.into_bytes()
    }

    /// The body as HTTP/1.1 writes it.
    pub fn http1_body(&self) -> Vec<u8> {
        let content = content(&self.id, self.sending.length());
        let Sending::Chunks(_, size) = self.sending else {
            return content;
        };
        let mut body = Vec::new();
        for chunk in content.chunks(size) {
            body.extend(format!("{:x}{}\r\n", chunk.len(), self.extension).into_bytes());
            body.extend_from_slice(chunk);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"0\r\n");
        for (name, value) in &self.trailers {
            body.extend(format!("{name}: {value}\r\n").into_bytes());
        }
        body.extend_from_slice(b"\r\n");
        body
    }

    fn http2_head(&self, is_secure: bool) -> Vec<(String, String)> {
        let own = if is_secure { "https" } else { "http" };
        let scheme = self.scheme.unwrap_or(own);
        let path = self.path();
        let mut head = vec![
            (":method", self.method),
            (":scheme", scheme),
            (":authority", "matrix"),
            (":path", &*path),
            ("x-id", &*self.id),
        ];
        let length = self.sending.length().to_string();
        if matches!(self.sending, Sending::Length(_)) {
            head.push(("content-length", &length));
        }
        head.extend(&self.fields);
        let owned = |(name, value): &(&str, &str)| (name.to_ascii_lowercase(), (*value).to_owned());
        head.iter().map(owned).collect()
    }
}

/// A connection of a client.
pub enum Connection {
    Http1(Reader, Wire),
    Http2(http2::Connection),
}

impl Connection {
    fn handle(&self) -> Self {
        match self {
            Self::Http1(_, wire) => Self::Http1(Reader::new(wire.clone()), wire.clone()),
            Self::Http2(connection) => Self::Http2(connection.clone()),
        }
    }
}

impl Client {
    /// A new request of the row. Its id is registered with what the back end does about it.
    pub fn ask(&self, script: &Script) -> Ask {
        let number = self.count.get();
        self.count.set(number + 1);
        let id = format!("r{}.{number}", self.row);
        self.backend.expect(&id, Rc::clone(script));
        Ask {
            method: "GET",
            id,
            target: self.target,
            fields: Vec::new(),
            sending: Sending::Nothing,
            trailers: Vec::new(),
            is_http10: false,
            is_at_once: false,
            extension: "",
            scheme: None,
        }
    }

    pub async fn connect(&self) -> io::Result<Connection> {
        let wire = Wire::connect(self.port, self.tls.as_ref()).await?;
        let connection = match self.column.client_h2 {
            true => Connection::Http2(http2::Connection::start(wire, Role::Client)),
            false => Connection::Http1(Reader::new(wire.clone()), wire),
        };
        self.connections.borrow_mut().push(connection.handle());
        Ok(connection)
    }

    /// Closes all connections of the row.
    pub fn close_all(&self) {
        for connection in self.connections.take() {
            match connection {
                Connection::Http1(_, wire) => wire.close(),
                Connection::Http2(connection) => connection.close(),
            }
        }
    }

    /// Connects and sends the head.
    pub async fn begin(&self, ask: Ask) -> Call {
        let connection = self.connect().await.unwrap();
        self.begin_on(connection, ask).await
    }

    /// Sends the head on a connection.
    pub async fn begin_on(&self, connection: Connection, ask: Ask) -> Call {
        let has_end = ask.sending == Sending::Nothing && ask.trailers.is_empty();
        let (up, down) = match connection {
            Connection::Http1(reader, wire) => {
                let mut bytes = ask.http1_head();
                if ask.is_at_once {
                    bytes.extend(ask.http1_body());
                }
                let _ = wire.write(&bytes).await;
                (Up::Http1(wire.clone()), Down::Http1(Some(reader), wire))
            }
            Connection::Http2(connection) => {
                let stream = connection.open();
                connection.with(|state| {
                    let known = state.streams.get_mut(&stream);
                    known.unwrap().method = ask.method.to_owned();
                });
                let head = ask.http2_head(self.column.tls);
                let head: Vec<(&str, &str)> = head.iter().map(|(a, b)| (&**a, &**b)).collect();
                connection.send_head(stream, &head, has_end);
                if ask.is_at_once {
                    // Nothing is written before this has to wait for room.
                    Up::Http2(connection.clone(), stream).send(&ask).await;
                }
                (
                    Up::Http2(connection.clone(), stream),
                    Down::Http2(connection, stream),
                )
            }
        };
        Call {
            ask,
            up,
            down,
            body: None,
            upload: None,
            seen: Seen::default(),
        }
    }

    /// Reads the reply to a request that has been written already.
    pub fn read_on(&self, connection: Connection, ask: Ask) -> Call {
        let Connection::Http1(reader, wire) = connection else {
            panic!("HTTP/2 has no order");
        };
        Call {
            ask,
            up: Up::Http1(wire.clone()),
            down: Down::Http1(Some(reader), wire),
            body: None,
            upload: None,
            seen: Seen::default(),
        }
    }

    /// Sends a whole request on a new connection while it reads the reply.
    pub async fn exchange(&self, ask: Ask) -> Seen {
        let connection = self.connect().await.unwrap();
        self.exchange_on(connection, ask).await
    }

    /// The same on a connection.
    pub async fn exchange_on(&self, connection: Connection, ask: Ask) -> Seen {
        let mut call = self.begin_on(connection, ask).await;
        call.upload();
        call.finish().await
    }

    /// Has another request answered; what is wrong with its reply. `may_close` says that the
    /// connection may have been closed by now.
    pub async fn mark(&self, connection: Connection, may_close: bool) -> Result<(), String> {
        let mut ask = self.ask(&marker());
        if ask.target == Target::AsHead {
            ask.target = Target::Usual;
        }
        let id = ask.id.clone();
        let seen = self.exchange_on(connection, ask).await;
        let own = reply_content(&id, super::MARKER_LENGTH);
        let is_own = seen.status == 200 && seen.end == End::Whole && seen.body == own;
        let is_closed = seen.status == 0 && seen.problem.is_none();
        match is_own || (may_close && is_closed) {
            true => Ok(()),
            false => Err(format!("marker {id}: {}", seen.short())),
        }
    }

    /// The same on a new connection.
    pub async fn mark_anew(&self) -> Result<(), String> {
        match self.connect().await {
            Ok(connection) => self.mark(connection, false).await,
            Err(error) => Err(format!("marker: {error}")),
        }
    }
}

#[derive(Clone)]
enum Up {
    Http1(Wire),
    Http2(http2::Connection, u32),
}

enum Down {
    Http1(Option<Reader>, Wire),
    Http2(http2::Connection, u32),
}

/// How a reply has ended.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum End {
    /// It goes on.
    #[default]
    Open,
    /// It is whole.
    Whole,
    /// It broke off, and the client can tell.
    Broken(String),
}

/// What a client has seen of a reply.
#[derive(Default)]
pub struct Seen {
    pub interims: Vec<u16>,
    /// 0 without a reply.
    pub status: u16,
    pub fields: Fields,
    pub body: Vec<u8>,
    pub trailers: Fields,
    pub end: End,
    /// What is left of the connection when it can be used again.
    pub connection: Option<Connection>,
    /// What the client may not see.
    pub problem: Option<String>,
    /// Whether the request had trailers.
    pub sent_trailers: bool,
    /// Whether the connection may end behind the reply without a word: the request had a body, of
    /// which the engine has not seen the end, perhaps, when it wrote the head of the reply.
    pub may_close: bool,
}

impl Seen {
    /// The first value of a field.
    pub fn header(&self, name: &str) -> Option<&str> {
        values(&self.fields, name).first().copied()
    }

    /// In short.
    pub fn short(&self) -> String {
        let start = String::from_utf8_lossy(&self.body[..self.body.len().min(60)]).into_owned();
        let detail = match self.header("content-type") {
            Some("application/problem+json") => String::from_utf8_lossy(&self.body).into_owned(),
            _ => start,
        };
        let problem = self.problem.as_deref().unwrap_or_default();
        format!(
            "{:?} {} with {} bytes {detail:?}, {:?} {problem}",
            self.interims,
            self.status,
            self.body.len(),
            self.end
        )
    }
}

/// A request under way.
pub struct Call {
    pub ask: Ask,
    pub seen: Seen,
    up: Up,
    down: Down,
    body: Option<BodyReader>,
    upload: Option<JoinHandle<bool>>,
}

impl Call {
    /// Sends the whole body beside whatever else is done.
    pub fn upload(&mut self) {
        if self.ask.is_at_once {
            return;
        }
        let (up, ask) = (self.up.clone(), self.ask.clone());
        self.upload = Some(spawn_local(async move { up.send(&ask).await }));
    }

    /// Sends a part of the content as it is, without an end.
    pub async fn send_part(&mut self, from: usize, to: usize) {
        let content = content(&self.ask.id, to);
        match &self.up {
            Up::Http1(wire) => {
                let _ = wire.write(&content[from..]).await;
            }
            Up::Http2(connection, stream) => {
                let end = self.ask.sending == Sending::Length(to);
                connection
                    .send_data(*stream, &content[from..], end, 0)
                    .await;
            }
        }
    }

    /// Reads heads up to the final one.
    pub async fn head(&mut self) {
        while self.seen.end == End::Open && self.seen.status == 0 {
            self.next_head().await;
        }
    }

    /// Reads one head, which may be an interim one.
    pub async fn next_head(&mut self) {
        let head = match &mut self.down {
            Down::Http1(reader, _) => match reader.as_mut().unwrap().head().await {
                Ok(Some(head)) => Ok(head),
                Ok(None) => Err("closed without a reply".to_owned()),
                Err(problem) => Err(problem.to_string()),
            },
            Down::Http2(connection, stream) => h2_head(connection, *stream).await,
        };
        let head = match head {
            Ok(head) => head,
            Err(problem) => {
                self.seen.end = End::Broken(problem);
                return;
            }
        };
        let mut words = head.start.split(' ');
        let (version, status) = (words.next(), words.next().unwrap_or_default());
        let status: u16 = status.parse().unwrap_or_default();
        if version != Some("HTTP/1.1") || status == 0 {
            self.seen.problem = Some(format!("a status line {:?}", head.start));
        }
        if (100..200).contains(&status) && status != 101 {
            return self.seen.interims.push(status);
        }
        self.begin_body(status, head.fields);
    }

    fn begin_body(&mut self, status: u16, fields: Fields) {
        let has_none = self.ask.method == "HEAD" || matches!(status, 101 | 204 | 304);
        let framing = match has_none {
            true => Framing::None,
            false => Framing::of(&fields, Framing::UntilClose).unwrap_or_else(|problem| {
                self.seen.problem = Some(problem.to_string());
                Framing::None
            }),
        };
        self.body = Some(BodyReader::new(framing));
        (self.seen.status, self.seen.fields) = (status, fields);
    }

    /// Reads the reply until there is this much content, or the end.
    pub async fn content(&mut self, until: usize) {
        self.head().await;
        while self.seen.end == End::Open && self.seen.body.len() < until {
            let max = until - self.seen.body.len();
            let part = match (&mut self.down, &mut self.body) {
                (Down::Http1(Some(reader), _), Some(body)) => {
                    body.next(reader, max).await.map_err(|it| it.to_string())
                }
                (Down::Http2(connection, stream), _) => connection.take_data(*stream, max).await,
                _ => Err("no reply".to_owned()),
            };
            match part {
                Ok(Some(part)) => self.seen.body.extend_from_slice(&part),
                Ok(None) => self.seen.end = End::Whole,
                Err(problem) => self.seen.end = End::Broken(problem),
            }
        }
    }

    /// Reads the reply to its end.
    pub async fn finish(mut self) -> Seen {
        self.content(usize::MAX).await;
        let sent = match self.upload.take() {
            Some(upload) if upload.is_finished() => upload.await.unwrap_or_default(),
            Some(upload) => {
                upload.abort();
                false
            }
            None => true,
        };
        self.seen.may_close =
            self.ask.sending != Sending::Nothing && matches!(self.up, Up::Http1(_));
        self.seen.sent_trailers = !self.ask.trailers.is_empty();
        let mut seen = self.seen;
        let body = self.body;
        match self.down {
            Down::Http1(Some(reader), wire) => {
                let closes = seen.header("connection").is_some_and(|it| it == "close");
                let framing = Framing::of(&seen.fields, Framing::UntilClose);
                let is_marked = framing != Ok(Framing::UntilClose)
                    || self.ask.method == "HEAD"
                    || matches!(seen.status, 204 | 304);
                if let Some(body) = body {
                    seen.trailers = body.trailers;
                }
                if seen.end == End::Whole && !reader.waiting.is_empty() {
                    let what = String::from_utf8_lossy(&reader.waiting).into_owned();
                    seen.problem = Some(format!("bytes behind the reply: {what:?}"));
                }
                let keeps = !self.ask.is_http10 && !closes && is_marked && sent;
                if seen.end == End::Whole && keeps && seen.status != 101 {
                    seen.connection = Some(Connection::Http1(reader, wire));
                }
            }
            Down::Http1(None, _) => {}
            Down::Http2(connection, stream) => h2_end(&mut seen, connection, stream, sent),
        }
        seen
    }

    /// Closes the connection.
    pub async fn hang_up(&mut self) {
        match &self.up {
            Up::Http1(wire) => wire.close(),
            Up::Http2(connection, _) => {
                connection.flush().await;
                connection.close();
            }
        }
    }

    /// Resets the connection, or the stream.
    pub async fn reset(&mut self) {
        match &self.up {
            Up::Http1(wire) => wire.reset(),
            Up::Http2(connection, stream) => {
                connection.reset(*stream, code::CANCEL);
                connection.flush().await;
            }
        }
    }

    /// Says that nothing more is sent.
    pub async fn half_close(&mut self) {
        if let Up::Http1(wire) = &self.up {
            wire.finish().await;
        }
    }

    /// The connection of HTTP/2, for further requests.
    pub fn connection(&self) -> Option<Connection> {
        match &self.down {
            Down::Http2(connection, _) => Some(Connection::Http2(connection.clone())),
            Down::Http1(..) => None,
        }
    }

    /// Reads the reply to its end where another one may come behind it.
    pub async fn pipelined(self) -> Seen {
        let mut seen = self.finish().await;
        if seen.end == End::Whole {
            seen.problem = None;
        }
        seen
    }

    /// Writes these bytes, whatever they are.
    pub async fn raw(&mut self, bytes: &[u8]) {
        match &self.up {
            Up::Http1(wire) => {
                let _ = wire.write(bytes).await;
            }
            Up::Http2(connection, _) => connection.send_raw(bytes),
        }
    }
}

async fn h2_head(
    connection: &http2::Connection,
    stream: u32,
) -> Result<testkit::http1::Head, String> {
    let fields = connection.wait(|state| {
        let ended = state.ended.clone();
        let known = state.streams.get_mut(&stream)?;
        if let Some(head) = known.heads.get(known.heads_taken) {
            known.heads_taken += 1;
            return Some(Ok(head.clone()));
        }
        if let Some(code) = known.peer_reset {
            return Some(Err(format!("RST_STREAM {code}")));
        }
        ended.map(|why| Err(format!("the connection ended: {why}")))
    });
    let mut fields: Fields = fields.await?;
    let status = values(&fields, ":status").concat();
    fields.retain(|(name, _)| name != ":status");
    Ok(testkit::http1::Head {
        start: format!("HTTP/1.1 {status} "),
        fields,
    })
}

fn h2_end(seen: &mut Seen, connection: http2::Connection, stream: u32, sent: bool) {
    let (violations, trailers, is_over) = connection.with(|state| {
        let known = &state.streams[&stream];
        let trailers = known.final_head().and_then(|at| known.heads.get(at + 1));
        let is_over = state.ended.is_some() || state.goaway.is_some();
        let trailers = trailers.cloned().unwrap_or_default();
        (std::mem::take(&mut state.violations), trailers, is_over)
    });
    seen.trailers = trailers;
    if let Some(violation) = violations.into_iter().next() {
        seen.problem = Some(violation);
    }
    if !sent && seen.end == End::Whole {
        // The rest of the request is of no use.
        connection.reset(stream, code::CANCEL);
    }
    if !is_over {
        seen.connection = Some(Connection::Http2(connection));
    }
}

impl Up {
    /// Sends the whole body. False when the peer takes no more of it.
    async fn send(&self, ask: &Ask) -> bool {
        let (connection, stream) = match self {
            Self::Http1(wire) => return wire.write(&ask.http1_body()).await.is_ok(),
            Self::Http2(connection, stream) => (connection, *stream),
        };
        let ends = ask.trailers.is_empty();
        let padding = ask.extension.len() as u8;
        let content = content(&ask.id, ask.sending.length());
        let sent = match ask.sending {
            Sending::Nothing => return true,
            Sending::Length(_) => connection.send_data(stream, &content, ends, padding).await,
            Sending::Chunks(_, size) => {
                let mut sent = true;
                for chunk in content.chunks(size) {
                    sent = sent && connection.send_data(stream, chunk, false, padding).await;
                }
                sent && (!ends || connection.send_data(stream, &[], true, 0).await)
            }
        };
        if sent && !ends {
            connection.send_head(stream, &ask.trailers, true);
        }
        sent
    }
}
