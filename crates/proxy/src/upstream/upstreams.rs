//! All systems one worker sends to, each once, however many routes lead there.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use component::egress::Policy;
use component::observe::WorkerMetrics;
use component::plan::Plan;
use component::settings::Settings;
use component::tls::Protocol;
use component::trigger::ListenAddress;
use component::upstream::{ConnectionLimits, UpstreamPlan};
use net::deadline::Deadlines;
use net::egress::Guard;
use net::endpoint::{Endpoint, EndpointConfig, Security};
use net::pool::{Permits, QueueCount};
use net::resolve::SystemResolver;
use net::tls;
use net::tunnel::Proxy;
use tokio::time::Instant;

use super::origins::Origins;
use crate::upstream::{MemberSetup, Upstream, UpstreamSetup};

/// The TLS that a plan needs, ready to be used. Made where files may be read; shared by all
/// workers.
#[derive(Default)]
pub struct TlsTable {
    /// Of listeners that speak it.
    pub servers: Vec<(ListenAddress, tls::Server)>,
    /// Of upstreams that are reached by it: one for each endpoint, in their order. One of a
    /// template is for all hosts.
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

    /// Whether somebody still has one of its plans, beside the table itself.
    fn is_needed(&self) -> bool {
        let mut plans = self.clients.iter().map(|(plan, _)| plan);
        plans.any(|plan| Arc::strong_count(plan) > 1)
    }
}

/// Says which addresses may be connected to when the URL is a user's.
#[derive(Debug)]
struct EgressGuard {
    policy: Arc<Policy>,
    is_secure: bool,
    proxy: Option<Rc<Proxy>>,
}

impl Guard for EgressGuard {
    fn check(&self, address: SocketAddr) -> Result<(), String> {
        let checked = self.policy.check(self.is_secure, address);
        checked.map_err(|refusal| refusal.to_string())
    }

    fn proxy(&self) -> Option<&Rc<Proxy>> {
        self.proxy.as_ref()
    }
}

/// The guard of a plan's endpoints, where it has one.
pub(super) fn guard(plan: &UpstreamPlan, settings: &Settings) -> Option<Rc<dyn Guard>> {
    plan.egress.is_guarded().then(|| {
        let proxy = settings.egress.proxy.as_ref().map(|proxy| {
            let user_pass = proxy.user_pass.as_deref();
            Rc::new(Proxy::new(&proxy.host, proxy.port, user_pass))
        });
        Rc::new(EgressGuard {
            proxy,
            policy: Arc::clone(&settings.egress),
            is_secure: plan.tls.is_some(),
        }) as _
    })
}

/// What all workers share about upstreams.
#[derive(Default)]
pub(crate) struct HealthBoard {
    /// What active checks have found.
    down: Mutex<Vec<BoardEntry>>,
    /// The connections to each endpoint.
    permits: Mutex<HashMap<EndpointKey, Arc<Permits>>>,
    /// How many requests wait for a connection of each upstream.
    queues: Mutex<HashMap<QueueKey, Arc<QueueCount>>>,
}

/// An upstream's name, an endpoint's host and port.
type EndpointKey = (Arc<str>, String, u16);
/// An upstream's name, which other flows may use for other systems, and its endpoints.
type QueueKey = (Arc<str>, Vec<(String, u16)>);
/// An endpoint, and whether it is down.
type BoardEntry = (EndpointKey, Arc<AtomicBool>);

impl HealthBoard {
    /// Every endpoint that is asked how it is: its upstream, its address, and whether it is down.
    pub fn verdicts(&self) -> Vec<(Arc<str>, String, bool)> {
        let mut board = self.down.lock().unwrap_or_else(PoisonError::into_inner);
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
        let mut board = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        board.retain(|(_, down)| Arc::strong_count(down) > 1);
        if let Some((_, down)) = board.iter().find(|(known, _)| *known == key) {
            return Arc::clone(down);
        }
        let down = Arc::<AtomicBool>::default();
        board.push((key, Arc::clone(&down)));
        down
    }

    /// The permits of this endpoint, whichever plan it comes from: a limit holds for connections
    /// of the plan before a reload too.
    fn permits(&self, plan: &UpstreamPlan, at: usize, limit: Option<usize>) -> Arc<Permits> {
        let Some(endpoint) = plan.endpoints.get(at) else {
            return Permits::new(limit);
        };
        let key = (Arc::clone(&plan.name), endpoint.host.clone(), endpoint.port);
        let mut board = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
        board.retain(|known, permits| *known == key || Arc::strong_count(permits) > 1);
        let permits = board.entry(key).or_insert_with(|| Permits::new(limit));
        permits.set_limit(limit);
        Arc::clone(permits)
    }

