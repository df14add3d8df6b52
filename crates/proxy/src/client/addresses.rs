//! How many connections each client address has, over all workers, where that is limited.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

/// Whose connections are counted together: an IPv4 address, or the /64 of an IPv6 address, which is
/// what one customer or one host is given (RFC 6177).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClientAddress {
    V4([u8; 4]),
    V6([u16; 4]),
}

impl ClientAddress {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                let [first, second, third, fourth, ..] = address.segments();
                Self::V6([first, second, third, fourth])
            }
        }
    }
}

/// The connections of each address. Those of addresses without a connection take no memory.
#[derive(Debug, Default)]
pub(crate) struct ClientAddresses(Mutex<HashMap<ClientAddress, usize>>);

impl ClientAddresses {
    /// Counts one more connection of this address, unless it has `max` already. What this gives
    /// goes to [`ClientAddresses::leave`] when the connection ends.
    pub fn enter(&self, address: IpAddr, max: usize) -> Option<ClientAddress> {
        let address = ClientAddress::of(address);
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(address)
    }

    /// A connection of this address has ended.
    pub fn leave(&self, address: ClientAddress) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_has_so_many_connections_and_no_more() {
        let addresses = ClientAddresses::default();
        let first = addresses.enter(address("192.0.2.1"), 2).unwrap();
        let second = addresses.enter(address("::ffff:192.0.2.1"), 2).unwrap();
        assert_eq!(first, second, "mapped into IPv6 it is the same address");
        assert_eq!(addresses.enter(address("192.0.2.1"), 2), None);
        assert!(addresses.enter(address("192.0.2.2"), 2).is_some());
        addresses.leave(first);
        assert!(addresses.enter(address("192.0.2.1"), 2).is_some());
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address_and_leaves_nothing_behind() {
        let addresses = ClientAddresses::default();
        let one = addresses.enter(address("2001:db8:1:2::1"), 1).unwrap();
        assert_eq!(addresses.enter(address("2001:db8:1:2:ffff::9"), 1), None);
        let other = addresses.enter(address("2001:db8:1:3::1"), 1).unwrap();
        addresses.leave(one);
        addresses.leave(other);
        assert!(addresses.0.lock().unwrap().is_empty());
    }

    #[test]
    fn the_limit_is_exact_over_threads() {
        let addresses = ClientAddresses::default();
        let open = std::sync::atomic::AtomicUsize::new(0);
        let order = std::sync::atomic::Ordering::SeqCst;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5_000 {
                        if let Some(entered) = addresses.enter(address("192.0.2.1"), 3) {
                            assert!(open.fetch_add(1, order) < 3);
                            open.fetch_sub(1, order);
                            addresses.leave(entered);
                        }
                    }
                });
            }
        });
        assert!(addresses.0.lock().unwrap().is_empty());
    }
}
