//! Polling by a running engine: systems that change, fail and know what is asked again, over
//! restarts and reloads.

use std::path::Path;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use testkit::{Received, StrictBackend, TempDir, wait_until};

use crate::support::Engine;

fn reply(status: &str, fields: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{fields}\r\n{body}").into_bytes()
}

fn not_modified() -> Vec<u8> {
    b"HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n".to_vec()
}

/// A number of the admin port, of all flows and topics together.
fn measure(engine: &Engine, name: &str) -> f64 {
    engine.measured(name, &[]).unwrap_or_default()
}

/// Runs one file with a data folder.
fn run(folder: &TempDir, text: &str) -> Engine {
    folder.write("flows/flow.yaml", text);
    let data = folder.path().join("data").display().to_string();
    Engine::run(&[&folder.path().join("flows")], &["--data", &data])
}

/// The targets that were asked for, and a field of each request.
fn asked(backend: &StrictBackend, field: &str) -> Vec<(String, Option<String>)> {
    let requests = backend.requests().into_iter();
    let all = requests.map(|it| (it.target.clone(), it.header(field).map(str::to_owned)));
    all.collect()
}

#[test]
fn a_topic_knows_after_a_restart_what_it_has() {
    let backend = StrictBackend::answering(|request| match request.header("If-None-Match") {
        Some("\"a\"") => not_modified(),
        _ => reply("200 OK", "ETag: \"a\"\r\n", "{\"a\": 1}"),
    });
    let text = format!(
        "topic: prices\npublish:\n  poll: {{ url: \"http://127.0.0.1:{}/prices\", every: 100ms, \
         when: always }}\n",
        backend.port()
    );
    let folder = TempDir::new();
    let engine = run(&folder, &text);
    wait_until("it has been asked again", || {
        measure(&engine, "intertie_poll_not_modified_total") >= 3.0
    });
    assert_eq!(measure(&engine, "intertie_poll_changes_total"), 1.0);
    engine.stop();
    let before = backend.requests().len();
    let first = asked(&backend, "If-None-Match").into_iter().next();
    assert_eq!(first, Some(("/prices".to_owned(), None)));

    let engine = run(&folder, &text);
    wait_until("it has been asked after the restart", || {
        backend.requests().len() > before + 2
    });
    let after: Vec<_> = asked(&backend, "If-None-Match").split_off(before);
    let tagged = ("/prices".to_owned(), Some("\"a\"".to_owned()));
    assert!(after.iter().all(|it| *it == tagged), "{after:?}");
    assert_eq!(measure(&engine, "intertie_poll_changes_total"), 0.0);
    engine.stop();

    // Other settings: what is known does not count.
    let before = backend.requests().len();
    let engine = run(&folder, &text.replace("always", "always, pointer: /a"));
    wait_until("it has been asked", || backend.requests().len() > before);
    assert_eq!(
        asked(&backend, "If-None-Match").get(before),
        first_of("/prices").as_ref()
    );
    engine.stop();
    assert!(
        backend.violations().is_empty(),
        "{:?}",
        backend.violations()
    );
}

fn first_of(target: &str) -> Option<(String, Option<String>)> {
    Some((target.to_owned(), None))
}

#[test]
fn a_system_that_is_down_is_asked_until_it_is_up_and_told_of_once() {
    let status = Arc::new(AtomicU16::new(200));
    let now = Arc::clone(&status);
    let count = AtomicUsize::new(0);
    let backend = StrictBackend::answering(move |_| match now.load(Ordering::Relaxed) {
        200 => reply(
            "200 OK",
            "",
            &count.fetch_add(1, Ordering::Relaxed).to_string(),
        ),
        _ => reply("503 Service Unavailable", "", ""),
    });
    let port = backend.port();
    let text = format!(
        "flow: log\nuse: {{ shop: {{ http: \"http://127.0.0.1:{port}\", eject: {{ failures: 1000 }} }} \
         }}\nfrom:\n  poll: {{ url: \"shop:/prices\", every: 100ms, retry: {{ times: 1, delay: 10ms }} \
         }}\nsteps:\n  - log: \"now ${{ . }}\"\n"
    );
    let engine = run(&TempDir::new(), &text);
    let changes = || measure(&engine, "intertie_poll_changes_total");
    wait_until("it works", || changes() >= 3.0);
    status.store(503, Ordering::Relaxed);
    wait_until("it fails", || {
        measure(&engine, "intertie_poll_failures_total") >= 5.0
    });
    assert_eq!(measure(&engine, "intertie_poll_failing"), 1.0);
    let before = changes();
    status.store(200, Ordering::Relaxed);
    wait_until("it works again", || changes() >= before + 2.0);
    assert_eq!(measure(&engine, "intertie_poll_failing"), 0.0);
    let output = engine.stop();
    let told = |text: &str| output.lines().filter(|line| line.contains(text)).count();
    assert_eq!(told("did not answer with success"), 1, "{output}");
    assert_eq!(told("polling succeeds again"), 1, "{output}");
    assert!(
        output.contains("shop") && output.contains("now 2"),
        "{output}"
    );
}

