//! Checks that ask another system, counted by client address. Many clients may share an address,
//! and each pending check uses up some of the address's budget of failures until its outcome is
//! known. When the budget is used up, further checks wait for a pending one of the address to end;
//! they are refused only when none is pending, or too many wait already.

use std::net::IpAddr;

use hashbrown::HashMap;

use super::Network;

/// Upper bound of the waiting checks of one address; each keeps its request open.
const WAITING_EACH_MAX: usize = 256;
/// Upper bound of the waiting checks of all addresses.
const WAITING_MAX: usize = 4096;

/// Counts the pending and the waiting checks of each address. `W` wakes the waiting ones.
#[derive(Debug)]
pub struct PendingChecks<W> {
    networks: HashMap<Network, Checks<W>>,
    waiting: usize,
}

#[derive(Debug)]
struct Checks<W> {
    running: usize,
    waiting: usize,
    wake: W,
}

impl<W> Default for PendingChecks<W> {
    fn default() -> Self {
        Self {
            networks: HashMap::new(),
            waiting: 0,
        }
    }
}

impl<W: Clone + Default> PendingChecks<W> {
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

    /// A check of this address has ended. Gives what wakes the waiting ones, if there are any, and
    /// whether it was the last pending one.
    pub fn end(&mut self, address: IpAddr) -> Option<(W, bool)> {
        let checks = self.networks.get_mut(&Network::of(address))?;
        checks.running = checks.running.saturating_sub(1);
        let ended = (checks.wake.clone(), checks.running == 0);
        let has_waiting = checks.waiting > 0;
        self.forget(address);
        has_waiting.then_some(ended)
    }

    /// Whether checks of this address are pending.
    #[must_use]
    pub fn is_any(&self, address: IpAddr) -> bool {
        let checks = self.networks.get(&Network::of(address));
        checks.is_some_and(|it| it.running > 0)
    }

    /// Counts a check that waits for the pending ones of this address, until it
    /// [leaves](Self::leave). `None` when none is pending, or too many wait.
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

    /// A waiting check goes on, or gives up.
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
    fn waiting_checks_are_woken_by_checks_of_their_address_only() {
        let mut pending = PendingChecks::<()>::default();
        let (one, other) = (address(1), address(2));
        assert!(pending.wait(one).is_none(), "there is nothing to wait for");
        pending.begin(one);
        pending.begin(one);
        pending.begin(other);
        assert!(pending.wait(one).is_some());
        assert!(pending.end(other).is_none(), "nobody waits for it");
        assert_eq!(pending.end(one), Some(((), false)));
        assert!(pending.is_any(one) && !pending.is_any(other));
        assert_eq!(pending.end(one), Some(((), true)));
        pending.leave(one);
        assert!(pending.networks.is_empty());
        assert_eq!(pending.waiting, 0);
    }

    #[test]
    fn waiting_checks_are_bounded_per_address_and_altogether() {
        let mut pending = PendingChecks::<()>::default();
        let mut enter = |number| {
            pending.begin(address(number));
            let entered = (0..WAITING_MAX).take_while(|_| pending.wait(address(number)).is_some());
            entered.count()
        };
        for number in 0..WAITING_MAX / WAITING_EACH_MAX {
            assert_eq!(enter(u32::try_from(number).unwrap()), WAITING_EACH_MAX);
        }
        assert_eq!(enter(1 << 20), 0);
        pending.leave(address(1));
        assert!(pending.wait(address(1 << 20)).is_some());
    }
}
