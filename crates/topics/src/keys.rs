//! The idempotency keys that a topic remembers, so that what is published twice is one event.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use sha2::Digest as _;

/// How long a key is remembered.
pub(crate) const AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// How many keys are remembered.
const COUNT_MAX: usize = 100_000;

/// What a stored key begins with that has a digest: the digest and the name are behind it.
const WITH_DIGEST: [u8; 2] = [0, b's'];
/// What older versions have put there, before 8 bytes of FNV-1a and the name. Publishers can make
/// two events with the same one, so that it tells nothing.
const WITH_FNV: [u8; 2] = [0, b'h'];
/// The bytes of [`WITH_FNV`] before the name.
const FNV_LENGTH: usize = 10;

/// What tells events apart: the first 16 bytes of SHA-256.
pub(crate) type Digest = [u8; 16];

/// The key of a publication.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// What the publisher has given.
    pub name: Bytes,
    /// What tells the event from others; not known of keys that older versions have stored.
    pub digest: Option<Digest>,
}

/// What the name of a key begins with that a known caller has given: a digest of the caller and
/// what it has given are behind it.
const OF_CALLER: [u8; 2] = [0, b'c'];
/// What is put before a name of somebody unknown that begins with a zero byte, so that nobody can
/// give a key of a caller.
const ESCAPED: [u8; 2] = [0, b'n'];

/// The key as it is compared, so that callers do not meet those of others.
pub(crate) fn scoped(given: Bytes, caller: Option<&Digest>) -> Bytes {
    match caller {
        Some(caller) => [&OF_CALLER[..], caller, &given].concat().into(),
        None if given.starts_with(&[0]) => [&ESCAPED[..], &given].concat().into(),
        None => given,
    }
}

impl Key {
    /// The key of this event.
    pub fn of(name: Bytes, event: &[u8]) -> Self {
        let digest = Some(digest(event));
        Self { name, digest }
    }

    /// As it stands beside the event.
    pub fn stored(&self) -> Bytes {
        let Some(digest) = &self.digest else {
            return self.name.clone();
        };
        Bytes::from([&WITH_DIGEST[..], digest, &self.name].concat())
    }

    /// What has been stored.
    pub fn read(stored: Bytes) -> Self {
        let rest = stored.strip_prefix(&WITH_DIGEST);
        if let Some((digest, name)) = rest.and_then(<[u8]>::split_first_chunk) {
            return Self {
                name: stored.slice_ref(name),
                digest: Some(*digest),
            };
        }
        let is_fnv = stored.starts_with(&WITH_FNV) && stored.len() > FNV_LENGTH;
        Self {
            name: match is_fnv {
                true => stored.slice(FNV_LENGTH..),
                false => stored,
            },
            digest: None,
        }
    }
}

/// What tells texts apart, also those that somebody has made to look alike.
pub(crate) fn digest(bytes: &[u8]) -> Digest {
    let whole = sha2::Sha256::digest(bytes);
    let mut digest = Digest::default();
    for (to, from) in digest.iter_mut().zip(whole) {
        *to = from;
    }
    digest
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// This event has been published with it.
    Same(u64),
    /// Another event has.
    Other,
}

/// The keys of a topic.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    events: HashMap<Bytes, (u64, Option<Digest>)>,
    /// In the order in which they came, with the time in milliseconds.
    order: VecDeque<(Bytes, u64)>,
}

impl Keys {
    /// What is known of a key, if it has come before.
    pub fn get(&self, key: &Key) -> Option<Known> {
        let (sequence, digest) = *self.events.get(&key.name)?;
        let is_other = digest.zip(key.digest).is_some_and(|(had, has)| had != has);
        Some(match is_other {
            true => Known::Other,
            false => Known::Same(sequence),
        })
    }

    /// Remembers a key, and forgets old ones.
    pub fn add(&mut self, key: Key, sequence: u64, now_ms: u64) {
        self.forget_old(now_ms);
        let Key { name, digest } = key;
        let before = self.events.insert(name.clone(), (sequence, digest));
        if before.is_none() {
            self.order.push_back((name, now_ms));
        }
    }

