//! Connections to a back end with a limit, shared by the workers of one process, and those that
//! many requests wait for.

mod queue;
mod verdicts;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use component::forward::ForwardPlan;
use component::observe::WorkerMetrics;
use component::plan::{ListenerPlan, Plan, RoutePlan, RouteTarget};
use component::settings::Settings;
use component::tls::{Protocol, UpstreamTls};
use component::trigger::{ListenAddress, Methods, PathPattern};
use component::upstream::{HealthCheck, UpstreamPlan};
use net::tls::{
    Client, ClientAuth, ClientSettings, Identity, MinVersion, Roots, Server, ServerSettings, Trust,
};
use proxy::{Command, Engine, OpenListener, TlsTable, Worker, WorkerSetup};
use testkit::http2::code;
use testkit::{
    Action, Authority, RawClient, ScriptedBackend, StrictBackend, free_port, wait_until,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use crate::support::{Proxy, forward_plan, http2_backend};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Workers of one process, each with a listener of its own, so that a test chooses between them.
struct Workers {
    engine: Arc<Engine>,
    ports: Vec<u16>,
    commands: Vec<UnboundedSender<Command>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    fn start(count: usize, upstream: &UpstreamPlan) -> Self {
        Self::serving(count, upstream, |_| TlsTable::default())
    }

    fn serving(
        count: usize,
        upstream: &UpstreamPlan,
        tls: impl Fn(&Arc<UpstreamPlan>) -> TlsTable,
    ) -> Self {
        let mut workers = Self {
            engine: Arc::new(Engine::new(None)),
            ports: (0..count).map(|_| free_port()).collect(),
            commands: Vec::new(),
            threads: Vec::new(),
        };
        for number in 0..count {
            let (commands, receiver) = unbounded_channel();
            let setup = WorkerSetup {
                number,
                count,
                engine: Arc::clone(&workers.engine),
                commands: receiver,
            };
            workers.commands.push(commands);
            let run = move || Worker::run(setup).unwrap();
            workers.threads.push(thread::spawn(run));
        }
        workers.order(upstream, true, tls);
        workers
    }

    /// Has all workers serve this upstream instead.
    fn reload(&self, upstream: &UpstreamPlan) {
        self.order(upstream, false, |_| TlsTable::default());
    }

    fn order(
        &self,
        upstream: &UpstreamPlan,
        opens: bool,
        tls: impl Fn(&Arc<UpstreamPlan>) -> TlsTable,
    ) {
        let upstream = Arc::new(upstream.clone());
        let tls = Arc::new(tls(&upstream));
        let plan = ForwardPlan {
            upstream,
            ..forward_plan(1)
        };
        let target = RouteTarget::Forward(Arc::new(plan));
        for (port, commands) in self.ports.iter().zip(&self.commands) {
            let address = address(*port);
            let opened = opens.then(|| OpenListener {
                address: address.clone(),
                socket: net::listen::bind(Some("127.0.0.1"), *port, 1)
                    .unwrap()
                    .remove(0),
            });
            let (applied, mut done) = unbounded_channel();
            let order = Command::Serve {
                plan: Arc::new(plan_of(address, vec![Protocol::Http1], target.clone())),
                tls: Arc::clone(&tls),
                opened: opened.into_iter().collect(),
                applied,
            };
            commands.send(order).ok().unwrap();
            done.blocking_recv().unwrap();
        }
    }

    fn client(&self, worker: usize) -> RawClient {
        RawClient::connect(self.ports[worker])
    }

    fn metrics(&self, worker: usize) -> Arc<WorkerMetrics> {
        Arc::clone(&self.engine.registry.workers()[worker])
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for commands in &self.commands {
            let _ = commands.send(Command::Drain);
        }
        for thread in self.threads.drain(..) {
            let result = thread.join();
            assert!(
                result.is_ok() || thread::panicking(),
                "a worker has panicked"
            );
        }
    }
}

fn address(port: u16) -> ListenAddress {
    ListenAddress {
        host: Some("127.0.0.1".to_owned()),
        port,
    }
}

fn plan_of(address: ListenAddress, protocols: Vec<Protocol>, target: RouteTarget) -> Plan {
    let route = RoutePlan {
        door: None,
        flow: "test".into(),
        methods: Methods::Any,
        path: PathPattern {
            segments: Vec::new(),
            rest: true,
        },
        edge: None,
        target,
    };
    let listener = ListenerPlan {
        address,
        tls: None,
        protocols,
        edge: Default::default(),
        routes: vec![route],
    };
    let RouteTarget::Forward(forward) = &listener.routes[0].target else {
        panic!("these tests forward");
    };
    Plan {
        upstreams: vec![Arc::clone(&forward.upstream)],
        listeners: vec![listener],
        settings: Settings::default(),
        ..Plan::default()
    }
}

fn upstream(port: u16, change: impl FnOnce(&mut UpstreamPlan)) -> UpstreamPlan {
    let mut upstream = UpstreamPlan::single("127.0.0.1", port, None);
    change(&mut upstream);
    upstream
}

fn get(client: &mut RawClient) -> u16 {
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.response().status
}

/// A back end that counts its connections.
struct CountingBackend {
    port: u16,
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl CountingBackend {
    /// After so many requests on a connection it takes the next one and closes without a reply.
    fn start(served: usize, delay: Duration) -> Self {
        Self::expecting(usize::MAX, served, delay)
    }

    /// The same, for at most so many connections: the end of one that the other side has closed
    /// before it makes the next one is awaited before the next one counts.
    fn expecting(limit: usize, served: usize, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let backend = Self {
            port: listener.local_addr().unwrap().port(),
            open: Arc::default(),
            most: Arc::default(),
        };
        let (open, most) = (Arc::clone(&backend.open), Arc::clone(&backend.most));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let start = Instant::now();
                while open.load(Ordering::SeqCst) >= limit && start.elapsed().as_secs() < 2 {
                    thread::sleep(Duration::from_millis(1));
                }
                let now = open.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(now, Ordering::SeqCst);
                let open = Arc::clone(&open);
                thread::spawn(move || {
                    serve(stream, served, delay, &open);
                });
            }
        });
        backend
    }

    fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// The most connections at a time.
    fn most(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}

