//! `subscribe:` of a topic: where and how it is subscribed to.

mod addresses;
mod expression_limits;
mod managed;

use std::sync::Arc;
use std::time::Duration;

use component::access::{TicketHandler, TicketTarget};
use component::cors::CorsConfig;
use component::document::{DeclaredRoute, DocumentContext, Guard, Listening};
use component::edge::RouteEdge;
use component::handler::Handler;
use component::networks::NetworksConfig;
use component::security_headers::SecurityHeadersConfig;
use component::state::{StateKey, States};
use component::trigger::ListenAddress;
use config::{AnyValue, ByteSize, Node, Report, Span, Spanned, Value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::access::{Access, Lock};
use crate::bounds;
use crate::branch::TICK;
use crate::caller_limits::CallerLimits;
use crate::channel::{Pace, Policy};
use crate::codes::{BAD_MODES, BAD_SUBSCRIBE, BAD_VIA};
use crate::counts::Counts;
use crate::endpoint::{self, Directory, Endpoint};
use crate::only::Only;
use crate::profile::Profile;
use crate::settings::Payload;
use crate::topic::Topic;
use crate::view::Mode;
use crate::webhooks::{self, Managed, WebhooksConfig};
use crate::websub_hub::{self, WebSubHubConfig};

/// Where and how a topic is subscribed to.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub(crate) struct SubscribeConfig {
    /// Where to listen, such as `:8080`. The default is `engine.listen`.
    #[allow(dead_code, reason = "read from the tree, as listeners are")]
    listen: Option<String>,
    /// TLS of the listener.
    #[allow(dead_code, reason = "read from the tree, as listeners are")]
    tls: Option<AnyValue>,
    /// The protocols of the listener.
    #[allow(dead_code, reason = "read from the tree, as listeners are")]
    protocols: Option<AnyValue>,
    /// Who may subscribe, by each protocol. To everybody else the topic does not exist. Streams end
    /// when the credential expires. Without it the `auth` of the listener holds; with `none`
    /// everybody may.
    #[allow(dead_code, reason = "read from the tree, as it is in flows")]
    auth: Option<AnyValue>,
    /// Which events a caller gets: a condition over the event and `$auth`, such as
    /// `.tenant == $auth.claims.tenant`. Events for which it is not true, or fails, are not sent to
    /// that caller. Callers for whom the members that it uses of `$auth` are equal share its cost.
    /// For topics of events.
    only: Option<Spanned<String>>,
    /// The path above `/sse` and `/ws`. The default is `/topics/NAME`.
    path: Option<Spanned<String>>,
    /// The protocols to subscribe with: `sse`, `websocket`. The default is both. It may be empty
    /// for a topic with `webhooks` or `websub`.
    via: Option<Spanned<Vec<Spanned<Via>>>>,
    /// The modes that subscribers may choose: `snapshot` and `patch` for a topic of snapshots,
    /// `event` for one of events. The default is all that are possible.
    modes: Option<Spanned<Vec<Mode>>>,
    /// The mode of subscribers that choose none. The default is the first of `modes`; without
    /// `modes`, `patch` for a topic of snapshots.
    mode: Option<Spanned<Mode>>,
    /// The heartbeat interval: what is sent after this time without an event keeps the connection
    /// open. From 1s to 10m.
    #[schemars(extend("default" = "15s"))]
    heartbeat: Option<Spanned<config::Duration>>,
    /// The reconnection time that clients are given (`retry:` of server-sent events), from 10ms to
    /// 1h.
    #[schemars(extend("default" = "2s"))]
    retry: Option<Spanned<config::Duration>>,
    /// The longest duration of a stream, from 2s to 366d, shortened by a random amount. Without it
    /// there is no limit. A WebSocket connection is closed with 1001 when the time of one of its
    /// subscriptions is over.
    max_time: Option<Spanned<config::Duration>>,
    /// What happens to slow subscribers.
    #[serde(default)]
    slow: SlowConfig,
    /// Whether events are compressed for clients that accept gzip. It costs CPU for each event, not
    /// for each subscriber.
    #[serde(default)]
    compression: bool,
    /// Which web pages may read the topic (CORS), and open WebSockets to it: `"*"` for all, or a
    /// mapping. In place of that of the listener.
    #[allow(dead_code, reason = "read from the tree, as in flows")]
    cors: Option<CorsConfig>,
    /// From where clients may subscribe: a list of networks that are allowed, or `allow` and
    /// `deny`. Others get 403.
    #[allow(dead_code, reason = "read from the tree, as in flows")]
    networks: Option<NetworksConfig>,
    /// Security headers of all replies: `api`, `page` or a mapping. In place of those of the
    /// listener.
    #[allow(dead_code, reason = "read from the tree, as in flows")]
    security_headers: Option<SecurityHeadersConfig>,
    /// The largest number of subscribers, from 1 to 10000000; further ones get 503.
    #[schemars(extend("default" = 100_000))]
    connections: Option<Spanned<u64>>,
    /// Whether subscribers may filter and transform events with expressions: `?filter=` and
    /// `?select=`. Whoever may subscribe may then use CPU time and memory of the engine, within
    /// `expression_limits`.
    #[serde(default)]
    allow_expressions: bool,
    /// How much CPU time and memory `only` and the expressions of all subscribers may use, on each
    /// worker.
    expression_limits: Option<Spanned<ExpressionLimitsConfig>>,
    /// Limits per caller of subscribing: `throttle`, `plan`, `by` and `headers`, as in the
    /// [`limits`](flow.md#limits) of flows.
    #[allow(dead_code, reason = "read from the tree, with its expressions")]
    limits: Option<AnyValue>,
    /// Settings for subscribers over WebSocket.
    websocket: Option<Spanned<WebSocketConfig>>,
    /// Webhooks: endpoints that get the topic's events as HTTP requests.
    #[allow(dead_code, reason = "read with the places of its names")]
    webhooks: Option<WebhooksConfig>,
    /// A WebSub hub for the topic: `{}`, or settings. Subscribers register at `/hub` of the
    /// listener, and `GET PATH` is the topic's newest content. It needs `engine.public_url`.
    #[allow(dead_code, reason = "read with the places of its keys")]
    websub: Option<WebSubHubConfig>,
    /// Also serves the topic in the protocol of another system.
    profile: Option<Spanned<Profile>>,
}

