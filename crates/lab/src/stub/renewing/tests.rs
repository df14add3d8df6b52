//! Documents on real sockets.
#![cfg(test)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::super::testing::start_kind;
use crate::document::{Shape, told};

/// Asks, and returns the head and the body.
fn ask(address: SocketAddr, request: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("{request}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let end = memchr::memmem::find(&bytes, b"\r\n\r\n").unwrap();
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    (head, bytes[end + 4..].to_vec())
}

fn tag(head: &str) -> String {
    let tag = head.lines().find_map(|line| line.strip_prefix("ETag: "));
    tag.unwrap().to_owned()
}

#[test]
fn each_request_renews_a_document_when_told_so() {
    let address = start_kind("renewing-json", &["--renew", "call", "--size", "5000"]);
    for tick in 1..=3 {
        let (head, body) = ask(address, "GET /documents/7 HTTP/1.1");
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        assert!(head.contains("Content-Length: 5000"), "{head}");
        assert_eq!(tag(&head), format!("\"7-{tick}\""));
        let (number, told, at) = told(&body).unwrap();
        assert_eq!((number, told), (7, tick));
        assert!(body == Shape::new(5000, 20).text(7, tick, at));
    }
    ask(address, "HEAD /documents/9 HTTP/1.1");
    let (_, body) = ask(address, "GET /ticks HTTP/1.1");
    assert_eq!(body, b"{\"7\":3,\"9\":1}");
}

#[test]
fn ticks_pass_by_the_clock() {
    let address = start_kind("renewing-json", &["--every", "10ms", "--size", "3000"]);
    let (_, first) = ask(address, "GET /documents/1 HTTP/1.1");
    std::thread::sleep(Duration::from_millis(25));
    let (_, second) = ask(address, "GET /documents/1 HTTP/1.1");
    let (first, second) = (told(&first).unwrap(), told(&second).unwrap());
    assert!(second.1 >= first.1 + 2);
    assert_eq!(second.2 - first.2, (second.1 - first.1) * 10_000);
}

#[test]
fn a_document_that_is_known_is_not_sent_again() {
    let address = start_kind("renewing-json", &["--every", "60m"]);
    let (head, body) = ask(address, "GET /documents/1 HTTP/1.1");
    assert_eq!(body.len(), 1024);
    let request = format!("GET /documents/1 HTTP/1.1\r\nIf-None-Match: {}", tag(&head));
    let (head, body) = ask(address, &request);
    assert!(head.starts_with("HTTP/1.1 304 Not Modified"), "{head}");
    assert_eq!(body, b"");
    let (head, _) = ask(address, &request.replace("\"1-0\"", "\"other\""));
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
}

#[test]
fn other_requests_are_refused() {
    let address = start_kind("renewing-json", &[]);
    for (request, status) in [
        ("GET / HTTP/1.1", "404"),
        ("GET /documents/x HTTP/1.1", "404"),
        ("DELETE /documents/1 HTTP/1.1", "405"),
    ] {
        let (head, _) = ask(address, request);
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
    }
}
