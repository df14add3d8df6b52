//! The memory of deadlines: chunks of slots, of which empty ones are given back.

use std::collections::BTreeSet;
use std::task::Waker;

use super::NEVER;

/// How many slots a chunk has: as many as `used` has bits.
const CHUNK: u32 = u64::BITS;

/// What the wheel knows of one deadline.
pub(super) struct Slot {
    /// When it is due, or was when it has expired, in microseconds.
    pub at: u64,
    /// It has to be filed again when it is set to this or to an earlier time.
    pub filed: u64,
    pub waker: Option<Waker>,
    /// Its position within its bucket.
    pub position: u32,
    /// Its bucket; [`super::wheel::UNFILED`] when it is in none.
    pub bucket: u16,
    pub expired: bool,
}

impl Slot {
    fn new() -> Self {
        Self {
            at: NEVER,
            filed: NEVER - 1,
            waker: None,
            position: 0,
            bucket: super::wheel::UNFILED,
            expired: false,
        }
    }
}

#[derive(Default)]
struct Chunk {
    /// A bit for each slot.
    used: u64,
    /// `None` when the chunk's memory has been given back.
    slots: Option<Box<[Slot; CHUNK as usize]>>,
}

/// All slots. They are found by number, and the lowest free number is given out, so that after a
/// peak the upper chunks become empty.
#[derive(Default)]
pub(super) struct Slots {
    chunks: Vec<Chunk>,
    /// The chunks with a free slot.
    with_room: BTreeSet<u32>,
}

impl Slots {
    /// A new slot.
    pub fn add(&mut self) -> u32 {
        let chunk_number = match self.with_room.first() {
            Some(number) => *number,
            None => {
                let number = self.chunks.len() as u32;
                self.chunks.push(Chunk::default());
                self.with_room.insert(number);
                number
            }
        };
        let Some(chunk) = self.chunks.get_mut(chunk_number as usize) else {
            return u32::MAX;
        };
        chunk
            .slots
            .get_or_insert_with(|| Box::new(std::array::from_fn(|_| Slot::new())));
        let free = chunk.used.trailing_ones().min(CHUNK - 1);
        chunk.used |= 1 << free;
        if chunk.used == u64::MAX {
            self.with_room.remove(&chunk_number);
        }
        chunk_number * CHUNK + free
    }

    /// Frees a slot and gives what was in it.
    pub fn remove(&mut self, id: u32) -> Option<Slot> {
        let number = id / CHUNK;
        let chunk = self.chunks.get_mut(number as usize)?;
        let slot = chunk.slots.as_mut()?.get_mut((id % CHUNK) as usize)?;
        let slot = std::mem::replace(slot, Slot::new());
        if chunk.used == u64::MAX {
            self.with_room.insert(number);
        }
        chunk.used &= !(1 << (id % CHUNK));
        // The last chunk with room stays: the next deadline would only make it again.
        if chunk.used == 0 && self.with_room.len() > 1 {
            chunk.slots = None;
            self.drop_tail();
        }
        Some(slot)
    }

    fn drop_tail(&mut self) {
        while self.chunks.last().is_some_and(|it| it.slots.is_none()) {
            self.chunks.pop();
            self.with_room.remove(&(self.chunks.len() as u32));
        }
        if self.chunks.len() < self.chunks.capacity() / 4 {
            self.chunks.shrink_to(self.chunks.len() * 2);
        }
    }

    #[inline]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut Slot> {
        let chunk = self.chunks.get_mut((id / CHUNK) as usize)?;
        chunk.slots.as_mut()?.get_mut((id % CHUNK) as usize)
    }

    /// Takes the wakers of all slots.
    pub fn take_wakers(&mut self) -> Vec<Waker> {
        let slots = self.chunks.iter_mut().filter_map(|it| it.slots.as_mut());
        let slots = slots.flat_map(|it| it.iter_mut());
        slots.filter_map(|slot| slot.waker.take()).collect()
    }

    /// For how many deadlines there is memory.
    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        let chunks = self.chunks.iter().filter(|it| it.slots.is_some());
        chunks.count() * CHUNK as usize
    }
}
