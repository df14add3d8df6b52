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
    let line = ["stub", "echo"].iter().chain(arguments);
    let (Kind::Echo { server, delay } | Kind::Delay { server, delay }) =
        Command::try_parse_from(line).unwrap().kind;
    let options = Arc::new(options(&server, delay).unwrap());
    let listener = serve::listen("127.0.0.1:0".parse().unwrap(), false).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || serve::serve(listener, &options));
    address
}
