//! Limits per caller end to end: exact over two workers on both paths and both versions of HTTP,
//! what replies tell, and what survives a restart.

use std::process::Command;
use std::time::Duration;

use testkit::{RawClient, Response, StrictBackend, TempDir, WebSocket, free_port, wait_until};

use crate::support::{Engine, get};

/// Runs these documents behind settings with these keys, on two workers.
fn run(engine: &str, flows: &str) -> (Engine, u16, TempDir) {
    let (folder, port) = (TempDir::new(), free_port());
    let text = format!("engine:\n  listen: \"127.0.0.1:{port}\"\n{engine}---\n{flows}");
    folder.write("flows.yaml", &text);
    let engine = Engine::run(&[folder.path()], &[]);
    (engine, port, folder)
}

fn ask(client: &mut RawClient, path: &str, fields: &str) -> Response {
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    client.response()
}

fn with_key(port: u16, path: &str, key: &str) -> Response {
    ask(
        &mut RawClient::connect(port),
        path,
        &format!("X-Key: {key}\r\n"),
    )
}

/// The status of a request over HTTP/2, with its `Retry-After` behind.
fn over_http2(port: u16, path: &str) -> String {
    let output = Command::new("curl")
        .args([
            "--silent",
            "--http2-prior-knowledge",
            "--output",
            "/dev/null",
        ])
        .args(["--write-out", "%{http_code} %header{retry-after}"])
        .arg(format!("http://127.0.0.1:{port}{path}"))
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

/// Of 8 connections at once each asks so often: how many got each status.
fn statuses(port: u16, path: &str, each: usize) -> (usize, usize) {
    let all: Vec<u16> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(move || {
                    let mut client = RawClient::connect(port);
                    let ask = |_| ask(&mut client, path, "").status;
                    (0..each).map(ask).collect::<Vec<u16>>()
                })
            })
            .collect();
        let clients = clients.into_iter();
        clients.flat_map(|it| it.join().unwrap()).collect()
    });
    let of = |status| all.iter().filter(|it| **it == status).count();
    (of(200), of(429))
}

#[test]
fn two_workers_count_exactly_on_both_paths_and_both_versions_of_http() {
    let backend = StrictBackend::start();
    let (engine, port, _folder) = run(
        "",
        &format!(
            "flow: message\nfrom: {{ http: GET /message }}\n\
             limits: {{ throttle: {{ requests: 200, per: 50m }} }}\nsteps: [ reply: {{}} ]\n---\n\
             flow: forward\nfrom: {{ http: GET /forward }}\n\
             limits: {{ throttle: [ {{ by: null, requests: 200, per: 50m }} ] }}\n\
             steps: [ forward: 'http://127.0.0.1:{}/' ]\n",
            backend.port()
        ),
    );
    assert_eq!(statuses(port, "/message", 50), (200, 200));
    assert_eq!(statuses(port, "/forward", 50), (200, 200));
    assert_eq!(
        backend.requests().len(),
        200,
        "others have not come through"
    );
    engine.stop();

    let (engine, port, _folder) = run(
        "",
        &format!(
            "flow: message\nfrom: {{ http: {{ path: /message, protocols: [h2, http/1.1] }} }}\n\
             limits: {{ throttle: {{ requests: 5, per: 50m }} }}\nsteps: [ reply: {{}} ]\n---\n\
             flow: forward\nfrom: {{ http: {{ path: /forward, protocols: [h2, http/1.1] }} }}\n\
             limits: {{ throttle: {{ by: null, requests: 5, per: 50m }} }}\n\
             steps: [ forward: 'http://127.0.0.1:{}/' ]\n",
            backend.port()
        ),
    );
    for path in ["/message", "/forward"] {
        let told: Vec<String> = (0..8).map(|_| over_http2(port, path)).collect();
        assert!(told[..5].iter().all(|it| it == "200 "), "{told:?}");
        assert!(told[5..].iter().all(|it| it == "429 600"), "{told:?}");
    }
    engine.stop();
}

