//! Flows and a real Redis server.

mod failures;

use std::path::Path;

use testkit::servers::Redis;
use testkit::{Authority, Received, StrictBackend, TempDir, free_port, wait_until};

use crate::support::{Engine, get, post};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const BAD: &[u8] = b"HTTP/1.1 500 Bad\r\nContent-Length: 0\r\n\r\n";

/// An engine whose flow is these steps on requests to `/`, and its port.
fn serve(folder: &TempDir, redis: &str, steps: &str) -> (Engine, u16) {
    let port = free_port();
    let text = format!(
        "flow: store\nuse: {{ cache: {redis} }}\nfrom: {{ http: POST :{port}/ }}\nsteps:\n{steps}"
    );
    folder.write("flow.yaml", &text);
    (Engine::run(&[folder.path()], &[]), port)
}

fn plain(redis: &Redis) -> String {
    format!("{{ redis: \"redis://127.0.0.1:{}\" }}", redis.port())
}

/// A flow that gives each command of the request's path.
fn commands(redis: &Redis, folder: &TempDir, steps: &[(&str, &str)]) -> (Engine, u16) {
    let port = free_port();
    let mut text = format!("engine: {{}}\nuse: {{ cache: {} }}\n", plain(redis));
    for (name, step) in steps {
        text.push_str(&format!(
            "---\nflow: {name}\nfrom: {{ http: POST :{port}/{name} }}\nsteps:\n\
             \x20 - redis: {{ to: cache, {step} }}\n  - map: \"{{ got: . }}\"\n"
        ));
    }
    folder.write("flow.yaml", &text);
    (Engine::run(&[folder.path()], &[]), port)
}

