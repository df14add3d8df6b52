//! A worker: one thread with its own runtime, listeners, routes and upstream connections. Nothing
//! that a request touches is shared with another worker.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use allocator::Release;
use component::audit::Audit;
use component::handler::Callee;
use component::observe::{Registry, WorkerMetrics};
use component::once_per_second::OncePerSecond;
use component::plan::Callees;
use component::plan::{ListenerPlan, Plan};
use component::resources::{Resources, Share};
use component::settings::Settings;
use component::tls::Protocol;
use component::trigger::ListenAddress;
use component::vital;
use net::deadline::Deadlines;
use net::http1::ResponseHead;
use net::spares::Spares;
use net::{Connection, descriptors};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::background::Sources;
use crate::blocking;
use crate::client::addresses::{ClientAddress, ClientAddresses};
use crate::client::entry::Entry;
pub(crate) use crate::client::listener::Listener;
use crate::client::listener::{Acceptor, Service};
use crate::client::reception;
use crate::date::DateField;
use crate::heartbeat::{Heartbeat, Heartbeats, StuckWorker};
use crate::observe::AccessLog;
use crate::router::Table;
use crate::stream;
use crate::upstream::health;
use crate::upstream::request_head::Http2Head;
use crate::upstream::upstreams::{HealthBoard, TlsTable, Upstreams};

/// How often idle upstream connections are looked at and the access log is handed over.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// How long accepting rests when the process has run out of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How many connections are accepted before everybody else is served: of a crowd that comes at once
/// each has its first request there already.
const ACCEPTS: u32 = 16;
/// How long a stopping worker waits for other systems to take leave.
const CLOSE_TIME: Duration = Duration::from_secs(2);
/// The largest scratch buffer that is kept.
const SCRATCH_MAX: usize = 256 * 1024;
/// How many scratch buffers are kept.
const SCRATCHES_MAX: usize = 64;
/// How many heads of replies are kept for their memory.
const REPLY_HEADS_MAX: usize = 64;

/// What all workers share.
pub struct Engine {
    /// All counters.
    pub registry: Registry,
    /// Who writes the access log, when somebody does.
    pub access_log: Option<Arc<dyn AccessLog>>,
    /// Where clients are reported that are refused because of their network.
    pub audit: Arc<Audit>,
    connections: AtomicUsize,
    addresses: ClientAddresses,
    /// Whether its connections may use the file descriptors that are kept from others.
    uses_reserve: bool,
    pub(crate) health: Arc<HealthBoard>,
    heartbeats: Heartbeats,
}

impl Engine {
    /// An engine without connections.
    pub fn new(access_log: Option<Arc<dyn AccessLog>>) -> Self {
        Self {
            registry: Registry::default(),
            access_log,
            audit: Arc::default(),
            connections: AtomicUsize::new(0),
            addresses: ClientAddresses::default(),
            uses_reserve: false,
            health: Arc::default(),
            heartbeats: Heartbeats::new(),
        }
    }

    /// The same with an audit stream.
    #[must_use]
    pub fn with_audit(mut self, audit: &Arc<Audit>) -> Self {
        self.audit = Arc::clone(audit);
        self
    }

    /// An engine for the admin port: it is reached when clients have used up what they may have of
    /// the file descriptors.
    pub fn for_admin() -> Self {
        Self {
            uses_reserve: true,
            ..Self::new(None)
        }
    }

    /// The workers that have done nothing at all for this time, be it only to say so: what runs on
    /// them does not give way. A worker that has nothing to do says so each second.
    pub fn stuck_workers(&self, limit: Duration) -> Vec<StuckWorker> {
        self.heartbeats.stuck(limit)
    }

    /// Every endpoint that is asked how it is: its upstream, its address, and whether it is down.
    pub fn endpoint_verdicts(&self) -> Vec<(Arc<str>, String, bool)> {
        self.health.verdicts()
    }

