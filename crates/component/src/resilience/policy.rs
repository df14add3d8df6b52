//! When something is tried again, and `retry:` wherever a file has it: beside a step, in a source,
//! at a webhook.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::RangeInclusive;
use std::time::Duration;

use config::{Code, Percentage, Report, Spanned};
use message::Fault;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::failure::{FailureName, Matcher};

/// Delays that grow from one try to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The delay before the first retry.
    pub delay: Duration,
    /// The factor by which it grows with each retry.
    pub factor: f64,
    /// The longest delay.
    pub delay_max: Duration,
    /// The random part of each delay, from 0 to 1, so that those who failed together do not come
    /// back together.
    pub jitter: f64,
}

impl Backoff {
    /// Delays that double, without a random part.
    pub const fn doubling(delay: Duration, delay_max: Duration) -> Self {
        Self {
            delay,
            factor: 2.0,
            delay_max,
            jitter: 0.0,
        }
    }

    /// The delay after so many failures, 1 or more. `random` is from 0 to 1.
    pub fn delay_after(&self, failed: u32, random: f64) -> Duration {
        let growth = self.factor.powi(failed.saturating_sub(1).min(64) as i32);
        let longest = self.delay_max.as_secs_f64();
        let full = (self.delay.as_secs_f64() * growth).min(longest);
        Duration::from_secs_f64((full * (1.0 - self.jitter * random)).max(0.0))
    }
}

/// The longest delay that a failure may ask for (`Retry-After`), unless `delay_max` is longer.
const ASKED_MAX: Duration = Duration::from_secs(3600);

/// Which failures are tried again, how often and when.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// After which failures.
    pub on: Vec<Matcher>,
    /// How often, beside the first try.
    pub times: u32,
    /// The delays.
    pub backoff: Backoff,
}

impl RetryPolicy {
    /// Whether there is a retry after this failure, if so many are not too many.
    pub fn fits(&self, fault: &Fault) -> bool {
        self.on.iter().any(|matcher| matcher.fits(fault))
    }

    /// The delay before the next try after so many failures, 1 or more; `None` when there is none.
    /// The other side may ask for a longer one (`Retry-After`), of up to an hour or `delay_max`:
    /// one reply must not hold up a source for days.
    pub fn delay_after(&self, failed: u32, fault: &Fault, random: f64) -> Option<Duration> {
        if failed > self.times || !self.fits(fault) {
            return None;
        }
        let delay = self.backoff.delay_after(failed, random);
        let asked = fault.retry_after.unwrap_or_default();
        Some(delay.max(asked.min(self.backoff.delay_max.max(ASKED_MAX))))
    }
}

