//! What may stand beside a step's verb: `as`, `if`, `timeout`, `retry`, `breaker`, `bulkhead`,
//! `throttle`, `fallback`, `name`, `on_error`.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use component::block::Fallback;
use component::definition::BuildContext;
use component::failure::{FailureName, Handlers, Matcher};
use component::resilience::{
    Breaker, BreakerSettings, Bulkhead, BulkheadSettings, Guard, Retry, RetryConfig, RetryCounts,
    RetryDefaults, Throttle, ThrottleSettings,
};
use config::{Node, Percentage, Report, Span, Spanned, Value};
use expr::jq::Expression;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use crate::bounds::{Bounds, WAIT};
use crate::codes::{BAD_MODIFIER, NO_EFFECT};

/// The keys that may stand beside a verb.
pub(crate) const MODIFIERS: [&str; 10] = [
    "name", "if", "as", "timeout", "retry", "breaker", "bulkhead", "throttle", "fallback",
    "on_error",
];

/// The keys that only mean something for a step that waits for something.
const FOR_WAITING: [&str; 5] = ["timeout", "retry", "breaker", "bulkhead", "throttle"];

/// `retry:` beside a step.
#[derive(Debug)]
pub(crate) struct OfStep;

impl RetryDefaults for OfStep {
    const SUMMARY: &'static str = "Tries a step again when it fails.";
    const ON: Option<(&'static [&'static str], &'static str)> = Some((
        &[
            "connection",
            "timeout",
            "unavailable",
            "429",
            "5xx",
            "deadlock",
            "serialization-failure",
            "rolled-back",
        ],
        "The failures to retry: kinds, `4xx`, `5xx`, statuses, types. Failures that are named here \
         are retried whatever effect the attempt may have had. Without this key, `connection`, \
         `timeout`, `unavailable`, `429`, `5xx`, `deadlock`, `serialization-failure` and \
         `rolled-back` are retried, and only if nothing can happen twice: the attempt certainly \
         had no effect, or the step is idempotent (`GET`, `PUT`, `DELETE` and the like, plain \
         queries, Redis reads).",
    ));
    const TIMES: (RangeInclusive<u32>, u32, &'static str) =
        (1..=100, 2, "The number of retries after the first attempt.");
    const DELAY: Duration = Duration::from_millis(100);
    const FACTOR: f64 = 2.0;
    const DELAY_MAX: Duration = Duration::from_secs(30);
    const DELAY_MAX_MEANING: &'static str =
        "The longest delay. A `Retry-After` that asks for more ends the retries.";
}

/// Stops trying a step for a while after many failures. A try that is given up does not count: the
/// client has left, another branch was faster, or the time of the flow or of a step around it is
/// over.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BreakerConfig {
    /// The failures that count. The default is `connection`, `timeout` and `5xx`.
    on: Option<Spanned<Vec<FailureName>>>,
    /// The share of failed attempts that opens the breaker.
    #[schemars(extend("default" = "50%", "x-minimum" = "1%", "x-maximum" = "100%"))]
    failures: Option<Percentage>,
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
        ("retry", config::schema_for::<RetryConfig<OfStep>>()),
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

fn read_retry(node: &Node, context: &mut BuildContext<'_>) -> Option<Retry> {
    let report = &mut *context.report;
    let config: RetryConfig<OfStep> = config::decode(node, report)?;
    let policy = config.policy(BAD_MODIFIER, report);
    let only_safe = config.failures().is_none();
    let counts = context.state("retry", (&policy, only_safe), RetryCounts::default);
    Some(Retry {
        policy,
        only_safe,
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
        ratio: config.failures.map_or(0.5, |failures| failures.0),
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
    names: Option<&Spanned<Vec<FailureName>>>,
    defaults: &[&str],
    report: &mut Report,
) -> Vec<Matcher> {
    let default = |name: &&str| Matcher::of_name(name);
    match names {
        Some(names) => Matcher::read_list(names, BAD_MODIFIER, report),
        None => defaults.iter().filter_map(default).collect(),
    }
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
        Matcher::read(&text, item.span, BAD_MODIFIER, report)
    });
    let names: Vec<_> = names.collect();
    names
        .into_iter()
        .collect::<Option<Vec<_>>>()
        .filter(|names| !names.is_empty())
}