    /// How many client connections are open.
    pub fn connection_count(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// A listening socket that has been opened for one worker.
pub struct OpenListener {
    /// The address as flows write it.
    pub address: ListenAddress,
    /// The socket.
    pub socket: std::net::TcpListener,
}

/// An order to a worker.
pub enum Command {
    /// Serve this plan from now on. Requests under way end on the old one.
    Serve {
        /// The plan.
        plan: Arc<Plan>,
        /// The TLS that it needs.
        tls: Arc<TlsTable>,
        /// Sockets for addresses that the worker does not listen on yet.
        opened: Vec<OpenListener>,
        /// Told when the worker serves the plan.
        applied: mpsc::UnboundedSender<()>,
    },
    /// Stop accepting, end what is under way, and return.
    Drain,
}

/// What a worker is started with.
pub struct WorkerSetup {
    /// Its number, from 0.
    pub number: usize,
    /// How many workers there are.
    pub count: usize,
    /// What it shares with the others.
    pub engine: Arc<Engine>,
    /// Orders; the first one says what to serve.
    pub commands: mpsc::UnboundedReceiver<Command>,
}

impl WorkerSetup {
    fn share(&self) -> Share {
        Share {
            number: self.number,
            count: self.count,
        }
    }
}

/// The task that has panicked though the worker cannot do without it.
#[derive(Default)]
struct Failure {
    task: Cell<Option<&'static str>>,
    waker: RefCell<Option<Waker>>,
}

impl Failure {
    fn report(&self, task: &'static str) {
        self.task.set(Some(task));
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<&'static str> {
        match self.task.get() {
            Some(task) => Poll::Ready(task),
            None => {
                *self.waker.borrow_mut() = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The state of a worker, seen by its sessions.
pub struct Worker {
    pub(crate) share: Share,
    pub(crate) resources: Resources,
    pub(crate) engine: Arc<Engine>,
    pub(crate) metrics: Arc<WorkerMetrics>,
    pub(crate) deadlines: Deadlines,
    pub(crate) upstreams: Upstreams,
    pub(crate) date: DateField,
    settings: RefCell<Rc<Settings>>,
    acceptors: RefCell<Vec<Rc<Acceptor>>>,
    /// Counts plans.
    generation: Cell<u64>,
    draining: Cell<bool>,
    sessions: Cell<usize>,
    drained: RefCell<Option<Waker>>,
    scratch: RefCell<Spares<Vec<u8>>>,
    /// Heads of replies that are not in use, for their memory.
    reply_heads: RefCell<Spares<Box<ResponseHead>>>,
    /// Where the head of a request for HTTP/2 is written; it is needed until its stream is open.
    http2_head: Cell<Option<Box<Http2Head>>>,
    /// The flows that flows may call.
    callees: RefCell<Callees>,
    sources: Sources,
    heartbeat: Heartbeat,
    release: Release,
    failure: Failure,
}

impl Worker {
    /// Runs a worker on this thread until it has drained.
    ///
    /// # Errors
    /// When the runtime cannot be made, or a task has panicked that the worker cannot do without:
    /// its connections are cut then.
    pub fn run(setup: WorkerSetup) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .thread_keep_alive(blocking::KEEP_ALIVE)
            .build_local(tokio::runtime::LocalOptions::default())?;
        let result = runtime.block_on(async {
            let blocking = blocking::start()?;
            let worker = Self::new(setup.share(), setup.engine);
            worker.watch_vital_tasks();
            worker.supervise("deadlines", worker.deadlines.clone().sweep());
            worker.supervise("housekeeping", Rc::clone(&worker).keep_house());
            worker.supervise("blocking", blocking);
            net::budget::yield_by(component::long_work::poll_yield);
            worker.supervise("yield queue", component::long_work::serve_yield_queue());
            worker.supervise("revocations", stream::end_revoked(Rc::clone(&worker)));
            worker.serve(setup.commands).await
        });
        // Work that blocks, such as a name that is looked up, may hang.
        runtime.shutdown_timeout(CLOSE_TIME);
        result
    }

    pub(crate) fn new(share: Share, engine: Arc<Engine>) -> Rc<Self> {
        let settings = Settings::default();
        let metrics = engine.registry.add_worker();
        let deadlines = Deadlines::new();
        Rc::new(Self {
            upstreams: Upstreams::new(&engine.health, &deadlines, &metrics),
            heartbeat: engine.heartbeats.add(share.number),
            share,
            resources: Resources::default(),
            metrics,
            engine,
            deadlines,
            date: DateField::default(),
            settings: RefCell::new(Rc::new(settings)),
            acceptors: RefCell::default(),
            generation: Cell::new(0),
            draining: Cell::new(false),
            sessions: Cell::new(0),
            drained: RefCell::default(),
            scratch: RefCell::default(),
            reply_heads: RefCell::default(),
            http2_head: Cell::default(),
            callees: RefCell::default(),
            sources: Sources::default(),
            release: Release::default(),
            failure: Failure::default(),
        })
    }

    /// Serves plans until it is told to stop, then drains.
    async fn serve(self: &Rc<Self>, commands: mpsc::UnboundedReceiver<Command>) -> io::Result<()> {
        let mut commands = commands;
        let mut work = pin!(async {
            while let Some(Command::Serve {
                plan,
                tls,
                opened,
                applied,
            }) = commands.recv().await
            {
                self.apply(&plan, &tls, opened);
                // Whoever gave the order may have left; the order stands all the same.
                let _ = applied.send(());
            }
            self.drain().await;
        });
        poll_fn(|context| match self.failure.poll(context) {
            Poll::Ready(task) => {
                let message = format!(
                    "the task `{task}` of worker {} has panicked",
                    self.share.number
                );
                Poll::Ready(Err(io::Error::other(message)))
            }
            Poll::Pending => work.as_mut().poll(context).map(Ok),
        })
        .await
    }

    /// Starts a task that the worker cannot do without. `tokio` keeps a panic to the task in which
    /// it happens: without an accept loop or deadlines the worker would seem to run for ever. So
    /// it ends with an error instead.
    pub(crate) fn supervise(
        self: &Rc<Self>,
        name: &'static str,
        task: impl Future<Output = ()> + 'static,
    ) {
        let task = tokio::task::spawn_local(task);
        let worker = Rc::clone(self);
        tokio::task::spawn_local(async move {
            if task.await.is_err_and(|error| error.is_panic()) {
                worker.failure.report(name);
            }
        });
    }

    /// The same for tasks of connectors and topics, which run under [`vital::vital`].
    fn watch_vital_tasks(self: &Rc<Self>) {
        let worker = Rc::downgrade(self);
        vital::on_loss(move |name| {
            if let Some(worker) = worker.upgrade() {
                worker.failure.report(name);
            }
        });
    }

    /// Takes a plan over: new routes for addresses that stay, new listeners, old ones closed.
    fn apply(self: &Rc<Self>, plan: &Plan, tls: &Arc<TlsTable>, opened: Vec<OpenListener>) {
        let settings = Rc::new(plan.settings.clone());
        *self.settings.borrow_mut() = Rc::clone(&settings);
        self.upstreams.update(plan, tls);
        let mut opened = opened;
        let mut kept = Vec::new();
        for listener_plan in &plan.listeners {
            let table = Table::new(
                listener_plan,
                self.share.number,
                &self.engine.registry,
                &self.upstreams,
            );
            let address = &listener_plan.address;
            let settings = settings_at(listener_plan, &settings);
            let entry = Entry::new(&listener_plan.edge, &settings);
            let service = Service {
                table: Rc::new(table),
                tls: tls.server(address).cloned(),
                takes_h2: listener_plan.protocols.contains(&Protocol::Http2),
                takes_h1: listener_plan.protocols.contains(&Protocol::Http1),
                settings,
                entry: entry.map(Rc::new),
            };
            let known = self
                .acceptors
                .borrow()
                .iter()
                .find(|old| old.address == *address)
                .cloned();
            if let Some(acceptor) = known {
                acceptor.serve(service);
                kept.push(acceptor);
            } else if let Some(at) = opened.iter().position(|open| open.address == *address) {
                kept.extend(self.listen(opened.swap_remove(at), service));
            }
        }
        let old = self.acceptors.replace(kept);
        for acceptor in old {
            let stays = self
                .acceptors
                .borrow()
                .iter()
                .any(|kept| Rc::ptr_eq(kept, &acceptor));
            if !stays {
                acceptor.close();
            }
        }
        self.deadlines.wake_all();
        self.generation.set(self.generation.get() + 1);
        *self.callees.borrow_mut() = plan.callees.clone();
        self.resources.adopt(&plan.connections);
        if self.share.number == 0 {
            health::start(self, plan);
        }
        self.sources.replace(self, plan);
    }

    fn listen(self: &Rc<Self>, open: OpenListener, service: Service) -> Option<Rc<Acceptor>> {
        let socket = match TcpListener::from_std(open.socket) {
            Ok(socket) => socket,
            Err(error) => {
                tracing::error!(target: "proxy", address = %open.address, %error, "cannot listen");
                return None;
            }
        };
        let acceptor = Rc::new(Acceptor::new(open.address, service));
        self.supervise(
            "accept",
            Rc::clone(self).accept(socket, Rc::clone(&acceptor)),
        );
        Some(acceptor)
    }

    /// Accepts connections until the address is closed. Those that the kernel has taken for us by
    /// then are served too.
    async fn accept(self: Rc<Self>, socket: TcpListener, acceptor: Rc<Acceptor>) {
        let _serving = socket.local_addr().ok().map(net::listen::Serving::of);
        let mut accepted = 0_u32;
        loop {
            accepted = (accepted + 1) % ACCEPTS;
            if accepted == 0 {
                // Not behind those who always have more to do: a client that comes is none of them.
                tokio::task::yield_now().await;
            }
            match acceptor.accept(&socket).await {
                None => return self.take_backlog(socket, &acceptor),
                Some(Ok((stream, peer))) => self.welcome(stream, peer, &acceptor.listener()),
                Some(Err(error)) if net::listen::concerns_one_connection(&error) => {}
                Some(Err(error)) => {
                    static FAILURES: OncePerSecond = OncePerSecond::new();
                    if let Some(count) = FAILURES.pass() {
                        tracing::warn!(target: "proxy", %error, count, "cannot accept connections");
                    }
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Takes the connections that the kernel has accepted and nobody has been told of: closing the
    /// socket would reset them.
    fn take_backlog(self: &Rc<Self>, socket: TcpListener, acceptor: &Acceptor) {
        let Ok(socket) = socket.into_std() else {
            return;
        };
        // It does not block: the error behind the last one says so.
        while let Ok((stream, peer)) = socket.accept() {
            let stream = stream.set_nonblocking(true).map(|()| stream);
            if let Ok(stream) = stream.and_then(TcpStream::from_std) {
                self.welcome(stream, peer, &acceptor.listener());
            }
        }
    }

    fn welcome(self: &Rc<Self>, stream: TcpStream, peer: SocketAddr, listener: &Rc<Listener>) {
        self.metrics.accepted.add(1);
        let guest = Guest::enter(self);
        let entry = listener.entry();
        if let Some(entry) = &entry
            && !self.may_enter(entry, peer.ip().to_canonical())
        {
            return;
        }
        if !self.admit(&stream) {
            return refuse(&stream, listener);
        }
        if let Some(entry) = entry.filter(|it| it.has_header()) {
            let (worker, listener) = (Rc::clone(self), Rc::clone(listener));
            tokio::task::spawn_local(async move {
                let owners = (&*worker, &*listener);
                let client = entry.read_header(owners, &stream, peer).await;
                if let Some(client) = client.filter(|it| entry.admits(&worker, it.ip())) {
                    worker.receive((stream, client), guest, &listener);
                }
            });
            return;
        }
        self.receive((stream, peer), guest, listener);
    }

    /// Whether a peer may connect: one that has to say who its client is, or the client itself.
    fn may_enter(&self, entry: &Entry, peer: IpAddr) -> bool {
        match entry.has_header() {
            true => entry.believes(self, peer),
            false => entry.admits(self, peer),
        }
    }

    /// Serves the connection of a client whose address is known.
    fn receive(
        self: &Rc<Self>,
        (stream, client): (TcpStream, SocketAddr),
        mut guest: Guest,
        listener: &Rc<Listener>,
    ) {
        if !self.admit_address(&mut guest, client.ip()) {
            return refuse(&stream, listener);
        }
        let connection = match listener.tls() {
            Some(tls) => Connection::accept_tls(stream, client, &tls),
            None => Connection::new(stream, client),
        };
        // A socket that fails here was closed by its client already.
        if let Ok(connection) = connection {
            let worker = Rc::clone(self);
            let listener = Rc::clone(listener);
            tokio::task::spawn_local(async move {
                if let Some(stream) = reception::receive(worker, listener, connection).await {
                    stream.start(guest);
                }
            });
        }
    }

    /// Whether a new connection is within the limits of all.
    fn admit(&self, stream: &TcpStream) -> bool {
        let limits = self.settings.borrow().limits;
        if self.engine.connections.load(Ordering::Relaxed) > limits.connections {
            self.metrics.refused.add(1);
            return false;
        }
        if !self.engine.uses_reserve && !descriptors::is_for_clients(stream) {
            static REFUSALS: OncePerSecond = OncePerSecond::new();
            self.metrics.refused_by_descriptors.add(1);
            if let Some(count) = REFUSALS.pass() {
                tracing::warn!(
                    target: "proxy", count,
                    "connections are refused: file descriptors are used up (ulimit -n)"
                );
            }
            return false;
        }
        true
    }

    /// Whether a new connection is within the limit of its client's address.
    fn admit_address(&self, guest: &mut Guest, client: IpAddr) -> bool {
        let Some(max) = self.settings.borrow().limits.connections_per_address else {
            return true;
        };
        guest.address = self.engine.addresses.enter(client, max);
        if guest.address.is_none() {
            self.metrics.refused_by_address.add(1);
        }
        guest.address.is_some()
    }

    /// The settings that hold now.
    #[inline]
    pub(crate) fn settings(&self) -> Rc<Settings> {
        Rc::clone(&self.settings.borrow())
    }

    /// The number of the plan that holds now.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.get()
    }

    /// The flow of this name, as it is now.
    pub(crate) fn callee(&self, name: &str) -> Option<Arc<dyn Callee>> {
        let callees = self.callees.borrow();
        let found = callees.iter().find(|(known, _)| **known == *name);
        found.map(|(_, callee)| Arc::clone(callee))
    }

    /// Counts something that a drain waits for, for as long as what this gives lives.
    pub(crate) fn enter(self: &Rc<Self>) -> Busy {
        self.sessions.set(self.sessions.get() + 1);
        Busy {
            worker: Rc::clone(self),
        }
    }

    /// Whether the worker is stopping.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// An empty buffer to write a head into.
    #[inline]
    pub(crate) fn take_scratch(&self) -> Vec<u8> {
        self.scratch
            .borrow_mut()
            .take()
            .unwrap_or_else(|| Vec::with_capacity(4096))
    }

    /// Gives the buffer back.
    #[inline]
    pub(crate) fn return_scratch(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        if (1..=SCRATCH_MAX).contains(&buffer.capacity()) {
            self.scratch.borrow_mut().give(buffer, SCRATCHES_MAX);
        }
    }

    /// Where the head of a reply is read into.
    #[inline]
    pub(crate) fn take_reply_head(&self) -> Box<ResponseHead> {
        self.reply_heads.borrow_mut().take().unwrap_or_default()
    }

    /// Gives it back.
    #[inline]
    pub(crate) fn return_reply_head(&self, head: Box<ResponseHead>) {
        self.reply_heads.borrow_mut().give(head, REPLY_HEADS_MAX);
    }

    /// Where the head of a request for HTTP/2 is written.
    #[inline]
    pub(crate) fn take_http2_head(&self) -> Box<Http2Head> {
        self.http2_head.take().unwrap_or_default()
    }

    /// Gives it back.
    #[inline]
    pub(crate) fn return_http2_head(&self, head: Box<Http2Head>) {
        if head.is_small() {
            self.http2_head.set(Some(head));
        }
    }

    async fn keep_house(self: Rc<Self>) {
        loop {
            tokio::time::sleep(HOUSEKEEPING).await;
            self.heartbeat.beat();
            self.upstreams.prune(Instant::now());
            for resource in self.resources.take(false) {
                tokio::task::spawn_local(resource.close());
            }
            self.flush_log();
            self.trim();
        }
    }

    /// Frees what was kept for a load that is over.
    fn trim(&self) {
        net::trim_buffers();
        drop(self.scratch.borrow_mut().trim());
        drop(self.reply_heads.borrow_mut().trim());
        self.release.tick();
    }

    fn flush_log(&self) {
        if let Some(log) = &self.engine.access_log {
            log.flush();
        }
    }

    /// Closes listeners and idle connections, and waits for the others, up to the limit.
    async fn drain(&self) {
        self.draining.set(true);
        self.sources.stop();
        for acceptor in self.acceptors.borrow().iter() {
            acceptor.close();
        }
        self.deadlines.wake_all();
        // Connections that the kernel has accepted for us become sessions first.
        tokio::task::yield_now().await;
        let limit = self.settings().timeouts.drain;
        let all_gone = poll_fn(|context| self.poll_drained(context));
        if tokio::time::timeout(limit, all_gone).await.is_err() {
            let count = self.sessions.get();
            tracing::warn!(target: "proxy", count, "connections were cut at the end of the drain");
        }
        self.close_resources().await;
        self.flush_log();
    }

    /// Takes leave of other systems, those that do not answer after a while without.
    async fn close_resources(&self) {
        let closing: Vec<_> = self
            .resources
            .take(true)
            .into_iter()
            .map(|resource| tokio::task::spawn_local(resource.close()))
            .collect();
        let all = async {
            for task in closing {
                // One that panics has told so.
                let _ = task.await;
            }
        };
        if tokio::time::timeout(CLOSE_TIME, all).await.is_err() {
            tracing::debug!(target: "proxy", "another system has not said good-bye");
        }
    }

    fn poll_drained(&self, context: &mut Context<'_>) -> Poll<()> {
        if self.sessions.get() == 0 {
            return Poll::Ready(());
        }
        *self.drained.borrow_mut() = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Tells a client in clear text that there is no room for its connection.
fn refuse(stream: &TcpStream, listener: &Listener) {
    if listener.tls().is_none() {
        // The client may not read it, and a full socket buffer is no reason to wait.
        let _ = stream.try_write(
            b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\
              Retry-After: 1\r\nConnection: close\r\n\r\n",
        );
    }
}

/// The engine's settings as they are at a listener.
fn settings_at(listener: &ListenerPlan, settings: &Rc<Settings>) -> Rc<Settings> {
    let edge = &listener.edge;
    if edge.trusted_proxies.is_none() && !edge.client_cert_header {
        return Rc::clone(settings);
    }
    let own = edge.trusted_proxies.as_ref();
    Rc::new(Settings {
        trusted_proxies: own.or(settings.trusted_proxies.as_ref()).cloned(),
        client_cert_header: edge.client_cert_header,
        ..Settings::clone(settings)
    })
}

/// Something that a drain waits for.
pub(crate) struct Busy {
    worker: Rc<Worker>,
}

/// Counts a connection for as long as it lives.
pub(crate) struct Guest {
    busy: Busy,
    /// The address that it is counted with, where these are limited.
    address: Option<ClientAddress>,
}

impl Guest {
    pub(crate) fn enter(worker: &Rc<Worker>) -> Self {
        worker.engine.connections.fetch_add(1, Ordering::Relaxed);
        Self {
            busy: worker.enter(),
            address: None,
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let worker = &self.busy.worker;
        worker.engine.connections.fetch_sub(1, Ordering::Relaxed);
        if let Some(address) = self.address {
            worker.engine.addresses.leave(address);
        }
        worker.metrics.closed.add(1);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let worker = &self.worker;
        worker.sessions.set(worker.sessions.get() - 1);
        if worker.sessions.get() == 0
            && let Some(waker) = worker.drained.borrow_mut().take()
        {
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runtime() -> tokio::runtime::LocalRuntime {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build_local(tokio::runtime::LocalOptions::default())
            .unwrap()
    }

    #[test]
    fn a_panic_in_a_task_that_it_needs_ends_a_worker() {
        let runtime = runtime();
        let (commands, receiver) = mpsc::unbounded_channel();
        let result = runtime.block_on(async {
            let share = Share {
                number: 3,
                count: 4,
            };
            let worker = Worker::new(share, Arc::new(Engine::new(None)));
            worker.supervise("ended", async {});
            worker.supervise("sweep", async {
                tokio::task::yield_now().await;
                panic!("on purpose");
            });
            worker.serve(receiver).await
        });
        drop(commands);
        let error = result.unwrap_err().to_string();
        assert_eq!(error, "the task `sweep` of worker 3 has panicked");
    }

    #[test]
    fn a_panic_in_a_vital_task_of_a_connector_ends_a_worker() {
        let runtime = runtime();
        let (commands, receiver) = mpsc::unbounded_channel();
        let result = runtime.block_on(async {
            let worker = Worker::new(Share::WHOLE, Arc::new(Engine::new(None)));
            worker.watch_vital_tasks();
            tokio::task::spawn_local(vital::vital("connection to a broker", async {
                tokio::task::yield_now().await;
                panic!("on purpose");
            }));
            worker.serve(receiver).await
        });
        drop(commands);
        let error = result.unwrap_err().to_string();
        let expected = "the task `connection to a broker` of worker 0 has panicked";
        assert_eq!(error, expected);
    }
}
