//! What stands between a name and the connection: a guard that is shown each address that is about
//! to be connected to, after the name has been looked up. What it lets pass is connected to as it
//! is; nothing is looked up a second time, so that a name cannot lead elsewhere in between (DNS
//! rebinding).
//!
//! Which addresses are let pass is said by whoever sets the guard; our own listeners never are.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::Arc;

use crate::listen;
use crate::tunnel::Proxy;

/// Says which addresses may be connected to.
pub trait Guard: fmt::Debug {
    /// Refuses an address, in words for the log.
    ///
    /// # Errors
    /// When it may not be connected to.
    fn check(&self, address: SocketAddr) -> Result<(), String>;

    /// The proxy that connections are made through, to the addresses that have been checked.
    fn proxy(&self) -> Option<&Rc<Proxy>> {
        None
    }
}

/// No address of an endpoint may be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl Error for Refused {}

/// Whether a connection was not made because of a guard, rather than of a firewall. Errors of a
/// connection that several waited for are wrapped once more.
pub fn is_refusal(error: &io::Error) -> bool {
    let Some(inner) = error.get_ref() else {
        return false;
    };
    match inner.downcast_ref::<Arc<io::Error>>() {
        Some(shared) => is_refusal(shared),
        None => inner.is::<Refused>(),
    }
}

/// Leaves the addresses that may be connected to.
///
/// # Errors
/// When none is left: [`io::ErrorKind::PermissionDenied`], with the first refusal.
pub(crate) fn retain(guard: &dyn Guard, addresses: &mut Vec<SocketAddr>) -> io::Result<()> {
    let mut first = None;
    addresses.retain(|address| {
        let checked = guard.check(*address).and_then(|()| check_own(*address));
        match checked {
            Ok(()) => true,
            Err(refusal) => {
                first.get_or_insert(refusal);
                false
            }
        }
    });
    match first.filter(|_| addresses.is_empty()) {
        Some(refusal) => {
            let refused = Refused(refusal);
            Err(io::Error::new(io::ErrorKind::PermissionDenied, refused))
        }
        None => Ok(()),
    }
}

fn check_own(address: SocketAddr) -> Result<(), String> {
    match is_own_listener(address) {
        true => Err(format!(
            "{address} is an address that this engine listens on"
        )),
        false => Ok(()),
    }
}

/// Whether this process listens there.
fn is_own_listener(address: SocketAddr) -> bool {
    let (ip, port) = (address.ip().to_canonical(), address.port());
    let takes = |own: SocketAddr| {
        let own_ip = own.ip().to_canonical();
        own.port() == port && (own_ip == ip || own_ip.is_unspecified())
    };
    // Of those on all interfaces the machine has to be asked whether the address is its own.
    let mut exact = false;
    let found = listen::serving(|own| {
        exact |= takes(own) && own.ip().to_canonical() == ip;
        takes(own)
    });
    found && (exact || is_of_this_machine(ip))
}

/// Whether an address is one of this machine's: the kernel would connect to it from that address
/// itself, or from a loopback address. Nothing is sent.
fn is_of_this_machine(ip: IpAddr) -> bool {
    if ip.is_loopback() || ip.is_unspecified() {
        return true;
    }
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let from = || -> io::Result<IpAddr> {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((ip, 9))?;
        Ok(socket.local_addr()?.ip().to_canonical())
    };
    // Without a route there is no connection either.
    from().is_ok_and(|from| from == ip || from.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Lets the second half of the loopback block pass.
    #[derive(Debug)]
    struct UpperHalf;

    impl Guard for UpperHalf {
        fn check(&self, address: SocketAddr) -> Result<(), String> {
            match address.ip() {
                IpAddr::V4(ip) if ip.octets()[1] >= 128 => Ok(()),
                ip => Err(format!("{ip} is below")),
            }
        }
    }

    fn to(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn refused_addresses_are_left_out_and_the_first_reason_is_told() {
        let mut some = to(&["127.0.0.1:1", "127.200.0.1:1", "127.1.0.1:1"]);
        retain(&UpperHalf, &mut some).unwrap();
        assert_eq!(some, to(&["127.200.0.1:1"]));
        let mut none = to(&["127.0.0.1:1", "127.1.0.1:1"]);
        let error = retain(&UpperHalf, &mut none).unwrap_err();
        assert_eq!(error.to_string(), "127.0.0.1 is below");
        assert!(is_refusal(&error));
        // As those who wait for one connection are told.
        let shared = io::Error::new(error.kind(), Arc::new(error));
        assert!(is_refusal(&shared));
        assert!(!is_refusal(&io::ErrorKind::PermissionDenied.into()));
        let other = io::Error::new(io::ErrorKind::PermissionDenied, "firewall");
        assert!(!is_refusal(&other));
    }

    #[test]
    fn own_listeners_are_refused_while_they_listen() {
        #[derive(Debug)]
        struct All;
        impl Guard for All {
            fn check(&self, _: SocketAddr) -> Result<(), String> {
                Ok(())
            }
        }
        let is_refused = |address: &str, port: u16| {
            let mut addresses = vec![SocketAddr::new(address.parse().unwrap(), port)];
            retain(&All, &mut addresses).is_err()
        };
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert!(!is_refused("127.0.0.1", port));
        let serving = listen::Serving::of(socket.local_addr().unwrap());
        let second = listen::Serving::of(socket.local_addr().unwrap());
        assert!(is_refused("127.0.0.1", port));
        assert!(is_refused("::ffff:127.0.0.1", port));
        assert!(!is_refused("127.0.0.2", port), "nobody listens there");
        drop(serving);
        assert!(
            is_refused("127.0.0.1", port),
            "another worker still listens"
        );
        drop(second);
        assert!(!is_refused("127.0.0.1", port));

        let all = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = all.local_addr().unwrap().port();
        let _serving = listen::Serving::of(all.local_addr().unwrap());
        assert!(is_refused("127.0.0.1", port));
        assert!(is_refused("127.0.0.2", port));
        // Set aside for documentation: no machine's.
        assert!(!is_refused("192.0.2.1", port));
    }
}
