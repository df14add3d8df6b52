//! All systems one worker sends to, each once, however many routes lead there.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use component::observe::WorkerMetrics;
use component::settings::Settings;
use component::tls::Protocol;
use component::trigger::ListenAddress;
use component::upstream::UpstreamPlan;
use net::endpoint::{Endpoint, EndpointLimits};
use net::queue::Queue;
use net::tls;
use tokio::time::Instant;

use crate::upstream::Upstream;

/// The TLS that a plan needs, ready to be used. Made where files may be read; shared by all
/// workers.
#[derive(Default)]
pub struct TlsTable {
    /// Of listeners that speak it.
    pub servers: Vec<(ListenAddress, tls::Server)>,
    /// Of upstreams that are reached by it: one for each endpoint, in their order.
    pub clients: Vec<(Arc<UpstreamPlan>, Vec<tls::Client>)>,
}

impl TlsTable {
    /// What a listener offers, when it speaks TLS.
    pub fn server(&self, address: &ListenAddress) -> Option<&tls::Server> {
        let found = self.servers.iter().find(|(known, _)| known == address);
        found.map(|(_, server)| server)
    }

    fn clients(&self, plan: &Arc<UpstreamPlan>) -> Option<&[tls::Client]> {
        let found = self
            .clients
            .iter()
            .find(|(known, _)| Arc::ptr_eq(known, plan));
        found.map(|(_, clients)| clients.as_slice())
    }
}

/// What active checks have found, shared by all workers.
#[derive(Default)]
pub(crate) struct HealthBoard(Mutex<Vec<BoardEntry>>);

/// An upstream's name, an endpoint's host and port, and whether it is down.
type BoardEntry = ((Arc<str>, String, u16), Arc<AtomicBool>);

impl HealthBoard {
    /// Every endpoint that is asked how it is: its upstream, its address, and whether it is down.
    pub fn verdicts(&self) -> Vec<(Arc<str>, String, bool)> {
        let mut board = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // What only the board knows belongs to a plan that is gone.
        board.retain(|(_, down)| Arc::strong_count(down) > 1);
        let entries = board.iter().map(|((upstream, host, port), down)| {
            let address = format!("{host}:{port}");
            (Arc::clone(upstream), address, down.load(Ordering::Relaxed))
        });
        entries.collect()
    }

    /// Whether this endpoint of the upstream is down. It is up until somebody has looked.
    pub fn entry(&self, plan: &UpstreamPlan, at: usize) -> Arc<AtomicBool> {
        let Some(endpoint) = plan.endpoints.get(at).filter(|_| plan.health.is_some()) else {
            return Arc::default();
        };
        let key = (Arc::clone(&plan.name), endpoint.host.clone(), endpoint.port);
        let mut board = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, down)) = board.iter().find(|(known, _)| *known == key) {
            return Arc::clone(down);
        }
        let down = Arc::<AtomicBool>::default();
        board.push((key, Arc::clone(&down)));
        down
    }
}

/// All systems one worker sends to. A reload keeps those that stay as they are, so that connections
/// stay open.
pub(crate) struct Upstreams {
    settings: Cell<Settings>,
    tls: RefCell<Arc<TlsTable>>,
    board: Arc<HealthBoard>,
    /// This worker's number and how many there are.
    share: (usize, usize),
    metrics: Arc<WorkerMetrics>,
    known: RefCell<Vec<Rc<Upstream>>>,
}

impl Upstreams {
    pub fn new(
        board: &Arc<HealthBoard>,
        share: (usize, usize),
        metrics: &Arc<WorkerMetrics>,
    ) -> Self {
        Self {
            settings: Cell::new(Settings::default()),
            tls: RefCell::default(),
            board: Arc::clone(board),
            share,
            metrics: Arc::clone(metrics),
            known: RefCell::default(),
        }
    }

    /// Takes new settings over.
    pub fn update(&self, settings: &Settings, tls: &Arc<TlsTable>) {
        self.settings.set(*settings);
        *self.tls.borrow_mut() = Arc::clone(tls);
        for upstream in self.known.borrow().iter() {
            for member in upstream.members() {
                member.endpoint.set_limits(self.limits(&upstream.plan));
            }
        }
    }

    /// The upstream of a plan: one that is there already, when nothing about it has changed.
    pub fn get(&self, plan: &Arc<UpstreamPlan>) -> Rc<Upstream> {
        let tls = Arc::clone(&self.tls.borrow());
        let clients = tls.clients(plan).unwrap_or_default();
        let is_same = |known: &&Rc<Upstream>| {
            let members = known.members().iter().enumerate();
            *known.plan == **plan
                && members
                    .into_iter()
                    .all(|(at, member)| member.endpoint.has_tls(clients.get(at)))
        };
        let found = self.known.borrow().iter().find(is_same).cloned();
        found.unwrap_or_else(|| {
            let upstream = Rc::new(self.make(plan, clients));
            self.known.borrow_mut().push(Rc::clone(&upstream));
            upstream
        })
    }

    /// A further upstream with one endpoint of another, for looking how that is: it has
    /// connections of its own, so that it never waits for those of requests.
    pub fn probe(&self, plan: &Arc<UpstreamPlan>, at: usize) -> Rc<Upstream> {
        let tls = Arc::clone(&self.tls.borrow());
        let client = tls.clients(plan).and_then(|clients| clients.get(at));
        let mut single = UpstreamPlan::clone(plan);
        single.endpoints = plan.endpoints.get(at).cloned().into_iter().collect();
        single.connections.limit = None;
        single.health = None;
        Rc::new(self.make(&Arc::new(single), client.map_or(&[], std::slice::from_ref)))
    }

    fn make(&self, plan: &Arc<UpstreamPlan>, clients: &[tls::Client]) -> Upstream {
        let queue = Rc::<Queue>::default();
        let limits = self.limits(plan);
        let endpoints = plan.endpoints.iter().enumerate().map(|(at, it)| {
            let client = clients.get(at).cloned();
            let security = (client, protocols(plan));
            let queue = Rc::clone(&queue);
            let endpoint = Endpoint::new(&it.host, it.port, security, limits, queue);
            (endpoint, self.board.entry(plan, at))
        });
        let queue_max = self.share_of(plan.connections.queue);
        let queue = (Rc::clone(&queue), queue_max);
        Upstream::new(plan, endpoints.collect(), queue, &self.metrics)
    }

    /// Closes idle connections that are too old or dead, and forgets upstreams nobody uses.
    pub fn prune(&self, now: Instant) {
        self.known.borrow_mut().retain(|upstream| {
            let members = upstream.members();
            members.iter().for_each(|member| member.endpoint.prune(now));
            Rc::strong_count(upstream) > 1 || !members.iter().all(|it| it.endpoint.is_unused())
        });
    }

    fn limits(&self, plan: &UpstreamPlan) -> EndpointLimits {
        let settings = self.settings.get();
        EndpointLimits {
            idle_count: settings.limits.upstream_idle,
            idle_time: settings.timeouts.upstream_idle,
            connections: plan
                .connections
                .limit
                .map_or(usize::MAX, |limit| self.share_of(limit)),
            resolve: plan.connections.resolve,
        }
    }

    /// This worker's part of a limit that holds for all workers together.
    fn share_of(&self, limit: usize) -> usize {
        let (number, count) = self.share;
        limit / count + usize::from(number < limit % count)
    }
}

/// Whether HTTP/1.1, and HTTP/2, may be spoken.
fn protocols(plan: &UpstreamPlan) -> (bool, bool) {
    let has = |protocol| plan.protocols.contains(&protocol);
    (has(Protocol::Http1), has(Protocol::Http2))
}
