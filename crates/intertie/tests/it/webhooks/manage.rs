//! Webhooks that users manage by REST: whose they are, challenges, secrets, restarts. Every answer
//! that a test sees has to be in the OpenAPI document.

mod axway;
mod bounds;
mod delivery;
mod guide;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use access::api_keys::ApiKey;
use serde_json::{Value, json};
use testkit::{RawClient, Received, Response, StrictBackend, TempDir, free_port};

use super::{Sink, id, kill, reload, signature, text, wait_long};
use crate::support::Engine;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const OTHER_KEY: &str = "HxweHRobGBkWFxQVEhMQEQ4PDA0KCwgJBgcEBQIDAAE=";
/// What `engine` needs for receivers of this machine.
const EGRESS: &str =
    "egress: { allow: [127.0.0.0/8], schemes: [http], ports: [PORTS], loop_id: hooks.example }";

/// An engine with a topic whose webhooks users manage.
pub(super) struct Managed {
    folder: TempDir,
    port: u16,
    engine: Option<Engine>,
    /// The keys of ann, bob and an operator.
    keys: [String; 3],
    document: Value,
}

const ANN: usize = 0;
const BOB: usize = 1;
const OPS: usize = 2;

/// A request, as far as it differs from others.
#[derive(Clone, Copy, Default)]
struct Ask<'a> {
    body: Option<&'a Value>,
    /// A body as it is, in place of `body`.
    raw: Option<&'a str>,
    fields: &'a str,
}

impl Managed {
    /// With these settings of `manage`, and of the rest of `subscribe`.
    pub(super) fn new(ports: &[u16], manage: &str, subscribe: &str) -> Self {
        let (folder, port) = (TempDir::new(), free_port());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let callers: [(&str, &[&str]); 3] = [("ann", &[]), ("bob", &[]), ("carl", &["ops"])];
        let made = callers.map(|(id, scopes)| {
            let (key, mut entry) = ApiKey::generate(id, now.as_secs()).unwrap();
            entry.scopes = scopes.iter().map(|it| (*it).to_owned()).collect();
            (key, entry.to_line())
        });
        let lines: Vec<&str> = made.iter().map(|it| it.1.trim_end()).collect();
        folder.write("flows/keys", &(lines.join("\n") + "\n"));
        let mut managed = Self {
            folder,
            port,
            engine: None,
            keys: made.map(|it| it.0),
            document: Value::Null,
        };
        managed.write(ports, &format!("secrets_key: {KEY}, {manage}"), subscribe);
        managed.start();
        managed.document = managed.get(ANN, "/openapi.json");
        managed
    }

    fn write(&self, ports: &[u16], manage: &str, subscribe: &str) {
        let port = self.port;
        let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
        let egress = EGRESS.replace("PORTS", &ports.join(", "));
        let text = format!(
            "engine:\n  admin: {{ operate: none }}\n  {egress}\n  auth: {{ partners: {{ api_key: \
             {{ keys: keys }} }} }}\n---\ntopic: orders\npayload: event\npublish: {{ http: \"POST \
             127.0.0.1:{port}/orders\", auth: none }}\nsubscribe:\n  listen: 127.0.0.1:{port}\n  \
             auth: partners\n  via: []\n  {subscribe}\n  webhooks:\n    manage: {{ operators: \
             '$auth.scopes | index(\"ops\")', retry: {{ delay: 50ms, backoff: 1, times: 1 }}, \
             {manage} }}\n"
        );
        self.folder.write("flows/topic.yaml", &text);
    }

    /// The same, and what becomes of webhooks is told on a topic with these endpoints.
    pub(super) fn report(&self, ports: &[u16], manage: &str, endpoints: &str) {
        self.write(ports, &format!("secrets_key: {KEY}, {manage}"), "");
        let file = self.folder.path().join("flows/topic.yaml");
        let text = std::fs::read_to_string(file).unwrap();
        let text = text.replace("  webhooks:\n", "  webhooks:\n    report: ops\n");
        let port = self.port;
        let ops = format!(
            "---\ntopic: ops\npayload: event\nsubscribe:\n  listen: 127.0.0.1:{port}\n  via: \
             []\n  webhooks:\n    endpoints:\n{endpoints}"
        );
        self.folder.write("flows/topic.yaml", &(text + &ops));
    }

