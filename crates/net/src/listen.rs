//! Listening sockets. Each worker has its own on the same address (`SO_REUSEPORT`), so that the
//! kernel spreads connections and no accept crosses threads.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::{PoisonError, RwLock};

use socket2::{Domain, Protocol, Socket, Type};

/// How many connections the kernel keeps for us before we accept them.
const BACKLOG: i32 = 4096;

/// A socket that is bound and refuses connections until it listens.
#[derive(Debug)]
pub struct BoundSocket(Socket);

impl BoundSocket {
    /// Takes connections from now on.
    ///
    /// # Errors
    /// When the address is in use after all.
    pub fn listen(self) -> io::Result<TcpListener> {
        self.0.listen(BACKLOG)?;
        Ok(self.0.into())
    }
}

/// Sockets on one address, one for each worker.
#[derive(Clone, Copy, Debug)]
pub struct Binding<'a> {
    /// An IP address or a name. Without one all interfaces are meant: IPv6 with IPv4 mapped into
    /// it, or IPv4 alone where there is no IPv6.
    pub host: Option<&'a str>,
    /// The port.
    pub port: u16,
    /// How many workers there are.
    pub count: usize,
    /// Whether this process listens on the port already, on another address. Its own sockets are
    /// no reason to refuse this one: `:8080` can become `127.0.0.1:8080`.
    pub beside_ours: bool,
}

/// Opens `count` listening sockets on one address, one for each worker.
///
/// # Errors
/// When the host has no address, or the address cannot be bound: in use, not allowed, not ours.
pub fn bind(host: Option<&str>, port: u16, count: usize) -> io::Result<Vec<TcpListener>> {
    let binding = Binding {
        host,
        port,
        count,
        beside_ours: false,
    };
    let sockets = binding.bind()?;
    sockets.into_iter().map(BoundSocket::listen).collect()
}

impl Binding<'_> {
    /// Binds the sockets.
    ///
    /// # Errors
    /// When the host has no address, or the address cannot be bound: in use, not allowed, not ours.
    pub fn bind(self) -> io::Result<Vec<BoundSocket>> {
        let Some(host) = self.host else {
            let all = SocketAddr::from((Ipv6Addr::UNSPECIFIED, self.port));
            return match self.bind_to(all) {
                Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                    self.bind_to(SocketAddr::from((Ipv4Addr::UNSPECIFIED, self.port)))
                }
                result => result,
            };
        };
        self.bind_to(resolve(host, self.port)?)
    }

    /// Refuses an address that another process listens on: `SO_REUSEPORT` alone would share it with
    /// any process of the same user, and requests would go to both. Beside our own sockets that
    /// cannot be asked, and another process can have the port only if it shares it on purpose.
    fn bind_to(self, address: SocketAddr) -> io::Result<Vec<BoundSocket>> {
        if !self.beside_ours {
            let probe = socket(address)?;
            probe.set_reuse_address(true)?;
            probe.bind(&address.into())?;
        }
        (0..self.count).map(|_| bind_one(address)).collect()
    }
}

fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    // A name such as `localhost` may stand for several addresses; IPv4 is what its users expect.
    let address = addresses
        .iter()
        .find(|address| address.is_ipv4())
        .or(addresses.first());
    let none = || io::Error::new(io::ErrorKind::NotFound, "the host has no address");
    address.copied().ok_or_else(none)
}

fn bind_one(address: SocketAddr) -> io::Result<BoundSocket> {
    let socket = socket(address)?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    Ok(BoundSocket(socket))
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    Ok(socket)
}

/// The addresses that this process accepts connections on, each as often as it has sockets there.
static SERVING: RwLock<Vec<SocketAddr>> = RwLock::new(Vec::new());

/// An address that this process accepts connections on, for as long as this lives: requests that it
/// sends because others have set a URL do not go there.
#[derive(Debug)]
pub struct Serving(SocketAddr);

impl Serving {
    /// Connections are accepted here from now on.
    pub fn of(address: SocketAddr) -> Self {
        let mut all = SERVING.write().unwrap_or_else(PoisonError::into_inner);
        all.push(address);
        Self(address)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let mut all = SERVING.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = all.iter().position(|address| *address == self.0) {
            all.swap_remove(at);
        }
    }
}

