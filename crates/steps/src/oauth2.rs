//! OAuth 2.0: the tokens by which an HTTP connection says who asks, had by client credentials (RFC
//! 6749, section 4.4) or with a refresh token (section 6). A token is asked for when it is first
//! needed and kept until shortly before it expires.

mod answer;
mod client_auth;
mod kept;
mod refresh;

pub use client_auth::{Assertion, PrivateKeyConfig, basic_authorization};

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use component::credentials::{Credentials, Grant, Signs, Unsigned};
use component::definition::ConnectionContext;
use component::handler::{LocalFuture, Services, within};
use component::state::StateKey;
use component::upstream::UpstreamPlan;
use config::{Node, Report, Spanned};
use message::{Body, Fault, Headers, HeadersView, Kind, Method, Origin, Retry};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedMutexGuard, oneshot};

use crate::codes::BAD_OAUTH2;
use crate::fixed_url::FixedUrl;
use crate::range;
use crate::tls::TlsConfig;
use crate::url_template::push_encoded;
use answer::Token;
use client_auth::ClientAuth;
use kept::{Kept, Look};
use refresh::Refresh;

/// The most bytes of the answer of a token URL.
const ANSWER_MAX: u64 = 256 * 1024;

/// What the credentials are called where there is a step's name otherwise.
const STEP: &str = "oauth2";

/// OAuth 2.0: client credentials (RFC 6749, section 4.4), or with `refresh_token` section 6.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Oauth2Config {
    /// The URL of the token endpoint.
    token_url: Spanned<String>,
    /// The client identifier.
    client_id: Spanned<String>,
    /// The client secret.
    client_secret: Option<Spanned<String>>,
    /// The key that the client signs a token with instead of sending a secret (`private_key_jwt`,
    /// RFC 7523).
    private_key: Option<PrivateKeyConfig>,
    /// The refresh token to begin with. Those that the token server gives in its place are kept in
    /// the data folder. Another one here begins anew.
    refresh_token: Option<Spanned<String>>,
    /// The requested scope: names separated by spaces.
    scope: Option<Spanned<String>>,
    /// Further parameters of the token request, such as `audience`.
    #[allow(dead_code, reason = "read from the tree, which keeps the order")]
    parameters: Option<std::collections::BTreeMap<String, String>>,
    /// How `client_secret` is used in the token request: sent in its `header` (HTTP Basic) or its
    /// `body`, or as the key of a `jwt` (HS256, RFC 7523).
    #[schemars(extend("default" = "header"))]
    mode: Option<Spanned<Mode>>,
    /// How long before its expiry a token is renewed, from 1ms to 1d; at most half of its lifetime.
    #[schemars(extend("default" = "30s"))]
    margin: Option<Spanned<config::Duration>>,
    /// The time-out of a token request, from 1ms to 1d.
    #[schemars(extend("default" = "10s"))]
    timeout: Option<Spanned<config::Duration>>,
    /// TLS for an `https` token URL.
    tls: Option<Spanned<TlsConfig>>,
}

/// What becomes of name and secret in the request for a token (RFC 6749, section 2.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Mode {
    /// In its `Authorization` header.
    #[default]
    Header,
    /// In its body.
    Body,
    /// A token signed with the secret.
    Jwt,
}

/// The credentials of a connection.
pub(crate) struct Oauth2(Arc<Client>);

/// A client of a token server.
struct Client {
    /// The connection's name.
    connection: String,
    token_url: FixedUrl,
    client_auth: ClientAuth,
    /// The body of the request for a token, as far as it is always the same.
    form: String,
    refresh: Option<Refresh>,
    margin: Duration,
    timeout: Duration,
    kept: Arc<Kept>,
}

