//! Retries and dead letters of Redis streams and channels.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use testkit::servers::Redis;
use testkit::{StrictBackend, TempDir, wait_until};

use super::{BAD, OK, bodies, pending, plain, write_stream_flow};
use crate::support::Engine;

const FAILED: &str = "intertie_source_failed_total";
const DEAD: &str = "intertie_source_dead_letters_total";
const DROPPED: &str = "intertie_source_dropped_total";
const LOST: &str = "intertie_redis_dropped_total";

/// A back end that refuses everything.
fn refusing() -> StrictBackend {
    StrictBackend::answering(|_| BAD.to_vec())
}

/// A back end that refuses everything until the flag is set.
fn failing_until_well() -> (StrictBackend, Arc<AtomicBool>) {
    let is_well = Arc::new(AtomicBool::new(false));
    let well = Arc::clone(&is_well);
    let backend = StrictBackend::answering(move |_| match well.load(Ordering::Relaxed) {
        true => OK.to_vec(),
        false => BAD.to_vec(),
    });
    (backend, is_well)
}

/// A flow that posts each dead letter of the default store to a back end.
fn write_letters_flow(folder: &TempDir, backend: &StrictBackend) {
    let headers = ["id", "flow", "attempts", "reason"]
        .map(|name| format!("X-{name}: \"${{ $path.dead_letter_{name} }}\""));
    let text = format!(
        "flow: letters\nfrom: {{ store: dead-letters }}\nsteps:\n  - http: {{ to: \
         \"http://127.0.0.1:{}/letter\", method: POST, headers: {{ {} }} }}\n",
        backend.port(),
        headers.join(", ")
    );
    folder.write("letters.yaml", &text);
}

/// A flow that posts each message of the channel `c` to a back end.
fn write_channel_flow(folder: &TempDir, redis: &Redis, backend: &StrictBackend, settings: &str) {
    let text = format!(
        "flow: news\nuse: {{ store: {} }}\nfrom:\n  redis: {{ connection: store, channel: c, \
         {settings} }}\nsteps:\n  - http: {{ to: \"http://127.0.0.1:{}/in\", method: POST }}\n",
        plain(redis),
        backend.port()
    );
    folder.write("flow.yaml", &text);
}

fn publish(redis: &Redis, text: &str) {
    wait_until("it is subscribed", || {
        redis.ask(&["PUBLISH", "c", text]) == "1"
    });
}

#[test]
fn an_entry_is_in_the_store_of_dead_letters_before_it_is_acknowledged() {
    let (redis, folder) = (Redis::start(), TempDir::new());
    let (has_come, is_frozen) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (coming, gate) = (Arc::clone(&has_come), Arc::clone(&is_frozen));
    let backend = StrictBackend::answering(move |_| {
        coming.store(true, Ordering::Relaxed);
        while !gate.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(5));
        }
        BAD.to_vec()
    });
    let letters = StrictBackend::start();
    let settings = "start: all, field: body, retry: { times: 1, delay: 10ms }";
    write_stream_flow(&folder, &redis, backend.port(), settings);
    write_letters_flow(&folder, &letters);
    redis.ask(&["XADD", "s", "7-1", "body", "poison"]);
    let engine = Engine::run(&[folder.path()], &[]);
    wait_until("it has come", || has_come.load(Ordering::Relaxed));
    // From here on nothing can be acknowledged.
    redis.hold(true);
    is_frozen.store(true, Ordering::Relaxed);
    wait_until("a letter is there", || !letters.requests().is_empty());
    redis.hold(false);
    wait_until("it is acknowledged", || pending(&redis) == "0");
    assert_eq!(bodies(&backend), ["poison", "poison"]);
    let letter = letters.requests().remove(0);
    assert_eq!(letter.body, b"poison");
    let header = |name| letter.header(name).unwrap_or_default();
    let told = ["x-id", "x-flow", "x-attempts"].map(header);
    assert_eq!(told, ["7-1", "entries", "2"]);
    assert!(header("x-reason").starts_with("5xx"), "{letter:?}");
    assert_eq!(engine.metric(DEAD), 1.0);
    engine.stop();
    assert_eq!(letters.requests().len(), 1);
}

