//! OAuth 2.0 client credentials (RFC 6749, section 4.4): the tokens by which an HTTP connection
//! says who asks. A token is asked for when it is first needed and kept until shortly before it
//! expires.

mod answer;
mod kept;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64ct::{Base64, Encoding as _};
use component::connection::Credentials;
use component::definition::ConnectionContext;
use component::handler::{LocalFuture, Services, within};
use component::state::StateKey;
use component::upstream::UpstreamPlan;
use config::{Node, Report, Spanned};
use message::{Body, Fault, Headers, Kind, Method, Origin, Retry};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::MutexGuard;

use crate::codes::BAD_OAUTH2;
use crate::fixed_url::FixedUrl;
use crate::range;
use crate::tls::TlsConfig;
use crate::url_template::push_encoded;
use answer::Token;
use kept::{Kept, Look};

/// The most bytes of the answer of a token URL.
const ANSWER_MAX: u64 = 256 * 1024;

/// What the credentials are called where there is a step's name otherwise.
const STEP: &str = "oauth2";

/// Client credentials of OAuth 2.0 (RFC 6749, section 4.4).
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Oauth2Config {
    /// The URL of the token endpoint.
    token_url: Spanned<String>,
    /// The client identifier.
    client_id: Spanned<String>,
    /// The client secret.
    client_secret: Spanned<String>,
    /// The requested scope: names separated by spaces.
    scope: Option<Spanned<String>>,
    /// Further parameters of the token request, such as `audience`.
    #[allow(dead_code, reason = "read from the tree, which keeps the order")]
    parameters: Option<std::collections::BTreeMap<String, String>>,
    /// Where `client_id` and `client_secret` are sent in the token request.
    #[serde(default)]
    mode: Mode,
    /// How long before its expiry a token is renewed, from 1ms to 1d; at most half of its lifetime.
    #[schemars(extend("default" = "30s"))]
    margin: Option<Spanned<config::Duration>>,
    /// The time-out of a token request, from 1ms to 1d.
    #[schemars(extend("default" = "10s"))]
    timeout: Option<Spanned<config::Duration>>,
    /// TLS for an `https` token URL.
    tls: Option<Spanned<TlsConfig>>,
}

/// Where name and secret stand in the request for a token (RFC 6749, section 2.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Mode {
    /// In its `Authorization` header.
    #[default]
    Header,
    /// In its body.
    Body,
}

/// The credentials of a connection.
pub(crate) struct Oauth2 {
    /// The connection's name.
    connection: String,
    token_url: FixedUrl,
    /// Of the request for a token.
    authorization: Option<String>,
    /// The body of the request for a token.
    form: String,
    margin: Duration,
    timeout: Duration,
    kept: Arc<Kept>,
}

/// Without the secret.
impl fmt::Debug for Oauth2 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "oauth2 of {}", self.connection)
    }
}

/// Reads the credentials. Every problem is reported.
pub(crate) fn read(
    config: &Oauth2Config,
    node: Option<&Node>,
    context: &mut ConnectionContext<'_>,
) -> Option<Arc<dyn Credentials>> {
    let report = &mut *context.report;
    let before = report.errors();
    check_text("client_id", &config.client_id, report);
    check_text("client_secret", &config.client_secret, report);
    let (margin, timeout) = (Duration::from_secs(30), Duration::from_secs(10));
    let margin = range::time_or("margin", config.margin.as_ref(), margin, report);
    let timeout = range::time_or("timeout", config.timeout.as_ref(), timeout, report);
    let form = form(config, node, report);
    let (tls, how) = (config.tls.as_ref(), (STEP, timeout));
    let token_url = FixedUrl::read(&config.token_url, tls, how, BAD_OAUTH2, report);
    if report.errors() > before {
        return None;
    }
    let authorization = (config.mode == Mode::Header)
        .then(|| basic_authorization(&config.client_id.value, &config.client_secret.value));
    let key = StateKey {
        flow: context.name.into(),
        step: STEP.into(),
        kind: STEP,
        settings: format!("{} {form} {authorization:?}", config.token_url.value),
    };
    Some(Arc::new(Oauth2 {
        connection: context.name.to_owned(),
        token_url: token_url?,
        authorization,
        form,
        margin,
        timeout,
        kept: context.surroundings.states.get(key, Kept::default),
    }))
}

fn check_text(name: &str, text: &Spanned<String>, report: &mut Report) {
    let is_sound = !text.value.is_empty() && !text.value.contains(char::is_control);
    if !is_sound {
        // The value itself must not be shown.
        let message = format!("`{name}` is empty or has a line break");
        let diagnostic = report.error(BAD_OAUTH2, text.span, message);
        diagnostic.hint("is there a line break at its end?");
    }
}

