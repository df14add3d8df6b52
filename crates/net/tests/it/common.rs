//! What the tests share: raw frames, and two engines that talk to each other.

use std::time::Instant;

use fastrand::Rng;
use message::Field;
use net::http2::{ConnectionError, Engine, Event, Limits, Role};
pub use testkit::http2::flag::{END_HEADERS, END_STREAM};
pub use testkit::http2::frame;
pub use testkit::http2::kind::{
    CONTINUATION, DATA, GOAWAY, HEADERS, PING, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE,
};

pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A block of `GET http /`.
pub const GET: &[u8] = b"\x82\x86\x84";

pub type Line<'a> = (Field, &'a [u8], &'a [u8]);

pub fn line<'a>(name: &'a str, value: &'a str) -> Line<'a> {
    (
        Field::of(name.as_bytes()),
        name.as_bytes(),
        value.as_bytes(),
    )
}

/// The frames of some bytes: kind, flags, stream, payload.
pub fn frames(mut input: &[u8]) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let mut found = Vec::new();
    while input.len() >= 9 {
        let length = u32::from_be_bytes([0, input[0], input[1], input[2]]) as usize;
        let stream = u32::from_be_bytes(input[5..9].try_into().unwrap());
        let payload = input[9..9 + length].to_vec();
        found.push((input[3], input[4], stream, payload));
        input = &input[9 + length..];
    }
    found
}

/// Takes the frames out of an engine's output.
pub fn sent(engine: &mut Engine) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let found = frames(engine.pending());
    engine.written(engine.pending().len());
    found
}

/// A server that has had its preface and settings, and the frames it sent so far taken out.
pub fn server(limits: Limits) -> Engine {
    let mut engine = Engine::new(Role::Server, limits);
    let start = [
        PREFACE,
        &frame(SETTINGS, 0, 0, b""),
        &frame(SETTINGS, 1, 0, b""),
    ]
    .concat();
    assert_eq!(engine.receive(&start, Instant::now()), Ok(start.len()));
    sent(&mut engine);
    assert_eq!(engine.next_event(), Some(Event::Settings));
    engine
}

/// A client whose server has sent settings.
pub fn client(limits: Limits) -> Engine {
    let mut engine = Engine::new(Role::Client, limits);
    let start = [frame(SETTINGS, 0, 0, b""), frame(SETTINGS, 1, 0, b"")].concat();
    assert_eq!(engine.receive(&start, Instant::now()), Ok(start.len()));
    engine.written(engine.pending().len());
    assert_eq!(engine.next_event(), Some(Event::Settings));
    engine
}

pub fn give(engine: &mut Engine, bytes: &[u8]) -> Result<(), ConnectionError> {
    let used = engine.receive(bytes, Instant::now())?;
    assert_eq!(used, bytes.len());
    Ok(())
}

pub fn events(engine: &mut Engine) -> Vec<Event> {
    std::iter::from_fn(|| engine.next_event()).collect()
}

/// A client and a server with what is on its way between them.
pub struct Pair {
    pub client: Engine,
    pub server: Engine,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
}

impl Pair {
    pub fn new(client: Limits, server: Limits) -> Self {
        Self {
            client: Engine::new(Role::Client, client),
            server: Engine::new(Role::Server, server),
            to_server: Vec::new(),
            to_client: Vec::new(),
        }
    }

    /// Moves a random piece each way.
    pub fn step(&mut self, random: &mut Rng) {
        carry(
            &mut self.client,
            &mut self.server,
            &mut self.to_server,
            random,
        );
        carry(
            &mut self.server,
            &mut self.client,
            &mut self.to_client,
            random,
        );
    }

    /// Whether nothing is under way.
    pub fn is_quiet(&self) -> bool {
        let is_written = self.client.pending().is_empty() && self.server.pending().is_empty();
        is_written && self.to_server.is_empty() && self.to_client.is_empty()
    }

    /// Moves everything that is there each way, once.
    pub fn flush(&mut self) {
        carry_all(&mut self.client, &mut self.server, &mut self.to_server);
        carry_all(&mut self.server, &mut self.client, &mut self.to_client);
    }

    /// Moves everything until nothing is left.
    pub fn settle(&mut self) {
        let mut random = Rng::with_seed(1);
        while !self.client.pending().is_empty() || !self.server.pending().is_empty() {
            for _ in 0..100 {
                self.step(&mut random);
            }
        }
    }
}

fn carry(from: &mut Engine, to: &mut Engine, wire: &mut Vec<u8>, random: &mut Rng) {
    let most = [1, 10, 100, 5000, 50_000][random.usize(..5)];
    let count = from.pending().len().min(random.usize(1..=most));
    wire.extend_from_slice(&from.pending()[..count]);
    from.written(count);
    let used = to.receive(wire, Instant::now()).unwrap();
    wire.drain(..used);
}

fn carry_all(from: &mut Engine, to: &mut Engine, wire: &mut Vec<u8>) {
    wire.extend_from_slice(from.pending());
    from.written(from.pending().len());
    let used = to.receive(wire, Instant::now()).unwrap();
    wire.drain(..used);
}
