//! `intertie-bench`: measures the engine beside other systems, and writes reports.

mod bench;

use std::process::ExitCode;

use clap::Parser;
// The modules of the crate's library, under the same paths as there.
use lab::{document, pki, stamp, stub, units, websocket, wire};

fn main() -> ExitCode {
    // As the engine: stubs and load generators are not to be dearer than what they measure.
    allocator::link_mimalloc();
    match bench::run(bench::Args::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
