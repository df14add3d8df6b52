//! The `limits:` of a flow: what it may take.

use std::sync::Arc;
use std::time::Duration;

use component::definition::Surroundings;
use component::evaluation::Evaluation;
use component::resilience::{Bulkhead, BulkheadSettings};
use component::state::{State, StateKey};
use component::stream_limits::{MessageLimit, Over, Scope, StreamLimits, StreamSettings};
use config::{AnyValue, Node, Report, Spanned};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::{Bounds, WAIT};
use crate::codes::{NO_EFFECT, NO_STREAMS};
use crate::gates::{CallerLimits, CallerThrottleConfig, GateConfig, GateReader, OneOrMore};
use crate::modifiers::{count_or, time_or};
use crate::running::FlowLimits;

/// Limits of a flow.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct LimitsConfig {
    /// The deadline of a message: for all steps, and for waiting before them because of
    /// `concurrent`. Waiting because of `throttle` has a limit of its own, `wait`.
    /// When it passes, calls in progress are cancelled and the flow fails with `timeout`, status
    /// 504. For a streamed reply it applies to the head.
    time: Option<Spanned<config::Duration>>,
    /// The largest number of messages in progress, from 1 to 1000000; others fail with
    /// `unavailable`, status 503.
    concurrent: Option<Spanned<u64>>,
    /// Rate limits: one, or up to 8. A message that exceeds one waits, or fails with `limited`,
    /// status 429. Requests are counted before their body is read.
    throttle: Option<OneOrMore<CallerThrottleConfig>>,
    /// The caller's plan: the name of one of `engine.plans`, or an expression that gives it, such
    /// as `${ $auth.plan }`. If there is no plan of that name, the one named `default`
    /// applies; without it the request is refused with `forbidden`, status 403.
    plan: Option<Spanned<String>>,
    /// Who is counted by the plan: an expression, as in `throttle`. The default is the caller, by
    /// way and id, and the client's address where there is none.
    by: Option<AnyValue>,
    /// Whether every reply tells what is left (`RateLimit` and `RateLimit-Policy`), not only those
    /// with status 429.
    #[serde(default)]
    headers: bool,
    /// The largest number of open streams (WebSocket connections, and event streams that the flow
    /// forwards), from 1 to 1000000; others fail with `unavailable`, status 503.
    connections: Option<Spanned<u64>>,
    /// A rate limit for messages on streams that the flow forwards.
    messages: Option<MessagesConfig>,
}

/// How often messages pass on streams: frames of WebSocket that carry data, in both directions,
/// and events of event streams. Times are exact to 10 ms.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct MessagesConfig {
    /// The number per period, from 1 to 10000000.
    count: Spanned<u64>,
    /// The period.
    #[schemars(extend("default" = "1s"))]
    per: Option<Spanned<config::Duration>>,
    /// How many may come at once, from 1 to 10000000. The default is `count`.
    burst: Option<Spanned<u64>>,
    /// Whether messages are counted per `connection`, or for the whole `flow`.
    #[serde(default)]
    scope: ScopeConfig,
    /// What happens to messages beyond the limit.
    #[serde(default)]
    over: OverConfig,
}

/// Whose messages are counted together.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum ScopeConfig {
    /// Those of one connection.
    #[default]
    Connection,
    /// Those of all connections of the flow.
    Flow,
}

/// What happens to messages beyond the limit.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum OverConfig {
    /// They wait: the sender is slowed down.
    #[default]
    Delay,
    /// The stream ends; for WebSocket with code 1008.
    Close,
}

impl MessagesConfig {
    fn limit(&self, report: &mut Report) -> MessageLimit {
        let bounds = (1, 10_000_000);
        let count = count_or("count", Some(&self.count), bounds, 1, report);
        let second = Duration::from_secs(1);
        MessageLimit {
            count: count as u32,
            per: time_or("per", self.per.as_ref(), second, report),
            burst: count_or("burst", self.burst.as_ref(), bounds, count, report) as u32,
            scope: match self.scope {
                ScopeConfig::Connection => Scope::Connection,
                ScopeConfig::Flow => Scope::Flow,
            },
            over: match self.over {
                OverConfig::Delay => Over::Delay,
                OverConfig::Close => Over::Close,
            },
        }
    }
}

impl FlowLimits {
    /// Whether messages on streams are counted.
    pub fn counts_messages(&self) -> bool {
        let streams = self.streams.as_ref();
        streams.is_some_and(|streams| streams.messages().is_some())
    }

