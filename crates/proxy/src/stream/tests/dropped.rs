//! Tunnels, event streams and plain replies that are dropped at each of their polls, over real
//! sockets: with the connection of the client, or with the whole worker. Whatever they were doing,
//! no lease, count or place among the streams is left, no connection is in the pool in the middle
//! of a reply, and the one connection that there may be serves the next request.

use std::cell::Cell;
use std::future::poll_fn;
use std::time::Duration;

use component::forward::ForwardPlan;
use component::plan::{ListenerPlan, RoutePlan, RouteTarget};
use component::resources::Share;
use component::stream_limits::StreamSettings;
use component::tls::Protocol;
use component::trigger::{ListenAddress, Methods, PathPattern};
use component::upstream::UpstreamPlan;
use net::http2::{Link, Role};
use testkit::http1::values;
use testkit::http2::Connection as Http2;
use testkit::poll_and_drop;
use testkit::wire::Wire;
use tokio::net::{TcpListener, TcpStream};

use super::super::*;
use crate::client::h2_request::{Origin as Peer, StreamSession};
use crate::client::listener::{Acceptor, Service};
use crate::client::reception;
use crate::router::{ForwardTargets, Table};
use crate::upstream::Upstream;
use crate::upstream::h2_driver::http2_limits;
use crate::worker::Engine;

/// What is sent with a request for a plain reply.
const BODY: &[u8] = b"of the request";
const EVENTS: &[&str] = &["data: one\n\n", ": quiet\n\ndata: ", "two\n\n"];
/// Frames of a client (RFC 6455, section 5.7), masked with zeros: a text, and a close.
const TEXT: &[u8] = b"\x81\x85\0\0\0\0hello";
const CLOSE: &[u8] = b"\x88\x82\0\0\0\0\x03\xe8";
/// Between two polls all others get as far as they can.
const TICK: Duration = Duration::from_millis(1);
const PAUSE: Duration = Duration::from_millis(2);

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `101 Switching Protocols`, whose client sends the first close frame.
    Tunnel,
    /// The same; the back end closes its connection without one.
    CutTunnel,
    /// An event stream that ends.
    Events,
    /// The same bytes as a plain reply to a request with a body, which no task of its own takes
    /// over.
    Reply,
}

impl Kind {
    fn method(self) -> &'static str {
        match self {
            Self::Reply => "POST",
            _ => "GET",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Tunnel => "/tunnel",
            Self::CutTunnel => "/cut",
            Self::Events => "/events",
            Self::Reply => "/reply",
        }
    }
}

/// A worker with one flow, which may have one stream, over one connection to its back end.
struct Setting {
    worker: Rc<Worker>,
    listener: Rc<Listener>,
    upstream: Rc<Upstream>,
    metrics: Arc<FlowMetrics>,
    limits: Arc<StreamLimits>,
    /// How many connections the back end has.
    open: Rc<Cell<usize>>,
    clients: TcpListener,
}

