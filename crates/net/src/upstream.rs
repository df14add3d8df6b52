//! Connections to another system: making them, and keeping idle ones for the next request.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::Connection;

/// Limits on idle connections to one upstream.
#[derive(Clone, Copy, Debug)]
pub struct IdleLimits {
    /// How many are kept.
    pub count: usize,
    /// For how long.
    pub time: Duration,
}

/// One address that requests are sent to, with one worker's idle connections to it.
#[derive(Debug)]
pub struct Upstream {
    host: String,
    port: u16,
    limits: Cell<IdleLimits>,
    idle: RefCell<Vec<Idle>>,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    until: Instant,
}

impl Upstream {
    /// An upstream without connections.
    pub fn new(host: &str, port: u16, limits: IdleLimits) -> Self {
        let limits = Cell::new(limits);
        Self {
            host: host.to_owned(),
            port,
            limits,
            idle: RefCell::default(),
        }
    }

    /// Changes the limits for connections that become idle from now on.
    pub fn set_limits(&self, limits: IdleLimits) {
        self.limits.set(limits);
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
        let limits = self.limits.get();
        let mut idle = self.idle.borrow_mut();
        if idle.len() >= limits.count || !connection.input.is_empty() {
            return;
        }
        // One second less than promised: the other side's clock began earlier.
        let time = promised.map_or(limits.time, |promised| {
            promised
                .saturating_sub(Duration::from_secs(1))
                .min(limits.time)
        });
        idle.push(Idle {
            connection,
            until: now + time,
        });
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
