//! An HTTP service that decides about requests by their heads, as nginx's `auth_request`, Traefik's
//! `ForwardAuth` and Envoy's `ext_authz` ask one.

use std::sync::Arc;
use std::time::Duration;

use component::access::{Caller, RequestHead, TICKET_COOKIE};
use component::cookies;
use component::definition::Surroundings;
use component::handler::Services;
use component::state::StateKey;
use component::upstream::UpstreamPlan;
use config::{Report, Spanned};
use expr::value::{object, text};
use message::{Body, Fault, Field, Headers, Method, Reply, Request};
use steps::FixedUrl;

use crate::answers::{Answer, Answers, Asked, Question};
use crate::clear_text;
use crate::codes::BAD_WAY;
use crate::config::{AskConfig, Fail};
use crate::credential::{Carrier, Credential};
use crate::revocation::{Revocations, Tokens};
use crate::timing;
use crate::way::{Check, Checked, Properties, Rejection, Way};

/// The most bytes of an answer's body.
const ANSWER_MAX: u64 = 64 * 1024;
/// How long a refusal is kept.
const REFUSAL_KEPT: Duration = Duration::from_secs(5);
/// What an answer costs beside its own bytes: its fields.
const FIELDS: usize = 1024;
/// What a claim costs beside its name and value: its place in an object.
const CLAIM: usize = 64;
/// The fields of an answer that are passed on with a refusal.
const PASSED_ON: [&str; 5] = [
    "WWW-Authenticate",
    "Content-Type",
    "Content-Encoding",
    "Content-Language",
    "Retry-After",
];

/// A service that decides.
pub(crate) struct AskWay {
    properties: Properties,
    /// The fields that it sees, in lower case.
    headers: Vec<String>,
    timeout: Duration,
    cache: Duration,
    /// Who is let in when the service cannot decide.
    stand_in: Option<Arc<Caller>>,
    answers: Arc<Answers<Verdict>>,
    asker: Arc<Asker>,
}

/// What the service has decided.
#[derive(Clone)]
enum Verdict {
    Admitted(Arc<Caller>),
    Refused(Arc<Reply>),
}

struct Asker {
    way: Arc<str>,
    url: FixedUrl,
    method: Method,
    id: Vec<String>,
    scopes: Option<String>,
    claims: Vec<String>,
    redirects: bool,
    cache: Duration,
    /// What may deny callers.
    tokens: Arc<Tokens>,
}

impl AskWay {
    /// Reads the way. Every problem is reported.
    pub fn read(
        name: &Arc<str>,
        spanned: &Spanned<AskConfig>,
        surroundings: &Surroundings<'_>,
        report: &mut Report,
    ) -> Option<Self> {
        let before = report.errors();
        let config = &spanned.value;
        let method = method(config.method.as_ref(), report);
        let usual = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect();
        let headers = match &config.headers {
            None => usual(&["authorization", "cookie"]),
            Some(names) => seen_fields(names, report),
        };
        let id = match &config.id {
            None => usual(&["x-auth-request-user", "remote-user"]),
            Some(names) => fields(names, report),
        };
        let scopes = config.scopes.as_ref();
        let scopes = scopes.and_then(|it| field(it, report));
        let claims = fields(&config.claims, report);
        let timeout = timing::timeout(config.timeout.as_ref(), report);
        let range = (Duration::ZERO, Duration::from_secs(3600));
        let cache = timing::time("cache", config.cache.as_ref(), range, report);
        let cache = cache.unwrap_or(Duration::from_secs(10));
        let how = ("auth", timeout);
        let url = FixedUrl::read(&config.url, config.tls.as_ref(), how, BAD_WAY, report);
        clear_text::warn(&config.url, "the service that decides", report);
        let hash = timing::hash(spanned.span, report);
        let (method, url, hash) = (method?, url?, hash?);
        if report.errors() > before {
            return None;
        }
        let asker = Asker {
            way: Arc::clone(name),
            url,
            method,
            id,
            scopes,
            claims,
            redirects: config.redirect,
            cache,
            tokens: Arc::new(Tokens(Revocations::of(surroundings.states))),
        };
        let key = StateKey {
            settings: asker.settings(),
            ..StateKey::shared(name, "auth_ask")
        };
        let nobody = || Arc::new(Caller::new(name, "", object([])));
        Some(Self {
            properties: Properties {
                passes: true,
                needs_message: true,
                ..Properties::new(name, Carrier::Always)
            },
            headers,
            timeout,
            cache,
            stand_in: (config.fail == Fail::Open).then(nobody),
            answers: surroundings.states.get(key, || Answers::new(hash)),
            asker: Arc::new(asker),
        })
    }

