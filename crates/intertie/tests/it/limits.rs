//! What many clients together, or a machine that gives little, can do to an engine: memory of
//! bodies, connections of one address, file descriptors, address space, and memory that is given
//! back.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::http2::frame;
use testkit::{Action, Process, RawClient, ScriptedBackend, TempDir, free_port, wait_until};

use crate::support::{Engine, get, post, repository};

const MEGABYTE: usize = 1_000_000;

/// An engine that takes JSON and gives it back in an object, says hello, makes a large reply and
/// calls a back end.
fn flows(port: u16, limits: &str, back_end: u16) -> String {
    let flow = |name: &str, method: &str, steps: &str| {
        format!(
            "---\nflow: {name}\nfrom:\n  http: {{ method: {method}, path: /{name}, \
             protocols: [h2, http/1.1] }}\nsteps: [ {steps} ]\n"
        )
    };
    [
        format!("engine: {{ listen: 127.0.0.1:{port}, limits: {{ {limits} }} }}\n"),
        flow("hello", "GET", "{ reply: { body: hi } }"),
        flow("echo", "POST", "{ map: \"{ length: length }\" }"),
        flow("big", "GET", "{ reply: { body: '${ \"x\" * 900000 }' } }"),
        flow(
            "call",
            "GET",
            &format!(
                "{{ http: http://127.0.0.1:{back_end}/ }}, {{ map: \"{{ length: length }}\" }}"
            ),
        ),
    ]
    .concat()
}

/// An engine under limits of the shell, such as `-n 256`.
fn run_under(limits: &str, file: &std::path::Path) -> Engine {
    let admin = free_port();
    let mut command = Command::new("sh");
    command.current_dir(repository());
    let set: Vec<String> = limits.split(',').map(|it| format!("ulimit {it}")).collect();
    command.args(["-c", &format!("{} && exec \"$0\" \"$@\"", set.join(" && "))]);
    command.arg(env!("CARGO_BIN_EXE_intertie"));
    command.arg("run").arg(file);
    command.args(["--workers", "2", "--admin", &format!("127.0.0.1:{admin}")]);
    let mut process = Process::start(&mut command);
    process.wait_for_port(admin);
    let engine = Engine {
        process,
        admin,
        data: None,
    };
    wait_until("it is ready", || engine.get("/ready").status == 200);
    engine
}

fn text(size: usize) -> String {
    format!("\"{}\"", "y".repeat(size - 2))
}

/// A request with a body of a megabyte of which the last byte is missing.
fn unfinished(port: u16) -> RawClient {
    let mut client = RawClient::connect(port);
    let body = text(MEGABYTE);
    client.send(format!(
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
         Content-Length: {MEGABYTE}\r\n\r\n{}",
        &body[..MEGABYTE - 1]
    ));
    client
}

/// The beginning of an upload.
fn unfinished_to(port: u16, path: &str) -> RawClient {
    let mut client = RawClient::connect(port);
    client.send(format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n"
    ));
    client
}

