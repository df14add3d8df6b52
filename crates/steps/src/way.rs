//! Where a target lies: the connection that it names, or a system of its own.

use std::sync::Arc;

use component::connection::Connections;
use component::credentials::Credentials;
use component::forward::{ForwardPlan, QueryParameter};
use component::tls::{Place, Protocol};
use component::upstream::{Egress, UpstreamPlan};
use config::{Report, Span, Spanned};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codes::{NO_CREDENTIALS, NO_EFFECT, UNKNOWN_CONNECTION};
use crate::http;
use crate::target::Target;
use crate::tls::TlsConfig;

/// Where a target lies.
pub(crate) struct Way {
    /// The system.
    pub upstream: Arc<UpstreamPlan>,
    /// Begins with `/`.
    pub path: String,
    /// Without `?`.
    pub query: Option<String>,
    /// The lines that the connection adds to every request.
    pub fields: Vec<(String, String)>,
    /// The parameter that the connection adds to every query.
    pub parameter: Option<QueryParameter>,
    /// What each request is authorized with, when that is made for the request.
    pub credentials: Option<Arc<dyn Credentials>>,
}

/// Settings that a step has for its target alone.
#[derive(Clone, Copy, Default)]
pub(crate) struct Own<'a> {
    pub tls: Option<&'a Spanned<TlsConfig>>,
    pub protocols: Option<&'a Spanned<Vec<Protocol>>>,
    pub egress: Option<&'a Spanned<EgressConfig>>,
}

impl<'a> Own<'a> {
    /// Those of a step without a guard of its own.
    pub fn new(
        tls: Option<&'a Spanned<TlsConfig>>,
        protocols: Option<&'a Spanned<Vec<Protocol>>>,
    ) -> Self {
        Self {
            tls,
            protocols,
            egress: None,
        }
    }
}

/// Whether the egress guard holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum EgressConfig {
    /// Connections are made only to addresses, ports and schemes that `engine.egress` allows.
    Guarded,
}

impl EgressConfig {
    /// What it means for an upstream.
    pub(crate) fn read(config: Option<&Spanned<Self>>) -> Egress {
        match config {
            None => Egress::Open,
            Some(config) => match config.value {
                Self::Guarded => Egress::Guarded(Some(Place(config.span))),
            },
        }
    }
}

/// Finds the connection that a target names, or makes the upstream of its URL.
pub(crate) fn find(
    target: Target,
    span: Span,
    own: Own<'_>,
    (connections, report): (&Connections, &mut Report),
) -> Option<Way> {
    let (name, path, query) = match target {
        Target::Named { name, path, query } => (name, path, query),
        Target::Url(url) => {
            let (tls, protocols) = (own.tls, own.protocols);
            let mut upstream = http::single(&url, tls, protocols, span, report);
            upstream.egress = EgressConfig::read(own.egress);
            return Some(Way {
                upstream: Arc::new(upstream),
                path: url.path,
                query: url.query,
                fields: Vec::new(),
                parameter: None,
                credentials: None,
            });
        }
    };
    let own = [
        own.tls.map(|it| it.span),
        own.protocols.map(|it| it.span),
        own.egress.map(|it| it.span),
    ];
    for span in own.into_iter().flatten() {
        report
            .error(
                NO_EFFECT,
                span,
                "a connection of `use:` has its own settings",
            )
            .hint(format!("move it to `use: {{ {name}: ... }}`"));
    }
    let Some(connection) = connections.get(&name) else {
        let message = format!("there is no connection `{name}`");
        let diagnostic = report.error(UNKNOWN_CONNECTION, span, message);
        match config::suggest(&name, connections.names()) {
            Some(near) => diagnostic.hint(format!("did you mean `{near}`?")),
            None => diagnostic.hint(format!(
                "declare it: `use: {{ {name}: {{ http: https://host }} }}`"
            )),
        };
        return None;
    };
    let Some(http) = connection.as_http() else {
        let message = format!("`{name}` is no `http` connection");
        report
            .error(UNKNOWN_CONNECTION, span, message)
            .also(connection.span, format!("it is `{}`", connection.kind));
        return None;
    };
    Some(Way {
        upstream: Arc::clone(&http.upstream),
        path: format!("{}{path}", http.base),
        query,
        fields: http.fields.clone(),
        parameter: http.parameter.clone(),
        credentials: http.credentials.clone(),
    })
}

/// Puts a connection's credentials into a plan. What a client sends in their place goes no further.
pub(crate) fn authorize(
    plan: &mut ForwardPlan,
    parameter: Option<QueryParameter>,
    credentials: Option<Arc<dyn Credentials>>,
) {
    plan.parameter = parameter;
    if let Some(credentials) = &credentials {
        let names = credentials.fields().iter().map(|name| (*name).to_owned());
        plan.request_fields.remove.extend(names);
    }
    plan.credentials = credentials;
}

/// A step sets no header that its connection's credentials set.
pub(crate) fn check_fields<'a>(
    names: impl IntoIterator<Item = &'a str>,
    credentials: Option<&Arc<dyn Credentials>>,
    span: Span,
    report: &mut Report,
) {
    let own = credentials.map_or(&[][..], |it| it.fields());
    for name in names {
        if own.iter().any(|it| it.eq_ignore_ascii_case(name)) {
            let message = format!("the header `{name}` is set by the connection's `auth`");
            report
                .error(NO_CREDENTIALS, span, message)
                .hint("leave it out here, or use a connection without `auth`");
        }
    }
}