    /// The fields of a question: all that the service is told.
    fn question(&self, message: &Request, head: RequestHead<'_>) -> Headers {
        let mut fields = Headers::new();
        for (_, name, value) in message.headers.view().iter() {
            let is_seen = |it: &String| name.eq_ignore_ascii_case(it.as_bytes());
            let Some(field) = self.headers.iter().find(|it| is_seen(it)) else {
                continue;
            };
            // That of a ticket has a credential in it which is not for the service.
            if cookies::is_cookie(name) {
                if let Some(others) = cookies::without_names(value, &[TICKET_COOKIE]) {
                    fields.append(field, others);
                }
                continue;
            }
            fields.append(field, value);
        }
        let view = message.headers.view();
        // What a trusted proxy says of its client; of others these are not in the message.
        let host = view.first(Field::XForwardedHost);
        let host = host.or_else(|| view.first(Field::Host)).unwrap_or_default();
        let protocol: &[u8] = match view.first(Field::XForwardedProto) {
            Some(protocol) => protocol,
            None if message.is_secure => b"https",
            None => b"http",
        };
        let uri = match &message.query {
            Some(query) => format!("{}?{query}", message.path),
            None => message.path.clone(),
        };
        let url = [protocol, b"://", host, uri.as_bytes()].concat();
        let method = message.method.as_str();
        fields.append("X-Forwarded-Method", method);
        fields.append("X-Forwarded-Proto", protocol);
        fields.append("X-Forwarded-Host", host);
        fields.append("X-Forwarded-Uri", &uri);
        fields.append("X-Forwarded-For", head.peer.to_string());
        fields.append("X-Original-Method", method);
        fields.append("X-Original-URI", &uri);
        fields.append("X-Original-URL", url);
        fields
    }

    async fn ask(
        &self,
        key: Option<[u8; 32]>,
        fields: Headers,
        services: &dyn Services,
    ) -> Checked {
        let asker = Arc::clone(&self.asker);
        let question: Question<_> =
            Box::new(move |services| Box::pin(async move { asker.ask(fields, services).await }));
        let answer = self.answers.ask(key, self.timeout, services, question);
        match (answer.await, &self.stand_in) {
            (Ok(verdict), _) => verdict.checked(),
            // Or enough requests at a time would let everybody in.
            (Err("busy"), _) | (Err(_), None) => Err(Rejection::Unavailable("no_decision")),
            (Err(problem), Some(nobody)) => {
                tracing::debug!(
                    target: "auth", way = %self.properties.name, problem,
                    "let in without a decision"
                );
                Ok(Arc::clone(nobody).into())
            }
        }
    }
}

fn method(name: Option<&Spanned<String>>, report: &mut Report) -> Option<Method> {
    let Some(name) = name else {
        return Some(Method::Get);
    };
    match name.value.as_str() {
        "GET" => Some(Method::Get),
        "HEAD" => Some(Method::Head),
        "POST" => Some(Method::Post),
        other => {
            let message = format!("`{}` is no method to ask with", other.escape_debug());
            report
                .error(BAD_WAY, name.span, message)
                .hint("`GET`, `HEAD` or `POST`");
            None
        }
    }
}

/// The name of a field, in lower case.
fn field(name: &Spanned<String>, report: &mut Report) -> Option<String> {
    if !Headers::is_name(&name.value) {
        let message = format!("`{}` is no name of a header", name.value.escape_debug());
        report.error(BAD_WAY, name.span, message);
        return None;
    }
    Some(name.value.to_ascii_lowercase())
}

fn fields(names: &[Spanned<String>], report: &mut Report) -> Vec<String> {
    let names = names.iter();
    names.filter_map(|name| field(name, report)).collect()
}

/// The fields of a request that a service sees: none that says how the request is sent, and none
/// that the engine writes.
fn seen_fields(names: &[Spanned<String>], report: &mut Report) -> Vec<String> {
    let mut all = Vec::new();
    for name in names {
        let Some(field) = field(name, report) else {
            continue;
        };
        let is_ours = !matches!(
            Field::of(field.as_bytes()),
            Field::Other
                | Field::Authorization
                | Field::ContentType
                | Field::ContentEncoding
                | Field::Via
        ) || field.starts_with("x-original-");
        if is_ours {
            let message = format!("`{field}` is not passed on: the engine writes it itself");
            report
                .error(BAD_WAY, name.span, message)
                .hint("leave it out");
        }
        all.push(field);
    }
    all
}

impl Verdict {
    fn checked(self) -> Checked {
        match self {
            Self::Admitted(caller) => Ok(caller.into()),
            Self::Refused(reply) => {
                let reply = Reply::clone(&reply);
                Err(Rejection::Answered("refused", Box::new(reply)))
            }
        }
    }
}

impl Asker {
    /// All that an answer depends on, beside the question.
    fn settings(&self) -> String {
        let Self {
            way: _,
            url,
            method,
            id,
            scopes,
            claims,
            redirects,
            cache,
            tokens: _,
        } = self;
        format!("{url:?} {method:?} {id:?} {scopes:?} {claims:?} {redirects} {cache:?}")
    }

    async fn ask(&self, fields: Headers, services: &dyn Services) -> Asked<Verdict> {
        let method = self.method.clone();
        let reply = self
            .url
            .ask(method, fields, Body::Empty, ANSWER_MAX, services);
        let reply = reply.await.map_err(|fault| {
            self.log(&fault.to_string());
            "no_answer"
        })?;
        self.read(&reply).inspect_err(|problem| {
            self.log(&format!("{problem}, status {}", reply.status));
        })
    }

