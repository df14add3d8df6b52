//! The emitter on real sockets.
#![cfg(test)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::super::testing::start_kind;
use crate::stamp::{self, Stamp};

/// A request, and a reader of what comes.
fn ask(address: SocketAddr, request: &str) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    BufReader::new(stream)
}

/// Asks as HTTP/1.0 does, and returns the head and what follows, to the end.
fn plain(address: SocketAddr, fields: &str) -> (String, String) {
    let mut text = String::new();
    let mut reader = ask(address, &format!("GET /x HTTP/1.0\r\n{fields}\r\n"));
    reader.read_to_string(&mut text).unwrap();
    let (head, rest) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), rest.to_owned())
}

fn events(text: &str) -> Vec<(u64, Stamp)> {
    let events = text.split("\n\n").filter(|event| !event.is_empty());
    let event = |event: &str| {
        let (id, data) = event.split_once('\n').unwrap();
        let id = id.strip_prefix("id: ").unwrap().parse().unwrap();
        let data = data.strip_prefix("data: ").unwrap();
        let (stamp, length) = stamp::read(data.as_bytes()).unwrap();
        assert!(stamp.is_whole && length == data.len(), "{data}");
        (id, stamp)
    };
    events.map(event).collect()
}

#[test]
fn events_come_at_their_distance_and_end() {
    let address = start_kind("sse", &["--every", "5ms", "--size", "100", "--count", "4"]);
    let (head, text) = plain(address, "");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream"));
    let events = events(&text);
    assert_eq!(events.len(), 4);
    for (index, (id, stamp)) in events.iter().enumerate() {
        assert_eq!((*id, stamp.number), (index as u64 + 1, index as u64 + 1));
        assert_eq!(stamp.at, events[0].1.at + index as u64 * 5000);
        assert!(stamp.at <= stamp::now());
    }
    assert!(text.contains("data: {\"n\":1,"));
}

#[test]
fn a_client_goes_on_where_it_was() {
    let arguments = ["--every", "2ms", "--count", "9"];
    for clock in ["connection", "shared"] {
        let address = start_kind("sse", &[&arguments[..], &["--clock", clock]].concat());
        std::thread::sleep(std::time::Duration::from_millis(30));
        let (_, text) = plain(address, "Last-Event-ID: 6\r\n");
        let numbers: Vec<u64> = events(&text).iter().map(|(id, _)| *id).collect();
        assert_eq!(numbers, [7, 8, 9], "{clock}");
        let (head, _) = plain(address, "Last-Event-ID: 9\r\n");
        assert!(head.starts_with("HTTP/1.1 204"), "{head}");
    }
}

#[test]
fn a_shared_clock_gives_all_the_same() {
    let address = start_kind(
        "sse",
        &["--every", "20ms", "--clock", "shared", "--count", "9"],
    );
    let texts: Vec<_> = (0..2)
        .map(|_| std::thread::spawn(move || plain(address, "").1))
        .collect();
    let texts: Vec<String> = texts.into_iter().map(|it| it.join().unwrap()).collect();
    let last = |text: &String| *events(text).last().unwrap();
    assert_eq!(last(&texts[0]), last(&texts[1]));
}

#[test]
fn replies_of_http_1_1_are_chunked_and_connections_are_kept() {
    let address = start_kind("sse", &["--every", "1ms", "--count", "2", "--size", "82"]);
    let mut reader = ask(
        address,
        "HEAD / HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\nConnection: close\r\n\r\n",
    );
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    let heads: Vec<&str> = text.matches("HTTP/1.1 200 OK").collect();
    assert_eq!(heads.len(), 2, "{text}");
    // `id: 1`, `data: ` with 82 bytes and an empty line are 96 bytes.
    assert!(text.contains("\r\n\r\n60\r\nid: 1\ndata: {"), "{text}");
    assert!(text.contains("\n\n\r\n0\r\n\r\nHTTP/1.1 405"), "{text}");
}

#[test]
fn clients_that_go_are_let_go() {
    let address = start_kind("sse", &["--every", "60m"]);
    let mut reader = ask(address, "GET / HTTP/1.1\r\n\r\n");
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    reader
        .get_mut()
        .shutdown(std::net::Shutdown::Write)
        .unwrap();
    let mut rest = Vec::new();
    // The stub ends the connection long before the first event.
    reader.read_to_end(&mut rest).unwrap();
}
