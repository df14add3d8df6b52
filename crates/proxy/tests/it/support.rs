//! A worker in this process that serves a plan made by the test.

use std::net::TcpListener;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use component::forward::ForwardPlan;
use component::handler::{Call, Handler, LocalFuture, Outcome, Services};
use component::observe::FlowMetrics;
use component::plan::{ListenerPlan, Plan, RoutePlan, RouteTarget};
use component::settings::Settings;
use component::tls::Protocol;
use component::trigger::{ListenAddress, Methods, PathPattern};
use component::upstream::UpstreamPlan;
use message::{Body, Fault, Reply, Request};
use net::tls;
use proxy::{Command, Engine, OpenListener, TlsTable, Worker, WorkerSetup};
use testkit::http2;
use testkit::wire::{self, ServerTls, Wire};
use testkit::{Authority, RawClient, free_port, wait_until};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// A worker that serves one listener with one route for everything.
pub struct Proxy {
    pub port: u16,
    pub engine: Arc<Engine>,
    commands: UnboundedSender<Command>,
    protocols: Vec<Protocol>,
    thread: Option<JoinHandle<()>>,
}

/// What a worker with several routes serves.
pub struct Setup {
    pub protocols: Vec<Protocol>,
    pub routes: Vec<(PathPattern, RouteTarget)>,
    pub upstreams: Vec<Arc<UpstreamPlan>>,
    pub settings: Settings,
    /// TLS of the listener.
    pub server: Option<tls::Server>,
    /// TLS of upstreams, for each of their endpoints.
    pub clients: Vec<(Arc<UpstreamPlan>, Vec<tls::Client>)>,
}

impl Proxy {
    /// Forwards everything to a port, path and query kept.
    pub fn to(port: u16) -> Self {
        Self::forward(port, |_| {}, |_| {})
    }

    /// The same, with another plan or other settings.
    pub fn forward(
        port: u16,
        change_plan: impl FnOnce(&mut ForwardPlan),
        change_settings: impl FnOnce(&mut Settings),
    ) -> Self {
        let mut plan = forward_plan(port);
        change_plan(&mut plan);
        Self::start(RouteTarget::Forward(Arc::new(plan)), change_settings)
    }

    /// Serves everything by a handler, with other settings.
    pub fn handle_with(
        handler: impl Handler + 'static,
        change_settings: impl FnOnce(&mut Settings),
    ) -> Self {
        let handler = Arc::new(handler);
        let body_max = 1000;
        Self::start(RouteTarget::Handle { handler, body_max }, change_settings)
    }

    /// Serves everything by a handler.
    pub fn handle(handler: impl Handler + 'static) -> Self {
        Self::handle_bodies(handler, 1000)
    }

    /// The same, with bodies of at most so many bytes.
    pub fn handle_bodies(handler: impl Handler + 'static, body_max: u64) -> Self {
        let handler = Arc::new(handler);
        Self::start(RouteTarget::Handle { handler, body_max }, |_| {})
    }

    /// Serves a target over both versions of HTTP.
    pub fn both(target: RouteTarget) -> Self {
        let protocols = vec![Protocol::Http2, Protocol::Http1];
        Self::speaking(protocols, target, |_| {})
    }

    fn start(target: RouteTarget, change_settings: impl FnOnce(&mut Settings)) -> Self {
        Self::speaking(vec![Protocol::Http1], target, change_settings)
    }

    fn speaking(
        protocols: Vec<Protocol>,
        target: RouteTarget,
        change_settings: impl FnOnce(&mut Settings),
    ) -> Self {
        let proxy = Self::idle(protocols);
        let mut settings = Settings::default();
        change_settings(&mut settings);
        proxy.serve(target, settings, vec![proxy.open()]);
        proxy
    }

    /// Serves several routes, with TLS or without.
    pub fn serving(setup: Setup) -> Self {
        let proxy = Self::idle(setup.protocols);
        let address = proxy.address();
        let tls = TlsTable {
            servers: setup.server.map(|it| (address, it)).into_iter().collect(),
            clients: setup.clients,
        };
        let plan = Plan {
            listeners: vec![proxy.listener(setup.routes)],
            upstreams: setup.upstreams,
            settings: setup.settings,
            ..Plan::default()
        };
        let opened = vec![proxy.open()];
        proxy.order(plan, tls, opened);
        proxy
    }

    /// Serves everything by a target, which calls this upstream over TLS.
    pub fn before_tls(
        target: RouteTarget,
        (upstream, client): (&Arc<UpstreamPlan>, tls::Client),
        settings: Settings,
    ) -> Self {
        Self::serving(Setup {
            protocols: vec![Protocol::Http1],
            routes: vec![(everything(), target)],
            upstreams: vec![Arc::clone(upstream)],
            settings,
            server: None,
            clients: vec![(Arc::clone(upstream), vec![client])],
        })
    }

