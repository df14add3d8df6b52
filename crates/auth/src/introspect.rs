//! Opaque tokens, which the server that has issued them is asked about (RFC 7662).

use std::sync::Arc;
use std::time::Duration;

use access::introspection::{ANSWER_MAX, Answer as Said, Rules};
use access::jwt::{Holder, TOKEN_MAX};
use component::access::{Caller, RequestHead};
use component::definition::Surroundings;
use component::handler::{LocalFuture, Services};
use component::source::SourcePlan;
use component::state::StateKey;
use component::upstream::UpstreamPlan;
use config::{Report, Spanned};
use message::{Body, Headers, Method, Reply};
use serde_json::{Map, Value as Json};
use steps::{FixedUrl, basic_authorization, push_encoded};

use crate::answers::{Answer, Answers, Asked, Question};
use crate::claims;
use crate::clear_text;
use crate::codes::BAD_WAY;
use crate::config::IntrospectConfig;
use crate::credential::{Carrier, Credential, TokenSources};
use crate::failed_checks::Guesses;
use crate::jwt::texts;
use crate::possession::Possession;
use crate::recheck::{Asking, OpaqueToken, OpenTokens, Recheck};
use crate::revocation::Revocations;
use crate::source::{self, Repeated};
use crate::timing;
use crate::way::{Check, Checked, Properties, Rejection, Way};

/// How long it is kept that a token is not active.
const REFUSAL_KEPT: Duration = Duration::from_secs(5);
/// What the parsed members of an answer take, for each of its bytes.
const BYTES_EACH: usize = 4;

/// Tokens of one server.
pub(crate) struct IntrospectWay {
    properties: Properties,
    timeout: Duration,
    answers: Arc<Answers<Verdict>>,
    asker: Arc<Asker>,
    guesses: Arc<Guesses>,
    possession: Possession,
}

/// What the issuer says of a token: whose it is, or why it is refused.
pub(crate) type Verdict = Result<ActiveToken, &'static str>;

/// A token that its issuer calls active (RFC 7662): its caller, and what the sender has to prove.
#[derive(Clone)]
pub(crate) struct ActiveToken {
    pub caller: Arc<Caller>,
    pub holder: Holder,
}

struct Asker {
    way: Arc<str>,
    url: FixedUrl,
    authorization: String,
    rules: Rules,
    id: Option<String>,
    plan: Option<String>,
    check: Duration,
    revocations: Arc<Revocations>,
    open: Arc<OpenTokens>,
}

/// Asks about the tokens of open streams.
struct StreamAsker {
    asker: Arc<Asker>,
    answers: Arc<Answers<Verdict>>,
    timeout: Duration,
}

impl Asking for StreamAsker {
    fn ask<'a>(
        &'a self,
        key: [u8; 32],
        token: &Arc<[u8]>,
        services: &'a dyn Services,
    ) -> LocalFuture<'a, Result<Verdict, &'static str>> {
        let (asker, token) = (Arc::clone(&self.asker), Arc::clone(token));
        let question: Question<_> = Box::new(move |services| {
            Box::pin(async move { asker.ask((key, &token), services).await })
        });
        let answers = &self.answers;
        Box::pin(answers.ask(Some(key), self.timeout, services, question))
    }
}

