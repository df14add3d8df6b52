//! Calls that are dropped at each of their awaits, over real sockets: by a step's time-out, a
//! faster branch or a client that has left. Whatever they were doing, the one connection that there
//! may be serves the next call, with that one's own reply, and the endpoint has not failed.

use bytes::Bytes;
use std::collections::BTreeMap;

use component::forward::ForwardPlan;
use component::tls::Protocol;
use component::upstream::UpstreamPlan;
use message::{Headers, Method, Request};
use testkit::http2::{Connection, Role};
use testkit::poll_and_drop;
use testkit::wire::Wire;
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::worker::Engine;

/// Larger than what goes out at once, and than the window of a stream.
const LARGE: usize = 1 << 20;

/// A worker, and a system that it calls.
struct Setting {
    caller: Caller,
    upstream: Arc<UpstreamPlan>,
}

impl Setting {
    async fn new(protocol: Protocol) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                match protocol {
                    Protocol::Http1 => drop(tokio::task::spawn_local(answer_h1(stream))),
                    Protocol::Http2 => drop(tokio::task::spawn_local(answer_h2(stream))),
                }
            }
        });
        let worker = Worker::new(Share::WHOLE, Arc::new(Engine::new(None)));
        tokio::task::spawn_local(worker.deadlines.clone().sweep());
        let mut upstream = UpstreamPlan::single("127.0.0.1", port, None);
        upstream.protocols = vec![protocol];
        upstream.connections.limit = Some(1);
        // One that is alone would never be left out.
        upstream.endpoints.push(upstream.endpoints[0].clone());
        upstream.eject.failures = 1;
        Self {
            caller: Caller::new(&worker, &Rc::default()),
            upstream: Arc::new(upstream),
        }
    }

    /// Sends so many bytes to a path and takes what comes back.
    async fn call(&self, path: &str, size: usize) -> Bytes {
        self.call_for((path, size), 2 * LARGE as u64, false).await
    }

    /// The same with so much of the reply.
    async fn call_for(&self, (path, size): (&str, usize), most: u64, truncates: bool) -> Bytes {
        let plan = Arc::new(ForwardPlan::new(Arc::clone(&self.upstream), path));
        let body = vec![b'x'; size];
        let mut request = Request::of_source("POST", Headers::default(), body);
        request.method = Method::Post;
        let call = Call {
            body_max: Some(most),
            truncates,
            ..Call::new(&plan, &request, "test")
        };
        let reply = self.caller.call(call).await.unwrap();
        assert_eq!(reply.status, 200);
        let has_fields = !reply.headers.view().is_empty();
        assert!(!truncates || !has_fields, "nobody reads them");
        Bytes::copy_from_slice(reply.body.as_bytes())
    }
}

/// Content that names its path all the way through.
fn content(path: &str, size: usize) -> Vec<u8> {
    path.bytes().cycle().take(size).collect()
}

