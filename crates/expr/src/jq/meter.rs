//! What an evaluation may still spend. One evaluation runs on one thread, and operators of values
//! have no place for a context, so it is kept beside the thread.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// More than may be done at one go; see [`Limits::at_once`].
    Unfinished,
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
            Self::Unfinished => "exceeds its time slice",
        }
    }
}

/// The steps between two looks at the clock and at the flag that stops an evaluation: half a
/// millisecond of the dearest steps, 50 microseconds of most.
const ROUND: u64 = 1_024;
/// The most steps of an evaluation that has to be done at one go.
pub(super) const SLICE_STEPS: u64 = 200_000;
/// The longest that one may take which has to be done at one go, behind its first round.
const SLICE_TIME: Duration = Duration::from_millis(3);
/// So many evaluations have one round each after one that used its whole time slice: those that
/// wait behind it on this thread must not take a whole time slice each before others are served.
const SHORT_SLICES: u32 = 64;
/// For so long they do: what comes later has not waited behind it.
const SHORT_SLICES_TIME: Duration = Duration::from_millis(50);

/// When an evaluation has to end.
#[derive(Clone, Copy)]
struct End {
    /// The deadline; of one that is done at one go, the end of its time slice once it has begun.
    until: Option<Instant>,
    /// Whether it is done at one go.
    at_once: bool,
    /// Whether more steps than these would be allowed, but not at one go.
    is_cut: bool,
}

struct Meter {
    /// What is left of this round.
    steps: Cell<u64>,
    /// What is left for the rounds behind it.
    later: Cell<u64>,
    end: Cell<End>,
    /// How many of the next evaluations have a short time slice.
    short_slices: Cell<u32>,
    /// Until when they do.
    short_until: Cell<Option<Instant>>,
    /// The rounds that this thread has done.
    rounds: Cell<u64>,
    /// Set when nobody waits for what this thread evaluates any more.
    stop: RefCell<Option<Arc<AtomicBool>>>,
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
            end: Cell::new(End {
                until: None,
                at_once: false,
                is_cut: false,
            }),
            short_slices: Cell::new(0),
            short_until: Cell::new(None),
            rounds: Cell::new(0),
            stop: RefCell::new(None),
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

/// What [`set_stack`] has said on this thread.
pub fn stack() -> usize {
    METER.with(|meter| meter.allowance.get())
}

/// How many rounds of about a thousand steps this thread has done so far. Evaluations that need
/// less than one do not count. Whoever runs many of them in a row sees when to yield
/// to others.
pub fn rounds() -> u64 {
    METER.with(|meter| meter.rounds.get())
}

/// Counts other work of this thread that takes as long as so many rounds.
pub fn count_rounds(count: u64) {
    METER.with(|meter| meter.rounds.set(meter.rounds.get().wrapping_add(count)));
}

/// Does work of this thread whose evaluations, conversions, readers and writers end with a failure
/// soon after the flag is set.
pub fn stoppable<T>(stop: &Arc<AtomicBool>, work: impl FnOnce() -> T) -> T {
    let before = METER.with(|meter| meter.stop.replace(Some(Arc::clone(stop))));
    let restore = RestoreStop(before);
    let result = work();
    drop(restore);
    result
}

/// Whether the flag of [`stoppable`] has been set: nobody waits any more for what this thread does.
pub fn is_stopped() -> bool {
    let is_set = |stop: &Arc<AtomicBool>| stop.load(Ordering::Relaxed);
    METER.with(|meter| meter.stop.borrow().as_ref().is_some_and(is_set))
}

/// Puts back what [`stoppable`] replaced, also when the work panics.
struct RestoreStop(Option<Arc<AtomicBool>>);

impl Drop for RestoreStop {
    fn drop(&mut self) {
        METER.with(|meter| *meter.stop.borrow_mut() = self.0.take());
    }
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
        // Nothing has been taken of the time slice for it.
        true if meter.end.get().is_cut => Err(stop(Stopped::Unfinished)),
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
        self.rounds.set(self.rounds.get().wrapping_add(1));
        let reason = match self.stopped.get() {
            Some(reason) => reason,
            None if here() < self.floor.get() => Stopped::Stack,
            None => match self.left().checked_sub(count) {
                Some(left) => match self.late() {
                    Some(reason) => reason,
                    None => {
                        self.set_left(left);
                        return Ok(());
                    }
                },
                None if self.end.get().is_cut => self.end_of_steps(),
                None => Stopped::Steps,
            },
        };
        self.stopped.set(Some(reason));
        Err(reason)
    }