#[test]
fn a_stop_does_not_wait_for_an_answer() {
    let backend = StrictBackend::answering(|_| {
        thread::sleep(Duration::from_secs(5));
        reply("200 OK", "", "1")
    });
    let port = backend.port();
    let text = format!(
        "topic: slow\ndurability: memory\npublish:\n  poll: {{ url: \"http://127.0.0.1:{port}/\", \
         every: 1s, when: always, timeout: 1m }}\n"
    );
    let engine = run(&TempDir::new(), &text);
    wait_until("it is asked", || {
        measure(&engine, "intertie_poll_polls_total") == 1.0
    });
    let start = std::time::Instant::now();
    engine.stop();
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
}

#[test]
fn nobody_is_asked_for_a_topic_that_nobody_subscribes_to() {
    let backend = StrictBackend::answering(|_| reply("200 OK", "", "1"));
    let port = backend.port();
    let text = format!(
        "topic: quiet\ndurability: memory\npublish:\n  poll: {{ url: \"http://127.0.0.1:{port}/quiet\", \
         every: 100ms }}\n---\ntopic: loud\ndurability: memory\npublish:\n  poll: {{ url: \
         \"http://127.0.0.1:{port}/loud\", every: 100ms, when: always }}\n"
    );
    let engine = run(&TempDir::new(), &text);
    wait_until("the other one is asked", || backend.requests().len() >= 8);
    engine.stop();
    assert!(backend.requests().iter().all(|it| it.target == "/loud"));
}

/// A system that gives tokens, and takes only the last one that it gave.
fn bank(revoked: Arc<AtomicUsize>, log: Arc<Mutex<Vec<String>>>) -> StrictBackend {
    let given = AtomicUsize::new(0);
    StrictBackend::answering(move |request: &Received| {
        let token = request
            .header("Authorization")
            .unwrap_or_default()
            .to_owned();
        log.lock()
            .unwrap()
            .push(format!("{} {token}", request.target));
        if request.target == "/token" {
            let number = given.fetch_add(1, Ordering::Relaxed) + 1;
            let body = format!("{{\"access_token\":\"t0k3n-{number}\",\"expires_in\":3600}}");
            return reply("200 OK", "Content-Type: application/json\r\n", &body);
        }
        let least = revoked.load(Ordering::Relaxed);
        let number: usize = token
            .replace("Bearer t0k3n-", "")
            .parse()
            .unwrap_or_default();
        match number > least {
            true => reply("200 OK", "", &format!("[{number}]")),
            false => reply("401 Unauthorized", "", ""),
        }
    })
}

#[test]
fn a_token_is_shared_by_all_workers_and_replaced_when_it_is_refused() {
    let (revoked, log) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::default()));
    let bank = bank(Arc::clone(&revoked), Arc::clone(&log));
    let (port, listen) = (bank.port(), testkit::free_port());
    let text = format!(
        "engine: {{}}\nuse:\n  bank:\n    http: \"http://127.0.0.1:{port}\"\n    auth: {{ oauth2: {{ \
         token_url: \"http://127.0.0.1:{port}/token\", client_id: me, client_secret: s3cr3t-99 }} }}\n\
         ---\nflow: balance\nfrom: {{ http: \"GET 127.0.0.1:{listen}/balance\" }}\nsteps:\n  - http: \
         bank:/balance\n---\nflow: log\nfrom: {{ poll: {{ url: \"bank:/rates\", every: 100ms }} }}\n\
         steps:\n  - log: \"rates ${{ .[0] }}\"\n"
    );
    let engine = run(&TempDir::new(), &text);
    for _ in 0..6 {
        let balance = crate::support::get(listen, "/balance");
        assert_eq!((balance.status, balance.text().as_str()), (200, "[1]"));
    }
    wait_until("it polls", || {
        log.lock()
            .unwrap()
            .iter()
            .any(|it| it.starts_with("/rates"))
    });
    let tokens = || {
        let log = log.lock().unwrap();
        log.iter().filter(|it| it.starts_with("/token")).count()
    };
    assert_eq!(tokens(), 1);
    revoked.store(1, Ordering::Relaxed);
    let balance = crate::support::get(listen, "/balance");
    assert_eq!(balance.text(), "[2]");
    wait_until("the poller has the new token", || {
        log.lock()
            .unwrap()
            .contains(&"/rates Bearer t0k3n-2".to_owned())
    });
    assert_eq!(tokens(), 2);
    assert_eq!(measure(&engine, "intertie_oauth2_tokens_total"), 2.0);
    let output = engine.stop();
    assert!(
        !output.contains("t0k3n") && !output.contains("s3cr3t"),
        "{output}"
    );
    assert!(output.contains("rates 2"), "{output}");
}