/// A way to subscribe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Via {
    /// Server-sent events: `GET PATH/sse`.
    Sse,
    /// WebSocket: `GET PATH/ws`.
    WebSocket,
    /// Requests to the subscriber, which `webhooks` switches on.
    Webhook,
    /// W3C WebSub, which `websub` switches on.
    WebSub,
}

/// What happens to slow subscribers.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct SlowConfig {
    /// How many bytes a subscriber may lag behind, from 16KiB to 1GiB. The buffer is shared by all
    /// subscribers of a worker that see the same.
    #[schemars(extend("default" = "1MiB"))]
    buffer: Option<Spanned<ByteSize>>,
    /// What happens to a subscriber that lags further behind: `conflate` sends it the newest
    /// snapshot, `drop` continues with the oldest event in the buffer and reports how many are
    /// missing, `disconnect` ends its stream, so that it can reconnect and continue where it was.
    /// The default is `conflate` for a topic of snapshots and `disconnect` for one of events.
    policy: Option<Spanned<Policy>>,
    /// How long a subscriber may read nothing at all before it is disconnected, from 2s to 1h.
    #[schemars(extend("default" = "30s"))]
    time: Option<Spanned<config::Duration>>,
}

/// How much CPU time and memory the expressions of all subscribers may use, on each worker.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct ExpressionLimitsConfig {
    /// The largest number of different combinations of `filter` and `select`, from 1 to 1000;
    /// further ones get 503. Subscribers with equal expressions share one.
    #[schemars(extend("default" = 64))]
    distinct: Option<Spanned<u64>>,
    /// The largest number of groups of callers that `only` tells apart, from 1 to 10000; callers of
    /// further groups get 503.
    #[schemars(extend("default" = 256))]
    groups: Option<Spanned<u64>>,
    /// The longest expression, from 16B to 16KiB; longer ones get 400.
    #[schemars(extend("default" = "1KiB"))]
    length: Option<Spanned<ByteSize>>,
    /// How many steps all expressions together may take for one event before the remaining ones
    /// are evaluated more slowly, in at most an eighth of a worker's time instead of half; from
    /// 10000 to 100000000. 10000 steps take about 1 ms.
    #[schemars(extend("default" = 500_000))]
    steps: Option<Spanned<u64>>,
    /// How many bytes may wait for subscribers with expressions, from 4MiB to 1GiB. When there is
    /// more, those for whom most is waiting are disconnected.
    #[schemars(extend("default" = "16MiB"))]
    memory: Option<Spanned<ByteSize>>,
}

