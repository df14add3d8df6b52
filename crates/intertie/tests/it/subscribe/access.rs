//! Access control for subscribers and publishers of topics, through the binary, with real tokens.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use testkit::{RawClient, Response, TempDir, WebSocket, free_port, hs256_token, sha256_hex};

use super::Stream;
use crate::support::{Engine, output};

pub(super) const SECRET: &str = "a secret of the issuer that has more than 32 bytes";
const KEY: &str = "itk_0123456789abcdefghijklmnopqrstuvwxyz";

pub(super) fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_secs()
}

/// A token for this many seconds.
pub(super) fn token(seconds: u64, claims: &str) -> String {
    let expires = now() + seconds;
    let issued = "\"iss\":\"https://id.example\",\"aud\":\"shop\",\"sub\":\"ann\"";
    hs256_token(SECRET, &format!("{{{issued},\"exp\":{expires}{claims}}}"))
}

pub(super) fn bearer(seconds: u64, claims: &str) -> String {
    format!("Authorization: Bearer {}\r\n", token(seconds, claims))
}

/// Topics of events behind this engine.
fn start(topics: &[String]) -> (TempDir, Engine) {
    let folder = TempDir::new();
    let hash = sha256_hex(KEY);
    folder.write(
        "keys",
        &format!("{{\"id\":\"shop\",\"hash\":\"sha256:{hash}\"}}\n"),
    );
    let engine = format!(
        "engine:\n  auth:\n    staff: {{ jwt: {{ issuer: 'https://id.example', audience: shop, \
         secret: '{SECRET}', clock_skew: 1s }} }}\n    partners: {{ api_key: {{ keys: keys }} }}\n"
    );
    let all = [&[engine], topics].concat().join("---\n");
    let file = folder.write("topics.yaml", &all);
    let engine = Engine::run(&[&file], &[]);
    (folder, engine)
}

fn topic(name: &str, ports: (u16, u16), more: &str) -> String {
    let (publish, listen) = ports;
    format!(
        "topic: {name}\npayload: event\ndurability: memory\n\
         publish: {{ http: 'POST 127.0.0.1:{publish}/topics/{name}' }}\nsubscribe:\n  \
         listen: '127.0.0.1:{listen}'\n  protocols: [h2, http/1.1]\n  profile: axway-streams\n  \
         websocket: {{ publish: true }}\n  {more}\n"
    )
}

pub(super) fn ask(port: u16, method: &str, target: &str, fields: &str) -> Response {
    let mut client = RawClient::connect(port);
    client.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{fields}\r\n"
    ));
    client.response_to(method)
}

/// A reply as it came over HTTP/2 without TLS.
pub(super) fn ask_h2c(port: u16, target: &str, fields: &str) -> String {
    let mut command = Command::new("curl");
    command.args([
        "--silent",
        "--include",
        "--http2-prior-knowledge",
        "--max-time",
        "20",
    ]);
    for field in fields.lines() {
        command.args(["--header", field]);
    }
    let out = command.arg(format!("http://127.0.0.1:{port}{target}"));
    String::from_utf8(out.output().unwrap().stdout).unwrap()
}

/// The reply without random parts and times.
fn plain(text: &str, name: &str) -> String {
    let text = text.replace(name, "NAME");
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.retain(|it| !it.to_ascii_lowercase().starts_with("date:"));
    for line in &mut lines {
        for member in ["\"datetime\":\"", "\"subscriptionId\":\""] {
            if let Some((before, rest)) = line.split_once(member) {
                let rest = rest.split_once('"').unwrap().1;
                *line = format!("{before}{rest}");
            }
        }
    }
    lines.join("\n")
}

