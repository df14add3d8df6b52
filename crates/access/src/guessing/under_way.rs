//! Checks that wait for another system, by the addresses that have sent the credentials. Many
//! clients may share one address: what they send may be good, so it waits for checks of the same
//! address that are under way, and is refused only when there is none to wait for, or too many
//! wait already.

use std::net::IpAddr;

use hashbrown::HashMap;

use super::Network;

/// How many checks of one address may wait.
const WAITING_EACH_MAX: usize = 256;
/// How many may wait altogether.
const WAITING_MAX: usize = 4096;

/// Counts checks under way and those that wait for them. `W` wakes those of one address.
#[derive(Debug)]
pub struct UnderWay<W> {
    networks: HashMap<Network, Checks<W>>,
    waiting: usize,
}

#[derive(Debug)]
struct Checks<W> {
    running: usize,
    waiting: usize,
    wake: W,
}

impl<W> Default for UnderWay<W> {
    fn default() -> Self {
        Self {
            networks: HashMap::new(),
            waiting: 0,
        }
    }
}

impl<W: Clone + Default> UnderWay<W> {
    fn checks(&mut self, address: IpAddr) -> &mut Checks<W> {
        let checks = || Checks {
            running: 0,
            waiting: 0,
            wake: W::default(),
        };
        let network = Network::of(address);
        self.networks.entry(network).or_insert_with(checks)
    }

    /// A check of this address begins.
    pub fn begin(&mut self, address: IpAddr) {
        self.checks(address).running += 1;
    }

    /// A check of this address has ended: who may go on now, and whether it was the last.
    pub fn end(&mut self, address: IpAddr) -> Option<(W, bool)> {
        let checks = self.networks.get_mut(&Network::of(address))?;
        checks.running = checks.running.saturating_sub(1);
        let ended = (checks.wake.clone(), checks.running == 0);
        let has_waiting = checks.waiting > 0;
        self.forget(address);
        has_waiting.then_some(ended)
    }

    /// Whether checks of this address are under way.
    #[must_use]
    pub fn is_any(&self, address: IpAddr) -> bool {
        let checks = self.networks.get(&Network::of(address));
        checks.is_some_and(|it| it.running > 0)
    }

    /// Enters one that waits for the checks of this address, until it [leaves](Self::leave). `None`
    /// when there is none to wait for, or too many wait.
    pub fn wait(&mut self, address: IpAddr) -> Option<W> {
        let checks = self.networks.get_mut(&Network::of(address))?;
        let is_full = checks.waiting >= WAITING_EACH_MAX || self.waiting >= WAITING_MAX;
        if checks.running == 0 || is_full {
            return None;
        }
        checks.waiting += 1;
        self.waiting += 1;
        Some(checks.wake.clone())
    }

    /// One that has waited goes on, or gives up.
    pub fn leave(&mut self, address: IpAddr) {
        if let Some(checks) = self.networks.get_mut(&Network::of(address)) {
            checks.waiting = checks.waiting.saturating_sub(1);
            self.waiting = self.waiting.saturating_sub(1);
        }
        self.forget(address);
    }

    fn forget(&mut self, address: IpAddr) {
        let network = Network::of(address);
        let is_idle = |it: &Checks<W>| it.running == 0 && it.waiting == 0;
        if self.networks.get(&network).is_some_and(is_idle) {
            self.networks.remove(&network);
        }
        if self.networks.is_empty() && self.networks.capacity() > 1024 {
            self.networks = HashMap::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn address(number: u32) -> IpAddr {
        Ipv4Addr::from(number).into()
    }

    #[test]
    fn who_waits_is_woken_by_the_checks_of_the_same_address_alone() {
        let mut under_way = UnderWay::<()>::default();
        let (one, other) = (address(1), address(2));
        assert!(
            under_way.wait(one).is_none(),
            "there is nothing to wait for"
        );
        under_way.begin(one);
        under_way.begin(one);
        under_way.begin(other);
        assert!(under_way.wait(one).is_some());
        assert!(under_way.end(other).is_none(), "nobody waits for it");
        assert_eq!(under_way.end(one), Some(((), false)));
        assert!(under_way.is_any(one) && !under_way.is_any(other));
        assert_eq!(under_way.end(one), Some(((), true)));
        under_way.leave(one);
        assert!(under_way.networks.is_empty());
        assert_eq!(under_way.waiting, 0);
    }

    #[test]
    fn those_who_wait_are_bounded_for_each_address_and_altogether() {
        let mut under_way = UnderWay::<()>::default();
        let mut enter = |number| {
            under_way.begin(address(number));
            let entered =
                (0..WAITING_MAX).take_while(|_| under_way.wait(address(number)).is_some());
            entered.count()
        };
        for number in 0..WAITING_MAX / WAITING_EACH_MAX {
            assert_eq!(enter(u32::try_from(number).unwrap()), WAITING_EACH_MAX);
        }
        assert_eq!(enter(1 << 20), 0);
        under_way.leave(address(1));
        assert!(under_way.wait(address(1 << 20)).is_some());
    }
}
