//! Bodies in every framing, both ways, whole and in pieces.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use component::plan::RouteTarget;
use component::tls::Protocol;
use component::upstream::UpstreamPlan;
use testkit::http1::values;
use testkit::{Action, ScriptedBackend, StrictBackend};

use crate::support::{Proxy, forward_plan, http2_backend};

const HEAD_END: &[u8] = b"\r\n\r\n";

fn script(reply: &str) -> Vec<Action> {
    vec![
        Action::ReadUntil(HEAD_END),
        Action::Send(reply.as_bytes().to_vec()),
    ]
}

/// Bytes that differ everywhere, so that a piece that is lost or moved is seen.
fn content(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 31 % 251) as u8).collect()
}

#[test]
fn request_bodies_arrive_whole_in_both_framings() {
    let backend = StrictBackend::start();
    let proxy = Proxy::to(backend.port());
    let mut client = proxy.client();
    for size in [0, 1, 100, 16 * 1024, 100_000, 3_000_000] {
        let body = content(size);
        client.send(format!(
            "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n"
        ));
        client.send(&body);
        assert!(client.response().body == body, "{size} bytes with a length");
        client.send("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        for chunk in body.chunks(7777) {
            client.send(format!("{:x};note=\"x\"\r\n", chunk.len()));
            client.send(chunk);
            client.send("\r\n");
        }
        client.send("0\r\nX-Sum: 1\r\n\r\n");
        assert!(client.response().body == body, "{size} bytes in chunks");
    }
    assert_eq!(backend.violations(), Vec::<String>::new());
}

#[test]
fn bodies_in_single_bytes_arrive_whole() {
    let backend = StrictBackend::start();
    let proxy = Proxy::to(backend.port());
    let mut client = proxy.client();
    let request = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
                    5;x\r\nhello\r\n1\r\n!\r\n0\r\nT: 1\r\n\r\n";
    client.send_slowly(request, 1, Duration::from_micros(300));
    assert_eq!(client.response().text(), "hello!");
}

#[test]
fn reply_bodies_arrive_in_every_framing() {
    let replies = [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x\r\nlo\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\nhello",
        "HTTP/1.0 200 OK\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
    ];
    for reply in replies {
        let mut actions = script(reply);
        actions.push(Action::Close);
        let backend = ScriptedBackend::start(vec![actions]);
        let proxy = Proxy::to(backend.port());
        let mut client = proxy.client();
        for _ in 0..2 {
            client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.response().text(), "hello", "{reply}");
        }
    }
}

#[test]
fn trailers_of_replies_go_through() {
    let reply = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Digest\r\n\r\n\
                 2\r\nhi\r\n0\r\nDigest: x\r\n\r\n";
    let backend = ScriptedBackend::start(vec![script(reply)]);
    let proxy = Proxy::to(backend.port());
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = client.response();
    assert_eq!(response.header("trailer"), Some("Digest"));
    assert_eq!(response.trailers, [("Digest".to_owned(), "x".to_owned())]);
}

/// An HTTP/1.1 client that looks for a reply only when all of its request is sent, as many do.
#[test]
fn the_refusal_of_a_large_upload_reaches_a_client_that_sends_it_all_first() {
    let refusal = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno";
    let mut actions = script(refusal);
    actions.push(Action::Stall);
    let backend = ScriptedBackend::start(vec![actions]);
    let proxy = Proxy::to(backend.port());
    let mut client = TcpStream::connect(("127.0.0.1", proxy.port)).unwrap();
    let length = 40 << 20;
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    client.write_all(head.as_bytes()).unwrap();
    client.write_all(&vec![0; length]).unwrap();
    let mut reply = String::new();
    client.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 401 ") && reply.ends_with("\r\n\r\nno"));
}

#[test]
fn replies_without_a_body_end_with_their_head() {
    let cases = [
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            Some("5"),
        ),
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            None,
        ),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n", None),
        (
            "GET",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
            Some("5"),
        ),
    ];
    for (method, reply, length) in cases {
        let mut actions = script(reply);
        actions.extend(script(reply));
        let backend = ScriptedBackend::start(vec![actions]);
        let proxy = Proxy::to(backend.port());
        let mut client = proxy.client();
        for _ in 0..2 {
            client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
            let response = client.response_to(method);
            assert_eq!(response.header("content-length"), length, "{reply}");
        }
        assert_eq!(backend.accepted(), 1, "the connection is used again");
    }
}

