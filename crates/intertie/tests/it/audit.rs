//! The audit stream of a running engine: what is in it, what is not, where it goes and what happens
//! when it cannot go there.

use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use serde_json::Value;
use testkit::{RawClient, Response, TempDir, free_port, sha256_hex, wait_until};

use crate::support::{Engine, get, library, output};

mod refusals;
mod reloads;

const KEY: &str = "itk_shop_0123456789abcdefghijklmnopqrstuvwxyz";
const DESK: &str = "itk_desk_0123456789abcdefghijklmnopqrstuvwxyz";
const WRONG: &str = "itk_wrong_0123456789abcdefghijklmnopqrstuvw";

/// A folder with flow files, a file of keys and the file of the stream.
struct Site {
    folder: TempDir,
    port: u16,
}

impl Site {
    fn new() -> Self {
        let site = Self {
            folder: TempDir::new(),
            port: free_port(),
        };
        site.write_keys(&[("shop", KEY, "[]")]);
        site
    }

    fn write_keys(&self, keys: &[(&str, &str, &str)]) {
        let line = |(id, key, scopes): &(&str, &str, &str)| {
            let hash = sha256_hex(key);
            format!("{{\"id\":\"{id}\",\"hash\":\"sha256:{hash}\",\"scopes\":{scopes}}}\n")
        };
        let text: String = keys.iter().map(line).collect();
        self.folder.write("partners.keys", &text);
    }

    /// The settings, with more of them, and two flows behind a lock.
    fn write(&self, engine: &str) -> PathBuf {
        let port = self.port;
        let text = format!(
            "engine:\n  listen: '127.0.0.1:{port}'\n  admin: {{ operate: none }}\n\
             \x20 auth: {{ partners: {{ api_key: {{ keys: partners.keys }} }} }}\n{engine}\
             ---\nflow: orders\nfrom: {{ http: 'any /orders/*' }}\nauth: partners\n\
             steps: [ reply: {{ body: ok }} ]\n\
             ---\nflow: write\nfrom: {{ http: 'any /write' }}\n\
             auth: {{ any: [partners], scopes: [orders.write] }}\n\
             steps: [ reply: {{ body: ok }} ]\n"
        );
        self.folder.write("flows.yaml", &text)
    }

    fn run(&self, engine: &str) -> Engine {
        Engine::run(&[&self.write(engine)], &[])
    }

    fn ask(&self, target: &str, fields: &str) -> Response {
        ask(self.port, target, fields)
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("audit.jsonl")
    }

    fn events(&self) -> Vec<Value> {
        events(&self.file())
    }

    /// The first event of this kind for which this holds, once it is there.
    fn wait(&self, kind: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let find = || {
            self.events()
                .into_iter()
                .find(|it| it["event"] == kind && holds(it))
        };
        wait_until(&format!("{kind} is in the stream"), || find().is_some());
        find().unwrap()
    }
}

const FILE: &str = "  audit: { file: audit.jsonl }\n";

fn key(key: &str) -> String {
    format!("X-Api-Key: {key}\r\n")
}

fn ask(port: u16, target: &str, fields: &str) -> Response {
    let mut client = RawClient::connect(port);
    client.send(format!(
        "GET {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{fields}\r\n"
    ));
    client.response()
}

fn send(port: u16, (method, target): (&str, &str), fields: &str, body: &str) -> Response {
    let mut client = RawClient::connect(port);
    let length = body.len();
    client.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Length: {length}\r\n{fields}\r\n{body}"
    ));
    client.response_to(method)
}

/// The events of a file. Each line must be one.
pub fn events(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    // The last line may be on its way.
    let whole = text.rsplit_once('\n').map_or("", |it| it.0);
    let parse = |line: &str| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"));
    whole.lines().map(parse).collect()
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|it| it["event"].as_str().unwrap())
        .collect()
}

