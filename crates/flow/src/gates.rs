//! Limits per caller: `engine.plans`, and `throttle`, `plan`, `by` and `headers` under `limits`.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use component::definition::{Surroundings, compile_text};
use component::document::DocumentDefinition;
use component::evaluation::Evaluation;
use component::limits::{
    Concurrent, Gate, KeptLimits, Limiter, LimiterSettings, Patience, Plan, PlanChoice, Plans,
    THROTTLES_MAX, Throttled, WINDOWS_MAX, Which, Who, WindowSettings,
};
use component::scope::{self, Scope};
use component::state::StateKey;
use config::{AnyValue, ByteSize, Entry, Node, Report, Span, Spanned, Value};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};

use crate::bounds::Bounds;
use crate::codes::{BAD_LIMIT, BAD_NAME, NO_EFFECT, OUT_OF_RANGE, UNKNOWN_PLAN};
use crate::modifiers::{count_or, time_or};
use crate::names::{NAME_RULE, is_name};
use crate::suggest::did_you_mean;

/// The most units of a window.
const COUNT: Bounds<u64> = Bounds {
    least: 1,
    greatest: 1_000_000_000_000,
};
/// The most bytes of a window: 1 PiB.
const BYTES: Bounds<u64> = Bounds {
    least: 1,
    greatest: 1 << 50,
};
/// The period of a window.
const PERIOD: Bounds<Duration> = Bounds {
    least: Duration::from_millis(1),
    greatest: Duration::from_secs(366 * 24 * 3600),
};
/// How long a stream may last.
const STREAM_TIME: Bounds<Duration> = Bounds {
    least: Duration::from_secs(2),
    greatest: Duration::from_secs(366 * 24 * 3600),
};

/// One of something, or a list of them.
#[derive(Debug)]
pub(crate) struct OneOrMore<T>(pub Vec<T>);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMore<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MapOrList<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for MapOrList<T> {
            type Value = OneOrMore<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a mapping or a list of mappings")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<OneOrMore<T>, A::Error> {
                let one = T::deserialize(MapAccessDeserializer::new(map));
                one.map(|it| OneOrMore(vec![it]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<OneOrMore<T>, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(items)).map(OneOrMore)
            }
        }
        deserializer.deserialize_any(MapOrList(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMore<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMore{}", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
    }
}

/// A rate limit of a flow or a topic. The count is exact over all workers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallerThrottleConfig {
    /// The number per period, from 1 to 10000000.
    requests: Spanned<u64>,
    /// The period, from 1ms to 366d. What has been counted in a period of 1h or more is kept in
    /// the data folder and survives a restart.
    #[schemars(extend("default" = "1s"))]
    per: Option<Spanned<config::Duration>>,
    /// How many may come at once, from 1 to `requests`. The default is `requests`: all of a
    /// period.
    burst: Option<Spanned<u64>>,
    /// Who is counted: an expression such as `${ $auth.id }`, which sees the caller and the head of
    /// the request. Each value has a bucket of its own. `null`, and an expression that gives null,
    /// stand for the client's address; the addresses of one IPv6 network of 64 bits count as one.
    /// Without this key all requests are counted together.
    #[allow(dead_code, reason = "read from the tree, where null is seen")]
    by: Option<AnyValue>,
    /// How many may wait. The default is as many as fit into `wait`.
    queue: Option<Spanned<u64>>,
    /// The longest wait. The default is not to wait; with `queue`, 5s. What cannot wait fails with
    /// `limited`, status 429.
    wait: Option<Spanned<config::Duration>>,
}

/// A named set of limits. Callers have one by the `limits.plan` of flows and topics, and are
/// counted over all of these together.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanConfig {
    /// How many requests: one window, or up to 4.
    requests: Option<OneOrMore<WindowConfig>>,
    /// How many events are published to topics: one window, or up to 4.
    events: Option<OneOrMore<WindowConfig>>,
    /// How many bytes the events have that are published to topics: one window, or up to 4.
    bytes: Option<OneOrMore<ByteWindowConfig>>,
    /// The largest number of open streams at a time (event streams and WebSocket connections),
    /// from 1 to 1000000.
    connections: Option<Spanned<u64>>,
    /// The largest number of subscriptions to topics at a time, from 1 to 1000000.
    subscriptions: Option<Spanned<u64>>,
    /// The longest duration of a subscription to a topic, from 2s to 366d. At its end the client
    /// is told with a message of type `limit`.
    stream_time: Option<Spanned<config::Duration>>,
}