    fn start(&mut self) {
        let flows = self.folder.path().join("flows");
        let data = self.folder.path().join("data").display().to_string();
        self.engine = Some(Engine::run(&[&flows], &["--data", &data]));
    }

    pub(super) fn engine(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    pub(super) fn stop(&mut self) -> String {
        self.engine.take().unwrap().stop()
    }

    /// Sends a request of somebody; the answer has to be as the document says.
    fn send(&self, who: usize, (method, path): (&str, &str), ask: Ask<'_>) -> Response {
        let response = self.send_raw(&self.keys[who], (method, path), ask);
        self.check(method, path, &response);
        response
    }

    fn send_raw(&self, key: &str, (method, path): (&str, &str), ask: Ask<'_>) -> Response {
        self.request(
            key,
            (method, &format!("/topics/orders/webhooks{path}")),
            ask,
        )
    }

    fn request(&self, key: &str, (method, path): (&str, &str), ask: Ask<'_>) -> Response {
        let mut client = RawClient::connect(self.port);
        let body = ask.body.map(Value::to_string);
        let body = body.or_else(|| ask.raw.map(str::to_owned));
        let mut fields = ask.fields.to_owned();
        if !key.is_empty() {
            fields += &format!("X-Api-Key: {key}\r\n");
        }
        if body.is_some() && !fields.contains("Content-Type") {
            fields += "Content-Type: application/json\r\n";
        }
        let body = body.unwrap_or_default();
        client.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: test\r\n{fields}\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        ));
        client.response()
    }

    /// The operation that a request is of, and its answer, are in the document.
    fn check(&self, method: &str, path: &str, response: &Response) {
        if self.document.is_null() {
            return;
        }
        let path = path.split('?').next().unwrap();
        let template = match path.split('/').collect::<Vec<_>>().as_slice() {
            [""] | ["", "openapi.json"] => path.to_owned(),
            ["", _] => "/{id}".to_owned(),
            ["", _, action] => format!("/{{id}}/{action}"),
            _ => panic!("{path}"),
        };
        let path = format!("/topics/orders/webhooks{template}");
        let item = &self.document["paths"][&path];
        assert!(item.is_object(), "{path} is not described");
        let status = response.status.to_string();
        if response.status == 405 {
            return;
        }
        let described = &item[method.to_lowercase()]["responses"][&status];
        assert!(
            described.is_object(),
            "{method} {path} {status} is not described: {}",
            response.text()
        );
        let content_type = response.header("content-type").unwrap_or_default();
        match response.status {
            204 => assert!(response.body.is_empty()),
            200..=299 => {
                assert_eq!(content_type, "application/json");
                let schema = &described["content"]["application/json"]["schema"];
                self.check_schema(schema, &parsed(response));
            }
            _ => {
                assert_eq!(content_type, "application/problem+json");
                let schema = &self.document["components"]["schemas"]["Problem"];
                self.check_schema(schema, &parsed(response));
            }
        }
    }

    /// Whether a value is as a schema of the document says: its types, members and choices.
    fn check_schema(&self, schema: &Value, value: &Value) {
        if let Some(to) = schema["$ref"].as_str() {
            let schema = self
                .document
                .pointer(to.strip_prefix('#').unwrap())
                .unwrap();
            return self.check_schema(schema, value);
        }
        let name = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let types = match &schema["type"] {
            Value::Array(types) => types.clone(),
            one => vec![one.clone()],
        };
        assert!(types.contains(&name.into()), "{value} is no {schema}");
        if let Some(choices) = schema["enum"].as_array() {
            assert!(choices.contains(value), "{value} is none of {schema}");
        }
        for item in value.as_array().into_iter().flatten() {
            self.check_schema(&schema["items"], item);
        }
        for required in schema["required"].as_array().into_iter().flatten() {
            let member = value.get(required.as_str().unwrap());
            assert!(member.is_some(), "{value} is without {required}");
        }
        let Some(properties) = schema["properties"].as_object() else {
            return;
        };
        for (name, member) in value.as_object().into_iter().flatten() {
            let schema = properties.get(name);
            self.check_schema(
                schema.unwrap_or_else(|| panic!("{name} of {value}")),
                member,
            );
        }
    }

    fn get(&self, who: usize, path: &str) -> Value {
        let response = self.send(who, ("GET", path), Ask::default());
        assert_eq!(response.status, 200, "{}", response.text());
        parsed(&response)
    }

    pub(super) fn create(&self, who: usize, body: &Value) -> Value {
        let ask = Ask {
            body: Some(body),
            ..Ask::default()
        };
        let response = self.send(who, ("POST", ""), ask);
        assert_eq!(response.status, 201, "{}", response.text());
        parsed(&response)
    }

    /// Has something done with a webhook.
    fn act(&self, who: usize, id: &str, action: &str) -> Response {
        self.send(who, ("POST", &format!("/{id}/{action}")), Ask::default())
    }

    fn state(&self, who: usize, id: &str) -> String {
        let shown = self.get(who, &format!("/{id}"));
        shown["state"].as_str().unwrap().to_owned()
    }

    fn wait_until(&self, id: &str, state: &str) {
        wait_long(&format!("{id} is {state}"), || self.state(OPS, id) == state);
    }

    pub(super) fn publish(&self, body: &str) -> String {
        let reply = crate::support::post(self.port, "/orders", "application/json", body);
        assert_eq!(reply.status, 200, "{}", reply.text());
        let receipt: Value = serde_json::from_str(&reply.text()).unwrap();
        receipt["id"].as_str().unwrap().to_owned()
    }
}

