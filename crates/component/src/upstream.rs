//! Another system that requests are sent to: its endpoints and how they are chosen, watched and
//! spared. Plain data: `proxy` does it.

use std::sync::Arc;
use std::time::Duration;

use crate::tls::{Place, Protocol, UpstreamTls};

/// One address of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointPlan {
    /// The host name or IP address to connect to (IPv6 without brackets).
    pub host: String,
    /// The TCP port to connect to.
    pub port: u16,
}

/// Another system that requests are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamPlan {
    /// What logs and metrics call it: the connection's name, or host and port.
    pub name: Arc<str>,
    /// Its addresses, at least one.
    pub endpoints: Vec<EndpointPlan>,
    /// TLS, when it is reached by `https`.
    pub tls: Option<UpstreamTls>,
    /// The protocols it may be spoken to with, the preferred one first. Both at once only with
    /// TLS, where ALPN (RFC 7301) tells.
    pub protocols: Vec<Protocol>,
    /// How an endpoint is chosen.
    pub balance: Balance,
    /// When an endpoint that fails is left out.
    pub eject: Eject,
    /// Whether and how endpoints are asked how they are.
    pub health: Option<HealthCheck>,
    /// Limits on connections.
    pub connections: ConnectionLimits,
    /// How often a request that is safe to repeat is sent to another endpoint.
    pub retries: u32,
    /// Which addresses its connections may be made to.
    pub egress: Egress,
    /// What it was made of when its URL became known, see
    /// [`Origins`](crate::egress::Origins).
    pub template: Option<Arc<Self>>,
}

/// Which addresses connections may be made to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Egress {
    /// All: whoever wrote the files has named the system.
    #[default]
    Open,
    /// Those that [`Policy`](crate::egress::Policy) allows. The place is where a file says so.
    Guarded(Option<Place>),
}

impl Egress {
    /// Whether the policy holds.
    #[inline]
    pub fn is_guarded(&self) -> bool {
        matches!(self, Self::Guarded(_))
    }
}

impl UpstreamPlan {
    /// An upstream with one endpoint and the defaults.
    pub fn single(host: &str, port: u16, tls: Option<UpstreamTls>) -> Self {
        let protocols = match tls {
            Some(_) => vec![Protocol::Http2, Protocol::Http1],
            None => vec![Protocol::Http1],
        };
        Self {
            name: format!("{host}:{port}").into(),
            endpoints: vec![EndpointPlan {
                host: host.to_owned(),
                port,
            }],
            tls,
            protocols,
            balance: Balance::default(),
            eject: Eject::default(),
            health: None,
            connections: ConnectionLimits::default(),
            retries: 1,
            egress: Egress::default(),
            template: None,
        }
    }

    /// The first endpoint's host and port as a URL has them, the port left out when it is the
    /// scheme's own.
    pub fn authority(&self) -> String {
        let Some(first) = self.endpoints.first() else {
            return String::new();
        };
        let host = if first.host.contains(':') {
            format!("[{}]", first.host)
        } else {
            first.host.clone()
        };
        let usual = if self.tls.is_some() { 443 } else { 80 };
        if first.port == usual {
            host
        } else {
            format!("{host}:{}", first.port)
        }
    }
}

/// How an endpoint is chosen among those that are well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// One after the other.
    #[default]
    RoundRobin,
    /// The one with the fewest requests in flight from this worker.
    LeastRequests,
    /// The same for the same key, and few keys move when an endpoint comes or goes (rendezvous
    /// hashing).
    Hash(HashKey),
}

/// What is hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashKey {
    /// The client's address.
    Client,
    /// The request's path.
    Path,
    /// The value of this request header; without it, the client's address.
    Header(String),
}

/// When an endpoint that fails is left out (passive health).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Eject {
    /// After how many failures in a row.
    pub failures: u32,
    /// For how long; then one request tries it.
    pub time: Duration,
}

impl Default for Eject {
    fn default() -> Self {
        Self {
            failures: 5,
            time: Duration::from_secs(10),
        }
    }
}

/// How endpoints are asked how they are (active health).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The path of the `GET` request.
    pub path: String,
    /// How often.
    pub every: Duration,
    /// The longest until the reply's end.
    pub timeout: Duration,
    /// The status of an endpoint that is well; any 2xx without one.
    pub status: Option<u16>,
    /// How many good replies in a row bring an endpoint back.
    pub healthy: u32,
    /// How many failures in a row take it out.
    pub unhealthy: u32,
}

/// Limits on the connections to an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The most to one endpoint, of all workers together.
    pub limit: Option<usize>,
    /// How many requests of all workers may wait for one.
    pub queue: usize,
    /// The longest that a request waits for one.
    pub queue_time: Duration,
    /// How long the addresses of a name are kept before the name is looked up again.
    pub resolve: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            limit: None,
            queue: 1000,
            queue_time: Duration::from_secs(5),
            resolve: Duration::from_secs(30),
        }
    }
}
