//! What the comparison needs: certificates and files, back ends, the engine, and the clients.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::backend::{Backend, NAMES, Starter};
use super::client::{Clients, Start};
use super::outcome::{self, Outcome};
use super::scenario::{self, Scenario};
use crate::command::{Failure, program, target};
use crate::interop::bench::Bench;
use crate::interop::process::Process;
use crate::interop::{report, tools};
use crate::memory;

/// How long the engine may take to end: longer than it drains.
const STOP_MAX: Duration = Duration::from_secs(40);
/// What all bodies are made of: bytes that repeat only after 251 of them.
const PERIOD: u64 = 251;
/// Where ports are looked for.
const PORTS: Range<u16> = 12_000..32_000;
/// When the files were changed, so that a condition can name it.
const MODIFIED: &str = "@1700000000";

/// Everything that runs. The clients end first.
pub struct Setup {
    pub clients: Clients,
    pub backends: Vec<Backend>,
    engine: Process,
    hashes: BTreeMap<u64, String>,
    pub folder: PathBuf,
}

impl Setup {
    pub fn start(bench: &Bench) -> Result<Self, Failure> {
        let folder = bench.folder.join("peers");
        fs::create_dir(&folder)?;
        for name in ["ca.pem", "server.pem", "server.key", "both.pem"] {
            fs::copy(bench.folder.join(name), folder.join(name))?;
        }
        // Nobody is known to those who ask for a name and a password.
        fs::write(folder.join("users"), "")?;
        let hashes = make_files(&folder, bench.extent.size)?;
        let mut ports = Ports::new();
        let mut port = || ports.free();
        let mut starter = Starter {
            bench,
            folder: &folder,
            go: build_go(bench, "server")?,
            port: &mut port,
        };
        let mut backends: Vec<Backend> = Vec::new();
        for name in NAMES {
            let application = backends.first().map_or(0, |it| it.ports.clear);
            backends.push(starter.start(name, application)?);
        }
        Ok(Self {
            clients: Clients::new(starts(bench, &folder)?),
            engine: engine(bench, &folder, &backends)?,
            backends,
            hashes,
            folder,
        })
    }

    /// Whether an outcome is right in itself.
    pub fn check(&self, scenario: &Scenario, outcome: &Outcome) -> Result<(), String> {
        let hash = |size| self.hashes.get(&size).cloned().unwrap_or_default();
        outcome::check(scenario, outcome, hash)
    }

    /// The most KiB that the engine has held since [`Self::forget_peak`].
    pub fn peak_memory(&self) -> Result<u64, Failure> {
        memory::peak(self.engine.id())
    }

    pub fn forget_peak(&self) -> Result<(), Failure> {
        memory::forget_peak(self.engine.id())
    }

    pub fn stop(&mut self) -> report::Outcome {
        self.engine.stop("TERM", STOP_MAX)
    }
}

/// Files for back ends and uploads: `files/file` and `files/bytes/SIZE`; their hashes by size.
fn make_files(folder: &Path, size: u64) -> Result<BTreeMap<u64, String>, Failure> {
    let bytes = folder.join("files/bytes");
    fs::create_dir_all(&bytes)?;
    let mut hashes = BTreeMap::new();
    for size in scenario::sizes(size) {
        let path = bytes.join(size.to_string());
        write_pattern(&path, size)?;
        let file = path.display().to_string();
        let printed = program("openssl")
            .args(["dgst", "-sha256", "-r", &file])
            .output()?;
        let hash = printed.split(' ').next().unwrap_or_default();
        hashes.insert(size, hash.to_owned());
    }
    let file = folder.join("files/file");
    write_pattern(&file, scenario::FILE_SIZE)?;
    let file = file.display().to_string();
    program("touch").args(["-d", MODIFIED, &file]).output()?;
    Ok(hashes)
}

fn write_pattern(path: &Path, size: u64) -> Result<(), Failure> {
    let block: Vec<u8> = (0..=250).cycle().take(251 * 256).collect();
    let mut file = BufWriter::new(File::create(path)?);
    let mut left = size;
    while left > 0 {
        let count = left.min(PERIOD * 256);
        let piece = block.get(..usize::try_from(count).unwrap_or_default());
        file.write_all(piece.unwrap_or_default())?;
        left -= count;
    }
    Ok(file.flush()?)
}

