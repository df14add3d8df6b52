//! Connections of the load: made from several addresses of the loopback network, so that ports do
//! not run out, and in portions, so that no queue of a listener overflows.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mio::net::TcpStream;
use socket2::{Domain, Protocol, Socket, Type};

/// So many connections come from one address.
const EACH: usize = 4000;
/// Addresses from 127.0.0.2 on.
const ADDRESSES: usize = 240;
/// How long one connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Where the next connections come from.
static NEXT: AtomicUsize = AtomicUsize::new(0);

fn source() -> SocketAddr {
    let at = (NEXT.fetch_add(1, Ordering::Relaxed) / EACH) % ADDRESSES;
    let last = u8::try_from(at + 2).unwrap_or(2);
    SocketAddr::from((IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)), 0))
}

/// Connects, and sends the first bytes; reads and writes do not wait from then on.
///
/// # Errors
/// When the peer does not take the connection.
pub(super) fn connect(to: SocketAddr, first: &[u8]) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
    if to.ip().is_loopback() && to.is_ipv4() {
        socket.set_reuse_address(true)?;
        socket.bind(&source().into())?;
    }
    socket.connect_timeout(&to.into(), CONNECT_MAX)?;
    socket.set_tcp_nodelay(true)?;
    let mut stream: std::net::TcpStream = socket.into();
    stream.write_all(first)?;
    stream.set_nonblocking(true)?;
    Ok(TcpStream::from_std(stream))
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn connections_come_from_the_loopback_network() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = connect(listener.local_addr().unwrap(), b"hello").unwrap();
        let (mut server, from) = listener.accept().unwrap();
        assert!(from.ip().is_loopback() && from.ip() != IpAddr::from([127, 0, 0, 1]));
        let mut bytes = [0; 5];
        server.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"hello");
        drop(stream);
        let address = listener.local_addr().unwrap();
        drop(listener);
        assert!(connect(address, b"").is_err());
    }
}
