//! Doors: credentials that are guessed or forged, slow heads and bodies before them, floods to the
//! limit, bombs, topics. Each by 200 attackers from 50 addresses.

use std::io::{self, Write};

use fastrand::Rng;

use super::{Attack, AttackKind};
use crate::campaign::hostile::attacker::{Attacker, Flood};
use crate::campaign::hostile::credentials::SIGNED;
use crate::campaign::hostile::wire::deflate::gzip_zeros;
use crate::campaign::hostile::wire::{http2, websocket};

const fn door(
    name: &'static str,
    sends: &'static str,
    least: u64,
    attempt: fn(&mut Attacker) -> io::Result<()>,
) -> Attack {
    Attack {
        name,
        protocol: "all",
        sends,
        threads: 200,
        addresses: 50,
        least: std::time::Duration::from_secs(least),
        attempt,
    }
}

pub const ATTACKS: &[Attack] = &[
    door("tokens", "forged tokens at full speed", 5, tokens),
    door("guesses", "passwords and keys", 5, guesses),
    door("signatures", "bodies with forged signatures", 5, signatures),
    door("opaque", "made-up tokens of another server", 5, opaque),
    door("slow", "slow heads and bodies on every listener", 8, slow),
    door("floods", "requests up to the limits and beyond", 5, floods),
    door("bombs", "gzip and deep JSON before doors", 5, bombs),
    door("topics", "topics by SSE and WebSocket", 5, topics),
    door("all", "all of these at the same time", 10, all),
];

/// The attacks from which `all` chooses one at random for each attempt.
const KINDS: &[AttackKind] = &[
    tokens, guesses, signatures, opaque, slow, floods, bombs, topics,
];

/// Requests on one connection before it is closed.
const EACH: usize = 20;

fn all(attacker: &mut Attacker) -> io::Result<()> {
    match attacker.random.choice(KINDS) {
        Some(attempt) => attempt(attacker),
        None => Ok(()),
    }
}

/// Letters of base64 for URLs.
fn letters(random: &mut Rng, count: usize) -> String {
    const ALL: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let letter = |_| char::from(ALL[random.usize(..64)]);
    (0..count).map(letter).collect()
}

/// A token as the issuer's are, or one that is none.
fn forged(random: &mut Rng) -> String {
    match random.u8(..5) {
        0..=2 => format!("{SIGNED}.{}", letters(random, 43)),
        // `alg` is `none`.
        3 => {
            let claims = SIGNED.split('.').nth(1).unwrap_or_default();
            format!("eyJhbGciOiJub25lIn0.{claims}.")
        }
        _ => letters(random, 2000),
    }
}

fn bearer(random: &mut Rng) -> String {
    format!("Authorization: Bearer {}\r\n", forged(random))
}

