//! Messages and answers of Redis.

use testkit::servers::Redis;
use testkit::wait_until;

use super::{MEGABYTE, REFUSED, Site};

const DONE: &str = "intertie_source_succeeded_total";
const FAILED: &str = "intertie_source_failed_total";
const DEAD: &str = "intertie_source_dead_letters_total";
const DROPPED: &str = "intertie_redis_dropped_total";

fn source(redis: &Redis, settings: &str, steps: &str) -> String {
    let port = redis.port();
    format!(
        "---\nflow: in\nuse: {{ r: {{ redis: 'redis://127.0.0.1:{port}' }} }}\nfrom:\n\
         \x20 redis: {{ connection: r, {settings} }}\nsteps: {steps}\n"
    )
}

const STREAM: &str = "stream: s, group: g, start: all, field: a";

fn add(redis: &Redis, count: usize, size: usize) {
    for _ in 0..count {
        redis.ask(&["XADD", "s", "*", "a", &"x".repeat(size)]);
    }
}

fn pending(redis: &Redis) -> String {
    let pending = redis.ask(&["XPENDING", "s", "g"]);
    pending
        .split([',', '['])
        .nth(1)
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn entries_wait_with_the_server_while_the_budget_is_used_up() {
    let redis = Redis::start();
    let site = Site::run(&source(&redis, STREAM, "[ { map: length } ]"));
    let held = site.fill();
    let refused = site.engine.metric(REFUSED);
    add(&redis, 8, 500_000);
    wait_until("the source waits", || site.engine.metric(REFUSED) > refused);
    assert_eq!(site.engine.metric(DONE), 0.0);
    drop(held);
    wait_until("all are done", || site.engine.metric(DONE) == 8.0);
    wait_until("all is given back", || site.used() == 0.0);
    wait_until("all are acknowledged", || pending(&redis) == "0");
    assert_eq!(site.engine.metric(FAILED), 0.0);
    let log = site.engine.stop();
    assert!(log.contains("entries wait for memory"), "{log}");
}

#[test]
fn a_source_of_entries_leaves_a_quarter_of_the_budget() {
    let redis = Redis::start();
    add(&redis, 30, MEGABYTE / 2);
    add(&redis, 200, 60_000);
    let site = Site::run(&source(&redis, STREAM, "[ { delay: 1h } ]"));
    wait_until("the source waits", || site.engine.metric(REFUSED) > 0.0);
    let most = 3.0 * 1024.0 * 1024.0;
    wait_until("it holds what it may", || site.used() > most / 2.0);
    assert!(site.used() <= most, "{}", site.used());
}

#[test]
fn an_entry_above_the_whole_budget_is_moved_at_once_with_its_reason() {
    let redis = Redis::start();
    add(&redis, 1, 5 * MEGABYTE);
    add(&redis, 1, 3);
    let settings = format!("{STREAM}, retry: {{ delay: 1h }}, dead_letter: {{ stream: dead }}");
    let site = Site::run(&source(&redis, &settings, "[ { map: length } ]"));
    wait_until("one is done", || site.engine.metric(DONE) == 1.0);
    wait_until("it is moved", || redis.ask(&["XLEN", "dead"]) == "1");
    let dead = redis.ask(&["XRANGE", "dead", "-", "+"]);
    assert!(dead.contains("more than `limits.body_memory`") && dead.len() > 5 * MEGABYTE);
    wait_until("all is given back", || site.used() == 0.0);
}

#[test]
fn an_entry_above_the_whole_budget_is_kept_whole_in_a_store() {
    let redis = Redis::start();
    add(&redis, 1, 5 * MEGABYTE);
    let letters = "---\nflow: letters\nfrom: { store: large }\nsteps:\n\
                   \x20 - map: length\n  - log: { message: 'a letter of ${ . } bytes' }\n";
    let settings = format!("{STREAM}, dead_letter: {{ store: large }}");
    let flows = source(&redis, &settings, "[ { map: length } ]") + letters;
    let site = Site::run(&flows);
    wait_until("it is acknowledged", || pending(&redis) == "0");
    assert_eq!(site.engine.metric(DEAD), 1.0);
    let message = format!("a letter of {} bytes", 5 * MEGABYTE);
    site.engine.process.wait_for(&message);
    wait_until("all is given back", || site.used() == 0.0);
}

#[test]
fn entries_have_their_room_until_they_are_settled() {
    let redis = Redis::start();
    add(&redis, 1, MEGABYTE);
    let retry = "retry: { times: 1, delay: 2s, jitter: 0% }, dead_letter: drop";
    let settings = format!("{STREAM}, {retry}");
    let steps = "[ { map: length }, { raise: { type: bad } } ]";
    let site = Site::run(&source(&redis, &settings, steps));
    wait_until("it waits", || site.engine.metric(FAILED) == 1.0);
    assert!(site.used() >= MEGABYTE as f64);
    wait_until("it is dropped", || pending(&redis) == "0");
    assert_eq!(site.engine.metric(FAILED), 2.0);
    wait_until("all is given back", || site.used() == 0.0);
}

#[test]
fn messages_of_a_channel_are_dropped_and_counted_while_the_budget_is_used_up() {
    let redis = Redis::start();
    let site = Site::run(&source(&redis, "channel: c", "[ { map: length } ]"));
    let large = "x".repeat(MEGABYTE);
    wait_until("it is subscribed", || {
        redis.ask(&["PUBLISH", "c", "x"]) == "1"
    });
    let held = site.fill();
    redis.ask(&["PUBLISH", "c", &large]);
    redis.ask(&["PUBLISH", "c", "small"]);
    wait_until("one is lost", || site.engine.metric(DROPPED) == 1.0);
    wait_until("the small ones came", || site.engine.metric(DONE) == 2.0);
    drop(held);
    wait_until("all is given back", || site.used() == 0.0);
    redis.ask(&["PUBLISH", "c", &large]);
    wait_until("it has come", || site.engine.metric(DONE) == 3.0);
    wait_until("all is given back", || site.used() == 0.0);
}

#[test]
fn answers_need_room_and_what_was_popped_is_never_lost() {
    let redis = Redis::start();
    let port = redis.port();
    let flow = |name: &str, command: &str| {
        format!(
            "---\nflow: {name}\nuse: {{ r: {{ redis: 'redis://127.0.0.1:{port}' }} }}\n\
             from: {{ http: POST /{name} }}\nsteps:\n  - redis: {{ to: r, {command} }}\n\
             \x20 - map: length\n"
        )
    };
    let flows = [
        flow("get", "get: k"),
        flow("range", "range: l"),
        flow("pop", "pop: l"),
    ];
    redis.ask(&["SET", "k", &"x".repeat(MEGABYTE)]);
    for _ in 0..200 {
        redis.ask(&["RPUSH", "l", &"y".repeat(MEGABYTE / 200)]);
    }
    let site = Site::run(&flows.concat());
    let all = [("/get", "1000000"), ("/range", "200")];
    for (path, expected) in all {
        assert_eq!(site.ask(path).text(), expected);
    }
    let held = site.fill();
    for path in ["/get", "/range", "/pop"] {
        let reply = site.ask(path);
        let found = (reply.status, reply.header("Retry-After"));
        assert_eq!(found, (503, Some("1")), "{path}: {}", reply.text());
    }
    drop(held);
    wait_until("all is given back", || site.used() == 0.0);
    for (path, expected) in all {
        assert_eq!(site.ask(path).text(), expected);
    }
    assert_eq!(site.ask("/pop").text(), "5000");
    wait_until("all is given back", || site.used() == 0.0);
}
