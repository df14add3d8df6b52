//! What a schedule remembers over reloads, and shows.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use component::state::{Measure, State};
use jiff::Timestamp;

use crate::schedule::timing::Position;

/// What a schedule remembers.
#[derive(Default)]
pub(super) struct ScheduleState {
    memory: Mutex<Memory>,
    pub runs: AtomicU64,
    pub skipped: AtomicU64,
    pub failed: AtomicU64,
    /// In milliseconds since 1970 began; 0 for none.
    last_run: AtomicU64,
    next_run: AtomicU64,
}

/// Where the schedule is.
#[derive(Default)]
pub(super) struct Memory {
    pub position: Position,
    /// Whether it has begun.
    pub has_begun: bool,
}

impl ScheduleState {
    pub fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_last_run(&self, time: Timestamp) {
        self.last_run.store(milliseconds(time), Ordering::Relaxed);
    }

    pub fn set_next_run(&self, time: Option<Timestamp>) {
        let time = time.map_or(0, milliseconds);
        self.next_run.store(time, Ordering::Relaxed);
    }
}

fn milliseconds(time: Timestamp) -> u64 {
    u64::try_from(time.as_millisecond()).unwrap_or_default()
}

impl State for ScheduleState {
    fn measures(&self, _now: Instant) -> Vec<Measure> {
        let mut measures = vec![
            Measure::count(
                "schedule_runs_total",
                "Runs that a schedule has started.",
                &self.runs,
            ),
            Measure::count(
                "schedule_skipped_total",
                "Runs left out: the last one was under way, or their time had passed.",
                &self.skipped,
            ),
            Measure::count(
                "schedule_failed_total",
                "Runs that failed or replied with a status from 400 on.",
                &self.failed,
            ),
        ];
        let times = [
            (
                "schedule_last_run",
                "When a schedule last started a run, in seconds since 1970.",
                &self.last_run,
            ),
            (
                "schedule_next_run",
                "When a schedule next starts a run, in seconds since 1970.",
                &self.next_run,
            ),
        ];
        for (name, help, time) in times {
            let time = time.load(Ordering::Relaxed);
            if time > 0 {
                measures.push(Measure {
                    name,
                    help,
                    value: time as f64 / 1000.0,
                });
            }
        }
        measures
    }
}
