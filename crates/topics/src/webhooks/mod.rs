//! Webhooks: a topic's events are sent to endpoints as HTTP requests (decision 0051).
//!
//! [`machine`] is one endpoint without input or output: what is sent when, what an answer means,
//! and what has to be remembered. [`driver`] serves all endpoints of a topic on a worker: it hands
//! them the topic's events as their [`view`] shows them, has requests sent ([`deliver`], [`post`]),
//! and notes where they are. Endpoints that are in no file come to it by a [`roster`]. [`state`] is
//! what the process knows of an endpoint by its name, from one plan to the next.

mod config;
mod deliver;
mod driver;
mod envelope;
mod machine;
mod opening;
mod operator;
mod plan;
mod post;
mod read;
mod roster;
mod state;
mod view;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use ::config::Node;
use component::document::DocumentContext;
use component::handler::{LocalFuture, Services};
use component::resources::Share;
use component::source::{Source, SourcePlan, Started};
use component::upstream::UpstreamPlan;

pub(crate) use self::config::WebhooksConfig;
use self::driver::Driver;
pub(crate) use self::opening::{Opened, open};
pub use self::operator::{Listed, Refused, list, operate};
use self::plan::{Destination, EndpointPlan};
pub use self::state::{Command, Health};
pub(crate) use self::state::{EndpointState, TABLE, key};
use crate::hub::Hub;
use crate::poll::NoFlow;
use crate::topic::Topic;

/// What hubs deliver with: an endpoint of a hub is another head of the same machine.
pub(crate) mod hub {
    pub(crate) use super::config::RetryConfig;
    pub(crate) use super::driver::Driver;
    pub(crate) use super::is_here;
    pub(crate) use super::machine::{Order, Policy};
    pub(crate) use super::plan::{Destination, EndpointPlan, Head, HubHead};
    pub(crate) use super::read::backoff;
    pub(crate) use super::roster::{Arrival, Arrivals};
    pub(crate) use super::state::{Counts, EndpointState, Stored, key};
    pub(crate) use super::view::{ViewPlan, text};
}

/// Reads what stands under `subscribe.webhooks` of a topic: what serves the endpoints, and the
/// systems that it sends to. Every problem is reported; `None` when there is no endpoint.
pub(crate) fn read(
    config: &WebhooksConfig,
    node: &Node,
    topic: &Arc<Topic>,
    context: &mut DocumentContext<'_>,
) -> Option<(SourcePlan, Vec<Arc<UpstreamPlan>>)> {
    let endpoints = read::read(config, node, topic, context);
    if endpoints.is_empty() {
        return None;
    }
    let targets = endpoints.iter().filter_map(|it| match &it.target {
        Destination::Fixed(target) => Some(&target.upstreams),
        Destination::Guarded { .. } => None,
    });
    let upstreams = targets.flatten().map(Arc::clone).collect();
    let known = endpoints.iter().map(|it| (Arc::clone(&it.state), it.start));
    topic.set_webhooks(known.collect());
    let source = WebhookSource {
        topic: Arc::clone(topic),
        hub: Hub::of(context.surroundings.states),
        endpoints,
    };
    let name = format!("webhooks of topic {}", topic.name());
    let plan = SourcePlan {
        flow: Arc::new(NoFlow(name.into())),
        source: Arc::new(source),
    };
    Some((plan, upstreams))
}

/// What serves the endpoints of a topic. Each worker has its share of them.
struct WebhookSource {
    topic: Arc<Topic>,
    hub: Arc<Hub>,
    endpoints: Vec<Arc<EndpointPlan>>,
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
            let driver = Driver::new(&self.topic, &self.hub, own.map(Arc::clone), services);
            match driver {
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
    (&*state.topic, &*state.name).hash(&mut hasher);
    hasher.finish() % share.count.max(1) as u64 == share.number as u64
}