/// Without the secret.
impl fmt::Debug for Oauth2 {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "oauth2 of {}", self.0.connection)
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
    let texts = [
        ("client_id", Some(&config.client_id)),
        ("client_secret", config.client_secret.as_ref()),
        ("refresh_token", config.refresh_token.as_ref()),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            check_text(name, text, report);
        }
    }
    let (margin, timeout) = (Duration::from_secs(30), Duration::from_secs(10));
    let margin = range::time_or("margin", config.margin.as_ref(), margin, report);
    let timeout = range::time_or("timeout", config.timeout.as_ref(), timeout, report);
    let mut form = form(config, node, report);
    let (tls, how) = (config.tls.as_ref(), (STEP, timeout));
    let token_url = FixedUrl::read(&config.token_url, tls, how, BAD_OAUTH2, report);
    let client_auth = ClientAuth::read(config, &mut form, context);
    if context.report.errors() > before {
        return None;
    }
    let (url, client_auth) = (&config.token_url.value, client_auth?);
    let first = config.refresh_token.as_ref().map(|it| it.value.as_str());
    let states = context.surroundings.states;
    let key = StateKey {
        flow: context.name.into(),
        step: STEP.into(),
        kind: STEP,
        settings: format!("{url} {form} {client_auth:?} {first:?}"),
    };
    let client_id = &config.client_id.value;
    Some(Arc::new(Oauth2(Arc::new(Client {
        connection: context.name.to_owned(),
        token_url: token_url?,
        client_auth,
        form,
        refresh: first.map(|first| Refresh::new(first, url, client_id, states)),
        margin,
        timeout,
        kept: states.get(key, Kept::default),
    }))))
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

/// The body of the request for a token, without what says who asks.
fn form(config: &Oauth2Config, node: Option<&Node>, report: &mut Report) -> String {
    let grant = match config.refresh_token {
        Some(_) => "refresh_token",
        None => "client_credentials",
    };
    let mut form = format!("grant_type={grant}");
    if let Some(scope) = &config.scope {
        push_parameter(&mut form, "scope", &scope.value);
    }
    let parameters = node.and_then(|node| node.get("parameters"));
    let own = [
        "grant_type",
        "scope",
        "client_id",
        "client_secret",
        "client_assertion",
        "client_assertion_type",
        "refresh_token",
    ];
    for entry in parameters.and_then(Node::as_mapping).unwrap_or_default() {
        if own.contains(&entry.key.as_str()) {
            let message = format!("`{}` is no further parameter", entry.key);
            let diagnostic = report.error(BAD_OAUTH2, entry.key_span, message);
            diagnostic.hint("the keys beside `parameters` say it");
        }
        let value = entry.value.as_str().unwrap_or_default();
        push_parameter(&mut form, &entry.key, value);
    }
    form
}

fn push_parameter(form: &mut String, name: &str, value: &str) {
    form.push('&');
    push_encoded(name, form);
    form.push('=');
    push_encoded(value, form);
}

impl Client {
    /// The token to use. After a refusal it may be the same one: then it is too early to ask again.
    async fn value(self: &Arc<Self>, services: &dyn Services) -> Result<String, Fault> {
        let kept = &self.kept;
        let spare = match kept.look(services.now())? {
            Look::Use(value) => return Ok(value),
            Look::Ask(spare) => spare,
        };
        let asking = match (Arc::clone(&kept.asking).try_lock_owned(), &spare) {
            (Ok(asking), _) => asking,
            // The one who asks has not failed yet, and this one is still good.
            (Err(_), Some(spare)) => return Ok(spare.clone()),
            (Err(_), None) => self.wait(services).await?,
        };
        // Another one may have got a token meanwhile, or have failed.
        if let Look::Use(value) = kept.look(services.now())? {
            return Ok(value);
        }
        let renewed = match self.refresh {
            None => self.renew(asking, services).await,
            Some(_) => self.renew_beside(asking, services).await,
        };
        match (renewed, spare) {
            (Err(_), Some(spare)) => Ok(spare),
            (renewed, _) => renewed,
        }
    }

    /// Waits until nobody else asks for a token: one request at a time, and a bound on the number
    /// and the time of those who wait for it.
    async fn wait(&self, services: &dyn Services) -> Result<OwnedMutexGuard<()>, Fault> {
        let _waiting = self.kept.join().map_err(|fault| self.place(fault))?;
        let asking = Arc::clone(&self.kept.asking).lock_owned();
        let asking = within(self.timeout, services, asking).await;
        asking.ok_or_else(|| self.place(too_slow()))
    }

