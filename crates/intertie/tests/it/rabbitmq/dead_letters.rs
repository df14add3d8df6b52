//! Messages whose flows fail for good.

use std::fs;
use std::thread;
use std::time::Duration;

use amqp::{Properties, Table, Value};
use testkit::{StrictBackend, wait_until};

use super::client::{Client, json};
use super::consume::{BROKEN, OK, to_backend};
use super::{BROKER, name, run};
use crate::failed_disk::Disk;
use crate::support::Engine;

/// A back end that fails with the message 1 alone.
fn backend() -> StrictBackend {
    StrictBackend::answering(|received| match &*received.body {
        br#"{"n":1}"# => BROKEN.to_vec(),
        _ => OK.to_vec(),
    })
}

fn counted(engine: &Engine, what: &str) -> f64 {
    let name = format!("intertie_source_{what}");
    engine.measured(&name, &[("flow", "out")]).unwrap()
}

fn text<'a>(table: &'a Table, name: &str) -> &'a str {
    match table.get(name) {
        Some(Value::Text(text)) => std::str::from_utf8(text).unwrap(),
        other => panic!("{name}: {other:?}"),
    }
}

/// The headers of a message as properties have them.
fn header_bytes(table: &Table) -> Vec<u8> {
    let mut bytes = Vec::new();
    table.write(&mut bytes).unwrap();
    bytes.split_off(4)
}

