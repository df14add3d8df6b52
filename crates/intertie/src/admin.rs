//! The admin port: `/health`, `/ready`, `/metrics`, `/reload` and the deny list, served by a worker
//! of its own so that it answers however busy the others are.

mod deny;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use component::access::{Caller, Door};
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

use crate::admin::deny::DenyPage;
use crate::cli::Admin;
use crate::crew::{Crew, PreparedPlan};
use crate::data;
use crate::metrics::Metrics;

/// The content type of the exposition format that `/metrics` speaks.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Where the admin port listens when nobody says otherwise.
const USUAL: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9900);

/// How long a worker may do nothing at all before `/health` says so. Expressions hold a worker up
/// for much less.
pub(crate) const STUCK: Duration = Duration::from_secs(10);

/// The wish that the files be loaded again. It is answered with why they were not.
pub(crate) type ReloadRequest = oneshot::Sender<Result<(), String>>;

/// How many of them may wait.
const RELOADS_MAX: usize = 16;

/// What a page says or does.
enum Page {
    /// All workers move, and the disk has not failed.
    Health(Arc<Engine>, Arc<States>),
    /// It takes requests.
    Ready(Arc<AtomicBool>, Arc<States>),
    /// Its counters.
    Metrics(Metrics),
    /// The files are loaded again.
    Reload(mpsc::Sender<ReloadRequest>),
}

impl Handler for Page {
    fn reads_body(&self) -> bool {
        false
    }

    fn handle<'a>(
        &'a self,
        request: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        Box::pin(async move {
            let reply = match self {
                Self::Reload(reloads) => reload(reloads, &request).await?,
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
    fn only(self, method: Method) -> Served {
        (vec![method], Arc::new(self), 0)
    }

    fn reply(&self) -> Reply {
        let failure = match self {
            Self::Health(_, states) | Self::Ready(_, states) => data::failure(states),
            Self::Metrics(_) | Self::Reload(_) => None,
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
            Self::Ready(..) | Self::Reload(_) => text(503, "not ready\n"),
            Self::Metrics(metrics) => match metrics.text() {
                Ok(content) => Reply::with_content(200, METRICS_TYPE, content.into_bytes()),
                Err(error) => text(500, &format!("{error}\n")),
            },
        }
    }
}

/// Has the files loaded again, as SIGHUP does, and waits for how that ends.
async fn reload(reloads: &mpsc::Sender<ReloadRequest>, request: &Request) -> Result<Reply, Fault> {
    refuse_other_origin(request)?;
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

/// Refuses what a page of another origin has a browser send: it would come with the credentials
/// that the browser remembers, or from the machine that alone reaches the port.
fn refuse_other_origin(request: &Request) -> Result<(), Fault> {
    let Some(origin) = request.headers.get("Origin") else {
        return Ok(());
    };
    let host = request.headers.get("Host").unwrap_or_default();
    let is_own = [&b"http://"[..], b"https://"]
        .iter()
        .any(|scheme| origin.strip_prefix(*scheme) == Some(host));
    match is_own {
        true => Ok(()),
        false => {
            let detail = "pages of other origins may not operate the engine";
            Err(Fault::new(Kind::Forbidden, Origin::Client, detail))
        }
    }
}

/// What `/health` says of workers that do not move.
fn stuck_text(stuck: &[StuckWorker]) -> Option<String> {
    let lines = stuck.iter().map(|worker| {
        let StuckWorker { number, time } = worker;
        format!("worker {number} has not moved for {} s\n", time.as_secs())
    });
    Some(lines.collect()).filter(|text: &String| !text.is_empty())
}

/// What the pages tell of and act on.
pub(crate) struct Subject {
    pub engine: Arc<Engine>,
    pub states: Arc<States>,
    pub ready: Arc<AtomicBool>,
    pub reloads: mpsc::Sender<ReloadRequest>,
}

impl Subject {
    /// A new one, and where wishes to reload arrive.
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
pub(crate) struct AdminPort {
    crew: Crew,
    subject: Subject,
    /// The address that the command line names; it wins over the file's.
    fixed: Option<SocketAddr>,
}

impl AdminPort {
    /// Opens it, unless the command line says `off`.
    ///
    /// # Errors
    /// When its address cannot be listened on.
    pub async fn start(
        argument: Option<Admin>,
        subject: Subject,
        settings: (&AdminSettings, &Arc<TlsTable>),
    ) -> anyhow::Result<Option<Self>> {
        let fixed = match argument {
            Some(Admin::Off) => return Ok(None),
            Some(Admin::On(address)) => Some(address),
            None => None,
        };
        let mut port = Self {
            crew: Crew::start("admin", 1, &Arc::new(Engine::for_admin()))?,
            subject,
            fixed,
        };
        let prepared = port.prepare(settings)?;
        port.commit(prepared).await?;
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
        prepared.context(
            "the admin port cannot be opened; choose another with `engine.admin.listen` or \
             --admin, or `--admin off`",
        )
    }

    /// Serves what has been prepared.
    ///
    /// # Errors
    /// As [`Crew::commit`].
    pub async fn commit(&mut self, prepared: PreparedPlan) -> anyhow::Result<()> {
        self.crew.commit(prepared).await
    }

    /// Ends what is under way.
    ///
    /// # Errors
    /// As [`Crew::stop`].
    pub async fn stop(self) -> anyhow::Result<()> {
        self.crew.stop().await
    }

    fn plan(&self, settings: &AdminSettings) -> Plan {
        let Subject {
            engine,
            states,
            ready,
            reloads,
        } = &self.subject;
        let health = Page::Health(Arc::clone(engine), Arc::clone(states));
        let ready = Page::Ready(Arc::clone(ready), Arc::clone(states));
        let metrics = Page::Metrics(Metrics::new(engine, states));
        let view = settings.view.as_ref();
        let deny: Arc<dyn Handler> = Arc::new(DenyPage::new(states));
        let list = (vec![Method::Get], Arc::clone(&deny), 0);
        let mut routes = vec![
            route("health", health.only(Method::Get), None),
            route("ready", ready.only(Method::Get), None),
            route("metrics", metrics.only(Method::Get), view),
            route("deny", list, view),
        ];
        let door = match &settings.operate {
            Operate::Nobody => None,
            Operate::Everybody => Some(None),
            Operate::Behind(door) => Some(Some(door)),
        };
        if let Some(door) = door {
            let reload = Page::Reload(reloads.clone());
            routes.push(route("reload", reload.only(Method::Post), door));
            let methods = vec![Method::Post, Method::Delete];
            routes.push(route("deny", (methods, deny, deny::BODY_MAX), door));
        }
        Plan {
            listeners: vec![ListenerPlan {
                address: self.address(settings),
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

/// A page of the port: its methods, who takes its requests, and the most bytes of their bodies.
type Served = (Vec<Method>, Arc<dyn Handler>, u64);

fn route(
    name: &str,
    (methods, handler, body_max): Served,
    door: Option<&Arc<dyn Door>>,
) -> RoutePlan {
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
    }
}
