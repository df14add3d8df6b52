//! How many bytes and events of each topic a channel of several topics has delivered: who has read
//! from where to where in the ring says it, by a mark for each frame.

use std::collections::VecDeque;

/// The most frames that are told apart. What readers get of those before counts for the oldest.
const MARKS_MAX: usize = 65_536;

/// Bytes and events that have been delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Count {
    pub bytes: u64,
    pub events: u64,
}

/// What is delivered of each topic of a channel.
#[derive(Debug)]
pub(crate) struct Tally {
    counts: Vec<Count>,
    marks: VecDeque<Mark>,
}

/// The end of a frame in the ring, and whose it is.
#[derive(Debug)]
struct Mark {
    end: u64,
    member: usize,
    is_event: bool,
}

impl Tally {
    /// Nothing delivered yet of so many topics.
    pub fn new(width: usize) -> Self {
        Self {
            counts: vec![Count::default(); width],
            marks: VecDeque::new(),
        }
    }

    /// Notes whose the frame is that ends here in the ring.
    pub fn mark(&mut self, end: u64, member: usize, is_event: bool) {
        if self.marks.len() >= MARKS_MAX {
            self.marks.pop_front();
        }
        self.marks.push_back(Mark {
            end,
            member,
            is_event,
        });
    }

    /// Counts that a reader has got that many bytes, up to this place. An event counts when its
    /// last byte is among them.
    pub fn pass(&mut self, to: u64, bytes: u64) {
        let mut from = to.saturating_sub(bytes);
        let first = self.marks.partition_point(|mark| mark.end <= from);
        for mark in self.marks.range(first..) {
            if from >= to {
                return;
            }
            let end = mark.end.min(to);
            if let Some(count) = self.counts.get_mut(mark.member) {
                count.bytes += end - from;
                count.events += u64::from(mark.is_event && mark.end <= to);
            }
            from = end;
        }
    }

    /// Counts what one reader alone has got of a topic.
    pub fn add(&mut self, member: usize, bytes: u64, events: u64) {
        if let Some(count) = self.counts.get_mut(member) {
            count.bytes += bytes;
            count.events += events;
        }
    }

    /// Counts bytes that one reader alone has got: so many before they were put into the form of
    /// the wire, and of each topic that share of them. What is of none counts for the first.
    pub fn share(&mut self, bytes: u64, plain: u64, shares: &[u64]) {
        let mut rest = bytes;
        for (member, share) in shares.iter().enumerate().skip(1) {
            let part = u128::from(bytes) * u128::from(*share) / u128::from(plain.max(1));
            let part = u64::try_from(part).unwrap_or(rest).min(rest);
            rest -= part;
            self.add(member, part, 0);
        }
        self.add(0, rest, 0);
    }

    /// Forgets frames that all have read.
    pub fn forget(&mut self, before: u64) {
        let read = self.marks.partition_point(|mark| mark.end <= before);
        self.marks.drain(..read);
    }

    /// What has been counted since the last time, for each topic.
    pub fn take(&mut self) -> impl Iterator<Item = Count> {
        self.counts.iter_mut().map(std::mem::take)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(tally: &mut Tally) -> Vec<(u64, u64)> {
        tally.take().map(|it| (it.bytes, it.events)).collect()
    }

    /// 0..10 an event of the first, 10..12 a heartbeat, 12..20 and 20..25 events of the second.
    fn marked() -> Tally {
        let mut tally = Tally::new(2);
        for (end, member, is_event) in [(10, 0, true), (12, 0, false), (20, 1, true), (25, 1, true)]
        {
            tally.mark(end, member, is_event);
        }
        tally
    }

    #[test]
    fn each_topic_gets_its_own_however_the_bytes_are_written() {
        let mut tally = marked();
        tally.pass(25, 25);
        assert_eq!(taken(&mut tally), [(12, 1), (13, 2)]);
        assert_eq!(taken(&mut tally), [(0, 0), (0, 0)]);
        for size in 1..=25 {
            let mut at = 0;
            while at < 25 {
                let to = (at + size).min(25);
                tally.pass(to, to - at);
                at = to;
            }
            assert_eq!(taken(&mut tally), [(12, 1), (13, 2)], "{size}");
        }
        tally.pass(25, 0);
        assert_eq!(taken(&mut tally), [(0, 0), (0, 0)]);
    }

    #[test]
    fn what_is_forgotten_hinders_nobody() {
        let mut tally = marked();
        tally.forget(12);
        tally.pass(25, 13);
        assert_eq!(taken(&mut tally), [(0, 0), (13, 2)]);
        tally.forget(u64::MAX);
        assert!(tally.marks.is_empty());
        for end in 1..=MARKS_MAX as u64 + 10 {
            tally.mark(end, 1, true);
        }
        assert_eq!(tally.marks.len(), MARKS_MAX);
    }

    #[test]
    fn no_byte_of_ones_own_is_lost_or_counted_twice() {
        let mut tally = Tally::new(3);
        tally.share(101, 1000, &[100, 300, 500]);
        assert_eq!(taken(&mut tally), [(21, 0), (30, 0), (50, 0)]);
        tally.share(7, 0, &[]);
        tally.add(2, 5, 1);
        assert_eq!(taken(&mut tally), [(7, 0), (0, 0), (5, 1)]);
    }
}
