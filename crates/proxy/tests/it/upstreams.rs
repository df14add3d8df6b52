//! Several endpoints: how they are chosen, left out, asked, spared; and what is sent again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use component::upstream::{Balance, Eject, EndpointPlan, HashKey, HealthCheck, UpstreamPlan};
use testkit::{Action, RawClient, Response, ScriptedBackend, StrictBackend, free_port};

use crate::support::Proxy;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A proxy to these ports.
fn proxy_to(ports: &[u16], change: impl FnOnce(&mut UpstreamPlan)) -> Proxy {
    let mut upstream = UpstreamPlan::single("127.0.0.1", 1, None);
    upstream.endpoints = ports
        .iter()
        .map(|port| EndpointPlan {
            host: "127.0.0.1".to_owned(),
            port: *port,
        })
        .collect();
    change(&mut upstream);
    Proxy::forward(1, |plan| plan.upstream = Arc::new(upstream), |_| {})
}

fn request(client: &mut RawClient, method: &str, path: &str, header: &str) -> Response {
    client.send(format!(
        "{method} {path} HTTP/1.1\r\nHost: a\r\n{header}Content-Length: 0\r\n\r\n"
    ));
    client.response()
}

fn get(proxy: &Proxy, path: &str) -> Response {
    request(&mut proxy.client(), "GET", path, "")
}

fn counts(backends: &[StrictBackend]) -> Vec<usize> {
    backends.iter().map(|it| it.requests().len()).collect()
}

fn backends(count: usize) -> (Vec<StrictBackend>, Vec<u16>) {
    let backends: Vec<_> = (0..count).map(|_| StrictBackend::start()).collect();
    let ports = backends.iter().map(StrictBackend::port).collect();
    (backends, ports)
}

#[test]
fn endpoints_take_turns() {
    let (backends, ports) = backends(3);
    let proxy = proxy_to(&ports, |_| {});
    let mut client = proxy.client();
    for _ in 0..9 {
        assert_eq!(request(&mut client, "GET", "/", "").status, 200);
    }
    assert_eq!(counts(&backends), [3, 3, 3]);
}

#[test]
fn the_one_with_the_fewest_requests_is_taken() {
    let slow = ScriptedBackend::start(vec![vec![Action::ReadRequest, Action::Stall]]);
    let quick = StrictBackend::start();
    let proxy = proxy_to(&[slow.port(), quick.port()], |plan| {
        plan.balance = Balance::LeastRequests;
    });
    // One request hangs at the slow one; from then on it has always more under way.
    let mut hanging = Vec::new();
    while slow.accepted() == 0 {
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        hanging.push(client);
        std::thread::sleep(Duration::from_millis(20));
    }
    let before = quick.requests().len();
    for _ in 0..10 {
        assert_eq!(get(&proxy, "/").status, 200);
    }
    assert_eq!(quick.requests().len() - before, 10);
    assert_eq!(slow.accepted(), 1);
}

#[test]
fn the_same_key_goes_to_the_same_endpoint() {
    let (backends, ports) = backends(4);
    let proxy = proxy_to(&ports, |plan| {
        plan.balance = Balance::Hash(HashKey::Header("X-User".to_owned()));
    });
    let mut client = proxy.client();
    for user in 0..20 {
        for _ in 0..3 {
            let header = format!("X-User: {user}\r\n");
            assert_eq!(request(&mut client, "GET", "/", &header).status, 200);
        }
    }
    let counts = counts(&backends);
    assert_eq!(counts.iter().sum::<usize>(), 60);
    assert!(counts.iter().all(|count| count % 3 == 0), "{counts:?}");
    let used = counts.iter().filter(|count| **count > 0).count();
    assert!(used >= 3, "20 keys spread: {counts:?}");
}

#[test]
fn what_cannot_be_reached_is_passed_over_and_left_out() {
    let backend = StrictBackend::start();
    let proxy = proxy_to(&[free_port(), backend.port()], |plan| {
        plan.eject = Eject {
            failures: 2,
            time: Duration::from_secs(60),
        };
    });
    let mut client = proxy.client();
    for _ in 0..12 {
        assert_eq!(request(&mut client, "POST", "/", "").status, 200);
    }
    assert_eq!(backend.requests().len(), 12);
    let workers = proxy.engine.registry.workers();
    // The second failure leaves it out; nobody tries it again.
    assert_eq!(workers[0].upstream_connect_failures.get(), 2);
}

#[test]
fn an_endpoint_returns_after_one_good_request() {
    let healthy = Arc::new(AtomicBool::new(false));
    let shared = Arc::clone(&healthy);
    let flaky = StrictBackend::answering(move |_| match shared.load(Ordering::SeqCst) {
        true => OK.to_vec(),
        false => b"nonsense\r\n\r\n".to_vec(),
    });
    let good = StrictBackend::start();
    let proxy = proxy_to(&[flaky.port(), good.port()], |plan| {
        plan.eject = Eject {
            failures: 1,
            time: Duration::from_millis(200),
        };
    });
    let mut client = proxy.client();
    for _ in 0..10 {
        // A GET may be repeated, so nobody sees the nonsense.
        assert_eq!(request(&mut client, "GET", "/", "").status, 200);
    }
    assert_eq!(flaky.requests().len(), 1);
    healthy.store(true, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(300));
    for _ in 0..10 {
        assert_eq!(request(&mut client, "GET", "/", "").status, 200);
    }
    assert_eq!(flaky.requests().len(), 6, "it is back among the two");
}

