//! Where the entries of a stream are: a row of small places that grows at one end and goes away at
//! the other. It takes 24 bytes for each entry, and at most 24 KiB beside.

use std::collections::VecDeque;

/// How many there are in a part.
const PART: usize = 1024;

/// Where an entry is, and what need not be read to be known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot {
    /// When it came, in milliseconds since 1970 began.
    pub at: u64,
    /// The number of the file; 0 as long as it is not known.
    pub segment: u32,
    /// Where its head begins there.
    pub offset: u32,
    /// How many bytes key and body have.
    pub size: u32,
    /// How many bytes the key has.
    pub key: u16,
    pub kind: u8,
}

/// A row of places.
#[derive(Default)]
pub(super) struct Slots {
    /// All but the last are full.
    parts: VecDeque<Vec<Slot>>,
    /// How many of the first part are gone.
    gone: usize,
    len: usize,
}

impl Slots {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, at: usize) -> Option<&Slot> {
        let at = at.checked_add(self.gone).filter(|_| at < self.len)?;
        self.parts.get(at / PART)?.get(at % PART)
    }

    pub fn get_mut(&mut self, at: usize) -> Option<&mut Slot> {
        let at = at.checked_add(self.gone).filter(|_| at < self.len)?;
        self.parts.get_mut(at / PART)?.get_mut(at % PART)
    }

    pub fn push(&mut self, slot: Slot) {
        self.len += 1;
        match self.parts.back_mut().filter(|part| part.len() < PART) {
            Some(part) => {
                if part.len() == part.capacity() {
                    // Never more than a part has.
                    part.reserve_exact(part.len().min(PART - part.len()));
                }
                part.push(slot);
            }
            None => {
                let mut part = Vec::with_capacity(if self.parts.is_empty() { 4 } else { PART });
                part.push(slot);
                self.parts.push_back(part);
            }
        }
    }

    pub fn pop_front(&mut self) -> Option<Slot> {
        let slot = *self.get(0)?;
        self.len -= 1;
        self.gone += 1;
        if self.gone == PART || self.len == 0 {
            self.parts.pop_front();
            self.gone = 0;
        }
        Some(slot)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Slot> {
        self.parts.iter().flatten().skip(self.gone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_row() {
        assert_eq!(size_of::<Slot>(), 24);
        let mut slots = Slots::default();
        let mut model = VecDeque::new();
        let mut number = 0;
        for (pushes, pops) in [
            (1, 1),
            (3, 1),
            (5000, 4000),
            (2000, 3002),
            (10, 0),
            (1500, 9),
        ] {
            for _ in 0..pushes {
                number += 1;
                let slot = Slot {
                    at: number,
                    ..Slot::default()
                };
                slots.push(slot);
                model.push_back(slot);
            }
            for _ in 0..pops {
                assert_eq!(slots.pop_front(), model.pop_front());
            }
            assert_eq!(slots.len(), model.len());
            assert!(slots.iter().eq(&model));
            for at in 0..model.len() + 2 {
                assert_eq!(slots.get(at), model.get(at));
                assert_eq!(slots.get_mut(at).copied(), model.get(at).copied());
            }
        }
    }
}
