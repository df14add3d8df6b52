//! No schedule of partial writes, stalled readers, resets and changed windows makes a stream stand
//! still whose reader reads: two engines, and callers that act on events alone.

use std::collections::BTreeMap;

use crate::common::*;
use fastrand::Rng;
use net::http2::{Code, Engine, Event, Limits, StreamId};

/// One direction of a stream.
#[derive(Default)]
struct Half {
    total: usize,
    sent: usize,
    received: usize,
    has_ended: bool,
    /// Whether its reader reads nothing.
    is_stalled: bool,
}

#[derive(Default)]
struct Exchange {
    up: Half,
    down: Half,
    is_accepted: bool,
}

impl Half {
    fn is_sending(&self) -> bool {
        self.sent < self.total
    }
}

impl Exchange {
    fn is_answering(&self) -> bool {
        self.is_accepted && self.down.is_sending()
    }
}

fn byte(stream: StreamId, at: usize) -> u8 {
    (at * 7 + stream as usize) as u8
}

/// Sends what there is room for.
fn push(engine: &mut Engine, stream: StreamId, half: &mut Half) {
    loop {
        let end = half.total.min(half.sent + 10_000);
        let piece: Vec<u8> = (half.sent..end).map(|at| byte(stream, at)).collect();
        let is_last = end == half.total;
        let Ok(count) = engine.send_data(stream, &piece, is_last) else {
            return;
        };
        half.sent += count;
        if is_last || count < piece.len() {
            return;
        }
    }
}

/// Reads everything, unless the reader is stalled.
fn read(engine: &mut Engine, stream: StreamId, half: &mut Half) {
    if half.is_stalled {
        return;
    }
    let (data, is_end) = engine.readable(stream);
    for (at, &found) in data.iter().enumerate() {
        assert_eq!(found, byte(stream, half.received + at));
    }
    let count = data.len();
    half.received += count;
    half.has_ended |= is_end;
    engine.consume(stream, count);
}

struct Schedule {
    pair: Pair,
    live: BTreeMap<StreamId, Exchange>,
    random: Rng,
    window: u32,
}

impl Schedule {
    fn new(seed: u64) -> Self {
        let mut random = Rng::with_seed(seed);
        let window = [1000, 20_000, 65_535, 300_000][random.usize(..4)];
        let limits = Limits {
            streams: 30,
            stream_window: window,
            connection_window: 65_535 + random.u32(..100_000),
            backlog: 100 + random.usize(..70_000),
            resets: 1_000_000,
            control_frames: 1_000_000,
            ..Limits::default()
        };
        let mut pair = Pair::new(limits, limits);
        pair.settle();
        events(&mut pair.client);
        events(&mut pair.server);
        Self {
            pair,
            live: BTreeMap::new(),
            random,
            window,
        }
    }

    /// Handles what has happened; whether anything has.
    fn handle(&mut self) -> bool {
        let mut has_any = false;
        while let Some(event) = self.pair.server.next_event() {
            has_any = true;
            self.at_server(event);
        }
        while let Some(event) = self.pair.client.next_event() {
            has_any = true;
            self.at_client(event);
        }
        has_any
    }

    fn at_server(&mut self, event: Event) {
        let server = &mut self.pair.server;
        match event {
            Event::Head { stream, .. } => {
                let head = server.take_head(stream).unwrap();
                server.recycle(head);
                server.respond(stream, 200, [], false).unwrap();
                match self.live.get_mut(&stream) {
                    Some(exchange) => {
                        exchange.is_accepted = true;
                        push(server, stream, &mut exchange.down);
                    }
                    None => server.release(stream),
                }
            }
            Event::Data { stream } => {
                if let Some(exchange) = self.live.get_mut(&stream) {
                    read(server, stream, &mut exchange.up);
                }
            }
            Event::Writable { stream } => {
                if let Some(exchange) = self.live.get_mut(&stream) {
                    push(server, stream, &mut exchange.down);
                }
            }
            Event::Reset { stream, .. } => {
                server.release(stream);
                self.live.remove(&stream);
            }
            Event::Settings => {}
            other => panic!("{other:?}"),
        }
    }

    fn at_client(&mut self, event: Event) {
        let client = &mut self.pair.client;
        match event {
            Event::Head { stream, .. } => {
                let head = client.take_head(stream).unwrap();
                assert_eq!(head.status(), 200);
                client.recycle(head);
            }
            Event::Data { stream } => {
                if let Some(exchange) = self.live.get_mut(&stream) {
                    read(client, stream, &mut exchange.down);
                }
            }
            Event::Writable { stream } => {
                if let Some(exchange) = self.live.get_mut(&stream) {
                    push(client, stream, &mut exchange.up);
                }
            }
            Event::Reset { stream, .. } => {
                client.release(stream);
                self.live.remove(&stream);
            }
            Event::Settings => {}
            other => panic!("{other:?}"),
        }
    }

