//! The admin port: `/health`, `/ready`, `/metrics`, `/reload`, the deny list and webhooks, served
//! by
//! a worker of its own so that it answers however busy the others are.

mod browsers;
mod deny;
mod webhooks;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use component::access::{Caller, Door};
use component::audit::{Audit, Event, EventKind, Origin as AuditOrigin, Refusal};
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::plan::{ListenerPlan, Plan, RoutePlan, RouteTarget};
use component::state::States;
use component::tls::Protocol;
use component::trigger::{ListenAddress, Methods, PathPattern, Segment};
use flow::{AdminSettings, Operate};
use message::secret::redact;
use message::{Fault, Kind, Method, Origin, Reply, Request};
use proxy::{Engine, StuckWorker, TlsTable};
use tokio::sync::{mpsc, oneshot};

use crate::admin::browsers::Hosts;
use crate::admin::deny::DenyPage;
use crate::admin::webhooks::WebhooksPage;
use crate::cli::Admin;
use crate::crew::{Crew, ListeningPlan, PreparedPlan};
use crate::data;
use crate::metrics::Metrics;

/// The content type of the exposition format that `/metrics` speaks.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where the admin port listens when nobody says otherwise.
const USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9900);

/// How long a worker may do nothing at all before `/health` says so. Expressions hold a worker up
/// for much less.
pub(crate) const STUCK: Duration = Duration::from_secs(10);

/// A request to load the files again; the answer says why they were not, if so.
pub(crate) type ReloadRequest = oneshot::Sender<Result<(), String>>;

/// How many of them may wait.
const RELOADS_MAX: usize = 16;

/// What is said when it cannot listen.
const NOT_OPENED: &str = "the admin port cannot be opened; choose another with \
                          `engine.admin.listen` or --admin, or `--admin off`";

/// What a page says or does.
enum Page {
    /// All workers move, and the disk has not failed.
    Health(Arc<Engine>, Arc<States>),
    /// It takes requests.
    Ready(Arc<AtomicBool>, Arc<States>),
    /// Its counters.
    Metrics(Metrics),
    /// The files are loaded again.
    Reload(mpsc::Sender<ReloadRequest>, Arc<Hosts>, Arc<Audit>),
}

impl Handler for Page {
    fn reads_body(&self) -> bool {
        false
    }

    /// The audit stream is told how a reload has ended, also when its client has left.
    fn detaches(&self) -> bool {
        matches!(self, Self::Reload(..))
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async move {
            let reply = match self {
                Self::Reload(reloads, hosts, audit) => {
                    refuse_pages(hosts, &request, audit, "admin reload")?;
                    let reloaded = reload(reloads, &request).await;
                    audit_operation(EventKind::AdminReload, &request, audit, &reloaded);
                    reloaded?
                }
                page => page.reply(),
            };
            Ok(Outcome::Reply(reply))
        })
    }
}

/// A reply of plain text.
fn text(status: u16, text: &str) -> Reply {
    let content = redact(text).into_owned().into_bytes();
    Reply::with_content(status, "text/plain; charset=utf-8", content)
}

impl Page {
    /// With this method alone, and without a body.
    fn only(self, method: Method) -> PageHandler {
        PageHandler {
            methods: vec![method],
            handler: Arc::new(self),
            body_max: 0,
        }
    }

    fn reply(&self) -> Reply {
        let failure = match self {
            Self::Health(_, states) | Self::Ready(_, states) => data::failure(states),
            Self::Metrics(_) | Self::Reload(..) => None,
        };
        if let Some(failure) = failure {
            return text(503, failure);
        }
        match self {
            Self::Health(engine, _) => match stuck_text(&engine.stuck_workers(STUCK)) {
                None => text(200, "ok\n"),
                Some(stuck) => text(503, &stuck),
            },
            Self::Ready(ready, _) if ready.load(Ordering::Acquire) => text(200, "ready\n"),
            Self::Ready(..) | Self::Reload(..) => text(503, "not ready\n"),
            Self::Metrics(metrics) => match metrics.text() {
                Ok(content) => Reply::with_content(200, METRICS_TYPE, content.into_bytes()),
                Err(error) => text(500, &format!("{error}\n")),
            },
        }
    }
}

/// Has the files loaded again, as SIGHUP does, and waits for how that ends.
async fn reload(reloads: &mpsc::Sender<ReloadRequest>, request: &Request) -> Result<Reply, Fault> {
    let peer = request.peer;
    match Caller::of(request) {
        Some(Caller { way, id, .. }) => {
            tracing::info!(%way, %id, %peer, "asked to reload by the admin port");
        }
        None => tracing::info!(%peer, "asked to reload by the admin port"),
    }
    let busy = || {
        Fault::new(
            Kind::Unavailable,
            Origin::Engine,
            "the engine cannot reload now",
        )
    };
    let (answer, answered) = oneshot::channel();
    reloads.try_send(answer).map_err(|_| busy())?;
    match answered.await {
        Ok(Ok(())) => Ok(text(200, "reloaded\n")),
        Ok(Err(reason)) => Err(Fault::raised("not-reloaded", None, reason).with_status(409)),
        Err(_) => Err(busy()),
    }
}

