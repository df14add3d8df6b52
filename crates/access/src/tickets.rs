//! Tickets: one-use secrets that stand for a credential for 30 seconds, so that a page can open an
//! `EventSource` or a `WebSocket`, which set no header fields. [`Tickets`] is the table of those
//! that have been given, [`Grant`] is what a ticket stands for, and a
//! [`Sealer`](crate::sealer::Sealer) makes of that the value of a cookie by which a page comes
//! again.

mod grant;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use base64ct::{Base64UrlUnpadded, Encoding};
use hashbrown::HashMap;

pub use grant::Grant;

use crate::random;
use crate::sha256::sha256;

/// How long a ticket is good for.
pub const TICKET_LIFETIME: Duration = Duration::from_secs(30);
/// The characters of a ticket: 32 bytes in base64url (RFC 4648, section 5).
pub const TICKET_LENGTH: usize = 43;

/// How much the table holds. A ticket that has been used counts until its time is over: nobody gets
/// more of them by using them up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Tickets of all callers; at least 1.
    pub tickets_max: usize,
    /// Tickets of one caller; at least 1.
    pub per_caller_max: usize,
    /// Bytes of what the tickets stand for that have not been used.
    pub bytes_max: usize,
}

impl Default for Bounds {
    /// 65,536 tickets in 30 s, 64 of them for one caller, and 64 MiB.
    fn default() -> Self {
        Self {
            tickets_max: 65_536,
            per_caller_max: 64,
            bytes_max: 64 << 20,
        }
    }
}

/// A secret of 256 random bits.
pub struct Secret([u8; 32]);

impl Secret {
    /// A new one; `None` when the system has no random bytes.
    #[must_use]
    pub fn random() -> Option<Self> {
        random::bytes().map(Self)
    }

    /// One of these bytes, for tests.
    #[must_use]
    pub fn of(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The ticket as the caller gets it: [`TICKET_LENGTH`] characters.
    #[must_use]
    pub fn text(&self) -> String {
        Base64UrlUnpadded::encode_string(&self.0)
    }
}

/// Why no ticket is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The caller has as many as it may have; the next one may come after this time.
    Caller(Duration),
    /// The table is full.
    Full,
}

/// Why a ticket is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// It has never been given, or its time is over.
    Unknown,
    /// It has been used.
    Used,
    /// It is for another path, where it is still good.
    Elsewhere,
}

/// The tickets of a process, of which each is taken once, whichever worker asks. It has their
/// SHA-256 in place of the tickets: neither a look at the memory nor the time of a look-up tells
/// one, since nobody can choose a hash by its beginning.
#[derive(Debug)]
pub struct Tickets {
    bounds: Bounds,
    given: HashMap<[u8; 32], Option<Grant>>,
    /// In the order in which they end, which is that in which they were given.
    ends: VecDeque<(Instant, [u8; 32], Caller)>,
    /// When the tickets of each caller end.
    callers: HashMap<Caller, VecDeque<Instant>>,
    bytes: usize,
}

/// The hash of a caller's way and id.
type Caller = [u8; 32];

impl Tickets {
    /// None yet. Bounds of 0 are taken as 1.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds: Bounds {
                tickets_max: bounds.tickets_max.max(1),
                per_caller_max: bounds.per_caller_max.max(1),
                bytes_max: bounds.bytes_max,
            },
            given: HashMap::new(),
            ends: VecDeque::new(),
            callers: HashMap::new(),
            bytes: 0,
        }
    }

    /// Gives a ticket to the caller that its way knows by this id.
    ///
    /// # Errors
    /// When the caller or all callers have too many.
    pub fn give(
        &mut self,
        secret: &Secret,
        (way, id): (&str, &str),
        grant: Grant,
        now: Instant,
    ) -> Result<(), Refusal> {
        self.forget(now);
        let caller = sha256(format!("{}:{way}{id}", way.len()).as_bytes());
        let bytes = grant.bytes();
        if let Some(ends) = self.callers.get(&caller)
            && ends.len() >= self.bounds.per_caller_max
        {
            let wait = ends.front().map(|end| end.saturating_duration_since(now));
            return Err(Refusal::Caller(wait.unwrap_or_default()));
        }
        let has_room = self.ends.len() < self.bounds.tickets_max
            && bytes <= self.bounds.bytes_max.saturating_sub(self.bytes);
        if !has_room {
            return Err(Refusal::Full);
        }
        let hash = sha256(secret.text().as_bytes());
        let end = now + TICKET_LIFETIME;
        self.given.insert(hash, Some(grant));
        self.ends.push_back((end, hash, caller));
        self.callers.entry(caller).or_default().push_back(end);
        self.bytes += bytes;
        Ok(())
    }

    /// Takes a ticket for this path: it is good no more, whatever comes of this.
    ///
    /// # Errors
    /// When it is not there, or for another path.
    pub fn take(&mut self, ticket: &[u8], path: &str, now: Instant) -> Result<Grant, NotTaken> {
        self.forget(now);
        let grant = self.given.get_mut(&sha256(ticket));
        let grant = grant.ok_or(NotTaken::Unknown)?;
        let is_elsewhere = |it: &mut Grant| it.path != path;
        if grant.as_mut().is_some_and(is_elsewhere) {
            return Err(NotTaken::Elsewhere);
        }
        let grant = grant.take().ok_or(NotTaken::Used)?;
        self.bytes -= grant.bytes();
        Ok(grant)
    }

    /// How many have been given whose time is not over, used ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The bytes of what unused ones stand for.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn forget(&mut self, now: Instant) {
        while let Some((end, ..)) = self.ends.front()
            && *end <= now
        {
            let Some((_, hash, caller)) = self.ends.pop_front() else {
                return;
            };
            if let Some(Some(grant)) = self.given.remove(&hash) {
                self.bytes -= grant.bytes();
            }
            if let Some(ends) = self.callers.get_mut(&caller) {
                ends.pop_front();
                if ends.is_empty() {
                    self.callers.remove(&caller);
                }
            }
        }
        // What one busy minute has needed is not kept for ever.
        if self.ends.is_empty() && self.ends.capacity() > 1024 {
            (self.given, self.ends) = Default::default();
            self.callers = HashMap::new();
        }
    }
}
