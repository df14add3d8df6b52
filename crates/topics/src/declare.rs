//! `topic:` documents.

use std::sync::Arc;
use std::time::Duration;

use component::cors::CorsConfig;
use component::document::{
    Declaration, Declared, DeclaredRoute, DocumentContext, DocumentDefinition, Mention,
};
use component::edge::{self, RouteEdge};
use component::networks::NetworksConfig;
use component::security_headers::SecurityHeadersConfig;
use component::source::SourcePlan;
use component::upstream::UpstreamPlan;
use config::{AnyValue, ByteSize, Node, Report, Spanned};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value as Json, json};

use crate::access::Lock;
use crate::bounds;
use crate::caller_limits::CallerLimits;
use crate::codes::{BAD_HUB, BAD_PUBLISHER, BAD_WEBHOOK};
use crate::hub::Hub;
use crate::poll;
use crate::publisher;
use crate::settings::{Durability, Keep, Payload, Settings};
use crate::subscribe::{self, SubscribeConfig};
use crate::topic::Topic;
use crate::webhooks::{self, Managed};
use crate::websub_hub;

/// The definition of the document.
pub const DEFINITION: DocumentDefinition = DocumentDefinition {
    name: "topic",
    summary: "A topic: a named log of events with subscribers.",
    documentation: include_str!("declare.md"),
    example: include_str!("declare.yaml"),
    schema,
    build,
};

/// The kind of document under which topics are declared.
pub(crate) const KIND: &str = "topic";

/// A topic: what is published to it, what is kept, and who gets it.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct TopicConfig {
    /// The topic's name, unique in all files.
    topic: Spanned<String>,
    /// What the topic is for, in prose.
    #[allow(dead_code, reason = "for readers of the file")]
    doc: Option<String>,
    /// Whether each publication is the whole current state (`snapshot`) or something that has
    /// happened (`event`). It cannot change while events are kept.
    #[serde(default)]
    payload: Payload,
    /// When a publisher is answered: with `disk` when the event is on the disk; with `memory` at
    /// once, and events are lost when the process ends.
    #[serde(default)]
    durability: Durability,
    /// Retention: how much is kept for returning subscribers.
    #[serde(default)]
    keep: KeepConfig,
    /// The largest event, from 64B to 16MiB.
    #[schemars(extend("default" = "1MiB"))]
    body_max: Option<Spanned<ByteSize>>,
    /// The largest number of patches between two stored snapshots, from 1 to 10000. It affects how
    /// much is read from the disk when a subscriber returns.
    #[schemars(extend("default" = 100))]
    snapshot_every: Option<Spanned<u64>>,
    /// Where events come from, besides flows with the step `publish`.
    #[allow(dead_code, reason = "read from the tree, as triggers are")]
    publish: Option<PublishConfig>,
    /// Where and how clients subscribe to the topic. Without it only flows get its events.
    #[allow(dead_code, reason = "read from the tree, with its places")]
    subscribe: Option<SubscribeConfig>,
}

/// How much is kept: the oldest events go when one of the limits is reached.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct KeepConfig {
    /// `webhooks`: what an endpoint of `subscribe.webhooks.endpoints` has not got is kept beyond
    /// these limits, unless it is paused or disabled. At `bytes` publishers are refused then (503).
    #[serde(rename = "for")]
    holds: Option<Spanned<KeepFor>>,
    /// The largest number of events, from 1 to 10000000.
    #[schemars(extend("default" = 10_000))]
    events: Option<Spanned<u64>>,
    /// The approximate size of all events, from 64KiB to 1TiB. The last event is kept whatever its
    /// size.
    #[schemars(extend("default" = "64MiB"))]
    bytes: Option<Spanned<ByteSize>>,
    /// The age of events, from 1s to 366d. Without it only the other limits apply. The last
    /// snapshot of a topic is kept.
    time: Option<Spanned<config::Duration>>,
}

/// Whom events are kept for.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum KeepFor {
    /// Endpoints of webhooks.
    Webhooks,
}

/// Where events come from.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
struct PublishConfig {
    /// Accepts events by HTTP, such as `POST :8080/topics/prices`: written like an `http` trigger,
    /// for `POST`, `PUT` or both.
    #[allow(dead_code, reason = "read from the tree, as triggers are")]
    http: Option<AnyValue>,
    /// Who may publish by `http`, over WebSocket (`subscribe.websocket.publish`), by a hub
    /// (`subscribe.websub`, pings too) and by the path of the profile `axway-streams`. Without it
    /// the `auth` of the listener holds for `http`, and by the others whoever may subscribe may
    /// publish. With `none` everybody may.
    #[allow(dead_code, reason = "read from the tree, as it is in flows")]
    auth: Option<AnyValue>,
    /// Which web pages may publish by HTTP (CORS): `"*"` for all, or a mapping. In place of that of
    /// the listener.
    #[allow(dead_code, reason = "read from the tree, as in flows")]
    cors: Option<CorsConfig>,
    /// From where clients may publish by HTTP: a list of networks that are allowed, or `allow` and
    /// `deny`. Others get 403.
    #[allow(dead_code, reason = "read from the tree, as in flows")]
    networks: Option<NetworksConfig>,
    /// Security headers of the replies by HTTP: `api`, `page` or a mapping. In place of those of
    /// the listener.
    #[allow(dead_code, reason = "read from the tree, as in flows")]
    security_headers: Option<SecurityHeadersConfig>,
    /// Polls another system and publishes the answer when it has changed.
    #[allow(dead_code, reason = "read from the tree, as it is in flows")]
    poll: Option<AnyValue>,
    /// Limits per caller of publishing, over HTTP and WebSocket: `throttle`, `plan`, `by` and
    /// `headers`, as in the [`limits`](flow.md#limits) of flows.
    #[allow(dead_code, reason = "read from the tree, with its expressions")]
    limits: Option<AnyValue>,
}