/// Refuses what web pages may not do by the port, and tells the audit stream.
fn refuse_pages(
    hosts: &Hosts,
    request: &Request,
    audit: &Audit,
    target: &str,
) -> Result<(), Fault> {
    hosts.refuse_pages(request).map_err(|refused| {
        let fault = refused.fault();
        let caller = Caller::of(request);
        let refusal = Refusal {
            way: caller.map(|it| &it.way),
            id: caller.map(|it| &it.id),
            reason: refused.name(),
            status: Some(fault.status),
            target,
        };
        audit.refused(&refusal, || AuditOrigin::from(request));
        fault
    })
}

/// Tells the audit stream who has operated the engine, and how that has ended.
fn audit_operation(
    kind: EventKind,
    request: &Request,
    audit: &Audit,
    ended: &Result<Reply, Fault>,
) {
    audit.record(|| {
        let (event, status) = match ended {
            Ok(reply) => (Event::success(kind), reply.status),
            Err(fault) => (Event::failure(kind, &fault.detail), fault.status),
        };
        event.of_request(request).with_status(status)
    });
}

/// What `/health` says of workers that do not move.
fn stuck_text(stuck: &[StuckWorker]) -> Option<String> {
    let lines = stuck.iter().map(|worker| {
        let StuckWorker { number, time } = worker;
        format!("worker {number} has not moved for {} s\n", time.as_secs())
    });
    Some(lines.collect()).filter(|text: &String| !text.is_empty())
}

/// What the pages of the admin port show and act on.
pub(crate) struct AdminContext {
    pub engine: Arc<Engine>,
    pub states: Arc<States>,
    pub ready: Arc<AtomicBool>,
    pub reloads: mpsc::Sender<ReloadRequest>,
}

impl AdminContext {
    /// A context, and the receiver of the requests to reload.
    pub fn new(
        engine: &Arc<Engine>,
        states: &Arc<States>,
        ready: &Arc<AtomicBool>,
    ) -> (Self, mpsc::Receiver<ReloadRequest>) {
        let (reloads, wishes) = mpsc::channel(RELOADS_MAX);
        let subject = Self {
            engine: Arc::clone(engine),
            states: Arc::clone(states),
            ready: Arc::clone(ready),
            reloads,
        };
        (subject, wishes)
    }
}

/// The admin port while the engine runs.
pub(crate) struct AdminServer {
    crew: Crew,
    subject: AdminContext,
    /// The address that the command line names; it wins over the file's.
    fixed: Option<SocketAddr>,
}

impl AdminServer {
    /// Opens it, unless the command line says `off`.
    ///
    /// # Errors
    /// When its address cannot be listened on.
    pub async fn start(
        argument: Option<Admin>,
        subject: AdminContext,
        settings: (&AdminSettings, &Arc<TlsTable>),
    ) -> anyhow::Result<Option<Self>> {
        let fixed = match argument {
            Some(Admin::Off) => return Ok(None),
            Some(Admin::On(address)) => Some(address),
            None => None,
        };
        let engine = Engine::for_admin().with_audit(&Audit::of(&subject.states));
        let mut port = Self {
            crew: Crew::start("admin", 1, &Arc::new(engine))?,
            subject,
            fixed,
        };
        let listening = Self::listen(port.prepare(settings)?)?;
        port.commit(listening).await?;
        Ok(Some(port))
    }

    /// Does everything for these settings that can fail. Nobody notices until it is committed.
    ///
    /// # Errors
    /// When a new address cannot be listened on.
    pub fn prepare(
        &self,
        (settings, tls): (&AdminSettings, &Arc<TlsTable>),
    ) -> anyhow::Result<PreparedPlan> {
        let prepared = self.crew.prepare(self.plan(settings), tls);
        prepared.context(NOT_OPENED)
    }

    /// Listens where the port is going to be.
    ///
    /// # Errors
    /// As [`PreparedPlan::listen`].
    pub fn listen(prepared: PreparedPlan) -> anyhow::Result<ListeningPlan> {
        prepared.listen().context(NOT_OPENED)
    }

    /// Serves what has been prepared.
    ///
    /// # Errors
    /// As [`Crew::commit`].
    pub async fn commit(&mut self, listening: ListeningPlan) -> anyhow::Result<()> {
        self.crew.commit(listening).await
    }

    /// Ends what is under way.
    ///
    /// # Errors
    /// As [`Crew::stop`].
    pub async fn stop(self) -> anyhow::Result<()> {
        self.crew.stop().await
    }

