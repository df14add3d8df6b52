//! The sink on real sockets, and what it makes of what has come.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use super::report::Report;
use super::*;
use crate::stub::testing::start_kind;

fn start(arguments: &[&str]) -> SocketAddr {
    start_kind("webhook-sink", arguments)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    stream
}

/// The body of an event with this number that was published now.
fn event(number: u64) -> Vec<u8> {
    let mut body = Vec::new();
    stamp::write(number, stamp::now(), 120, &mut body);
    body
}

fn request(path: &str, fields: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n{fields}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Reads a reply: its status and its body.
fn reply(stream: &mut TcpStream) -> (u16, String) {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("Content-Length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    (status, String::from_utf8(body).unwrap())
}

fn post(stream: &mut TcpStream, path: &str, fields: &str, body: &[u8]) -> u16 {
    stream.write_all(&request(path, fields, body)).unwrap();
    reply(stream).0
}

fn send(address: SocketAddr, line: &str) -> (u16, String) {
    let mut stream = connect(address);
    let text = format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    reply(&mut stream)
}

fn report(address: SocketAddr, query: &str) -> Report {
    let (status, body) = send(address, &format!("GET /report{query}"));
    assert_eq!(status, 200);
    serde_json::from_str(&body).unwrap()
}

#[test]
fn what_has_come_is_counted_for_each_endpoint() {
    let address = start(&[]);
    let mut stream = connect(address);
    // In order, one twice, one behind a later one, and the fifth never.
    for (path, numbers) in [
        ("/e/1", &[1, 2, 3, 4, 6][..]),
        ("/e/2", &[1, 2, 2, 4, 3, 6]),
    ] {
        for number in numbers {
            let id = format!("webhook-id: evt-{number}\r\n");
            assert_eq!(post(&mut stream, path, &id, &event(*number)), 204);
        }
    }
    let all = report(address, "");
    assert_eq!((all.posts, all.accepted, all.endpoints), (11, 11, 2));
    assert_eq!((all.duplicates, all.disordered, all.missing), (1, 1, 2));
    assert_eq!((all.events, all.changed, all.bytes), (5, 0, 11 * 120));
    assert_eq!((all.smallest, all.largest), (120, 120));
    let latency = all.latency_ms.unwrap();
    assert_eq!(latency.count, 10, "what comes again counts once");
    assert!(latency.max < 10_000.0 && latency.p50 > 0.0);
    assert_eq!(all.last_of_event_ms.unwrap().count, 5);
    assert_eq!(all.signatures, None);
    let worst: Vec<&str> = all.worst.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(worst, ["/e/2", "/e/1"]);
    // Each should have ten, and there should be three.
    let wanted = report(address, "?first=1&last=10&endpoints=3");
    assert_eq!(wanted.missing, 5 + 5 + 10);
    assert_eq!(report(address, "?from=1&to=2").latency_ms, None);
    assert_eq!(send(address, "DELETE /report").0, 204);
    assert_eq!(report(address, "").posts, 0);
}

#[test]
fn what_was_refused_may_come_again() {
    let address = start(&["--status", "503"]);
    let mut stream = connect(address);
    for _ in 0..2 {
        assert_eq!(post(&mut stream, "/e/1", "", &event(1)), 503);
    }
    assert_eq!(post(&mut stream, "/e/1?status=200", "", &event(1)), 200);
    let report = report(address, "");
    assert_eq!((report.posts, report.accepted, report.refused), (3, 1, 2));
    assert_eq!((report.duplicates, report.endpoints), (0, 1));
}

#[test]
fn bodies_that_changed_are_seen() {
    let address = start(&[]);
    let mut stream = connect(address);
    let mut body = event(7);
    *body.last_mut().unwrap() = b' ';
    body[100] ^= 1;
    body[119] = b'}';
    assert_eq!(post(&mut stream, "/e/1", "", &body), 204);
    assert_eq!(report(address, "").changed, 1);
    // A header has the time where the body has none.
    let at = format!("X-Published-At: {}\r\n", stamp::now());
    assert_eq!(post(&mut stream, "/e/1", &at, b"{}"), 204);
    assert_eq!(report(address, "").latency_ms.unwrap().count, 2);
}

#[test]
fn many_requests_in_one_read_and_one_in_many_reads_are_the_same() {
    let address = start(&[]);
    let mut stream = connect(address);
    let all: Vec<u8> = (1..=50)
        .flat_map(|number| request("/e/1", "", &event(number)))
        .collect();
    stream.write_all(&all).unwrap();
    for _ in 0..50 {
        assert_eq!(reply(&mut stream).0, 204);
    }
    let body = event(51);
    let head = "POST /e/1 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
    let chunked = format!(
        "{head}{:x}\r\n{}\r\n0\r\n\r\n",
        body.len(),
        String::from_utf8(body).unwrap()
    );
    for byte in chunked.as_bytes() {
        stream.write_all(&[*byte]).unwrap();
    }
    assert_eq!(reply(&mut stream).0, 204);
    let report = report(address, "?first=1&last=51");
    assert_eq!(
        (report.accepted, report.missing, report.disordered),
        (51, 0, 0)
    );
    assert_eq!(report.changed, 0);
}

#[test]
fn signatures_are_checked_when_the_report_is_made() {
    use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    let key = b"0123456789abcdef0123456789abcdef";
    let secret = format!("whsec_{}", STANDARD.encode(key));
    let address = start(&["--secret", &secret]);
    let mut stream = connect(address);
    let fields = |id: &str, body: &[u8], extra: &str| {
        let signed = [format!("{id}.1763740000.").as_bytes(), body].concat();
        let tag = sign(&Key::new(HMAC_SHA256, key), &signed);
        let tag = STANDARD.encode(tag.as_ref());
        format!(
            "webhook-id: {id}\r\nwebhook-timestamp: 1763740000\r\nWebhook-Signature: \
             {extra}v1,{tag}\r\n"
        )
    };
    let body = event(1);
    for (path, extra) in [("/e/1", ""), ("/e/2", "v1,AAAA ")] {
        assert_eq!(
            post(&mut stream, path, &fields("a", &body, extra), &body),
            204
        );
    }
    // For another event, for none, and for no body.
    post(&mut stream, "/e/1", &fields("b", &body, ""), &event(2));
    post(&mut stream, "/e/1", "webhook-id: c\r\n", &event(3));
    post(&mut stream, "/e/1", "webhook-signature: v1,!!\r\n", b"");
    let signatures = report(address, "").signatures.unwrap();
    assert_eq!((signatures.good, signatures.bad), (2, 2));
    assert_eq!((signatures.absent, signatures.unchecked), (1, 0));

    // WebSub, where each subscriber has a secret of its own.
    let address = start(&["--secret", "s-{}"]);
    let mut stream = connect(address);
    for (path, secret) in [("/sub/7", "s-7"), ("/sub/8", "s-8"), ("/sub/9", "s-1")] {
        let tag = sign(&Key::new(HMAC_SHA256, secret.as_bytes()), &body);
        let hex: String = tag
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let fields = format!("X-Hub-Signature: sha256={hex}\r\n");
        assert_eq!(post(&mut stream, path, &fields, &body), 204);
    }
    let signatures = report(address, "").signatures.unwrap();
    assert_eq!((signatures.good, signatures.bad), (2, 1));
}

#[test]
fn no_more_is_kept_than_there_is_room_for() {
    let address = start(&["--secret", "x", "--keep", "1"]);
    let mut stream = connect(address);
    let large = vec![b'x'; 700 * 1024];
    let other = vec![b'y'; 700 * 1024];
    for body in [&large, &large, &other, &large] {
        let fields = "webhook-signature: v1,AAAA\r\n";
        assert_eq!(post(&mut stream, "/e/1", fields, body), 204);
    }
    let signatures = report(address, "").signatures.unwrap();
    // Equal bodies are kept once.
    assert_eq!((signatures.bad, signatures.unchecked), (3, 1));
}

#[test]
fn endpoints_hang_flap_and_are_slow() {
    let address = start(&["--delay", "80ms"]);
    let mut stream = connect(address);
    let begun = Instant::now();
    assert_eq!(post(&mut stream, "/slow", "", &event(1)), 204);
    assert!(begun.elapsed() >= Duration::from_millis(80));
    assert_eq!(
        post(&mut stream, "/fast?delay=0ms&status=201", "", &event(1)),
        201
    );

    let mut hanging = connect(address);
    hanging
        .write_all(&request("/hangs?hang", "", &event(1)))
        .unwrap();
    hanging
        .set_read_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let error = hanging.read(&mut [0]).unwrap_err();
    assert!(matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    ));
    let report = report(address, "");
    assert_eq!((report.accepted, report.unanswered), (2, 1));

    let address = start(&["--flap", "100ms"]);
    let (mut ups, mut downs, mut changes, mut before) = (0, 0, 0, None);
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(600) {
        let mut stream = connect(address);
        stream.write_all(&request("/e/1", "", &event(1))).unwrap();
        let is_up = stream.read(&mut [0; 12]).is_ok_and(|count| count > 0);
        *(if is_up { &mut ups } else { &mut downs }) += 1;
        changes += usize::from(before.replace(is_up).is_some_and(|before| before != is_up));
    }
    assert!(
        ups > 0 && downs > 0 && (3..=7).contains(&changes),
        "{ups} {downs} {changes}"
    );
}

#[test]
fn posts_are_counted_and_connections_closed_where_the_url_says_so() {
    let address = start(&[]);
    let mut stream = connect(address);
    stream
        .write_all(&request("/e/1?close", "", &event(1)))
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 204 "), "{text}");
    assert!(text.contains("\r\nConnection: close\r\n"), "{text}");
    let mut stream = connect(address);
    assert_eq!(post(&mut stream, "/e/2?status=500", "", &event(1)), 500);
    let (status, body) = send(address, "GET /count");
    assert_eq!(
        (status, body.as_str()),
        (200, r#"{"posts":2,"accepted":1}"#)
    );
}

#[test]
fn hubs_are_told_what_they_asked_for() {
    let address = start(&[]);
    let (status, body) = send(
        address,
        "GET /sub/1?hub.mode=subscribe&hub.topic=http%3A%2F%2Fa&hub.challenge=a%2Bb%26c&hub.lease_seconds=9",
    );
    assert_eq!((status, body.as_str()), (200, "a+b&c"));
    let denied = "GET /sub/1?deny&hub.mode=subscribe&hub.topic=a&hub.challenge=x";
    assert_eq!(send(address, denied).0, 404);
    assert_eq!(
        send(address, "GET /sub/1?hub.mode=denied&hub.topic=a").0,
        204
    );
    assert_eq!(send(address, "GET /sub/1").0, 404);
    assert_eq!(send(address, "PUT /sub/1").0, 405);
    let verifications = report(address, "").verifications;
    let counts: Vec<(&str, u64)> = verifications
        .iter()
        .map(|(mode, it)| (mode.as_str(), *it))
        .collect();
    assert_eq!(
        counts,
        [("denied", 1), ("subscribe", 1), ("subscribe, denied", 1)]
    );
}

#[test]
fn a_sink_speaks_tls() {
    let folder = std::env::temp_dir().join(format!("lab-sink-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let identity = crate::pki::Identity::make(&folder).unwrap();
    let [cert, key] = [&identity.cert, &identity.key].map(|path| path.to_str().unwrap());
    let address = start(&["--cert", cert, "--key", key]);
    let offers = ["h2", "http/1.1"].map(str::to_owned);
    let config = crate::pki::client_config(&identity.ca, &offers).unwrap();
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let mut client = rustls::ClientConnection::new(config, name).unwrap();
    let mut stream = connect(address);
    let mut tls = rustls::Stream::new(&mut client, &mut stream);
    tls.write_all(&request("/e/1", "Connection: close\r\n", &event(1)))
        .unwrap();
    let mut text = String::new();
    tls.read_to_string(&mut text).unwrap();
    assert_eq!(text, "HTTP/1.1 204 No Content\r\n\r\n");
    std::fs::remove_dir_all(folder).unwrap();
}
