//! Topics: published over HTTP and by flows, taken by flows, across restarts and reloads.

mod crash;
mod damage;
mod operator;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::{RawClient, Received, Response, StrictBackend, TempDir, free_port};

use crate::support::{Engine, command, get, post};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n";

/// A folder with flows and one with data.
struct Place {
    folder: TempDir,
    port: u16,
}

impl Place {
    /// Files in which `PORT` stands for the port that is listened on.
    fn new(text: &str) -> Self {
        let (folder, port) = (TempDir::new(), free_port());
        let place = Self { folder, port };
        place.write(text);
        place
    }

    fn write(&self, text: &str) {
        let text = text.replace("PORT", &format!("127.0.0.1:{}", self.port));
        self.folder.write("flows/flow.yaml", &text);
    }

    fn data(&self) -> String {
        self.folder.path().join("data").display().to_string()
    }

    fn run(&self, options: &[&str]) -> Engine {
        let flows = self.folder.path().join("flows");
        let data = self.data();
        Engine::run(&[&flows], &[options, &["--data", &data]].concat())
    }

    /// Publishes, and gives status and reply.
    fn publish(&self, path: &str, body: &str) -> (u16, Value) {
        let reply = post(self.port, path, "application/json", body);
        (reply.status, read(&reply))
    }

