//! What may stand beside a step's verb: `as`, `if`, `timeout`, `retry`, `breaker`, `bulkhead`,
//! `throttle`, `fallback`, `name`, `on_error`.

use std::sync::Arc;
use std::time::Duration;

use component::block::Fallback;
use component::definition::BuildContext;
use component::failure::{Handlers, Matcher};
use component::resilience::{
    Breaker, BreakerSettings, Bulkhead, BulkheadSettings, Guard, Retry, RetryCounts, Throttle,
    ThrottleSettings,
};
use config::{Node, Report, Span, Spanned, Value};
use expr::jq::Expression;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::bounds::{Bounds, WAIT};
use crate::codes::{BAD_MODIFIER, NO_EFFECT};
use crate::suggest::did_you_mean;

/// The keys that may stand beside a verb.
pub(crate) const MODIFIERS: [&str; 10] = [
    "name", "if", "as", "timeout", "retry", "breaker", "bulkhead", "throttle", "fallback",
    "on_error",
];

/// The keys that only mean something for a step that waits for something.
const FOR_WAITING: [&str; 5] = ["timeout", "retry", "breaker", "bulkhead", "throttle"];

/// Tries a step again when it fails.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryConfig {
    /// The failures to retry: kinds, `4xx`, `5xx`, statuses, types. Failures that are named here
    /// are retried whatever effect the attempt may have had. Without this key, `connection`,
    /// `timeout`, `unavailable`, `429`, `5xx`, `deadlock`, `serialization-failure` and
    /// `rolled-back` are retried, and only if nothing can happen twice: the attempt certainly had
    /// no effect, or the step is idempotent (`GET`, `PUT`, `DELETE` and the like, plain queries,
    /// Redis reads).
    on: Option<Spanned<Vec<OneName>>>,
    /// The number of retries after the first attempt, from 1 to 100.
    #[schemars(extend("default" = 2))]
    times: Option<Spanned<u64>>,
    /// The delay before the first retry.
    #[schemars(extend("default" = "100ms"))]
    delay: Option<Spanned<config::Duration>>,
    /// The factor by which the delay grows with each retry, from 1 to 10.
    #[schemars(extend("default" = 2))]
    backoff: Option<Spanned<f64>>,
    /// The longest delay. A `Retry-After` that asks for more ends the retries.
    #[schemars(extend("default" = "30s"))]
    delay_max: Option<Spanned<config::Duration>>,
    /// The random part of each delay, from `0%` to `100%`.
    #[schemars(extend("default" = "20%"))]
    jitter: Option<Spanned<String>>,
}

/// Stops trying a step for a while after many failures. A try that is given up does not count: the
/// client has left, another branch was faster, or the time of the flow or of a step around it is
/// over.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BreakerConfig {
    /// The failures that count. The default is `connection`, `timeout` and `5xx`.
    on: Option<Spanned<Vec<OneName>>>,
    /// The share of failed attempts that opens the breaker, from `1%` to `100%`.
    #[schemars(extend("default" = "50%"))]
    failures: Option<Spanned<String>>,
    /// The time window in which attempts are counted.
    #[schemars(extend("default" = "10s"))]
    window: Option<Spanned<config::Duration>>,
    /// The minimum number of attempts in the window before the breaker can open, from 1 to 1000000.
    #[schemars(extend("default" = 10))]
    tries_min: Option<Spanned<u64>>,
    /// How long the breaker stays open before it lets trial attempts through (half-open).
    #[schemars(extend("default" = "5s"))]
    open: Option<Spanned<config::Duration>>,
    /// The number of trial attempts that must succeed to close it, from 1 to 1000.
    #[schemars(extend("default" = 1))]
    probes: Option<Spanned<u64>>,
}

/// Bounds how many tries there are at a time, of all workers together.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BulkheadConfig {
    /// The largest number of concurrent attempts, from 1 to 1000000.
    concurrent: Spanned<u64>,
    /// The number of attempts that may wait for a slot; others fail with `unavailable`.
    #[schemars(extend("default" = 0))]
    queue: Option<Spanned<u64>>,
    /// The longest wait.
    #[schemars(extend("default" = "5s"))]
    wait: Option<Spanned<config::Duration>>,
}

/// Bounds how often a step is tried, of all workers together.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ThrottleConfig {
    /// The number per period, from 1 to 10000000.
    requests: Spanned<u64>,
    /// The period.
    #[schemars(extend("default" = "1s"))]
    per: Option<Spanned<config::Duration>>,
    /// How many may be used at once; the rest is spread evenly over the period. The default is 1.
    burst: Option<Spanned<u64>>,
    /// The number of messages that may wait; others fail with `limited`.
    #[schemars(extend("default" = 0))]
    queue: Option<Spanned<u64>>,
    /// The longest wait.
    #[schemars(extend("default" = "5s"))]
    wait: Option<Spanned<config::Duration>>,
}

