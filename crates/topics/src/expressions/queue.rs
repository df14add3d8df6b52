//! The events that a combination of expressions has not been evaluated for yet.

use std::collections::VecDeque;
use std::rc::Rc;

use super::Fresh;
use crate::mailbox::weight;
use crate::seats::Lost;

/// What comes next for a combination of expressions.
#[derive(Debug)]
pub(crate) enum Item {
    /// An event.
    Event(Rc<Fresh>),
    /// Events that its subscribers do not get, and are told about.
    Gap(Lost),
}

/// The events that a combination of expressions has not been evaluated for yet, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    gap: Option<Lost>,
    events: VecDeque<Rc<Fresh>>,
    bytes: usize,
    /// The steps that it has taken, as far as that matters for who is next.
    pub spent: u64,
}

impl Queue {
    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty() && self.gap.is_none()
    }

    /// Puts an event behind the others. True when there are more than so many bytes now; a single
    /// event is never too many.
    pub fn put(&mut self, fresh: &Rc<Fresh>, bytes_max: usize) -> bool {
        self.bytes += weight(&fresh.event);
        self.events.push_back(Rc::clone(fresh));
        self.bytes > bytes_max && self.events.len() > 1
    }

    /// Notes that the combination has taken so many steps more.
    pub fn spend(&mut self, steps: u64) {
        self.spent = self.spent.saturating_add(steps);
    }

    /// What comes next.
    pub fn take(&mut self) -> Option<Item> {
        if let Some(gap) = self.gap.take() {
            return Some(Item::Gap(gap));
        }
        let fresh = self.events.pop_front()?;
        self.bytes -= weight(&fresh.event);
        Some(Item::Event(fresh))
    }

    /// Forgets all but the newest event: it says everything that those before it do.
    pub fn conflate(&mut self) {
        let first = self.events.len().saturating_sub(1);
        self.events.drain(..first);
        self.bytes = self.events.iter().map(|it| weight(&it.event)).sum();
    }

    /// Forgets the oldest events until no more than so many bytes are left; what is missing comes
    /// first from now on.
    pub fn drop_oldest(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max && self.events.len() > 1 {
            let Some(fresh) = self.events.pop_front() else {
                break;
            };
            self.bytes -= weight(&fresh.event);
            let sequence = fresh.event.id.sequence;
            let gap = self.gap.get_or_insert(Lost {
                from: sequence,
                behind: sequence,
                count: 0,
            });
            gap.behind = sequence + 1;
            gap.count += 1;
        }
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.gap = None;
        self.events.clear();
        self.bytes = 0;
    }
}
