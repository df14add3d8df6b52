//! Doors as callers meet them: tokens of an issuer whose keys come and go, API keys of a file that
//! changes, and what a back end sees of a credential.

use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde_json::{Value, json};
use testkit::{RawClient, Response, StrictBackend, TempDir, free_port, wait_until};

use crate::support::Engine;

pub fn base64(bytes: &[u8]) -> String {
    Base64UrlUnpadded::encode_string(bytes)
}

pub fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_secs()
}

/// A key of an issuer.
pub struct Signer {
    id: &'static str,
    pub pair: Ed25519KeyPair,
}

impl Signer {
    pub fn new(id: &'static str) -> Self {
        let pair = Ed25519KeyPair::generate().unwrap();
        Self { id, pair }
    }

    pub fn jwk(&self) -> Value {
        let x = base64(self.pair.public_key().as_ref());
        json!({ "kty": "OKP", "crv": "Ed25519", "kid": self.id, "x": x })
    }

    /// A token with these claims beside those that every token has; null takes one of these away.
    pub fn token(&self, issuer: &str, claims: Value) -> String {
        let mut all = json!({ "iss": issuer, "aud": "shop", "sub": "ann", "exp": now() + 600 });
        let members = all.as_object_mut().unwrap();
        members.extend(claims.as_object().unwrap().clone());
        members.retain(|_, value| !value.is_null());
        let header = json!({ "alg": "EdDSA", "kid": self.id }).to_string();
        let signed = format!(
            "{}.{}",
            base64(header.as_bytes()),
            base64(all.to_string().as_bytes())
        );
        let signature = self.pair.sign(signed.as_bytes());
        format!("{signed}.{}", base64(signature.as_ref()))
    }
}

/// An issuer that publishes keys.
pub struct Issuer {
    backend: StrictBackend,
    keys: Arc<Mutex<Vec<Value>>>,
}

impl Issuer {
    pub fn new(signers: &[&Signer]) -> Self {
        let keys = Arc::new(Mutex::new(Vec::new()));
        let published = Arc::clone(&keys);
        let backend = StrictBackend::answering(move |request| {
            let host = request.header("Host").unwrap_or_default();
            let keys = published.lock().unwrap();
            let (status, body) = match request.target.as_str() {
                _ if keys.is_empty() => ("503 Service Unavailable", json!({})),
                "/.well-known/openid-configuration" => (
                    "200 OK",
                    json!({ "issuer": format!("http://{host}"),
                        "jwks_uri": format!("http://{host}/keys?all=1") }),
                ),
                "/keys?all=1" => ("200 OK", json!({ "keys": *keys })),
                _ => ("404 Not Found", json!({})),
            };
            let body = body.to_string();
            let length = body.len();
            format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
        });
        let issuer = Self { backend, keys };
        issuer.publish(signers);
        issuer
    }

    pub fn publish(&self, signers: &[&Signer]) {
        *self.keys.lock().unwrap() = signers.iter().map(|it| it.jwk()).collect();
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.backend.port())
    }

    /// How often its keys were asked for.
    fn asked(&self) -> usize {
        let all = self.backend.requests();
        all.iter().filter(|it| it.target == "/keys?all=1").count()
    }
}

pub fn ask(port: u16, request: &str, fields: &[(&str, &str)]) -> Response {
    let mut client = RawClient::connect(port);
    let fields: String = fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    client.send(format!(
        "{request} HTTP/1.1\r\nHost: test\r\n{fields}Connection: close\r\n\r\n"
    ));
    client.response()
}

pub fn bearer(token: &str) -> (&'static str, String) {
    ("Authorization", format!("Bearer {token}"))
}

fn ask_with(port: u16, request: &str, token: &str) -> Response {
    let (name, value) = bearer(token);
    ask(port, request, &[(name, &value)])
}

/// Runs flows in a folder of their own.
pub fn run(folder: &TempDir, engine: &str, flows: &str) -> (Engine, u16) {
    let port = free_port();
    let text = format!("engine:\n  listen: \"127.0.0.1:{port}\"\n{engine}---\n{flows}");
    folder.write("flows.yaml", &text);
    (Engine::run(&[folder.path()], &[]), port)
}

