//! Fuzzing with libFuzzer on the stable toolchain: the flags below are what instruments the code.

use std::path::Path;

use crate::command::{Failure, cargo, program};

const TARGETS: [&str; 4] = ["http_head", "chunked", "yaml", "json_xml"];

const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks";

/// Builds all targets.
pub fn build(root: &Path) -> Result<(), Failure> {
    // A target given on the command line keeps the flags away from build scripts.
    cargo(&root.join("fuzz"))
        .args(["build", "--release", "--target", "x86_64-unknown-linux-gnu"])
        .args(["--target-dir", "target"])
        .env("RUSTFLAGS", FLAGS)
        .run()
}

/// Builds all targets and runs one, or all, one after another.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    let mut seconds = "60".to_owned();
    let mut targets: Vec<&str> = Vec::new();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "--seconds" {
            seconds = words.next().cloned().unwrap_or_default();
        } else if let Some(target) = TARGETS.iter().find(|target| *target == word) {
            targets.push(target);
        } else {
            return Err(Failure::new(format!(
                "no target {word}; there are {TARGETS:?}"
            )));
        }
    }
    if targets.is_empty() {
        targets.extend(TARGETS);
    }
    build(root)?;
    let folder = root.join("fuzz");
    for target in targets {
        let corpus = folder.join("corpus").join(target);
        let artifacts = folder.join("artifacts").join(target);
        std::fs::create_dir_all(&corpus)?;
        std::fs::create_dir_all(&artifacts)?;
        program(
            folder
                .join("target/x86_64-unknown-linux-gnu/release")
                .join(target),
        )
        .args([corpus, folder.join("seeds").join(target)])
        .args([
            format!("-artifact_prefix={}/", artifacts.display()),
            format!("-max_total_time={seconds}"),
            "-max_len=8192".to_owned(),
            "-timeout=10".to_owned(),
            "-print_final_stats=1".to_owned(),
            "-verbosity=0".to_owned(),
        ])
        .run()?;
    }
    Ok(())
}
