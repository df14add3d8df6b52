//! Subscribers of topics through the binary: server-sent events and WebSocket.

mod access;
mod expressions;
mod revocation;
mod tickets;
mod wires;

use std::time::Duration;

use testkit::{RawClient, TempDir, WebSocket, free_port, wait_until};

use crate::support::{Engine, get, post};

/// A stream of events in chunks (RFC 9112, section 7.1), read block by block.
struct Stream {
    client: RawClient,
    head: String,
    text: String,
    is_over: bool,
}

impl Stream {
    fn open(port: u16, target: &str, fields: &str) -> Self {
        let mut client = RawClient::connect(port);
        client.send(format!(
            "GET {target} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"
        ));
        let head = String::from_utf8(client.until(b"\r\n\r\n")).unwrap();
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        Self {
            client,
            head,
            text: String::new(),
            is_over: false,
        }
    }

    /// The next block that is not a heartbeat; none when the stream has ended properly.
    fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                if block != ":" {
                    return Some(block);
                }
                continue;
            }
            if self.is_over {
                assert_eq!(self.text, "");
                return None;
            }
            let size = String::from_utf8(self.client.until(b"\r\n")).unwrap();
            let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
            let chunk = self.client.exactly(size + 2);
            self.is_over = size == 0;
            self.text += std::str::from_utf8(&chunk[..size]).unwrap();
        }
    }

    /// The next event: sequence, name, data.
    fn event(&mut self) -> (u64, String, String) {
        let block = self.block().unwrap();
        let field = |name: &str| {
            let mut lines = block.lines().filter_map(|line| line.split_once(": "));
            let found = lines.find(|it| it.0 == name);
            found
                .unwrap_or_else(|| panic!("no {name} in {block:?}"))
                .1
                .to_owned()
        };
        let sequence = field("id").rsplit(['-', '#']).next().unwrap().parse();
        (sequence.unwrap(), field("event"), field("data"))
    }

    /// Where it begins: the place of a stream that begins without an event.
    fn place(&mut self) -> String {
        let block = self.block().unwrap();
        let id = block.lines().find_map(|line| line.strip_prefix("id: "));
        id.unwrap_or_else(|| panic!("{block:?}")).to_owned()
    }
}

fn topics(port: u16) -> String {
    format!(
        r#"
topic: orders
payload: event
durability: memory
keep: {{ events: 5 }}
publish: {{ http: "POST 127.0.0.1:{port}/topics/orders" }}
subscribe:
  listen: "127.0.0.1:{port}"
  heartbeat: 1s
  retry: 100ms
  connections: 3
  allow_expressions: true
  cors: {{ origins: ["https://shop.example"] }}
  websocket: {{ publish: true }}
---
topic: prices
durability: memory
publish: {{ http: "POST 127.0.0.1:{port}/topics/prices" }}
subscribe:
  listen: "127.0.0.1:{port}"
  compression: true
  allow_expressions: false
  profile: axway-streams
"#
    )
}

fn start(text: &str) -> (TempDir, Engine) {
    let folder = TempDir::new();
    folder.write("topics.yaml", text);
    let engine = Engine::run(&[folder.path()], &["--watch"]);
    (folder, engine)
}

fn publish(port: u16, topic: &str, body: &str) {
    let reply = post(port, &format!("/topics/{topic}"), "application/json", body);
    assert_eq!(reply.status, 200, "{}", reply.text());
}