#[test]
fn a_refusal_comes_before_the_body_and_tells_the_limits() {
    let (engine, port, _folder) = run(
        "",
        "flow: a\nfrom: { http: POST /a }\n\
         limits:\n  throttle:\n    - { requests: 100, per: 1m }\n\
         \x20   - { by: '${ $headers[\"x-key\"] }', requests: 2, per: 40m }\n\
         steps: [ { map: . }, { reply: {} } ]\n",
    );
    let post = |client: &mut RawClient, body: &str| {
        client.send(format!(
            "POST /a HTTP/1.1\r\nHost: a\r\nX-Key: one\r\nContent-Type: application/json\r\n\
             Content-Length: 3\r\n\r\n{body}"
        ));
        client.response()
    };
    let mut client = RawClient::connect(port);
    let first = post(&mut client, "123");
    assert_eq!((first.status, first.header("ratelimit")), (200, None));
    assert_eq!(post(&mut client, "123").status, 200);
    let refused = post(&mut client, "123");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("retry-after"), Some("1200"));
    let policy = "\"throttle\";q=100;w=60, \"throttle-2\";q=2;w=2400";
    assert_eq!(refused.header("ratelimit-policy"), Some(policy));
    let left = refused.header("ratelimit").unwrap();
    assert!(
        left.starts_with("\"throttle\";r=98;t=2, \"throttle-2\";r=0;t=2"),
        "{left}"
    );
    let text = refused.text();
    assert!(text.contains("http-problem-types#quota-exceeded"), "{text}");
    assert!(
        text.contains(r#""violated-policies":["throttle-2"]"#),
        "{text}"
    );
    // The connection goes on where the body has come, and the body is not waited for.
    assert_eq!(post(&mut client, "123").status, 429);
    assert_eq!(post(&mut client, "").status, 429);
    engine.stop();
}

#[test]
fn each_caller_has_a_bucket_and_those_without_a_key_one_for_their_address() {
    let by = |by: &str| format!("limits: {{ throttle: {{ by: {by}, requests: 1, per: 50m }} }}");
    let flows = [
        ("header", by("'${ $headers.x_key // $headers[\"x-key\"] }'")),
        ("plain", by("'${ $headers[\"x-key\"] }'")),
        ("text", by("'key-${ $headers[\"x-key\"] // \"none\" }'")),
        ("value", by("'${ { a: $headers[\"x-key\"], b: $method } }'")),
    ];
    let flows = flows.map(|(name, limits)| {
        format!("flow: {name}\nfrom: {{ http: GET /{name} }}\n{limits}\nsteps: [ reply: {{}} ]\n")
    });
    let (engine, port, _folder) = run("", &flows.join("---\n"));
    for path in ["/header", "/plain", "/text", "/value"] {
        let of = |key: &str| with_key(port, path, key).status;
        assert_eq!(
            [of("a"), of("b"), of("a"), of("b")],
            [200, 200, 429, 429],
            "{path}"
        );
        let without = || get(port, path).status;
        assert_eq!([without(), without()], [200, 429], "{path}");
    }
    engine.stop();
}

