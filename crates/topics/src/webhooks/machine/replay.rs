//! Sending events again that are done.

use super::Machine;

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
    pub fn replay(&mut self, range: Range) {
        let first = range.first.max(1);
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
        self.has_base = false;
        self.rewinds = true;
        self.version += 1;
    }
}