fn schema() -> Json {
    let mut schema = config::schema_for::<TopicConfig>();
    // What the loader reads.
    let http = schema.pointer_mut("/properties/publish/anyOf/0/properties/http");
    if let Some(Json::Object(http)) = http {
        http.remove("anyOf");
        http.insert("$ref".to_owned(), json!("#/$defs/http-trigger"));
    }
    let auth = schema.pointer_mut("/properties/publish/anyOf/0/properties/auth");
    if let Some(place) = auth {
        *place = json!({ "$ref": "#/$defs/auth" });
    }
    if let Some(subscribe) = schema.pointer_mut("/properties/subscribe/anyOf/0") {
        subscribe::complete_schema(subscribe);
    }
    for key in ["publish", "subscribe"] {
        let place = format!("/properties/{key}/anyOf/0/properties/limits");
        if let Some(Json::Object(limits)) = schema.pointer_mut(&place) {
            limits.remove("anyOf");
            limits.insert("$ref".to_owned(), json!("#/$defs/caller-limits"));
        }
    }
    let poll = schema.pointer_mut("/properties/publish/anyOf/0/properties/poll");
    if let Some(place) = poll {
        *place = poll::schema();
    }
    schema
}

fn build(node: &Node, context: &mut DocumentContext<'_>) -> Option<Declared> {
    if !subscribe::check_renamed(node, context.report) {
        return None;
    }
    let config: TopicConfig = config::decode(node, context.report)?;
    let before = context.report.errors();
    let settings = read_settings(&config, context.report);
    check_holds(&config, context.report);
    let hub = Hub::of(context.surroundings.states);
    let name = &config.topic.value;
    let topic = hub.declare(name, settings, context.surroundings.states);
    let mut parts = Parts::default();
    parts.read((node, &config), (&topic, before), context);
    (context.report.errors() == before).then(|| Declared {
        declaration: Declaration {
            kind: KIND,
            name: name.as_str().into(),
            span: config.topic.span,
            value: topic,
        },
        routes: parts.routes,
        sources: parts.sources,
        upstreams: parts.upstreams,
        mentions: parts.mentions,
    })
}

fn read_settings(config: &TopicConfig, report: &mut Report) -> Settings {
    let default = Settings::default();
    let keep = &config.keep;
    let sizes = 64 << 10..=1 << 40;
    let times = Duration::from_secs(1)..=Duration::from_secs(366 * 24 * 3600);
    let events = keep.events.as_ref();
    let bytes = bounds::size("bytes", keep.bytes.as_ref(), sizes, report);
    let time = keep.time.as_ref();
    let body_max = bounds::size("body_max", config.body_max.as_ref(), 64..=16 << 20, report);
    let every = config.snapshot_every.as_ref();
    Settings {
        payload: config.payload,
        durability: config.durability,
        keep: Keep {
            events: bounds::count("events", events, 1..=10_000_000, report)
                .unwrap_or(default.keep.events),
            bytes: bytes.unwrap_or(default.keep.bytes),
            time: time.map(|time| bounds::time("time", time, times, report)),
            for_webhooks: keep.holds.is_some(),
        },
        body_max: body_max.map_or(default.body_max, |it| it as usize),
        snapshot_every: bounds::count("snapshot_every", every, 1..=10_000, report)
            .unwrap_or(default.snapshot_every),
    }
}

/// Refuses to keep events for webhooks where there are none to keep them for.
fn check_holds(config: &TopicConfig, report: &mut Report) {
    let webhooks = config.subscribe.as_ref().and_then(|it| it.webhooks());
    let has_endpoints = webhooks.is_some_and(|it| !it.endpoints.is_empty());
    if let Some(holds) = config.keep.holds.as_ref().filter(|_| !has_endpoints) {
        let message = "`for` has no effect: the topic has no `subscribe.webhooks.endpoints`";
        report.error(BAD_WEBHOOK, holds.span, message).hint(
            "webhooks that users make by REST and subscribers of a hub hold no events: they could \
             stop all publishers",
        );
    }
}

/// Refuses what is asked of clients where nobody publishes by HTTP.
fn refuse_edge(publish: &Node, report: &mut Report) {
    for entry in edge::KEYS.iter().filter_map(|key| publish.entry(key)) {
        let message = format!("`{}` has no effect: nobody publishes by HTTP", entry.key);
        report
            .error(BAD_PUBLISHER, entry.key_span, message)
            .hint("leave it out, or add `http`");
    }
}

