//! One address of another system: making connections to it, counting them, and keeping idle ones
//! for the next request.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::Connection;
use crate::http1::Released;
use crate::http2::{self, Driver, Link};
use crate::queue::Queue;
use crate::tls::{self, Protocol};

/// How long nothing is under way on a connection before it gives memory back.
const REST: Duration = Duration::from_secs(1);

/// What holds for one worker's connections to an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct EndpointLimits {
    /// How many idle connections are kept.
    pub idle_count: usize,
    /// For how long.
    pub idle_time: Duration,
    /// The most connections, idle ones included.
    pub connections: usize,
    /// How long the addresses of a name are kept.
    pub resolve: Duration,
}

/// One address that requests are sent to, with one worker's idle connections to it.
#[derive(Debug)]
pub struct Endpoint {
    host: String,
    port: u16,
    tls: Option<tls::Client>,
    /// The same without HTTP/2, made when it is first used.
    tls_http1: OnceCell<tls::Client>,
    /// Whether HTTP/1.1, and HTTP/2, may be spoken.
    protocols: (bool, bool),
    limits: Cell<EndpointLimits>,
    idle: RefCell<Vec<Idle>>,
    links: RefCell<Vec<Multiplexed>>,
    /// While the first connection is being made that may turn out to serve many requests.
    is_connecting: Cell<bool>,
    /// Whether the last connection spoke HTTP/2, once there was one.
    spoke_h2: Cell<Option<bool>>,
    open: Rc<Open>,
    names: RefCell<Names>,
}

#[derive(Debug)]
struct Idle {
    connection: Connection,
    until: Instant,
}

/// A connection that serves many requests at a time.
#[derive(Debug)]
struct Multiplexed {
    link: Link,
    peer: IpAddr,
    /// Since when nothing is under way on it, as far as somebody has looked.
    idle_since: Option<Instant>,
    /// Whether it has given back the memory that it can do without.
    is_trimmed: bool,
}

/// A new connection by its protocol.
#[derive(Debug)]
pub enum Connected {
    /// One for one request at a time.
    Http1(Connection),
    /// One for many. Somebody must run the driver.
    Http2(Link, Driver),
}

/// Says that the first connection is being made, for as long as it lives.
#[derive(Debug)]
struct Connecting<'a>(&'a Endpoint);

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        self.0.is_connecting.set(false);
        self.0.open.queue.wake_all();
    }
}

/// Counts connections, and calls those who wait when one ends.
#[derive(Debug)]
struct Open {
    count: Cell<usize>,
    queue: Rc<Queue>,
}

/// The right to one connection. It lives as long as the connection.
#[derive(Debug)]
pub struct Permit(Rc<Open>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.count.set(self.0.count.get() - 1);
        self.0.queue.wake_one();
    }
}

/// The addresses of the endpoint's name.
#[derive(Debug, Default)]
struct Names {
    addresses: Vec<SocketAddr>,
    until: Option<Instant>,
    /// When a request may next be made to look the name up, though connections are there.
    again: Option<Instant>,
    /// Where the next connection begins.
    next: usize,
}

impl Endpoint {
    /// An endpoint without connections. `protocols` says whether HTTP/1.1, and HTTP/2, may be
    /// spoken. Whoever waits in `queue` is called when one is free.
    pub fn new(
        host: &str,
        port: u16,
        (tls, protocols): (Option<tls::Client>, (bool, bool)),
        limits: EndpointLimits,
        queue: Rc<Queue>,
    ) -> Self {
        Self {
            host: host.to_owned(),
            port,
            tls,
            tls_http1: OnceCell::new(),
            protocols,
            limits: Cell::new(limits),
            idle: RefCell::default(),
            links: RefCell::default(),
            is_connecting: Cell::new(false),
            spoke_h2: Cell::new(None),
            open: Rc::new(Open {
                count: Cell::new(0),
                queue,
            }),
            names: RefCell::default(),
        }
    }

    /// Changes the limits for connections from now on.
    pub fn set_limits(&self, limits: EndpointLimits) {
        self.limits.set(limits);
    }

    /// Whether it is reached by this TLS, or without any.
    pub fn has_tls(&self, tls: Option<&tls::Client>) -> bool {
        match (&self.tls, tls) {
            (None, None) => true,
            (Some(own), Some(other)) => own.is(other),
            _ => false,
        }
    }

