//! The least rate of clients: who drips is given up, who waits for others is not.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use component::plan::RouteTarget;
use component::settings::Settings;
use message::memory;
use testkit::http2::frame;
use testkit::wire::{ClientTls, Wire};
use testkit::{Action, Authority, ScriptedBackend};

use crate::support::{Echo, Proxy, forward_plan};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const PAUSE: Duration = Duration::from_millis(60);
/// Twelve times as long as a body may stand still, if it takes so many pauses.
const PIECES: usize = 100;

/// A body may stand still for half a second, and must move 100 kB a second.
fn strict(settings: &mut Settings) {
    settings.timeouts.body = Duration::from_millis(500);
    settings.timeouts.response = Duration::from_secs(60);
    settings.limits.min_body_rate = 100_000;
}

fn echo() -> RouteTarget {
    RouteTarget::Handle {
        handler: Arc::new(Echo { reads_body: true }),
        body_max: 100_000,
    }
}

fn to(port: u16) -> RouteTarget {
    RouteTarget::Forward(Arc::new(forward_plan(port)))
}

fn serving(target: RouteTarget) -> Proxy {
    let proxy = Proxy::both(target.clone());
    let mut settings = Settings::default();
    strict(&mut settings);
    proxy.serve(target, settings, Vec::new());
    proxy
}

/// A client that looks whether something has come without taking it.
struct SlowClient(TcpStream);

impl SlowClient {
    fn of(proxy: &Proxy) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", proxy.port)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    /// Writes bytes. The other side may have closed already.
    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.0.write_all(bytes.as_ref());
    }

    /// Whether something comes during a pause.
    fn is_answered(&self) -> bool {
        self.0.set_read_timeout(Some(PAUSE)).unwrap();
        self.0.peek(&mut [0]).is_ok()
    }

    /// Sends pieces of a body that is never whole, until something comes back.
    fn drip(&mut self, piece: &[u8]) {
        for _ in 0..PIECES {
            self.send(piece);
            if self.is_answered() {
                return;
            }
        }
        panic!("it is served for ever");
    }

    fn exactly(&mut self, count: usize) -> Vec<u8> {
        self.0
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let mut bytes = vec![0; count];
        self.0.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// The next frame: its kind and what it carries.
    fn frame(&mut self) -> (u8, Vec<u8>) {
        let head = self.exactly(9);
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        (head[3], self.exactly(length as usize))
    }

    /// Begins HTTP/2 with these windows for streams.
    fn begin(&mut self, settings: &[u8]) {
        self.send([PREFACE, &frame(4, 0, 0, settings)].concat());
        while self.frame().0 != 4 {}
        self.send(frame(4, 1, 0, &[]));
        while self.is_answered() {
            self.frame();
        }
    }
}

#[test]
fn a_body_that_drips_over_http1_is_given_up() {
    let scripts = (0..2).map(|_| vec![Action::Stall]).collect();
    let back_end = ScriptedBackend::start(scripts);
    for target in [echo(), to(back_end.port())] {
        let proxy = serving(target);
        for (framing, piece) in [
            ("Content-Length: 5000", "x"),
            ("Transfer-Encoding: chunked", "1\r\nx\r\n"),
        ] {
            let mut client = SlowClient::of(&proxy);
            client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{framing}\r\n\r\n"));
            client.drip(piece.as_bytes());
            assert_eq!(client.exactly(12), b"HTTP/1.1 408");
        }
        proxy.wait_until_idle();
    }
}

#[test]
fn a_body_that_drips_over_http2_is_given_up() {
    let back_end = ScriptedBackend::start(vec![vec![Action::Stall]]);
    for target in [echo(), to(back_end.port())] {
        let proxy = serving(target);
        let mut client = SlowClient::of(&proxy);
        client.begin(&[]);
        client.send(frame(1, 4, 1, b"\x83\x86\x84\x41\x01a"));
        // What is received gives credit, as a frame each time.
        let mut problem = Vec::new();
        for _ in 0..PIECES {
            client.send(frame(0, 0, 1, b"x"));
            while problem.is_empty() && client.is_answered() {
                let (kind, bytes) = client.frame();
                problem = if kind == 0 { bytes } else { Vec::new() };
            }
            if !problem.is_empty() {
                break;
            }
        }
        let problem = String::from_utf8(problem).unwrap();
        assert!(problem.contains("\"status\":408"), "{problem}");
        drop(client);
        proxy.wait_until_idle();
    }
}

