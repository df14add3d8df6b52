//! What all limits of the process share: the key of their callers' hashes, and the list of those
//! that outlive a restart.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use super::hash::siphash13;
use super::limiter::{Limiter, LimiterSettings};
use super::table::CallerHash;
use crate::state::{State, StateKey, States};

/// Who is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Id<'a> {
    /// All callers together.
    Everybody,
    /// The client with this address; of IPv6, all addresses of its network of 64 bits (RFC 6177).
    Address(IpAddr),
    /// The caller whom this way knows by this id.
    Caller(&'a str, &'a str),
    /// Whoever an expression gives this value for.
    Value(&'a [u8]),
}

/// What all limits of the process share.
#[derive(Default)]
pub struct KeptLimits {
    key: OnceLock<(u64, u64)>,
    limits: Mutex<Vec<KeptLimit>>,
}

struct KeptLimit {
    name: String,
    limiter: Weak<Limiter>,
    is_restored: bool,
}

impl State for KeptLimits {}

impl KeptLimits {
    /// The one of these states.
    pub fn of(states: &States) -> Arc<Self> {
        states.get(StateKey::shared("", "limits"), Self::default)
    }

    /// The limit that belongs there, made when it is not there yet. One with a window of an hour or
    /// more outlives a restart if its place and its windows stay the same.
    pub fn limiter(states: &States, place: StateKey, settings: &LimiterSettings) -> Arc<Limiter> {
        let kept = Self::of(states);
        let windows = settings.windows.iter();
        let windows: Vec<String> = windows
            .map(|it| format!("{} {:?} {}", it.count, it.per, it.burst))
            .collect();
        let name = format!("{}/{}/{}", place.flow, place.step, windows.join(","));
        let limiter = states.get(place, || Limiter::new(settings, &kept));
        if limiter.is_long() {
            kept.register(name, &limiter);
        }
        limiter
    }

    fn register(&self, name: String, limiter: &Arc<Limiter>) {
        let mut limits = self.limits();
        limits.retain(|it| it.limiter.strong_count() > 0);
        let same = |it: &KeptLimit| it.limiter.ptr_eq(&Arc::downgrade(limiter));
        if !limits.iter().any(same) {
            limits.push(KeptLimit {
                name,
                limiter: Arc::downgrade(limiter),
                is_restored: false,
            });
        }
    }

    fn limits(&self) -> MutexGuard<'_, Vec<KeptLimit>> {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is a limit that outlives a restart.
    pub fn is_needed(&self) -> bool {
        !self.all().is_empty()
    }

    /// The limits that outlive a restart, by the names under which they are kept.
    pub fn all(&self) -> Vec<(String, Arc<Limiter>)> {
        let limits = self.limits();
        let alive = limits
            .iter()
            .filter_map(|it| Some((it.name.clone(), it.limiter.upgrade()?)));
        alive.collect()
    }

    /// Those of them for which what has been kept is to be read. Each is given once.
    pub fn take_new(&self) -> Vec<(String, Arc<Limiter>)> {
        let mut limits = self.limits();
        let new = limits.iter_mut().filter_map(|it| {
            let is_new = !std::mem::replace(&mut it.is_restored, true);
            let limiter = it.limiter.upgrade().filter(|_| is_new)?;
            Some((it.name.clone(), limiter))
        });
        new.collect()
    }

    /// The key of the hashes, made when there is none yet.
    pub fn key(&self) -> (u64, u64) {
        *self.key.get_or_init(random_key)
    }

    /// Uses the key that has been kept, unless hashes have been made with another one already. The
    /// one that is used.
    pub fn set_key(&self, key: (u64, u64)) -> (u64, u64) {
        *self.key.get_or_init(|| key)
    }

    /// The hash of a caller: SipHash-1-3 of 128 bits under a secret key, so that nobody can choose
    /// ids that fall together. The id itself is kept nowhere.
    #[inline]
    pub fn hash(&self, id: Id<'_>) -> CallerHash {
        let (first, second) = self.key();
        // A key of its own for each kind, so that no value is taken for an address.
        let keyed = |kind: u64, message: &[u8]| siphash13((first, second ^ kind), message);
        let (low, high) = match id {
            // The only one in its table.
            Id::Everybody => return CallerHash(1, 0),
            Id::Address(address) => match address.to_canonical() {
                IpAddr::V4(address) => {
                    let bits = u64::from(u32::from(address));
                    keyed(4, &bits.to_le_bytes())
                }
                IpAddr::V6(address) => {
                    let network = (u128::from(address) >> 64) as u64;
                    keyed(6, &network.to_le_bytes())
                }
            },
            Id::Caller(way, id) => {
                let mut message = Vec::with_capacity(size_of::<u64>() + way.len() + id.len());
                message.extend((way.len() as u64).to_le_bytes());
                message.extend(way.as_bytes());
                message.extend(id.as_bytes());
                keyed(2, &message)
            }
            Id::Value(value) => keyed(1, value),
        };
        // 0 stands for a free slot.
        CallerHash(low.max(1), high)
    }
}

fn random_key() -> (u64, u64) {
    // Each of these is seeded anew from the random numbers of the system.
    let random = || RandomState::new().build_hasher().finish();
    (random(), random())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_of_64_bits_is_one_caller_and_values_are_no_addresses() {
        let kept = KeptLimits::default();
        let address = |text: &str| kept.hash(Id::Address(text.parse().unwrap()));
        assert_eq!(address("2001:db8:1:2::1"), address("2001:db8:1:2:ffff::9"));
        assert_ne!(address("2001:db8:1:2::1"), address("2001:db8:1:3::1"));
        assert_eq!(address("::ffff:192.0.2.1"), address("192.0.2.1"));
        assert_ne!(address("192.0.2.1"), kept.hash(Id::Value(&[192, 0, 2, 1])));
        assert_ne!(kept.hash(Id::Everybody), kept.hash(Id::Value(b"")));
        let other = KeptLimits::default();
        assert_ne!(kept.hash(Id::Value(b"a")), other.hash(Id::Value(b"a")));
    }
}