    /// The connection used last that is still open, if any.
    #[inline]
    pub fn take_idle(&self, now: Instant) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        while let Some(mut kept) = idle.pop() {
            if kept.until > now && !kept.connection.is_stale() {
                return Some(kept.connection);
            }
        }
        None
    }

    /// Keeps a connection for another request.
    #[inline]
    pub fn keep(&self, released: Released, now: Instant) {
        let Released {
            transport: mut connection,
            promised,
        } = released;
        let limits = self.limits.get();
        let mut idle = self.idle.borrow_mut();
        if idle.len() >= limits.idle_count {
            return;
        }
        connection.input.release();
        // One second less than promised: the other side's clock began earlier.
        let time = promised.map_or(limits.idle_time, |promised| {
            promised
                .saturating_sub(Duration::from_secs(1))
                .min(limits.idle_time)
        });
        idle.push(Idle {
            connection,
            until: now + time,
        });
        drop(idle);
        self.open.queue.wake_one();
    }

    /// Closes all idle connections: one that was in use has just been cut, and a request that may
    /// not be repeated shall not find out that they are too.
    pub fn forget_idle(&self) {
        let idle = std::mem::take(&mut *self.idle.borrow_mut());
        drop(idle);
    }

    /// Closes idle connections that are too old or that the other side has closed.
    pub fn prune(&self, now: Instant) {
        let dead: Vec<Idle> = self
            .idle
            .borrow_mut()
            .extract_if(.., |kept| kept.until <= now || kept.connection.is_stale())
            .collect();
        // Outside the borrow: ending a connection calls those who wait.
        drop(dead);
        let idle_time = self.limits.get().idle_time;
        self.links.borrow_mut().retain_mut(|kept| {
            if !kept.link.is_idle() {
                kept.idle_since = None;
            }
            let since = *kept.idle_since.get_or_insert(now);
            if kept.link.is_idle() && now - since >= REST && !kept.is_trimmed {
                kept.link.trim();
            }
            kept.is_trimmed = kept.link.is_idle() && now - since >= REST;
            let is_old = kept.link.is_idle() && now - since >= idle_time;
            if is_old {
                kept.link.go_away();
            }
            !is_old && !kept.link.is_over()
        });
    }

    /// How many idle connections for one request at a time there are.
    pub fn idle_count(&self) -> usize {
        self.idle.borrow().len()
    }

    /// Whether there is no connection.
    pub fn is_unused(&self) -> bool {
        self.idle_count() == 0 && self.links.borrow().is_empty()
    }

    /// Whether a request can be sent now: on a connection that is there, or on a new one.
    pub fn has_room(&self) -> bool {
        self.open.count.get() < self.limits.get().connections
            || self.idle_count() > 0
            || self.link().is_some()
    }

    /// A connection that has room for one more request beside others.
    #[inline]
    pub fn link(&self) -> Option<Link> {
        if !self.protocols.1 {
            return None;
        }
        let links = self.links.borrow();
        let found = links.iter().find(|kept| kept.link.may_open().is_ok());
        found.map(|kept| kept.link.clone())
    }

    /// Whether a connection is being made that will have room for this request too.
    pub fn will_have_link(&self) -> bool {
        self.is_connecting.get()
    }

    /// Whether a request shall make a new connection though others are there, so that the name is
    /// looked up again: its addresses are too old. Asked at most once a second.
    pub fn must_resolve(&self, now: Instant) -> bool {
        let mut names = self.names.borrow_mut();
        let is_old = names.until.is_some_and(|until| until <= now);
        let may = names.again.is_none_or(|again| again <= now)
            && self.open.count.get() < self.limits.get().connections;
        if is_old && may {
            names.again = Some(now + Duration::from_secs(1));
        }
        is_old && may
    }

    /// The right to make one more connection, unless there are as many as may be.
    pub fn permit(&self) -> Option<Permit> {
        let count = self.open.count.get();
        (count < self.limits.get().connections).then(|| {
            self.open.count.set(count + 1);
            Permit(Rc::clone(&self.open))
        })
    }

    /// Makes a new connection, TLS included: looks the name up when that has not been done lately,
    /// and tries its addresses in turn. When it `is_exclusive`, it speaks HTTP/1.1, which the
    /// endpoint must take. The caller bounds the time.
    ///
    /// # Errors
    /// That of the last address tried, or that the name has none.
    pub async fn connect(
        &self,
        permit: Permit,
        h2: http2::Limits,
        is_exclusive: bool,
    ) -> io::Result<Connected> {
        if is_exclusive {
            let connection = self.connect_any(permit, true).await?;
            return match connection.protocol() {
                Some(Protocol::Http2) => Err(io::Error::other("HTTP/2 was not offered")),
                Some(Protocol::Http1) | None => Ok(Connected::Http1(connection)),
            };
        }
        let may_share = self.protocols.1 && self.spoke_h2.get() != Some(false);
        let _connecting = may_share.then(|| {
            self.is_connecting.set(true);
            Connecting(self)
        });
        let connection = self.connect_any(permit, false).await?;
        let is_h2 = match connection.protocol() {
            Some(Protocol::Http2) => true,
            Some(Protocol::Http1) => false,
            // Nothing was agreed on: HTTP/1.1, unless only HTTP/2 may be spoken.
            None => !self.protocols.0,
        };
        self.spoke_h2.set(Some(is_h2));
        if !is_h2 {
            return Ok(Connected::Http1(connection));
        }
        let queue = Rc::clone(&self.open.queue);
        let peer = connection.peer();
        let (link, driver) = Link::new(connection, http2::Role::Client, h2, queue);
        let mut links = self.links.borrow_mut();
        links.retain(|kept| !kept.link.is_over());
        links.push(Multiplexed {
            link: link.clone(),
            peer,
            idle_since: None,
            is_trimmed: false,
        });
        Ok(Connected::Http2(link, driver))
    }

    async fn connect_any(&self, permit: Permit, is_exclusive: bool) -> io::Result<Connection> {
        let addresses = self.addresses().await?;
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            match self.connect_to(address, is_exclusive).await {
                Ok(mut connection) => {
                    connection.hold(permit);
                    return Ok(connection);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn connect_to(&self, address: SocketAddr, is_exclusive: bool) -> io::Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        let Some(tls) = &self.tls else {
            return Connection::new(stream, address);
        };
        let tls = match is_exclusive && self.protocols.1 {
            true => self.tls_http1.get_or_init(|| tls.for_http1()),
            false => tls,
        };
        let mut connection = Connection::begin_tls(stream, address, tls)?;
        std::future::poll_fn(|context| connection.poll_handshake(context)).await?;
        Ok(connection)
    }

    /// All addresses, beginning with another one each time.
    async fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, self.port)]);
        }
        let now = Instant::now();
        let is_fresh = self.names.borrow().until.is_some_and(|until| until > now);
        if !is_fresh {
            match tokio::net::lookup_host((self.host.as_str(), self.port)).await {
                Ok(found) => self.take_addresses(found.collect(), now),
                // A name server that fails is no reason to forget what it said before.
                Err(error) if self.names.borrow().addresses.is_empty() => return Err(error),
                Err(_) => {}
            }
        }
        let mut names = self.names.borrow_mut();
        let mut addresses = names.addresses.clone();
        if !addresses.is_empty() {
            names.next = (names.next + 1) % addresses.len();
            addresses.rotate_left(names.next);
        }
        Ok(addresses)
    }

    fn take_addresses(&self, mut found: Vec<SocketAddr>, now: Instant) {
        found.dedup();
        let is_gone = |peer: IpAddr| !found.iter().any(|it| it.ip().to_canonical() == peer);
        let gone: Vec<Idle> = self
            .idle
            .borrow_mut()
            .extract_if(.., |kept| is_gone(kept.connection.peer()))
            .collect();
        drop(gone);
        self.links.borrow_mut().retain(|kept| {
            if is_gone(kept.peer) {
                kept.link.go_away();
            }
            !is_gone(kept.peer)
        });
        let mut names = self.names.borrow_mut();
        names.addresses = found;
        names.until = Some(now + self.limits.get().resolve);
        // The first rotation shall begin with the first address.
        names.next = names.addresses.len().saturating_sub(1);
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        for kept in self.links.borrow().iter() {
            kept.link.go_away();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: EndpointLimits = EndpointLimits {
        idle_count: 1,
        idle_time: Duration::from_secs(5),
        connections: 2,
        resolve: Duration::from_secs(30),
    };

    fn endpoint(host: &str) -> Endpoint {
        Endpoint::new(host, 80, (None, (true, false)), LIMITS, Rc::default())
    }

    #[test]
    fn there_are_as_many_permits_as_connections_are_allowed() {
        let endpoint = endpoint("127.0.0.1");
        let (first, second) = (endpoint.permit(), endpoint.permit());
        assert!(first.is_some() && second.is_some());
        assert!(endpoint.permit().is_none() && !endpoint.has_room());
        let mut ticket = endpoint.open.queue.join();
        drop(first);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(ticket.poll(&mut context).is_ready());
        assert!(endpoint.has_room());
    }

    #[tokio::test]
    async fn the_addresses_of_a_name_are_used_in_turn() {
        let endpoint = endpoint("name.example");
        let addresses: Vec<SocketAddr> = ["10.0.0.1:80", "10.0.0.2:80"]
            .into_iter()
            .map(|text| text.parse().unwrap())
            .collect();
        endpoint.take_addresses(addresses.clone(), Instant::now());
        let first = endpoint.addresses().await.unwrap();
        let second = endpoint.addresses().await.unwrap();
        assert_eq!(first, addresses);
        assert_eq!(second, [addresses[1], addresses[0]]);
    }
}
