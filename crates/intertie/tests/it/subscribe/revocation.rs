//! Credentials that are revoked: by the deny list, by a file of keys, by their issuer. Requests are
//! refused, and streams end that they have opened, whatever carries them.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use testkit::{
    RawClient, Response, StrictBackend, TempDir, WebSocket, free_port, hs256_token, sha256_hex,
    wait_until,
};

use super::Stream;
use crate::support::{Engine, post};

const SECRET: &str = "a secret of the issuer that has more than 32 bytes";
const REVOKED: &str = r#"{"detail":"the credential has been revoked"}"#;

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_secs()
}

/// The field with a token that expires at this time.
fn bearer(jti: &str, expires: u64) -> String {
    let claims = format!(
        "{{\"iss\":\"https://id.example\",\"aud\":\"shop\",\"sub\":\"ann\",\"jti\":\"{jti}\",\
         \"exp\":{expires}}}"
    );
    format!("Authorization: Bearer {}\r\n", hs256_token(SECRET, &claims))
}

fn key(id: &str) -> String {
    format!("itk_{id}_0123456789abcdefghijklmnopqrstuvwxyz")
}

fn api_key(id: &str) -> String {
    format!("X-Api-Key: {}\r\n", key(id))
}

/// Writes the file of keys with these.
fn write_keys(folder: &TempDir, ids: &[&str]) {
    let line = |id: &&str| {
        let hash = sha256_hex(&key(id));
        format!("{{\"id\":\"{id}\",\"hash\":\"sha256:{hash}\"}}\n")
    };
    folder.write("keys", &ids.iter().map(line).collect::<String>());
}

/// The settings of access control, with or without a deny list.
fn engine(deny: &str) -> String {
    format!(
        "engine:\n  {deny}\n  admin: {{ operate: none }}\n  auth:\n    staff: {{ jwt: {{ issuer: 'https://id.example', \
         audience: shop, secret: '{SECRET}', clock_skew: 1s }} }}\n    \
         partners: {{ api_key: {{ keys: keys }} }}\n"
    )
}

fn ask(port: u16, (method, target): (&str, &str), fields: &str, body: &str) -> Response {
    let mut client = RawClient::connect(port);
    let length = match body {
        "" => String::new(),
        body => format!("Content-Length: {}\r\n", body.len()),
    };
    client.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n{length}{fields}\r\n\
         {body}"
    ));
    client.response_to(method)
}

fn deny(engine: &Engine, entry: &str) -> u16 {
    post(engine.admin, "/deny", "application/json", entry).status
}

/// The open streams end for this reason.
fn ends(stream: &mut Stream, event: &str, data: &str) {
    loop {
        let block = stream.block().expect("it says why it ends");
        if !block.contains(&format!("event: {event}")) {
            continue;
        }
        assert!(block.contains(data), "{block}");
        assert_eq!(stream.block(), None);
        return;
    }
}

