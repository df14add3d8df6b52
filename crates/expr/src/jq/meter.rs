//! What an evaluation may still spend. One evaluation runs on one thread, and operators of values
//! have no place for a context, so it is kept beside the thread.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use super::Limits;
use super::error::{EvalError, EvalErrorKind};
use crate::value::Value;

/// How far evaluations may go below the place where they were entered, unless
/// [`set_stack`] says otherwise: half of what a thread has by default.
const STACK: usize = 1024 * 1024;

/// A limit was passed: everything fails from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stopped {
    Steps,
    Memory,
    Stack,
    Depth,
    Number,
    Time,
}

impl Stopped {
    pub fn message(self) -> &'static str {
        match self {
            Self::Steps => "takes too many steps",
            Self::Memory => "needs too much memory",
            Self::Stack => "calls are nested too deep",
            Self::Depth => "values are nested too deep",
            Self::Number => "a number has too many digits",
            Self::Time => "takes too long",
        }
    }
}

/// The steps between two looks at the clock, where time is limited: less than a millisecond.
const ROUND: u64 = 4_096;

struct Meter {
    /// What is left of this round.
    steps: Cell<u64>,
    /// What is left for the rounds behind it.
    later: Cell<u64>,
    /// The longest that the evaluation may take, and since when it runs.
    time: Cell<(Option<Duration>, Option<Instant>)>,
    memory: Cell<usize>,
    floor: Cell<usize>,
    allowance: Cell<usize>,
    nests: Cell<u32>,
    stopped: Cell<Option<Stopped>>,
    raised: RefCell<Option<Value>>,
}

thread_local! {
    static METER: Meter = const {
        Meter {
            steps: Cell::new(0),
            later: Cell::new(0),
            time: Cell::new((None, None)),
            memory: Cell::new(0),
            floor: Cell::new(0),
            allowance: Cell::new(STACK),
            nests: Cell::new(0),
            stopped: Cell::new(None),
            raised: RefCell::new(None),
        }
    };
}

/// How far evaluations of this thread may go below the place where they were entered, in bytes
/// of stack; a quarter of the stack should be left for what they call. Without a call it is 1 MiB.
pub fn set_stack(bytes: usize) {
    METER.with(|meter| meter.allowance.set(bytes));
}

#[inline(always)]
fn here() -> usize {
    let mark = 0_u8;
    std::ptr::from_ref(&mark).addr()
}

/// Counts steps, and looks whether the stack lasts.
#[inline]
pub(super) fn steps(count: usize) -> Result<(), Stopped> {
    METER.with(|meter| {
        if meter.stopped.get().is_none()
            && here() >= meter.floor.get()
            && let Some(left) = meter.steps.get().checked_sub(count as u64)
        {
            meter.steps.set(left);
            return Ok(());
        }
        meter.next_round(count as u64)
    })
}

/// Looks whether so many steps are left, and leaves them.
pub(super) fn afford(count: usize) -> Result<(), Stopped> {
    METER.with(|meter| match meter.left() < count as u64 {
        true => Err(stop(Stopped::Steps)),
        false => Ok(()),
    })
}

/// Counts bytes that are to be allocated.
#[inline]
pub(super) fn memory(bytes: usize) -> Result<(), Stopped> {
    METER.with(|meter| {
        if meter.stopped.get().is_none()
            && let Some(left) = meter.memory.get().checked_sub(bytes)
        {
            meter.memory.set(left);
            return Ok(());
        }
        let reason = meter.stopped.get().unwrap_or(Stopped::Memory);
        meter.stopped.set(Some(reason));
        Err(reason)
    })
}

/// The most calls of definitions that hand filters on to themselves. Each may be one level of what
/// is dropped in the end, wherever that happens, so the number depends on no other limit.
const NESTS_MAX: u32 = 500;

/// Counts a call of a definition that hands filters on to itself.
pub(super) fn nest() -> Result<(), Stopped> {
    METER.with(|meter| {
        meter.nests.set(meter.nests.get() + 1);
        match meter.nests.get() > NESTS_MAX {
            true => Err(stop(Stopped::Stack)),
            false => Ok(()),
        }
    })
}