fn parsed(response: &Response) -> Value {
    serde_json::from_slice(&response.body).unwrap_or_else(|_| panic!("{}", response.text()))
}

fn text_of<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_else(|| panic!("{value}"))
}

/// The current secret of a webhook that has just been made.
fn secret(value: &Value) -> &str {
    text_of(&value["secrets"][0], "secret")
}

/// A receiver that answers challenges while it is willing.
struct Receiver {
    backend: StrictBackend,
    taken: Arc<Mutex<Vec<Received>>>,
    is_willing: Arc<AtomicBool>,
}

impl Receiver {
    fn new() -> Self {
        let taken: Arc<Mutex<Vec<Received>>> = Arc::default();
        let is_willing = Arc::new(AtomicBool::new(true));
        let (log, willing) = (Arc::clone(&taken), Arc::clone(&is_willing));
        let backend = StrictBackend::answering(move |received| {
            log.lock().unwrap().push(received.clone());
            let body: Value = serde_json::from_slice(&received.body).unwrap();
            let answer = match received.header("x-intertie-kind") {
                Some("challenge") if willing.load(Ordering::Relaxed) => {
                    json!({ "challenge": body["challenge"] }).to_string()
                }
                _ => "ok".to_owned(),
            };
            let length = answer.len();
            format!("HTTP/1.1 200 X\r\nContent-Length: {length}\r\n\r\n{answer}").into_bytes()
        });
        Self {
            backend,
            taken,
            is_willing,
        }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hook", self.backend.port())
    }

    fn of_kind(&self, kind: &str) -> Vec<Received> {
        let all = self.taken.lock().unwrap();
        let is_it = |it: &&Received| it.header("x-intertie-kind") == Some(kind);
        all.iter().filter(is_it).cloned().collect()
    }

    fn wait_for(&self, count: usize) -> Vec<Received> {
        wait_long(&format!("{count} events have come"), || {
            self.of_kind("event").len() >= count
        });
        self.of_kind("event")
    }
}

