//! Webhooks that users manage by REST (`subscribe.webhooks.manage`).
//!
//! [`config`] is what stands in the file, [`Managed`] what comes of it: how subscriptions of a
//! topic are served under a plan. [`operations`] is what callers can do with webhooks. Two
//! interfaces call it: our own ([`handler`], described by [`openapi`]) and that of Axway Streams
//! ([`axway`]), both for callers that [`admission`] has let in. [`body`] and [`wishes`] read what
//! requests say, [`show`] writes what they get, [`probe`] sends challenges and tests.

mod admission;
mod axway;
mod body;
pub(super) mod config;
mod handler;
pub(super) mod openapi;
mod operations;
mod operators;
mod pace;
mod probe;
mod read;
pub(super) mod show;
mod wishes;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use access::sealing_keys::SealingKeys;
use component::egress::Origins;
use component::handler::Services;
use component::scope::Scope;
use component::upstream::UpstreamPlan;
use expr::Expression;
use journal::Keyed;
use message::{Fault, Kind, Origin};
use websub::url::Url;

pub(crate) use self::axway::routes as axway_routes;
pub(crate) use self::handler::{BODY_MAX, routes};
use self::operators::Operators;
use self::pace::Pace;
pub(crate) use self::read::Wishes;
pub(super) use self::read::read;
use super::attempts::Attempts;
use super::delivery::Delivery;
use super::machine::Policy;
use super::plan::{Destination, EndpointPlan, Outgoing, Subscribed, Terms};
use super::subscriptions::Subscriptions;
use super::subscriptions::record::{Subscription, ViewText};
use super::subscriptions::registry::{Bounds, Known};
use super::times::now_ms;
use super::view::ViewPlan;
use crate::hub::Hub;
use crate::topic::Topic;
use crate::view::Mode;

/// What `select`, `filter` and the number of different ones may be; absent where the topic does not
/// allow expressions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpressionBounds {
    /// The most different views with expressions.
    pub distinct: usize,
    /// The most bytes of an expression.
    pub length: usize,
}

/// How subscriptions of a topic are managed and served.
pub(crate) struct Managed {
    pub topic: Arc<Topic>,
    pub subscriptions: Arc<Subscriptions>,
    pub keys: Arc<SealingKeys>,
    hub: Arc<Hub>,
    origins: Origins,
    policy: Arc<Policy>,
    terms: Arc<Terms>,
    attempts: Arc<Attempts>,
    pace: Arc<Pace>,
    operators: Option<Operators>,
    per_caller: usize,
    total: usize,
    /// The most requests of a webhook that may be in progress at a time.
    concurrent_max: usize,
    /// The most bytes that all batches of a webhook in progress may have together.
    batch_max: usize,
    /// Whether URLs have to answer a challenge.
    challenges: bool,
    expressions: Option<ExpressionBounds>,
    /// The modes that subscriptions may choose, the default one first.
    modes: Vec<Mode>,
    /// The endpoints of the file.
    files: Vec<Arc<EndpointPlan>>,
    /// What events look like, by what owners have written.
    views: Mutex<HashMap<Arc<ViewText>, Weak<ViewPlan>>>,
    /// How webhooks are served whose owners have said it; those with the same wishes share it.
    policies: Mutex<HashMap<Delivery, Weak<Policy>>>,
}

/// The least bytes of a part of a header that may not be shown of replies.
const SECRET_MIN: usize = 6;

/// Compiles an expression of a user, which sees the event and nothing else.
fn compile(name: &str, text: &str) -> Result<Expression, String> {
    let compiled = Expression::compile(text, &Scope::default()).map_err(|errors| {
        let first = errors.first().map(|it| it.message.clone());
        format!("`{name}`: {}", first.unwrap_or_default())
    })?;
    match compiled.variables().is_empty() {
        true => Ok(compiled),
        false => Err(format!("`{name}` may use the event, nothing else")),
    }
}

/// What of the value of a header may not be shown of replies: itself and its parts, such as a token
/// behind `Bearer`. Short ones tell nothing, and would hide what is no secret.
fn secret_parts(value: &str) -> impl Iterator<Item = String> {
    let parts = value.split_ascii_whitespace();
    let all = std::iter::once(value).chain(parts);
    all.filter(|it| it.len() >= SECRET_MIN).map(str::to_owned)
}

impl Managed {
    /// The keyed state.
    pub fn keyed(&self) -> Result<&Keyed, Fault> {
        self.hub.keyed().ok_or_else(|| {
            let detail = "webhooks cannot be managed at the moment";
            Fault::new(Kind::Unavailable, Origin::Engine, detail)
                .with_cause("the data folder is not open")
        })
    }

    /// What has to be among the plan's upstreams: TLS of all URLs.
    pub fn upstream(&self) -> &Arc<UpstreamPlan> {
        self.origins.template()
    }

    /// Whether URLs have to answer a challenge.
    pub fn challenges(&self) -> bool {
        self.challenges
    }

