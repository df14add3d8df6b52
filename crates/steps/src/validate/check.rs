//! Checks a value against a schema within bounds: most are checked at once on the worker; what
//! takes longer moves to a thread beside the workers, and ends there when its caller has gone.

use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use component::handler::Services;
use jsonschema::{ValidationError, Validator};
use message::{Fault, Kind, Origin};
use serde_json::Value;

use super::metered::{Budget, Metered, MeteredJson, is_certain};
use crate::background;

/// How many characters of a value an error shows.
const SHOWN_MAX: usize = 60;
/// How many characters an error has.
const ERROR_MAX: usize = 300;
/// The most steps on the worker, a few milliseconds.
const WORKER_STEPS: u64 = 400_000;
/// The longest on the worker.
const WORKER_TIME: Duration = Duration::from_millis(5);
/// The most steps beside the workers, about a second. Errors may take as many again.
const BESIDE_STEPS: u64 = 60_000_000;
/// The longest beside the workers.
const BESIDE_TIME: Duration = Duration::from_secs(3);
/// How often one that waits for a place looks whether its caller has gone.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The steps that finding errors may take beyond twice those that found that there are some.
const ERROR_STEPS: u64 = 50_000;
/// How many may wait for a place beside the workers, for each place.
const WAITING_MAX: usize = 16;
/// The stack beside the workers: schemas and bodies nest.
const STACK: usize = 64 << 20;

/// A schema that is ready to check values.
pub(super) struct Schema {
    pub validator: Validator<MeteredJson>,
    /// Whether it has patterns that may take long for each text.
    pub has_slow_patterns: bool,
    /// How many errors are told.
    pub errors_max: usize,
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
    /// Checks a value on the worker. `None` when that takes too long.
    pub fn check(&self, value: &Value) -> Option<Result<(), Fault>> {
        let budget = Budget::new(WORKER_STEPS, WORKER_TIME, self.has_slow_patterns);
        match self.verdict(value, &budget) {
            Verdict::Valid => Some(Ok(())),
            Verdict::Invalid(detail) => Some(Err(Fault::invalid(detail))),
            Verdict::Unknown => None,
        }
    }

    /// Checks a value beside the workers. Ends soon after the future has been dropped.
    pub async fn check_beside(
        self: Arc<Self>,
        value: Value,
        services: &dyn Services,
    ) -> Result<(), Fault> {
        let stop = StopOnDrop::default();
        let flag = Arc::clone(&stop.0);
        let Some(place) = Place::reserve() else {
            let detail = "too many bodies that take long to validate";
            return Err(Fault::new(Kind::Unavailable, Origin::Engine, detail));
        };
        let work = move || {
            let running = place.run(&flag)?;
            let verdict = on_a_large_stack(|| {
                let budget = Budget::new(BESIDE_STEPS, BESIDE_TIME, self.has_slow_patterns);
                self.verdict(&value, &budget.unless(&flag))
            });
            drop(running);
            verdict
        };
        match background::done(services, work).await? {
            Some(Verdict::Valid) => Ok(()),
            Some(Verdict::Invalid(detail)) => Err(Fault::invalid(detail)),
            _ => {
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

/// Runs work on a thread of its own. `None` when there is none to be had.
fn on_a_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK);
        thread.spawn_scoped(scope, work).ok()?.join().ok()
    })
}

/// Tells work beside the workers that nobody waits for it any more.
#[derive(Default)]
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The places beside the workers, of the whole process.
struct Places {
    taken: Mutex<Taken>,
    freed: Condvar,
}

#[derive(Default)]
struct Taken {
    /// Those that run or wait.
    reserved: usize,
    running: usize,
}

static PLACES: Places = Places {
    taken: Mutex::new(Taken {
        reserved: 0,
        running: 0,
    }),
    freed: Condvar::new(),
};

/// How many run at once: they must leave the workers most of the machine.
pub(super) fn running_max() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    (cores / 2).max(1)
}

/// The right to run beside the workers, soon.
pub(super) struct Place(());

/// A place that is in use. It goes back when this is dropped.
pub(super) struct Running {
    _place: Place,
}

impl Place {
    /// A place, unless too many wait for one.
    pub fn reserve() -> Option<Self> {
        let mut taken = PLACES.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.reserved >= running_max().saturating_mul(1 + WAITING_MAX) {
            return None;
        }
        taken.reserved += 1;
        Some(Self(()))
    }

    /// Waits for its turn. `None` when nobody waits for the result any more.
    pub fn run(self, stop: &AtomicBool) -> Option<Running> {
        let mut taken = PLACES.taken.lock().unwrap_or_else(PoisonError::into_inner);
        while !stop.load(Ordering::Relaxed) {
            if taken.running < running_max() {
                taken.running += 1;
                return Some(Running { _place: self });
            }
            let freed = PLACES.freed.wait_timeout(taken, LOOK_EVERY);
            (taken, _) = freed.unwrap_or_else(PoisonError::into_inner);
        }
        drop(taken);
        // It may have been woken for a place that it does not take.
        PLACES.freed.notify_one();
        None
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = PLACES.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.reserved = taken.reserved.saturating_sub(1);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut taken = PLACES.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.running = taken.running.saturating_sub(1);
        drop(taken);
        PLACES.freed.notify_one();
    }
}