#[test]
fn deny_list_entries_survive_restarts_until_they_are_removed() {
    let (folder, port) = (TempDir::new(), free_port());
    write_keys(&folder, &["shop", "desk"]);
    folder.write("denied", "");
    let flow = format!(
        "---\nflow: orders\nfrom: {{ http: 'GET 127.0.0.1:{port}/orders' }}\n\
         auth: {{ any: [staff, partners] }}\nsteps: [ reply: {{ body: ok }} ]\n"
    );
    let with_list = engine("deny: { file: denied }") + &flow;
    let file = folder.write("flows.yaml", &with_list);
    let data = folder.path().join("data");
    let options = ["--data", data.to_str().unwrap()];
    let engine_of = || Engine::run(&[&file], &options);
    let (stolen, other) = (bearer("t1", now() + 3000), bearer("t2", now() + 3000));
    let status = |fields: &str| ask(port, ("GET", "/orders"), fields, "").status;

    let running = engine_of();
    assert_eq!(status(&stolen), 200);
    let entry = format!(
        "{{\"jti\":\"t1\",\"exp\":{},\"reason\":\"lost\"}}",
        now() + 3000
    );
    assert_eq!(deny(&running, &entry), 201);
    assert_eq!((status(&stolen), status(&other)), (401, 200));
    assert_eq!(deny(&running, &entry), 200, "the same again");
    // A page of another origin can send this anywhere.
    let text = post(running.admin, "/deny", "text/plain", &entry);
    assert_eq!(text.status, 415);
    for wrong in [
        "{\"jti\":\"t2\"}",
        "{\"jti\":\"t2\",\"exp\":1}",
        "{\"who\":\"t2\"}",
        "{\"key\":\"a\",\"sub\":\"b\"}",
        "x",
    ] {
        assert_eq!(deny(&running, wrong), 400, "{wrong}");
    }
    assert_eq!(deny(&running, "{\"key\":\"desk\"}"), 201);
    assert_eq!(status(&api_key("desk")), 401);
    folder.write("denied", "{\"key\":\"shop\",\"reason\":\"left\"}\n");
    wait_until("the file is read", || status(&api_key("shop")) == 401);
    let listed = running.get("/deny").text();
    for part in [
        "\"jti\":\"t1\"",
        "\"reason\":\"lost\",\"source\":\"api\"",
        "{\"key\":\"shop\",\"reason\":\"left\",\"source\":\"file\"}",
        "\"more\":false",
    ] {
        assert!(listed.contains(part), "{part} in {listed}");
    }
    let part = running.get("/deny?limit=1&key=desk").text();
    assert!(part.contains("shop") && !part.contains("desk"), "{part}");
    assert_eq!(running.get("/deny?limit=0").status, 400);
    let remove =
        |running: &Engine, target: &str| ask(running.admin, ("DELETE", target), "", "").status;
    assert_eq!(remove(&running, "/deny?key=shop"), 409, "it is in the file");
    assert_eq!(remove(&running, "/deny"), 400);
    running.stop();

    let running = engine_of();
    // From the first request on, those of the file too.
    let all = [&stolen, &api_key("shop"), &api_key("desk"), &other];
    assert_eq!(all.map(|it| status(it)), [401, 401, 401, 200]);
    assert_eq!(remove(&running, "/deny?jti=t1"), 204);
    assert_eq!(remove(&running, "/deny?jti=t1"), 404);
    assert_eq!(status(&stolen), 200);
    running.stop();

    let running = engine_of();
    assert_eq!(all.map(|it| status(it)), [200, 401, 401, 200]);
    folder.write("flows.yaml", &(engine("listen: '127.0.0.1:1'") + &flow));
    running.process.signal("HUP");
    wait_until("there is no list", || running.get("/deny").status == 404);
    assert_eq!(all.map(|it| status(it)), [200, 200, 200, 200]);
    folder.write("flows.yaml", &with_list);
    running.process.signal("HUP");
    wait_until("the list is back", || running.get("/deny").status == 200);
    assert_eq!(all.map(|it| status(it)), [200, 401, 401, 200]);
    running.stop();
}

/// A back end with an event stream that says one thing, and with WebSocket connections that say
/// nothing.
fn back_end() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    head.push(byte[0]);
                }
                let answer: &[u8] = match head.starts_with(b"GET /feed") {
                    true => {
                        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
                          Transfer-Encoding: chunked\r\n\r\n11\r\nid: 1\ndata: one\n\n\r\n"
                    }
                    false => {
                        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                          Upgrade: websocket\r\n\
                          Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
                    }
                };
                stream.write_all(answer).unwrap();
                let _ = stream.read_to_end(&mut Vec::new());
            });
        }
    });
    port
}

