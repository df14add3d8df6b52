//! Flows end to end: one deadline, detached work, failures, calls to other systems, hostile
//! expressions beside other requests.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use testkit::{
    Action, Process, RawClient, ScriptedBackend, StrictBackend, TempDir, free_port, wait_until,
};

use crate::support::{Engine, command, get, post};

/// Flows on one port before one back end.
fn run(backend: u16, flows: &str) -> (Engine, u16, TempDir) {
    let (folder, port) = (TempDir::new(), free_port());
    let flows = flows.replace("BACKEND", &format!("127.0.0.1:{backend}"));
    let text = format!("engine: {{ listen: \"127.0.0.1:{port}\" }}\n---\n{flows}");
    folder.write("flows.yaml", &text);
    let engine = Engine::run(&[folder.path()], &[]);
    (engine, port, folder)
}

/// A back end that takes requests and never answers.
fn stalled(connections: usize) -> ScriptedBackend {
    ScriptedBackend::start((0..connections).map(|_| vec![Action::Stall]).collect())
}

#[test]
fn the_time_of_a_flow_bounds_streamed_and_called_systems() {
    let backend = stalled(6);
    let (engine, port, _folder) = run(
        backend.port(),
        "flow: streams\nfrom: { http: GET /streams }\nlimits: { time: 200ms }\n\
         steps: [ forward: http://BACKEND/ ]\n---\n\
         flow: streams-a-message\nfrom: { http: GET /message }\nlimits: { time: 200ms }\n\
         steps:\n  - set: { a: 1 }\n  - forward: http://BACKEND/\n---\n\
         flow: calls\nfrom: { http: GET /calls }\nlimits: { time: 200ms }\n\
         steps: [ http: http://BACKEND/ ]\n---\n\
         flow: handles\nfrom: { http: GET /handles }\nlimits: { time: 200ms }\n\
         steps: [ http: http://BACKEND/ ]\n\
         on_error: [ { on: timeout, reply: { status: 503 } } ]\n---\n\
         flow: branches\nfrom: { http: GET /branches }\nlimits: { time: 200ms }\n\
         steps:\n  - parallel:\n      quick: { map: 1 }\n\
         \x20     stock: [ { delay: 1ms }, { http: http://BACKEND/ } ]\n",
    );
    for (path, status) in [
        ("/streams", 504),
        ("/message", 504),
        ("/calls", 504),
        ("/handles", 503),
        ("/branches", 504),
    ] {
        let start = Instant::now();
        let response = get(port, path);
        assert_eq!(response.status, status, "{path}: {}", response.text());
        assert!(start.elapsed() >= Duration::from_millis(200), "{path}");
        let content_type = response.header("content-type");
        assert_eq!(content_type, Some("application/problem+json"), "{path}");
    }
    wait_until("nothing is left of the calls", || backend.closed() == 5);
    let told = engine.stop();
    let place = "flow branches, step 1 (parallel): longer than 200ms, under way: 1.stock.2 (http)";
    assert!(told.contains(place), "{told}");
}

/// A body of some 3 kilobytes that a schema makes work of: two branches for each level.
#[test]
fn a_schema_with_branches_at_each_level_is_checked_in_time() {
    let backend = stalled(1);
    let (engine, port, _folder) = run(
        backend.port(),
        "flow: tree\nfrom: { http: POST /tree }\nlimits: { time: 10s }\nsteps:\n  - validate:\n\
         \x20     schema:\n        $ref: '#/$defs/node'\n        $defs:\n          node:\n\
         \x20           anyOf:\n\
         \x20             - properties:\n\
         \x20                 kind: { const: leaf }\n\
         \x20                 child: { $ref: '#/$defs/node' }\n\
         \x20             - properties:\n\
         \x20                 kind: { const: group }\n\
         \x20                 child: { $ref: '#/$defs/node' }\n\
         \x20 - reply: {}\n",
    );
    let depth = 100;
    let groups = "{\"kind\":\"group\",\"child\":".repeat(depth);
    let tree = |kind: &str| format!("{groups}{{\"kind\":\"{kind}\"}}{}", "}".repeat(depth));
    let json = "application/json";
    assert_eq!(post(port, "/tree", json, &tree("leaf")).status, 200);
    let before = engine.process.peak_kib();
    let told = post(port, "/tree", json, &tree("other"));
    assert_eq!(told.status, 400, "{}", told.text());
    // Errors have a budget of 16 MiB. Without one each level doubles them.
    let grown = engine.process.peak_kib().saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} KiB");
    engine.stop();
}