#[test]
fn a_webhook_gets_events_after_its_url_has_answered_a_challenge() {
    let receiver = Receiver::new();
    receiver.is_willing.store(false, Ordering::Relaxed);
    let mut managed = Managed::new(&[receiver.backend.port()], "", "");
    let made = managed.create(
        ANN,
        &json!({ "url": receiver.url(), "description": "Ann's" }),
    );
    let (hook, key) = (text_of(&made, "id").to_owned(), secret(&made).to_owned());
    assert_eq!(text_of(&made, "state"), "unverified");
    let event = managed.publish("1");
    wait_long("it is challenged", || {
        !receiver.of_kind("challenge").is_empty()
    });
    let challenge = receiver.of_kind("challenge").remove(0);
    assert_eq!(
        challenge.header("webhook-signature"),
        Some(&*signature(&key, &challenge))
    );
    for action in ["pause", "resume", "test"] {
        assert_eq!(managed.act(ANN, &hook, action).status, 409, "{action}");
    }
    assert_eq!(managed.act(ANN, &hook, "verify").status, 409);
    assert_eq!(managed.state(ANN, &hook), "unverified");
    assert!(receiver.of_kind("event").is_empty(), "nothing before");

    receiver.is_willing.store(true, Ordering::Relaxed);
    let verified = managed.act(ANN, &hook, "verify");
    assert_eq!(verified.status, 200, "{}", verified.text());
    let taken = receiver.wait_for(1).remove(0);
    assert_eq!((id(&taken), &*text(&taken)), (event, "1"));
    assert_eq!(
        taken.header("webhook-signature"),
        Some(&*signature(&key, &taken))
    );
    for sent in [&challenge, &taken] {
        // By it the engine knows its own requests, should a proxy send them back.
        assert_eq!(sent.all("cdn-loop"), ["hooks.example"]);
    }
    assert_eq!(managed.state(ANN, &hook), "active");
    let attempts = || {
        let attempts = managed.get(ANN, &format!("/{hook}/attempts"));
        attempts["items"].as_array().unwrap().clone()
    };
    wait_long("the attempt is there", || attempts().len() == 4);
    let tested = managed.act(ANN, &hook, "test");
    assert_eq!(parsed(&tested)["accepted"], true);
    let test = receiver.of_kind("test").remove(0);
    assert_eq!(
        test.header("webhook-signature"),
        Some(&*signature(&key, &test))
    );

    let items = attempts();
    assert_eq!(items.len(), 5, "three challenges, an event, a test");
    assert!(text_of(&items[0], "event").starts_with("test-"));
    assert_eq!(items[1]["event"], json!(id(&taken)));
    assert_eq!(
        (&items[1]["status"], &items[1]["reply"]),
        (&json!(200), &json!("ok"))
    );
    assert!(
        managed
            .send(ANN, ("DELETE", &format!("/{hook}")), Ask::default())
            .status
            == 204
    );
    assert_eq!(managed.act(ANN, &hook, "test").status, 404);
    managed.publish("2");
    managed.stop();
    assert_eq!(receiver.of_kind("event").len(), 1, "it is deleted");
}