    /// What all of them have in common.
    pub(in crate::webhooks) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The most bytes that all batches of a webhook in progress may have together.
    pub(in crate::webhooks) fn batch_max(&self) -> usize {
        self.batch_max
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            per_caller: self.per_caller,
            total: self.total,
            distinct: self.expressions.map_or(0, |it| it.distinct),
        }
    }

    /// What events look like for a subscription.
    ///
    /// # Errors
    /// When an expression is none any more.
    fn view(&self, text: &Arc<ViewText>) -> Result<Arc<ViewPlan>, String> {
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(view) = views.get(text).and_then(Weak::upgrade) {
            return Ok(view);
        }
        let expression = |name: &str, text: &Option<Box<str>>| {
            let text = text.as_deref();
            text.map(|text| compile(name, text)).transpose()
        };
        let mut source = "/topics/".to_owned();
        steps::push_encoded(self.topic.name(), &mut source);
        let view = Arc::new(ViewPlan {
            mode: text.mode,
            filter: expression("filter", &text.filter)?,
            select: expression("select", &text.select)?,
            key: expression("key", &text.key)?,
            cloudevents: text.cloudevents,
            source: source.into(),
            result_max: self.topic.settings().body_max,
            is_text: false,
        });
        views.retain(|_, it| it.strong_count() > 0);
        views.insert(Arc::clone(text), Arc::downgrade(&view));
        Ok(view)
    }

    /// Checks what a caller says of delivery against what the file lets callers say. Where it says
    /// no number of requests, there are as many as it may have.
    ///
    /// # Errors
    /// When it wants more than it may have.
    fn bounded(&self, delivery: &mut Delivery, says_concurrent: bool) -> Result<(), Fault> {
        let most = self.concurrent_max;
        if says_concurrent && delivery.concurrent > most {
            return Err(Fault::invalid(format!("`concurrent` is at most {most}")));
        }
        delivery.concurrent = delivery.concurrent.min(most);
        let bytes = delivery.batch.map_or(0, |it| it.bytes);
        if bytes.saturating_mul(delivery.concurrent) > self.batch_max {
            let most = ::config::ByteSize(self.batch_max as u64);
            let detail = format!("`batch.bytes` times `concurrent` is at most {most}");
            return Err(Fault::invalid(detail));
        }
        Ok(())
    }

    /// How events are sent to a subscription. What the file allows less than it did when its owner
    /// said it is cut to that.
    fn policy(&self, subscription: &Subscription) -> Arc<Policy> {
        let Some(mut delivery) = subscription.details().delivery else {
            return Arc::clone(&self.policy);
        };
        delivery.concurrent = delivery.concurrent.clamp(1, self.concurrent_max.max(1));
        if let Some(batch) = &mut delivery.batch {
            batch.bytes = batch.bytes.min(self.batch_max / delivery.concurrent);
        }
        let mut policies = self.policies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(policy) = policies.get(&delivery).and_then(Weak::upgrade) {
            return policy;
        }
        let policy = Arc::new(delivery.policy(&self.policy));
        policies.retain(|_, it| it.strong_count() > 0);
        policies.insert(delivery, Arc::downgrade(&policy));
        policy
    }

    /// How a subscription is served; none while nothing may be sent to it.
    pub(in crate::webhooks) fn plan(self: &Arc<Self>, known: &Known) -> Option<Arc<EndpointPlan>> {
        let subscription = &known.subscription;
        if !subscription.is_verified && self.challenges {
            return None;
        }
        match self.view(&subscription.view) {
            Ok(view) => Some(Arc::new(self.plan_with(known, view))),
            Err(error) => {
                let (topic, endpoint) = (&**self.topic.name(), &*subscription.id);
                tracing::error!(
                    target: "topics", topic, endpoint, error,
                    "nothing is sent to a webhook"
                );
                None
            }
        }
    }

    fn plan_with(self: &Arc<Self>, known: &Known, view: Arc<ViewPlan>) -> EndpointPlan {
        // It has been checked when it was set.
        let url = Url::parse(&known.subscription.url);
        let host = url.map_or_else(|_| "".into(), |url| Arc::clone(url.host()));
        EndpointPlan {
            state: Arc::clone(&known.state),
            view,
            policy: self.policy(&known.subscription),
            destination: Destination::Subscribed(Subscribed {
                subscription: Arc::clone(&known.subscription),
                managed: Arc::clone(self),
                host,
            }),
        }
    }

    /// Where a request to a subscription goes, and what signs it. The URL is read anew each time:
    /// what `engine.egress` allows may have changed since it was set.
    ///
    /// # Errors
    /// When it may not be called, or its secret cannot be opened.
    pub(in crate::webhooks) fn outgoing(
        &self,
        subscription: &Subscription,
        services: &dyn Services,
    ) -> Result<Outgoing, String> {
        let target = services.egress(&subscription.url);
        let target = target.map_err(|refusal| refusal.to_string())?;
        let topic = self.topic.name();
        let signer = subscription.signer(topic, now_ms(services), &self.keys);
        let (signer, mut secrets) = signer?;
        let headers = subscription.open_headers(topic, &self.keys)?;
        secrets.extend(headers.iter().flat_map(|(_, value)| secret_parts(value)));
        let mut forward = self.origins.plan(&target);
        forward.request_fields.set = headers;
        Ok(Outgoing {
            forward: Arc::new(forward),
            signer: Some(Arc::new(signer)),
            secrets,
        })
    }
}
