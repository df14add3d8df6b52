//! Which web pages may open WebSockets.

use std::net::IpAddr;

use component::cors::is_same_origin;
use component::edge::RouteEdge;
use message::Request;

/// Who opens a WebSocket: a page of some origin, or a program, which says none. Browsers let every
/// page connect, with the user's cookies (RFC 6455, section 10.2): the server has to look.
#[derive(Clone)]
pub(crate) struct Caller {
    origin: Option<Vec<u8>>,
    /// Whether the page is of the host that it asks.
    is_own: bool,
    /// The address of the client.
    address: IpAddr,
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
        }
    }

    /// Whether it may subscribe where this holds: a page of the same host or of an origin that may
    /// read replies, or a program; from where clients may come.
    pub fn may_subscribe(&self, edge: &RouteEdge) -> bool {
        let is_page_allowed = match &self.origin {
            None => true,
            Some(_) if self.is_own => true,
            Some(origin) => edge.cors.as_ref().is_some_and(|cors| cors.allows(origin)),
        };
        is_page_allowed && is_near(edge, self.address)
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

/// Whether clients may come from this address.
pub(crate) fn is_near(edge: &RouteEdge, address: IpAddr) -> bool {
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
