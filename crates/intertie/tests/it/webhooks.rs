//! Webhooks of topics: what endpoints get, in which order and how often, over failures, restarts,
//! kills and reloads.

mod crash;
mod credentials;
mod forms;
mod held;
mod manage;
mod operator;
mod receivers;
mod replay;
mod reports;

use std::collections::HashMap;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use aws_lc_rs::digest::{SHA256, digest};
use base64ct::{Base64, Encoding as _};
use serde_json::{Value, json};
use testkit::{Received, StrictBackend, TempDir, free_port};

use crate::support::{Engine, post};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
/// Retries that tests do not wait for.
const QUICK: &str = "retry: { delay: 50ms, backoff: 1, delay_max: 100ms, times: 2 }";

/// What a receiver answers: a status and header lines.
type Answer = (u16, String);

/// A receiver whose answers a test decides.
struct Sink {
    backend: StrictBackend,
    /// What has come, in the order in which it was answered, and with what.
    taken: Arc<Mutex<Vec<(Received, u16)>>>,
}

impl Sink {
    /// The function gets the number of the request, from 0, and the request.
    fn answering(answer: impl Fn(usize, &Received) -> Answer + Send + Sync + 'static) -> Self {
        let taken: Arc<Mutex<Vec<(Received, u16)>>> = Arc::default();
        let log = Arc::clone(&taken);
        let count = Mutex::new(0);
        let backend = StrictBackend::answering(move |received| {
            let number = {
                let mut count = count.lock().unwrap();
                *count += 1;
                *count - 1
            };
            let (status, lines) = answer(number, received);
            log.lock().unwrap().push((received.clone(), status));
            format!("HTTP/1.1 {status} X\r\nContent-Length: 2\r\n{lines}\r\nok").into_bytes()
        });
        Self { backend, taken }
    }

    /// One that takes everything.
    fn good() -> Self {
        Self::answering(|_, _| (200, String::new()))
    }

    /// One that answers 503 until it is let.
    fn closed() -> (Self, Arc<AtomicBool>) {
        let is_open = Arc::new(AtomicBool::new(false));
        let opened = Arc::clone(&is_open);
        let sink = Self::answering(move |_, _| match opened.load(Ordering::Relaxed) {
            true => (200, String::new()),
            false => (503, String::new()),
        });
        (sink, is_open)
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.backend.port())
    }

    fn all(&self) -> Vec<(Received, u16)> {
        self.taken.lock().unwrap().clone()
    }

    /// What has been answered with 200.
    fn accepted(&self) -> Vec<Received> {
        let all = self.all().into_iter().filter(|it| it.1 == 200);
        all.map(|it| it.0).collect()
    }

    /// The bodies of those.
    fn bodies(&self) -> Vec<String> {
        self.accepted().iter().map(text).collect()
    }

    fn wait_for(&self, count: usize) -> Vec<Received> {
        wait_long(&format!("{count} requests are accepted"), || {
            self.accepted().len() >= count
        });
        self.accepted()
    }
}

fn text(received: &Received) -> String {
    String::from_utf8(received.body.clone()).unwrap()
}

fn id(received: &Received) -> String {
    received.header("webhook-id").unwrap().to_owned()
}

