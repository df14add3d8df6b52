//! Where a `forward` goes: a target as it is written, one whose path depends on the message, one of
//! WebSocket.

use component::definition::BuildContext;
use component::exchange::Exchange;
use component::handler::Services;
use component::tls::Protocol;
use component::trigger::Methods;
use config::{Report, Span, Spanned};
use expr::template::Template;
use message::{Fault, Method, Request};

use crate::codes::BAD_WEBSOCKET;
use crate::target::{Problem, Target, parse_short, parse_target};
use crate::url_template::{self, UrlTemplate};
use crate::way::{self, Way};

/// A target as it is written.
pub(super) struct To {
    pub method: Option<Method>,
    target: Target,
    span: Span,
    url: Option<UrlTemplate>,
}

/// A target that has been found.
pub(super) struct Found {
    pub way: Way,
    /// Whether only WebSocket handshakes go there.
    pub websocket: bool,
    /// What makes path and query, where they depend on the message.
    pub aim: Option<Aim>,
}

/// Makes path and query of a target for each message.
pub(super) struct Aim {
    url: UrlTemplate,
    /// Whether what the trigger's `*` matched is put behind the path.
    appends_rest: bool,
}

impl To {
    /// Reads a target, with a method before it when `is_short`. Every problem is reported.
    pub fn read(
        text: &Spanned<String>,
        is_short: bool,
        context: &mut BuildContext<'_>,
    ) -> Option<Self> {
        if Template::has_holes(&text.value) {
            let parsed = url_template::read(text, is_short, context)?;
            return Some(Self {
                method: parsed.method,
                target: parsed.target,
                span: text.span,
                url: Some(parsed.url),
            });
        }
        let read = match is_short {
            true => parse_short(&text.value),
            false => parse_target(&text.value).map(|target| (None, target)),
        };
        let (method, target) = put_all(read, text.span, context.report)?;
        Some(Self {
            method,
            target,
            span: text.span,
            url: None,
        })
    }

    /// Finds where it lies. `method` is the one that is sent, where the flow says one.
    pub fn find(
        self,
        own: way::Own<'_>,
        method: Option<&Method>,
        context: &mut BuildContext<'_>,
    ) -> Option<Found> {
        let websocket = matches!(&self.target, Target::Url(url) if url.is_websocket);
        if websocket {
            check_websocket(self.span, own, method, context);
        }
        let written = match &self.target {
            Target::Named { path, .. } => path.clone(),
            Target::Url(url) => url.path.clone(),
        };
        let appends_rest = context.trigger.is_some_and(|trigger| trigger.path.rest);
        let mut way = way::find(
            self.target,
            self.span,
            own,
            (context.connections, context.report),
        )?;
        if websocket {
            let mut upstream = (*way.upstream).clone();
            upstream.protocols = vec![Protocol::Http1];
            way.upstream = upstream.into();
        }
        let aim = self.url.map(|url| {
            let base = way.path.strip_suffix(&written).unwrap_or_default();
            let url = url.behind(base.to_owned());
            "/".clone_into(&mut way.path);
            way.query = None;
            Aim { url, appends_rest }
        });
        Some(Found {
            way,
            websocket,
            aim,
        })
    }
}

fn put_all<T>(result: Result<T, Vec<Problem>>, span: Span, report: &mut Report) -> Option<T> {
    result
        .map_err(|problems| {
            for problem in problems {
                problem.put(span, report);
            }
        })
        .ok()
}

/// A handshake is a `GET` over HTTP/1.1 whose reply is not a message (RFC 6455, section 4.1).
fn check_websocket(
    span: Span,
    own: way::Own<'_>,
    method: Option<&Method>,
    context: &mut BuildContext<'_>,
) {
    if !(context.is_last && context.may_stream) {
        context
            .report
            .error(
                BAD_WEBSOCKET,
                span,
                "a WebSocket target is the last step of a flow that a client's request starts, \
                 and the flow has no `on_error`",
            )
            .hint("what goes over the connection is no message that steps could look at");
    }
    if method.is_some_and(|method| *method != Method::Get) {
        let message = "a WebSocket handshake is a `GET`";
        let diagnostic = context.report.error(BAD_WEBSOCKET, span, message);
        diagnostic.hint("leave the method out");
    }
    let methods = context.trigger.map(|trigger| &trigger.methods);
    if let Some(Methods::Only(methods)) = methods
        && !methods.contains(&Method::Get)
    {
        let message = "a WebSocket handshake is a `GET`, which the flow does not take";
        let diagnostic = context.report.error(BAD_WEBSOCKET, span, message);
        diagnostic.hint("write `from: { http: GET :8080/chat }`");
    }
    let protocols = own
        .protocols
        .filter(|it| it.value.contains(&Protocol::Http2));
    if let Some(protocols) = protocols {
        let message = "a WebSocket handshake goes over HTTP/1.1";
        let diagnostic = context.report.error(BAD_WEBSOCKET, protocols.span, message);
        diagnostic.hint("leave `protocols` out");
    }
}

impl Aim {
    /// Whether an expression needs the body in memory.
    pub fn reads_body(&self) -> bool {
        self.url.reads_body()
    }

    /// Path and query for a message.
    ///
    /// # Errors
    /// As [`UrlTemplate::make`].
    pub fn make(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<(String, Option<String>), Fault> {
        let (mut path, query) = self.url.make(exchange, services)?;
        let parameters = &exchange.request.parameters;
        let rest = parameters.iter().find(|(name, _)| **name == *"rest");
        if let Some((_, rest)) = rest.filter(|_| self.appends_rest) {
            if !path.ends_with('/') {
                path.push('/');
            }
            path.push_str(rest);
        }
        Ok((path, query))
    }
}

/// Points a request there. The client's query follows the target's own.
pub(super) fn point(request: &mut Request, (path, query): (String, Option<String>)) {
    let rest = path.strip_prefix('/').unwrap_or(&path).to_owned();
    request.parameters = vec![("rest".into(), rest)];
    request.query = match (query, request.query.take()) {
        (Some(own), Some(sent)) => Some(format!("{own}&{sent}")),
        (own, sent) => own.or(sent),
    };
}