#[test]
fn streams_of_every_kind_end_when_their_api_key_is_removed() {
    let (folder, port, inner) = (TempDir::new(), free_port(), free_port());
    write_keys(&folder, &["shop", "desk"]);
    let back = back_end();
    let file = folder.write(
        "flows.yaml",
        &format!(
            "{}---\ntopic: prices\npayload: event\ndurability: memory\n\
             publish: {{ http: 'POST 127.0.0.1:{inner}/prices' }}\n\
             subscribe: {{ listen: '127.0.0.1:{port}', auth: partners, profile: axway-streams, \
             websocket: {{ publish: false }} }}\n\
             ---\nflow: feed\nfrom: {{ http: 'GET 127.0.0.1:{port}/back/*' }}\nauth: partners\n\
             steps: [ forward: 'http://127.0.0.1:{back}/' ]\n\
             ---\nflow: talk\nfrom:\n  \
             websocket: {{ listen: '127.0.0.1:{port}', path: /talk }}\n\
             auth: partners\nsteps: [ map: '.' ]\n",
            engine("listen: '127.0.0.1:1'")
        ),
    );
    let running = Engine::run(&[&file], &[]);
    let shop = api_key("shop");
    let publish = |data: &str| {
        let reply = post(inner, "/prices", "application/json", data);
        assert_eq!(reply.status, 200, "{}", reply.text());
    };
    let mut sse = Stream::open(port, "/topics/prices/sse", &shop);
    let mut several = Stream::open(port, "/topics/sse?topic=prices", &shop);
    let axway = "/streams/subscribers/sse/api/v1/topics/prices";
    let mut axway = Stream::open(port, axway, &shop);
    let mut kept = Stream::open(port, "/topics/prices/sse", &api_key("desk"));
    let (_, mut own) = WebSocket::connect(port, "/topics/prices/ws", &shop);
    assert!(own.next_text().contains("\"type\":\"subscribed\""));
    let (_, mut all) = WebSocket::connect(port, "/topics/ws", &shop);
    all.text(r#"{"type":"subscribe","topic":"prices"}"#);
    assert!(all.next_text().contains("\"type\":\"subscribed\""));
    let mut feed = Stream::open(port, "/back/feed", &shop);
    assert!(feed.block().unwrap().contains("data: one"));
    let (_, mut tunnel) = WebSocket::connect(port, "/back/socket", &shop);
    let (_, mut talk) = WebSocket::connect(port, "/talk", &shop);
    publish("1");

    write_keys(&folder, &["desk"]);
    ends(&mut sse, "revoked", REVOKED);
    ends(&mut several, "revoked", REVOKED);
    ends(&mut axway, "error", "the credential has been revoked");
    ends(&mut feed, "revoked", REVOKED);
    let said = |socket: &mut WebSocket| loop {
        let text = socket.next_text();
        if !text.contains("\"type\":\"event\"") {
            return text;
        }
    };
    for socket in [&mut own, &mut all] {
        let text = said(socket);
        assert_eq!(text, format!("{{\"type\":\"revoked\",\"data\":{REVOKED}}}"));
    }
    for socket in [&mut own, &mut all, &mut tunnel, &mut talk] {
        assert_eq!(socket.next_close(), 1008);
    }
    for target in [
        "/topics/prices/sse",
        "/topics/sse?topic=prices",
        "/back/feed",
    ] {
        assert_eq!(
            ask(port, ("GET", target), &shop, "").status,
            401,
            "{target}"
        );
    }
    assert_eq!(WebSocket::ask(port, "/talk", &shop).0.status, 401);
    publish("2");
    loop {
        let block = kept.block().expect("it goes on");
        if block.contains("data: 2") {
            break;
        }
    }
    running.stop();
}

#[test]
fn streams_end_when_the_issuer_of_their_token_says_that_it_is_not_active() {
    let (folder, port, inner) = (TempDir::new(), free_port(), free_port());
    let is_active = Arc::new(AtomicBool::new(true));
    let says = Arc::clone(&is_active);
    let issuer = StrictBackend::answering(move |_| {
        let body = match says.load(Ordering::Relaxed) {
            true => "{\"active\":true,\"sub\":\"ann\"}",
            false => "{\"active\":false}",
        };
        let length = body.len();
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n\
             {body}"
        )
        .into_bytes()
    });
    let file = folder.write(
        "topics.yaml",
        &format!(
            "engine:\n  auth:\n    opaque:\n      introspect: {{ url: 'http://127.0.0.1:{}/ask', \
             client_id: a, client_secret: b, check: 1s }}\n\
             ---\ntopic: prices\npayload: event\ndurability: memory\n\
             publish: {{ http: 'POST 127.0.0.1:{inner}/prices' }}\n\
             subscribe: {{ listen: '127.0.0.1:{port}', auth: opaque }}\n",
            issuer.port()
        ),
    );
    let running = Engine::run(&[&file], &[]);
    let token = "Authorization: Bearer opaque-token\r\n";
    let mut streams: Vec<Stream> = (0..10)
        .map(|_| Stream::open(port, "/topics/prices/sse", token))
        .collect();
    let begun = issuer.requests().len();
    wait_until("it is asked again", || issuer.requests().len() >= begun + 2);
    is_active.store(false, Ordering::Relaxed);
    for stream in &mut streams {
        ends(stream, "revoked", REVOKED);
    }
    assert_eq!(
        ask(port, ("GET", "/topics/prices/sse"), token, "").status,
        401
    );
    // Once for the token, not for each of its streams.
    assert!(issuer.requests().len() < begun + 20);
    running.stop();
}