#[test]
fn events_come_in_order_and_a_stream_goes_on_where_it_was() {
    let port = free_port();
    let (_folder, engine) = start(&topics(port));
    let mut stream = Stream::open(port, "/topics/orders/sse", "");
    for field in [
        "Content-Type: text/event-stream\r\n",
        "Cache-Control: no-store\r\n",
        "X-Accel-Buffering: no\r\n",
    ] {
        assert!(stream.head.contains(field), "{}", stream.head);
    }
    let first = stream.place();
    for number in 1..=3 {
        publish(port, "orders", &format!("{{\"n\": {number}}}"));
    }
    for number in 1..=3 {
        let expected = (number, "event".to_owned(), format!("{{\"n\":{number}}}"));
        assert_eq!(stream.event(), expected);
    }
    // It has seen nothing yet and misses nothing.
    let mut again = Stream::open(
        port,
        "/topics/orders/sse",
        &format!("Last-Event-ID: {first}\r\n"),
    );
    assert_eq!(again.event().0, 1);
    drop(again);
    let second = format!("{}2", first.strip_suffix('0').unwrap());
    let target = format!("/topics/orders/sse?lastEventId={second}");
    let mut again = Stream::open(port, &target, "");
    assert_eq!(again.event().0, 3);
    drop((stream, again));
    // What subscribers have in memory may reach further back than what is kept.
    wait_until("nobody is left", || {
        let metrics = engine.get("/metrics").text();
        metrics.contains("topic_subscribers{flow=\"\",step=\"orders\"} 0")
    });
    for number in 4..=9 {
        publish(port, "orders", &format!("{{\"n\": {number}}}"));
    }
    let mut late = Stream::open(port, &target, "");
    let (place, name, data) = late.event();
    assert_eq!((place, name.as_str()), (4, "reset"));
    assert!(
        data.starts_with("{\"reason\":\"gone\",\"requested\":"),
        "{data}"
    );
    assert_eq!(late.event().0, 5);
    engine.stop();
}

#[test]
fn snapshots_come_with_patches_filters_and_in_other_manners() {
    let port = free_port();
    let (_folder, engine) = start(&topics(port));
    let long = "x".repeat(80);
    publish(port, "prices", &format!("{{\"a\":1,\"b\":\"{long}\"}}"));
    let mut patches = Stream::open(port, "/topics/prices/sse", "");
    let mut wholes = Stream::open(port, "/topics/prices/sse?mode=snapshot", "");
    let vendor = "Accept: application/vnd.axway.streams+snapshot-patch\r\n";
    let path = "/streams/subscribers/sse/api/v1/topics/prices";
    let mut axway = Stream::open(port, path, vendor);
    let both = "/topics/sse?topic=prices&topic=orders";
    let mut several = Stream::open(port, both, "");
    let wanted = "/topics/orders/sse?filter=.n%20%3E%201&select=%7Bm:.n%7D";
    let mut some = Stream::open(port, wanted, "");
    some.place();
    for stream in [&mut patches, &mut wholes, &mut axway] {
        assert_eq!(stream.event().1, "snapshot");
    }
    assert!(
        several
            .event()
            .2
            .starts_with("{\"topic\":\"prices\",\"data\":{\"a\":1,")
    );
    let publisher = "/streams/publishers/http-post/api/v1/topics/prices";
    let body = format!("{{\"a\":2,\"b\":\"{long}\"}}");
    assert_eq!(post(port, publisher, "application/json", &body).status, 202);
    let patch = "[{\"op\":\"replace\",\"path\":\"/a\",\"value\":2}]";
    assert_eq!(patches.event(), (2, "patch".to_owned(), patch.to_owned()));
    assert_eq!(axway.event(), (2, "patch".to_owned(), patch.to_owned()));
    assert_eq!(wholes.event(), (2, "snapshot".to_owned(), body));
    let block = several.block().unwrap();
    assert!(
        block.contains("id: orders:") && block.contains(",prices:"),
        "{block}"
    );
    for number in 1..=2 {
        publish(port, "orders", &format!("{{\"n\": {number}}}"));
    }
    assert_eq!(
        some.event(),
        (2, "event".to_owned(), "{\"m\":2}".to_owned())
    );
    publish(port, "orders", "{\"n\": \"text\" }");
    publish(port, "orders", "[7]");
    assert_eq!(some.event().2, "{\"m\":\"text\"}");
    let (place, name, data) = some.event();
    assert_eq!((place, name.as_str()), (4, "error"));
    assert!(data.starts_with("{\"reason\":\"expression\""), "{data}");
    engine.stop();
}

