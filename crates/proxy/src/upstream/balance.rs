//! Which endpoint a request goes to.

use component::upstream::Balance;
use std::rc::Rc;
use tokio::time::Instant;

use super::verdict::Lease;
use super::{Attempt, Upstream};

impl Upstream {
    /// Chooses an endpoint: one that is well, has room and has not failed this request; when there
    /// is none, less will do.
    #[inline]
    pub(super) fn choose(self: &Rc<Self>, now: Instant, attempt: &Attempt) -> Lease {
        let at = match self.members.len() {
            1 => 0,
            _ => self.choose_among(now, attempt),
        };
        Lease::begin(self, at, now)
    }

    fn choose_among(&self, now: Instant, attempt: &Attempt) -> usize {
        let untried = |at: &usize| !attempt.avoid.contains(at);
        let well = |at: &usize| {
            let member = self.members.get(*at);
            member.is_some_and(|it| it.health.is_well(now))
        };
        let pool = self.pool.borrow();
        let room = |at: &usize| pool.has_room(*at);
        let all = || 0..self.members.len();
        let key = attempt.key;
        self.pick(all().filter(|at| untried(at) && well(at) && room(at)), key)
            .or_else(|| self.pick(all().filter(|at| untried(at) && well(at)), key))
            .or_else(|| self.pick(all().filter(untried), key))
            .or_else(|| self.pick(all(), key))
            .unwrap_or(0)
    }

    fn pick(&self, candidates: impl Iterator<Item = usize> + Clone, key: u64) -> Option<usize> {
        match &self.plan.balance {
            Balance::RoundRobin => {
                let next = self.next.get();
                let chosen = candidates
                    .clone()
                    .find(|at| *at >= next)
                    .or_else(|| candidates.clone().next())?;
                self.next.set(chosen + 1);
                Some(chosen)
            }
            Balance::LeastRequests => {
                // Among equals the next in turn, so that idle endpoints share the work.
                let next = self.next.get();
                let count = self.members.len().max(1);
                let chosen = candidates.min_by_key(|at| {
                    let load = self.members.get(*at).map_or(0, |it| it.in_flight.get());
                    (load, (at + count - next % count) % count)
                })?;
                self.next.set(chosen + 1);
                Some(chosen)
            }
            Balance::Hash(_) => candidates.max_by_key(|at| {
                let endpoint = self.members.get(*at).map_or(0, |it| it.id);
                weight(key, endpoint)
            }),
        }
    }
}

/// What a request is hashed to where the balance is by hash: FNV-1a, 64 bits. It is the same in
/// every process and version, so that a key stays with its endpoint across restarts and instances.
pub(crate) fn hash(value: &[u8]) -> u64 {
    value.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// What stands for an endpoint in weights: a hash of its address.
pub(super) fn endpoint_id(host: &str, port: u16) -> u64 {
    hash(format!("{host}:{port}").as_bytes())
}

/// The weight of an endpoint for a key (rendezvous hashing): the two, mixed by the finalizer of
/// SplitMix64.
fn weight(key: u64, endpoint: u64) -> u64 {
    let mut mixed = key ^ endpoint.rotate_left(32);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: [&str; 3] = ["a.example", "b.example", "c.example"];

    fn chosen<'a>(hosts: &[&'a str], key: &str) -> &'a str {
        let key = hash(key.as_bytes());
        let weigh = |host: &&&str| weight(key, endpoint_id(host, 80));
        hosts.iter().max_by_key(weigh).unwrap()
    }

    #[test]
    fn removing_an_endpoint_moves_only_its_keys() {
        for gone in HOSTS {
            let rest: Vec<&str> = HOSTS.into_iter().filter(|host| *host != gone).collect();
            for key in (0..1000).map(|number| format!("user-{number}")) {
                let before = chosen(&HOSTS, &key);
                let after = chosen(&rest, &key);
                assert!(before == gone || before == after, "{key} has moved");
            }
        }
    }

    #[test]
    fn keys_spread_evenly() {
        let mut counts = [0; 3];
        for key in 0..3000 {
            let host = chosen(&HOSTS, &key.to_string());
            counts[HOSTS.iter().position(|it| *it == host).unwrap()] += 1;
        }
        assert!(
            counts.iter().all(|count| (900..1100).contains(count)),
            "{counts:?}"
        );
    }

    #[test]
    fn the_hash_is_the_same_for_ever() {
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