#[test]
fn refusals_say_who_what_and_from_where_and_hold_no_secret() {
    let site = Site::new();
    let engine = site.run(&format!("  trusted_proxies: [127.0.0.1]\n{FILE}"));
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let fields = format!(
        "X-Forwarded-For: 192.0.2.7\r\nCookie: session=cookie-value\r\n\
         traceparent: 00-{trace}-b7ad6b7169203331-01\r\n{}",
        key(WRONG)
    );
    assert_eq!(site.ask("/orders/7?token=query-value", &fields).status, 401);
    let refused = site.wait("access.refused", |it| it["reason"] == "unknown_key");
    assert_eq!(refused["outcome"], "failure");
    assert_eq!(refused["status"], 401);
    assert_eq!(refused["actor"]["way"], "partners");
    assert_eq!(refused["actor"]["id"], Value::Null);
    assert_eq!(refused["source"]["address"], "192.0.2.7");
    assert_eq!(refused["source"]["proxy"], "127.0.0.1");
    assert_eq!(refused["target"], "flow orders");
    assert_eq!(refused["request"]["method"], "GET");
    assert_eq!(refused["request"]["path"], "/orders/7");
    assert_eq!(refused["request"]["trace_id"], trace);
    let time = refused["time"].as_str().unwrap();
    assert!(time.len() == 24 && time.ends_with('Z'), "{time}");

    // Without a credential, and by a caller who is known but may not.
    assert_eq!(site.ask("/orders/7", "").status, 401);
    let unknown = site.wait("access.refused", |it| it["reason"] == "no_credential");
    assert_eq!(unknown["source"]["address"], "127.0.0.1");
    assert_eq!(unknown["actor"], Value::Null);
    assert_eq!(site.ask("/write", &key(KEY)).status, 403);
    let forbidden = site.wait("access.refused", |it| it["status"] == 403);
    assert_eq!(forbidden["reason"], "scope");
    assert_eq!(forbidden["actor"]["id"], "shop");
    assert_eq!(forbidden["target"], "flow write");
    // Who is let in is in no audit stream.
    assert_eq!(site.ask("/orders/7", &key(KEY)).status, 200);

    let metrics = engine.get("/metrics").text();
    assert!(
        metrics.contains("intertie_audit_events_total{"),
        "{metrics}"
    );
    assert!(
        metrics.contains("intertie_audit_dropped_total{flow=\"\",step=\"\"} 0"),
        "{metrics}"
    );
    engine.stop();
    let text = fs::read_to_string(site.file()).unwrap();
    for secret in [
        KEY,
        WRONG,
        "query-value",
        "cookie-value",
        "token",
        &sha256_hex(KEY),
    ] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    let all = site.events();
    assert_eq!(
        kinds(&all),
        [
            "audit.started",
            "access.refused",
            "access.refused",
            "access.refused",
            "audit.stopped"
        ]
    );
    assert_eq!(all[0]["reason"], "engine");
}

#[test]
fn whoever_is_refused_again_and_again_is_counted() {
    let site = Site::new();
    let engine = site.run("  audit: { file: audit.jsonl, refusals: 1 }\n");
    for _ in 0..50 {
        assert_eq!(site.ask("/orders/7", "").status, 401);
    }
    // The second of this second is counted with all others.
    for _ in 0..5 {
        assert_eq!(site.ask("/write", &key(KEY)).status, 403);
    }
    let first = site.wait("access.refused", |_| true);
    assert_eq!(first["reason"], "no_credential");
    let metrics = engine.get("/metrics").text();
    assert!(
        metrics.contains("intertie_audit_suppressed_total{"),
        "{metrics}"
    );
    engine.stop();
    let all = site.events();
    assert!(all.len() <= 8, "{all:#?}");
    let refused = all.iter().filter(|it| it["outcome"] == "failure");
    let total: u64 = refused.map(|it| it["count"].as_u64().unwrap_or(1)).sum();
    assert_eq!(total, 55, "{all:#?}");
    let counted = all.iter().find(|it| it["count"] == 49).unwrap();
    assert_eq!(counted["event"], "access.refused");
    assert_eq!(counted["source"]["address"], "127.0.0.1");
    assert!(counted["since"].is_string(), "{counted}");
}