#[test]
fn a_reload_goes_on_without_a_second_poller() {
    let backend = StrictBackend::answering(|_| reply("200 OK", "", "1"));
    let port = backend.port();
    let text = format!(
        "flow: log\nfrom: {{ poll: {{ url: \"http://127.0.0.1:{port}/\", every: 300ms }} }}\nsteps:\n  \
         - log: first\n"
    );
    let folder = TempDir::new();
    folder.write("flows/flow.yaml", &text);
    let flows = folder.path().join("flows");
    let engine = Engine::run(&[Path::new(&flows)], &["--watch"]);
    wait_until("it is asked", || backend.requests().len() >= 3);
    folder.write("flows/flow.yaml", &text.replace("first", "second"));
    wait_until("it is reloaded", || {
        measure(&engine, "intertie_poll_polls_total") >= 8.0
    });
    let (polls, start) = (backend.requests().len(), std::time::Instant::now());
    thread::sleep(Duration::from_secs(3));
    let more = backend.requests().len() - polls;
    let due = start.elapsed().as_millis() as usize / 300 + 1;
    engine.stop();
    assert!(more <= due, "{more} requests, {due} were due");
}

/// Flows whose tests show what the step `changes` says of each of several messages.
const CHANGES: &str = r#"
flow: all
from: { http: POST /all }
steps:
  - each:
      in: .
      parallel: 1
      steps:
        - changes: { key: "${ .k }" }
        - map: $changes
tests:
  - name: what has changed is told by key
    in:
      body:
        - { k: a, v: 1, list: [1, 2, 3], text: "a text that does not change at all" }
        - { k: b, v: 1 }
        - { text: "a text that does not change at all", list: [1, 2, 3], v: 1, k: a }
        - { k: a, v: 2, list: [1, 2, 3], text: "a text that does not change at all" }
        - { k: b, v: 1.0 }
    expect:
      body:
        - { changed: true, first: true, patch: null, before: null }
        - { changed: true, first: true, patch: null, before: null }
        - { changed: false, first: false, patch: null, before: null }
        - changed: true
          first: false
          patch: [{ op: replace, path: /v, value: 2 }]
          before: { k: a, v: 1, list: [1, 2, 3], text: "a text that does not change at all" }
        - changed: true
          first: false
          patch: [{ op: replace, path: "", value: { k: b, v: 1.0 } }]
          before: { k: b, v: 1 }
---
flow: whole
from: { http: POST /whole }
steps:
  - each:
      in: .
      parallel: 1
      steps:
        - changes:
        - map: $changes.changed
tests:
  - name: without a key every body is compared with the one before
    in: { body: [1, 1, "1", null, null, 1] }
    expect: { body: [true, false, true, true, false, true] }
---
flow: sent
use: { other: { http: "http://other.example" } }
from: { http: POST /sent }
steps:
  - each:
      in: .
      parallel: 1
      on_item_error: collect
      steps:
        - changes:
            key: "${ .k }"
            steps:
              - http: { to: other:/x, body: "${ . }" }
              - set: { sent: true }
        - map: "[$changes.changed, $changes.first]"
tests:
  - name: what fails comes again
    in: { body: [{ k: a }, { k: a }, { k: a }, { k: a, v: 1 }] }
    mock: { other: [{ status: 503, times: 1 }, { status: 204 }] }
    expect:
      calls: { other: 3 }
      body_contains: [{ error: { kind: 5xx } }, [true, true], [false, false], [true, false]]
---
flow: forgetful
from: { http: POST /forgetful }
steps:
  - each:
      in: .
      parallel: 1
      steps: [ changes: { key: "${ . }", max: 2 }, map: $changes.first ]
tests:
  - name: a key that was forgotten begins anew
    in: { body: [a, b, a, c, a, b] }
    expect: { body: [true, true, false, true, false, true] }
"#;

#[test]
fn changes_are_told_from_one_message_to_the_next() {
    let folder = TempDir::new();
    folder.write("flow.yaml", CHANGES);
    let result = crate::support::command()
        .arg("test")
        .arg(folder.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&result.stdout);
    assert!(result.status.success(), "{text}");
    assert!(text.contains("4 tests, all ok"), "{text}");
}
