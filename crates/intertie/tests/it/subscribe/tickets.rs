//! Tickets and cookies as browsers use them, through the binary with two workers: `EventSource` and
//! `WebSocket` on a locked topic, a restart, and a flow whose back end must see nothing of it.

use std::collections::BTreeSet;

use testkit::{RawClient, Response, StrictBackend, TempDir, WebSocket, free_port};

use super::Stream;
use super::access::{SECRET, ask, bearer, token};
use crate::support::{Engine, output, post};

const ORIGIN: &str = "Origin: https://shop.example\r\n";

fn engine_document(more: &str) -> String {
    format!(
        "engine:\n  auth:\n    staff: {{ jwt: {{ issuer: 'https://id.example', audience: shop, \
         secret: '{SECRET}', clock_skew: 1s{more} }} }}\n"
    )
}

fn topic(port: u16, more: &str) -> String {
    format!(
        "topic: prices\npayload: event\npublish: {{ auth: none, http: 'POST \
         127.0.0.1:{port}/topics/prices' }}\nsubscribe:\n  listen: '127.0.0.1:{port}'\n  auth: \
         {{ any: [staff], scopes: [read] }}\n  cors: {{ origins: ['https://shop.example'], \
         credentials: true }}\n{more}"
    )
}

fn run(folder: &TempDir, text: &str) -> Engine {
    let file = folder.write("flows.yaml", text);
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    Engine::run(&[&file], &["--data", data])
}

/// An engine with the topic: its folder, its port and itself.
fn run_topic() -> (TempDir, u16, Engine) {
    let (folder, port) = (TempDir::new(), free_port());
    let documents = [engine_document(""), topic(port, "")].join("---\n");
    let engine = run(&folder, &documents);
    (folder, port, engine)
}

fn reader(seconds: u64) -> String {
    bearer(seconds, ",\"scope\":\"read\"")
}

fn ask_for_ticket(port: u16, path: &str, fields: &str) -> Response {
    ask(
        port,
        "POST",
        &format!("{path}/ticket"),
        &format!("Content-Length: 0\r\n{fields}"),
    )
}

fn ticket(port: u16, path: &str, fields: &str) -> String {
    let reply = ask_for_ticket(port, path, fields);
    assert_eq!(reply.status, 200, "{reply:?}");
    reply.text().split('"').nth(3).unwrap().to_owned()
}

