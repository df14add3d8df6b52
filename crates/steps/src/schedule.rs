//! `schedule`: starts a flow again and again, after equal times or by the clock.

mod run;
mod state;
mod timing;

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use component::resilience::{RetryConfig, RetryDefaults, RetryPolicy};
use component::source::{Source, SourceContext, SourceDefinition};
use component::state::StateKey;
use config::{Node, Report, Span, Spanned, Value};
use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Year};
use jiff::tz::TimeZone;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::codes::{
    BAD_DELIVERY, BAD_SCHEDULE, SOURCE_NO_EFFECT, SOURCE_OUT_OF_RANGE, UNKNOWN_ZONE,
};
use crate::schedule::run::Schedule;
use crate::schedule::state::ScheduleState;
use crate::schedule::timing::Timing;

/// The definition of the source.
pub const DEFINITION: SourceDefinition = SourceDefinition {
    name: "schedule",
    summary: "Starts a flow at intervals or at times of a cron expression.",
    documentation: include_str!("schedule.md"),
    example: include_str!("schedule.yaml"),
    schema: config::schema_for::<Forms>,
    build,
};

const EVERY: (Duration, Duration) = (
    Duration::from_millis(100),
    Duration::from_secs(366 * 24 * 3600),
);
const JITTER_MAX: Duration = Duration::from_secs(3600);

const CRON_HINT: &str = "write minute, hour, day, month and weekday, such as `*/5 * * * *` or \
                         `0 2 * * MON-FRI`; with six fields the first is the second";

/// The mapping form of `schedule`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ScheduleConfig {
    /// The time from one run to the next, from 100ms to 366d, counted from the start of the engine.
    /// Either this or `cron`.
    every: Option<Spanned<config::Duration>>,
    /// A cron expression: minute, hour, day, month and weekday, or six fields with seconds first;
    /// or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`. Either this or `every`.
    cron: Option<Spanned<String>>,
    /// The time zone of `cron`, by its name in the tz database, such as `Europe/Stockholm`.
    #[schemars(extend("default" = "UTC"))]
    zone: Option<Spanned<String>>,
    /// What happens to a run that is due while the previous one is in progress.
    #[serde(default)]
    overlap: Overlap,
    /// What happens if runs are more than a minute late, because the machine or the engine was
    /// suspended or the clock was set forward.
    #[serde(default)]
    missed: Missed,
    /// Whether there is a run when the engine starts, and when a reload has changed the schedule.
    #[serde(default)]
    at_start: bool,
    /// Each run is delayed by a random time up to this, from 0s to 1h, but not more than `every`.
    #[schemars(extend("default" = "0s"))]
    jitter: Option<Spanned<config::Duration>>,
    /// How failed runs are retried. A run that waits for a retry is in progress. Without `retry`
    /// none is retried.
    #[serde(default)]
    retry: RetryConfig<OfSchedule>,
}

/// `retry:` of a schedule.
#[derive(Debug)]
struct OfSchedule;

impl RetryDefaults for OfSchedule {
    const SUMMARY: &'static str =
        "How failed runs are retried. A run that waits for a retry is in progress.";
    const ON: Option<(&'static [&'static str], &'static str)> = Some((
        &["any"],
        "The failures to retry: kinds, `4xx`, `5xx`, statuses, `any` (the default).",
    ));
    const TIMES: (RangeInclusive<u32>, u32, &'static str) = (
        0..=1_000_000,
        3,
        "The number of retries of a run after its first attempt.",
    );
}

/// What happens to a run that is due while the previous one is in progress.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Overlap {
    /// It is left out.
    #[default]
    Skip,
    /// It is made as soon as the last one has ended; further ones are left out.
    Queue,
    /// It is made beside the last one, at most 100 at a time.
    Allow,
}

/// What happens to runs that are too late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
enum Missed {
    /// They are left out.
    #[default]
    Skip,
    /// One run is made for all of them.
    Once,
}

/// The short form or the mapping, for the schema alone.
struct Forms;

impl JsonSchema for Forms {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Schedule".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mapping = generator.subschema_for::<ScheduleConfig>();
        json_schema!({ "anyOf": [{ "type": "string" }, mapping] })
    }
}

/// What is decided when the file is read.
#[derive(Clone, Debug)]
struct Settings {
    timing: Timing,
    overlap: Overlap,
    missed: Missed,
    at_start: bool,
    jitter: Duration,
    retry: RetryPolicy,
}

/// Without `retry` in the file the next run is the retry.
fn no_retries(report: &mut Report) -> RetryPolicy {
    RetryPolicy {
        times: 0,
        ..RetryConfig::<OfSchedule>::default().policy(BAD_DELIVERY, report)
    }
}

fn build(node: &Node, context: &mut SourceContext<'_>) -> Option<Arc<dyn Source>> {
    let report = &mut *context.report;
    let settings = match &node.value {
        Value::String(text) => Settings {
            timing: read_text(text, node.span, report)?,
            overlap: Overlap::default(),
            missed: Missed::default(),
            at_start: false,
            jitter: Duration::ZERO,
            retry: no_retries(report),
        },
        Value::Mapping(_) => read_mapping(node, report)?,
        _ => {
            config::check(node, &(DEFINITION.schema)(), report);
            return None;
        }
    };
    let key = StateKey {
        flow: Arc::clone(context.flow),
        step: "schedule".into(),
        kind: "schedule",
        settings: settings.timing.to_string(),
    };
    let states = context.surroundings.states;
    let state = states.get(key, ScheduleState::default);
    Some(Arc::new(Schedule { settings, state }))
}

