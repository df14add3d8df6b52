//! Credentials of requests to other systems, over a running engine with two workers: what the
//! systems see, what becomes of credentials that are refused, and what outlives a restart.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::hmac::{HMAC_SHA256, Key, sign};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _,
    UnparsedPublicKey,
};
use base64ct::{Base64, Base64UrlUnpadded, Encoding as _};
use testkit::{RawClient, Received, Response, StrictBackend, TempDir, free_port, wait_until};

use crate::support::Engine;

fn reply(status: &str, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{fields}\r\n{body}").into_bytes()
}

fn token(text: &str) -> Vec<u8> {
    reply("200 OK", "Content-Type: application/json\r\n", text)
}

/// Runs one file with a data folder.
fn run(folder: &TempDir, text: &str) -> Engine {
    folder.write("flows/flow.yaml", text);
    let data = folder.path().join("data").display().to_string();
    Engine::run(&[&folder.path().join("flows")], &["--data", &data])
}

/// Sends a request with these lines and this body.
fn send(port: u16, line: &str, fields: &str, body: &str) -> Response {
    let mut client = RawClient::connect(port);
    let length = body.len();
    client.send(format!(
        "{line} HTTP/1.1\r\nHost: test\r\nContent-Length: {length}\r\n{fields}\r\n{body}"
    ));
    client.response()
}

fn get(port: u16, path: &str) -> Response {
    send(
        port,
        &format!("GET {path}"),
        "Authorization: Bearer client\r\n",
        "",
    )
}

/// The parameters of a form.
fn form(request: &Received) -> Vec<(String, String)> {
    let text = String::from_utf8(request.body.clone()).unwrap();
    let pairs = text.split('&').map(|pair| pair.split_once('=').unwrap());
    pairs
        .map(|(name, value)| {
            (
                name.to_owned(),
                value.replace("%3A", ":").replace("%2F", "/"),
            )
        })
        .collect()
}

fn parameter(form: &[(String, String)], name: &str) -> String {
    let found = form.iter().find(|(it, _)| it == name);
    found.map(|(_, value)| value.clone()).unwrap_or_default()
}

/// A system whose tokens are numbers, and that takes those above the one that is revoked.
pub fn system(revoked: &Arc<AtomicUsize>) -> StrictBackend {
    let (revoked, given) = (Arc::clone(revoked), AtomicUsize::new(0));
    StrictBackend::answering(move |request: &Received| {
        if request.target == "/token" {
            let number = given.fetch_add(1, Ordering::Relaxed) + 1;
            return token(&format!(
                "{{\"access_token\":\"{number}\",\"expires_in\":3600}}"
            ));
        }
        let sent = request.all("Authorization").join(",");
        let number = sent.replace("Bearer ", "").parse::<usize>();
        match number.is_ok_and(|number| number > revoked.load(Ordering::Relaxed)) {
            true => reply("200 OK", "", &format!("{sent} {}", request.body.len())),
            false => reply("401 Unauthorized", "", &sent),
        }
    })
}

fn count(backend: &StrictBackend, path: &str) -> usize {
    let requests = backend.requests();
    requests
        .iter()
        .filter(|it| it.target.starts_with(path))
        .count()
}