/// How much per period.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WindowConfig {
    /// The number per period, from 1 to 1000000000000.
    count: Spanned<u64>,
    /// The period, from 1ms to 366d. Periods of 1h or more survive a restart.
    per: Spanned<config::Duration>,
    /// How many may come at once, from 1 to `count`. The default is `count`.
    burst: Option<Spanned<u64>>,
}

/// How many bytes per period.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ByteWindowConfig {
    /// The size per period, from 1B to 1024TiB.
    count: Spanned<ByteSize>,
    /// The period, from 1ms to 366d. Periods of 1h or more survive a restart.
    per: Spanned<config::Duration>,
    /// How many bytes may come at once, from 1B to `count`. The default is `count`.
    burst: Option<Spanned<ByteSize>>,
}

/// The limits per caller of a flow or a topic.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GateConfig {
    /// Rate limits: one, or up to 8. A request that exceeds one waits, or fails with `limited`,
    /// status 429, before its body is read.
    pub throttle: Option<OneOrMore<CallerThrottleConfig>>,
    /// The caller's plan: the name of one of `engine.plans`, or an expression that gives it, such
    /// as `${ $auth.plan }`. If there is no plan of that name, the one named `default`
    /// applies; without it the request is refused with `forbidden`, status 403.
    pub plan: Option<Spanned<String>>,
    /// The rate limit key of the plan: an expression, as in `throttle`. The default is the caller
    /// (`$auth.way` and `$auth.id`), or the client's address without authentication.
    #[allow(dead_code, reason = "read from the tree, where null is seen")]
    pub by: Option<AnyValue>,
    /// Whether every reply tells what is left (`RateLimit` and `RateLimit-Policy`), not only those
    /// with status 429.
    #[serde(default)]
    pub headers: bool,
}

/// The schema of the limits per caller of a topic.
pub(crate) fn schema() -> serde_json::Value {
    config::schema_for::<GateConfig>()
}

/// Refuses what plans limit when nothing is counted by it.
pub(crate) fn refuse_unused(
    engine: Option<&Node>,
    flows: &[Node],
    declared: &[(Node, DocumentDefinition)],
    report: &mut Report,
) {
    let has_plan = |node: Option<&Node>| {
        let limits = node.and_then(|it| it.get("limits"));
        limits.is_some_and(|it| it.get("plan").is_some())
    };
    let any = |key: &str| declared.iter().any(|(it, _)| has_plan(it.get(key)));
    let flows = flows.iter().any(|it| has_plan(Some(it)));
    let (publish, subscribe) = (any("publish"), any("subscribe"));
    let plans = engine.and_then(|it| it.get("plans")?.as_mapping());
    for plan in plans.unwrap_or_default() {
        for entry in plan.value.as_mapping().unwrap_or_default() {
            let (is_used, by) = match entry.key.as_str() {
                "requests" => (
                    flows || publish || subscribe,
                    "flow or topic says `limits.plan`",
                ),
                "connections" => (flows || subscribe, "flow or topic says `limits.plan`"),
                "events" | "bytes" => (publish, "topic says `publish.limits.plan`"),
                _ => (subscribe, "topic says `subscribe.limits.plan`"),
            };
            if !is_used {
                let (what, name) = (&entry.key, plan.key.escape_debug());
                let message = format!("`{what}` of the plan `{name}` has no effect: no {by}");
                report
                    .error(NO_EFFECT, entry.key_span, message)
                    .hint("say which callers have the plan, or leave it out");
            }
        }
    }
}

/// Settings of all limits per caller.
#[derive(Clone, Debug)]
pub(crate) struct CallerLimits {
    /// The plans.
    pub plans: Arc<Plans>,
    /// The most callers that each limit remembers.
    pub callers_max: usize,
}

