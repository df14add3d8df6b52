//! Which time-out holds when, and that every call has an end.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use component::forward::ForwardPlan;
use component::handler::{Handler, LocalFuture, Outcome, Services};
use message::{Body, Fault, Method, Request};
use testkit::{Action, ScriptedBackend};

use crate::support::{Proxy, StepCall, forward_plan};

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
