//! One address of another system, and making connections to it. Which request gets which
//! connection is the [`pool`](crate::pool)'s to say.

use std::cell::{Cell, OnceCell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;

use crate::Connection;
use crate::descriptors;
use crate::egress::{self, Guard};
use crate::http2::{self, Driver, Link};
use crate::pool::{self, Multiplexed, Pooled};
use crate::race::race;
use crate::resolve::{Names, Resolver};
use crate::stream_observer::StreamObserver;
use crate::tls::{self, Protocol};
use crate::tunnel::{self, Proxy};

pub use crate::pool::Permit;

/// What an endpoint is.
pub struct EndpointConfig<'a> {
    /// The host name or IP address.
    pub host: &'a str,
    /// The TCP port.
    pub port: u16,
    /// Whether TLS is spoken, and how.
    pub security: Security,
    /// Whether HTTP/1.1 may be spoken.
    pub may_h1: bool,
    /// Whether HTTP/2 may be spoken.
    pub may_h2: bool,
    /// How long the addresses of a name are fresh.
    pub resolve: Duration,
    /// Finds them.
    pub resolver: Rc<dyn Resolver>,
    /// Says which of them may be connected to; all may without one.
    pub guard: Option<Rc<dyn Guard>>,
}

/// Whether an endpoint is reached by TLS.
#[derive(Clone, Debug)]
pub enum Security {
    /// In clear text.
    Clear,
    /// By TLS.
    Tls(tls::Client),
    /// By TLS whose settings are not at hand: no connection can be made.
    Unavailable,
}

/// One address that requests are sent to.
#[derive(Debug)]
pub struct Endpoint {
    security: Security,
    /// The same without HTTP/2, made when it is first used.
    tls_http1: OnceCell<tls::Client>,
    may_h1: bool,
    may_h2: bool,
    resolve: Cell<Duration>,
    names: Names,
    resolver: Rc<dyn Resolver>,
    port: u16,
    guard: RefCell<Option<Rc<dyn Guard>>>,
}

/// What a new HTTP/2 connection begins with.
pub struct Http2Setup {
    /// Its limits.
    pub limits: http2::Limits,
    /// Is told when streams end.
    pub freed: Rc<StreamObserver>,
}

/// A new connection by its protocol.
#[derive(Debug)]
pub enum NewConnection {
    /// One for one request at a time.
    Http1(Box<Connection>),
    /// One for many. Somebody must run the driver.
    Http2 {
        /// To open streams on.
        link: Link,
        /// To be run to the connection's end.
        driver: Driver,
        /// Beside the connection, for it ends when no more streams are taken.
        permit: Permit,
        /// The address of the other side.
        peer: IpAddr,
    },
}

impl Endpoint {
    /// An endpoint that nobody has connected to.
    pub fn new(config: EndpointConfig<'_>) -> Self {
        Self {
            security: config.security,
            tls_http1: OnceCell::new(),
            may_h1: config.may_h1,
            may_h2: config.may_h2,
            resolve: Cell::new(config.resolve),
            names: Names::new(config.host, config.port, Rc::clone(&config.resolver)),
            resolver: config.resolver,
            port: config.port,
            guard: RefCell::new(config.guard),
        }
    }

    /// Changes what says which addresses may be connected to.
    pub fn set_guard(&self, guard: Option<Rc<dyn Guard>>) {
        self.guard.replace(guard);
    }

    /// Changes how long the addresses of its name are fresh.
    pub fn set_resolve(&self, resolve: Duration) {
        self.resolve.set(resolve);
    }

    /// Whether it is reached by this TLS, or without any.
    pub fn has_tls(&self, tls: Option<&tls::Client>) -> bool {
        match (&self.security, tls) {
            (Security::Clear, None) => true,
            (Security::Tls(own), Some(other)) => own.is(other),
            _ => false,
        }
    }

    /// Whether the caller shall run [`Endpoint::look_up`] in the background now: the addresses are
    /// old, and nobody else looks them up.
    #[inline]
    pub fn must_look_up(&self, now: Instant) -> bool {
        self.names.must_look_up(now)
    }

    /// Looks the addresses up again. The caller bounds the time.
    ///
    /// # Errors
    /// When they cannot be found. Those that were known stay.
    pub async fn look_up(&self) -> io::Result<()> {
        self.names.look_up(self.resolve.get()).await
    }

    /// Whether this is no longer one of its addresses, or may no longer be connected to.
    pub fn lacks(&self, address: IpAddr) -> bool {
        let is_refused = |guard: &Rc<dyn Guard>| {
            let address = SocketAddr::new(address, self.port);
            guard.check(address).is_err()
        };
        self.names.lack(address) || self.guard.borrow().as_ref().is_some_and(is_refused)
    }