impl Setting {
    async fn new(upstream_protocol: Protocol) -> Self {
        let backend = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = backend.local_addr().unwrap().port();
        let open = Rc::<Cell<usize>>::default();
        let count = Rc::clone(&open);
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = backend.accept().await {
                let count = Rc::clone(&count);
                count.set(count.get() + 1);
                tokio::task::spawn_local(async move {
                    match upstream_protocol {
                        Protocol::Http1 => answer_h1(stream).await,
                        Protocol::Http2 => answer_h2(stream).await,
                    }
                    count.set(count.get() - 1);
                });
            }
        });
        let worker = Worker::new(Share::WHOLE, Arc::new(Engine::new(None)));
        tokio::task::spawn_local(worker.deadlines.clone().sweep());
        let mut upstream = UpstreamPlan::single("127.0.0.1", port, None);
        upstream.protocols = vec![upstream_protocol];
        upstream.connections.limit = Some(1);
        let limits = Arc::new(StreamLimits::new(StreamSettings {
            connections: Some(1),
            messages: None,
        }));
        let plan = Arc::new(ForwardPlan {
            appends_rest: true,
            streams: Some(Arc::clone(&limits)),
            ..ForwardPlan::new(Arc::new(upstream), "/")
        });
        let targets = ForwardTargets::default();
        let target = targets.get(&plan, &worker.upstreams);
        let address = ListenAddress {
            host: None,
            port: 1,
        };
        let listener_plan = ListenerPlan {
            address: address.clone(),
            tls: None,
            protocols: vec![Protocol::Http1, Protocol::Http2],
            edge: Default::default(),
            routes: vec![RoutePlan {
                door: None,
                flow: "test".into(),
                methods: Methods::Any,
                path: PathPattern {
                    segments: Vec::new(),
                    rest: true,
                },
                edge: None,
                target: RouteTarget::Forward(plan),
            }],
        };
        let registry = &worker.engine.registry;
        let table = Table::new(&listener_plan, 0, registry, &worker.upstreams);
        let service = Service {
            table: Rc::new(table),
            tls: None,
            takes_h2: true,
            takes_h1: true,
            settings: Rc::default(),
            entry: None,
        };
        Self {
            listener: Acceptor::new(address, service).listener(),
            upstream: Rc::clone(&target.upstream),
            metrics: registry.flow(0, &"test".into()),
            limits,
            open,
            clients: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            worker,
        }
    }

    /// A new connection: the client's side and ours.
    async fn connect(&self) -> (TcpStream, Connection) {
        let address = self.clients.local_addr().unwrap();
        let client = TcpStream::connect(address).await.unwrap();
        let (accepted, peer) = self.clients.accept().await.unwrap();
        (client, Connection::new(accepted, peer).unwrap())
    }

    /// All that the engine does with a client's connection, in one future.
    async fn serve(&self, connection: Connection) {
        let guest = Guest::enter(&self.worker);
        let (worker, listener) = (Rc::clone(&self.worker), Rc::clone(&self.listener));
        if let Some(stream) = reception::receive(worker, listener, connection).await {
            stream.run(guest).await;
        }
    }

    /// Waits until nothing is left of what has been under way.
    async fn rests(&self, case: &str) {
        let mut left = String::new();
        for _ in 0..5000 {
            // A connection of HTTP/2 is never idle to the pool.
            let (exchanges, lent) = self.upstream.under_way(0);
            let lent = match self.upstream.plan.protocols[0] {
                Protocol::Http1 => lent + self.open.get().abs_diff(self.upstream.idle(0)),
                Protocol::Http2 => 0,
            };
            let flow = (self.metrics.in_flight(), self.metrics.streams_open());
            let clients = self.worker.engine.connection_count();
            if (exchanges, lent, flow, clients) == (0, 0, (0, 0), 0) && !self.limits.is_full() {
                return;
            }
            left = format!(
                "{exchanges} exchanges, {lent} connections lent, {flow:?} requests and streams, \
                 {clients} clients"
            );
            tokio::time::sleep(TICK).await;
        }
        panic!("{case}: {left}");
    }

    /// Asks for an event stream over HTTP/1.1, and gets all of it.
    async fn asks_again(&self, case: &str) {
        let (client, connection) = self.connect().await;
        let client = tokio::task::spawn_local(ask_h1(client, Kind::Events));
        let both = async {
            self.serve(connection).await;
            client.await.unwrap()
        };
        let got = tokio::time::timeout(Duration::from_secs(20), both).await;
        let got = got.unwrap_or_else(|_| panic!("{case}: a permit or a place is lost"));
        assert_eq!(content(&got), EVENTS.concat(), "{case}");
        self.rests(case).await;
        assert_eq!(self.worker.metrics.upstream_ejections.get(), 0, "{case}");
    }
}