#[test]
fn bodies_together_stay_within_their_budget() {
    const USED: &str = "intertie_body_memory_used_bytes";
    let (folder, port) = (TempDir::new(), free_port());
    let mut head = format!("HTTP/1.1 200 OK\r\nContent-Length: {MEGABYTE}\r\n\r\n").into_bytes();
    head.extend_from_slice(text(MEGABYTE).as_bytes());
    let scripts = (0..2).map(|_| vec![Action::ReadRequest, Action::Send(head.clone())]);
    let back_end = ScriptedBackend::start(scripts.collect());
    let file = folder.write(
        "flow.yaml",
        &flows(port, "body_memory: 4MiB", back_end.port()),
    );
    let engine = Engine::run(&[&file], &[]);
    let limit = engine.metric("intertie_body_memory_limit_bytes");
    assert_eq!(limit, 4.0 * 1024.0 * 1024.0);
    let waiting: Vec<RawClient> = (0..4).map(|_| unfinished(port)).collect();
    wait_until("they are held", || engine.metric(USED) >= 3.9e6);
    assert!(engine.metric(USED) <= limit);

    let reply = post(port, "/echo", "application/json", &text(MEGABYTE));
    assert_eq!(
        (reply.status, reply.header("Retry-After")),
        (503, Some("1"))
    );
    assert_eq!(
        reply.header("Content-Type"),
        Some("application/problem+json")
    );
    let reply = get(port, "/call");
    assert_eq!(reply.status, 503, "the reply of a call: {}", reply.text());
    assert_eq!(get(port, "/big").status, 503, "a large reply");
    let mut chunked = RawClient::connect(port);
    chunked.send(format!(
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
         Transfer-Encoding: chunked\r\n\r\nC3500\r\n{}",
        text(800_000)
    ));
    assert_eq!(chunked.response().status, 503, "a body of unknown length");
    assert_eq!(
        post(port, "/echo", "application/json", "\"small\"").status,
        200
    );
    assert_eq!(get(port, "/hello").status, 200);
    assert!(engine.metric("intertie_bodies_refused_total") >= 4.0);

    drop(waiting);
    wait_until("all is given back", || engine.metric(USED) == 0.0);
    assert_eq!(
        post(port, "/echo", "application/json", &text(MEGABYTE)).status,
        200
    );
    assert_eq!(get(port, "/call").status, 200);
    assert_eq!(get(port, "/big").status, 200);
    wait_until("all is given back", || engine.metric(USED) == 0.0);
    let log = engine.stop();
    assert!(log.contains("limits.body_memory is used up"), "{log}");
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A header block: method by its index, `:scheme: http`, path, `:authority: a`, content type.
fn block(method: u8, path: &str) -> Vec<u8> {
    let mut block = vec![method, 0x86, 0x04, path.len() as u8];
    block.extend_from_slice(path.as_bytes());
    block.extend_from_slice(b"\x41\x01a\x0f\x10\x10application/json");
    block
}

#[test]
fn bodies_over_http2_are_counted_in_both_directions() {
    const USED: &str = "intertie_body_memory_used_bytes";
    let (folder, port) = (TempDir::new(), free_port());
    let file = folder.write("flow.yaml", &flows(port, "body_memory: 4MiB", 1));
    let engine = Engine::run(&[&file], &[]);
    // A window of nothing: replies wait with the engine.
    let mut reading = RawClient::connect(port);
    let no_window = frame(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    reading.send([PREFACE, &no_window].concat());
    for at in 0..10 {
        reading.send(frame(1, 5, at * 2 + 1, &block(0x82, "/big")));
    }
    wait_until("replies are held", || engine.metric(USED) >= 3.6e6);
    wait_until("the others are refused", || {
        engine.metric("intertie_bodies_refused_total") == 6.0
    });
    let mut writing = RawClient::connect(port);
    writing.send([PREFACE, &frame(4, 0, 0, &[])].concat());
    writing.send(frame(1, 4, 1, &block(0x83, "/echo")));
    let body = text(MEGABYTE);
    // Within the windows that the engine gives at first.
    writing.send(frame(0, 0, 1, &body.as_bytes()[..16_000]));
    drop(reading);
    wait_until("all is given back", || engine.metric(USED) == 0.0);
    for piece in body.as_bytes()[16_000..64_000].chunks(16_000) {
        writing.send(frame(0, 0, 1, piece));
    }
    assert_eq!(engine.metric(USED), 0.0, "small bodies are not counted");
    drop(writing);
    engine.stop();
}

#[test]
fn an_address_has_no_more_connections_than_it_may() {
    let (folder, port) = (TempDir::new(), free_port());
    let limits = "connections_per_address: 3";
    let file = folder.write("flow.yaml", &flows(port, limits, 1));
    let engine = Engine::run(&[&file], &[]);
    let hello = "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut clients: Vec<RawClient> = (0..3).map(|_| RawClient::connect(port)).collect();
    for client in &mut clients {
        client.send(hello);
        assert_eq!(client.response().status, 200);
    }
    for _ in 0..8 {
        let refused = get(port, "/hello");
        assert_eq!(
            (refused.status, refused.header("Retry-After")),
            (503, Some("1"))
        );
    }
    let name = "intertie_connections_refused_by_address_total";
    assert_eq!(engine.metric(name), 8.0);
    assert!(
        hello_from(Ipv4Addr::new(127, 0, 0, 2), port).starts_with("HTTP/1.1 200"),
        "another address"
    );
    clients.pop();
    wait_until("one may connect again", || {
        get(port, "/hello").status == 200
    });
    for client in &mut clients {
        client.send(hello);
        assert_eq!(client.response().status, 200, "the others were left alone");
    }
    engine.stop();
}

/// The reply to a client whose address is this one.
fn hello_from(address: Ipv4Addr, port: u16) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .unwrap();
    let socket = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((address, 0))).unwrap();
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        socket.connect(to).await.unwrap().into_std().unwrap()
    });
    let mut socket: TcpStream = socket;
    socket.set_nonblocking(false).unwrap();
    let request = b"GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    socket.write_all(request).unwrap();
    let mut reply = String::new();
    socket.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn with_few_descriptors_health_is_answered_and_the_log_stays_short() {
    let (folder, port) = (TempDir::new(), free_port());
    let back_end = ScriptedBackend::start(vec![vec![
        Action::ReadRequest,
        Action::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n\"a\"".to_vec()),
    ]]);
    let file = folder.write(
        "flow.yaml",
        &flows(port, "connections: 20000", back_end.port()),
    );
    let engine = run_under("-Sn 100,-Hn 256", &file);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", engine.process.id())).unwrap();
    let files = limits
        .lines()
        .find(|it| it.starts_with("Max open files"))
        .unwrap();
    let files: Vec<&str> = files.split_ascii_whitespace().skip(3).take(2).collect();
    assert_eq!(files, ["256", "256"], "the soft limit is raised");
    engine.process.wait_for("limits.connections: 20000 only");
    let mut early = RawClient::connect(port);
    early.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(early.response().status, 200);
    let idle: Vec<TcpStream> = (0..600)
        .map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap())
        .collect();
    let refused = "intertie_connections_refused_by_descriptors_total";
    wait_until("many are refused", || engine.metric(refused) >= 400.0);
    for _ in 0..20 {
        assert_eq!(engine.get("/health").status, 200);
        assert_eq!(engine.get("/ready").status, 200);
    }
    assert_eq!(
        get(port, "/hello").status,
        503,
        "a newcomer is refused at once"
    );
    early.send("GET /call HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(
        early.response().status,
        200,
        "descriptors are left for back ends"
    );
    drop(idle);
    wait_until("newcomers are served", || get(port, "/hello").status == 200);
    let log = engine.stop();
    let lines = log.lines().filter(|line| line.contains("WARN")).count();
    assert!(lines <= 12, "{lines} warnings: {log}");
}

