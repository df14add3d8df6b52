//! What is kept of a subscriber from one session to the next: bytes with a version in front, so
//! that another version of intertie leaves them alone.

use std::time::Duration;

use message::Fault;
use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::plan::Plan;
use crate::sessions::{LINGER, Stored};
use crate::step::internal;

/// The version of the bytes.
const VERSION: u8 = 1;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// How long the choice of a language is remembered.
const LANGUAGE_LASTS: Duration = DAY.saturating_mul(90);
/// How long the result of an action waits for its subscriber.
const ACTION_LASTS: Duration = DAY.saturating_mul(7);

/// What is kept of a subscriber.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Subscriber {
    /// The language that was chosen.
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// The action that has begun and whose end nobody has seen.
    #[serde(rename = "a", default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Action>,
    /// The session that was begun last, which may have been dropped.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The sessions that were begun before it, the oldest first.
    #[serde(rename = "e", default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<String>,
}

impl Subscriber {
    /// What is known of somebody.
    ///
    /// # Errors
    /// When it is of another version of intertie, or damaged: it may have an action, which must not
    /// begin a second time.
    pub fn decode(stored: Option<&Stored>) -> Result<Self, Fault> {
        let Some(stored) = stored else {
            return Ok(Self::default());
        };
        let known = match stored.bytes.split_first() {
            Some((&VERSION, json)) => serde_json::from_slice(json).ok(),
            _ => None,
        };
        known.ok_or_else(|| internal("what is kept of a subscriber cannot be read"))
    }

    /// Notes that a session has begun, and gives those that are one too many with it. A phone has
    /// one session at a time: without a bound, endless ids for one number would take the room of
    /// everybody.
    pub fn begin(&mut self, session: String, most: usize) -> Vec<String> {
        self.earlier.retain(|it| *it != session);
        let before = self.session.take().filter(|it| *it != session);
        self.earlier.extend(before);
        self.session = Some(session);
        let surplus = (self.earlier.len() + 1).saturating_sub(most.max(1));
        self.earlier.drain(..surplus).collect()
    }

    /// Whether it differs from what was kept before by more than the sessions that have begun.
    pub fn has_news(&self, before: &Self) -> bool {
        self.language != before.language || self.action != before.action
    }

    /// Until when it is kept, however many subscribers there are: for those who have not been told
    /// what became of their action, and for those who may dial again since they were.
    fn needed_until(&self, now: Duration) -> Duration {
        match &self.action {
            Some(Action {
                told: Some(told), ..
            }) => told.again_until(),
            Some(_) => now + ACTION_LASTS,
            None => Duration::ZERO,
        }
    }

    /// What is kept from now on. Where there are too many subscribers, those who have nothing to
    /// hear go before their time.
    pub fn encode(&self, now: Duration, plan: &Plan) -> Stored {
        let mut bytes = vec![VERSION];
        // invariant: strings and numbers can be written.
        let _ = serde_json::to_writer(&mut bytes, self);
        // Sessions alone are known no longer than the last of them, unless that gets keys.
        let lasts = match &self.action {
            _ if self.language.is_some() || plan.resume.is_some() => LANGUAGE_LASTS,
            Some(_) => ACTION_LASTS,
            None => plan.timeout + LINGER,
        };
        Stored {
            is_synced: true,
            until: self.needed_until(now),
            known: now + lasts,
            bytes: bytes.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_sessions_of_a_subscriber_are_known() {
        let mut known = Subscriber::default();
        let mut begin = |session: &str, most| known.begin(session.to_owned(), most);
        for session in ["a", "b", "c"] {
            assert!(begin(session, 3).is_empty(), "{session}");
        }
        assert_eq!(begin("d", 3), ["a"]);
        // Each counts once, and from when it has begun last.
        assert!(begin("d", 3).is_empty());
        assert!(begin("b", 3).is_empty());
        assert_eq!(begin("e", 3), ["c"]);
        // Fewer are allowed than before.
        assert_eq!(begin("f", 1), ["d", "b", "e"]);
        assert_eq!(begin("g", 1), ["f"]);
        assert_eq!(known.session.as_deref(), Some("g"));
        assert!(known.earlier.is_empty());
    }

    /// They stayed for a week: a hundred thousand who had bought something were all that could.
    #[test]
    fn who_has_been_told_a_result_gives_room_to_others() {
        let action = |told| Action {
            id: "a".to_owned(),
            screen: "buy".to_owned(),
            progress: crate::action::Progress::Done,
            session: String::new(),
            repeats: 0,
            failures: 0,
            told,
        };
        let needed = |told| {
            let known = Subscriber {
                action: Some(action(told)),
                ..Subscriber::default()
            };
            known.needed_until(Duration::from_secs(1000))
        };
        assert_eq!(needed(None), Duration::from_secs(1000) + ACTION_LASTS);
        let told = crate::action::Told {
            session: "s".to_owned(),
            at: 990_000,
        };
        assert_eq!(needed(Some(told)), Duration::from_secs(990 + 30));
    }

    /// A result that waits is not lost by an upgrade or a step back.
    #[test]
    fn records_of_other_releases_are_read() {
        let read = |text: &[u8]| {
            let stored = Stored {
                until: Duration::ZERO,
                known: Duration::ZERO,
                bytes: [&[VERSION][..], text].concat().into(),
                is_synced: false,
            };
            Subscriber::decode(Some(&stored)).unwrap()
        };
        let before = read(br#"{"l":"sw","s":"a"}"#);
        assert_eq!(before.language.as_deref(), Some("sw"));
        assert_eq!(before.session.as_deref(), Some("a"));
        assert!(before.earlier.is_empty());
        let after = read(br#"{"l":"sw","s":"b","e":["a"],"z":1}"#);
        assert_eq!(after.language.as_deref(), Some("sw"));
        assert_eq!(after.earlier, ["a"]);
    }

    /// It was taken for one of which nothing is known: the next dial would have written over an
    /// action that had begun.
    #[test]
    fn a_record_that_cannot_be_read_is_no_empty_one() {
        assert_eq!(Subscriber::decode(None).unwrap(), Subscriber::default());
        for bytes in [&b"\x02{}"[..], b"\x01{", b""] {
            let stored = Stored {
                until: Duration::ZERO,
                known: Duration::ZERO,
                bytes: bytes.into(),
                is_synced: false,
            };
            assert!(Subscriber::decode(Some(&stored)).is_err(), "{bytes:?}");
        }
    }
}
