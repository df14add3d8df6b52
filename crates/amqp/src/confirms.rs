//! The messages of a channel that a broker has not confirmed yet
//! (<https://www.rabbitmq.com/docs/confirms#publisher-confirms>).

use std::collections::VecDeque;

/// What has been published on a channel and not been confirmed, by the numbers that the broker
/// gives: 1, 2, 3 and so on.
#[derive(Debug)]
pub struct Confirms<T> {
    /// The number of the first entry.
    first: u64,
    entries: VecDeque<Option<T>>,
}

impl<T> Default for Confirms<T> {
    fn default() -> Self {
        Self {
            first: 1,
            entries: VecDeque::new(),
        }
    }
}

impl<T> Confirms<T> {
    /// Notes what has just been published.
    pub fn push(&mut self, entry: T) {
        self.entries.push_back(Some(entry));
    }

    /// Takes out what an ack or a nack is about. `false` when there is no such message.
    pub fn settle(&mut self, tag: u64, multiple: bool, mut each: impl FnMut(T)) -> bool {
        if multiple && tag == 0 {
            // All that there are (section 1.8.3.13).
            self.drain(each);
            return true;
        }
        let Some(at) = tag.checked_sub(self.first) else {
            // A message that has been told before; only `multiple` may repeat.
            return multiple;
        };
        let Ok(at) = usize::try_from(at) else {
            return false;
        };
        if at >= self.entries.len() {
            return false;
        }
        if multiple {
            self.first += at as u64 + 1;
            self.entries.drain(..=at).flatten().for_each(each);
        } else if let Some(entry) = self.entries.get_mut(at).and_then(Option::take) {
            each(entry);
        }
        while let Some(None) = self.entries.front() {
            self.entries.pop_front();
            self.first += 1;
        }
        true
    }

    /// What has not been confirmed, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.entries.iter().flatten()
    }

    /// Whether everything has been confirmed.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Takes everything out.
    pub fn drain(&mut self, each: impl FnMut(T)) {
        self.first += self.entries.len() as u64;
        self.entries.drain(..).flatten().for_each(each);
    }
}
