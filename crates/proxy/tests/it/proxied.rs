//! Streams of back ends: WebSocket and event streams.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use component::forward::ForwardPlan;
use component::plan::RouteTarget;
use component::settings::Settings;
use component::stream_limits::{MessageLimit, Over, Scope, StreamLimits, StreamSettings};
use component::tls::UpstreamTls;
use component::upstream::UpstreamPlan;
use testkit::{Action, RawClient, ScriptedBackend, StrictBackend, wait_until};

use crate::support::{Proxy, forward_plan, short, tls_backend};

const HEAD_END: &[u8] = b"\r\n\r\n";
const SWITCHED: &[u8] = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n";
const HANDSHAKE: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Key: k\r\nSec-WebSocket-Version: 13\r\n\r\n";
const EVENTS: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\
    Transfer-Encoding: chunked\r\n\r\n";
const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/// A frame (RFC 6455, section 5.2) of at most 65535 bytes; one of a client has a mask of zeros.
fn frame(opcode: u8, payload: &[u8], is_masked: bool) -> Vec<u8> {
    let mask = if is_masked { 0x80 } else { 0 };
    let mut bytes = vec![0x80 | opcode];
    match payload.len() {
        short @ 0..126 => bytes.push(mask | short as u8),
        long => {
            bytes.push(mask | 126);
            bytes.extend((long as u16).to_be_bytes());
        }
    }
    if is_masked {
        bytes.extend([0; 4]);
    }
    bytes.extend(payload);
    bytes
}

fn close(code: u16, is_masked: bool) -> Vec<u8> {
    frame(8, &code.to_be_bytes(), is_masked)
}

/// The code in a masked close frame at the end of what a back end has received.
fn masked_code(received: &[u8]) -> Option<u16> {
    let at = received.len().checked_sub(8)?;
    let [0x88, 0x82, one, two, _, _, high, low] = received[at..] else {
        return None;
    };
    Some(u16::from_be_bytes([high ^ one, low ^ two]))
}

fn script(after: Vec<Action>) -> ScriptedBackend {
    let mut actions = vec![Action::ReadUntil(HEAD_END), Action::Send(SWITCHED.to_vec())];
    actions.extend(after);
    ScriptedBackend::start(vec![actions])
}

/// A client whose handshake has succeeded.
fn connect(proxy: &Proxy) -> RawClient {
    let mut client = proxy.client();
    client.send(HANDSHAKE);
    assert_eq!(client.response().status, 101);
    client
}

fn limits(count: u32, burst: u32, over: Over) -> Arc<StreamLimits> {
    Arc::new(StreamLimits::new(StreamSettings {
        connections: None,
        messages: Some(MessageLimit {
            count,
            per: Duration::from_secs(1),
            burst,
            scope: Scope::Connection,
            over,
        }),
    }))
}

fn limited(port: u16, count: u32, burst: u32, over: Over) -> Proxy {
    let change = |plan: &mut ForwardPlan| {
        plan.streams = Some(limits(count, burst, over));
    };
    Proxy::forward(port, change, |_| {})
}

/// Accepts one WebSocket connection and gives it to the test.
fn accept(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    let mut head = Vec::new();
    while !head.ends_with(HEAD_END) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    stream.write_all(SWITCHED).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    stream
}

/// A proxy, a back end of the test's own and a client, connected.
fn pair(change: impl FnOnce(&mut Settings)) -> (Proxy, TcpStream, RawClient) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let proxy = Proxy::forward(port, |_| {}, change);
    let mut client = proxy.client();
    client.send(HANDSHAKE);
    let backend = accept(&listener);
    assert_eq!(client.response().status, 101);
    (proxy, backend, client)
}

fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    bytes
}