#[test]
fn used_up_budgets_and_other_networks_are_told_too() {
    let (site, closed) = (Site::new(), free_port());
    let listener =
        format!("  listeners: {{ '127.0.0.1:{closed}': {{ networks: [10.0.0.0/8] }} }}\n");
    let file = site.write(&(listener + FILE));
    let flow = |name: &str, from: &str| format!("---\nflow: {name}\nfrom: {{ http: '{from}' }}\n");
    let text = fs::read_to_string(&file).unwrap()
        + &flow("near", "GET /near")
        + "networks: [10.0.0.0/8]\nsteps: [ reply: {} ]\n"
        + &flow("inner", &format!("GET 127.0.0.1:{closed}/inner"))
        + "steps: [ reply: {} ]\n";
    site.folder.write("flows.yaml", &text);
    let engine = Engine::run(&[&file], &[]);
    let statuses: Vec<u16> = (0..25)
        .map(|_| site.ask("/orders/1", &key(WRONG)).status)
        .collect();
    assert_eq!((statuses[0], statuses[24]), (401, 429));
    let limited = site.wait("access.refused", |it| it["reason"] == "limited");
    assert_eq!(
        (&limited["status"], &limited["target"]),
        (&429.into(), &"flow orders".into())
    );
    assert_eq!(site.ask("/near?a=query-value", "").status, 403);
    let near = site.wait("access.refused", |it| it["reason"] == "network");
    assert_eq!(
        (&near["status"], &near["target"]),
        (&403.into(), &"route near".into())
    );
    assert_eq!(near["request"]["path"], "/near");
    // Closed before anything is read.
    let mut client = TcpStream::connect(("127.0.0.1", closed)).unwrap();
    assert!(!client.read(&mut [0]).is_ok_and(|it| it > 0));
    engine.stop();
    // Of the same address for the same reason: it is counted.
    let all = site.events();
    let counted = all
        .iter()
        .find(|it| it["reason"] == "network" && it["count"] == 1);
    assert!(counted.is_some(), "{all:#?}");
}

