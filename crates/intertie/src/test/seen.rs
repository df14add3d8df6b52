//! A request as the system sees it that gets it: what mocks answer and tests look at.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use component::exchange::{Exchange, FlowContext};
use component::forward::{ForwardPlan, HostField};
use component::handler::Outbound;
use component::variables::headers_value;
use expr::{Value, value};
use message::{Body, Field, Headers, Method, Request};

/// A request as the system sees it that gets it.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub method: String,
    pub path: String,
    pub query: Option<String>,
    pub headers: Headers,
    pub body: Body,
}

impl Seen {
    /// A request that comes in.
    pub fn of_request(request: &Request) -> Self {
        Self {
            method: request.method.as_str().to_owned(),
            path: request.path.clone(),
            query: request.query.clone(),
            headers: request.headers.clone(),
            body: request.body.clone(),
        }
    }

    /// A request that is sent on by a plan.
    pub fn of_plan(plan: &ForwardPlan, request: &Request) -> Self {
        let method = plan.method.as_ref().unwrap_or(&request.method);
        let mut path = plan.path.clone();
        let mut parameters = request.parameters.iter();
        let rest = parameters.find(|(name, _)| **name == *"rest");
        if let Some((_, rest)) = rest.filter(|_| plan.appends_rest) {
            if !path.ends_with('/') {
                path.push('/');
            }
            path.push_str(rest);
        }
        let queries = [plan.query.as_deref(), request.query.as_deref()];
        let queries: Vec<&str> = queries.into_iter().flatten().collect();
        Self {
            method: method.as_str().to_owned(),
            path,
            query: (!queries.is_empty()).then(|| queries.join("&")),
            headers: sent_headers(plan, &request.headers),
            body: request.body.clone(),
        }
    }

    /// What a step asks of another system by other means than a request.
    pub fn of_step(outbound: Outbound<'_>, exchange: &mut Exchange) -> Self {
        let mut headers = Headers::new();
        let (body, content_type) = exchange.body().unwrap_or_default();
        if let Some(content_type) = content_type {
            headers.append("Content-Type", content_type);
        }
        Self {
            method: outbound.verb.to_owned(),
            path: outbound.connection.to_owned(),
            query: None,
            headers,
            body,
        }
    }

    /// Method, path and query, for messages.
    pub fn line(&self) -> String {
        let query = self.query.as_deref();
        let query = query.map(|query| format!("?{query}")).unwrap_or_default();
        format!("{} {}{query}", self.method, self.path)
    }

    /// The parameters of the query.
    pub fn query_value(&self) -> Value {
        let query = self.query.as_deref().unwrap_or_default();
        expr::format::from_form(query.as_bytes()).unwrap_or_default()
    }

    /// A message in which expressions see the request as `.`.
    pub fn exchange(&self) -> Exchange {
        let context = FlowContext {
            keeps_original: true,
            ..FlowContext::new("test")
        };
        let request = Request {
            method: Method::from_token(&self.method),
            path: self.path.clone(),
            query: self.query.clone(),
            parameters: Vec::new(),
            headers: self.headers.clone(),
            body: self.body.clone(),
            peer: IpAddr::V4(Ipv4Addr::LOCALHOST),
            proxy: None,
            is_secure: false,
            certificate: None,
            caller: None,
        };
        let mut exchange = Exchange::new(&Arc::new(context), request);
        let body = match exchange.value() {
            Ok(value) => value.clone(),
            // What is not of its media type is a text to a mock.
            Err(_) => value::text(String::from_utf8_lossy(self.body.as_bytes())),
        };
        let member = |name: &str, value| (name.to_owned(), value);
        exchange.set_value(value::object([
            member("method", value::text(self.method.as_str())),
            member("path", value::text(self.path.as_str())),
            member("query", self.query_value()),
            member("headers", headers_value(&self.headers)),
            member("body", body),
        ]));
        exchange
    }
}

/// The header fields that go to the other system, but for those that only the engine's data path
/// adds.
fn sent_headers(plan: &ForwardPlan, given: &Headers) -> Headers {
    let mut headers = Headers::new();
    let host = match &plan.host_field {
        HostField::Target => plan.upstream.authority().into_bytes(),
        HostField::Keep => given.get("Host").unwrap_or_default().to_vec(),
        HostField::Fixed(host) => host.clone().into_bytes(),
    };
    headers.append("Host", host);
    for (field, name, line) in given.view().iter() {
        let is_ours = field == Field::Host || field.is_hop_by_hop() || field.is_framing();
        if !is_ours && !plan.request_fields.drops(name) {
            headers.append(&String::from_utf8_lossy(name), line);
        }
    }
    for (name, line) in &plan.request_fields.set {
        headers.append(name, line);
    }
    headers
}
