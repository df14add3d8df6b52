//! Upstreams for URLs that are known only when messages come: webhooks, callbacks, a field of a
//! message.

use std::sync::Arc;

use super::Target;
use crate::forward::ForwardPlan;
use crate::tls::{Place, UpstreamTls};
use crate::upstream::{ConnectionLimits, Egress, UpstreamPlan};

/// How many connections of a worker to one host and port there may be.
const CONNECTIONS_MAX: usize = 64;

/// What the upstreams of one user of such URLs have in common: a step, a topic. Made when files are
/// loaded; its [template](Origins::template) has to be among the plan's upstreams, so that its TLS
/// is ready before there is a URL.
///
/// The workers keep the upstreams by host and port for as long as they have connections. The limit
/// on connections holds for each worker by itself.
#[derive(Clone, Debug)]
pub struct Origins(Arc<UpstreamPlan>);

impl Origins {
    /// `tls` is for `https` URLs; `place` is where a file lets URLs be set.
    pub fn new(tls: UpstreamTls, place: Option<Place>) -> Self {
        let limits = ConnectionLimits {
            limit: Some(CONNECTIONS_MAX),
            ..ConnectionLimits::default()
        };
        Self(Arc::new(UpstreamPlan {
            name: "egress".into(),
            endpoints: Vec::new(),
            connections: limits,
            egress: Egress::Guarded(place),
            ..UpstreamPlan::single("", 0, Some(tls))
        }))
    }

    /// The same with other limits on the connections to one host and port.
    #[must_use]
    pub fn with_connections(self, connections: ConnectionLimits) -> Self {
        let mut template = UpstreamPlan::clone(&self.0);
        template.connections = connections;
        Self(Arc::new(template))
    }

    /// What has to be among the plan's upstreams. It has no endpoint: nothing is sent to it.
    pub fn template(&self) -> &Arc<UpstreamPlan> {
        &self.0
    }

    /// How requests get to a target that [`Policy::target`](super::Policy::target) has read: its
    /// path and query are the plan's. The guard checks each connection.
    pub fn plan(&self, target: &Target) -> ForwardPlan {
        let tls = self.0.tls.clone().filter(|_| target.is_secure);
        let upstream = UpstreamPlan {
            connections: self.0.connections,
            egress: self.0.egress.clone(),
            template: Some(Arc::clone(&self.0)),
            ..UpstreamPlan::single(&target.host, target.port, tls)
        };
        let mut plan = ForwardPlan::new(Arc::new(upstream), target.path.as_str());
        plan.query.clone_from(&target.query);
        plan
    }
}
