//! The message path: bodies read for a handler, its replies, unread bodies.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use component::forward::ForwardPlan;
use component::handler::{Handler, LocalFuture, Outcome, Services};
use message::{Body, Fault, Reply, Request};
use testkit::{Action, RawClient, ScriptedBackend, StrictBackend};

use crate::support::{Echo, Proxy, StepCall, forward_plan};

#[test]
fn bodies_are_read_whole_and_bounded() {
    let proxy = Proxy::handle(Echo { reads_body: true });
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(client.response().text(), "hello");
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         3;x\r\nhel\r\n2\r\nlo\r\n0\r\nT: 1\r\n\r\n",
    );
    assert_eq!(client.response().text(), "hello");
    client.send("HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
    assert_eq!(
        client.response_to("HEAD").header("content-length"),
        Some("5")
    );
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1001\r\n\r\n");
    assert_eq!(client.response().status, 413);
    assert!(client.is_closed());
    let mut client = proxy.client();
    let chunk = format!("1f4\r\n{}\r\n", "x".repeat(500));
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send(chunk.repeat(3));
    assert_eq!(client.response().status, 413);
}

#[test]
fn a_client_that_waits_for_continue_gets_it() {
    let proxy = Proxy::handle(Echo { reads_body: true });
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.response().status, 100);
    client.send("hello");
    assert_eq!(client.response().text(), "hello");
}

#[test]
fn a_body_that_nobody_reads_does_not_disturb_the_next_request() {
    let proxy = Proxy::handle(Echo { reads_body: false });
    let mut client = proxy.client();
    for _ in 0..3 {
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello");
        assert_eq!(client.response().text(), "");
    }
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\nhello");
    let response = client.response();
    assert_eq!(
        (response.status, response.header("connection")),
        (200, Some("close"))
    );
    client.send("x".repeat(49_995));
    assert!(client.is_closed());
}

/// Works on a message and forwards it.
struct Forwarder {
    plan: Arc<ForwardPlan>,
    reads_body: bool,
}

impl Handler for Forwarder {
    fn reads_body(&self) -> bool {
        self.reads_body
    }

    fn handle<'a>(
        &'a self,
        mut request: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        if self.reads_body {
            request.body = Body::from(request.body.as_bytes().to_ascii_uppercase());
        }
        request.headers.set("X-Seen", "1");
        let outcome = Outcome::Forward(Arc::clone(&self.plan), Box::new(request), None);
        Box::pin(async { Ok(outcome) })
    }
}

#[test]
fn a_changed_message_is_forwarded_with_its_new_length() {
    let backend = StrictBackend::start();
    let plan = Arc::new(forward_plan(backend.port()));
    let proxy = Proxy::handle(Forwarder {
        plan,
        reads_body: true,
    });
    let mut client = proxy.client();
    for _ in 0..2 {
        client.send(
            "POST /x/y?z HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\
             Connection: close-not, Keep-Alive\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        );
        assert_eq!(client.response().text(), "HI");
    }
    let request = backend.requests().remove(1);
    assert_eq!(request.target, "/x/y?z");
    assert_eq!(request.header("content-length"), Some("2"));
    assert_eq!(request.header("transfer-encoding"), None);
    assert_eq!(request.header("x-seen"), Some("1"));
}

#[test]
fn an_unread_body_streams_through_whatever_its_size() {
    let backend = StrictBackend::start();
    let plan = Arc::new(forward_plan(backend.port()));
    let proxy = Proxy::handle(Forwarder {
        plan,
        reads_body: false,
    });
    let mut client = proxy.client();
    let body = "0123456789".repeat(30_000);
    client.send(format!(
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    ));
    client.send(&body);
    assert!(client.response().text() == body);
    assert_eq!(backend.requests()[0].header("x-seen"), Some("1"));
}

#[test]
fn calls_from_within_read_the_whole_reply_in_every_framing() {
    let replies = [
        "HTTP/1.1 201 Created\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\nhello",
    ];
    for (reply, expected) in replies.iter().zip([201, 404, 200]) {
        let script = vec![
            Action::ReadUntil(b"\r\n\r\nhi"),
            Action::Send(reply.as_bytes().to_vec()),
            Action::Close,
        ];
        let backend = ScriptedBackend::start(vec![script]);
        let proxy = Proxy::handle(StepCall::new(Arc::new(forward_plan(backend.port()))));
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        let response = client.response();
        assert_eq!(
            (response.status, response.text()),
            (expected, "hello".into())
        );
    }
}

#[test]
fn calls_that_fail_become_the_replys_status() {
    for (script, status) in [
        (vec![Action::Close], 502),
        (
            vec![
                Action::ReadUntil(b"hi"),
                Action::Send(b"nonsense\r\n\r\n".to_vec()),
            ],
            502,
        ),
        (
            vec![
                Action::ReadUntil(b"hi"),
                Action::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort".to_vec()),
            ],
            502,
        ),
    ] {
        let backend = ScriptedBackend::start(vec![script]);
        let proxy = Proxy::handle(StepCall::new(Arc::new(forward_plan(backend.port()))));
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(client.response().status, status);
        proxy.wait_until_idle_after(client);
    }
}

/// Makes a message of its own and has it forwarded, without a look at the client's.
struct Replacing(Arc<ForwardPlan>);

impl Handler for Replacing {
    fn reads_body(&self) -> bool {
        false
    }

    fn handle<'a>(
        &'a self,
        mut request: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        request.body = Body::from(b"made here".to_vec());
        let forward = Outcome::Forward(Arc::clone(&self.0), Box::new(request), None);
        Box::pin(async { Ok(forward) })
    }
}