    /// Serves everything by a target over TLS.
    pub fn behind_tls(target: RouteTarget, authority: &Authority, settings: Settings) -> Self {
        Self::serving(Setup {
            protocols: vec![Protocol::Http1],
            upstreams: upstreams_of(&target),
            routes: vec![(everything(), target)],
            settings,
            server: Some(tls_server(authority, tls::ClientAuth::None)),
            clients: Vec::new(),
        })
    }

    /// A worker that serves nothing yet.
    fn idle(protocols: Vec<Protocol>) -> Self {
        let engine = Arc::new(Engine::new(None));
        let (commands, receiver) = unbounded_channel();
        let setup = WorkerSetup {
            number: 0,
            count: 1,
            engine: Arc::clone(&engine),
            commands: receiver,
        };
        let thread = std::thread::spawn(|| Worker::run(setup).unwrap());
        Self {
            port: free_port(),
            engine,
            commands,
            protocols,
            thread: Some(thread),
        }
    }

    fn open(&self) -> OpenListener {
        let mut sockets = net::listen::bind(Some("127.0.0.1"), self.port, 1).unwrap();
        OpenListener {
            address: self.address(),
            socket: sockets.remove(0),
        }
    }

    /// Has the worker serve another target.
    pub fn serve(&self, target: RouteTarget, settings: Settings, opened: Vec<OpenListener>) {
        let plan = self.plan(target, settings);
        self.order(plan, TlsTable::default(), opened);
    }

    /// Has the worker serve another target, over TLS when there is a server.
    pub fn serve_tls(&self, target: RouteTarget, settings: Settings, server: Option<tls::Server>) {
        let mut table = TlsTable::default();
        let servers = server.map(|server| (self.address(), server));
        table.servers.extend(servers);
        let plan = self.plan(target, settings);
        self.order(plan, table, Vec::new());
    }

    fn plan(&self, target: RouteTarget, settings: Settings) -> Plan {
        Plan {
            upstreams: upstreams_of(&target),
            listeners: vec![self.listener(vec![(everything(), target)])],
            settings,
            ..Plan::default()
        }
    }

    fn listener(&self, routes: Vec<(PathPattern, RouteTarget)>) -> ListenerPlan {
        let routes = routes.into_iter().map(|(path, target)| RoutePlan {
            door: None,
            flow: "test".into(),
            methods: Methods::Any,
            path,
            edge: None,
            target,
        });
        ListenerPlan {
            address: self.address(),
            tls: None,
            protocols: self.protocols.clone(),
            edge: Default::default(),
            routes: routes.collect(),
        }
    }

    fn order(&self, plan: Plan, tls: TlsTable, opened: Vec<OpenListener>) {
        let plan = Arc::new(plan);
        let (applied, mut done) = unbounded_channel();
        self.commands
            .send(Command::Serve {
                plan,
                tls: Arc::new(tls),
                opened,
                applied,
            })
            .ok()
            .unwrap();
        done.blocking_recv().expect("the worker applies the plan");
    }

    /// Has the worker serve nothing any more.
    pub fn serve_nothing(&self) {
        self.order(Plan::default(), TlsTable::default(), Vec::new());
    }

    fn address(&self) -> ListenAddress {
        ListenAddress {
            host: Some("127.0.0.1".to_owned()),
            port: self.port,
        }
    }

    pub fn client(&self) -> RawClient {
        RawClient::connect(self.port)
    }

    pub fn metrics(&self) -> Arc<FlowMetrics> {
        self.engine.registry.flow(0, &"test".into())
    }

    /// Starts the drain.
    pub fn drain(&self) {
        self.commands.send(Command::Drain).ok().unwrap();
    }

    /// Waits for the worker's end.
    pub fn join(mut self) {
        self.thread.take().unwrap().join().unwrap();
    }

    /// The same, once the client has closed.
    pub fn wait_until_idle_after(&self, client: RawClient) {
        drop(client);
        self.wait_until_idle();
    }

    /// Waits until nothing is in flight and no connection is open.
    pub fn wait_until_idle(&self) {
        wait_until("no connection is open", || {
            self.engine.connection_count() == 0
        });
        assert_eq!(self.metrics().in_flight(), 0);
    }
}

/// The pattern of all paths.
fn everything() -> PathPattern {
    PathPattern {
        segments: Vec::new(),
        rest: true,
    }
}

fn upstreams_of(target: &RouteTarget) -> Vec<Arc<UpstreamPlan>> {
    match target {
        RouteTarget::Forward(plan) => vec![Arc::clone(&plan.upstream)],
        RouteTarget::Handle { .. } => Vec::new(),
    }
}