    fn act(&mut self) {
        let chosen = self.random.choice(self.live.keys()).copied();
        match (self.random.u8(..10), chosen) {
            (0..=2, _) => self.open(),
            (3..=4, Some(stream)) => self.toggle(stream),
            // One that has ended here is not reset, so the other side would not hear of it.
            (5, Some(stream)) if self.live[&stream].up.is_sending() => {
                self.live.remove(&stream);
                self.pair.client.reset(stream, Code::CANCEL);
            }
            (6, Some(stream)) if self.live[&stream].is_answering() => {
                self.live.remove(&stream);
                self.pair.server.reset(stream, Code::INTERNAL);
            }
            (7, _) => self.change_window(),
            _ => {}
        }
    }

    fn open(&mut self) {
        let client = &mut self.pair.client;
        let Ok(stream) = client.open(b"POST", b"http", b"a", b"/", [], false) else {
            return;
        };
        let mut total = || {
            let most = [1, 5, 20, 50][self.random.usize(..4)] * (self.window as usize).min(5000);
            self.random.usize(..most)
        };
        let mut exchange = Exchange::default();
        (exchange.up.total, exchange.down.total) = (total(), total());
        push(client, stream, &mut exchange.up);
        self.live.insert(stream, exchange);
    }

    fn toggle(&mut self, stream: StreamId) {
        let Some(exchange) = self.live.get_mut(&stream) else {
            return;
        };
        let (engine, half) = match self.random.u8(..2) {
            0 => (&mut self.pair.server, &mut exchange.up),
            _ => (&mut self.pair.client, &mut exchange.down),
        };
        half.is_stalled = !half.is_stalled;
        read(engine, stream, half);
    }

    /// The client hears of a smaller initial window, and of the old one again.
    fn change_window(&mut self) {
        self.rest();
        let smaller = self.random.u32(..self.window);
        for window in [smaller, self.window] {
            let [a, b, c, d] = window.to_be_bytes();
            let settings = frame(SETTINGS, 0, 0, &[0, 4, a, b, c, d]);
            give(&mut self.pair.client, &settings).unwrap();
            for _ in 0..self.random.u8(..20) {
                self.pair.step(&mut self.random);
                self.handle();
            }
            self.rest();
        }
    }

    /// Goes on until nothing is under way.
    fn rest(&mut self) {
        loop {
            self.pair.flush();
            if !self.handle() && self.pair.is_quiet() {
                return;
            }
        }
    }

    /// When nothing is under way, every body has come whose reader reads.
    fn check(&mut self, seed: u64) {
        self.rest();
        let mut done = Vec::new();
        for (&stream, exchange) in &self.live {
            for half in [&exchange.up, &exchange.down] {
                let is_whole = half.has_ended && half.received == half.total;
                let (got, all) = (half.received, half.total);
                assert!(
                    is_whole || half.is_stalled,
                    "stream {stream} stands still at {got} of {all}, seed {seed}"
                );
            }
            if exchange.up.has_ended && exchange.down.has_ended {
                done.push(stream);
            }
        }
        for stream in done {
            self.live.remove(&stream);
            self.pair.server.release(stream);
            self.pair.client.release(stream);
        }
    }
}

#[test]
fn no_stream_stands_still_whose_reader_reads() {
    for seed in 1..=30 {
        let mut schedule = Schedule::new(seed);
        for _ in 0..120 {
            schedule.act();
            for _ in 0..schedule.random.u8(..5) {
                schedule.pair.step(&mut schedule.random);
                schedule.handle();
            }
            if schedule.random.u8(..15) == 0 {
                schedule.check(seed);
            }
        }
        for exchange in schedule.live.values_mut() {
            exchange.up.is_stalled = false;
            exchange.down.is_stalled = false;
        }
        let Schedule { pair, live, .. } = &mut schedule;
        for (&stream, exchange) in live {
            read(&mut pair.server, stream, &mut exchange.up);
            read(&mut pair.client, stream, &mut exchange.down);
        }
        schedule.check(seed);
        assert!(schedule.live.is_empty());
        assert!(schedule.pair.client.is_idle() && schedule.pair.server.is_idle());
    }
}