/// Asks over HTTP/1.1 and takes what comes until the end of the connection, which it closes itself
/// behind the last chunk.
async fn ask_h1(stream: TcpStream, kind: Kind) -> Vec<u8> {
    let wire = Wire::accept(stream, None).await.unwrap();
    let mut input = Vec::new();
    let head = match kind {
        Kind::Events => format!("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", kind.path()),
        Kind::Reply => format!(
            "POST {} HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            kind.path(),
            BODY.len()
        ),
        Kind::Tunnel | Kind::CutTunnel => format!(
            "GET {} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
            kind.path()
        ),
    };
    let (first, second) = head.as_bytes().split_at(12);
    let body = match kind {
        Kind::Reply => BODY.split_at(3),
        _ => (&[][..], &[][..]),
    };
    for piece in [first, second, body.0, body.1] {
        if wire.write(piece).await.is_err() {
            return input;
        }
        tokio::time::sleep(PAUSE).await;
    }
    let mut frames = match kind {
        Kind::Tunnel => vec![CLOSE, TEXT, TEXT],
        Kind::CutTunnel => vec![TEXT],
        Kind::Events | Kind::Reply => Vec::new(),
    };
    let mut answered = 0;
    loop {
        let has_head = input.windows(4).any(|it| it == b"\r\n\r\n");
        if has_head && input.len() > answered {
            answered = input.len();
            if let Some(frame) = frames.pop() {
                let (first, second) = frame.split_at(3);
                for piece in [first, second] {
                    let _ = wire.write(piece).await;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        if input.ends_with(b"0\r\n\r\n") {
            wire.finish().await;
        }
        match wire.read(&mut input).await {
            Ok(1..) => {}
            _ => return input,
        }
    }
}

/// The events of a reply in chunks; its end shows only where it has one.
fn content(reply: &[u8]) -> String {
    let text = String::from_utf8_lossy(reply);
    let (_, mut rest) = text.split_once("\r\n\r\n").unwrap_or_default();
    let mut content = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        let Some(chunk) = after.get(..size) else {
            break;
        };
        content.push_str(chunk);
        rest = after.get(size + 2..).unwrap_or_default();
    }
    content
}

/// Answers requests of HTTP/1.1, in many pieces.
async fn answer_h1(stream: TcpStream) {
    let wire = Wire::accept(stream, None).await.unwrap();
    let mut input = Vec::new();
    loop {
        while !input.windows(4).any(|it| it == b"\r\n\r\n") {
            let Ok(1..) = wire.read(&mut input).await else {
                return;
            };
        }
        let head = String::from_utf8_lossy(&input).into_owned();
        let is_reply = head.starts_with("POST /reply ");
        while is_reply && !input.ends_with(BODY) {
            let Ok(1..) = wire.read(&mut input).await else {
                return;
            };
        }
        input.clear();
        if !is_reply && !head.starts_with("GET /events ") {
            return switch(&wire, head.starts_with("GET /cut ")).await;
        }
        let chunk = |text: &&str| format!("{:x}\r\n{text}\r\n", text.len());
        let mut pieces: Vec<String> = EVENTS.iter().map(chunk).collect();
        pieces.insert(0, "Transfer-Encoding: chunked\r\n\r\n".to_owned());
        let content_type = content_type(is_reply);
        let start = format!("HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n");
        pieces.insert(0, start);
        pieces.extend(["0\r\n".to_owned(), "\r\n".to_owned()]);
        if !write_all(&wire, pieces.iter().map(String::as_bytes)).await {
            return;
        }
    }
}

fn content_type(is_reply: bool) -> &'static str {
    match is_reply {
        true => "text/plain",
        false => "text/event-stream",
    }
}

/// Switches to WebSocket and answers a frame with one, and a close frame with the end; one that
/// cuts ends before.
async fn switch(wire: &Wire, cuts: bool) {
    let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n";
    let pieces = [
        head.as_bytes(),
        b"Upgrade: websocket\r\n\r\n",
        b"\x81\x02h",
        b"i",
    ];
    if !write_all(wire, pieces.into_iter()).await {
        return;
    }
    let mut input = Vec::new();
    while let Ok(1..) = wire.read(&mut input).await {
        let is_close = input.contains(&CLOSE[0]);
        if is_close || cuts {
            break;
        }
        if !write_all(wire, [&b"\x82\x01"[..], b"x"].into_iter()).await {
            return;
        }
    }
    if !cuts {
        let _ = write_all(wire, [&b"\x88\x02\x03"[..], b"\xe8"].into_iter()).await;
    }
    wire.finish().await;
    // The rest of what is sent is read: a reset would take what is on its way with it.
    while let Ok(1..) = wire.read(&mut input).await {}
}

/// Writes pieces one by one; false when nobody takes them.
async fn write_all<'a>(wire: &Wire, pieces: impl Iterator<Item = &'a [u8]>) -> bool {
    for piece in pieces {
        if wire.write(piece).await.is_err() {
            return false;
        }
        tokio::time::sleep(PAUSE).await;
    }
    true
}

/// The event stream, or the plain reply, over HTTP/2.
async fn answer_h2(stream: TcpStream) {
    let wire = Wire::accept(stream, None).await.unwrap();
    let connection = Http2::start(wire, testkit::http2::Role::Server);
    while let Some(stream) = connection.accept().await {
        let connection = connection.clone();
        tokio::task::spawn_local(async move {
            while let Ok(Some(_part)) = connection.take_data(stream, 1000).await {}
            tokio::time::sleep(PAUSE).await;
            if connection.is_given_up(stream) {
                return;
            }
            let is_reply = connection.with(|state| {
                let head = &state.streams[&stream].heads[0];
                values(head, ":path") == [Kind::Reply.path()]
            });
            let content_type = content_type(is_reply);
            let head = [(":status", "200"), ("content-type", content_type)];
            connection.send_head(stream, &head, false);
            for (at, piece) in EVENTS.iter().enumerate() {
                tokio::time::sleep(PAUSE).await;
                let is_last = at + 1 == EVENTS.len();
                if connection.is_given_up(stream)
                    || !connection
                        .send_data(stream, piece.as_bytes(), is_last, 0)
                        .await
                {
                    return;
                }
            }
        });
    }
}