#[test]
fn what_cannot_be_subscribed_to_is_refused() {
    let port = free_port();
    let (_folder, engine) = start(&topics(port));
    let status = |target: &str| get(port, target).status;
    assert_eq!(status("/topics/orders/sse?mode=patch"), 406);
    assert_eq!(status("/topics/orders/sse?mode=x"), 400);
    assert_eq!(status("/topics/orders/sse?filter=.a%20%7C"), 400);
    assert_eq!(status("/topics/orders/sse?filter=$x"), 400);
    assert_eq!(status("/topics/orders/sse?from=rubbish"), 400);
    assert_eq!(status("/topics/prices/sse?from=earliest"), 400);
    assert_eq!(status("/topics/prices/sse?select=.a"), 403);
    assert_eq!(status("/topics/sse"), 400);
    assert_eq!(status("/topics/sse?topic=nothing"), 404);
    assert_eq!(status("/topics/nothing/sse"), 404);
    assert_eq!(status("/topics/orders/ws"), 426);
    assert_eq!(
        post(port, "/topics/orders/sse", "text/plain", "").status,
        405
    );
    let missing = get(port, "/streams/subscribers/sse/api/v1/topics/nothing");
    assert_eq!(missing.status, 404);
    assert!(
        missing.text().contains("\"code\":40404"),
        "{}",
        missing.text()
    );
    assert!(missing.text().contains("\"subscriptionId\":\""));
    let publisher = "/streams/publishers/http-post/api/v1/topics";
    let refused = |id: &str| post(port, &format!("{publisher}/{id}"), "application/json", "1");
    let missing = refused("nothing");
    assert_eq!(missing.status, 404);
    assert!(
        !missing.text().contains("subscriptionId"),
        "{}",
        missing.text()
    );
    // An id that the topic had before its log was made anew: its end is the name.
    publish(port, "prices", "{}");
    let mut stream = Stream::open(port, "/streams/subscribers/sse/api/v1/topics/prices", "");
    let block = stream.block().unwrap();
    let id = block
        .strip_prefix("id: ")
        .unwrap()
        .split('#')
        .next()
        .unwrap()
        .to_owned();
    drop(stream);
    assert_eq!(refused(&id).status, 202);
    let gone = refused(&format!("00000000-0000-8000-{}", &id[19..]));
    assert_eq!(gone.status, 410, "{}", gone.text());
    assert!(gone.text().contains("\"code\":40404"), "{}", gone.text());
    assert_eq!(refused(&format!("{}-0123456789ab", &id[..23])).status, 404);
    let mut client = RawClient::connect(port);
    client.send("GET /topics/orders/sse HTTP/1.1\r\nHost: a\r\nAccept: text/html\r\n\r\n");
    assert_eq!(client.response().status, 406);
    client.send("HEAD /topics/orders/sse HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response_to("HEAD").status, 200);
    let origin = "Origin: https://shop.example\r\n";
    let streams: Vec<Stream> = (0..3)
        .map(|_| Stream::open(port, "/topics/orders/sse", origin))
        .collect();
    let allowed = "Access-Control-Allow-Origin: https://shop.example\r\n";
    assert!(streams[0].head.contains(allowed), "{}", streams[0].head);
    let full = get(port, "/topics/orders/sse");
    assert_eq!((full.status, full.header("Retry-After")), (503, Some("1")));
    drop(streams);
    wait_until("there is room again", || {
        let mut client = RawClient::connect(port);
        client.send("HEAD /topics/orders/sse HTTP/1.1\r\nHost: a\r\n\r\n");
        client.response_to("HEAD").status == 200
    });
    engine.stop();
}

#[test]
fn a_reload_ends_the_streams_of_what_has_changed_only() {
    let port = free_port();
    let (folder, engine) = start(&topics(port));
    let mut orders = Stream::open(port, "/topics/orders/sse", "");
    let mut prices = Stream::open(port, "/topics/prices/sse", "");
    orders.place();
    let place = prices.place();
    let changed = topics(port).replace("allow_expressions: false", "allow_expressions: true");
    folder.write("topics.yaml", &changed);
    let words = prices.block().unwrap();
    assert!(words.starts_with("retry: "), "{words}");
    assert_eq!(prices.block(), None);
    // What workers keep and nobody has any more is closed twice a second.
    std::thread::sleep(Duration::from_millis(1200));
    publish(port, "orders", "1");
    assert_eq!(orders.event().2, "1");
    publish(port, "prices", "{\"a\":1}");
    let mut prices = Stream::open(
        port,
        "/topics/prices/sse",
        &format!("Last-Event-ID: {place}\r\n"),
    );
    assert_eq!(prices.event().0, 1);
    engine.stop();
}

#[test]
fn a_stop_ends_streams_properly() {
    let port = free_port();
    let (_folder, engine) = start(&topics(port));
    let mut stream = Stream::open(port, "/topics/orders/sse", "");
    let (_, mut socket) = WebSocket::connect(port, "/topics/orders/ws", "");
    stream.place();
    assert!(socket.next_text().contains("\"type\":\"subscribed\""));
    publish(port, "orders", "1");
    assert_eq!(stream.event().0, 1);
    assert!(
        socket
            .next_text()
            .ends_with("\"type\":\"event\",\"topic\":\"orders\",\"data\":1}")
    );
    engine.process.signal("TERM");
    let words = stream.block().unwrap();
    let time: u64 = words.strip_prefix("retry: ").unwrap().parse().unwrap();
    assert!((50..=150).contains(&time), "{words}");
    assert_eq!(stream.block(), None);
    assert_eq!(socket.next_close(), 1001);
    engine.ended();
}

#[test]
fn a_websocket_subscribes_publishes_and_acknowledges() {
    let port = free_port();
    let (_folder, engine) = start(&topics(port));
    let (_, mut socket) = WebSocket::connect(port, "/topics/ws", "");
    let mut ask = |text: &str| {
        socket.text(text);
        socket.next_text()
    };
    assert_eq!(
        ask(r#"{"type":"ping","ref":7}"#),
        r#"{"type":"pong","ref":7}"#
    );
    assert!(ask("{}").contains("\"type\":\"error\""));
    assert!(ask(r#"{"type":"subscribe","topic":"nothing","ref":1}"#).contains("no such topic"));
    let subscribe = r#"{"type":"subscribe","topic":"orders","window":2}"#;
    let begun = ask(subscribe);
    assert!(
        begun.contains("\"type\":\"subscribed\",\"topic\":\"orders\""),
        "{begun}"
    );
    assert!(ask(subscribe).contains("subscribed to already"));
    let refused = ask(r#"{"type":"publish","topic":"prices","data":1}"#);
    assert!(refused.contains("not published to"), "{refused}");
    let (mut acks, mut events) = (Vec::new(), Vec::new());
    for number in 1..=5 {
        socket.text(&format!(
            "{{\"type\":\"publish\",\"topic\":\"orders\",\"data\":{{\"n\":{number}}},\"ref\":{number}}}"
        ));
    }
    while acks.len() < 5 || events.len() < 2 {
        let text = socket.next_text();
        match text.contains("\"type\":\"ack\"") {
            true => acks.push(text),
            false => events.push(text),
        }
    }
    assert!(acks[4].contains("\"new\":true"), "{acks:?}");
    assert!(events[1].ends_with("\"data\":{\"n\":2}}"), "{events:?}");
    // The window is full.
    socket.text(r#"{"type":"ping"}"#);
    assert_eq!(socket.next_text(), r#"{"type":"pong"}"#);
    let id = events[1].split('"').nth(3).unwrap().to_owned();
    socket.text(&format!(r#"{{"type":"ack","id":"{id}"}}"#));
    for number in 3..=4 {
        assert!(
            socket
                .next_text()
                .ends_with(&format!("\"data\":{{\"n\":{number}}}}}"))
        );
    }
    socket.text(r#"{"type":"unsubscribe"}"#);
    assert!(socket.next_text().contains("\"type\":\"unsubscribed\""));
    // It goes on where it was.
    socket.text(&format!(
        r#"{{"type":"subscribe","topic":"orders","lastEventId":"{id}"}}"#
    ));
    assert!(socket.next_text().contains("\"type\":\"subscribed\""));
    for number in 3..=5 {
        assert!(
            socket
                .next_text()
                .ends_with(&format!("\"data\":{{\"n\":{number}}}}}"))
        );
    }
    let evil = "Origin: https://evil.example\r\n";
    let (refused, _) = WebSocket::ask(port, "/topics/orders/ws", evil);
    assert_eq!(refused.status, 403);
    engine.stop();
}

/// Opens so many streams behind a few that cost more than others: stores of buffers, tables of the
/// runtime. What each of them costs the process then.
fn cost_of_each<T>(engine: &Engine, count: usize, open: impl Fn() -> T) -> u64 {
    let rest = Duration::from_millis(1500);
    let _first: Vec<T> = (0..count / 4).map(|_| open()).collect();
    // What serving them took is given back a second later.
    std::thread::sleep(rest);
    let before = engine.process.resident_kib();
    let _streams: Vec<T> = (0..count).map(|_| open()).collect();
    std::thread::sleep(rest);
    let after = engine.process.resident_kib();
    after.saturating_sub(before) * 1024 / count as u64
}

/// Tens of thousands of them are open at a time. 1,540 and 2,860 bytes were published of the
/// release build (`docs/results`); tests run in one that is not optimised.
#[test]
fn a_quiet_subscriber_costs_little_memory() {
    let port = free_port();
    let (_folder, engine) = start(&format!(
        "topic: quiet\ndurability: memory\npublish: {{ http: \"POST 127.0.0.1:{port}/topics/quiet\" }}\n\
         subscribe:\n  listen: \"127.0.0.1:{port}\"\n"
    ));
    let sse = cost_of_each(&engine, 2000, || {
        let mut stream = Stream::open(port, "/topics/quiet/sse", "");
        stream.place();
        stream
    });
    let websocket = cost_of_each(&engine, 2000, || {
        let (reply, mut socket) = WebSocket::connect(port, "/topics/quiet/ws", "");
        assert_eq!(reply.status, 101);
        assert!(socket.next_text().contains("\"subscribed\""));
        socket
    });
    eprintln!("{sse} bytes for each quiet SSE stream, {websocket} for each WebSocket");
    assert!(
        sse <= 1800 && websocket <= 3100,
        "{sse} and {websocket} bytes"
    );
    engine.stop();
}

#[test]
fn the_time_of_streams_is_over_on_every_way() {
    let port = free_port();
    let text = topics(port).replace("heartbeat: 1s", "heartbeat: 1s\n  max_time: 2s");
    let (_folder, engine) = start(&text);
    let mut stream = Stream::open(port, "/topics/orders/sse", "");
    stream.place();
    let (_, mut one) = WebSocket::connect(port, "/topics/orders/ws", "");
    assert!(one.next_text().contains("\"type\":\"subscribed\""));
    publish(port, "orders", "1");
    publish(port, "orders", "2");
    assert_eq!(stream.event().0, 1);
    // This one waits for an acknowledgement that never comes.
    let (_, mut waits) = WebSocket::connect(port, "/topics/ws", "");
    waits.text(r#"{"type":"subscribe","topic":"orders","from":"earliest","window":1}"#);
    assert!(waits.next_text().contains("\"type\":\"subscribed\""));
    waits.text(r#"{"type":"subscribe","topic":"prices"}"#);
    for (socket, events) in [(&mut one, 2), (&mut waits, 1)] {
        let mut seen = 0;
        loop {
            let (kind, payload) = socket.frame();
            if kind == testkit::websocket::CLOSE {
                assert_eq!(&payload[..2], 1001_u16.to_be_bytes());
                break;
            }
            let text = String::from_utf8(payload).unwrap();
            seen += usize::from(text.contains("\"type\":\"event\""));
        }
        assert_eq!(seen, events);
    }
    assert_eq!(stream.event().0, 2);
    assert!(stream.block().unwrap().starts_with("retry: "));
    assert_eq!(stream.block(), None);
    // A topic without such a time has streams as long as both like.
    let (_, mut prices) = WebSocket::connect(port, "/topics/prices/ws", "");
    assert!(prices.next_text().contains("\"type\":\"subscribed\""));
    assert!(prices.raw().stays_silent(Duration::from_millis(3500)));
    engine.stop();
}

#[test]
fn what_a_stream_of_several_topics_delivers_counts_for_each() {
    let port = free_port();
    let (_folder, engine) = start(&topics(port));
    let count = |name: &str, topic: &str| {
        let name = format!("intertie_topic_{name}_total");
        let value = engine.measured(&name, &[("step", topic)]);
        value.map_or(0, |it| it as usize)
    };
    let large = |number: u32| format!("{{\"{}\":{number}}}", "x".repeat(5000));
    publish(port, "prices", &large(0));
    publish(port, "orders", "0");
    let both = "/topics/sse?topic=prices&topic=orders";
    let mut streams = [0; 3].map(|_| Stream::open(port, both, ""));
    for stream in &mut streams {
        assert_eq!(stream.event().1, "snapshot");
    }
    for number in 1..=3 {
        publish(port, "orders", &number.to_string());
    }
    publish(port, "prices", &large(1));
    for stream in &mut streams {
        let names: Vec<String> = (0..4).map(|_| stream.event().1).collect();
        assert_eq!(names.iter().filter(|it| *it == "event").count(), 3);
        assert_eq!(
            names
                .iter()
                .filter(|it| *it == "patch" || *it == "snapshot")
                .count(),
            1
        );
    }
    wait_until("each has its own", || {
        count("deliveries", "orders") == 9 && count("deliveries", "prices") == 6
    });
    let (orders, prices) = (
        count("delivered_bytes", "orders"),
        count("delivered_bytes", "prices"),
    );
    // Each event of a few bytes comes with an id of two topics; each snapshot has 5 KB.
    assert!((9 * 50..9 * 300).contains(&orders), "{orders}");
    assert!((3 * 10_000..3 * 11_000).contains(&prices), "{prices}");
    engine.stop();
}

#[test]
fn an_error_in_the_manner_of_axway_names_a_subscription() {
    let port = free_port();
    let (_folder, engine) = start(&format!(
        "topic: numbers\npayload: event\ndurability: memory\n\
         publish: {{ http: \"POST 127.0.0.1:{port}/topics/numbers\" }}\n\
         subscribe: {{ listen: \"127.0.0.1:{port}\", profile: axway-streams,\n\
         \x20 allow_expressions: true }}\n"
    ));
    let path = "/streams/subscribers/sse/api/v1/topics/numbers?filter=.n%20%3E%201";
    let mut stream = Stream::open(port, path, "");
    stream.place();
    publish(port, "numbers", "[7]");
    publish(port, "numbers", "{\"n\":2}");
    publish(port, "numbers", "[8]");
    let mut ids = Vec::new();
    for expected in ["error", "event", "error"] {
        let (_, name, data) = stream.event();
        assert_eq!(name, expected);
        let id = data.split("\"subscriptionId\":\"").nth(1);
        ids.extend(id.map(|it| it.split('"').next().unwrap().to_owned()));
    }
    assert_eq!((ids.len(), ids[0].len()), (2, 36), "{ids:?}");
    assert_eq!(ids[0], ids[1]);
    engine.stop();
}
