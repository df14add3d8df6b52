//! Calls of a URL that a value holds, behind the egress guard.

use std::sync::Arc;

use component::definition::BuildContext;
use component::egress::Origins;
use component::exchange::Exchange;
use component::forward::ForwardPlan;
use component::handler::Services;
use config::{Span, Spanned};
use expr::template::{Part, Template};
use message::{Fault, Kind, Origin};

use crate::codes::BAD_CALL;
use crate::fields::reads_body;
use crate::tls::{TlsConfig, read_origins};
use crate::url_template::refuse_outside;

/// A URL that a value holds.
pub(super) struct Given {
    url: Template,
    origins: Origins,
}

impl Given {
    /// Reads a `to` that is one value. `egress` is where the file lets it be one. Every problem is
    /// reported.
    pub fn read(
        to: &Spanned<String>,
        (tls, redirects): (Option<&Spanned<TlsConfig>>, Option<&Spanned<u64>>),
        egress: Span,
        context: &mut BuildContext<'_>,
    ) -> Option<Self> {
        let url = context.template(to)?;
        if !matches!(url.parts(), [Part::Hole(_)]) {
            refuse_outside(to.span, context.report);
            return None;
        }
        if let Some(redirects) = redirects.filter(|it| it.value > 0) {
            let message = "redirects are not followed where the URL is a value";
            let diagnostic = context.report.error(BAD_CALL, redirects.span, message);
            diagnostic.hint("leave `redirects` out: the reply of the first host is the reply");
        }
        let origins = read_origins((tls, to.span), egress, context.report);
        context.upstreams.push(Arc::clone(origins.template()));
        Some(Self { url, origins })
    }

    /// What is sent to nobody, and stands for all that is.
    pub fn template(&self) -> Arc<ForwardPlan> {
        let upstream = Arc::clone(self.origins.template());
        Arc::new(ForwardPlan::new(upstream, "/"))
    }

    /// Whether the expression needs the body in memory.
    pub fn reads_body(&self) -> bool {
        reads_body(&self.url)
    }

    /// How the request gets to the URL of a message.
    ///
    /// # Errors
    /// `invalid` when the value is no text, `forbidden` when it may not be called.
    pub fn plan(
        &self,
        exchange: &mut Exchange,
        services: &dyn Services,
    ) -> Result<Arc<ForwardPlan>, Fault> {
        let mut expressions = self.url.expressions();
        let Some(expression) = expressions.next() else {
            // invariant: `read` has seen to it that there is one.
            return Err(Fault::invalid("there is no URL"));
        };
        let value = exchange.evaluate(expression, services)?;
        let Some(url) = expr::value::as_text(&value) else {
            let (kind, shown) = (expr::value::kind(&value), expression.text().trim());
            let detail = format!("a URL is a text, not {kind}");
            return Err(Fault::unfit(detail, format_args!("`{shown}` gave {kind}")));
        };
        let target = services.egress(url).map_err(|it| it.into_fault())?;
        Ok(Arc::new(self.origins.plan(&target)))
    }
}

/// What the guard says of an address that a name has led to, as it says it of one in the URL: both
/// are the message's.
pub(super) fn of_message(fault: Fault) -> Fault {
    if fault.kind != Kind::Forbidden || fault.origin != Origin::Upstream {
        return fault;
    }
    let cause = fault.cause.unwrap_or_default();
    Fault::new(
        Kind::Forbidden,
        Origin::Client,
        "this address may not be called",
    )
    .with_cause(cause)
}