#[test]
fn frames_go_both_ways_as_they_are_and_are_counted() {
    let (proxy, mut backend, mut client) = pair(|_| {});
    let large = vec![7; 60_000];
    let mut down = frame(2, &large, false);
    down.extend(frame(9, b"ping", false));
    down.extend([0x41, 1, b'a', 0x80, 1, b'b']);
    // The first bit that RFC 6455 reserves: what an extension says with it is its own matter.
    down.extend([0xc1, 2, 0xff, 0xfe]);
    backend.write_all(&down).unwrap();
    assert_eq!(client.exactly(down.len()), down);
    let mut up = frame(1, b"hello", true);
    up.extend(frame(10, b"ping", true));
    up.extend(frame(8, b"\x0f\xa0bye for now", true));
    client.send(&up);
    let mut received = vec![0; up.len()];
    backend.read_exact(&mut received).unwrap();
    assert_eq!(received, up);
    let answer = frame(8, b"\x0f\xa0bye for now", false);
    backend.write_all(&answer).unwrap();
    drop(backend);
    assert_eq!(client.rest(), answer, "code and reason are forwarded");
    proxy.wait_until_idle_after(client);
    let metrics = proxy.metrics();
    assert_eq!(metrics.messages_down.get(), 4, "each data frame counts");
    assert_eq!(metrics.messages_up.get(), 1);
    assert_eq!(metrics.streams_open(), 0);
}

#[test]
fn an_upstream_that_breaks_off_is_told_as_1011() {
    for ending in [Action::Close, Action::Reset] {
        let backend = script(vec![Action::Send(frame(1, b"last", false)), ending]);
        let proxy = Proxy::to(backend.port());
        let mut client = connect(&proxy);
        client.until(b"last");
        assert_eq!(client.rest(), close(1011, false));
        proxy.wait_until_idle_after(client);
    }
}

#[test]
fn nothing_is_put_into_a_frame_that_breaks_off() {
    let mut half = frame(1, b"not all of it", false);
    half.truncate(8);
    let backend = script(vec![Action::Send(half.clone()), Action::Close]);
    let proxy = Proxy::to(backend.port());
    let mut client = connect(&proxy);
    assert_eq!(client.rest(), half);
    proxy.wait_until_idle_after(client);
}

#[test]
fn a_client_that_leaves_without_a_word_is_told_as_1001() {
    let (proxy, mut backend, mut client) = pair(|_| {});
    client.send(frame(1, b"hello", true));
    let mut received = [0; 11];
    backend.read_exact(&mut received).unwrap();
    drop(client);
    let said = rest(&mut backend);
    assert_eq!(masked_code(&said), Some(1001), "{said:?}");
    drop(backend);
    proxy.wait_until_idle();
}

#[test]
fn what_an_upstream_says_to_the_last_word_of_a_client_reaches_it() {
    let (proxy, mut backend, mut client) = pair(|_| {});
    client.send(close(1000, true));
    client.finish();
    let said = rest(&mut backend);
    assert_eq!(said, close(1000, true), "nothing is added");
    backend.write_all(&close(1000, false)).unwrap();
    drop(backend);
    assert_eq!(client.rest(), close(1000, false));
    proxy.wait_until_idle_after(client);
}

#[test]
fn the_drain_says_1001_to_both_between_two_frames() {
    let (proxy, mut backend, mut client) = pair(|_| {});
    let whole = frame(1, b"hello", true);
    client.send(&whole[..8]);
    let mut begun = [0; 8];
    backend.read_exact(&mut begun).unwrap();
    proxy.drain();
    // The frame that is under way ends first.
    std::thread::sleep(Duration::from_millis(100));
    client.send(&whole[8..]);
    let said = rest(&mut backend);
    assert_eq!(said[..3], whole[8..]);
    assert_eq!(masked_code(&said), Some(1001), "{said:?}");
    drop(backend);
    assert_eq!(client.rest(), close(1001, false));
    drop(client);
    proxy.join();
}

#[test]
fn a_quiet_connection_ends_with_1001_when_its_time_is_over() {
    let (proxy, mut backend, mut client) = pair(|settings| {
        short(settings);
        settings.timeouts.stream = Duration::from_millis(700);
    });
    // Longer than a body may stand still.
    std::thread::sleep(Duration::from_millis(450));
    client.send(frame(1, b"a", true));
    let mut received = [0; 7];
    backend.read_exact(&mut received).unwrap();
    assert_eq!(client.rest(), close(1001, false));
    assert_eq!(masked_code(&rest(&mut backend)), Some(1001));
    drop((client, backend));
    proxy.wait_until_idle();
}

