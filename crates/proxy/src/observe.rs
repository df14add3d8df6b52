//! What is told about a request when it has ended.

use std::net::IpAddr;

/// One line of the access log.
#[derive(Clone, Copy, Debug)]
pub struct AccessEntry<'a> {
    /// The flow, or none when no route took the request.
    pub flow: Option<&'a str>,
    /// The client's address.
    pub peer: IpAddr,
    /// The method.
    pub method: &'a str,
    /// Path and query as they were sent.
    pub target: &'a str,
    /// The status of the reply; 0 when the client left before there was one.
    pub status: u16,
    /// From the request's head to the reply's end, in microseconds.
    pub microseconds: u64,
    /// Bytes of the reply's body, framing included.
    pub received: u64,
}

/// Somebody who writes the access log. Called on a worker's thread: it must not wait.
pub trait AccessLog: Send + Sync {
    /// Takes one line.
    fn log(&self, entry: &AccessEntry<'_>);

    /// Hands over what this thread has gathered. Called some times a second.
    fn flush(&self);
}
