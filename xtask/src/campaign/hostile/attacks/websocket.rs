//! WebSocket: floods of small frames and pings, messages without an end, bombs, silence.

use std::io;

use super::{Attack, attack};
use crate::campaign::hostile::attacker::{Attacker, Flood};
use crate::campaign::hostile::wire::deflate::zeros;
use crate::campaign::hostile::wire::websocket::{
    BINARY, CLOSE, COMPRESSED, CONTINUATION, DEFLATE, FIN, PING, PONG, TEXT, frame, handshake, head,
};

pub const ATTACKS: &[Attack] = &[
    attack(
        "ws-small-frames",
        "ws",
        "messages of a byte",
        1,
        3,
        small_frames,
    ),
    attack(
        "ws-fragments",
        "ws",
        "a message in fragments without an end",
        1,
        3,
        fragments,
    ),
    attack("ws-pings", "ws", "pings and pongs", 1, 3, pings),
    attack(
        "ws-huge-frames",
        "ws",
        "lengths up to 2^63",
        4,
        3,
        huge_frames,
    ),
    attack(
        "ws-bombs",
        "ws",
        "300 bytes that become 256 KiB, and more",
        1,
        3,
        bombs,
    ),
    attack(
        "ws-not-read",
        "ws",
        "messages of 100 kB, answers not read",
        1,
        8,
        not_read,
    ),
    attack("ws-silent", "ws", "handshakes, then nothing", 1, 8, silent),
    attack(
        "ws-wrong-frames",
        "ws",
        "frames against the protocol",
        4,
        3,
        wrong_frames,
    ),
    attack("ws-handshakes", "ws", "odd handshakes", 4, 3, handshakes),
    attack("ws-json", "ws", "JSON bombs as messages", 1, 3, json),
];

fn open(path: &str, more: &str) -> Vec<u8> {
    handshake(path, more).into_bytes()
}

fn small_frames(attacker: &mut Attacker) -> io::Result<()> {
    let opening = open("/websocket", "");
    let messages = frame(FIN | TEXT, b"a").repeat(50);
    let flood = Flood::new(attacker.ports.http, attacker.random.u64(1..=8), &opening);
    attacker.flood(flood, |_, _| messages.clone())
}

fn fragments(attacker: &mut Attacker) -> io::Result<()> {
    let opening = open("/websocket", "");
    let piece: &[u8] = attacker.any::<[u8]>(&[b"", b"a"]);
    let pieces = frame(CONTINUATION, piece).repeat(50);
    let count = attacker.random.u64(1..=20);
    let flood = Flood::new(attacker.ports.http, count, &opening);
    attacker.flood(flood, |turn, _| match turn {
        0 => frame(TEXT, b""),
        _ => pieces.clone(),
    })
}

fn pings(attacker: &mut Attacker) -> io::Result<()> {
    let opening = open("/websocket", "");
    let kind = [PING, PONG][attacker.random.usize(..2)];
    let pings = frame(FIN | kind, &[b'a'; 125]).repeat(50);
    let mut flood = Flood::new(attacker.ports.http, attacker.random.u64(1..=8), &opening);
    flood.reads = attacker.random.bool();
    attacker.flood(flood, |_, _| pings.clone())
}

fn huge_frames(attacker: &mut Attacker) -> io::Result<()> {
    let length = [300 << 10, 10 << 30, 1 << 62, u64::MAX][attacker.random.usize(..4)];
    let bytes = [
        open("/websocket", ""),
        head(FIN | BINARY, length),
        vec![b'a'; 300 << 10],
    ];
    attacker
        .try_once(attacker.ports.http, &bytes.concat())
        .map(drop)
}

fn bombs(attacker: &mut Attacker) -> io::Result<()> {
    let path = attacker.any(&["/websocket", "/websocket-json"]);
    let opening = open(path, DEFLATE);
    let size = [255 << 10, 257 << 10, 1 << 20, 64 << 20][attacker.random.usize(..4)];
    let bomb = frame(FIN | COMPRESSED | BINARY, &zeros(size, false));
    let count = attacker.random.u64(1..=40);
    let flood = Flood::new(attacker.ports.http, count, &opening);
    attacker.flood(flood, |_, _| bomb.clone())
}

fn not_read(attacker: &mut Attacker) -> io::Result<()> {
    let opening = open("/websocket", "");
    let message = frame(FIN | BINARY, &[b'a'; 100_000]);
    let count = attacker.random.u64(20..60);
    let flood = Flood::new(attacker.ports.http, count, &opening);
    attacker.flood(flood.unread().seconds(9), |_, _| message.clone())
}

fn silent(attacker: &mut Attacker) -> io::Result<()> {
    let half = frame(TEXT, b"a");
    let opening = match attacker.random.u8(..3) {
        0 => open("/websocket", ""),
        1 => [open("/websocket", ""), half].concat(),
        _ => [open("/websocket", ""), vec![0x81]].concat(),
    };
    let flood = Flood::new(attacker.ports.http, 200, &opening).slow(100);
    attacker.flood(flood.seconds(9), |_, _| Vec::new())
}

fn wrong_frames(attacker: &mut Attacker) -> io::Result<()> {
    let frames = match attacker.random.u8(..10) {
        // Without a mask.
        0 => vec![0x81, 1, b'a'],
        1 => frame(FIN | 3, b"a"),
        2 => frame(PING, b"a"),
        3 => frame(FIN | PING, &[b'a'; 126]),
        4 => frame(FIN | CLOSE, b"a"),
        5 => frame(FIN | CLOSE, &999_u16.to_be_bytes()),
        6 => frame(FIN | CONTINUATION, b"a"),
        7 => [frame(TEXT, b"a"), frame(TEXT, b"a")].concat(),
        8 => frame(FIN | TEXT, b"\xff\xfe"),
        _ => frame(FIN | COMPRESSED | PING, b"a"),
    };
    let bytes = [open("/websocket", DEFLATE), frames].concat();
    attacker.try_once(attacker.ports.http, &bytes).map(drop)
}

fn handshakes(attacker: &mut Attacker) -> io::Result<()> {
    let many = format!("Sec-WebSocket-Protocol: {}\r\n", "a,".repeat(1000));
    let more = attacker.any(&[
        "Sec-WebSocket-Version: 12\r\n",
        "Sec-WebSocket-Key: short\r\n",
        "Upgrade: h2c\r\nHTTP2-Settings: AAAA\r\n",
        "Origin: https://elsewhere.example\r\n",
        "Content-Length: 5\r\n",
        "Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=99\r\n",
        &many,
    ]);
    let path = attacker.any(&["/websocket", "/topics/flooded/ws", "/hello"]);
    let bytes = open(path, more);
    attacker.try_once(attacker.ports.http, &bytes).map(drop)
}

fn json(attacker: &mut Attacker) -> io::Result<()> {
    let opening = open("/websocket-json", "");
    let text = match attacker.random.u8(..4) {
        0 => "[".repeat(500_000),
        1 => format!("[{}0]", "[],".repeat(300_000)),
        2 => "9".repeat(900_000),
        _ => format!("{{{}\"z\":0}}", "\"a\":1,".repeat(100_000)),
    };
    let message = frame(FIN | TEXT, text.as_bytes());
    let count = attacker.random.u64(1..=8);
    let flood = Flood::new(attacker.ports.http, count, &opening);
    attacker.flood(flood, |_, _| message.clone())
}
