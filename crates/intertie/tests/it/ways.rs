//! Ways to know a caller that go by the body or ask somebody: signed bodies, token introspection, a
//! service that decides. Over HTTP/1.1 and HTTP/2, on two workers, over reloads.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::hmac;
use testkit::http2::{frame, hpack};
use testkit::{
    Action, RawClient, Received, ScriptedBackend, StrictBackend, TempDir, free_port, wait_until,
};

use crate::support::Engine;

const SECRET: &str = "a secret that both share";

/// A reply as a test sees it, whatever the protocol.
#[derive(Debug, PartialEq, Eq)]
pub struct Got {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Got {
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut same = self
            .fields
            .iter()
            .filter(|it| it.0.eq_ignore_ascii_case(name));
        same.next().map(|(_, value)| value.as_str())
    }
}

/// The version of HTTP that a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    Http1,
    Http2,
}

pub const BOTH: [Version; 2] = [Version::Http1, Version::Http2];

impl Version {
    /// Sends a request on a connection of its own. Without a body that it announces by
    /// `content-length`, none is sent.
    fn send(
        self,
        port: u16,
        (method, path): (&str, &str),
        fields: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> RawClient {
        let mut client = RawClient::connect(port);
        let length = body.map(|it| it.len().to_string());
        let length = length.as_deref().map(|it| ("content-length", it));
        let fields = fields.iter().copied().chain(length);
        match self {
            Self::Http1 => {
                let mut text = format!("{method} {path} HTTP/1.1\r\nHost: shop.example\r\n");
                for (name, value) in fields {
                    text += &format!("{name}: {value}\r\n");
                }
                text += "\r\n";
                client.send([text.as_bytes(), body.unwrap_or_default()].concat());
            }
            Self::Http2 => {
                let head = [
                    (":method", method),
                    (":scheme", "http"),
                    (":authority", "shop.example"),
                    (":path", path),
                ];
                let is_whole = fields.clone().all(|it| it.0 != "content-length");
                let lower: Vec<_> = fields.map(|it| (it.0.to_lowercase(), it.1)).collect();
                let lower = lower.iter().map(|(name, value)| (name.as_str(), *value));
                let block = hpack::encode(head.into_iter().chain(lower));
                let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
                bytes.extend(frame(4, 0, 0, &[]));
                bytes.extend(frame(1, if is_whole { 5 } else { 4 }, 1, &block));
                if let Some(body) = body {
                    bytes.extend(frame(0, 1, 1, body));
                }
                client.send(bytes);
            }
        }
        client
    }

    fn receive(self, client: &mut RawClient) -> Got {
        if self == Self::Http1 {
            let response = client.response();
            return Got {
                status: response.status,
                fields: response.headers.clone(),
                body: response.body.clone(),
            };
        }
        let (mut decoder, mut got) = (hpack::Decoder::default(), None);
        loop {
            let head = client.exactly(9);
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let payload = client.exactly(length as usize);
            match (head[3], &mut got) {
                (4, _) if head[4] == 0 => client.send(frame(4, 1, 0, &[])),
                (1, _) => {
                    let fields = decoder.decode(&payload).unwrap();
                    got = Some(Got {
                        status: fields[0].1.parse().unwrap(),
                        fields,
                        body: Vec::new(),
                    });
                }
                (0, Some(got)) => got.body.extend(payload),
                (3 | 7, _) => panic!("{head:?} {payload:?}"),
                _ => {}
            }
            if head[3] <= 1 && head[4] & 1 == 1 {
                return got.unwrap();
            }
        }
    }

    pub fn ask(
        self,
        port: u16,
        target: (&str, &str),
        fields: &[(&str, &str)],
        body: Option<&[u8]>,
    ) -> Got {
        self.receive(&mut self.send(port, target, fields, body))
    }
}

/// Asks until the request that came before is no more under way: its client may know the answer
/// before the engine is done with it.
fn after(ask: impl Fn() -> Got) -> Got {
    let got = Mutex::new(None);
    wait_until("the request before has ended", || {
        let now = ask();
        let has_ended = now.status != 409;
        *got.lock().unwrap() = Some(now);
        has_ended
    });
    got.into_inner().unwrap().unwrap()
}

fn sign(text: &[u8]) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    let tag = hmac::sign(&key, text);
    tag.as_ref().iter().map(|it| format!("{it:02x}")).collect()
}

