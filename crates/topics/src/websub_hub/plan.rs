//! The hub of a topic, made of what is written.

use std::sync::Arc;
use std::time::Duration;

use component::document::DocumentContext;
use component::egress::Origins;
use component::source::SourcePlan;
use component::upstream::UpstreamPlan;
use config::{Node, Report, Span, Spanned};
use steps::read_origins;
use websub::signature::Method as SignedBy;
use websub::url::Url;

use super::PATH;
use super::config::WebSubHubConfig;
use super::ping::Pings;
use super::serve;
use super::state::HubState;
use super::subscriptions::Subscriptions;
use crate::bounds;
use crate::codes::BAD_HUB;
use crate::settings::Payload;
use crate::topic::Topic;
use crate::view::Mode;
use crate::webhooks::hub::{Order, Policy, ViewPlan};

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(24 * 3600);
const JSON: &str = "application/json";

/// The leases of a topic's subscriptions, in seconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leases {
    usual: u64,
    least: u64,
    most: u64,
}

impl Leases {
    /// The lease of who asks for this one.
    pub fn grant(&self, wanted: Option<u64>) -> u64 {
        wanted.unwrap_or(self.usual).clamp(self.least, self.most)
    }
}

/// The hub of a topic.
pub(crate) struct HubTopic {
    /// The topic as subscribers name it: `rel=self`.
    pub url: Url,
    /// The `Link` line with `rel=hub` and `rel=self`.
    pub links: Arc<str>,
    pub media_type: Arc<str>,
    /// Whether events that are strings are delivered as texts.
    pub is_text: bool,
    pub leases: Leases,
    pub method: SignedBy,
    /// Whether the topic is at another place, from where pings have it fetched.
    pub is_followed: bool,
    /// Whether publishers may send content.
    pub publish: bool,
    pub timeout: Duration,
    pub origins: Origins,
    pub view: Arc<ViewPlan>,
    pub policy: Arc<Policy>,
    /// The subscriptions of the process, and those of this topic.
    pub state: Arc<HubState>,
    pub subscriptions: Arc<Subscriptions>,
    pub pings: Pings,
}

/// Reads what stands under `subscribe.websub` of a topic: its hub, which the topic has from then
/// on, what delivers, and the systems that it sends to. Every problem is reported.
pub(crate) fn read(
    (config, node): (&WebSubHubConfig, &Node),
    (subscribe, base): (&Node, &str),
    topic: &Arc<Topic>,
    context: &mut DocumentContext<'_>,
) -> Option<(SourcePlan, Arc<UpstreamPlan>)> {
    let before = context.report.errors();
    let public = context.entrances.public_url().map(str::to_owned);
    let report = &mut *context.report;
    if public.is_none() {
        let message = "a WebSub hub needs `engine.public_url`: its own URL and that of the topic \
                       begin with it";
        refuse(
            node.span,
            message,
            "add `engine: { public_url: \"https://HOST\" }`",
            report,
        );
    }
    if let Some(only) = subscribe.entry("only") {
        let message = "`only` does not go with `websub`: all subscribers of a hub get the same";
        let hint = "leave one of them out, or make a topic for each group of callers";
        refuse(only.key_span, message, hint, report);
    }
    let reading = Reading { config, topic };
    let url = match (&config.url, &public) {
        (Some(url), _) => read_url(url, report),
        (None, Some(public)) => read_own(&format!("{public}{base}"), node.span, report),
        (None, None) => None,
    };
    let leases = reading.leases(report);
    let (media_type, is_text) = reading.media_type(report);
    let timeout = reading.timeout(report);
    let policy = reading.policy(report);
    let view = reading.view(is_text);
    let place = (config.tls.as_ref(), node.span);
    let origins = read_origins(place, node.span, report);
    if report.errors() > before {
        return None;
    }
    let (url, public, states) = (url?, public?, context.surroundings.states);
    let links = format!("<{public}{PATH}>; rel=\"hub\", <{url}>; rel=\"self\"");
    let upstream = Arc::clone(origins.template());
    let hub = Arc::new(HubTopic {
        links: links.into(),
        media_type: media_type.into(),
        is_text,
        leases,
        method: config.signature.into(),
        is_followed: config.url.is_some(),
        publish: config.publish,
        timeout,
        origins,
        view: Arc::new(view),
        policy: Arc::new(policy),
        state: HubState::of(states),
        subscriptions: Subscriptions::of(topic, states),
        pings: Pings::default(),
        url,
    });
    topic.set_websub(Arc::clone(&hub));
    Some((serve::source(hub, topic, states), upstream))
}

