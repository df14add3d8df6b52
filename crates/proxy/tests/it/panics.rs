//! What panics is cut or answered with 500, and everything else goes on.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::stream::{Client, Feed};
use message::{Fault, Reply, Request};
use testkit::wait_until;

use crate::support::Proxy;

/// A handler that panics where the path says.
struct Panicking {
    detaches: bool,
}

impl Handler for Panicking {
    fn reads_body(&self) -> bool {
        true
    }

    fn detaches(&self) -> bool {
        self.detaches
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        assert_ne!(request.path, "/at-once", "on purpose");
        Box::pin(async move {
            assert_ne!(request.path, "/first", "on purpose");
            services.sleep(Duration::from_millis(1)).await;
            assert_ne!(request.path, "/later", "on purpose");
            if request.path == "/stream" {
                let reply = Reply::new(200);
                return Ok(Outcome::Stream(reply, Box::new(PanickingFeed)));
            }
            Ok(Outcome::Reply(Reply::with_content(
                200,
                "text/plain",
                request.body,
            )))
        })
    }
}

struct PanickingFeed;

impl Feed for PanickingFeed {
    fn run<'a>(
        self: Box<Self>,
        client: Box<dyn Client>,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            services.sleep(Duration::from_millis(1)).await;
            drop(client);
            panic!("on purpose");
        })
    }
}

#[test]
fn a_panic_of_a_handler_is_500_and_its_connection_goes_on() {
    for detaches in [false, true] {
        let proxy = Proxy::handle(Panicking { detaches });
        let (mut client, mut other) = (proxy.client(), proxy.client());
        for path in ["/at-once", "/first", "/later"] {
            client.send(format!(
                "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx"
            ));
            let reply = client.response();
            assert_eq!(reply.status, 500, "{path}");
            assert!(!reply.text().contains("purpose"), "{}", reply.text());
            for client in [&mut client, &mut other] {
                client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
                assert_eq!(client.response().text(), "hi");
            }
        }
        drop((client, other));
        proxy.wait_until_idle();
        assert_eq!(proxy.metrics().finished[5].get(), 3);
    }
}

#[test]
fn a_panic_of_a_stream_cuts_it() {
    let proxy = Proxy::handle(Panicking { detaches: false });
    let (mut client, mut other) = (proxy.client(), proxy.client());
    client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    let text = client.rest();
    assert!(text.starts_with(b"HTTP/1.1 200 OK\r\n"));
    assert!(!text.ends_with(b"0\r\n\r\n"), "it must not look whole");
    other.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi");
    assert_eq!(other.response().text(), "hi");
    drop((client, other));
    proxy.wait_until_idle();
    assert_eq!(proxy.metrics().streams_open(), 0);
}

/// A handler that holds its whole worker up until it is told to go on.
struct Blocking(Mutex<Receiver<()>>);

impl Handler for Blocking {
    fn reads_body(&self) -> bool {
        false
    }

    fn handle<'a>(
        &'a self,
        _: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async move {
            self.0.lock().unwrap().recv().unwrap();
            Ok(Outcome::Reply(Reply::new(204)))
        })
    }
}

#[test]
fn a_worker_that_does_not_move_is_seen() {
    let (go_on, blocked) = channel();
    let proxy = Proxy::handle(Blocking(Mutex::new(blocked)));
    let limit = Duration::from_millis(1500);
    let stuck = || proxy.engine.stuck_workers(limit);
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it is seen", || !stuck().is_empty());
    assert_eq!(stuck()[0].number, 0);
    assert!(stuck()[0].time >= limit);
    go_on.send(()).unwrap();
    assert_eq!(client.response().status, 204);
    wait_until("it moves again", || stuck().is_empty());
    let engine = Arc::clone(&proxy.engine);
    proxy.drain();
    proxy.join();
    assert_eq!(engine.stuck_workers(Duration::ZERO), []);
}