    /// Takes back the one that was added last.
    pub fn take_back(&mut self, name: &[u8]) {
        self.events.remove(name);
        if self.order.back().is_some_and(|last| *last.0 == *name) {
            self.order.pop_back();
        }
    }

    fn forget_old(&mut self, now_ms: u64) {
        let age = u64::try_from(AGE_MAX.as_millis()).unwrap_or(u64::MAX);
        let oldest = now_ms.saturating_sub(age);
        while let Some((key, at)) = self.order.front() {
            if *at >= oldest && self.order.len() < COUNT_MAX {
                return;
            }
            self.events.remove(key);
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: usize) -> Key {
        Key::of(Bytes::from(format!("key-{number}")), b"1")
    }

    #[test]
    fn a_key_is_known_until_it_is_old_or_there_are_too_many() {
        let day = u64::try_from(AGE_MAX.as_millis()).unwrap();
        let mut keys = Keys::default();
        keys.add(key(1), 1, 0);
        keys.add(key(2), 2, day);
        let same = |sequence| Some(Known::Same(sequence));
        assert_eq!((keys.get(&key(1)), keys.get(&key(2))), (same(1), same(2)));
        keys.add(key(3), 3, day + 1);
        assert_eq!((keys.get(&key(1)), keys.get(&key(2))), (None, same(2)));
        keys.take_back(&key(3).name);
        assert_eq!((keys.get(&key(3)), keys.order.len()), (None, 1));
        for number in 4..COUNT_MAX + 10 {
            keys.add(key(number), number as u64, day);
        }
        assert_eq!((keys.get(&key(2)), keys.order.len()), (None, COUNT_MAX));
        assert_eq!(keys.events.len(), COUNT_MAX);
    }

    #[test]
    fn keys_belong_to_their_caller() {
        let given = Bytes::from_static(b"A1");
        let (ann, bob) = (digest(b"5:staff3:ann"), digest(b"5:staff3:bob"));
        let of_ann = scoped(given.clone(), Some(&ann));
        // Whoever is not known cannot give the key of a caller.
        let forged = scoped(of_ann.clone(), None);
        let names = [of_ann, scoped(given.clone(), Some(&bob)), forged];
        let mut keys = Keys::default();
        for (number, name) in (1..).zip(&names) {
            let key = Key::of(name.clone(), b"[1]");
            assert_eq!(keys.get(&key), None);
            assert_eq!(Key::read(key.stored()), key);
            keys.add(key, number, 0);
        }
        // Keys of those who are not known are what they were in older versions.
        assert_eq!(scoped(given.clone(), None), given);
    }

    #[test]
    fn a_key_is_read_as_it_is_stored_also_by_older_versions() {
        let new = Key::of(Bytes::from_static(b"a"), b"[1]");
        assert_eq!(Key::read(new.stored()), new);
        assert_eq!(new.stored().len(), 19);
        // SHA-256's own test vector (FIPS 180-4), cut.
        let start = [0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea];
        assert_eq!(digest(b"abc")[..8], start);
        let fnv = Key::read(Bytes::from_static(b"\0h12345678name"));
        assert_eq!((&fnv.name[..], fnv.digest), (&b"name"[..], None));
        for old in [&b"a"[..], b"0h12345678", b"\0h12345678", b"\0s123", b""] {
            let key = Key::read(Bytes::from_static(old));
            assert_eq!((&key.name[..], key.digest), (old, None));
            assert_eq!(key.stored(), old);
        }
        let mut keys = Keys::default();
        keys.add(Key::read(Bytes::from_static(b"a")), 7, 0);
        // Nobody knows what it was: whoever comes with it is taken at his word.
        assert_eq!(keys.get(&new), Some(Known::Same(7)));
        keys.add(Key::of(Bytes::from_static(b"b"), b"[1]"), 8, 0);
        let other = Key::of(Bytes::from_static(b"b"), b"[2]");
        assert_eq!(keys.get(&other), Some(Known::Other));
    }
}
