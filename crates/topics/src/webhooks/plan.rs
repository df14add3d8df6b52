//! An endpoint as a file describes it.

use std::sync::Arc;
use std::time::Duration;

use access::webhook_signer::WebhookSigner;
use steps::CallTarget;
use steps::store::StoreWriter;

use super::machine::Policy;
use super::state::EndpointState;
use super::view::ViewPlan;
use crate::source::Start;

/// An endpoint as a file describes it.
pub(super) struct EndpointPlan {
    pub state: Arc<EndpointState>,
    pub view: Arc<ViewPlan>,
    pub policy: Arc<Policy>,
    pub target: CallTarget,
    pub signer: Option<WebhookSigner>,
    /// How long one request may take.
    pub timeout: Duration,
    /// Where dead letters go; without one they are lost, which is logged.
    pub letters: Option<StoreWriter>,
    /// Where it begins when it is new.
    pub start: Start,
}