    fn queue(&self, plan: &UpstreamPlan) -> Arc<QueueCount> {
        let endpoints = plan.endpoints.iter();
        let endpoints = endpoints.map(|it| (it.host.clone(), it.port)).collect();
        let key = (Arc::clone(&plan.name), endpoints);
        let mut board = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        board.retain(|known, queue| *known == key || Arc::strong_count(queue) > 1);
        Arc::clone(board.entry(key).or_default())
    }
}

/// All systems one worker sends to. A reload keeps those that stay as they are, so that connections
/// stay open.
pub(crate) struct Upstreams {
    settings: RefCell<Settings>,
    tls: RefCell<Arc<TlsTable>>,
    /// Those of plans before, for requests that began on them.
    earlier_tls: RefCell<Vec<Arc<TlsTable>>>,
    board: Arc<HealthBoard>,
    /// The upstreams of the plan that is served.
    current: RefCell<Vec<Arc<UpstreamPlan>>>,
    deadlines: Deadlines,
    metrics: Arc<WorkerMetrics>,
    known: RefCell<Vec<Rc<Upstream>>>,
    /// Those that were made for URLs of users.
    origins: Origins,
}

impl Upstreams {
    pub fn new(
        board: &Arc<HealthBoard>,
        deadlines: &Deadlines,
        metrics: &Arc<WorkerMetrics>,
    ) -> Self {
        Self {
            settings: RefCell::new(Settings::default()),
            tls: RefCell::default(),
            earlier_tls: RefCell::default(),
            board: Arc::clone(board),
            current: RefCell::default(),
            deadlines: deadlines.clone(),
            metrics: Arc::clone(metrics),
            known: RefCell::default(),
            origins: Origins::default(),
        }
    }

    /// Takes the settings and the limits of a plan over.
    pub fn update(&self, plan: &Plan, tls: &Arc<TlsTable>) {
        let settings = &plan.settings;
        self.settings.replace(settings.clone());
        self.current.borrow_mut().clone_from(&plan.upstreams);
        let before = self.tls.replace(Arc::clone(tls));
        if !Arc::ptr_eq(&before, tls) {
            self.earlier_tls.borrow_mut().push(before);
        }
        for upstream in self.known.borrow().iter() {
            upstream.update(settings, &self.connections(&upstream.plan));
        }
        self.origins.update(settings);
    }

    /// What this engine calls itself in `CDN-Loop`, when its plan has URLs of users.
    pub fn loop_id(&self) -> Option<Arc<str>> {
        let current = self.current.borrow();
        let guards = current.iter().any(|plan| plan.egress.is_guarded());
        guards.then(|| Arc::clone(&self.settings.borrow().egress.loop_id))
    }

    /// The TLS of a plan's endpoints, be it one that is served no more.
    fn clients(&self, plan: &Arc<UpstreamPlan>) -> Vec<tls::Client> {
        if let Some(clients) = self.tls.borrow().clients(plan) {
            return clients.to_vec();
        }
        let earlier = self.earlier_tls.borrow();
        let found = earlier.iter().rev().find_map(|table| table.clients(plan));
        found.map(<[_]>::to_vec).unwrap_or_default()
    }

    /// The TLS of a plan that was made for a URL.
    fn clients_of_origin(&self, plan: &UpstreamPlan) -> Vec<tls::Client> {
        let template = plan.template.as_ref().filter(|_| plan.tls.is_some());
        let of_template = template.map(|it| self.clients(it)).unwrap_or_default();
        let host = plan.endpoints.first().map(|it| it.host.as_str());
        let client = of_template.first().zip(host);
        // A host that no certificate can have is reached by no TLS.
        let client = client.and_then(|(client, host)| client.for_name(host).ok());
        client.into_iter().collect()
    }