#[test]
fn changes_of_keys_of_the_deny_list_and_of_the_files_are_told_with_who_has_made_them() {
    let site = Site::new();
    let plans = |plans: &str| format!("  deny: {{ file: denied }}\n{plans}{FILE}");
    site.folder.write("denied", "");
    let data = site.folder.path().join("data");
    let file = site.write(&plans(""));
    let options = ["--data", data.to_str().unwrap()];
    let engine = Engine::run(&[&file], &options);
    let (admin, json) = (engine.admin, "Content-Type: application/json\r\n");

    site.write_keys(&[("shop", KEY, "[\"orders.write\"]"), ("desk", DESK, "[]")]);
    let changed = site.wait("keys.changed", |_| true);
    assert_eq!(changed["target"], "auth partners");
    assert_eq!(changed["added"], serde_json::json!(["desk"]));
    assert_eq!(changed["changed"], serde_json::json!(["shop"]));
    assert_eq!(changed["removed"], Value::Null);
    site.folder.write("partners.keys", "no key\n");
    let failed = site.wait("keys.changed", |it| it["outcome"] == "failure");
    assert!(
        failed["reason"].as_str().unwrap().contains("line 1"),
        "{failed}"
    );
    site.write_keys(&[("desk", DESK, "[]")]);
    let removed = site.wait("keys.changed", |it| it["removed"].is_array());
    assert_eq!(removed["removed"], serde_json::json!(["shop"]));

    site.folder.write("denied", "{\"sub\":\"eve\"}\n");
    let changed = site.wait("deny.changed", |_| true);
    assert_eq!(changed["added"], serde_json::json!(["sub eve"]));
    let entry = "{\"key\":\"desk\",\"reason\":\"laptop stolen\"}";
    assert_eq!(send(admin, ("POST", "/deny"), json, entry).status, 201);
    let added = site.wait("deny.added", |_| true);
    assert_eq!(added["entry"]["key"], "desk");
    assert_eq!(added["entry"]["reason"], "laptop stolen");
    assert_eq!(added["source"]["address"], "127.0.0.1");
    assert_eq!(
        send(admin, ("DELETE", "/deny?key=desk"), "", "").status,
        204
    );
    let removed = site.wait("deny.removed", |_| true);
    assert_eq!(removed["entry"]["key"], "desk");
    // A page of another site has a browser ask.
    let foreign = "Origin: https://evil.example\r\n";
    assert_eq!(send(admin, ("POST", "/reload"), foreign, "").status, 403);
    let refused = site.wait("access.refused", |_| true);
    assert_eq!(
        (&refused["reason"], &refused["target"]),
        (&"origin".into(), &"admin reload".into())
    );

    let gold = "  plans: { default: { connections: 10 } }\n";
    let limited = plans(gold).replace("audit:", "log: { level: warn }\n  audit:");
    site.write(&limited);
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace(
        "auth: partners\n",
        "auth: partners\nlimits: { plan: default }\n",
    );
    site.folder.write("flows.yaml", &text);
    assert_eq!(send(admin, ("POST", "/reload"), "", "").status, 200);
    let asked = site.wait("admin.reload", |_| true);
    assert_eq!(
        (&asked["outcome"], &asked["status"]),
        (&"success".into(), &200.into())
    );
    assert_eq!(asked["source"]["address"], "127.0.0.1");
    let reloaded = site.wait("config.reload", |_| true);
    assert_eq!(reloaded["trigger"], "admin");
    let names = serde_json::json!(["engine.log", "engine.plans"]);
    assert_eq!(reloaded["added"], names);
    assert_eq!(reloaded["changed"], serde_json::json!(["flow orders"]));
    let changed = site.wait("plans.changed", |_| true);
    assert_eq!(changed["added"], serde_json::json!(["default"]));

    site.folder.write("flows.yaml", "flow: broken\n");
    engine.process.signal("HUP");
    let failed = site.wait("config.reload", |it| it["outcome"] == "failure");
    assert_eq!(failed["trigger"], "sighup");
    assert_eq!(send(admin, ("POST", "/reload"), "", "").status, 409);
    site.wait("admin.reload", |it| {
        it["status"] == 409 && it["outcome"] == "failure"
    });

    // A way that a reload takes away, and the end of the stream itself.
    let text = text.replace("  audit: { file: audit.jsonl }\n", "");
    site.folder.write(
        "flows.yaml",
        &text.replace(
            "partners: {",
            "others: { api_key: { keys: partners.keys } }, partners: {",
        ),
    );
    engine.process.signal("HUP");
    let stopped = site.wait("audit.stopped", |_| true);
    assert_eq!(stopped["reason"], "reload");
    let last = site.events();
    assert_eq!(
        kinds(&last)[last.len() - 2..],
        ["config.reload", "audit.stopped"]
    );
    assert_eq!(site.ask("/orders/1", "").status, 401);
    engine.stop();
    assert_eq!(site.events(), last, "nothing is written without a stream");
}