/// Reads `engine.plans`. What has a problem is reported and left out.
pub(crate) fn read_plans(
    engine: Option<&Node>,
    callers_max: usize,
    surroundings: &Surroundings<'_>,
    report: &mut Report,
) -> CallerLimits {
    let entries = engine.and_then(|it| it.get("plans")?.as_mapping());
    let mut plans = Vec::new();
    for entry in entries.unwrap_or_default() {
        if !is_name(&entry.key) {
            let message = format!("`{}` is not a name for a plan", entry.key.escape_debug());
            report
                .error(BAD_NAME, entry.key_span, message)
                .hint(NAME_RULE);
            continue;
        }
        let reader = PlanReader {
            name: &entry.key,
            callers_max,
            surroundings,
        };
        plans.extend(reader.read(entry, report).map(Arc::new));
    }
    CallerLimits {
        plans: Arc::new(Plans::new(plans)),
        callers_max,
    }
}

struct PlanReader<'a> {
    name: &'a str,
    callers_max: usize,
    surroundings: &'a Surroundings<'a>,
}

impl PlanReader<'_> {
    fn read(&self, entry: &Entry, report: &mut Report) -> Option<Plan> {
        // A wrong shape has been reported with the other settings.
        let config: PlanConfig = config::decode(&entry.value, &mut Report::default())?;
        if entry.value.as_mapping().is_some_and(<[_]>::is_empty) {
            let message = format!("the plan `{}` limits nothing", self.name);
            report
                .error(NO_EFFECT, entry.key_span, message)
                .hint("write `requests: { count: 100, per: 1s }` below it, or leave it out");
        }
        let before = report.errors();
        let requests = self.windows("requests", config.requests.as_ref(), count_window, report);
        let events = self.windows("events", config.events.as_ref(), count_window, report);
        let bytes = self.windows("bytes", config.bytes.as_ref(), byte_window, report);
        let most = |name, count: Option<&Spanned<u64>>, report: &mut Report| {
            count.map(|it| count_or(name, Some(it), (1, 1_000_000), 1, report) as usize)
        };
        let connections = most("connections", config.connections.as_ref(), report);
        let subscriptions = most("subscriptions", config.subscriptions.as_ref(), report);
        let time = config.stream_time.as_ref();
        let stream_time = time.and_then(|time| STREAM_TIME.check_time("stream_time", time, report));
        (report.errors() == before).then(|| Plan {
            name: self.name.into(),
            requests: requests.map(|it| self.limiter("requests", it)),
            events: events.map(|it| self.limiter("events", it)),
            bytes: bytes.map(|it| self.limiter("bytes", it)),
            connections: connections.map(|it| self.concurrent("connections", it)),
            subscriptions: subscriptions.map(|it| self.concurrent("subscriptions", it)),
            stream_time,
        })
    }

    fn windows<T>(
        &self,
        name: &str,
        windows: Option<&OneOrMore<T>>,
        read: impl Fn(&T, &mut Report) -> (WindowSettings, Span),
        report: &mut Report,
    ) -> Option<Vec<WindowSettings>> {
        let windows = windows?.0.iter().map(|it| read(it, report));
        let windows: Vec<(WindowSettings, Span)> = windows.collect();
        if let Some((_, span)) = windows.get(WINDOWS_MAX) {
            let message = format!("`{name}` of a plan has at most {WINDOWS_MAX} windows");
            report.error(BAD_LIMIT, *span, message);
        }
        Some(windows.into_iter().map(|it| it.0).collect())
    }

    fn limiter(&self, what: &'static str, windows: Vec<WindowSettings>) -> Arc<Limiter> {
        let settings = LimiterSettings {
            windows,
            patience: Patience::default(),
            callers_max: self.callers_max,
        };
        let place = self.place(what, format!("{settings:?}"));
        KeptLimits::limiter(self.surroundings.states, place, &settings)
    }

    fn concurrent(&self, what: &'static str, most: usize) -> Arc<Concurrent> {
        let place = self.place(what, most.to_string());
        let states = self.surroundings.states;
        states.get(place, || Concurrent::new(most, what))
    }

    fn place(&self, what: &'static str, settings: String) -> StateKey {
        StateKey {
            flow: "".into(),
            step: format!("plan {} {what}", self.name).into(),
            kind: what,
            settings,
        }
    }
}

fn count_window(config: &WindowConfig, report: &mut Report) -> (WindowSettings, Span) {
    let WindowConfig { count, per, burst } = config;
    let number = COUNT.check_count("count", count, report).unwrap_or(1);
    let bounds = (1, number);
    let settings = WindowSettings {
        count: number,
        per: period(per, report),
        burst: count_or("burst", burst.as_ref(), bounds, number, report),
    };
    (exact(settings, count.span, report), count.span)
}