/// The numbers of the events of a stream, up to its end or to this one.
fn numbers(stream: &mut Stream, until: Option<u64>) -> (Vec<u64>, Option<String>) {
    let mut numbers = Vec::new();
    while let Some(block) = stream.block() {
        let field = |name: &str| {
            let mut lines = block.lines();
            lines.find_map(|it| it.strip_prefix(name).map(str::to_owned))
        };
        match field("event: ").as_deref() {
            Some("event") => numbers.push(field("data: ").unwrap().parse().unwrap()),
            Some(last @ ("expired" | "revoked")) => {
                assert_eq!(stream.block(), None);
                return (numbers, Some(last.to_owned()));
            }
            _ => {}
        }
        if until.is_some() && numbers.last() == until.as_ref() {
            break;
        }
    }
    (numbers, None)
}

#[test]
fn a_thousand_streams_expire_and_a_hundred_are_revoked_and_the_others_miss_nothing() {
    let (folder, port, inner) = (TempDir::new(), free_port(), free_port());
    write_keys(&folder, &["shop"]);
    let file = folder.write(
        "topics.yaml",
        &format!(
            "{}---\ntopic: prices\npayload: event\ndurability: memory\n\
             publish: {{ http: 'POST 127.0.0.1:{inner}/prices' }}\n\
             subscribe: {{ listen: '127.0.0.1:{port}', auth: staff }}\n",
            engine("deny: {}")
        ),
    );
    let data = folder.path().join("data");
    let running = Engine::run(&[&file], &["--data", data.to_str().unwrap()]);
    let open =
        |jti: &str, expires: u64| Stream::open(port, "/topics/prices/sse", &bearer(jti, expires));
    let is_over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&is_over);
    let publisher = thread::spawn(move || {
        let mut number = 0;
        while !stop.load(Ordering::Relaxed) {
            number += 1;
            let data = number.to_string();
            let reply = post(inner, "/prices", "application/json", &data);
            assert_eq!(reply.status, 200);
            thread::sleep(Duration::from_millis(100));
        }
        number
    });
    let (start, late) = (now(), now() + 3000);
    let mut kept: Vec<Stream> = (0..50).map(|it| open(&format!("k{it}"), late)).collect();
    let mut revoked: Vec<Stream> = (0..100).map(|it| open(&format!("r{it}"), late)).collect();
    // They end at different times, the first when all have come.
    let mut expiring: Vec<Stream> = (0..1000)
        .map(|it| open(&format!("e{it}"), start + 40 + it % 4))
        .collect();
    for number in 0..100 {
        let entry = format!("{{\"jti\":\"r{number}\",\"exp\":{late}}}");
        assert_eq!(deny(&running, &entry), 201);
    }
    for (streams, reason) in [(&mut revoked, "revoked"), (&mut expiring, "expired")] {
        for stream in streams {
            let (numbers, end) = numbers(stream, None);
            assert_eq!(end.as_deref(), Some(reason));
            assert!(
                numbers.windows(2).all(|it| it[0] + 1 == it[1]),
                "{numbers:?}"
            );
        }
    }
    is_over.store(true, Ordering::Relaxed);
    let last = publisher.join().unwrap();
    for stream in &mut kept {
        let (numbers, end) = numbers(stream, Some(last));
        assert_eq!((end, numbers.last()), (None, Some(&last)));
        assert!(
            numbers.windows(2).all(|it| it[0] + 1 == it[1]),
            "{numbers:?}"
        );
    }
    for (jti, status) in [("r0", 401), ("e0", 401), ("r99", 401)] {
        let expires = if jti == "e0" { start + 40 } else { late };
        let fields = bearer(jti, expires);
        assert_eq!(
            ask(port, ("GET", "/topics/prices/sse"), &fields, "").status,
            status
        );
    }
    running.stop();
}
