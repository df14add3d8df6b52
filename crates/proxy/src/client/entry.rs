//! What stands before the first byte of a client's own: the header of the PROXY protocol, and from
//! where clients may come.

use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use component::audit::{Origin, Refusal};
use component::edge::{ListenerEdge, ProxyProtocol};
use component::networks::Networks;
use component::once_per_second::OncePerSecond;
use component::settings::Settings;
use component::trusted_proxies::TrustedProxies;
use net::proxy_protocol::{self, HEADER_MAX, Versions};
use tokio::io::ReadBuf;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::worker::{Listener, Worker};

/// Why there is no header when the peer has closed.
const ENDED: &str = "the connection has ended";

/// How long a connection whose address is served no more waits for its header.
const LATE_TIME: Duration = Duration::from_millis(250);

/// What a listener asks of a connection before anything else.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    header: Option<HeaderRules>,
    networks: Vec<Arc<Networks>>,
}

#[derive(Debug, PartialEq, Eq)]
struct HeaderRules {
    versions: Versions,
    /// Who may send it, if that is limited.
    senders: Option<Arc<TrustedProxies>>,
}

impl Entry {
    /// What a listener asks; `None` for nothing. The settings are those that hold there.
    pub fn new(edge: &ListenerEdge, settings: &Settings) -> Option<Self> {
        let versions = edge.proxy_protocol.map(|protocol| match protocol {
            ProxyProtocol::V1 => Versions::V1,
            ProxyProtocol::V2 => Versions::V2,
            ProxyProtocol::Any => Versions::Any,
        });
        let header = versions.map(|versions| HeaderRules {
            versions,
            senders: settings.trusted_proxies.clone(),
        });
        let networks = edge.requests.networks.clone();
        let asks = header.is_some() || !networks.is_empty();
        asks.then_some(Self { header, networks })
    }

    /// Whether the connection begins with a header that tells who the client is.
    pub fn has_header(&self) -> bool {
        self.header.is_some()
    }

    /// Whether a client with this address may come. One that may not is counted.
    pub fn admits(&self, worker: &Worker, client: IpAddr) -> bool {
        let admits = self.networks.iter().all(|networks| networks.admits(client));
        if !admits {
            worker.metrics.refused_by_network.add(1);
            tracing::debug!(target: "proxy", peer = %client, "the network is not allowed");
            audit(worker, client, "network");
        }
        admits
    }

    /// Whether this peer may say who the client is. One that may not is counted.
    pub fn believes(&self, worker: &Worker, peer: IpAddr) -> bool {
        let senders = self.header.as_ref().and_then(|it| it.senders.as_ref());
        let believes = senders.is_none_or(|senders| senders.contains(peer));
        if !believes {
            refuse(worker, peer, "the peer is not among `trusted_proxies`");
        }
        believes
    }

    /// Takes the header off the socket, and nothing behind it. Gives the client's address; none
    /// when there is no header in time, which is counted.
    pub async fn read_header(
        &self,
        (worker, listener): (&Worker, &Listener),
        socket: &TcpStream,
        peer: SocketAddr,
    ) -> Option<SocketAddr> {
        let versions = self.header.as_ref()?.versions;
        let deadline = worker.deadlines.add();
        let mut reading = Reading {
            socket,
            versions,
            header: Vec::new(),
        };
        deadline.set(Instant::now(), worker.settings().timeouts.head);
        let mut is_late = false;
        let read = poll_fn(|context| {
            if let Poll::Ready(result) = reading.poll(context) {
                return Poll::Ready(result);
            }
            let is_over = worker.is_draining() || listener.is_closed();
            if is_over && !std::mem::replace(&mut is_late, true) {
                deadline.set(Instant::now(), LATE_TIME);
            }
            deadline
                .poll(context)
                .map(|()| Err("it did not arrive in time"))
        });
        match read.await {
            Ok(client) => Some(SocketAddr::new(client.unwrap_or(peer.ip()), peer.port())),
            // A health check by TCP says nothing, and whoever waits at a stop has said nothing yet.
            Err(ENDED) if reading.header.is_empty() => None,
            Err(_) if is_late && reading.header.is_empty() => None,
            Err(cause) => {
                refuse(worker, peer.ip().to_canonical(), cause);
                None
            }
        }
    }
}

/// Tells the audit stream about a connection that is closed before a request is read.
fn audit(worker: &Worker, client: IpAddr, reason: &str) {
    let refusal = Refusal {
        way: None,
        id: None,
        reason,
        status: None,
        target: "listener",
    };
    let audit = &worker.engine.audit;
    audit.refused(&refusal, || Origin::of_address(client));
}

fn refuse(worker: &Worker, peer: IpAddr, cause: &'static str) {
    static REFUSALS: OncePerSecond = OncePerSecond::new();
    worker.metrics.refused_by_proxy_protocol.add(1);
    audit(worker, peer, "proxy_protocol");
    if let Some(count) = REFUSALS.pass() {
        tracing::warn!(
            target: "proxy", %peer, cause, count,
            "connections without a header of the PROXY protocol that can be believed are refused"
        );
    }
}

/// A header that is being read.
struct Reading<'a> {
    socket: &'a TcpStream,
    versions: Versions,
    /// What has been taken off the socket.
    header: Vec<u8>,
}

impl Reading<'_> {
    /// Looks at what has come before it takes it, for TLS wants what follows the header.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<IpAddr>, &'static str>> {
        loop {
            let known = self.header.len();
            let mut space = [0; HEADER_MAX];
            let room = space.get_mut(known..).unwrap_or_default();
            let mut room = ReadBuf::new(room);
            let count = match ready!(self.socket.poll_peek(context, &mut room)) {
                Ok(0) => return Poll::Ready(Err(ENDED)),
                Ok(count) => count,
                Err(_) => return Poll::Ready(Err("the connection has failed")),
            };
            self.header.extend_from_slice(room.filled());
            let found = match proxy_protocol::parse(&self.header, self.versions) {
                Ok(found) => found,
                Err(malformed) => return Poll::Ready(Err(malformed.0)),
            };
            let taken = found.map_or(count, |header| header.length.saturating_sub(known));
            if take(self.socket, taken).is_err() {
                return Poll::Ready(Err("the connection has failed"));
            }
            if let Some(header) = found {
                return Poll::Ready(Ok(header.client));
            }
        }
    }
}

/// Takes this many bytes off the socket, which are there.
fn take(socket: &TcpStream, count: usize) -> io::Result<()> {
    let mut space = [0; HEADER_MAX];
    let mut left = count;
    while left > 0 {
        let room = space.get_mut(..left).unwrap_or_default();
        left -= match socket.try_read(room)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => read,
        };
    }
    Ok(())
}
