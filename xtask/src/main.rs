//! Chores of the repository: `cargo xtask` lists them. Uses the standard library alone, so that it
//! starts in seconds.

mod book;
mod campaign;
mod command;
mod corpus;
mod dist;
mod editor;
mod fuzz;
mod instructions;
mod interop;
mod memory;
mod package;
mod servers;
mod tidy;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use command::{Failure, cargo};

const USAGE: &str = "\
cargo xtask tidy                          check the rules of the house
cargo xtask test [ARGUMENTS]              tidy, install the servers that tests need, run all tests
cargo xtask ci                            format, clippy, and test, as CI does
cargo xtask fuzz [TARGET] [--seconds N]   build and run fuzz targets, 60 s each unless told
cargo xtask interop [CHECK...] [--haproxy] [--keep] [--size BYTES] [--full]
                   [--part N/M] [--summary]
                                          real clients and h2spec against every kind of listener,
                                          Autobahn, subscribers of topics across restarts
cargo xtask book [--screenshots DIR]      build the docs as a book, target/book, and check its
                                          links; pictures of three pages at two widths
cargo xtask dist                          the binary that is shipped, target/dist/intertie: built,
                                          put under load, and built again with what was counted
cargo xtask package [--check]             all packages, in target/package; installs and removes each
cargo xtask instructions BINARY...        instructions a request of each, counted by valgrind
cargo xtask campaign faults --minutes N [--seed N] [--binary FILE] [--only FAULT]
                                          an engine that is killed, on disks and folders that
                                          fail: what is lost, and what is lost silently
cargo xtask campaign hostile --minutes N [--seed N] [--binary FILE] [--only ATTACK]
                                          attacks on every protocol, with a well-behaved client
                                          beside them: its errors and latency, memory, descriptors
cargo xtask campaign doors --minutes N [--seed N] [--binary FILE] [--only ATTACK]
                                          the same with 200 attackers from 50 addresses before
                                          doors of every kind, and a client with credentials
cargo xtask corpus wsdl|xml FOLDER        documents of others that are too many to keep: which of
                                          them pass, and whether the list of exceptions is true
cargo xtask editor                        every example in yaml-language-server (needs npm)
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = root();
    let rest = arguments.get(1..).unwrap_or_default();
    let result = match arguments.first().map(String::as_str) {
        Some("tidy") => tidy::run(&root),
        Some("test") => test(&root, rest),
        Some("ci") => ci(&root),
        Some("fuzz") => fuzz::run(&root, rest),
        Some("instructions") => instructions::run(&root, rest),
        Some("interop") => interop::run(&root, rest),
        Some("book") => book::run(&root, rest),
        Some("dist") => dist::run(&root),
        Some("package") => package::run(&root, rest),
        Some("campaign") => campaign::run(&root, rest),
        Some("corpus") => corpus::run(&root, rest),
        Some("editor") => editor::check(&root),
        _ => Err(Failure::new(USAGE)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's folder: this crate lies in it.
fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Crates whose library tests start servers. `tidy` refuses such a test in any other crate.
const LIBRARIES_WITH_SERVERS: &[&str] = &["connectors", "testkit"];

/// Tests that need nothing but the crates come first: they start before servers and tools have been
/// installed and the largest binaries linked.
fn test(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    tidy::run(root)?;
    let run = |words: &[&str]| {
        let command = cargo(root).args(["test"]).args(words);
        command.args(arguments).run()
    };
    let is_all = arguments.is_empty();
    if is_all {
        let mut words = vec!["--workspace", "--lib"];
        for library in LIBRARIES_WITH_SERVERS {
            words.extend(["--exclude", library]);
        }
        run(&words)?;
    }
    servers::ensure(servers::FOR_TESTS)?;
    tools::ensure(root, tools::FOR_TESTS)?;
    servers::ensure_python(&command::target(root)?)?;
    if !is_all {
        return run(&["--workspace"]);
    }
    for library in LIBRARIES_WITH_SERVERS {
        run(&["--lib", "--package", library])?;
    }
    run(&["--workspace", "--bins", "--examples", "--test", "*"])?;
    run(&["--workspace", "--doc"])
}

fn ci(root: &Path) -> Result<(), Failure> {
    cargo(root).args(["fmt", "--all", "--check"]).run()?;
    fuzz::check_format(root)?;
    cargo(root)
        .args([
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ])
        .run()?;
    test(root, &[])?;
    book::build(root)?;
    fuzz::build(root).map(drop)
}
