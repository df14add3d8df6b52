//! The endpoints of a driver by number. A number that is free is given again: whoever frees one has
//! seen to it that nothing is under way for it.

use super::entry::Entry;

/// The endpoints of a driver by number.
#[derive(Default)]
pub(super) struct Entries {
    slots: Vec<Option<Box<Entry>>>,
    free: Vec<usize>,
}

impl Entries {
    /// Adds one; its number.
    pub fn add(&mut self, entry: Entry) -> usize {
        let entry = Some(Box::new(entry));
        if let Some(at) = self.free.pop()
            && let Some(slot) = self.slots.get_mut(at)
        {
            *slot = entry;
            return at;
        }
        self.slots.push(entry);
        self.slots.len() - 1
    }

    /// Frees a number.
    pub fn remove(&mut self, at: usize) -> Option<Box<Entry>> {
        let entry = self.slots.get_mut(at)?.take()?;
        self.free.push(at);
        Some(entry)
    }

    pub fn get(&self, at: usize) -> Option<&Entry> {
        self.slots.get(at)?.as_deref()
    }

    pub fn get_mut(&mut self, at: usize) -> Option<&mut Entry> {
        self.slots.get_mut(at)?.as_deref_mut()
    }

    /// All with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Entry)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(at, it)| Some((at, it.as_deref()?)))
    }
}