#[test]
fn forward_shows_tokens_and_renews_refused_ones_while_the_body_is_at_hand() {
    let revoked = Arc::new(AtomicUsize::new(0));
    let bank = system(&revoked);
    let (port, listen) = (bank.port(), free_port());
    let text = format!(
        "engine: {{}}\nuse:\n  bank:\n    http: \"http://127.0.0.1:{port}\"\n    auth: {{ oauth2: {{ \
         token_url: \"http://127.0.0.1:{port}/token\", client_id: me, client_secret: s3cr3t-99 }} }}\n\
         ---\nflow: plain\nfrom: {{ http: \"any 127.0.0.1:{listen}/plain\" }}\nsteps:\n  - forward: \
         bank:/a\n---\nflow: message\nfrom: {{ http: \"any 127.0.0.1:{listen}/message/{{id}}\" }}\n\
         steps:\n  - forward: \"bank:/b/${{ $path.id }}\"\n---\nflow: read\nfrom: {{ http: \"any \
         127.0.0.1:{listen}/read\" }}\nsteps:\n  - forward: bank:/c\n  - reply: {{ status: 203 }}\n"
    );
    let engine = run(&TempDir::new(), &text);
    // What the client shows to us is not shown to the bank.
    for _ in 0..6 {
        let plain = get(listen, "/plain");
        assert_eq!((plain.status, plain.text().as_str()), (200, "Bearer 1 0"));
    }
    assert_eq!(get(listen, "/message/7").text(), "Bearer 1 0");
    assert_eq!(get(listen, "/read").status, 203);
    assert_eq!(count(&bank, "/token"), 1);

    for (revoked_to, path) in [(1, "/plain"), (2, "/message/7"), (3, "/read")] {
        revoked.store(revoked_to, Ordering::Relaxed);
        // A token that comes in the place of a refused one is not doubted at once again.
        let expected = format!("Bearer {} 5", revoked_to + 1);
        wait_until("it is renewed", || {
            let renewed = send(listen, &format!("POST {path}"), "", "small");
            renewed.status < 300 && renewed.text() == expected
        });
        assert_eq!(count(&bank, "/token"), revoked_to + 1);
    }
    // A body that has gone by cannot be sent again: the client reads the refusal, and the next
    // request has another token.
    revoked.store(4, Ordering::Relaxed);
    let asked = count(&bank, "/a");
    let large = "x".repeat(1 << 20);
    assert_eq!(send(listen, "POST /plain", "", &large).status, 401);
    assert_eq!(count(&bank, "/a"), asked + 1);
    wait_until("there is another token", || {
        let next = send(listen, "POST /plain", "", &large);
        next.status == 200 && next.text() == "Bearer 5 1048576"
    });
    // Tokens that are never taken are asked for seldom, and the refusal is the reply.
    revoked.store(1000, Ordering::Relaxed);
    let before = count(&bank, "/token");
    for _ in 0..5 {
        assert_eq!(get(listen, "/plain").status, 401);
    }
    assert!(count(&bank, "/token") <= before + 3);
    assert_eq!(bank.violations(), Vec::<String>::new());
    let output = engine.stop();
    assert!(!output.contains("s3cr3t"), "{output}");
}

#[test]
fn http2_carries_the_credentials_too() {
    let revoked = Arc::new(AtomicUsize::new(0));
    let bank = system(&revoked);
    let (port, inner, listen) = (bank.port(), free_port(), free_port());
    let text = format!(
        "flow: inner\nfrom:\n  http: {{ method: any, listen: '127.0.0.1:{inner}', path: /a, protocols: [h2] }}\nsteps:\n  - forward: \
         \"http://127.0.0.1:{port}/a\"\n---\nflow: outer\nuse:\n  bank:\n    http: \
         \"http://127.0.0.1:{inner}\"\n    protocols: [h2]\n    auth: {{ oauth2: {{ token_url: \
         \"http://127.0.0.1:{port}/token\", client_id: me, client_secret: s3cr3t-99 }} }}\nfrom: {{ \
         http: \"any 127.0.0.1:{listen}/\" }}\nsteps:\n  - forward: bank:/a\n"
    );
    let engine = run(&TempDir::new(), &text);
    assert_eq!(get(listen, "/").text(), "Bearer 1 0");
    revoked.store(1, Ordering::Relaxed);
    assert_eq!(send(listen, "POST /", "", "small").text(), "Bearer 2 5");
    engine.stop();
}

