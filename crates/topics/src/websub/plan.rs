//! The source, made of what is written.

use std::sync::Arc;
use std::time::Duration;

use component::document::Entrance;
use component::source::{ReadHttp, Source, SourceContext, SourceDefinition};
use component::state::StateKey;
use component::trigger::{Methods, Segment};
use config::{Node, Report, Span, Spanned};
use message::Method;
use steps::{FixedUrl, KeyedStateHandle};
use websub::signature::Secret;
use websub::url::Url;

use super::client::{Client, Origin};
use super::codes::BAD_WEBSUB;
use super::config::WebSubConfig;
use super::memory::Memory;
use super::record::{Disk, scope};
use super::run::{Core, WebSubSource};
use crate::keys;

/// The definition of the source.
pub const DEFINITION: SourceDefinition = SourceDefinition {
    name: "websub",
    summary: "Subscribes to a topic of a WebSub hub and starts a flow with each delivery.",
    documentation: include_str!("source.md"),
    example: include_str!("source.yaml"),
    schema: super::config::schema,
    build,
};

/// The name of the last segment of the callback.
pub(super) const PARAMETER: &str = "subscription";

const DAY: Duration = Duration::from_secs(24 * 3600);
/// The fewest bytes of a secret: one with less could be guessed.
const SECRET_MIN: usize = 16;

fn build(node: &Node, context: &mut SourceContext<'_>) -> Option<Arc<dyn Source>> {
    let config: WebSubConfig = config::decode(node, context.report)?;
    let before = context.report.errors();
    let entrance = read_entrance(node, context.read_http, context.report);
    let report = &mut *context.report;
    let topic = read_url("topic", &config.topic, report);
    let hub = config.hub.as_ref().map(|hub| read_url("hub", hub, report));
    let public = read_public(&config.callback.value.public_url, report);
    let lease = config.lease.as_ref();
    let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
    let lease = time("lease", lease, (minute, 366 * DAY), 10 * DAY, report);
    let timeouts = (Duration::from_millis(10), hour);
    let timeout = config.timeout.as_ref();
    let timeout = time(
        "timeout",
        timeout,
        timeouts,
        Duration::from_secs(10),
        report,
    );
    let secret = config.secret.as_ref().map(|it| read_secret(it, report));
    let written = Written {
        topic: (topic?, config.topic.span),
        hub: match (hub, &config.hub) {
            (Some(url), Some(text)) => Some((url?, text.span)),
            _ => None,
        },
        config: &config,
        timeout,
    };
    let client = written.client(report);
    if report.errors() > before {
        return None;
    }
    let (entrance, public, secret) = (entrance?, public?, secret.flatten());
    let callback = format!("{public}{}", entrance.http.path);
    let states = context.surroundings.states;
    let settings = written.settings(&callback, secret.as_ref());
    let key = StateKey {
        flow: Arc::clone(context.flow),
        step: "websub".into(),
        kind: "websub subscription",
        settings: settings.clone(),
    };
    Some(Arc::new(WebSubSource {
        core: Arc::new(Core {
            flow: Arc::clone(context.flow),
            client: client?,
            callback,
            lease: lease.as_secs(),
            secret,
            weakest: config.signature.into(),
            is_wanted: config.active.unwrap_or(true),
            memory: states.get(key, Memory::default),
            disk: Disk {
                keyed: KeyedStateHandle::new(states, false),
                scope: scope(context.flow, &settings),
            },
        }),
        entrance: with_parameter(entrance),
    }))
}

/// The settings as far as they could be read.
struct Written<'a> {
    topic: (Url, Span),
    hub: Option<(Url, Span)>,
    config: &'a WebSubConfig,
    timeout: Duration,
}

