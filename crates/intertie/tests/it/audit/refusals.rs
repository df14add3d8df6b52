//! What access control refuses is in the audit log, wherever that is: over both versions of HTTP,
//! at topics, before the first request, and where tickets are asked for.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::Value;
use testkit::{RawClient, WebSocket, free_port, sha256_hex};

use super::{DESK, FILE, KEY, Site, WRONG, key, send};
use crate::support::{Engine, command};
use crate::ways::BOTH;

/// A refusal: its reason, status and what has refused.
fn refusal(site: &Site, reason: &str) -> (Value, Value) {
    let event = site.wait("access.refused", |it| it["reason"] == reason);
    assert_eq!(event["outcome"], "failure");
    assert_eq!(event["source"]["address"], "127.0.0.1", "{event}");
    (event["status"].clone(), event["target"].clone())
}

fn told(status: impl Into<Value>, target: &str) -> (Value, Value) {
    (status.into(), target.into())
}

/// The handshake of a page elsewhere.
const FOREIGN: &str = "Origin: https://evil.example\r\n";

#[test]
fn requests_are_told_over_both_versions_of_http() {
    for version in BOTH {
        let site = Site::new();
        let file = site.write(FILE);
        let text = fs::read_to_string(&file).unwrap();
        let both = |method: &str, path: &str| {
            let from = format!("'{method} {path}'");
            let long = format!("{{ method: {method}, path: '{path}', protocols: [h2, http/1.1] }}");
            (from, long)
        };
        let text = [both("any", "/orders/*"), both("any", "/write")]
            .into_iter()
            .fold(text, |text, (from, long)| text.replace(&from, &long))
            + "---\nflow: near\nfrom: { http: { method: GET, path: /near, protocols: [h2, \
               http/1.1] } }\nnetworks: [10.0.0.0/8]\nsteps: [ reply: {} ]\n";
        site.folder.write("flows.yaml", &text);
        let engine = Engine::run(&[&file], &[]);
        let forged = ("x-api-key", WRONG);
        for (path, fields, reason, status, target) in [
            (
                "/orders/7?a=query-value",
                &[][..],
                "no_credential",
                401,
                "flow orders",
            ),
            ("/orders/7", &[forged], "unknown_key", 401, "flow orders"),
            ("/write", &[("x-api-key", KEY)], "scope", 403, "flow write"),
            (
                "/orders/7",
                &[forged, ("x-api-key", KEY)],
                "several_credentials",
                400,
                "flow orders",
            ),
            ("/near", &[], "network", 403, "route near"),
            ("/orders//7", &[], "path", 400, "listener"),
        ] {
            let got = version.ask(site.port, ("GET", path), fields, None);
            assert_eq!(got.status, status, "{version:?} {path} {got:?}");
            assert_eq!(
                refusal(&site, reason),
                told(status, target),
                "{version:?} {reason}"
            );
            let event = site.wait("access.refused", |it| it["reason"] == reason);
            assert_eq!(event["request"]["method"], "GET");
            let shown = event["request"]["path"].as_str().unwrap();
            assert!(path.starts_with(shown), "{event}");
        }
        engine.stop();
        let all = fs::read_to_string(site.file()).unwrap();
        for secret in [WRONG, KEY, "query-value"] {
            assert!(!all.contains(secret), "{secret} in {all}");
        }
    }
}

#[test]
fn pages_and_networks_that_topics_refuse_are_told() {
    let (site, port) = (Site::new(), free_port());
    let file = site.write(FILE);
    let topic = |name: &str, more: &str| {
        format!(
            "---\ntopic: {name}\npayload: event\ndurability: memory\n\
             subscribe: {{ listen: '127.0.0.1:{port}'{more} }}\n"
        )
    };
    let text = fs::read_to_string(&file).unwrap()
        + &topic("own", "")
        + &topic("inner", ", networks: [10.0.0.0/8]")
        + "---\nflow: chat\nfrom: { websocket: { path: /chat } }\nsteps: [ set: { a: 1 } ]\n";
    site.folder.write("flows.yaml", &text);
    let engine = Engine::run(&[&file], &[]);
    // One reason of one address is counted after the first one, so each has an engine of its own.
    let (refused, _) = WebSocket::ask(port, "/topics/own/ws", FOREIGN);
    assert_eq!(refused.status, 403);
    assert_eq!(refusal(&site, "origin"), told(403, "topic own"));
    let event = site.wait("access.refused", |_| true);
    assert_eq!(event["request"]["path"], "/topics/own/ws");
    // Where one topic is named, its own edge refuses.
    let sse = super::ask(port, "/topics/sse?topic=inner", "");
    assert_eq!(sse.status, 403);
    engine.stop();

    fs::remove_file(site.file()).unwrap();
    let engine = Engine::run(&[&file], &[]);
    let (refused, _) = WebSocket::ask(site.port, "/chat", FOREIGN);
    assert_eq!(refused.status, 403);
    assert_eq!(refusal(&site, "origin"), told(403, "flow chat"));
    engine.stop();
}

