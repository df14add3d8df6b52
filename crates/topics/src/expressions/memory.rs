//! The bytes that wait for subscribers with expressions of a topic on a worker.

use std::cell::Cell;
use std::rc::Rc;

/// How many bytes there are, and may be.
#[derive(Debug)]
pub(crate) struct Memory {
    used: Cell<u64>,
    max: u64,
}

impl Memory {
    /// Nothing yet of at most this many bytes.
    pub fn new(max: u64) -> Rc<Self> {
        let used = Cell::new(0);
        Rc::new(Self { used, max })
    }

    /// How many bytes are there.
    #[cfg(test)]
    pub fn used(&self) -> u64 {
        self.used.get()
    }

    /// Whether so many more fit.
    pub fn fits(&self, more: u64) -> bool {
        self.used.get().saturating_add(more) <= self.max
    }
}

/// What one channel has of it.
#[derive(Debug)]
pub(crate) struct Held {
    memory: Rc<Memory>,
    bytes: Cell<u64>,
}

impl Held {
    /// Nothing yet.
    pub fn new(memory: &Rc<Memory>) -> Self {
        Self {
            memory: Rc::clone(memory),
            bytes: Cell::new(0),
        }
    }

    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Notes how many bytes it has now.
    pub fn set(&self, bytes: u64) {
        let before = self.bytes.replace(bytes);
        let used = self.memory.used.get().saturating_sub(before);
        self.memory.used.set(used.saturating_add(bytes));
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}
