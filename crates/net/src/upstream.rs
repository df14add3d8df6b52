//! Connections to another system: making them, and keeping idle ones for the next request.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::Connection;

/// One address that requests are sent to, with one worker's idle connections to it.
#[derive(Debug)]
pub struct Upstream {
    host: String,
    port: u16,
    idle_max: usize,
    idle_time: Duration,
    idle: RefCell<Vec<Idle>>,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    until: Instant,
}

impl Upstream {
    /// An upstream without connections. Keeps at most `idle_max` of them, each for `idle_time`.
    pub fn new(host: &str, port: u16, idle_max: usize, idle_time: Duration) -> Self {
        Self { host: host.to_owned(), port, idle_max, idle_time, idle: RefCell::default() }
    }

    /// The connection used last that is still open, if any.
    #[inline]
    pub fn take_idle(&self, now: Instant) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        while let Some(kept) = idle.pop() {
            if kept.until > now && !kept.connection.is_stale() {
                return Some(kept.connection);
            }
        }
        None
    }

    /// Keeps a connection whose last exchange has ended cleanly. `promised` is how long the other
    /// side has said it will keep it (`Keep-Alive: timeout`).
    #[inline]
    pub fn keep(&self, connection: Connection, now: Instant, promised: Option<Duration>) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() >= self.idle_max || !connection.input.is_empty() {
            return;
        }
        // One second less than promised: the other side's clock began earlier.
        let time = promised.map_or(self.idle_time, |promised| {
            promised.saturating_sub(Duration::from_secs(1)).min(self.idle_time)
        });
        idle.push(Idle { connection, until: now + time });
    }

    /// Closes idle connections that are too old or that the other side has closed.
    pub fn prune(&self, now: Instant) {
        self.idle
            .borrow_mut()
            .retain(|kept| kept.until > now && !kept.connection.is_stale());
    }

    /// How many idle connections there are.
    pub fn idle_count(&self) -> usize {
        self.idle.borrow().len()
    }

    /// Makes a new connection: looks the name up and tries its addresses in turn. The caller
    /// bounds the time.
    ///
    /// # Errors
    /// That of the last address tried, or that the name has none.
    pub async fn connect(&self) -> io::Result<Connection> {
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return connect_to(SocketAddr::new(address, self.port)).await;
        }
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in tokio::net::lookup_host((self.host.as_str(), self.port)).await? {
            match connect_to(address).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

async fn connect_to(address: SocketAddr) -> io::Result<Connection> {
    Connection::new(TcpStream::connect(address).await?, address)
}