/// The name of a kind of failure, or a status.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(inline)]
pub(crate) enum OneName {
    /// A status.
    Status(u16),
    /// A name.
    Name(String),
}

/// What stands beside a verb, ready to be used.
#[derive(Default)]
pub(crate) struct Extras {
    pub keep_as: Option<usize>,
    pub guard: Option<Box<Guard>>,
    pub fallback: Option<Fallback>,
    pub on_error: Option<Handlers>,
}

/// The schemas of the modifiers, by key.
pub(crate) fn schemas() -> Vec<(&'static str, serde_json::Value)> {
    let expression = "Passes the step over unless this expression holds: it gives neither false \
                      nor null.";
    vec![
        (
            "if",
            json!({ "type": ["string", "boolean"], "description": expression }),
        ),
        (
            "as",
            json!({
                "type": "string",
                "pattern": VARIABLE_PATTERN,
                "description": "Keeps the result as `$NAME` and leaves the body as it was."
            }),
        ),
        (
            "timeout",
            json!({
                "type": "string",
                "format": "duration",
                "description": "The time limit of one attempt."
            }),
        ),
        ("retry", config::schema_for::<RetryConfig>()),
        ("breaker", config::schema_for::<BreakerConfig>()),
        ("bulkhead", config::schema_for::<BulkheadConfig>()),
        ("throttle", config::schema_for::<ThrottleConfig>()),
        (
            "fallback",
            json!({
                "description": "Replaces the result if the step fails: a list of steps, or \
                                `{ value: ... }` with `${ }` in its strings."
            }),
        ),
        (
            "on_error",
            json!({
                "type": "array",
                "items": { "type": "object" },
                "description": "Failure handlers of this step. If a clause ends without a reply, \
                                the flow continues behind the step."
            }),
        ),
    ]
}

/// Names of variables as a regular expression: those that jq has.
pub(crate) const VARIABLE_PATTERN: &str = "^[A-Za-z_][A-Za-z0-9_]{0,99}$";

/// Reads the `if` beside a verb.
pub(crate) fn read_condition(
    item: &Node,
    context: &mut BuildContext<'_>,
) -> Result<Option<Expression>, ()> {
    let Some(node) = item.get("if").filter(|node| node.as_mapping().is_none()) else {
        return Ok(None);
    };
    let value = match &node.value {
        Value::String(text) => text.clone(),
        Value::Bool(value) => value.to_string(),
        _ => {
            let message = format!("`if` is an expression, not {}", node.type_name());
            let diagnostic = context.report.error(BAD_MODIFIER, node.span, message);
            diagnostic.hint("write `if: .total > 100`");
            return Err(());
        }
    };
    let span = node.span;
    context
        .expression(&Spanned { value, span })
        .map(Some)
        .ok_or(())
}

/// Reads everything else that stands beside a verb. Every problem goes into the report; `None` when
/// there was one.
pub(crate) fn read(
    item: &Node,
    (verb, waits, ends): (&str, bool, bool),
    context: &mut BuildContext<'_>,
) -> Option<Extras> {
    let before = context.problems();
    for key in FOR_WAITING {
        if let Some(entry) = item.entry(key).filter(|_| !waits) {
            let message = format!("`{key}` has no effect on `{verb}`, which never waits");
            let diagnostic = context.report.error(NO_EFFECT, entry.key_span, message);
            diagnostic.hint("leave it out");
        }
    }
    if let Some(entry) = item.entry("as").filter(|_| ends) {
        let message = "`as` has no effect: the flow ends with this step";
        let diagnostic = context.report.error(NO_EFFECT, entry.key_span, message);
        diagnostic.hint("leave it out");
    }
    let guard = read_guard(item, context);
    let fallback = item
        .get("fallback")
        .map(|node| read_fallback(node, context));
    let on_error = item
        .get("on_error")
        .map(|node| context.handlers("on_error", node));
    // Behind everything else, so that the step itself cannot use it.
    let keep_as = item.get("as").map(|node| read_as(node, context));
    (context.problems() == before).then(|| Extras {
        keep_as: keep_as.flatten(),
        guard,
        fallback: fallback.flatten(),
        on_error: on_error.flatten(),
    })
}

fn read_as(node: &Node, context: &mut BuildContext<'_>) -> Option<usize> {
    let name = node.as_str().unwrap_or_default();
    context.declare(name, node.span, BAD_MODIFIER)
}

