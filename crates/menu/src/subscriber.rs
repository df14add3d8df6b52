//! What is kept of a subscriber from one session to the next: bytes with a version in front, so
//! that another version of intertie leaves them alone.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::sessions::Stored;

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
}

impl Subscriber {
    /// What is known of somebody.
    pub fn decode(stored: Option<&Stored>) -> Self {
        let known = stored.and_then(|stored| {
            let (version, json) = stored.bytes.split_first()?;
            let json = Some(json).filter(|_| *version == VERSION)?;
            serde_json::from_slice(json).ok()
        });
        known.unwrap_or_default()
    }

    /// What is kept from now on. Where there are too many subscribers, those without an action go
    /// before their time.
    pub fn encode(&self, now: Duration) -> Stored {
        let mut bytes = vec![VERSION];
        // invariant: strings and numbers can be written.
        let _ = serde_json::to_writer(&mut bytes, self);
        let needed = match &self.action {
            Some(_) => now + ACTION_LASTS,
            None => Duration::ZERO,
        };
        Stored {
            is_synced: true,
            until: needed,
            known: now + LANGUAGE_LASTS,
            bytes: bytes.into(),
        }
    }
}
