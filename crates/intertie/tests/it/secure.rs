//! TLS and HTTP/2 as users meet them: curl in front, certificates made on the spot.

use std::path::Path;
use std::process::{Command, Output};

use testkit::http2::frame;
use testkit::{Authority, RawClient, StrictBackend, free_port, wait_until};

use crate::support::{TlsFolder, output};

impl TlsFolder {
    fn get(&self, port: u16, arguments: &[&str]) -> Output {
        self.curl("10", arguments)
            .arg(format!("https://localhost:{port}/x"))
            .output()
            .expect("curl is missing: `cargo xtask test` installs it")
    }

    /// The serial number of the certificate that is served.
    fn serial(&self, port: u16) -> String {
        let shown = self.text(port, &["--write-out", "%{certs}", "--output", "/dev/null"]);
        let start = shown
            .find("Serial Number")
            .expect("curl shows certificates");
        shown[start..].lines().next().unwrap().to_owned()
    }

    fn text(&self, port: u16, arguments: &[&str]) -> String {
        let output = self.get(port, arguments);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

const VERSION: [&str; 2] = ["--write-out", " %{http_version}"];

#[test]
fn every_combination_of_protocols_carries_bodies_both_ways() {
    let place = TlsFolder::new();
    let backend = StrictBackend::start();
    let [back, clear] = [free_port(), free_port()];
    let fronts = [free_port(), free_port(), free_port(), free_port()];
    let tls = "tls: { cert: server.pem, key: server.key }";
    let mut flows = format!(
        "flow: back\nfrom:\n  http: {{ listen: 'localhost:{back}', path: /x, {tls} }}\n\
         steps: [ forward: http://127.0.0.1:{}/x ]\n---\n\
         flow: clear\nfrom:\n  http: {{ listen: 'localhost:{clear}', path: /x, protocols: [h2] }}\n\
         steps: [ forward: http://127.0.0.1:{0}/x ]\n",
        backend.port(),
    );
    let targets = [
        format!("{{ to: 'http://127.0.0.1:{}/x' }}", backend.port()),
        format!("{{ to: 'https://localhost:{back}/x', tls: {{ ca: ca.pem }} }}"),
        format!(
            "{{ to: 'https://localhost:{back}/x', tls: {{ ca: ca.pem }}, protocols: [http/1.1] }}"
        ),
        format!("{{ to: 'http://localhost:{clear}/x', protocols: [h2] }}"),
    ];
    for (at, target) in targets.iter().enumerate() {
        flows.push_str(&format!(
            "---\nflow: front{at}\nfrom:\n  http: {{ listen: 'localhost:{}', path: /x, {tls} }}\n\
             steps: [ forward: {target} ]\n",
            fronts[at],
        ));
    }
    let engine = place.run(&flows);
    let large = "0123456789".repeat(200_000);
    place.folder.write("large", &large);
    let upload = format!("@{}", place.path("large"));
    for (at, front) in fronts.into_iter().enumerate() {
        for (option, version) in [("--http1.1", " 1.1"), ("--http2", " 2")] {
            let mut small = vec![option, "--data", "hello"];
            small.extend(VERSION);
            let text = place.text(front, &small);
            assert_eq!(text, format!("hello{version}"), "target {at}");
            let text = place.text(front, &[option, "--data-binary", &upload]);
            assert!(text == large, "target {at} {option}: {} bytes", text.len());
            let chunked = [option, "-H", "Transfer-Encoding: chunked", "--data", "a"];
            if option == "--http1.1" {
                assert_eq!(place.text(front, &chunked), "a", "target {at}");
            }
            let head = place.text(front, &[option, "--head"]);
            assert!(head.contains(" 200"), "target {at} {option}: {head}");
        }
    }
    assert_eq!(backend.violations(), [""; 0]);
    engine.stop();
}

#[test]
fn one_address_serves_several_names() {
    let place = TlsFolder::new();
    place.put("two", &place.authority.issue(&["two.example"]));
    let port = free_port();
    let engine = place.run(&format!(
        "flow: a\nfrom:\n  http:\n    listen: 'localhost:{port}'\n    path: /x\n    tls:\n      \
         cert: server.pem\n      key: server.key\n      sni: [{{ cert: two.pem, key: two.key }}]\n\
         steps: [ reply: {{ body: hello }} ]\n"
    ));
    assert_eq!(place.text(port, &[]), "hello");
    let two = Command::new("curl")
        .args(["--silent", "--cacert", &place.path("ca.pem")])
        .args(["--resolve", &format!("two.example:{port}:127.0.0.1")])
        .arg(format!("https://two.example:{port}/x"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&two.stdout), "hello");
    engine.stop();
}

#[test]
fn old_versions_are_refused() {
    let place = TlsFolder::new();
    let [modern, usual] = [free_port(), free_port()];
    let flow = |name: &str, port: u16, more: &str| {
        format!(
            "flow: {name}\nfrom:\n  http: {{ listen: 'localhost:{port}', path: /x, \
             tls: {{ cert: server.pem, key: server.key{more} }} }}\n\
             steps: [ reply: {{ body: hello }} ]\n"
        )
    };
    let (one, other) = (
        flow("a", modern, ", min_version: '1.3'"),
        flow("b", usual, ""),
    );
    let engine = place.run(&format!("{one}---\n{other}"));
    for (port, option, fits) in [
        (modern, "1.3", true),
        (modern, "1.2", false),
        (usual, "1.2", true),
        (usual, "1.1", false),
    ] {
        let output = place.get(port, &["--tls-max", option]);
        assert_eq!(output.status.success(), fits, "at most {option} at {port}");
    }
    engine.stop();
}

#[test]
fn clients_and_upstreams_show_certificates() {
    let place = TlsFolder::new();
    place.put("me", &place.authority.issue(&["me"]));
    place.put("stranger", &Authority::new("other").issue(&["x"]));
    let [front, back] = [free_port(), free_port()];
    let tls = "cert: server.pem, key: server.key, client_ca: ca.pem";
    let engine = place.run(&format!(
        "flow: back\nfrom:\n  http: {{ listen: 'localhost:{back}', path: /x, tls: {{ {tls} }} }}\n\
         steps: [ reply: {{ body: inside }} ]\n---\n\
         flow: front\nuse:\n  back:\n    http: https://localhost:{back}\n    \
         tls: {{ ca: ca.pem, cert: me.pem, key: me.key }}\n\
         from:\n  http: {{ listen: 'localhost:{front}', path: /x, \
         tls: {{ cert: server.pem, key: server.key }} }}\nsteps: [ forward: back:/x ]\n"
    ));
    assert_eq!(place.text(front, &[]), "inside");
    let me = [
        "--cert",
        &place.path("me.pem"),
        "--key",
        &place.path("me.key"),
    ];
    assert_eq!(place.text(back, &me), "inside");
    let stranger = [
        "--cert",
        &place.path("stranger.pem"),
        "--key",
        &place.path("stranger.key"),
    ];
    assert!(!place.get(back, &stranger).status.success());
    assert!(!place.get(back, &[]).status.success());
    engine.stop();
}

#[test]
fn an_upstream_with_the_wrong_certificate_gets_nothing() {
    let place = TlsFolder::new();
    place
        .folder
        .write("other.pem", Authority::new("other").pem());
    let [front, back] = [free_port(), free_port()];
    let engine = place.run(&format!(
        "flow: back\nfrom:\n  http: {{ listen: 'localhost:{back}', path: /x, \
         tls: {{ cert: server.pem, key: server.key }} }}\nsteps: [ reply: {{ body: inside }} ]\n\
         ---\nflow: front\nfrom: {{ http: any 127.0.0.1:{front}/x }}\n\
         steps: [ forward: {{ to: 'https://localhost:{back}/x', tls: {{ ca: other.pem }} }} ]\n"
    ));
    let mut client = RawClient::connect(front);
    client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    let response = client.response();
    assert_eq!(response.status, 502);
    assert!(
        !response.text().contains("localhost"),
        "{}",
        response.text()
    );
    wait_until("the log says why", || {
        engine.process.output().contains("UnknownIssuer")
    });
    engine.stop();
}

#[test]
fn a_changed_certificate_is_taken_and_a_broken_one_is_not() {
    let place = TlsFolder::new();
    let port = free_port();
    let engine = place.run(&format!(
        "flow: a\nfrom:\n  http: {{ listen: 'localhost:{port}', path: /x, \
         tls: {{ cert: server.pem, key: server.key }} }}\nsteps: [ reply: {{ body: hello }} ]\n"
    ));
    let serial = || place.serial(port);
    let first = serial();
    place.folder.write("server.key", "nonsense");
    engine.process.wait_for("IT0301");
    assert_eq!(serial(), first, "the old one stays");
    place.put("server", &place.authority.issue(&["localhost"]));
    wait_until("the new one is served", || serial() != first);
    engine.stop();
}

#[test]
fn a_renewed_certificate_does_not_wait_for_the_end_of_an_edit() {
    let place = TlsFolder::new();
    let (port, taken) = (free_port(), StrictBackend::start());
    let flow = |listen: &str| {
        format!(
            "flow: a\nfrom:\n  http: {{ listen: '{listen}', path: /x, \
             tls: {{ cert: server.pem, key: server.key }} }}\nsteps: [ reply: {{ body: hello }} ]\n"
        )
    };
    let engine = place.run(&flow(&format!("localhost:{port}")));
    let in_use = flow(&format!("localhost:{}", taken.port()));
    for (edit, problem) in [
        ("flow: a\nform: x\n", "did you mean"),
        (&in_use, "cannot listen on"),
    ] {
        let first = place.serial(port);
        place.folder.write("flow.yaml", edit);
        engine.process.signal("HUP");
        engine.process.wait_for(problem);
        place.put("server", &place.authority.issue(&["localhost"]));
        wait_until("the new one is served", || place.serial(port) != first);
    }
    assert_eq!(place.text(port, &[]), "hello");
    place.folder.write(
        "flow.yaml",
        &flow(&format!("localhost:{port}")).replace("hello", "new"),
    );
    engine.process.signal("HUP");
    wait_until("the edit is served", || place.text(port, &[]) == "new");
    engine.stop();
}

#[test]
fn a_reload_that_turns_tls_on_ends_clear_text_connections() {
    let place = TlsFolder::new();
    let port = free_port();
    let flow = |tls: &str, text: &str| {
        format!(
            "flow: a\nfrom:\n  http: {{ listen: 'localhost:{port}', path: /x{tls} }}\n\
             steps: [ reply: {{ body: {text} }} ]\n"
        )
    };
    let engine = place.run(&flow("", "public"));
    let mut client = RawClient::connect(port);
    client.send("GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(client.response().text(), "public");
    let tls = ", tls: { cert: server.pem, key: server.key }";
    place.folder.write("flow.yaml", &flow(tls, "private"));
    engine.process.signal("HUP");
    assert!(client.is_closed(), "nothing is served on it any more");
    wait_until("it is served over TLS", || {
        place.get(port, &[]).stdout == b"private"
    });
    engine.stop();
}

#[test]
fn what_is_wrong_with_certificates_is_told_before_the_start() {
    let place = TlsFolder::new();
    place.put("old", &place.authority.issue_expired(&["localhost"]));
    let check = |tls: &str| {
        let flow = format!(
            "flow: a\nfrom:\n  http: {{ listen: ':1', path: /x, tls: {{ {tls} }} }}\n\
             steps: [ reply: {{}} ]\n"
        );
        let file = place.folder.write("flow.yaml", &flow);
        let found = output(&["check", &file.display().to_string()]);
        assert_eq!(found.status.code(), Some(1), "{tls}");
        String::from_utf8_lossy(&found.stdout).into_owned()
    };
    let cases = [
        (
            "cert: none.pem, key: server.key",
            "`none.pem` cannot be read",
        ),
        ("cert: old.pem, key: old.key", "the certificate has expired"),
        ("cert: server.pem, key: old.key", "the key does not belong"),
        (
            "cert: server.key, key: server.key",
            "there is no certificate",
        ),
        (
            "cert: server.pem, key: server.key, client_ca: server.key",
            "there is no certificate",
        ),
    ];
    for (tls, message) in cases {
        let text = check(tls);
        assert!(
            text.contains("IT0301") && text.contains(message),
            "{tls}: {text}"
        );
        assert!(text.contains("flow.yaml:3:"), "the place is told: {text}");
    }
    assert!(Path::new(&place.path("flow.yaml")).exists());
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// `GET http a /x` by the static table, nothing of it indexed.
const GET_X: &[u8] = b"\x82\x86\x04\x02/x\x01\x01a";
const ENHANCE_YOUR_CALM: [u8; 4] = 11_u32.to_be_bytes();

/// What a client is told that sends these frames.
fn last_words(port: u16, frames: &[u8]) -> Vec<u8> {
    let mut client = RawClient::connect(port);
    let start = [PREFACE, &frame(4, 0, 0, &[])].concat();
    client.send([&start, frames].concat());
    client.rest()
}

#[test]
fn floods_end_the_connection_and_nobody_else_notices() {
    let place = TlsFolder::new();
    let port = free_port();
    let engine = place.run(&format!(
        "engine:\n  limits: {{ h2: {{ resets: 50, control_frames: 100, continuations: 4 }} }}\n\
         ---\nflow: a\nfrom:\n  http: {{ listen: '127.0.0.1:{port}', path: /x, \
         protocols: [h2, http/1.1] }}\nsteps: [ reply: {{ body: hello }} ]\n"
    ));
    let rapid: Vec<u8> = (0..200)
        .flat_map(|at| {
            let stream = at * 2 + 1;
            // A body that never comes keeps the request from being answered first.
            let open = frame(1, 4, stream, GET_X);
            [open, frame(3, 0, stream, &8_u32.to_be_bytes())].concat()
        })
        .collect();
    let pings = frame(6, 0, 0, b"12345678").repeat(300);
    let settings = frame(4, 0, 0, &[]).repeat(300);
    let endless: Vec<u8> = [
        frame(1, 0, 1, GET_X),
        frame(9, 0, 1, b"\x00\x01a\x01b").repeat(20),
    ]
    .concat();
    for (name, frames) in [
        ("rapid reset", rapid),
        ("pings", pings),
        ("settings", settings),
        ("continuations", endless),
    ] {
        let words = last_words(port, &frames);
        let goaway = words.windows(4).any(|code| code == ENHANCE_YOUR_CALM);
        assert!(goaway, "{name}: {words:?}");
    }
    let metrics = engine.get("/metrics").text();
    assert!(
        metrics.contains("intertie_http2_errors_total 4"),
        "{metrics}"
    );
    let mut client = RawClient::connect(port);
    client.send("GET /x HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "hello");
    engine.stop();
}

/// A request of these frames behind the preface, the last of them a little later; its reply ends
/// the connection's first stream.
fn slow_request(port: u16, frames: &[Vec<u8>]) {
    let mut client = RawClient::connect(port);
    client.send([PREFACE, &frame(4, 0, 0, &[])].concat());
    for frame in frames {
        std::thread::sleep(std::time::Duration::from_millis(50));
        client.send(frame);
    }
    // The head of the reply, whatever it says: HEADERS with END_HEADERS on stream 1.
    client.until(&[1, 4, 0, 0, 0, 1]);
}

#[test]
fn a_body_may_end_in_a_frame_of_its_own() {
    let place = TlsFolder::new();
    let port = free_port();
    let backend =
        StrictBackend::answering(|_| b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec());
    let engine = place.run(&format!(
        "flow: a\nfrom:\n  http: {{ listen: '127.0.0.1:{port}', path: /x, protocols: [h2] }}\n\
         steps: [ forward: http://127.0.0.1:{}/x ]\n",
        backend.port()
    ));
    let post = [b"\x83".as_slice(), &GET_X[1..]].concat();
    let (head, end) = (frame(1, 4, 1, &post), frame(0, 1, 1, b""));
    slow_request(port, &[[head.clone(), end.clone()].concat()]);
    slow_request(port, &[head.clone(), end.clone()]);
    slow_request(port, &[head.clone(), frame(0, 0, 1, b"late"), end]);
    let trailers = frame(1, 5, 1, b"\x40\x03x-t\x01v");
    slow_request(port, &[head, frame(0, 0, 1, b"late"), trailers]);
    let requests = backend.requests();
    let bodies: Vec<&[u8]> = requests.iter().map(|it| it.body.as_slice()).collect();
    assert_eq!(bodies, [b"".as_slice(), b"", b"late", b"late"]);
    assert_eq!(requests[0].header("content-length"), Some("0"));
    assert_eq!(requests[3].trailers, [("x-t".to_owned(), "v".to_owned())]);
    assert_eq!(backend.violations(), [""; 0]);
    engine.stop();
}

#[test]
fn a_client_that_reads_nothing_holds_little() {
    let place = TlsFolder::new();
    let port = free_port();
    // Endless, as far as this test goes: 64 MiB for each request.
    let body = vec![b'x'; 64 << 20];
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    let backend = testkit::ScriptedBackend::start(vec![vec![
        testkit::Action::ReadRequest,
        testkit::Action::Send([head.into_bytes(), body].concat()),
        testkit::Action::Stall,
    ]]);
    let engine = place.run(&format!(
        "flow: a\nfrom:\n  http: {{ listen: '127.0.0.1:{port}', path: /x, protocols: [h2] }}\n\
         steps: [ forward: http://127.0.0.1:{}/x ]\n",
        backend.port()
    ));
    let before = engine.process.resident_kib();
    let mut client = RawClient::connect(port);
    client.send([PREFACE, &frame(4, 0, 0, &[])].concat());
    for at in 0..20 {
        client.send(frame(1, 5, at * 2 + 1, GET_X));
    }
    wait_until("all are under way", || backend.accepted() == 20);
    std::thread::sleep(std::time::Duration::from_millis(500));
    let held = engine.process.resident_kib() - before;
    // Windows let 64 KiB through; then each request holds a buffer of 16 KiB.
    assert!(held < 8 * 1024, "{held} KiB for 20 requests");
    drop(client);
    engine.stop();
}

#[test]
fn the_drain_lets_streams_end_and_says_goodbye() {
    let place = TlsFolder::new();
    let port = free_port();
    let backend = testkit::ScriptedBackend::start(vec![vec![
        testkit::Action::ReadRequest,
        testkit::Action::Pause(std::time::Duration::from_millis(400)),
        testkit::Action::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate".to_vec()),
        testkit::Action::Stall,
    ]]);
    let engine = place.run(&format!(
        "flow: a\nfrom:\n  http: {{ listen: '127.0.0.1:{port}', path: /x, protocols: [h2] }}\n\
         steps: [ forward: http://127.0.0.1:{}/x ]\n",
        backend.port()
    ));
    let mut slow = Command::new("curl")
        .args(["--silent", "--http2-prior-knowledge", "--max-time", "10"])
        .arg(format!("http://127.0.0.1:{port}/x"))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("it is under way", || backend.accepted() == 1);
    engine.stop();
    let mut text = String::new();
    std::io::Read::read_to_string(&mut slow.stdout.take().unwrap(), &mut text).unwrap();
    assert!(slow.wait().unwrap().success());
    assert_eq!(text, "late");
}