/// Many servers end a reply of no length, or one to `HEAD`, by an empty frame behind the head.
/// Given up before it came, the request looked cancelled to them.
#[test]
fn an_empty_reply_over_http2_may_end_behind_its_head() {
    let resets = Arc::<Mutex<Vec<Option<u32>>>>::default();
    let seen = Arc::clone(&resets);
    let port = http2_backend(move |_, connection, stream| {
        let seen = Arc::clone(&seen);
        async move {
            let head = connection.with(|state| state.streams[&stream].heads[0].clone());
            let head = match values(&head, ":method")[0] {
                "HEAD" => [(":status", "200"), ("content-length", "5")],
                "PUT" => [(":status", "204"), ("x", "y")],
                _ => [(":status", "200"), ("content-length", "0")],
            };
            connection.send_head(stream, &head, false);
            tokio::time::sleep(Duration::from_millis(50)).await;
            let reset = connection.with(|state| state.streams[&stream].peer_reset);
            seen.lock().unwrap().push(reset);
            if reset.is_none() {
                connection.send_data(stream, &[], true, 0).await;
            }
        }
    });
    let mut plan = forward_plan(port);
    let mut upstream = UpstreamPlan::single("127.0.0.1", port, None);
    upstream.protocols = vec![Protocol::Http2];
    plan.upstream = Arc::new(upstream);
    let proxy = Proxy::both(RouteTarget::Forward(Arc::new(plan)));
    for method in ["GET", "HEAD", "PUT"] {
        // Each client is gone as soon as it has its second reply.
        let mut client = proxy.client();
        for _ in 0..2 {
            let head = format!("{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
            client.send(head);
            let reply = client.response_to(method);
            assert_eq!(reply.status, if method == "PUT" { 204 } else { 200 });
        }
    }
    proxy.wait_until_idle();
    assert_eq!(*resets.lock().unwrap(), [None; 6]);
}

#[test]
fn interim_replies_go_through_and_continue_lets_the_body_come() {
    // Many clients of HTTP/1.1 take any interim reply but `100 Continue` for the final one.
    for early_hints in [false, true] {
        let backend = ScriptedBackend::start(vec![vec![
            Action::ReadUntil(HEAD_END),
            Action::Send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".to_vec()),
            Action::Send(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()),
            Action::ReadUntil(b"hello"),
            Action::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()),
            Action::Stall,
        ]]);
        let proxy = Proxy::forward(
            backend.port(),
            |plan| plan.early_hints = early_hints,
            |_| {},
        );
        let mut client = proxy.client();
        client.send(
            "POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n",
        );
        if early_hints {
            let hints = client.response();
            assert_eq!((hints.status, hints.header("link")), (103, Some("</a>")));
            assert_eq!(hints.header("date"), None);
        }
        assert_eq!(client.response().status, 100);
        client.send("hello");
        assert_eq!(client.response().text(), "ok");
        assert!(backend.received().contains("Expect: 100-continue"));
    }
}

#[test]
fn a_reply_may_begin_before_the_request_has_ended() {
    let backend = ScriptedBackend::start(vec![vec![
        Action::ReadUntil(b"first"),
        Action::Send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n".to_vec()),
        Action::ReadUntil(b"second"),
        Action::Send(b"1\r\nb\r\n0\r\n\r\n".to_vec()),
        Action::Stall,
    ]]);
    let proxy = Proxy::to(backend.port());
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\nfirst");
    assert!(client.until(b"1\r\na\r\n").starts_with(b"HTTP/1.1 200 OK"));
    client.send("second");
    assert_eq!(client.until(b"0\r\n\r\n"), b"1\r\nb\r\n0\r\n\r\n");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let backend = StrictBackend::start();
    let proxy = Proxy::to(backend.port());
    let mut client = proxy.client();
    let requests: String = (0..200)
        .map(|at| {
            let body = format!("body {at}");
            let length = body.len();
            format!("PUT /{at} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}")
        })
        .collect();
    client.send(requests);
    for at in 0..200 {
        assert_eq!(client.response().text(), format!("body {at}"));
    }
}

#[test]
fn events_are_passed_on_at_once_and_the_upstream_is_left_with_the_client() {
    let backend = ScriptedBackend::start(vec![vec![
        Action::ReadUntil(HEAD_END),
        Action::Send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n".to_vec(),
        ),
        Action::Pause(Duration::from_millis(600)),
        Action::Send(b"data: 2\n\n".to_vec()),
        Action::Stall,
    ]]);
    let proxy = Proxy::forward(backend.port(), |_| {}, crate::support::short);
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.until(b"9\r\ndata: 1\n\n\r\n");
    // Longer than a body may stand still: streams have a time-out of their own.
    client.until(b"9\r\ndata: 2\n\n\r\n");
    drop(client);
    testkit::wait_until("the upstream connection is closed", || {
        backend.closed() == 1
    });
    proxy.wait_until_idle();
}
