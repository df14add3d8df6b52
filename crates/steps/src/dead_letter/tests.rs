//! Tests of `dead-letter`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use component::exchange::Exchange;
use message::{Fault, Kind, Origin};
use serde_json::{Value as Json, json};

use super::{DEFINITION, Letter, is_secret, masked_query, time};
use crate::testing::{FakeServices, TestFlow, assert_problems, sound_flow};

/// A folder of its own that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("intertie-dead-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn within(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn keeping(folder: &str, more: &str) -> TestFlow {
    sound_flow(&format!("- dead-letter: {{ folder: \"{folder}\"{more} }}"))
}

fn failed(flow: &TestFlow, lines: &[(&str, &str)], body: &str) -> Exchange {
    let mut exchange = flow.exchange_of(lines, body);
    let mut fault = Fault::new(Kind::Connection, Origin::Upstream, "refused").with_cause("why");
    fault.step = Some("3 (http)".into());
    exchange.fault = Some(Rc::new(fault));
    exchange
}

fn keep(flow: &TestFlow, exchange: &mut Exchange) -> Result<String, Fault> {
    let services = FakeServices::default();
    services.run_to_end(flow.answer(exchange, &services))
}

fn files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn only(folder: &str) -> Json {
    let files = files(folder);
    assert_eq!(files.len(), 1, "{files:?}");
    serde_json::from_slice(&fs::read(&files[0]).unwrap()).unwrap()
}

#[test]
fn a_failed_message_becomes_one_file() {
    let root = Folder::new();
    let folder = root.within("a/b");
    let flow = keeping(&folder, "");
    let lines = [
        ("Content-Type", "application/json"),
        ("Authorization", "Bearer x"),
        ("Cookie", "s=1"),
        ("X-Two", "a"),
        ("X-Two", "b"),
    ];
    let mut exchange = failed(&flow, &lines, "{\"a\": 1}");
    exchange.request.query = Some("a=1&token=t".into());
    exchange.set_value(expr::value::text("changed"));
    assert_eq!(keep(&flow, &mut exchange).unwrap(), "\"changed\"");
    let expected = json!({
        "time": "1970-01-01T00:00:00Z",
        "flow": "test",
        "step": "3 (http)",
        "error": { "kind": "connection", "status": 502, "message": "refused", "cause": "why" },
        "method": "POST",
        "path": "/orders",
        "query": "a=1&token=***",
        "headers": {
            "content-type": "application/json",
            "authorization": "***",
            "cookie": "***",
            "x-two": ["a", "b"],
        },
        "body": { "content_type": "text/plain; charset=utf-8", "text": "changed" },
        "in": { "content_type": "application/json", "text": "{\"a\": 1}" },
    });
    assert_eq!(only(&folder), expected);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&files(&folder)[0]), 0o600);
    assert_eq!(mode(Path::new(&folder)), 0o700);
}

#[test]
fn bytes_are_kept_as_base64_and_codings_are_named() {
    let root = Folder::new();
    let folder = root.within("dead");
    let flow = keeping(&folder, "");
    let mut exchange = failed(&flow, &[("Content-Encoding", "gzip")], "");
    let reply = message::Reply::with_content(200, "image/png", b"\xff\x00".to_vec());
    exchange.content = component::content::Content::of_reply(&reply);
    // What is left is no text, which the test's flow wants to show.
    let _ = keep(&flow, &mut exchange);
    let letter = only(&folder);
    let body = json!({ "content_type": "image/png", "base64": "/wA=" });
    assert_eq!(letter["body"], body);
    let original = json!({ "content_type": null, "content_encoding": "gzip", "text": "" });
    assert_eq!(letter["in"], original);
}

#[test]
fn a_body_that_cannot_be_read_or_written_is_kept_all_the_same() {
    let root = Folder::new();
    let folder = root.within("dead");
    let flow = keeping(&folder, "");
    let json = [("Content-Type", "application/json")];
    let mut exchange = failed(&flow, &json, "{ not json");
    let _ = keep(&flow, &mut exchange);
    assert_eq!(only(&folder)["body"]["text"], "{ not json");
    let folder = root.within("other");
    let flow = keeping(&folder, "");
    let mut exchange = failed(&flow, &json, "1");
    exchange.fault = None;
    exchange.set_value(expr::value::array([expr::value::float(f64::NAN)]));
    let _ = keep(&flow, &mut exchange);
    let letter = only(&folder);
    assert!(
        letter["body"]["error"]
            .as_str()
            .unwrap()
            .starts_with("expression")
    );
    assert_eq!(letter["error"], Json::Null);
    assert_eq!(letter["step"], "1.1 (dead-letter)");
}

#[test]
fn every_message_has_a_name_of_its_own_without_values() {
    let root = Folder::new();
    let folder = root.within("dead");
    let flow = keeping(&folder, "");
    for _ in 0..20 {
        let mut exchange = failed(&flow, &[], "../../evil");
        exchange.request.path = "/../../evil".into();
        let _ = keep(&flow, &mut exchange);
    }
    let files = files(&folder);
    assert_eq!(files.len(), 20);
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(
            name.starts_with("19700101T000000.000Z-") && name.ends_with(".json"),
            "{name}"
        );
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
        assert!(name.chars().all(is_plain), "{name}");
    }
}

