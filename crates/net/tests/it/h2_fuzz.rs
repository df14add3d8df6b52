//! Random and mutated frames: nothing panics, and what is held stays bounded.

use std::time::{Duration, Instant};

use crate::common::*;
use fastrand::Rng;
use net::http2::{Code, Engine, Event, Limits, Role};

fn limits() -> Limits {
    Limits {
        streams: 10,
        stream_window: 5000,
        connection_window: 70_000,
        backlog: 10_000,
        header_list: 2000,
        resets: 1_000_000,
        control_frames: 1_000_000,
        ..Limits::default()
    }
}

/// A block of lines that may be; the first one is put into the table for the others.
fn block(random: &mut Rng, is_request: bool) -> Vec<u8> {
    let mut block = if is_request {
        GET.to_vec()
    } else {
        b"\x88".to_vec()
    };
    block.extend_from_slice(b"\x40\x03abc\x03def");
    for _ in 0..random.u8(..6) {
        let part: &[u8] = match random.u8(..20) {
            0..=2 => b"\x40\x03abc\x04long",
            3..=5 => b"\xbe",
            6..=8 => b"\x00\x06cookie\x01a",
            9 => b"\x0f\x0d\x03100",
            10 => b"\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
            11..=13 => b"\x90",
            14..=16 => b"\x58\x86\xa8\xeb\x10\x64\x9c\xbf",
            _ => b"\x10\x01x\x02yz",
        };
        block.extend_from_slice(part);
    }
    block
}

/// What the frames are about.
struct Wire {
    is_to_server: bool,
    /// The highest stream of the client.
    last: u32,
}

impl Wire {
    /// A frame that is allowed, but maybe not for the stream it is about.
    fn frame(&mut self, random: &mut Rng) -> Vec<u8> {
        let stream = self.last.saturating_sub(2 * random.u32(..12)) | 1;
        match random.u8(..12) {
            0..=3 => self.headers(random, stream),
            4..=6 => {
                let payload = vec![random.u8(..20); 20 + random.usize(..3000)];
                frame(DATA, [0, 0, 1, 8, 9][random.usize(..5)], stream, &payload)
            }
            7 => frame(RST_STREAM, 0, stream, &[0, 0, 0, random.u8(..14)]),
            8 => {
                let name = [1, 4][random.usize(..2)];
                frame(SETTINGS, 0, 0, &[0, name, 0, 0, random.u8(..), 1])
            }
            9 => frame(PING, random.u8(..2), 0, &[7; 8]),
            10 => {
                let stream = stream * random.u32(..2);
                frame(WINDOW_UPDATE, 0, stream, &[0, 0, random.u8(..200), 1])
            }
            _ => frame(PRIORITY, 0, stream, &[0, 0, 0, 0, 5]),
        }
    }

    fn headers(&mut self, random: &mut Rng, stream: u32) -> Vec<u8> {
        let is_trailers = random.u8(..20) == 0;
        let stream = match self.is_to_server {
            true if !is_trailers => {
                self.last += 2;
                self.last
            }
            _ => stream,
        };
        let end = random.u8(..2);
        let block = match is_trailers {
            true => b"\x00\x01a\x01b".to_vec(),
            false => block(random, self.is_to_server),
        };
        if random.u8(..8) > 0 {
            return frame(HEADERS, END_HEADERS | end, stream, &block);
        }
        let (first, rest) = block.split_at(random.usize(..block.len()));
        let rest = frame(CONTINUATION, END_HEADERS, stream, rest);
        [frame(HEADERS, end, stream, first), rest].concat()
    }
}

fn mutate(random: &mut Rng, bytes: &mut [u8]) {
    for _ in 0..random.u8(1..=3) {
        let at = random.usize(..bytes.len());
        bytes[at] = match random.u8(..3) {
            0 => bytes[at] ^ (1 << random.u8(..8)),
            1 => random.u8(..),
            _ => [0, 0xff, 0x7f, 0x80][random.usize(..4)],
        };
    }
}