/// What a topic serves and does by itself.
#[derive(Default)]
struct Parts {
    routes: Vec<DeclaredRoute>,
    sources: Vec<SourcePlan>,
    upstreams: Vec<Arc<UpstreamPlan>>,
    mentions: Vec<Mention>,
}

impl Parts {
    /// Reads the parts of a topic's document. Every problem is reported.
    fn read(
        &mut self,
        (node, config): (&Node, &TopicConfig),
        (topic, before): (&Arc<Topic>, usize),
        context: &mut DocumentContext<'_>,
    ) {
        let limits = CallerLimits::read(node, topic.name(), context);
        let publish = node.get("publish");
        let http = publish.and_then(|publish| publish.get("http"));
        let auth = publish.and_then(|publish| publish.entry("auth"));
        let lock = auth.map(|auth| {
            let name = format!("publish of topic {}", topic.name());
            // Subscribers may publish by what has opened their WebSocket.
            let tickets = config.subscribe.as_ref().map(|it| it.tickets(topic.name()));
            Lock::read(&auth.value, (&name, tickets), context)
        });
        if let (Some(auth), Some(lock)) = (auth, lock.iter().flatten().next())
            && lock.door().reads_body()
            && config.subscribe.as_ref().is_some_and(|it| it.publishes())
        {
            let message = "what clients have signed is judged by `publish.http` only: not over \
                           WebSocket, by a hub or by `profile`";
            let diagnostic = context.report.error(BAD_PUBLISHER, auth.key_span, message);
            diagnostic.hint(
                "use a way whose credential stands in the head, such as `jwt`, or leave \
                 `websocket.publish`, `websub.publish`, `websub.url` and `profile` out",
            );
        }
        let subscribers_publish = config.subscribe.as_ref().is_some_and(|it| it.publishes());
        if let (Some(auth), Some(lock)) = (auth, lock.iter().flatten().next())
            && subscribers_publish
        {
            lock.refuse_proofs(BAD_PUBLISHER, auth.key_span, context.report);
        }
        match (publish, http) {
            (Some(publish), Some(http)) => {
                let edge = RouteEdge::read(publish, context.report);
                let own = (http, lock.as_ref());
                let route = publisher::read(own, (edge, &limits), topic, context);
                self.routes.extend(route);
            }
            (Some(publish), None) => {
                refuse_edge(publish, context.report);
                if let Some(auth) = auth.filter(|_| !subscribers_publish) {
                    let message = "`auth` has no effect: no client publishes";
                    let diagnostic = context.report.error(BAD_PUBLISHER, auth.key_span, message);
                    diagnostic
                        .hint("leave it out, or add `http` or `subscribe.websocket.publish: true`");
                }
            }
            (None, _) => {}
        }
        let poll = publish.and_then(|publish| publish.get("poll"));
        if let Some((source, upstreams)) = poll.and_then(|node| poll::read(node, context, topic)) {
            self.sources.push(source);
            self.upstreams.extend(upstreams);
        }
        let managed = self.read_webhooks((node, config), topic, context);
        self.read_websub((node, config), topic, context);
        // The last: a topic with a problem is not to be found.
        if let Some(subscribe) = node.get("subscribe") {
            let behind = (limits, before, managed);
            let routes = subscribe::read((subscribe, lock), topic, behind, context);
            self.routes.extend(routes.unwrap_or_default());
        }
    }

    fn read_websub(
        &mut self,
        (node, config): (&Node, &TopicConfig),
        topic: &Arc<Topic>,
        context: &mut DocumentContext<'_>,
    ) {
        let (Some(config), Some(node)) = (config.subscribe.as_ref(), node.get("subscribe")) else {
            return;
        };
        let Some(own) = node.get("websub") else {
            return;
        };
        let Some(websub) = config.websub() else {
            let message = "nothing stands under `websub`";
            let diagnostic = context.report.error(BAD_HUB, own.span, message);
            diagnostic.hint("write `websub: {}`, or leave it out");
            return;
        };
        let base = config.base(topic.name());
        let read = websub_hub::read((websub, own), (node, &base), topic, context);
        if let Some((source, upstream)) = read {
            self.sources.push(source);
            self.upstreams.push(upstream);
        }
    }

    /// Reads its webhooks; how users manage theirs, if they do.
    fn read_webhooks(
        &mut self,
        (node, config): (&Node, &TopicConfig),
        topic: &Arc<Topic>,
        context: &mut DocumentContext<'_>,
    ) -> Option<Arc<Managed>> {
        let subscribe = config.subscribe.as_ref()?;
        let webhooks = subscribe.webhooks()?;
        let node = node.get("subscribe")?.get("webhooks")?;
        let wishes = subscribe.wishes(topic);
        self.mentions.extend(webhooks::mention(webhooks, topic));
        let read = webhooks::read(webhooks, node, (topic, wishes), context)?;
        self.sources.push(read.source);
        self.upstreams.extend(read.upstreams);
        read.managed
    }
}
