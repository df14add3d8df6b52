//! `smtp` connections: a server that takes mail.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use component::definition::{ConnectionContext, ConnectionDefinition};
use config::{AnyValue, Node, Spanned};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::codes::BAD_SMTP;
use crate::tls::{self, Tls, TlsConfig};
use crate::url::{self, Problem, Scheme, Server};

/// The definition of the connection.
pub const DEFINITION: ConnectionDefinition = ConnectionDefinition {
    name: "smtp",
    summary: "A mail server (SMTP).",
    documentation: include_str!("connection.md"),
    example: include_str!("connection.yaml"),
    schema: config::schema_for::<SmtpConfig>,
    missing: match cfg!(feature = "smtp") {
        true => None,
        false => Some("this build has no driver for smtp"),
    },
    build,
    key_value: None,
};

/// The ports of RFC 6409 (section 3.1) and RFC 8314 (section 7.3).
const SCHEMES: [Scheme; 2] = [("smtp", 587, false), ("smtps", 465, true)];

/// A server that takes mail.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SmtpConfig {
    /// `smtp://user:password@host:port`, where TLS begins with STARTTLS, or `smtps://` with TLS
    /// from the first byte. The default port is 587 or 465.
    #[allow(
        dead_code,
        reason = "read from the tree, which knows the place of each"
    )]
    #[schemars(with = "String")]
    smtp: AnyValue,
    /// Whether `smtp` URLs use TLS. The default is `required`.
    starttls: Option<Spanned<StartTls>>,
    /// The largest number of connections, of all workers together, from 1 to 1000; each worker has
    /// at least one.
    #[schemars(extend("default" = 4))]
    pool: Option<Spanned<u64>>,
    /// How long connecting may take, including authentication, from 10ms to 5m.
    #[schemars(extend("default" = "10s"))]
    connect_timeout: Option<Spanned<config::Duration>>,
    /// How long sending a mail may take, including the wait for a connection, from 10ms to 30m.
    #[schemars(extend("default" = "1m"))]
    timeout: Option<Spanned<config::Duration>>,
    /// TLS to the server.
    tls: Option<Spanned<TlsConfig>>,
}

/// Whether TLS begins on a connection in clear text (RFC 3207).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum StartTls {
    /// It does, or no mail is sent.
    Required,
    /// Everything goes in clear text.
    Off,
}

/// A server that takes mail.
#[derive(Clone)]
pub struct Smtp {
    /// The connection's name, for the log.
    pub name: String,
    /// The server.
    pub server: Server,
    /// Whether TLS begins on a connection in clear text.
    pub starttls: bool,
    /// The most connections of all workers.
    pub pool: usize,
    /// The longest until a connection is made.
    pub connect_timeout: Duration,
    /// The longest until a mail is taken.
    pub timeout: Duration,
    /// TLS.
    pub tls: Tls,
}

fn build(node: &Node, context: &mut ConnectionContext<'_>) -> Option<Arc<dyn Any + Send + Sync>> {
    let config: SmtpConfig = config::decode(node, context.report)?;
    let before = context.report.diagnostics().len();
    let address = node.get("smtp")?;
    let server = url::read(address, &SCHEMES, context.report)?;
    if !server.path.is_empty() {
        let hint = "a mail server has no path: leave it out";
        Problem::new("the URL has a path", hint).put(address.span, context.report);
    }
    if server.user.is_some() != server.password.is_some() {
        let hint = "write both, or neither: `smtp://user:password@host`";
        let message = "the URL has a user or a password alone";
        Problem::new(message, hint).put(address.span, context.report);
    }
    let starttls = read_starttls(config.starttls.as_ref(), &server, context);
    let hint = "leave `starttls: off` or `tls` out";
    let wants_tls = server.is_secure || starttls;
    let tls = tls::read(config.tls.as_ref(), (wants_tls, hint), context);
    let (name, report) = (context.name.to_owned(), &mut *context.report);
    let (least, seconds) = (Duration::from_millis(10), Duration::from_secs);
    let range = least..=seconds(300);
    let connect_timeout = config.connect_timeout.as_ref();
    let connect_timeout = bounds::time(connect_timeout, seconds(10), range, report);
    let range = least..=seconds(1800);
    let timeout = bounds::time(config.timeout.as_ref(), seconds(60), range, report);
    let pool = bounds::count(config.pool.as_ref(), 4, 1..=1000, report) as usize;
    (report.diagnostics().len() == before).then(|| {
        Arc::new(Smtp {
            name,
            server,
            starttls,
            pool,
            connect_timeout,
            timeout,
            tls,
        }) as _
    })
}

/// Whether TLS begins with STARTTLS. Every problem is reported.
fn read_starttls(
    chosen: Option<&Spanned<StartTls>>,
    server: &Server,
    context: &mut ConnectionContext<'_>,
) -> bool {
    let Some(chosen) = chosen else {
        return !server.is_secure;
    };
    let mut refuse = |message: &str, hint: &str| {
        let diagnostic = context.report.error(BAD_SMTP, chosen.span, message);
        diagnostic.hint(hint.to_owned());
    };
    if server.is_secure {
        let hint = "leave it out, or write `smtp://`";
        refuse(
            "`starttls` has no effect on `smtps`: TLS is there from the first byte",
            hint,
        );
    } else if chosen.value == StartTls::Off && server.password.is_some() {
        let hint = "leave `starttls: off` out, or the user and the password";
        refuse("a password would go over the wire in clear text", hint);
    }
    chosen.value == StartTls::Required
}
