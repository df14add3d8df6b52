//! The admin port: `/health`, `/ready` and `/metrics`, served by a worker of its own so that it
//! answers however busy the others are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use component::handler::{Handler, LocalFuture, Outcome, Services};
use component::plan::{ListenerPlan, Plan, RoutePlan, RouteTarget};
use component::state::States;
use component::tls::Protocol;
use component::trigger::{ListenAddress, Methods, PathPattern, Segment};
use message::secret::redact;
use message::{Fault, Method, Reply, Request};
use proxy::Engine;

use crate::cli::Admin;
use crate::crew::Crew;
use crate::metrics::Metrics;

/// The content type of the exposition format that `/metrics` speaks.
const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What a page says.
enum Page {
    /// The process runs.
    Health,
    /// It takes requests.
    Ready(Arc<AtomicBool>),
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
        match self {
            Self::Health => text(200, "ok\n"),
            Self::Ready(ready) if ready.load(Ordering::Acquire) => text(200, "ready\n"),
            Self::Ready(_) => text(503, "not ready\n"),
            Self::Metrics(metrics) => match metrics.text() {
                Ok(content) => Reply::with_content(200, METRICS_TYPE, content.into_bytes()),
                Err(error) => text(500, &format!("{error}\n")),
            },
        }
    }
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
        ("health", Page::Health),
        ("ready", Page::Ready(Arc::clone(ready))),
        ("metrics", Page::Metrics(Metrics::new(engine, states))),
    ];
    let routes = pages
        .into_iter()
        .map(|(name, page)| route(name, page))
        .collect();
    let plan = Plan {
        listeners: vec![ListenerPlan {
            address: listen,
            tls: None,
            protocols: vec![Protocol::Http1],
            routes,
        }],
        ..Plan::default()
    };
    let mut crew = Crew::start("admin", 1, &Arc::new(Engine::new(None)))?;
    crew.serve(plan, &Arc::default())
        .await
        .context("the admin port cannot be opened; choose another with --admin, or `off`")?;
    Ok(Some(crew))
}

fn route(name: &str, page: Page) -> RoutePlan {
    RoutePlan {
        flow: format!("admin-{name}").into(),
        methods: Methods::Only(vec![Method::Get]),
        path: PathPattern {
            segments: vec![Segment::Literal(name.to_owned())],
            rest: false,
        },
        target: RouteTarget::Handle {
            handler: Arc::new(page),
            body_max: 0,
        },
    }
}
