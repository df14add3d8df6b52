//! Start, reload, metrics, logs, stop.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use testkit::{Action, RawClient, ScriptedBackend, TempDir, free_port, wait_until};

use crate::support::{Engine, command, get, library, output, post};

fn flow(port: u16, text: &str) -> String {
    format!(
        "flow: hello\nfrom: {{ http: GET 127.0.0.1:{port}/hello }}\nsteps:\n  - reply: {{ body: {text} }}\n"
    )
}

#[test]
fn changed_files_are_taken_over_without_a_failed_request() {
    let folder = TempDir::new();
    let port = free_port();
    folder.write("flow.yaml", &flow(port, "text0"));
    let engine = Engine::run(&[folder.path()], &["--watch"]);
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let load = std::thread::spawn(move || {
        let mut client = RawClient::connect(port);
        let mut count = 0;
        while !stopped.load(Ordering::Relaxed) {
            client.send("GET /hello HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.response().status, 200);
            assert_eq!(get(port, "/hello").status, 200);
            count += 2;
        }
        count
    });
    for round in 1..=5 {
        folder.write("flow.yaml", &flow(port, &format!("text{round}")));
        wait_until("the new text is served", || {
            get(port, "/hello").text() == format!("text{round}")
        });
    }
    folder.write("flow.yaml", "flow: hello\nform: x\n");
    engine.process.wait_for("not reloaded");
    assert_eq!(
        get(port, "/hello").text(),
        "text5",
        "a broken file changes nothing"
    );
    let output = engine.process.output();
    assert!(output.contains("did you mean `from`?"), "{output}");
    let other = free_port();
    folder.write("flow.yaml", &flow(other, "elsewhere"));
    wait_until("the new port is open", || {
        TcpStream::connect(("127.0.0.1", other)).is_ok()
    });
    stop.store(true, Ordering::Relaxed);
    // The old port is closed now, so the load may end with its last request refused.
    let _ = load.join();
    wait_until("the old port is closed", || {
        TcpStream::connect(("127.0.0.1", port)).is_err()
    });
    assert_eq!(get(other, "/hello").text(), "elsewhere");
    engine.stop();
}

/// What a flow file names is watched wherever it lies: also when a file is run and not its folder.
#[test]
fn changed_files_that_flows_name_are_taken_over() {
    let schema =
        |kind: &str| format!(r#"{{"type":"object","properties":{{"a":{{"type":"{kind}"}}}}}}"#);
    let (folder, port) = (TempDir::new(), free_port());
    folder.write("schemas/order.json", &schema("number"));
    let file = folder.write(
        "flow.yaml",
        &format!(
            "flow: orders\nfrom: {{ http: POST 127.0.0.1:{port}/orders }}\nsteps:\n  \
             - validate: {{ schema: schemas/order.json }}\n  - reply: {{ status: 204 }}\n"
        ),
    );
    for path in [file.as_path(), folder.path()] {
        folder.write("schemas/order.json", &schema("number"));
        let engine = Engine::run(&[path], &["--watch"]);
        let status = || post(port, "/orders", "application/json", r#"{"a":"b"}"#).status;
        assert_eq!(status(), 400);
        folder.write("schemas/order.json", &schema("string"));
        wait_until("the new schema holds", || status() == 204);
        engine.stop();
    }
}

#[test]
fn sighup_reloads_without_a_watcher() {
    let folder = TempDir::new();
    let port = free_port();
    folder.write("flow.yaml", &flow(port, "old"));
    let engine = Engine::run(&[folder.path()], &[]);
    folder.write("flow.yaml", "flow: hello\nform: x\n");
    engine.process.signal("HUP");
    engine.process.wait_for("not reloaded");
    assert_eq!(get(port, "/hello").text(), "old");
    folder.write("flow.yaml", &flow(port, "new"));
    engine.process.signal("HUP");
    wait_until("the new text is served", || {
        get(port, "/hello").text() == "new"
    });
    let reloads = || engine.process.output().matches("\"reloaded\"").count();
    wait_until("it is logged", || reloads() == 1);
    engine.process.signal("HUP");
    wait_until("files that have not changed are loaded too", || {
        reloads() == 2
    });
    let output = engine.stop();
    assert!(output.contains("asked to reload by SIGHUP"), "{output}");
}

/// What systemd's `Type=notify`, `ExecReload=` and `WatchdogSec=` need.
#[test]
fn the_service_manager_is_told_of_start_reload_and_stop() {
    let folder = TempDir::new();
    let port = free_port();
    folder.write("flow.yaml", &flow(port, "one"));
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let variables = [
        ("NOTIFY_SOCKET", path.to_str().unwrap()),
        ("WATCHDOG_USEC", "50000"),
    ];
    let engine = Engine::run_in(&[&folder.path().join("flow.yaml")], &[], &variables);
    // The watchdog is told all the time: of other messages the next one counts.
    let next = |wanted: &str| {
        let mut bytes = [0; 200];
        loop {
            let count = socket.recv(&mut bytes).unwrap();
            let message = std::str::from_utf8(&bytes[..count]).unwrap();
            if message.starts_with(wanted) {
                return message.to_owned();
            }
            assert_eq!(message, "WATCHDOG=1", "{wanted} is awaited");
        }
    };
    assert_eq!(next("READY=1"), "READY=1\nSTATUS=Serving, flows: 1");
    assert_eq!(next("WATCHDOG=1"), "WATCHDOG=1");
    engine.process.signal("HUP");
    next("RELOADING=1");
    assert_eq!(next("READY=1"), "READY=1\nSTATUS=Serving");
    folder.write("flow.yaml", "flow: hello\nform: x\n");
    engine.process.signal("HUP");
    next("RELOADING=1");
    assert!(next("READY=1").contains("could not be reloaded"));
    engine.process.signal("TERM");
    next("STOPPING=1");
}

#[test]
fn a_service_manager_that_is_not_there_stops_the_start() {
    let folder = TempDir::new();
    let file = folder.write("flow.yaml", &flow(free_port(), "one"));
    let mut command = command();
    let output = command
        .arg("run")
        .arg(&file)
        .env("NOTIFY_SOCKET", folder.path().join("none"));
    let output = output.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("NOTIFY_SOCKET"), "{text}");
}

/// A reply, or why there is none.
fn ask(port: u16) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.write_all(b"GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

#[test]
fn one_port_moves_between_all_interfaces_and_one() {
    let folder = TempDir::new();
    let port = free_port();
    let flow = |listen: &str, text: &str| {
        format!(
            "flow: hello\nfrom: {{ http: GET {listen}:{port}/hello }}\n\
             steps: [ reply: {{ body: {text} }} ]\n"
        )
    };
    folder.write("flow.yaml", &flow("", "text0"));
    let engine = Engine::run(&[folder.path()], &["--watch"]);
    for (round, listen) in ["127.0.0.1", "", "127.0.0.1"].iter().enumerate() {
        let text = format!("text{}", round + 1);
        folder.write("flow.yaml", &flow(listen, &text));
        // A connection that has not sent anything may end with the old address.
        wait_until("the new text is served", || {
            ask(port).is_ok_and(|reply| reply.ends_with(&text))
        });
    }
    let output = engine.stop();
    assert!(!output.contains("not reloaded"), "{output}");
}

#[test]
fn a_port_that_is_taken_leaves_the_old_flows_running() {
    let folder = TempDir::new();
    let (port, backend) = (
        free_port(),
        ScriptedBackend::start(vec![vec![Action::Stall]]),
    );
    folder.write("flow.yaml", &flow(port, "old"));
    let engine = Engine::run(&[folder.path()], &["--watch"]);
    folder.write("flow.yaml", &flow(backend.port(), "new"));
    engine.process.wait_for("not reloaded");
    assert_eq!(get(port, "/hello").text(), "old");
    engine.stop();
}

#[test]
fn sigterm_lets_requests_in_flight_end() {
    let folder = TempDir::new();
    let port = free_port();
    let backend = ScriptedBackend::start(vec![vec![
        Action::ReadUntil(b"\r\n\r\n"),
        Action::Pause(Duration::from_millis(400)),
        Action::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow".to_vec()),
    ]]);
    folder.write(
        "flow.yaml",
        &format!(
            "flow: slow\nfrom: {{ http: any 127.0.0.1:{port}/* }}\nsteps:\n  \
             - forward: http://127.0.0.1:{}/\n",
            backend.port()
        ),
    );
    let engine = Engine::run(&[folder.path()], &[]);
    let mut client = RawClient::connect(port);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it is under way", || backend.accepted() == 1);
    engine.process.signal("TERM");
    wait_until("the port is closed", || {
        TcpStream::connect(("127.0.0.1", port)).is_err()
    });
    assert_eq!(client.response().text(), "slow");
    let output = engine.ended();
    assert!(
        output.contains("\"message\":\"stopped\""),
        "logs are JSON when not on a terminal: {output}"
    );
}

#[test]
fn metrics_count_by_flow_and_the_access_log_has_a_line_each() {
    let folder = TempDir::new();
    let port = free_port();
    let engine_document = "engine:\n  log: { access: true, format: text }\n---\n";
    folder.write(
        "flow.yaml",
        &format!("{engine_document}{}", flow(port, "hi")),
    );
    let engine = Engine::run(&[folder.path()], &[]);
    assert_eq!(engine.get("/health").text(), "ok\n");
    for _ in 0..3 {
        assert_eq!(get(port, "/hello").status, 200);
    }
    assert_eq!(get(port, "/nothing?x=1").status, 404);
    assert_eq!(
        post(port, "/hello", "text/plain", "").header("allow"),
        Some("GET, HEAD")
    );
    let expected = [
        "intertie_requests_total{flow=\"hello\",status=\"2xx\"} 3\n",
        "intertie_requests_in_flight{flow=\"hello\"} 0\n",
        "intertie_request_duration_seconds_bucket{le=\"+Inf\",flow=\"hello\"} 3\n",
        "intertie_requests_rejected_total{status=\"4xx\"} 2\n",
        "intertie_panics_total 0\n",
    ];
    wait_until("everything is counted", || {
        let page = engine.get("/metrics").text();
        assert!(page.ends_with("# EOF\n"), "{page}");
        expected.iter().all(|line| page.contains(line))
    });
    let output = engine.stop();
    assert_eq!(
        output.matches(" hello GET /hello 200 ").count(),
        3,
        "{output}"
    );
    assert_eq!(
        output.matches(" - GET /nothing?x=1 404 ").count(),
        1,
        "{output}"
    );
}

#[test]
fn start_is_refused_with_a_clear_word_when_a_port_is_taken() {
    let folder = TempDir::new();
    let taken = ScriptedBackend::start(vec![vec![Action::Stall]]);
    let path = folder.write("flow.yaml", &flow(taken.port(), "hi"));
    let result = output(&["run", "--admin", "off", path.to_str().unwrap()]);
    assert_eq!(result.status.code(), Some(1));
    let text = String::from_utf8_lossy(&result.stderr).into_owned();
    assert!(
        text.contains(&format!("cannot listen on 127.0.0.1:{}", taken.port())),
        "{text}"
    );
}

#[test]
fn health_asks_a_running_engine() {
    let folder = TempDir::new();
    folder.write("flow.yaml", &flow(free_port(), "one"));
    let engine = Engine::run(&[folder.path()], &[]);
    let admin = format!("127.0.0.1:{}", engine.admin);
    let well = output(&["health", "--admin", &admin]);
    assert_eq!(
        (well.status.code(), &well.stdout[..]),
        (Some(0), &b"ok\n"[..])
    );
    let ready = output(&["health", "--ready", "--admin", &admin]);
    assert_eq!(ready.stdout, b"ready\n");
    engine.stop();
    let gone = output(&["health", "--admin", &admin]);
    assert_eq!(gone.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&gone.stderr).contains("no answer from"));
}

/// A worker that reads `GET /stuck` does nothing more until there is a file.
const HELD_UP: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

ssize_t recv(int fd, void *bytes, size_t size, int flags) {
    static ssize_t (*own)(int, void *, size_t, int);
    if (!own) own = dlsym(RTLD_NEXT, "recv");
    ssize_t count = own(fd, bytes, size, flags);
    if (count > 10 && memcmp(bytes, "GET /stuck", 10) == 0)
        while (access(getenv("GOES_ON"), F_OK) != 0) usleep(10000);
    return count;
}
"#;

#[test]
fn health_names_a_worker_that_does_not_move() {
    let (folder, tools) = (TempDir::new(), TempDir::new());
    let port = free_port();
    folder.write("flow.yaml", &flow(port, "hi"));
    let held_up = library(&tools, HELD_UP).display().to_string();
    let goes_on = tools.path().join("goes-on").display().to_string();
    let variables = [("LD_PRELOAD", &*held_up), ("GOES_ON", &*goes_on)];
    let engine = Engine::run_in(&[folder.path()], &[], &variables);
    let mut client = RawClient::connect(port);
    client.send("GET /stuck HTTP/1.1\r\nHost: a\r\n\r\n");
    // It takes ten seconds: expressions may hold a worker up for a while.
    wait_until("it is seen", || engine.get("/health").status != 200);
    let unwell = engine.get("/health");
    assert_eq!(unwell.status, 503);
    let text = unwell.text();
    assert!(text.contains(" has not moved for 1"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert_eq!(engine.get("/ready").status, 200);
    tools.write("goes-on", "");
    assert_eq!(client.response().status, 404);
    wait_until("it is well again", || engine.get("/health").status == 200);
    engine.stop();
}

/// The names and labels of all that `/metrics` has.
fn series(engine: &Engine) -> BTreeSet<String> {
    let page = engine.get("/metrics").text();
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| line.rsplit_once(' ').unwrap().0.to_owned())
        .collect()
}

/// The states of a flow's steps are made while its file is read, long before the whole load is
/// known to be sound.
#[test]
fn a_refused_reload_leaves_nothing_in_the_metrics() {
    let folder = TempDir::new();
    let (port, taken) = (
        free_port(),
        ScriptedBackend::start(vec![vec![Action::Stall]]),
    );
    let open = "engine:\n  admin: { operate: none }\n---\n";
    folder.write("flow.yaml", &format!("{open}{}", flow(port, "hi")));
    let engine = Engine::run(&[folder.path()], &[]);
    let reload = || post(engine.admin, "/reload", "text/plain", "").status;
    assert_eq!(reload(), 200);
    let before = series(&engine);
    let new = |port: u16| {
        format!(
            "flow: new\nfrom: {{ http: POST 127.0.0.1:{port}/new }}\nsteps:\n\
             \x20 - cache: {{ key: '${{ .id }}', ttl: 1h, steps: [ map: 1 ] }}\n\
             \x20 - aggregate: {{ key: '1', count: 2, time: 1s, steps: [ map: 1 ] }}\n\
             \x20 - http: http://127.0.0.1:{port}/\n"
        )
    };
    let broken = format!("{}---\nflow: broken\nform: x\n", new(port));
    for refused in [new(taken.port()), broken] {
        folder.write("new.yaml", &refused);
        assert_eq!(reload(), 409, "{refused}");
        let left: Vec<_> = series(&engine).difference(&before).cloned().collect();
        assert_eq!(left, Vec::<String>::new(), "{refused}");
    }
    folder.write("new.yaml", &new(port));
    assert_eq!(reload(), 200);
    let added = series(&engine);
    for name in ["intertie_cache_entries{", "intertie_aggregate_groups{"] {
        assert!(added.iter().any(|it| it.starts_with(name)), "{added:?}");
    }
    engine.stop();
}

#[test]
fn manual_pages_are_written_for_every_command() {
    let folder = TempDir::new();
    let written = output(&["man", folder.path().to_str().unwrap()]);
    assert!(written.status.success(), "{written:?}");
    let page = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(page("intertie.1").contains(".TH intertie"));
    assert!(page("intertie-run.1").contains("SIGHUP"));
}

/// Puts a pipe, and a link to a device that never ends, where flow files are.
fn put_special_files(folder: &TempDir) {
    let made = std::process::Command::new("mkfifo")
        .arg(folder.path().join("pipe.yaml"))
        .status()
        .unwrap();
    assert!(made.success());
    std::os::unix::fs::symlink("/dev/zero", folder.path().join("zero.yaml")).unwrap();
}

#[test]
fn pipes_and_devices_among_flow_files_are_refused_and_hold_nothing_up() {
    let folder = TempDir::new();
    let port = free_port();
    let kept = folder.write("flow.yaml", &flow(port, "old"));
    let engine = Engine::run(&[folder.path()], &["--watch"]);
    put_special_files(&folder);
    engine.process.wait_for("not reloaded");
    engine
        .process
        .wait_for("pipe.yaml: cannot be read: it is not a regular file");
    assert_eq!(get(port, "/hello").text(), "old");
    // Reloads go on as soon as it is away.
    for name in ["pipe.yaml", "zero.yaml"] {
        std::fs::remove_file(folder.path().join(name)).unwrap();
    }
    folder.write("flow.yaml", &flow(port, "new"));
    wait_until("the new text is served", || {
        get(port, "/hello").text() == "new"
    });
    // It stops in good order also while they are there.
    put_special_files(&folder);
    wait_until("they are told again", || {
        engine
            .process
            .output()
            .matches("it is not a regular file")
            .count()
            > 1
    });
    engine.stop();
    for name in ["pipe.yaml", "zero.yaml", ""] {
        let path = folder.path().join(name);
        let mut check = testkit::Process::start(command().arg("check").arg(&path));
        assert_eq!(check.wait().code(), Some(1), "{name}");
        let told = check.output();
        assert!(told.contains("it is not a regular file"), "{told}");
    }
    assert_eq!(
        output(&["check", kept.to_str().unwrap()]).status.code(),
        Some(0)
    );
}

#[test]
fn a_second_sigterm_ends_a_process_that_is_still_draining() {
    let folder = TempDir::new();
    let port = free_port();
    let backend = ScriptedBackend::start(vec![vec![
        Action::ReadUntil(b"\r\n\r\n"),
        Action::Pause(Duration::from_secs(3600)),
    ]]);
    folder.write(
        "flow.yaml",
        &format!(
            "engine: {{ timeouts: {{ drain: 1h, response: 1h }} }}\n---\nflow: slow\n\
             from: {{ http: any 127.0.0.1:{port}/* }}\nsteps:\n  - forward: http://127.0.0.1:{}/\n",
            backend.port()
        ),
    );
    for signals in [["TERM", "TERM"], ["INT", "TERM"]] {
        let mut engine = Engine::run(&[folder.path()], &[]);
        let before = backend.accepted();
        let mut client = RawClient::connect(port);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_until("it is under way", || backend.accepted() > before);
        engine.process.signal(signals[0]);
        engine.process.wait_for("\"message\":\"stopping\"");
        engine.process.signal(signals[1]);
        let status = engine.process.wait();
        let output = engine.process.output();
        assert_eq!(status.code(), Some(1), "{output}");
        assert!(output.contains("as asked a second time"), "{output}");
    }
}

#[test]
fn a_second_sigterm_ends_a_process_whose_main_thread_is_stuck() {
    let folder = TempDir::new();
    let port = free_port();
    folder.write("flow.yaml", &flow(port, "text"));
    // The log is a pipe that is full and that nobody reads: the main thread waits for it.
    let (reader, mut writer) = std::io::pipe().unwrap();
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'x'; 512]).is_ok() {}
    rustix::fs::fcntl_setfl(&writer, rustix::fs::OFlags::empty()).unwrap();
    let mut child = command()
        .arg("run")
        .arg(folder.path())
        .args(["--admin", "off", "--workers", "1"])
        .stderr(writer)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    wait_until("it serves", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let id = child.id().to_string();
    let stop = || {
        let mut kill = std::process::Command::new("sh");
        kill.args(["-c", "kill -s TERM \"$0\"", &id])
            .status()
            .unwrap()
    };
    let mut ended = None;
    // The kernel delivers signals that are pending together as one, so it is asked again and again.
    wait_until("the process has ended", || {
        ended = child.try_wait().unwrap();
        ended.is_some() || !stop().success()
    });
    assert_eq!(ended.unwrap().code(), Some(1));
    drop(reader);
}

#[test]
fn values_of_any_length_make_lines_of_a_bounded_length() {
    let folder = TempDir::new();
    let port = free_port();
    let file = folder.write(
        "flow.yaml",
        &format!(
            "flow: long\nfrom: {{ http: {{ method: POST, path: /*, listen: \"127.0.0.1:{port}\" }} }}\n\
             steps:\n  - raise: {{ type: odd, status: 402, detail: \"begins ${{ .long }}\" }}\n"
        ),
    );
    let engine = Engine::run(&[folder.path()], &[]);
    let body = format!("{{\"long\":\"{}\"}}", "x".repeat(900_000));
    let reply = post(port, "/a", "application/json", &body);
    assert_eq!(reply.status, 402);
    let output = engine.stop();
    let longest = output.lines().map(str::len).max().unwrap();
    assert!(longest < 17 * 1024, "{longest}");
    assert!(output.contains("begins xxx"), "{output}");
    assert!(output.contains("... (900"), "its length is told: {output}");

    let name = "x".repeat(900_000);
    let file_name = file.to_str().unwrap();
    folder.write("flow.yaml", &format!("flow: {name}\nsteps: []\n"));
    for format in ["text", "json"] {
        let told = output_of_check(file_name, format);
        assert!(told.contains("... (900"), "{}", told.len());
        assert!(told.len() < 16 * 1024, "{format}: {}", told.len());
    }
}

/// What `check` prints of a file with a problem.
fn output_of_check(file: &str, format: &str) -> String {
    let output = output(&["check", file, "--format", format]);
    assert_eq!(output.status.code(), Some(1));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn the_client_is_who_a_listed_proxy_says() {
    for (settings, client) in [
        ("", "127.0.0.1"),
        ("trusted_proxies: [127.0.0.1, 10.0.0.0/8]", "203.0.113.9"),
    ] {
        let folder = TempDir::new();
        let port = free_port();
        folder.write(
            "flow.yaml",
            &format!(
                "engine: {{ log: {{ access: true }}, {settings} }}\n---\nflow: who\n\
                 from: {{ http: GET 127.0.0.1:{port}/who }}\nsteps:\n  \
                 - reply: {{ body: \"${{ $in.peer }} ${{ $in.headers.forwarded // \\\"none\\\" }}\" }}\n"
            ),
        );
        let engine = Engine::run(&[folder.path()], &[]);
        let mut caller = RawClient::connect(port);
        caller.send(
            "GET /who HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1, 203.0.113.9\r\n\
             X-Forwarded-For: 10.0.0.2\r\nForwarded: for=1.1.1.1\r\n\r\n",
        );
        let forwarded = if settings.is_empty() {
            "none"
        } else {
            "for=1.1.1.1"
        };
        assert_eq!(caller.response().text(), format!("{client} {forwarded}"));
        drop(caller);
        let output = engine.stop();
        let line = output
            .lines()
            .find(|line| line.contains("\"target\":\"/who\""));
        let peer = format!("\"peer\":\"{client}\"");
        assert!(line.unwrap().contains(&peer), "{output}");
    }
}

/// Rust's own allocator calls `malloc`, which has to be mimalloc's (decision 0066): the statistics
/// that mimalloc prints when the process ends show that blocks came from it.
#[test]
fn the_allocator_of_the_process_is_mimalloc() {
    let mut check = command();
    check.args(["check", "examples/quickstart"]);
    let output = check.env("MIMALLOC_SHOW_STATS", "1").output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let committed = told
        .lines()
        .find_map(|line| line.trim().strip_prefix("committed :"));
    let mut words = committed.unwrap_or_default().split_whitespace();
    let peak: f64 = words.next().unwrap().parse().unwrap();
    assert!(peak >= 1.0 && words.next() == Some("MiB"), "{told}");
}
