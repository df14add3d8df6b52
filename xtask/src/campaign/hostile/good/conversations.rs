//! The kinds of the well-behaved client: HTTP/1.1 on a connection that is kept and on new ones,
//! HTTP/2, TLS, WebSocket, a publisher with a subscriber.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use super::{Conversation, Kind, Server};
use crate::campaign::client::{Reply, chunk, event, read_body, read_head};
use crate::campaign::hostile::credentials;
use crate::campaign::hostile::idle::HELLO;
use crate::campaign::hostile::wire::{http2, websocket};

/// How long an answer may take before it counts as an error.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a server can answer that knows HTTP/1.1 alone.
pub const HTTP1: &[Kind] = &[
    Kind {
        name: "h1 kept",
        open: kept,
    },
    Kind {
        name: "h1 new",
        open: new,
    },
];

pub const ALL: &[Kind] = &[
    Kind {
        name: "h1 kept",
        open: kept,
    },
    Kind {
        name: "h1 new",
        open: new,
    },
    Kind {
        name: "h2",
        open: h2,
    },
    Kind {
        name: "TLS",
        open: tls,
    },
    Kind {
        name: "WebSocket",
        open: web_socket,
    },
    Kind {
        name: "events",
        open: events,
    },
];

/// Behind doors: a token on connections of each kind, and a key on connections that are kept and
/// new ones.
pub const DOORS: &[Kind] = &[
    Kind {
        name: "token, h1 kept",
        open: kept,
    },
    Kind {
        name: "token, h1 new",
        open: new,
    },
    Kind {
        name: "key, h1 kept",
        open: |server| kept(with_key(server)),
    },
    Kind {
        name: "key, h1 new",
        open: |server| new(with_key(server)),
    },
    Kind {
        name: "token, h2",
        open: h2,
    },
    Kind {
        name: "token, TLS",
        open: tls,
    },
    Kind {
        name: "token, WebSocket",
        open: web_socket,
    },
    Kind {
        name: "token, events",
        open: events,
    },
];

fn with_key(server: Server) -> Server {
    Server {
        fields: credentials::KEY,
        ..server
    }
}

/// What nobody else sends.
fn body(number: u64) -> String {
    format!("{number} {}", "abcdefg".repeat(number as usize * 31 % 300))
}

fn wrong(what: impl Into<String>) -> io::Error {
    io::Error::other(what.into())
}

fn is(expected: bool, what: impl FnOnce() -> String) -> io::Result<()> {
    match expected {
        true => Ok(()),
        false => Err(wrong(what())),
    }
}

