//! Plans that change under way, and the drain.

use std::sync::Arc;
use std::time::Duration;

use component::plan::RouteTarget;
use component::settings::Settings;
use testkit::{Action, ScriptedBackend, StrictBackend};

use crate::support::{Echo, Proxy, forward_plan, short};

#[test]
fn requests_under_way_end_on_the_old_plan_and_new_ones_take_the_new() {
    let backend = ScriptedBackend::start(vec![vec![
        Action::ReadUntil(b"\r\n\r\n"),
        Action::Pause(Duration::from_millis(200)),
        Action::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold".to_vec()),
        Action::Stall,
    ]]);
    let proxy = Proxy::to(backend.port());
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    testkit::wait_until("it is under way", || backend.accepted() == 1);
    let handler = Arc::new(Echo { reads_body: true });
    let target = RouteTarget::Handle {
        handler,
        body_max: 10,
    };
    proxy.serve(target, Settings::default(), Vec::new());
    assert_eq!(client.response().text(), "old");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nnew");
    assert_eq!(
        client.response().text(),
        "new",
        "the same connection goes on"
    );
    let count = || proxy.metrics().finished[2].get();
    testkit::wait_until("counters outlive the plan", || count() == 2);
}

#[test]
fn many_reloads_under_load_cut_nothing() {
    let backend = StrictBackend::start();
    let proxy = Proxy::to(backend.port());
    let port = proxy.port;
    let clients: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = testkit::RawClient::connect(port);
                for at in 0..300 {
                    let body = at.to_string();
                    let length = body.len();
                    client.send(format!(
                        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{body}"
                    ));
                    assert_eq!(client.response().text(), body);
                }
            })
        })
        .collect();
    for _ in 0..50 {
        let target = RouteTarget::Forward(Arc::new(forward_plan(backend.port())));
        proxy.serve(target, Settings::default(), Vec::new());
        std::thread::sleep(Duration::from_millis(2));
    }
    for client in clients {
        client.join().unwrap();
    }
    testkit::wait_until("all are counted", || {
        proxy.metrics().finished[2].get() == 1200
    });
}

#[test]
fn the_drain_lets_requests_end_and_closes_idle_connections() {
    let backend = ScriptedBackend::start(vec![vec![
        Action::ReadUntil(b"\r\n\r\n"),
        Action::Pause(Duration::from_millis(200)),
        Action::Send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_vec()),
        Action::Stall,
    ]]);
    let proxy = Proxy::to(backend.port());
    let mut idle = proxy.client();
    let mut busy = proxy.client();
    busy.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    testkit::wait_until("it is under way", || backend.accepted() == 1);
    proxy.drain();
    assert!(idle.is_closed());
    let response = busy.response();
    assert_eq!(
        (response.text().as_str(), response.header("connection")),
        ("ok", Some("close"))
    );
    assert!(busy.is_closed());
    let port = proxy.port;
    proxy.join();
    assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
}

#[test]
fn the_drain_closes_connections_that_have_said_nothing_whatever_they_may_speak() {
    let plan = Arc::new(forward_plan(1));
    let proxy = Proxy::both(RouteTarget::Forward(plan));
    let mut silent = proxy.client();
    testkit::wait_until("it is accepted", || proxy.engine.connection_count() == 1);
    proxy.drain();
    assert!(silent.is_closed());
    proxy.join();
}

#[test]
fn the_drain_ends_at_its_limit() {
    let backend = ScriptedBackend::start(vec![vec![Action::Stall]]);
    let proxy = Proxy::forward(
        backend.port(),
        |_| {},
        |settings| {
            short(settings);
            settings.timeouts.response = Duration::from_secs(60);
        },
    );
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    testkit::wait_until("it is under way", || backend.accepted() == 1);
    proxy.drain();
    proxy.join();
    assert!(client.is_closed());
}