#[test]
fn api_keys_take_the_place_of_what_a_client_sends() {
    let backend = StrictBackend::answering(|request: &Received| {
        let keys = request.all("X-Api-Key").join(",");
        let text = format!("{} {keys}", request.target);
        reply("200 OK", "Content-Type: text/plain\r\n", &text)
    });
    let (port, listen) = (backend.port(), free_port());
    let text = format!(
        "engine: {{}}\nuse:\n  maps:\n    http: \"http://127.0.0.1:{port}\"\n    auth: {{ api_key: {{ \
         query: key, key: \"k&1\" }} }}\n  shop:\n    http: \"http://127.0.0.1:{port}\"\n    auth: {{ \
         api_key: {{ header: X-Api-Key, key: k2 }} }}\n---\nflow: maps\nfrom: {{ http: \"any \
         127.0.0.1:{listen}/maps\" }}\nsteps:\n  - forward: \"maps:/a?b=1\"\n---\nflow: shop\nfrom: \
         {{ http: \"any 127.0.0.1:{listen}/shop\" }}\nsteps:\n  - forward: shop:/a\n---\nflow: \
         asked\nfrom: {{ http: \"any 127.0.0.1:{listen}/asked\" }}\nsteps:\n  - http: GET \
         maps:/c?d=1\n  - http: {{ to: \"shop:/${{ . }}\" }}\n"
    );
    let engine = run(&TempDir::new(), &text);
    let own = "X-Api-Key: mine\r\n";
    let maps = send(listen, "GET /maps?key=mine&c=2&k%65y=x", own, "");
    assert_eq!(maps.text(), "/a?b=1&c=2&key=k%261 mine");
    assert_eq!(
        send(listen, "GET /maps", "", "").text(),
        "/a?b=1&key=k%261 "
    );
    assert_eq!(
        send(listen, "GET /shop?key=1", own, "").text(),
        "/a?key=1 k2"
    );
    let asked = send(listen, "GET /asked", own, "").text();
    assert_eq!(asked, "/%2Fc%3Fd%3D1%26key%3Dk%25261%20 k2");
    let output = engine.stop();
    assert!(!output.contains("k%261"), "{output}");
}

/// Writes a key pair for ECDSA, and gives the public key.
fn write_key(path: &Path) -> Vec<u8> {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    let der = pair.to_pkcs8v1().unwrap();
    let text = Base64::encode_string(der.as_ref());
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n");
    std::fs::write(path, pem).unwrap();
    pair.public_key().as_ref().to_vec()
}

fn decoded(part: &str) -> serde_json::Value {
    let bytes = Base64UrlUnpadded::decode_vec(part).unwrap();
    serde_json::from_slice(&bytes).unwrap()
}

#[test]
fn a_private_key_says_who_asks_for_tokens() {
    let revoked = Arc::new(AtomicUsize::new(0));
    let bank = system(&revoked);
    let (port, listen) = (bank.port(), free_port());
    let folder = TempDir::new();
    folder.write("flows/none.txt", "");
    let public = write_key(&folder.path().join("flows/client.pem"));
    let text = format!(
        "flow: plain\nuse:\n  bank:\n    http: \"http://127.0.0.1:{port}\"\n    auth: {{ oauth2: {{ \
         token_url: \"http://127.0.0.1:{port}/token\", client_id: me, private_key: {{ file: \
         client.pem, algorithm: ES256, key_id: k1 }} }} }}\nfrom: {{ http: \"any \
         127.0.0.1:{listen}/\" }}\nsteps:\n  - forward: bank:/a\n"
    );
    let engine = run(&folder, &text);
    assert_eq!(get(listen, "/").text(), "Bearer 1 0");
    revoked.store(1, Ordering::Relaxed);
    assert_eq!(get(listen, "/").text(), "Bearer 2 0");
    engine.stop();
    let requests = bank.requests();
    let mut ids = Vec::new();
    for request in requests.iter().filter(|it| it.target == "/token") {
        assert_eq!(request.header("Authorization"), None);
        let form = form(request);
        assert_eq!(parameter(&form, "grant_type"), "client_credentials");
        assert_eq!(
            parameter(&form, "client_assertion_type"),
            "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
        );
        let assertion = parameter(&form, "client_assertion");
        let (signed, signature) = assertion.rsplit_once('.').unwrap();
        let signature = Base64UrlUnpadded::decode_vec(signature).unwrap();
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &public);
        key.verify(signed.as_bytes(), &signature).unwrap();
        let (header, claims) = signed.split_once('.').unwrap();
        assert_eq!(decoded(header)["kid"], "k1");
        let claims = decoded(claims);
        assert_eq!(
            (&claims["iss"], &claims["sub"]),
            (&"me".into(), &"me".into())
        );
        assert_eq!(claims["aud"], format!("http://127.0.0.1:{port}/token"));
        let (issued, end) = (
            claims["iat"].as_u64().unwrap(),
            claims["exp"].as_u64().unwrap(),
        );
        assert_eq!(end - issued, 60);
        ids.push(claims["jti"].as_str().unwrap().to_owned());
    }
    assert_eq!(ids.len(), 2);
    assert_ne!(ids[0], ids[1]);
}