fn request(path: &str, fields: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{fields}\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

/// Several requests on one connection, whose answers are read.
fn several(attacker: &mut Attacker, mut next: impl FnMut(&mut Rng) -> String) -> io::Result<()> {
    let port = attacker.ports.http;
    let flood = Flood::new(port, 1, b"").seconds(3);
    attacker.flood(flood, |turn, random| match turn as usize {
        0..EACH => next(random).into_bytes(),
        EACH => b"GET /none HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_vec(),
        _ => Vec::new(),
    })
}

fn tokens(attacker: &mut Attacker) -> io::Result<()> {
    match attacker.random.u8(..3) {
        0 => {
            let opening = http2::opening(&[]);
            let flood = Flood::new(attacker.ports.h2, 1, &opening).seconds(2);
            attacker.flood(flood, |turn, random| {
                let token = format!("Bearer {}", forged(random));
                let block = [
                    http2::request("POST", "/echo"),
                    http2::literal("authorization", &token),
                ];
                let stream = (turn as u32).wrapping_mul(2).wrapping_add(1) & 0x7fff_ffff;
                http2::headers(stream, &block.concat(), true)
            })
        }
        _ => several(attacker, |random| {
            let path = ["/jwt", "/echo", "/forward/hello"][random.usize(..3)];
            request(path, &bearer(random), "{}")
        }),
    }
}

fn guesses(attacker: &mut Attacker) -> io::Result<()> {
    several(attacker, |random| match random.u8(..2) {
        0 => {
            let key = format!("X-Api-Key: itk_{}\r\n", letters(random, 36));
            request("/key", &key, "{}")
        }
        _ => {
            // `ann:` and a password; three bytes are four letters.
            let password = letters(random, 12).replace(['-', '_'], "A");
            let fields = format!("Authorization: Basic YW5uOmNv{password}\r\n");
            let path = ["/password", "/forward/hello"][random.usize(..2)];
            request(path, &fields, "{}")
        }
    })
}

fn signatures(attacker: &mut Attacker) -> io::Result<()> {
    let size = [10, 1000, 900_000][attacker.random.usize(..3)];
    several(attacker, |random| {
        let digits: String = (0..8).map(|_| format!("{:08x}", random.u32(..))).collect();
        let fields = format!("X-Hub-Signature-256: sha256={digits}\r\n");
        request("/signed", &fields, &format!("\"{}\"", "x".repeat(size)))
    })
}

fn opaque(attacker: &mut Attacker) -> io::Result<()> {
    several(attacker, |random| {
        let fields = format!("Authorization: Bearer {}\r\n", letters(random, 40));
        request("/opaque", &fields, "{}")
    })
}

fn slow(attacker: &mut Attacker) -> io::Result<()> {
    let ports = attacker.ports;
    let body = "POST /signed HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\
                X-Hub-Signature-256: sha256=00000000000000000000000000000000\
                00000000000000000000000000000000\r\n\r\n";
    let h2 = http2::opening(&[]);
    let (port, opening): (u16, &[u8]) = match attacker.random.u8(..5) {
        0 => (
            ports.http,
            b"POST /jwt HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ",
        ),
        1 => (ports.http, body.as_bytes()),
        2 => (ports.h2, &h2),
        3 => (ports.h2, b"PRI * HTTP/2.0\r\n\r\n"),
        // The beginning of a record with a ClientHello.
        _ => (ports.tls, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    };
    let flood = Flood::new(port, 5, opening).slow(100).seconds(6);
    attacker.flood(flood, |_, _| b"a".to_vec())
}

fn floods(attacker: &mut Attacker) -> io::Result<()> {
    several(attacker, |_| {
        "GET /limited HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()
    })
}

fn bombs(attacker: &mut Attacker) -> io::Result<()> {
    match attacker.random.u8(..3) {
        0 => {
            let bomb = gzip_zeros(30 << 20);
            attacker.post("/unzip", "", &bomb)
        }
        1 => attacker.post_json("/jwt", &"[".repeat(500_000)),
        _ => {
            let fields = bearer(&mut attacker.random);
            let fields = format!("Content-Type: application/json\r\n{fields}");
            attacker.post("/jwt", &fields, "[".repeat(500_000).as_bytes())
        }
    }
}

fn topics(attacker: &mut Attacker) -> io::Result<()> {
    let fields = bearer(&mut attacker.random);
    match attacker.random.u8(..3) {
        0 => several(attacker, |random| {
            let path = ["/topics/steady/sse", "/topics/sse?topic=steady"][random.usize(..2)];
            format!("GET {path} HTTP/1.1\r\nHost: a\r\n{}\r\n", bearer(random))
        }),
        1 => several(attacker, |random| {
            request("/topics/steady", &bearer(random), "{\"n\":1}")
        }),
        // Orders over a connection that anybody may open.
        _ => {
            let mut stream = attacker.connect(attacker.ports.http)?;
            attacker.sent += 1;
            stream.write_all(websocket::handshake("/topics/ws", &fields).as_bytes())?;
            for number in 0..200 {
                let order = match number % 2 {
                    0 => "{\"type\":\"subscribe\",\"topic\":\"steady\"}",
                    _ => "{\"type\":\"publish\",\"topic\":\"steady\",\"data\":1}",
                };
                let frame = websocket::frame(websocket::FIN | websocket::TEXT, order.as_bytes());
                stream.write_all(&frame)?;
            }
            io::copy(&mut io::Read::take(stream, 20_000), &mut io::sink()).map(drop)
        }
    }
}
