//! What the admin port shows of a topic's subscribers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use component::limits::Held;
use component::state::{Measure, State};

use crate::topic::Listener;

/// What is counted of a topic's subscribers, of all workers together.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    open: AtomicUsize,
    pub refused: AtomicU64,
    pub deliveries: AtomicU64,
    pub bytes: AtomicU64,
    pub conflated: AtomicU64,
    pub dropped: AtomicU64,
    disconnected: AtomicU64,
    pub resets: AtomicU64,
    pub evaluations: AtomicU64,
    pub late_evaluations: AtomicU64,
    pub expression_steps: AtomicU64,
}

/// A subscriber that is counted as long as this is there.
#[derive(Debug)]
pub(crate) struct Place {
    counts: Arc<Counts>,
    /// Counts it for those who publish only when somebody listens.
    #[allow(dead_code, reason = "counts as long as it is there")]
    listener: Option<Listener>,
    /// The places among the caller's own.
    #[allow(dead_code, reason = "counts as long as it is there")]
    held: Option<Box<[Held]>>,
}

impl Place {
    /// Keeps the places among a caller's own for as long as this is there.
    pub fn hold(&mut self, held: Vec<Held>) {
        self.held = (!held.is_empty()).then(|| held.into_boxed_slice());
    }
}

impl Counts {
    /// Counts a subscriber, when there are fewer than that many.
    pub fn enter(
        self: &Arc<Self>,
        most: usize,
        listen: impl FnOnce() -> Option<Listener>,
    ) -> Option<Place> {
        let before = self.open.fetch_add(1, Ordering::Relaxed);
        let mut place = Place {
            counts: Arc::clone(self),
            listener: None,
            held: None,
        };
        if before >= most {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        place.listener = listen();
        Some(place)
    }

    /// Counts a subscriber whose stream has ended because it was too slow.
    pub fn note_disconnected(&self) {
        self.disconnected.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.counts.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl State for Counts {
    fn measures(&self, _: Instant) -> Vec<Measure> {
        vec![
            Measure::count(
                "topic_subscribers_refused_total",
                "Subscribers refused because there were too many.",
                &self.refused,
            ),
            Measure::count(
                "topic_deliveries_total",
                "Events written to subscribers.",
                &self.deliveries,
            ),
            Measure::count(
                "topic_delivered_bytes_total",
                "Bytes written to subscribers.",
                &self.bytes,
            ),
            Measure::count(
                "topic_slow_conflated_total",
                "Times that a slow subscriber was given the newest snapshot instead.",
                &self.conflated,
            ),
            Measure::count(
                "topic_slow_dropped_total",
                "Events that slow subscribers have missed and been told about.",
                &self.dropped,
            ),
            Measure::count(
                "topic_slow_disconnected_total",
                "Subscribers whose stream ended because they were too slow.",
                &self.disconnected,
            ),
            Measure::count(
                "topic_resets_total",
                "Subscribers that could not go on where they wanted to.",
                &self.resets,
            ),
            Measure::count(
                "topic_expression_evaluations_total",
                "Times that an expression of subscribers was evaluated for an event.",
                &self.evaluations,
            ),
            Measure::count(
                "topic_expression_late_total",
                "Evaluations after the steps that all expressions have for an event were used up.",
                &self.late_evaluations,
            ),
            Measure::count(
                "topic_expression_steps_total",
                "Steps that expressions of subscribers took.",
                &self.expression_steps,
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_allowed_are_let_in() {
        let counts = Arc::new(Counts::default());
        let first = counts.enter(1, || None);
        assert!(first.is_some() && counts.enter(1, || None).is_none());
        drop(first);
        assert!(counts.enter(1, || None).is_some());
        assert_eq!(counts.refused.load(Ordering::Relaxed), 1);
    }
}