    fn read(&self, reply: &Reply) -> Asked<Verdict> {
        let is_redirection = matches!(reply.status, 302 | 303 | 307 | 308) && self.redirects;
        match reply.status {
            200..=299 => {
                let (caller, bytes) = self.caller(&reply.headers)?;
                Ok(Answer {
                    value: Verdict::Admitted(Arc::new(caller)),
                    admits: true,
                    keep: self.cache,
                    bytes: FIELDS + bytes,
                })
            }
            401 | 403 => Ok(self.refusal(reply)),
            _ if is_redirection && reply.headers.get("Location").is_some() => {
                Ok(self.refusal(reply))
            }
            _ => Err("no_decision"),
        }
    }

    /// The reply that a refused request gets. Cookies are not passed on: an answer may be shared.
    fn refusal(&self, reply: &Reply) -> Answer<Verdict> {
        let mut refusal = Reply::new(reply.status);
        let location = self.redirects.then_some("Location");
        for wanted in PASSED_ON.into_iter().chain(location) {
            let view = reply.headers.view();
            let same = view.iter();
            let same = same.filter(|(_, name, _)| name.eq_ignore_ascii_case(wanted.as_bytes()));
            for (_, _, value) in same {
                refusal.headers.append(wanted, value);
            }
        }
        // It is kept longer than the exchange that it comes from.
        refusal.body = reply.body.clone().detached();
        let fields = refusal.headers.view();
        let fields: usize = fields
            .iter()
            .map(|(_, it, value)| it.len() + value.len())
            .sum();
        let bytes = FIELDS + fields + refusal.body.as_bytes().len();
        Answer {
            value: Verdict::Refused(Arc::new(refusal)),
            admits: false,
            keep: REFUSAL_KEPT.min(self.cache),
            bytes,
        }
    }

    /// Who is let in, by the fields of an answer, and about how many bytes that takes beside
    /// [`FIELDS`].
    fn caller(&self, headers: &Headers) -> Result<(Caller, usize), &'static str> {
        let mut id = "";
        for name in &self.id {
            match values(headers, name)?.as_slice() {
                [] | [""] => {}
                [one] => {
                    id = one;
                    break;
                }
                _ => return Err("answer_fields"),
            }
        }
        let mut bytes = id.len();
        let mut claims = Vec::new();
        for name in &self.claims {
            let values = values(headers, name)?;
            if !values.is_empty() {
                let value = values.join(", ");
                bytes += CLAIM + name.len() + value.len();
                claims.push((name.clone(), text(value)));
            }
        }
        let mut caller = Caller::new(&self.way, id, object(claims));
        caller.revocable = Some(Arc::clone(&self.tokens) as _);
        if let Some(name) = &self.scopes {
            for value in values(headers, name)? {
                let scopes = value.split([' ', ',']).filter(|it| !it.is_empty());
                caller.scopes.extend(scopes.map(str::to_owned));
            }
        }
        let scopes = caller.scopes.iter();
        bytes += scopes
            .map(|it| size_of::<String>() + it.len())
            .sum::<usize>();
        Ok((caller, bytes))
    }

    fn log(&self, problem: &str) {
        tracing::warn!(
            target: "auth", way = %self.way, problem, "the service that decides gave no answer"
        );
    }
}

/// The values of a field.
fn values<'a>(headers: &'a Headers, name: &str) -> Result<Vec<&'a str>, &'static str> {
    let fields = headers.view().iter();
    let same = fields.filter(|(_, it, _)| it.eq_ignore_ascii_case(name.as_bytes()));
    let values = same.map(|(_, _, value)| std::str::from_utf8(value).map(str::trim));
    values
        .collect::<Result<_, _>>()
        .map_err(|_| "answer_fields")
}

impl Way for AskWay {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn check<'a>(
        &'a self,
        _: Credential<'a>,
        head: RequestHead<'a>,
        services: &'a dyn Services,
    ) -> Check<'a> {
        let Some(message) = head.message else {
            return Check::Ready(Err(Rejection::Unavailable("no_message")));
        };
        let query = message.query.as_deref().unwrap_or_default();
        if !message.path.is_ascii() || !query.is_ascii() {
            // The service and whoever serves the request might read it differently.
            let fault = Fault::invalid("the URL has characters that are not encoded");
            let reply = Box::new(fault.to_reply());
            return Check::Ready(Err(Rejection::Answered("url", reply)));
        }
        let fields = self.question(message, head);
        let mut key = None;
        if !self.cache.is_zero() {
            let view = fields.view();
            let parts = view.iter().flat_map(|(_, name, value)| [name, value]);
            let question = self.answers.key(parts);
            if let Some(verdict) = self.answers.kept(&question, services.now()) {
                return Check::Ready(verdict.checked());
            }
            key = Some(question);
        }
        Check::Pending(Box::pin(self.ask(key, fields, services)))
    }

    fn upstreams(&self) -> Vec<&Arc<UpstreamPlan>> {
        vec![self.asker.url.upstream()]
    }
}

#[cfg(test)]
mod tests;