fn refuse(span: Span, message: impl Into<String>, hint: &str, report: &mut Report) {
    report.error(BAD_HUB, span, message.into()).hint(hint);
}

fn read_url(url: &Spanned<String>, report: &mut Report) -> Option<Url> {
    let parsed = Url::parse(&url.value);
    if let Err(error) = &parsed {
        let message = format!("`url` is no URL of a topic: {error}");
        refuse(url.span, message, "write `https://HOST/PATH`", report);
    }
    parsed.ok()
}

fn read_own(text: &str, span: Span, report: &mut Report) -> Option<Url> {
    let parsed = Url::parse(text);
    if let Err(error) = &parsed {
        let message = format!("`{text}` cannot be the URL of the topic: {error}");
        refuse(span, message, "change the topic's `path`", report);
    }
    parsed.ok()
}

struct Reading<'a> {
    config: &'a WebSubHubConfig,
    topic: &'a Arc<Topic>,
}

impl Reading<'_> {
    fn leases(&self, report: &mut Report) -> Leases {
        let config = self.config;
        let time =
            |name, value: &Option<Spanned<config::Duration>>, default, report: &mut Report| {
                let value = value.as_ref();
                let range = || SECOND..=366 * DAY;
                value.map_or(default, |it| bounds::time(name, it, range(), report))
            };
        let lease = time("lease", &config.lease, 10 * DAY, report);
        let least = time("lease_min", &config.lease_min, 60 * SECOND, report);
        let most = time("lease_max", &config.lease_max, 90 * DAY, report);
        // What is not written follows what is.
        let least = if config.lease_min.is_some() {
            least
        } else {
            least.min(lease).min(most)
        };
        let most = if config.lease_max.is_some() {
            most
        } else {
            most.max(lease).max(least)
        };
        let own = [&config.lease, &config.lease_min, &config.lease_max];
        let lease = if config.lease.is_some() {
            lease
        } else {
            lease.clamp(least, most.max(least))
        };
        if let Some(span) = own.into_iter().flatten().next().map(|it| it.span)
            && !(least <= lease && lease <= most)
        {
            let message = "`lease` is not between `lease_min` and `lease_max`";
            refuse(span, message, "change one of them", report);
        }
        Leases {
            usual: lease.as_secs(),
            least: least.as_secs(),
            most: most.max(least).as_secs(),
        }
    }

    /// The media type, and whether events that are strings are texts of it.
    fn media_type(&self, report: &mut Report) -> (String, bool) {
        let Some(own) = &self.config.content_type else {
            return (JSON.to_owned(), false);
        };
        let essence = own.value.split(';').next().unwrap_or_default().trim();
        let is_token = |part: &str| {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
            !part.is_empty() && part.bytes().all(is_part)
        };
        let is_sound = essence
            .split_once('/')
            .is_some_and(|(kind, name)| is_token(kind) && is_token(name));
        let is_shown = |it: u8| (0x20..0x7f).contains(&it);
        if !is_sound || !own.value.bytes().all(is_shown) {
            let message = "`content_type` is no media type";
            refuse(
                own.span,
                message,
                "such as `text/plain; charset=utf-8`",
                report,
            );
        }
        let essence = essence.to_ascii_lowercase();
        let is_json = essence == JSON || essence.ends_with("+json");
        (own.value.clone(), !is_json)
    }

    fn timeout(&self, report: &mut Report) -> Duration {
        let range = Duration::from_millis(100)..=30 * SECOND;
        let timeout = self.config.timeout.as_ref();
        timeout.map_or(10 * SECOND, |it| bounds::time("timeout", it, range, report))
    }

    fn policy(&self, report: &mut Report) -> Policy {
        let retry = self.config.retry.policy(BAD_HUB, report);
        let time = self.config.retry.time().unwrap_or(DAY);
        Policy {
            order: Order::All,
            concurrent: 1,
            batch: None,
            throttle: None,
            backoff: retry.backoff,
            times: retry.times,
            disable_after: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            drops: true,
        }
    }

    fn view(&self, is_text: bool) -> ViewPlan {
        ViewPlan {
            mode: match self.topic.settings().payload {
                Payload::Event => Mode::Event,
                Payload::Snapshot => Mode::Snapshot,
            },
            filter: None,
            select: None,
            key: None,
            cloudevents: None,
            source: "".into(),
            result_max: self.topic.settings().body_max,
            is_text,
        }
    }
}
