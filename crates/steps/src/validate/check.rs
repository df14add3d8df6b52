//! Checks a value against a schema within bounds: most are checked at once on the worker; what
//! takes longer moves to a thread beside the workers, and ends there when its caller has gone.

use std::fmt::{Display, Write as _};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use component::handler::Services;
use component::long_work::{AT_ONCE, beside, note_piece};
use jsonschema::{ValidationError, Validator};
use message::Fault;
use serde_json::Value;

use super::metered::{Budget, Metered, MeteredJson, is_certain};

/// How many characters of a value an error shows.
const SHOWN_MAX: usize = 60;
/// How many characters an error has.
const ERROR_MAX: usize = 300;
/// The most steps on the worker, a few milliseconds.
const WORKER_STEPS: u64 = 400_000;
/// The most steps beside the workers, about a second. Errors may take as many again.
const BESIDE_STEPS: u64 = 60_000_000;
/// The longest beside the workers.
const BESIDE_TIME: Duration = Duration::from_secs(3);
/// The steps that finding errors may take beyond twice those that found that there are some.
const ERROR_STEPS: u64 = 50_000;

/// A schema that is ready to check values.
pub(super) struct Schema {
    pub validator: Validator<MeteredJson>,
    /// Whether it has patterns that may take long for each text.
    pub has_slow_patterns: bool,
    /// How many errors are told.
    pub errors_max: usize,
}

/// How much of a worker a check may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    /// The most bytes that are copied.
    pub bytes: usize,
    /// The longest for the check.
    time: Duration,
    /// From when on that counts, where the copy counts too.
    began: Option<Instant>,
}

impl Slice {
    /// With its copy, which comes on top of it or is counted, it is not longer than what the queue
    /// of those that yield takes a turn for.
    pub const WHOLE: Self = Self {
        bytes: AT_ONCE,
        time: Duration::from_millis(3),
        began: None,
    };
    /// A fraction of that, which is enough for most, where others may wait for their turns.
    pub const SHORT: Self = Self {
        bytes: AT_ONCE / 8,
        time: Duration::from_micros(300),
        began: None,
    };

    /// The same slice, with its time counted from now on, the copy included.
    pub fn begun(self) -> Self {
        Self {
            began: Some(Instant::now()),
            ..self
        }
    }

    fn time_left(&self) -> Duration {
        let used = self.began.map_or(Duration::ZERO, |it| it.elapsed());
        self.time.saturating_sub(used)
    }
}

/// What a check has found.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Valid,
    /// What is wrong.
    Invalid(String),
    /// The budget was used up.
    Unknown,
}

impl Schema {
    /// Checks a value on the worker within a time slice. `None` when that takes too long.
    pub fn check(&self, value: &Value, slice: Slice) -> Option<Result<(), Fault>> {
        let budget = Budget::new(WORKER_STEPS, slice.time_left(), self.has_slow_patterns);
        let verdict = self.verdict(value, &budget);
        if let Some(began) = budget.began() {
            note_piece(began);
        }
        match verdict {
            Verdict::Valid => Some(Ok(())),
            Verdict::Invalid(detail) => Some(Err(Fault::invalid(detail))),
            Verdict::Unknown => None,
        }
    }

    /// Checks a value beside the workers. Ends soon after the future has been dropped.
    pub async fn check_beside(
        self: Arc<Self>,
        value: expr::Value,
        services: &dyn Services,
    ) -> Result<(), Fault> {
        let work = move |stop: &AtomicBool| {
            let value = super::json(&value)?;
            let budget = Budget::new(BESIDE_STEPS, BESIDE_TIME, self.has_slow_patterns);
            Ok(self.verdict(&value, &budget.unless(stop)))
        };
        match beside(services, work).await?? {
            Verdict::Valid => Ok(()),
            Verdict::Invalid(detail) => Err(Fault::invalid(detail)),
            Verdict::Unknown => {
                let detail = "the body takes too long to check against the schema";
                Err(Fault::invalid(detail).with_status(422))
            }
        }
    }

    fn verdict(&self, value: &Value, budget: &Budget<'_>) -> Verdict {
        let before = budget.steps_left();
        let is_valid = self.validator.is_valid(Metered::new(value, budget));
        if budget.is_exhausted() {
            return Verdict::Unknown;
        }
        if is_valid {
            return Verdict::Valid;
        }
        let used = before - budget.steps_left();
        let steps = used.saturating_mul(2).saturating_add(ERROR_STEPS);
        let Some(budget) = budget.for_errors(steps) else {
            return Verdict::Unknown;
        };
        let detail = self.errors(value, &budget);
        match budget.is_late() {
            true => Verdict::Unknown,
            false => Verdict::Invalid(detail),
        }
    }

    /// The first errors, as texts.
    fn errors(&self, value: &Value, budget: &Budget<'_>) -> String {
        let errors = self.validator.iter_errors(Metered::new(value, budget));
        let mut errors = errors.filter(|it| is_certain(it.instance()));
        let told = errors.by_ref().take(self.errors_max).map(|error| {
            let path = match error.instance_path().as_str() {
                "" => "the body".to_owned(),
                path => cut(&path, ERROR_MAX),
            };
            format!("{path}: {}", error_text(&error))
        });
        let mut detail = told.collect::<Vec<_>>().join("; ");
        if detail.is_empty() {
            return "the body does not match the schema in too many ways to tell one".to_owned();
        }
        if errors.next().is_some() || budget.is_exhausted() {
            detail.push_str("; and more");
        }
        detail
    }
}

/// What an error says, the value in it cut.
pub(super) fn error_text(error: &ValidationError<'_>) -> String {
    let shown = cut(error.instance(), SHOWN_MAX);
    cut(&error.masked_with(shown), ERROR_MAX)
}

/// The beginning of a text, without control characters. No more of it is made.
fn cut(text: &dyn Display, length_max: usize) -> String {
    let mut cut = Cut {
        text: String::new(),
        left: length_max,
    };
    if write!(cut, "{text}").is_err() {
        cut.text.push_str("...");
    }
    cut.text
}

/// Takes characters until there are enough.
struct Cut {
    text: String,
    left: usize,
}

impl std::fmt::Write for Cut {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for character in text.chars() {
            self.left = self.left.checked_sub(1).ok_or(std::fmt::Error)?;
            match character.is_control() {
                true => self.text.extend(character.escape_default()),
                false => self.text.push(character),
            }
        }
        Ok(())
    }
}
