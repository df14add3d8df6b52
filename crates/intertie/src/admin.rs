//! The admin port: `/health`, `/ready`, `/metrics` and the deny list, served by a worker of its own
//! so that it answers however busy the others are.

mod deny;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::plan::{ListenerPlan, Plan, RoutePlan, RouteTarget};
use component::state::States;
use component::tls::Protocol;
use component::trigger::{ListenAddress, Methods, PathPattern, Segment};
use message::secret::redact;
use message::{Fault, Method, Reply, Request};
use proxy::{Engine, StuckWorker};

use crate::admin::deny::DenyPage;
use crate::cli::Admin;
use crate::crew::Crew;
use crate::data;
use crate::metrics::Metrics;

/// The content type of the exposition format that `/metrics` speaks.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// How long a worker may do nothing at all before `/health` says so. Expressions hold a worker up
/// for much less.
pub(crate) const STUCK: Duration = Duration::from_secs(10);

/// What a page says.
enum Page {
    /// All workers move, and the disk has not failed.
    Health(Arc<Engine>, Arc<States>),
    /// It takes requests.
    Ready(Arc<AtomicBool>, Arc<States>),
    /// Its counters.
    Metrics(Metrics),
}

impl Handler for Page {
    fn reads_body(&self) -> bool {
        false
    }

    fn handle<'a>(
        &'a self,
        _: Request,
        _: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Outcome, Fault>> {
        let reply = self.reply();
        Box::pin(async move { Ok(Outcome::Reply(reply)) })
    }
}

impl Page {
    fn reply(&self) -> Reply {
        let text = |status, text: &str| {
            Reply::with_content(
                status,
                "text/plain; charset=utf-8",
                redact(text).into_owned().into_bytes(),
            )
        };
        let failure = match self {
            Self::Health(_, states) | Self::Ready(_, states) => data::failure(states),
            Self::Metrics(_) => None,
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
            Self::Ready(..) => text(503, "not ready\n"),
            Self::Metrics(metrics) => match metrics.text() {
                Ok(content) => Reply::with_content(200, METRICS_TYPE, content.into_bytes()),
                Err(error) => text(500, &format!("{error}\n")),
            },
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

/// Starts the admin port.
///
/// # Errors
/// When its address cannot be listened on.
pub(crate) async fn start(
    admin: Admin,
    engine: &Arc<Engine>,
    states: &Arc<States>,
    ready: &Arc<AtomicBool>,
) -> anyhow::Result<Option<Crew>> {
    let Admin::On(address) = admin else {
        return Ok(None);
    };
    let listen = ListenAddress {
        host: Some(address.ip().to_string()),
        port: address.port(),
    };
    let pages = [
        (
            "health",
            Page::Health(Arc::clone(engine), Arc::clone(states)),
        ),
        ("ready", Page::Ready(Arc::clone(ready), Arc::clone(states))),
        ("metrics", Page::Metrics(Metrics::new(engine, states))),
    ];
    let get = || vec![Method::Get];
    let mut routes: Vec<RoutePlan> = pages
        .into_iter()
        .map(|(name, page)| route(name, get(), (Arc::new(page), 0)))
        .collect();
    let methods = vec![Method::Get, Method::Post, Method::Delete];
    let deny = Arc::new(DenyPage::new(states));
    routes.push(route("deny", methods, (deny, deny::BODY_MAX)));
    let plan = Plan {
        listeners: vec![ListenerPlan {
            address: listen,
            tls: None,
            protocols: vec![Protocol::Http1],
            edge: Default::default(),
            routes,
        }],
        ..Plan::default()
    };
    let mut crew = Crew::start("admin", 1, &Arc::new(Engine::for_admin()))?;
    let opened = crew.prepare(plan, &Arc::default());
    let opened =
        opened.context("the admin port cannot be opened; choose another with --admin, or `off`")?;
    crew.commit(opened).await?;
    Ok(Some(crew))
}

fn route(
    name: &str,
    methods: Vec<Method>,
    (handler, body_max): (Arc<dyn Handler>, u64),
) -> RoutePlan {
    RoutePlan {
        door: None,
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