fn serve(mut stream: TcpStream, served: usize, delay: Duration, open: &AtomicUsize) {
    for _ in 0..served {
        if !read_request(&mut stream) {
            break;
        }
        thread::sleep(delay);
        if stream.write_all(OK).is_err() {
            break;
        }
    }
    read_request(&mut stream);
    // Before the other side can see it.
    open.fetch_sub(1, Ordering::SeqCst);
}

fn read_request(stream: &mut TcpStream) -> bool {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return false,
        }
    }
    true
}

/// Clients, each in a thread, that send so many requests one after the other.
fn hammer(workers: &Workers, clients: usize, requests: usize) -> Vec<u16> {
    let count = workers.ports.len();
    let (results, statuses) = mpsc::channel();
    for number in 0..clients {
        let mut client = workers.client(number % count);
        let results = results.clone();
        thread::spawn(move || {
            for _ in 0..requests {
                results.send(get(&mut client)).unwrap();
            }
        });
    }
    drop(results);
    statuses.into_iter().collect()
}

/// With one connection, six clients, and a back end that closes it now and then, requests were
/// refused for as long as others came: the waiter that was called needed a new connection, and an
/// idle one that it could not use held the permit.
#[test]
fn one_connection_that_breaks_now_and_then_serves_all() {
    let backend = CountingBackend::expecting(1, 5, Duration::from_millis(1));
    let plan = upstream(backend.port, |plan| plan.connections.limit = Some(1));
    let workers = Workers::start(1, &plan);
    let statuses = hammer(&workers, 6, 30);
    let served = statuses.iter().filter(|status| **status == 200).count();
    assert_eq!(served, 180, "{statuses:?}");
    assert_eq!(backend.most(), 1);
}

#[test]
fn a_limit_below_the_number_of_workers_is_shared_by_them() {
    let backend = CountingBackend::expecting(1, usize::MAX, Duration::ZERO);
    let plan = upstream(backend.port, |plan| plan.connections.limit = Some(1));
    let workers = Workers::start(3, &plan);
    let mut clients: Vec<RawClient> = (0..3).map(|at| workers.client(at)).collect();
    let start = Instant::now();
    for round in 0..5 {
        for client in &mut clients {
            // The one connection idles at another worker.
            assert_eq!(get(client), 200, "round {round}");
        }
    }
    assert!(start.elapsed() < plan.connections.queue_time);
    assert_eq!(backend.most(), 1);
}

#[test]
fn a_limit_is_exact_over_all_workers_under_load() {
    let backend = CountingBackend::expecting(3, 40, Duration::from_millis(1));
    let plan = upstream(backend.port, |plan| plan.connections.limit = Some(3));
    let workers = Workers::start(2, &plan);
    let statuses = hammer(&workers, 12, 40);
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    assert_eq!(statuses.len(), 480);
    assert!(backend.most() <= 3, "{}", backend.most());
}