/// Free ports below those that the system gives to outgoing connections, which the many clients
/// here would otherwise take between the choice of a port and its use.
struct Ports {
    next: u16,
}

impl Ports {
    /// Begins at a port that depends on the process: several runs may choose at a time.
    fn new() -> Self {
        let spread = u32::from(PORTS.end - PORTS.start) / 2;
        let offset = std::process::id().wrapping_mul(61) % spread;
        Self {
            next: PORTS.start + u16::try_from(offset).unwrap_or_default(),
        }
    }

    fn free(&mut self) -> Result<u16, Failure> {
        while self.next < PORTS.end {
            let port = self.next;
            self.next += 1;
            if TcpListener::bind(("127.0.0.1", port)).is_ok() {
                return Ok(port);
            }
        }
        Err(Failure::new("no free port"))
    }
}

/// A program of one file, built into the target folder.
fn build_go(bench: &Bench, name: &str) -> Result<PathBuf, Failure> {
    let folder = target(&bench.root)?.join("interop");
    fs::create_dir_all(&folder)?;
    let built = folder.join(format!("bin/peers-{name}"));
    let source = bench.script(&format!("peers/{name}.go"));
    let words = [
        "build".as_ref(),
        "-o".as_ref(),
        built.as_os_str(),
        source.as_os_str(),
    ];
    program("go").args(words).run()?;
    Ok(built)
}

fn build_java(bench: &Bench) -> Result<PathBuf, Failure> {
    let folder = target(&bench.root)?.join("interop/java");
    let source = bench.script("peers/Client.java");
    let words = ["-d".as_ref(), folder.as_os_str(), source.as_os_str()];
    program("javac").args(words).run()?;
    Ok(folder)
}

/// How each client is started.
fn starts(bench: &Bench, folder: &Path) -> Result<BTreeMap<&'static str, Start>, Failure> {
    let authority = folder.join("ca.pem").into_os_string();
    let node = tools::node(&bench.root)?.into_os_string();
    let python = bench.python.clone().into_os_string();
    let script = |name: &str| bench.script(&format!("peers/{name}")).into_os_string();
    let (go, java) = (build_go(bench, "client")?, build_java(bench)?);
    let lines = [
        ("go", vec![go.into_os_string(), authority.clone()]),
        (
            "node",
            vec!["node".into(), script("client.mjs"), authority.clone(), node],
        ),
        (
            "python",
            vec![python.clone(), script("client.py"), authority.clone()],
        ),
        (
            "java",
            vec![
                "java".into(),
                "-cp".into(),
                java.into_os_string(),
                "Client".into(),
                authority.clone(),
            ],
        ),
        (
            "curl",
            vec![python, script("curl_client.py"), authority, folder.into()],
        ),
    ];
    let start = |words: Vec<std::ffi::OsString>| -> Start {
        Box::new(move || {
            let mut words = words.iter();
            let mut command = Command::new(words.next().cloned().unwrap_or_default());
            command
                .args(words)
                .env("PYTHONDONTWRITEBYTECODE", "1")
                .env("NO_PROXY", "*");
            command
        })
    };
    Ok(lines
        .into_iter()
        .map(|(name, words)| (name, start(words)))
        .collect())
}

/// The engine with a listener in clear text and one with TLS for each protocol of each back end.
fn engine(bench: &Bench, folder: &Path, backends: &[Backend]) -> Result<Process, Failure> {
    let flows: Vec<String> = backends.iter().map(Backend::flows).collect();
    fs::write(folder.join("peers.yaml"), flows.join("---\n"))?;
    let mut command = Command::new(&bench.program);
    command
        .args(["run", "peers.yaml", "--workers", "2"])
        .current_dir(folder);
    let mut engine = Process::start(folder, "engine", command)?;
    if let Some(last) = backends.last() {
        for ports in last.engine {
            engine.listens(ports.tls)?;
        }
    }
    Ok(engine)
}