/// All that can be asked for by name: what is answered for it.
fn answers(port: u16, name: &str, fields: &str) -> Vec<String> {
    let mut all = Vec::new();
    let sse = "/streams/subscribers/sse/api/v1/topics";
    let post = "/streams/publishers/http-post/api/v1/topics";
    let json = "Content-Type: application/json\r\nContent-Length: 1\r\n";
    for (method, target, more) in [
        ("GET", format!("/topics/sse?topic={name}"), ""),
        (
            "GET",
            format!("/topics/sse?topic={name}&mode=patch&filter=x"),
            "",
        ),
        ("GET", format!("{sse}/{name}"), ""),
        ("POST", format!("{post}/{name}"), json),
    ] {
        let body = if method == "POST" { "1" } else { "" };
        let mut client = RawClient::connect(port);
        client.send(format!(
            "{method} {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{more}{fields}\r\n{body}"
        ));
        let reply = client.response();
        all.push(plain(&String::from_utf8(reply.raw).unwrap(), name));
    }
    all.push(plain(
        &ask_h2c(port, &format!("/topics/sse?topic={name}"), fields),
        name,
    ));
    let (_, mut socket) = WebSocket::connect(port, "/topics/ws", fields);
    for order in [
        format!(r#"{{"type":"subscribe","topic":"{name}","ref":1}}"#),
        format!(r#"{{"type":"publish","topic":"{name}","data":1,"ref":2}}"#),
        r#"{"type":"ping"}"#.to_owned(),
    ] {
        socket.text(&order);
    }
    // In the order in which they come: that too would tell something.
    for _ in 0..3 {
        all.push(plain(&socket.next_text(), name));
    }
    all
}

#[test]
fn a_topic_that_one_may_not_see_is_answered_like_none() {
    let (publish, same, mixed) = (free_port(), free_port(), free_port());
    let read = "auth: { any: [staff], scopes: [read] }";
    let (_folder, engine) = start(&[
        topic("locked", (publish, same), read),
        topic("hidden", (publish, same), read),
        topic("public", (publish, same), ""),
        topic("theirs", (publish, mixed), "auth: partners"),
        topic("staffs", (publish, mixed), read),
    ]);
    let allowed = bearer(60, ",\"scope\":\"read\"");
    let strangers = [
        (String::new(), 401),
        // Not valid yet: that is no guess, and may come as often as it likes.
        (bearer(60, ",\"nbf\":4000000000"), 401),
        (bearer(60, ",\"scope\":\"write\""), 404),
    ];
    for (fields, status) in &strangers {
        let locked = answers(same, "locked", fields);
        assert_eq!(locked, answers(same, "nobody", fields), "{fields}");
        for reply in &locked[..5] {
            let (_, code) = reply.split_once(' ').unwrap();
            assert!(code.starts_with(&status.to_string()), "{reply}");
            assert_eq!(
                reply.to_lowercase().contains("www-authenticate: "),
                *status == 401
            );
        }
        // Where doors differ nothing is told.
        for name in ["theirs", "staffs"] {
            let refused = answers(mixed, name, fields);
            assert_eq!(refused, answers(mixed, "nobody", fields), "{name} {fields}");
            assert!(refused[0].starts_with("HTTP/1.1 404 "), "{}", refused[0]);
        }
        // What is for everybody is there.
        let patches = "/topics/sse?topic=public&mode=patch";
        assert_eq!(ask(same, "GET", patches, fields).status, 406);
        let (_, mut socket) = WebSocket::connect(same, "/topics/ws", fields);
        socket.text(r#"{"type":"subscribe","topic":"public"}"#);
        assert!(socket.next_text().contains("\"type\":\"subscribed\""));
        socket.text(r#"{"type":"publish","topic":"public","data":1}"#);
        let both = socket.next_text() + &socket.next_text();
        assert!(both.contains("\"type\":\"ack\""), "{both}");
    }
    // On its own path.
    let (_, stranger) = (&strangers[0], &strangers[2].0);
    for way in ["sse", "ws"] {
        let of = |name: &str, fields: &str| {
            let reply = match way {
                "sse" => ask(same, "GET", &format!("/topics/{name}/sse"), fields),
                _ => WebSocket::ask(same, &format!("/topics/{name}/ws"), fields).0,
            };
            (
                reply.status,
                plain(&String::from_utf8(reply.raw).unwrap(), name),
            )
        };
        let (status, anonymous) = of("locked", "");
        assert_eq!(status, 401);
        assert!(
            anonymous.contains("WWW-Authenticate: Bearer realm="),
            "{anonymous}"
        );
        let same_but_connection = |text: String| {
            let lines = text.lines().filter(|it| !it.starts_with("Connection: "));
            lines.collect::<Vec<_>>().join("\n")
        };
        let (refused, nothing) = (of("locked", stranger), of("nobody", stranger));
        assert_eq!((refused.0, nothing.0), (404, 404));
        assert_eq!(
            same_but_connection(refused.1),
            same_but_connection(nothing.1)
        );
    }
    // Whatever is asked there, and however.
    let methods = ["POST", "DELETE", "OPTIONS", "TRACE", "get", "HEAD", "GET"];
    for (way, method) in ["sse", "ws", "ticket"]
        .iter()
        .flat_map(|way| methods.map(|method| (way, method)))
    {
        let of = |name: &str, fields: &str| {
            let target = format!("/topics/{name}/{way}");
            let fields = format!("Content-Length: 0\r\n{fields}");
            let reply = ask(same, method, &target, &fields);
            (
                reply.status,
                plain(&String::from_utf8(reply.raw).unwrap(), name),
            )
        };
        let (refused, nothing) = (of("locked", stranger), of("nobody", stranger));
        assert_eq!(refused, nothing, "{method} {way}");
        let expected = match (*way, method) {
            ("sse", "GET" | "HEAD") => continue,
            ("ticket", "POST") => 200,
            ("ws", "GET" | "HEAD") => 426,
            _ => 405,
        };
        assert_eq!(of("locked", &allowed).0, expected, "{method} {way}");
    }
    // Those who may.
    let mut stream = Stream::open(same, "/topics/sse?topic=locked&topic=public", &allowed);
    stream.place();
    let mut own = Stream::open(same, "/topics/locked/sse", &allowed);
    own.place();
    let (_, mut socket) = WebSocket::connect(same, "/topics/ws", &allowed);
    socket.text(r#"{"type":"subscribe","topic":"locked"}"#);
    assert!(socket.next_text().contains("\"type\":\"subscribed\""));
    socket.text(r#"{"type":"publish","topic":"locked","data":7}"#);
    let both = [socket.next_text(), socket.next_text()];
    assert!(
        both.iter().any(|it| it.contains("\"type\":\"ack\"")),
        "{both:?}"
    );
    assert_eq!(own.event().2, "7");
    assert!(stream.event().2.contains("\"topic\":\"locked\",\"data\":7"));
    let missing = "/topics/sse?topic=locked&topic=nobody";
    assert_eq!(ask(same, "GET", missing, &allowed).status, 404);
    let theirs = ask(
        mixed,
        "HEAD",
        "/topics/sse?topic=theirs",
        &format!("X-Api-Key: {KEY}\r\n"),
    );
    assert_eq!(theirs.status, 200);
    engine.stop();
}

#[test]
fn publishing_over_websocket_needs_the_right_to_publish() {
    let (publish, listen) = (free_port(), free_port());
    let own = |auth: &str| {
        topic("orders", (publish, listen), "auth: staff").replace(
            "publish: { http: ",
            &format!("publish: {{ auth: {auth}, http: "),
        )
    };
    // Without `http` it is for those on WebSocket alone.
    let only_there = topic("notes", (publish, listen), "");
    let only_there = only_there
        .lines()
        .map(|line| match line.starts_with("publish: ") {
            true => "publish: { auth: partners }",
            false => line,
        });
    let only_there = only_there.collect::<Vec<_>>().join("\n") + "\n";
    let (_folder, engine) = start(&[own("{ any: [staff], scopes: [write] }"), only_there]);
    let publish = |topic: &str, fields: &str| {
        let (_, mut socket) = WebSocket::connect(listen, "/topics/ws", fields);
        socket.text(&format!(
            r#"{{"type":"publish","topic":"{topic}","data":1}}"#
        ));
        socket.next_text()
    };
    let (reader, writer) = (bearer(60, ""), bearer(60, ",\"scope\":\"write\""));
    assert!(publish("orders", &writer).contains("\"type\":\"ack\""));
    // Who may subscribe knows that there is such a topic.
    let refused = publish("orders", &reader);
    assert!(refused.contains("\"reason\":\"forbidden\""), "{refused}");
    let key = format!("X-Api-Key: {KEY}\r\n");
    assert!(publish("notes", &key).contains("\"type\":\"ack\""));
    let refused = publish("notes", "");
    assert!(refused.contains("\"reason\":\"unauthorized\""), "{refused}");
    let path = "/streams/publishers/http-post/api/v1/topics/orders";
    let json = "Content-Type: application/json\r\nContent-Length: 0\r\n";
    let post = |fields: &str| ask(listen, "POST", path, &format!("{json}{fields}"));
    assert_eq!(post(&reader).status, 403);
    // The event is none, but that is another matter.
    assert_eq!(post(&writer).status, 400);
    engine.stop();
}

#[test]
fn only_selects_events_for_each_caller_on_every_way() {
    let (publish, listen) = (free_port(), free_port());
    let only = "auth: staff\n  only: .tenant == $auth.claims.tenant\n  allow_expressions: true";
    let (_folder, engine) = start(&[
        topic("orders", (publish, listen), only),
        topic("public", (publish, listen), ""),
    ]);
    let post = |topic: &str, body: &str| super::publish(publish, topic, body);
    let of = |tenant: &str| {
        bearer(
            60,
            &format!(",\"tenant\":\"{tenant}\",\"jti\":\"{tenant}\""),
        )
    };
    let axway = "/streams/subscribers/sse/api/v1/topics/orders";
    let tenants = ["a", "b"];
    let mut streams = Vec::new();
    let first = Stream::open(listen, "/topics/orders/sse", &of("a")).place();
    for tenant in tenants {
        let fields = of(tenant);
        for target in [
            "/topics/orders/sse",
            axway,
            "/topics/sse?topic=orders&topic=public",
            "/topics/orders/sse?select=%7Bn:.n,tenant:.tenant%7D",
        ] {
            let mut stream = Stream::open(listen, target, &fields);
            stream.place();
            streams.push((tenant, stream));
        }
    }
    let mut sockets = tenants.map(|tenant| {
        let (_, mut socket) = WebSocket::connect(listen, "/topics/ws", &of(tenant));
        socket.text(r#"{"type":"subscribe","topic":"orders"}"#);
        assert!(socket.next_text().contains("\"type\":\"subscribed\""));
        (tenant, socket)
    });
    for number in 0..4 {
        let tenant = tenants[number % 2];
        post(
            "orders",
            &format!("{{\"n\":{number},\"tenant\":\"{tenant}\"}}"),
        );
    }
    // Nobody's: the condition is not true, and fails.
    post("orders", "{\"n\":9}");
    post("orders", "[9]");
    post("orders", "{\"n\":10,\"tenant\":\"a\"}");
    post("orders", "{\"n\":11,\"tenant\":\"b\"}");
    let expected = |tenant: &str| match tenant {
        "a" => ["\"n\":0,", "\"n\":2,", "\"n\":10,"],
        _ => ["\"n\":1,", "\"n\":3,", "\"n\":11,"],
    };
    for (tenant, stream) in &mut streams {
        for part in expected(tenant) {
            let (_, kind, data) = stream.event();
            assert_eq!(kind, "event");
            assert!(data.contains(part), "{tenant} {data}");
        }
    }
    for (tenant, socket) in &mut sockets {
        for part in expected(tenant) {
            let text = socket.next_text();
            assert!(text.contains(part), "{tenant} {text}");
        }
    }
    // Of the history, too, over both protocols.
    for tenant in tenants {
        let fields = format!("{}Last-Event-ID: {first}\r\n", of(tenant));
        let mut back = Stream::open(listen, "/topics/orders/sse", &fields);
        let target = format!("/topics/orders/ws?lastEventId={first}");
        let (_, mut socket) = WebSocket::connect(listen, &target, &of(tenant));
        assert!(socket.next_text().contains("\"type\":\"subscribed\""));
        for part in expected(tenant) {
            assert!(back.event().2.contains(part));
            assert!(socket.next_text().contains(part));
        }
    }
    // Over HTTP/2: the stream of a tenant without events ends without one.
    let short = format!(
        "Last-Event-ID: {first}\r\n{}",
        bearer(2, ",\"tenant\":\"c\"")
    );
    let nothing = ask_h2c(listen, "/topics/orders/sse", &short);
    assert!(nothing.starts_with("HTTP/2 200"), "{nothing}");
    assert!(!nothing.contains("event: event"), "{nothing}");
    assert!(nothing.contains("event: expired\n"), "{nothing}");
    let (_, mut socket) = WebSocket::connect(listen, "/topics/ws", &of("a"));
    socket.text(r#"{"type":"subscribe","topic":"orders","window":5}"#);
    assert!(socket.next_text().contains("not the same for all callers"));
    engine.stop();
}

#[test]
fn more_groups_than_allowed_are_refused() {
    let (publish, listen) = (free_port(), free_port());
    let only = "auth: staff\n  only: .tenant == $auth.claims.tenant\n  \
                expression_limits: { groups: 1 }";
    let (_folder, engine) = start(&[topic("orders", (publish, listen), only)]);
    let of = |tenant: usize| bearer(60, &format!(",\"tenant\":{tenant}"));
    // Each of two workers has room for one.
    let mut streams = Vec::new();
    let refused = (0..3).find_map(|tenant| {
        let mut client = RawClient::connect(listen);
        let fields = of(tenant);
        client.send(format!(
            "GET /topics/orders/sse HTTP/1.1\r\nHost: test\r\n{fields}\r\n"
        ));
        let head = String::from_utf8(client.until(b"\r\n\r\n")).unwrap();
        streams.push(client);
        head.starts_with("HTTP/1.1 503 ").then_some(head)
    });
    let head = refused.expect("a group too many");
    assert!(head.contains("Retry-After: 1\r\n"), "{head}");
    engine.stop();
}

#[test]
fn streams_end_with_the_credential_and_say_so() {
    let (publish, listen) = (free_port(), free_port());
    let (_folder, engine) = start(&[
        topic("orders", (publish, listen), "auth: staff\n  max_time: 1h"),
        topic("public", (publish, listen), ""),
    ]);
    let (short, long) = (bearer(2, ""), bearer(3600, ""));
    let mut lasting = Stream::open(listen, "/topics/orders/sse", &long);
    lasting.place();
    let mut sse = Stream::open(listen, "/topics/orders/sse", &short);
    let both = "/topics/sse?topic=orders&topic=public";
    let mut several = Stream::open(listen, both, &short);
    let path = "/streams/subscribers/sse/api/v1/topics/orders";
    let mut axway = Stream::open(listen, path, &short);
    let (_, mut socket) = WebSocket::connect(listen, "/topics/ws", &short);
    for topic in ["orders", "public"] {
        socket.text(&format!(r#"{{"type":"subscribe","topic":"{topic}"}}"#));
        assert!(socket.next_text().contains("\"type\":\"subscribed\""));
    }
    let (_, mut own) = WebSocket::connect(listen, "/topics/orders/ws", &short);
    assert!(own.next_text().contains("\"type\":\"subscribed\""));
    // Opened while the credential was good, used when it is not.
    let (_, mut late) = WebSocket::connect(listen, "/topics/ws", &short);
    let h2c = ask_h2c(listen, "/topics/orders/sse", &short);
    assert!(h2c.ends_with("event: expired\ndata: {\"detail\":\"the credential has expired\"}\n\n"));
    for stream in [&mut sse, &mut several] {
        stream.place();
        let block = stream.block().unwrap();
        assert!(
            block.starts_with("event: expired\ndata: {\"detail\":"),
            "{block}"
        );
        assert_eq!(stream.block(), None);
    }
    axway.place();
    let block = axway.block().unwrap();
    assert!(block.starts_with("event: error\ndata: {"), "{block}");
    assert!(block.contains("\"code\":40401"), "{block}");
    assert_eq!(axway.block(), None);
    for socket in [&mut socket, &mut own] {
        let text = socket.next_text();
        assert!(
            text.starts_with(r#"{"type":"expired","data":{"detail":"#),
            "{text}"
        );
        assert_eq!(socket.next_close(), 1008);
    }
    late.text(r#"{"type":"subscribe","topic":"orders"}"#);
    let refused = late.next_text();
    assert!(refused.contains("\"reason\":\"unauthorized\""), "{refused}");
    late.text(r#"{"type":"subscribe","topic":"public"}"#);
    assert!(late.next_text().contains("\"type\":\"subscribed\""));
    super::publish(publish, "orders", "1");
    assert_eq!(lasting.event().2, "1");
    engine.stop();
}

#[test]
fn contradictory_settings_of_access_are_refused() {
    let folder = TempDir::new();
    let check = |payload: &str, publish: &str, subscribe: &str| {
        let text = format!(
            "engine:\n  auth:\n    staff: {{ jwt: {{ issuer: 'https://id.example', audience: shop, \
             secret: '{SECRET}' }} }}\n---\ntopic: orders\npayload: {payload}\n{publish}\
             subscribe:\n  listen: ':8080'\n  {subscribe}\n"
        );
        let file = folder.write("topics.yaml", &text);
        let output = output(&["check", file.to_str().unwrap()]);
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    };
    for (payload, publish, subscribe, expected) in [
        ("event", "", "only: .a", "`only` needs callers"),
        (
            "event",
            "",
            "auth: none\n  only: .a",
            "`only` needs callers",
        ),
        (
            "snapshot",
            "",
            "auth: staff\n  only: .a",
            "a snapshot is one document for all",
        ),
        (
            "event",
            "",
            "auth: staff\n  only: .a == $path.b",
            "sees the event and `$auth`",
        ),
        ("event", "", "auth: staff\n  only: .a ==", "IT"),
        ("event", "", "auth: stuff", "there is no way `stuff`"),
        (
            "event",
            "",
            "auth: staff\n  only: .a\n  websocket: { window: 5 }",
            "a `window` does not go with `only`",
        ),
        (
            "event",
            "",
            "auth: staff\n  only: .a\n  expression_limits: { distinct: 5 }",
            "`distinct` has no effect",
        ),
        (
            "event",
            "",
            "auth: staff\n  allow_expressions: true\n  expression_limits: { groups: 5 }",
            "`groups` has no effect",
        ),
        (
            "event",
            "publish: { auth: staff }\n",
            "auth: staff",
            "`auth` has no effect",
        ),
    ] {
        let text = check(payload, publish, subscribe);
        assert!(text.contains(expected), "{subscribe}: {text}");
    }
    let sound = "auth: staff\n  only: .a == $auth.id\n  expression_limits: { groups: 5 }";
    let text = check("event", "", sound);
    assert!(!text.contains("IT06"), "{text}");
}

#[test]
fn keys_in_the_query_are_masked_in_the_access_log() {
    let (publish, listen) = (free_port(), free_port());
    let folder = TempDir::new();
    let hash = sha256_hex(KEY);
    let line = format!("{{\"id\":\"shop\",\"hash\":\"sha256:{hash}\"}}\n");
    folder.write("keys", &line);
    let engine = "engine:\n  log: { access: true, format: text }\n  auth:\n    \
                  partners: { api_key: { query: key, keys: keys } }\n---\n";
    let orders = topic("orders", (publish, listen), "auth: partners");
    let file = folder.write("topics.yaml", &format!("{engine}{orders}"));
    let engine = Engine::run(&[&file], &[]);
    let name = "/streams/subscribers/sse/api/v1/topics/orders";
    for (target, status) in [
        (format!("/topics/orders/sse?key={KEY}"), 200),
        (format!("/topics/sse?topic=orders&k%65y={KEY}"), 200),
        (format!("{name}?key={KEY}"), 200),
        (format!("/topics/orders/sse?key={KEY}x"), 401),
    ] {
        assert_eq!(ask(listen, "HEAD", &target, "").status, status, "{target}");
    }
    for target in ["/topics/orders/ws", "/topics/ws"] {
        let (answer, _) = WebSocket::ask(listen, &format!("{target}?key={KEY}"), "");
        assert_eq!(answer.status, 101);
    }
    let log = engine.stop();
    assert!(log.contains("/topics/sse?topic=orders&key=***"), "{log}");
    assert!(!log.contains(KEY), "{log}");
}

#[test]
fn a_reload_that_locks_a_topic_ends_the_streams_of_those_who_were_there() {
    let (publish, listen) = (free_port(), free_port());
    let open = topic("orders", (publish, listen), "");
    let folder = TempDir::new();
    let engine = format!(
        "engine:\n  auth:\n    staff: {{ jwt: {{ issuer: 'https://id.example', audience: shop, \
         secret: '{SECRET}' }} }}\n---\n"
    );
    let file = folder.write("topics.yaml", &format!("{engine}{open}"));
    let running = Engine::run(&[&file], &["--watch"]);
    let mut stream = Stream::open(listen, "/topics/orders/sse", "");
    stream.place();
    let (_, mut quiet) = WebSocket::connect(listen, "/topics/ws", "");
    let locked = topic("orders", (publish, listen), "auth: staff");
    folder.write("topics.yaml", &format!("{engine}{locked}"));
    assert!(stream.block().unwrap().starts_with("retry: "));
    assert_eq!(stream.block(), None);
    assert_eq!(ask(listen, "GET", "/topics/orders/sse", "").status, 401);
    // A connection from before has shown no credential.
    quiet.text(r#"{"type":"subscribe","topic":"orders"}"#);
    assert!(quiet.next_text().contains("no such topic"));
    quiet.text(r#"{"type":"publish","topic":"orders","data":1}"#);
    assert!(quiet.next_text().contains("no such topic"));
    let mut stream = Stream::open(listen, "/topics/orders/sse", &bearer(60, ""));
    stream.place();
    // Another door: who came in by the one before has to show its credential again.
    let other = topic(
        "orders",
        (publish, listen),
        "auth: { any: [staff], scopes: [read] }",
    );
    folder.write("topics.yaml", &format!("{engine}{other}"));
    assert!(stream.block().unwrap().starts_with("retry: "));
    assert_eq!(stream.block(), None);
    running.stop();
}

/// A reload that is refused leaves no topic behind: neither one of a document with an error nor
/// its neighbours are found, and their locks tell nobody that they were there.
#[test]
fn topics_of_a_refused_reload_are_not_found() {
    let (publish, listen) = (free_port(), free_port());
    let folder = TempDir::new();
    let engine = format!(
        "engine:\n  auth:\n    staff: {{ jwt: {{ issuer: 'https://id.example', audience: shop, \
         secret: '{SECRET}' }} }}\n---\n"
    );
    let open = topic("orders", (publish, listen), "");
    let file = folder.write("topics.yaml", &format!("{engine}{open}"));
    let running = Engine::run(&[&file], &[]);
    let notes = topic("notes", (publish, listen), "auth: staff");
    let wrong = topic(
        "wrong",
        (publish, listen),
        "auth: staff\n  heartbeat: never",
    );
    let all = [engine, open, notes, wrong].join("---\n");
    folder.write("topics.yaml", &all.replacen("---\n---\n", "---\n", 1));
    running.process.signal("HUP");
    running.process.wait_for("not reloaded");
    let allowed = bearer(60, "");
    for name in ["notes", "wrong", "nobody"] {
        for fields in ["", allowed.as_str()] {
            let target = format!("/topics/sse?topic={name}");
            assert_eq!(
                ask(listen, "GET", &target, fields).status,
                404,
                "{name} {fields}"
            );
        }
    }
    let (_, mut socket) = WebSocket::connect(listen, "/topics/ws", &allowed);
    for name in ["notes", "wrong"] {
        socket.text(&format!(r#"{{"type":"subscribe","topic":"{name}"}}"#));
        assert!(socket.next_text().contains("no such topic"));
    }
    socket.text(r#"{"type":"subscribe","topic":"orders"}"#);
    assert!(socket.next_text().contains("\"type\":\"subscribed\""));
    running.stop();
}
