//! Flows that messages of WebSocket clients start.

use std::time::Duration;

use testkit::servers::{Verdict, kosoku};
use testkit::websocket::{BINARY, CLOSE, PING, PONG, TEXT};
use testkit::{RawClient, StrictBackend, TempDir, WebSocket, free_port, wait_until};

use crate::support::{Engine, get};

fn start(text: &str) -> (TempDir, Engine) {
    let folder = TempDir::new();
    folder.write("flows.yaml", text);
    let engine = Engine::run(&[folder.path()], &[]);
    (folder, engine)
}

#[test]
fn each_message_starts_the_flow() {
    let port = free_port();
    let (_folder, engine) = start(&format!(
        r#"
flow: talk
from:
  websocket: {{ listen: "127.0.0.1:{port}", path: "/rooms/{{room}}", subprotocols: [b, a] }}
steps:
  - choose:
      - when: type == "string" and . == "who"
        reply:
          body:
            room: "${{ $path.room }}"
            query: "${{ $query.q }}"
            user: "${{ $headers[\"x-user\"] }}"
            protocol: "${{ $headers[\"sec-websocket-protocol\"] }}"
            left: "${{ $headers | has(\"sec-websocket-key\") or has(\"upgrade\") }}"
      - when: type == "string" and . == "nothing"
        map: "null"
      - when: type == "string" and . == "fail"
        raise: {{ type: no-way, status: 409, detail: "not this" }}
      - when: type == "string" and startswith("up ")
        map: ascii_upcase
      - otherwise:
          - reply: {{ status: 200 }}
---
flow: sums
from:
  websocket: {{ listen: "127.0.0.1:{port}", path: /sums, decode: json, message_max: 100B }}
steps:
  - map: "{{ sum: add }}"
on_error:
  - {{ on: invalid, reply: {{ body: {{ error: "an array is needed" }} }} }}
"#
    ));
    let fields = "X-User: ann\r\nSec-WebSocket-Protocol: x, a, b\r\n";
    let (response, mut talk) = WebSocket::connect(port, "/rooms/7?q=1", fields);
    assert_eq!(response.header("Sec-WebSocket-Protocol"), Some("a"));
    talk.text("who");
    assert_eq!(
        talk.next_text(),
        r#"{"room":"7","query":"1","user":"ann","protocol":"a","left":false}"#
    );
    talk.text("nothing");
    talk.text("up and away");
    assert_eq!(talk.next_text(), "UP AND AWAY");
    talk.text("fail");
    let problem = talk.next_text();
    assert!(
        problem.contains("\"no-way\"") && problem.contains("409"),
        "{problem}"
    );
    talk.send(BINARY, b"\xff\xfe");
    assert_eq!(talk.frame(), (BINARY, b"\xff\xfe".to_vec()));
    talk.send(TEXT, b"");
    assert_eq!(talk.frame(), (TEXT, Vec::new()));
    talk.send(PING, b"there?");
    assert_eq!(talk.frame(), (PONG, b"there?".to_vec()));
    talk.send(CLOSE, &1000_u16.to_be_bytes());
    assert_eq!(talk.next_close(), 1000);
    assert!(talk.is_closed());

    let (_, mut sums) = WebSocket::connect(port, "/sums", "");
    sums.text("[1, 2, 3]");
    sums.send(BINARY, b"[1.5, 2]");
    assert_eq!(sums.next_text(), r#"{"sum":6}"#);
    assert_eq!(sums.next_text(), r#"{"sum":3.5}"#);
    sums.text("no JSON");
    assert_eq!(sums.next_text(), r#"{"error":"an array is needed"}"#);
    sums.text(&"1".repeat(101));
    assert_eq!(sums.next_close(), 1009);
    // What is too large is no message, a ping neither; one message has had no answer.
    let page = engine.get("/metrics").text();
    for (flow, up, down) in [("talk", 6, 5), ("sums", 3, 3)] {
        for (direction, count) in [("up", up), ("down", down)] {
            let line = format!(
                "intertie_stream_messages_total{{flow=\"{flow}\",direction=\"{direction}\"}} {count}\n"
            );
            assert!(page.contains(&line), "{line}{page}");
        }
    }
    engine.stop();
}

#[test]
fn what_is_no_handshake_is_refused() {
    let port = free_port();
    let (_folder, engine) = start(&format!(
        "flow: talk\nfrom:\n  websocket: {{ listen: \"127.0.0.1:{port}\", path: /talk, \
         origins: [\"https://app.example\"] }}\nsteps:\n  - reply: {{ status: 200 }}\n"
    ));
    let plain = get(port, "/talk");
    assert_eq!(plain.status, 426);
    assert_eq!(plain.header("Sec-WebSocket-Version"), Some("13"));
    assert_eq!(get(port, "/other").status, 404);
    let post = "POST /talk HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    let mut client = RawClient::connect(port);
    client.send(post);
    assert_eq!(client.response().status, 405);
    let (refused, _) = WebSocket::ask(port, "/talk", "Origin: https://evil.example\r\n");
    assert_eq!(refused.status, 403);
    let (extension, _) = WebSocket::ask(port, "/talk", "Sec-WebSocket-Extensions: ;\r\n");
    assert_eq!(extension.status, 400);
    // What is refused does not end the connection.
    let (_, mut client) = WebSocket::ask(port, "/talk", "Origin: https://evil.example\r\n");
    client.send("GET /other HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 404);
    for origin in ["", "Origin: https://app.example\r\n"] {
        let (_, mut talk) = WebSocket::connect(port, "/talk", origin);
        talk.text("hello");
        assert_eq!(talk.next_text(), "hello");
    }
    engine.stop();
}

#[test]
fn pages_of_other_sites_may_not_connect_unless_they_are_listed() {
    let port = free_port();
    let (_folder, engine) = start(&format!(
        r#"
engine: {{ listen: "127.0.0.1:{port}" }}
---
flow: own
from: {{ websocket: {{ path: /own }} }}
steps:
  - reply: {{ status: 200 }}
---
flow: all
from: {{ websocket: {{ path: /all, origins: ["*"] }} }}
steps:
  - reply: {{ status: 200 }}
"#
    ));
    let status = |path: &str, origin: &str| WebSocket::ask(port, path, origin).0.status;
    for (origin, own, all) in [
        ("", 101, 101),
        (&*format!("Origin: http://localhost:{port}\r\n"), 101, 101),
        ("Origin: https://evil.example\r\n", 403, 101),
        ("Origin: null\r\n", 403, 101),
        // A page cannot say for which host it asks, but who knows what stands in front of us?
        (
            "Origin: https://evil.example\r\nX-Forwarded-Host: evil.example\r\n",
            403,
            101,
        ),
    ] {
        assert_eq!(
            (status("/own", origin), status("/all", origin)),
            (own, all),
            "{origin}"
        );
    }
    engine.stop();
}

#[test]
fn frames_behind_the_request_are_not_lost() {
    let port = free_port();
    let (_folder, engine) = start(&format!(
        "flow: talk\nfrom:\n  websocket: {{ listen: \"127.0.0.1:{port}\", path: /talk }}\nsteps:\n  \
         - reply: {{ status: 200 }}\n"
    ));
    let mut client = RawClient::connect(port);
    client.send(
        b"GET /talk HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
          Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n\
          \x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58",
    );
    assert_eq!(client.response().status, 101);
    assert_eq!(client.exactly(7), b"\x81\x05Hello");
    engine.stop();
}

#[test]
fn a_stop_answers_what_is_under_way_and_says_so() {
    let (port, backend) = (free_port(), StrictBackend::start());
    let (_folder, mut engine) = start(&format!(
        "flow: ask\nfrom:\n  websocket: {{ listen: \"127.0.0.1:{port}\", path: /ask }}\nsteps:\n  \
         - delay: 1s\n  - http: GET http://127.0.0.1:{}/hello\n  - map: '\"done\"'\n",
        backend.port()
    ));
    let (_, mut busy) = WebSocket::connect(port, "/ask", "");
    let (_, mut idle) = WebSocket::connect(port, "/ask", "");
    busy.text("go");
    // It must be under way before the engine is told to stop.
    std::thread::sleep(Duration::from_millis(300));
    engine.process.signal("TERM");
    assert_eq!(idle.next_close(), 1001);
    idle.send(CLOSE, &1001_u16.to_be_bytes());
    assert!(idle.is_closed());
    assert_eq!(busy.next_text(), "done");
    assert_eq!(busy.next_close(), 1001);
    busy.send(CLOSE, &1001_u16.to_be_bytes());
    assert!(busy.is_closed());
    let status = engine.process.wait();
    assert_eq!(status.code(), Some(0), "{}", engine.process.output());
}

#[test]
fn clients_that_leave_take_their_messages_along_unless_the_flow_detaches() {
    let (port, backend) = (free_port(), StrictBackend::start());
    let flow = |name: &str, detach: bool| {
        format!(
            "flow: {name}\nfrom:\n  websocket: {{ listen: \"127.0.0.1:{port}\", path: /{name} }}\n\
             detach: {detach}\nsteps:\n  - delay: 500ms\n  \
             - http: GET http://127.0.0.1:{}/{name}\n",
            backend.port()
        )
    };
    let text = format!("{}---\n{}", flow("drops", false), flow("keeps", true));
    let (_folder, engine) = start(&text);
    for name in ["drops", "keeps"] {
        let (_, mut client) = WebSocket::connect(port, &format!("/{name}"), "");
        client.text("go");
        std::thread::sleep(Duration::from_millis(200));
    }
    wait_until("the detached one arrives", || backend.requests().len() == 1);
    std::thread::sleep(Duration::from_millis(500));
    let received = backend.requests();
    assert_eq!(received.len(), 1);
    engine.stop();
}

/// All but the many large messages of categories 12 and 13, which take minutes: `cargo xtask
/// interop autobahn` runs them all.
const QUICK: [&str; 26] = [
    "1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "9.*", "10.*", "12.1.1", "12.1.4", "12.2.3",
    "12.3.5", "12.4.11", "12.5.2", "13.1.2", "13.2.3", "13.3.1", "13.3.4", "13.4.2", "13.4.12",
    "13.5.3", "13.6.1", "13.6.13", "13.7.2", "13.7.5",
];

#[test]
fn autobahn_finds_no_failure() {
    let port = free_port();
    let (folder, engine) = start(&format!(
        "flow: echo\nfrom:\n  websocket:\n    listen: \"127.0.0.1:{port}\"\n    path: /echo\n    \
         message_max: 32MiB\n    compression: true\nsteps:\n  - reply: {{ status: 200 }}\n"
    ));
    let url = format!("ws://127.0.0.1:{port}/echo");
    let verdicts = kosoku(&url, &QUICK, folder.path());
    assert!(verdicts.len() >= 318, "{}", verdicts.len());
    let failures = verdicts.iter().filter(|it| it.is_failure());
    let failures: Vec<String> = failures.map(Verdict::to_string).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    engine.stop();
}