fn read_fallback(node: &Node, context: &mut BuildContext<'_>) -> Option<Fallback> {
    let outer = context.scope.handle_error(true);
    let fallback = match (&node.value, node.get("value")) {
        (Value::Sequence(_), _) => {
            let block = context.branch("fallback", node, false);
            block.map(Fallback::Steps)
        }
        (Value::Mapping(entries), Some(value)) if entries.len() == 1 => {
            context.value(value).map(Fallback::Value)
        }
        _ => {
            context
                .report
                .error(
                    BAD_MODIFIER,
                    node.span,
                    "a fallback is a list of steps or a value",
                )
                .hint("write `fallback: { value: [] }`, or below it, indented, steps");
            None
        }
    };
    context.scope.handle_error(outer);
    fallback
}

fn read_guard(item: &Node, context: &mut BuildContext<'_>) -> Option<Box<Guard>> {
    let mut guard = Guard::default();
    let mut is_there = false;
    if let Some(node) = item.get("timeout") {
        is_there = true;
        let time: Option<Spanned<config::Duration>> = config::decode(node, context.report);
        guard.timeout = time.and_then(|time| WAIT.check_time("timeout", &time, context.report));
    }
    if let Some(node) = item.get("retry") {
        is_there = true;
        guard.retry = read_retry(node, context);
    }
    if let Some(node) = item.get("breaker") {
        is_there = true;
        guard.breaker = read_breaker(node, context);
    }
    if let Some(node) = item.get("bulkhead") {
        is_there = true;
        guard.bulkhead = read_bulkhead(node, context);
    }
    if let Some(node) = item.get("throttle") {
        is_there = true;
        guard.throttle = read_throttle(node, context);
    }
    is_there.then(|| Box::new(guard))
}

pub(crate) fn time_or(
    name: &str,
    time: Option<&Spanned<config::Duration>>,
    default: Duration,
    report: &mut Report,
) -> Duration {
    let Some(time) = time else {
        return default;
    };
    WAIT.check_time(name, time, report).unwrap_or(default)
}

pub(crate) fn count_or(
    name: &str,
    count: Option<&Spanned<u64>>,
    (least, greatest): (u64, u64),
    default: u64,
    report: &mut Report,
) -> u64 {
    let Some(count) = count else {
        return default;
    };
    let bounds = Bounds { least, greatest };
    bounds.check_count(name, count, report).unwrap_or(default)
}

/// A part of a whole: `50%`.
fn part_or(
    name: &str,
    text: Option<&Spanned<String>>,
    least: f64,
    default: f64,
    report: &mut Report,
) -> f64 {
    let Some(text) = text else {
        return default;
    };
    let number = text
        .value
        .strip_suffix('%')
        .and_then(|it| it.trim().parse::<f64>().ok());
    match number.filter(|number| (least..=100.0).contains(number)) {
        Some(number) => number / 100.0,
        None => {
            let message = format!("`{name}` is a part of a hundred such as `50%`");
            report
                .error(BAD_MODIFIER, text.span, message)
                .hint(format!("from {least}% to 100%"));
            default
        }
    }
}

fn read_retry(node: &Node, context: &mut BuildContext<'_>) -> Option<Retry> {
    let report = &mut *context.report;
    let config: RetryConfig = config::decode(node, report)?;
    let defaults = [
        "connection",
        "timeout",
        "unavailable",
        "429",
        "5xx",
        "deadlock",
        "serialization-failure",
        "rolled-back",
    ];
    let on = matchers_or(config.on.as_ref(), &defaults, report);
    let backoff = config.backoff.as_ref().map_or(2.0, |backoff| {
        if !(1.0..=10.0).contains(&backoff.value) {
            let message = "`backoff` is outside its range";
            report
                .error(BAD_MODIFIER, backoff.span, message)
                .hint("from 1 to 10");
        }
        backoff.value
    });
    let times = count_or("times", config.times.as_ref(), (1, 100), 2, report) as u32;
    let delay = time_or(
        "delay",
        config.delay.as_ref(),
        Duration::from_millis(100),
        report,
    );
    let longest = Duration::from_secs(30);
    let delay_max = time_or("delay_max", config.delay_max.as_ref(), longest, report);
    let jitter = part_or("jitter", config.jitter.as_ref(), 0.0, 0.2, report);
    let only_safe = config.on.is_none();
    let settings = (&on, only_safe, times, delay, backoff.to_bits(), delay_max);
    let counts = context.state("retry", settings, RetryCounts::default);
    Some(Retry {
        on,
        only_safe,
        times,
        delay,
        backoff,
        delay_max: delay_max.max(delay),
        jitter,
        counts,
    })
}

