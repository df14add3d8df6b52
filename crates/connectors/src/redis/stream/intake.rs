//! Entries in the budget of memory for bodies. An entry for which there is no room is forgotten
//! except for its id, and read again when there is some; meanwhile no others are read.

use std::cell::RefCell;
use std::time::Duration;

use message::memory::{FREE, NoRoom, Reservation};

use super::entry::Entry;
use super::{OnFailure, Worker};

/// How often is looked whether there is room.
const LOOK: Duration = Duration::from_millis(100);

/// An entry that has been read.
pub(super) struct Taken {
    pub entry: Entry,
    pub held: Held,
}

/// What is reserved for an entry.
pub(super) enum Held {
    /// It counts with others: so many bytes.
    Small(usize),
    /// Its own. The body has it from when the flow begins.
    Large(RefCell<Option<Reservation>>),
    /// Nothing: it is larger than the budget.
    Never,
    /// Nothing yet, and its fields, of so many bytes, are forgotten.
    Not(usize),
}

impl Worker<'_> {
    /// Looks for room for an entry; one that has none keeps its id alone.
    pub fn hold(&self, mut entry: Entry) -> Taken {
        let size = entry.size();
        let held = match self.room(size) {
            Ok(held) => held,
            Err(NoRoom::Never) => Held::Never,
            Err(NoRoom::Now { is_new }) => {
                if is_new {
                    tracing::warn!(
                        target: "redis",
                        flow = &**self.flow.name(),
                        "entries wait for memory: limits.body_memory is used up"
                    );
                }
                entry.fields = Vec::new();
                self.parked.set(self.parked.get() + 1);
                Held::Not(size)
            }
        };
        Taken { entry, held }
    }

    fn room(&self, size: usize) -> Result<Held, NoRoom> {
        let mut intake = self.intake.borrow_mut();
        if size <= FREE {
            let small = self.small.get() + size;
            intake.cover(small)?;
            self.small.set(small);
            return Ok(Held::Small(size));
        }
        let room = intake.take(self.cost(size))?;
        Ok(Held::Large(RefCell::new(room)))
    }

    /// What an entry takes: its fields are kept beside the body for when it may be moved.
    fn cost(&self, size: usize) -> u64 {
        let copies = match self.source.settings.on_failure {
            OnFailure::Move(..) => 2,
            OnFailure::Leave | OnFailure::Acknowledge => 1,
        };
        size as u64 * copies
    }

    /// Asks for fewer entries at a time when they are so large that not all would have room.
    pub fn adapt(&self, largest: usize) {
        let most = self.source.settings.batch;
        let left = self.intake.borrow().left();
        let fit = left.checked_div(self.cost(largest));
        let count = match fit.filter(|_| largest > FREE) {
            Some(fit) => fit.clamp(1, most),
            None => most,
        };
        self.group.count.set(count);
    }

    /// Waits until there is room for an entry. `None` when the source has to end before, or the
    /// entry has been deleted meanwhile.
    pub async fn until_held(&self, taken: Taken) -> Option<Taken> {
        let Held::Not(size) = taken.held else {
            return Some(taken);
        };
        let held = self.until_room(size).await;
        self.parked.set(self.parked.get() - 1);
        let entry = taken.entry;
        let Some(held) = held else {
            self.taken.borrow_mut().remove(&entry.id);
            return None;
        };
        let found = self.until_done(|| self.group.again(&entry.id)).await;
        if let Some(Some(mut again)) = found {
            again.is_claimed = entry.is_claimed;
            return Some(Taken { entry: again, held });
        }
        if let Some(None) = found {
            let ids = std::slice::from_ref(&entry.id);
            self.until_done(|| self.group.acknowledge(ids)).await;
        }
        self.release(&entry, held);
        None
    }

    /// Waits until there is room for an entry of this size, unless the source has to end before.
    async fn until_room(&self, size: usize) -> Option<Held> {
        while !self.stopping.get() {
            match self.room(size) {
                Ok(held) => return Some(held),
                // The budget has become smaller.
                Err(NoRoom::Never) => return Some(Held::Never),
                Err(NoRoom::Now { .. }) => self.services.sleep(LOOK).await,
            }
        }
        None
    }

    /// Why an entry does not start the flow that is larger than the budget.
    pub fn too_large(&self, entry: &Entry) -> String {
        let (flow, id, size) = (&**self.flow.name(), &*entry.id, entry.size());
        tracing::error!(
            target: "redis", flow, id, size,
            "an entry is too large: limits.body_memory is less"
        );
        format!("the entry takes {size} bytes, more than `limits.body_memory`")
    }

    /// An entry is done with, or left to the server.
    pub fn release(&self, entry: &Entry, held: Held) {
        self.taken.borrow_mut().remove(&entry.id);
        if let Held::Small(size) = held {
            self.small.set(self.small.get() - size);
            self.intake.borrow_mut().uncover(self.small.get());
        }
    }
}