/// Whether connections are accepted on any address of this kind.
pub(crate) fn serving(is_it: impl FnMut(SocketAddr) -> bool) -> bool {
    let all = SERVING.read().unwrap_or_else(PoisonError::into_inner);
    all.iter().copied().any(is_it)
}

/// Errors of `accept` that have no [`io::ErrorKind`]: of Linux `ENONET`, `EPROTO`, `ENOPROTOOPT`,
/// `EOPNOTSUPP` and `EHOSTDOWN`.
#[cfg(target_os = "linux")]
const CONNECTION_ERRNOS: &[i32] = &[64, 71, 92, 95, 112];
#[cfg(not(target_os = "linux"))]
const CONNECTION_ERRNOS: &[i32] = &[];

/// Whether an error of `accept` is about the one connection that would have been next: the client
/// or the network has ended it in the queue (accept(2), "Error handling"). The next call may work
/// at once. After any other error, such as that of too many open files, it would fail again.
pub fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionAborted, ConnectionReset, HostUnreachable, Interrupted, NetworkDown,
        NetworkUnreachable, NotConnected, PermissionDenied, TimedOut,
    };
    let has_kind = matches!(
        error.kind(),
        ConnectionAborted
            | ConnectionReset
            | HostUnreachable
            | Interrupted
            | NetworkDown
            | NetworkUnreachable
            | NotConnected
            // A rule of the firewall forbids the connection.
            | PermissionDenied
            | TimedOut
    );
    let number = error.raw_os_error();
    has_kind || number.is_some_and(|number| CONNECTION_ERRNOS.contains(&number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    #[cfg(target_os = "linux")]
    fn accepting_rests_only_when_the_next_call_would_fail_too() {
        // ECONNABORTED, EPROTO, EINTR, ENETDOWN, ENOPROTOOPT, EHOSTDOWN, ENONET, EHOSTUNREACH,
        // EOPNOTSUPP, ENETUNREACH, EPERM
        for number in [103, 71, 4, 100, 92, 112, 64, 113, 95, 101, 1] {
            let error = io::Error::from_raw_os_error(number);
            assert!(concerns_one_connection(&error), "{error}");
        }
        // EMFILE, ENFILE, ENOMEM, ENOBUFS, EBADF, EINVAL
        for number in [24, 23, 12, 105, 9, 22] {
            let error = io::Error::from_raw_os_error(number);
            assert!(!concerns_one_connection(&error), "{error}");
        }
    }

    fn free_port() -> u16 {
        TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port()
    }

    #[test]
    fn all_interfaces_take_ipv4_too() {
        let port = free_port();
        let listeners = bind(None, port, 2).unwrap();
        assert_eq!(listeners.len(), 2);
        TcpStream::connect(("127.0.0.1", port)).unwrap();
    }

    #[test]
    fn an_address_that_another_listens_on_is_refused() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = other.local_addr().unwrap().port();
        let error = bind(Some("127.0.0.1"), port, 1).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let port = free_port();
        let ours = bind(Some("127.0.0.1"), port, 1).unwrap();
        assert_eq!(
            bind(None, port, 1).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        drop(ours);
        bind(Some("localhost"), port, 1).unwrap();
    }

    #[test]
    fn addresses_of_one_port_may_be_exchanged() {
        let pairs = [(None, Some("127.0.0.1")), (Some("127.0.0.1"), None)];
        for (first, second) in pairs {
            let port = free_port();
            let _ours = bind(first, port, 2).unwrap();
            let binding = Binding {
                host: second,
                port,
                count: 2,
                beside_ours: true,
            };
            let sockets = binding.bind().unwrap();
            let listening: io::Result<Vec<TcpListener>> =
                sockets.into_iter().map(BoundSocket::listen).collect();
            assert_eq!(listening.unwrap().len(), 2);
            TcpStream::connect(("127.0.0.1", port)).unwrap();
        }
    }

    #[test]
    fn a_bound_socket_refuses_connections_until_it_listens() {
        let port = free_port();
        let binding = Binding {
            host: Some("127.0.0.1"),
            port,
            count: 1,
            beside_ours: false,
        };
        let socket = binding.bind().unwrap().remove(0);
        assert!(TcpStream::connect(("127.0.0.1", port)).is_err());
        let _listening = socket.listen().unwrap();
        TcpStream::connect(("127.0.0.1", port)).unwrap();
    }
}
