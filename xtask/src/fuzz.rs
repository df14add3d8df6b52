//! Fuzzing with libFuzzer on the stable toolchain: the flags below are what instruments the code.

use std::path::{Path, PathBuf};

use crate::command::{Failure, cargo, program};

const TARGETS: [&str; 10] = [
    "http_head",
    "chunked",
    "h2",
    "amqp",
    "websocket",
    "yaml",
    "json_xml",
    "jq",
    "wsdl",
    "document",
];

const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks";

/// Formats are checked apart from the workspace, which fuzzing is no part of.
pub fn check_format(root: &Path) -> Result<(), Failure> {
    cargo(&root.join("fuzz")).args(["fmt", "--check"]).run()
}

/// Builds all targets. Returns the folder of the programs.
pub fn build(root: &Path) -> Result<PathBuf, Failure> {
    let host = host()?;
    // A target given on the command line keeps the flags away from build scripts.
    cargo(&root.join("fuzz"))
        .args(["build", "--release", "--target", &host])
        .args(["--target-dir", "target"])
        .env("RUSTFLAGS", FLAGS)
        .run()?;
    Ok(root.join("fuzz/target").join(host).join("release"))
}

/// The triple of this machine, as the compiler names it.
fn host() -> Result<String, Failure> {
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = program(compiler).args(["-vV"]).output()?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host
        .ok_or_else(|| Failure::new(version.as_str()))?
        .to_owned())
}

/// What to run, and for how long each.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    targets: Vec<&'static str>,
    seconds: u64,
}

fn options(arguments: &[String]) -> Result<Options, Failure> {
    let mut options = Options {
        targets: Vec::new(),
        seconds: 60,
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        if word == "--seconds" {
            // libFuzzer takes 0 for "without end".
            let seconds = words.next().and_then(|word| word.parse().ok());
            options.seconds = seconds
                .filter(|seconds| *seconds > 0)
                .ok_or_else(|| Failure::new("--seconds needs a number of at least 1"))?;
        } else if let Some(target) = TARGETS.iter().find(|target| *target == word) {
            options.targets.push(target);
        } else {
            let message = format!("no target {word}; there are {}", TARGETS.join(", "));
            return Err(Failure::new(message));
        }
    }
    if options.targets.is_empty() {
        options.targets.extend(TARGETS);
    }
    Ok(options)
}

/// Builds all targets and runs one, or all, one after another.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    let Options { targets, seconds } = options(arguments)?;
    let programs = build(root)?;
    let folder = root.join("fuzz");
    for target in targets {
        let corpus = folder.join("corpus").join(target);
        let artifacts = folder.join("artifacts").join(target);
        std::fs::create_dir_all(&corpus)?;
        std::fs::create_dir_all(&artifacts)?;
        program(programs.join(target))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Options, Failure> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        options(&words)
    }

    #[test]
    fn targets_and_times_are_read() {
        let all = options(&[]).unwrap();
        assert_eq!((all.targets.as_slice(), all.seconds), (&TARGETS[..], 60));
        let one = parsed("yaml --seconds 5").unwrap();
        assert_eq!((one.targets.as_slice(), one.seconds), (&["yaml"][..], 5));
        for wrong in [
            "yml",
            "--seconds",
            "--seconds x",
            "--seconds 0",
            "yaml --seconds -1",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_target_is_in_the_manifest_and_has_seeds() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz");
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        assert_eq!(manifest.matches("[[bin]]").count(), TARGETS.len());
        for target in TARGETS {
            assert!(
                manifest.contains(&format!("\nname = \"{target}\"\n")),
                "{target}"
            );
            assert!(
                folder
                    .join("seeds")
                    .join(target)
                    .read_dir()
                    .unwrap()
                    .next()
                    .is_some()
            );
        }
    }
}
