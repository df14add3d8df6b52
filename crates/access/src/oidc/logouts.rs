//! Logouts that are under way while sessions are read into memory: whichever read they overlap, the
//! logout wins.
//!
//! A session is read from the data folder, or made of an answer of the provider, and only then put
//! into the table. A logout removes from the table what is there, and then writes what it has ended
//! to the data folder. So a read that has seen the session before the logout was written must not
//! put it into the table after the logout has looked there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::sessions::{Session, SessionKey};

/// Upper bound of the logouts that are kept because reads overlap them. Reads that began before the
/// end of one that had to go put nothing into the table.
const STORED_MAX: usize = 65_536;
/// Upper bound of the logouts that are kept because they could not be written.
const UNWRITTEN_MAX: usize = 10_000;

/// Whose sessions a logout ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogoutOf {
    /// The session of a browser.
    One(SessionKey),
    /// The sessions of a subject, those of this name at the provider, or those that are of both.
    Party {
        /// Who has logged in.
        subject: Option<String>,
        /// The session at the provider.
        session: Option<String>,
    },
}

impl LogoutOf {
    /// Whether it ends a session of this key.
    #[must_use]
    pub fn means(&self, key: &SessionKey, session: &Session) -> bool {
        match self {
            Self::One(one) => one == key,
            Self::Party {
                subject,
                session: name,
            } => session.is_of(subject.as_deref(), name.as_deref()),
        }
    }
}

/// A session that is being read. It goes back to the table, whatever comes of it.
#[derive(Debug)]
#[must_use]
pub struct SessionRead(u64);

/// A logout that has not been written yet.
#[derive(Debug)]
#[must_use]
pub struct LogoutUnderWay(u64);

/// How the writing of a logout has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogoutWritten {
    /// Whoever reads from now on sees it.
    Stored,
    /// It may not be there: it is remembered until this time, in seconds since 1970.
    Failed {
        /// No session that it means lasts longer.
        until: u64,
    },
}

#[derive(Debug)]
struct Logout {
    of: LogoutOf,
    /// When it began: its number, and the time in seconds since 1970.
    began: u64,
    at: u64,
}

impl Logout {
    /// Whether it ends a session that was read since this number.
    fn ends(&self, since: u64, key: &SessionKey, session: &Session) -> bool {
        let is_before = match self.of {
            LogoutOf::One(_) => true,
            // Whoever logs in after it is in, though it is not written yet.
            LogoutOf::Party { .. } => since < self.began || session.began <= self.at,
        };
        is_before && self.of.means(key, session)
    }
}

/// The logouts that matter to reads under way or to come.
#[derive(Debug, Default)]
pub(super) struct Logouts {
    /// Numbers everything that begins or ends.
    clock: u64,
    /// The reads under way, by when they began.
    reads: BTreeSet<u64>,
    /// The logouts that are being written, by when they began.
    running: BTreeMap<u64, Logout>,
    /// Those that were written while a read was under way that still is, with when that was.
    stored: VecDeque<(u64, Logout)>,
    /// Those that could not be written, with the time until which they are remembered.
    unwritten: VecDeque<(u64, Logout)>,
    /// Reads that began before this put nothing into the table.
    floor: u64,
}

