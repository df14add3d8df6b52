//! An endpoint as a file describes it, or as somebody has subscribed it.

use std::sync::Arc;
use std::time::Duration;

use access::webhook_signer::WebhookSigner;
use component::egress::Origins;
use component::forward::ForwardPlan;
use component::handler::Services;
use component::upstream::UpstreamPlan;
use steps::CallTarget;
use steps::store::StoreWriter;
use websub::signature::{Method as SignedBy, Secret};

use super::attempts::Attempts;
use super::delivery::BATCH_BYTES_MAX;
use super::machine::Policy;
use super::manage::Managed;
use super::state::EndpointState;
use super::subscriptions::record::Subscription;
use super::view::ViewPlan;
use crate::source::Start;

/// An endpoint as a file describes it, or as somebody has subscribed it.
pub(crate) struct EndpointPlan {
    pub state: Arc<EndpointState>,
    pub view: Arc<ViewPlan>,
    pub policy: Arc<Policy>,
    pub destination: Destination,
}

/// What all endpoints have in common that are made by one description: by an entry of a file, or by
/// what it says of subscriptions.
pub(crate) struct Terms {
    /// How long one request may take.
    pub timeout: Duration,
    /// Where dead letters go; without one they are lost, which is logged.
    pub dead_letters: Option<StoreWriter>,
    /// Where it is kept what endpoints have answered, for those who may see it.
    pub attempts: Option<Arc<Attempts>>,
    /// Where an endpoint begins when it is new.
    pub start: Start,
}

/// Where requests go.
pub(crate) enum Destination {
    /// Where a file says.
    File {
        target: Box<CallTarget>,
        signer: Option<Arc<WebhookSigner>>,
        terms: Arc<Terms>,
    },
    /// Where a user says.
    Subscribed(Subscribed),
    /// To a subscriber of a WebSub hub.
    WebSub(Box<Subscriber>),
}

/// A webhook that a user has made. What a request needs is made for it, so that one that gets
/// nothing takes no memory for it.
pub(crate) struct Subscribed {
    pub(super) subscription: Arc<Subscription>,
    pub(super) managed: Arc<Managed>,
    /// The host of the URL.
    pub(super) host: Arc<str>,
}

/// A subscriber of a WebSub hub, and what it is told beside the content (section 7 of the
/// recommendation).
pub(crate) struct Subscriber {
    pub terms: Arc<Terms>,
    pub origins: Origins,
    pub url: Arc<str>,
    /// The host of the URL.
    pub host: Arc<str>,
    /// The `Link` line with `rel=hub` and `rel=self`.
    pub links: Arc<str>,
    /// The media type of the topic.
    pub media_type: Arc<str>,
    /// What the content is signed with, and how.
    pub signed: Option<(Secret, SignedBy)>,
    /// Called when the subscriber has answered 410.
    pub gone: Arc<dyn Fn() + Send + Sync>,
}

/// What a request needs.
pub(super) struct Outgoing {
    pub forward: Arc<ForwardPlan>,
    pub signer: Option<Arc<WebhookSigner>>,
    /// Texts that nobody may read in what is kept of the reply.
    pub secrets: Vec<String>,
}

impl EndpointPlan {
    /// Whether a user has made it by REST.
    pub fn is_of_user(&self) -> bool {
        matches!(self.destination, Destination::Subscribed(_))
    }

    /// What it has in common with others.
    pub fn terms(&self) -> &Terms {
        match &self.destination {
            Destination::File { terms, .. } => terms,
            Destination::Subscribed(it) => it.managed.terms(),
            Destination::WebSub(subscriber) => &subscriber.terms,
        }
    }

    /// The most bytes that the events of a batch may have. One that was begun before a change stays
    /// as it is up to this: what the file lets batches of callers take of memory.
    pub(super) fn batch_max(&self) -> usize {
        match &self.destination {
            Destination::Subscribed(it) => it.managed.batch_max() / self.policy.concurrent.max(1),
            Destination::File { .. } | Destination::WebSub(_) => BATCH_BYTES_MAX as usize,
        }
    }

    /// What a request needs at this time.
    ///
    /// # Errors
    /// Why none can be sent.
    pub(super) fn outgoing(&self, services: &dyn Services) -> Result<Outgoing, String> {
        match &self.destination {
            Destination::File { target, signer, .. } => Ok(Outgoing {
                forward: Arc::clone(&target.plan),
                signer: signer.clone(),
                secrets: Vec::new(),
            }),
            Destination::Subscribed(it) => it.managed.outgoing(&it.subscription, services),
            Destination::WebSub(subscriber) => {
                let target = services.egress(&subscriber.url);
                let target = target.map_err(|refusal| refusal.to_string())?;
                Ok(Outgoing {
                    forward: Arc::new(subscriber.origins.plan(&target)),
                    signer: None,
                    secrets: Vec::new(),
                })
            }
        }
    }

    /// The systems that a file names for it.
    pub fn upstreams(&self) -> &[Arc<UpstreamPlan>] {
        match &self.destination {
            Destination::File { target, .. } => &target.upstreams,
            Destination::Subscribed(_) | Destination::WebSub(_) => &[],
        }
    }

    /// The subscriber, if it is a subscription to a WebSub hub.
    pub fn websub(&self) -> Option<&Subscriber> {
        match &self.destination {
            Destination::WebSub(subscriber) => Some(subscriber),
            Destination::File { .. } | Destination::Subscribed(_) => None,
        }
    }

    /// The subscription, if it was made in the manner of Axway Streams.
    pub(super) fn axway(&self) -> Option<&Subscription> {
        match &self.destination {
            Destination::Subscribed(it) if it.subscription.is_of_axway() => Some(&it.subscription),
            _ => None,
        }
    }

    /// The host, where a user has chosen it.
    pub fn host(&self) -> Option<&Arc<str>> {
        match &self.destination {
            Destination::File { .. } => None,
            Destination::Subscribed(it) => Some(&it.host),
            Destination::WebSub(subscriber) => Some(&subscriber.host),
        }
    }
}
