//! The binary that is shipped, optimised by a profile of itself at work: built with counters, put
//! under the load of the benchmarks, and built again by what was counted. What is hot is laid out
//! and inlined for speed, what never ran for size (decision 0032).

use std::fs;
use std::path::{Path, PathBuf};

use crate::command::{Failure, cargo, program, target};
use crate::servers::{self, Needed};

/// What the load needs beside the engine: the brokers and databases of `glu` and `ussd`.
const NEEDED: &[Needed] = &[
    Needed::new("initdb", &["postgresql"]),
    Needed::new("rabbitmq-server", &["rabbitmq-server"]),
];

/// What the engine is put through: arguments of `intertie-bench`, all with Intertie alone. Each
/// path that the results in `docs/results` are about has to be in here, or it is taken for cold.
const LOADS: &[&str] = &[
    "http --peers none --users 100 --sizes 50,1024 --delays 0ms --seconds 0.7 --warm-up 200ms",
    "http --scenario jwt-eddsa --peers none --users 100 --seconds 0.7 --warm-up 200ms",
    "map --peers none --users 100 --seconds 1 --warm-up 200ms",
    "glu --scenario straight,complex --peers none --seconds 2 --warm-up 500ms",
    "glu --scenario latency --delays 100ms --peers none --seconds 1 --warm-up 500ms",
    "streams --scenario wso2-sse,saturation --peers none --users 1000 --seconds 2",
    "streams --scenario wso2-websocket --peers none --users 300 --sizes 500 --seconds 2",
    "streams --scenario axway-sse --peers none --users 100 --topics 100 --sizes 20000 --seconds 2",
    "push --scenario cost,tls,websub --endpoints 100 --seconds 2",
    "ussd --delays 100ms --seconds 1 --warm-up 500ms",
];

/// What is hot is inlined by a bound of its own; everything else as little as with
/// `opt-level = "s"`: 2.3 MB less, at the same instructions a request.
const SMALL_WHERE_COLD: &str = "-Cllvm-args=-inline-threshold=25";

/// The oldest LLVM whose `llvm-profdata` reads what the compiler of `rust-version` writes.
const LLVM_MIN: u32 = 19;
/// The newest one that is looked for.
const LLVM_MAX: u32 = 29;

/// Builds it as `cargo build` does, without a version that names the commit.
pub fn run(root: &Path) -> Result<(), Failure> {
    let binary = build(root, None)?;
    println!("{}", binary.display());
    Ok(())
}

/// Builds it: `target/dist/intertie`, whose path is returned. `version` is what it says of itself.
pub fn build(root: &Path, version: Option<&str>) -> Result<PathBuf, Failure> {
    let merge = Merge::find()?;
    servers::ensure(NEEDED)?;
    cargo(root)
        .args(["build", "--locked", "-p", "lab", "--bin", "intertie-bench"])
        .run()?;
    let target = target(root)?;
    let build = Build {
        root,
        folder: target.join("pgo"),
        version,
    };
    let counted = build.folder.join("counted");
    if counted.exists() {
        fs::remove_dir_all(&counted)?;
    }
    fs::create_dir_all(&counted)?;
    let engine = build.run(&format!("-Cprofile-generate={}", counted.display()))?;
    for load in LOADS {
        program(target.join("debug/intertie-bench"))
            .args(["--intertie".as_ref(), engine.as_os_str()])
            .args(load.split(' '))
            .args(["--system", "intertie", "--rounds", "1", "--out"])
            .args([build.folder.join("load")])
            // One file for all processes of one binary, which add to it.
            .env(
                "LLVM_PROFILE_FILE",
                &format!("{}/%m.profraw", counted.display()),
            )
            .run()?;
    }
    let profile = build.folder.join("intertie.profdata");
    merge.run(&counted, &profile)?;
    let flags = format!("-Cprofile-use={} {SMALL_WHERE_COLD}", profile.display());
    let engine = build.run(&flags)?;
    let shipped = target.join("dist/intertie");
    fs::create_dir_all(target.join("dist"))?;
    // It may be running, and may be a link to what cargo keeps.
    if shipped.exists() {
        fs::remove_file(&shipped)?;
    }
    fs::copy(engine, &shipped)?;
    Ok(shipped)
}

/// A build of the profile `dist` in a folder of its own, for its flags differ.
struct Build<'a> {
    root: &'a Path,
    folder: PathBuf,
    version: Option<&'a str>,
}

impl Build<'_> {
    /// With a flag for all that runs in the engine: with `--target`, build scripts and macros do
    /// not get it.
    fn run(&self, flag: &str) -> Result<PathBuf, Failure> {
        let platform = platform()?;
        let mut command = cargo(self.root)
            .args(["build", "--locked", "--profile", "dist", "-p", "intertie"])
            .args(["--target", &platform])
            .env("CARGO_TARGET_DIR", &self.folder.display().to_string())
            .env("RUSTFLAGS", flag);
        if let Some(version) = self.version {
            command = command.env("INTERTIE_VERSION", version);
        }
        command.run()?;
        Ok(self.folder.join(platform).join("dist/intertie"))
    }
}

/// The platform that cargo builds for when nobody says otherwise.
pub fn platform() -> Result<String, Failure> {
    let text = cargo(Path::new(".")).args(["-vV"]).output()?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or_else(|| Failure::new("cargo -vV names no host"))?;
    Ok(host.to_owned())
}

/// `llvm-profdata`, which makes one profile of all counts.
struct Merge(PathBuf);

impl Merge {
    /// The one of the toolchain, if rustup has installed it, or of a Debian package.
    fn find() -> Result<Self, Failure> {
        let sysroot = program("rustc").args(["--print", "sysroot"]).output()?;
        let own = Path::new(sysroot.trim())
            .join("lib/rustlib")
            .join(platform()?)
            .join("bin/llvm-profdata");
        if own.is_file() {
            return Ok(Self(own));
        }
        if let Some(found) = Self::in_path() {
            return Ok(found);
        }
        let oldest: &'static str = "llvm-profdata-19";
        let installed = servers::ensure(&[Needed::new(oldest, &["llvm-19"])]);
        installed.map_err(|failure| {
            Failure::new(format!(
                "{failure}\nor: rustup component add llvm-tools (LLVM {LLVM_MIN} or newer)"
            ))
        })?;
        Self::in_path().ok_or_else(|| Failure::new("llvm-profdata is installed and not found"))
    }

    fn in_path() -> Option<Self> {
        let names = (LLVM_MIN..=LLVM_MAX).rev();
        let mut names = names.map(|version| format!("llvm-profdata-{version}"));
        names.find_map(|name| servers::find(&name)).map(Self)
    }

    fn run(&self, counted: &Path, profile: &Path) -> Result<(), Failure> {
        program(&self.0)
            .args(["merge", "--sparse", "-o"])
            .args([profile, counted])
            .run()
    }
}
