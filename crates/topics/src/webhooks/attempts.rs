//! What endpoints have answered to the last requests: in memory, bounded for the whole process, the
//! oldest of all endpoints forgotten first.

use std::collections::VecDeque;
use std::fmt;
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use component::state::{State, StateKey, States};
use hashbrown::{DefaultHashBuilder, HashTable};
use message::secret;

use crate::event::EventId;
use crate::frame::Kind;

/// The most bytes of all of them.
const BYTES_MAX: usize = 64 << 20;
/// They are divided, so that workers seldom wait for each other.
const SHARDS: usize = 16;
/// The most attempts of one endpoint.
const EACH_MAX: usize = 50;
/// How many characters of a reply are kept.
const SHOWN_MAX: usize = 200;
/// The least bytes of the beginning of a secret that are taken for a part of it.
const CUT_MIN: usize = 6;
/// What an attempt takes beside its texts: itself, its place in the order, its endpoint's.
const OVERHEAD: usize = 176;

/// The `webhook-id` of a request. Most are ids of events and are stored as numbers: to drop an old
/// attempt then touches no text elsewhere in memory, which would be a cache miss for each delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum WebhookId {
    Event(EventId),
    /// That of a batch, a gap, a challenge or a test.
    Text(Arc<str>),
}

impl fmt::Display for WebhookId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(id) => id.fmt(formatter),
            Self::Text(text) => text.fmt(formatter),
        }
    }
}

impl WebhookId {
    /// The bytes of its text, if it has one.
    fn size(&self) -> usize {
        match self {
            Self::Event(_) => 0,
            Self::Text(text) => text.len(),
        }
    }
}

/// A request to an endpoint, and what has come of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    /// When it was sent, in milliseconds since 1970.
    pub at_ms: u64,
    /// What kind of event it was; none when it was a challenge or a test.
    pub kind: Option<Kind>,
    /// How long it took, in milliseconds.
    pub took_ms: u64,
    /// The `webhook-id` that was sent.
    pub id: WebhookId,
    /// The status of the reply; none when there was no reply.
    pub status: Option<u16>,
    /// Whether it has been accepted.
    pub is_accepted: bool,
    /// The beginning of the reply, or why there was none; without secrets.
    pub shown: Box<str>,
}

/// The beginning of a reply as others may see it: without what is registered as a secret, and
/// without these texts. It is cut last, so that no part of a secret is left.
pub(super) fn redacted(body: &[u8], secrets: &[String]) -> Box<str> {
    if body.is_empty() {
        return Box::default();
    }
    let text = String::from_utf8_lossy(body);
    let mut text = secret::redact(text.trim()).into_owned();
    for own in secrets.iter().filter(|it| !it.is_empty()) {
        text = text.replace(own.as_str(), secret::MASK);
        if let Some(bare) = own.strip_prefix("whsec_") {
            text = text.replace(bare, secret::MASK);
        }
        mask_cut(&mut text, own);
    }
    let is_shown = |it: &char| !it.is_control();
    text.chars().filter(is_shown).take(SHOWN_MAX).collect()
}

/// Masks the beginning of a secret at the end of a text: the body has been cut there.
fn mask_cut(text: &mut String, own: &str) {
    let beginnings = (CUT_MIN..own.len()).rev();
    let mut beginnings = beginnings.filter_map(|end| own.get(..end));
    if let Some(cut) = beginnings.find(|it| text.ends_with(it)) {
        text.truncate(text.len() - cut.len());
        text.push_str(secret::MASK);
    }
}

impl Attempt {
    fn size(&self) -> usize {
        OVERHEAD + self.id.size() + self.shown.len()
    }
}

/// The topic and the name of an endpoint.
type Key = (Arc<str>, Arc<str>);
/// The same of a caller.
type KeyRef<'a> = (&'a Arc<str>, &'a Arc<str>);

fn owned((topic, name): KeyRef<'_>) -> Key {
    (Arc::clone(topic), Arc::clone(name))
}

/// The attempts of an endpoint.
struct EndpointAttempts {
    key: Key,
    /// The hash of the key.
    hash: u64,
    attempts: VecDeque<Attempt>,
}

impl EndpointAttempts {
    fn is(&self, (topic, name): KeyRef<'_>) -> bool {
        self.key.1 == *name && self.key.0 == *topic
    }
}

#[derive(Default)]
struct Shard {
    endpoints: HashTable<EndpointAttempts>,
    /// The endpoints of all attempts with the hashes of their keys, the oldest first.
    order: VecDeque<(u64, Key)>,
    bytes: usize,
}

