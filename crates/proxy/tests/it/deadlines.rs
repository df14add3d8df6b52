//! Which time-out holds when, and that every call has an end.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use component::forward::ForwardPlan;
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::plan::RouteTarget;
use component::settings::Settings;
use component::tls::UpstreamTls;
use component::upstream::UpstreamPlan;
use message::{Body, Fault, Method, Request};
use net::tls::Client;
use testkit::{Action, ScriptedBackend};

use crate::support::{Proxy, StepCall, forward_plan, tls_backend};

/// Long enough for everything that a test does not wait for.
const LONG: Duration = Duration::from_secs(60);

/// Forwards a large body of its own.
struct Sending {
    plan: Arc<ForwardPlan>,
    size: usize,
}

impl Handler for Sending {
    fn reads_body(&self) -> bool {
        true
    }

    fn handle<'a>(
        &'a self,
        mut request: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        request.method = Method::Post;
        request.body = Body::from(vec![b'x'; self.size]);
        let outcome = Outcome::Forward(Arc::clone(&self.plan), Box::new(request), None);
        Box::pin(async { Ok(outcome) })
    }
}

/// A reply that comes a byte at a time, and never ends by itself.
fn dripping() -> ScriptedBackend {
    let mut script = vec![
        Action::ReadRequest,
        Action::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n".to_vec()),
    ];
    for _ in 0..900 {
        script.push(Action::Send(b"x".to_vec()));
        script.push(Action::Pause(Duration::from_millis(20)));
    }
    ScriptedBackend::start(vec![script])
}

fn status_of_a_call(backend: &ScriptedBackend, gives_up_after: Option<Duration>, call: Duration) {
    let plan = Arc::new(forward_plan(backend.port()));
    let calling = StepCall::new(plan).giving_up_after(gives_up_after);
    let proxy = Proxy::handle_with(calling, |settings| {
        settings.timeouts.response = LONG;
        settings.timeouts.body = LONG;
        settings.timeouts.call = call;
    });
    let (mut client, start) = (proxy.client(), Instant::now());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 504);
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_millis(400), "{elapsed:?}");
    assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
}

#[test]
fn a_call_to_a_back_end_that_drips_for_ever_has_an_end() {
    status_of_a_call(&dripping(), None, Duration::from_millis(400));
}

#[test]
fn a_call_ends_when_its_caller_gives_up() {
    let time = Some(Duration::from_millis(400));
    status_of_a_call(&dripping(), time, LONG);
    let silent = ScriptedBackend::start(vec![vec![Action::ReadRequest, Action::Stall]]);
    status_of_a_call(&silent, time, LONG);
    let longer = Some(LONG);
    status_of_a_call(&silent, longer, Duration::from_millis(400));
}

/// A back end that reads slowly, and answers when it has all.
fn slow_reader(size: usize) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut read, mut piece) = (0, vec![0; 256 * 1024]);
        while read < size {
            read += stream.read(&mut piece).unwrap();
            std::thread::sleep(Duration::from_millis(15));
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        let _ = stream.read(&mut piece);
    });
    port
}

#[test]
fn a_large_message_has_time_as_long_as_its_bytes_move() {
    let size = 24 << 20;
    let sending = Sending {
        plan: Arc::new(forward_plan(slow_reader(size))),
        size,
    };
    let proxy = Proxy::handle_with(sending, |settings| {
        settings.timeouts.body = Duration::from_millis(700);
        settings.timeouts.response = Duration::from_millis(700);
    });
    let (mut client, start) = (proxy.client(), Instant::now());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "ok");
    assert!(
        start.elapsed() > Duration::from_millis(700),
        "too fast a reader to show anything"
    );
}

/// A back end that sends an early hint and takes a while for the rest.
fn hinting(pause: Duration) -> ScriptedBackend {
    ScriptedBackend::start(vec![vec![
        Action::ReadRequest,
        Action::Send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".to_vec()),
        Action::Pause(pause),
        Action::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()),
        Action::Stall,
    ]])
}

#[test]
fn behind_an_interim_reply_the_time_for_the_reply_holds() {
    let backend = hinting(Duration::from_millis(700));
    let proxy = Proxy::forward(
        backend.port(),
        |plan| plan.early_hints = true,
        |settings| {
            settings.timeouts.body = Duration::from_millis(200);
            settings.timeouts.response = LONG;
        },
    );
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 103);
    assert_eq!(client.response().status, 200);
}

#[test]
fn behind_an_interim_reply_the_time_for_the_reply_ends() {
    let backend = hinting(Duration::from_secs(20));
    let proxy = Proxy::forward(
        backend.port(),
        |plan| plan.early_hints = true,
        |settings| {
            settings.timeouts.body = LONG;
            settings.timeouts.response = Duration::from_millis(300);
        },
    );
    let (mut client, start) = (proxy.client(), Instant::now());
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 103);
    assert_eq!(client.response().status, 504);
    assert!(start.elapsed() < Duration::from_secs(10));
}

/// A back end over TLS that takes one record (16 KiB) at a time, with a pause behind each, and
/// answers when it has all.
fn slow_tls_reader(size: usize, pause: Duration) -> (u16, Client) {
    tls_backend(move |wire| async move {
        let mut received = Vec::new();
        while received.len() < size {
            if wire.read(&mut received).await.is_ok_and(|it| it > 0) {
                std::thread::sleep(pause);
            } else {
                return;
            }
        }
        let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        wire.write(reply).await.unwrap();
        let _ = wire.read(&mut received).await;
    })
}

/// What is written over TLS is encrypted 64 KiB at a time, and only that counted as progress: a
/// back end that took longer for them was cut although it read all the time.
#[test]
fn a_slow_reader_over_tls_makes_progress_within_a_piece() {
    let size = 192 << 10;
    let (port, client) = slow_tls_reader(size, Duration::from_millis(330));
    let upstream = UpstreamPlan::single("127.0.0.1", port, Some(UpstreamTls::default()));
    let plan = Arc::new(ForwardPlan {
        upstream: Arc::new(upstream),
        ..forward_plan(port)
    });
    let upstream = Arc::clone(&plan.upstream);
    let mut settings = Settings::default();
    settings.timeouts.body = Duration::from_millis(900);
    settings.timeouts.response = LONG;
    let target = RouteTarget::Handle {
        handler: Arc::new(Sending { plan, size }),
        body_max: 1000,
    };
    let proxy = Proxy::before_tls(target, (&upstream, client), settings);
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "ok");
}
