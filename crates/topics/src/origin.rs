//! Which web pages may open WebSockets.

use std::net::IpAddr;
use std::sync::Arc;

use component::audit::{Audit, Origin as AuditOrigin, Refusal};
use component::cors::is_same_origin;
use component::edge::RouteEdge;
use message::Request;

use crate::endpoint::Endpoint;

/// Who opens a WebSocket: a page of some origin, or a program, which says none. Browsers let every
/// page connect, with the user's cookies (RFC 6455, section 10.2): the server has to look.
#[derive(Clone)]
pub(crate) struct Caller {
    origin: Option<Vec<u8>>,
    /// Whether the page is of the host that it asks.
    is_own: bool,
    /// The address of the client.
    address: IpAddr,
    /// The trusted proxy that says so.
    proxy: Option<IpAddr>,
}

impl Caller {
    /// Who sends a request.
    pub fn of(request: &Request) -> Self {
        let view = request.headers.view();
        Self {
            // From proxies that are not trusted `X-Forwarded-Host` does not come this far.
            is_own: is_same_origin(view, request.is_secure, true),
            origin: view.get("Origin").map(<[u8]>::to_vec),
            address: request.peer,
            proxy: request.proxy,
        }
    }

    /// Why it may not subscribe where this holds, if so: only a page of the same host or of an
    /// origin that may read replies, or a program, from where clients may come.
    pub fn refusal(&self, edge: &RouteEdge) -> Option<&'static str> {
        let is_page_allowed = match &self.origin {
            None => true,
            Some(_) if self.is_own => true,
            Some(origin) => edge.cors.as_ref().is_some_and(|cors| cors.allows(origin)),
        };
        match (is_page_allowed, is_near(edge, self.address)) {
            (true, true) => None,
            (false, _) => Some(ORIGIN),
            (_, false) => Some(NETWORK),
        }
    }

    /// The topic, if the client may subscribe to it. The audit stream is told when it may not: to
    /// the client the topic is missing then.
    pub fn see(&self, found: Option<Arc<Endpoint>>) -> Option<Arc<Endpoint>> {
        let endpoint = found?;
        let Some(reason) = self.refusal(&endpoint.settings.edge) else {
            return Some(endpoint);
        };
        audit_of_topic(&endpoint, (reason, 404), || {
            AuditOrigin::of_address(self.address).with_proxy(self.proxy)
        });
        None
    }

    /// Whether it may: a page of the same host, one of these origins, or a program.
    pub fn may_connect(&self, origins: &[String]) -> bool {
        let Some(origin) = &self.origin else {
            return true;
        };
        let allows = |it: &String| it == "*" || it.as_bytes().eq_ignore_ascii_case(origin);
        self.is_own || origins.iter().any(allows)
    }
}

/// Why a page is refused.
const ORIGIN: &str = "origin";
/// Why an address is refused.
const NETWORK: &str = "network";

/// The topic, if it is for the network of the client. The audit stream is told when it is not: to
/// the client it is missing then.
pub(crate) fn near(found: Option<Arc<Endpoint>>, request: &Request) -> Option<Arc<Endpoint>> {
    let endpoint = found?;
    if is_near(&endpoint.settings.edge, request.peer) {
        return Some(endpoint);
    }
    let origin = || AuditOrigin::from(request);
    audit_of_topic(&endpoint, (NETWORK, 404), origin);
    None
}

/// Tells the audit stream why a topic's own address has refused a client.
pub(crate) fn audit_client_of_topic(endpoint: &Endpoint, reason: &str, request: &Request) {
    audit_of_topic(endpoint, (reason, 403), || AuditOrigin::from(request));
}

fn audit_of_topic(endpoint: &Endpoint, why: (&str, u16), origin: impl FnOnce() -> AuditOrigin) {
    let target = format!("topic {}", endpoint.topic.name());
    audit(&endpoint.audit, &target, why, origin);
}

/// Tells the audit stream that a flow has refused a page.
pub(crate) fn audit_page_of_flow(stream: &Audit, flow: &str, request: &Request) {
    let origin = || AuditOrigin::from(request);
    audit(stream, &format!("flow {flow}"), (ORIGIN, 403), origin);
}

fn audit(
    stream: &Audit,
    target: &str,
    (reason, status): (&str, u16),
    origin: impl FnOnce() -> AuditOrigin,
) {
    let refusal = Refusal {
        way: None,
        id: None,
        reason,
        status: Some(status),
        target,
    };
    stream.refused(&refusal, origin);
}

/// Whether clients may come from this address.
fn is_near(edge: &RouteEdge, address: IpAddr) -> bool {
    let mut networks = edge.networks.iter();
    networks.all(|networks| networks.admits(address))
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use message::{Body, Headers, Method};

    use super::*;

    fn caller(origin: Option<&str>, host: &str) -> Caller {
        caller_over(false, origin, &[("Host", host)])
    }

    fn caller_over(is_secure: bool, origin: Option<&str>, hosts: &[(&str, &str)]) -> Caller {
        let mut headers = Headers::new();
        for (name, host) in hosts {
            headers.append(name, host);
        }
        if let Some(origin) = origin {
            headers.append("Origin", origin);
        }
        Caller::of(&Request {
            method: Method::Get,
            path: "/".to_owned(),
            query: None,
            parameters: Vec::new(),
            headers,
            body: Body::Empty,
            peer: IpAddr::from([127, 0, 0, 1]),
            proxy: None,
            is_secure,
            certificate: None,
            caller: None,
        })
    }

    #[test]
    fn pages_of_other_hosts_have_to_be_allowed() {
        let listed = ["https://app.example".to_owned()];
        assert!(caller(None, "a:1").may_connect(&[]));
        assert!(caller(Some("http://a:1"), "A:1").may_connect(&[]));
        assert!(!caller(Some("http://a:2"), "a:1").may_connect(&listed));
        assert!(caller(Some("https://app.example"), "a").may_connect(&listed));
        assert!(!caller(Some("null"), "a").may_connect(&listed));
        assert!(caller(Some("null"), "a").may_connect(&["*".to_owned()]));
        assert!(!caller(Some("http://"), "").may_connect(&[]));
        assert!(caller(Some("https://a"), "a").may_connect(&[]));
        let hosts = [("Host", "inner:81"), ("X-Forwarded-Host", "a")];
        assert!(caller_over(false, Some("https://a"), &hosts).may_connect(&[]));
        assert!(caller_over(true, Some("https://a"), &hosts).may_connect(&[]));
        assert!(!caller_over(true, Some("http://a"), &hosts).may_connect(&[]));
    }
}
