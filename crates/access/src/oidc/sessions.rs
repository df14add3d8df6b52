//! The sessions of those who have logged in. Browsers have identifiers that say nothing; what they
//! stand for is here, so that a session ends when the provider or an operator ends it.

use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::logouts::{LogoutOf, LogoutUnderWay, LogoutWritten, Logouts, SessionRead};
use crate::random;
use crate::sha256::sha256;

/// What a session takes beside its own bytes.
const OVERHEAD: usize = 512;
/// What the parsed claims of a session take, for each of their bytes as text.
const BYTES_EACH: usize = 4;
/// How exactly it is noted when a session was last used, in seconds.
const SEEN_STEP: u64 = 10;

/// The SHA-256 of the session identifier that the browser has: memory dumps and the data folder
/// have no identifier that would open a session.
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
    /// The latest ID token: the `id_token_hint` of a logout (OpenID Connect RP-Initiated Logout
    /// 1.0).
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
    /// When its claims are renewed, in seconds since 1970; never without a refresh token.
    pub renew_at: Option<u64>,
    /// When its claims are too old to be used before they are renewed.
    pub stale_at: Option<u64>,
}

impl Session {
    /// A new identifier for a browser; `None` when the system has no randomness.
    #[must_use]
    pub fn new_id() -> Option<String> {
        random::text()
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

/// A session that is neither over nor idle for too long, with what the engine keeps beside it.
#[derive(Debug)]
pub struct StoredSession<T> {
    /// The session.
    pub session: Arc<Session>,
    /// What the engine keeps beside it.
    pub made: T,
    /// When it was last used before, in seconds since 1970, to within `SEEN_STEP`.
    pub seen: u64,
    /// Whether this use was noted: one is every `SEEN_STEP` seconds.
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
///
/// What comes in has been read, and a logout that has begun since the read did wins: it is not put
/// in. So reading begins with [`Sessions::begin_read`], and a logout ends with
/// [`Sessions::end_logout`] when it has been written where others read.
#[derive(Debug)]
pub struct Sessions<T> {
    entries: HashMap<SessionKey, Entry<T>>,
    /// By when they were last used.
    order: BTreeSet<(u64, SessionKey)>,
    /// The same for each subject, by the hash of its name.
    subjects: HashMap<[u8; 32], BTreeSet<(u64, SessionKey)>>,
    bytes: usize,
    logouts: Logouts,
}

impl<T> Default for Sessions<T> {
    fn default() -> Self {
        Self {
            entries: HashMap::new(),
            order: BTreeSet::new(),
            subjects: HashMap::new(),
            bytes: 0,
            logouts: Logouts::default(),
        }
    }
}

impl<T: Clone> Sessions<T> {
    /// Begins to read a session, where it is kept or from the provider.
    pub fn begin_read(&mut self) -> SessionRead {
        self.logouts.begin_read()
    }

    /// Ends a read that has found no session.
    pub fn abandon(&mut self, read: &SessionRead) {
        self.logouts.abandon(read);
    }

    /// Puts a session in that was read and last used at this time. Gives the keys of those that had
    /// to go; `None` when it was logged out meanwhile.
    pub fn put(
        &mut self,
        read: &SessionRead,
        (key, session, made): (SessionKey, Arc<Session>, T),
        (seen, now): (u64, u64),
        limits: Limits,
    ) -> Option<Vec<SessionKey>> {
        if !self.logouts.end_read(read, &key, &session) {
            return None;
        }
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
        let of_subject = self.subjects.entry(of_subject(&session)).or_default();
        of_subject.insert((seen, key));
        let entry = Entry {
            session,
            made,
            seen,
            bytes,
        };
        self.entries.insert(key, entry);
        Some(gone)
    }

    /// The session of a key, which is used now. One that is over is none any more.
    pub fn get(&mut self, key: &SessionKey, now: u64, limits: Limits) -> Option<StoredSession<T>> {
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
            if let Some(of_subject) = self.subjects.get_mut(&of_subject(&entry.session)) {
                of_subject.remove(&(seen, *key));
                of_subject.insert((now, *key));
            }
            entry.seen = now;
        }
        Some(StoredSession {
            session: Arc::clone(&entry.session),
            made: entry.made.clone(),
            seen,
            is_noted,
        })
    }

    /// Whether there is a session of this key, which is not used by that.
    #[must_use]
    pub fn contains(&self, key: &SessionKey) -> bool {
        self.entries.contains_key(key)
    }

    /// Replaces a session by one with newer claims, which were read; false when it has ended
    /// meanwhile.
    pub fn renew(
        &mut self,
        read: &SessionRead,
        (key, session, made): (&SessionKey, Arc<Session>, T),
    ) -> bool {
        if !self.logouts.end_read(read, key, &session) {
            self.remove(key);
            return false;
        }
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

    fn remove(&mut self, key: &SessionKey) -> Option<Arc<Session>> {
        let entry = self.entries.remove(key)?;
        self.order.remove(&(entry.seen, *key));
        let subject = of_subject(&entry.session);
        if let Some(of_subject) = self.subjects.get_mut(&subject) {
            of_subject.remove(&(entry.seen, *key));
            if of_subject.is_empty() {
                self.subjects.remove(&subject);
            }
        }
        self.bytes = self.bytes.saturating_sub(entry.bytes);
        Some(entry.session)
    }

    /// Ends sessions, and keeps those out that are being read. Gives those that were here. To find
    /// those of a party it looks at all: this is rare.
    pub fn log_out(
        &mut self,
        of: LogoutOf,
        now: u64,
    ) -> (Vec<(SessionKey, Arc<Session>)>, LogoutUnderWay) {
        let keys: Vec<SessionKey> = match &of {
            LogoutOf::One(key) => vec![*key],
            LogoutOf::Party { .. } => {
                let all = self.entries.iter();
                let ended = all.filter(|(key, entry)| of.means(key, &entry.session));
                ended.map(|(key, _)| *key).collect()
            }
        };
        let ended = keys.into_iter();
        let ended = ended.filter_map(|key| Some((key, self.remove(&key)?)));
        (ended.collect(), self.logouts.begin(of, now))
    }

    /// Says how the writing of a logout has ended.
    pub fn end_logout(&mut self, logout: &LogoutUnderWay, written: LogoutWritten) {
        self.logouts.end(logout, written);
    }

    /// The session of a subject that has stood still longest, when it has more than these.
    #[must_use]
    pub fn surplus(&self, subject: &str, most: usize) -> Option<SessionKey> {
        let of_subject = self.subjects.get(&sha256(subject.as_bytes()))?;
        let (_, key) = of_subject.first().filter(|_| of_subject.len() > most)?;
        Some(*key)
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

fn of_subject(session: &Session) -> [u8; 32] {
    sha256(session.subject.as_bytes())
}

/// Whether a session that was last used at this time is neither over nor idle for too long.
fn is_good(session: &Session, seen: u64, now: u64, limits: Limits) -> bool {
    now < session.ends && now < seen.saturating_add(limits.idle)
}