    /// The upstream of a plan: one that is there already, when nothing about it has changed but the
    /// limits on connections, which change in place.
    pub fn get(&self, plan: &Arc<UpstreamPlan>) -> Rc<Upstream> {
        if plan.template.is_some() {
            return self.origin(plan);
        }
        let clients = self.clients(plan);
        let is_same = |known: &&Rc<Upstream>| {
            let members = known.members().iter().enumerate();
            is_same_but_limits(&known.plan, plan)
                && members
                    .into_iter()
                    .all(|(at, member)| member.endpoint.has_tls(clients.get(at)))
        };
        let found = self.known.borrow().iter().find(is_same).cloned();
        let connections = self.connections(plan);
        if let Some(upstream) = found {
            if upstream.connections() != connections {
                upstream.update(&self.settings.borrow(), &connections);
            }
            return upstream;
        }
        let permits = |at| self.board.permits(plan, at, connections.limit);
        let queue = self.board.queue(plan);
        let upstream = Rc::new(self.make(plan, &clients, queue, permits));
        self.known.borrow_mut().push(Rc::clone(&upstream));
        upstream
    }

    /// The upstream of a plan that was made for a URL. Its limits are each worker's own: nothing is
    /// kept for the process of what anybody can name.
    fn origin(&self, plan: &Arc<UpstreamPlan>) -> Rc<Upstream> {
        let make = || {
            let clients = self.clients_of_origin(plan);
            let permits = |_| Permits::new(plan.connections.limit);
            self.make(plan, &clients, Arc::default(), permits)
        };
        self.origins.get(plan, make, Instant::now())
    }

    /// The limits that hold for an upstream: those of the plan that is served, also where an older
    /// one is still at work.
    fn connections(&self, plan: &UpstreamPlan) -> ConnectionLimits {
        let current = self.current.borrow();
        let served = current.iter().find(|it| it.name == plan.name);
        served.map_or(plan.connections, |it| it.connections)
    }

    /// A further upstream with one endpoint of another, for looking how that is: it has
    /// connections of its own, so that it never waits for those of requests.
    pub fn probe(&self, plan: &Arc<UpstreamPlan>, at: usize) -> Rc<Upstream> {
        let clients = self.clients(plan);
        let mut single = UpstreamPlan::clone(plan);
        single.endpoints = plan.endpoints.get(at).cloned().into_iter().collect();
        single.connections.limit = None;
        single.health = None;
        let clients = clients.get(at).map_or(&[][..], std::slice::from_ref);
        let own = |_| Permits::new(None);
        Rc::new(self.make(&Arc::new(single), clients, Arc::default(), own))
    }

    fn make(
        &self,
        plan: &Arc<UpstreamPlan>,
        clients: &[tls::Client],
        queue: Arc<QueueCount>,
        permits: impl Fn(usize) -> Arc<Permits>,
    ) -> Upstream {
        let speaks = |protocol| plan.protocols.contains(&protocol);
        let (may_h1, may_h2) = (speaks(Protocol::Http1), speaks(Protocol::Http2));
        let settings = self.settings.borrow();
        let endpoints = plan.endpoints.iter().enumerate().map(|(at, it)| {
            let security = match (clients.get(at), &plan.tls) {
                (_, None) => Security::Clear,
                (Some(client), Some(_)) => Security::Tls(client.clone()),
                (None, Some(_)) => Security::Unavailable,
            };
            let config = EndpointConfig {
                host: &it.host,
                port: it.port,
                security,
                may_h1,
                may_h2,
                resolve: plan.connections.resolve,
                resolver: Rc::new(SystemResolver),
                guard: guard(plan, &settings),
            };
            MemberSetup {
                endpoint: Endpoint::new(config),
                down: self.board.entry(plan, at),
                permits: permits(at),
                may_h1,
                may_h2,
            }
        });
        Upstream::new(UpstreamSetup {
            plan,
            settings: settings.clone(),
            endpoints: endpoints.collect(),
            queue,
            deadlines: &self.deadlines,
            metrics: &self.metrics,
        })
    }

    /// Closes idle connections that are too old or dead, and forgets upstreams nobody uses.
    pub fn prune(&self, now: Instant) {
        self.known.borrow_mut().retain(|upstream| {
            upstream.prune(now);
            Rc::strong_count(upstream) > 1 || !upstream.is_unused()
        });
        self.origins.prune(now);
        let mut earlier = self.earlier_tls.borrow_mut();
        earlier.retain(|table| table.is_needed());
    }
}

/// Whether two plans differ in limits on connections at most.
fn is_same_but_limits(one: &UpstreamPlan, other: &UpstreamPlan) -> bool {
    let mut adjusted = one.clone();
    adjusted.connections = other.connections;
    adjusted == *other
}

#[cfg(test)]
mod tests;