fn status(port: u16, target: &str, fields: &str) -> u16 {
    let mut client = RawClient::connect(port);
    client.send(format!(
        "GET {target} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"
    ));
    let line = String::from_utf8(client.until(b"\r\n")).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

/// The cookie of a reply's head.
fn cookie(head: &str) -> String {
    let mut lines = head.lines();
    let line = lines.find(|it| it.to_ascii_lowercase().starts_with("set-cookie: "));
    let value = line
        .unwrap_or_else(|| panic!("{head}"))
        .split_once(' ')
        .unwrap()
        .1;
    assert!(value.contains("; HttpOnly; SameSite=Strict"), "{value}");
    assert!(value.contains("; Path=/topics/prices; Max-Age="), "{value}");
    format!("Cookie: {}\r\n", value.split(';').next().unwrap())
}

#[test]
fn a_page_comes_again_with_its_cookie_after_a_restart() {
    let (folder, port) = (TempDir::new(), free_port());
    let text = [engine_document(""), topic(port, "")].join("---\n");
    let engine = run(&folder, &text);
    let fields = format!("{ORIGIN}{}", reader(600));
    let given = ticket(port, "/topics/prices", &fields);
    let target = format!("/topics/prices/sse?from=earliest&ticket={given}");
    let mut stream = Stream::open(port, &target, ORIGIN);
    let cookie = cookie(&stream.head);
    stream.place();
    assert_eq!(
        post(port, "/topics/prices", "application/json", "{\"n\":1}").status,
        200
    );
    let (_, _, data) = stream.event();
    assert_eq!(data, "{\"n\":1}");
    // The ticket is used up, on whichever worker the next connection is.
    for _ in 0..20 {
        assert_eq!(status(port, &target, ORIGIN), 401);
    }
    assert_eq!(
        post(port, "/topics/prices", "application/json", "{\"n\":2}").status,
        200
    );
    let block = stream.block().unwrap();
    assert!(block.contains("{\"n\":2}"), "{block}");
    let id = block
        .lines()
        .find_map(|line| line.strip_prefix("id: "))
        .unwrap();
    drop(stream);
    engine.stop();
    let engine = run(&folder, &text);
    assert_eq!(
        post(port, "/topics/prices", "application/json", "{\"n\":3}").status,
        200
    );
    // As EventSource does: the same URL, the last id, and the cookie.
    let last = format!("{ORIGIN}{cookie}Last-Event-ID: {id}\r\n");
    let mut stream = Stream::open(port, &target, &last);
    assert!(
        !stream.head.to_ascii_lowercase().contains("set-cookie"),
        "{}",
        stream.head
    );
    let (_, _, data) = stream.event();
    assert_eq!(data, "{\"n\":3}");
    // A WebSocket with the cookie is of the same page, or refused.
    let (_, mut socket) =
        WebSocket::connect(port, "/topics/prices/ws", &format!("{ORIGIN}{cookie}"));
    assert!(socket.next_text().contains("subscribed"));
    for other in ["Origin: https://evil.example\r\n", ""] {
        let (reply, _) = WebSocket::ask(port, "/topics/prices/ws", &format!("{other}{cookie}"));
        assert!(matches!(reply.status, 401 | 403), "{other} {reply:?}");
    }
    drop(engine);
}

#[test]
fn concurrent_requests_use_a_ticket_once() {
    let (_folder, port, engine) = run_topic();
    let fields = format!("{ORIGIN}{}", reader(600));
    // Not more: wrong tickets use up the budget of the address.
    for _ in 0..2 {
        let given = ticket(port, "/topics/prices", &fields);
        let target = format!("/topics/prices/sse?ticket={given}");
        let askers = (0..8).map(|_| {
            let target = target.clone();
            std::thread::spawn(move || status(port, &target, ORIGIN))
        });
        let askers: Vec<_> = askers.collect();
        let outcomes = askers.into_iter().map(|it| it.join().unwrap());
        let admitted = outcomes.filter(|it| *it == 200).count();
        assert_eq!(admitted, 1);
    }
    drop(engine);
}

#[test]
fn a_websocket_is_opened_by_a_ticket_and_publishes_by_it() {
    let (folder, port) = (TempDir::new(), free_port());
    let publish =
        topic(port, "  websocket: { publish: true }\n").replace("auth: none", "auth: staff");
    let engine = run(
        &folder,
        &[engine_document(", also_in: [subprotocol]"), publish].join("---\n"),
    );
    let given = ticket(port, "/topics/prices", &format!("{ORIGIN}{}", reader(600)));
    let target = format!("/topics/prices/ws?ticket={given}");
    let (reply, mut socket) = WebSocket::connect(port, &target, ORIGIN);
    assert!(reply.header("Set-Cookie").is_some(), "{reply:?}");
    assert!(socket.next_text().contains("subscribed"));
    socket.text(r#"{"type":"publish","data":{"n":1},"ref":1}"#);
    let answers = [socket.next_text(), socket.next_text()].join(" ");
    assert!(
        answers.contains("\"ack\"") && answers.contains("{\"n\":1}"),
        "{answers}"
    );
    let (reply, _) = WebSocket::ask(port, &target, ORIGIN);
    assert_eq!(reply.status, 401);
    // A token among the subprotocols: the reply names the marker, never the token.
    let token = token(600, ",\"scope\":\"read\"");
    for path in ["/topics/prices/ws", "/topics/ws"] {
        let protocols = format!("{ORIGIN}Sec-WebSocket-Protocol: bearer, {token}\r\n");
        let (reply, mut socket) = WebSocket::connect(port, path, &protocols);
        assert_eq!(reply.all("Sec-WebSocket-Protocol"), ["bearer"]);
        if path == "/topics/ws" {
            socket.text(r#"{"type":"subscribe","topic":"prices"}"#);
        }
        assert!(socket.next_text().contains("subscribed"));
    }
    drop(engine);
}

#[test]
fn a_page_publishes_by_a_ticket_to_a_topic_that_everybody_may_read() {
    let (folder, port) = (TempDir::new(), free_port());
    let topic = format!(
        "topic: prices\npayload: event\ndurability: memory\npublish: {{ auth: {{ any: [staff], \
         scopes: [read] }} }}\nsubscribe:\n  listen: '127.0.0.1:{port}'\n  auth: none\n  \
         websocket: {{ publish: true }}\n  cors: {{ origins: ['https://shop.example'] }}\n"
    );
    let engine = run(&folder, &[engine_document(""), topic].join("---\n"));
    let publish = r#"{"type":"publish","data":{"n":1},"ref":1}"#;
    let (_, mut anybody) = WebSocket::connect(port, "/topics/prices/ws", ORIGIN);
    assert!(anybody.next_text().contains("subscribed"));
    anybody.text(publish);
    assert!(anybody.next_text().contains("\"reason\":\"unauthorized\""));
    // Everybody may see the topic: nothing is hidden.
    assert_eq!(
        ask_for_ticket(port, "/topics/prices", &bearer(600, "")).status,
        403
    );
    let given = ticket(port, "/topics/prices", &format!("{ORIGIN}{}", reader(600)));
    let target = format!("/topics/prices/ws?ticket={given}");
    let (reply, mut socket) = WebSocket::connect(port, &target, ORIGIN);
    let cookie = reply.header("Set-Cookie").unwrap().split(';').next();
    let cookie = format!("{ORIGIN}Cookie: {}\r\n", cookie.unwrap());
    assert!(socket.next_text().contains("subscribed"));
    // Longer than a verdict holds.
    for wait in [0, 1_100] {
        std::thread::sleep(std::time::Duration::from_millis(wait));
        socket.text(publish);
        let answers = [socket.next_text(), socket.next_text()].join(" ");
        assert!(answers.contains("\"ack\""), "{answers}");
    }
    let (reply, _) = WebSocket::ask(port, &target, ORIGIN);
    assert_eq!(reply.status, 401);
    let (_, mut socket) = WebSocket::connect(port, "/topics/prices/ws", &cookie);
    assert!(socket.next_text().contains("subscribed"));
    socket.text(publish);
    let answers = [socket.next_text(), socket.next_text()].join(" ");
    assert!(answers.contains("\"ack\""), "{answers}");
    drop(engine);
}

#[test]
fn a_token_among_subprotocols_counts_in_handshakes_alone() {
    let (folder, port) = (TempDir::new(), free_port());
    let topic = topic(port, "");
    let engine = run(
        &folder,
        &[engine_document(", also_in: [subprotocol]"), topic].join("---\n"),
    );
    let token = token(600, ",\"scope\":\"read\"");
    let fields = format!("Sec-WebSocket-Protocol: bearer, {token}\r\n");
    assert_eq!(status(port, "/topics/prices/sse", &fields), 401);
    let (reply, _) = WebSocket::ask(port, "/topics/prices/ws", &format!("{ORIGIN}{fields}"));
    assert_eq!(reply.status, 101);
    drop(engine);
}

#[test]
fn pages_of_other_origins_may_ask_for_tickets_and_others_learn_nothing() {
    let (_folder, port, engine) = run_topic();
    let preflight = format!(
        "{ORIGIN}Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: \
         authorization\r\n"
    );
    let reply = ask(port, "OPTIONS", "/topics/prices/ticket", &preflight);
    assert_eq!(reply.status, 204);
    let origin = Some("https://shop.example");
    assert_eq!(reply.header("Access-Control-Allow-Origin"), origin);
    let reply = ask_for_ticket(port, "/topics/prices", &format!("{ORIGIN}{}", reader(600)));
    assert_eq!(reply.header("Access-Control-Allow-Origin"), origin);
    assert_eq!(ask_for_ticket(port, "/topics/prices", "").status, 401);
    assert_eq!(
        ask_for_ticket(port, "/topics/prices", "Authorization: Bearer a.b.c\r\n").status,
        401
    );
    // Who may not subscribe sees what is said of topics that do not exist.
    let hidden = ask_for_ticket(port, "/topics/prices", &bearer(600, ""));
    let none = ask_for_ticket(port, "/topics/none", &bearer(600, ""));
    assert_eq!((hidden.status, none.status), (404, 404));
    assert_eq!(hidden.text(), none.text());
    assert_eq!(
        ask(port, "GET", "/topics/prices/ticket", &reader(600)).status,
        405
    );
    drop(engine);
}

#[test]
fn a_back_end_sees_neither_ticket_nor_cookie_nor_token() {
    let (folder, port) = (TempDir::new(), free_port());
    let backend = StrictBackend::answering(|_| {
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nSet-Cookie: own=1\r\n\r\nok".to_vec()
    });
    let flow = format!(
        "flow: live\nfrom: {{ http: 'GET 127.0.0.1:{port}/live/{{id}}' }}\nauth: staff\ntickets: \
         true\nsteps: [ {{ forward: 'http://127.0.0.1:{}' }} ]\n",
        backend.port()
    );
    let engine = run(
        &folder,
        &[engine_document(", also_in: [query]"), flow].join("---\n"),
    );
    let given = ticket(port, "/live/7", &reader(600));
    let target = format!("/live/7?a=1&ticket={given}");
    assert_eq!(
        ask(port, "GET", &target.replace("live/7", "live/8"), "").status,
        401
    );
    // That has not used it up, nor does a look at the head alone.
    assert_eq!(ask(port, "HEAD", &target, "").status, 401);
    let reply = ask(
        port,
        "GET",
        &format!("/live/7?a=1&ticket={given}"),
        "Cookie: x=1\r\n",
    );
    assert_eq!(reply.status, 200);
    let cookies = reply.all("Set-Cookie");
    assert!(
        cookies.len() == 2 && cookies.contains(&"own=1"),
        "{cookies:?}"
    );
    let own = cookies
        .iter()
        .find(|it| it.starts_with("intertie-ticket="))
        .unwrap();
    let own = own.split(';').next().unwrap().to_owned();
    assert_eq!(reply.all("Cache-Control"), ["private"]);
    let again = format!("Cookie: x=1; {own}\r\n");
    let reply = ask(port, "GET", "/live/7?a=1", &again);
    assert_eq!(reply.status, 200);
    assert_eq!(reply.all("Cache-Control"), ["private"]);
    assert_eq!(ask(port, "GET", "/live/8", &again).status, 401);
    let secret = token(600, "");
    let query = format!("/live/7?a=1&access_token={secret}");
    let reply = ask(port, "GET", &query, "Cookie: x=1\r\n");
    assert_eq!(reply.status, 200);
    assert_eq!(reply.all("Cache-Control"), ["private"]);
    let seen = backend.requests();
    let targets: BTreeSet<_> = seen.iter().map(|it| it.target.as_str()).collect();
    assert_eq!(targets, BTreeSet::from(["/?a=1"]));
    assert_eq!(seen.len(), 3);
    for request in &seen {
        assert_eq!(request.header("Cookie"), Some("x=1"));
        assert_eq!(request.header("Authorization"), None);
    }
    let log = engine.stop();
    assert!(!log.contains(&given) && !log.contains(&secret), "{log}");
}

#[test]
fn no_flow_below_the_path_of_a_ticket_forwards_its_cookie() {
    let (folder, port) = (TempDir::new(), free_port());
    let backend =
        StrictBackend::answering(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec());
    let flow = |name: &str, path: &str, more: &str| {
        format!(
            "flow: {name}\nfrom: {{ http: {{ listen: '127.0.0.1:{port}', path: '{path}', protocols: \
             [h2, http/1.1] }} }}\n{more}steps: [ {{ forward: 'http://127.0.0.1:{}' }} ]\n",
            backend.port()
        )
    };
    let message = flow("message", "/live/7/message", "auth: none\n")
        .replace("[ { forward", "[ { set: { one: 1 } }, { forward");
    let copied = format!(
        "flow: copied\nfrom: {{ http: {{ listen: '127.0.0.1:{port}', path: /live/7/copied, protocols: [h2, \
         http/1.1] }} }}\nauth: none\nsteps: [ {{ map: '{{ cookie: $headers.cookie }}' }} ]\n"
    );
    let engine = run(
        &folder,
        &[
            engine_document(""),
            flow("live", "/live/7", "auth: staff\ntickets: true\n"),
            flow("open", "/live/7/open", "auth: none\n"),
            flow("locked", "/live/7/locked", "auth: staff\n"),
            message,
            copied,
        ]
        .join("---\n"),
    );
    let given = ticket(port, "/live/7", &reader(600));
    let reply = ask(port, "GET", &format!("/live/7?ticket={given}"), "");
    let own = reply.header("Set-Cookie").unwrap();
    let own = own.split(';').next().unwrap().to_owned();
    let authorized = format!("{}Cookie: x=1; {own}\r\n", reader(600));
    for path in ["open", "locked", "message"] {
        let path = format!("/live/7/{path}");
        assert_eq!(ask(port, "GET", &path, &authorized).status, 200, "{path}");
        let reply = super::access::ask_h2c(port, &path, &authorized);
        assert!(reply.starts_with("HTTP/2 200"), "{reply}");
        let alone = format!("{}Cookie: {own}\r\n", reader(600));
        assert_eq!(ask(port, "GET", &path, &alone).status, 200, "{path}");
    }
    let seen = backend.requests();
    let cookies: Vec<_> = seen.iter().map(|it| it.header("Cookie")).collect();
    let mut expected = vec![None];
    for _ in 0..3 {
        expected.extend([Some("x=1"), Some("x=1"), None]);
    }
    assert_eq!(cookies, expected);
    // Nor do its expressions see it.
    let reply = ask(port, "GET", "/live/7/copied", &authorized);
    assert_eq!(reply.text(), r#"{"cookie":"x=1"}"#);
    drop(engine);
}

#[test]
fn tickets_are_refused_where_they_have_no_effect() {
    let flow = |more: &str| {
        format!(
            "flow: live\nfrom: {{ http: 'GET 127.0.0.1:8099/live' }}\nauth: staff\ntickets: \
             true\nsteps: [ {{ reply: {{ status: 204 }} }} ]\n{more}"
        )
    };
    let pass = engine_document("").replace(" } }\n", " }, pass: true }\n");
    let behind = |auth: &str| {
        let listeners = format!("  listeners: {{ '127.0.0.1:8099': {{ auth: {auth} }} }}\n");
        engine_document("") + &listeners
    };
    let silent = flow("").replace("auth: staff\n", "");
    let signed = "engine:\n  auth:\n    staff: { hmac: { scheme: github, secret: 's3cret s3cret s3cret' } }\n";
    for (engine, document, expected) in [
        (engine_document(""), flow(""), None),
        (
            engine_document(""),
            flow("").replace("auth: staff\n", ""),
            Some("everybody may call"),
        ),
        (
            engine_document(""),
            flow("").replace("GET", "POST"),
            Some("open streams by GET"),
        ),
        (
            engine_document(""),
            flow("").replace("/live'", "/live/*'"),
            Some("end with `*`"),
        ),
        (
            engine_document(""),
            flow("").replace("true", "1"),
            Some("expected `true`"),
        ),
        (signed.to_owned(), flow(""), Some("a ticket can stand for")),
        (pass.clone(), flow(""), Some("passes its credential on")),
        // What the listener says holds as well.
        (behind("staff"), silent.clone(), None),
        (behind("none"), silent.clone(), Some("everybody may call")),
        (
            behind("staff"),
            flow("").replace("auth: staff", "auth: none"),
            Some("everybody may call"),
        ),
        (
            pass + "  listeners: { '127.0.0.1:8099': { auth: staff } }\n",
            silent,
            Some("passes its credential on"),
        ),
        (
            engine_document(""),
            topic(8099, "  tickets: true\n"),
            Some("`tickets`"),
        ),
        (
            engine_document("").replace("skew: 1s", "skew: 1s, also_in: [body]"),
            flow(""),
            Some("body"),
        ),
    ] {
        let folder = TempDir::new();
        let file = folder.write("flows.yaml", &[engine, document.clone()].join("---\n"));
        let out = output(&["check", file.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned()
            + &String::from_utf8_lossy(&out.stdout);
        assert_eq!(
            out.status.success(),
            expected.is_none(),
            "{document}\n{said}"
        );
        assert!(
            said.contains(expected.unwrap_or_default()),
            "{document}\n{said}"
        );
    }
}
