//! The identity header as back ends see it: signed by the engine, verified with the keys that it
//! serves, and never a client's.

use std::collections::BTreeSet;

use access::api_keys::ApiKey;
use access::jwt::{Algorithm, Audience, KeySet, Rules, verify};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde_json::{Value, json};
use testkit::{Authority, RawClient, Received, StrictBackend, TempDir, WebSocket, free_port};

use crate::auth::{ask, now};
use crate::support::{Engine, output};
use crate::ways::{BOTH, Version};

const KEYS: &str = "/.well-known/intertie/jwks.json";
const HEADER: &str = "X-Intertie-Identity";

/// What a back end reads of a token, verified with the keys that are served there.
fn verified(token: &str, audience: &str, (port, path): (u16, &str)) -> Value {
    let served = ask(port, &format!("GET {path}"), &[]);
    assert_eq!(served.status, 200);
    assert_eq!(
        served.header("Content-Type"),
        Some("application/jwk-set+json")
    );
    assert_eq!(served.header("Cache-Control"), Some("public, max-age=300"));
    let (keys, ignored) = KeySet::parse(&served.body, Algorithm::Rs256).unwrap();
    assert!(ignored.is_empty());
    let audience = Audience::OneOf(vec![audience.to_owned()]);
    let rules = Rules::new(vec!["https://gate.example".to_owned()], audience);
    let result = verify(token.as_bytes(), &keys, &rules, now());
    assert!(result.is_ok(), "{:?} {token}", result.err());
    part(token, 1)
}

/// A part of a token.
fn part(token: &str, number: usize) -> Value {
    let text = token.split('.').nth(number).unwrap();
    serde_json::from_slice(&Base64UrlUnpadded::decode_vec(text).unwrap()).unwrap()
}

/// The one line of the header that came, of whatever spelling.
fn came(request: &Received, header: &str) -> Option<String> {
    let is_it = |name: &str| name.replace('_', "-").eq_ignore_ascii_case(header);
    let all = [&request.headers, &request.trailers];
    let mut lines = all.into_iter().flatten().filter(|it| is_it(&it.0));
    let first = lines.next().map(|it| it.1.clone());
    assert_eq!(lines.next(), None, "{request:?}");
    first
}

/// A folder with the keys of two callers, and these keys.
fn folder() -> (TempDir, [String; 2]) {
    let folder = TempDir::new();
    let ((shop, first), (desk, second)) = (
        ApiKey::generate("shop", now()).unwrap(),
        ApiKey::generate("desk", now()).unwrap(),
    );
    let lines = format!("{}\n{}\n", first.to_line(), second.to_line());
    folder.write("partners.keys", &lines);
    (folder, [shop, desk].map(|it| it.to_string()))
}

/// Flows whose lock is the listener's, by every path through the engine.
fn flows(port: u16, back: u16, identity: &str) -> String {
    let from = |method: &str, path: &str| {
        format!("from: {{ http: {{ method: {method}, path: {path}, protocols: [h2, http/1.1] }} }}")
    };
    let to = format!("http://127.0.0.1:{back}");
    format!(
        r#"
engine:
  listen: "127.0.0.1:{port}"
  auth:
    partners: {{ api_key: {{ keys: partners.keys }} }}
  identity: {{ issuer: "https://gate.example", audience: orders{identity} }}
  listeners:
    "127.0.0.1:{port}": {{ auth: partners }}
---
flow: straight
{straight}
steps: [ forward: {{ to: "{to}/straight", identity: true }} ]
---
flow: message
{message}
steps:
  - set: {{ a: 1 }}
  - forward: {{ to: "{to}/message", identity: {{ audience: billing }} }}
---
flow: between
{between}
steps:
  - forward: {{ to: "{to}/between", identity: true }}
  - reply: {{ status: 200, body: done }}
---
flow: called
{called}
steps: [ call: helper ]
---
flow: helper
from: call
steps: [ forward: {{ to: "{to}/called", identity: true }} ]
---
flow: silent
{silent}
steps: [ forward: "{to}/silent" ]
---
flow: open
{open}
auth: none
steps: [ forward: "{to}/open" ]
---
flow: seen
{seen}
auth: none
steps:
  - map: '[$headers | keys[] | select(test("identity"; "i"))] | length'
---
flow: nobody
{nobody}
auth: none
steps: [ call: helper ]
"#,
        straight = from("any", "/straight"),
        message = from("any", "/message"),
        between = from("any", "/between"),
        called = from("any", "/called"),
        silent = from("any", "/silent"),
        open = from("any", "/open"),
        seen = from("GET", "/seen"),
        nobody = from("GET", "/nobody"),
    )
}