    fn set_left(&self, left: u64) {
        let round = left.min(ROUND);
        self.steps.set(round);
        self.later.set(left - round);
    }

    /// Why the evaluation may not go on, if its time is over or nobody waits for it. A time slice
    /// begins with the second round: most evaluations have none, and never look at the clock.
    fn late(&self) -> Option<Stopped> {
        let is_set = |stop: &Arc<AtomicBool>| stop.load(Ordering::Relaxed);
        if self.stop.borrow().as_ref().is_some_and(is_set) {
            return Some(Stopped::Time);
        }
        let end = self.end.get();
        if end.until.is_none() && !end.at_once {
            return None;
        }
        let now = Instant::now();
        match end.until {
            Some(until) if now < until => None,
            Some(_) if end.at_once => Some(self.end_slice(now)),
            Some(_) => Some(Stopped::Time),
            None if self.is_short(now) => Some(Stopped::Unfinished),
            None => {
                let until = Some(now + SLICE_TIME);
                self.end.set(End { until, ..end });
                None
            }
        }
    }

    /// Whether this evaluation has a short time slice.
    fn is_short(&self, now: Instant) -> bool {
        let short_slices = self.short_slices.get();
        if short_slices == 0 {
            return false;
        }
        let is_recent = self.short_until.get().is_some_and(|until| now < until);
        self.short_slices
            .set(if is_recent { short_slices - 1 } else { 0 });
        is_recent
    }

    /// The evaluation has used its whole time slice.
    fn end_slice(&self, now: Instant) -> Stopped {
        self.short_slices.set(SHORT_SLICES);
        self.short_until.set(Some(now + SHORT_SLICES_TIME));
        Stopped::Unfinished
    }

    /// The evaluation asks for more steps than are left of its time slice. That has been used up
    /// unless most of them are asked for at once.
    fn end_of_steps(&self) -> Stopped {
        match self.left() < SLICE_STEPS / 2 {
            true => self.end_slice(Instant::now()),
            false => Stopped::Unfinished,
        }
    }
}

/// An evaluation; another one may be in progress around it.
pub(super) struct Running {
    before: (u64, usize, usize, Option<Stopped>, u32),
    later: u64,
    end: End,
    raised: Option<Value>,
}

impl Running {
    pub fn start(limits: &Limits) -> Self {
        METER.with(|meter| {
            let later = meter.later.get();
            let is_cut = limits.at_once && limits.steps > SLICE_STEPS;
            let end = meter.end.replace(End {
                // A time slice is shorter than what any deadline is good for.
                until: limits.until.filter(|_| !limits.at_once),
                at_once: limits.at_once,
                is_cut,
            });
            let steps = meter.steps.get();
            meter.set_left(match is_cut {
                true => SLICE_STEPS,
                false => limits.steps,
            });
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
                end,
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
        let kind = match stopped {
            Stopped::Unfinished => EvalErrorKind::Unfinished,
            _ => EvalErrorKind::Budget,
        };
        Some(EvalError::new(kind, stopped.message()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        METER.with(|meter| {
            meter.steps.set(self.before.0);
            meter.later.set(self.later);
            meter.end.set(self.end);
            meter.memory.set(self.before.1);
            meter.floor.set(self.before.2);
            meter.stopped.set(self.before.3);
            meter.nests.set(self.before.4);
            *meter.raised.borrow_mut() = self.raised.take();
        });
    }
}
