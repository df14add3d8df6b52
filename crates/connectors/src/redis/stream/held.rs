//! Entries in the budget of memory for bodies. An entry for which there is no room is forgotten
//! except for its id, and read again when there is some; meanwhile no others are read.

use std::time::Duration;

use message::Fault;
use message::memory::{FREE, NoRoom, Reservation};

use super::Worker;
use super::entry::Entry;

/// How often is looked whether there is room.
const LOOK: Duration = Duration::from_millis(100);

/// An entry that has been read.
pub(super) enum Taken {
    /// There is room for it, or never will be.
    Held(Entry, Held),
    /// There is no room for it yet. Its fields, of so many bytes, are forgotten.
    Forgotten(Entry, usize),
}

/// What is reserved for an entry.
pub(super) enum Held {
    /// It counts with others: so many bytes.
    Small(usize),
    /// Its own.
    Large(Option<Reservation>),
    /// Nothing: it is larger than the budget.
    Never,
}

impl Worker<'_> {
    /// Looks for room for an entry; one that has none keeps its id alone.
    pub fn hold(&self, mut entry: Entry) -> Taken {
        let size = entry.size();
        match self.room(size) {
            Ok(held) => Taken::Held(entry, held),
            Err(NoRoom::Never) => Taken::Held(entry, Held::Never),
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
                Taken::Forgotten(entry, size)
            }
        }
    }

    fn room(&self, size: usize) -> Result<Held, NoRoom> {
        let mut memory = self.memory.borrow_mut();
        if size <= FREE {
            let small = self.small.get() + size;
            memory.cover(small)?;
            self.small.set(small);
            return Ok(Held::Small(size));
        }
        memory.take(self.cost(size)).map(Held::Large)
    }

    /// What an entry takes until it is settled: its body, and its fields beside that when it may be
    /// moved to another stream.
    fn cost(&self, size: usize) -> u64 {
        let copies = match self.source.settings.dead_letters {
            Some(_) => 2,
            None => 1,
        };
        size as u64 * copies
    }

    /// Asks for fewer entries at a time when they are so large that not all would have room.
    pub fn adapt(&self, largest: usize) {
        let most = self.source.settings.batch;
        let left = self.memory.borrow().left();
        let fit = left.checked_div(self.cost(largest));
        let count = match fit.filter(|_| largest > FREE) {
            Some(fit) => fit.clamp(1, most),
            None => most,
        };
        self.group.count.set(count);
    }

    /// Waits until there is room for an entry. `None` when the source has to end before, or the
    /// entry has been deleted meanwhile.
    pub async fn until_held(&self, taken: Taken) -> Option<(Entry, Held)> {
        let (entry, size) = match taken {
            Taken::Held(entry, held) => return Some((entry, held)),
            Taken::Forgotten(entry, size) => (entry, size),
        };
        let held = self.until_room(size).await;
        self.parked.set(self.parked.get() - 1);
        let Some(held) = held else {
            self.taken.borrow_mut().remove(&entry.id);
            return None;
        };
        let found = self.until_done(async || self.group.again(&entry.id).await);
        let found = found.await;
        if let Some(Some(mut again)) = found {
            again.is_claimed = entry.is_claimed;
            return Some((again, held));
        }
        if let Some(None) = found {
            self.acknowledge(&entry).await;
        }
        self.release(&entry.id, held);
        None
    }

    /// Waits until there is room for an entry of this size, unless the source has to end before.
    async fn until_room(&self, size: usize) -> Option<Held> {
        while !self.intakes.is_over() {
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
    pub fn too_large(&self, entry: &Entry) -> Fault {
        let (flow, id, size) = (&**self.flow.name(), &*entry.id, entry.size());
        tracing::error!(
            target: "redis", flow, id, size,
            "an entry is too large: limits.body_memory is less"
        );
        let detail = format!("the entry takes {size} bytes, more than `limits.body_memory`");
        Fault::invalid(detail).with_status(413)
    }

    /// An entry is done with, or left to the server.
    pub fn release(&self, id: &str, held: Held) {
        self.taken.borrow_mut().remove(id);
        if let Held::Small(size) = held {
            self.small.set(self.small.get() - size);
            self.memory.borrow_mut().uncover(self.small.get());
        }
    }
}