/// The `Authorization` of a client that shows its name and secret: both are encoded as in a form
/// before they are put together (RFC 6749, section 2.3.1).
#[must_use]
pub fn basic_authorization(client_id: &str, client_secret: &str) -> String {
    let mut pair = String::new();
    push_encoded(client_id, &mut pair);
    pair.push(':');
    push_encoded(client_secret, &mut pair);
    format!("Basic {}", Base64::encode_string(pair.as_bytes()))
}

/// The body of the request for a token.
fn form(config: &Oauth2Config, node: Option<&Node>, report: &mut Report) -> String {
    let mut form = "grant_type=client_credentials".to_owned();
    let mut add = |name: &str, value: &str| {
        form.push('&');
        push_encoded(name, &mut form);
        form.push('=');
        push_encoded(value, &mut form);
    };
    if let Some(scope) = &config.scope {
        add("scope", &scope.value);
    }
    if config.mode == Mode::Body {
        add("client_id", &config.client_id.value);
        add("client_secret", &config.client_secret.value);
    }
    let parameters = node.and_then(|node| node.get("parameters"));
    let own = ["grant_type", "scope", "client_id", "client_secret"];
    for entry in parameters.and_then(Node::as_mapping).unwrap_or_default() {
        if own.contains(&entry.key.as_str()) {
            let message = format!("`{}` is no further parameter", entry.key);
            let diagnostic = report.error(BAD_OAUTH2, entry.key_span, message);
            diagnostic.hint("the keys beside `parameters` say it");
        }
        add(&entry.key, entry.value.as_str().unwrap_or_default());
    }
    form
}

impl Oauth2 {
    /// The token to use. After `refused` it may be the same one: then it is too early to ask again.
    async fn value(&self, refused: Option<&str>, services: &dyn Services) -> Result<String, Fault> {
        let kept = &self.kept;
        let spare = match kept.look(refused, services.now())? {
            Look::Use(value) => return Ok(value),
            Look::Ask(spare) => spare,
        };
        let _asking = match (kept.asking.try_lock(), &spare) {
            (Ok(asking), _) => asking,
            // The one who asks has not failed yet, and this one is still good.
            (Err(_), Some(spare)) => return Ok(spare.clone()),
            (Err(_), None) => self.wait(services).await?,
        };
        // Another one may have got a token meanwhile, or have failed.
        if let Look::Use(value) = kept.look(refused, services.now())? {
            return Ok(value);
        }
        let asked = self.ask(services).await;
        let (now, jitter) = (services.now(), services.chance());
        match asked {
            Ok(token) => Ok(kept.renew(token, self.margin, refused, now, jitter)),
            Err(fault) => {
                kept.fail(&fault, now, jitter);
                spare.ok_or(fault)
            }
        }
    }

    /// Waits until nobody else asks for a token: one request at a time, and a bound on the number
    /// and the time of those who wait for it.
    async fn wait(&self, services: &dyn Services) -> Result<MutexGuard<'_, ()>, Fault> {
        let _waiting = self.kept.join().map_err(|fault| self.place(fault))?;
        let asking = self.kept.asking.lock();
        let asking = within(self.timeout, services, asking).await;
        asking.ok_or_else(|| self.place(too_slow()))
    }

    /// Asks for a token.
    async fn ask(&self, services: &dyn Services) -> Result<Token, Fault> {
        let mut headers = Headers::new();
        headers.append("Accept", "application/json");
        headers.append("Content-Type", "application/x-www-form-urlencoded");
        if let Some(value) = &self.authorization {
            headers.append("Authorization", value);
        }
        let body = Body::from(self.form.clone().into_bytes());
        let url = &self.token_url;
        let reply = url.ask(Method::Post, headers, body, ANSWER_MAX, services);
        let reply = reply.await;
        let reply = reply.map_err(|fault| self.place(fault))?;
        answer::read(&reply).map_err(|fault| self.place(fault))
    }

    fn place(&self, fault: Fault) -> Fault {
        let cause = fault.cause.as_deref().unwrap_or(&fault.detail);
        let cause = format!("a token for {}: {cause}", self.connection);
        fault.with_cause(cause)
    }
}

impl Credentials for Oauth2 {
    fn upstream(&self) -> &Arc<UpstreamPlan> {
        self.token_url.upstream()
    }

    fn authorization<'a>(
        &'a self,
        refused: Option<&'a str>,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<String, Fault>> {
        Box::pin(async move {
            if services.stands_in() {
                // Whoever stands in for the system does not ask who it is.
                return Ok("Bearer test".to_owned());
            }
            self.value(refused, services).await
        })
    }
}

fn too_slow() -> Fault {
    let detail = "the token server did not answer in time";
    Fault::new(Kind::Timeout, Origin::Upstream, detail).with_retry(Retry::Yes)
}

#[cfg(test)]
mod tests;
