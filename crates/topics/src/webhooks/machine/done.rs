//! Which events are done: all up to the cursor, and runs of them beyond it.

use super::queue::Content;
use super::{Flight, Machine, Span};

impl Machine {
    /// Marks the events of a request that has been delivered, or has become a dead letter, as done.
    pub(super) fn settle(&mut self, flight: &Flight) {
        let pending = &flight.pending;
        if pending.content == Content::UnknownGap {
            // It has no events. Its bounds are the cursor of its time, and a replay may have asked
            // for that event meanwhile.
            self.misses = false;
            self.version += 1;
            return;
        }
        self.mark_done(pending.first, pending.last);
    }

    /// What is done already between the bounds of a span, and is not sent with it: first and last
    /// of each run.
    pub fn done_within(&self, span: Span) -> Vec<(u64, u64)> {
        let runs = self.done.range(..=span.last);
        let runs = runs.filter(|(_, last)| **last >= span.first);
        let within = |(first, last): (&u64, &u64)| {
            let (first, last) = (*first, *last);
            (first.max(span.first), last.min(span.last))
        };
        runs.map(within).collect()
    }

    /// Whether nothing is left to do for this event.
    pub fn is_done(&self, number: u64) -> bool {
        let run = self.done.range(..=number).next_back();
        number <= self.cursor || run.is_some_and(|(_, last)| *last >= number)
    }

    /// How many of these are done.
    pub(super) fn count_done(&self, first: u64, last: u64) -> u64 {
        let overlap = |(from, to): (&u64, &u64)| {
            let (from, to) = ((*from).max(first), (*to).min(last));
            (to + 1).saturating_sub(from)
        };
        self.done.range(..=last).map(overlap).sum()
    }

    pub(super) fn mark_done(&mut self, mut first: u64, mut last: u64) {
        self.version += 1;
        if first > self.cursor + 1 {
            // One run with those beside it.
            while let Some((from, to)) = self.done.range(..=last + 1).next_back() {
                let (from, to) = (*from, *to);
                if to + 1 < first {
                    break;
                }
                (first, last) = (first.min(from), last.max(to));
                self.done.remove(&from);
            }
            self.done.insert(first, last);
            return;
        }
        self.cursor = self.cursor.max(last);
        while let Some((from, to)) = self.done.first_key_value() {
            if *from > self.cursor + 1 {
                break;
            }
            self.cursor = self.cursor.max(*to);
            self.done.pop_first();
        }
        // What is done behind a replay has not been offered again, and need not be.
        self.end = self.end.max(self.cursor);
    }
}
