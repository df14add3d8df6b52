//! A client engine and a server engine that talk to each other, cut at random places.

use std::collections::BTreeMap;

use crate::common::{Pair, line};
use fastrand::Rng;
use net::http2::{Code, Engine, Event, Limits, OpenError, StreamId};

struct Call {
    path: String,
    body: Vec<u8>,
    sent: usize,
    received: Vec<u8>,
}

fn small(random: &mut Rng) -> Limits {
    Limits {
        streams: random.u32(1..=20),
        stream_window: [1, 100, 65_535, 200_000][random.usize(..4)],
        connection_window: 65_535 + random.u32(..10_000),
        backlog: 100 + random.usize(..70_000),
        control_frames: 1_000_000,
        ..Limits::default()
    }
}

/// Sends what there is room for; the answer is whether all is sent.
fn push(engine: &mut Engine, stream: StreamId, body: &[u8], sent: &mut usize) {
    let count = engine.send_data(stream, &body[*sent..], false).unwrap();
    *sent += count;
}

fn serve(server: &mut Engine) {
    while let Some(event) = server.next_event() {
        match event {
            Event::Head { stream, .. } => {
                let head = server.take_head(stream).unwrap();
                let path = String::from_utf8(head.path().to_vec()).unwrap();
                assert_eq!(head.fields.view().get("x-path"), Some(path.as_bytes()));
                server.recycle(head);
                server
                    .respond(stream, 103, [line("Link", &path)], false)
                    .unwrap();
                server
                    .respond(stream, 200, [line("X-Path", &path)], false)
                    .unwrap();
                echo(server, stream);
            }
            Event::Data { stream } | Event::Writable { stream } => echo(server, stream),
            Event::Settings => {}
            other => panic!("{other:?}"),
        }
    }
}

fn echo(server: &mut Engine, stream: StreamId) {
    let (data, is_end) = server.readable(stream);
    let data = data.to_vec();
    let count = server.send_data(stream, &data, false).unwrap();
    server.consume(stream, count);
    if is_end && count == data.len() {
        let check = data.len().to_string();
        server
            .send_trailers(stream, [line("X-Check", &check)])
            .unwrap();
        server.release(stream);
    }
}

fn answer(client: &mut Engine, calls: &mut BTreeMap<StreamId, Call>) -> usize {
    let mut done = 0;
    while let Some(event) = client.next_event() {
        match event {
            Event::Head { stream, end } => {
                assert!(!end);
                let call = &calls[&stream];
                let head = client.take_head(stream).unwrap();
                let name = if head.is_interim() { "link" } else { "x-path" };
                assert_eq!(head.fields.view().get(name), Some(call.path.as_bytes()));
            }
            Event::Data { stream } => {
                let call = calls.get_mut(&stream).unwrap();
                let (data, is_end) = client.readable(stream);
                let count = data.len();
                call.received.extend_from_slice(data);
                client.consume(stream, count);
                if is_end {
                    let trailers = client.take_trailers(stream).unwrap();
                    assert!(trailers.view().get("x-check").is_some());
                    assert!(call.received == call.body);
                    client.release(stream);
                    calls.remove(&stream);
                    done += 1;
                }
            }
            Event::Writable { stream } => {
                let call = calls.get_mut(&stream).unwrap();
                push(client, stream, &call.body, &mut call.sent);
                finish(client, stream, call);
            }
            Event::Settings => {}
            other => panic!("{other:?}"),
        }
    }
    done
}

fn finish(client: &mut Engine, stream: StreamId, call: &Call) {
    if call.sent == call.body.len() {
        assert_eq!(client.send_data(stream, b"", true), Ok(0));
    }
}

fn start(client: &mut Engine, calls: &mut BTreeMap<StreamId, Call>, random: &mut Rng) -> bool {
    let path = format!("/{}", random.u16(..1000));
    let fields = [
        line("X-Path", &path),
        line("User-Agent", "test"),
        line("Cookie", "a=b"),
    ];
    let opened = client.open(
        b"POST",
        b"http",
        b"a.example",
        path.as_bytes(),
        fields,
        false,
    );
    let Ok(stream) = opened else {
        assert_eq!(opened, Err(OpenError::TooManyStreams));
        return false;
    };
    let length = [0, 1, 50, 3000, 80_000][random.usize(..5)];
    let length = random.usize(..=length);
    let body = (0..length)
        .map(|at| (at * 7 + stream as usize) as u8)
        .collect();
    let mut call = Call {
        path,
        body,
        sent: 0,
        received: Vec::new(),
    };
    push(client, stream, &call.body, &mut call.sent);
    finish(client, stream, &call);
    calls.insert(stream, call);
    true
}