#[test]
fn a_webhook_belongs_to_its_caller_and_operators_see_all() {
    let receiver = Receiver::new();
    let mut managed = Managed::new(&[receiver.backend.port()], "per_caller: 3", "");
    let url = json!({ "url": receiver.url() });
    let of_ann: Vec<Value> = (0..3).map(|_| managed.create(ANN, &url)).collect();
    let of_bob = managed.create(BOB, &url);
    let ask = Ask {
        body: Some(&url),
        ..Ask::default()
    };
    let too_many = managed.send(ANN, ("POST", ""), ask);
    assert_eq!(too_many.status, 403, "{}", too_many.text());
    let (hook, foreign) = (text_of(&of_ann[0], "id"), text_of(&of_bob, "id"));
    for (method, rest) in [
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("GET", "/attempts"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/verify"),
        ("POST", "/test"),
        ("POST", "/rotate-secret"),
    ] {
        let nothing = json!({});
        let ask = Ask {
            body: (method == "PATCH").then_some(&nothing),
            ..Ask::default()
        };
        let path = format!("/{foreign}{rest}");
        let other = managed.send(ANN, (method, &path), ask);
        let missing = managed.send(ANN, (method, &format!("/wh_0{rest}")), ask);
        assert_eq!(other.status, 404, "{method} {rest}");
        assert_eq!(other.text(), missing.text(), "as if it did not exist");
    }
    assert!(managed.get(ANN, &format!("/{hook}")).get("owner").is_none());
    let shown = managed.get(OPS, &format!("/{hook}"));
    assert_eq!(shown["owner"], json!({ "way": "partners", "id": "ann" }));
    let ids = |page: &Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap().iter();
        items.map(|it| text_of(it, "id").to_owned()).collect()
    };
    let first = managed.get(OPS, "?limit=3");
    let after = text_of(&first, "next").to_owned();
    let second = managed.get(OPS, &format!("?limit=3&after={after}"));
    assert_eq!((ids(&second).len(), &second["next"]), (1, &Value::Null));
    let all = [ids(&first), ids(&second)].concat();
    assert!(all.is_sorted() && all.len() == 4);
    assert_eq!(ids(&managed.get(BOB, "")), [foreign]);
    // Operators change what belongs to others.
    managed.wait_until(hook, "active");
    assert_eq!(managed.act(OPS, hook, "pause").status, 200);
    // Again: there is nothing to write, and it is answered all the same.
    assert_eq!(managed.act(ANN, hook, "pause").status, 200);
    assert_eq!(managed.state(ANN, hook), "paused");
    for (path, status) in [("?limit=0", 400), ("?limit=x", 400), ("?after=%00", 400)] {
        assert_eq!(
            managed.send(ANN, ("GET", path), Ask::default()).status,
            status,
            "{path}"
        );
    }
    // Whoever has no key learns nothing.
    let nobody = managed.send_raw("", ("GET", ""), Ask::default());
    assert_eq!(nobody.status, 401);
    assert_eq!(managed.send(ANN, ("PUT", ""), Ask::default()).status, 405);
    managed.stop();
}

#[test]
fn what_users_have_made_outlives_a_restart_and_a_kill() {
    let receiver = Receiver::new();
    let mut managed = Managed::new(&[receiver.backend.port()], "", "allow_expressions: true");
    let body = json!({ "url": receiver.url(), "filter": ". % 2 == 0", "select": "{n: .}" });
    let made = managed.create(ANN, &body);
    let (hook, key) = (text_of(&made, "id").to_owned(), secret(&made).to_owned());
    managed.wait_until(&hook, "active");
    (0..10).for_each(|it| drop(managed.publish(&it.to_string())));
    receiver.wait_for(5);
    let other = managed.create(ANN, &json!({ "url": receiver.url() }));
    let other = text_of(&other, "id").to_owned();
    managed.wait_until(&other, "active");
    assert_eq!(managed.act(ANN, &other, "pause").status, 200);
    let before = managed.get(ANN, "");
    kill(managed.engine.take().unwrap());
    let files = std::fs::read_dir(managed.folder.path().join("data")).unwrap();
    let bare = key.strip_prefix("whsec_").unwrap().as_bytes();
    for file in files.map(|it| it.unwrap().path()).filter(|it| it.is_file()) {
        let bytes = std::fs::read(&file).unwrap();
        let is_there = bytes.windows(bare.len()).any(|it| it == bare);
        assert!(!is_there, "the secret is in {}", file.display());
    }
    managed.start();
    wait_long("it is served", || managed.state(ANN, &hook) == "active");
    let shown = managed.get(ANN, &format!("/{hook}"));
    for name in ["url", "filter", "select", "created"] {
        assert_eq!(shown[name], made[name], "{name}");
    }
    assert_eq!(secret(&shown), "whsec_***");
    assert_eq!(before["items"].as_array().unwrap().len(), 2);
    assert_eq!(managed.state(ANN, &other), "paused");
    (10..14).for_each(|it| drop(managed.publish(&it.to_string())));
    wait_long("the new ones have come", || {
        receiver
            .of_kind("event")
            .iter()
            .any(|it| text(it) == "{\"n\":12}")
    });
    let all = receiver.of_kind("event");
    let mut bodies: Vec<String> = all.iter().map(text).collect();
    // What was accepted just before a crash may be repeated, with the same id.
    bodies.dedup();
    let expected = [0, 2, 4, 6, 8, 10, 12].map(|it| format!("{{\"n\":{it}}}"));
    bodies.sort_by_key(|it| {
        it.trim_matches(|c: char| !c.is_ascii_digit())
            .parse::<u32>()
            .unwrap()
    });
    bodies.dedup();
    assert_eq!(bodies, expected);
    let last = all.last().unwrap();
    assert_eq!(
        last.header("webhook-signature"),
        Some(&*signature(&key, last))
    );
    assert_eq!(managed.act(ANN, &other, "resume").status, 200);
    wait_long("it has what it missed", || {
        receiver
            .of_kind("event")
            .iter()
            .filter(|it| !text(it).contains('n'))
            .count()
            == 4
    });
    managed.stop();
}

