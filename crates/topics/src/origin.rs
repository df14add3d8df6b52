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
        headers.append("Access-Control-Allow-Headers", "Last-Event-ID, Cache-Control");
        headers.append("Access-Control-Max-Age", "3600");
    }
    reply
}

/// Whether a page that opens a WebSocket may do so: one of the same host, or one of these origins.
/// Programs send no `Origin`.
pub(crate) fn may_connect(endpoints: &[Arc<Endpoint>], request: &Request) -> bool {
    let Some(origin) = request.headers.get("Origin") else {
        return true;
    };
    let host = request.headers.get("Host").unwrap_or_default();
    let own = origin.splitn(2, |&it| it == b'/').nth(1).unwrap_or_default();
    let is_own = own.strip_prefix(b"/").is_some_and(|it| it.eq_ignore_ascii_case(host));
    is_own && !host.is_empty() || allowed(endpoints, request).is_some()
}
