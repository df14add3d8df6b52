//! Webhooks: a topic's events are sent to endpoints as HTTP requests (decision 0051).
//!
//! [`machine`] is one endpoint without input or output: what is sent when, what an answer means,
//! and what has to be remembered. [`driver`] serves all endpoints of a topic on a worker: it hands
//! them the topic's events as their [`view`] shows them, has requests sent ([`deliver`], [`post`]),
//! and notes where they are. [`state`] is what the process knows of an endpoint by its name, from
//! one plan to the next. [`subscriptions`] are the endpoints that users have made by REST,
//! [`manage`] is that REST interface, [`attempts`] what endpoints have answered lately. [`axway`]
//! is what receivers made for Axway Streams get beside it. Those of hubs come to a driver by a
//! [`roster`].

mod attempts;
mod axway;
mod config;
mod deliver;
mod delivery;
mod driver;
mod envelope;
mod machine;
mod manage;
mod members;
mod opening;
mod operator;
mod plan;
mod post;
mod read;
mod replay;
mod reports;
mod roster;
mod state;
mod subscriptions;
mod times;
mod view;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use ::config::{ByteSize, Node};
use component::document::{Declared, DocumentContext, Mention};
use component::handler::{LocalFuture, Services};
use component::resources::Share;
use component::source::{Source, SourcePlan, Started};
use component::upstream::UpstreamPlan;

pub(crate) use self::config::WebhooksConfig;
use self::driver::{Driver, Served};
pub(crate) use self::manage::{BODY_MAX, ExpressionBounds, Managed, Wishes, axway_routes, routes};
pub(crate) use self::opening::{Opened, open};
pub use self::operator::{Listed, Refused, attempts, list, operate, replay};
use self::plan::EndpointPlan;
pub use self::state::{Command, Health};
pub(crate) use self::state::{EndpointState, TABLE, key};
pub(crate) use self::subscriptions::SUBSCRIPTIONS;
use crate::codes::{BAD_WEBHOOK, UNKNOWN_TOPIC};
use crate::declare::KIND;
use crate::hub::Hub;
use crate::poll::NoFlow;
use crate::settings::Payload;
use crate::topic::Topic;

/// What hubs deliver with: an endpoint of a hub is another head of the same machine.
pub(crate) mod hub {
    pub(crate) use super::driver::{Driver, Served};
    pub(crate) use super::is_here;
    pub(crate) use super::machine::{Order, Policy};
    pub(crate) use super::plan::{Destination, EndpointPlan, Subscriber, Terms};
    pub(crate) use super::roster::{Arrival, Arrivals};
    pub(crate) use super::state::{EndpointGroup, EndpointKind, EndpointState, Stored, key};
    pub(crate) use super::view::{ViewPlan, text};
}

/// The least that `body_max` of an operational topic must allow, in bytes: names, ids and the
/// beginning of a reply, each of which is bounded.
const REPORT_LEAST: usize = 8 << 10;

/// What comes of `subscribe.webhooks`.
pub(crate) struct Webhooks {
    /// What serves the endpoints.
    pub source: SourcePlan,
    /// The systems that it sends to.
    pub upstreams: Vec<Arc<UpstreamPlan>>,
    /// How users manage webhooks, if they do.
    pub managed: Option<Arc<Managed>>,
}

/// Reads what stands under `subscribe.webhooks` of a topic. Every problem is reported; `None` when
/// there is no endpoint and nobody can make one. `wishes` is what users may wish.
pub(crate) fn read(
    config: &WebhooksConfig,
    node: &Node,
    (topic, wishes): (&Arc<Topic>, Wishes),
    context: &mut DocumentContext<'_>,
) -> Option<Webhooks> {
    let endpoints = read::read(config, node, topic, context);
    let files = config.endpoints.len();
    let managed = match &config.manage {
        Some(config) => manage::read(config, (topic, wishes), &endpoints, context),
        None if files == 0 => {
            context
                .report
                .error(BAD_WEBHOOK, node.span, "`webhooks` has no endpoint")
                .hint("add `endpoints`, or `manage` to have callers make theirs by REST");
            None
        }
        None => None,
    };
    let managed = managed.map(Arc::new);
    if endpoints.is_empty() && managed.is_none() {
        return None;
    }
    let all = endpoints.iter().flat_map(|it| it.upstreams());
    let mut upstreams: Vec<Arc<UpstreamPlan>> = all.map(Arc::clone).collect();
    upstreams.extend(managed.iter().map(|it| Arc::clone(it.upstream())));
    let known = endpoints
        .iter()
        .map(|it| (Arc::clone(&it.state), it.terms().start));
    topic.set_webhooks(known.collect(), managed.as_ref().map(Arc::clone));
    let source = WebhookSource {
        topic: Arc::clone(topic),
        hub: Hub::of(context.surroundings.states),
        endpoints,
        managed: managed.as_ref().map(Arc::clone),
    };
    let name = format!("webhooks of topic {}", topic.name());
    let source = SourcePlan {
        flow: Arc::new(NoFlow(name.into())),
        source: Arc::new(source),
    };
    Some(Webhooks {
        source,
        upstreams,
        managed,
    })
}