#[test]
fn operations_are_done_and_told_when_their_client_has_hung_up() {
    let site = Site::new();
    let data = site.folder.path().join("data");
    let file = site.write(&format!("  deny: {{}}\n{FILE}"));
    let engine = Engine::run(&[&file], &["--data", data.to_str().unwrap()]);
    let (admin, json) = (engine.admin, "Content-Type: application/json\r\n");
    let entry = "{\"key\":\"desk\"}";
    assert_eq!(send(admin, ("POST", "/deny"), json, entry).status, 201);
    for (request, kind) in [
        ("POST /reload", "admin.reload"),
        ("DELETE /deny?key=desk", "deny.removed"),
    ] {
        let mut client = RawClient::connect(admin);
        client.send(format!(
            "{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
        ));
        drop(client);
        let event = site.wait(kind, |_| true);
        assert_eq!(event["outcome"], "success", "{event}");
    }
    let left = get(admin, "/deny").text();
    assert!(left.contains("\"entries\":[]"), "{left}");
    engine.stop();
}

#[test]
fn credentials_that_are_revoked_under_open_streams_are_told() {
    let (site, port) = (Site::new(), free_port());
    let topic = format!(
        "---\ntopic: prices\npayload: event\ndurability: memory\n\
         subscribe: {{ listen: '127.0.0.1:{port}', auth: partners }}\n"
    );
    let file = site.write(FILE);
    let text = fs::read_to_string(&file).unwrap();
    site.folder.write("flows.yaml", &(text + &topic));
    let engine = Engine::run(&[&file], &[]);
    let mut client = RawClient::connect(port);
    client.send(format!(
        "GET /topics/prices/sse HTTP/1.1\r\nHost: test\r\n{}\r\n",
        key(KEY)
    ));
    client.until(b"\r\n\r\n");
    site.write_keys(&[("desk", DESK, "[]")]);
    let revoked = site.wait("access.revoked", |_| true);
    assert_eq!(revoked["reason"], "removed");
    assert_eq!(revoked["actor"]["id"], "shop");
    assert_eq!(revoked["actor"]["way"], "partners");
    engine.stop();
}

