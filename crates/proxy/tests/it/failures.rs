//! Broken, slow and rude peers: the client gets a clear answer that tells nothing of the inside.

use std::time::Duration;

use testkit::{Action, RawClient, Response, ScriptedBackend, free_port};

use crate::support::{Proxy, short};

const HEAD_END: &[u8] = b"\r\n\r\n";

fn get(proxy: &Proxy) -> Response {
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = client.response();
    assert!(
        !response.text().contains("127.0.0.1"),
        "{}",
        response.text()
    );
    response
}

fn problem(response: &Response) -> (u16, String) {
    assert_eq!(
        response.header("content-type"),
        Some("application/problem+json")
    );
    (response.status, response.text())
}

#[test]
fn upstreams_that_cannot_be_reached_give_502() {
    let proxy = Proxy::to(free_port());
    let (status, text) = problem(&get(&proxy));
    assert_eq!(status, 502);
    assert!(text.contains("cannot be reached"), "{text}");
}

#[test]
fn replies_that_are_none_give_502() {
    let replies = [
        "",
        "HTTP/1.1 200",
        "SSH-2.0-x\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxyz\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    ];
    for reply in replies {
        let script = vec![
            Action::ReadUntil(HEAD_END),
            Action::Send(reply.as_bytes().to_vec()),
        ];
        let backend = ScriptedBackend::start(vec![script]);
        let proxy = Proxy::to(backend.port());
        assert_eq!(problem(&get(&proxy)).0, 502, "{reply:?}");
        proxy.wait_until_idle();
    }
}

#[test]
fn upstreams_that_say_nothing_give_504() {
    let backend = ScriptedBackend::start(vec![vec![Action::Stall]]);
    let proxy = Proxy::forward(backend.port(), |_| {}, short);
    assert_eq!(problem(&get(&proxy)).0, 504);
    testkit::wait_until("the upstream connection is closed", || {
        backend.closed() == 1
    });
}

#[test]
fn a_reply_that_breaks_off_is_cut_for_the_client_too() {
    let replies = [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nxy",
    ];
    for reply in replies {
        let script = vec![
            Action::ReadUntil(HEAD_END),
            Action::Send(reply.as_bytes()[..reply.len() - 3].to_vec()),
            Action::Pause(Duration::from_millis(50)),
            Action::Send(reply.as_bytes()[reply.len() - 3..].to_vec()),
        ];
        let backend = ScriptedBackend::start(vec![script]);
        let proxy = Proxy::to(backend.port());
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let bytes = client.rest();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
        assert!(!text.ends_with("0\r\n\r\n"), "{text}");
    }
}

#[test]
fn a_kept_connection_that_was_closed_is_replaced_for_safe_requests() {
    let answer = Action::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec());
    // The first connection takes a second request and closes instead of answering it.
    let backend = ScriptedBackend::start(vec![
        vec![
            Action::ReadUntil(HEAD_END),
            answer.clone(),
            Action::ReadUntil(HEAD_END),
        ],
        vec![
            Action::ReadUntil(HEAD_END),
            answer.clone(),
            Action::ReadUntil(HEAD_END),
            answer,
        ],
    ]);
    let proxy = Proxy::to(backend.port());
    assert_eq!(get(&proxy).text(), "ok");
    assert_eq!(get(&proxy).text(), "ok");
    assert_eq!(backend.accepted(), 2);
    assert_eq!(proxy.engine.registry.workers()[0].upstream_retries.get(), 1);
}

#[test]
fn a_request_that_is_not_safe_to_repeat_is_not_repeated() {
    let answer = Action::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec());
    let backend = ScriptedBackend::start(vec![
        vec![
            Action::ReadUntil(HEAD_END),
            answer.clone(),
            Action::ReadUntil(b"hi"),
        ],
        vec![Action::ReadUntil(HEAD_END), answer],
    ]);
    let proxy = Proxy::to(backend.port());
    assert_eq!(get(&proxy).text(), "ok");
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(client.response().status, 502);
    assert_eq!(backend.accepted(), 1);
}

#[test]
fn a_connection_that_the_upstream_has_closed_is_not_used_at_all() {
    let answer = Action::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec());
    let backend = ScriptedBackend::start(vec![vec![
        Action::ReadUntil(HEAD_END),
        answer,
        Action::Close,
    ]]);
    let proxy = Proxy::to(backend.port());
    for count in 1..=3 {
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(client.response().text(), "ok");
        testkit::wait_until("the upstream has closed", || backend.closed() == count);
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(proxy.engine.registry.workers()[0].upstream_retries.get(), 0);
}

#[test]
fn clients_that_stand_still_are_told_and_closed() {
    let backend = ScriptedBackend::start(vec![vec![Action::Stall]]);
    let proxy = Proxy::forward(backend.port(), |_| {}, short);
    let mut idle = proxy.client();
    let mut head = proxy.client();
    head.send("GET / HTTP/1.1\r\nHo");
    let mut body = proxy.client();
    body.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    assert!(
        idle.is_closed(),
        "an idle connection is closed without a word"
    );
    assert_eq!(head.response().status, 408);
    assert!(head.is_closed());
    assert_eq!(body.response().status, 408);
    assert!(body.is_closed());
    proxy.wait_until_idle();
}

#[test]
fn a_head_that_drips_in_is_given_up() {
    let backend = ScriptedBackend::start(vec![vec![Action::Stall]]);
    let proxy = Proxy::forward(backend.port(), |_| {}, short);
    let mut client = proxy.client();
    let head =
        b"GET / HTTP/1.1\r\nHost: a\r\nX: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    client.send_slowly(head, 1, Duration::from_millis(10));
    assert_eq!(client.response().status, 408);
}

#[test]
fn a_client_that_leaves_ends_the_work() {
    let backend = ScriptedBackend::start(vec![vec![Action::Stall]]);
    let proxy = Proxy::to(backend.port());
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    testkit::wait_until("the request has arrived", || {
        backend.received().ends_with("\r\n\r\n")
    });
    drop(client);
    testkit::wait_until("the upstream connection is closed", || {
        backend.closed() == 1
    });
    proxy.wait_until_idle();
    assert_eq!(proxy.metrics().finished[0].get(), 1, "no status was sent");
}

#[test]
fn connections_above_the_limit_are_turned_away() {
    let backend = ScriptedBackend::start(vec![vec![Action::Stall]]);
    let proxy = Proxy::forward(
        backend.port(),
        |_| {},
        |settings| settings.limits.connections = 2,
    );
    let first = proxy.client();
    let second = proxy.client();
    testkit::wait_until("two are in", || proxy.engine.connection_count() == 2);
    assert_eq!(RawClient::connect(proxy.port).response().status, 503);
    drop((first, second));
    testkit::wait_until("they are gone", || proxy.engine.connection_count() == 0);
    let mut third = proxy.client();
    assert!(third.stays_silent(Duration::from_millis(50)));
}
