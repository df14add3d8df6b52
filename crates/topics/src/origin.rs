//! Which web pages may read a topic (Fetch, section 3.2: CORS).

use std::sync::Arc;

use message::{Headers, Reply, Request};

use crate::endpoint::Endpoint;

/// The `Origin` of a request, when all these topics let its pages read.
fn allowed<'a>(endpoints: &[Arc<Endpoint>], request: &'a Request) -> Option<&'a [u8]> {
    let origin = request.headers.get("Origin")?;
    let allows = |endpoint: &Arc<Endpoint>| {
        let mut origins = endpoint.settings.origins.iter();
        origins.any(|it| it == "*" || it.as_bytes().eq_ignore_ascii_case(origin))
    };
    endpoints.iter().all(allows).then_some(origin)
}

/// Puts in what a browser wants to see before it lets a page read.
pub(crate) fn allow(endpoints: &[Arc<Endpoint>], request: &Request, headers: &mut Headers) {
    if endpoints.iter().all(|it| it.settings.origins.is_empty()) {
        return;
    }
    headers.append("Vary", "Origin");
    if let Some(origin) = allowed(endpoints, request) {
        headers.append("Access-Control-Allow-Origin", origin);
    }
}

/// The answer to the question whether a page may ask.
pub(crate) fn preflight(endpoints: &[Arc<Endpoint>], request: &Request) -> Reply {
    let mut reply = Reply::new(204);
    allow(endpoints, request, &mut reply.headers);
    if allowed(endpoints, request).is_some() {
        let headers = &mut reply.headers;
        headers.append("Access-Control-Allow-Methods", "GET");
        headers.append(
            "Access-Control-Allow-Headers",
            "Last-Event-ID, Cache-Control",
        );
        headers.append("Access-Control-Max-Age", "3600");
    }
    reply
}

/// Who opens a WebSocket: a page of some origin, or a program, which says none. Browsers let every
/// page connect, with the user's cookies (RFC 6455, section 10.2): the server has to look.
#[derive(Clone)]
pub(crate) struct Caller {
    origin: Option<Vec<u8>>,
    /// Whether the page is of the host that it asks.
    is_own: bool,
}

impl Caller {
    /// Who sends a request.
    pub fn of(request: &Request) -> Self {
        let origin = request.headers.get("Origin");
        // A proxy that is trusted may ask us by another name; from others the field does not come
        // this far.
        let hosts = ["Host", "X-Forwarded-Host"].map(|name| request.headers.get(name));
        let is_host = |authority: &[u8]| {
            let mut hosts = hosts.iter().flatten();
            !authority.is_empty() && hosts.any(|host| authority.eq_ignore_ascii_case(host))
        };
        // A page that came in clear text may have been changed on its way: it is another origin
        // than the same host over TLS. In clear text we may stand behind somebody who ends TLS.
        let schemes: &[&[u8]] = match request.is_secure {
            true => &[b"https://"],
            false => &[b"https://", b"http://"],
        };
        let authority = |scheme: &&[u8]| {
            let (start, authority) = origin?.split_at_checked(scheme.len())?;
            start.eq_ignore_ascii_case(scheme).then_some(authority)
        };
        Self {
            is_own: schemes.iter().filter_map(authority).any(is_host),
            origin: origin.map(<[u8]>::to_vec),
        }
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

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use message::{Body, Method};

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