/// Waits for longer than most things take.
fn wait_long(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        let patience = Duration::from_secs(40);
        assert!(start.elapsed() < patience, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Files with a topic `orders` that has webhooks, and a folder with data.
struct Place {
    folder: TempDir,
    port: u16,
}

impl Place {
    /// A topic of events with these endpoints.
    fn new(endpoints: &str) -> Self {
        Self::with("payload: event", endpoints)
    }

    /// A topic with further settings.
    fn with(settings: &str, endpoints: &str) -> Self {
        let (folder, port) = (TempDir::new(), free_port());
        let place = Self { folder, port };
        place.write(settings, endpoints);
        place
    }

    fn write(&self, settings: &str, endpoints: &str) {
        let port = self.port;
        let text = format!(
            "engine: {{ admin: {{ operate: none }} }}\n---\n\
             topic: orders\n{settings}\npublish: {{ http: \"POST 127.0.0.1:{port}/orders\" }}\n\
             subscribe:\n  listen: 127.0.0.1:{port}\n  via: []\n  webhooks:\n    endpoints:\n\
             {endpoints}"
        );
        self.folder.write("flows/topic.yaml", &text);
    }

    fn run(&self) -> Engine {
        let flows = self.folder.path().join("flows");
        let data = self.folder.path().join("data").display().to_string();
        Engine::run(&[&flows], &["--data", &data])
    }

    /// Publishes; the event's id.
    fn publish(&self, body: &str) -> String {
        let reply = post(self.port, "/orders", "application/json", body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        let receipt: Value = serde_json::from_str(&reply.text()).unwrap();
        receipt["id"].as_str().unwrap().to_owned()
    }

    fn publish_all(&self, numbers: std::ops::Range<u64>) -> Vec<String> {
        numbers.map(|it| self.publish(&it.to_string())).collect()
    }
}

/// A line of YAML with an endpoint.
fn endpoint(name: &str, url: &str, more: &str) -> String {
    let more = match more {
        "" => String::new(),
        more => format!(", {more}"),
    };
    format!("      {name}: {{ url: \"{url}\", secret: \"{SECRET}\"{more} }}\n")
}

fn kill(mut engine: Engine) {
    engine.process.signal("KILL");
    engine.process.wait();
}

fn reload(engine: &Engine) {
    let reply = post(engine.admin, "/reload", "text/plain", "");
    assert_eq!(reply.status, 200, "{}", reply.text());
}

/// The value of a measure of an endpoint.
fn measure(engine: &Engine, name: &str, endpoint: &str) -> f64 {
    let line = format!("intertie_webhook_{name}{{flow=\"orders\",step=\"{endpoint}\"}} ");
    let page = engine.get("/metrics").text();
    let value = page.lines().find_map(|it| it.strip_prefix(&line));
    let value = value.unwrap_or_else(|| panic!("{line} is missing: {page}"));
    value.parse().unwrap()
}

/// HMAC-SHA256 as RFC 2104 writes it down, on nothing but the hash.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let padded = |with: u8| block.iter().map(move |byte| byte ^ with);
    let inner: Vec<u8> = padded(0x36).chain(message.iter().copied()).collect();
    let inner = digest(&SHA256, &inner);
    let outer: Vec<u8> = padded(0x5c).chain(inner.as_ref().iter().copied()).collect();
    digest(&SHA256, &outer).as_ref().to_vec()
}

/// The signature that Standard Webhooks 1.0.0 wants to see.
fn signature(secret: &str, received: &Received) -> String {
    let key = Base64::decode_vec(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let timestamp = received.header("webhook-timestamp").unwrap();
    let mut signed = format!("{}.{timestamp}.", id(received)).into_bytes();
    signed.extend_from_slice(&received.body);
    format!("v1,{}", Base64::encode_string(&hmac(&key, &signed)))
}

#[test]
fn events_come_signed_and_in_order_with_the_ids_that_publishers_got() {
    let sink = Sink::good();
    let place = Place::new(&endpoint("shop", &sink.url(), "headers: { X-Own: yes }"));
    let engine = place.run();
    let ids: Vec<String> = (0..30)
        .map(|number| place.publish(&format!("{{\"number\": {number}}}")))
        .collect();
    let taken = sink.wait_for(30);
    assert_eq!(taken.iter().map(id).collect::<Vec<_>>(), ids);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    for (number, received) in taken.iter().enumerate() {
        assert_eq!(text(received), format!("{{\"number\":{number}}}"));
        assert_eq!((&*received.method, &*received.target), ("POST", "/hook"));
        for (name, value) in [
            ("content-type", "application/json"),
            ("x-intertie-topic", "orders"),
            ("x-intertie-kind", "event"),
            ("x-intertie-mode", "event"),
            ("x-own", "yes"),
            ("webhook-signature", &signature(SECRET, received)),
        ] {
            assert_eq!(received.header(name), Some(value), "{name}");
        }
        let timestamp: u64 = received
            .header("webhook-timestamp")
            .unwrap()
            .parse()
            .unwrap();
        assert!(now.as_secs().abs_diff(timestamp) < 60);
    }
    wait_long("it is counted", || {
        measure(&engine, "delivered_total", "shop") == 30.0
    });
    for name in [
        "failed_total",
        "refused_total",
        "lag_events",
        "lag_seconds",
        "state",
    ] {
        assert_eq!(measure(&engine, name, "shop"), 0.0, "{name}");
    }
    engine.stop();
    assert_eq!(sink.backend.violations(), [""; 0]);
}

#[test]
fn an_endpoint_that_is_down_gets_everything_later_and_loses_no_event() {
    let sink = Sink::answering(|number, _| match number {
        1 => (500, String::new()),
        2 => (429, "Retry-After: 1\r\n".to_owned()),
        3 => (301, "Location: /other\r\n".to_owned()),
        4 => (408, String::new()),
        5 => (503, "Retry-After: 3600\r\n".to_owned()),
        _ => (200, String::new()),
    });
    let retry = "retry: { delay: 10ms, backoff: 1, delay_max: 300ms, times: 0 }";
    let place = Place::new(&endpoint("shop", &sink.url(), retry));
    let engine = place.run();
    let start = Instant::now();
    let ids = place.publish_all(0..10);
    let taken = sink.wait_for(10);
    assert_eq!(taken.iter().map(id).collect::<Vec<_>>(), ids);
    assert!(
        start.elapsed() >= Duration::from_millis(590),
        "Retry-After, within bounds"
    );
    let failed: Vec<String> = sink.all()[1..6].iter().map(|it| id(&it.0)).collect();
    assert_eq!(failed, [&*ids[1]; 5], "one event probes, with its id");
    wait_long("it is counted", || {
        measure(&engine, "delivered_total", "shop") == 10.0
    });
    assert_eq!(measure(&engine, "failed_total", "shop"), 5.0);
    let output = engine.stop();
    assert!(output.contains("a webhook is down") && output.contains("a webhook is back"));
}

/// No answer says nothing about the event: that does not use up its tries, here none.
#[test]
fn an_endpoint_that_does_not_answer_in_time_gets_the_event_later() {
    let is_awake = Arc::new(AtomicBool::new(false));
    let awake = Arc::clone(&is_awake);
    let sink = Sink::answering(move |_, _| {
        let start = Instant::now();
        if awake.load(Ordering::Relaxed) {
            return (200, String::new());
        }
        while !awake.load(Ordering::Relaxed) && start.elapsed() < Duration::from_secs(30) {
            thread::sleep(Duration::from_millis(10));
        }
        // Nobody waits for this answer any more.
        (504, String::new())
    });
    let more = "timeout: 100ms, retry: { delay: 20ms, backoff: 1, delay_max: 50ms, times: 0 }";
    let place = Place::new(&endpoint("shop", &sink.url(), more));
    let engine = place.run();
    let ids = place.publish_all(0..3);
    wait_long("several requests have timed out", || {
        measure(&engine, "failed_total", "shop") >= 3.0
    });
    assert_eq!(measure(&engine, "state", "shop"), 1.0, "it is down");
    assert!(sink.all().is_empty(), "none has been answered");
    is_awake.store(true, Ordering::Relaxed);
    wait_long("all are delivered", || {
        measure(&engine, "lag_events", "shop") == 0.0
    });
    // On a busy machine an answer may be late, and the event comes once more.
    let mut taken: Vec<String> = sink.accepted().iter().map(id).collect();
    taken.dedup();
    assert_eq!(taken, ids);
    for name in ["refused_total", "dead_letters_total", "missed_total"] {
        assert_eq!(measure(&engine, name, "shop"), 0.0, "{name}");
    }
    let output = engine.stop();
    assert!(output.contains("a webhook is down") && output.contains("a webhook is back"));
}

#[test]
fn an_event_that_is_refused_becomes_a_dead_letter_that_a_flow_can_take() {
    let sink = Sink::answering(|_, received| match &*received.body {
        b"2" => (422, String::new()),
        _ => (200, String::new()),
    });
    let letters = StrictBackend::start();
    let place = Place::new(&endpoint("shop", &sink.url(), QUICK));
    place.folder.write(
        "flows/letters.yaml",
        &format!(
            "flow: letters\nfrom: {{ store: webhook-dead-letters }}\nsteps:\n  - http: {{ to: \
             \"http://127.0.0.1:{}/letter\", method: POST, headers: {{ X-Id: \"${{ $path.event_id \
             }}\", X-Endpoint: \"${{ $path.endpoint }}\", X-Reason: \"${{ $path.reason }}\" }} }}\n",
            letters.port()
        ),
    );
    let engine = place.run();
    let ids = place.publish_all(0..6);
    sink.wait_for(5);
    assert_eq!(sink.bodies(), ["0", "1", "3", "4", "5"]);
    let refused = sink.all().into_iter().filter(|it| it.1 == 422);
    assert_eq!(refused.count(), 3, "the first try and two more");
    wait_long("the letter is there", || !letters.requests().is_empty());
    let letter = letters.requests().remove(0);
    assert_eq!(text(&letter), "2");
    assert_eq!(letter.header("x-id"), Some(&*ids[2]));
    assert_eq!(letter.header("x-endpoint"), Some("shop"));
    assert_eq!(letter.header("x-reason"), Some("status 422: ok"));
    assert_eq!(measure(&engine, "refused_total", "shop"), 3.0);
    assert_eq!(measure(&engine, "dead_letters_total", "shop"), 1.0);
    engine.stop();
}

#[test]
fn missed_events_are_told_as_a_gap() {
    let (sink, is_open) = Sink::closed();
    let settings = "payload: event\nkeep: { events: 5 }";
    let place = Place::with(settings, &endpoint("shop", &sink.url(), QUICK));
    let engine = place.run();
    let ids = place.publish_all(0..40);
    wait_long("it has been tried", || !sink.all().is_empty());
    is_open.store(true, Ordering::Relaxed);
    wait_long("it is up to date", || {
        sink.bodies().last().is_some_and(|it| it == "39")
    });
    let taken = sink.accepted();
    let at = taken
        .iter()
        .position(|it| it.header("x-intertie-kind") == Some("gap"));
    let at = at.expect("no gap is told");
    let gap: Value = serde_json::from_str(&text(&taken[at])).unwrap();
    let next = ids.iter().position(|it| *it == id(&taken[at + 1])).unwrap();
    let first = at;
    assert_eq!(
        gap,
        json!({ "type": "gap", "topic": "orders", "from": ids[first], "to": ids[next - 1],
                "count": next - first })
    );
    let expected = format!("gap-{}_{}", ids[first], ids[next - 1]);
    assert_eq!(id(&taken[at]), expected);
    assert_eq!(
        taken[at].header("webhook-signature"),
        Some(&*signature(SECRET, &taken[at]))
    );
    let rest: Vec<String> = taken[at + 1..].iter().map(id).collect();
    assert_eq!(rest, ids[next..]);
    wait_long("it is counted", || {
        measure(&engine, "missed_total", "shop") == (next - first) as f64
    });
    engine.stop();
}

#[test]
fn one_that_hangs_delays_no_other_also_over_a_reload() {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let hanging = Sink::answering(move |_, _| {
        let start = Instant::now();
        while !over.load(Ordering::Relaxed) && start.elapsed() < Duration::from_secs(30) {
            thread::sleep(Duration::from_millis(10));
        }
        (200, String::new())
    });
    let good = Sink::good();
    // Several names, so that both workers have some beside the one that hangs.
    let goods = ["a", "b", "c", "d"];
    let mut endpoints = endpoint("hanging", &hanging.url(), "timeout: 30s");
    for name in goods {
        endpoints += &endpoint(name, &format!("{}/{name}", good.url()), "");
    }
    let place = Place::new(&endpoints);
    let engine = place.run();
    for round in 0..3 {
        let start = Instant::now();
        place.publish_all(round * 20..(round + 1) * 20);
        good.wait_for((round as usize + 1) * 20 * goods.len());
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
        // What hangs goes on in the background, and the others at once.
        place.write("payload: event", &format!("{endpoints}      # {round}\n"));
        reload(&engine);
    }
    assert_eq!(hanging.all().len(), 0);
    is_over.store(true, Ordering::Relaxed);
    hanging.wait_for(60);
    let numbers: Vec<String> = (0..60).map(|it| it.to_string()).collect();
    assert_eq!(
        hanging.bodies(),
        numbers,
        "one after the other, and none twice"
    );
    engine.stop();
}

#[test]
fn a_changed_url_goes_on_where_the_name_was() {
    let (first, second) = (Sink::good(), Sink::good());
    let place = Place::new(&endpoint("shop", &first.url(), ""));
    let engine = place.run();
    place.publish_all(0..3);
    first.wait_for(3);
    place.write("payload: event", &endpoint("shop", &second.url(), ""));
    reload(&engine);
    place.publish_all(3..6);
    second.wait_for(3);
    engine.stop();
    place.publish_while_stopped();
    let engine = place.run();
    place.publish_all(6..8);
    second.wait_for(5);
    assert_eq!(first.bodies(), ["0", "1", "2"]);
    assert_eq!(second.bodies(), ["3", "4", "5", "6", "7"]);
    // A new name starts with what comes, or with all that there is.
    let (latest, earliest) = (Sink::good(), Sink::good());
    let endpoints = endpoint("latest", &latest.url(), "")
        + &endpoint("earliest", &earliest.url(), "start: earliest");
    place.write("payload: event", &endpoints);
    reload(&engine);
    place.publish("8");
    earliest.wait_for(9);
    latest.wait_for(1);
    assert_eq!(latest.bodies(), ["8"]);
    assert_eq!(earliest.bodies().len(), 9);
    engine.stop();
}

impl Place {
    /// Nothing can be published: what was acknowledged is on the disk.
    fn publish_while_stopped(&self) {
        let data = self.folder.path().join("data");
        assert!(fs::read_dir(data).unwrap().count() > 0);
    }
}

#[test]
fn many_endpoints_on_two_workers_all_get_everything_in_order() {
    let sink = Sink::good();
    let names: Vec<String> = (0..40).map(|it| format!("e{it}")).collect();
    let endpoints: String = names
        .iter()
        .map(|name| endpoint(name, &format!("{}/{name}", sink.url()), ""))
        .collect();
    let place = Place::new(&endpoints);
    let engine = place.run();
    place.publish_all(0..25);
    let taken = sink.wait_for(25 * names.len());
    let mut by_target: HashMap<&str, Vec<String>> = HashMap::new();
    for received in &taken {
        by_target
            .entry(&received.target)
            .or_default()
            .push(text(received));
    }
    let expected: Vec<String> = (0..25).map(|it| it.to_string()).collect();
    assert_eq!(by_target.len(), names.len());
    assert!(by_target.values().all(|it| *it == expected));
    engine.stop();
}