/// Settings for subscribers over WebSocket.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct WebSocketConfig {
    /// Whether subscribers may publish to the topic on the same connection.
    #[serde(default)]
    publish: bool,
    /// The largest number of unacknowledged events, from 1 to 1000000. Without it events need no
    /// acknowledgement.
    window: Option<Spanned<u64>>,
}

impl SubscribeConfig {
    /// The path above the addresses of the topic of this name.
    pub fn base(&self, name: &str) -> String {
        match &self.path {
            Some(path) => path.value.trim_end_matches('/').to_owned(),
            None => format!("/topics/{name}"),
        }
    }

    /// Where the topic of this name takes tickets.
    pub fn tickets(&self, name: &str) -> TicketTarget {
        TicketTarget::Topic(self.base(name).into())
    }

    /// Its webhooks.
    pub fn webhooks(&self) -> Option<&WebhooksConfig> {
        self.webhooks.as_ref()
    }

    /// Its hub.
    pub fn websub(&self) -> Option<&WebSubHubConfig> {
        self.websub.as_ref()
    }

    /// Whether clients publish where they subscribe.
    pub fn publishes(&self) -> bool {
        let websocket = self.websocket.as_ref();
        let hub = self.websub.as_ref();
        websocket.is_some_and(|it| it.value.publish)
            || self.profile.is_some()
            || hub.is_some_and(|it| it.publish || it.url.is_some())
    }
}

/// The schema of `subscribe`.
pub(crate) fn complete_schema(schema: &mut Json) {
    websub_hub::complete_schema(schema);
    for (key, definition) in [
        ("tls", "listener-tls"),
        ("protocols", "protocols"),
        ("auth", "auth"),
    ] {
        let place = schema.pointer_mut(&format!("/properties/{key}"));
        if let Some(Json::Object(place)) = place {
            place.remove("anyOf");
            place.insert("$ref".to_owned(), json!(format!("#/$defs/{definition}")));
        }
    }
}

/// Reports a key that has another name now. False when there was one.
pub(crate) fn check_renamed(topic: &Node, report: &mut Report) -> bool {
    let subscribe = topic.get("subscribe");
    let Some(origins) = subscribe.and_then(|it| it.entry("origins")) else {
        return true;
    };
    report
        .error(
            BAD_SUBSCRIBE,
            origins.key_span,
            "`origins` has become `cors`",
        )
        .hint("write `cors: { origins: [...] }`, or `cors: \"*\"` for all pages");
    false
}

/// Reads `subscribe`. Every problem is reported; the routes are there when there was none.
/// `publish` is the lock of `publish.auth`: `None` when the document has none, `Some(None)` for
/// `auth: none`. `before` is the number of errors before the topic's document: if there are more
/// now, the topic is not declared.
pub(crate) fn read(
    (node, publish): (&Node, Option<Option<Lock>>),
    topic: &Arc<Topic>,
    (limits, before, managed): (CallerLimits, usize, Option<Arc<Managed>>),
    context: &mut DocumentContext<'_>,
) -> Option<Vec<DeclaredRoute>> {
    let is_bare = matches!(node.value, Value::Null);
    let config: SubscribeConfig = match is_bare {
        true => SubscribeConfig::default(),
        false => config::decode(node, context.report)?,
    };
    let listening = context
        .entrances
        .read_listening(Some(node).filter(|_| !is_bare), context.report);
    let reading = Reading {
        config: &config,
        topic,
    };
    let own = match is_bare {
        true => RouteEdge::default(),
        false => RouteEdge::read(node, context.report),
    };
    let settings = reading.settings(listening.as_ref()?, &own, context.report)?;
    let locks = (node.get("auth"), publish);
    let access = reading.access(locks, &settings.listen, context);
    reading.check_manage(&access, context.report);
    let guard = Guard {
        verb: "subscribe to",
        doors: access
            .subscribe
            .iter()
            .map(|it| Arc::clone(it.door()))
            .collect(),
        says_auth: node.get("auth").is_some(),
        publishes: config.publishes(),
    };
    if let (Some(_), Some(profile)) = (&limits.publish, &config.profile) {
        let message = "`publish.limits` does not hold for publishers by `profile`";
        context
            .report
            .error(BAD_SUBSCRIBE, profile.span, message)
            .hint("leave one of them out");
    }
    if context.report.errors() > before {
        return None;
    }
    let states = context.surroundings.states;
    let directory = Directory::of(states);
    let behind = (counts(topic, states), limits);
    let endpoint = directory.put(topic, (settings, access), behind);
    let routes = Routes {
        endpoint,
        directory,
        listening: listening?,
        own,
        guard,
        span: node.span,
        managed,
    };
    routes.make(&config, context)
}