    /// Makes a new connection, TLS included. When it `is_exclusive`, it speaks HTTP/1.1, which the
    /// endpoint must take. The caller bounds the time.
    ///
    /// # Errors
    /// That of the last address tried, or that the name has none. Of the kind
    /// [`io::ErrorKind::QuotaExceeded`] when this process has no descriptor for it, and a
    /// [refusal](egress::is_refusal) when the guard lets none pass.
    pub async fn connect(
        &self,
        permit: Permit,
        setup: Http2Setup,
        is_exclusive: bool,
    ) -> io::Result<NewConnection> {
        if matches!(self.security, Security::Unavailable) {
            return Err(no_settings());
        }
        let mut addresses = self.names.in_turn(self.resolve.get()).await?;
        let mut proxy = None;
        if let Some(guard) = self.guard.borrow().as_deref() {
            egress::retain(guard, &mut addresses)?;
            proxy = guard.proxy().map(Rc::clone);
        }
        let (stream, address) = match proxy {
            None => {
                let connecting = |address| async move { Ok((dial(address).await?, address)) };
                race(addresses, connecting).await?
            }
            Some(proxy) => self.tunnel(proxy, addresses).await?,
        };
        let mut connection = self.begin(stream, address, is_exclusive).await?;
        let speaks_h2 = match connection.protocol() {
            Some(Protocol::Http2) if is_exclusive => {
                return Err(io::Error::other("HTTP/2 was not offered"));
            }
            Some(Protocol::Http2) => true,
            Some(Protocol::Http1) => false,
            // Nothing was agreed on: HTTP/1.1, unless only HTTP/2 may be spoken.
            None => !self.may_h1,
        };
        if !speaks_h2 {
            connection.hold(permit);
            return Ok(NewConnection::Http1(Box::new(connection)));
        }
        let peer = connection.peer();
        let Http2Setup { limits, freed } = setup;
        let (link, driver) = Link::new(connection, http2::Role::Client, limits, freed);
        Ok(NewConnection::Http2 {
            link,
            driver,
            permit,
            peer,
        })
    }

    /// Connects to one of these addresses through a proxy.
    async fn tunnel(
        &self,
        proxy: Rc<Proxy>,
        addresses: Vec<SocketAddr>,
    ) -> io::Result<(TcpStream, SocketAddr)> {
        let to_proxy: Rc<[_]> = self.resolver.look_up(&proxy.host, proxy.port).await?.into();
        let connecting = |address| {
            let (proxy, to_proxy) = (Rc::clone(&proxy), Rc::clone(&to_proxy));
            async move {
                let stream = race(to_proxy.to_vec(), dial).await?;
                tunnel::connect(&stream, &proxy, address).await?;
                Ok((stream, address))
            }
        };
        race(addresses, connecting).await
    }

    async fn begin(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        is_exclusive: bool,
    ) -> io::Result<Connection> {
        let tls = match &self.security {
            Security::Clear => return Connection::new(stream, address),
            Security::Tls(tls) => tls,
            Security::Unavailable => return Err(no_settings()),
        };
        let tls = match is_exclusive && self.may_h2 {
            true => self.tls_http1.get_or_init(|| tls.for_http1()),
            false => tls,
        };
        let mut connection = Connection::begin_tls(stream, address, tls)?;
        std::future::poll_fn(|context| connection.poll_handshake(context)).await?;
        Ok(connection)
    }
}

fn no_settings() -> io::Error {
    let error = "its TLS settings have gone with the files that they were in";
    io::Error::new(io::ErrorKind::NotFound, error)
}

/// Connects to an address, unless that takes a descriptor that is kept for others.
async fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4(),
        SocketAddr::V6(_) => TcpSocket::new_v6(),
    };
    let socket = socket.map_err(descriptors::no_descriptor)?;
    descriptors::check_back_end(&socket)?;
    socket.connect(address).await
}

/// Boxed, for it is handed on often: to each exchange, and back.
impl Pooled for Box<Connection> {
    #[inline]
    fn is_stale(&mut self) -> bool {
        Connection::is_stale(self)
    }

    fn peer(&self) -> IpAddr {
        Connection::peer(self)
    }
}

impl Multiplexed for Link {
    fn room(&self) -> usize {
        Link::room(self)
    }

    fn is_finished(&self) -> bool {
        self.is_over()
    }

    fn is_suspected(&self) -> bool {
        Link::is_suspected(self)
    }

    fn is_idle(&self) -> bool {
        Link::is_idle(self)
    }

    fn is_same(&self, other: &Self) -> bool {
        Link::is_same(self, other)
    }

    fn go_away(&self) {
        Link::go_away(self);
    }

    fn trim(&self) {
        Link::trim(self);
    }
}

/// The pool of one worker's connections to an upstream.
pub type ConnectionPool = pool::Pool<Box<Connection>, Link>;