fn github(body: &[u8]) -> String {
    format!("sha256={}", sign(body))
}

fn stripe(body: &[u8], time: u64) -> String {
    let text = [format!("{time}.").as_bytes(), body].concat();
    format!("t={time},v1={}", sign(&text))
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_secs()
}

fn run(folder: &TempDir, text: &str) -> Engine {
    folder.write("flows/flow.yaml", text);
    Engine::run(&[&folder.path().join("flows")], &[])
}

fn reload(engine: &Engine, folder: &TempDir, text: &str) {
    let count = || engine.process.output().matches("\"reloaded\"").count();
    let before = count();
    folder.write("flows/flow.yaml", text);
    engine.process.signal("HUP");
    wait_until("it has reloaded", || count() > before);
}

fn measure(engine: &Engine, name: &str) -> f64 {
    let value = engine.measured(&format!("intertie_{name}"), &[]);
    value.unwrap_or_default()
}

fn reply(status: &str, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{fields}\r\n{body}").into_bytes()
}

fn signed_flows(port: u16, backend: u16) -> String {
    format!(
        r#"
engine:
  listen: "127.0.0.1:{port}"
  auth:
    github: {{ hmac: {{ scheme: github, secret: {SECRET} }} }}
    stripe: {{ hmac: {{ scheme: stripe, secret: [{SECRET}, another that is not used yet] }} }}
---
flow: on
from: {{ http: {{ method: POST, path: /on/*, body_max: 1000B, protocols: [h2, http/1.1] }} }}
auth: github
steps: [ {{ forward: "http://127.0.0.1:{backend}/in" }} ]
---
flow: mapped
from: {{ http: {{ method: POST, path: /mapped, body_max: 1000B, protocols: [h2, http/1.1] }} }}
auth: {{ any: [stripe, github], require: '$auth.claims.scheme == "stripe"' }}
steps:
  - map: "{{ id: $auth.id, at: $auth.claims.timestamp, got: . }}"
---
flow: limited
from: {{ http: {{ method: POST, path: /limited, protocols: [h2, http/1.1] }} }}
auth: github
limits: {{ throttle: [ {{ by: "${{ $auth.id }}", requests: 2, per: 1h }} ], headers: true }}
steps: [ {{ reply: {{ status: 204 }} }} ]
---
topic: events
durability: memory
keep: {{ events: 10 }}
publish: {{ http: {{ method: POST, path: /events, protocols: [h2, http/1.1] }}, auth: stripe }}
"#
    )
}

#[test]
fn signed_bodies_come_in_as_they_were_sent() {
    let backend = StrictBackend::start();
    let (folder, port) = (TempDir::new(), free_port());
    let engine = run(&folder, &signed_flows(port, backend.port()));
    for (number, version) in BOTH.into_iter().enumerate() {
        // Bytes that no step would write so.
        let body = format!("{{ \"a\" : 1.0,\t\"é\": [{number}] }}\n").into_bytes();
        let tag = github(&body);
        let fields = [
            ("X-Hub-Signature-256", tag.as_str()),
            ("X-GitHub-Event", "push"),
        ];
        let got = version.ask(port, ("POST", "/on/a%20b?c=d"), &fields, Some(&body));
        assert_eq!((got.status, &got.body), (200, &body), "{version:?}");
        let seen = backend.requests().pop().unwrap();
        assert_eq!((seen.target.as_str(), &seen.body), ("/in/a%20b?c=d", &body));
        assert_eq!(seen.header("X-Hub-Signature-256"), Some(tag.as_str()));
        // A repetition is acknowledged and goes no further.
        let before = backend.requests().len();
        let ask = || version.ask(port, ("POST", "/on/a%20b?c=d"), &fields, Some(&body));
        let again = after(ask);
        assert_eq!((again.status, again.body.len()), (200, 0), "{version:?}");
        let other = version.ask(port, ("POST", "/on/"), &fields, Some(b"{}"));
        assert_eq!(other.status, 401, "{version:?}");
        assert_eq!(backend.requests().len(), before);

        let body = format!("{{\"n\": {number}}}").into_bytes();
        let time = now();
        let tag = stripe(&body, time);
        let fields = [
            ("Stripe-Signature", tag.as_str()),
            ("Content-Type", "application/json"),
        ];
        let got = version.ask(port, ("POST", "/mapped"), &fields, Some(&body));
        let text = String::from_utf8(got.body).unwrap();
        let expected = format!(r#"{{"id":"stripe","at":{time},"got":{{"n":{number}}}}}"#);
        assert_eq!((got.status, text), (200, expected));
        // Another way of the same door, which its condition does not take.
        let tag = github(b"{}");
        let fields = [("X-Hub-Signature-256", tag.as_str())];
        let got = version.ask(port, ("POST", "/mapped"), &fields, Some(b"{}"));
        assert_eq!(got.status, 403);
        let body = format!("[{number}, 2]").into_bytes();
        let tag = stripe(&body, now());
        let fields = [
            ("Stripe-Signature", tag.as_str()),
            ("Content-Type", "application/json"),
        ];
        let got = version.ask(port, ("POST", "/events"), &fields, Some(&body));
        assert_eq!(got.status, 200, "{got:?}");
        let got = version.ask(port, ("POST", "/events"), &fields[1..], Some(b"[]"));
        assert_eq!(got.status, 401);
    }
    // In chunks, its end not known before.
    let body = b"0123456789";
    let mut client = RawClient::connect(port);
    client.send(format!(
        "POST /on/ HTTP/1.1\r\nHost: a\r\nX-Hub-Signature-256: {}\r\n\
         Transfer-Encoding: chunked\r\n\r\n3\r\n012\r\n7\r\n3456789\r\n0\r\n\r\n",
        github(body)
    ));
    assert_eq!(client.response().body, body);
    assert!(measure(&engine, "auth_repeated_requests_total") >= 2.0);
    assert!(
        backend.violations().is_empty(),
        "{:?}",
        backend.violations()
    );
    engine.stop();
}

#[test]
fn what_the_head_shows_is_refused_before_the_body_is_read() {
    let backend = StrictBackend::start();
    let (folder, port) = (TempDir::new(), free_port());
    let engine = run(&folder, &signed_flows(port, backend.port()));
    let tag = github(b"x");
    let old = stripe(b"x", now() - 1000);
    for version in BOTH {
        let head = |path, fields: &[(&str, &str)], expected| {
            // The body that the head announces never comes.
            let length = [("content-length", "100")];
            let fields = [fields, &length].concat();
            let got = version.ask(port, ("POST", path), &fields, None);
            assert_eq!(got.status, expected, "{version:?} {path} {fields:?}");
            got
        };
        let unknown = head("/on/", &[], 401);
        assert_eq!(
            unknown.field("www-authenticate"),
            Some(r#"HMAC realm="intertie", header="x-hub-signature-256""#)
        );
        head("/on/", &[("X-Hub-Signature-256", "sha256=00")], 401);
        head("/mapped", &[("Stripe-Signature", &old)], 401);
        head("/events", &[("Stripe-Signature", &old)], 401);
        let two = [("X-Hub-Signature-256", &*tag), ("Stripe-Signature", &*old)];
        head("/mapped", &two, 400);
        let large = [("X-Hub-Signature-256", &*tag), ("content-length", "1001")];
        let got = version.ask(port, ("POST", "/on/"), &large, None);
        assert_eq!(got.status, 413, "{version:?}");
        // A client that goes away in the middle of its body leaves nothing behind.
        let half = [("X-Hub-Signature-256", &*tag), ("content-length", "100")];
        drop(version.send(port, ("POST", "/on/"), &half, None));
    }
    assert_eq!(measure(&engine, "auth_remembered_requests"), 0.0);
    assert!(backend.requests().is_empty());
    engine.stop();
}

#[test]
fn a_signed_request_is_taken_once_by_all_workers_unless_it_fails() {
    let fails = Arc::new(Mutex::new(true));
    let failing = Arc::clone(&fails);
    let backend = StrictBackend::answering(move |_| match *failing.lock().unwrap() {
        true => reply("500 Internal Server Error", "", ""),
        false => reply("200 OK", "", "done"),
    });
    let (folder, port) = (TempDir::new(), free_port());
    let text = signed_flows(port, backend.port());
    let engine = run(&folder, &text);
    let tag = github(b"{}");
    let send = |version: Version| {
        let fields = [("X-Hub-Signature-256", tag.as_str())];
        let got = after(|| version.ask(port, ("POST", "/on/"), &fields, Some(b"{}")));
        (got.status, got.body.len())
    };
    for version in [BOTH, BOTH].concat() {
        assert_eq!(send(version), (500, 0));
    }
    assert_eq!(backend.requests().len(), 4, "its sender may repeat it");
    *fails.lock().unwrap() = false;
    assert_eq!(send(Version::Http2), (200, 4));
    // Connections that the kernel gives to both workers.
    for version in [BOTH; 8].concat() {
        assert_eq!(send(version), (200, 0));
    }
    reload(&engine, &folder, &text.replace("not used yet", "used soon"));
    assert_eq!(send(Version::Http1), (200, 0));
    assert_eq!(backend.requests().len(), 5);
    engine.stop();
}

#[test]
fn limits_count_whoever_has_signed_and_nobody_else() {
    let (folder, port) = (TempDir::new(), free_port());
    let engine = run(&folder, &signed_flows(port, free_port()));
    let send = |version: Version, signed: &str, body: &str| {
        let tag = github(signed.as_bytes());
        let fields = [("X-Hub-Signature-256", tag.as_str())];
        let body = Some(body.as_bytes());
        version.ask(port, ("POST", "/limited"), &fields, body)
    };
    for version in [BOTH; 3].concat() {
        assert_eq!(send(version, "{}", "forged").status, 401);
    }
    for (version, body) in BOTH.into_iter().zip(["1", "2"]) {
        let got = send(version, body, body);
        assert_eq!(got.status, 204, "{version:?}");
        assert!(got.field("ratelimit").is_some(), "{got:?}");
    }
    for version in BOTH {
        let got = send(version, "3", "3");
        assert_eq!(got.status, 429, "{version:?}");
        assert!(got.field("retry-after").is_some(), "{got:?}");
    }
    // What was turned away is not remembered; what was taken is.
    assert_eq!(measure(&engine, "auth_remembered_requests"), 2.0);
    engine.stop();
}

/// A gate that back ends wait at.
#[derive(Clone, Default)]
struct Held(Arc<(Mutex<bool>, Condvar)>);

impl Held {
    fn wait(&self) {
        let (open, changed) = &*self.0;
        let guard = open.lock().unwrap();
        drop(changed.wait_while(guard, |open| !*open).unwrap());
    }

    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }
}

fn opaque_flows(port: u16, issuer: u16, backend: u16, more: &str) -> String {
    format!(
        r#"
engine:
  listen: "127.0.0.1:{port}"
  auth:
    opaque:
      introspect:
        url: "http://127.0.0.1:{issuer}/introspect"
        client_id: me
        client_secret: secret
        check: 1h{more}
---
flow: on
from: {{ http: {{ method: GET, path: /on, protocols: [h2, http/1.1] }} }}
auth: {{ any: [opaque], scopes: [read] }}
steps: [ {{ forward: "http://127.0.0.1:{backend}/in" }} ]
"#
    )
}

/// An issuer that knows `good…`, and `poor…` without scopes.
fn issuer(request: &Received) -> Vec<u8> {
    let body = String::from_utf8(request.body.clone()).unwrap();
    let answer = match &body[..10] {
        "token=good" => r#"{"active":true,"sub":"ann","scope":"read write"}"#,
        "token=poor" => r#"{"active":true,"sub":"bob"}"#,
        "token=odd1" => r#"{"active":"true","sub":"ann","scope":"read"}"#,
        "token=odd2" => "<html>",
        _ => r#"{"active":false}"#,
    };
    reply("200 OK", "Content-Type: application/json\r\n", answer)
}

fn bearer(version: Version, port: u16, token: &str) -> Got {
    let token = format!("Bearer {token}");
    version.ask(port, ("GET", "/on"), &[("Authorization", &token)], None)
}

#[test]
fn a_token_is_asked_about_once_for_all_workers() {
    let held = Held::default();
    let gate = held.clone();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let server = StrictBackend::answering(move |request| {
        count.fetch_add(1, Ordering::SeqCst);
        if request.body.starts_with(b"token=good1") {
            gate.wait();
        }
        issuer(request)
    });
    let backend = StrictBackend::start();
    let (folder, port) = (TempDir::new(), free_port());
    let text = opaque_flows(port, server.port(), backend.port(), "");
    let engine = run(&folder, &text);
    // One who does not wait for the answer, and many who do.
    let fields = [("Authorization", "Bearer good1")];
    let early = Version::Http1.send(port, ("GET", "/on"), &fields, None);
    wait_until("the issuer is asked", || asked.load(Ordering::SeqCst) == 1);
    drop(early);
    let waiting: Vec<_> = [BOTH; 6]
        .concat()
        .into_iter()
        .map(|version| thread::spawn(move || bearer(version, port, "good1").status))
        .collect();
    // Those with other tokens need not wait for that one.
    assert_eq!(bearer(Version::Http1, port, "good2").status, 200);
    held.open();
    for waits in waiting {
        assert_eq!(waits.join().unwrap(), 200);
    }
    assert_eq!(server.requests().len(), 2);
    reload(&engine, &folder, &text.replace("[read]", "[read, write]"));
    for version in [BOTH; 4].concat() {
        assert_eq!(bearer(version, port, "good1").status, 200);
    }
    assert_eq!(server.requests().len(), 2, "kept over the reload");
    let asked = &server.requests()[0];
    assert_eq!(asked.header("Authorization"), Some("Basic bWU6c2VjcmV0"));
    assert_eq!(
        asked.body,
        b"token=good2&token_type_hint=access_token".to_vec()
    );
    let seen = backend.requests();
    assert!(seen.iter().all(|it| it.header("Authorization").is_none()));
    assert_eq!(measure(&engine, "auth_asks_total"), 2.0);
    assert!(measure(&engine, "auth_answer_hits_total") >= 8.0);
    assert!(server.violations().is_empty(), "{:?}", server.violations());
    engine.stop();
}

#[test]
fn tokens_that_are_not_active_and_issuers_that_do_not_answer_let_nobody_in() {
    let server = StrictBackend::answering(issuer);
    let backend = StrictBackend::start();
    let (folder, port) = (TempDir::new(), free_port());
    let text = opaque_flows(port, server.port(), backend.port(), "");
    let engine = run(&folder, &text);
    for version in BOTH {
        let unknown = version.ask(port, ("GET", "/on"), &[], None);
        assert_eq!(unknown.status, 401);
        let bad = bearer(version, port, "bad");
        assert_eq!(bad.status, 401);
        assert_eq!(
            bad.field("www-authenticate"),
            Some(concat!(
                r#"Bearer realm="intertie", error="invalid_token", "#,
                r#"error_description="The token is not valid""#
            ))
        );
        let poor = bearer(version, port, "poor");
        assert_eq!(poor.status, 403);
        assert_eq!(
            poor.field("www-authenticate"),
            Some(concat!(
                r#"Bearer realm="intertie", error="insufficient_scope", error_description="#,
                r#""The token does not have the scopes that are needed", scope="read""#
            ))
        );
        for token in ["odd1", "odd2"] {
            let odd = bearer(version, port, token);
            assert_eq!(odd.status, 503, "{token}");
            assert!(odd.field("retry-after").is_some());
        }
    }
    assert_eq!(server.requests().len(), 6, "a failure is not kept, a no is");
    assert!(backend.requests().is_empty());
    assert_eq!(measure(&engine, "auth_asks_failed_total"), 4.0);
    // One that breaks off, one that stalls, one that is not there.
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{\"active\":true,".to_vec();
    let cut = vec![
        Action::ReadRequest,
        Action::Send(head.clone()),
        Action::Close,
    ];
    let stalls = vec![Action::ReadRequest, Action::Send(head), Action::Stall];
    for script in [cut, stalls] {
        let rude = ScriptedBackend::start(vec![script]);
        let other = opaque_flows(port, rude.port(), backend.port(), ", timeout: 300ms");
        let other = other.replace("1h, timeout: 300ms", "1h\n        timeout: 300ms");
        reload(&engine, &folder, &other);
        for version in BOTH {
            assert_eq!(bearer(version, port, "good").status, 503, "{version:?}");
        }
    }
    let nobody = opaque_flows(port, free_port(), backend.port(), "");
    reload(&engine, &folder, &nobody);
    assert_eq!(bearer(Version::Http1, port, "good").status, 503);
    // The answers of the first are not forgotten as long as its way is used, and are now.
    reload(&engine, &folder, &text);
    assert_eq!(bearer(Version::Http2, port, "good").status, 200);
    engine.stop();
}

fn asking_flows(port: u16, service: u16, backend: u16, more: &str) -> String {
    format!(
        r#"
engine:
  listen: "127.0.0.1:{port}"
  auth:
    sso: {{ ask: {{ url: "http://127.0.0.1:{service}/check", scopes: X-Scopes{more} }} }}
---
flow: on
from: {{ http: {{ method: any, path: /on/*, protocols: [h2, http/1.1] }} }}
auth: sso
steps: [ {{ forward: "http://127.0.0.1:{backend}/in" }} ]
---
flow: who
from: {{ http: {{ method: GET, path: /who, protocols: [h2, http/1.1] }} }}
auth: {{ any: [sso], scopes: [read] }}
steps: [ {{ reply: {{ body: "${{ $auth }}" }} }} ]
"#
    )
}

#[test]
fn a_service_decides_by_the_head() {
    let asks = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asks);
    let service = StrictBackend::answering(move |request| {
        count.fetch_add(1, Ordering::SeqCst);
        match request.header("Cookie") {
            Some("right") => reply(
                "202 Accepted",
                "X-Auth-Request-User: ann\r\nX-Scopes: read,write\r\n",
                "",
            ),
            Some(_) => reply("403 Forbidden", "Set-Cookie: a=b\r\n", "not you"),
            None => reply("401 Unauthorized", "WWW-Authenticate: Negotiate\r\n", ""),
        }
    });
    let backend = StrictBackend::start();
    let (folder, port) = (TempDir::new(), free_port());
    let text = asking_flows(port, service.port(), backend.port(), "");
    let engine = run(&folder, &text);
    for version in BOTH {
        let forged = [("Cookie", "right"), ("X-Forwarded-Uri", "/forged")];
        let body = b"body".as_slice();
        let got = version.ask(port, ("PUT", "/on/%61%20b?a=b"), &forged, Some(body));
        let (target, status) = match got.status {
            200 => (backend.requests().pop().unwrap(), 200),
            other => panic!("{other}"),
        };
        assert_eq!((status, target.body.as_slice()), (200, body));
        assert_eq!(target.header("Cookie"), Some("right"));
        let got = version.ask(port, ("GET", "/who"), &[("Cookie", "right")], None);
        assert_eq!(
            String::from_utf8(got.body).unwrap(),
            r#"{"way":"sso","id":"ann","scopes":["read","write"],"plan":null,"claims":{}}"#
        );
        let got = version.ask(port, ("GET", "/who"), &[], None);
        assert_eq!(got.status, 401);
        assert_eq!(got.field("www-authenticate"), Some("Negotiate"));
        let got = version.ask(port, ("GET", "/who"), &[("Cookie", "wrong")], None);
        assert_eq!((got.status, got.body), (403, b"not you".to_vec()));
    }
    let asked = service.requests();
    assert_eq!(asked.len(), 4, "what is known is not asked again");
    let field = |name| asked[0].all(name);
    assert_eq!(field("X-Forwarded-Method"), ["PUT"]);
    assert_eq!(field("X-Forwarded-Host"), ["shop.example"]);
    assert_eq!(field("X-Forwarded-Proto"), ["http"]);
    assert_eq!(field("X-Forwarded-For"), ["127.0.0.1"]);
    assert_eq!(field("X-Forwarded-Uri"), field("X-Original-URI"));
    assert_eq!(field("X-Original-URI").len(), 1);
    assert!(!field("X-Original-URI")[0].contains("forged"));
    assert!(asked.iter().all(|it| it.body.is_empty()));
    // What the service was told is what the back end gets.
    let uri = field("X-Original-URI")[0].to_owned();
    let seen = backend.requests()[0].target.clone();
    assert_eq!(uri.strip_prefix("/on"), seen.strip_prefix("/in"));
    reload(&engine, &folder, &text.replace("[read]", "[admin]"));
    let got = Version::Http2.ask(port, ("GET", "/who"), &[("Cookie", "right")], None);
    assert_eq!(got.status, 403);
    assert_eq!(asks.load(Ordering::SeqCst), 4);
    assert!(
        service.violations().is_empty(),
        "{:?}",
        service.violations()
    );
    engine.stop();
}

#[test]
fn a_service_that_does_not_decide_lets_nobody_in_unless_the_file_says_so() {
    let backend = StrictBackend::start();
    let (folder, port) = (TempDir::new(), free_port());
    let script = |actions: &[Action]| {
        let all = [&[Action::ReadRequest], actions].concat();
        ScriptedBackend::start(vec![all])
    };
    let moved = b"HTTP/1.1 302 Found\r\nLocation: https://sso.example/\r\nSet-Cookie: a=b\r\n\
                  Content-Length: 0\r\n\r\n";
    let services = [
        script(&[Action::Stall]),
        script(&[Action::Close]),
        script(&[Action::Send(b"HTTP/1.1 2".to_vec()), Action::Close]),
        script(&[Action::Send(reply("500 Oh", "", ""))]),
        script(&[Action::Send(moved.to_vec())]),
    ];
    let mut engine = None;
    for service in &services {
        for (more, expected) in [("", 503), (", fail: open", 200)] {
            let more = format!("{more}, timeout: 300ms");
            let text = asking_flows(port, service.port(), backend.port(), &more);
            match &engine {
                None => engine = Some(run(&folder, &text)),
                Some(engine) => reload(engine, &folder, &text),
            }
            for version in BOTH {
                let got = version.ask(port, ("GET", "/on/"), &[], None);
                assert_eq!(got.status, expected, "{version:?} {more}");
            }
        }
    }
    let engine = engine.unwrap();
    let redirects = &services[4];
    let text = asking_flows(port, redirects.port(), backend.port(), ", redirect: true");
    reload(&engine, &folder, &text);
    let got = Version::Http2.ask(port, ("GET", "/on/"), &[], None);
    assert_eq!(got.status, 302);
    assert_eq!(got.field("location"), Some("https://sso.example/"));
    assert_eq!(got.field("set-cookie"), None);
    engine.stop();
}
