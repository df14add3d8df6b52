//! HTTP/2 (RFC 9113) for tests, both sides of it: writes whatever a test wants, frame by frame when
//! need be, and notes whatever the peer does that the RFC does not allow. Written on its own, apart
//! from the product's engine.

mod check;
pub mod hpack;
mod state;

use std::cell::RefCell;
use std::rc::Rc;

use tokio::sync::Notify;
use tokio::task::spawn_local;

use crate::http1::Fields;
use crate::wire::Wire;

pub use state::{State, StreamState};

/// Types of frames (section 6).
pub mod kind {
    #![allow(missing_docs, reason = "the RFC says what they are")]
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const PRIORITY: u8 = 2;
    pub const RST_STREAM: u8 = 3;
    pub const SETTINGS: u8 = 4;
    pub const PUSH_PROMISE: u8 = 5;
    pub const PING: u8 = 6;
    pub const GOAWAY: u8 = 7;
    pub const WINDOW_UPDATE: u8 = 8;
    pub const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub mod flag {
    #![allow(missing_docs, reason = "the RFC says what they are")]
    pub const END_STREAM: u8 = 1;
    pub const ACK: u8 = 1;
    pub const END_HEADERS: u8 = 4;
    pub const PADDED: u8 = 8;
    pub const PRIORITY: u8 = 32;
}

/// Error codes (section 7).
pub mod code {
    #![allow(missing_docs, reason = "the RFC says what they are")]
    pub const NO_ERROR: u32 = 0;
    pub const INTERNAL_ERROR: u32 = 2;
    pub const REFUSED_STREAM: u32 = 7;
    pub const CANCEL: u32 = 8;
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The largest frame that both sides take (section 4.2).
pub(crate) const FRAME_MAX: usize = 16_384;

/// Which side of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends requests.
    Client,
    /// Answers them.
    Server,
}

/// The bytes of a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    let mut out = length[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

/// One connection. Clones are handles to the same one. It needs a `LocalSet`.
#[derive(Clone)]
pub struct Connection(Rc<Shared>);

struct Shared {
    wire: Wire,
    state: RefCell<State>,
    changed: Notify,
}

impl Connection {
    /// Begins to speak on a connection.
    pub fn start(wire: Wire, role: Role) -> Self {
        let connection = Self(Rc::new(Shared {
            wire,
            state: RefCell::new(State::new(role)),
            changed: Notify::new(),
        }));
        if role == Role::Client {
            connection.send_raw(PREFACE);
        }
        connection.send_raw(&frame(kind::SETTINGS, 0, 0, &[]));
        spawn_local(connection.clone().read_all(role));
        spawn_local(connection.clone().write_all());
        connection
    }

    async fn read_all(self, role: Role) {
        let mut input = Vec::new();
        let mut begun = role == Role::Client;
        let why = loop {
            match self.0.wire.read(&mut input).await {
                Ok(0) => break "closed".to_owned(),
                Ok(_) => {}
                Err(error) => break error.to_string(),
            }
            if !begun && input.len() >= PREFACE.len() {
                begun = true;
                if !input.starts_with(PREFACE) {
                    self.0.state.borrow_mut().violate("no preface");
                }
                input.drain(..PREFACE.len());
            }
            if begun {
                let used = self.0.state.borrow_mut().receive(&input);
                input.drain(..used);
            }
            self.0.changed.notify_waiters();
        };
        self.end(why);
    }

    async fn write_all(self) {
        loop {
            let out = self
                .wait(|state| {
                    let out = std::mem::take(&mut state.out);
                    state.is_writing = !out.is_empty();
                    (!out.is_empty() || state.ended.is_some()).then_some(out)
                })
                .await;
            if out.is_empty() {
                return;
            }
            if let Err(error) = self.0.wire.write(&out).await {
                return self.end(error.to_string());
            }
            self.with(|state| state.is_writing = false);
        }
    }

    fn end(&self, why: String) {
        self.0.state.borrow_mut().ended.get_or_insert(why);
        self.0.changed.notify_waiters();
    }

    /// Waits until something is so.
    pub async fn wait<T>(&self, mut ready: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            if let Some(result) = ready(&mut self.0.state.borrow_mut()) {
                return result;
            }
            self.0.changed.notified().await;
        }
    }

    /// The next stream that the client opens, of which the head is there; `None` when the
    /// connection ends first.
    pub async fn accept(&self) -> Option<u32> {
        self.wait(|state| match state.opened.pop_front() {
            Some(stream) => Some(Some(stream)),
            None => state.ended.is_some().then_some(None),
        })
        .await
    }

    /// Whether the peer does not want the rest of a stream: it has reset it, or is gone.
    pub fn is_given_up(&self, stream: u32) -> bool {
        self.with(|state| state.streams[&stream].peer_reset.is_some() || state.ended.is_some())
    }