fn byte_window(config: &ByteWindowConfig, report: &mut Report) -> (WindowSettings, Span) {
    let ByteWindowConfig { count, per, burst } = config;
    let size = BYTES.check_size("count", count, report).unwrap_or(1);
    let bounds = Bounds {
        least: 1,
        greatest: size,
    };
    let burst = burst.as_ref();
    let settings = WindowSettings {
        count: size,
        per: period(per, report),
        burst: burst
            .and_then(|it| bounds.check_size("burst", it, report))
            .unwrap_or(size),
    };
    (exact(settings, count.span, report), count.span)
}

fn period(per: &Spanned<config::Duration>, report: &mut Report) -> Duration {
    let second = Duration::from_secs(1);
    PERIOD.check_time("per", per, report).unwrap_or(second)
}

/// Refuses a rate that cannot be counted to 1 %.
fn exact(settings: WindowSettings, span: Span, report: &mut Report) -> WindowSettings {
    if !settings.is_exact() {
        report
            .error(OUT_OF_RANGE, span, "more than a thousand million a second")
            .hint("give it a longer `per`, or leave the limit out");
    }
    settings
}

/// Whose limits are read, and with what.
pub(crate) struct GateReader<'a> {
    /// The flow's or topic's name.
    pub name: &'a str,
    /// What logs and metrics call the place, such as `limits`.
    pub place: &'a str,
    pub limits: &'a CallerLimits,
    pub evaluation: &'a Evaluation,
    pub surroundings: &'a Surroundings<'a>,
}