fn connect(server: Server, port: u16) -> io::Result<BufReader<TcpStream>> {
    let stream = TcpStream::connect((server.address, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    Ok(BufReader::new(stream))
}

fn post((path, fields): (&str, &str), media: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {media}\r\n{fields}\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

fn answer(reader: &mut impl BufRead) -> io::Result<Reply> {
    let head = read_head(reader)?;
    // Without a length its end would be that of the connection.
    is(head.header("Content-Length").is_some(), || {
        format!("{}, without Content-Length", head.status)
    })?;
    let reply = read_body(head, reader)?;
    is(reply.status == 200, || {
        format!("{} {:.200}", reply.status, reply.body)
    })?;
    Ok(reply)
}

fn same(sent: &str, received: &str) -> io::Result<()> {
    is(sent == received, || {
        format!("sent {sent:.40}, received {received:.200}")
    })
}

/// HTTP/1.1 on one connection.
struct Kept {
    server: Server,
    reader: BufReader<TcpStream>,
}

impl Kept {
    fn open(server: Server) -> io::Result<Self> {
        let reader = connect(server, server.ports.http)?;
        Ok(Self { server, reader })
    }
}

impl Conversation for Kept {
    fn ask(&mut self, number: u64) -> io::Result<()> {
        let body = body(number);
        let request = post(("/echo", self.server.fields), "text/plain", &body);
        self.reader.get_mut().write_all(request.as_bytes())?;
        let expected = if self.server.echoes { &body } else { HELLO };
        same(expected, &answer(&mut self.reader)?.body)
    }
}

fn kept(server: Server) -> io::Result<Box<dyn Conversation>> {
    Ok(Box::new(Kept::open(server)?))
}

/// HTTP/1.1 on a new connection each time.
struct New(Server);

impl Conversation for New {
    fn ask(&mut self, number: u64) -> io::Result<()> {
        Kept::open(self.0)?.ask(number)
    }
}

fn new(server: Server) -> io::Result<Box<dyn Conversation>> {
    Ok(Box::new(New(server)))
}

/// HTTP/2 with prior knowledge, a stream after the other.
struct H2 {
    reader: BufReader<TcpStream>,
    stream: u32,
    fields: &'static str,
}

fn h2(server: Server) -> io::Result<Box<dyn Conversation>> {
    let mut reader = connect(server, server.ports.h2)?;
    reader.get_mut().write_all(&http2::opening(&[]))?;
    Ok(Box::new(H2 {
        reader,
        stream: 1,
        fields: server.fields,
    }))
}

impl Conversation for H2 {
    fn ask(&mut self, number: u64) -> io::Result<()> {
        let body = body(number);
        let credential = credentials::field(self.fields);
        let credential = credential.map(|(name, value)| http2::literal(&name, value));
        let block = [
            http2::request("POST", "/echo"),
            credential.unwrap_or_default(),
        ]
        .concat();
        let data = http2::frame(http2::DATA, http2::END_STREAM, self.stream, body.as_bytes());
        let request = [http2::headers(self.stream, &block, false), data].concat();
        self.reader.get_mut().write_all(&request)?;
        let received = self.receive()?;
        self.stream += 2;
        same(&body, &String::from_utf8_lossy(&received))
    }
}

impl H2 {
    /// Reads until the stream ends; returns its body.
    fn receive(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let read = http2::read_frame(&mut self.reader)?;
            let is_ack = read.flags & http2::ACK != 0;
            let mut reply = Vec::new();
            match read.kind {
                http2::SETTINGS if !is_ack => {
                    reply = http2::frame(http2::SETTINGS, http2::ACK, 0, &[]);
                }
                http2::PING if !is_ack => {
                    reply = http2::frame(http2::PING, http2::ACK, 0, &read.payload);
                }
                http2::GOAWAY => return Err(wrong("GOAWAY")),
                http2::RST_STREAM => return Err(wrong("RST_STREAM")),
                http2::HEADERS if body.is_empty() => {
                    is(http2::is_200(&read.payload), || "not 200".to_owned())?;
                }
                http2::DATA if !read.payload.is_empty() => {
                    body.extend(&read.payload);
                    reply = http2::window_update(0, read.payload.len() as u32);
                }
                _ => {}
            }
            self.reader.get_mut().write_all(&reply)?;
            let can_end = [http2::HEADERS, http2::DATA].contains(&read.kind);
            if can_end && read.stream == self.stream && read.flags & http2::END_STREAM != 0 {
                return Ok(body);
            }
        }
    }
}

/// HTTP/1.1 through `openssl s_client`, whose output a thread reads, so that waiting for it ends.
struct Tls {
    child: Child,
    input: ChildStdin,
    reader: BufReader<Output>,
    fields: &'static str,
}

struct Output {
    receiver: Receiver<Vec<u8>>,
    bytes: io::Cursor<Vec<u8>>,
}

impl Drop for Tls {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Read for Output {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.bytes.read(into)?;
        if count > 0 {
            return Ok(count);
        }
        let more = self.receiver.recv_timeout(PATIENCE);
        let more = more.map_err(|error| io::Error::new(io::ErrorKind::TimedOut, error))?;
        self.bytes = io::Cursor::new(more);
        self.bytes.read(into)
    }
}

fn tls(server: Server) -> io::Result<Box<dyn Conversation>> {
    let address = std::net::SocketAddr::from((server.address, server.ports.tls));
    let mut child = Command::new("openssl")
        .args(["s_client", "-quiet", "-alpn", "http/1.1", "-connect"])
        .arg(address.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let (Some(input), Some(mut output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(wrong("no pipes"));
    };
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = vec![0; 16 * 1024];
        while let Ok(count @ 1..) = output.read(&mut bytes) {
            if sender
                .send(bytes.iter().take(count).copied().collect())
                .is_err()
            {
                return;
            }
        }
    });
    let bytes = io::Cursor::default();
    Ok(Box::new(Tls {
        child,
        input,
        reader: BufReader::new(Output { receiver, bytes }),
        fields: server.fields,
    }))
}

impl Conversation for Tls {
    fn ask(&mut self, number: u64) -> io::Result<()> {
        let body = body(number);
        let request = post(("/echo", self.fields), "text/plain", &body);
        self.input.write_all(request.as_bytes())?;
        self.input.flush()?;
        same(&body, &answer(&mut self.reader)?.body)
    }
}

struct WebSocket(BufReader<TcpStream>);

fn web_socket(server: Server) -> io::Result<Box<dyn Conversation>> {
    let mut reader = connect(server, server.ports.http)?;
    let handshake = websocket::handshake("/websocket", server.fields);
    reader.get_mut().write_all(handshake.as_bytes())?;
    let status = read_head(&mut reader)?.status;
    is(status == 101, || format!("status {status}"))?;
    Ok(Box::new(WebSocket(reader)))
}

impl Conversation for WebSocket {
    fn ask(&mut self, number: u64) -> io::Result<()> {
        let body = body(number);
        let message = websocket::frame(websocket::FIN | websocket::TEXT, body.as_bytes());
        self.0.get_mut().write_all(&message)?;
        loop {
            let (first, payload) = websocket::read_frame(&mut self.0)?;
            match first & 15 {
                websocket::TEXT => return same(&body, &String::from_utf8_lossy(&payload)),
                websocket::PING => {
                    let pong = websocket::frame(websocket::FIN | websocket::PONG, &payload);
                    self.0.get_mut().write_all(&pong)?;
                }
                kind => return Err(wrong(format!("a frame of kind {kind}"))),
            }
        }
    }
}

/// Publishes an event, and waits until it has come to the subscriber, who may see no other.
struct Events {
    publisher: BufReader<TcpStream>,
    subscriber: BufReader<TcpStream>,
    text: String,
    fields: &'static str,
}

fn events(server: Server) -> io::Result<Box<dyn Conversation>> {
    let publisher = connect(server, server.ports.http)?;
    let mut subscriber = connect(server, server.ports.http)?;
    let request = format!(
        "GET /topics/steady/sse HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n{}\r\n",
        server.fields
    );
    subscriber.get_mut().write_all(request.as_bytes())?;
    let status = read_head(&mut subscriber)?.status;
    is(status == 200, || format!("status {status}"))?;
    // The position is known when the first block has come.
    let text = chunk(&mut subscriber)?;
    Ok(Box::new(Events {
        publisher,
        subscriber,
        text,
        fields: server.fields,
    }))
}

impl Conversation for Events {
    fn ask(&mut self, number: u64) -> io::Result<()> {
        let sent = format!("{{\"n\":{number}}}");
        let request = post(("/topics/steady", self.fields), "application/json", &sent);
        self.publisher.get_mut().write_all(request.as_bytes())?;
        answer(&mut self.publisher)?;
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let event = event(block);
                self.text = rest.to_owned();
                if !event.data.is_empty() {
                    return same(&sent, &event.data);
                }
            }
            self.text.push_str(&chunk(&mut self.subscriber)?);
        }
    }
}
