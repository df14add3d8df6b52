//! A request as the message path sees it.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use crate::{Body, ClientCertificate, Headers, Method};

/// A request as the message path sees it: a copy of the head, and the body by its state.
#[derive(Clone, Debug)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path as it was sent: percent-encoded, beginning with `/`, without the query.
    pub path: String,
    /// The query as it was sent, without the `?`.
    pub query: Option<String>,
    /// The values of the route's `{name}` parts and of `*` (under `rest`), as they were sent.
    pub parameters: Vec<(Box<str>, String)>,
    /// The header fields, hop-by-hop ones included: whoever forwards the message drops those.
    pub headers: Headers,
    /// The content.
    pub body: Body,
    /// The address of the client that sent it: what a trusted proxy says, else who is connected.
    pub peer: IpAddr,
    /// The trusted proxy that is connected, when `peer` is what it says.
    pub proxy: Option<IpAddr>,
    /// Whether it came over TLS.
    pub is_secure: bool,
    /// The certificate that the client has shown.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// Who has sent it, where access control has found out: `component::access::Caller`.
    pub caller: Option<Arc<dyn Any + Send + Sync>>,
}

impl Request {
    /// A message that no client has sent, such as a row or a file: `method` says what it is, the
    /// path is `/`.
    pub fn of_source(method: &str, headers: Headers, body: impl Into<Body>) -> Self {
        Self {
            method: Method::Other(method.into()),
            path: "/".to_owned(),
            query: None,
            parameters: Vec::new(),
            headers,
            body: body.into(),
            peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
            proxy: None,
            is_secure: false,
            certificate: None,
            caller: None,
        }
    }
}
