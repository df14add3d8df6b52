//! HTTP/2: any bytes of a peer, in any pieces, give events or an error, never a panic, and make
//! the engine hold no more than its limits allow.

#![no_main]

use std::time::{Duration, Instant};

use libfuzzer_sys::fuzz_target;
use net::http2::{Engine, Event, Limits, Role, StreamId};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
/// The most output that waits: what is sent is bounded, and so are replies to control frames.
const OUTPUT_MAX: usize = 512 * 1024;

fuzz_target!(|bytes: &[u8]| {
    let Some((&first, input)) = bytes.split_first() else {
        return;
    };
    let is_server = first & 1 == 0;
    let mut session = Session::new(is_server);
    if first & 2 == 0 {
        // Past the beginning at once, so that more of the rest is reached.
        if is_server {
            session.feed(PREFACE);
        }
        session.feed(SETTINGS);
    }
    for piece in input.chunks(usize::from(first >> 2) + 1) {
        if !session.feed(piece) {
            return;
        }
    }
});

struct Session {
    engine: Engine,
    is_server: bool,
    waiting: Vec<u8>,
    now: Instant,
}

impl Session {
    fn new(is_server: bool) -> Self {
        let role = if is_server {
            Role::Server
        } else {
            Role::Client
        };
        let limits = Limits {
            streams: 8,
            header_list: 4096,
            stream_window: 4096,
            ..Limits::default()
        };
        let mut engine = Engine::new(role, limits);
        if !is_server {
            for end in [false, true, false] {
                let none = std::iter::empty();
                let _ = engine.open(b"POST", b"http", b"a", b"/", none, end);
            }
        }
        Self {
            engine,
            is_server,
            waiting: Vec::new(),
            now: Instant::now(),
        }
    }

    /// False when the connection has failed.
    fn feed(&mut self, bytes: &[u8]) -> bool {
        self.waiting.extend_from_slice(bytes);
        self.now += Duration::from_millis(1);
        let result = self.engine.receive(&self.waiting, self.now);
        while let Some(event) = self.engine.next_event() {
            self.react(event);
        }
        let pending = self.engine.pending().len();
        assert!(pending <= OUTPUT_MAX, "{pending} bytes wait");
        // A peer that reads slowly: half of it goes out.
        self.engine.written(pending.div_ceil(2));
        match result {
            Ok(used) => {
                assert!(used <= self.waiting.len());
                self.waiting.drain(..used);
                true
            }
            Err(_) => {
                assert!(self.engine.error().is_some());
                false
            }
        }
    }

    fn react(&mut self, event: Event) {
        match event {
            Event::Head { stream, end } => self.head(stream, end),
            Event::Data { stream } => self.data(stream),
            Event::Writable { stream } => {
                let _ = self.engine.send_data(stream, &[7; 3000], true);
            }
            Event::Reset { stream, .. } | Event::TooLarge { stream } => self.engine.release(stream),
            Event::Settings | Event::GoAway { .. } | Event::Pong => {}
        }
    }

    fn head(&mut self, stream: StreamId, end: bool) {
        let Some(head) = self.engine.take_head(stream) else {
            return;
        };
        for (_, name, value) in head.fields.view().iter() {
            assert!(!name.is_empty() && !name.iter().any(u8::is_ascii_uppercase));
            assert!(!value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)));
        }
        if self.is_server {
            let fields = head.fields.view().iter();
            let _ = self.engine.respond(stream, 200, fields, false);
            let _ = self.engine.send_data(stream, &[7; 3000], end);
        }
        self.engine.recycle(head);
    }

    fn data(&mut self, stream: StreamId) {
        let (bytes, end) = self.engine.readable(stream);
        assert!(bytes.len() <= 1 << 20);
        let count = bytes.len() / 2 + 1;
        self.engine.consume(stream, count);
        if end {
            let _ = self.engine.take_trailers(stream);
            self.engine.release(stream);
        }
    }
}