#[test]
fn a_reply_whose_window_drips_is_given_up() {
    let reply = [
        b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n".to_vec(),
        vec![b'x'; 5000],
    ];
    let script = vec![
        Action::ReadRequest,
        Action::Send(reply.concat()),
        Action::Stall,
    ];
    let back_end = ScriptedBackend::start(vec![script]);
    for target in [echo(), to(back_end.port())] {
        let proxy = serving(target);
        let mut client = SlowClient::of(&proxy);
        client.begin(&[0, 4, 0, 0, 0, 0]);
        client.send(frame(1, 4, 1, b"\x83\x86\x84\x41\x01a"));
        client.send(frame(0, 1, 1, &[b'x'; 5000]));
        let mut is_reset = false;
        for _ in 0..PIECES {
            client.send(frame(8, 0, 1, &[0, 0, 0, 1]));
            while !is_reset && client.is_answered() {
                is_reset = client.frame().0 == 3;
            }
            if is_reset {
                break;
            }
        }
        assert!(is_reset, "it is served for ever");
        drop(client);
        proxy.wait_until_idle();
    }
}

/// Above what the buffers of both sockets hold.
const LARGE: usize = 48 << 20;

#[test]
fn a_reply_that_is_taken_in_drips_over_http1_is_given_up() {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n");
    let reply = [head.into_bytes(), vec![b'x'; LARGE]].concat();
    let script = || vec![Action::ReadRequest, Action::Send(reply.clone())];
    let back_end = ScriptedBackend::start(vec![script(), script()]);
    for is_slow in [false, true] {
        let proxy = serving(to(back_end.port()));
        let mut client = SlowClient::of(&proxy);
        client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let mut taken = 0;
        for _ in 0..if is_slow { PIECES } else { 0 } {
            taken += client.exactly(2000).len();
            std::thread::sleep(PAUSE);
        }
        // What is there is read as fast as it comes: it would be all, were it still served.
        let mut rest = Vec::new();
        let _ = client.0.read_to_end(&mut rest);
        taken += rest.len();
        assert_eq!(taken < LARGE, is_slow, "{taken} bytes");
        drop(client);
        proxy.wait_until_idle();
    }
}

/// Neither a reply nor the end of the connection behind it waits for ever.
#[test]
fn a_client_over_tls_that_reads_nothing_is_given_up() {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n");
    let reply = [head.into_bytes(), vec![b'x'; LARGE]].concat();
    let back_end = ScriptedBackend::start(vec![vec![Action::ReadRequest, Action::Send(reply)]]);
    let authority = Authority::new("test");
    let mut settings = Settings::default();
    settings.timeouts.body = Duration::from_millis(500);
    let proxy = Proxy::behind_tls(to(back_end.port()), &authority, settings);
    let tls = ClientTls::new(&authority, &["http/1.1"]);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.unwrap();
    let client = runtime.block_on(async {
        let wire = Wire::connect(proxy.port, Some(&tls)).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        wire.write(request).await.unwrap();
        wire
    });
    testkit::wait_until("the request has come", || back_end.accepted() == 1);
    let begun = Instant::now();
    proxy.wait_until_idle();
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(client.is_open(), "it is the engine that has given up");
}

#[test]
fn a_back_end_that_drips_is_not_the_clients_fault() {
    let mut script = vec![
        Action::ReadRequest,
        Action::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n".to_vec()),
    ];
    for _ in 0..20 {
        script.push(Action::Pause(PAUSE));
        script.push(Action::Send(b"x".to_vec()));
    }
    let back_end = ScriptedBackend::start(vec![script]);
    let proxy = serving(to(back_end.port()));
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "x".repeat(20));
}

#[test]
fn without_a_least_rate_a_client_may_drip() {
    let target = echo();
    let proxy = Proxy::both(target.clone());
    let mut settings = Settings::default();
    strict(&mut settings);
    settings.limits.min_body_rate = 0;
    proxy.serve(target, settings, Vec::new());
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n");
    client.send_slowly(&[b'x'; 20], 1, PAUSE);
    assert_eq!(client.response().text(), "x".repeat(20));
}

#[test]
fn a_request_that_is_given_up_at_any_moment_leaves_nothing_reserved() {
    let target = RouteTarget::Handle {
        handler: Arc::new(Echo { reads_body: true }),
        body_max: 1 << 20,
    };
    let proxy = Proxy::both(target);
    let body = vec![b'x'; 400_000];
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    // In the middle of the body, at its end, and while the reply is written.
    for sent in [0, 1, 65_536, 65_537, 131_072, 200_000, 399_999, 400_000] {
        for abort in [false, true] {
            let mut client = proxy.client();
            client.send(&head);
            client.send(&body[..sent]);
            if abort && sent == body.len() {
                client.exactly(1000);
            }
            drop(client);
        }
    }
    proxy.wait_until_idle();
    testkit::wait_until("all is given back", || memory::bodies().used() == 0);
}