/// Ends the evaluation for another reason.
#[cold]
pub(super) fn stop(reason: Stopped) -> Stopped {
    METER.with(|meter| {
        let reason = meter.stopped.get().unwrap_or(reason);
        meter.stopped.set(Some(reason));
        reason
    })
}

/// Remembers the value that `error` was called with.
pub(super) fn raise(value: &Value) {
    METER.with(|meter| *meter.raised.borrow_mut() = Some(value.clone()));
}

/// Whether this value is the one that `error` was called with last.
pub(super) fn was_raised(value: &Value) -> bool {
    METER.with(|meter| match (&*meter.raised.borrow(), value) {
        (Some(Value::TStr(raised)), Value::TStr(value)) => raised == value,
        (Some(raised), value) => {
            !matches!(value, Value::TStr(_))
                && std::mem::discriminant(raised) == std::mem::discriminant(value)
        }
        (None, _) => false,
    })
}

impl Meter {
    fn left(&self) -> u64 {
        self.steps.get().saturating_add(self.later.get())
    }

    /// Takes steps from those that are left, when there are none in this round or the evaluation
    /// has to end.
    #[cold]
    fn next_round(&self, count: u64) -> Result<(), Stopped> {
        let reason = match self.stopped.get() {
            Some(reason) => reason,
            None if here() < self.floor.get() => Stopped::Stack,
            None => match self.left().checked_sub(count) {
                Some(_) if self.is_late() => Stopped::Time,
                Some(left) => {
                    self.set_left(left);
                    return Ok(());
                }
                None => Stopped::Steps,
            },
        };
        self.stopped.set(Some(reason));
        Err(reason)
    }

    fn set_left(&self, left: u64) {
        let round = match self.time.get().0 {
            Some(_) => left.min(ROUND),
            None => left,
        };
        self.steps.set(round);
        self.later.set(left - round);
    }

    /// Whether the time is over; it begins with the second round.
    fn is_late(&self) -> bool {
        match self.time.get() {
            (Some(longest), Some(since)) => since.elapsed() > longest,
            (Some(longest), None) => {
                self.time.set((Some(longest), Some(Instant::now())));
                longest.is_zero()
            }
            (None, _) => false,
        }
    }
}

/// An evaluation; another one may be in progress around it.
pub(super) struct Running {
    before: (u64, usize, usize, Option<Stopped>, u32),
    later: u64,
    time: (Option<Duration>, Option<Instant>),
    raised: Option<Value>,
}

impl Running {
    pub fn start(limits: &Limits) -> Self {
        METER.with(|meter| {
            let later = meter.later.get();
            let time = meter.time.replace((limits.time, None));
            let steps = meter.steps.get();
            meter.set_left(limits.steps);
            let before = (
                steps,
                meter.memory.replace(limits.memory),
                meter.floor.get(),
                meter.stopped.replace(None),
                meter.nests.replace(0),
            );
            if before.2 == 0 {
                meter
                    .floor
                    .set(here().saturating_sub(meter.allowance.get()));
            }
            let raised = meter.raised.take();
            Self {
                before,
                later,
                time,
                raised,
            }
        })
    }

    /// How many of the steps that it was given have been taken.
    pub fn taken(&self, limits: &Limits) -> u64 {
        let left = METER.with(Meter::left);
        limits.steps.saturating_sub(left)
    }

    /// The limit that was passed, if one was.
    pub fn stopped(&self) -> Option<EvalError> {
        let stopped = METER.with(|meter| meter.stopped.get())?;
        Some(EvalError::new(EvalErrorKind::Budget, stopped.message()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        METER.with(|meter| {
            meter.steps.set(self.before.0);
            meter.later.set(self.later);
            meter.time.set(self.time);
            meter.memory.set(self.before.1);
            meter.floor.set(self.before.2);
            meter.stopped.set(self.before.3);
            meter.nests.set(self.before.4);
            *meter.raised.borrow_mut() = self.raised.take();
        });
    }
}