#[test]
fn the_stream_can_be_a_topic_that_only_known_callers_read() {
    let (site, port) = (Site::new(), free_port());
    site.write_keys(&[("shop", KEY, "[]"), ("auditor", DESK, "[\"audit.read\"]")]);
    let topic = format!(
        "---\ntopic: audit\npayload: event\nsubscribe:\n  listen: '127.0.0.1:{port}'\n  \
         auth: {{ any: [partners], scopes: [audit.read] }}\n"
    );
    let data = site.folder.path().join("data");
    let options = ["--data", data.to_str().unwrap()];
    let file = site.write("  audit: { topic: audit }\n");
    let text = fs::read_to_string(&file).unwrap() + &topic;
    site.folder.write("flows.yaml", &text);
    let engine = Engine::run(&[&file], &options);
    let path = "/topics/audit/sse";
    // A refusal by the topic itself comes into the topic, once.
    for _ in 0..20 {
        assert_ne!(ask(port, path, &key(KEY)).status, 200);
    }
    assert_eq!(site.ask("/orders/7?x=query-value", &key(WRONG)).status, 401);
    let mut client = RawClient::connect(port);
    client.send(format!(
        "GET {path} HTTP/1.1\r\nHost: test\r\n{}\r\n",
        key(DESK)
    ));
    let head = String::from_utf8(client.until(b"\r\n\r\n")).unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    // Subscribers get what comes next.
    site.write_keys(&[("auditor", DESK, "[\"audit.read\"]")]);
    let event = String::from_utf8(client.until(b"\"removed\":[\"shop\"]")).unwrap();
    assert!(event.contains("\"event\":\"keys.changed\""), "{event}");
    let metrics = engine.get("/metrics").text();
    engine.stop();

    // All of it is on the disk, the end of the first run included.
    let engine = Engine::run(&[&file], &options);
    let listed = || {
        let mut client = RawClient::connect(port);
        client.send(format!(
            "GET {path}?from=earliest HTTP/1.1\r\nHost: test\r\n{}\r\n",
            key(DESK)
        ));
        let text = client.until(b"\"event\":\"audit.stopped\"");
        String::from_utf8(text).unwrap()
    };
    let text = listed();
    assert_eq!(
        text.matches("\"event\":\"audit.started\"").count(),
        1,
        "{text}"
    );
    assert_eq!(text.matches("unknown_key").count(), 1, "{text}");
    assert!(text.contains("\"reason\":\"scope\""), "{text}");
    for secret in [KEY, WRONG, DESK, "query-value"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
    assert!(
        metrics.contains("intertie_audit_failing{flow=\"\",step=\"\"} 0"),
        "{metrics}"
    );
    engine.stop();
}

#[test]
fn a_file_that_is_rotated_away_is_opened_anew() {
    let site = Site::new();
    let engine = site.run(FILE);
    assert_eq!(site.ask("/orders/1", "").status, 401);
    site.wait("access.refused", |_| true);
    let old = site.folder.path().join("audit.jsonl.1");
    fs::rename(site.file(), &old).unwrap();
    assert_eq!(site.ask("/orders/1", &key(WRONG)).status, 401);
    site.wait("access.refused", |it| it["reason"] == "unknown_key");
    fs::remove_file(site.file()).unwrap();
    // The same file after a reload: the stream goes on, without an end and a beginning.
    engine.process.signal("HUP");
    site.wait("config.reload", |_| true);
    engine.stop();
    assert_eq!(kinds(&events(&old)), ["audit.started", "access.refused"]);
    assert_eq!(kinds(&site.events()), ["config.reload", "audit.stopped"]);
}

#[test]
fn a_file_that_cannot_be_written_is_refused_at_the_start_and_by_a_reload() {
    let site = Site::new();
    let broken = "  audit: { file: missing/audit.jsonl }\n";
    let file = site.write(broken);
    let refused = output(&["run", file.to_str().unwrap(), "--admin", "off"]);
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(text.contains("IT0730"), "{text}");
    assert!(
        text.contains("missing/audit.jsonl cannot be written to"),
        "{text}"
    );

    let engine = site.run(FILE);
    site.write(broken);
    engine.process.signal("HUP");
    let failed = site.wait("config.reload", |_| true);
    assert_eq!(failed["outcome"], "failure");
    // Another file, of a reload that is refused for another reason, is not left behind.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let file = site.write("  audit: { file: other.jsonl }\n");
    let text = fs::read_to_string(&file).unwrap();
    let text = text.replace("'any /write'", &format!("'any 127.0.0.1:{port}/write'"));
    site.folder.write("flows.yaml", &text);
    engine.process.signal("HUP");
    wait_until("it is refused again", || {
        site.events()
            .iter()
            .filter(|it| it["event"] == "config.reload")
            .count()
            == 2
    });
    assert!(!site.folder.path().join("other.jsonl").exists());
    drop(taken);
    engine.process.signal("HUP");
    site.wait("audit.stopped", |_| true);
    let other = site.folder.path().join("other.jsonl");
    wait_until("the other file is there", || events(&other).len() == 2);
    assert_eq!(kinds(&events(&other)), ["audit.started", "config.reload"]);
    engine.stop();
}

/// Files whose names have `audit` in them cannot be written to while the file `$FULL` is there: the
/// disk is full after some bytes.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
ssize_t write(int fd, const void *bytes, size_t count) {
  char *full = getenv("FULL"), link[64], name[4096];
  if (full && !access(full, F_OK)) {
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, name, sizeof name - 1);
    if (length > 0 && (name[length] = 0, strstr(name, "audit.jsonl"))) {
      if (count <= 7) { errno = ENOSPC; return -1; }
      count = 7;
    }
  }
  return syscall(SYS_write, fd, bytes, count);
}
"#;