    fn plan(&self, settings: &AdminSettings) -> Plan {
        let AdminContext {
            engine,
            states,
            ready,
            reloads,
        } = &self.subject;
        let health = Page::Health(Arc::clone(engine), Arc::clone(states));
        let ready = Page::Ready(Arc::clone(ready), Arc::clone(states));
        let metrics = Page::Metrics(Metrics::new(engine, states));
        let view = settings.view.as_ref();
        let address = self.address(settings);
        let names = address.host.iter().map(|it| it.to_ascii_lowercase());
        let hosts = Arc::new(Hosts::new(names.chain(settings.hosts.iter().cloned())));
        let deny: Arc<dyn Handler> = Arc::new(DenyPage::new(states, &hosts));
        let list = PageHandler {
            methods: vec![Method::Get],
            handler: Arc::clone(&deny),
            body_max: 0,
        };
        let mut routes = vec![
            route("health", health.only(Method::Get), None),
            route("ready", ready.only(Method::Get), None),
            route("metrics", metrics.only(Method::Get), view),
            route("deny", list, view),
        ];
        let webhooks: Arc<dyn Handler> = Arc::new(WebhooksPage::new(states, &hosts));
        let of_webhooks = |methods, handler, body_max| PageHandler {
            methods,
            handler,
            body_max,
        };
        let read = || of_webhooks(vec![Method::Get], Arc::clone(&webhooks), 0);
        routes.push(route("webhooks", read(), view));
        routes.push(below(route("webhooks", read(), view), ATTEMPTS));
        let door = match &settings.operate {
            Operate::Nobody => None,
            Operate::Everybody => Some(None),
            Operate::Behind(door) => Some(Some(door)),
        };
        if let Some(door) = door {
            let reload = Page::Reload(reloads.clone(), hosts, Audit::of(states));
            routes.push(route("reload", reload.only(Method::Post), door));
            let change = PageHandler {
                methods: vec![Method::Post, Method::Delete],
                handler: deny,
                body_max: deny::BODY_MAX,
            };
            routes.push(route("deny", change, door));
            let operate = of_webhooks(vec![Method::Post], webhooks, webhooks::BODY_MAX);
            routes.push(below(route("webhooks", operate, door), WEBHOOK));
        }
        Plan {
            listeners: vec![ListenerPlan {
                address,
                tls: None,
                protocols: vec![Protocol::Http1],
                edge: Default::default(),
                routes,
            }],
            upstreams: settings.upstreams.clone(),
            ..Plan::default()
        }
    }

    fn address(&self, settings: &AdminSettings) -> ListenAddress {
        let of_socket = |address: SocketAddr| ListenAddress {
            host: Some(address.ip().to_string()),
            port: address.port(),
        };
        match (self.fixed, &settings.listen) {
            (Some(address), _) => of_socket(address),
            (None, Some(listen)) => listen.clone(),
            (None, None) => of_socket(USUAL),
        }
    }
}

/// What serves some methods of a page.
struct PageHandler {
    methods: Vec<Method>,
    handler: Arc<dyn Handler>,
    /// The most bytes of a request's body.
    body_max: u64,
}

fn route(name: &str, page: PageHandler, door: Option<&Arc<dyn Door>>) -> RoutePlan {
    let PageHandler {
        methods,
        handler,
        body_max,
    } = page;
    RoutePlan {
        door: door.map(Arc::clone),
        flow: format!("admin-{name}").into(),
        methods: Methods::Only(methods),
        path: PathPattern {
            segments: vec![Segment::Literal(name.to_owned())],
            rest: false,
        },
        edge: None,
        target: RouteTarget::Handle { handler, body_max },
    }
}

/// What stands behind `/webhooks` in a command; names in braces are parameters.
const WEBHOOK: [&str; 3] = ["{topic}", "{endpoint}", "{action}"];
/// The same where the attempts of a webhook are read.
const ATTEMPTS: [&str; 3] = ["{topic}", "{endpoint}", "attempts"];

/// The same for paths with these segments behind it.
fn below(mut route: RoutePlan, segments: [&str; 3]) -> RoutePlan {
    let segments = segments.map(|it| {
        let parameter = it.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
        match parameter {
            Some(name) => Segment::Parameter(name.to_owned()),
            None => Segment::Literal(it.to_owned()),
        }
    });
    route.path.segments.extend(segments);
    route
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_names_each_worker_that_does_not_move() {
        let worker = |number, seconds| StuckWorker {
            number,
            time: Duration::from_secs(seconds),
        };
        assert_eq!(stuck_text(&[]), None);
        let text = stuck_text(&[worker(0, 11), worker(3, 62)]).unwrap();
        assert_eq!(
            text,
            "worker 0 has not moved for 11 s\nworker 3 has not moved for 62 s\n"
        );
        let page = Page::Health(Arc::new(Engine::new(None)), Arc::default());
        assert_eq!(page.reply().status, 200);
        assert!(!page.detaches());
    }
}