#[test]
fn connections_that_say_nothing_of_their_client_are_told() {
    let (site, port) = (Site::new(), free_port());
    let listener = format!("  listeners: {{ '127.0.0.1:{port}': {{ proxy_protocol: v1 }} }}\n");
    let file = site.write(&(listener + FILE));
    let flow = format!(
        "---\nflow: inner\nfrom: {{ http: 'GET 127.0.0.1:{port}/' }}\nsteps: [ reply: {{}} ]\n"
    );
    let text = fs::read_to_string(&file).unwrap() + &flow;
    site.folder.write("flows.yaml", &text);
    let engine = Engine::run(&[&file], &[]);
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    assert!(!client.read(&mut [0]).is_ok_and(|it| it > 0));
    assert_eq!(
        refusal(&site, "proxy_protocol"),
        told(Value::Null, "listener")
    );
    engine.stop();
}

#[test]
fn requests_for_tickets_are_told() {
    let site = Site::new();
    let file = site.write(FILE);
    let flow = "---\nflow: live\nfrom: { http: 'GET /live' }\nauth: partners\ntickets: true\n\
                steps: [ reply: { body: ok } ]\n";
    let text = fs::read_to_string(&file).unwrap() + flow;
    site.folder.write("flows.yaml", &text);
    let engine = Engine::run(&[&file], &[]);
    let ask = |fields: &str| send(site.port, ("POST", "/live/ticket"), fields, "").status;
    let statuses: Vec<u16> = (0..65).map(|_| ask(&key(KEY))).collect();
    assert_eq!(statuses[64], 429);
    assert_eq!(refusal(&site, "too_many_tickets"), told(429, "flow live"));
    let event = site.wait("access.refused", |_| true);
    assert_eq!(
        (&event["actor"]["way"], &event["actor"]["id"]),
        (&"partners".into(), &"shop".into())
    );
    assert_eq!(ask(&(key(KEY) + FOREIGN + FOREIGN)), 400);
    assert_eq!(refusal(&site, "several_origins"), told(400, "flow live"));
    assert_eq!(ask(&key(WRONG)), 401);
    assert_eq!(refusal(&site, "unknown_key"), told(401, "flow live"));
    let mut client = RawClient::connect(site.port);
    client.send("GET /live?ticket=wrong HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 401);
    assert_eq!(refusal(&site, "ticket"), told(401, "flow live"));
    engine.stop();
}

#[test]
fn changed_files_of_users_are_told_by_name() {
    let site = Site::new();
    let hash = |user: &str| {
        let mut command = command();
        let file = site.folder.path().join("made");
        let _ = fs::remove_file(&file);
        command.args([
            "keys",
            "user",
            "--file",
            file.to_str().unwrap(),
            "--name",
            user,
        ]);
        command.stdin(std::process::Stdio::piped());
        let mut child = command.stdout(std::process::Stdio::null()).spawn().unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(b"a long password\n")
            .unwrap();
        assert!(child.wait().unwrap().success());
        fs::read_to_string(&file).unwrap()
    };
    let (ann, bob, other) = (hash("ann"), hash("bob"), hash("ann"));
    site.folder.write("users", &ann);
    let file = site.write(FILE);
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace(
        "partners: {",
        "people: { basic: { users: users } }, partners: {",
    );
    let text = text.replace("auth: partners\n", "auth: { any: [people, partners] }\n");
    site.folder.write("flows.yaml", &text);
    let engine = Engine::run(&[&file], &[]);
    site.folder.write("users", &(other.clone() + &bob));
    let changed = site.wait("users.changed", |_| true);
    assert_eq!(changed["target"], "auth people");
    assert_eq!(
        (&changed["added"], &changed["changed"]),
        (&serde_json::json!(["bob"]), &serde_json::json!(["ann"]))
    );
    site.folder.write("users", "eve:a plain password\n");
    let failed = site.wait("users.changed", |it| it["outcome"] == "failure");
    assert!(
        failed["reason"].as_str().unwrap().contains("line 1"),
        "{failed}"
    );
    site.folder.write("users", &bob);
    let removed = site.wait("users.changed", |it| it["removed"].is_array());
    assert_eq!(removed["removed"], serde_json::json!(["ann"]));
    // A wrong password names nobody: the name may be a password, too.
    let wrong = "Authorization: Basic Ym9iOnhlY3JldC12YWx1ZQ==\r\n";
    assert_eq!(site.ask("/orders/1", wrong).status, 401);
    let refused = site.wait("access.refused", |_| true);
    assert_eq!(
        (&refused["actor"]["way"], &refused["actor"]["id"]),
        (&"people".into(), &Value::Null)
    );
    engine.stop();
    let all = fs::read_to_string(site.file()).unwrap();
    for secret in ["a plain password", "xecret", "$argon2", &sha256_hex(DESK)] {
        assert!(!all.contains(secret), "{secret} in {all}");
    }
}
