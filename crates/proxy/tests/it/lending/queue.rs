//! Requests that wait for a connection: who leaves the queue, and which times hold while they wait.

use std::sync::Mutex;

use testkit::http2::frame;

use super::*;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
/// `GET /` as the first stream, with its end.
const GET_OVER_HTTP2: &[u8] = b"\x82\x86\x84\x41\x01a";
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;

fn send(proxy: &Proxy, path: &str) -> RawClient {
    let mut client = proxy.client();
    client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client
}

/// Waits until so many requests are with the worker.
fn wait_for_requests(proxy: &Proxy, count: u64) {
    wait_until("the worker has them", || {
        proxy.metrics().in_flight() == count
    });
}

#[test]
fn a_client_that_leaves_the_queue_makes_room_and_is_not_served() {
    for speaks_h2 in [false, true] {
        let arrived = Arc::<AtomicUsize>::default();
        let (go_on, gate) = mpsc::channel();
        let (count, gate) = (Arc::clone(&arrived), Mutex::new(gate));
        let backend = StrictBackend::answering(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            gate.lock().unwrap().recv().unwrap();
            OK.to_vec()
        });
        let plan = upstream(backend.port(), |plan| {
            plan.connections.limit = Some(1);
            plan.connections.queue = 1;
        });
        let proxy = Proxy::both(RouteTarget::Forward(Arc::new(ForwardPlan {
            upstream: Arc::new(plan),
            ..forward_plan(1)
        })));
        let mut first = send(&proxy, "/first");
        wait_until("it is under way", || arrived.load(Ordering::SeqCst) == 1);
        let mut leaving = match speaks_h2 {
            false => send(&proxy, "/leaving"),
            true => proxy.client(),
        };
        if speaks_h2 {
            leaving.send([PREFACE, &frame(HEADERS, 5, 1, GET_OVER_HTTP2)].concat());
        }
        wait_for_requests(&proxy, 2);
        assert_eq!(get(&mut proxy.client()), 503, "the queue is full");
        match speaks_h2 {
            false => drop(leaving),
            true => leaving.send(frame(RST_STREAM, 0, 1, &code::CANCEL.to_be_bytes())),
        }
        wait_for_requests(&proxy, 1);
        let mut next = send(&proxy, "/next");
        wait_for_requests(&proxy, 2);
        for client in [&mut first, &mut next] {
            go_on.send(()).unwrap();
            assert_eq!(client.response().status, 200, "HTTP/2: {speaks_h2}");
        }
        let requests = backend.requests();
        let targets: Vec<&str> = requests.iter().map(|it| &*it.target).collect();
        assert_eq!(targets, ["/first", "/next"]);
    }
}

/// The back end's time for the reply begins when the request is sent to it.
#[test]
fn time_in_the_queue_does_not_count_as_the_back_ends() {
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n".to_vec();
    let backend = ScriptedBackend::start(vec![vec![
        Action::ReadRequest,
        Action::Send(head),
        Action::Pause(Duration::from_millis(600)),
        Action::Send(b"ok".to_vec()),
        Action::ReadRequest,
        Action::Pause(Duration::from_millis(100)),
        Action::Send(OK.to_vec()),
        Action::Stall,
    ]]);
    let plan = upstream(backend.port(), |plan| plan.connections.limit = Some(1));
    let proxy = Proxy::forward(
        1,
        |forward| {
            forward.upstream = Arc::new(plan);
            forward.timeouts.response = Some(Duration::from_millis(300));
        },
        |_| {},
    );
    let mut first = send(&proxy, "/first");
    first.until(b"\r\n\r\n");
    let start = Instant::now();
    assert_eq!(get(&mut proxy.client()), 200);
    let time = start.elapsed();
    assert!(
        time >= Duration::from_millis(500),
        "it did not wait: {time:?}"
    );
}

/// The second request gets a kept connection that the back end closes under it, while a third one
/// has the permit by then.
#[test]
fn a_request_that_waits_again_has_no_more_time_than_it_had() {
    let backend = ScriptedBackend::start(vec![
        vec![
            Action::ReadRequest,
            Action::Pause(Duration::from_millis(700)),
            Action::Send(OK.to_vec()),
            Action::ReadRequest,
            Action::Close,
        ],
        vec![Action::ReadRequest, Action::Stall],
    ]);
    let queue_time = Duration::from_secs(1);
    let plan = upstream(backend.port(), |plan| {
        plan.connections.limit = Some(1);
        plan.connections.queue_time = queue_time;
    });
    let proxy = Proxy::forward(1, |forward| forward.upstream = Arc::new(plan), |_| {});
    let mut first = send(&proxy, "/first");
    wait_until("it is under way", || backend.received().contains("/first"));
    let start = Instant::now();
    let mut second = send(&proxy, "/second");
    wait_for_requests(&proxy, 2);
    let _third = send(&proxy, "/third");
    assert_eq!(first.response().status, 200);
    assert_eq!(second.response().status, 503);
    let waited = start.elapsed();
    let received = backend.received();
    assert!(received.contains("/second") && received.contains("/third"));
    assert!(waited >= queue_time, "{waited:?}");
    assert!(
        waited < queue_time * 3 / 2,
        "its time began anew: {waited:?}"
    );
}