#[test]
fn tokens_of_an_issuer_open_a_door_and_go_no_further() {
    let key = Signer::new("a");
    let (issuer, backend) = (Issuer::new(&[&key]), StrictBackend::start());
    let (url, back) = (issuer.url(), backend.port());
    let folder = TempDir::new();
    let (engine, port) = run(
        &folder,
        &format!(
            "  auth:\n    staff: {{ jwt: {{ issuer: \"{url}\", audience: shop, plan: tier }} }}\n\
             \x20   open: {{ jwt: {{ issuer: \"{url}\", audience: shop }}, pass: true }}\n"
        ),
        &format!(
            "flow: plain\nfrom: {{ http: any /plain }}\nauth: staff\n\
             steps: [ forward: http://127.0.0.1:{back}/ ]\n---\n\
             flow: passed\nfrom: {{ http: any /passed }}\nauth: open\n\
             steps: [ forward: http://127.0.0.1:{back}/ ]\n---\n\
             flow: message\nfrom: {{ http: any /message }}\nauth: staff\n\
             steps: [ set: {{ a: 1 }}, forward: http://127.0.0.1:{back}/ ]\n---\n\
             flow: who\nfrom: {{ http: GET /who }}\nauth: staff\n\
             steps: [ map: \"{{ auth: $auth, seen: $headers.authorization }}\" ]\n---\n\
             flow: asked\nfrom: {{ http: \"GET /t/{{tenant}}\" }}\n\
             auth:\n  any: [staff]\n  scopes: [read]\n\
             \x20 require: $auth.claims.tenant == $path.tenant\n\
             steps: [ reply: {{ body: in }} ]\n---\n\
             flow: open\nfrom: {{ http: GET /open }}\nauth: none\n\
             steps: [ map: \"{{ who: $auth }}\" ]\n"
        ),
    );
    let claims = json!({ "scope": "read write", "tenant": "acme", "tier": "gold" });
    let token = key.token(&url, claims);
    for (path, field) in [
        ("/plain", None),
        ("/message", None),
        ("/passed", Some(&token)),
    ] {
        assert_eq!(
            ask_with(port, &format!("GET {path}"), &token).status,
            200,
            "{path}"
        );
        let seen = backend.requests().pop().unwrap();
        let expected = field.map(|token| format!("Bearer {token}"));
        assert_eq!(seen.header("Authorization"), expected.as_deref(), "{path}");
    }
    let who: Value = serde_json::from_str(&ask_with(port, "GET /who", &token).text()).unwrap();
    assert_eq!(who["auth"]["way"], "staff");
    assert_eq!(who["auth"]["id"], "ann");
    assert_eq!(who["auth"]["scopes"], json!(["read", "write"]));
    assert_eq!(who["auth"]["plan"], "gold");
    assert_eq!(who["auth"]["claims"]["tenant"], "acme");
    assert_eq!(who["seen"], Value::Null);
    assert_eq!(ask(port, "GET /open", &[]).text(), r#"{"who":null}"#);

    let nobody = ask(port, "GET /plain", &[]);
    assert_eq!(nobody.status, 401);
    assert_eq!(
        nobody.all("WWW-Authenticate"),
        [r#"Bearer realm="intertie""#]
    );
    for (name, wrong) in [
        (
            "another audience",
            key.token(&url, json!({ "aud": "other" })),
        ),
        ("expired", key.token(&url, json!({ "exp": now() - 100 }))),
        ("another issuer", key.token("http://other", json!({}))),
        ("nobody's", key.token(&url, json!({ "sub": "" }))),
        (
            "two lines",
            key.token(&url, json!({ "sub": "ann\r\nX-Role: root" })),
        ),
        (
            "C1 control",
            key.token(&url, json!({ "sub": "ann\u{9b}31m" })),
        ),
        (
            "a certificate's",
            key.token(&url, json!({ "cnf": { "x5t#S256": "a" } })),
        ),
        ("cut", token[..token.len() - 1].to_owned()),
    ] {
        let refused = ask_with(port, "GET /plain", &wrong);
        assert_eq!(refused.status, 401, "{name}");
        assert!(!refused.text().contains(name), "{name}: {}", refused.text());
    }
    // No request at all (RFC 6750, section 3.1).
    let unreadable = ask_with(port, "GET /plain", "");
    assert_eq!(unreadable.status, 400);
    let challenge = unreadable.all("WWW-Authenticate").concat();
    assert!(challenge.contains("invalid_request"), "{challenge}");
    assert_eq!(ask_with(port, "GET /t/acme", &token).text(), "in");
    assert_eq!(ask_with(port, "GET /t/evil", &token).status, 403);
    let few = key.token(&url, json!({ "scope": "write", "tenant": "acme" }));
    let refused = ask_with(port, "GET /t/acme", &few);
    assert_eq!(refused.status, 403);
    let challenge = refused.all("WWW-Authenticate").concat();
    for part in [r#"error="insufficient_scope""#, r#"scope="read""#] {
        assert!(challenge.contains(part), "{challenge}");
    }
    engine.stop();
}

#[test]
fn a_body_that_is_not_let_in_is_never_taken_for_a_request() {
    let key = Signer::new("a");
    let (issuer, backend) = (Issuer::new(&[&key]), StrictBackend::start());
    let url = issuer.url();
    let folder = TempDir::new();
    let (engine, port) = run(
        &folder,
        &format!("  auth:\n    staff: {{ jwt: {{ issuer: \"{url}\", audience: shop }} }}\n"),
        &format!(
            "flow: a\nfrom: {{ http: any /a }}\nauth: staff\n\
             steps: [ forward: http://127.0.0.1:{}/ ]\n",
            backend.port()
        ),
    );
    // The body is a request with a good token: it must not be served.
    let token = key.token(&url, json!({}));
    let inner = format!("GET /a HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer {token}\r\n\r\n");
    let (first, rest) = inner.split_at(20);
    let mut client = RawClient::connect(port);
    client.send(format!(
        "POST /a HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{first}",
        inner.len()
    ));
    assert_eq!(client.response().status, 401);
    client.send(rest);
    assert!(client.is_closed());
    // One whose body is all there stays in step.
    let mut client = RawClient::connect(port);
    client.send(format!(
        "POST /a HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{inner}{inner}",
        inner.len()
    ));
    assert_eq!(client.response().status, 401);
    assert_eq!(client.response().status, 200);
    assert_eq!(backend.requests().len(), 1);
    engine.stop();
}

#[test]
fn keys_come_and_go_with_their_issuer() {
    let (first, second) = (Signer::new("1"), Signer::new("2"));
    let issuer = Issuer::new(&[]);
    let url = issuer.url();
    let folder = TempDir::new();
    let (engine, port) = run(
        &folder,
        &format!("  auth:\n    staff: {{ jwt: {{ issuer: \"{url}\", audience: shop }} }}\n"),
        "flow: a\nfrom: { http: any /a }\nauth: staff\nsteps: [ reply: { body: in } ]\n",
    );
    let (one, two) = (first.token(&url, json!({})), second.token(&url, json!({})));
    let status = |token: &str| ask_with(port, "GET /a", token).status;
    // Nobody can tell who calls.
    let refused = ask_with(port, "GET /a", &one);
    assert_eq!(refused.status, 503);
    assert!(refused.header("Retry-After").is_some());
    issuer.publish(&[&first]);
    wait_until("the keys are there", || status(&one) == 200);
    assert_eq!(status(&two), 401);
    issuer.publish(&[&first, &second]);
    // Tokens cause at most one fetch in five seconds, however many there are.
    let before = issuer.asked();
    wait_until("the new key is there", || status(&two) == 200);
    assert!(issuer.asked() <= before + 2, "{} {before}", issuer.asked());
    assert_eq!(status(&one), 200);
    let measured = engine.get("/metrics").text();
    assert!(measured.contains("intertie_auth_keys"), "{measured}");
    engine.stop();
}

#[test]
fn api_keys_act_within_a_second_and_stand_in_no_log() {
    let backend = StrictBackend::start();
    let folder = TempDir::new();
    let made = |id: &str| access::api_keys::ApiKey::generate(id, now()).unwrap();
    let ((shop, shop_line), (desk, desk_line)) = (made("shop"), made("desk"));
    folder.write("partners.keys", &shop_line.to_line());
    let (engine, port) = run(
        &folder,
        "  log: { access: true }\n  auth:\n    partners: { api_key: { keys: partners.keys } }\n\
         \x20   links: { api_key: { query: key, keys: partners.keys } }\n",
        &format!(
            "flow: a\nfrom: {{ http: any /a/* }}\nauth: {{ any: [partners, links] }}\n\
             steps: [ forward: http://127.0.0.1:{}/ ]\n",
            backend.port()
        ),
    );
    let by_field = |key: &str| ask(port, "GET /a/b?x=1", &[("x-api-KEY", key)]).status;
    assert_eq!((by_field(&shop), by_field(&desk)), (200, 401));
    assert_eq!(backend.requests()[0].header("X-Api-Key"), None);
    let target = format!("GET /a/b?x=1&k%65y={shop}&y");
    assert_eq!(ask(port, &target, &[]).status, 200);
    assert_eq!(backend.requests()[1].target, "/b?x=1&y");
    // Two are none, even if they are the same.
    let both = ask(
        port,
        &format!("GET /a/b?key={shop}"),
        &[("X-Api-Key", &shop)],
    );
    assert_eq!(both.status, 400);
    // A file that cannot be used changes nothing.
    folder.write("partners.keys", "what\n");
    wait_until("the problem is told", || {
        engine.process.output().contains("cannot be used")
    });
    assert_eq!(by_field(&shop), 200);
    folder.write("partners.keys", &desk_line.to_line());
    wait_until("the other key opens", || by_field(&desk) == 200);
    // Or 429, for many have been wrong by now.
    assert!(matches!(by_field(&shop), 401 | 429));
    let told = engine.stop();
    assert!(!told.contains(&shop) && !told.contains(&desk), "{told}");
    assert!(told.contains("key=***"), "{told}");
}

/// A WebSocket connection through the engine, a conversation with a flow and a forwarded event
/// stream end when the credential does, and not before.
#[test]
fn streams_end_with_their_credential() {
    let key = Signer::new("a");
    let issuer = Issuer::new(&[&key]);
    let url = issuer.url();
    let back = testkit::ScriptedBackend::start(vec![vec![
        testkit::Action::ReadRequest,
        testkit::Action::Send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n".to_vec(),
        ),
        testkit::Action::Stall,
    ]]);
    let folder = TempDir::new();
    let (engine, port) = run(
        &folder,
        &format!(
            "  auth:\n    staff: {{ jwt: {{ issuer: \"{url}\", audience: shop, clock_skew: 1s }} }}\n"
        ),
        &format!(
            "flow: events\nfrom: {{ http: GET /events }}\nauth: staff\n\
             steps: [ forward: http://127.0.0.1:{}/ ]\n---\n\
             flow: talk\nfrom: {{ websocket: {{ path: /talk }} }}\nauth: staff\n\
             steps: [ map: $auth.id, encode: json ]\n",
            back.port()
        ),
    );
    let end = now() + 3;
    let token = key.token(&url, json!({ "exp": end - 1 }));
    let (_, value) = bearer(&token);
    let mut events = RawClient::connect(port);
    events.send(format!(
        "GET /events HTTP/1.1\r\nHost: a\r\nAuthorization: {value}\r\n\r\n"
    ));
    events.until(b"data: 1\n\n");
    let mut talk = RawClient::connect(port);
    talk.send(format!(
        "GET /talk HTTP/1.1\r\nHost: a\r\nAuthorization: {value}\r\nConnection: Upgrade\r\n\
         Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    ));
    let head = talk.until(b"\r\n\r\n");
    assert!(
        head.starts_with(b"HTTP/1.1 101"),
        "{}",
        String::from_utf8_lossy(&head)
    );
    // A text frame `hi`, masked with zeros.
    talk.send([0x81, 0x82, 0, 0, 0, 0, b'h', b'i']);
    assert_eq!(talk.exactly(7), b"\x81\x05\"ann\"");
    // Policy violation (RFC 6455, section 7.4.1).
    let close = talk.exactly(4);
    assert_eq!(&close[2..], 1008_u16.to_be_bytes());
    assert!(now() >= end);
    let rest = String::from_utf8(events.until(b"\r\n0\r\n\r\n")).unwrap();
    assert!(rest.contains("event: expired\ndata: {"), "{rest:?}");
    engine.stop();
}

#[test]
fn who_sends_wrong_tokens_is_not_checked_for_a_while() {
    let (key, other) = (Signer::new("a"), Signer::new("a"));
    let issuer = Issuer::new(&[&key]);
    let url = issuer.url();
    let folder = TempDir::new();
    let made = access::api_keys::ApiKey::generate("shop", now()).unwrap();
    folder.write("partners.keys", &made.1.to_line());
    let (engine, port) = run(
        &folder,
        &format!(
            "  auth:\n    staff: {{ jwt: {{ issuer: \"{url}\", audience: shop }} }}\n\
             \x20   partners: {{ api_key: {{ keys: partners.keys }} }}\n"
        ),
        "flow: a\nfrom: { http: any /a }\nauth: { any: [staff, partners] }\n\
         steps: [ reply: { body: in } ]\n",
    );
    let known = key.token(&url, json!({}));
    wait_until("the keys are there", || {
        ask_with(port, "GET /a", &known).status == 200
    });
    // Expired tokens are no guesses.
    let expired = key.token(&url, json!({ "exp": now() - 100 }));
    for _ in 0..30 {
        assert_eq!(ask_with(port, "GET /a", &expired).status, 401);
    }
    let statuses: Vec<u16> = (0..30)
        .map(|_| ask_with(port, "GET /a", &other.token(&url, json!({}))).status)
        .collect();
    assert!(statuses[..20].iter().all(|it| *it == 401), "{statuses:?}");
    assert!(statuses[25..].contains(&429), "{statuses:?}");
    let limited = ask_with(port, "GET /a", &other.token(&url, json!({})));
    if limited.status == 429 {
        assert!(limited.header("Retry-After").is_some());
    }
    // Who is known, or shows the right key, comes in from there all the same. Either worker may be
    // the one that knows the token.
    let statuses: Vec<u16> = (0..10)
        .map(|_| ask_with(port, "GET /a", &known).status)
        .collect();
    assert!(statuses.contains(&200), "{statuses:?}");
    assert_eq!(ask(port, "GET /a", &[("X-Api-Key", &made.0)]).status, 200);
    let measured = engine.get("/metrics").text();
    assert!(
        measured.contains("intertie_auth_limited_total"),
        "{measured}"
    );
    engine.stop();
}

#[test]
fn passwords_are_checked_beside_the_workers_and_remembered() {
    let folder = TempDir::new();
    let ann = access::basic::User::new("ann", b"a long password").unwrap();
    folder.write("users", &format!("{}\n", ann.to_line()));
    let (engine, port) = run(
        &folder,
        "  auth:\n    people: { basic: { users: users } }\n",
        "flow: a\nfrom: { http: any /a }\nauth: people\n\
         steps: [ map: \"{ id: $auth.id, seen: $headers.authorization }\" ]\n",
    );
    let with = |pair: &str| {
        let value = format!("Basic {}", base64ct::Base64::encode_string(pair.as_bytes()));
        ask(port, "GET /a", &[("Authorization", &value)])
    };
    let nobody = ask(port, "GET /a", &[]);
    assert_eq!(nobody.status, 401);
    let challenge = r#"Basic realm="intertie", charset="UTF-8""#;
    assert_eq!(nobody.all("WWW-Authenticate"), [challenge]);
    for _ in 0..40 {
        let known = with("ann:a long password");
        assert_eq!(known.text(), r#"{"id":"ann","seen":null}"#);
    }
    let checks = engine.measured("intertie_auth_password_checks_total", &[]);
    assert_eq!(checks, Some(1.0));
    for wrong in ["ann:other password", "bob:a long password", "ann:"] {
        assert_eq!(with(wrong).status, 401, "{wrong}");
    }
    assert_eq!(with("no colon").status, 401);
    // Whoever tries many is not checked any more; whoever is known comes in.
    let statuses: Vec<u16> = (0..30)
        .map(|it| with(&format!("ann:{it}")).status)
        .collect();
    assert!(statuses.contains(&429), "{statuses:?}");
    assert_eq!(with("ann:a long password").status, 200);
    engine.stop();
}