    /// Asks for a token, and notes what has come of it.
    async fn renew(
        &self,
        _asking: OwnedMutexGuard<()>,
        services: &dyn Services,
    ) -> Result<String, Fault> {
        let asked = self.ask(services).await;
        let (now, jitter) = (services.now(), services.random());
        match asked {
            Ok(token) => Ok(self.kept.renew(token, self.margin, now, jitter)),
            Err(fault) => {
                self.kept.fail(&fault, now, jitter);
                Err(fault)
            }
        }
    }

    /// The same, to the end even when nobody waits for it any more: with a request that is given up
    /// halfway the refresh token that the server gives in its answer would be lost, and the old one
    /// may not be taken again.
    async fn renew_beside(
        self: &Arc<Self>,
        asking: OwnedMutexGuard<()>,
        services: &dyn Services,
    ) -> Result<String, Fault> {
        let (done, renewed) = oneshot::channel();
        let client = Arc::clone(self);
        services.spawn(Box::new(move |services| {
            Box::pin(async move {
                let renewed = client.renew(asking, services).await;
                // Nobody may wait for it any more: it is kept all the same.
                let _ = done.send(renewed);
            })
        }));
        let renewed = within(self.timeout, services, renewed).await;
        match renewed {
            Some(Ok(renewed)) => renewed,
            // Dropped, since the process ends.
            Some(Err(_)) | None => Err(self.place(too_slow())),
        }
    }

    /// Asks for a token.
    async fn ask(&self, services: &dyn Services) -> Result<Token, Fault> {
        let asked = self.ask_with(services).await;
        asked.map_err(|fault| self.place(fault))
    }

    async fn ask_with(&self, services: &dyn Services) -> Result<Token, Fault> {
        let mut headers = Headers::new();
        headers.append("Accept", "application/json");
        headers.append("Content-Type", "application/x-www-form-urlencoded");
        if let ClientAuth::Header(value) = &self.client_auth {
            headers.append("Authorization", value);
        }
        let mut form = self.form.clone();
        let _turn = match &self.refresh {
            Some(refresh) => Some(refresh.turn().await),
            None => None,
        };
        if let Some(refresh) = &self.refresh {
            let token = refresh.token().await?;
            push_parameter(&mut form, "refresh_token", &token);
        }
        self.client_auth.complete(&mut form, services)?;
        let body = Body::from(form.into_bytes());
        let url = &self.token_url;
        let reply = url.ask(Method::Post, headers, body, ANSWER_MAX, services);
        let mut token = answer::read(&reply.await?)?;
        if let (Some(refresh), Some(next)) = (&self.refresh, token.refresh.take()) {
            refresh.rotate(next).await;
        }
        Ok(token)
    }

    fn place(&self, fault: Fault) -> Fault {
        let cause = fault.cause.as_deref().unwrap_or(&fault.detail);
        let cause = format!("a token for {}: {cause}", self.connection);
        fault.with_cause(cause)
    }
}

/// The field that has the token.
const FIELD: &str = "Authorization";

impl Credentials for Oauth2 {
    fn upstream(&self) -> Option<&Arc<UpstreamPlan>> {
        Some(self.0.token_url.upstream())
    }

    fn fields(&self) -> &'static [&'static str] {
        &[FIELD]
    }

    fn signs(&self) -> Signs {
        Signs::Nothing
    }

    fn grant<'a>(
        &'a self,
        _: &'a Unsigned<'a>,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Grant, Fault>> {
        Box::pin(async move {
            let value = self.0.value(services).await?;
            Ok(Grant {
                lines: vec![(FIELD, value)],
            })
        })
    }

    fn refuses(&self, grant: &Grant, status: u16, _: HeadersView<'_>, _: Duration) -> bool {
        let is_refused = status == 401;
        if is_refused {
            for (_, value) in &grant.lines {
                self.0.kept.refuse(value);
            }
        }
        is_refused
    }
}

fn too_slow() -> Fault {
    let detail = "the token server did not answer in time";
    Fault::new(Kind::Timeout, Origin::Upstream, detail).with_retry(Retry::Yes)
}

#[cfg(test)]
mod tests;
