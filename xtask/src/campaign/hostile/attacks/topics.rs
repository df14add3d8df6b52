//! Topics: subscribers who read slowly or not at all, who come and go, who ask for costly
//! expressions; floods of publications.

use std::io;
use std::thread;
use std::time::Duration;

use super::{Attack, attack};
use crate::campaign::hostile::attacker::{Attacker, Flood};
use crate::campaign::hostile::wire::websocket::{FIN, TEXT, frame, handshake};

pub const ATTACKS: &[Attack] = &[
    attack(
        "sse-not-read",
        "SSE",
        "300 readers of 50 kB events who do not read",
        1,
        8,
        not_read,
    ),
    attack(
        "sse-slow",
        "SSE",
        "readers of gzip events who do not read",
        1,
        8,
        not_read_packed,
    ),
    attack(
        "sse-storm",
        "SSE",
        "subscribers who come and go",
        4,
        3,
        storm,
    ),
    attack(
        "sse-filters",
        "SSE",
        "200 costly filters where they are allowed",
        1,
        8,
        filters,
    ),
    attack(
        "sse-selects",
        "SSE",
        "60 selections of 2 MB each",
        1,
        8,
        selects,
    ),
    attack(
        "sse-refused",
        "SSE",
        "expressions where they are not allowed",
        4,
        3,
        refused,
    ),
    attack("sse-odd", "SSE", "odd ids, positions and modes", 4, 3, odd),
    attack(
        "publish-flood",
        "topics",
        "publications of 1 B to 1 MB",
        4,
        3,
        publish,
    ),
    attack(
        "publish-batches",
        "topics",
        "batches of 10,001 events and less",
        4,
        3,
        batches,
    ),
    attack(
        "topic-ws-churn",
        "ws",
        "subscribe and unsubscribe without a pause",
        1,
        3,
        churn,
    ),
    attack(
        "topic-ws-publish",
        "ws",
        "publications by WebSocket",
        1,
        3,
        ws_publish,
    ),
    attack(
        "topic-ws-not-read",
        "ws",
        "100 subscribers who do not read",
        1,
        8,
        ws_not_read,
    ),
];

fn subscription(path: &str, more: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n{more}\r\n")
        .into_bytes()
}

/// An expression as it stands in a query.
fn escaped(expression: &str) -> String {
    expression.bytes().map(|it| format!("%{it:02x}")).collect()
}

/// Subscribers who send nothing more, and somebody who publishes an event each 100 ms.
fn publish_to(
    attacker: &mut Attacker,
    subscribers: Flood<'_>,
    topic: &str,
    size: usize,
) -> io::Result<()> {
    let seed = attacker.random.u64(..1 << 53);
    let mut publisher = Attacker::new(attacker.ports, seed, attacker.left().min(subscribers.time));
    let body = format!("{{\"n\":{seed},\"text\":\"{}\"}}", "x".repeat(size));
    let flooded = thread::scope(|scope| {
        scope.spawn(|| {
            while publisher.goes_on() {
                // The number makes it another state.
                let body = body.replace("\"n\":", &format!("\"n\":{}", publisher.sent));
                if publisher
                    .post_json(&format!("/topics/{topic}"), &body)
                    .is_err()
                {
                    publisher.cut += 1;
                }
                publisher.pause(Duration::from_millis(100));
            }
        });
        attacker.flood(subscribers, |_, _| Vec::new())
    });
    attacker.sent += publisher.sent;
    attacker.cut += publisher.cut;
    flooded
}

fn not_read(attacker: &mut Attacker) -> io::Result<()> {
    let topic = attacker.any(&["flooded", "state"]);
    let opening = subscription(&format!("/topics/{topic}/sse"), "");
    let flood = Flood::new(attacker.ports.http, 300, &opening).unread();
    publish_to(attacker, flood.slow(50).seconds(9), topic, 50_000)
}

fn not_read_packed(attacker: &mut Attacker) -> io::Result<()> {
    let opening = subscription("/topics/state/sse", "Accept-Encoding: gzip\r\n");
    let flood = Flood::new(attacker.ports.http, 200, &opening).unread();
    publish_to(attacker, flood.slow(50).seconds(9), "state", 50_000)
}

fn storm(attacker: &mut Attacker) -> io::Result<()> {
    let topic = attacker.any(&["flooded", "state", "steady"]);
    let query = attacker.any(&["", "?lastEventId=1-1", "?mode=snapshot"]);
    let request = subscription(&format!("/topics/{topic}/sse{query}"), "");
    attacker.try_once(attacker.ports.http, &request).map(drop)
}

fn filters(attacker: &mut Attacker) -> io::Result<()> {
    let filter = attacker.any(&[
        "[range(30000)] | length > 0",
        "reduce range(30000) as $i (0; . + $i) > 0",
        "[.n, (range(9000) | tostring)] | length > 0",
        "last(range(50000)) > 0",
        "def f: f; f",
        "[range(1000000)] | length > 0",
    ]);
    let filter = escaped(filter);
    let opening = subscription(&format!("/topics/filtered/sse?filter={filter}"), "");
    let count = attacker.random.u64(40..200);
    let flood = Flood::new(attacker.ports.http, count, &opening);
    publish_to(attacker, flood.slow(50).seconds(9), "filtered", 1)
}

