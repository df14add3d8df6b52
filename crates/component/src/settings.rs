//! Limits and time-outs of the engine. Every one has a default; none can be switched off.

use std::sync::Arc;
use std::time::Duration;

use crate::egress::Policy;
use crate::identity::IdentityField;
use crate::trusted_proxies::TrustedProxies;

/// Limits on what a peer can make the engine hold or do.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most bytes of a request or reply head, start line included.
    pub head: usize,
    /// The most field lines of a head or trailer section.
    pub fields: usize,
    /// The most bytes of a body that is read into memory.
    pub body: u64,
    /// The most bytes of all bodies that are held at a time; `None` for half of the machine's.
    pub body_memory: Option<u64>,
    /// The least bytes a second that a client whose body or reply is waited for must move, judged
    /// over [`Timeouts::body`]; 0 for no least rate.
    pub min_body_rate: u64,
    /// The most client connections of the whole engine.
    pub connections: usize,
    /// The most client connections from one address (IPv6: one /64), when there is a limit.
    pub connections_per_address: Option<usize>,
    /// The most idle connections kept to one upstream by one worker.
    pub upstream_idle: usize,
    /// Limits of HTTP/2 connections.
    pub h2: Http2Limits,
}

/// Limits on what a peer can make one HTTP/2 connection hold or do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Http2Limits {
    /// The most streams at a time (RFC 9113, section 5.1.2).
    pub streams: u32,
    /// Bytes that a peer may send on one stream before any of them has been passed on.
    pub stream_window: u32,
    /// The same for all streams together; at least 65535.
    pub connection_window: u32,
    /// The most streams in ten seconds that a peer opens and resets.
    pub resets: u32,
    /// The most frames in ten seconds that carry nothing: PING, SETTINGS, PRIORITY, empty DATA.
    pub control_frames: u32,
    /// The most CONTINUATION frames of one head.
    pub continuations: u32,
}

impl Default for Http2Limits {
    fn default() -> Self {
        Self {
            streams: 128,
            stream_window: 64 * 1024,
            connection_window: 1024 * 1024,
            resets: 200,
            control_frames: 2000,
            continuations: 16,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: 32 * 1024,
            fields: 100,
            body: 1024 * 1024,
            body_memory: None,
            min_body_rate: 256,
            connections: 20_000,
            connections_per_address: None,
            upstream_idle: 1024,
            h2: Http2Limits::default(),
        }
    }
}

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// A client connection between two requests.
    pub idle: Duration,
    /// From the first byte of a head to its end.
    pub head: Duration,
    /// A body in which no byte moves, in either direction.
    pub body: Duration,
    /// Making a connection to an upstream, name look-up included.
    pub connect: Duration,
    /// From the request's end to the head of the upstream's reply.
    pub response: Duration,
    /// A call of a step, from its beginning to the end of the reply's body.
    pub call: Duration,
    /// An upgraded connection or an event stream in which no byte moves.
    pub stream: Duration,
    /// An idle connection to an upstream.
    pub upstream_idle: Duration,
    /// Requests in flight when the engine is told to stop.
    pub drain: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(75),
            head: Duration::from_secs(15),
            body: Duration::from_secs(30),
            connect: Duration::from_secs(5),
            response: Duration::from_secs(60),
            call: Duration::from_secs(300),
            stream: Duration::from_secs(3600),
            upstream_idle: Duration::from_secs(55),
            drain: Duration::from_secs(30),
        }
    }
}

/// All settings that workers need.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Limits.
    pub limits: Limits,
    /// Time-outs.
    pub timeouts: Timeouts,
    /// Whether each request writes a line to the access log.
    pub access_log: bool,
    /// The proxies that are believed when they tell who the client is; absent when there are none.
    pub trusted_proxies: Option<Arc<TrustedProxies>>,
    /// Whether these proxies say in `Client-Cert` which certificate a client has shown them.
    pub client_cert_header: bool,
    /// The header in which the engine tells other systems who a caller is: that of nobody else is
    /// passed on.
    pub identity_field: Option<Arc<IdentityField>>,
    /// Which URLs may be called that users set.
    pub egress: Arc<Policy>,
}