#[test]
fn a_message_that_failed_is_kept_in_a_store_and_acknowledged() {
    let queue = name("in");
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&queue, &[]);
    let (failing, sink) = (backend(), StrictBackend::answering(|_| OK.to_vec()));
    let settings = "retry: { times: 1, delay: 10ms }";
    let out = to_backend(&queue, settings, failing.port());
    let folder = testkit::TempDir::new();
    let data = folder.path().join("data").display().to_string();
    let file = folder.write("flows.yaml", &out);
    let engine = Engine::run(&[&file], &["--data", &data]);
    let properties = Properties {
        message_id: Some(b"m/1"),
        ..json()
    };
    client.publish(&queue, &properties, br#"{"n":1}"#);
    client.publish_json(&queue, r#"{"n":2}"#);
    wait_until("it is kept", || {
        counted(&engine, "dead_letters_total") == 1.0
    });
    wait_until("the other one has come", || {
        counted(&engine, "succeeded_total") == 1.0
    });
    let failures = ["failed_total", "retried_total", "dropped_total", "blocked"];
    let failures = failures.map(|what| counted(&engine, what));
    assert_eq!(failures, [2.0, 1.0, 0.0, 0.0]);
    let log = engine.stop();
    assert!(log.contains("a message is a dead letter"), "{log}");
    client.consume(&queue);
    assert!(client.take_all().is_empty(), "both were acknowledged");
    // Another flow gets it, with all that is known of it.
    let file = folder.write(
        "letters.yaml",
        &format!(
            "flow: letters\nfrom: {{ store: dead-letters }}\nsteps:\n\
             - http: {{ to: 'http://127.0.0.1:{}/in', method: POST, headers: {{\
             X-Id: '${{ $path.dead_letter_id }}', X-Flow: '${{ $path.dead_letter_flow }}',\
             X-Times: '${{ $path.dead_letter_attempts }}', X-Queue: '${{ $path.queue }}',\
             X-Reason: '${{ $path.dead_letter_reason }}' }} }}\n",
            sink.port()
        ),
    );
    let engine = Engine::run(&[&file], &["--data", &data]);
    wait_until("it has come", || sink.requests().len() == 1);
    let letter = sink.requests().remove(0);
    assert_eq!(letter.body, br#"{"n":1}"#);
    let known = ["x-id", "x-flow", "x-times", "x-queue"].map(|name| letter.header(name));
    assert_eq!(known, [Some("m/1"), Some("out"), Some("2"), Some(&*queue)]);
    let reason = letter.header("x-reason").unwrap();
    assert!(reason.contains("5xx"), "{reason}");
    engine.stop();
}

#[test]
fn a_message_is_not_acknowledged_while_the_disk_does_not_take_its_dead_letter() {
    let (queue, disk) = (name("in"), Disk::new());
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&queue, &[]);
    let backend = backend();
    let flow = to_backend(&queue, "ordered: true, retry: { times: 0 }", backend.port());
    let engine = disk.run(&flow);
    disk.fail("all");
    client.publish_json(&queue, r#"{"n":1}"#);
    client.publish_json(&queue, r#"{"n":2}"#);
    wait_until("it is blocked", || counted(&engine, "blocked") == 1.0);
    assert_eq!(counted(&engine, "dead_letters_total"), 0.0);
    assert_eq!(backend.requests().len(), 1, "no further one was begun");
    // With `kill -9`.
    drop(engine);
    fs::remove_file(disk.file()).unwrap();
    let engine = disk.run(&flow);
    wait_until("it is kept", || {
        counted(&engine, "dead_letters_total") == 1.0
    });
    wait_until("the next one has come", || {
        counted(&engine, "succeeded_total") == 1.0
    });
    engine.stop();
    client.consume(&queue);
    assert!(client.take_all().is_empty());
}

#[test]
fn a_dead_letter_for_a_queue_keeps_what_it_had_and_comes_to_no_other_queue() {
    let (queue, dead, other) = (name("in"), name("dead"), name("audit"));
    let mut client = Client::connect(BROKER.port(), "/");
    for queue in [&queue, &dead, &other] {
        client.declare_queue(queue, &[]);
    }
    let mut table = Table::default();
    table.set("CC", Value::Array(vec![Value::from(&*other)]));
    table.set("tenant", "a");
    let headers = header_bytes(&table);
    let properties = Properties {
        headers: Some(&headers),
        message_id: Some(b"m1"),
        correlation_id: Some(b"c1"),
        expiration: Some(b"600000"),
        delivery_mode: None,
        ..json()
    };
    let backend = backend();
    let settings = format!("retry: {{ times: 1, delay: 10ms }}, dead_letter: {{ queue: {dead} }}");
    let (engine, _folder) = run(&to_backend(&queue, &settings, backend.port()));
    client.publish(&queue, &properties, br#"{"n":1}"#);
    client.consume(&dead);
    let letter = client.take(1).remove(0);
    assert_eq!(&*letter.body, br#"{"n":1}"#);
    let found = letter.properties().unwrap();
    let expected = Properties {
        headers: found.headers,
        expiration: None,
        delivery_mode: Some(2),
        ..properties
    };
    assert_eq!(found, expected);
    let headers = found.table().unwrap();
    assert_eq!(text(&headers, "tenant"), "a");
    assert_eq!(text(&headers, "x-intertie-exchange"), "");
    assert_eq!(text(&headers, "x-intertie-key"), queue);
    assert_eq!(text(&headers, "x-intertie-queue"), queue);
    assert_eq!(text(&headers, "x-intertie-expiration"), "600000");
    let reason = text(&headers, "x-intertie-reason");
    assert!(reason.contains("5xx"), "{reason}");
    let failures = headers.get("x-intertie-failures");
    assert_eq!(failures, Some(&Value::Integer(2)));
    assert_eq!(headers.get("CC"), None);
    engine.stop();
    client.consume(&other);
    client.consume(&queue);
    assert_eq!(client.take_all().len(), 1, "what the sender sent there");
}

#[test]
fn a_source_waits_while_the_queue_of_dead_letters_is_missing() {
    let (queue, dead) = (name("in"), name("dead"));
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&queue, &[]);
    let backend = backend();
    // One worker takes all.
    let settings =
        format!("ordered: true, retry: {{ times: 0 }}, dead_letter: {{ queue: {dead} }}");
    let flow = to_backend(&queue, &settings, backend.port());
    let (engine, _folder) = run(&flow);
    client.publish_json(&queue, r#"{"n":1}"#);
    client.publish_json(&queue, r#"{"n":2}"#);
    wait_until("it is blocked", || counted(&engine, "blocked") == 1.0);
    engine.process.wait_for("a dead letter cannot be published");
    let log = engine.stop();
    assert!(log.contains("unroutable"), "{log}");
    assert_eq!(backend.requests().len(), 1, "no further one was begun");
    // Both are still there.
    let (engine, _folder) = run(&flow);
    wait_until("it is blocked", || counted(&engine, "blocked") == 1.0);
    client.declare_queue(&dead, &[]);
    client.consume(&dead);
    assert_eq!(&*client.take(1).remove(0).body, br#"{"n":1}"#);
    wait_until("the next one has come", || backend.requests().len() == 3);
    wait_until("it goes on", || counted(&engine, "blocked") == 0.0);
    engine.stop();
    client.consume(&queue);
    assert!(client.take_all().is_empty());
}

#[test]
fn a_source_waits_while_the_broker_refuses_dead_letters() {
    let (queue, dead) = (name("in"), name("dead"));
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&queue, &[]);
    let arguments = [
        ("x-max-length", Value::Integer(1)),
        ("x-overflow", Value::from("reject-publish")),
    ];
    client.declare_queue(&dead, &arguments);
    client.publish_json(&dead, "{}");
    let backend = backend();
    let settings =
        format!("concurrent: 10, retry: {{ times: 0 }}, dead_letter: {{ queue: {dead} }}");
    let (engine, _folder) = run(&to_backend(&queue, &settings, backend.port()));
    client.publish_json(&queue, r#"{"n":1}"#);
    wait_until("it is blocked", || counted(&engine, "blocked") == 1.0);
    client.consume(&dead);
    let letters = client.take(2);
    assert_eq!(&*letters[1].body, br#"{"n":1}"#);
    wait_until("it goes on", || counted(&engine, "blocked") == 0.0);
    engine.stop();
    client.consume(&queue);
    assert!(client.take_all().is_empty());
}

#[test]
fn a_source_that_is_to_stop_takes_no_further_message_on_any_worker() {
    let queue = name("in");
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&queue, &[]);
    let backend = backend();
    let settings = "retry: { times: 1, delay: 10ms }, dead_letter: stop";
    let (engine, _folder) = run(&to_backend(&queue, settings, backend.port()));
    client.publish_json(&queue, r#"{"n":1}"#);
    engine.process.wait_for("no further messages are taken");
    thread::sleep(Duration::from_millis(500));
    let before = backend.requests().len();
    for _ in 0..10 {
        client.publish_json(&queue, r#"{"n":2}"#);
    }
    thread::sleep(Duration::from_millis(300));
    assert_eq!(backend.requests().len(), before);
    engine.stop();
    client.consume(&queue);
    let left = client.take_all();
    assert_eq!(left.len(), 11);
    assert!(left.iter().any(|it| &*it.body == br#"{"n":1}"#));
}

/// As it was given, not as a problem document.
#[test]
fn a_flow_that_has_failed_for_good_answers_with_its_own_error_reply() {
    let (queue, answers, url) = (name("ask"), name("answers"), BROKER.url());
    let mut client = Client::connect(BROKER.port(), "/");
    client.declare_queue(&queue, &[]);
    client.declare_queue(&answers, &[]);
    let (engine, _folder) = run(&format!(
        "flow: answer\nuse: {{ mq: {{ rabbitmq: '{url}' }} }}\nfrom:\n\
         \x20 rabbitmq: {{ connection: mq, queue: {queue}, reply: true, \
         retry: {{ times: 1, delay: 10ms }} }}\n\
         steps:\n- reply: {{ status: 409, body: {{ why: seen }} }}\n"
    ));
    let properties = Properties {
        reply_to: Some(answers.as_bytes()),
        correlation_id: Some(b"17"),
        ..json()
    };
    client.publish(&queue, &properties, b"{}");
    client.consume(&answers);
    let answer = client.take(1).remove(0);
    assert_eq!(&*answer.body, br#"{"why":"seen"}"#);
    let properties = answer.properties().unwrap();
    assert_eq!(properties.correlation_id, Some(&b"17"[..]));
    let headers = properties.table().unwrap();
    assert_eq!(headers.get("status"), Some(&Value::Integer(409)));
    engine.stop();
    client.consume(&queue);
    assert!(client.take_all().is_empty());
}
