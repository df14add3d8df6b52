//! Sessions that have begun and are not yet noted with their subscribers. However many of them
//! begin at once, one task notes those of a subscriber, in their order.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sessions::RecordKey;

/// The sessions that have begun, by their subscribers, as text.
#[derive(Default)]
pub(crate) struct Begun(Mutex<HashMap<RecordKey, Vec<String>>>);

impl Begun {
    fn all(&self) -> MutexGuard<'_, HashMap<RecordKey, Vec<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a session of a subscriber; whether somebody has to note it: else whoever notes those
    /// before it will.
    pub fn add(&self, subscriber: RecordKey, session: String) -> bool {
        let mut all = self.all();
        let sessions = all.entry(subscriber).or_default();
        sessions.push(session);
        sessions.len() == 1
    }

    /// What is to be noted of a subscriber, for the one who was asked to.
    pub fn due(&self, subscriber: RecordKey) -> Due<'_> {
        Due {
            begun: Some(self),
            subscriber,
        }
    }
}

/// What somebody has to note. Dropped before it is [taken](Due::take), it is given up, so that it
/// is noted no more but the next ones are.
pub(crate) struct Due<'a> {
    /// Until it is taken: what begins behind that is another one's, and stays.
    begun: Option<&'a Begun>,
    subscriber: RecordKey,
}

impl Due<'_> {
    /// The sessions, the first one first. The next that begins has to be noted by somebody else.
    pub fn take(mut self) -> Vec<String> {
        self.remove()
    }

    fn remove(&mut self) -> Vec<String> {
        let Some(begun) = self.begun.take() else {
            return Vec::new();
        };
        begun.all().remove(&self.subscriber).unwrap_or_default()
    }
}

impl Drop for Due<'_> {
    fn drop(&mut self) {
        drop(self.remove());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_notes_all_that_begin_until_then() {
        let begun = Begun::default();
        let [one, other] = ["+1", "+2"].map(RecordKey::subscriber);
        let add = |subscriber, session: &str| begun.add(subscriber, session.to_owned());
        assert!(add(one, "a") && add(other, "x"));
        assert!(!add(one, "b"));
        let due = begun.due(one);
        assert!(!add(one, "c"));
        assert_eq!(due.take(), ["a", "b", "c"]);
        // Behind that it is somebody else's work, also while what was taken is written.
        assert!(add(one, "d"));
        assert_eq!(begun.due(one).take(), ["d"]);
        assert!(!add(other, "y"));
    }

    /// One that has begun between what was taken and the end of the one who took it was lost.
    #[test]
    fn what_begins_while_others_are_taken_stays() {
        let begun = Begun::default();
        let one = RecordKey::subscriber("+1");
        begun.add(one, "a".to_owned());
        let mut due = begun.due(one);
        assert_eq!(due.remove(), ["a"]);
        assert!(begun.add(one, "b".to_owned()));
        drop(due);
        assert_eq!(begun.due(one).take(), ["b"]);
    }

    /// The store does not answer, or the engine stops.
    #[test]
    fn what_nobody_could_note_keeps_no_other_one_from_it() {
        let begun = Begun::default();
        let one = RecordKey::subscriber("+1");
        assert!(begun.add(one, "a".to_owned()));
        drop(begun.due(one));
        assert!(begun.add(one, "b".to_owned()));
        assert_eq!(begun.due(one).take(), ["b"]);
    }
}
