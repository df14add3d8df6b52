//! Which events are done: all up to the cursor, and runs of them beyond it.

use super::queue::Content;
use super::{Flight, Machine, Span};

/// The parts of a range that lie outside these runs, which are in order: first and last of each.
pub(in crate::webhooks) fn outside(
    (first, last): (u64, u64),
    runs: &[(u64, u64)],
) -> Vec<(u64, u64)> {
    let (mut parts, mut next) = (Vec::new(), first);
    for (from, to) in runs.iter().filter(|it| it.0 <= last && it.1 >= first) {
        if next < *from {
            parts.push((next, *from - 1));
        }
        next = next.max(*to + 1);
    }
    if next <= last {
        parts.push((next, last));
    }
    parts
}

impl Machine {
    /// Marks the events of a delivered request as done. Those between its first and its last that
    /// were done before it began were not part of it, and a replay may have asked for them since.
    pub(super) fn settle(&mut self, flight: &Flight) {
        let pending = &flight.pending;
        if pending.content == Content::Unknown {
            // It has no events. Its bounds are the cursor of its time, and a replay may have asked
            // for that event meanwhile.
            self.misses = false;
            self.version += 1;
            return;
        }
        for (first, last) in outside((pending.first, pending.last), &flight.done) {
            self.mark_done(first, last);
        }
    }

    /// What is done already between the bounds of a span: first and last of each run.
    pub fn done_within(&self, span: Span) -> Vec<(u64, u64)> {
        let runs = self.done.range(..=span.last);
        let runs = runs.filter(|(_, last)| **last >= span.first);
        runs.map(|(first, last)| (*first, *last)).collect()
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