/// Makes fifty clients of two workers share one connection; returns how many were made in which
/// time.
fn share_one_connection(workers: &Workers) -> (u64, Duration) {
    let start = Instant::now();
    let statuses = hammer(workers, 50, 60);
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    assert_eq!(statuses.len(), 3000);
    let connects = (0..2).map(|at| workers.metrics(at).upstream_connects.get());
    (connects.sum(), start.elapsed())
}

/// How many connections may be made in this time: ten a second, and some more while the clients
/// begin and end, and where the machine holds all clients of a worker up.
fn connects_max(time: Duration) -> u64 {
    10 + time.as_millis() as u64 / 60
}

/// It went to the other worker after every eight requests.
#[test]
fn workers_share_one_connection_without_making_it_anew_all_the_time() {
    let backend = CountingBackend::expecting(1, usize::MAX, Duration::ZERO);
    let plan = upstream(backend.port, |plan| plan.connections.limit = Some(1));
    let workers = Workers::start(2, &plan);
    let (connects, time) = share_one_connection(&workers);
    assert!(connects <= connects_max(time), "{connects} in {time:?}");
    assert_eq!(backend.most(), 1);
}

/// It went to the other worker whenever no stream was open for a moment.
#[test]
fn workers_share_one_http2_connection_without_making_it_anew_all_the_time() {
    let plain = StrictBackend::answering(|_| OK.to_vec());
    let secure = SecureBackend::start(plain.port());
    let plan = upstream(secure.workers.ports[0], |plan| {
        both_protocols(plan);
        plan.connections.limit = Some(1);
    });
    let workers = Workers::serving(2, &plan, |plan| TlsTable {
        servers: Vec::new(),
        clients: vec![(Arc::clone(plan), vec![secure.client.clone()])],
    });
    let (connects, time) = share_one_connection(&workers);
    assert!(connects <= connects_max(time), "{connects} in {time:?}");
}

#[test]
fn a_queue_is_exact_over_all_workers() {
    let backend = CountingBackend::start(usize::MAX, Duration::from_millis(300));
    let plan = upstream(backend.port, |plan| {
        plan.connections.limit = Some(1);
        plan.connections.queue = 3;
    });
    let workers = Workers::start(2, &plan);
    let statuses = hammer(&workers, 10, 1);
    let served = statuses.iter().filter(|status| **status == 200).count();
    let refused = statuses.iter().filter(|status| **status == 503).count();
    assert_eq!((served, refused), (4, 6), "{statuses:?}");
}

#[test]
fn a_reload_changes_a_limit_for_open_connections_too() {
    let backend = CountingBackend::start(usize::MAX, Duration::from_millis(20));
    let free = upstream(backend.port, |_| {});
    let workers = Workers::start(2, &free);
    hammer(&workers, 8, 2);
    assert!(backend.open() > 2, "{}", backend.open());
    let limited = upstream(backend.port, |plan| plan.connections.limit = Some(1));
    workers.reload(&limited);
    wait_until("those above the limit are closed", || backend.open() <= 1);
    let connects = (0..2).map(|at| workers.metrics(at).upstream_connects.get());
    let before: u64 = connects.sum();
    let mut clients = [workers.client(0), workers.client(1)];
    for client in &mut clients {
        assert_eq!(get(client), 200);
        wait_until("the other one is closed", || backend.open() <= 1);
    }
    workers.reload(&free);
    assert!(hammer(&workers, 4, 2).iter().all(|status| *status == 200));
    assert!(before > 0);
}

/// Queue time is one for the whole wait, and it is the only thing that is counted.
#[test]
fn a_wait_in_the_queue_ends_after_its_time() {
    let backend = CountingBackend::start(usize::MAX, Duration::from_secs(3));
    let plan = upstream(backend.port, |plan| {
        plan.connections.limit = Some(1);
        plan.connections.queue_time = Duration::from_millis(200);
    });
    let workers = Workers::start(2, &plan);
    let mut first = workers.client(0);
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    wait_until("it is under way", || backend.open() == 1);
    let start = Instant::now();
    assert_eq!(get(&mut workers.client(1)), 503);
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(200), "{waited:?}");
    assert_eq!(first.response().status, 200);
}

/// Passes connections on to a port, each only after a while; or closes them then.
fn slow_door(port: u16, delay: Duration, is_broken: &Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    let is_broken = Arc::clone(is_broken);
    thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(client) = client else { return };
            let is_broken = Arc::clone(&is_broken);
            thread::spawn(move || {
                thread::sleep(delay);
                if is_broken.load(Ordering::SeqCst) {
                    return;
                }
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Write);
                });
                let (mut from, mut to) = (server, client);
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    });
    own
}