impl GateReader<'_> {
    /// Makes a gate of what stands under `limits`. Every problem goes into the report; `None` when
    /// there was one, or when there is no limit per caller.
    pub fn read(&self, node: &Node, config: &GateConfig, report: &mut Report) -> Option<Gate> {
        let before = report.errors();
        let scope = self.evaluation.scope();
        refuse_idle(node, config, report);
        let throttles = config.throttle.as_ref().map_or(&[][..], |it| &it.0);
        if throttles.len() > THROTTLES_MAX {
            let message = format!("there are at most {THROTTLES_MAX} throttles");
            report.error(BAD_LIMIT, node.span, message);
        }
        let items = node.get("throttle");
        let items = items.map_or(&[][..], |it| {
            it.as_sequence().unwrap_or(std::slice::from_ref(it))
        });
        let read = throttles.iter().zip(items).enumerate();
        let throttles: Vec<Throttled> = read
            .map(|(at, (config, item))| self.throttled((at, config, item), &scope, report))
            .collect();
        let plan = config.plan.as_ref();
        let plan = plan.and_then(|plan| self.plan(plan, node, &scope, report));
        let is_idle = throttles.is_empty() && plan.is_none();
        (report.errors() == before && !is_idle).then(|| Gate {
            context: self.evaluation.context(self.name, &scope),
            kept: KeptLimits::of(self.surroundings.states),
            throttles,
            plan,
            headers: config.headers,
        })
    }

    fn throttled(
        &self,
        (at, config, item): (usize, &CallerThrottleConfig, &Node),
        scope: &Scope,
        report: &mut Report,
    ) -> Throttled {
        let requests = &config.requests;
        let count = count_or("requests", Some(requests), (1, 10_000_000), 1, report);
        let second = Duration::from_secs(1);
        let per = config
            .per
            .as_ref()
            .map_or(second, |per| period(per, report));
        let window = WindowSettings {
            count,
            per,
            burst: count_or("burst", config.burst.as_ref(), (1, count), count, report),
        };
        let queue = config.queue.as_ref();
        let queue = queue.map(|it| count_or("queue", Some(it), (0, 1_000_000), 0, report) as u32);
        let wait = match queue {
            Some(0) | None => Duration::ZERO,
            Some(_) => Duration::from_secs(5),
        };
        let settings = LimiterSettings {
            windows: vec![exact(window, requests.span, report)],
            patience: Patience {
                wait: time_or("wait", config.wait.as_ref(), wait, report),
                queue,
            },
            callers_max: self.limits.callers_max,
        };
        let by = match item.get("by") {
            None => Who::Everybody,
            Some(by) => self.who("by", by, scope, report),
        };
        let number = |first: &str| match at {
            0 => first.to_owned(),
            at => format!("{first}-{}", at + 1),
        };
        let place = StateKey {
            flow: self.name.into(),
            step: number(self.place).into(),
            kind: "throttle",
            settings: format!("{settings:?} {:?}", item.get("by").map(|it| &it.value)),
        };
        Throttled {
            name: number("throttle").into(),
            by,
            limiter: KeptLimits::limiter(self.surroundings.states, place, &settings),
        }
    }

    fn plan(
        &self,
        plan: &Spanned<String>,
        node: &Node,
        scope: &Scope,
        report: &mut Report,
    ) -> Option<PlanChoice> {
        let plans = &self.limits.plans;
        if plans.is_empty() {
            report
                .error(UNKNOWN_PLAN, plan.span, "there are no plans")
                .hint("declare them in the `engine:` document, under `plans`");
            return None;
        }
        let template = self.template("plan", (&plan.value, plan.span), scope, report)?;
        let which = match template.literal() {
            None => Which::Named(Who::of_template(template)),
            Some(name) => match plans.named(name) {
                Some(plan) => Which::Fixed(Arc::clone(plan)),
                None => {
                    let message = format!("there is no plan `{}`", name.escape_debug());
                    let hint = did_you_mean(name, plans.all().map(|it| &*it.name));
                    let hint = hint.unwrap_or_else(|| "declare it in `engine.plans`".to_owned());
                    report.error(UNKNOWN_PLAN, plan.span, message).hint(hint);
                    return None;
                }
            },
        };
        let by = node.get("by");
        Some(PlanChoice {
            which,
            by: by.map_or(Who::Caller, |by| self.who("by", by, scope, report)),
            plans: Arc::clone(plans),
        })
    }

    fn who(&self, name: &str, node: &Node, scope: &Scope, report: &mut Report) -> Who {
        let text = match &node.value {
            Value::Null => return Who::Address,
            Value::String(text) => text,
            _ => {
                let message = format!(
                    "`{name}` is an expression or null, not {}",
                    node.type_name()
                );
                report
                    .error(BAD_LIMIT, node.span, message)
                    .hint("write `by: \"${ $auth.id }\"`, or `by: null` for the address");
                return Who::Address;
            }
        };
        let Some(template) = self.template(name, (text, node.span), scope, report) else {
            return Who::Address;
        };
        if template.literal().is_some() {
            let message = format!("`{name}` is the same for all callers");
            report
                .error(BAD_LIMIT, node.span, message)
                .hint("write an expression, `${ ... }`; leave `by` out to count all together");
        }
        Who::of_template(template)
    }

    /// Compiles what is evaluated before the body is read.
    fn template(
        &self,
        name: &str,
        (text, span): (&str, Span),
        scope: &Scope,
        report: &mut Report,
    ) -> Option<expr::template::Template> {
        let template = compile_text(text, span, scope, report)?;
        let absent = [(scope::IN, "$in"), (scope::REPLY, "$reply")];
        let variables = template.variables();
        let found = absent.iter().find(|(slot, _)| variables.contains(slot));
        let body = template.uses_input().then_some(".");
        if let Some(what) = found.map(|it| it.1).or(body) {
            let message =
                format!("`{name}` cannot use `{what}`: it is asked before the body is read");
            report
                .error(BAD_LIMIT, span, message)
                .hint("there are `$headers`, `$path`, `$query`, `$method`, `$env` and `$secret`");
            return None;
        }
        Some(template)
    }
}

/// Refuses keys that nothing is made of.
fn refuse_idle(node: &Node, config: &GateConfig, report: &mut Report) {
    let mut refuse = |key: &str, why: &str| {
        if let Some(entry) = node.entry(key) {
            let message = format!("`{key}` has no effect: {why}");
            report
                .error(NO_EFFECT, entry.key_span, message)
                .hint("leave it out");
        }
    };
    if config.plan.is_none() {
        refuse("by", "there is no `plan`; a throttle has a `by` of its own");
    }
    if config.plan.is_none() && config.throttle.is_none() {
        refuse("headers", "there is neither a `throttle` nor a `plan`");
    }
}
