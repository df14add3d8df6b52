//! Streams of back ends through the binary: WebSocket and event streams.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;

use testkit::{Action, Authority, RawClient, ScriptedBackend, TempDir, free_port, wait_until};

use crate::support::{Engine, get, repository};

const HEAD_END: &[u8] = b"\r\n\r\n";

/// A WebSocket server for one connection (RFC 6455): it takes a handshake, gives the head to the
/// test, and sends each frame back without its mask.
fn echo_server(listener: TcpListener) -> JoinHandle<(String, TcpStream)> {
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let patience = Some(Duration::from_secs(20));
        stream.set_read_timeout(patience).unwrap();
        let mut head = Vec::new();
        while !head.ends_with(HEAD_END) {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let switched = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
            Upgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        stream.write_all(switched).unwrap();
        while let Some((first, payload)) = read_frame(&mut stream) {
            let answer = [&[first, payload.len() as u8], payload.as_slice()].concat();
            stream.write_all(&answer).unwrap();
            if first == 0x88 {
                break;
            }
        }
        (String::from_utf8(head).unwrap(), stream)
    })
}

/// The next frame of a client, unmasked.
fn read_frame(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 6];
    stream.read_exact(&mut head).ok()?;
    let [first, length, mask @ ..] = head;
    assert!(length & 0x80 != 0, "a client masks its frames");
    let mut payload = vec![0; usize::from(length & 0x7f)];
    stream.read_exact(&mut payload).ok()?;
    for (at, byte) in payload.iter_mut().enumerate() {
        *byte ^= mask[at % 4];
    }
    Some((first, payload))
}

fn handshake(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
}

/// A text of a client.
fn text(payload: &str) -> Vec<u8> {
    let mask = [1, 2, 3, 4];
    let mut bytes = vec![0x81, 0x80 | payload.len() as u8, 1, 2, 3, 4];
    bytes.extend(payload.bytes().zip(mask.iter().cycle()).map(|(a, b)| a ^ b));
    bytes
}

fn listener() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// An example that listens on this port, with another one replaced.
fn example(folder: &TempDir, name: &str, port: u16, (from, to): (&str, u16)) -> PathBuf {
    let path = repository().join(format!("examples/{name}/flows.yaml"));
    let flows = std::fs::read_to_string(path).unwrap();
    assert!(flows.contains(from) && flows.contains("http: GET /"));
    let flows = flows.replace(from, &format!(":{to}"));
    let flows = flows.replace("http: GET /", &format!("http: GET :{port}/"));
    folder.write("flows.yaml", &flows)
}

#[test]
fn a_websocket_api_maps_its_paths_and_counts_messages() {
    let (folder, port) = (TempDir::new(), free_port());
    let (server, back) = listener();
    let path = example(&folder, "websocket-proxy", port, (":8081", back));
    let engine = Engine::run(&[&path], &[]);
    let refused = get(port, "/chats/tea");
    assert_eq!(refused.status, 426);
    assert_eq!(refused.header("upgrade"), Some("websocket"));
    let server = echo_server(server);
    let mut client = RawClient::connect(port);
    client.send(handshake("/chats/tea%20room?name=Ada"));
    assert_eq!(client.response().status, 101);
    client.send(text("hello"));
    assert_eq!(client.exactly(7), b"\x81\x05hello");
    let metrics = || engine.get("/metrics").text();
    wait_until("it is counted", || {
        let metrics = metrics();
        metrics.contains("intertie_streams_open{flow=\"chat\"} 1\n")
            && metrics.contains("_messages_total{flow=\"chat\",direction=\"up\"} 1\n")
            && metrics.contains("_messages_total{flow=\"chat\",direction=\"down\"} 1\n")
    });
    // The limit is 40 at once.
    for _ in 0..60 {
        client.send(text("again"));
    }
    let rest = client.rest();
    assert!(rest.ends_with(&[0x88, 2, 0x03, 0xf0]), "1008: {rest:?}");
    let (head, mut backend) = server.join().unwrap();
    assert!(
        head.starts_with("GET /rooms/tea%20room?name=Ada HTTP/1.1\r\n"),
        "{head}"
    );
    assert!(head.contains("Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"));
    assert!(backend.read(&mut [0; 16]).is_ok());
    drop((client, backend));
    wait_until("it is over", || {
        metrics().contains("intertie_streams_open{flow=\"chat\"} 0\n")
    });
    assert!(metrics().contains("intertie_streams_over_limit_total"));
    engine.stop();
}