/// 75 million comparisons, all of which the body passes in the end: without the limit the answer
/// would be 200, or, on a slow machine, 400 when the check gives up.
#[test]
fn a_slow_check_ends_with_the_time_of_its_flow() {
    let others: String = (1..150)
        .map(|it| format!("{{ maximum: -{it} }}, "))
        .collect();
    let schema = format!("{{ items: {{ anyOf: [{others} {{ type: integer }}] }} }}");
    let (engine, port, _folder) = run(
        1,
        &format!(
            "flow: numbers\nfrom: {{ http: POST /numbers }}\nlimits: {{ time: 300ms }}\nsteps:\n\
             \x20 - validate: {{ schema: {schema} }}\n\
             \x20 - reply: {{}}\n"
        ),
    );
    let body = format!("[{}1]", "1,".repeat(500_000));
    let late = post(port, "/numbers", "application/json", &body);
    assert_eq!(late.status, 504, "{}", late.text());
    let few = post(port, "/numbers", "application/json", "[1, 2]");
    assert_eq!(few.status, 200, "{}", few.text());
    let told = engine.stop();
    let place = "flow numbers, step 1 (validate): longer than 300ms";
    assert!(told.contains(place), "{told}");
}

/// How a client leaves whose request is whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    Closes,
    /// It closes its sending side only, which counts as leaving too (decision 0025).
    HalfCloses,
}

#[test]
fn work_ends_with_its_client_unless_it_is_detached() {
    for leaving in [Leaving::Closes, Leaving::HalfCloses] {
        let backend = stalled(2);
        let after = StrictBackend::start();
        let (engine, port, _folder) = run(
            backend.port(),
            &format!(
                "flow: bound\nfrom: {{ http: GET /bound }}\nsteps: [ http: http://BACKEND/ ]\n---\n\
                 flow: detached\nfrom: {{ http: GET /detached }}\ndetach: true\n\
                 steps:\n  - http: http://BACKEND/\n    timeout: 300ms\n    fallback: [ set: {{ a: 1 }} ]\n\
                 \x20 - http: http://127.0.0.1:{}/after\n",
                after.port()
            ),
        );
        for (taken, path) in [(1, "/bound"), (2, "/detached")] {
            let mut client = RawClient::connect(port);
            client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            wait_until("the call is under way", || backend.accepted() == taken);
            if leaving == Leaving::HalfCloses {
                client.finish();
                assert!(client.is_closed(), "{path}: nobody waits for a reply");
            }
            drop(client);
            if path == "/bound" {
                wait_until("its call is given up", || backend.closed() == 1);
            }
        }
        wait_until("the detached flow goes on", || !after.requests().is_empty());
        assert_eq!(after.requests()[0].target, "/after", "{leaving:?}");
        engine.stop();
    }
}

#[test]
fn hostile_expressions_stop_and_others_are_served_meanwhile() {
    let (engine, port, _folder) = run(
        1,
        "flow: hostile\nfrom: { http: POST /hostile }\nsteps:\n\
         \x20 - map: \"if .kind == \\\"loop\\\" then last(range(1e18)) \
         elif .kind == \\\"deep\\\" then (def f: 1 + f; f) \
         elif .kind == \\\"text\\\" then \\\"x\\\" * 1e12 else [range(1e12)] end\"\n\
         \x20   name: bomb\n---\n\
         flow: fine\nfrom: { http: GET /fine }\nsteps: [ reply: { body: ok } ]\n",
    );
    for kind in ["loop", "deep", "text", "range"] {
        let body = format!("{{\"kind\": \"{kind}\"}}");
        let bomb =
            std::thread::spawn(move || post(port, "/hostile", "application/json", &body).status);
        assert_eq!(get(port, "/fine").text(), "ok", "{kind}");
        assert_eq!(bomb.join().unwrap(), 500, "{kind}");
    }
    let output = engine.stop();
    assert_eq!(output.matches("step bomb").count(), 4, "{output}");
}