#[test]
fn webhooks_of_a_topic_that_is_removed_are_gone_with_it() {
    let receiver = Receiver::new();
    let mut managed = Managed::new(&[receiver.backend.port()], "challenge: false", "");
    managed.create(ANN, &json!({ "url": receiver.url() }));
    managed.stop();
    let data = managed.folder.path().join("data").display().to_string();
    let removed = crate::support::output(&["topics", "remove", "orders", "--yes", "--data", &data]);
    assert!(removed.status.success());
    managed.start();
    let left = managed.get(OPS, "");
    assert!(left["items"].as_array().unwrap().is_empty(), "{left}");
    managed.create(ANN, &json!({ "url": receiver.url() }));
    managed.stop();
}

#[test]
fn changes_are_compared_by_entity_tags_and_a_moved_webhook_is_challenged_again() {
    let (receiver, other) = (Receiver::new(), Receiver::new());
    let ports = [receiver.backend.port(), other.backend.port()];
    let mut managed = Managed::new(&ports, "", "");
    let made = managed.create(ANN, &json!({ "url": receiver.url() }));
    let hook = text_of(&made, "id").to_owned();
    managed.wait_until(&hook, "active");
    let path = format!("/{hook}");
    let tag = managed.send(ANN, ("GET", &path), Ask::default());
    let tag = tag.header("etag").unwrap().to_owned();
    let patch = |body: &Value, fields: &str| {
        managed.send(
            ANN,
            ("PATCH", &path),
            Ask {
                body: Some(body),
                fields,
                ..Ask::default()
            },
        )
    };
    let named = json!({ "description": "new" });
    let matching = format!("If-Match: {tag}\r\n");
    let changed = patch(&named, &matching);
    assert_eq!(changed.status, 200, "{}", changed.text());
    assert_ne!(changed.header("etag").unwrap(), tag);
    assert_eq!(text_of(&parsed(&changed), "description"), "new");
    assert_eq!(patch(&named, &matching).status, 412);
    assert_eq!(
        patch(&json!({ "description": null }), "If-Match: *\r\n").status,
        200
    );
    for wrong in [
        json!({ "id": "x" }),
        json!({ "url": null }),
        json!({ "url": 1 }),
        json!({ "filter": ".a" }),
        json!({ "mode": "patch" }),
        json!([]),
    ] {
        assert_eq!(patch(&wrong, "").status, 400, "{wrong}");
    }
    assert_eq!(patch(&named, "Content-Type: text/plain\r\n").status, 415);
    let refused = patch(&json!({ "url": "http://10.0.0.1/" }), "");
    assert_eq!(refused.status, 403, "{}", refused.text());

    other.is_willing.store(false, Ordering::Relaxed);
    assert_eq!(patch(&json!({ "url": other.url() }), "").status, 200);
    assert_eq!(managed.state(ANN, &hook), "unverified");
    let event = managed.publish("1");
    wait_long("the new URL is asked", || {
        !other.of_kind("challenge").is_empty()
    });
    kill(managed.engine.take().unwrap());
    managed.start();
    assert_eq!(managed.state(ANN, &hook), "unverified");
    assert!(other.of_kind("event").is_empty());
    other.is_willing.store(true, Ordering::Relaxed);
    assert_eq!(managed.act(ANN, &hook, "verify").status, 200);
    assert_eq!(id(&other.wait_for(1)[0]), event);
    assert!(receiver.of_kind("event").is_empty());
    managed.stop();
}