#[test]
fn a_body_that_nobody_reads_is_not_the_next_request() {
    let backend = StrictBackend::start();
    let proxy = Proxy::handle(Replacing(Arc::new(forward_plan(backend.port()))));
    let hidden = "GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n";
    // The body comes with the head, behind it, and never.
    for (now, later) in [(hidden, ""), ("", hidden), (&hidden[..5], &hidden[5..])] {
        let mut client = proxy.client();
        let length = hidden.len();
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        client.send(head + now);
        assert_eq!(client.response().status, 200);
        client.send(later);
        client.send("GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let rest = String::from_utf8_lossy(&client.rest()).into_owned();
        let answers = rest.matches("HTTP/1.1 ").count();
        assert!(answers <= usize::from(!now.is_empty()), "{rest}");
    }
    let paths: Vec<String> = backend
        .requests()
        .iter()
        .map(|it| it.target.clone())
        .collect();
    assert!(
        !paths.iter().any(|path| path.contains("hidden")),
        "{paths:?}"
    );
}

/// Records the paths of requests. At `/first`, or at the first request of the crowd that comes
/// then, it has another client send a request, which waits in the kernel while others are served.
#[derive(Clone, Default)]
struct Order {
    crowd: Arc<Mutex<Option<Crowd>>>,
    paths: Arc<Mutex<Vec<String>>>,
    other: Arc<Mutex<Option<RawClient>>>,
    has_sent: Arc<AtomicBool>,
}

impl Handler for Order {
    fn reads_body(&self) -> bool {
        true
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        let mut crowd = self.crowd.lock().unwrap();
        match (&mut *crowd, &*request.path) {
            (Some(crowd), "/first") => crowd.come(),
            (None, "/first") | (Some(_), "/crowd") => self.send_other(),
            _ => {}
        }
        self.paths.lock().unwrap().push(request.path);
        Box::pin(async { Ok(Outcome::Reply(Reply::new(204))) })
    }
}

impl Order {
    /// Once.
    fn send_other(&self) {
        if !self.has_sent.swap(true, Ordering::Relaxed)
            && let Some(other) = &mut *self.other.lock().unwrap()
        {
            other.send("GET /other HTTP/1.1\r\nHost: a\r\n\r\n");
        }
    }
}

/// Clients who connect and send a request each, all at once.
struct Crowd {
    port: u16,
    clients: Vec<TcpStream>,
}

impl Crowd {
    const SIZE: usize = 120;

    fn come(&mut self) {
        for _ in 0..Self::SIZE {
            let mut client = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
            let request = b"GET /crowd HTTP/1.1\r\nHost: a\r\n\r\n";
            client.write_all(request).unwrap();
            self.clients.push(client);
        }
    }
}

#[test]
fn a_crowd_that_connects_at_once_does_not_keep_others_waiting() {
    let order = Order::default();
    let proxy = Proxy::handle(order.clone());
    let mut other = proxy.client();
    other.send("GET /before HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(other.response().status, 204);
    *order.other.lock().unwrap() = Some(other);
    *order.crowd.lock().unwrap() = Some(Crowd {
        port: proxy.port,
        clients: Vec::new(),
    });
    let mut client = proxy.client();
    client.send("GET /first HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 204);
    let paths = || order.paths.lock().unwrap().clone();
    testkit::wait_until("everybody is served", || paths().len() == Crowd::SIZE + 3);
    let at = paths().iter().position(|path| path == "/other").unwrap();
    assert!(at < 50, "{at} requests were served before the other one");
}

#[test]
fn a_client_that_pipelines_does_not_keep_others_waiting() {
    let order = Order::default();
    let proxy = Proxy::handle(order.clone());
    let mut other = proxy.client();
    other.send("GET /before HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(other.response().status, 204);
    *order.other.lock().unwrap() = Some(other);
    let mut client = proxy.client();
    let more = "GET /more HTTP/1.1\r\nHost: a\r\n\r\n".repeat(100);
    client.send(format!("GET /first HTTP/1.1\r\nHost: a\r\n\r\n{more}"));
    for _ in 0..101 {
        assert_eq!(client.response().status, 204);
    }
    let other = order.other.lock().unwrap().take();
    assert_eq!(other.unwrap().response().status, 204);
    let paths = order.paths.lock().unwrap();
    let at = paths.iter().position(|path| path == "/other").unwrap();
    assert!(at < 20, "{at} requests were served before the other one");
}

#[test]
fn a_body_in_small_chunks_does_not_keep_others_waiting() {
    let order = Order::default();
    let proxy = Proxy::handle_bodies(order.clone(), 10_000);
    let mut other = proxy.client();
    other.send("GET /before HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(other.response().status, 204);
    *order.other.lock().unwrap() = Some(other);
    let mut client = proxy.client();
    // All of it is there at once.
    let chunks = "1\r\na\r\n".repeat(10_000);
    client.send(format!(
        "GET /first HTTP/1.1\r\nHost: a\r\n\r\n\
         POST /large HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         {chunks}0\r\n\r\n"
    ));
    for _ in 0..2 {
        assert_eq!(client.response().status, 204);
    }
    let other = order.other.lock().unwrap().take();
    assert_eq!(other.unwrap().response().status, 204);
    let paths = order.paths.lock().unwrap();
    assert_eq!(*paths, ["/before", "/first", "/other", "/large"]);
}
