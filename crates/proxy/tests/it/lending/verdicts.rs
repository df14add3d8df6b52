//! What is counted as an endpoint's failure, and what is not.

use component::upstream::{Balance, Eject, EndpointPlan};

use super::*;
use crate::support::StepCall;

/// Two endpoints, of which the first answers with a head and then nothing, or not at all.
fn stalling(is_silent: &Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let is_silent = Arc::clone(is_silent);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let is_silent = Arc::clone(&is_silent);
            thread::spawn(move || {
                read_request(&mut stream);
                if is_silent.load(Ordering::SeqCst) {
                    return;
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nx");
                let _ = stream.read(&mut [0]);
            });
        }
    });
    port
}

/// A trial counts when the head is there: one by a stream kept the endpoint out for as long as the
/// stream lasted.
#[test]
fn a_trial_that_is_answered_brings_the_endpoint_back_at_once() {
    let is_silent = Arc::new(AtomicBool::new(true));
    let stalling = stalling(&is_silent);
    let good = StrictBackend::answering(|_| OK.to_vec());
    let plan = eject_at_once([stalling, good.port()]);
    let proxy = Proxy::forward(1, |forward| forward.upstream = Arc::new(plan), |_| {});
    for _ in 0..4 {
        assert_eq!(get(&mut proxy.client()), 200);
    }
    let metrics = Arc::clone(&proxy.engine.registry.workers()[0]);
    assert_eq!(metrics.upstream_ejections.get(), 1);
    is_silent.store(false, Ordering::SeqCst);
    thread::sleep(Duration::from_millis(250));
    // Each is sent to an endpoint in turn; those at the stalling one go on.
    let mut clients: Vec<RawClient> = (0..6).map(|_| proxy.client()).collect();
    let mut stalled = 0;
    for client in &mut clients {
        let before = good.requests().len();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let head = client.until(b"\r\n\r\n");
        assert!(head.starts_with(b"HTTP/1.1 200"));
        stalled += usize::from(good.requests().len() == before);
    }
    assert_eq!(stalled, 3, "it takes turns again while its trial goes on");
}

/// Clients that hang up say nothing about the endpoint.
#[test]
fn hang_ups_are_no_failures_of_the_endpoint() {
    let slow = CountingBackend::start(usize::MAX, Duration::from_secs(2));
    let good = StrictBackend::answering(|_| OK.to_vec());
    let plan = eject_at_once([slow.port, good.port()]);
    let proxy = Proxy::forward(1, |forward| forward.upstream = Arc::new(plan), |_| {});
    for round in 1..=3 {
        let mut client = proxy.client();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        wait_until("it is at the slow one", || slow.open() == 1);
        proxy.wait_until_idle_after(client);
        assert_eq!(get(&mut proxy.client()), 200);
        wait_until("its connection is closed", || slow.open() == 0);
        assert_eq!(good.requests().len(), round);
    }
    let metrics = Arc::clone(&proxy.engine.registry.workers()[0]);
    assert_eq!(metrics.upstream_ejections.get(), 0);
}

fn eject_at_once(ports: [u16; 2]) -> UpstreamPlan {
    upstream(1, |plan| {
        plan.endpoints = ports
            .into_iter()
            .map(|port| EndpointPlan {
                host: "127.0.0.1".to_owned(),
                port,
            })
            .collect();
        plan.balance = Balance::RoundRobin;
        plan.eject = Eject {
            failures: 1,
            time: Duration::from_millis(200),
        };
    })
}

/// What two requests get, one for each endpoint, and how many endpoints have been left out then.
fn two_requests(proxy: &Proxy) -> ([u16; 2], u64) {
    let statuses = [(); 2].map(|()| get(&mut proxy.client()));
    let metrics = &proxy.engine.registry.workers()[0];
    (statuses, metrics.upstream_ejections.get())
}

/// A proxy before two endpoints that are left out for long.
fn proxy_to(ports: [u16; 2], protocol: Protocol, change: impl FnOnce(&mut ForwardPlan)) -> Proxy {
    Proxy::forward(
        1,
        |plan| {
            *plan = plan_to(ports, protocol);
            change(plan);
        },
        |_| {},
    )
}

fn plan_to(ports: [u16; 2], protocol: Protocol) -> ForwardPlan {
    let mut upstream = eject_at_once(ports);
    upstream.protocols = vec![protocol];
    upstream.eject.time = Duration::from_secs(60);
    ForwardPlan {
        upstream: Arc::new(upstream),
        ..forward_plan(1)
    }
}

/// A back end that takes requests and never answers.
fn silent(protocol: Protocol) -> u16 {
    match protocol {
        Protocol::Http1 => {
            let script = vec![Action::ReadRequest, Action::Stall];
            ScriptedBackend::start(vec![script]).port()
        }
        Protocol::Http2 => http2_backend(|_, _, _| async {}),
    }
}

/// A reply that is late by the flow's own limit may be in time by the back end's.
#[test]
fn the_time_of_a_flow_is_no_failure_of_the_endpoint() {
    let time = Duration::from_millis(200);
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let ports = [silent(protocol), silent(protocol)];
        let flow = proxy_to(ports, protocol, |plan| plan.timeouts.total = Some(time));
        assert_eq!(two_requests(&flow), ([504; 2], 0), "{protocol:?}");
        let calling = StepCall::new(Arc::new(plan_to(ports, protocol)));
        let step = Proxy::handle(calling.giving_up_after(Some(time)));
        assert_eq!(two_requests(&step), ([504; 2], 0), "{protocol:?}");
        let late = proxy_to(ports, protocol, |plan| plan.timeouts.response = Some(time));
        assert_eq!(two_requests(&late), ([504; 2], 2), "{protocol:?}");
    }
}

/// A head with more fields than our limit is well-formed; others may take it.
#[test]
fn a_reply_above_our_own_limits_is_no_failure_of_the_endpoint() {
    let many = "x: y\r\n".repeat(131);
    for (fields, ejections) in [(&*many, 0), ("Content-Length: x\r\n", 2)] {
        let reply = format!("HTTP/1.1 200 OK\r\n{fields}\r\n").into_bytes();
        let backend = || {
            let script = vec![
                Action::ReadRequest,
                Action::Send(reply.clone()),
                Action::Stall,
            ];
            ScriptedBackend::start(vec![script]).port()
        };
        let proxy = proxy_to([backend(), backend()], Protocol::Http1, |_| {});
        assert_eq!(two_requests(&proxy), ([502; 2], ejections), "over HTTP/1.1");
    }
    // Protocols are not switched over HTTP/2.
    for (status, count, ejections) in [("200", 131, 0), ("101", 0, 2)] {
        let backend = || {
            http2_backend(move |_, connection, stream| async move {
                let fields = std::iter::repeat_n(("x", "y"), count);
                let head: Vec<_> = [(":status", status)].into_iter().chain(fields).collect();
                connection.send_head(stream, &head, true);
            })
        };
        let proxy = proxy_to([backend(), backend()], Protocol::Http2, |_| {});
        assert_eq!(two_requests(&proxy), ([502; 2], ejections), "over HTTP/2");
    }
}
