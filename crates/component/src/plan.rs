//! All flows at once, checked and ready to be served.

use std::any::Any;
use std::sync::Arc;

use crate::access::Door;
use crate::edge::{ListenerEdge, RouteEdge};
use crate::forward::ForwardPlan;
use crate::handler::{Callee, Handler};
use crate::settings::Settings;
use crate::source::SourcePlan;
use crate::tls::{ListenerTls, Protocol};
use crate::trigger::{ListenAddress, Methods, PathPattern};
use crate::upstream::UpstreamPlan;

/// Flows that other flows may call, by name.
pub type Callees = Vec<(Arc<str>, Arc<dyn Callee>)>;

/// All flows at once. Workers share it and never change it.
#[derive(Clone, Default)]
pub struct Plan {
    /// What listens where, each address once.
    pub listeners: Vec<ListenerPlan>,
    /// All systems that requests may be sent to, each once.
    pub upstreams: Vec<Arc<UpstreamPlan>>,
    /// The flows that other flows may call, by name.
    pub callees: Callees,
    /// Flows that something else than a request starts.
    pub sources: Vec<SourcePlan>,
    /// The connections that its flows may use.
    pub connections: Vec<Arc<dyn Any + Send + Sync>>,
    /// Limits and time-outs.
    pub settings: Settings,
}

impl Plan {
    /// The most bytes that a body of any of its flows may have.
    pub fn body_max(&self) -> u64 {
        let routes = self.listeners.iter().flat_map(|it| &it.routes);
        let of_route = |route: &RoutePlan| match route.target {
            RouteTarget::Forward(_) => 0,
            RouteTarget::Handle { body_max, .. } => body_max,
        };
        routes.map(of_route).max().unwrap_or(0)
    }

    /// How many routes there are.
    pub fn route_count(&self) -> usize {
        self.listeners
            .iter()
            .map(|listener| listener.routes.len())
            .sum()
    }

    /// The addresses as flow files write them, with spaces between.
    pub fn addresses(&self) -> String {
        let addresses = self
            .listeners
            .iter()
            .map(|listener| listener.address.to_string());
        addresses.collect::<Vec<_>>().join(" ")
    }
}

/// One listening address and what it serves.
#[derive(Clone)]
pub struct ListenerPlan {
    /// The address.
    pub address: ListenAddress,
    /// TLS, when the listener speaks it.
    pub tls: Option<Arc<ListenerTls>>,
    /// The protocols it takes, the preferred one first.
    pub protocols: Vec<Protocol>,
    /// What clients meet before there is a request, and what holds for all routes.
    pub edge: ListenerEdge,
    /// The routes; no two of one shape take the same method.
    pub routes: Vec<RoutePlan>,
}

/// One route: the trigger of one flow and what it leads to.
#[derive(Clone)]
pub struct RoutePlan {
    /// The flow's name.
    pub flow: Arc<str>,
    /// The methods it takes.
    pub methods: Methods,
    /// The paths it takes.
    pub path: PathPattern,
    /// What a client meets before the target, that of the listener included; absent where there is
    /// nothing.
    pub edge: Option<Arc<RouteEdge>>,
    /// What happens to its requests.
    pub target: RouteTarget,
    /// What stands in front of it.
    pub door: Option<Arc<dyn Door>>,
}

/// What happens to the requests of a route.
#[derive(Clone)]
pub enum RouteTarget {
    /// They are forwarded and nothing looks at them: the forward path.
    Forward(Arc<ForwardPlan>),
    /// They are messages to a handler: the message path.
    Handle {
        /// Who takes them.
        handler: Arc<dyn Handler>,
        /// The most bytes of a body.
        body_max: u64,
    },
}