#[test]
fn a_request_that_may_have_been_acted_on_is_not_sent_twice() {
    let closing = || ScriptedBackend::start(vec![vec![Action::ReadRequest, Action::Close]]);
    let (one, other) = (closing(), closing());
    let proxy = proxy_to(&[one.port(), other.port()], |_| {});
    let response = request(&mut proxy.client(), "POST", "/", "");
    assert_eq!(response.status, 502);
    assert_eq!(one.accepted() + other.accepted(), 1);
    // What is safe to repeat is tried at the other one too.
    let response = request(&mut proxy.client(), "PUT", "/", "");
    assert_eq!(response.status, 502);
    assert_eq!(one.accepted() + other.accepted(), 3);
}

#[test]
fn requests_wait_in_turn_for_a_connection() {
    let answer = [
        Action::ReadRequest,
        Action::Pause(Duration::from_millis(300)),
        Action::Send(OK.to_vec()),
    ];
    // One connection may serve all four, if the other one is slow.
    let slow = answer.iter().cycle().take(3 * 4).cloned();
    let backend = ScriptedBackend::start(vec![slow.chain([Action::Stall]).collect()]);
    let proxy = proxy_to(&[backend.port()], |plan| {
        plan.connections.limit = Some(2);
        plan.connections.queue = 2;
    });
    let mut clients: Vec<RawClient> = (0..5).map(|_| proxy.client()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        std::thread::sleep(Duration::from_millis(10));
    }
    let statuses: Vec<u16> = clients.iter_mut().map(|it| it.response().status).collect();
    assert_eq!(
        statuses,
        [200, 200, 200, 200, 503],
        "the fifth finds no place"
    );
    assert_eq!(backend.accepted(), 2);
}

#[test]
fn whoever_waits_too_long_is_told_when_to_come_back() {
    let backend = ScriptedBackend::start(vec![vec![Action::ReadRequest, Action::Stall]]);
    let proxy = proxy_to(&[backend.port()], |plan| {
        plan.connections.limit = Some(1);
        plan.connections.queue_time = Duration::from_millis(100);
    });
    let mut first = proxy.client();
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    testkit::wait_until("it is under way", || backend.accepted() == 1);
    let response = get(&proxy, "/");
    assert_eq!(response.status, 503);
    assert_eq!(response.header("retry-after"), Some("1"));
    // A place that is given up goes to the next.
    drop(first);
    let mut next = proxy.client();
    next.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    testkit::wait_until("it has the place", || backend.accepted() == 2);
}

#[test]
fn checks_take_an_endpoint_out_and_bring_it_back() {
    let healthy = Arc::new(AtomicBool::new(true));
    let shared = Arc::clone(&healthy);
    let sick = StrictBackend::answering(move |request| {
        let status = match request.target == "/health" && !shared.load(Ordering::SeqCst) {
            true => "500 Sick",
            false => "200 OK",
        };
        format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    let well = StrictBackend::start();
    let proxy = proxy_to(&[sick.port(), well.port()], |plan| {
        plan.health = Some(HealthCheck {
            path: "/health".to_owned(),
            every: Duration::from_millis(20),
            timeout: Duration::from_secs(2),
            status: None,
            healthy: 2,
            unhealthy: 2,
        });
    });
    let taken = || {
        let seen = || {
            let requests = sick.requests();
            requests.iter().filter(|it| it.target == "/orders").count()
        };
        let before = seen();
        for _ in 0..4 {
            assert_eq!(get(&proxy, "/orders").status, 200);
        }
        seen() - before
    };
    testkit::wait_until("both are used", || taken() == 2);
    healthy.store(false, Ordering::SeqCst);
    testkit::wait_until("the sick one is left out", || taken() == 0);
    let verdicts = proxy.engine.endpoint_verdicts();
    let down = verdicts.iter().filter(|(_, _, is_down)| *is_down);
    assert_eq!(down.count(), 1, "{verdicts:?}");
    healthy.store(true, Ordering::SeqCst);
    testkit::wait_until("it is back", || taken() == 2);
    let checks = well.requests();
    let checks = checks.iter().filter(|it| it.target == "/health");
    assert!(checks.count() > 3, "the other one is asked too");
}

#[test]
fn when_none_is_well_all_are_used() {
    let backend = StrictBackend::start();
    let proxy = proxy_to(&[backend.port(), free_port()], |plan| {
        plan.health = Some(HealthCheck {
            path: "/health".to_owned(),
            every: Duration::from_millis(20),
            timeout: Duration::from_secs(2),
            status: Some(204),
            healthy: 1,
            unhealthy: 1,
        });
    });
    testkit::wait_until("it has been asked", || backend.requests().len() > 2);
    for _ in 0..4 {
        assert_eq!(get(&proxy, "/").status, 200);
    }
}