#[test]
fn a_full_disk_costs_no_request_and_no_event() {
    let site = Site::new();
    let library = library(&site.folder, SHIM);
    let full = site.folder.path().join("full");
    let text = |path: &Path| path.display().to_string();
    let variables = [("LD_PRELOAD", text(&library)), ("FULL", text(&full))];
    let variables = variables.each_ref().map(|it| (it.0, it.1.as_str()));
    let engine = Engine::run_in(&[&site.write(FILE)], &[], &variables);
    site.wait("audit.started", |_| true);
    fs::write(&full, "").unwrap();
    assert_eq!(site.ask("/orders/1", "").status, 401);
    engine
        .process
        .wait_for("the audit stream cannot be written");
    assert_eq!(site.ask("/orders/1", &key(KEY)).status, 200);
    assert_eq!(site.ask("/orders/1", &key(WRONG)).status, 401);
    let failing = || get(engine.admin, "/metrics").text();
    let is_failing = "intertie_audit_failing{flow=\"\",step=\"\"} 1";
    wait_until("it says so", || failing().contains(is_failing));
    fs::remove_file(&full).unwrap();
    site.wait("access.refused", |it| it["reason"] == "unknown_key");
    engine.process.wait_for("the audit stream is written again");
    engine.stop();
    assert_eq!(
        kinds(&site.events()),
        [
            "audit.started",
            "access.refused",
            "access.refused",
            "audit.stopped"
        ]
    );
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let folder = TempDir::new();
    folder.write("partners.keys", "");
    let topic = |more: &str| format!("---\ntopic: audit\npayload: event\n{more}");
    let here = |more: &str| format!("subscribe: {{ listen: '127.0.0.1:1'{more} }}\n");
    let open = |more: &str| format!("subscribe: {{ listen: ':8080'{more} }}\n");
    let named = "audit: { topic: audit }";
    for (audit, topics, expected) in [
        ("audit: {}", String::new(), "exactly one of"),
        (
            "audit: { file: a, topic: b }",
            String::new(),
            "exactly one of",
        ),
        (
            "audit: { topic: audit }",
            String::new(),
            "there is no topic `audit`",
        ),
        (
            "audit: { topic: audits }",
            topic(""),
            "did you mean `audit`?",
        ),
        (
            "audit: { topic: audit, refusals: 0 }",
            topic(""),
            "refusals",
        ),
        (named, "---\ntopic: audit\n".to_owned(), "payload: event"),
        (named, topic("body_max: 1KiB\n"), "body_max"),
        (
            named,
            topic("publish: { http: 'POST 127.0.0.1:1/a' }\n"),
            "clients publish",
        ),
        (
            named,
            topic(&here(", websocket: { publish: true }")),
            "clients publish",
        ),
        (named, topic(&open("")), "may read the audit stream"),
        // It is said that it is meant: a warning.
        (named, topic(&open(", auth: none")), "IT0720"),
        (named, topic(&open(", auth: partners")), ""),
        (named, topic(&open(", networks: [10.0.0.0/8]")), ""),
        (named, topic(&here("")), ""),
        (named, topic(""), ""),
        ("audit: { file: missing/audit.jsonl }", String::new(), ""),
    ] {
        let text = format!(
            "engine:\n  auth: {{ partners: {{ api_key: {{ keys: partners.keys }} }} }}\n  {audit}\n\
             ---\nflow: a\nfrom: {{ http: 'GET 127.0.0.1:1/a' }}\nsteps: [ reply: {{}} ]\n{topics}"
        );
        let file = folder.write("flows.yaml", &text);
        let checked = output(&["check", file.to_str().unwrap()]);
        let said = String::from_utf8_lossy(&checked.stdout).into_owned()
            + &String::from_utf8_lossy(&checked.stderr);
        let is_refused = !expected.is_empty() && expected != "IT0720";
        assert_eq!(checked.status.success(), !is_refused, "{text}\n{said}");
        assert!(said.contains(expected), "{expected}\n{text}\n{said}");
        assert_eq!(
            said.contains("IT0730"),
            is_refused && expected != "refusals",
            "{text}\n{said}"
        );
    }
    assert!(!folder.path().join("missing").exists());
}