/// A caller that does what callers do, in any order.
fn act(engine: &mut Engine, random: &mut Rng, known: &mut Vec<u32>, is_client: bool) {
    while let Some(event) = engine.next_event() {
        if let Event::Head { stream, .. } = event
            && !is_client
        {
            known.push(stream);
        }
        if let Event::Reset { stream, .. } | Event::TooLarge { stream } = event {
            engine.release(stream);
            known.retain(|&other| other != stream);
        }
    }
    if is_client && let Ok(stream) = engine.open(b"GET", b"http", b"a", b"/", [], random.bool()) {
        known.push(stream);
    }
    let Some(&stream) = random.choice(known.iter()) else {
        return;
    };
    match random.u8(..9) {
        0 => drop(engine.respond(stream, 200, [line("Server", "x")], random.bool())),
        1 => drop(engine.send_data(stream, &vec![1; random.usize(..9000)], random.bool())),
        2 => engine.consume(stream, random.usize(..4000)),
        3 => drop(engine.send_trailers(stream, [line("a", "b")])),
        4 => drop(engine.take_head(stream).map(|head| engine.recycle(head))),
        5 => drop(engine.take_trailers(stream)),
        6 => engine.reset(stream, Code::CANCEL),
        7 => engine.release(stream),
        _ => {}
    }
    let (data, _) = engine.readable(stream);
    assert!(data.len() <= 65_535);
    if engine.take_head(stream).is_none() && engine.is_idle() {
        known.clear();
    }
}

fn run(seed: u64, role: Role, is_mutated: bool) -> usize {
    let mut random = Rng::with_seed(seed);
    let is_client = role == Role::Client;
    let mut engine = Engine::new(role, limits());
    let mut wire = if is_client {
        Vec::new()
    } else {
        PREFACE.to_vec()
    };
    wire.extend(frame(SETTINGS, 0, 0, b""));
    let (mut known, mut count) = (Vec::new(), 0);
    let mut frames = Wire {
        is_to_server: !is_client,
        last: 1,
    };
    if !is_client {
        wire.extend(frame(HEADERS, END_HEADERS, 1, GET));
    }
    let mut now = Instant::now();
    for _ in 0..500 {
        if is_client {
            // What a server sends is about streams that the client has opened.
            act(&mut engine, &mut random, &mut known, is_client);
            frames.last = known.last().copied().unwrap_or(1);
        }
        let mut bytes = frames.frame(&mut random);
        if is_mutated && random.u8(..50) == 0 {
            mutate(&mut random, &mut bytes);
        }
        wire.extend(bytes);
        now += Duration::from_millis(random.u64(..100));
        match engine.receive(&wire, now) {
            Ok(used) => drop(wire.drain(..used)),
            Err(_) => {
                assert!(engine.receive(b"", now).is_err());
                return count;
            }
        }
        count += 1;
        act(&mut engine, &mut random, &mut known, is_client);
        let written = random.usize(..=engine.pending().len());
        engine.written(written);
        // Heads and resets of ten streams, replies up to their limit, the backlog.
        assert!(
            engine.pending().len() < 10_000 + 40_000,
            "{}",
            engine.pending().len()
        );
        if wire.len() > 40_000 {
            return count;
        }
    }
    count
}

#[test]
fn nothing_that_comes_makes_it_panic() {
    let mut total = 0;
    for seed in 1..=2000 {
        for role in [Role::Server, Role::Client] {
            total += run(seed, role, seed % 2 == 0);
        }
    }
    // Runs must get past their first frames for the test to mean something.
    println!("{total} frames were taken");
    assert!(total > 100_000, "{total}");
}

#[test]
fn noise_makes_no_panic() {
    let mut random = Rng::with_seed(99);
    for _ in 0..5000 {
        let mut engine = server(limits());
        let noise: Vec<u8> = (0..random.usize(..300)).map(|_| random.u8(..)).collect();
        let _ = engine.receive(&noise, Instant::now());
        // As the block of a request, every byte reaches the decoder.
        let mut engine = server(limits());
        let block = [GET, &noise].concat();
        let _ = engine.receive(&frame(HEADERS, 5, 1, &block), Instant::now());
    }
}