/// TLS of a listener that speaks HTTP/1.1 as `localhost`.
pub fn tls_server(authority: &Authority, client_auth: tls::ClientAuth) -> tls::Server {
    let issued = authority.issue(&["localhost"]);
    let (cert, key) = (issued.cert.as_bytes(), issued.key.as_bytes());
    let identity = tls::Identity::from_pem(cert, key, SystemTime::now()).unwrap();
    tls::Server::new(tls::ServerSettings {
        identities: vec![identity],
        client_auth,
        revoked: tls::RevocationLists::default(),
        protocols: vec![tls::Protocol::Http1],
        min_version: tls::MinVersion::Tls12,
    })
    .unwrap()
}

/// A back end over TLS that does this with its only connection, in a thread of its own, and what it
/// is called with. Next to nothing that it does not read is on the way to it.
pub fn tls_backend<F: Future<Output = ()>>(
    work: impl FnOnce(Wire) -> F + Send + 'static,
) -> (u16, tls::Client) {
    let authority = Authority::new("test");
    let server = ServerTls::new(&authority.issue(&["127.0.0.1"]), &["http/1.1"]);
    let roots = tls::Roots::from_pem(authority.pem().as_bytes()).unwrap();
    let settings = tls::ClientSettings {
        trust: tls::Trust::Chain(roots, Vec::new()),
        identity: None,
        protocols: vec![tls::Protocol::Http1],
        min_version: tls::MinVersion::default(),
    };
    let listener = wire::listen(true);
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let stream = tokio::net::TcpStream::from_std(stream).unwrap();
            work(Wire::accept(stream, Some(&server)).await.unwrap()).await;
        });
    });
    (port, tls::Client::new("127.0.0.1", settings).unwrap())
}

/// A back end that speaks HTTP/2 in clear text and does this with each request: it is told the
/// number of the connection, the connection, and the stream.
pub fn http2_backend<F: Future<Output = ()> + 'static>(
    answer: impl Fn(usize, http2::Connection, u32) -> F + Send + 'static,
) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build_local(Default::default());
        runtime.unwrap().block_on(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let answer = Rc::new(answer);
            for number in 0.. {
                let (socket, _) = listener.accept().await.unwrap();
                let answer = Rc::clone(&answer);
                tokio::task::spawn_local(async move {
                    let wire = Wire::accept(socket, None).await.unwrap();
                    let connection = http2::Connection::start(wire, http2::Role::Server);
                    while let Some(stream) = connection.accept().await {
                        tokio::task::spawn_local(answer(number, connection.clone(), stream));
                    }
                });
            }
        });
    });
    port
}

/// A plan that keeps path and query and changes nothing that a test does not look at.
pub fn forward_plan(port: u16) -> ForwardPlan {
    let upstream = UpstreamPlan::single("127.0.0.1", port, None);
    ForwardPlan {
        appends_rest: true,
        ..ForwardPlan::new(Arc::new(upstream), "/")
    }
}

/// Settings in which everything that a test waits for is short.
pub fn short(settings: &mut Settings) {
    settings.timeouts.idle = Duration::from_millis(300);
    settings.timeouts.head = Duration::from_millis(300);
    settings.timeouts.body = Duration::from_millis(300);
    settings.timeouts.connect = Duration::from_millis(300);
    settings.timeouts.response = Duration::from_millis(300);
    settings.timeouts.drain = Duration::from_millis(1500);
}

/// A handler that answers with what it was sent.
pub struct Echo {
    pub reads_body: bool,
}

impl Handler for Echo {
    fn reads_body(&self) -> bool {
        self.reads_body
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async move {
            let body = if request.body.is_unread() {
                Body::Empty
            } else {
                request.body
            };
            Ok(Outcome::Reply(Reply::with_content(200, "text/plain", body)))
        })
    }
}

/// Calls a back end with the request that it gets, as a step does, and replies with what came.
pub struct StepCall {
    plan: Arc<ForwardPlan>,
    gives_up_after: Option<Duration>,
}

impl StepCall {
    pub fn new(plan: Arc<ForwardPlan>) -> Self {
        Self {
            plan,
            gives_up_after: None,
        }
    }

    /// The caller gives up after this time.
    pub fn giving_up_after(self, time: Option<Duration>) -> Self {
        Self {
            gives_up_after: time,
            ..self
        }
    }
}

impl Handler for StepCall {
    fn reads_body(&self) -> bool {
        true
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async move {
            let call = Call {
                deadline: self.gives_up_after.map(|time| services.now() + time),
                ..Call::new(&self.plan, &request, "call")
            };
            let got = services.call(call).await?;
            let mut reply = Reply::new(got.status);
            reply.headers = got.headers;
            reply.body = got.body;
            Ok(Outcome::Reply(reply))
        })
    }
}