#[test]
fn a_full_folder_fails_the_step_until_there_is_room() {
    let root = Folder::new();
    let folder = root.within("dead");
    let flow = keeping(&folder, ", max_files: 2");
    let mut exchange = failed(&flow, &[], "");
    for _ in 0..2 {
        keep(&flow, &mut exchange).unwrap();
    }
    let fault = keep(&flow, &mut exchange).unwrap_err();
    let cause = fault.cause.unwrap();
    assert!(cause.ends_with("the folder has 2 files or more"), "{cause}");
    fs::remove_file(&files(&folder)[0]).unwrap();
    keep(&flow, &mut exchange).unwrap();
    assert!(keep(&flow, &mut exchange).is_err());
    let expected = ["dead_letters_total 3", "dead_letters_failed_total 2"];
    assert_eq!(flow.measures(&FakeServices::default()), expected);
}

#[test]
fn a_folder_that_cannot_be_written_fails_the_step() {
    let root = Folder::new();
    let file = root.within("file");
    fs::write(&file, "").unwrap();
    let dangling = root.within("dangling");
    std::os::unix::fs::symlink(root.within("not/there"), &dangling).unwrap();
    let mut folders = vec![file.clone(), format!("{file}/below"), dangling];
    folders.push(root.within(&"x".repeat(300)));
    let locked = root.within("locked");
    fs::create_dir(&locked).unwrap();
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o500)).unwrap();
    // Whoever may do anything is not kept out.
    if fs::write(format!("{locked}/probe"), "").is_err() {
        folders.push(locked);
    } else {
        folders.push("/proc/dead".to_owned());
    }
    for folder in folders {
        let flow = keeping(&folder, "");
        let mut exchange = failed(&flow, &[], "a");
        let fault = keep(&flow, &mut exchange).expect_err(&folder);
        assert_eq!((fault.name(), fault.status), ("internal", 500), "{folder}");
        assert!(!fault.detail.contains('/'), "{}", fault.detail);
        let cause = fault.cause.unwrap();
        assert!(cause.contains(&folder), "{cause}");
        let measures = flow.measures(&FakeServices::default());
        assert_eq!(measures[1], "dead_letters_failed_total 1");
        assert_eq!(exchange.content.raw(), Some(&b"a"[..]));
    }
}

#[test]
fn a_file_that_cannot_be_put_in_place_leaves_nothing_behind() {
    let root = Folder::new();
    let letters = super::Letters {
        named: "dead".into(),
        folder: root.0.clone(),
        files_max: 10,
        known: std::sync::Mutex::default(),
        written: std::sync::atomic::AtomicU64::new(0),
        failed: std::sync::atomic::AtomicU64::new(0),
    };
    fs::create_dir(root.0.join("a.json")).unwrap();
    assert!(letters.write("a.json", b"{}").is_err());
    let left: Vec<_> = files(root.0.to_str().unwrap());
    assert_eq!(left, [root.0.join("a.json")]);
}

#[test]
fn values_of_secrets_are_not_written() {
    let root = Folder::new();
    let folder = root.within("dead");
    let flow = keeping(&folder, "");
    message::secret::register("hunter2-of-dead-letters");
    let mut exchange = failed(&flow, &[], "{\"p\": \"hunter2-of-dead-letters\"}");
    let _ = keep(&flow, &mut exchange);
    let text = fs::read_to_string(&files(&folder)[0]).unwrap();
    assert!(!text.contains("hunter2"), "{text}");
    assert!(serde_json::from_str::<Json>(&text).is_ok());
}

#[test]
fn secrets_are_known_by_their_names() {
    for name in [
        "authorization",
        "proxy-authorization",
        "cookie",
        "set-cookie",
        "x-api-key",
        "x-auth-token",
        "x-amz-security-token",
        "password",
        "client_secret",
        "sig",
        "key",
    ] {
        assert!(is_secret(name), "{name}");
    }
    for name in ["content-type", "x-request-id", "user-agent", "accept", "id"] {
        assert!(!is_secret(name), "{name}");
    }
    assert_eq!(
        masked_query("a=1&Access_Token=x=y&sig&b"),
        "a=1&Access_Token=***&sig=***&b"
    );
}

#[test]
fn the_step_waits_and_needs_the_body() {
    let step = crate::testing::sound(&DEFINITION, "{ folder: ./dead }");
    assert!(step.waits() && step.reads_body() && !step.ends_flow());
}

#[test]
fn problems_are_told_at_their_places() {
    let long = format!("{{ folder: \"{}\" }}", "x".repeat(5000));
    assert_problems(
        &DEFINITION,
        &[
            (
                "{ folder: \"./dead/${ .id }\" }",
                &["IT0275 1:11 a value cannot decide which folder it is"],
            ),
            (
                "{ folder: \"\" }",
                &["IT0275 1:11 this is not the path of a folder"],
            ),
            (
                "{ folder: \"a\\0b\" }",
                &["IT0275 1:11 this is not the path of a folder"],
            ),
            (&long, &["IT0275 1:11 this is not the path of a folder"]),
            (
                "{ folder: ./dead, max_files: 0 }",
                &["IT0250 1:30 `max_files` is 0, outside its range"],
            ),
            ("{ }", &["IT0113 1:1"]),
            ("./dead", &["IT0112 1:1"]),
        ],
    );
}

/// Taking a copy, Base64 and the JSON text are work for the thread that writes the file.
#[test]
fn a_letter_shares_the_bodies_until_it_is_written() {
    let root = Folder::new();
    let flow = keeping(&root.within("a"), "");
    let mut exchange = failed(&flow, &[("Content-Type", "application/json")], "[1, 2]");
    let letter = Letter::of(&mut exchange, &time(&FakeServices::default()));
    let now = exchange.body().unwrap().0;
    for body in [letter.body.ok(), letter.original] {
        assert_eq!(
            body.unwrap().content.as_bytes().as_ptr(),
            now.as_bytes().as_ptr()
        );
    }
}
