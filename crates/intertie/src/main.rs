//! The `intertie` binary: reads the command line and does what it says.

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    allocator::link_mimalloc();
    intertie::shown::guard_panics();
    match intertie::cli::Cli::parse().execute() {
        Ok(code) => code,
        Err(error) => {
            intertie::shown::error(&error);
            ExitCode::FAILURE
        }
    }
}
