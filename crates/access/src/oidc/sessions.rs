//! The sessions of those who have logged in. Browsers have identifiers that say nothing; what they
//! stand for is here, so that a session ends when the provider or an operator ends it.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::seal::random_text;
use crate::sha256::sha256;

/// What a session takes beside its own bytes.
const OVERHEAD: usize = 512;
/// What the parsed claims of a session take, for each of their bytes as text.
const BYTES_EACH: usize = 4;
/// How exactly it is noted when a session was last used, in seconds.
const SEEN_STEP: u64 = 10;

/// By what a session is known here: the SHA-256 of the identifier that the browser has. Who reads
/// memory dumps or the data folder has no session by it.
pub type SessionKey = [u8; 32];

/// What is kept of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// The claims of the latest ID token.
    pub claims: Map<String, Value>,
    /// Who has logged in.
    pub subject: String,
    /// The session at the provider, where it has a name.
    pub provider_session: Option<String>,
    /// The latest ID token, as the hint who logs out (OpenID Connect RP-Initiated Logout 1.0).
    pub id_token: String,
    /// The nonce of the login.
    pub nonce: String,
    /// What gets newer claims.
    pub refresh_token: Option<String>,
    /// What was granted.
    pub scopes: Vec<String>,
    /// When the login ended, in seconds since 1970, as all times here.
    pub began: u64,
    /// When the session ends at the latest.
    pub ends: u64,
    /// From when on its claims are to be renewed; never without a refresh token.
    pub renew_at: Option<u64>,
    /// From when on nobody goes by them any more before they are.
    pub stale_at: Option<u64>,
}

impl Session {
    /// A new identifier for a browser; `None` when the system has no randomness.
    #[must_use]
    pub fn new_id() -> Option<String> {
        random_text()
    }

    /// The key of an identifier.
    #[must_use]
    pub fn key(id: &[u8]) -> SessionKey {
        sha256(id)
    }

    /// Whether this ends a session of this subject, of this name at the provider, or both.
    #[must_use]
    pub fn is_of(&self, subject: Option<&str>, provider_session: Option<&str>) -> bool {
        let is_subject = subject.is_none_or(|it| it == self.subject);
        let is_session =
            provider_session.is_none_or(|it| self.provider_session.as_deref() == Some(it));
        (subject.is_some() || provider_session.is_some()) && is_subject && is_session
    }

    fn bytes(&self) -> usize {
        let claims = serde_json::to_vec(&self.claims).map_or(0, |it| it.len());
        let refresh = self.refresh_token.as_ref().map_or(0, String::len);
        OVERHEAD + claims * BYTES_EACH + self.id_token.len() + refresh
    }
}

/// Bounds of a table of sessions.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For how many seconds a session may stand still.
    pub idle: u64,
    /// How many there may be.
    pub count_max: usize,
    /// About how many bytes they may take.
    pub bytes_max: usize,
}

/// A session that is good, with what was made of it.
#[derive(Debug)]
pub struct Found<T> {
    /// The session.
    pub session: Arc<Session>,
    /// What was made of it.
    pub made: T,
    /// When it was used last before, as exactly as it is noted.
    pub seen: u64,
    /// Whether it is newly noted that it was used.
    pub is_noted: bool,
}

#[derive(Debug)]
struct Entry<T> {
    session: Arc<Session>,
    made: T,
    seen: u64,
    bytes: usize,
}

/// The sessions of a way. When there is no room, the one that has stood still longest goes: its
/// user logs in again, which at most providers takes no password.
#[derive(Debug)]
pub struct Sessions<T> {
    entries: HashMap<SessionKey, Entry<T>>,
    /// By when they were last used.
    order: BTreeSet<(u64, SessionKey)>,
    bytes: usize,
}

impl<T> Default for Sessions<T> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            order: BTreeSet::new(),
            bytes: 0,
        }
    }
}

impl<T: Clone> Sessions<T> {
    /// Puts a session in that was last used at this time. Gives the keys of those that had to go.
    pub fn put(
        &mut self,
        key: SessionKey,
        (session, made): (Arc<Session>, T),
        (seen, now): (u64, u64),
        limits: Limits,
    ) -> Vec<SessionKey> {
        self.remove(&key);
        let bytes = session.bytes();
        let mut gone = Vec::new();
        while let Some(&(oldest, other)) = self.order.first() {
            let is_over = oldest.saturating_add(limits.idle) <= now;
            let is_full = self.entries.len() >= limits.count_max
                || self.bytes.saturating_add(bytes) > limits.bytes_max;
            if !is_over && !is_full {
                break;
            }
            self.remove(&other);
            gone.push(other);
        }
        self.bytes += bytes;
        self.order.insert((seen, key));
        let entry = Entry {
            session,
            made,
            seen,
            bytes,
        };
        self.entries.insert(key, entry);
        gone
    }

    /// The session of a key, which is used now. One that is over is none any more.
    pub fn get(&mut self, key: &SessionKey, now: u64, limits: Limits) -> Option<Found<T>> {
        let entry = self.entries.get_mut(key)?;
        if !is_good(&entry.session, entry.seen, now, limits) {
            self.remove(key);
            return None;
        }
        let seen = entry.seen;
        let is_noted = now >= seen.saturating_add(SEEN_STEP);
        if is_noted {
            self.order.remove(&(seen, *key));
            self.order.insert((now, *key));
            entry.seen = now;
        }
        Some(Found {
            session: Arc::clone(&entry.session),
            made: entry.made.clone(),
            seen,
            is_noted,
        })
    }

    /// The same session with newer claims, unless it has ended meanwhile. Whether it has not.
    pub fn renew(&mut self, key: &SessionKey, session: Arc<Session>, made: T) -> bool {
        let Some(entry) = self.entries.get_mut(key) else {
            return false;
        };
        let bytes = session.bytes();
        self.bytes = self.bytes.saturating_sub(entry.bytes).saturating_add(bytes);
        entry.bytes = bytes;
        entry.session = session;
        entry.made = made;
        true
    }

    /// Ends a session.
    pub fn remove(&mut self, key: &SessionKey) -> Option<Arc<Session>> {
        let entry = self.entries.remove(key)?;
        self.order.remove(&(entry.seen, *key));
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        Some(entry.session)
    }

    /// Ends all sessions of a subject, the one of this name at the provider, or those that are
    /// both. Gives their keys. It looks at all of them: this is rare.
    pub fn end(&mut self, subject: Option<&str>, session: Option<&str>) -> Vec<SessionKey> {
        let ended = self.entries.iter();
        let ended = ended.filter(|(_, entry)| entry.session.is_of(subject, session));
        let ended: Vec<SessionKey> = ended.map(|(key, _)| *key).collect();
        for key in &ended {
            self.remove(key);
        }
        ended
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// About how many bytes they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Whether a session that was last used at this time is neither over nor idle for too long.
fn is_good(session: &Session, seen: u64, now: u64, limits: Limits) -> bool {
    now < session.ends && now < seen.saturating_add(limits.idle)
}