/// Answers requests of HTTP/1.1, each in several pieces once all of it is there, with as many bytes
/// as it has.
async fn answer_h1(stream: TcpStream) {
    let wire = Wire::accept(stream, None).await.unwrap();
    let mut input = Vec::new();
    loop {
        let Some(end) = input.windows(4).position(|it| it == b"\r\n\r\n") else {
            match wire.read(&mut input).await {
                Ok(1..) => continue,
                _ => return,
            }
        };
        let head = String::from_utf8(input.drain(..end + 4).collect()).unwrap();
        let fields: BTreeMap<String, &str> = head
            .lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(name, value)| (name.to_ascii_lowercase(), value))
            .collect();
        let size: usize = fields["content-length"].parse().unwrap();
        let path = head.split(' ').nth(1).unwrap();
        while input.len() < size {
            if !matches!(wire.read(&mut input).await, Ok(1..)) {
                return;
            }
        }
        assert!(input.drain(..size).all(|byte| byte == b'x'), "mixed up");
        let body = content(path, size);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
        let interim = "HTTP/1.1 103 Early Hints\r\n\r\n".as_bytes();
        let (first, second) = body.split_at(size / 2);
        for piece in [interim, head.as_bytes(), first, second] {
            if wire.write(piece).await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// The same over HTTP/2.
async fn answer_h2(stream: TcpStream) {
    let wire = Wire::accept(stream, None).await.unwrap();
    let connection = Connection::start(wire, Role::Server);
    while let Some(stream) = connection.accept().await {
        tokio::task::spawn_local(answer_stream(connection.clone(), stream));
    }
}

async fn answer_stream(connection: Connection, stream: u32) {
    let path = connection.with(|state| {
        let mut fields = state.streams[&stream].heads[0].iter();
        let path = fields.find(|(name, _)| name == ":path");
        path.unwrap().1.clone()
    });
    let mut size = 0;
    while let Ok(Some(piece)) = connection.take_data(stream, 100_000).await {
        assert!(piece.iter().all(|byte| *byte == b'x'), "mixed up");
        size += piece.len();
    }
    let body = content(&path, size);
    let (first, second) = body.split_at(size / 2);
    connection.send_head(stream, &[(":status", "103")], false);
    tokio::time::sleep(Duration::from_millis(2)).await;
    if connection.is_given_up(stream) {
        return;
    }
    connection.send_head(stream, &[(":status", "200")], false);
    for (piece, is_last) in [(first, false), (second, true)] {
        tokio::time::sleep(Duration::from_millis(2)).await;
        if connection.is_given_up(stream) || !connection.send_data(stream, piece, is_last, 0).await
        {
            return;
        }
    }
}

fn drop_everywhere(protocol: Protocol, size: usize) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build_local(Default::default());
    runtime.unwrap().block_on(async {
        let mut dropped = 0;
        for is_reused in [false, true] {
            for times in 0.. {
                let setting = Setting::new(protocol).await;
                if is_reused {
                    assert_eq!(*setting.call("/first", 10).await, *content("/first", 10));
                }
                let was_ready = poll_and_drop(setting.call("/dropped", size), times, || {
                    tokio::time::sleep(Duration::from_millis(1))
                })
                .await;
                let next = setting.call("/next", 1000);
                let next = tokio::time::timeout(Duration::from_secs(5), next).await;
                let next = next.expect("a permit is lost");
                assert_eq!(*next, *content("/next", 1000), "after {times}");
                let metrics = &setting.caller.worker.metrics;
                assert_eq!(metrics.upstream_ejections.get(), 0, "after {times}");
                assert_eq!(metrics.upstream_queue_refusals.get(), 0);
                if was_ready {
                    break;
                }
                dropped += 1;
            }
        }
        assert!(dropped > 10, "{dropped}");
    });
}

#[test]
fn calls_over_http1_may_be_dropped_anywhere() {
    drop_everywhere(Protocol::Http1, 1000);
    drop_everywhere(Protocol::Http1, LARGE);
}

#[test]
fn calls_over_http2_may_be_dropped_anywhere() {
    drop_everywhere(Protocol::Http2, 1000);
    drop_everywhere(Protocol::Http2, LARGE);
}

/// What is cut off is read all the same, up to a bound, so that the connection stays: there may be
/// only one.
#[test]
fn a_reply_that_is_cut_keeps_its_connection() {
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build_local(Default::default());
        runtime.unwrap().block_on(async {
            let setting = Setting::new(protocol).await;
            for size in [10, 1000, 300_000, LARGE + 10] {
                let cut = setting.call_for(("/cut", size), 100, true).await;
                assert_eq!(*cut, content("/cut", size)[..size.min(100)]);
            }
            // Too much to be read for nothing: the status is there.
            let cut = setting.call_for(("/cut", 2 * LARGE), 100, true).await;
            assert_eq!(*cut, content("/cut", 100));
            assert_eq!(*setting.call("/next", 1000).await, content("/next", 1000));
            let metrics = &setting.caller.worker.metrics;
            assert_eq!(metrics.upstream_ejections.get(), 0);
        });
    }
}

/// Each message that waits for a back end holds one, in two allocations below 1 KiB: the allocator
/// is slower for larger ones (decision 0066).
#[test]
fn a_call_is_small() {
    fn of_call<'a, F>(_: impl FnOnce(&'a OutboundCall<'a>, &'a Call<'a>) -> F) -> usize {
        size_of::<F>()
    }
    fn of_sending<'a, F>(_: impl FnOnce(&'a mut Collector<'a>, Order<'a>) -> F) -> usize {
        size_of::<F>()
    }
    let sizes = (of_call(OutboundCall::run), of_sending(send));
    assert!(sizes.0 <= 240 && sizes.1 <= 904, "{sizes:?}");
}