/// A token server that takes each refresh token once and gives another one with each token, and the
/// system behind it.
struct Rotating {
    backend: StrictBackend,
    /// The refresh token that it takes next.
    next: Arc<Mutex<String>>,
    /// Whether it takes its time.
    is_slow: Arc<AtomicBool>,
}

impl Rotating {
    fn start() -> Self {
        let next = Arc::new(Mutex::new("r0".to_owned()));
        let is_slow = Arc::new(AtomicBool::new(false));
        let (taken, slow, given) = (Arc::clone(&next), Arc::clone(&is_slow), AtomicUsize::new(0));
        let backend = StrictBackend::answering(move |request: &Received| {
            if request.target != "/token" {
                return reply(
                    "200 OK",
                    "",
                    request.header("Authorization").unwrap_or_default(),
                );
            }
            let mut next = taken.lock().unwrap();
            if parameter(&form(request), "refresh_token") != *next {
                return reply("400 Bad Request", "", r#"{"error":"invalid_grant"}"#);
            }
            let number = given.fetch_add(1, Ordering::Relaxed) + 1;
            *next = format!("r{number}");
            let body = format!(
                "{{\"access_token\":\"t{number}\",\"expires_in\":1,\"refresh_token\":\"{next}\"}}"
            );
            drop(next);
            if slow.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1500));
            }
            token(&body)
        });
        Self {
            backend,
            next,
            is_slow,
        }
    }

    fn file(&self, listen: u16, first: &str, more: &str) -> String {
        let port = self.backend.port();
        format!(
            "flow: plain\nuse:\n  bank:\n    http: \"http://127.0.0.1:{port}\"\n    auth: {{ oauth2: \
             {{ token_url: \"http://127.0.0.1:{port}/token\", client_id: me, refresh_token: {first}, \
             margin: 1ms{more} }} }}\nfrom: {{ http: \"any 127.0.0.1:{listen}/\" }}\nsteps:\n  - \
             forward: bank:/a\n"
        )
    }

    fn set_next(&self, token: &str) {
        token.clone_into(&mut self.next.lock().unwrap());
    }

    fn next(&self) -> String {
        self.next.lock().unwrap().clone()
    }

    fn refusals(&self) -> usize {
        let asked = self.backend.requests();
        let tokens = asked.iter().filter(|it| it.target == "/token").count();
        let number = self
            .next()
            .trim_start_matches('r')
            .parse::<usize>()
            .unwrap_or_default();
        tokens.saturating_sub(number)
    }
}

#[test]
fn refresh_tokens_are_used_once_and_outlive_a_restart() {
    let (system, listen, folder) = (Rotating::start(), free_port(), TempDir::new());
    let text = system.file(listen, "r0", "");
    let engine = run(&folder, &text);
    let clients: Vec<_> = (0..8)
        .map(|_| thread::spawn(move || get(listen, "/").status))
        .collect();
    for client in clients {
        assert_eq!(client.join().unwrap(), 200);
    }
    assert_eq!(
        system.next(),
        "r1",
        "one request for a token, of two workers"
    );
    wait_until("the token expires and is renewed", || {
        get(listen, "/").text() == "Bearer t3"
    });
    engine.stop();
    // The file still names the first one, which is useless by now.
    let engine = run(&folder, &text);
    let before = system.next();
    let after = get(listen, "/");
    assert_eq!(after.status, 200, "{}", after.text());
    assert_ne!(system.next(), before);
    assert_eq!(system.refusals(), 0);

    // Revoked: that is said, and another one in the file begins anew.
    system.set_next("fresh");
    wait_until("it is refused", || get(listen, "/").status == 502);
    let output = engine.stop();
    assert!(output.contains("invalid_grant"), "{output}");
    let engine = run(&folder, &system.file(listen, "fresh", ""));
    assert_eq!(get(listen, "/").status, 200);
    let output = engine.stop();
    assert!(
        !output.contains("fresh") && !output.contains("Bearer"),
        "{output}"
    );
}