/// The operational topic that a topic's webhooks are reported on, if it names one.
pub(crate) fn mention(config: &WebhooksConfig, topic: &Arc<Topic>) -> Option<Mention> {
    let name = config.report.clone()?;
    topic.set_names_report();
    let (topic, span) = (Arc::clone(topic), name.span);
    Some(Mention {
        kind: KIND,
        name,
        unknown: UNKNOWN_TOPIC,
        found: Box::new(move |declared, report| {
            let target = Arc::clone(&declared.declaration.value).downcast::<Topic>();
            let Ok(target) = target else {
                return;
            };
            match refusal(&target, declared) {
                None => topic.set_reports_to(target),
                Some((message, hint)) => {
                    let of = declared.declaration.span;
                    let diagnostic = report.error(BAD_WEBHOOK, span, message);
                    diagnostic.also(of, "the topic").hint(hint);
                }
            }
        }),
    })
}

/// Why webhooks cannot be reported on a topic, and what to do instead.
fn refusal(target: &Topic, declared: &Declared) -> Option<(String, &'static str)> {
    let (name, settings) = (target.name(), target.settings());
    if target.names_report() {
        // Also the topic that names itself. Otherwise an endpoint that fails could make events that
        // make it fail.
        let message = format!("`{name}` is told of webhooks, and its own are reported nowhere");
        return Some((message, "leave `report` out there"));
    }
    if settings.payload == Payload::Snapshot {
        let message =
            format!("`{name}` keeps the last state only: each event would replace the others");
        return Some((message, "write `payload: event` in the topic"));
    }
    if settings.body_max < REPORT_LEAST {
        let least = ByteSize(REPORT_LEAST as u64);
        let message = format!("the `body_max` of `{name}` is too small: at least {least}");
        return Some((message, "leave it out"));
    }
    if declared.routes.iter().any(|it| it.guard.publishes) {
        let message = format!(
            "clients publish to `{name}`: what they write could be taken for what the engine says"
        );
        let hint = "leave `publish` of the topic out, and `websocket.publish` and `profile`";
        return Some((message, hint));
    }
    None
}

/// What serves the endpoints of a topic. Each worker has its share of them.
struct WebhookSource {
    topic: Arc<Topic>,
    hub: Arc<Hub>,
    endpoints: Vec<Arc<EndpointPlan>>,
    managed: Option<Arc<Managed>>,
}

impl Source for WebhookSource {
    fn run<'a>(
        &'a self,
        _: &'a Arc<dyn Started>,
        services: &'a dyn Services,
        stop: LocalFuture<'static, ()>,
    ) -> LocalFuture<'a, ()> {
        Box::pin(async move {
            let share = services.share();
            let own = self.endpoints.iter().filter(|it| is_here(&it.state, share));
            let served = Served {
                topic: &self.topic,
                hub: &self.hub,
                files: own.map(Arc::clone).collect(),
                managed: self.managed.as_ref(),
                share,
            };
            match Driver::new(served, services) {
                Some(driver) => driver.run(services, stop).await,
                None => {
                    let topic = &**self.topic.name();
                    tracing::error!(target: "topics", topic, "nothing is sent to webhooks");
                    stop.await;
                }
            }
        })
    }

    fn is_on_every_worker(&self) -> bool {
        true
    }
}

/// Whether an endpoint belongs to this worker: the same one whatever plan is served.
pub(crate) fn is_here(state: &EndpointState, share: Share) -> bool {
    let mut hasher = DefaultHasher::new();
    (&**state.topic(), &*state.name).hash(&mut hasher);
    hasher.finish() % share.count.max(1) as u64 == share.number as u64
}