#[test]
fn values_never_become_structure_of_a_url() {
    let backend = StrictBackend::start();
    let (engine, port, _folder) = run(
        backend.port(),
        "flow: ask\nuse: { b: { http: http://BACKEND/api } }\nfrom: { http: POST /ask }\n\
         steps:\n  - http: { to: \"b:/x/${ .id }?q=${ .id }\", query: { tag: \"${ .tags }\" } }\n",
    );
    let body = "{\"id\": \"a/b?c#d e\", \"tags\": [\"1&2\", \"ä\"]}";
    assert_eq!(post(port, "/ask", "application/json", body).status, 204);
    let id = "a%2Fb%3Fc%23d%20e";
    let expected = format!("/api/x/{id}?q={id}&tag=1%262&tag=%C3%A4");
    assert_eq!(backend.requests()[0].target, expected);
    for id in ["\"..\"", "\"\"", "null", "[1]"] {
        let body = format!("{{\"id\": {id}, \"tags\": []}}");
        let status = post(port, "/ask", "application/json", &body).status;
        assert_eq!(status, 400, "{id}");
    }
    assert_eq!(backend.requests().len(), 1);
    engine.stop();
}

#[test]
fn limits_of_a_flow_are_shown_and_held() {
    let backend = stalled(4);
    let (engine, port, _folder) = run(
        backend.port(),
        "flow: few\nfrom: { http: GET /few }\nlimits: { concurrent: 1, time: 2s }\n\
         steps: [ http: http://BACKEND/ ]\n---\n\
         flow: slow\nfrom: { http: GET /slow }\nlimits: { throttle: { requests: 1, per: 30m } }\n\
         steps: [ reply: {} ]\n",
    );
    let mut first = RawClient::connect(port);
    first.send("GET /few HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("the first is under way", || backend.accepted() == 1);
    assert_eq!(get(port, "/few").status, 503);
    assert_eq!(get(port, "/slow").status, 200);
    let refused = get(port, "/slow");
    assert_eq!(refused.status, 429);
    assert!(refused.header("retry-after").is_some());
    let metrics = engine.get("/metrics").text();
    for line in [
        "intertie_bulkhead_running{flow=\"few\",step=\"limits\"} 1",
        "intertie_bulkhead_refused_total{flow=\"few\",step=\"limits\"} 1",
        "intertie_throttle_refused_total{flow=\"slow\",step=\"limits\"} 1",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    drop(first);
    engine.stop();
}

/// Runs flows on one worker whose expressions may take minutes.
fn run_long(flows: &str) -> (Process, u16, TempDir) {
    let (folder, port) = (TempDir::new(), free_port());
    let limits = "limits: { expression_steps: 1000000000, body: 64MiB }";
    let text = format!("engine: {{ listen: \"127.0.0.1:{port}\", {limits} }}\n---\n{flows}");
    folder.write("flows.yaml", &text);
    let mut command = command();
    command.arg("run").arg(folder.path());
    command.args(["--workers", "1", "--admin", "off"]);
    let mut process = Process::start(&mut command);
    process.wait_for_port(port);
    (process, port, folder)
}

/// Ways to keep a flow busy for minutes in all that it may do without waiting.
const ENDLESS: &[(&str, &str)] = &[
    ("map", "- map: last(range(1e18))\n"),
    ("value", "- map: { a: \"${ last(range(1e18)) }\" }\n"),
    ("condition", "- map: 1\n  if: last(range(1e18))\n"),
    ("set", "- set: { a: \"${ last(range(1e18)) }\" }\n"),
    (
        "if",
        "- if: { when: last(range(1e18)), then: [ map: 1 ] }\n",
    ),
    (
        "choose",
        "- choose: [ { when: last(range(1e18)), map: 1 }, { otherwise: [ map: 2 ] } ]\n",
    ),
    (
        "while",
        "- while: { when: last(range(1e18)), steps: [ map: 1 ] }\n",
    ),
    (
        "each",
        "- each: { in: last(range(1e18)), steps: [ map: 1 ] }\n",
    ),
    (
        "reply",
        "- reply: { body: { a: \"${ last(range(1e18)) }\" } }\n",
    ),
    ("log", "- log: \"${ last(range(1e18)) }\"\n"),
    (
        "aggregate",
        "- aggregate: { key: last(range(1e18)), count: 2, time: 1s, steps: [ map: 1 ] }\n",
    ),
    (
        "parallel",
        "- parallel: { a: [ map: last(range(1e18)) ], b: [ map: 1 ] }\n",
    ),
];

/// One worker has a flow for each of these under way, all of which would take minutes. It answers
/// another request before any of them, and each of them when its time is over.
#[test]
fn the_time_of_a_flow_ends_its_expressions_and_others_are_served_meanwhile() {
    let mut flows = String::from(
        "flow: fine\nfrom: { http: GET /fine }\nsteps: [ { map: 1 + 1 }, { reply: {} } ]\n",
    );
    for (name, steps) in ENDLESS {
        let steps = steps.replace('\n', "\n  ");
        flows += &format!(
            "---\nflow: {name}\nfrom: {{ http: POST /{name} }}\nlimits: {{ time: 5s }}\nsteps:\n  {}\n",
            steps.trim_end()
        );
    }
    let (mut process, port, _folder) = run_long(&flows);
    let mut clients = Vec::new();
    for (name, _) in ENDLESS {
        let mut client = RawClient::connect(port);
        client.send(format!(
            "POST /{name} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: 2\r\n\r\n[]"
        ));
        clients.push(client);
    }
    let answered = std::sync::Mutex::new(Vec::new());
    let note = |name: &str, status: u16| answered.lock().unwrap().push((name.to_owned(), status));
    std::thread::scope(|scope| {
        for (client, (name, _)) in clients.iter_mut().zip(ENDLESS) {
            let note = &note;
            scope.spawn(move || note(name, client.response().status));
        }
        for _ in 0..20 {
            note("fine", get(port, "/fine").status);
        }
    });
    let answered = answered.into_inner().unwrap();
    assert_eq!(answered.len(), 20 + ENDLESS.len());
    for (at, (name, status)) in answered.iter().enumerate() {
        let expected = if at < 20 {
            ("fine", 200)
        } else {
            (name.as_str(), 504)
        };
        assert_eq!((name.as_str(), *status), expected, "{answered:?}");
    }
    process.signal("TERM");
    assert_eq!(process.wait().code(), Some(0), "{}", process.output());
}

/// Threads that work for clients who have gone are free again: more clients than there are threads
/// leave, one after the other, and a flow of the same kind is done all the same.
#[test]
fn an_expression_ends_with_its_client() {
    let (mut process, port, _folder) = run_long(
        "flow: long\nfrom: { http: POST /long }\nsteps:\n\
         \x20 - map: if . == 1 then last(range(1e18)) else [range(300000)] | length end\n\
         \x20 - reply: {}\n",
    );
    for _ in 0..20 {
        let mut client = RawClient::connect(port);
        client.send(
            "POST /long HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
             Content-Length: 1\r\n\r\n1",
        );
        drop(client);
    }
    let response = post(port, "/long", "application/json", "2");
    assert_eq!(response.text(), "300000");
    process.signal("TERM");
    assert_eq!(process.wait().code(), Some(0), "{}", process.output());
}

/// A line of a large message.
const LINE: &str = "{\"a\":\"some text\",\"b\":\"more text\"}";

/// What a flow may do with one large message of such lines, how many lines of it take many times
/// the limit below, and its steps.
const LARGE: &[(&str, (&str, usize), &str)] = &[
    (
        "convert",
        (LINE, 300_000),
        "- convert: { from: json, to: xml, root: order }\n",
    ),
    (
        "xml",
        (LINE, 60_000),
        "- encode: { to: xml, root: order }\n",
    ),
    ("json", (LINE, 60_000), "- encode: json\n"),
    ("form", ("\"some text\"", 400_000), "- encode: form\n"),
    ("csv", (LINE, 60_000), "- encode: csv\n"),
    (
        "decode",
        (LINE, 200_000),
        "- decode: json\n- map: .line[0]\n",
    ),
    ("toxml", (LINE, 60_000), "- map: \"{order: .} | toxml\"\n"),
    (
        "toform",
        (LINE, 60_000),
        "- map: \"{a: [.line[].a]} | toform\"\n",
    ),
    ("tocsv", (LINE, 60_000), "- map: .line | tocsv\n"),
    (
        "validate",
        (LINE, 60_000),
        "- validate: { schema: { properties: { line: { items: { required: [a, b] } } } } }\n",
    ),
    (
        "http",
        (LINE, 60_000),
        "- http: { to: \"http://127.0.0.1:1/\", body: \"${ . }\", \
         headers: { Content-Type: application/xml } }\n  fallback: [ { map: 1 } ]\n",
    ),
];

/// The limit counts also within a conversion: it ends long before it would be done, its thread is
/// free again, and others are served.
#[test]
fn the_time_of_a_flow_ends_conversions_and_others_are_served_meanwhile() {
    let mut flows = String::from(
        "flow: fine\nfrom: { http: GET /fine }\nsteps: [ { map: 1 + 1 }, { reply: {} } ]\n",
    );
    for (name, _, steps) in LARGE {
        let steps = steps.replace('\n', "\n  ");
        let steps = steps.trim_end();
        for (kind, time) in [("whole", "5m"), ("late", "30ms")] {
            flows += &format!(
                "---\nflow: {kind}-{name}\nfrom: {{ http: POST /{kind}/{name} }}\n\
                 limits: {{ time: {time} }}\nsteps:\n  {steps}\n"
            );
        }
    }
    let (mut process, port, _folder) = run_long(&flows);
    let body = |name: &str, (line, count): (&str, usize)| {
        let lines = format!("{line},").repeat(count);
        let lines = lines.trim_end_matches(',');
        match name {
            "csv" => format!("[{lines}]"),
            _ => format!("{{\"line\":[{lines}]}}"),
        }
    };
    let json = "application/json";
    for (name, lines, _) in LARGE {
        let body = body(name, *lines);
        let whole = post_patiently(port, &format!("/whole/{name}"), &body);
        assert!(whole.status < 300, "{name}: {}", whole.text());
        // More than there are threads for long work: they would be done one after the other.
        std::thread::scope(|scope| {
            for _ in 0..8 {
                let late = scope.spawn(|| post(port, &format!("/late/{name}"), json, &body));
                assert_eq!(get(port, "/fine").text(), "2", "{name}");
                let late = late.join().unwrap();
                assert_eq!(late.status, 504, "{name}: {}", late.text());
            }
        });
    }
    process.signal("TERM");
    assert_eq!(process.wait().code(), Some(0), "{}", process.output());
    let told = process.output();
    for (name, ..) in LARGE {
        let place = format!("flow late-{name}, step 1 (");
        assert!(told.contains(&place), "no {place} in {told}");
    }
}

/// Posts JSON whose answer takes long on a busy machine.
fn post_patiently(port: u16, path: &str, body: &str) -> testkit::Response {
    let mut client = RawClient::connect(port);
    client.set_patience(Duration::from_secs(60));
    client.send(format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    client.response()
}

/// 30 bodies that are 60 MB each when they are unpacked, at once, on one worker.
#[test]
fn others_are_served_while_many_large_bodies_are_unpacked() {
    let (mut process, port, _folder) = run_long(
        "flow: fine\nfrom: { http: GET /fine }\nsteps: [ { map: 1 + 1 }, { reply: {} } ]\n---\n\
         flow: pack\nfrom: { http: POST /pack }\nsteps:\n\
         \x20 - encode: gzip\n  - reply: {}\n---\n\
         flow: unpack\nfrom: { http: POST /unpack }\nsteps:\n\
         \x20 - decode: { from: gzip, max: 64MiB }\n  - reply: { status: 204 }\n",
    );
    let size = 60_000_000;
    let packed = post(port, "/pack", "text/plain", &"0".repeat(size));
    assert!(packed.body.len() < size / 500, "{}", packed.body.len());
    let mut clients: Vec<RawClient> = (0..30).map(|_| RawClient::connect(port)).collect();
    for client in &mut clients {
        client.send(format!(
            "POST /unpack HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Type: text/plain\r\n\
             Content-Encoding: gzip\r\nContent-Length: {}\r\n\r\n",
            packed.body.len()
        ));
        client.send(packed.body.clone());
    }
    let unpacked = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for client in &mut clients {
            let unpacked = &unpacked;
            scope.spawn(move || {
                client.set_patience(Duration::from_secs(120));
                assert_eq!(client.response().status, 204);
                unpacked.fetch_add(1, Ordering::Relaxed);
            });
        }
        for _ in 0..20 {
            assert_eq!(get(port, "/fine").text(), "2");
        }
        // As many are unpacked at once as there are cores; the rest waits for a thread.
        let before = unpacked.load(Ordering::Relaxed);
        assert!(
            before < 15,
            "{before} were unpacked before 20 requests were answered"
        );
    });
    process.signal("TERM");
    assert_eq!(process.wait().code(), Some(0), "{}", process.output());
}
