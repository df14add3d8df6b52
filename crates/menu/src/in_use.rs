//! Values that are there as long as somebody uses them, by what they belong to: locks and queues of
//! sessions, of which there are too many to keep one for each.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::sessions::RecordKey;

/// The values that are in use, each with how many use it.
pub(crate) struct InUse<V>(Mutex<HashMap<RecordKey, (usize, Arc<V>)>>);

impl<V> Default for InUse<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<V: Default> InUse<V> {
    /// The value of a session or subscriber, which is made when nobody uses it yet.
    pub fn of(self: &Arc<Self>, key: RecordKey) -> Used<V> {
        let mut all = self.all();
        let (count, value) = all.entry(key).or_default();
        *count += 1;
        Used {
            value: Arc::clone(value),
            all: Arc::clone(self),
            key,
        }
    }
}

impl<V> InUse<V> {
    fn all(&self) -> MutexGuard<'_, HashMap<RecordKey, (usize, Arc<V>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The value that somebody else uses.
    pub fn peek(&self, key: RecordKey) -> Option<Arc<V>> {
        self.all().get(&key).map(|(_, value)| Arc::clone(value))
    }

    /// Whether nothing is in use.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.all().is_empty()
    }
}

/// A value that is in use until this is dropped.
pub(crate) struct Used<V> {
    all: Arc<InUse<V>>,
    key: RecordKey,
    pub value: Arc<V>,
}

impl<V> Deref for Used<V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.value
    }
}

impl<V> Drop for Used<V> {
    fn drop(&mut self) {
        let mut all = self.all.all();
        let Some((count, _)) = all.get_mut(&self.key) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            all.remove(&self.key);
        }
    }
}
