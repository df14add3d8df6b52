//! The read buffer of a connection. Idle connections hold none: buffers of the usual size go back
//! to a store of the thread.

use std::cell::RefCell;

use crate::spares::Spares;

/// The size of a buffer that comes from the store.
const USUAL_SIZE: usize = 16 * 1024;
/// How many free buffers a thread keeps.
const STORE_MAX: usize = 512;

thread_local! {
    static STORE: RefCell<Spares<Vec<u8>>> = const { RefCell::new(Spares::new()) };
}

/// Bytes that have been read and not yet used: `storage[start..end]`.
#[derive(Debug, Default)]
pub struct Buffer {
    storage: Vec<u8>,
    start: usize,
    end: usize,
}

impl Buffer {
    /// The bytes that wait to be used.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.storage.get(self.start..self.end).unwrap_or_default()
    }

    /// How many bytes wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether no byte waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Drops the first `count` waiting bytes.
    #[inline]
    pub fn consume(&mut self, count: usize) {
        debug_assert!(count <= self.len());
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Takes `count` bytes out from behind the first `at` waiting ones.
    pub fn remove(&mut self, at: usize, count: usize) {
        let at = at.min(self.len());
        let count = count.min(self.len() - at);
        self.storage
            .copy_within(self.start..self.start + at, self.start + count);
        self.consume(count);
    }

    /// Room for more bytes, at least one. Moves or grows the storage when there is none; the
    /// caller bounds [`Buffer::len`].
    pub fn space(&mut self) -> &mut [u8] {
        if self.storage.is_empty() {
            self.storage = take_from_store();
        }
        if self.end == self.storage.len() {
            if self.start > 0 {
                self.storage.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            } else {
                let size = self.storage.len() * 2;
                self.storage.resize(size, 0);
            }
        }
        self.storage.get_mut(self.end..).unwrap_or_default()
    }

    /// Says that `count` bytes of [`Buffer::space`] have been filled.
    #[inline]
    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.storage.len());
    }

    /// Copies bytes behind what lies there.
    pub fn append(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let space = self.space();
            let count = space.len().min(bytes.len());
            let (now, later) = bytes.split_at(count);
            space[..count].copy_from_slice(now);
            self.filled(count);
            bytes = later;
        }
    }

    /// Gives the storage back to the thread when no byte waits.
    #[inline]
    pub fn release(&mut self) {
        if self.is_empty() && !self.storage.is_empty() {
            return_to_store(std::mem::take(&mut self.storage));
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if !self.storage.is_empty() {
            return_to_store(std::mem::take(&mut self.storage));
        }
    }
}

fn take_from_store() -> Vec<u8> {
    let stored = STORE
        .try_with(|store| store.borrow_mut().take())
        .ok()
        .flatten();
    stored.unwrap_or_else(|| vec![0; USUAL_SIZE])
}

fn return_to_store(storage: Vec<u8>) {
    if storage.len() != USUAL_SIZE {
        return;
    }
    // At the end of the thread the store may be gone already; then the buffer is just freed.
    let _ = STORE.try_with(|store| {
        store.borrow_mut().give(storage, STORE_MAX);
    });
}

/// Frees buffers of this thread that nobody has needed since the last time.
pub fn trim_buffers() {
    STORE.with(|store| drop(store.borrow_mut().trim()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order_whatever_is_consumed_between() {
        let mut buffer = Buffer::default();
        let (mut written, mut read) = (0_u32, 0_u32);
        for round in 0..2000_u32 {
            let count = round % 97;
            for _ in 0..count {
                buffer.append(&written.to_le_bytes());
                written += 1;
            }
            while buffer.len() >= 4 && read + 50 < written {
                assert_eq!(&buffer.bytes()[..4], read.to_le_bytes());
                buffer.consume(4);
                read += 1;
            }
        }
        assert!(read > 10_000);
    }

    #[test]
    fn bytes_can_be_taken_out_of_the_middle() {
        let mut buffer = Buffer::default();
        buffer.append(b"0123456789");
        buffer.consume(1);
        buffer.remove(2, 3);
        assert_eq!(buffer.bytes(), b"126789");
        buffer.remove(6, 1);
        assert_eq!(buffer.bytes(), b"126789");
        buffer.remove(0, 6);
        assert!(buffer.is_empty());
    }

    #[test]
    fn it_grows_when_nothing_is_consumed_and_returns_only_usual_storage() {
        let mut buffer = Buffer::default();
        buffer.append(&vec![7; USUAL_SIZE * 3]);
        assert_eq!(buffer.len(), USUAL_SIZE * 3);
        buffer.release();
        assert_eq!(
            buffer.len(),
            USUAL_SIZE * 3,
            "waiting bytes are never given away"
        );
        buffer.consume(USUAL_SIZE * 3);
        buffer.release();
        assert_eq!(buffer.space().len(), USUAL_SIZE);
    }
}
