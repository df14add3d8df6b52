//! Entries in the budget of memory for bodies. An entry for which there is no room is forgotten
//! except for its id, and read again when there is some; meanwhile no others are read.

use std::cell::RefCell;
use std::time::Duration;

use message::memory::{FREE, NoRoom, Reservation};

use super::entry::Entry;
use super::{BACKOFF, OnFailure, Worker, backoff};

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
    /// Nothing yet, and its fields are forgotten.
    Not,
}

impl Worker<'_> {
    /// Looks for room for an entry; one that has none keeps its id alone.
    pub fn hold(&self, mut entry: Entry) -> Taken {
        let held = match self.room(entry.size()) {
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
                Held::Not
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
        let Taken { entry, held } = taken;
        if !matches!(held, Held::Not) {
            return Some(Taken { entry, held });
        }
        let found = self.read_again(&entry).await;
        self.parked.set(self.parked.get() - 1);
        if found.is_none() {
            self.taken.borrow_mut().remove(&entry.id);
        }
        found
    }

    async fn read_again(&self, entry: &Entry) -> Option<Taken> {
        let mut failures = 0;
        while !self.stopping.get() {
            let room = self.intake.borrow().left();
            if room == 0 {
                self.services.sleep(LOOK).await;
                continue;
            }
            match self.group.again(&entry.id).await {
                Ok(None) => {
                    let ids = std::slice::from_ref(&entry.id);
                    self.until_done(|| self.group.acknowledge(ids)).await;
                    return None;
                }
                Ok(Some(mut again)) => {
                    again.is_claimed = entry.is_claimed;
                    match self.room(again.size()) {
                        Ok(held) => return Some(Taken { entry: again, held }),
                        Err(NoRoom::Never) => {
                            let held = Held::Never;
                            return Some(Taken { entry: again, held });
                        }
                        Err(NoRoom::Now { .. }) => {}
                    }
                    drop(again);
                    self.services.sleep(LOOK).await;
                }
                Err(fault) => {
                    failures += 1;
                    self.tell(&fault, failures, "an entry cannot be read again");
                    self.services.sleep(backoff(failures, BACKOFF)).await;
                }
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