/// A worker that speaks HTTP/2 and TLS in front of a back end, and how it is reached.
struct SecureBackend {
    workers: Workers,
    client: Client,
}

impl SecureBackend {
    fn start(port: u16) -> Self {
        let authority = Authority::new("test");
        let issued = authority.issue(&["127.0.0.1"]);
        let (cert, key) = (issued.cert.as_bytes(), issued.key.as_bytes());
        let identity = Identity::from_pem(cert, key, SystemTime::now()).unwrap();
        let protocols = vec![Protocol::Http2, Protocol::Http1];
        let server = Server::new(ServerSettings {
            identities: vec![identity],
            client_auth: ClientAuth::None,
            revoked: net::tls::RevocationLists::default(),
            protocols: tls_protocols(),
            min_version: MinVersion::default(),
        })
        .unwrap();
        let roots = Roots::from_pem(authority.pem().as_bytes()).unwrap();
        let client = Client::new(
            "127.0.0.1",
            ClientSettings {
                trust: Trust::Chain(roots, Vec::new()),
                identity: None,
                protocols: tls_protocols(),
                min_version: MinVersion::default(),
            },
        )
        .unwrap();
        let plain = upstream(port, |_| {});
        let workers = Workers::start(1, &plain);
        let address = address(workers.ports[0]);
        let plan = ForwardPlan {
            upstream: Arc::new(plain),
            ..forward_plan(1)
        };
        let target = RouteTarget::Forward(Arc::new(plan));
        let (applied, mut done) = unbounded_channel();
        let order = Command::Serve {
            plan: Arc::new(plan_of(address.clone(), protocols, target)),
            tls: Arc::new(TlsTable {
                servers: vec![(address, server)],
                clients: Vec::new(),
            }),
            opened: Vec::new(),
            applied,
        };
        workers.commands[0].send(order).ok().unwrap();
        done.blocking_recv().unwrap();
        Self { workers, client }
    }
}

fn tls_protocols() -> Vec<net::tls::Protocol> {
    vec![net::tls::Protocol::Http2, net::tls::Protocol::Http1]
}

/// Both protocols over TLS, which `:scheme` says as well.
fn both_protocols(plan: &mut UpstreamPlan) {
    plan.protocols = vec![Protocol::Http2, Protocol::Http1];
    plan.tls = Some(UpstreamTls::default());
}

/// Those who waited for the first handshake were refused by the queue of a limit nobody had set,
/// of which each worker had its share.
#[test]
fn all_wait_for_the_first_handshake() {
    let plain = StrictBackend::answering(|_| OK.to_vec());
    let secure = SecureBackend::start(plain.port());
    let door = slow_door(
        secure.workers.ports[0],
        Duration::from_millis(300),
        &Arc::default(),
    );
    let plan = upstream(door, both_protocols);
    let workers = Workers::serving(2, &plan, |plan| TlsTable {
        servers: Vec::new(),
        clients: vec![(Arc::clone(plan), vec![secure.client.clone()])],
    });
    let statuses = hammer(&workers, 120, 1);
    assert!(statuses.iter().all(|status| *status == 200), "{statuses:?}");
    assert_eq!(statuses.len(), 120);
    for at in 0..2 {
        let connects = workers.metrics(at).upstream_connects.get();
        assert_eq!(connects, 1, "one connection serves them all");
    }
}

/// They are not refused one after the other, each after a try of its own.
#[test]
fn a_failed_handshake_is_reported_to_all_who_wait_for_it() {
    let is_broken = Arc::new(AtomicBool::new(true));
    let plain = StrictBackend::answering(|_| OK.to_vec());
    let secure = SecureBackend::start(plain.port());
    let delay = Duration::from_millis(300);
    let door = slow_door(secure.workers.ports[0], delay, &is_broken);
    let plan = upstream(door, both_protocols);
    let workers = Workers::serving(1, &plan, |plan| TlsTable {
        servers: Vec::new(),
        clients: vec![(Arc::clone(plan), vec![secure.client.clone()])],
    });
    let statuses = hammer(&workers, 20, 1);
    assert!(statuses.iter().all(|status| *status == 502), "{statuses:?}");
    assert!(workers.metrics(0).upstream_connect_failures.get() <= 2);
    is_broken.store(false, Ordering::SeqCst);
    assert_eq!(get(&mut workers.client(0)), 200);
}