#[test]
fn it_starts_and_serves_within_half_a_gigabyte_of_address_space() {
    let (folder, port) = (TempDir::new(), free_port());
    let file = folder.write("flow.yaml", &flows(port, "body: 1MiB", 1));
    let engine = run_under("-v 500000", &file);
    assert_eq!(get(port, "/hello").status, 200);
    // Threads cannot be made at all times: work beside the workers waits then, and none is lost.
    for round in 0..100 {
        let reply = post(port, "/echo", "application/json", &text(MEGABYTE));
        assert_eq!(reply.status, 200, "round {round}");
    }
    for _ in 0..5 {
        assert_eq!(get(port, "/big").status, 200);
    }
    engine.stop();
}

#[test]
fn memory_is_given_back_when_load_is_over() {
    let (folder, port) = (TempDir::new(), free_port());
    // Silent for as long as the test needs.
    let limits = "body_memory: 1GiB }, timeouts: { body: 5m";
    let file = folder.write("flow.yaml", &flows(port, limits, 1));
    let engine = Engine::run(&[&file], &[]);
    assert_eq!(get(port, "/hello").status, 200);
    let idle = engine.process.resident_kib();
    let objects: Vec<String> = (0..30_000)
        .map(|at| format!("{{\"a\":\"t{at}\",\"b\":[{at},{{}}]}}"))
        .collect();
    let objects = format!("[{}]", objects.join(","));
    let mut peak = 0;
    for _ in 0..2 {
        // Large bodies, small values, and heads that are not finished, all at the same time.
        let bodies: Vec<RawClient> = (0..200).map(|_| unfinished(port)).collect();
        let heads: Vec<RawClient> = (0..1500)
            .map(|_| {
                let mut client = RawClient::connect(port);
                client.send("GET /hello HTTP/1.1\r\nHost");
                client
            })
            .collect();
        for _ in 0..2 {
            let reply = post(port, "/echo", "application/json", &objects);
            assert_eq!(reply.status, 200);
        }
        let used = "intertie_body_memory_used_bytes";
        wait_until("they are held", || engine.metric(used) > 190e6);
        peak = peak.max(engine.process.resident_kib());
        for mut client in bodies {
            client.send("\"");
            assert_eq!(client.response().status, 200);
        }
        drop(heads);
    }
    assert!(
        peak > idle + 150 * 1024,
        "from {idle} KiB only to {peak} KiB"
    );
    let start = Instant::now();
    loop {
        let now = engine.process.resident_kib();
        if now < idle + 16 * 1024 {
            break;
        }
        let seconds = start.elapsed().as_secs();
        assert!(
            seconds < 60,
            "{idle} KiB at first, at most {peak}, now {now}"
        );
        std::thread::sleep(Duration::from_millis(250));
    }
    engine.stop();
}