    /// The same with an idempotency key.
    fn publish_with_key(&self, key: &str, body: &str) -> (u16, Value) {
        let mut client = RawClient::connect(self.port);
        client.send(format!(
            "POST /events HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n\
             Idempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        let reply = client.response();
        (reply.status, read(&reply))
    }

    /// Why the engine does not start.
    fn refused(&self) -> String {
        let mut command = command();
        command.arg("run").arg(self.folder.path().join("flows"));
        command.args(["--workers", "1", "--data", &self.data()]);
        let output = command.output().unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

fn read(reply: &Response) -> Value {
    serde_json::from_str(&reply.text()).unwrap_or(Value::Null)
}

/// What a flow sends on, and whether it is taken.
struct Sink {
    backend: StrictBackend,
    taken: Arc<Mutex<Vec<Received>>>,
}

impl Sink {
    /// Refuses the first tries of a body that `refuses` says.
    fn start(refuses: impl Fn(&str, usize) -> bool + Send + Sync + 'static) -> Self {
        let taken: Arc<Mutex<Vec<Received>>> = Arc::default();
        let log = Arc::clone(&taken);
        let tries: Mutex<Vec<String>> = Mutex::default();
        let backend = StrictBackend::answering(move |received| {
            let body = String::from_utf8(received.body.clone()).unwrap();
            let mut tries = tries.lock().unwrap();
            tries.push(body.clone());
            if refuses(&body, tries.iter().filter(|it| **it == body).count()) {
                return BUSY.to_vec();
            }
            log.lock().unwrap().push(received.clone());
            OK.to_vec()
        });
        Self { backend, taken }
    }

    fn bodies(&self) -> Vec<String> {
        let taken = self.taken.lock().unwrap();
        let text = |it: &Received| String::from_utf8(it.body.clone()).unwrap();
        taken.iter().map(text).collect()
    }

    fn header(&self, at: usize, name: &str) -> String {
        let taken = self.taken.lock().unwrap();
        taken[at].header(name).unwrap_or_default().to_owned()
    }

    fn wait(&self, count: usize) -> Vec<String> {
        wait_long("all is there", || self.bodies().len() >= count);
        self.bodies()
    }
}

fn wait_long(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        let time = start.elapsed();
        assert!(
            time < Duration::from_secs(60),
            "waited in vain until {what}"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

fn measure(engine: &Engine, name: &str, topic: &str) -> f64 {
    let value = engine.measured(&format!("intertie_topic_{name}"), &[("step", topic)]);
    value.unwrap_or(-1.0)
}

const EVENTS: &str = "topic: events\npayload: event\nbody_max: 1KiB\n\
    publish: { http: \"POST PORT/events\" }\n";
const PRICES: &str = "topic: prices\npublish: { http: \"POST,PUT PORT/prices\" }\n";

/// A flow that sends events on with what is known of them.
fn taker(topic: &str, sink: &Sink) -> String {
    let port = sink.backend.port();
    format!(
        "---\nflow: taker\nfrom: {{ topic: {topic} }}\nsteps:\n  - http:\n      \
         to: http://127.0.0.1:{port}/sink\n      method: POST\n      headers: \
         {{ X-Id: \"${{ $path.event_id }}\", X-Kind: \"${{ $path.event_kind }}\", \
         X-Missed: \"${{ $path.event_missed }}\" }}\n"
    )
}

#[test]
fn events_are_published_by_http_one_or_many_at_once() {
    let place = Place::new(&format!("{EVENTS}---\n{PRICES}"));
    let engine = place.run(&[]);
    let reply = post(place.port, "/events", "application/json", " {\"a\": 1} ");
    assert_eq!(reply.status, 200, "{}", reply.text());
    let receipt = read(&reply);
    let id = receipt["id"].as_str().unwrap();
    assert_eq!(reply.header("Event-Id"), Some(id));
    assert_eq!(
        receipt,
        json!({ "id": id, "new": true, "durability": "disk" })
    );
    let epoch = id.strip_suffix("-1").unwrap();
    let numbered = |number: u64, is_new: bool| {
        let id = format!("{epoch}-{number}");
        json!({ "id": id, "new": is_new, "durability": "disk" })
    };
    // A list is one event, unless the request says otherwise.
    assert_eq!(place.publish("/events", "[1,2]"), (200, numbered(2, true)));
    let both = json!([numbered(3, true), numbered(4, true)]);
    assert_eq!(
        place.publish("/events?batch=true", "[1,{\"b\":2}]"),
        (200, both)
    );
    let reply = post(
        place.port,
        "/events",
        "application/x-ndjson",
        "1\r\n\n\"two\"\n",
    );
    assert_eq!(read(&reply), json!([numbered(5, true), numbered(6, true)]));
    let keyed = |key: &str, body: &str| {
        let mut client = RawClient::connect(place.port);
        client.send(format!(
            "POST /events HTTP/1.1\r\nHost: t\r\nContent-Type: application/x-ndjson\r\n\
             Idempotency-Key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        read(&client.response())
    };
    assert_eq!(
        keyed("\"k\"", "1\n2"),
        json!([numbered(7, true), numbered(8, true)])
    );
    let again = json!([numbered(7, false), numbered(8, false), numbered(9, true)]);
    assert_eq!(keyed("k", "1\n2\n3"), again);
    let problem = keyed("k", "1\n2\n4\n5");
    assert_eq!(problem["status"], 422, "{problem}");
    let detail = "event 3: the idempotency key has come before with another event";
    assert_eq!(problem["detail"], detail);
    // What is the same as before is no event of a topic of snapshots.
    let (_, first) = place.publish("/prices", "{\"a\":1,\"b\":[]}");
    let (_, second) = place.publish("/prices", "{ \"b\": [], \"a\": 1 }");
    assert_eq!(
        (&first["new"], &second["new"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(first["id"], second["id"]);
    assert_eq!(measure(&engine, "published_total", "events"), 9.0);
    assert_eq!(measure(&engine, "repeated_total", "events"), 2.0);
    assert_eq!(measure(&engine, "key_conflicts_total", "events"), 1.0);
    assert_eq!(measure(&engine, "unchanged_total", "prices"), 1.0);
    assert_eq!(measure(&engine, "sequence", "events"), 9.0);
    engine.stop();
}

#[test]
fn what_is_no_event_is_refused_and_says_why() {
    let place = Place::new(EVENTS);
    let engine = place.run(&[]);
    let json = "application/json";
    let long = format!("\"{}\"", "x".repeat(1023));
    let lines = "application/x-ndjson";
    for (path, media_type, body, status, detail) in [
        (
            "/events",
            json,
            "{\"a\":\n}",
            400,
            "a value was expected at line 2, column 1",
        ),
        (
            "/events",
            json,
            "",
            400,
            "the text ends where a value was expected",
        ),
        ("/events", json, "NaN", 400, "a value was expected"),
        (
            "/events",
            json,
            "{\"a\":1,\"a\":2}",
            400,
            "two members of one name",
        ),
        (
            "/events",
            json,
            &long,
            413,
            "an event of this topic has at most 1KiB",
        ),
        (
            "/events",
            "text/plain",
            "1",
            415,
            "an event is `application/json`",
        ),
        (
            "/events",
            "application/x-www-form-urlencoded",
            "a=1",
            415,
            "`application/json`",
        ),
        (
            "/events?batch=true",
            json,
            "{}",
            400,
            "a batch is a list of events",
        ),
        (
            "/events?batch=true",
            json,
            "[]",
            400,
            "the batch has no event",
        ),
        (
            "/events?batch=yes",
            json,
            "[1]",
            400,
            "`batch` is `true` or `false`",
        ),
        (
            "/events",
            lines,
            "1\n{\n",
            400,
            "event 2: the event is not JSON",
        ),
    ] {
        let reply = post(place.port, path, media_type, body);
        let text = reply.text();
        assert_eq!(reply.status, status, "{body}: {text}");
        assert!(text.contains(detail), "{body}: {text}");
    }
    let mut client = RawClient::connect(place.port);
    client.send(
        "POST /events HTTP/1.1\r\nHost: t\r\nContent-Type: application/json\r\n\
         Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\n1",
    );
    assert_eq!(client.response().status, 415);
    assert_eq!(get(place.port, "/events").status, 405);
    assert_eq!(measure(&engine, "sequence", "events"), 0.0);
    engine.stop();
}

#[test]
fn flows_publish_and_take_events_across_restarts() {
    let sink = Sink::start(|body, tries| body == "{\"n\":2}" && tries == 1);
    let flow = "---\nflow: put\nfrom: { http: \"POST PORT/put\" }\nsteps:\n  \
        - publish: { topic: events, body: { n: \"${ .n }\" }, key: \"${ .n }\" }\n  \
        - reply: { body: { id: \"${ $published.id }\", new: \"${ $published.new }\", n: \"${ .n }\" } }\n";
    let source = "{ name: events, start: earliest, retry: { delay: 20ms } }";
    let place = Place::new(&format!("{EVENTS}{flow}{}", taker(source, &sink)));
    let engine = place.run(&[]);
    let (status, first) = place.publish("/put", "{\"n\":1}");
    assert_eq!(
        (status, &first["new"], &first["n"]),
        (200, &json!(true), &json!(1))
    );
    place.publish("/put", "{\"n\":2}");
    place.publish("/put", "{\"n\":3}");
    assert_eq!(sink.wait(3), ["{\"n\":1}", "{\"n\":2}", "{\"n\":3}"]);
    assert_eq!(sink.header(0, "X-Id"), first["id"].as_str().unwrap());
    assert_eq!(sink.header(0, "X-Kind"), "event");
    engine.stop();
    // The flow goes on where it was, and a key is known as before.
    let engine = place.run(&[]);
    let (_, again) = place.publish("/put", "{\"n\":1}");
    assert_eq!((&again["id"], &again["new"]), (&first["id"], &json!(false)));
    place.publish("/put", "{\"n\":4}");
    assert_eq!(sink.wait(4).len(), 4);
    assert_eq!(sink.bodies()[3], "{\"n\":4}");
    assert!(sink.header(3, "X-Id").ends_with("-4"));
    engine.stop();
}

#[test]
fn a_flow_gets_snapshots_or_what_has_changed_and_is_told_of_gaps() {
    let sink = Sink::start(|_, _| false);
    let pad = "x".repeat(300);
    let body = |value: u32| format!("{{\"pad\":\"{pad}\",\"v\":{value}}}");
    let prices = PRICES.replace(
        "prices\n",
        "prices\nkeep: { events: 3 }\nsnapshot_every: 1\n",
    );
    let source = "{ name: prices, mode: patch, start: earliest }";
    let place = Place::new(&format!("{prices}{}", taker(source, &sink)));
    let engine = place.run(&[]);
    for value in 1..=2 {
        place.publish("/prices", &body(value));
    }
    let patch = |value: u32| format!("[{{\"op\":\"replace\",\"path\":\"/v\",\"value\":{value}}}]");
    assert_eq!(sink.wait(2), [body(1), patch(2)]);
    assert_eq!(
        (sink.header(0, "X-Kind"), sink.header(1, "X-Kind")),
        ("snapshot".into(), "patch".into())
    );
    engine.stop();
    // Without the flow more is published than is kept.
    place.write(&prices);
    let engine = place.run(&[]);
    for value in 3..=40 {
        assert_eq!(place.publish("/prices", &body(value)).0, 200);
    }
    engine.stop();
    place.write(&format!("{prices}{}", taker(source, &sink)));
    let engine = place.run(&[]);
    wait_long("the flow is there", || {
        sink.bodies()
            .last()
            .is_some_and(|last| *last == body(40) || *last == patch(40))
    });
    assert_eq!(sink.header(2, "X-Kind"), "snapshot");
    let missed: u32 = sink.header(2, "X-Missed").parse().unwrap();
    assert!(missed > 25, "{missed}");
    assert_eq!(sink.bodies()[2], body(3 + missed));
    engine.stop();
}

#[test]
fn settings_change_with_a_reload_and_events_stay() {
    let place = Place::new(EVENTS);
    let engine = place.run(&["--watch"]);
    let long = format!("\"{}\"", "x".repeat(2000));
    assert_eq!(place.publish("/events", &long).0, 413);
    place.publish("/events", "1");
    place.write(&format!("{}---\n{PRICES}", EVENTS.replace("1KiB", "4KiB")));
    wait_long("the new limit holds", || {
        place.publish("/events", &long).0 == 200
    });
    let id = place.publish("/events", "3").1["id"].clone();
    assert!(id.as_str().unwrap().ends_with("-3"), "{id}");
    assert_eq!(place.publish("/prices", "{}").0, 200);
    engine.stop();
    // What is kept is of another kind.
    place.write(&EVENTS.replace("payload: event", "payload: snapshot"));
    let text = place.refused();
    assert!(
        text.contains("topic events") && text.contains("payload: event"),
        "{text}"
    );
    place.write(&format!("{EVENTS}durability: memory\n"));
    let text = place.refused();
    assert!(text.contains("its events are on the disk"), "{text}");
    assert!(Path::new(&place.data()).join("topics").exists());
}

#[test]
fn topics_in_memory_need_no_folder() {
    let place = Place::new(&format!("{EVENTS}durability: memory\n"));
    let engine = place.run(&[]);
    let (status, receipt) = place.publish("/events", "1");
    assert_eq!((status, &receipt["durability"]), (200, &json!("memory")));
    assert!(!Path::new(&place.data()).exists());
    engine.stop();
    let engine = place.run(&[]);
    let (_, other) = place.publish("/events", "1");
    assert_ne!(receipt["id"], other["id"], "it is another topic");
    engine.stop();
}

#[test]
fn what_is_no_topic_is_refused_with_its_place() {
    let cases = [
        ("topic: a\nkeep: { events: 0 }\n", "IT0640"),
        ("topic: a\nkeep: { bytes: 1KiB }\n", "IT0640"),
        ("topic: a\nkeep: { time: 1ms }\n", "IT0640"),
        ("topic: a\nbody_max: 17MiB\n", "IT0640"),
        ("topic: a\nsnapshot_every: 0\n", "IT0640"),
        ("topic: a\nkeep: { count: 3 }\n", "IT0111"),
        ("topic: a\npayload: events\n", "IT0114"),
        ("topic: a\nsize: 3\n", "IT0111"),
        ("topic: a b\n", "IT0203"),
        ("topic: a\n---\ntopic: a\n", "IT0202"),
        ("topic: a\npublish: { http: \"GET :1/a\" }\n", "IT0641"),
        ("topic: a\npublish: { http: \"any :1/a\" }\n", "IT0641"),
        (
            "topic: a\npublish: { http: { method: POST, path: /a, decode: json } }\n",
            "IT0641",
        ),
        (
            "topic: a\npublish: { http: { method: POST, path: /a, body_max: 1KiB } }\n",
            "IT0641",
        ),
        // A message over WebSocket has no signature, however the handshake was signed.
        (
            "engine: { auth: { hooks: { hmac: { scheme: github, secret: 0123456789abcdef } } } }\n---\n\
             topic: a\npublish: { auth: hooks, http: \"POST :1/a\" }\n\
             subscribe: { listen: \":2\", allow_expressions: false, websocket: { publish: true } }\n",
            "what clients have signed is judged by `publish.http` only",
        ),
        ("topic: a\npublish: { kafka: b }\n", "IT0111"),
        (
            "topic: a\nsubscribe: { listen: \":1\", origins: [\"https://b.example\"] }\n",
            "`origins` has become `cors`",
        ),
        (
            "topic: a\npublish: { cors: \"*\" }\n",
            "`cors` has no effect: nobody publishes by HTTP",
        ),
        (
            "topic: a\nsubscribe: { cors: { origins: [\"b.example\"] } }\n",
            "IT0237",
        ),
        (
            "flow: f\nfrom: { topic: b }\nsteps: [ { log: x } ]\n---\ntopic: a\n",
            "IT0642",
        ),
        (
            "flow: f\nfrom: { http: \"POST :1/a\" }\nsteps: [ { publish: { topic: b } } ]\n\
             ---\ntopic: a\n",
            "IT0642",
        ),
        (
            "flow: f\nfrom: { http: \"POST :1/a\" }\nsteps: [ { publish: { key: b } } ]\n",
            "IT0220",
        ),
        (
            "flow: f\nfrom: { topic: { name: a, retry: { backoff: 11 } } }\n\
             steps: [ { log: x } ]\n---\ntopic: a\n",
            "IT0115",
        ),
        (
            "flow: f\nfrom: { topic: { name: a, cursor: \"a b\" } }\n\
             steps: [ { log: x } ]\n---\ntopic: a\n",
            "IT0643",
        ),
    ];
    for (text, expected) in cases {
        let folder = TempDir::new();
        let file = folder.write("flow.yaml", text);
        let output = command().arg("check").arg(&file).output().unwrap();
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        assert!(!output.status.success(), "{text}");
        let codes = told.matches("IT0").count();
        assert!(told.contains(expected), "{text}: {told}");
        assert!(codes <= 2, "{text}: {told}");
    }
}

#[test]
fn a_key_belongs_to_its_event_also_after_a_restart() {
    let place = Place::new(EVENTS);
    // As versions before this one have written it: nobody knows what the key's event was.
    damage::write(&place, "events", &[(0, "old", "1".to_owned())]);
    let engine = place.run(&[]);
    let (status, first) = place.publish_with_key("\"new\"", "{\"a\": 1}");
    assert_eq!((status, &first["new"]), (200, &json!(true)));
    engine.stop();
    let engine = place.run(&[]);
    for (key, body, expected) in [
        ("\"new\"", "{\"a\":1}", 200),
        ("\"new\"", "{\"a\":2}", 422),
        ("old", "1", 200),
        ("old", "2", 200),
    ] {
        let (status, reply) = place.publish_with_key(key, body);
        assert_eq!(status, expected, "{key} {body}: {reply}");
        let is_refused = status == 422;
        assert_eq!(
            reply["new"],
            if is_refused {
                Value::Null
            } else {
                json!(false)
            }
        );
    }
    assert_eq!(measure(&engine, "sequence", "events"), 2.0);
    engine.stop();
}