#[test]
fn the_stop_says_1001_to_websockets_and_the_engine_ends_well() {
    let (folder, port) = (TempDir::new(), free_port());
    let (server, back) = listener();
    let flow = format!(
        "flow: ws\nfrom: {{ http: GET :{port}/ws }}\nsteps: [ forward: ws://127.0.0.1:{back}/ ]\n"
    );
    let path = folder.write("flow.yaml", &flow);
    let engine = Engine::run(&[&path], &[]);
    let server = echo_server(server);
    let mut client = RawClient::connect(port);
    client.send(handshake("/ws"));
    assert_eq!(client.response().status, 101);
    engine.stop();
    assert_eq!(client.rest(), [0x88, 2, 0x03, 0xe9]);
    // The server has answered a close frame; it would stop at nothing else.
    server.join().unwrap();
}

#[test]
fn a_handshake_goes_over_http1_to_a_back_end_that_prefers_http2() {
    let (folder, port, tls_port) = (TempDir::new(), free_port(), free_port());
    let (server, back) = listener();
    let authority = Authority::new("streams");
    let issued = authority.issue(&["localhost"]);
    let cert = folder.write("server.pem", &issued.cert);
    let key = folder.write("server.key", &issued.key);
    let ca = folder.write("ca.pem", authority.pem());
    let (cert, key, ca) = (cert.display(), key.display(), ca.display());
    let flows = format!(
        "flow: behind\n\
         from: {{ http: {{ method: GET, listen: ':{tls_port}', path: '/*', \
           protocols: [h2, http/1.1], tls: {{ cert: {cert}, key: {key} }} }} }}\n\
         steps: [ forward: ws://127.0.0.1:{back}/ ]\n---\n\
         flow: hello\n\
         from: {{ http: {{ method: GET, listen: ':{tls_port}', path: /hello, \
           protocols: [h2, http/1.1], tls: {{ cert: {cert}, key: {key} }} }} }}\n\
         steps: [ reply: {{ body: hello }} ]\n---\n\
         flow: front\n\
         from: {{ http: any :{port}/* }}\n\
         steps: [ forward: {{ to: 'https://localhost:{tls_port}/', tls: {{ ca: {ca} }} }} ]\n---\n\
         flow: secure\n\
         from: {{ http: GET :{port}/secure }}\n\
         steps: [ forward: {{ to: 'wss://localhost:{tls_port}/chat', tls: {{ ca: {ca} }} }} ]\n"
    );
    let path = folder.write("flows.yaml", &flows);
    let engine = Engine::run(&[&path], &[]);
    // Now each worker is likely to have an HTTP/2 connection to the back end.
    for _ in 0..10 {
        assert_eq!(get(port, "/hello").text(), "hello");
    }
    let second = server.try_clone().unwrap();
    for (server, path) in [(server, "/chat"), (second, "/secure")] {
        let server = echo_server(server);
        let mut client = RawClient::connect(port);
        client.send(handshake(path));
        assert_eq!(client.response().status, 101, "{path}");
        client.send(text("hello"));
        assert_eq!(client.exactly(7), b"\x81\x05hello");
        client.send([0x88, 0x80, 0, 0, 0, 0]);
        assert_eq!(client.exactly(2), [0x88, 0]);
        let (head, _) = server.join().unwrap();
        assert!(head.starts_with("GET /chat HTTP/1.1\r\n"), "{head}");
        assert_eq!(get(port, "/hello").text(), "hello");
    }
    engine.stop();
}

