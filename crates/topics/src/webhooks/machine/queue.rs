//! What waits to be sent to an endpoint.

use super::record::AttemptState;
use super::{DeadLetterReason, Span};

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Events,
    /// That events are missing.
    Gap,
    /// That nobody knows how many are.
    UnknownGap,
    /// Nothing: it becomes a dead letter.
    DeadLetter(DeadLetterReason),
}

/// Events that are sent in one request, or a gap, or a dead letter.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub first: u64,
    pub last: u64,
    /// The last event before it that the view shows, whether that was done or not. Events become a
    /// batch only when each has the one before it here.
    pub previous: u64,
    pub count: usize,
    pub bytes: usize,
    /// Those with the same key wait for each other.
    pub key: Option<u64>,
    pub content: Content,
    /// How often it has been refused.
    pub tries: u32,
    /// When it may be sent at the earliest, in microseconds.
    pub at: u64,
    /// When it was offered.
    pub since: u64,
    /// Whether it is a batch whose bounds stay as they are.
    pub is_fixed: bool,
    /// The version of the record that has its bounds.
    pub version: u64,
}

/// When something may be begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Now,
    At(u64),
    /// Not before the rest of its events has been offered.
    Incomplete,
}

impl Pending {
    pub fn one(number: u64, (content, key, bytes): (Content, Option<u64>, usize)) -> Self {
        Self {
            first: number,
            last: number,
            previous: 0,
            count: 1,
            bytes,
            key,
            content,
            tries: 0,
            at: 0,
            since: 0,
            is_fixed: false,
            version: 0,
        }
    }

    pub fn span(&self) -> Span {
        Span {
            first: self.first,
            last: self.last,
            count: self.count,
            is_batch: self.is_fixed,
        }
    }

    pub fn is_dead_letter(&self) -> bool {
        matches!(self.content, Content::DeadLetter(_))
    }

    /// Whether it tells of missing events.
    pub fn is_gap(&self) -> bool {
        matches!(self.content, Content::Gap | Content::UnknownGap)
    }

    /// Whether it may become a part of a batch. An event that has been refused alone, before the
    /// endpoint got batches, is sent again alone: with the id that it had.
    pub fn can_join(&self) -> bool {
        !self.is_fixed && self.tries == 0 && self.content == Content::Events
    }