#[test]
fn what_is_too_much_waits_within_its_bound() {
    let (engine, port, _folder) = run(
        "",
        "flow: a\nfrom: { http: GET /a }\n\
         limits: { throttle: { requests: 10, per: 1s, burst: 1, wait: 250ms }, headers: true }\n\
         steps: [ reply: {} ]\n",
    );
    // Together: the first at once, the next two wait for their turns, the others would wait longer.
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let mut clients: Vec<RawClient> = (0..6).map(|_| RawClient::connect(port)).collect();
        for client in &mut clients {
            client.send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        let clients: Vec<_> = clients
            .into_iter()
            .map(|mut client| scope.spawn(move || client.response().status))
            .collect();
        clients.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let passed = statuses.iter().filter(|it| **it == 200).count();
    assert!(passed >= 3, "{statuses:?}");
    let metrics = engine.get("/metrics").text();
    let waited = "intertie_throttle_delayed_total{flow=\"a\",step=\"limits\"} ";
    assert!(metrics.contains(waited), "{metrics}");
    assert!(!metrics.contains(&format!("{waited}0\n")), "{metrics}");
    engine.stop();
}

#[test]
fn plans_are_counted_over_all_flows_and_unknown_ones_are_refused() {
    let backend = StrictBackend::start();
    let limits = "limits: { plan: '${ $headers[\"x-plan\"] }', by: '${ $headers[\"x-key\"] }', headers: true }";
    let flows = format!(
        "flow: a\nfrom: {{ http: GET /a }}\n{limits}\nsteps: [ reply: {{}} ]\n---\n\
         flow: b\nfrom: {{ http: GET /b }}\n{limits}\n\
         steps: [ forward: 'http://127.0.0.1:{}/' ]\n---\n\
         flow: c\nfrom: {{ http: GET /c }}\nlimits: {{ plan: gold }}\nsteps: [ reply: {{}} ]\n",
        backend.port()
    );
    let plans = "  plans:\n    gold: { requests: [ { count: 3, per: 10m }, { count: 100, per: 50m } ] }\n\
                 \x20   free: { requests: { count: 1, per: 10m } }\n";
    let (engine, port, _folder) = run(plans, &flows);
    let as_ = |path: &str, plan: &str, key: &str| {
        let fields = format!("X-Plan: {plan}\r\nX-Key: {key}\r\n");
        ask(&mut RawClient::connect(port), path, &fields)
    };
    let first = as_("/a", "gold", "one");
    let policy = "\"gold\";q=3;w=600, \"gold-2\";q=100;w=3000";
    assert_eq!(first.header("ratelimit-policy"), Some(policy));
    assert_eq!(
        first.header("ratelimit"),
        Some("\"gold\";r=2;t=200, \"gold-2\";r=99;t=30")
    );
    let forwarded = as_("/b", "gold", "one");
    assert_eq!(
        (forwarded.status, forwarded.header("ratelimit-policy")),
        (200, Some(policy))
    );
    assert_eq!(as_("/a", "gold", "one").status, 200);
    assert_eq!(as_("/b", "gold", "one").status, 429, "over both flows");
    assert_eq!(as_("/b", "gold", "two").status, 200);
    assert_eq!(
        [
            as_("/a", "free", "one").status,
            as_("/b", "free", "one").status
        ],
        [200, 429]
    );
    let unknown = as_("/a", "silver", "one");
    assert_eq!(unknown.status, 403, "{}", unknown.text());
    assert_eq!(get(port, "/b").status, 403, "no plan at all");
    assert_eq!(get(port, "/c").status, 200);
    let told = engine.stop();
    assert!(told.contains("neither `silver` nor `default`"), "{told}");
}

#[test]
fn long_windows_survive_a_restart() {
    let (folder, port) = (TempDir::new(), free_port());
    let flows = folder.write(
        "flows.yaml",
        &format!(
            "engine:\n  listen: \"127.0.0.1:{port}\"\n  plans:\n\
             \x20   gold: {{ requests: {{ count: 3, per: 1d }} }}\n---\n\
             flow: a\nfrom: {{ http: GET /a }}\n\
             limits:\n  throttle: {{ by: '${{ $headers[\"x-key\"] }}', requests: 2, per: 2h }}\n\
             \x20 plan: gold\nsteps: [ reply: {{}} ]\n"
        ),
    );
    let data = folder.path().join("data").display().to_string();
    let run = || Engine::run(&[&flows], &["--data", &data]);
    let of = |key: &str| with_key(port, "/a", key).status;
    let engine = run();
    assert_eq!([of("a"), of("a"), of("a")], [200, 200, 429]);
    engine.stop();
    let engine = run();
    assert_eq!(
        [of("a"), of("b"), of("b")],
        [429, 200, 429],
        "the plan is used up, too"
    );
    engine.stop();
    // A limit with other numbers is another one.
    let text = std::fs::read_to_string(&flows).unwrap();
    std::fs::write(&flows, text.replace("count: 3", "count: 4")).unwrap();
    let engine = run();
    assert_eq!([of("a"), of("b")], [429, 200]);
    engine.stop();
}

#[test]
fn a_crash_loses_at_most_what_has_been_counted_since_the_last_write() {
    let (folder, port) = (TempDir::new(), free_port());
    let flows = folder.write(
        "flows.yaml",
        &format!(
            "engine: {{ listen: \"127.0.0.1:{port}\" }}\n---\nflow: a\nfrom: {{ http: GET /a }}\n\
             limits: {{ throttle: {{ by: null, requests: 2, per: 1d }} }}\nsteps: [ reply: {{}} ]\n"
        ),
    );
    let data = folder.path().join("data");
    let options = ["--data", &data.display().to_string()];
    let engine = Engine::run(&[&flows], &options);
    assert_eq!([get(port, "/a").status, get(port, "/a").status], [200, 200]);
    // The file grows or changes when what has been counted is written.
    let written = || {
        let file = std::fs::metadata(data.join("keyed")).or_else(|_| {
            let files = std::fs::read_dir(&data).unwrap().filter_map(Result::ok);
            let mut keyed = files.filter(|it| it.file_name().to_string_lossy().contains("keyed"));
            keyed.next().unwrap().metadata()
        });
        file.unwrap().modified().unwrap()
    };
    let before = written();
    wait_until("it is written", || written() > before);
    std::thread::sleep(Duration::from_millis(500));
    engine.process.signal("KILL");
    drop(engine);
    let engine = Engine::run(&[&flows], &options);
    assert_eq!(get(port, "/a").status, 429);
    engine.stop();
}

fn topic(port: u16) -> String {
    let limits = "limits: { plan: '${ $headers[\"x-plan\"] }', by: '${ $headers[\"x-key\"] }' }";
    let plans = "    few: { events: { count: 2, per: 10m } }\n\
                 \x20   small: { bytes: { count: 10B, per: 10m } }\n\
                 \x20   one: { connections: 1 }\n\
                 \x20   single: { subscriptions: 1, connections: 5 }\n\
                 \x20   short: { stream_time: 2s }\n\
                 \x20   default: { requests: { count: 1000, per: 1s } }\n";
    format!(
        "engine:\n  listen: \"127.0.0.1:{port}\"\n  plans:\n{plans}---\n\
         topic: news\npayload: event\ndurability: memory\n\
         publish: {{ http: POST /topics/news, {limits} }}\n\
         subscribe:\n  websocket: {{ publish: true }}\n  {limits}\n---\n\
         topic: other\npayload: event\ndurability: memory\n\
         subscribe: {{ {limits} }}\n"
    )
}

fn publish(port: u16, fields: &str, kind: &str, body: &str) -> Response {
    let mut client = RawClient::connect(port);
    client.send(format!(
        "POST /topics/news HTTP/1.1\r\nHost: a\r\n{fields}Content-Type: {kind}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    client.response()
}

#[test]
fn events_and_bytes_that_a_caller_publishes_are_counted() {
    let (folder, port) = (TempDir::new(), free_port());
    folder.write("flows.yaml", &topic(port));
    let engine = Engine::run(&[folder.path()], &[]);
    let json = "application/json";
    let few = |key: &str| format!("X-Plan: few\r\nX-Key: {key}\r\n");
    let one = |key: &str| publish(port, &few(key), json, "1").status;
    assert_eq!(
        [one("a"), one("a"), one("a"), one("b")],
        [200, 200, 429, 200]
    );
    let lines = |key: &str| publish(port, &few(key), "application/x-ndjson", "1\n2\n3\n");
    assert_eq!(lines("b").status, 429, "as a whole");
    assert_eq!(
        (lines("c").status, one("c")),
        (200, 429),
        "paid for afterwards"
    );
    let refused = publish(port, "X-Plan: few\r\nX-Key: a\r\n", json, "1");
    let policy = refused.header("ratelimit-policy");
    assert_eq!(policy, Some("\"few\";q=2;qu=\"events\";w=600"));
    let bytes = |body: &str| publish(port, "X-Plan: small\r\nX-Key: a\r\n", json, body).status;
    assert_eq!(
        [bytes("12345678"), bytes("123"), bytes("12")],
        [200, 429, 200]
    );
    // Over WebSocket they are the same events.
    let (response, mut socket) =
        WebSocket::connect(port, "/topics/news/ws", "X-Plan: few\r\nX-Key: d\r\n");
    assert_eq!(response.status, 101);
    let mut answers = Vec::new();
    for reference in 0..3 {
        socket.text(&format!(
            r#"{{"type":"publish","data":1,"ref":{reference}}}"#
        ));
        loop {
            let text = socket.next_text();
            if text.contains(r#""type":"ack""#) || text.contains(r#""type":"error""#) {
                answers.push(text);
                break;
            }
        }
    }
    assert!(answers[1].contains("ack"), "{answers:?}");
    assert!(answers[2].contains(r#""reason":"limited""#), "{answers:?}");
    assert_eq!(one("d"), 429);
    engine.stop();
}

#[test]
fn streams_and_subscriptions_of_a_caller_are_counted_while_they_last() {
    let (folder, port) = (TempDir::new(), free_port());
    folder.write("flows.yaml", &topic(port));
    let engine = Engine::run(&[folder.path()], &[]);
    let open = |path: &str, plan: &str| {
        let mut client = RawClient::connect(port);
        client.send(format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nX-Plan: {plan}\r\nX-Key: a\r\n\r\n"
        ));
        let head = String::from_utf8(client.until(b"\r\n\r\n")).unwrap();
        (head.split(' ').nth(1).unwrap().to_owned(), client)
    };
    for plan in ["one", "single"] {
        let (status, first) = open("/topics/news/sse", plan);
        assert_eq!(status, "200", "{plan}");
        let (status, _) = open("/topics/news/sse", plan);
        assert_eq!(status, "429", "{plan}");
        let (response, _) = WebSocket::ask(
            port,
            "/topics/other/ws",
            &format!("X-Plan: {plan}\r\nX-Key: a\r\n"),
        );
        assert_eq!(response.status, 429, "{plan}");
        drop(first);
        wait_until("the first has gone", || {
            open("/topics/news/sse", plan).0 == "200"
        });
    }
    // One connection of several topics is one of the caller's connections.
    wait_until("all have gone", || {
        open("/topics/sse?topic=news&topic=other", "one").0 == "200"
    });
    let (status, _) = open("/topics/sse?topic=news&topic=other", "single");
    assert_eq!(status, "429", "two subscriptions");
    let fields = "X-Plan: single\r\nX-Key: b\r\n";
    let (response, mut socket) = WebSocket::connect(port, "/topics/ws", fields);
    assert_eq!(response.status, 101);
    let mut subscribe = |topic: &str| {
        socket.text(&format!(r#"{{"type":"subscribe","topic":"{topic}"}}"#));
        socket.next_text()
    };
    let first = subscribe("news");
    assert!(!first.contains("error"), "{first}");
    let second = subscribe("other");
    assert!(second.contains(r#""reason":"limited""#), "{second}");
    engine.stop();
}

#[test]
fn the_time_of_a_plan_ends_streams_with_a_message() {
    let (folder, port) = (TempDir::new(), free_port());
    folder.write("flows.yaml", &topic(port));
    let engine = Engine::run(&[folder.path()], &[]);
    let fields = "X-Plan: short\r\nX-Key: a\r\n";
    let mut client = RawClient::connect(port);
    client.send(format!(
        "GET /topics/news/sse HTTP/1.1\r\nHost: a\r\n{fields}\r\n"
    ));
    let (_, mut socket) = WebSocket::connect(port, "/topics/news/ws", fields);
    let told = String::from_utf8(client.until(b"\r\n0\r\n\r\n")).unwrap();
    let message = r#"{"type":"limit","limit":"stream_time"}"#;
    assert!(
        told.contains(&format!("event: limit\ndata: {message}\n\n")),
        "{told}"
    );
    let last = loop {
        let text = socket.next_text();
        if text.contains("limit") {
            break text;
        }
    };
    assert_eq!(last, message);
    assert_eq!(socket.next_close(), 1008);
    engine.stop();
}

/// Who a topic's door has found out is who its limits count, by every way to a topic. All come from
/// one address.
#[test]
fn topics_count_callers_whom_their_door_knows() {
    let (folder, port) = (TempDir::new(), free_port());
    let mut lines = String::new();
    let keys: Vec<String> = (0..10)
        .map(|number| {
            let (key, line) = access::api_keys::ApiKey::generate(&format!("c{number}"), 1).unwrap();
            lines.push_str(&(line.to_line() + "\n"));
            format!("X-Api-Key: {key}\r\n")
        })
        .collect();
    folder.write("partners.keys", &lines);
    let limits = |plan: &str| format!("limits: {{ plan: {plan}, by: '${{ $auth.id }}' }}");
    let (publishing, subscribing) = (limits("few"), limits("one"));
    let text = format!(
        "engine:\n  listen: \"127.0.0.1:{port}\"\n  auth:\n    \
         partners: {{ api_key: {{ keys: partners.keys }} }}\n  plans:\n    \
         few: {{ events: {{ count: 1, per: 10m }} }}\n    one: {{ subscriptions: 1 }}\n---\n\
         topic: news\npayload: event\ndurability: memory\n\
         publish: {{ http: POST /topics/news, auth: partners, {publishing} }}\n\
         subscribe:\n  auth: partners\n  websocket: {{ publish: true }}\n  {subscribing}\n"
    );
    folder.write("flows.yaml", &text);
    let engine = Engine::run(&[folder.path()], &[]);

    let mut held = Vec::new();
    let mut open = |path: &str, fields: &str| {
        let mut client = RawClient::connect(port);
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        let head = String::from_utf8(client.until(b"\r\n\r\n")).unwrap();
        held.push(client);
        head.split(' ').nth(1).unwrap().to_owned()
    };
    let ways = ["/topics/news/sse", "/topics/sse?topic=news"];
    for (path, two) in ways.into_iter().zip(keys.chunks(2)) {
        assert_eq!(open(path, ""), "401", "who may comes first");
        let told = [0, 1, 0].map(|at| open(path, &two[at]));
        assert_eq!(told, ["200", "200", "429"], "{path}");
    }
    let ask = |at: usize| WebSocket::ask(port, "/topics/news/ws", &keys[at]);
    let told = [ask(4), ask(5), ask(4)];
    assert_eq!(told.each_ref().map(|it| it.0.status), [101, 101, 429]);
    let several = |at: usize| WebSocket::connect(port, "/topics/ws", &keys[at]).1;
    let subscribed = [6, 7, 6].map(|at| {
        let mut socket = several(at);
        socket.text(r#"{"type":"subscribe","topic":"news"}"#);
        (socket.next_text(), socket)
    });
    let is_limited = |text: &str| text.contains(r#""reason":"limited""#);
    let told = subscribed.each_ref().map(|it| is_limited(&it.0));
    assert_eq!(told, [false, false, true]);

    let by_http = |at: usize| publish(port, &keys[at], "application/json", "1").status;
    assert_eq!([8, 9, 8].map(by_http), [200, 200, 429]);
    let by_socket = |at: usize| {
        let mut socket = several(at);
        socket.text(r#"{"type":"publish","topic":"news","data":1}"#);
        socket.next_text()
    };
    assert!(is_limited(&by_socket(8)));
    let text = by_socket(0);
    assert!(text.contains(r#""type":"ack""#), "{text}");
    assert_eq!(by_http(0), 429);
    engine.stop();
}
