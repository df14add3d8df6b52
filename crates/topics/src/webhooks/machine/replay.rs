//! Sending events again that are done.

use super::queue::Pending;
use super::{Machine, Span};

/// Events from the first to the last, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first of them.
    pub first: u64,
    /// The last of them; [`u64::MAX`] for all that follow.
    pub last: u64,
}

impl Machine {
    /// Has these events sent again with their ids, as if they had not been. What is done behind
    /// them stays done. What is under way ends before.
    ///
    /// A batch that has been begun is sent again as it is, also after a change of the view: what is
    /// done between its bounds stays done. When it was begun the view left these events out, so
    /// the receiver has not got them.
    pub fn replay(&mut self, range: Range) {
        let first = range.first.max(1);
        let batches = self.begun_batches().into_iter();
        let stays: Vec<(u64, u64)> = batches.flat_map(|it| self.done_within(it)).collect();
        let mut runs: Vec<(u64, u64)> = vec![(1, self.cursor)];
        runs.extend(std::mem::take(&mut self.done));
        // What is left of each before and behind the range.
        let left = runs.into_iter().flat_map(|(from, to)| {
            let before = (from, to.min(first - 1));
            let behind = (from.max(range.last.saturating_add(1)), to);
            match behind == (from, to) {
                true => [behind, (1, 0)],
                false => [before, behind],
            }
        });
        let left: Vec<(u64, u64)> = left.filter(|(from, to)| from <= to).collect();
        self.cursor = match left.first() {
            Some((1, to)) => *to,
            _ => 0,
        };
        let cursor = self.cursor;
        self.done = left.into_iter().filter(|(_, to)| *to > cursor).collect();
        for (from, to) in stays {
            self.mark_done(from, to);
        }
        self.has_base = false;
        self.rewinds = true;
        self.version += 1;
    }

    /// The batches that have been begun and are not done.
    fn begun_batches(&self) -> Vec<Span> {
        let under_way = self.flights.iter().map(|it| &it.pending);
        let pending = self.queue.iter().chain(under_way);
        let pending = pending.filter(|it| it.is_fixed).map(Pending::span);
        let known = self.known.iter().filter(|(_, it)| it.is_batch);
        let known = known.map(|(first, it)| Span {
            first: *first,
            last: it.last,
            count: 0,
            is_batch: true,
        });
        pending.chain(known).collect()
    }
}