/// Streams of HTTP/2 that wait for their turn hold what they have received. One connection is
/// bounded by its windows, and all together by the budget: above it streams are reset.
#[test]
fn bytes_buffered_by_streams_stay_within_the_memory_budget() {
    const USED: &str = "intertie_body_memory_used_bytes";
    const SENT: usize = 60_000;
    let (folder, port) = (TempDir::new(), free_port());
    let back_end = ScriptedBackend::start(Vec::new());
    let text = format!(
        "engine: {{ listen: 127.0.0.1:{port}, limits: {{ body: 1MiB, body_memory: 1MiB }}, \
         timeouts: {{ body: 5m }} }}\n---\n\
         flow: slow\nfrom: {{ http: {{ method: POST, path: /slow, protocols: [h2, http/1.1] }} }}\n\
         limits: {{ throttle: {{ by: null, requests: 1, per: 18s, wait: 10m }} }}\n\
         steps: [ forward: 'http://127.0.0.1:{}/' ]\n",
        back_end.port()
    );
    let file = folder.write("flow.yaml", &text);
    let engine = Engine::run(&[&file], &[]);
    let block = [&[0x83, 0x86, 0x44, 5][..], b"/slow", &[0x41, 1], b"a"].concat();
    // The one that the limit lets through waits for its back end.
    let first = unfinished_to(port, "/slow");
    let upload = || {
        let mut client = RawClient::connect(port);
        let preface = &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..];
        client.send([preface, &frame(4, 0, 0, b"")].concat());
        for stream in [1, 3] {
            let data = vec![b'a'; SENT / 4];
            client.send(frame(1, 4, stream, &block));
            for _ in 0..4 {
                client.send(frame(0, 0, stream, &data));
            }
        }
        client
    };
    let clients: Vec<RawClient> = (0..16).map(|_| upload()).collect();
    let refused = || engine.metric("intertie_bodies_refused_total");
    wait_until("streams are refused", || refused() >= 4.0);
    assert!(engine.metric(USED) <= 1024.0 * 1024.0);
    wait_until("the budget is used", || engine.metric(USED) >= 900_000.0);
    // An engine that stops waits for requests that are under way.
    drop((first, clients));
    wait_until("all is given back", || engine.metric(USED) == 0.0);
}

/// The machine has less memory than a flow takes: no time makes room for the body.
#[test]
fn a_body_above_the_budget_is_too_large_for_ever_and_the_log_says_so_at_start() {
    let folder = TempDir::new();
    let port = free_port();
    let file = folder.write("flow.yaml", &flows(port, "body: 1GiB", 1));
    let engine = run_under("-v 500000", &file);
    let mut client = RawClient::connect(port);
    client.send(
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n\
         Content-Length: 1073741824\r\n\r\n",
    );
    let reply = client.response();
    assert_eq!(reply.status, 413, "{}", reply.text());
    assert_eq!(reply.header("retry-after"), None);
    let log = engine.stop();
    assert!(log.contains("are refused with 413"), "{log}");
}