    /// Looks at the state or changes it.
    pub fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let result = work(&mut self.0.state.borrow_mut());
        self.0.changed.notify_waiters();
        result
    }

    /// Writes these bytes, whatever they are.
    pub fn send_raw(&self, bytes: &[u8]) {
        self.with(|state| state.out.extend_from_slice(bytes));
    }

    /// The number of the client's next stream. A head must be sent next.
    pub fn open(&self) -> u32 {
        self.with(State::open)
    }

    /// Sends a head, an interim one or trailers, in as many frames as it takes.
    pub fn send_head(&self, stream: u32, fields: &[(&str, &str)], end: bool) {
        let block = hpack::encode(fields.iter().copied());
        self.with(|state| state.send_block(stream, &block, end));
    }

    /// The same for fields that are owned.
    pub fn send_trailers(&self, stream: u32, fields: &Fields) {
        let fields: Vec<(&str, &str)> = fields.iter().map(|(a, b)| (&**a, &**b)).collect();
        self.send_head(stream, &fields, true);
    }

    /// Sends content as the peer's windows allow, `padding` bytes with each frame. False when the
    /// stream ends before all of it is out.
    pub async fn send_data(&self, stream: u32, bytes: &[u8], end: bool, padding: u8) -> bool {
        let mut rest = bytes;
        loop {
            let room = self.wait(|state| state.room(stream, rest.len(), padding));
            let Some(count) = room.await else {
                return false;
            };
            let (now, later) = rest.split_at(count);
            let last = later.is_empty();
            self.with(|state| state.send_data(stream, now, end && last, padding));
            rest = later;
            if last {
                return true;
            }
        }
    }

    /// Waits until everything has been handed to the kernel.
    pub async fn flush(&self) {
        self.wait(|state| {
            let is_out = state.out.is_empty() && !state.is_writing;
            (is_out || state.ended.is_some()).then_some(())
        })
        .await;
    }

    /// Gives a stream up.
    pub fn reset(&self, stream: u32, code: u32) {
        self.with(|state| state.reset(stream, code));
    }

    /// Says that streams above this one have not been looked at (section 6.8).
    pub fn go_away(&self, last: u32, code: u32) {
        let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
        self.send_raw(&frame(kind::GOAWAY, 0, 0, &payload));
    }

    /// Takes at most this much content of a stream and lets the peer send as much again. None at
    /// its end, or an error when it has been broken off.
    ///
    /// # Errors
    /// When the stream or the connection ends before the content does.
    pub async fn take_data(&self, stream: u32, max: usize) -> Result<Option<Vec<u8>>, String> {
        let taken = self.wait(|state| state.take_data(stream, max)).await;
        // The writer has a WINDOW_UPDATE to send.
        self.0.changed.notify_waiters();
        taken
    }

    /// The connection below.
    pub fn wire(&self) -> &Wire {
        &self.0.wire
    }

    /// Ends the connection from this side without a word.
    pub fn close(&self) {
        self.0.wire.close();
        self.end("closed by this side".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;
    use tokio::runtime::Builder;
    use tokio::task::LocalSet;

    use super::*;

    async fn pair() -> [Connection; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let near = spawn_local(async move { Wire::connect(port, None).await.unwrap() });
        let far = listener.accept().await.unwrap().0;
        let far = Wire::accept(far, None).await.unwrap();
        let near = Connection::start(near.await.unwrap(), Role::Client);
        [near, Connection::start(far, Role::Server)]
    }

    fn run(work: impl Future<Output = ()>) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(LocalSet::new().run_until(work));
    }

    const HEAD: [(&str, &str); 4] = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", "/"),
    ];

    #[test]
    fn content_larger_than_every_window_arrives_with_its_trailers() {
        run(async {
            let [client, server] = pair().await;
            let sent = vec![7; 1_000_000];
            let stream = client.open();
            client.send_head(stream, &HEAD, false);
            let (upload, content) = (client.clone(), sent.clone());
            spawn_local(async move {
                upload.send_data(stream, &content, false, 9).await;
                upload.send_head(stream, &[("x-sum", "1")], true);
            });
            server.wait(|state| state.opened.pop_front()).await;
            let mut received = Vec::new();
            while let Some(part) = server.take_data(stream, 9999).await.unwrap() {
                received.extend(part);
            }
            assert!(received == sent);
            server.with(|state| {
                assert_eq!(state.streams[&stream].heads[1][0].0, "x-sum");
                assert_eq!(state.violations, Vec::<String>::new());
            });
        });
    }

    #[test]
    fn what_a_peer_does_wrong_is_noted() {
        let block = |fields: &[(&str, &str)]| hpack::encode(fields.iter().copied());
        let with = |more: &'static [(&'static str, &'static str)]| {
            frame(kind::HEADERS, 4, 1, &block(&[&HEAD, more].concat()))
        };
        let samples = [
            (with(&[("Upper", "a")]), "a field"),
            (with(&[("connection", "close")]), "a field"),
            (with(&[("a", "b\n")]), "a value"),
            (with(&[(":path", "/")]), "pseudo-fields"),
            (frame(kind::HEADERS, 4, 2, &block(&HEAD)), "a new stream"),
            (frame(kind::DATA, 0, 1, b"x"), "DATA of an idle stream"),
            (
                [
                    with(&[("content-length", "5")]),
                    frame(kind::DATA, flag::END_STREAM, 1, b"x"),
                ]
                .concat(),
                "content-length is",
            ),
            (
                [
                    with(&[]),
                    frame(kind::DATA, 1, 1, b""),
                    frame(kind::DATA, 0, 1, b"x"),
                ]
                .concat(),
                "DATA where none may be",
            ),
            (vec![0, 0x80, 0, 0, 0, 0, 0, 0, 1], "a frame of 32768 bytes"),
        ];
        run(async {
            for (bytes, said) in samples {
                let [client, server] = pair().await;
                client.send_raw(&bytes);
                let violation = server.wait(|state| state.violations.first().cloned());
                let violation = violation.await;
                assert!(violation.contains(said), "{violation}");
            }
        });
    }
}
