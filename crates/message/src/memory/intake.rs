//! Room for what a source takes in before anybody needs it: messages of brokers, files, deliveries.
//! A source waits when there is none, so it leaves a quarter of the budget to those that cannot:
//! requests, replies and steps, which are refused, and among them the steps of its own flows.

use std::sync::atomic::Ordering;

use super::{Budget, FREE, Reservation, STEP, bodies};

/// There is no room for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The message is larger than the whole budget: waiting does not help.
    Never,
    /// The budget is used up for now.
    Now {
        /// Whether there was room before, so that the log is told once.
        is_new: bool,
    },
}

/// What one source has taken in. It belongs to one thread.
#[derive(Debug)]
pub struct Intake {
    budget: &'static Budget,
    /// For messages that take no room by themselves, all together.
    small: Option<Reservation>,
    is_waiting: bool,
}

impl Default for Intake {
    fn default() -> Self {
        Self::new(bodies())
    }
}

impl Intake {
    /// Nothing has been taken in yet.
    pub fn new(budget: &'static Budget) -> Self {
        Self {
            budget,
            small: None,
            is_waiting: false,
        }
    }

    /// Whether the source waits: the last time there was no room.
    pub fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Makes room for one message. One of up to [`FREE`] bytes needs none by itself.
    ///
    /// # Errors
    /// When there is none. The first time in a row counts as a refusal of the budget.
    pub fn take(&mut self, size: u64) -> Result<Option<Reservation>, NoRoom> {
        if size <= FREE as u64 {
            return Ok(None);
        }
        if self.budget.never_has(size) {
            return Err(NoRoom::Never);
        }
        let mut reservation = self.budget.empty();
        self.add(&mut reservation, size)?;
        Ok(Some(reservation))
    }

    /// Looks whether there is any room, for messages whose sizes are known when they are there.
    ///
    /// # Errors
    /// When there is none.
    pub fn check(&mut self) -> Result<(), NoRoom> {
        let mut probe = self.budget.empty();
        self.add(&mut probe, 1)
    }

    /// Makes room for all small messages that are held, which take so many bytes now: none up to
    /// [`FREE`] bytes.
    ///
    /// # Errors
    /// When there is none. What they have keeps reserved.
    #[inline]
    pub fn cover(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let covered = self.small.as_ref().map_or(FREE as u64, |it| it.bytes);
        if bytes as u64 > covered {
            return self.extend(bytes);
        }
        self.uncover(bytes);
        Ok(())
    }

    /// Gives the room of small messages back when they take no more than [`FREE`] bytes now.
    #[inline]
    pub fn uncover(&mut self, bytes: usize) {
        if bytes <= FREE && self.small.is_some() {
            self.small = None;
        }
    }

    #[cold]
    fn extend(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let mut small = self.small.take().unwrap_or_else(|| self.budget.empty());
        let missing = bytes.next_multiple_of(STEP) as u64 - small.bytes;
        let added = self.add(&mut small, missing);
        if small.bytes > 0 {
            self.small = Some(small);
        }
        added
    }

    /// Looks again and again without counting, and counts the first of several refusals.
    fn add(&mut self, reservation: &mut Reservation, bytes: u64) -> Result<(), NoRoom> {
        let limit = self.limit(bytes);
        let is_known = self.is_waiting && self.budget.used().saturating_add(bytes) > limit;
        if is_known || reservation.add_below(limit, bytes).is_err() {
            let is_new = !std::mem::replace(&mut self.is_waiting, true);
            return Err(NoRoom::Now { is_new });
        }
        self.is_waiting = false;
        Ok(())
    }

    /// Up to which use of the budget so many bytes may be taken: three quarters of it, but a
    /// message that is larger than that has the whole.
    fn limit(&self, bytes: u64) -> u64 {
        let limit = self.budget.limit.load(Ordering::Relaxed);
        let part = limit - limit / 4;
        if bytes > part { limit } else { part }
    }

    /// How many bytes could be taken now.
    pub fn left(&self) -> u64 {
        self.limit(0).saturating_sub(self.budget.used())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(steps: u64) -> &'static Budget {
        Box::leak(Box::new(Budget::new(steps * STEP as u64)))
    }

    #[test]
    fn a_source_leaves_a_quarter_to_others_and_waits_for_the_rest() {
        let budget = budget(8);
        let mut intake = Intake::new(budget);
        let first = intake.take(4 * STEP as u64).unwrap();
        let refused = |is_new| Some(NoRoom::Now { is_new });
        assert_eq!(intake.take(3 * STEP as u64).err(), refused(true));
        assert_eq!(intake.take(3 * STEP as u64).err(), refused(false));
        assert_eq!((budget.refused(), intake.is_waiting()), (1, true));
        assert!(budget.reserve(3 * STEP).is_ok(), "a request has room");
        drop(first);
        assert!(intake.take(3 * STEP as u64).is_ok());
        assert_eq!((budget.used(), intake.is_waiting()), (0, false));
    }

    #[test]
    fn a_large_message_may_have_the_whole_budget_and_a_larger_one_never_has() {
        let budget = budget(8);
        let mut intake = Intake::new(budget);
        let whole = intake.take(8 * STEP as u64).unwrap();
        assert_eq!(budget.used(), budget.limit());
        let never = intake.take(8 * STEP as u64 + 1).err();
        assert_eq!((never, intake.is_waiting()), (Some(NoRoom::Never), false));
        drop(whole);
    }

    #[test]
    fn small_messages_take_room_together() {
        let budget = budget(4);
        let mut intake = Intake::new(budget);
        assert!(intake.take(FREE as u64).unwrap().is_none());
        for bytes in (0..=FREE).step_by(1000) {
            assert_eq!(intake.cover(bytes), Ok(()));
        }
        assert_eq!((budget.used(), budget.refused()), (0, 0));
        assert_eq!(intake.cover(2 * STEP + 1), Ok(()));
        assert_eq!(budget.used(), 3 * STEP as u64);
        assert_eq!(
            intake.cover(3 * STEP + 1),
            Err(NoRoom::Now { is_new: true })
        );
        assert_eq!(budget.used(), 3 * STEP as u64);
        assert_eq!(intake.cover(3 * STEP), Ok(()));
        assert_eq!(intake.cover(FREE), Ok(()));
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn what_cannot_be_refused_is_counted_above_the_limit() {
        let budget = budget(1);
        let held = budget.take_anyway(3 * STEP as u64);
        assert_eq!(budget.used(), 3 * STEP as u64);
        assert!(budget.take(1).is_err());
        let bytes = held.hold(vec![1; 10]);
        assert_eq!(budget.used(), 3 * STEP as u64);
        drop(bytes);
        assert_eq!(budget.used(), 0);
    }
}
