//! What is counted of a source.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::source::SourceContext;
use crate::state::{Measure, State, StateKey};

/// A number of messages.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// It is this now.
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// One less.
    pub fn remove(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is counted of a source, on all workers together.
#[derive(Debug, Default)]
pub struct IntakeCounts {
    /// Messages whose flow has succeeded.
    pub succeeded: Counter,
    /// Runs of the flow that have failed.
    pub failed: Counter,
    /// Failed runs after which the message is tried again.
    pub retried: Counter,
    /// Messages that have become dead letters.
    pub dead_letters: Counter,
    /// Messages that were dropped, since the file says so.
    pub dropped: Counter,
    /// Dead letters that cannot be kept at the moment.
    pub blocked: Counter,
    /// 1 while no further message is taken: `dead_letter: stop`.
    pub halted: Counter,
}

impl IntakeCounts {
    /// Those of a source of this kind. They outlive a reload that changes nothing of it.
    pub fn of(kind: &'static str, settings: &impl Debug, context: &SourceContext<'_>) -> Arc<Self> {
        let key = StateKey {
            flow: Arc::clone(context.flow),
            step: kind.into(),
            kind: "source",
            settings: format!("{settings:?}"),
        };
        context.surroundings.states.get(key, Self::default)
    }
}

impl State for IntakeCounts {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        vec![
            Measure::count(
                "source_succeeded_total",
                "Messages whose flow has succeeded.",
                &self.succeeded.0,
            ),
            Measure::count(
                "source_failed_total",
                "Runs of the flow that have failed or ended with a status from 400 on.",
                &self.failed.0,
            ),
            Measure::count(
                "source_retried_total",
                "Failed runs after which the message is tried again.",
                &self.retried.0,
            ),
            Measure::count(
                "source_dead_letters_total",
                "Messages that have become dead letters.",
                &self.dead_letters.0,
            ),
            Measure::count(
                "source_dropped_total",
                "Messages that have been dropped after the last failure.",
                &self.dropped.0,
            ),
            Measure::count(
                "source_blocked",
                "Dead letters that cannot be kept at the moment: the source takes no messages.",
                &self.blocked.0,
            ),
            Measure::count(
                "source_halted",
                "1 while the source takes no messages: one has failed, and its file says \
                 `dead_letter: stop`.",
                &self.halted.0,
            ),
        ]
    }
}