#[test]
fn an_event_stream_passes_at_once_and_ends_with_its_client() {
    let (folder, port) = (TempDir::new(), free_port());
    let back = ScriptedBackend::start(vec![vec![
        Action::ReadUntil(HEAD_END),
        Action::Send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nid: 1\ndata: tick\n\n"
                .to_vec(),
        ),
        Action::Stall,
    ]]);
    let path = example(&folder, "sse-proxy", port, (":8082", back.port()));
    let engine = Engine::run(&[&path], &[]);
    let mut client = RawClient::connect(port);
    client.send(
        "GET /news/sport HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nLast-Event-ID: 0\r\n\r\n",
    );
    let head = String::from_utf8(client.until(HEAD_END)).unwrap();
    assert!(head.contains("X-Accel-Buffering: no\r\n"), "{head}");
    client.until(b"data: tick\n\n");
    let sent = back.received();
    assert!(
        sent.starts_with("GET /events?topic=sport HTTP/1.1\r\n"),
        "{sent}"
    );
    assert!(sent.contains("Last-Event-ID: 0\r\n"));
    assert!(!sent.contains("gzip"), "events must be countable");
    let counted = "intertie_stream_messages_total{flow=\"news\",direction=\"down\"} 1\n";
    wait_until("it is counted", || {
        engine.get("/metrics").text().contains(counted)
    });
    drop(client);
    wait_until("the back end is left", || back.closed() == 1);
    engine.stop();
}

#[test]
fn an_event_stream_passes_through_http2_on_both_sides() {
    let (folder, port, tls_port) = (TempDir::new(), free_port(), free_port());
    let head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
        Transfer-Encoding: chunked\r\n\r\n";
    let first = b"9\r\ndata: 1\n\n\r\n";
    let back = ScriptedBackend::start(vec![
        vec![
            Action::ReadUntil(HEAD_END),
            Action::Send([head.as_slice(), first, b"9\r\ndata: 2\n\n\r\n0\r\n\r\n"].concat()),
            Action::ReadUntil(HEAD_END),
            Action::Send([head.as_slice(), first].concat()),
            Action::Stall,
        ],
        vec![
            Action::ReadUntil(HEAD_END),
            Action::Send([head.as_slice(), first].concat()),
            Action::Stall,
        ],
    ]);
    let authority = Authority::new("streams");
    let issued = authority.issue(&["localhost"]);
    let cert = folder.write("server.pem", &issued.cert);
    let key = folder.write("server.key", &issued.key);
    let ca = folder.write("ca.pem", authority.pem());
    let (cert, key, ca) = (cert.display(), key.display(), ca.display());
    let back_port = back.port();
    let flows = format!(
        "flow: behind\n\
         from: {{ http: {{ method: GET, listen: ':{tls_port}', path: '/*', \
           protocols: [h2], tls: {{ cert: {cert}, key: {key} }} }} }}\n\
         steps: [ forward: 'http://127.0.0.1:{back_port}/' ]\n---\n\
         flow: front\n\
         from: {{ http: GET :{port}/* }}\n\
         steps: [ forward: {{ to: 'https://localhost:{tls_port}/', tls: {{ ca: {ca} }} }} ]\n"
    );
    let path = folder.write("flows.yaml", &flows);
    let engine = Engine::run(&[&path], &[]);
    let mut client = RawClient::connect(port);
    let get = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    client.send(get);
    assert_eq!(client.response().text(), "data: 1\n\ndata: 2\n\n");
    let metrics = || engine.get("/metrics").text();
    for flow in ["front", "behind"] {
        let line = format!("_messages_total{{flow=\"{flow}\",direction=\"down\"}} 2\n");
        wait_until("both have counted", || metrics().contains(&line));
    }
    // The connection takes another request, whichever of the back end's it goes over.
    client.send(get);
    client.until(b"data: 1\n\n");
    drop(client);
    wait_until("nothing is open", || {
        let metrics = metrics();
        metrics.contains("intertie_streams_open{flow=\"front\"} 0\n")
            && metrics.contains("intertie_streams_open{flow=\"behind\"} 0\n")
    });
    wait_until("the back end is left", || back.closed() >= 1);
    engine.stop();
}