impl IntrospectWay {
    /// Reads the way. Every problem is reported.
    pub fn read(
        name: &Arc<str>,
        spanned: &Spanned<IntrospectConfig>,
        passes: bool,
        surroundings: &Surroundings<'_>,
        report: &mut Report,
    ) -> Option<Self> {
        let before = report.errors();
        let config = &spanned.value;
        let authorization = authorization(spanned, report);
        let several = |name, it: &Option<_>, report: &mut Report| {
            let all = it.as_ref().map(|it| texts(name, it, report));
            all.unwrap_or_default()
        };
        let rules = Rules {
            audience: several("audience", &config.audience, report),
            issuers: several("issuer", &config.issuer, report),
        };
        let range = (Duration::from_secs(1), Duration::from_secs(3600));
        let check = timing::time("check", config.check.as_ref(), range, report);
        let check = check.unwrap_or(Duration::from_secs(30));
        let timeout = timing::timeout(config.timeout.as_ref(), report);
        let sources = TokenSources::read(&config.also_in, report);
        let how = ("auth", timeout);
        let url = FixedUrl::read(&config.url, config.tls.as_ref(), how, BAD_WAY, report);
        clear_text::warn(&config.url, "the issuer of tokens", report);
        let hash = timing::hash(spanned.span, report);
        let (authorization, url, hash) = (authorization?, url?, hash?);
        if report.errors() > before {
            return None;
        }
        let key = StateKey {
            // All that an answer depends on.
            settings: format!(
                "{url:?} {authorization} {rules:?} {check:?} {:?} {:?}",
                config.id, config.plan
            ),
            ..StateKey::shared(name, "auth_introspect")
        };
        let states = surroundings.states;
        // Of the name alone: streams are looked after over a reload that changes the settings.
        let open_key = StateKey::shared(name, "auth_open_tokens");
        let asker = Arc::new(Asker {
            way: Arc::clone(name),
            url,
            authorization,
            rules,
            id: config.id.clone(),
            plan: config.plan.clone(),
            check,
            revocations: Revocations::of(states),
            open: states.get(open_key, OpenTokens::default),
        });
        let answers = states.get(key, || Answers::new(hash));
        let possession = Possession::of(name, config.dpop.as_ref(), surroundings);
        Some(Self {
            properties: Properties {
                passes,
                token_sources: sources,
                dpop: possession.dpop,
                ..Properties::new(name, Carrier::Bearer)
            },
            timeout,
            answers,
            asker,
            guesses: Guesses::of(states),
            possession,
        })
    }