impl Shard {
    /// An endpoint that has as many as it may loses its first one: then nothing is copied but the
    /// attempt, for each request comes by here.
    fn add(&mut self, (hash, key): (u64, KeyRef<'_>), attempt: Attempt, bytes_max: usize) {
        self.bytes += attempt.size();
        let entry = self.endpoints.entry(hash, |it| it.is(key), |it| it.hash);
        let new = || EndpointAttempts {
            key: owned(key),
            hash,
            attempts: VecDeque::new(),
        };
        let all = &mut entry.or_insert_with(new).into_mut().attempts;
        if all.len() == all.capacity() && all.len() < EACH_MAX {
            // The last growth is to exactly `EACH_MAX`: a new attempt overwrites the oldest then.
            all.reserve_exact(all.len().clamp(1, EACH_MAX - all.len()));
        }
        if all.len() >= EACH_MAX
            && let Some(first) = all.pop_front()
        {
            // The place of the one that goes stands for the next one: there is one for each.
            self.bytes -= first.size();
        } else {
            self.order.push_back((hash, owned(key)));
        }
        all.push_back(attempt);
        while self.bytes > bytes_max
            && let Some((hash, (topic, name))) = self.order.pop_front()
        {
            self.forget_first(hash, (&topic, &name));
        }
    }

    fn forget_first(&mut self, hash: u64, key: KeyRef<'_>) {
        let Ok(mut found) = self.endpoints.find_entry(hash, |it| it.is(key)) else {
            return;
        };
        let all = &mut found.get_mut().attempts;
        if let Some(first) = all.pop_front() {
            self.bytes -= first.size();
        }
        if all.is_empty() {
            found.remove();
        }
    }

    fn find(&self, hash: u64, key: KeyRef<'_>) -> Option<&VecDeque<Attempt>> {
        let found = self.endpoints.find(hash, |it| it.is(key));
        found.map(|it| &it.attempts)
    }
}

/// What endpoints have answered to the last requests.
#[derive(Default)]
pub(crate) struct Attempts {
    shards: [Mutex<Shard>; SHARDS],
    hasher: DefaultHashBuilder,
}

impl State for Attempts {}

impl Attempts {
    /// Those of the process.
    pub fn of(states: &States) -> Arc<Self> {
        states.get(StateKey::shared("", "webhook attempts"), Self::default)
    }

    /// The hash of a key, and where its attempts are.
    fn shard(&self, key: KeyRef<'_>) -> (u64, MutexGuard<'_, Shard>) {
        let hash = self.hasher.hash_one(key);
        // Not by the bits that the table goes by.
        let at = (hash >> 32) as usize % SHARDS;
        let [first, ..] = &self.shards;
        let shard = self.shards.get(at).unwrap_or(first);
        (hash, shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Keeps an attempt.
    pub(super) fn add(&self, key: KeyRef<'_>, attempt: Attempt) {
        let (hash, mut shard) = self.shard(key);
        shard.add((hash, key), attempt, BYTES_MAX / SHARDS);
    }

    /// Those of an endpoint, the newest first.
    pub(super) fn list(&self, key: KeyRef<'_>) -> Vec<Attempt> {
        let (hash, shard) = self.shard(key);
        let all = shard.find(hash, key).into_iter().flatten();
        all.rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(number: u64, size: usize) -> Attempt {
        Attempt {
            at_ms: number,
            kind: Some(Kind::Event),
            took_ms: 1,
            id: WebhookId::Text("1-1".into()),
            status: Some(200),
            is_accepted: true,
            shown: "x".repeat(size).into(),
        }
    }

    fn key(name: &str) -> Key {
        ("t".into(), name.into())
    }

    #[test]
    fn the_oldest_are_forgotten_first_and_the_bytes_are_bounded() {
        let mut shard = Shard::default();
        let add = |shard: &mut Shard, name: &str, attempt, bytes_max| {
            let (topic, name) = key(name);
            shard.add((name.len() as u64, (&topic, &name)), attempt, bytes_max);
        };
        let each = attempt(0, 100).size();
        for number in 0..10 {
            let name = if number % 2 == 0 { "even" } else { "odd" };
            add(&mut shard, name, attempt(number, 100), 4 * each);
            assert!(shard.bytes <= 4 * each);
        }
        let times = |name: &str| -> Vec<u64> {
            let (topic, name) = key(name);
            let all = shard.find(name.len() as u64, (&topic, &name)).unwrap();
            all.iter().map(|it| it.at_ms).collect()
        };
        assert_eq!((times("even"), times("odd")), (vec![6, 8], vec![7, 9]));
        add(&mut shard, "large", attempt(10, 10 * each), 4 * each);
        assert!(shard.endpoints.is_empty() && shard.order.is_empty() && shard.bytes == 0);
    }

    #[test]
    fn an_endpoint_has_the_newest_first_and_not_more_than_it_may() {
        let attempts = Attempts::default();
        let (topic, name): Key = key("one");
        for number in 0..EACH_MAX as u64 + 20 {
            attempts.add((&topic, &name), attempt(number, 1));
        }
        let all = attempts.list((&topic, &name));
        assert_eq!(all.len(), EACH_MAX);
        assert_eq!(all[0].at_ms, EACH_MAX as u64 + 19);
        assert!(all.is_sorted_by(|a, b| a.at_ms > b.at_ms));
        assert!(attempts.list((&topic, &"other".into())).is_empty());
        let (_, shard) = attempts.shard((&topic, &name));
        assert_eq!(shard.bytes, EACH_MAX * attempt(0, 1).size());
        assert_eq!(shard.order.len(), EACH_MAX, "it does not grow either");
        drop(shard);
    }

    #[test]
    fn replies_are_shown_without_secrets_and_cut() {
        let secrets = ["whsec_abcdefgh".to_owned()];
        let shown = |text: &str| redacted(text.as_bytes(), &secrets);
        assert_eq!(&*shown(" no: whsec_abcdefgh\r\n!"), "no: ***!");
        assert_eq!(&*shown("abcdefgh"), "***");
        let long = format!("{}whsec_abcdefgh", "x".repeat(SHOWN_MAX - 3));
        assert!(!shown(&long).contains("whs"), "a part of it");
        let cut = shown("{\"got\":\"whsec_abcd");
        assert_eq!(&*cut, "{\"got\":\"***", "the body was cut there");
        assert_eq!(shown(&"é".repeat(1000)).chars().count(), SHOWN_MAX);
    }
}