#[test]
fn entries_that_fail_for_good_are_moved_to_a_stream() {
    let (redis, folder) = (Redis::start(), TempDir::new());
    let backend = refusing();
    let settings = "start: all, idle: 150ms, field: body, decode: text, \
                    retry: { times: 2, delay: 50ms }, dead_letter: { stream: dead }";
    write_stream_flow(&folder, &redis, backend.port(), settings);
    redis.ask(&["XADD", "s", "7-1", "body", "poison", "more", "fields"]);
    // It is not acknowledged while it cannot be moved.
    redis.ask(&["SET", "dead", "in the way"]);
    let engine = Engine::run(&[folder.path()], &[]);
    wait_until("it cannot be moved", || {
        engine.metric("intertie_source_blocked") == 1.0
    });
    assert_eq!(pending(&redis), "1");
    redis.ask(&["DEL", "dead"]);
    wait_until("it has been moved", || redis.ask(&["XLEN", "dead"]) == "1");
    assert_eq!(bodies(&backend), ["poison", "poison", "poison"]);
    let dead = redis.ask(&["XRANGE", "dead", "-", "+"]);
    for part in [
        "body, poison",
        "more, fields",
        "dead-letter-stream, s",
        "dead-letter-id, 7-1",
        "dead-letter-reason, 5xx",
        "dead-letter-attempts, 3",
    ] {
        assert!(dead.contains(part), "{part}: {dead}");
    }
    assert_eq!(pending(&redis), "0");
    assert_eq!(engine.metric(DEAD), 1.0);
    engine.stop();
}

#[test]
fn an_entry_that_waits_to_be_tried_again_is_not_claimed() {
    let (redis, folder) = (Redis::start(), TempDir::new());
    let first = AtomicBool::new(true);
    let backend = StrictBackend::answering(move |_| match first.swap(false, Ordering::Relaxed) {
        true => BAD.to_vec(),
        false => OK.to_vec(),
    });
    let settings = "start: all, idle: 1500ms, retry: { delay: 5s, jitter: 0% }";
    write_stream_flow(&folder, &redis, backend.port(), settings);
    redis.ask(&["XADD", "s", "7-1", "n", "1"]);
    let engine = Engine::run(&[folder.path()], &[]);
    wait_until("it has failed", || engine.metric(FAILED) == 1.0);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(4) {
        let claimed = redis.ask(&["XAUTOCLAIM", "s", "g", "other", "1500", "0-0"]);
        assert!(!claimed.contains("7-1"), "{claimed}");
        assert_eq!(bodies(&backend).len(), 1);
        thread::sleep(Duration::from_millis(50));
    }
    wait_until("it is acknowledged", || pending(&redis) == "0");
    assert_eq!(bodies(&backend).len(), 2);
    engine.stop();
}

#[test]
fn an_entry_that_waits_to_be_tried_again_goes_back_when_the_engine_stops() {
    let (redis, folder) = (Redis::start(), TempDir::new());
    let (backend, is_well) = failing_until_well();
    let settings = "start: all, retry: { delay: 1h, delay_max: 1h }";
    write_stream_flow(&folder, &redis, backend.port(), settings);
    redis.ask(&["XADD", "s", "*", "n", "1"]);
    let engine = Engine::run(&[folder.path()], &[]);
    wait_until("it has failed", || engine.metric(FAILED) == 1.0);
    engine.stop();
    assert_eq!(
        (bodies(&backend).len(), pending(&redis)),
        (1, "1".to_owned())
    );
    is_well.store(true, Ordering::Relaxed);
    let engine = Engine::run(&[folder.path()], &[]);
    wait_until("it is acknowledged", || pending(&redis) == "0");
    assert_eq!(bodies(&backend).len(), 2);
    engine.stop();
}

#[test]
fn entries_that_nobody_settles_become_dead_letters() {
    let (redis, folder) = (Redis::start(), TempDir::new());
    redis.ask(&["XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"]);
    redis.ask(&["XADD", "s", "7-1", "n", "1"]);
    redis.ask(&["XREADGROUP", "GROUP", "g", "gone", "STREAMS", "s", ">"]);
    // As if it had been delivered eleven times.
    let claim = [
        "XCLAIM",
        "s",
        "g",
        "gone",
        "0",
        "7-1",
        "IDLE",
        "3600000",
        "RETRYCOUNT",
        "11",
    ];
    redis.ask(&claim);
    let backend = StrictBackend::start();
    let settings = "idle: 300ms, retry: { times: 0 }, dead_letter: { stream: dead }";
    write_stream_flow(&folder, &redis, backend.port(), settings);
    let engine = Engine::run(&[folder.path()], &[]);
    wait_until("it has been moved", || redis.ask(&["XLEN", "dead"]) == "1");
    assert!(bodies(&backend).is_empty());
    let dead = redis.ask(&["XRANGE", "dead", "-", "+"]);
    assert!(dead.contains("delivered too often"), "{dead}");
    engine.stop();
}