#[test]
fn a_side_that_does_not_read_holds_the_other_up() {
    let (proxy, mut backend, mut client) = pair(|_| {});
    backend
        .set_write_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let piece = frame(2, &[1; 60_000], false);
    let mut written = 0;
    // Until the sockets' own buffers are full.
    while written < 100_000_000 && backend.write_all(&piece).is_ok() {
        written += piece.len();
    }
    assert!(written < 40_000_000, "{written} bytes were taken");
    assert!(resident_kib() < 400_000);
    // The other direction goes on meanwhile.
    client.send(frame(1, b"hello", true));
    let mut received = [0; 11];
    backend.read_exact(&mut received).unwrap();
    assert_eq!(client.exactly(piece.len()), piece);
    drop((client, backend));
    proxy.wait_until_idle();
}

/// What waits for it over TLS, the end among it (`close_notify`), is given up in the end.
#[test]
fn a_back_end_over_tls_that_reads_nothing_does_not_hold_the_end_up() {
    let (port, tls) = tls_backend(|wire| async move {
        let mut input = Vec::new();
        while !input.ends_with(b"\r\n\r\n") {
            wire.read(&mut input).await.unwrap();
        }
        wire.write(SWITCHED).await.unwrap();
        std::future::pending::<()>().await;
    });
    let upstream = UpstreamPlan::single("127.0.0.1", port, Some(UpstreamTls::default()));
    let plan = ForwardPlan {
        upstream: Arc::new(upstream),
        ..forward_plan(port)
    };
    let upstream = Arc::clone(&plan.upstream);
    let target = RouteTarget::Forward(Arc::new(plan));
    let mut settings = Settings::default();
    settings.timeouts.stream = Duration::from_millis(300);
    let proxy = Proxy::before_tls(target, (&upstream, tls), settings);
    let mut client = TcpStream::connect(("127.0.0.1", proxy.port)).unwrap();
    let patience = Some(Duration::from_millis(500));
    client.set_write_timeout(patience).unwrap();
    client.write_all(HANDSHAKE.as_bytes()).unwrap();
    assert!(client.read(&mut [0; 1024]).unwrap() > 0);
    // Until neither socket takes any more.
    while client.write_all(&frame(2, &[1; 60_000], true)).is_ok() {}
    drop(client);
    proxy.wait_until_idle();
    assert_eq!(proxy.metrics().streams_open(), 0);
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    number.parse().unwrap()
}

#[test]
fn messages_above_the_limit_wait() {
    let backend = script(vec![Action::Stall]);
    let proxy = limited(backend.port(), 50, 5, Over::Delay);
    let mut client = connect(&proxy);
    let began = Instant::now();
    for _ in 0..20 {
        client.send(frame(1, b"m", true));
    }
    let count = || proxy.metrics().messages_up.get();
    wait_until("all have passed", || count() == 20);
    let time = began.elapsed();
    assert!(time >= Duration::from_millis(290), "{time:?}");
}

#[test]
fn a_message_above_the_limit_can_end_the_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let proxy = limited(port, 1, 3, Over::Close);
    let mut client = proxy.client();
    client.send(HANDSHAKE);
    let mut backend = accept(&listener);
    assert_eq!(client.response().status, 101);
    for _ in 0..5 {
        client.send(frame(1, b"m", true));
    }
    assert_eq!(client.rest(), close(1008, false));
    let said = rest(&mut backend);
    assert_eq!(said.len(), 3 * 7 + 8, "three messages passed: {said:?}");
    assert_eq!(masked_code(&said), Some(1001));
    assert_eq!(proxy.metrics().messages_up.get(), 3);
}