fn counts(topic: &Arc<Topic>, states: &States) -> Arc<Counts> {
    let key = StateKey {
        flow: "".into(),
        step: Arc::clone(topic.name()),
        kind: "subscribers",
        settings: String::new(),
    };
    states.get(key, Counts::default)
}

struct Reading<'a> {
    config: &'a SubscribeConfig,
    topic: &'a Arc<Topic>,
}

impl Reading<'_> {
    fn settings(
        &self,
        listening: &Listening,
        own: &RouteEdge,
        report: &mut Report,
    ) -> Option<endpoint::Settings> {
        let config = self.config;
        let via = self.via(report);
        let (modes, mode) = self.modes(report)?;
        let time = |name, value, (least, most), default, report: &mut Report| {
            time(name, value, (least, most), report).unwrap_or(default)
        };
        let second = Duration::from_secs(1);
        let retry = (Duration::from_millis(10), second * 3600);
        let max_time = (second * 2, second * 3600 * 24 * 366);
        let connections = config.connections.as_ref();
        Some(endpoint::Settings {
            listen: listening.address.clone(),
            modes,
            mode,
            pace: self.pace(report),
            retry: time("retry", config.retry.as_ref(), retry, second * 2, report),
            max_time: self::time("max_time", config.max_time.as_ref(), max_time, report),
            compression: config.compression,
            edge: Arc::new(own.within(&listening.edge)),
            connections: bounds::count("connections", connections, 1..=10_000_000, report)
                .unwrap_or(100_000) as usize,
            allow_expressions: config.allow_expressions,
            expression_limits: self.expression_limits(report),
            sse: via.contains(&Via::Sse),
            websocket: self.websocket(&via, report),
            is_axway: config.profile.is_some(),
            websub: config.websub.is_some(),
        })
    }

    /// Who may do what. Without an `auth` of its own the topic has that of the listener; one that
    /// is open for subscribers alone is not for publishers.
    fn access(
        &self,
        (auth, publish): (Option<&Node>, Option<Option<Lock>>),
        listen: &ListenAddress,
        context: &mut DocumentContext<'_>,
    ) -> Access {
        let name = format!("topic {}", self.topic.name());
        let before = context.report.errors();
        let tickets = || Some(self.config.tickets(self.topic.name()));
        let of_listener = Lock::of_listener(listen, (&name, tickets()), context);
        let subscribe = match auth {
            Some(auth) => Lock::read(auth, (&name, tickets()), context),
            None => of_listener.clone(),
        };
        let is_signed =
            |lock: &Option<Lock>| lock.as_ref().is_some_and(|it| it.door().reads_body());
        // A lock of `publish.auth` has been checked where it was read.
        let is_judged = publish.is_none() && self.config.publishes();
        let publish = publish.unwrap_or_else(|| subscribe.clone().or(of_listener));
        let auth = match &subscribe {
            Some(_) => auth.or_else(|| context.entrances.listener_auth(listen)),
            None => context.entrances.listener_auth(listen),
        };
        if let Some(auth) = auth
            && (is_signed(&subscribe) || (is_judged && is_signed(&publish)))
        {
            let message = "subscribers are not known by what they have signed: they send no body";
            context
                .report
                .error(BAD_SUBSCRIBE, auth.span, message)
                .hint("use a way whose credential stands in the head, such as `jwt`");
        }
        // Publishers over WebSocket come as subscribers do, once for all their messages.
        let judged_often = subscribe
            .as_ref()
            .or(publish.as_ref().filter(|_| is_judged));
        if let (Some(auth), Some(lock)) = (auth, judged_often) {
            lock.refuse_proofs(BAD_SUBSCRIBE, auth.span, context.report);
        }
        let is_sound = context.report.errors() == before;
        let only = self.config.only.as_ref().and_then(|only| {
            let mut refuse = |message: &str, hint: &str| {
                let diagnostic = context.report.error(BAD_SUBSCRIBE, only.span, message);
                diagnostic.hint(hint);
            };
            if subscribe.is_none() && is_sound {
                refuse(
                    "`only` needs callers: the topic is for everybody",
                    "add `auth`",
                );
            }
            if self.topic.settings().payload == Payload::Snapshot {
                let hint = "make it a topic of events, or a topic for each group of callers with \
                            `auth: { any: ..., require: ... }`";
                refuse(
                    "`only` selects events: a snapshot is one document for all",
                    hint,
                );
            }
            Only::read(only, context)
        });
        Access {
            publish,
            subscribe,
            only,
        }
    }

    fn via(&self, report: &mut Report) -> Vec<Via> {
        let Some(via) = &self.config.via else {
            return vec![Via::Sse, Via::WebSocket];
        };
        let has_others = self.config.webhooks.is_some() || self.config.websub.is_some();
        if via.value.is_empty() && !has_others {
            let message = "`via` names no way to subscribe";
            report
                .error(BAD_SUBSCRIBE, via.span, message)
                .hint("write `[sse]`, `[websocket]` or both, or leave it out");
        }
        for one in &via.value {
            let (message, hint) = match one.value {
                Via::Webhook => (
                    "`via` names what clients connect to: webhooks are no part of it",
                    "write `webhooks: { endpoints: { NAME: { url: ..., secret: ... } } }`",
                ),
                Via::WebSub => (
                    "`via` names what clients connect to: a WebSub hub is no part of it",
                    "write `websub: {}` beside it",
                ),
                Via::Sse | Via::WebSocket => continue,
            };
            report.error(BAD_VIA, one.span, message).hint(hint);
        }
        via.value.iter().map(|it| it.value).collect()
    }

    /// The forms, and the one without another wish.
    fn modes(&self, report: &mut Report) -> Option<(Vec<Mode>, Mode)> {
        let possible = match self.topic.settings().payload {
            Payload::Snapshot => vec![Mode::Patch, Mode::Snapshot],
            Payload::Event => vec![Mode::Event],
        };
        let mut modes = possible.clone();
        if let Some(own) = &self.config.modes {
            modes = own.value.clone();
            let odd = modes.iter().find(|it| !possible.contains(it));
            if modes.is_empty() || odd.is_some() {
                let names: Vec<&str> = possible.iter().map(|it| it.name()).collect();
                let payload = self.topic.settings().payload.name();
                let message = match odd {
                    Some(odd) => format!(
                        "a topic of payload `{payload}` does not come as `{}`",
                        odd.name()
                    ),
                    None => "`modes` names no form".to_owned(),
                };
                let hint = format!("possible: {}", names.join(", "));
                report.error(BAD_MODES, own.span, message).hint(hint);
                return None;
            }
        }
        let Some(mode) = &self.config.mode else {
            let first = *modes.first()?;
            return Some((modes, first));
        };
        if !modes.contains(&mode.value) {
            let message = format!("`{}` is not among the topic's `modes`", mode.value.name());
            let names: Vec<&str> = modes.iter().map(|it| it.name()).collect();
            let hint = format!("possible: {}", names.join(", "));
            report.error(BAD_MODES, mode.span, message).hint(hint);
            return None;
        }
        Some((modes, mode.value))
    }

    fn pace(&self, report: &mut Report) -> Pace {
        let slow = &self.config.slow;
        let second = Duration::from_secs(1);
        let is_axway = self.config.profile.is_some();
        let usual = if is_axway { 5 } else { 15 };
        let beat = time(
            "heartbeat",
            self.config.heartbeat.as_ref(),
            (second, second * 600),
            report,
        );
        let stalled = time(
            "time",
            slow.time.as_ref(),
            (second * 2, second * 3600),
            report,
        );
        let buffer = bounds::size("buffer", slow.buffer.as_ref(), 16 << 10..=1 << 30, report);
        let is_snapshot = self.topic.settings().payload == Payload::Snapshot;
        if let Some(policy) = &slow.policy
            && policy.value == Policy::Conflate
            && !is_snapshot
        {
            let message = "events cannot be conflated: each says something of its own";
            report
                .error(BAD_SUBSCRIBE, policy.span, message)
                .hint("write `drop` or `disconnect`, or make it a topic of snapshots");
        }
        if let Some(policy) = &slow.policy
            && policy.value == Policy::Drop
            && is_snapshot
        {
            let message = "patches cannot be applied when one before them is left out";
            report
                .error(BAD_SUBSCRIBE, policy.span, message)
                .hint("write `conflate` or `disconnect`, or make it a topic of events");
        }
        let usual_policy = match is_snapshot {
            true => Policy::Conflate,
            false => Policy::Disconnect,
        };
        Pace {
            heartbeat: beat.map_or(usual, ticks),
            stalled_max: stalled.map_or(30, ticks),
            bytes_max: buffer.unwrap_or(1 << 20),
            policy: slow.policy.as_ref().map_or(usual_policy, |it| it.value),
        }
    }

    fn websocket(&self, via: &[Via], report: &mut Report) -> Option<endpoint::WebSocket> {
        let is_served = via.contains(&Via::WebSocket);
        let Some(config) = &self.config.websocket else {
            return is_served.then_some(endpoint::WebSocket {
                publish: false,
                window: None,
            });
        };
        if !is_served {
            let message = "`websocket` has no effect: `via` does not name it";
            report
                .error(BAD_SUBSCRIBE, config.span, message)
                .hint("add `websocket` to `via`, or leave this out");
        }
        if let (Some(window), Some(_)) = (&config.value.window, &self.config.only) {
            let message = "a `window` does not go with `only`: what is left out cannot be \
                           acknowledged";
            report
                .error(BAD_SUBSCRIBE, window.span, message)
                .hint("leave one of them out");
        }
        let window = config.value.window.as_ref();
        Some(endpoint::WebSocket {
            publish: config.value.publish,
            window: bounds::count("window", window, 1..=1_000_000, report),
        })
    }
}

