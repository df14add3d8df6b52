//! Tests of the file steps on a real disk.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

use message::Fault;
use testkit::TempDir;

use super::place::{self, Way};
use super::{fault, parts};
use crate::testing::{FakeServices, flow, sound_flow};

/// Runs steps on a message with this JSON; the body then.
fn run(steps: &str, body: &str) -> Result<String, Fault> {
    let flow = sound_flow(steps);
    let mut exchange = flow.exchange_of(&[("Content-Type", "application/json")], body);
    let services = FakeServices::default();
    services.run_to_end(flow.answer(&mut exchange, &services))
}

fn failure(steps: &str, body: &str) -> (String, u16) {
    let fault = run(steps, body).unwrap_err();
    let shown = fault.to_reply();
    let text = String::from_utf8_lossy(shown.body.as_bytes()).into_owned();
    assert!(!text.contains("/tmp"), "{text}");
    (fault.name().to_owned(), fault.status)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

fn step(verb: &str, folder: &TempDir, more: &str) -> String {
    format!(
        "- {verb}: {{ folder: '{}', {more} }}",
        folder.path().display()
    )
}

#[test]
fn files_are_created_replaced_and_added_to() {
    let folder = TempDir::new();
    let create = step("write-file", &folder, "name: '${ .n }.json'");
    run(&create, r#"{"n":"a"}"#).unwrap();
    let path = folder.path().join("a.json");
    assert_eq!(fs::read_to_string(&path).unwrap(), r#"{"n":"a"}"#);
    assert_eq!(failure(&create, r#"{"n":"a"}"#), ("exists".into(), 409));
    let replace = step(
        "write-file",
        &folder,
        "name: a.json, mode: replace, body: { x: '${ .n }' }",
    );
    assert_eq!(
        run(&replace, r#"{"n":1}"#).unwrap(),
        r#"{"n":1}"#,
        "the body stays"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), r#"{"x":1}"#);
    let append = step(
        "write-file",
        &folder,
        r#"name: sub/log.txt, mode: append, body: "${ .n }\n""#,
    );
    run(&append, r#"{"n":"å"}"#).unwrap();
    run(&append, r#"{"n":2}"#).unwrap();
    let log = fs::read_to_string(folder.path().join("sub/log.txt")).unwrap();
    assert_eq!(log, "å\n2\n");
    assert_eq!(
        names(folder.path()),
        ["a.json", "sub"],
        "nothing else is left"
    );
}

#[test]
fn files_are_read_by_their_names_and_formats() {
    let folder = TempDir::new();
    folder.write("a.json", "[1, 2]");
    folder.write("b.csv", "a,b\n1,2\n");
    fs::write(folder.path().join("c.bin"), [0, 255]).unwrap();
    let json = step("read-file", &folder, "name: '${ .n }'") + "\n- map: .[1]";
    assert_eq!(run(&json, r#"{"n":"a.json"}"#).unwrap(), "2");
    let csv = step("read-file", &folder, "name: b.csv, decode: csv") + "\n- map: .[0].b";
    assert_eq!(run(&csv, "{}").unwrap(), "\"2\"");
    let bytes = step("read-file", &folder, "name: c.bin") + "\n- map: length";
    assert_eq!(run(&bytes, "{}").unwrap(), "2");
    assert_eq!(failure(&json, r#"{"n":"none"}"#), ("not-found".into(), 404));
    assert_eq!(
        failure(&json, r#"{"n":"a.json/b"}"#),
        ("not-found".into(), 404)
    );
    let optional = step("read-file", &folder, "name: none, optional: true") + "\n- map: '[.]'";
    assert_eq!(run(&optional, "{}").unwrap(), "[null]");
    let small = step("read-file", &folder, "name: a.json, max: 5B");
    assert_eq!(failure(&small, "{}").0, "too-large");
}

#[test]
fn a_name_of_a_missing_value_or_a_wrong_type_is_the_messages_fault() {
    let folder = TempDir::new();
    for name in ["${ .n }", "a-${ .n }.json"] {
        for verb in ["read-file", "write-file", "delete-file"] {
            let any = step(verb, &folder, &format!("name: '{name}'"));
            for body in ["{}", r#"{"n":null}"#, r#"{"n":["a"]}"#, r#"{"n":{}}"#] {
                let expected = ("invalid".to_owned(), 400);
                assert_eq!(failure(&any, body), expected, "{verb} {name} {body}");
            }
            // What fails within the expression itself is the flow's.
            let broken = step(verb, &folder, "name: '${ .n + {} }'");
            assert_eq!(
                failure(&broken, r#"{"n":1}"#),
                ("expression".to_owned(), 500)
            );
        }
    }
}

#[test]
fn names_never_lead_out_of_the_folder() {
    let (outside, folder) = (TempDir::new(), TempDir::new());
    let secret = outside.write("secret.json", "1");
    symlink(outside.path(), folder.path().join("out")).unwrap();
    symlink(&secret, folder.path().join("link.json")).unwrap();
    let absolute = serde_json::json!({ "n": secret }).to_string();
    for verb in ["read-file", "write-file", "delete-file"] {
        let any = step(verb, &folder, "name: '${ .n }'");
        for name in [
            "",
            ".",
            "..",
            "../x",
            "a/../../x",
            "a//b",
            "/a",
            "a/",
            "a\\u0000b",
            "a\\nb",
        ] {
            let body = format!(r#"{{"n":"{name}"}}"#);
            assert_eq!(
                failure(&any, &body),
                ("invalid".into(), 400),
                "{verb} {name}"
            );
        }
        assert_eq!(failure(&any, &absolute).0, "invalid");
        let through = failure(&any, r#"{"n":"out/secret.json"}"#);
        assert_eq!(through, ("not-found".into(), 404), "{verb}");
    }
    for verb in ["read-file", "delete-file"] {
        let any = step(verb, &folder, "name: link.json");
        assert_eq!(failure(&any, "{}").0, "not-found", "{verb}");
    }
    let append = step("write-file", &folder, "name: link.json, mode: append");
    assert_eq!(failure(&append, "{}").0, "not-found");
    let replace = step("write-file", &folder, "name: link.json, mode: replace");
    run(&replace, "2").unwrap();
    assert_eq!(
        fs::read_to_string(secret).unwrap(),
        "1",
        "the link itself is replaced"
    );
    assert!(parts("a".repeat(256).as_str()).is_err());
}

#[test]
fn files_are_listed_in_order_and_deleted() {
    let folder = TempDir::new();
    folder.write("b.csv", "12345");
    folder.write("a.csv", "1");
    folder.write("c.txt", "");
    folder.write(".hidden.csv", "");
    folder.write("in/d.csv", "123");
    folder.write(".git/e.csv", "");
    symlink(folder.path().join("in"), folder.path().join("loop")).unwrap();
    let map = "\n- map: '[.[].name] | join(\" \")'";
    let list = |more: &str| {
        let listed = run(&(step("list-files", &folder, more) + map), "{}").unwrap();
        listed.trim_matches('"').to_owned()
    };
    assert_eq!(list("match: '*.csv'"), "a.csv b.csv");
    assert_eq!(
        list("match: '*.csv', recursive: true"),
        "a.csv b.csv in/d.csv"
    );
    assert_eq!(list("sort: size"), "c.txt a.csv b.csv");
    let one = step("list-files", &folder, "match: a.csv") + "\n- map: '.[0].modified'";
    assert!(run(&one, "{}").unwrap().starts_with("\"20"));
    let few = step("list-files", &folder, "max: 2");
    assert_eq!(failure(&few, "{}").0, "too-large");
    let none = "- list-files: { folder: /no/such/folder }";
    assert_eq!(failure(none, "{}"), ("not-found".into(), 404));
    let delete = step("delete-file", &folder, "name: '${ .n }'");
    run(&delete, r#"{"n":"in/d.csv"}"#).unwrap();
    assert_eq!(
        failure(&delete, r#"{"n":"in/d.csv"}"#),
        ("not-found".into(), 404)
    );
    assert_eq!(failure(&delete, r#"{"n":"in"}"#), ("not-found".into(), 404));
    let optional = step("delete-file", &folder, "name: none, optional: true");
    assert_eq!(run(&optional, "7").unwrap(), "7");
}

#[test]
fn of_many_that_create_one_file_one_succeeds_and_lines_stay_whole() {
    let folder = Arc::new(TempDir::new());
    let threads: Vec<_> = (0..8)
        .map(|number| {
            let folder = Arc::clone(&folder);
            thread::spawn(move || {
                let line = format!("{}\n", number.to_string().repeat(5000));
                for _ in 0..5 {
                    let target = (folder.path(), "log");
                    place::write(target, line.as_bytes(), Way::Append, false).unwrap();
                }
                place::write((folder.path(), "one"), b"x", Way::Create, false).is_ok()
            })
        })
        .collect();
    let created = threads.into_iter().filter_map(|it| it.join().ok());
    assert_eq!(created.filter(|it| *it).count(), 1);
    let log = fs::read_to_string(folder.path().join("log")).unwrap();
    assert_eq!(log.lines().count(), 40);
    assert!(
        log.lines()
            .all(|line| line.len() == 5000 && line.bytes().all(|it| it == line.as_bytes()[0]))
    );
    assert_eq!(names(folder.path()), ["log", "one"]);
}

/// A full disk: a process of its own whose files may have 4 KiB at most (RLIMIT_FSIZE).
#[test]
fn a_full_disk_leaves_no_part_of_a_file() {
    let name = "INTERTIE_TEST_FULL_DISK";
    let Ok(folder) = std::env::var(name) else {
        let folder = TempDir::new();
        folder.write("log", "before\n");
        let program = std::env::current_exe().unwrap();
        let test = "folder::tests::a_full_disk_leaves_no_part_of_a_file";
        // 8 blocks of 512 bytes; the signal is ignored so that writing fails instead.
        let script = "trap '' XFSZ; ulimit -f 8; exec \"$0\" --exact \"$1\" --nocapture";
        let output = Command::new("sh")
            .args(["-c", script, program.to_str().unwrap(), test])
            .env(name, folder.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 passed"),
            "{text}"
        );
        assert_eq!(names(folder.path()), ["log"]);
        let log = fs::read_to_string(folder.path().join("log")).unwrap();
        assert_eq!(log, "before\n");
        return;
    };
    let bytes = vec![b'x'; 100_000];
    for way in [Way::Create, Way::Replace, Way::Append] {
        let written = place::write((Path::new(&folder), "log"), &bytes, way, true);
        let error = written.unwrap_err();
        assert_eq!(
            error.kind(),
            std::io::ErrorKind::FileTooLarge,
            "{way:?}: {error}"
        );
    }
}

#[test]
fn errors_of_the_system_have_names() {
    use rustix::io::Errno;
    let name = |error: Errno| {
        let fault = fault("it cannot be", &error.into());
        (fault.name().to_owned(), fault.status)
    };
    assert_eq!(name(Errno::NOSPC), ("unavailable".into(), 503));
    assert_eq!(name(Errno::DQUOT), ("unavailable".into(), 503));
    assert_eq!(name(Errno::ACCESS), ("internal".into(), 500));
    assert_eq!(name(Errno::ROFS), ("internal".into(), 500));
    assert_eq!(name(Errno::LOOP), ("not-found".into(), 404));
}

#[test]
fn what_may_not_be_read_or_written_is_told() {
    let folder = TempDir::new();
    folder.write("a.json", "1");
    // Root may do everything, but nobody may write where there is a file instead of a folder.
    let blocked = format!(
        "- write-file: {{ folder: '{}/a.json', name: b }}",
        folder.path().display()
    );
    let fault = run(&blocked, "{}").unwrap_err();
    assert!(
        ["internal", "exists", "not-found"].contains(&fault.name()),
        "{fault}"
    );
    assert!(fault.cause.unwrap().contains("a.json"));
    fs::set_permissions(
        folder.path().join("a.json"),
        fs::Permissions::from_mode(0o000),
    )
    .unwrap();
    let read = run(&step("read-file", &folder, "name: a.json"), "{}");
    let is_root = fs::read(folder.path().join("a.json")).is_ok();
    assert!(is_root || read.unwrap_err().name() == "internal");
}

#[test]
fn every_problem_is_told() {
    for (steps, expected) in [
        ("- read-file: { folder: '${ .f }', name: a }", "IT0480"),
        ("- read-file: { folder: '', name: a }", "IT0480"),
        ("- list-files: { folder: ' ' }", "IT0480"),
        ("- write-file: { folder: d, name: ../a }", "IT0481"),
        ("- write-file: { folder: d, name: /a }", "IT0481"),
        ("- delete-file: { folder: d, name: '' }", "IT0481"),
        ("- list-files: { folder: d, match: '[a' }", "IT0285"),
    ] {
        let found = flow(steps).err().unwrap_or_default();
        assert_eq!(found.len(), 1, "{steps}: {found:?}");
        assert!(found[0].contains(expected), "{steps}: {found:?}");
    }
}
