//! A stub within a test.
#![cfg(test)]

use std::net::SocketAddr;
use std::thread;

use clap::Parser;

use super::{Kind, Stub, serve};

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
    let (_, _, stub) = Command::try_parse_from(line).unwrap().kind.stub().unwrap();
    let listener = serve::listen("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || match stub {
        Stub::Http(options) => serve::serve(listener, &options),
        Stub::Sse(emitter) => serve::serve(listener, &emitter),
        Stub::WsReverse(reverser) => serve::serve(listener, &reverser),
        Stub::Renewing(renewing) => serve::serve(listener, &renewing),
    });
    address
}
