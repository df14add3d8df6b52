//! TLS: junk, halves of handshakes, storms of them, renegotiation and changes of keys.

use std::io::{self, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Attack, attack};
use crate::campaign::hostile::attacker::{Attacker, Flood};
use crate::campaign::hostile::wire::tls::{client_hello, random_bytes};

pub const ATTACKS: &[Attack] = &[
    attack("tls-junk", "TLS", "bytes that are no TLS", 4, 3, junk),
    attack(
        "tls-silent",
        "TLS",
        "no byte, or half a ClientHello",
        1,
        6,
        silent,
    ),
    attack(
        "tls-slow",
        "TLS",
        "a ClientHello, a byte each 100 ms",
        1,
        6,
        slow,
    ),
    attack(
        "tls-handshakes",
        "TLS",
        "handshakes, left after the ServerHello",
        4,
        3,
        handshakes,
    ),
    attack(
        "tls-renegotiation",
        "TLS",
        "renegotiations, changes of keys",
        2,
        4,
        renegotiation,
    ),
];

fn junk(attacker: &mut Attacker) -> io::Result<()> {
    let noise = random_bytes(&mut attacker.random, 1000);
    let bytes = match attacker.random.u8(..6) {
        0 => noise,
        1 => b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec(),
        2 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        // A record as long as can be, an alert, and a handshake of 16 MB.
        3 => [&[22, 3, 1, 255, 255][..], &noise].concat(),
        4 => vec![21, 3, 1, 0, 2, 2, 40],
        _ => [&[22, 3, 1, 3, 236, 1, 255, 255, 255][..], &noise].concat(),
    };
    attacker.try_once(attacker.ports.tls, &bytes).map(drop)
}

fn silent(attacker: &mut Attacker) -> io::Result<()> {
    let hello = client_hello(&mut attacker.random);
    let length = attacker.random.usize(..hello.len());
    let (half, _) = hello.split_at(length);
    let flood = Flood::new(attacker.ports.tls, 500, half).slow(100);
    attacker.flood(flood.seconds(8), |_, _| Vec::new())
}

fn slow(attacker: &mut Attacker) -> io::Result<()> {
    let hello = client_hello(&mut attacker.random);
    let flood = Flood::new(attacker.ports.tls, 200, b"").slow(100);
    attacker.flood(flood.seconds(8), |turn, _| {
        hello.get(turn as usize).copied().into_iter().collect()
    })
}

fn handshakes(attacker: &mut Attacker) -> io::Result<()> {
    let hello = client_hello(&mut attacker.random);
    attacker.try_once(attacker.ports.tls, &hello).map(drop)
}

/// `s_client` renegotiates at a line `R` (TLS 1.2), and changes keys at `K` (TLS 1.3).
fn renegotiation(attacker: &mut Attacker) -> io::Result<()> {
    let (version, line) = match attacker.random.u8(..2) {
        0 => ("-tls1_2", b"R\n"),
        _ => ("-tls1_3", b"K\n"),
    };
    let mut client = Command::new("openssl")
        .args(["s_client", "-connect"])
        .arg(format!("127.0.0.1:{}", attacker.ports.tls))
        .arg(version)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let mut input = client.stdin.take();
    let mut written = Ok(());
    for _ in 0..20 {
        // It takes one line for each read of its own.
        attacker.pause(Duration::from_millis(20));
        if let Some(input) = &mut input {
            written = written.and_then(|()| input.write_all(line));
        }
        attacker.sent += 1;
    }
    drop(input);
    // It may wait for a server that says nothing.
    client.kill()?;
    client.wait()?;
    written
}