#[test]
fn back_ends_verify_who_calls_and_clients_cannot_say_so() {
    let backend = StrictBackend::start();
    let ((folder, [shop, desk]), port) = (folder(), free_port());
    folder.write("flows.yaml", &flows(port, backend.port(), ""));
    let engine = Engine::run(&[folder.path()], &[]);
    let forged = [(HEADER, "forged"), ("x_intertie_IDENTITY", "forged")];
    let mut tokens = BTreeSet::new();
    for version in BOTH {
        for (path, audience) in [
            ("/straight", "orders"),
            ("/message", "billing"),
            ("/between", "orders"),
            ("/called", "orders"),
        ] {
            for (key, id) in [(&shop, "shop"), (&desk, "desk")] {
                let fields = [forged[0], ("x-api-key", key.as_str()), forged[1]];
                let got = version.ask(port, ("POST", path), &fields, Some(b"{}"));
                assert_eq!(got.status, 200, "{version:?} {path} {got:?}");
                let seen = backend.requests().pop().unwrap();
                let token = came(&seen, HEADER).unwrap();
                let claims = verified(&token, audience, (port, KEYS));
                assert_eq!(claims["sub"], id, "{version:?} {path}");
                assert_eq!(claims["way"], "partners");
                assert_eq!(claims["scopes"], json!([]));
                let life = claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap();
                assert_eq!(life, 60);
                assert_eq!(part(&token, 0)["alg"], "ES256");
                tokens.insert(token);
            }
        }
        for (path, key) in [("/silent", &*shop), ("/open", "")] {
            let fields = [forged[0], ("x-api-key", key), forged[1]];
            let got = version.ask(port, ("POST", path), &fields, Some(b"{}"));
            assert_eq!(got.status, 200, "{version:?} {path}");
            let seen = backend.requests().pop().unwrap();
            assert_eq!(came(&seen, HEADER), None, "{version:?} {path}");
        }
        let got = version.ask(port, ("GET", "/seen"), &forged, None);
        assert_eq!(got.body, b"0", "{got:?}");
        // Nobody has sent it: the back end is not asked.
        let before = backend.requests().len();
        let got = version.ask(port, ("GET", "/nobody"), &[], None);
        assert_eq!(
            (got.status, backend.requests().len()),
            (403, before),
            "{got:?}"
        );
    }
    // One for each caller and audience, or a second one when the time was over in between.
    assert!((4..=8).contains(&tokens.len()), "{}", tokens.len());
    let signed = engine.measured("intertie_identity_signed_total", &[]);
    assert_eq!(signed, Some(tokens.len() as f64));
    assert!(
        backend.violations().is_empty(),
        "{:?}",
        backend.violations()
    );
    engine.stop();
}

#[test]
fn forged_trailers_and_a_header_named_by_connection_change_nothing() {
    let backend = StrictBackend::start();
    let ((folder, [shop, _]), port) = (folder(), free_port());
    let named = ", header: X-Who";
    folder.write("flows.yaml", &flows(port, backend.port(), named));
    let engine = Engine::run(&[folder.path()], &[]);
    for (path, key) in [("/straight", &*shop), ("/silent", &*shop), ("/open", "")] {
        let mut client = RawClient::connect(port);
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: test\r\nX-Api-Key: {key}\r\nX-Who: forged\r\n\
             Connection: close, X-Who\r\nTransfer-Encoding: chunked\r\n\r\n\
             2\r\n{{}}\r\n0\r\nX-Who: forged\r\nx_who: forged\r\nX-Sum: 1\r\n\r\n"
        ));
        assert_eq!(client.response().status, 200, "{path}");
        let seen = backend.requests().pop().unwrap();
        assert_eq!(
            seen.trailers,
            [("X-Sum".to_owned(), "1".to_owned())],
            "{path}"
        );
        let token = came(&seen, "X-Who");
        assert_eq!(token.is_some(), path == "/straight", "{path} {token:?}");
        if let Some(token) = token {
            assert_eq!(verified(&token, "orders", (port, KEYS))["sub"], "shop");
        }
    }
    // The default name means nothing here.
    let fields = [(HEADER, "an edge's"), ("x-api-key", &*shop)];
    let got = Version::Http1.ask(port, ("GET", "/straight"), &fields, None);
    assert_eq!(got.status, 200);
    let seen = backend.requests().pop().unwrap();
    assert_eq!(seen.header(HEADER), Some("an edge's"));
    engine.stop();
}

#[test]
fn streams_are_opened_with_a_token() {
    let backend = StrictBackend::answering(|request| {
        match request.header("Upgrade").is_some() {
            true => {
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
                     Connection: Upgrade\r\n\
                     Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
            }
            false => {
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                      Transfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n0\r\n\r\n"
            }
        }
        .into()
    });
    let ((folder, [shop, _]), port) = (folder(), free_port());
    folder.write("flows.yaml", &flows(port, backend.port(), ""));
    let engine = Engine::run(&[folder.path()], &[]);
    let fields = format!("X-Api-Key: {shop}\r\n{HEADER}: forged\r\n");
    for path in ["/straight", "/message"] {
        let audience = if path == "/message" {
            "billing"
        } else {
            "orders"
        };
        let check = || {
            let seen = backend.requests().pop().unwrap();
            let token = came(&seen, HEADER).unwrap();
            assert_eq!(verified(&token, audience, (port, KEYS))["sub"], "shop");
        };
        let (_, socket) = WebSocket::connect(port, path, &fields);
        check();
        drop(socket);
        let mut client = RawClient::connect(port);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: test\r\n{fields}\r\n"));
        assert_eq!(client.response().text(), "data: 1\n\n");
        check();
    }
    engine.stop();
}