/// Asks for an event stream or a plain reply over HTTP/2; what came, and whether that was all.
async fn ask_h2(stream: TcpStream, kind: Kind) -> (Vec<u8>, bool) {
    let wire = Wire::accept(stream, None).await.unwrap();
    let connection = Http2::start(wire, testkit::http2::Role::Client);
    let stream = connection.open();
    let length = BODY.len().to_string();
    let head = [
        (":method", kind.method()),
        (":scheme", "http"),
        (":authority", "a"),
        (":path", kind.path()),
        ("content-length", &length),
    ];
    let head = match kind {
        Kind::Reply => &head[..],
        _ => &head[..4],
    };
    connection.send_head(stream, head, kind != Kind::Reply);
    if kind == Kind::Reply {
        let (first, second) = BODY.split_at(3);
        for (piece, is_last) in [(first, false), (second, true)] {
            tokio::time::sleep(PAUSE).await;
            if !connection.is_given_up(stream) {
                connection.send_data(stream, piece, is_last, 0).await;
            }
        }
    }
    let mut content = Vec::new();
    let is_whole = loop {
        match connection.take_data(stream, 1000).await {
            Ok(Some(piece)) => content.extend(piece),
            Ok(None) => break true,
            Err(_) => break false,
        }
    };
    connection.close();
    (content, is_whole)
}

fn run(test: impl Future<Output = ()>) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build_local(Default::default());
    runtime.unwrap().block_on(test);
}

/// Drops the client's connection with all that hangs on it, at each of its polls: before the
/// request has come, while it is answered, in the middle of the stream, and while that ends.
fn drop_everywhere(protocol: Protocol, kind: Kind) {
    run(async {
        let mut stages = [0, 0];
        for is_reused in [false, true] {
            for times in 0.. {
                let case = format!("{kind:?} over {protocol:?}, reused {is_reused}, {times} polls");
                let setting = Setting::new(protocol).await;
                if is_reused {
                    setting.asks_again(&case).await;
                }
                let before = setting.metrics.streams_opened.get();
                let (client, connection) = setting.connect().await;
                let client = tokio::task::spawn_local(ask_h1(client, kind));
                let serving = setting.serve(connection);
                let was_ready = poll_and_drop(serving, times, || tokio::time::sleep(TICK)).await;
                setting.rests(&case).await;
                // The client has been told: it waits for no more.
                let got = client.await.unwrap();
                let has_chunks = matches!(kind, Kind::Events | Kind::Reply);
                if has_chunks && got.ends_with(b"\r\n0\r\n\r\n") {
                    assert_eq!(content(&got), EVENTS.concat(), "{case}: it looks whole");
                }
                let was_open = setting.metrics.streams_opened.get() > before;
                setting.asks_again(&case).await;
                if was_ready {
                    break;
                }
                stages[usize::from(was_open)] += 1;
            }
        }
        match kind {
            Kind::Reply => assert!(stages[0] > 12 && stages[1] == 0, "{stages:?}"),
            _ => assert!(stages.iter().all(|count| *count > 2), "{stages:?}"),
        }
    });
}

#[test]
fn a_tunnel_may_be_dropped_anywhere() {
    drop_everywhere(Protocol::Http1, Kind::Tunnel);
}

#[test]
fn a_tunnel_whose_back_end_leaves_may_be_dropped_anywhere() {
    drop_everywhere(Protocol::Http1, Kind::CutTunnel);
}

#[test]
fn an_event_stream_from_http1_may_be_dropped_anywhere() {
    drop_everywhere(Protocol::Http1, Kind::Events);
}

#[test]
fn an_event_stream_from_http2_may_be_dropped_anywhere() {
    drop_everywhere(Protocol::Http2, Kind::Events);
}

#[test]
fn a_plain_reply_may_be_dropped_anywhere() {
    drop_everywhere(Protocol::Http1, Kind::Reply);
    drop_everywhere(Protocol::Http2, Kind::Reply);
}

/// Versions of the back end's side, and what is asked for over HTTP/2.
const OVER_HTTP2: [(Protocol, Kind); 4] = [
    (Protocol::Http1, Kind::Events),
    (Protocol::Http2, Kind::Events),
    (Protocol::Http1, Kind::Reply),
    (Protocol::Http2, Kind::Reply),
];