/// What `retry:` means in one place of the files: its defaults, and the words of its reference.
pub trait RetryDefaults {
    /// What has it, in a sentence.
    const SUMMARY: &'static str;
    /// The failures that are retried unless `on` names others, and what is said of `on`. Without
    /// them there is no `on`.
    const ON: Option<(&'static [&'static str], &'static str)>;
    /// The range of `times`, its default, and what is said of it.
    const TIMES: (RangeInclusive<u32>, u32, &'static str);
    /// The delay before the first retry.
    const DELAY: Duration = Duration::from_secs(1);
    /// The factor by which it grows.
    const FACTOR: f64 = 2.0;
    /// The longest delay.
    const DELAY_MAX: Duration = Duration::from_secs(300);
    /// What is said of the longest delay.
    const DELAY_MAX_MEANING: &'static str =
        "The longest delay. A `Retry-After` may ask for more, up to 1h.";
    /// How long something is tried at all, however often, and what is said of it: `time`, where
    /// there is one.
    const TIME: Option<(Duration, &'static str)> = None;
}

/// The random part of a delay where a file says nothing.
const JITTER: f64 = 0.2;
/// The range of `delay` and `delay_max`, and that of `time`.
const DELAYS: (&str, &str) = ("1ms", "1d");
const TIMES: (&str, &str) = ("1s", "366d");

/// `retry:` of a file, in the place that `D` stands for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, bound = "")]
pub struct RetryConfig<D> {
    on: Option<Spanned<Vec<FailureName>>>,
    times: Option<u32>,
    delay: Option<Spanned<config::Duration>>,
    backoff: Option<f64>,
    delay_max: Option<Spanned<config::Duration>>,
    jitter: Option<Percentage>,
    time: Option<Spanned<config::Duration>>,
    #[serde(skip)]
    place: PhantomData<D>,
}

impl<D> Default for RetryConfig<D> {
    fn default() -> Self {
        Self {
            on: None,
            times: None,
            delay: None,
            backoff: None,
            delay_max: None,
            jitter: None,
            time: None,
            place: PhantomData,
        }
    }
}

impl<D: RetryDefaults> RetryConfig<D> {
    /// The failures that are named, if any are.
    pub fn failures(&self) -> Option<&Spanned<Vec<FailureName>>> {
        self.on.as_ref()
    }

    /// What it says. Every problem is reported under `code`.
    pub fn policy(&self, code: Code, report: &mut Report) -> RetryPolicy {
        let on = match (&self.on, D::ON) {
            (Some(names), _) => Matcher::read_list(names, code, report),
            (None, Some((names, _))) => names
                .iter()
                .filter_map(|name| Matcher::of_name(name))
                .collect(),
            (None, None) => Vec::new(),
        };
        RetryPolicy {
            on,
            times: self.times.unwrap_or(D::TIMES.1),
            backoff: self.backoff(code, report),
        }
    }

    /// How long something is tried at all.
    pub fn time(&self) -> Option<Duration> {
        let default = D::TIME.map(|(default, _)| default);
        self.time.map(|time| time.value.0).or(default)
    }

    fn backoff(&self, code: Code, report: &mut Report) -> Backoff {
        let delay = self.delay.map_or(D::DELAY, |delay| delay.value.0);
        let delay_max = self
            .delay_max
            .map_or(D::DELAY_MAX, |longest| longest.value.0);
        if let (Some(_), Some(longest)) = (self.delay, self.delay_max)
            && delay_max < delay
        {
            report.error(code, longest.span, "`delay_max` is less than `delay`");
        }
        Backoff {
            delay,
            factor: self.backoff.unwrap_or(D::FACTOR),
            delay_max: delay_max.max(delay),
            jitter: self.jitter.map_or(JITTER, |jitter| jitter.0),
        }
    }
}

impl<D: RetryDefaults> JsonSchema for RetryConfig<D> {
    fn schema_name() -> Cow<'static, str> {
        "Retry".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (range, times, meaning) = D::TIMES;
        let mut keys = serde_json::Map::new();
        if let Some((_, meaning)) = D::ON {
            let names = generator.subschema_for::<FailureName>();
            let list = json!({ "type": "array", "items": names, "description": meaning });
            keys.insert("on".to_owned(), list);
        }
        let others: [(&str, Value); 5] = [
            (
                "times",
                json!({
                    "type": "integer",
                    "minimum": range.start(),
                    "maximum": range.end(),
                    "default": times,
                    "description": meaning,
                }),
            ),
            (
                "delay",
                duration_schema(D::DELAY, DELAYS, "The delay before the first retry."),
            ),
            (
                "backoff",
                json!({
                    "type": "number",
                    "minimum": 1,
                    "maximum": 10,
                    "default": if D::FACTOR.fract() == 0.0 {
                        json!(D::FACTOR as u64)
                    } else {
                        json!(D::FACTOR)
                    },
                    "description": "The factor by which the delay grows with each retry.",
                }),
            ),
            (
                "delay_max",
                duration_schema(D::DELAY_MAX, DELAYS, D::DELAY_MAX_MEANING),
            ),
            (
                "jitter",
                json!({
                    "type": "string",
                    "format": "percentage",
                    "pattern": Percentage::PATTERN,
                    "default": Percentage(JITTER).to_string(),
                    "description": "The random part of each delay.",
                }),
            ),
        ];
        if let Some((default, meaning)) = D::TIME {
            keys.insert("time".to_owned(), duration_schema(default, TIMES, meaning));
        }
        keys.extend(others.map(|(name, schema)| (name.to_owned(), schema)));
        json_schema!({
            "type": "object",
            "description": D::SUMMARY,
            "properties": keys,
            "additionalProperties": false,
            "x-renamed": { "max": "delay_max" },
        })
    }
}

fn duration_schema(default: Duration, (least, most): (&str, &str), meaning: &str) -> Value {
    json!({
        "type": "string",
        "format": "duration",
        "pattern": config::Duration::PATTERN,
        "x-minimum": least,
        "x-maximum": most,
        "default": config::Duration(default).to_string(),
        "description": meaning,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    #[test]
    fn delays_grow_to_the_longest_and_jitter_shortens_them() {
        let backoff = Backoff {
            delay: 100 * MILLISECOND,
            factor: 3.0,
            delay_max: 1000 * MILLISECOND,
            jitter: 0.5,
        };
        let delays = [1, 2, 3, 4, 400].map(|failed| backoff.delay_after(failed, 0.0).as_millis());
        assert_eq!(delays, [100, 300, 900, 1000, 1000]);
        assert_eq!(backoff.delay_after(2, 1.0), 150 * MILLISECOND);
        let doubling = Backoff::doubling(MILLISECOND, 10 * MILLISECOND);
        let delays = [1, 2, 3, 4, 5].map(|failed| doubling.delay_after(failed, 0.9).as_millis());
        assert_eq!(delays, [1, 2, 4, 8, 10]);
    }

    #[test]
    fn the_other_side_may_ask_for_a_longer_delay() {
        let policy = RetryPolicy {
            on: vec![Matcher::Class(5)],
            times: 2,
            backoff: Backoff::doubling(100 * MILLISECOND, 1000 * MILLISECOND),
        };
        let asked = |time: u32| Fault::of_status(503).with_retry_after(time * MILLISECOND);
        let delay = |failed, fault: &Fault| policy.delay_after(failed, fault, 0.0);
        assert_eq!(delay(1, &asked(5000)), Some(5000 * MILLISECOND));
        assert_eq!(delay(2, &asked(50)), Some(200 * MILLISECOND));
        assert_eq!(delay(3, &asked(50)), None);
        let hours = Fault::of_status(503).with_retry_after(Duration::from_secs(u32::MAX.into()));
        assert_eq!(delay(1, &hours), Some(ASKED_MAX));
        assert_eq!(delay(1, &Fault::of_status(404)), None);
    }
}