    /// Whether there is no limit but those that the forward path sees to: of time, of streams and
    /// per caller.
    pub fn suits_forward_path(&self) -> bool {
        self.concurrent.is_none()
    }
}

/// The schema of the value under `limits`.
pub(crate) fn schema() -> serde_json::Value {
    config::schema_for::<LimitsConfig>()
}

/// Reads the limits of a flow. Every problem goes into the report; `None` when there was one.
pub(crate) fn read(
    document: &Node,
    flow: &Arc<str>,
    (callers, evaluation, surroundings): (&CallerLimits, &Evaluation, &Surroundings<'_>),
    report: &mut Report,
) -> Option<FlowLimits> {
    let Some(node) = document.get("limits") else {
        return Some(FlowLimits::default());
    };
    let config: LimitsConfig = config::decode(node, report)?;
    let before = report.diagnostics().len();
    let time = config.time.as_ref();
    let time = time.and_then(|time| WAIT.check_time("time", time, report));
    let bounds = Bounds {
        least: 1,
        greatest: 1_000_000,
    };
    let count = config.concurrent.as_ref();
    let count = count.and_then(|count| bounds.check_count("concurrent", count, report));
    let gate = GateConfig {
        throttle: config.throttle,
        plan: config.plan,
        by: config.by,
        headers: config.headers,
    };
    let reader = GateReader {
        name: flow,
        place: "limits",
        limits: callers,
        evaluation,
        surroundings,
    };
    let gate = reader.read(node, &gate, report);
    let connections = config.connections.as_ref();
    let connections = connections.and_then(|it| bounds.check_count("connections", it, report));
    let streams = StreamSettings {
        connections: connections.map(|count| count as usize),
        messages: config.messages.as_ref().map(|it| it.limit(report)),
    };
    if report.diagnostics().len() > before {
        return None;
    }
    let keep = Keep { flow, surroundings };
    Some(FlowLimits {
        time,
        concurrent: count.map(|count| {
            let settings = BulkheadSettings {
                concurrent: count as usize,
                queue: 0,
                wait: Duration::ZERO,
            };
            keep.state("bulkhead", settings, || Bulkhead::new(settings))
        }),
        gate: gate.map(Arc::new),
        streams: (streams != StreamSettings::default())
            .then(|| keep.state("streams", streams, || StreamLimits::new(streams))),
    })
}

/// Refuses limits of streams in a flow that forwards none. One whose trigger opens connections
/// itself may limit their number.
pub(crate) fn refuse_streams(document: &Node, opens: bool, report: &mut Report) {
    if opens {
        return refuse_messages(document, report);
    }
    let limits = document.get("limits");
    for key in ["connections", "messages"] {
        let Some(entry) = limits.and_then(|limits| limits.entry(key)) else {
            continue;
        };
        let message = format!("`{key}` has no effect: the flow forwards no streams");
        report.error(NO_STREAMS, entry.key_span, message).hint(
            "streams are what a last step `forward` sends back, in a flow that a request \
                 starts and that has no `on_error`",
        );
    }
}

fn refuse_messages(document: &Node, report: &mut Report) {
    let limits = document.get("limits");
    if let Some(entry) = limits.and_then(|limits| limits.entry("messages")) {
        let message = "`messages` has no effect: each message starts the flow";
        report
            .error(NO_STREAMS, entry.key_span, message)
            .hint("`throttle` says how often the flow may be started");
    }
}

/// Refuses `headers` where no reply could tell anything: what starts the flow is no request, or a
/// message of a connection that stays open.
pub(crate) fn refuse_headers(document: &Node, report: &mut Report) {
    let limits = document.get("limits");
    if let Some(entry) = limits.and_then(|limits| limits.entry("headers")) {
        let message = "`headers` has no effect: the flow does not answer requests";
        report
            .error(NO_EFFECT, entry.key_span, message)
            .hint("leave it out");
    }
}

/// Keeps what a flow remembers.
struct Keep<'a> {
    flow: &'a Arc<str>,
    surroundings: &'a Surroundings<'a>,
}

impl Keep<'_> {
    fn state<T: State>(
        &self,
        kind: &'static str,
        settings: impl std::fmt::Debug,
        make: impl FnOnce() -> T,
    ) -> Arc<T> {
        let key = StateKey {
            flow: Arc::clone(self.flow),
            step: "limits".into(),
            kind,
            settings: format!("{settings:?}"),
        };
        self.surroundings.states.get(key, make)
    }
}