#[test]
fn what_is_no_frame_ends_the_connection() {
    let (_proxy, mut backend, mut client) = pair(|_| {});
    client.send([0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(client.rest(), close(1002, false));
    assert_eq!(masked_code(&rest(&mut backend)), Some(1002));
}

#[test]
fn only_handshakes_go_to_a_websocket_target() {
    let backend = StrictBackend::start();
    let proxy = Proxy::forward(backend.port(), |plan| plan.websocket = true, |_| {});
    let mut client = proxy.client();
    for request in [
        GET,
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi",
    ] {
        client.send(request);
        let response = client.response();
        assert_eq!(response.status, 426);
        assert_eq!(response.header("upgrade"), Some("websocket"));
        assert_eq!(response.header("connection"), Some("Upgrade"));
    }
    assert_eq!(backend.requests().len(), 0);
    let backend = script(vec![Action::Stall]);
    let proxy = Proxy::forward(backend.port(), |plan| plan.websocket = true, |_| {});
    connect(&proxy);
}

#[test]
fn as_many_websockets_as_the_limit_says() {
    let backend = script(vec![Action::Stall]);
    let settings = StreamSettings {
        connections: Some(1),
        messages: None,
    };
    let limits = Arc::new(StreamLimits::new(settings));
    let proxy = Proxy::forward(backend.port(), |plan| plan.streams = Some(limits), |_| {});
    let first = connect(&proxy);
    let mut second = proxy.client();
    second.send(HANDSHAKE);
    assert_eq!(second.response().status, 503);
    assert_eq!(backend.accepted(), 1, "the back end is spared");
    drop(first);
    wait_until("its place is free", || proxy.metrics().streams_open() == 0);
    connect(&proxy);
}

fn chunk(text: &str) -> Vec<u8> {
    format!("{:x}\r\n{text}\r\n", text.len()).into_bytes()
}

fn events(after: Vec<Action>) -> ScriptedBackend {
    let mut actions = vec![Action::ReadUntil(HEAD_END), Action::Send(EVENTS.to_vec())];
    actions.extend(after);
    ScriptedBackend::start(vec![actions])
}

#[test]
fn events_pass_at_once_and_are_counted_and_both_connections_go_on() {
    let two = chunk("data: 1\r\n\r\n: a comment\n\ndata: 2\n\n");
    let backend = events(vec![
        Action::Send(two[..10].to_vec()),
        Action::Pause(Duration::from_millis(100)),
        Action::Send(two[10..].to_vec()),
        Action::Send(chunk("data: 3\r\rdata: not ended\n")),
        Action::Send(b"0\r\n\r\n".to_vec()),
        Action::ReadUntil(HEAD_END),
        Action::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnext".to_vec()),
        Action::Stall,
    ]);
    let proxy = Proxy::to(backend.port());
    let mut client = proxy.client();
    client.send(GET);
    let response = client.response();
    let text = "data: 1\r\n\r\n: a comment\n\ndata: 2\n\ndata: 3\r\rdata: not ended\n";
    assert_eq!(response.text(), text);
    assert_eq!(response.header("connection"), None);
    assert_eq!(proxy.metrics().messages_down.get(), 3);
    client.send(GET);
    assert_eq!(client.response().text(), "next");
    assert_eq!(
        backend.accepted(),
        1,
        "the back end's connection is used again"
    );
    proxy.wait_until_idle_after(client);
}

#[test]
fn a_client_that_leaves_frees_the_back_end_at_once() {
    let backend = events(vec![Action::Send(chunk("data: 1\n\n")), Action::Stall]);
    let proxy = Proxy::to(backend.port());
    let mut client = proxy.client();
    client.send(GET);
    client.until(b"data: 1\n\n\r\n");
    assert_eq!(backend.closed(), 0);
    let began = Instant::now();
    drop(client);
    wait_until("it is cancelled", || backend.closed() == 1);
    assert!(began.elapsed() < Duration::from_secs(1));
    proxy.wait_until_idle();
}

#[test]
fn the_end_of_an_event_stream_reaches_a_client_that_sends_on() {
    let last = chunk("data: 1\n\n");
    let end = b"0\r\n\r\n".to_vec();
    let backend = events(vec![Action::Send(last), Action::Send(end), Action::Stall]);
    let proxy = Proxy::to(backend.port());
    let mut client = TcpStream::connect(("127.0.0.1", proxy.port)).unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    client.write_all(&vec![b'x'; 8 << 20]).unwrap();
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    assert!(reply.ends_with("data: 1\n\n\r\n0\r\n\r\n"), "{reply}");
}

#[test]
fn an_event_stream_that_breaks_off_is_cut_and_one_that_stops_is_cut_by_the_drain() {
    let backend = events(vec![Action::Send(chunk("data: 1\n\n")), Action::Close]);
    let proxy = Proxy::to(backend.port());
    let mut client = proxy.client();
    client.send(GET);
    client.until(HEAD_END);
    assert_eq!(client.rest(), chunk("data: 1\n\n"));
    let backend = events(vec![Action::Send(chunk("data: 1\n\n")), Action::Stall]);
    let proxy = Proxy::forward(backend.port(), |_| {}, short);
    let mut client = proxy.client();
    client.send(GET);
    client.until(HEAD_END);
    client.until(b"data: 1\n\n\r\n");
    proxy.drain();
    assert!(client.is_closed());
    proxy.join();
}

/// What came before the break is with the client before its connection is cut.
#[test]
fn events_before_a_break_in_the_same_piece_still_reach_the_client() {
    let whole = [chunk("data: 1\n\n"), chunk("data: 2\n\n")].concat();
    let broken = [&whole[..], b"no chunk"].concat();
    let backend = events(vec![Action::Send(broken), Action::Stall]);
    let proxy = Proxy::to(backend.port());
    let mut client = proxy.client();
    client.send(GET);
    client.until(HEAD_END);
    assert_eq!(client.rest(), whole);
    wait_until("the back end is left", || backend.closed() == 1);
}

#[test]
fn events_above_the_limit_wait() {
    let all = chunk(&"data: x\n\n".repeat(20));
    let backend = events(vec![Action::Send(all), Action::Stall]);
    let proxy = limited(backend.port(), 50, 5, Over::Delay);
    let mut client = proxy.client();
    let began = Instant::now();
    client.send(GET);
    let count = || proxy.metrics().messages_down.get();
    client.until(HEAD_END);
    client.until(b"data: x\n");
    wait_until("all have passed", || count() == 20);
    let time = began.elapsed();
    assert!(time >= Duration::from_millis(290), "{time:?}");
}

#[test]
fn an_event_above_the_limit_can_end_the_stream() {
    let all = chunk(&"data: x\n\n".repeat(5));
    let backend = events(vec![Action::Send(all), Action::Stall]);
    let proxy = limited(backend.port(), 1, 3, Over::Close);
    let mut client = proxy.client();
    client.send(GET);
    let response = client.response();
    let text = response.text();
    assert_eq!(text.matches("\n\n").count(), 3, "{text:?}");
    assert_eq!(proxy.metrics().messages_down.get(), 3);
    wait_until("the back end is left", || backend.closed() == 1);
}

#[test]
fn what_cannot_be_counted_is_refused_where_it_must_be() {
    let reply = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
        Content-Encoding: gzip\r\n\r\nnot really"
        .to_vec();
    let coded = || {
        let actions = vec![
            Action::ReadUntil(HEAD_END),
            Action::Send(reply.clone()),
            Action::Close,
        ];
        ScriptedBackend::start(vec![actions])
    };
    let backend = coded();
    let proxy = limited(backend.port(), 1, 1, Over::Close);
    let mut client = proxy.client();
    client.send(GET);
    assert_eq!(client.response().status, 502);
    let backend = coded();
    let proxy = Proxy::to(backend.port());
    let mut client = proxy.client();
    client.send(GET);
    assert_eq!(client.response().text(), "not really");
}

fn over_both(port: u16) -> Proxy {
    Proxy::both(RouteTarget::Forward(Arc::new(forward_plan(port))))
}

#[test]
fn events_reach_a_client_of_http2() {
    let backend = events(vec![
        Action::Send(chunk("data: 1\n\ndata: 2\n\n")),
        Action::Send(b"0\r\n\r\n".to_vec()),
        Action::Stall,
    ]);
    let proxy = over_both(backend.port());
    let (status, content, whole) = crate::streams::over_http2(proxy.port, usize::MAX);
    assert_eq!((status, whole), (200, true));
    assert_eq!(content, b"data: 1\n\ndata: 2\n\n");
    assert_eq!(proxy.metrics().messages_down.get(), 2);
    let backend = events(vec![Action::Send(chunk("data: 1\n\n")), Action::Stall]);
    let proxy = over_both(backend.port());
    crate::streams::over_http2(proxy.port, 9);
    wait_until("the back end is left", || backend.closed() == 1);
    proxy.wait_until_idle();
}