    /// What has to be remembered of it, if anything.
    pub fn attempt_state(&self) -> Option<AttemptState> {
        let is_dead_letter = self.content == Content::DeadLetter(DeadLetterReason::Refused);
        let is_plain = self.tries == 0 && !self.is_fixed && !is_dead_letter;
        (!is_plain && !self.is_gap()).then_some(AttemptState {
            last: self.last,
            tries: self.tries,
            at: self.at,
            is_batch: self.is_fixed,
            is_dead_letter,
            version: self.version,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use component::resilience::Backoff;

    use super::super::{Action, Batch, Item, Machine, Now, Order, Outcome, Policy, Stopped};

    fn policy(batch: Option<Batch>) -> Arc<Policy> {
        Arc::new(Policy {
            order: Order::All,
            concurrent: 1,
            batch,
            throttle: None,
            backoff: Backoff::doubling(Duration::from_micros(100), Duration::from_micros(100)),
            times: 3,
            disable_after: 1_000_000,
            drops: false,
        })
    }

    fn of_two() -> Option<Batch> {
        Some(Batch {
            count: 2,
            bytes: 1000,
            time: 10,
        })
    }

    fn offer(machine: &mut Machine, count: usize) {
        for _ in 0..count {
            let item = Item::Shown {
                bytes: 10,
                key: None,
            };
            machine.offer(item, Now::default());
        }
    }

    /// What is sent, once all has been noted that has to be: first, last and whether it is a batch.
    fn sent(machine: &mut Machine, us: u64) -> (u64, (u64, u64, bool)) {
        let now = Now { us, wall_ms: us };
        let mut action = machine.poll(now);
        if action == Action::Note {
            let (_, version) = machine.record(now);
            machine.noted(version);
            action = machine.poll(now);
        }
        match action {
            Action::Send { number, span, .. } => (number, (span.first, span.last, span.is_batch)),
            other => panic!("{other:?}"),
        }
    }

    /// The same endpoint with another policy, from what is noted of it.
    fn again(machine: &Machine, batch: Option<Batch>) -> Machine {
        let (record, _) = machine.record(Now::default());
        Machine::restore(policy(batch), machine.cursor(), &record, Now::default())
    }

    #[test]
    fn a_batch_that_was_begun_stays_one_when_there_are_no_batches_any_more() {
        let mut machine = Machine::new(policy(of_two()), 1);
        offer(&mut machine, 3);
        let (number, batch) = sent(&mut machine, 0);
        assert_eq!(batch, (1, 2, true));
        let down = Outcome::Down { retry_after: None };
        machine.finished(number, down, Now::default(), 0.0);
        let mut machine = again(&machine, None);
        offer(&mut machine, 3);
        let (number, batch) = sent(&mut machine, 200);
        assert_eq!(batch, (1, 2, true), "with the same bounds");
        machine.finished(number, Outcome::Delivered, Now::default(), 0.0);
        assert_eq!(sent(&mut machine, 200).1, (3, 3, false));
    }

    #[test]
    fn that_it_is_disabled_is_reported_once_after_it_is_noted() {
        let mut machine = Machine::new(policy(None), 1);
        offer(&mut machine, 1);
        let (number, _) = sent(&mut machine, 0);
        let now = Now { us: 5, wall_ms: 5 };
        machine.finished(number, Outcome::Gone, now, 0.0);
        assert_eq!(machine.unreported(), None, "a crash could undo it");
        let (_, version) = machine.record(now);
        machine.noted(version);
        let unreported = Some((Stopped::Gone, 5));
        assert_eq!(machine.unreported(), unreported);
        let mut machine = again(&machine, None);
        assert_eq!(machine.unreported(), unreported, "after a restart");
        machine.set_reported(4);
        assert_eq!(machine.unreported(), unreported, "that was another time");
        machine.set_reported(5);
        assert_eq!(machine.unreported(), None);
        let mut machine = again(&machine, None);
        assert_eq!(machine.unreported(), None, "after another one");
        machine.resume();
        machine.pause();
        assert_eq!(machine.unreported(), None, "an operator knows");
    }

    #[test]
    fn a_restored_batch_that_is_not_on_the_disk_is_noted_before_it_is_sent() {
        let mut machine = Machine::new(policy(of_two()), 1);
        offer(&mut machine, 2);
        let (number, batch) = sent(&mut machine, 0);
        assert_eq!(batch, (1, 2, true));
        machine.finished(number, Outcome::Aborted, Now::default(), 0.0);
        let mut machine = again(&machine, of_two());
        machine.owe_note();
        offer(&mut machine, 2);
        assert_eq!(machine.poll(Now::default()), Action::Note);
        assert_eq!(sent(&mut machine, 0).1, (1, 2, true));
    }

    #[test]
    fn a_restored_disablement_that_is_not_on_the_disk_is_noted_before_it_is_reported() {
        let mut machine = Machine::new(policy(None), 1);
        offer(&mut machine, 1);
        let (number, _) = sent(&mut machine, 0);
        let now = Now { us: 5, wall_ms: 5 };
        machine.finished(number, Outcome::Gone, now, 0.0);
        let mut machine = again(&machine, None);
        machine.owe_note();
        assert_eq!(machine.unreported(), None, "a crash could undo it");
        let (_, version) = machine.record(now);
        machine.noted(version);
        assert_eq!(machine.unreported(), Some((Stopped::Gone, 5)));
    }

    #[test]
    fn an_event_that_was_refused_alone_stays_alone_when_there_are_batches() {
        let mut machine = Machine::new(policy(None), 1);
        offer(&mut machine, 3);
        let (number, one) = sent(&mut machine, 0);
        assert_eq!(one, (1, 1, false));
        machine.finished(number, Outcome::Refused, Now::default(), 0.0);
        let mut machine = again(&machine, of_two());
        offer(&mut machine, 3);
        let (number, one) = sent(&mut machine, 200);
        assert_eq!(one, (1, 1, false), "with the same id");
        machine.finished(number, Outcome::Delivered, Now::default(), 0.0);
        assert_eq!(sent(&mut machine, 200).1, (2, 3, true));
    }
}