#[test]
fn entries_are_dropped_where_a_file_says_so() {
    let (redis, folder) = (Redis::start(), TempDir::new());
    let backend = refusing();
    let settings = "start: all, retry: { times: 0 }, dead_letter: drop";
    write_stream_flow(&folder, &redis, backend.port(), settings);
    redis.ask(&["XADD", "s", "*", "n", "1"]);
    let engine = Engine::run(&[folder.path()], &[]);
    wait_until("it is dropped", || engine.metric(DROPPED) == 1.0);
    wait_until("it is acknowledged", || pending(&redis) == "0");
    assert_eq!((bodies(&backend).len(), engine.metric(DEAD)), (1, 0.0));
    engine.stop();
}

#[test]
fn no_worker_takes_further_entries_after_one_has_failed() {
    let (redis, folder) = (Redis::start(), TempDir::new());
    let (backend, is_well) = failing_until_well();
    let settings = "start: all, idle: 300ms, retry: { times: 0 }, dead_letter: stop";
    write_stream_flow(&folder, &redis, backend.port(), settings);
    redis.ask(&["XADD", "s", "*", "n", "0"]);
    let engine = Engine::run(&[folder.path()], &[]);
    engine.process.wait_for("no further messages are taken");
    thread::sleep(Duration::from_millis(300));
    for number in 1..5 {
        redis.ask(&["XADD", "s", "*", "n", &number.to_string()]);
    }
    // Both workers would have looked for entries of each other by then.
    thread::sleep(Duration::from_secs(3));
    assert_eq!(bodies(&backend), [r#"{"n":"0"}"#]);
    engine.stop();
    is_well.store(true, Ordering::Relaxed);
    let engine = Engine::run(&[folder.path()], &[]);
    wait_until("all have come", || {
        let mut got = bodies(&backend);
        got.sort();
        got.dedup();
        got.len() == 5 && pending(&redis) == "0"
    });
    engine.stop();
}

#[test]
fn a_message_of_a_channel_is_a_dead_letter_after_one_attempt() {
    let (redis, folder) = (Redis::start(), TempDir::new());
    let (backend, letters) = (refusing(), StrictBackend::start());
    write_channel_flow(&folder, &redis, &backend, "concurrent: 4");
    write_letters_flow(&folder, &letters);
    let engine = Engine::run(&[folder.path()], &[]);
    publish(&redis, "hello");
    wait_until("a letter is there", || bodies(&letters) == ["hello"]);
    assert_eq!(bodies(&backend), ["hello"]);
    let letter = letters.requests().remove(0);
    let told = ["x-id", "x-flow", "x-attempts"].map(|name| letter.header(name));
    assert_eq!(told, [Some("c"), Some("news"), Some("1")]);
    assert_eq!((engine.metric(DEAD), engine.metric(LOST)), (1.0, 0.0));
    engine.stop();
}

#[test]
fn messages_of_a_channel_that_wait_are_tried_once_more_when_the_engine_stops() {
    let (redis, folder, data) = (Redis::start(), TempDir::new(), TempDir::new());
    let (backend, letters) = (refusing(), StrictBackend::start());
    let settings = "concurrent: 1, retry: { delay: 1h, delay_max: 1h }";
    write_channel_flow(&folder, &redis, &backend, settings);
    let place = data.path().join("data").display().to_string();
    let options = ["--data", &place];
    let engine = Engine::run(&[folder.path()], &options);
    publish(&redis, "first");
    wait_until("it has failed", || engine.metric(FAILED) == 1.0);
    // It waits behind the first one.
    publish(&redis, "second");
    thread::sleep(Duration::from_millis(200));
    engine.stop();
    assert_eq!(bodies(&backend), ["first", "first", "second"]);
    let after = TempDir::new();
    write_letters_flow(&after, &letters);
    let engine = Engine::run(&[after.path()], &options);
    wait_until("both letters are there", || letters.requests().len() == 2);
    let attempts = |letter: &testkit::Received| {
        let attempts = letter.header("x-attempts").unwrap_or_default();
        format!("{} {attempts}", String::from_utf8_lossy(&letter.body))
    };
    let mut told: Vec<_> = letters.requests().iter().map(attempts).collect();
    told.sort();
    assert_eq!(told, ["first 2", "second 1"]);
    engine.stop();
}

#[test]
fn a_channel_is_left_after_a_message_has_failed_where_a_file_says_so() {
    let (redis, folder) = (Redis::start(), TempDir::new());
    let backend = refusing();
    write_channel_flow(&folder, &redis, &backend, "dead_letter: stop");
    let engine = Engine::run(&[folder.path()], &[]);
    publish(&redis, "hello");
    wait_until("it is not subscribed any more", || {
        redis.ask(&["PUBLISH", "c", "again"]) == "0"
    });
    wait_until("the lost are counted", || engine.metric(LOST) >= 1.0);
    assert!(engine.stop().contains("messages of a channel are lost"));
}