/// Passes connections on to a port; those made before it `freezes` fall silent then, and no end is
/// ever seen.
struct FreezingDoor {
    port: u16,
    era: Arc<AtomicUsize>,
}

impl FreezingDoor {
    fn start(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let door = Self {
            port: listener.local_addr().unwrap().port(),
            era: Arc::default(),
        };
        let era = Arc::clone(&door.era);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let own = era.load(Ordering::SeqCst);
                let ends = [
                    (client.try_clone().unwrap(), server.try_clone().unwrap()),
                    (server, client),
                ];
                for (mut from, mut to) in ends {
                    let era = Arc::clone(&era);
                    thread::spawn(move || {
                        let mut piece = [0; 4096];
                        while let Ok(count @ 1..) = from.read(&mut piece) {
                            if era.load(Ordering::SeqCst) == own
                                && to.write_all(&piece[..count]).is_err()
                            {
                                break;
                            }
                        }
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
            }
        });
        door
    }

    fn freeze(&self) {
        self.era.fetch_add(1, Ordering::SeqCst);
    }
}

/// Checks went over the same dead connection until TCP gave it up, and the endpoint stayed down.
#[test]
fn checks_leave_a_connection_that_is_dead() {
    let plain = StrictBackend::answering(|_| OK.to_vec());
    let secure = SecureBackend::start(plain.port());
    let door = FreezingDoor::start(secure.workers.ports[0]);
    let plan = upstream(door.port, |plan| {
        both_protocols(plan);
        plan.health = Some(HealthCheck {
            path: "/health".to_owned(),
            every: Duration::from_millis(20),
            timeout: Duration::from_millis(300),
            status: None,
            healthy: 1,
            unhealthy: 1,
        });
    });
    let workers = Workers::serving(1, &plan, |plan| TlsTable {
        servers: Vec::new(),
        clients: vec![(Arc::clone(plan), vec![secure.client.clone()])],
    });
    let is_down = || workers.engine.endpoint_verdicts()[0].2;
    wait_until("it has been asked", || plain.requests().len() > 2);
    assert!(!is_down());
    door.freeze();
    wait_until("it is seen to be down", is_down);
    wait_until("it is asked over a new connection", || !is_down());
}

/// The permit was the driver's, and with one connection all others got 503 until the last stream
/// of the one that went away had ended.
#[test]
fn a_connection_that_goes_away_under_a_long_stream_makes_room_for_another() {
    for content_type in ["text/plain", "text/event-stream"] {
        let port = http2_backend(move |number, connection, stream| async move {
            let head = [(":status", "200"), ("content-type", content_type)];
            match (number, stream) {
                (0, 1) => {
                    // Its body goes on for as long as its client likes.
                    connection.send_head(stream, &head, false);
                    connection.go_away(stream, code::NO_ERROR);
                }
                // Nobody looks at it any more.
                (0, _) => {}
                _ => {
                    connection.send_head(stream, &head, false);
                    connection.send_data(stream, b"ok", true, 0).await;
                }
            }
        });
        let plan = upstream(port, |plan| {
            plan.protocols = vec![Protocol::Http2];
            plan.connections.limit = Some(1);
        });
        let workers = Workers::start(2, &plan);
        let mut long = workers.client(0);
        long.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        long.until(b"\r\n\r\n");
        for worker in 0..2 {
            assert_eq!(get(&mut workers.client(worker)), 200, "{content_type}");
        }
        assert!(long.stays_silent(Duration::from_millis(50)), "it goes on");
        let connects = (0..2).map(|at| workers.metrics(at).upstream_connects.get());
        assert_eq!(connects.sum::<u64>(), 3, "{content_type}");
    }
}

/// The other side says how long it keeps an idle connection. One second before that it is left: a
/// request would meet its end.
#[test]
fn a_kept_connection_is_left_before_its_server_closes_it() {
    let reply = "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=2\r\nContent-Length: 2\r\n\r\nok";
    let turn = [Action::ReadRequest, Action::Send(reply.as_bytes().to_vec())];
    let script = [&turn[..], &turn, &turn, &[Action::Stall]].concat();
    let backend = ScriptedBackend::start(vec![script]);
    let proxy = Proxy::to(backend.port());
    let mut client = proxy.client();
    for _ in 0..2 {
        assert_eq!(get(&mut client), 200);
    }
    assert_eq!(backend.accepted(), 1);
    thread::sleep(Duration::from_millis(1100));
    assert_eq!(get(&mut client), 200);
    assert_eq!(backend.accepted(), 2);
}
