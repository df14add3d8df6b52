//! Rewinds to the cursor: everything that is not done is offered again, since a replay or a change
//! of the view has made some of it different.

use super::Machine;
use super::queue::Pending;

impl Machine {
    /// Has all that is not done offered again.
    pub(super) fn rewind(&mut self) {
        self.rewinds = false;
        self.is_hungry = false;
        for pending in std::mem::take(&mut self.queue) {
            if let Some(state) = pending.attempt_state() {
                self.known.insert(pending.first, state);
            }
        }
        self.end = self.cursor;
        self.last_shown = self.cursor;
    }

    /// Ends a batch with this event, since a change has made it too large. The events behind it are
    /// offered again, and sent as those are that have not been begun.
    pub(super) fn cut(&mut self, mut pending: Pending, last: u64) {
        if (pending.first..pending.last).contains(&last) {
            self.version += 1;
            pending.last = last;
            pending.version = self.version;
        }
        self.put_back(pending);
        self.rewinds = true;
    }
}