/// The short form: a duration or a cron expression.
fn read_text(text: &str, span: Span, report: &mut Report) -> Option<Timing> {
    if text.contains(char::is_whitespace) || text.starts_with('@') {
        let value = text.to_owned();
        return read_cron(&Spanned { value, span }, None, report);
    }
    let Ok(value) = text.parse::<config::Duration>() else {
        let message = format!("`{}` is not a schedule", text.escape_debug());
        report
            .error(BAD_SCHEDULE, span, message)
            .hint("write a duration such as `5m`, or a cron expression such as `*/5 * * * *`");
        return None;
    };
    read_every(&Spanned { value, span }, report)
}

fn read_mapping(node: &Node, report: &mut Report) -> Option<Settings> {
    let config: ScheduleConfig = config::decode(node, report)?;
    let timing = match (&config.every, &config.cron) {
        (Some(every), None) => {
            if let Some(zone) = &config.zone {
                report
                    .error(
                        SOURCE_NO_EFFECT,
                        zone.span,
                        "`zone` has no effect on `every`",
                    )
                    .hint("leave it out, or write `cron`");
            }
            read_every(every, report)
        }
        (None, Some(cron)) => read_cron(cron, config.zone.as_ref(), report),
        (Some(_), Some(cron)) => {
            report
                .error(
                    BAD_SCHEDULE,
                    cron.span,
                    "a schedule has `every` or `cron`, not both",
                )
                .hint("leave one of them out");
            None
        }
        (None, None) => {
            report
                .error(BAD_SCHEDULE, node.span, "the schedule says no time")
                .hint("add `every: 5m` or `cron: \"0 2 * * *\"`");
            None
        }
    };
    let jitter = match &config.jitter {
        Some(jitter) => read_jitter(jitter, timing.as_ref(), report),
        None => Some(Duration::ZERO),
    };
    let before = report.errors();
    let retry = match node.get("retry") {
        Some(_) => config.retry.policy(BAD_DELIVERY, report),
        None => no_retries(report),
    };
    let has_zone = timing.is_some() && config.zone.is_some() && config.every.is_some();
    if has_zone || report.errors() > before {
        return None;
    }
    Some(Settings {
        timing: timing?,
        overlap: config.overlap,
        missed: config.missed,
        at_start: config.at_start,
        jitter: jitter?,
        retry,
    })
}

fn read_every(every: &Spanned<config::Duration>, report: &mut Report) -> Option<Timing> {
    let (least, greatest) = EVERY;
    if every.value.0 < least || every.value.0 > greatest {
        refuse_range("every", every, (least, greatest), report);
        return None;
    }
    Some(Timing::Every(every.value.0))
}

fn read_jitter(
    jitter: &Spanned<config::Duration>,
    timing: Option<&Timing>,
    report: &mut Report,
) -> Option<Duration> {
    let greatest = match timing {
        Some(Timing::Every(every)) => JITTER_MAX.min(*every),
        _ => JITTER_MAX,
    };
    if jitter.value.0 > greatest {
        refuse_range("jitter", jitter, (Duration::ZERO, greatest), report);
        return None;
    }
    Some(jitter.value.0)
}

fn refuse_range(
    name: &str,
    value: &Spanned<impl Display>,
    (least, greatest): (Duration, Duration),
    report: &mut Report,
) {
    let (least, greatest) = (config::Duration(least), config::Duration(greatest));
    let message = format!("`{name}` is {}, out of its range", value.value);
    report
        .error(SOURCE_OUT_OF_RANGE, value.span, message)
        .hint(format!("from {least} to {greatest}"));
}

fn read_cron(
    text: &Spanned<String>,
    zone: Option<&Spanned<String>>,
    report: &mut Report,
) -> Option<Timing> {
    let cron = match parse_cron(&text.value) {
        Ok(cron) => Some(cron),
        Err(why) => {
            let shown = text.value.escape_debug();
            let message = format!("`{shown}` is not a cron expression: {why}");
            report
                .error(BAD_SCHEDULE, text.span, message)
                .hint(CRON_HINT);
            None
        }
    };
    let zone = match zone {
        Some(zone) => read_zone(zone, report),
        None => Some(TimeZone::UTC),
    };
    let timing = Timing::Cron(Box::new(cron?), zone?);
    if !timing.ever_comes() {
        let message = format!("`{}` never comes", text.value.escape_debug());
        report
            .error(BAD_SCHEDULE, text.span, message)
            .hint("no month that it names has such a day");
        return None;
    }
    Some(timing)
}

/// Reads a cron expression, or says why it is none.
fn parse_cron(text: &str) -> Result<Cron, String> {
    let fields = text.split_whitespace().count();
    let is_nickname = text.starts_with('@') && fields == 1;
    if !is_nickname && !(5..=6).contains(&fields) {
        return Err(match fields {
            1 => "it has one field".to_owned(),
            count => format!("it has {count} fields"),
        });
    }
    let parser = CronParser::builder().year(Year::Disallowed).build();
    parser.parse(text).map_err(|error| match error {
        _ if is_nickname => "there is no such name".to_owned(),
        CronError::InvalidPattern(why)
        | CronError::IllegalCharacters(why)
        | CronError::ComponentError(why) => why.trim_end_matches('.').to_owned(),
        other => other.to_string(),
    })
}

fn read_zone(zone: &Spanned<String>, report: &mut Report) -> Option<TimeZone> {
    if let Ok(found) = TimeZone::get(&zone.value) {
        return Some(found);
    }
    let message = format!("there is no time zone `{}`", zone.value.escape_debug());
    let names: Vec<String> = jiff::tz::db()
        .available()
        .map(|it| it.to_string())
        .collect();
    let hint = match config::suggest(&zone.value, names.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "write a name of the tz database, such as `Europe/Stockholm` or `UTC`".to_owned(),
    };
    report.error(UNKNOWN_ZONE, zone.span, message).hint(hint);
    None
}

#[cfg(test)]
mod tests;
