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

/// Who opens a WebSocket: a page of some origin, or a program, which says none.
pub(crate) struct Caller {
    origin: Option<Vec<u8>>,
    /// Whether the page is of the host that it asks.
    is_own: bool,
}

impl Caller {
    /// Who sends a request.
    pub fn of(request: &Request) -> Self {
        let origin = request.headers.get("Origin");
        let host = request.headers.get("Host").unwrap_or_default();
        let own = ["http://", "https://"].into_iter().filter_map(|scheme| {
            let rest = origin?.get(scheme.len()..)?;
            let start = origin?.get(..scheme.len())?;
            start
                .eq_ignore_ascii_case(scheme.as_bytes())
                .then_some(rest)
        });
        let mut own = own.filter(|it| !it.is_empty());
        Self {
            is_own: own.any(|it| it.eq_ignore_ascii_case(host)),
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
        let mut headers = Headers::new();
        headers.append("Host", host);
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
            is_secure: false,
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
    }
}