fn selects(attacker: &mut Attacker) -> io::Result<()> {
    let number = attacker.random.u64(..1000);
    let select = escaped(&format!("\"x{number}\" * 500000"));
    let opening = subscription(&format!("/topics/filtered/sse?select={select}"), "");
    let flood = Flood::new(attacker.ports.http, 60, &opening).unread();
    publish_to(attacker, flood.slow(100).seconds(9), "filtered", 1)
}

fn refused(attacker: &mut Attacker) -> io::Result<()> {
    let long = format!("filter={}", "%28".repeat(5000));
    let query = attacker.any(&["filter=.n%3e1", "select=.", &long]);
    let request = subscription(&format!("/topics/steady/sse?{query}"), "");
    attacker.try_once(attacker.ports.http, &request).map(drop)
}

fn odd(attacker: &mut Attacker) -> io::Result<()> {
    let long = format!("lastEventId={}", "9".repeat(20_000));
    let query = attacker.any(&[
        "lastEventId=x",
        "lastEventId=%0d%0aevent:evil",
        "lastEventId=99999999999999999999-99999999999999999999",
        "lastEventId=-1",
        "from=earliest",
        "from=never",
        "mode=patch",
        "mode=",
        "topic=flooded&topic=steady&topic=none",
        &long,
    ]);
    let path = attacker.any(&["/topics/flooded/sse", "/topics/state/sse", "/topics/sse"]);
    let request = subscription(&format!("{path}?{query}"), "");
    attacker.try_once(attacker.ports.http, &request).map(drop)
}

fn publish(attacker: &mut Attacker) -> io::Result<()> {
    let topic = attacker.any(&["flooded", "state", "filtered"]);
    let size = [1, 1000, 100_000, 900_000, 2_000_000][attacker.random.usize(..5)];
    let number = attacker.random.u64(..1 << 53);
    let body = format!("{{\"n\":{number},\"text\":\"{}\"}}", "x".repeat(size));
    let key = format!("Idempotency-Key: {number}\r\n");
    let headers = format!("Content-Type: application/json\r\n{key}");
    attacker.post(&format!("/topics/{topic}"), &headers, body.as_bytes())
}

fn batches(attacker: &mut Attacker) -> io::Result<()> {
    let count = [100, 10_000, 10_001][attacker.random.usize(..3)];
    let number = attacker.random.u64(..1 << 53);
    let lines: String = (0..count)
        .map(|it| format!("{{\"n\":{number},\"it\":{it}}}\n"))
        .collect();
    let headers = "Content-Type: application/x-ndjson\r\n";
    attacker.post("/topics/flooded", headers, lines.as_bytes())
}

/// Messages to a topic's WebSocket, as fast as it takes them.
fn messages(attacker: &mut Attacker, path: &str, text: &str) -> io::Result<()> {
    let opening = handshake(path, "").into_bytes();
    let frames = frame(FIN | TEXT, text.as_bytes()).repeat(10);
    let count = attacker.random.u64(1..=8);
    let flood = Flood::new(attacker.ports.http, count, &opening);
    attacker.flood(flood, |_, _| frames.clone())
}

fn churn(attacker: &mut Attacker) -> io::Result<()> {
    let opening = handshake("/topics/ws", "").into_bytes();
    let subscribe = frame(FIN | TEXT, br#"{"type":"subscribe","topic":"flooded"}"#);
    let leave = frame(FIN | TEXT, br#"{"type":"unsubscribe","topic":"flooded"}"#);
    let both = [subscribe, leave].concat().repeat(20);
    let count = attacker.random.u64(1..=8);
    let flood = Flood::new(attacker.ports.http, count, &opening);
    attacker.flood(flood, |_, _| both.clone())
}

fn ws_publish(attacker: &mut Attacker) -> io::Result<()> {
    let size = [1, 1000, 50_000][attacker.random.usize(..3)];
    let data = "x".repeat(size);
    let text = match attacker.random.u8(..3) {
        0 => format!(r#"{{"type":"publish","topic":"flooded","data":"{data}"}}"#),
        1 => format!(r#"{{"type":"ping","ref":"{data}"}}"#),
        _ => format!(r#"{{"type":"{data}"}}"#),
    };
    messages(attacker, "/topics/flooded/ws", &text)
}

fn ws_not_read(attacker: &mut Attacker) -> io::Result<()> {
    let opening = handshake("/topics/flooded/ws", "").into_bytes();
    let flood = Flood::new(attacker.ports.http, 100, &opening).unread();
    publish_to(attacker, flood.slow(50).seconds(9), "flooded", 50_000)
}
