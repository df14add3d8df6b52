//! A stub within a test.
#![cfg(test)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use clap::Parser;

use super::{Kind, options, serve};

/// A command line as clap reads it.
#[derive(Debug, Parser)]
struct Command {
    #[command(subcommand)]
    kind: Kind,
}

/// Starts `stub echo` with these arguments on a free port; it lives as long as the test program.
pub(crate) fn start(arguments: &[&str]) -> SocketAddr {
    start_kind("echo", arguments)
}

/// Starts a stub of this kind.
pub(crate) fn start_kind(kind: &str, arguments: &[&str]) -> SocketAddr {
    let line = ["stub", kind].into_iter().chain(arguments.iter().copied());
    let (server, delay, is_soap) = Command::try_parse_from(line).unwrap().kind.parts();
    let options = Arc::new(options(&server, delay, is_soap).unwrap());
    let listener = serve::listen("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || serve::serve(listener, &options));
    address
}