#[test]
fn keys_outlive_a_restart_and_those_of_files_take_turns() {
    let backend = StrictBackend::start();
    let ((folder, [shop, _]), port, keys_port) = (folder(), free_port(), free_port());
    let data = TempDir::new();
    let path = data.path().join("data");
    let text = flows(port, backend.port(), "");
    folder.write("flows.yaml", &text);
    let options = ["--data", path.to_str().unwrap()];
    let kid = || {
        let fields = [("x-api-key", &*shop)];
        let got = Version::Http1.ask(port, ("GET", "/straight"), &fields, None);
        assert_eq!(got.status, 200, "{got:?}");
        let token = came(&backend.requests().pop().unwrap(), HEADER).unwrap();
        (part(&token, 0)["kid"].as_str().unwrap().to_owned(), token)
    };
    let engine = Engine::run(&[folder.path()], &options);
    let (first, token) = kid();
    engine.stop();
    let engine = Engine::run(&[folder.path()], &options);
    assert_eq!(kid().0, first);
    verified(&token, "orders", (port, KEYS));
    // Keys of files, on an address of their own. The second one signs after a reload; who has the
    // set from before knows it.
    for name in ["a.pem", "b.pem"] {
        folder.write(name, &Authority::new(name).issue(&[name]).key);
    }
    let jwks = format!(", jwks: {{ listen: \"127.0.0.1:{keys_port}\", path: /keys.json }}");
    for (order, before) in [("a.pem, b.pem", &first), ("b.pem, a.pem", &kid().0)] {
        let with = format!(", keys: [{order}]{jwks}");
        folder.write("flows.yaml", &flows(port, backend.port(), &with));
        engine.process.signal("HUP");
        testkit::wait_until("the other key signs", || kid().0 != *before);
        let (_, token) = kid();
        verified(&token, "orders", (keys_port, "/keys.json"));
        assert_eq!(ask(port, &format!("GET {KEYS}"), &[]).status, 404);
    }
    engine.stop();
}

#[test]
fn what_cannot_be_asserted_is_refused_when_files_are_loaded() {
    let auth = "  auth: { staff: { jwt: { issuer: \"https://id.example\", audience: a } } }\n";
    let flow = |auth: &str, forward: &str| {
        format!(
            "flow: a\nfrom: {{ http: GET /a }}\n{auth}\
             steps: [ forward: {{ to: \"http://127.0.0.1:9/\", {forward} }} ]\n"
        )
    };
    let engine = |identity: &str| format!("engine:\n{auth}  identity: {identity}\n---\n");
    let good = engine("{ audience: a }");
    let locked = |forward| flow("auth: staff\n", forward);
    for (text, expected) in [
        (
            good.clone() + &flow("auth: none\n", "identity: true"),
            "no caller is known",
        ),
        (
            good.clone() + &flow("", "identity: true"),
            "no caller is known",
        ),
        (
            format!("engine:\n{auth}---\n{}", locked("identity: true")),
            "there is no identity header",
        ),
        (
            engine("{}") + &locked("identity: true"),
            "nothing says for whom the identity is",
        ),
        (
            good.clone() + &locked("identity: { audience: \"\" }"),
            "the audience is empty",
        ),
        (
            good + &locked("identity: true, headers: { set: { x_intertie-identity: me } }"),
            "this is the identity header",
        ),
        (
            engine("{ audience: a, header: X-Me }")
                + "flow: a\nfrom: { http: GET /a }\nauth: staff\nsteps:\n  - http: { to: \
                   \"http://127.0.0.1:9/\", method: GET, headers: { x_me: \"${ $auth.id }\" } }\n",
            "only `forward` can send",
        ),
        (
            engine("{ audience: a, header: Cookie }") + &locked("identity: true"),
            "`Cookie` cannot be the identity header",
        ),
        (
            engine("{ audience: a, life: 1h }") + &locked("identity: true"),
            "`life` is not from 10s to 10m",
        ),
        (
            engine("{ audience: a, keys: [missing.pem] }") + &locked("identity: true"),
            "`missing.pem` cannot be used",
        ),
        (
            format!(
                "engine:\n  identity: {{ audience: a }}\n---\n{}",
                flow("auth: none\n", "host: keep")
            ),
            "`identity` has no effect without `auth`",
        ),
    ] {
        let folder = TempDir::new();
        let file = folder.write("flows.yaml", &text);
        let checked = output(&["check", file.to_str().unwrap()]);
        let told = String::from_utf8_lossy(&checked.stderr).into_owned()
            + &String::from_utf8_lossy(&checked.stdout);
        assert_eq!(checked.status.code(), Some(1), "{text}\n{told}");
        assert!(told.contains(expected), "{expected}\n{told}");
    }
}
