//! The reverser on real sockets.
#![cfg(test)]

use std::io::{Read, Write};
use std::net::TcpStream;

use super::super::testing::start_kind;
use crate::websocket::{self, BINARY, CLOSE, PING, PONG, TEXT};

const KEY: [u8; 4] = [9, 8, 7, 6];
const ASK: &str = "GET /x HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

fn connect(arguments: &[&str]) -> TcpStream {
    let mut stream = TcpStream::connect(start_kind("ws-reverse", arguments)).unwrap();
    stream.write_all(ASK.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    assert!(head.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"));
    stream
}

fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    websocket::write_masked(opcode, payload, KEY, &mut bytes);
    bytes
}

fn next(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut bytes = Vec::new();
    loop {
        if let Some(head) = websocket::head(&bytes)
            && bytes.len() == head.end()
        {
            assert_eq!(head.mask, None);
            return (head.opcode, bytes[head.size..].to_vec());
        }
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
}

#[test]
fn letters_come_back_in_reverse() {
    let mut stream = connect(&[]);
    let long = "ab".repeat(40_000);
    for (text, wanted) in [
        ("abc", "cba"),
        ("", ""),
        ("grüße", "eßürg"),
        (&long, &"ba".repeat(40_000)),
    ] {
        stream.write_all(&frame(TEXT, text.as_bytes())).unwrap();
        assert_eq!(next(&mut stream), (TEXT, wanted.as_bytes().to_vec()));
    }
    stream.write_all(&frame(BINARY, &[1, 2, 3])).unwrap();
    assert_eq!(next(&mut stream), (BINARY, vec![1, 2, 3]));
}

#[test]
fn messages_may_come_in_pieces_with_pings_between() {
    let mut stream = connect(&[]);
    let mut first = frame(TEXT, b"ab");
    first[0] &= 0x7F;
    let mut last = frame(TEXT, b"cd");
    last[0] &= 0xF0;
    stream
        .write_all(&[first, frame(PING, b"x"), last].concat())
        .unwrap();
    assert_eq!(next(&mut stream), (PONG, b"x".to_vec()));
    assert_eq!(next(&mut stream), (TEXT, b"dcba".to_vec()));
}

#[test]
fn echoes_come_as_they_are() {
    let mut stream = connect(&["--echo"]);
    stream.write_all(&frame(TEXT, b"abc")).unwrap();
    assert_eq!(next(&mut stream), (TEXT, b"abc".to_vec()));
}

#[test]
fn connections_end_with_a_status() {
    let mut unmasked = Vec::new();
    websocket::write_head(TEXT, 0, None, &mut unmasked);
    let mut reserved = frame(TEXT, b"a");
    reserved[0] |= 0x40;
    let mut huge = vec![0x80 | TEXT, 0xFF];
    huge.extend_from_slice(&u64::MAX.to_be_bytes());
    huge.extend_from_slice(&KEY);
    let cases = [
        (frame(CLOSE, &[0x03, 0xE8, b'x']), vec![0x03, 0xE8]),
        (frame(CLOSE, &[]), vec![]),
        (unmasked, 1002_u16.to_be_bytes().to_vec()),
        (reserved, 1002_u16.to_be_bytes().to_vec()),
        (frame(3, b""), 1002_u16.to_be_bytes().to_vec()),
        (frame(0, b"a"), 1002_u16.to_be_bytes().to_vec()),
        (frame(TEXT, &[0xFF]), 1007_u16.to_be_bytes().to_vec()),
        (huge, 1009_u16.to_be_bytes().to_vec()),
    ];
    for (bytes, wanted) in cases {
        let mut stream = connect(&[]);
        stream.write_all(&bytes).unwrap();
        assert_eq!(next(&mut stream), (CLOSE, wanted), "{bytes:?}");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"");
    }
}

#[test]
fn what_is_no_handshake_is_refused() {
    let cases = [
        (ASK.replace("Upgrade: websocket\r\n", ""), "HTTP/1.1 426 "),
        (ASK.replace("13", "8"), "HTTP/1.1 426 "),
        (ASK.replace("Key:", "Kay:"), "HTTP/1.1 400 "),
        (ASK.replace("GET", "PUT"), "HTTP/1.1 426 "),
    ];
    let address = start_kind("ws-reverse", &[]);
    for (request, wanted) in cases {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = request.replace("Host: a\r\n", "Connection: close\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.starts_with(wanted), "{request}: {text}");
    }
}