#[test]
fn everything_comes_through_whatever_the_pieces_and_windows() {
    for seed in 1..=25 {
        let mut random = Rng::with_seed(seed * 7919);
        let limits = (small(&mut random), small(&mut random));
        // A window of one byte makes a frame of every byte.
        let is_slow = limits.0.stream_window.min(limits.1.stream_window) < 100;
        let mut pair = Pair::new(limits.0, limits.1);
        let mut calls = BTreeMap::new();
        let (mut opened, mut done, wanted) = (0, 0, if is_slow { 10 } else { 100 });
        let mut steps = 0;
        while done < wanted {
            // A client may not open more than the server's settings allow, once it knows them.
            if opened < wanted && !pair.client.peer().streams.eq(&100) {
                opened += usize::from(start(&mut pair.client, &mut calls, &mut random));
            }
            pair.step(&mut random);
            serve(&mut pair.server);
            done += answer(&mut pair.client, &mut calls);
            steps += 1;
            assert!(steps < 3_000_000, "stuck at {done} with seed {seed}");
        }
        pair.settle();
        assert!(pair.client.is_idle() && pair.server.is_idle());
    }
}

#[test]
fn going_away_lets_streams_end() {
    let mut pair = Pair::new(Limits::default(), Limits::default());
    pair.settle();
    let open = |client: &mut Engine| client.open(b"GET", b"http", b"a", b"/", [], true);
    let first = open(&mut pair.client).unwrap();
    pair.settle();
    pair.server.go_away(Code::NONE);
    let second = open(&mut pair.client).unwrap();
    pair.settle();
    assert_eq!(open(&mut pair.client), Err(OpenError::GoingAway));
    pair.server.finish_going_away();
    for stream in [first, second] {
        pair.server.respond(stream, 200, [], true).unwrap();
        pair.server.release(stream);
    }
    pair.settle();
    assert!(pair.server.is_idle());
    let found = crate::common::events(&mut pair.client);
    let last = i32::MAX as u32;
    assert!(found.contains(&Event::GoAway {
        last,
        code: Code::NONE
    }));
    assert!(found.contains(&Event::GoAway {
        last: second,
        code: Code::NONE
    }));
    for stream in [first, second] {
        assert!(found.contains(&Event::Head { stream, end: true }));
    }
}

#[test]
fn a_ping_comes_back() {
    let mut pair = Pair::new(Limits::default(), Limits::default());
    assert!(pair.client.ping(*b"12345678"));
    assert!(!pair.client.ping(*b"12345678"));
    pair.settle();
    assert!(crate::common::events(&mut pair.client).contains(&Event::Pong));
    assert!(pair.client.ping(*b"12345678"));
}

#[test]
fn large_heads_go_in_continuations() {
    let limits = Limits {
        header_list: 100_000,
        ..Limits::default()
    };
    let mut pair = Pair::new(limits, limits);
    let value = "v".repeat(40_000);
    let fields = [line("x-large", &value)];
    let stream = pair
        .client
        .open(b"GET", b"http", b"a", b"/", fields, true)
        .unwrap();
    pair.settle();
    let head = pair.server.take_head(stream).unwrap();
    assert_eq!(head.fields.view().get("x-large"), Some(value.as_bytes()));
    assert!(!head.is_too_large());
}

#[test]
fn an_early_answer_ends_the_upload_without_harm() {
    let mut pair = Pair::new(Limits::default(), Limits::default());
    let stream = pair
        .client
        .open(b"POST", b"http", b"a", b"/", [], false)
        .unwrap();
    pair.client.send_data(stream, &[7; 30_000], false).unwrap();
    pair.settle();
    pair.server.respond(stream, 413, [], false).unwrap();
    pair.server.send_data(stream, b"no", true).unwrap();
    pair.server.release(stream);
    pair.settle();
    let found = crate::common::events(&mut pair.client);
    assert!(found.contains(&Event::Reset {
        stream,
        code: Code::NONE
    }));
    assert_eq!(pair.client.take_head(stream).unwrap().status(), 413);
    assert_eq!(pair.client.readable(stream), (&b"no"[..], true));
    assert!(pair.client.send_data(stream, b"x", false).is_err());
    pair.client.release(stream);
    assert!(pair.client.is_idle() && pair.server.is_idle());
}