fn read_breaker(node: &Node, context: &mut BuildContext<'_>) -> Option<Arc<Breaker>> {
    let report = &mut *context.report;
    let config: BreakerConfig = config::decode(node, report)?;
    let seconds = Duration::from_secs;
    let settings = BreakerSettings {
        on: matchers_or(
            config.on.as_ref(),
            &["connection", "timeout", "5xx"],
            report,
        ),
        ratio: part_or("failures", config.failures.as_ref(), 1.0, 0.5, report),
        window: time_or("window", config.window.as_ref(), seconds(10), report),
        tries_min: count_or(
            "tries_min",
            config.tries_min.as_ref(),
            (1, 1_000_000),
            10,
            report,
        ) as u32,
        open: time_or("open", config.open.as_ref(), seconds(5), report),
        probes: count_or("probes", config.probes.as_ref(), (1, 1000), 1, report) as u32,
    };
    Some(context.state("breaker", &settings, || Breaker::new(settings.clone())))
}

fn read_bulkhead(node: &Node, context: &mut BuildContext<'_>) -> Option<Arc<Bulkhead>> {
    let report = &mut *context.report;
    let config: BulkheadConfig = config::decode(node, report)?;
    let most = 1_000_000;
    let concurrent = count_or("concurrent", Some(&config.concurrent), (1, most), 1, report);
    let queue = count_or("queue", config.queue.as_ref(), (0, most), 0, report);
    let settings = BulkheadSettings {
        concurrent: concurrent as usize,
        queue: queue as usize,
        wait: time_or("wait", config.wait.as_ref(), Duration::from_secs(5), report),
    };
    Some(context.state("bulkhead", settings, || Bulkhead::new(settings)))
}

fn read_throttle(node: &Node, context: &mut BuildContext<'_>) -> Option<Arc<Throttle>> {
    let config: ThrottleConfig = config::decode(node, context.report)?;
    let settings = config.settings(context.report);
    Some(context.state("throttle", settings, || Throttle::new(settings)))
}

impl ThrottleConfig {
    /// What it says. Every problem goes into the report.
    pub fn settings(&self, report: &mut Report) -> ThrottleSettings {
        let requests = count_or("requests", Some(&self.requests), (1, 10_000_000), 1, report);
        let seconds = Duration::from_secs;
        ThrottleSettings {
            requests: requests as u32,
            per: time_or("per", self.per.as_ref(), seconds(1), report),
            burst: count_or("burst", self.burst.as_ref(), (1, requests), 1, report) as u32,
            queue: count_or("queue", self.queue.as_ref(), (0, 1_000_000), 0, report) as u32,
            wait: time_or("wait", self.wait.as_ref(), seconds(5), report),
        }
    }
}

fn matchers_or(
    names: Option<&Spanned<Vec<OneName>>>,
    defaults: &[&str],
    report: &mut Report,
) -> Vec<Matcher> {
    let Some(names) = names else {
        return defaults
            .iter()
            .filter_map(|name| Matcher::of_name(name))
            .collect();
    };
    let texts = names.value.iter().map(|name| match name {
        OneName::Status(status) => status.to_string(),
        OneName::Name(name) => name.clone(),
    });
    texts
        .filter_map(|text| read_matcher(&text, names.span, report))
        .collect()
}

/// Reads the `on` of a clause: one name or a list.
pub(crate) fn read_matchers(
    node: Option<&Node>,
    clause: Span,
    report: &mut Report,
) -> Option<Vec<Matcher>> {
    let Some(node) = node else {
        report
            .error(
                BAD_MODIFIER,
                clause,
                "a clause says `on` which failures it is run",
            )
            .hint("write `on: any`, `on: timeout` or `on: [4xx, over-limit]`");
        return None;
    };
    let items = node.as_sequence().unwrap_or(std::slice::from_ref(node));
    let names = items.iter().map(|item| {
        let text = match &item.value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.text().to_owned(),
            _ => String::new(),
        };
        read_matcher(&text, item.span, report)
    });
    let names: Vec<_> = names.collect();
    names
        .into_iter()
        .collect::<Option<Vec<_>>>()
        .filter(|names| !names.is_empty())
}

fn read_matcher(name: &str, span: Span, report: &mut Report) -> Option<Matcher> {
    let matcher = Matcher::of_name(name).filter(|_| !name.is_empty());
    match matcher {
        Some(Matcher::Type(name)) => {
            let known = message::Kind::NAMED.map(message::Kind::name);
            let known = known.into_iter().chain(["any", "4xx", "5xx"]);
            if let Some(hint) = did_you_mean(&name, known) {
                let message = format!("`{name}` looks like a misspelt kind of failure");
                report.warning(BAD_MODIFIER, span, message).hint(hint);
            }
            Some(Matcher::Type(name))
        }
        Some(matcher) => Some(matcher),
        None => {
            report
                .error(BAD_MODIFIER, span, "this is no kind of failure")
                .hint(
                    "a kind such as `timeout`, `4xx`, a status, a type that the flow raises, `any`",
                );
            None
        }
    }
}
