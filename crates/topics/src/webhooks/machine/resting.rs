//! A machine that has nothing to do and nothing to say, in as few bytes as tell where it is: most
//! endpoints are so most of the time.

use std::sync::Arc;

use super::backoff::Throttled;
use super::record::{Disabled, Record};
use super::{Health, Machine, Now, Policy};

/// What is left of a machine that has nothing to do: it wants the next event, and nothing of it has
/// to be noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::webhooks) struct Resting {
    /// All events up to this one are done.
    pub cursor: u64,
    last_shown: u64,
    /// The number of what has been begun last.
    pub number: u64,
    version: u64,
    throttled: Throttled,
    has_base: bool,
}

impl Machine {
    /// What is left of it, if it has nothing to do.
    pub fn rest(&self) -> Option<Resting> {
        let has_work = !self.queue.is_empty() || !self.flights.is_empty();
        let knows = !self.known.is_empty() || !self.done.is_empty() || !self.notices.is_empty();
        let is_well = self.health == Health::Up
            && self.stopped.is_none()
            && self.disabled == Disabled::default();
        let is_changing = self.rewinds || self.misses || self.is_dirty();
        let is_at_end = self.end == self.cursor;
        if has_work || knows || !is_well || is_changing || !is_at_end {
            return None;
        }
        Some(Resting {
            cursor: self.cursor,
            last_shown: self.last_shown,
            number: self.number,
            version: self.version,
            throttled: self.throttled,
            has_base: self.has_base,
        })
    }

    /// The machine of which this was left.
    pub fn wake(policy: Arc<Policy>, resting: &Resting) -> Self {
        let record = Record {
            has_base: resting.has_base,
            ..Record::default()
        };
        Self {
            last_shown: resting.last_shown,
            number: resting.number,
            throttled: resting.throttled,
            version: resting.version,
            noted: resting.version,
            ..Self::restore(policy, resting.cursor, &record, Now::default())
        }
    }
}
