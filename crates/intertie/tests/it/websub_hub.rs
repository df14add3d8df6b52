//! The WebSub hub of topics: the hub cases of websub.rocks (100 to 106) and what the recommendation
//! says beside them, over restarts, denials, refusals and bounds.

mod access;
mod bounds;
mod content;
mod life;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use testkit::{RawClient, Received, Response, StrictBackend, TempDir, free_port};

use crate::support::{Engine, get, post};

/// Retries that tests do not wait for.
const QUICK: &str = "retry: { delay: 20ms, backoff: 1, delay_max: 50ms, times: 2 }";

/// What the hub calls itself in `CDN-Loop`, by which it knows its own requests.
const LOOP_ID: &str = "hub.example";

/// Waits for longer than most things take.
fn wait_long(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        let patience = Duration::from_secs(40);
        assert!(start.elapsed() < patience, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

fn encode(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encoded = text.bytes().map(|byte| match is_plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    encoded.collect()
}

fn form(parameters: &[(&str, &str)]) -> String {
    let pairs = parameters.iter();
    let pairs = pairs.map(|(name, value)| format!("{name}={}", encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let pair = [rest.next().unwrap(), rest.next().unwrap()];
                let pair = std::str::from_utf8(&pair).unwrap();
                bytes.push(u8::from_str_radix(pair, 16).unwrap());
            }
            b'+' => bytes.push(b' '),
            other => bytes.push(other),
        }
    }
    String::from_utf8(bytes).unwrap()
}

thread_local! {
    /// The ports that the test's engines may call.
    static PORTS: RefCell<Vec<u16>> = const { RefCell::new(Vec::new()) };
}

/// Engines that are started from now on may call this port.
fn allow(port: u16) {
    PORTS.with_borrow_mut(|ports| ports.push(port));
}

/// What a callback was asked, by `GET`.
#[derive(Clone, Debug)]
struct Question {
    path: String,
    parameters: HashMap<String, String>,
}

impl Question {
    fn of(request: &Received) -> Self {
        let (path, query) = request.target.split_once('?').unwrap();
        let pairs = query.split('&').map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        });
        Self {
            path: path.to_owned(),
            parameters: pairs.collect(),
        }
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.parameters.get(name).map(String::as_str)
    }

    fn mode(&self) -> &str {
        self.get("hub.mode").unwrap_or_default()
    }
}

#[derive(Default)]
struct Taken {
    questions: Vec<Question>,
    deliveries: Vec<(Received, u16)>,
}

/// A subscriber at callbacks with any path: it confirms what it is asked for, and takes deliveries,
/// unless a test says otherwise.
struct Subscriber {
    backend: StrictBackend,
    taken: Arc<Mutex<Taken>>,
    /// The status of answers to verifications; 299 for one with another challenge.
    verified: Arc<AtomicU16>,
    /// That of answers to deliveries.
    delivered: Arc<AtomicU16>,
}

impl Subscriber {
    fn new() -> Self {
        let taken: Arc<Mutex<Taken>> = Arc::default();
        let log = Arc::clone(&taken);
        let status = || Arc::new(AtomicU16::new(200));
        let (verified, delivered) = (status(), status());
        let answers = (Arc::clone(&verified), Arc::clone(&delivered));
        let backend = StrictBackend::answering(move |request| {
            let mut log = log.lock().unwrap();
            if request.method == "GET" {
                let question = Question::of(request);
                let status = answers.0.load(Ordering::Relaxed);
                let challenge = question.get("hub.challenge").unwrap_or_default();
                let body = match status {
                    299 => "another",
                    _ => challenge,
                };
                let reply = reply(status, body);
                log.questions.push(question);
                return reply;
            }
            let status = answers.1.load(Ordering::Relaxed);
            log.deliveries.push((request.clone(), status));
            // What is in the body is nobody's business (section 7).
            reply(status, "ok")
        });
        allow(backend.port());
        Self {
            backend,
            taken,
            verified,
            delivered,
        }
    }

    fn callback(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.backend.port())
    }

    fn questions(&self) -> Vec<Question> {
        self.taken.lock().unwrap().questions.clone()
    }

    /// Waits until so many questions have come; the last.
    fn question(&self, count: usize) -> Question {
        wait_long(&format!("{count} questions"), || {
            self.questions().len() >= count
        });
        self.questions().remove(count - 1)
    }

    /// The deliveries that it has taken.
    fn accepted(&self) -> Vec<Received> {
        let taken = self.taken.lock().unwrap();
        let all = taken.deliveries.iter();
        let all = all.filter(|(_, status)| (200..300).contains(status));
        all.map(|(received, _)| received.clone()).collect()
    }

    fn attempts(&self) -> usize {
        self.taken.lock().unwrap().deliveries.len()
    }

    fn wait_for(&self, count: usize) -> Vec<Received> {
        wait_long(&format!("{count} deliveries"), || {
            self.accepted().len() >= count
        });
        self.accepted()
    }

    fn answer_verifications(&self, status: u16) {
        self.verified.store(status, Ordering::Relaxed);
    }

    fn answer_deliveries(&self, status: u16) {
        self.delivered.store(status, Ordering::Relaxed);
    }
}