    fn checked(
        &self,
        verdict: Verdict,
        credential: &Credential<'_>,
        shown: (RequestHead<'_>, &dyn Services),
    ) -> Checked {
        let found = verdict.map_err(Rejection::Invalid)?;
        self.possession.confirm(found.holder, credential, shown)?;
        Ok(found.caller.into())
    }

    /// What asks about the tokens of open streams again.
    fn recheck(&self) -> Recheck<StreamAsker> {
        Recheck {
            open: Arc::clone(&self.asker.open),
            answers: Arc::clone(&self.answers),
            revocations: Arc::clone(&self.asker.revocations),
            check: self.asker.check,
            asking: StreamAsker {
                asker: Arc::clone(&self.asker),
                answers: Arc::clone(&self.answers),
                timeout: self.timeout,
            },
        }
    }

    async fn ask(
        &self,
        key: [u8; 32],
        credential: Credential<'_>,
        (head, services): (RequestHead<'_>, &dyn Services),
    ) -> Checked {
        let token = credential.value.to_vec();
        let asker = Arc::clone(&self.asker);
        // The question owns the pending check, not the request: a client that disconnects does not
        // get it back. A request that joins another one's question gives it back at once, so that
        // one question counts as one failure.
        let begun = self
            .guesses
            .begin(head.peer, self.timeout, services)
            .await?;
        let question: Question<_> = Box::new(move |services| {
            Box::pin(async move {
                let asked = asker.ask((key, &token.into()), services).await;
                if matches!(&asked, Ok(answer) if answer.value.is_err()) {
                    begun.fail();
                }
                asked
            })
        });
        let answer = self
            .answers
            .ask(Some(key), self.timeout, services, question);
        match answer.await {
            Ok(verdict) => self.checked(verdict, &credential, (head, services)),
            Err(problem) => Err(Rejection::Unavailable(problem)),
        }
    }
}

/// How the engine says who it is.
fn authorization(config: &Spanned<IntrospectConfig>, report: &mut Report) -> Option<String> {
    let IntrospectConfig {
        client_id,
        client_secret,
        bearer,
        ..
    } = &config.value;
    let given = [client_id, client_secret, bearer].into_iter().flatten();
    for text in given {
        // The value itself must not be shown.
        if text.value.is_empty() || text.value.contains(char::is_control) {
            let message = "this is empty or has a line break";
            let hint = "is there a line break at its end?";
            report.error(BAD_WAY, text.span, message).hint(hint);
            return None;
        }
    }
    match (client_id, client_secret, bearer) {
        (Some(id), Some(secret), None) => Some(basic_authorization(&id.value, &secret.value)),
        (None, None, Some(bearer)) if Headers::is_value(bearer.value.as_bytes()) => {
            Some(format!("Bearer {}", bearer.value))
        }
        _ => {
            let message = "the engine must say who it is (RFC 7662, section 2.1)";
            report
                .error(BAD_WAY, config.span, message)
                .hint("write `client_id` and `client_secret`, or `bearer`");
            None
        }
    }
}

impl Asker {
    async fn ask(
        &self,
        (key, token): ([u8; 32], &Arc<[u8]>),
        services: &dyn Services,
    ) -> Asked<Verdict> {
        let mut headers = Headers::new();
        headers.append("Accept", "application/json");
        headers.append("Content-Type", "application/x-www-form-urlencoded");
        headers.append("Authorization", &self.authorization);
        let mut form = "token=".to_owned();
        push_encoded(&String::from_utf8_lossy(token), &mut form);
        form.push_str("&token_type_hint=access_token");
        let body = Body::from(form.into_bytes());
        let (method, most) = (Method::Post, ANSWER_MAX as u64);
        let reply = self.url.ask(method, headers, body, most, services).await;
        let reply = reply.map_err(|fault| {
            self.log(&fault.to_string());
            "no_answer"
        })?;
        self.read(&reply, (key, token), services.wall().as_secs())
            .inspect_err(|_| {
                self.log(&format!(
                    "an answer with status {} that says nothing",
                    reply.status
                ));
            })
    }

    fn read(
        &self,
        reply: &Reply,
        (key, token): ([u8; 32], &Arc<[u8]>),
        now: u64,
    ) -> Asked<Verdict> {
        if reply.status != 200 {
            return Err("answer_status");
        }
        let body = reply.body.as_bytes();
        let said = self.rules.read(body, now).map_err(|_| "answer_form")?;
        let refuse = |reason| Answer {
            value: Err(reason),
            admits: false,
            keep: REFUSAL_KEPT.min(self.check),
            bytes: 0,
        };
        Ok(match said {
            Said::Inactive => refuse("inactive"),
            Said::Refused(refused) => refuse(refused.name()),
            Said::Active {
                claims,
                holder,
                expires,
            } => match self.caller(&claims, expires) {
                None => refuse("no_id"),
                Some(mut caller) => {
                    caller.revocable = Some(Arc::new(OpaqueToken {
                        revocations: Arc::clone(&self.revocations),
                        open: Arc::clone(&self.open),
                        key,
                        token: Arc::clone(token),
                    }));
                    let left = expires.map(|at| Duration::from_secs(at.saturating_sub(now)));
                    Answer {
                        value: Ok(ActiveToken {
                            caller: Arc::new(caller),
                            holder,
                        }),
                        admits: true,
                        keep: left.map_or(self.check, |left| left.min(self.check)),
                        bytes: body.len() * BYTES_EACH + token.len(),
                    }
                }
            },
        })
    }

    fn caller(&self, claims: &Map<String, Json>, expires: Option<u64>) -> Option<Caller> {
        let ids: &[&str] = match &self.id {
            Some(name) => &[name],
            None => &["sub", "username", "client_id"],
        };
        let mut caller = claims::caller(&self.way, ids, self.plan.as_deref(), claims)?;
        caller.expires = expires;
        Some(caller)
    }

    fn log(&self, problem: &str) {
        tracing::warn!(
            target: "auth", way = %self.way, problem, "the introspection endpoint gave no answer"
        );
    }
}

impl Way for IntrospectWay {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn check<'a>(
        &'a self,
        credential: Credential<'a>,
        head: RequestHead<'a>,
        services: &'a dyn Services,
    ) -> Check<'a> {
        // What RFC 6750, section 2.1 lets a token have. Nobody is asked about anything else.
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
        let token = &credential.value;
        if token.is_empty() || token.len() > TOKEN_MAX || !token.iter().all(is_part) {
            return Check::Ready(Err(Rejection::Invalid("malformed")));
        }
        let key = self.answers.key([&**token]);
        if let Some(verdict) = self.answers.kept(&key, services.now()) {
            let shown = (head, services);
            return Check::Ready(self.checked(verdict, &credential, shown));
        }
        Check::Pending(Box::pin(self.ask(key, credential, (head, services))))
    }

    fn source(&self) -> Option<SourcePlan> {
        let recheck = Repeated(self.recheck());
        Some(source::plan(
            format!("auth {}", self.properties.name),
            Arc::new(recheck),
        ))
    }

    fn upstreams(&self) -> Vec<&Arc<UpstreamPlan>> {
        vec![self.asker.url.upstream()]
    }
}

#[cfg(test)]
mod tests;
