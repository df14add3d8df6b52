//! Sessions that have begun and are not yet noted in the records of their subscribers. However
//! many of them begin at once, one task notes those of a subscriber, in the order they began.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::sessions::RecordKey;

/// The sessions that are not noted yet, by subscriber, each as [`RecordKey::to_text`] gives it.
#[derive(Default)]
pub(crate) struct NewSessions(Mutex<HashMap<RecordKey, Vec<String>>>);

impl NewSessions {
    fn all(&self) -> MutexGuard<'_, HashMap<RecordKey, Vec<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a session of a subscriber. True asks the caller to start a task that claims it; false
    /// says that the task for an earlier session of this subscriber has yet to, and will take both.
    pub fn add(&self, subscriber: RecordKey, session: String) -> bool {
        let mut all = self.all();
        let sessions = all.entry(subscriber).or_default();
        sessions.push(session);
        sessions.len() == 1
    }

    /// The claim of the task that was asked to note the sessions of a subscriber.
    pub fn claim(&self, subscriber: RecordKey) -> Claim<'_> {
        Claim {
            sessions: Some(self),
            subscriber,
        }
    }
}

/// The right of one task to the sessions of a subscriber that are not noted yet. If it is dropped
/// before they are [taken](Claim::take), those sessions are never noted, but later ones are.
pub(crate) struct Claim<'a> {
    /// `None` once taken: sessions that begin afterwards belong to another task.
    sessions: Option<&'a NewSessions>,
    subscriber: RecordKey,
}

impl Claim<'_> {
    /// Takes the sessions, in the order they began.
    pub fn take(mut self) -> Vec<String> {
        self.remove()
    }

    fn remove(&mut self) -> Vec<String> {
        let Some(sessions) = self.sessions.take() else {
            return Vec::new();
        };
        sessions.all().remove(&self.subscriber).unwrap_or_default()
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        drop(self.remove());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_notes_all_that_begin_until_then() {
        let new = NewSessions::default();
        let [one, other] = ["+1", "+2"].map(RecordKey::subscriber);
        let add = |subscriber, session: &str| new.add(subscriber, session.to_owned());
        assert!(add(one, "a") && add(other, "x"));
        assert!(!add(one, "b"));
        let claim = new.claim(one);
        assert!(!add(one, "c"));
        assert_eq!(claim.take(), ["a", "b", "c"]);
        // Behind that it is somebody else's work, also while what was taken is written.
        assert!(add(one, "d"));
        assert_eq!(new.claim(one).take(), ["d"]);
        assert!(!add(other, "y"));
    }

    /// One that has begun between what was taken and the end of the one who took it was lost.
    #[test]
    fn what_begins_while_others_are_taken_stays() {
        let new = NewSessions::default();
        let one = RecordKey::subscriber("+1");
        new.add(one, "a".to_owned());
        let mut claim = new.claim(one);
        assert_eq!(claim.remove(), ["a"]);
        assert!(new.add(one, "b".to_owned()));
        drop(claim);
        assert_eq!(new.claim(one).take(), ["b"]);
    }

    /// The store does not answer, or the engine stops.
    #[test]
    fn what_nobody_could_note_keeps_no_other_one_from_it() {
        let new = NewSessions::default();
        let one = RecordKey::subscriber("+1");
        assert!(new.add(one, "a".to_owned()));
        drop(new.claim(one));
        assert!(new.add(one, "b".to_owned()));
        assert_eq!(new.claim(one).take(), ["b"]);
    }
}