/// Its secrets as they are shown later.
fn masked(webhook: &Value) -> Value {
    let mut secrets = webhook["secrets"].clone();
    for secret in secrets.as_array_mut().unwrap() {
        secret["secret"] = json!("whsec_***");
    }
    secrets
}

#[test]
fn a_rotated_secret_overlaps_with_the_one_before() {
    let receiver = Receiver::new();
    let mut managed = Managed::new(&[receiver.backend.port()], "", "");
    let made = managed.create(ANN, &json!({ "url": receiver.url() }));
    let (hook, old) = (text_of(&made, "id").to_owned(), secret(&made).to_owned());
    managed.wait_until(&hook, "active");
    let path = format!("/{hook}/rotate-secret");
    let rotate = |body: &Value| {
        managed.send(
            ANN,
            ("POST", &path),
            Ask {
                body: Some(body),
                ..Ask::default()
            },
        )
    };
    assert_eq!(rotate(&json!({ "overlap": -1 })).status, 400);
    assert_eq!(rotate(&json!({ "overlap": 99999999 })).status, 400);
    assert_eq!(rotate(&json!([5])).status, 400);
    let rotated = parsed(&rotate(&json!({ "overlap": 3600 })));
    let new = secret(&rotated).to_owned();
    assert_ne!(new, old);
    assert_eq!(rotated["secrets"].as_array().unwrap().len(), 2);
    assert_eq!(text_of(&rotated["secrets"][1], "secret"), "whsec_***");
    managed.publish("1");
    let both = receiver.wait_for(1).remove(0);
    let expected = format!("{} {}", signature(&new, &both), signature(&old, &both));
    assert_eq!(both.header("webhook-signature"), Some(&*expected));
    // What has been promised is kept: no secret goes before its time.
    assert_eq!(rotate(&json!({})).status, 200);
    let fourth = parsed(&rotate(&json!({})));
    assert_eq!(fourth["secrets"].as_array().unwrap().len(), 4);
    assert_eq!(rotate(&json!({})).status, 409);
    assert_eq!(
        managed.get(ANN, &format!("/{hook}"))["secrets"],
        masked(&fourth)
    );
    let last = parsed(&rotate(&json!({ "overlap": 0 })));
    let last = secret(&last).to_owned();
    managed.publish("2");
    let alone = receiver.wait_for(2).remove(1);
    assert_eq!(
        alone.header("webhook-signature"),
        Some(&*signature(&last, &alone))
    );

    // The key that encrypts secrets gets a successor, and goes.
    let port = [receiver.backend.port()];
    managed.write(&port, &format!("secrets_key: [{OTHER_KEY}, {KEY}]"), "");
    reload(managed.engine());
    managed.write(&port, &format!("secrets_key: {OTHER_KEY}"), "");
    reload(managed.engine());
    managed.publish("3");
    let third = receiver.wait_for(3).remove(2);
    assert_eq!(
        third.header("webhook-signature"),
        Some(&*signature(&last, &third))
    );
    managed.stop();
    managed.start();
    managed.publish("4");
    let restarted = receiver.wait_for(4).remove(3);
    assert_eq!(
        (&*text(&restarted), restarted.header("webhook-signature")),
        ("4", Some(&*signature(&last, &restarted)))
    );
    managed.stop();
    managed.write(&port, &format!("secrets_key: {KEY}"), "");
    let flows = managed.folder.path().join("flows").display().to_string();
    let data = managed.folder.path().join("data").display().to_string();
    let output = crate::support::output(&["run", &flows, "--data", &data]);
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        told.contains("cannot be opened with `secrets_key`"),
        "{told}"
    );
}

