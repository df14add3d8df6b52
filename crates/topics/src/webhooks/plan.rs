//! An endpoint as a file describes it, or as somebody has subscribed it.

use std::sync::Arc;
use std::time::Duration;

use access::webhook_signer::WebhookSigner;
use component::egress::Origins;
use component::forward::ForwardPlan;
use component::handler::Services;
use message::Fault;
use steps::CallTarget;
use steps::store::StoreWriter;
use websub::signature::{Method as SignedBy, Secret};

use super::machine::Policy;
use super::state::EndpointState;
use super::view::ViewPlan;
use crate::source::Start;

/// An endpoint as a file describes it, or as somebody has subscribed it.
pub(crate) struct EndpointPlan {
    pub state: Arc<EndpointState>,
    pub view: Arc<ViewPlan>,
    pub policy: Arc<Policy>,
    pub target: Destination,
    pub head: Head,
    /// How long one request may take.
    pub timeout: Duration,
    /// Where dead letters go; without one they are lost, which is logged.
    pub letters: Option<StoreWriter>,
    /// Where it begins when it is new.
    pub start: Start,
}

/// Where requests go.
pub(crate) enum Destination {
    /// To what a file names.
    Fixed(CallTarget),
    /// To a URL that a user has set, behind the egress guard. What is needed to get there is made
    /// for each request: there may be a hundred thousand such endpoints, most of them idle.
    Guarded {
        origins: Origins,
        url: Arc<str>,
        /// The host of the URL.
        host: Arc<str>,
    },
}

impl Destination {
    /// The host, where a user has chosen it.
    pub fn host(&self) -> Option<&Arc<str>> {
        match self {
            Self::Fixed(_) => None,
            Self::Guarded { host, .. } => Some(host),
        }
    }

    /// How a request gets there.
    ///
    /// # Errors
    /// `forbidden` when the egress guard refuses the URL.
    pub fn plan(&self, services: &dyn Services) -> Result<Arc<ForwardPlan>, Fault> {
        match self {
            Self::Fixed(target) => Ok(Arc::clone(&target.plan)),
            Self::Guarded { origins, url, .. } => {
                let target = services.egress(url).map_err(|it| it.into_fault())?;
                Ok(Arc::new(origins.plan(&target)))
            }
        }
    }
}

/// What the header lines of a request say.
pub(crate) enum Head {
    /// Those of webhooks, signed by this.
    Webhook(Option<WebhookSigner>),
    /// Those of a WebSub hub.
    WebSub(HubHead),
}

/// What a WebSub hub says beside the content (section 7 of the recommendation).
pub(crate) struct HubHead {
    /// The `Link` line with `rel=hub` and `rel=self`.
    pub links: Arc<str>,
    /// The media type of the topic.
    pub media_type: Arc<str>,
    /// What the content is signed with, and how.
    pub signed: Option<(Secret, SignedBy)>,
    /// Called when the subscriber has answered 410.
    pub gone: Arc<dyn Fn() + Send + Sync>,
}

impl EndpointPlan {
    /// What it says as a WebSub hub, if it is a subscription to one.
    pub fn websub(&self) -> Option<&HubHead> {
        match &self.head {
            Head::Webhook(_) => None,
            Head::WebSub(head) => Some(head),
        }
    }
}
