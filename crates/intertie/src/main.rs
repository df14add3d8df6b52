//! The `intertie` binary: reads the command line and does what it says.

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    intertie::shown::guard_panics();
    match intertie::cli::Cli::parse().execute() {
        Ok(code) => code,
        Err(error) => {
            intertie::shown::error(&error);
            ExitCode::FAILURE
        }
    }
}