#[test]
fn a_creation_that_is_sent_again_makes_nothing_new() {
    let receiver = Receiver::new();
    let mut managed = Managed::new(&[receiver.backend.port()], "challenge: false", "");
    let url = json!({ "url": receiver.url() });
    let create = |who: usize, body: &Value, key: &str| {
        let fields = format!("Idempotency-Key: {key}\r\n");
        let fields = fields.as_str();
        managed.send(
            who,
            ("POST", ""),
            Ask {
                body: Some(body),
                fields,
                ..Ask::default()
            },
        )
    };
    let first = create(ANN, &url, "one");
    assert_eq!(first.status, 201);
    let again = create(ANN, &url, "one");
    assert_eq!(again.status, 200);
    let (first, again) = (parsed(&first), parsed(&again));
    assert_eq!(first["id"], again["id"]);
    assert_eq!(secret(&again), "whsec_***", "it is shown once");
    let other = json!({ "url": receiver.url(), "description": "x" });
    assert_eq!(create(ANN, &other, "one").status, 422);
    assert_eq!(create(BOB, &other, "one").status, 201);
    assert_eq!(managed.get(ANN, "")["items"].as_array().unwrap().len(), 1);
    // Without a challenge it is served at once.
    managed.publish("1");
    receiver.wait_for(2);
    assert!(receiver.of_kind("challenge").is_empty());
    let measured = |name: &str| {
        let name = format!("intertie_webhook_subscriptions_{name}");
        managed.engine().measured(&name, &[("flow", "orders")])
    };
    wait_long("it is counted", || measured("delivered_total") == Some(2.0));
    assert_eq!(measured("active"), Some(2.0));
    assert_eq!(measured("unverified"), Some(0.0));
    managed.stop();
}

#[test]
fn endpoints_of_files_are_shown_to_operators_and_changed_by_nobody() {
    let receiver = Receiver::new();
    let sink = Sink::good();
    let endpoints = format!(
        "secrets_key: {KEY} }}\n    endpoints: {{ shop: {{ url: \"{}\", secret: \"{}\" }}",
        sink.url(),
        super::SECRET
    );
    let mut managed = Managed::new(&[receiver.backend.port()], "", "");
    managed.write(&[receiver.backend.port()], &endpoints, "");
    reload(managed.engine());
    let own = managed.create(ANN, &json!({ "url": receiver.url() }));
    managed.wait_until(text_of(&own, "id"), "active");
    managed.publish("1");
    sink.wait_for(1);
    receiver.wait_for(1);
    assert_eq!(
        managed.send(ANN, ("GET", "/shop"), Ask::default()).status,
        404
    );
    let shown = managed.get(OPS, "/shop");
    assert_eq!(
        (text_of(&shown, "managed_by"), text_of(&shown, "state")),
        ("file", "active")
    );
    assert!(shown.get("url").is_none(), "it may hold secrets");
    wait_long("the attempt is there", || {
        !managed.get(OPS, "/shop/attempts")["items"]
            .as_array()
            .unwrap()
            .is_empty()
    });
    for action in ["pause", "resume", "verify", "test", "rotate-secret"] {
        assert_eq!(managed.act(OPS, "shop", action).status, 403, "{action}");
    }
    assert_eq!(
        managed
            .send(OPS, ("DELETE", "/shop"), Ask::default())
            .status,
        403
    );
    let ids = managed.get(OPS, "");
    let ids = ids["items"].as_array().unwrap();
    assert_eq!((ids.len(), text_of(&ids[0], "id")), (2, "shop"));
    managed.stop();
}