fn reply(status: u16, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

fn text(received: &Received) -> String {
    String::from_utf8(received.body.clone()).unwrap()
}

/// Files with a topic `news` that has a hub, and a folder with data.
struct Place {
    folder: TempDir,
    port: u16,
}

impl Place {
    fn new(websub: &str) -> Self {
        Self::with(websub, "payload: event")
    }

    /// A hub with further settings of the topic.
    fn with(websub: &str, topic: &str) -> Self {
        let place = Self {
            folder: TempDir::new(),
            port: free_port(),
        };
        place.write(websub, topic, &place.base());
        place
    }

    /// How others reach the engine.
    fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn topic(&self) -> String {
        format!("{}/topics/news", self.base())
    }

    fn write(&self, websub: &str, topic: &str, public_url: &str) {
        let port = self.port;
        let ports = PORTS.with_borrow(|ports| format!("{ports:?}"));
        self.folder.write(
            "flows/topic.yaml",
            &format!(
                "engine:\n  public_url: {public_url}\n  admin: {{ operate: none }}\n  egress: {{ \
                 allow: [127.0.0.1], schemes: [http, https], loop_id: {LOOP_ID}, ports: {ports} \
                 }}\n---\n\
                 topic: news\n{topic}\npublish: {{ http: \"POST 127.0.0.1:{port}/topics/news\" }}\n\
                 subscribe:\n  listen: 127.0.0.1:{port}\n  via: []\n  websub: {websub}\n"
            ),
        );
    }

    fn run(&self) -> Engine {
        let flows = self.folder.path().join("flows");
        let file = flows.join("topic.yaml");
        let text = std::fs::read_to_string(&file).unwrap();
        let (before, rest) = text.split_once("ports: [").unwrap();
        let (_, behind) = rest.split_once(']').unwrap();
        let ports = PORTS.with_borrow(|ports| format!("{ports:?}"));
        std::fs::write(&file, format!("{before}ports: {ports}{behind}")).unwrap();
        let data = self.folder.path().join("data").display().to_string();
        Engine::run(&[&flows], &["--data", &data])
    }

    fn publish(&self, body: &str) {
        let reply = post(self.port, "/topics/news", "application/json", body);
        assert_eq!(reply.status, 200, "{}", reply.text());
    }

    /// Asks the hub for something.
    fn ask(&self, parameters: &[(&str, &str)]) -> Response {
        let media_type = "application/x-www-form-urlencoded";
        post(self.port, "/hub", media_type, &form(parameters))
    }

    /// Asks for a subscription, with further parameters.
    fn subscribe(&self, callback: &str, more: &[(&str, &str)]) {
        let reply = self.order("subscribe", callback, more);
        assert_eq!(reply.status, 202, "{}", reply.text());
    }

    fn order(&self, mode: &str, callback: &str, more: &[(&str, &str)]) -> Response {
        let topic = self.topic();
        let own = [
            ("hub.mode", mode),
            ("hub.topic", &topic),
            ("hub.callback", callback),
        ];
        self.ask(&[&own[..], more].concat())
    }
}

/// How many subscriptions the hub has.
fn count(engine: &Engine) -> f64 {
    let labels = [("flow", "news"), ("step", "websub")];
    let measured = engine.measured("intertie_websub_hub_subscriptions", &labels);
    measured.unwrap_or_default()
}

fn wait_for_subscriptions(engine: &Engine, expected: usize) {
    wait_long(&format!("{expected} subscriptions"), || {
        count(engine) == expected as f64
    });
}

fn signature(method: &str, secret: &str, body: &[u8]) -> String {
    let algorithm = match method {
        "sha1" => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
        "sha256" => hmac::HMAC_SHA256,
        "sha384" => hmac::HMAC_SHA384,
        "sha512" => hmac::HMAC_SHA512,
        other => panic!("{other}"),
    };
    let tag = hmac::sign(&hmac::Key::new(algorithm, secret.as_bytes()), body);
    let digits: String = tag.as_ref().iter().map(|it| format!("{it:02x}")).collect();
    format!("{method}={digits}")
}

/// 100: a typical subscription, from discovery to the delivery.
#[test]
fn a_subscriber_finds_the_hub_and_gets_what_is_published() {
    let (place, subscriber) = (Place::new("{}"), Subscriber::new());
    let engine = place.run();
    let links = format!(
        "<{}/hub>; rel=\"hub\", <{}>; rel=\"self\"",
        place.base(),
        place.topic()
    );
    let empty = get(place.port, "/topics/news");
    assert_eq!((empty.status, empty.header("Link")), (204, Some(&*links)));
    place.publish("{\"old\": true}");
    let found = get(place.port, "/topics/news");
    assert_eq!((found.status, found.header("Link")), (200, Some(&*links)));
    assert_eq!(found.header("Content-Type"), Some("application/json"));
    assert_eq!(found.text(), "{\"old\":true}");
    place.subscribe(&subscriber.callback("/cb"), &[]);
    let question = subscriber.question(1);
    assert_eq!(
        (question.mode(), question.path.as_str()),
        ("subscribe", "/cb")
    );
    assert_eq!(question.get("hub.topic"), Some(&*place.topic()));
    assert_eq!(question.get("hub.lease_seconds"), Some("864000"));
    assert!(question.get("hub.challenge").unwrap().len() >= 32);
    wait_for_subscriptions(&engine, 1);
    for number in 0..3 {
        place.publish(&format!("{{\"number\": {number}}}"));
    }
    let all = subscriber.wait_for(3);
    let bodies: Vec<String> = all.iter().map(text).collect();
    assert_eq!(
        bodies,
        ["{\"number\":0}", "{\"number\":1}", "{\"number\":2}"]
    );
    for received in &all {
        assert_eq!((&*received.method, &*received.target), ("POST", "/cb"));
        assert_eq!(received.header("Content-Type"), Some("application/json"));
        assert_eq!(received.header("Link"), Some(&*links));
        assert_eq!(received.header("X-Hub-Signature"), None);
    }
    // Verifications and deliveries alike: either could be sent back to the hub.
    let asked = subscriber.backend.requests();
    assert_eq!(asked.len(), 4);
    assert!(asked.iter().all(|it| it.all("CDN-Loop") == [LOOP_ID]));
    // Never what a request calls the engine.
    let mut client = RawClient::connect(place.port);
    client.send("GET /topics/news HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    assert_eq!(client.response().header("Link"), Some(&*links));
    engine.stop();
    assert_eq!(subscriber.backend.violations(), [""; 0]);
}

/// 102: parameters that nobody knows are ignored, leases are kept within bounds.
#[test]
fn leases_are_granted_within_bounds_and_unknown_parameters_ignored() {
    let (place, subscriber) = (
        Place::new("{ lease_max: 1d, lease: 2h }"),
        Subscriber::new(),
    );
    let engine = place.run();
    for (number, (wanted, granted)) in [
        ("", "7200"),
        ("3600", "3600"),
        ("1", "60"),
        ("0", "7200"),
        ("99999999999999999999", "86400"),
    ]
    .into_iter()
    .enumerate()
    {
        let callback = subscriber.callback(&format!("/{number}"));
        let more = [
            ("hub.lease_seconds", wanted),
            ("foo", "bar"),
            ("hub.foo", "bar"),
        ];
        place.subscribe(&callback, &more);
        let question = subscriber.question(number + 1);
        assert_eq!(question.get("hub.lease_seconds"), Some(granted), "{wanted}");
        assert_eq!(question.get("foo"), None);
    }
    engine.stop();
}

/// 101: deliveries with a secret, by each method that the recommendation has.
#[test]
fn deliveries_are_signed_with_the_secret() {
    for method in ["sha1", "sha256", "sha384", "sha512"] {
        let settings = match method {
            "sha256" => "{}".to_owned(),
            other => format!("{{ signature: {other} }}"),
        };
        let (place, subscriber) = (Place::new(&settings), Subscriber::new());
        let engine = place.run();
        let secret = "s".repeat(199);
        place.subscribe(&subscriber.callback("/"), &[("hub.secret", &secret)]);
        wait_for_subscriptions(&engine, 1);
        place.publish("{\"text\": \"\u{e4}\"}");
        let received = subscriber.wait_for(1).remove(0);
        let expected = signature(method, &secret, &received.body);
        assert_eq!(received.header("X-Hub-Signature"), Some(&*expected));
        engine.stop();
    }
}

/// A callback keeps its own query, also parameters that are called as those of the hub.
#[test]
fn the_query_of_a_callback_stays() {
    let (place, subscriber) = (Place::new("{}"), Subscriber::new());
    let engine = place.run();
    place.subscribe(&subscriber.callback("/cb?a=1&hub.topic=x&b=%26"), &[]);
    wait_long("it is asked", || !subscriber.backend.requests().is_empty());
    wait_for_subscriptions(&engine, 1);
    let asked = subscriber.backend.requests().remove(0).target;
    let begin = "/cb?a=1&hub.topic=x&b=%26&hub.mode=subscribe&hub.topic=";
    assert!(asked.starts_with(begin), "{asked}");
    place.publish("1");
    let received = subscriber.wait_for(1).remove(0);
    assert_eq!(received.target, "/cb?a=1&hub.topic=x&b=%26");
    engine.stop();
}