impl Logouts {
    fn next(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    pub fn begin_read(&mut self) -> SessionRead {
        let number = self.next();
        self.reads.insert(number);
        SessionRead(number)
    }

    /// Ends a read of a session; whether the session may be put into the table.
    pub fn end_read(&mut self, read: &SessionRead, key: &SessionKey, session: &Session) -> bool {
        let since = read.0;
        let ends = |logout: &Logout| logout.ends(since, key, session);
        let first = self.stored.partition_point(|(stored, _)| *stored < since);
        let is_ended = since < self.floor
            || self.running.values().any(ends)
            || self.stored.range(first..).any(|(_, it)| ends(it))
            || self.unwritten.iter().any(|(_, it)| ends(it));
        self.abandon(read);
        !is_ended
    }

    /// Ends a read that has found nothing.
    pub fn abandon(&mut self, read: &SessionRead) {
        self.reads.remove(&read.0);
        // Those that all reads under way have begun after are seen by them.
        let oldest = self.reads.first().copied().unwrap_or(u64::MAX);
        while self.stored.front().is_some_and(|it| it.0 < oldest) {
            self.stored.pop_front();
        }
    }

    pub fn begin(&mut self, of: LogoutOf, now: u64) -> LogoutUnderWay {
        self.unwritten.retain(|(until, _)| *until > now);
        let began = self.next();
        self.running.insert(began, Logout { of, began, at: now });
        LogoutUnderWay(began)
    }

    pub fn end(&mut self, logout: &LogoutUnderWay, written: LogoutWritten) {
        let Some(logout) = self.running.remove(&logout.0) else {
            return;
        };
        match written {
            LogoutWritten::Stored if self.reads.is_empty() => {}
            LogoutWritten::Stored => {
                let stored = self.next();
                if self.stored.len() >= STORED_MAX
                    && let Some((dropped, _)) = self.stored.pop_front()
                {
                    self.floor = dropped;
                }
                self.stored.push_back((stored, logout));
            }
            LogoutWritten::Failed { until } => {
                if self.unwritten.len() >= UNWRITTEN_MAX {
                    self.unwritten.pop_front();
                }
                self.unwritten.push_back((until, logout));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;

    fn session() -> (SessionKey, Session) {
        let text = serde_json::json!({ "claims": {}, "subject": "ann", "id_token": "",
            "nonce": "", "scopes": [], "began": NOW - 9, "ends": NOW + 9 });
        (Session::key(b"a"), serde_json::from_value(text).unwrap())
    }

    #[test]
    fn what_is_kept_is_bounded_and_ends_with_the_reads() {
        let (key, session) = session();
        let mut logouts = Logouts::default();
        let read = logouts.begin_read();
        let other = |number: u64| LogoutOf::One(Session::key(&number.to_be_bytes()));
        let first = logouts.begin(LogoutOf::One(key), NOW);
        logouts.end(&first, LogoutWritten::Stored);
        for number in 0..STORED_MAX as u64 {
            let logout = logouts.begin(other(number), NOW);
            logouts.end(&logout, LogoutWritten::Stored);
        }
        assert_eq!(logouts.stored.len(), STORED_MAX);
        let late = logouts.begin_read();
        assert!(!logouts.end_read(&read, &key, &session), "it is forgotten");
        assert_eq!(logouts.stored.len(), 0);
        assert!(logouts.end_read(&late, &key, &session));
        for number in 0..2 * UNWRITTEN_MAX as u64 {
            let logout = logouts.begin(other(number), NOW);
            let until = NOW + 100;
            logouts.end(&logout, LogoutWritten::Failed { until });
        }
        assert_eq!(logouts.unwritten.len(), UNWRITTEN_MAX);
        let last = logouts.begin(other(0), NOW + 100);
        logouts.end(&last, LogoutWritten::Stored);
        assert_eq!(logouts.unwritten.len(), 0);
        assert!(logouts.running.is_empty() && logouts.stored.is_empty());
    }

    #[test]
    fn one_that_is_not_written_is_remembered() {
        let (key, session) = session();
        let mut logouts = Logouts::default();
        let of = LogoutOf::Party {
            subject: Some("ann".to_owned()),
            session: None,
        };
        let logout = logouts.begin(of, NOW);
        logouts.end(&logout, LogoutWritten::Failed { until: NOW + 9 });
        let read = logouts.begin_read();
        assert!(!logouts.end_read(&read, &key, &session));
        let later = Session {
            began: NOW + 1,
            ..session
        };
        let read = logouts.begin_read();
        assert!(logouts.end_read(&read, &key, &later));
    }
}
