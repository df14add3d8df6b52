//! Messages of Redis.

use testkit::servers::Redis;
use testkit::wait_until;

use super::{MEGABYTE, REFUSED, Site};

fn add(redis: &Redis, size: usize) {
    redis.ask(&["XADD", "s", "*", "body", &"x".repeat(size)]);
}

fn source(redis: &Redis) -> String {
    format!(
        "---\nflow: entries\nuse: {{ store: {{ redis: \"redis://127.0.0.1:{}\" }} }}\nfrom:\n\
         \x20 redis: {{ connection: store, stream: s, group: g }}\n\
         steps: [ {{ map: . }} ]\n",
        redis.port()
    )
}

#[test]
fn entries_of_a_stream_wait_with_the_server_while_the_budget_is_used_up() {
    let redis = Redis::start();
    let site = Site::run(&source(&redis));
    let done = || site.engine.metric("intertie_redis_done_total");
    add(&redis, 10);
    wait_until("the source works", || done() == 1.0);
    let held = site.fill();
    let refused = site.engine.metric(REFUSED);
    // A command line has no more than 128 KiB.
    for _ in 0..6 {
        add(&redis, 100_000);
    }
    wait_until("the source waits", || site.engine.metric(REFUSED) > refused);
    assert_eq!(done(), 1.0);
    drop(held);
    wait_until("all have come", || done() == 7.0);
    wait_until("all is given back", || site.used() == 0.0);
    let pending = redis.ask(&["XPENDING", "s", "g"]);
    assert!(
        pending.trim_start_matches(['[', '"']).starts_with('0'),
        "{pending}"
    );
    let log = site.engine.stop();
    assert!(log.contains("entries wait for memory"), "{log}");
}

#[test]
fn an_answer_needs_room() {
    let redis = Redis::start();
    redis.ask(&["SETRANGE", "large", &MEGABYTE.to_string(), "x"]);
    let port = redis.port();
    let site = Site::run(&format!(
        "---\nflow: get\nuse: {{ store: {{ redis: \"redis://127.0.0.1:{port}\" }} }}\n\
         from: {{ http: POST /get }}\nsteps:\n  - redis: {{ to: store, get: large }}\n\
         \x20 - map: length\n"
    ));
    assert_eq!(site.ask("/get").status, 200);
    let held = site.fill();
    let reply = site.ask("/get");
    assert_eq!(reply.status, 503, "{}", reply.text());
    drop(held);
    wait_until("all is given back", || site.used() == 0.0);
    assert_eq!(site.ask("/get").status, 200);
}
