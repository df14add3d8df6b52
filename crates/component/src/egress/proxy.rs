//! `engine.egress.proxy`: what guarded connections are made through.

use std::fmt;

use config::{Report, Spanned};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codes::BAD_EGRESS;
use crate::text::parse_authority;

/// A proxy of HTTP that takes `CONNECT` (RFC 9110, section 9.3.6).
#[derive(Clone, PartialEq, Eq)]
pub struct EgressProxy {
    /// Its host name or IP address.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
    /// User name and password, joined by a colon (RFC 7617), if it wants them.
    pub user_pass: Option<String>,
}

impl fmt::Debug for EgressProxy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "EgressProxy({}:{})", self.host, self.port)
    }
}

/// The proxy that guarded requests go through, by `CONNECT` to the address that has been looked up
/// and checked here, also for `http`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ProxyConfig {
    /// `http://HOST:PORT`: it is reached in clear text, and whoever is called by `https` all the
    /// same by TLS.
    url: Spanned<String>,
    /// The user name, sent as `Proxy-Authorization: Basic ...`.
    user: Option<Spanned<String>>,
    /// The password of `user`.
    password: Option<Spanned<String>>,
}

/// Reads the proxy. Every problem goes into the report.
pub(super) fn read(config: &ProxyConfig, report: &mut Report) -> Option<EgressProxy> {
    let (host, port) = read_url(&config.url, report)?;
    let user_pass = match (&config.user, &config.password) {
        (None, None) => None,
        (Some(user), Some(password)) => {
            if user.value.contains(':') {
                let message = "the user name has a colon, which ends it (RFC 7617)";
                report.error(BAD_EGRESS, user.span, message);
                return None;
            }
            Some(format!("{}:{}", user.value, password.value))
        }
        (Some(one), None) | (None, Some(one)) => {
            let message = "`user` and `password` belong together";
            report.error(BAD_EGRESS, one.span, message);
            return None;
        }
    };
    Some(EgressProxy {
        host,
        port,
        user_pass,
    })
}

fn read_url(url: &Spanned<String>, report: &mut Report) -> Option<(String, u16)> {
    let authority = url.value.strip_prefix("http://");
    let authority = authority.map(|it| it.strip_suffix('/').unwrap_or(it));
    let parsed = authority.and_then(|it| parse_authority(it).ok());
    if let Some((Some(host), Some(port))) = parsed {
        return Some((host, port));
    }
    let shown = match url.value.contains('@') {
        // It may have a password.
        true => "the URL".to_owned(),
        false => format!("`{}`", url.value.escape_debug()),
    };
    let message = format!("{shown} is no proxy");
    let diagnostic = report.error(BAD_EGRESS, url.span, message);
    diagnostic.hint("write `http://HOST:PORT`; `user` and `password` stand beside it");
    None
}
