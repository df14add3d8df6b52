//! A stub within a test.
#![cfg(test)]

use std::net::SocketAddr;

/// Starts `stub echo` with these arguments on a free port; it lives as long as the test program.
pub(crate) fn start(arguments: &[&str]) -> SocketAddr {
    start_kind("echo", arguments)
}

/// Starts a stub of this kind.
pub(crate) fn start_kind(kind: &str, arguments: &[&str]) -> SocketAddr {
    super::spawn(kind, arguments).unwrap()
}