#[test]
fn a_refresh_token_is_kept_when_nobody_waits_for_it_any_more() {
    let (system, listen, folder) = (Rotating::start(), free_port(), TempDir::new());
    let text = system.file(listen, "r0", ", timeout: 5s");
    let engine = run(&folder, &text);
    system.is_slow.store(true, Ordering::Relaxed);
    let mut client = RawClient::connect(listen);
    client.send("GET / HTTP/1.1\r\nHost: test\r\n\r\n");
    wait_until("the token server works on it", || system.next() == "r1");
    drop(client);
    wait_until("it has answered", || {
        get(listen, "/").text().starts_with("Bearer t")
    });
    assert_eq!(system.refusals(), 0);
    engine.stop();
    system.is_slow.store(false, Ordering::Relaxed);
    let engine = run(&folder, &text);
    assert_eq!(get(listen, "/").status, 200);
    assert_eq!(system.refusals(), 0);
    engine.stop();
}

#[test]
fn a_token_server_that_does_not_answer_in_time_is_a_timeout() {
    let backend = StrictBackend::answering(|request: &Received| {
        if request.target == "/token" {
            thread::sleep(Duration::from_secs(3));
        }
        reply("200 OK", "", "{}")
    });
    let (port, listen) = (backend.port(), free_port());
    let text = format!(
        "flow: plain\nuse:\n  bank:\n    http: \"http://127.0.0.1:{port}\"\n    auth: {{ oauth2: {{ \
         token_url: \"http://127.0.0.1:{port}/token\", client_id: me, client_secret: s3cr3t-99, \
         timeout: 200ms }} }}\nfrom: {{ http: \"any 127.0.0.1:{listen}/\" }}\nsteps:\n  - forward: \
         bank:/a\n"
    );
    let engine = run(&TempDir::new(), &text);
    let slow = get(listen, "/");
    assert_eq!(slow.status, 504, "{}", slow.text());
    assert_eq!(
        count(&backend, "/a"),
        0,
        "nothing goes out without credentials"
    );
    engine.stop();
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

/// Signs a request as AWS does, straight from its documentation, and says whether that is what the
/// request shows. The path and the query are such that nothing about them has to be rewritten.
fn is_signed(request: &Received, service: &str) -> bool {
    let shown = request.header("Authorization").unwrap_or_default();
    let date = request.header("X-Amz-Date").unwrap_or_default();
    let names = shown.split("SignedHeaders=").nth(1).unwrap_or_default();
    let names = names.split(',').next().unwrap_or_default();
    let (path, query) = request
        .target
        .split_once('?')
        .unwrap_or((&request.target, ""));
    let lines: Vec<String> = names
        .split(';')
        .map(|name| format!("{name}:{}\n", request.all(name).join(",")))
        .collect();
    let hash = request.header("X-Amz-Content-Sha256").unwrap_or_default();
    if hash != sha256(&request.body) {
        return false;
    }
    let canonical = format!(
        "{}\n{path}\n{query}\n{}\n{names}\n{hash}",
        request.method,
        lines.concat()
    );
    let day = date.split('T').next().unwrap_or_default();
    let scope = format!("{day}/eu-west-1/{service}/aws4_request");
    let text = format!(
        "AWS4-HMAC-SHA256\n{date}\n{scope}\n{}",
        sha256(canonical.as_bytes())
    );
    let mut key = b"AWS4s3cr3t-77".to_vec();
    for part in [day, "eu-west-1", service, "aws4_request"] {
        key = sign(&Key::new(HMAC_SHA256, &key), part.as_bytes())
            .as_ref()
            .to_vec();
    }
    let signature = hex(sign(&Key::new(HMAC_SHA256, &key), text.as_bytes()).as_ref());
    shown
        == format!(
            "AWS4-HMAC-SHA256 Credential=AKID/{scope}, SignedHeaders={names}, Signature={signature}"
        )
}

/// The time of day in the form of a `Date` field, so many seconds ahead.
fn http_date(ahead: u64) -> String {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap();
    let seconds = i64::try_from(now.as_secs() + ahead).unwrap();
    let time = jiff::Timestamp::from_second(seconds).unwrap();
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

#[test]
fn requests_to_aws_are_signed_as_they_are_sent() {
    let is_ahead = Arc::new(AtomicBool::new(false));
    let ahead = Arc::clone(&is_ahead);
    let aws = StrictBackend::answering(move |request: &Received| {
        let date = request.header("X-Amz-Date").unwrap_or_default();
        let later = match ahead.load(Ordering::Relaxed) {
            true => 7200,
            false => 0,
        };
        let field = format!("Date: {}\r\n", http_date(later));
        let wanted = jiff::fmt::rfc2822::parse(&http_date(later)).unwrap();
        let hour = wanted.timestamp().strftime("%Y%m%dT%H").to_string();
        let near = wanted.timestamp().as_second() - 60;
        let near = jiff::Timestamp::from_second(near).unwrap();
        let near = near.strftime("%Y%m%dT%H").to_string();
        if !date.starts_with(&hour) && !date.starts_with(&near) {
            return reply("403 Forbidden", &field, "RequestTimeTooSkewed");
        }
        match is_signed(request, "sqs") {
            true => reply("200 OK", &field, &String::from_utf8_lossy(&request.body)),
            false => reply("403 Forbidden", &field, "SignatureDoesNotMatch"),
        }
    });
    let (port, listen) = (aws.port(), free_port());
    let text = format!(
        "engine: {{}}\nuse:\n  aws:\n    http: \"http://127.0.0.1:{port}\"\n    auth: {{ aws_sigv4: {{ \
         region: eu-west-1, service: sqs, access_key: AKID, secret_key: s3cr3t-77, session_token: \
         t0k3n-77 }} }}\n---\nflow: plain\nfrom: {{ http: \"any 127.0.0.1:{listen}/plain/*\" }}\nsteps:\n  \
         - forward: {{ to: \"aws:/queue\", headers: {{ set: {{ X-Amz-Acl: private }} }} }}\n---\nflow: asked\nfrom: {{ http: \"any 127.0.0.1:{listen}/asked\" \
         }}\nsteps:\n  - http: {{ to: \"aws:/queue?a=1\", method: POST, body: {{ a: 1 }}, headers: {{ \
         X-Amz-Target: x.Y }} }}\n"
    );
    let engine = run(&TempDir::new(), &text);
    let fields = "Authorization: Bearer client\r\nX-Amz-Date: x\r\nX-Amz-Content-Sha256: y\r\n\
                  X-Amz-Security-Token: z\r\nX-Amz-Meta-A: b\r\nX-Amz-Acl: public-read\r\nContent-Type: a/b\r\n";
    let plain = send(listen, "POST /plain/7?a=1&b=2", fields, "hello");
    assert_eq!((plain.status, plain.text().as_str()), (200, "hello"));
    let empty = send(listen, "GET /plain/7", fields, "");
    assert_eq!((empty.status, empty.text().as_str()), (200, ""));
    let asked = send(listen, "GET /asked", "", "");
    assert_eq!((asked.status, asked.text().as_str()), (200, "{\"a\":1}"));
    let shown = aws.requests();
    // What a client orders of AWS would be done with our key.
    assert!(shown.iter().all(|it| it.header("X-Amz-Meta-A").is_none()));
    assert_eq!(shown[2].header("X-Amz-Target"), Some("x.Y"));
    assert_eq!(shown[0].all("X-Amz-Acl"), ["private"]);
    for request in &shown {
        assert_eq!(request.all("X-Amz-Security-Token"), ["t0k3n-77"]);
        assert_eq!(request.all("Authorization").len(), 1);
    }
    // Its clock is put on: the first request finds out, for all.
    is_ahead.store(true, Ordering::Relaxed);
    for _ in 0..4 {
        let plain = send(listen, "POST /plain/7", fields, "hello");
        assert_eq!((plain.status, plain.text().as_str()), (200, "hello"));
    }
    assert_eq!(aws.requests().len(), shown.len() + 5);
    assert_eq!(aws.violations(), Vec::<String>::new());
    let output = engine.stop();
    assert!(
        !output.contains("s3cr3t-77") && !output.contains("t0k3n-77"),
        "{output}"
    );
    assert!(output.contains("clock"), "{output}");
}