impl Written<'_> {
    /// What asks topic and hub. Every problem is reported.
    fn client(&self, report: &mut Report) -> Option<Client> {
        let (topic, hub) = (&self.topic, self.hub.as_ref());
        let mut urls = vec![topic.clone()];
        urls.extend(hub.cloned());
        for text in &self.config.origins {
            urls.extend(read_origin(text, report).map(|url| (url, text.span)));
        }
        let tls = self.config.tls.as_ref();
        if let Some(tls) = tls.filter(|_| !urls.iter().any(|(url, _)| url.is_secure())) {
            let message = "`tls` has no effect: no URL is `https`";
            report
                .error(BAD_WEBSUB, tls.span, message)
                .hint("leave it out, or write `https://`");
        }
        let mut origins: Vec<Origin> = Vec::new();
        for (url, span) in urls {
            if origins.iter().any(|it| it.url.is_of_origin(&url)) {
                continue;
            }
            let root = Spanned {
                value: url.as_str().to_owned(),
                span,
            };
            let tls = tls.filter(|_| url.is_secure());
            let how = ("websub", self.timeout);
            let system = FixedUrl::read(&root, tls, how, BAD_WEBSUB, report)?;
            let system = system.with_egress(self.config.egress.as_ref());
            origins.push(Origin { url, system });
        }
        Some(Client {
            topic: topic.0.clone(),
            hub: hub.map(|it| it.0.clone()),
            origins,
        })
    }

    /// What tells the subscription from others: with another topic, hub, callback or secret it is
    /// another one.
    fn settings(&self, callback: &str, secret: Option<&Secret>) -> String {
        let mut text = String::new();
        let hub = self.hub.as_ref().map_or("", |it| it.0.as_str());
        let secret = secret.map_or("", Secret::expose);
        for part in [self.topic.0.as_str(), hub, callback, secret] {
            text.push_str(&format!("{}:{part}", part.len()));
        }
        format!(
            "{:032x}",
            u128::from_be_bytes(keys::digest(text.as_bytes()))
        )
    }
}

fn refuse(span: Span, message: impl Into<String>, hint: &str, report: &mut Report) {
    report.error(BAD_WEBSUB, span, message.into()).hint(hint);
}

fn read_url(key: &str, text: &Spanned<String>, report: &mut Report) -> Option<Url> {
    Url::parse(&text.value)
        .map_err(|error| {
            let message = format!("`{key}` is no URL of a resource: {error}");
            refuse(text.span, message, "write `https://HOST/PATH`", report);
        })
        .ok()
}

fn read_origin(text: &Spanned<String>, report: &mut Report) -> Option<Url> {
    let url = read_url("origins", text, report)?;
    let is_bare = url.path() == "/" && !text.value.ends_with(['/', '?']);
    if !is_bare {
        let message = "an origin has neither path nor query";
        refuse(text.span, message, "write `https://HOST`", report);
    }
    Some(url)
}

/// What stands before the path of the callback, without a `/` at its end.
fn read_public(text: &Spanned<String>, report: &mut Report) -> Option<String> {
    let url = read_url("public_url", text, report)?;
    if text.value.contains('?') {
        let message = "`public_url` has no query";
        refuse(text.span, message, "write `https://HOST`", report);
    }
    Some(url.as_str().trim_end_matches('/').to_owned())
}

fn read_secret(text: &Spanned<String>, report: &mut Report) -> Option<Secret> {
    let secret = Secret::new(&text.value).filter(|it| it.expose().len() >= SECRET_MIN);
    if secret.is_none() {
        let message = "a secret has 16 to 199 bytes";
        let hint = "leave it out: one is made at random";
        refuse(text.span, message, hint, report);
    }
    secret
}

fn time(
    key: &str,
    value: Option<&Spanned<config::Duration>>,
    (least, most): (Duration, Duration),
    default: Duration,
    report: &mut Report,
) -> Duration {
    let Some(value) = value else {
        return default;
    };
    if !(least..=most).contains(&value.value.0) {
        let message = format!("`{key}` is {}, outside its range", value.value);
        let (least, most) = (config::Duration(least), config::Duration(most));
        refuse(
            value.span,
            message,
            &format!("from {least} to {most}"),
            report,
        );
    }
    value.value.0
}

/// Reads where the callback is served. Every problem is reported.
fn read_entrance(node: &Node, read: ReadHttp<'_>, report: &mut Report) -> Option<Entrance> {
    let http = node.get("callback")?.get("http")?;
    let entrance = read(http, report)?;
    let span = entrance.span;
    if entrance.http.methods != Methods::Only(vec![Method::Post]) {
        let message = "hubs deliver by `POST`";
        let hint = "write `POST :8080/hooks/news`; `GET`, by which they verify, is taken anyway";
        refuse(span, message, hint, report);
        return None;
    }
    let path = &entrance.http.path;
    let is_literal = |it: &Segment| matches!(it, Segment::Literal(_));
    if path.rest || !path.segments.iter().all(is_literal) {
        let message = "the path of a callback has no variable parts";
        let hint = "a random segment follows it: write a path such as `/hooks/news`";
        refuse(span, message, hint, report);
        return None;
    }
    Some(entrance)
}

/// The same with the segment that only the hub knows.
fn with_parameter(mut entrance: Entrance) -> Entrance {
    let http = &mut entrance.http;
    http.methods = Methods::Only(vec![Method::Get, Method::Post]);
    http.path
        .segments
        .push(Segment::Parameter(PARAMETER.into()));
    entrance
}