/// The connection of an HTTP/2 client is dropped: its streams are tasks of their own, which end.
#[test]
fn a_reply_to_http2_ends_with_its_connection() {
    for (protocol, kind) in OVER_HTTP2 {
        run(async {
            let mut cut = 0;
            for times in 0.. {
                let case = format!("{kind:?} to HTTP/2 from {protocol:?}, {times} polls");
                let setting = Setting::new(protocol).await;
                let (client, connection) = setting.connect().await;
                let client = tokio::task::spawn_local(ask_h2(client, kind));
                let serving = setting.serve(connection);
                let was_ready = poll_and_drop(serving, times, || tokio::time::sleep(TICK)).await;
                setting.rests(&case).await;
                let (content, is_whole) = client.await.unwrap();
                assert!(!is_whole || content == EVENTS.concat().as_bytes(), "{case}");
                cut += usize::from(!is_whole);
                setting.asks_again(&case).await;
                if was_ready {
                    break;
                }
            }
            assert!(cut > 6, "{cut}");
        });
    }
}

/// The request of an HTTP/2 client is dropped while its connection stays: up to where a task of its
/// own takes the stream over.
#[test]
fn a_request_over_http2_may_be_dropped_anywhere() {
    for (protocol, kind) in OVER_HTTP2 {
        run(async {
            for times in 0.. {
                let case = format!("{kind:?} over HTTP/2 to {protocol:?}, {times} polls");
                let setting = Setting::new(protocol).await;
                let (client, connection) = setting.connect().await;
                let client = tokio::task::spawn_local(ask_h2(client, kind));
                let origin = Peer {
                    peer: connection.peer(),
                    is_secure: false,
                    certificate: None,
                };
                let limits = http2_limits(&setting.worker.settings());
                let (_link, mut driver) =
                    Link::new(connection, Role::Server, limits, Rc::default());
                let stream = poll_fn(|context| driver.poll_next(context)).await.unwrap();
                let driving = tokio::task::spawn_local(async move {
                    while poll_fn(|context| driver.poll_next(context)).await.is_some() {}
                });
                let owners = (Rc::clone(&setting.worker), Rc::clone(&setting.listener));
                let request = StreamSession::new(owners.0, owners.1, stream, origin).run();
                let was_ready = poll_and_drop(request, times, || tokio::time::sleep(TICK)).await;
                let (content, is_whole) = client.await.unwrap();
                assert!(!is_whole || content == EVENTS.concat().as_bytes(), "{case}");
                assert_eq!(is_whole, was_ready, "{case}: the client waits for no more");
                driving.await.unwrap();
                setting.rests(&case).await;
                setting.asks_again(&case).await;
                if was_ready {
                    assert!(times > 1);
                    break;
                }
            }
        });
    }
}

/// The worker ends with all of its tasks, those that run streams included, as at the end of a drain
/// that has taken too long.
#[test]
fn nothing_is_left_of_streams_that_end_with_their_worker() {
    let kinds = [Kind::Tunnel, Kind::CutTunnel, Kind::Events, Kind::Reply];
    for (kind, is_http2) in kinds
        .map(|kind| (kind, false))
        .into_iter()
        .chain([(Kind::Events, true), (Kind::Reply, true)])
    {
        for ticks in 0.. {
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime
                .enable_all()
                .build_local(Default::default())
                .unwrap();
            let (setting, is_over) = runtime.block_on(async {
                let setting = Rc::new(Setting::new(Protocol::Http1).await);
                let (client, connection) = setting.connect().await;
                let served = Rc::clone(&setting);
                let serving = tokio::task::spawn_local(async move {
                    served.serve(connection).await;
                });
                let asking = match is_http2 {
                    true => tokio::task::spawn_local(async move {
                        drop(ask_h2(client, kind).await);
                    }),
                    false => tokio::task::spawn_local(async move {
                        drop(ask_h1(client, kind).await);
                    }),
                };
                for _ in 0..ticks {
                    tokio::time::sleep(TICK).await;
                }
                let is_over = serving.is_finished() && asking.is_finished();
                (setting, is_over)
            });
            drop(runtime);
            let case = format!("{kind:?}, HTTP/2 {is_http2}, {ticks} ticks");
            let (exchanges, lent) = setting.upstream.under_way(0);
            assert_eq!((exchanges, lent), (0, 0), "{case}");
            let flow = (setting.metrics.in_flight(), setting.metrics.streams_open());
            assert_eq!(flow, (0, 0), "{case}");
            assert!(!setting.limits.is_full(), "{case}");
            assert_eq!(setting.worker.engine.connection_count(), 0, "{case}");
            if is_over {
                assert!(ticks > 5);
                break;
            }
        }
    }
}