fn time(
    name: &'static str,
    value: Option<&Spanned<config::Duration>>,
    (least, most): (Duration, Duration),
    report: &mut Report,
) -> Option<Duration> {
    value.map(|value| bounds::time(name, value, least..=most, report))
}

fn ticks(time: Duration) -> u32 {
    let ticks = time.as_millis().div_ceil(TICK.as_millis());
    u32::try_from(ticks).unwrap_or(u32::MAX / 2)
}

/// The routes of a topic that is subscribed to.
struct Routes {
    endpoint: Arc<Endpoint>,
    directory: Arc<Directory>,
    listening: Listening,
    /// What its document says of its clients.
    own: RouteEdge,
    guard: Guard,
    span: Span,
    /// How users manage webhooks, if they do.
    managed: Option<Arc<Managed>>,
}

/// The methods of a route, its path, and who takes its requests.
type Wanted = (&'static str, String, Arc<dyn Handler>);

impl Routes {
    /// What gives tickets for the topic's own addresses, where there are any: to subscribers, and
    /// to publishers over WebSocket where everybody may subscribe.
    fn ticket_handler(&self) -> Option<TicketHandler> {
        let Endpoint {
            settings, access, ..
        } = &*self.endpoint;
        let is_opened = settings.sse || settings.websocket.is_some();
        let subscribe = access.subscribe.as_ref().filter(|_| is_opened);
        let publishes = settings.websocket.as_ref().is_some_and(|it| it.publish);
        let publish = access.publish.as_ref().filter(|_| publishes);
        let door = subscribe.or(publish)?.door();
        door.gives_tickets().then(|| TicketHandler {
            door: Arc::clone(door),
            hides: subscribe.is_some(),
        })
    }

    fn make(
        &self,
        config: &SubscribeConfig,
        context: &mut DocumentContext<'_>,
    ) -> Option<Vec<DeclaredRoute>> {
        let base = config.base(self.endpoint.topic.name());
        let span = config.path.as_ref().map_or(self.span, |path| path.span);
        if base.contains(['{', '*']) {
            let message = "the path of a topic has no variable parts";
            context
                .report
                .error(BAD_SUBSCRIBE, span, message)
                .hint("write a path such as `/prices`");
            return None;
        }
        let mut wanted = self.own_addresses(&base);
        if self.endpoint.is_hidden() {
            // Whoever may not see a topic does not learn of it by another method either.
            let refused: Vec<Wanted> = wanted.iter().flat_map(|it| self.refused(it)).collect();
            wanted.extend(refused);
        }
        let has_profile = config.profile.is_some();
        wanted.extend(self.shared_addresses(has_profile));
        let first_managed = wanted.len();
        wanted.extend(self.managed_addresses(&base, has_profile));
        let wanted = wanted.into_iter().enumerate();
        let routes = wanted.map(|(at, (methods, path, handler))| {
            let mut entrance = context.entrances.entrance(
                methods,
                (&path, span),
                &self.listening,
                context.report,
            )?;
            if at >= first_managed {
                entrance.http.body_max = webhooks::BODY_MAX;
            }
            Some(DeclaredRoute {
                entrance,
                edge: self.own.clone(),
                handler,
                door: None,
                pages: self.endpoint.access.pages(),
                reads_certificate: self.endpoint.access.reads_certificate(),
                guard: self.guard.clone(),
            })
        });
        routes.collect()
    }
}
