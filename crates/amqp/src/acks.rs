//! The messages of a channel that a consumer has not settled yet, and the fewest words to settle
//! them with.

use std::collections::VecDeque;

use crate::write;

/// How a message has been settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It has been dealt with.
    Ack,
    /// It could not be dealt with; the broker drops it, or hands it to the dead letters.
    Reject,
    /// It could not be dealt with; the broker puts it back.
    Requeue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entry {
    Open,
    /// Acknowledged, and the broker has not been told yet.
    Acked,
    /// The broker has been told.
    Told,
}

/// What has been delivered on a channel and not been settled.
#[derive(Debug)]
pub struct Acks {
    /// The number of the first entry.
    first: u64,
    entries: VecDeque<Entry>,
    /// Those acknowledged since the last [`Acks::flush`].
    fresh: Vec<u64>,
}

impl Default for Acks {
    fn default() -> Self {
        Self {
            first: 1,
            entries: VecDeque::new(),
            fresh: Vec::new(),
        }
    }
}

impl Acks {
    /// Notes a delivery. `false` when its number is not the next one: then nothing can be settled
    /// on the channel any more.
    pub fn push(&mut self, tag: u64) -> bool {
        let is_next = tag == self.first + self.entries.len() as u64;
        if is_next {
            self.entries.push_back(Entry::Open);
        }
        is_next
    }

    /// How many have not been settled.
    pub fn open(&self) -> usize {
        self.entries.iter().filter(|it| **it == Entry::Open).count()
    }

    /// Settles a delivery. Rejections are written at once, acknowledgements by [`Acks::flush`].
    /// `false` when it has been settled before or never came.
    pub fn settle(&mut self, tag: u64, how: Settled, channel: u16, out: &mut Vec<u8>) -> bool {
        let at = tag.checked_sub(self.first);
        let at = at.and_then(|at| usize::try_from(at).ok());
        let entry = at.and_then(|at| self.entries.get_mut(at));
        let Some(entry) = entry.filter(|it| **it == Entry::Open) else {
            return false;
        };
        if how == Settled::Ack {
            *entry = Entry::Acked;
            self.fresh.push(tag);
        } else {
            *entry = Entry::Told;
            write::basic_reject(out, channel, tag, how == Settled::Requeue);
        }
        true
    }

    /// Writes what has been acknowledged: one method for all at the front without a gap, one for
    /// each other.
    pub fn flush(&mut self, channel: u16, out: &mut Vec<u8>) {
        if self.fresh.is_empty() {
            return;
        }
        let done = self.entries.iter().take_while(|it| **it != Entry::Open);
        let done = done.count();
        let front = self.entries.iter().take(done);
        let mut acked = front.enumerate().filter(|(_, it)| **it == Entry::Acked);
        if let Some((last, _)) = acked.next_back() {
            write::basic_ack(out, channel, self.first + last as u64, true);
        }
        self.entries.drain(..done);
        self.first += done as u64;
        for tag in self.fresh.drain(..) {
            let at = tag.checked_sub(self.first);
            let at = at.and_then(|at| usize::try_from(at).ok());
            // What is not there any more went with those at the front.
            if let Some(entry) = at.and_then(|at| self.entries.get_mut(at)) {
                *entry = Entry::Told;
                write::basic_ack(out, channel, tag, false);
            }
        }
    }
}