#[test]
fn every_command_does_what_it_says() {
    let (redis, folder) = (Redis::start(), TempDir::new());
    let steps = [
        ("set", "set: '${ .k }', value: '${ .v }'"),
        (
            "set-new",
            "set: '${ .k }', value: '${ .v }', ttl: 1h, if: absent",
        ),
        (
            "set-keep",
            "set: '${ .k }', value: '${ .v }', keep_ttl: true, if: present",
        ),
        ("get", "get: '${ .k }'"),
        ("get-json", "get: '${ .k }', format: json"),
        ("delete", "delete: '${ .k }'"),
        ("exists", "exists: '${ .k }'"),
        ("expire", "expire: '${ .k }', ttl: 90s"),
        ("incr", "incr: '${ .k }', by: '${ .v }'"),
        ("hset", "hset: h, fields: '${ .v }'"),
        ("hset-one", "hset: h, field: '${ .k }', value: '${ .v }'"),
        ("hget", "hget: h, field: '${ .k }', format: json"),
        ("hdel", "hdel: h, field: '${ .k }'"),
        ("hgetall", "hgetall: h"),
        ("push", "push: l, values: '${ .v }'"),
        ("push-left", "push: l, value: '${ .v }', side: left"),
        ("pop", "pop: l"),
        ("pop-right", "pop: l, side: right"),
        ("pop-wait", "pop: later, wait: 10s"),
        ("pop-none", "pop: none, wait: 30ms"),
        ("range", "range: l"),
        ("length", "length: l"),
        ("sadd", "sadd: s, values: '${ .v }'"),
        ("srem", "srem: s, value: '${ .v }'"),
        ("smembers", "smembers: s"),
        ("publish", "publish: '${ .k }', value: hi"),
        (
            "xadd",
            "xadd: x, fields: { a: '${ .v }', b: fixed }, maxlen: 100",
        ),
    ];
    let (engine, port) = commands(&redis, &folder, &steps);
    let give = |name: &str, body: &str| -> String {
        let reply = post(port, &format!("/{name}"), "application/json", body);
        let text = reply.text();
        let told = text
            .strip_prefix("{\"got\":")
            .and_then(|it| it.strip_suffix('}'));
        told.map_or_else(|| format!("{} {text}", reply.status), str::to_owned)
    };
    let odd = r#"{"k":"a b\r\nDEL x","v":"1\r\nFLUSHALL\r\n"}"#;
    assert_eq!(give("get", odd), "null");
    assert_eq!(give("set", odd), "true");
    assert_eq!(redis.ask(&["KEYS", "*"]), "[a b\r\nDEL x]");
    assert_eq!(give("get", odd), r#""1\r\nFLUSHALL\r\n""#);
    assert_eq!(give("delete", odd), "true");
    assert_eq!(give("delete", odd), "false");
    assert_eq!(give("set-new", r#"{"k":"k","v":{"n":1}}"#), "true");
    assert_eq!(give("set-new", r#"{"k":"k","v":2}"#), "false");
    assert!(redis.ask(&["PTTL", "k"]).parse::<u64>().unwrap() > 3_500_000);
    assert_eq!(give("set-keep", r#"{"k":"k","v":{"n":2}}"#), "true");
    assert!(redis.ask(&["PTTL", "k"]).parse::<u64>().unwrap() > 3_500_000);
    assert_eq!(give("get-json", r#"{"k":"k"}"#), r#"{"n":2}"#);
    assert_eq!(give("get", r#"{"k":"k"}"#), r#""{\"n\":2}""#);
    assert_eq!(give("expire", r#"{"k":"k"}"#), "true");
    assert!(redis.ask(&["PTTL", "k"]).parse::<u64>().unwrap() <= 90_000);
    assert_eq!(give("expire", r#"{"k":"none"}"#), "false");
    assert_eq!(give("exists", r#"{"k":"k"}"#), "true");
    assert_eq!(give("incr", r#"{"k":"n","v":5}"#), "5");
    assert_eq!(give("incr", r#"{"k":"n","v":-7}"#), "-2");
    assert_eq!(give("hset", r#"{"v":{"a":"1","b":[2]}}"#), "2");
    assert_eq!(give("hset-one", r#"{"k":"b","v":{"c":3}}"#), "0");
    assert_eq!(give("hget", r#"{"k":"b"}"#), r#"{"c":3}"#);
    assert_eq!(give("hget", r#"{"k":"none"}"#), "null");
    assert_eq!(give("hgetall", "{}"), r#"{"a":"1","b":"{\"c\":3}"}"#);
    assert_eq!(give("hdel", r#"{"k":"b"}"#), "true");
    assert_eq!(give("push", r#"{"v":["a","b",{"c":1}]}"#), "3");
    assert_eq!(give("push-left", r#"{"v":"z"}"#), "4");
    assert_eq!(give("range", "{}"), r#"["z","a","b","{\"c\":1}"]"#);
    assert_eq!(give("length", "{}"), "4");
    assert_eq!(give("pop", "{}"), "\"z\"");
    assert_eq!(give("pop-right", "{}"), r#""{\"c\":1}""#);
    assert_eq!(give("pop-none", "{}"), "null");
    let late = std::thread::spawn(move || post(port, "/pop-wait", "application/json", "{}").text());
    std::thread::sleep(std::time::Duration::from_millis(50));
    redis.ask(&["RPUSH", "later", "came"]);
    assert_eq!(late.join().unwrap(), r#"{"got":"came"}"#);
    assert_eq!(give("sadd", r#"{"v":["x","y","x"]}"#), "2");
    assert_eq!(give("srem", r#"{"v":"y"}"#), "1");
    assert_eq!(give("smembers", "{}"), r#"["x"]"#);
    assert_eq!(give("publish", r#"{"k":"news"}"#), "0");
    let id = give("xadd", r#"{"v":{"n":1}}"#);
    let entries = redis.ask(&["XRANGE", "x", "-", "+"]);
    assert_eq!(
        entries,
        format!("[[{}, [a, {{\"n\":1}}, b, fixed]]]", id.trim_matches('"'))
    );
    let failure = give("incr", r#"{"k":"l","v":1}"#);
    assert!(
        failure.starts_with("500 ") && failure.contains("wrong-type"),
        "{failure}"
    );
    let failure = give("get-json", r#"{"k":"n"}"#);
    assert_eq!(failure, "-2");
    redis.ask(&["SET", "broken", "{"]);
    assert!(give("get-json", r#"{"k":"broken"}"#).contains("stored-value"));
    engine.stop();
}

#[test]
fn bytes_come_back_as_they_went() {
    let (redis, folder) = (Redis::start(), TempDir::new());
    let steps = "  - redis: { to: cache, set: blob }\n  - redis: { to: cache, get: blob }\n";
    let (engine, port) = serve(&folder, &plain(&redis), steps);
    let mut client = testkit::RawClient::connect(port);
    let body: Vec<u8> = (0..=255).collect();
    let mut request = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Type: image/png\r\n\
                        Content-Length: 256\r\n\r\n"
        .to_vec();
    request.extend_from_slice(&body);
    client.send(request);
    let reply = client.response();
    assert_eq!(reply.status, 200);
    assert_eq!(reply.body, body);
    engine.stop();
}

#[test]
fn users_and_tls_are_checked_and_passwords_not_told() {
    let authority = Authority::new("redis-test");
    let issued = authority.issue(&["localhost", "127.0.0.1"]);
    let lines = "user default off\nuser shop on >pass/word1 ~shop:* +get +set +ping +select";
    let redis = Redis::start_with(lines, Some(&issued));
    let folder = TempDir::new();
    folder.write("ca.pem", authority.pem());
    let other = Authority::new("another");
    folder.write("other.pem", other.pem());
    let port = free_port();
    let url = format!(
        "rediss://shop:pass%2Fword1@127.0.0.1:{}/0",
        redis.tls_port()
    );
    let wrong = format!("redis://shop:wrong-pass1@127.0.0.1:{}", redis.port());
    let flow = |name: &str, step: &str| {
        format!(
            "---\nflow: {name}\nfrom: {{ http: POST :{port}/{name} }}\nsteps:\n  - redis: {step}\n"
        )
    };
    let text = format!(
        "engine: {{}}\nuse:\n    good: {{ redis: \"{url}\", tls: {{ ca: ca.pem }} }}\n\
         \x20   stranger: {{ redis: \"{url}\", tls: {{ ca: other.pem }} }}\n\
         \x20   named: {{ redis: \"{url}\", tls: {{ ca: ca.pem, server_name: elsewhere.example }} }}\n\
         \x20   wrong: {{ redis: \"{wrong}\" }}\n{}{}{}{}{}",
        flow("good", "{ to: good, set: \"shop:1\", value: yes }"),
        flow("denied", "{ to: good, set: \"other:1\", value: yes }"),
        flow("stranger", "{ to: stranger, get: a }"),
        flow("named", "{ to: named, get: a }"),
        flow("wrong", "{ to: wrong, get: a }"),
    );
    folder.write("flow.yaml", &text);
    let engine = Engine::run(&[folder.path()], &[]);
    let give = |name: &str| post(port, &format!("/{name}"), "application/json", "{}");
    assert_eq!(give("good").text(), "true");
    let who = Some(("shop", "pass/word1"));
    assert_eq!(redis.ask_as(who, &["GET", "shop:1"]), "yes");
    for name in ["denied", "stranger", "named", "wrong"] {
        let reply = give(name);
        assert_eq!(reply.status, 502, "{name}: {}", reply.text());
    }
    let log = engine.stop();
    assert!(
        log.contains("NoPerm") && log.contains("connection `good`"),
        "{log}"
    );
    assert!(
        log.contains("AuthenticationFailed") && log.contains("connection `wrong`"),
        "{log}"
    );
    assert!(log.contains("UnknownIssuer"), "{log}");
    assert!(
        !log.contains("word1") && !log.contains("wrong-pass1"),
        "{log}"
    );
    assert!(!log.contains(&redis.port().to_string()), "{log}");
}

#[test]
fn a_server_that_goes_and_comes_back_is_found_again() {
    let (mut redis, folder) = (Redis::start(), TempDir::new());
    let connection = format!(
        "{{ redis: \"redis://127.0.0.1:{}\", timeout: 500ms }}",
        redis.port()
    );
    let steps = "  - redis: { to: cache, incr: n }\n";
    let (engine, port) = serve(&folder, &connection, steps);
    let give = || post(port, "/", "application/json", "{}");
    assert_eq!(give().text(), "1");
    redis.kill();
    wait_until("the flow fails", || give().status == 502);
    redis.again();
    wait_until("the flow works again", || give().status == 200);
    let count = || redis.ask(&["GET", "n"]).parse::<u64>().unwrap();
    redis.hold(true);
    wait_until("the flow is late", || give().status == 504);
    redis.hold(false);
    wait_until("the flow works again", || give().status == 200);
    assert!(count() >= 3);
    let log = engine.stop();
    assert!(log.contains("connection `cache`"), "{log}");
}

/// The bodies that a back end has got.
fn bodies(backend: &StrictBackend) -> Vec<String> {
    let text = |request: Received| String::from_utf8(request.body).unwrap();
    backend.requests().into_iter().map(text).collect()
}

/// A flow that posts each entry of the stream `s` to a back end.
fn write_stream_flow(folder: &TempDir, redis: &Redis, backend: u16, settings: &str) {
    let text = format!(
        "flow: entries\nuse: {{ store: {} }}\nfrom:\n  redis: {{ connection: store, stream: s, \
         group: g, {settings} }}\nsteps:\n  - http: {{ to: \"http://127.0.0.1:{backend}/in\", \
         method: POST, headers: {{ X-Id: \"${{ $path.id }}\" }} }}\n",
        plain(redis)
    );
    folder.write("flow.yaml", &text);
}

fn pending(redis: &Redis) -> String {
    let answer = redis.ask(&["XPENDING", "s", "g"]);
    answer
        .trim_start_matches('[')
        .split(',')
        .next()
        .unwrap()
        .to_owned()
}

#[test]
fn entries_of_a_stream_start_the_flow_and_are_acknowledged() {
    let (redis, folder) = (Redis::start(), TempDir::new());
    let backend = StrictBackend::start();
    redis.ask(&["XADD", "s", "*", "a", "before", "b", "2"]);
    write_stream_flow(&folder, &redis, backend.port(), "start: all, concurrent: 8");
    let engine = Engine::run(&[folder.path()], &[]);
    for number in 0..50 {
        redis.ask(&["XADD", "s", "*", "n", &number.to_string()]);
    }
    wait_until("all have come", || bodies(&backend).len() >= 51);
    wait_until("all are acknowledged", || pending(&redis) == "0");
    let mut got = bodies(&backend);
    assert!(
        got.contains(&r#"{"a":"before","b":"2"}"#.to_owned()),
        "{got:?}"
    );
    got.sort();
    got.dedup();
    assert_eq!(got.len(), 51);
    let metrics = engine.get("/metrics").text();
    let name = "intertie_source_succeeded_total";
    assert!(metrics.contains(name), "{metrics}");
    engine.stop();
    // Nobody reads now: what is added waits for the next engine.
    redis.ask(&["XADD", "s", "*", "n", "late"]);
    let engine = Engine::run(&[folder.path()], &[]);
    wait_until("the late one has come", || bodies(&backend).len() == 52);
    engine.stop();
}

#[test]
fn nothing_is_lost_over_a_kill_of_engine_or_server() {
    let (mut redis, folder) = (Redis::start(), TempDir::new());
    let backend = StrictBackend::answering(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        OK.to_vec()
    });
    let settings = "start: all, concurrent: 4, batch: 4, idle: 1s";
    write_stream_flow(&folder, &redis, backend.port(), settings);
    let engine = Engine::run(&[folder.path()], &[]);
    for number in 0..40 {
        redis.ask(&["XADD", "s", "*", "n", &number.to_string()]);
    }
    wait_until("some have come", || bodies(&backend).len() >= 8);
    // Dropped: killed with entries in work.
    drop(engine);
    let engine = Engine::run(&[folder.path()], &[]);
    wait_until("more have come", || bodies(&backend).len() >= 16);
    redis.kill();
    std::thread::sleep(std::time::Duration::from_millis(100));
    redis.again();
    let distinct = || {
        let mut got = bodies(&backend);
        got.sort();
        got.dedup();
        got.len()
    };
    wait_until("all have come", || distinct() == 40);
    wait_until("all are acknowledged", || pending(&redis) == "0");
    engine.stop();
}

#[test]
fn entries_of_a_dead_consumer_are_taken_over() {
    let (redis, folder) = (Redis::start(), TempDir::new());
    redis.ask(&["XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"]);
    redis.ask(&["XADD", "s", "*", "n", "1"]);
    redis.ask(&["XREADGROUP", "GROUP", "g", "gone", "STREAMS", "s", ">"]);
    assert_eq!(pending(&redis), "1");
    let backend = StrictBackend::start();
    write_stream_flow(&folder, &redis, backend.port(), "idle: 300ms");
    let engine = Engine::run(&[folder.path()], &[]);
    wait_until("it has come", || bodies(&backend) == [r#"{"n":"1"}"#]);
    wait_until("it is acknowledged", || pending(&redis) == "0");
    engine.stop();
}

/// Adds entries with the ids `FIRST-0`, ... and has a consumer of the group read them.
fn leave_pending(redis: &Redis, consumer: &str, ids: std::ops::Range<u32>) {
    let count = ids.len().to_string();
    for id in ids {
        redis.ask(&["XADD", "s", &format!("{id}-0"), "n", &id.to_string()]);
    }
    let read = ["XREADGROUP", "GROUP", "g", consumer, "COUNT", &count];
    redis.ask(&[&read[..], &["STREAMS", "s", ">"]].concat());
}

/// Says that nobody has looked at the entries of a consumer for an hour, or that it has just now.
fn set_idle(redis: &Redis, consumer: &str, ids: std::ops::Range<u32>, idle: &str) {
    let ids: Vec<String> = ids.map(|id| format!("{id}-0")).collect();
    let mut command = vec!["XCLAIM", "s", "g", consumer, "0"];
    command.extend(ids.iter().map(String::as_str));
    command.extend(["IDLE", idle, "JUSTID"]);
    redis.ask(&command);
}

#[test]
fn entries_behind_many_that_are_in_work_elsewhere_are_taken_over() {
    let (redis, folder) = (Redis::start(), TempDir::new());
    redis.ask(&["XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"]);
    leave_pending(&redis, "alive", 1..401);
    leave_pending(&redis, "gone", 401..801);
    set_idle(&redis, "gone", 401..801, "3600000");
    // They are deleted from the stream and still pending.
    let deleted: Vec<String> = (700..801).map(|id| format!("{id}-0")).collect();
    let mut command = vec!["XDEL", "s"];
    command.extend(deleted.iter().map(String::as_str));
    assert_eq!(redis.ask(&command), "101");
    let backend = StrictBackend::start();
    write_stream_flow(&folder, &redis, backend.port(), "idle: 2s, concurrent: 32");
    let engine = Engine::run(&[folder.path()], &[]);
    wait_until("all of the dead consumer are done", || {
        set_idle(&redis, "alive", 1..401, "0");
        pending(&redis) == "400"
    });
    let mut got = bodies(&backend);
    got.sort();
    got.dedup();
    assert_eq!(got.len(), 299);
    engine.stop();
}

#[test]
fn entries_behind_deleted_ones_are_read_again_at_once() {
    let (redis, folder) = (Redis::start(), TempDir::new());
    redis.ask(&["XGROUP", "CREATE", "s", "g", "0", "MKSTREAM"]);
    leave_pending(&redis, "me-0", 1..41);
    for id in 1..36 {
        redis.ask(&["XDEL", "s", &format!("{id}-0")]);
    }
    let backend = StrictBackend::start();
    let settings = "consumer: me, idle: 1h, batch: 16";
    write_stream_flow(&folder, &redis, backend.port(), settings);
    let engine = Engine::run(&[folder.path()], &[]);
    wait_until("those that are left have come", || {
        bodies(&backend).len() == 5
    });
    wait_until("none is pending", || pending(&redis) == "0");
    engine.stop();
}

#[test]
fn a_long_flow_keeps_its_entry() {
    let (redis, folder) = (Redis::start(), TempDir::new());
    let backend = StrictBackend::answering(|_| {
        std::thread::sleep(std::time::Duration::from_millis(1500));
        OK.to_vec()
    });
    write_stream_flow(&folder, &redis, backend.port(), "idle: 300ms, start: all");
    redis.ask(&["XADD", "s", "*", "n", "1"]);
    let engine = Engine::run(&[folder.path()], &[]);
    wait_until("it is acknowledged", || {
        bodies(&backend).len() == 1 && pending(&redis) == "0"
    });
    assert_eq!(bodies(&backend).len(), 1);
    engine.stop();
}

#[test]
fn messages_of_channels_start_the_flow() {
    let (mut redis, folder) = (Redis::start(), TempDir::new());
    let backend = StrictBackend::start();
    let text = format!(
        "flow: news\nuse: {{ store: {} }}\nfrom:\n  redis: {{ connection: store, \
         pattern: \"news.*\", concurrent: 1 }}\nsteps:\n  - http: {{ to: \
         \"http://127.0.0.1:{}/in\", method: POST, headers: {{ X-Channel: \
         \"${{ $path.channel }}\" }} }}\n",
        plain(&redis),
        backend.port()
    );
    folder.write("flow.yaml", &text);
    let engine = Engine::run(&[folder.path()], &[]);
    let hears = |redis: &Redis| redis.ask(&["PUBLISH", "news.se", "hello"]) == "1";
    wait_until("it is subscribed", || hears(&redis));
    wait_until("it has come", || bodies(&backend) == ["hello"]);
    let request = &backend.requests()[0];
    assert_eq!(request.header("x-channel"), Some("news.se"));
    redis.kill();
    redis.again();
    wait_until("it is subscribed again", || hears(&redis));
    wait_until("it has come", || bodies(&backend).len() == 2);
    engine.stop();
}

#[test]
fn messages_that_nobody_has_room_for_are_counted() {
    let (redis, folder) = (Redis::start(), TempDir::new());
    let text = format!(
        "flow: busy\nuse: {{ store: {} }}\nfrom:\n  redis: {{ connection: store, channel: c, \
         concurrent: 1, buffer: 2 }}\nsteps:\n  - delay: 20s\n",
        plain(&redis)
    );
    folder.write("flow.yaml", &text);
    let engine = Engine::run(&[folder.path()], &[]);
    wait_until("it is subscribed", || {
        redis.ask(&["PUBLISH", "c", "0"]) == "1"
    });
    for number in 0..9 {
        redis.ask(&["PUBLISH", "c", &number.to_string()]);
    }
    wait_until("lost ones are counted", || {
        let metrics = engine.get("/metrics").text();
        let line = metrics
            .lines()
            .find(|it| it.starts_with("intertie_redis_dropped_total"));
        line.is_some_and(|line| line.ends_with(" 7.0"))
    });
}

#[test]
fn the_server_need_not_be_there_when_the_engine_starts() {
    let folder = TempDir::new();
    let mut redis = Redis::start();
    redis.kill();
    let backend = StrictBackend::start();
    write_stream_flow(&folder, &redis, backend.port(), "start: all");
    let engine = Engine::run(&[folder.path()], &[]);
    redis.again();
    redis.ask(&["XADD", "s", "*", "n", "1"]);
    wait_until("it has come", || bodies(&backend) == [r#"{"n":"1"}"#]);
    let _: &Path = folder.path();
    assert_eq!(get(engine.admin, "/ready").status, 200);
    engine.stop();
}
