//! A budget of failed checks for each address, so that nobody can try passwords, keys or tokens, or
//! make us check them, without end. Whoever has used it up is answered with 429 before anything is
//! checked.

mod pending;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::{Duration, Instant};

use hashbrown::HashMap;

pub use self::pending::PendingChecks;

/// How many checks of one address may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// So many at once; at least 1.
    pub burst: u32,
    /// Until one more may fail; at least 1 ms.
    pub refill: Duration,
    /// Addresses that are remembered, each by about 64 bytes; at least 1.
    pub addresses_max: usize,
}

impl Default for Budget {
    /// 20 failures, then 10 in a minute; about 4 MiB at most.
    fn default() -> Self {
        Self {
            burst: 20,
            refill: Duration::from_secs(6),
            addresses_max: 65_536,
        }
    }
}

/// The failed checks of all addresses: a token bucket for each, of which only those that are not
/// full are remembered. The addresses of one IPv6 network of 64 bits share one: each host there has
/// all of them (RFC 4291, section 2.5.4).
///
/// One is for all workers, or an attacker would have a budget on each.
#[derive(Debug)]
pub struct FailedChecks {
    budget: Budget,
    begin: Instant,
    /// When the bucket of an address will be full, in nanoseconds since `begin`. Each failure puts
    /// that off by `refill` (the virtual scheduling form of the leaky bucket, ITU-T I.371).
    full_at: HashMap<Network, u64>,
    /// The same, the next to be full first.
    order: BTreeSet<(u64, Network)>,
}

/// An IPv4 address, or the first 64 bits of an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Network(u64);

impl Network {
    fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => match embedded_v4(address) {
                Some(address) => Self::of_v4(address),
                // The high half fits.
                None => Self(u64::try_from(u128::from(address) >> 64).unwrap_or(u64::MAX)),
            },
        }
    }

    /// It looks like a network below ::/32, which is nobody's (RFC 4291, section 2.4).
    fn of_v4(address: Ipv4Addr) -> Self {
        Self(u64::from(u32::from(address)))
    }
}

/// The IPv4 address of a mapped address, or of one behind the well-known prefix of translators
/// (RFC 6052, section 2.1): all of these are in one network.
fn embedded_v4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
        }
        _ => address.to_ipv4_mapped(),
    }
}

impl FailedChecks {
    /// None yet. Values below the least ones are taken as these.
    #[must_use]
    pub fn new(budget: Budget, now: Instant) -> Self {
        Self {
            budget: Budget {
                burst: budget.burst.max(1),
                refill: budget.refill.max(Duration::from_millis(1)),
                addresses_max: budget.addresses_max.max(1),
            },
            begin: now,
            full_at: HashMap::new(),
            order: BTreeSet::new(),
        }
    }

    /// Whether a check may be made for this address. A check that waits for other threads is to
    /// [`FailedChecks::take`] instead, or many could be begun before the first has failed.
    ///
    /// # Errors
    /// How long until one may be made again, for `Retry-After`.
    pub fn look(&self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        // The usual case: nobody has failed.
        if self.full_at.is_empty() {
            return Ok(());
        }
        let now = self.nanoseconds(now);
        let Some(&full_at) = self.full_at.get(&Network::of(address)) else {
            return Ok(());
        };
        let spent = full_at.saturating_sub(now);
        let most = self.capacity() - self.refill();
        match spent.checked_sub(most) {
            None | Some(0) => Ok(()),
            Some(wait) => Err(Duration::from_nanos(wait)),
        }
    }

    /// Notes that a check has failed.
    pub fn failed(&mut self, address: IpAddr, now: Instant) {
        let now = self.nanoseconds(now);
        self.forget_full(now);
        let network = Network::of(address);
        let before = self.full_at.get(&network).copied();
        if before.is_none() && self.full_at.len() >= self.budget.addresses_max {
            // All have failed lately. The one with the least failures loses its memory.
            if let Some((_, least)) = self.order.pop_first() {
                self.full_at.remove(&least);
            }
        }
        let full_at = before.map_or(now, |it| it.max(now)) + self.refill();
        self.set(network, before, full_at.min(now + self.capacity()));
    }

    /// Begins a check that may take long: it counts as failed until it is given back.
    ///
    /// # Errors
    /// As [`FailedChecks::look`].
    pub fn take(&mut self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        self.look(address, now)?;
        self.failed(address, now);
        Ok(())
    }

    /// A check that was begun by [`FailedChecks::take`] has not failed. The end of the check says
    /// so, not the request: whoever closes the connection beforehand has had the check.
    pub fn give_back(&mut self, address: IpAddr, now: Instant) {
        let now = self.nanoseconds(now);
        let network = Network::of(address);
        if let Some(before) = self.full_at.get(&network).copied() {
            self.set(network, Some(before), before.saturating_sub(self.refill()));
        }
        self.forget_full(now);
    }

    /// How many addresses are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.full_at.len()
    }

    /// Whether none is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.full_at.is_empty()
    }

    fn set(&mut self, network: Network, before: Option<u64>, full_at: u64) {
        if let Some(before) = before {
            self.order.remove(&(before, network));
        }
        self.order.insert((full_at, network));
        self.full_at.insert(network, full_at);
    }

    /// Forgets the buckets that are full: they are as if they had never been used.
    fn forget_full(&mut self, now: u64) {
        while let Some(&(full_at, network)) = self.order.first()
            && full_at <= now
        {
            self.order.pop_first();
            self.full_at.remove(&network);
        }
        if self.full_at.is_empty() && self.full_at.capacity() > 1024 {
            self.full_at = HashMap::new();
        }
    }

    /// The time in which an empty bucket becomes full. Bounded so that sums with it are far from
    /// the end of the numbers: 292 years.
    fn capacity(&self) -> u64 {
        let all = self.refill().saturating_mul(u64::from(self.budget.burst));
        all.min(u64::MAX / 4)
    }

    fn refill(&self) -> u64 {
        let refill = u64::try_from(self.budget.refill.as_nanos()).unwrap_or(u64::MAX);
        refill.min(u64::MAX / 4)
    }

    fn nanoseconds(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.begin);
        // 292 years
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX / 2)
    }
}
