//! The OpenID provider: its endpoints, and the tokens that it gives.

use std::sync::Arc;
use std::time::Duration;

use access::jwt::{KeySet, Refused, Snapshot};
use access::oidc::{
    Description, Expected, IdToken, IdTokenProblem, IdTokenRules, LogoutToken, LogoutTokenProblem,
    LogoutTokenRules, TokenAnswer, TokenProblem, form,
};
use component::handler::{Services, within};
use message::{Body, Headers, Method};
use steps::{Assertion, FixedUrl};
use tokio::sync::Semaphore;

use crate::issuer_keys::{Fetcher, same_origin};

/// The most bytes of an answer of the token endpoint.
const ANSWER_MAX: u64 = 256 * 1024;
/// How many requests go to the token endpoint at a time.
pub(super) const CONCURRENT_MAX: usize = 64;

/// How the client says who it is.
pub(super) enum ClientAuth {
    /// By its secret: the value of `Authorization`.
    Secret(String),
    /// By tokens that it signs.
    Key(Box<Assertion>),
    /// Not at all.
    Public,
}

/// A provider, seen by one of its clients.
pub(super) struct Provider {
    pub way: Arc<str>,
    pub issuer: String,
    pub client_id: String,
    pub auth: ClientAuth,
    pub fetcher: Arc<Fetcher>,
    /// The token endpoint, when the description does not decide.
    pub token_url: Option<FixedUrl>,
    pub id_rules: IdTokenRules,
    pub logout_rules: LogoutTokenRules,
    pub timeout: Duration,
    pub turns: Semaphore,
}

/// Why there are no tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The provider refuses what it was shown, or its answer is refused: a word for the log.
    Refused(&'static str),
    /// Nobody can tell at the moment.
    Unavailable(&'static str),
}

impl Provider {
    /// What the provider says about itself.
    pub async fn description(
        &self,
        services: &dyn Services,
    ) -> Result<Arc<Description>, &'static str> {
        if let Some(known) = self.fetcher.keys.description() {
            return Ok(known);
        }
        // It is fetched with the keys.
        let now = services.now();
        let seen = self.fetcher.keys.current(now).map(|it| it.generation());
        self.fetcher.newer(seen, services).await;
        let known = self.fetcher.keys.description();
        known.ok_or("no_description")
    }

    /// Asks for tokens with the parameters of a grant.
    pub async fn tokens(
        &self,
        grant: &[(&str, &str)],
        services: &dyn Services,
    ) -> Result<TokenAnswer, Failure> {
        let turn = within(self.timeout, services, self.turns.acquire()).await;
        let Some(Ok(_turn)) = turn else {
            return Err(Failure::Unavailable("busy"));
        };
        let other;
        let url = match &self.token_url {
            Some(url) => url,
            None => {
                let description = self.description(services).await;
                let description = description.map_err(Failure::Unavailable)?;
                other = self.endpoint(&description.token)?;
                &other
            }
        };
        let mut headers = Headers::new();
        headers.append("Accept", "application/json");
        headers.append("Content-Type", "application/x-www-form-urlencoded");
        let mut parameters = grant.to_vec();
        let assertion;
        match &self.auth {
            ClientAuth::Secret(value) => headers.append("Authorization", value),
            ClientAuth::Public => parameters.push(("client_id", &self.client_id)),
            ClientAuth::Key(key) => {
                let made = key.parameters(services.wall().as_secs());
                assertion = made.ok_or(Failure::Unavailable("no_randomness"))?;
                parameters.push(("client_id", &self.client_id));
                parameters.extend(
                    assertion
                        .iter()
                        .map(|(name, value)| (*name, value.as_str())),
                );
            }
        }
        let body = Body::from(form(&parameters).into_bytes());
        let reply = url.ask(Method::Post, headers, body, ANSWER_MAX, services);
        let reply = reply.await.map_err(|fault| {
            self.log(&fault.to_string());
            Failure::Unavailable("no_answer")
        })?;
        let read = TokenAnswer::read(reply.status, reply.body.as_bytes());
        read.map_err(|problem| match problem {
            TokenProblem::Grant => Failure::Refused("invalid_grant"),
            TokenProblem::Error(name) => {
                // The settings here and there differ: operators want to know.
                self.log(&format!("error {}", name.escape_debug()));
                Failure::Unavailable("token_error")
            }
            TokenProblem::Malformed => {
                self.log(&format!(
                    "an answer with status {} without tokens",
                    reply.status
                ));
                Failure::Unavailable("token_answer")
            }
        })
    }

    fn endpoint(&self, url: &str) -> Result<FixedUrl, Failure> {
        let Some(path) = same_origin(url, &self.issuer) else {
            self.log(&format!("write `token_url: {}`", url.escape_debug()));
            return Err(Failure::Unavailable("token_url"));
        };
        let path = path.split('#').next().unwrap_or_default();
        let asked = self.fetcher.location.url();
        Ok(match path.split_once('?') {
            Some((path, query)) => asked.at(path, Some(query.to_owned())),
            None => asked.at(path, None),
        })
    }

    /// Checks an ID token.
    pub async fn id_token(
        &self,
        token: &str,
        expected: Expected<'_>,
        services: &dyn Services,
    ) -> Result<IdToken, Failure> {
        let now = services.wall().as_secs();
        let check = |keys: &KeySet| self.id_rules.check(token, keys, expected, now);
        let is_unknown =
            |problem: &IdTokenProblem| *problem == IdTokenProblem::Token(Refused::UnknownKey);
        let checked = self.with_keys(check, is_unknown, services).await?;
        checked.map_err(|problem| Failure::Refused(problem.name()))
    }

    /// Checks a logout token.
    pub async fn logout_token(
        &self,
        token: &str,
        services: &dyn Services,
    ) -> Result<LogoutToken, Failure> {
        let now = services.wall().as_secs();
        let check = |keys: &KeySet| self.logout_rules.check(token.as_bytes(), keys, now);
        let is_unknown = |problem: &LogoutTokenProblem| {
            *problem == LogoutTokenProblem::Token(Refused::UnknownKey)
        };
        let checked = self.with_keys(check, is_unknown, services).await?;
        checked.map_err(|problem| Failure::Refused(problem.name()))
    }

    /// Checks a token by the keys of the provider, and once more by newer ones when its key is not
    /// known.
    async fn with_keys<T, E>(
        &self,
        check: impl Fn(&KeySet) -> Result<T, E>,
        is_unknown: impl Fn(&E) -> bool,
        services: &dyn Services,
    ) -> Result<Result<T, E>, Failure> {
        let current = || self.fetcher.keys.current(services.now());
        let mut keys: Option<Snapshot> = current();
        if let Some(keys) = &keys {
            match check(keys.keys()) {
                Err(problem) if is_unknown(&problem) => {}
                checked => return Ok(checked),
            }
        }
        let seen = keys.as_ref().map(Snapshot::generation);
        if self.fetcher.newer(seen, services).await {
            keys = current();
        }
        let keys = keys.ok_or(Failure::Unavailable("no_keys"))?;
        Ok(check(keys.keys()))
    }

    fn log(&self, problem: &str) {
        tracing::warn!(
            target: "auth", way = %self.way, problem, "the OpenID provider gave no tokens"
        );
    }
}
