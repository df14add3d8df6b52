//! Flow control (RFC 9113, section 5.2): streams that are not read delay no other stream, and what
//! is held for them is bounded.

use crate::common::*;
use fastrand::Rng;
use net::http2::{Engine, Event, Limits, OpenError};

/// What a peer may send, as the engine has announced it.
struct Sender {
    connection: i64,
    streams: std::collections::BTreeMap<u32, i64>,
    initial: i64,
}

impl Sender {
    fn new(limits: Limits) -> Self {
        Self {
            connection: i64::from(limits.connection_window),
            streams: Default::default(),
            initial: i64::from(limits.stream_window),
        }
    }

    /// Sends as much as the windows allow, up to `most`; how much.
    fn send(&mut self, engine: &mut Engine, stream: u32, most: usize) -> usize {
        let window = self.streams.entry(stream).or_insert(self.initial);
        let count = (*window).min(self.connection).min(most as i64).max(0);
        *window -= count;
        self.connection -= count;
        let mut left = count as usize;
        while left > 0 {
            let part = left.min(16_384);
            give(engine, &frame(DATA, 0, stream, &vec![1; part])).unwrap();
            left -= part;
        }
        self.hear(engine);
        count as usize
    }

    /// Takes window updates out of the engine's output.
    fn hear(&mut self, engine: &mut Engine) {
        for (kind, _, stream, payload) in sent(engine) {
            if kind != WINDOW_UPDATE {
                continue;
            }
            let by = i64::from(u32::from_be_bytes(payload.try_into().unwrap()));
            match stream {
                0 => self.connection += by,
                _ => *self.streams.entry(stream).or_insert(self.initial) += by,
            }
        }
    }
}

fn opened(engine: &mut Engine) -> u32 {
    let opened = engine.open(b"GET", b"http", b"a", b"/", [], true);
    let stream = opened.unwrap();
    give(engine, &frame(HEADERS, END_HEADERS, stream, b"\x88")).unwrap();
    stream
}

/// Streams that nobody reads get as much as the peer can send; then one is read.
fn stall(engine: &mut Engine, sender: &mut Sender, stalled: &[u32], live: u32) {
    for &stream in stalled {
        while sender.send(engine, stream, 16_384) > 0 {}
    }
    let (mut moved, wanted) = (0, 10 << 20);
    while moved < wanted {
        let count = sender.send(engine, live, 16_384);
        assert!(
            count > 0,
            "the live stream stands still after {moved} bytes"
        );
        engine.consume(live, count);
        sender.hear(engine);
        moved += count;
        events(engine);
    }
}

#[test]
fn unread_responses_do_not_delay_another() {
    let limits = Limits::default();
    let mut engine = client(limits);
    let streams: Vec<u32> = (0..90).map(|_| opened(&mut engine)).collect();
    let mut sender = Sender::new(limits);
    stall(&mut engine, &mut sender, &streams[1..], streams[0]);
}

#[test]
fn unread_uploads_do_not_delay_another() {
    let limits = Limits::default();
    let mut engine = server(limits);
    let streams: Vec<u32> = (0..128).map(|number| 1 + number * 2).collect();
    for &stream in &streams {
        give(&mut engine, &frame(HEADERS, END_HEADERS, stream, GET)).unwrap();
    }
    events(&mut engine);
    let mut sender = Sender::new(limits);
    stall(&mut engine, &mut sender, &streams[1..], streams[0]);
}

#[test]
fn what_is_held_unread_is_bounded_and_comes_back() {
    let limits = Limits {
        stream_window: 64 << 20,
        connection_window: 1 << 20,
        ..Limits::default()
    };
    let mut engine = client(limits);
    let (first, second) = (opened(&mut engine), opened(&mut engine));
    let mut sender = Sender::new(limits);
    let mut held = 0;
    while let count @ 1.. = sender.send(&mut engine, first, 16_384) {
        held += count;
    }
    assert!((32 << 20..=33 << 20).contains(&held), "{held}");
    // Requests go over another connection meanwhile.
    assert_eq!(engine.may_open(), Err(OpenError::TooManyStreams));
    engine.release(first);
    assert_eq!(engine.may_open(), Ok(()));
    sender.hear(&mut engine);
    assert!(sender.send(&mut engine, second, 16_384) > 0);
}

#[test]
fn the_connection_window_is_exact_whatever_becomes_of_streams() {
    let limits = Limits {
        stream_window: 40 << 20,
        connection_window: 1 << 20,
        streams: 1000,
        ..Limits::default()
    };
    let mut random = Rng::with_seed(77);
    let mut engine = client(limits);
    let mut sender = Sender::new(limits);
    let mut live: Vec<u32> = Vec::new();
    for _ in 0..20_000 {
        if live.len() < 5 && engine.may_open().is_ok() {
            live.push(opened(&mut engine));
        }
        let at = random.usize(..live.len());
        let stream = live[at];
        match random.u8(..8) {
            0..=4 => drop(sender.send(&mut engine, stream, random.usize(1..=300_000))),
            5 | 6 => engine.consume(stream, random.usize(..500_000)),
            _ if random.u8(..20) == 0 => {
                live.swap_remove(at);
                engine.release(stream);
            }
            _ => {}
        }
        sender.hear(&mut engine);
        events(&mut engine);
    }
    for stream in live {
        engine.release(stream);
    }
    sender.hear(&mut engine);
    // Everything has come back but for what is not worth a frame.
    assert!(sender.connection > 512 << 10, "{}", sender.connection);
    assert!(sender.connection <= 1 << 20, "{}", sender.connection);
}

#[test]
fn streams_share_a_narrow_connection_window() {
    let mut engine = server(Limits::default());
    let streams = [1, 3, 5, 7];
    for stream in streams {
        give(&mut engine, &frame(HEADERS, 5, stream, GET)).unwrap();
        engine.respond(stream, 200, [], false).unwrap();
    }
    // Streams have windows without end; the connection's is given back in steps.
    give(
        &mut engine,
        &frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]),
    )
    .unwrap();
    let piece = vec![7; 64 * 1024];
    let mut taken = std::collections::BTreeMap::new();
    for stream in streams {
        let count = engine.send_data(stream, &piece, false).unwrap();
        taken.insert(stream, count);
    }
    for _ in 0..400 {
        give(&mut engine, &frame(WINDOW_UPDATE, 0, 0, &[0, 0, 16, 0])).unwrap();
        sent(&mut engine);
        for event in events(&mut engine) {
            if let Event::Writable { stream } = event {
                let count = engine.send_data(stream, &piece, false).unwrap();
                *taken.entry(stream).or_default() += count;
            }
        }
    }
    let (least, most) = (taken.values().min().unwrap(), taken.values().max().unwrap());
    assert!(most - least <= 2 * 64 * 1024, "{taken:?}");
}
