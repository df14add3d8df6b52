//! What a client meets before a flow sees its request: who may come, which pages may read replies,
//! and what all replies say. Checked data; `proxy` puts it to use.

use std::sync::Arc;

use config::{Node, Report, Spanned};

use crate::cors::{CorsConfig, CorsPolicy};
use crate::networks::{Networks, NetworksConfig};
use crate::security_headers::{SecurityHeaders, SecurityHeadersConfig};
use crate::trusted_proxies::TrustedProxies;

/// The keys that [`RouteEdge::read`] reads.
pub const KEYS: [&str; 3] = ["cors", "networks", "security_headers"];

/// What holds for the requests of a route, or of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteEdge {
    /// Which pages may read replies.
    pub cors: Option<Arc<CorsPolicy>>,
    /// From where clients may come: all of these must admit one.
    pub networks: Vec<Arc<Networks>>,
    /// What replies say beside what they say by themselves.
    pub security_headers: Option<Arc<SecurityHeaders>>,
}

impl RouteEdge {
    /// Reads `cors`, `networks` and `security_headers` of a mapping that has other keys, too. Every
    /// problem goes into the report, and what has one is left out.
    pub fn read(mapping: &Node, report: &mut Report) -> Self {
        let cors = mapping.get("cors").and_then(|node| {
            let config = config::decode::<Spanned<CorsConfig>>(node, report)?;
            CorsConfig::read(&config, report)
        });
        let networks = mapping.get("networks").and_then(|node| {
            let config = config::decode::<Spanned<NetworksConfig>>(node, report)?;
            NetworksConfig::read(&config, report)
        });
        let security_headers = mapping.get("security_headers");
        let read = |node| SecurityHeadersConfig::read(node, report);
        Self {
            cors,
            networks: networks.into_iter().collect(),
            security_headers: security_headers.and_then(read),
        }
    }

    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        self.cors.is_none() && self.networks.is_empty() && self.security_headers.is_none()
    }

    /// Whether only clients from listed networks may come.
    pub fn lists_networks(&self) -> bool {
        self.networks.iter().any(|it| it.are_listed())
    }

    /// What holds for a route of a listener: its own policy or headers replace the listener's. Its
    /// own networks only: those of the listener are checked before there is a request.
    #[must_use]
    pub fn within(&self, listener: &Self) -> Self {
        let headers = self.security_headers.as_ref();
        let headers = headers.or(listener.security_headers.as_ref());
        Self {
            cors: self.cors.as_ref().or(listener.cors.as_ref()).cloned(),
            networks: self.networks.clone(),
            security_headers: headers.cloned(),
        }
    }

    /// What holds for a request that is about several things at once: only what all of them allow.
    pub fn common(edges: &[Arc<Self>]) -> Option<Arc<Self>> {
        let (first, others) = edges.split_first()?;
        let mut common = Self::clone(first);
        for other in others.iter().filter(|other| *other != first) {
            common.cors = match (&common.cors, &other.cors) {
                (Some(left), Some(right)) => Some(left.and(right)),
                _ => None,
            };
            common.networks.extend(other.networks.iter().cloned());
            let headers = common.security_headers.as_ref();
            common.security_headers = headers.or(other.security_headers.as_ref()).cloned();
        }
        Some(Arc::new(common))
    }
}

/// What holds for the connections of a listener.
#[derive(Clone, Debug, Default)]
pub struct ListenerEdge {
    /// The proxies that are believed here, in place of the engine's.
    pub trusted_proxies: Option<Arc<TrustedProxies>>,
    /// Whether proxies that are believed say in `Client-Cert` which certificate a client has shown
    /// them (RFC 9440).
    pub client_cert_header: bool,
    /// The header that stands in front of every connection, if there is one.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// For requests that no route takes, and for routes that have nothing of their own.
    pub requests: RouteEdge,
}

/// The versions of the PROXY protocol that a listener takes.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize, schemars::JsonSchema,
)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum ProxyProtocol {
    /// Version 1, a line of text.
    V1,
    /// Version 2, binary.
    V2,
    /// Either of them.
    Any,
}
