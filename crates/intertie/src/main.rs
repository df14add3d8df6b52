//! The `intertie` binary: reads the command line and does what it says.

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match intertie::cli::Cli::parse().execute() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("intertie: {error:#}");
            ExitCode::FAILURE
        }
    }
}
