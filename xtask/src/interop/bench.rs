//! All processes that the checks need, in a temporary folder: the back ends, and the peer in front
//! of them. They end with the bench.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::peer::Peer;
use super::process::Process;
use super::report::Outcome;
use super::tools;
use crate::command::Failure;

/// How long the peer may take to end: longer than it drains.
const STOP_MAX: Duration = Duration::from_secs(40);
/// The lines of the peer's log that are shown after a failure.
const LOG_LINES: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    H1,
    H2,
}

/// A way to talk to a listener.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub name: &'static str,
    pub port: u16,
    pub is_tls: bool,
    pub protocol: Protocol,
}

impl Kind {
    /// The address with a path, which begins with `/`.
    pub fn url(&self, path: &str) -> String {
        let scheme = if self.is_tls { "https" } else { "http" };
        format!("{scheme}://127.0.0.1:{}{path}", self.port)
    }
}

/// Where everything listens: four back ends, eight listeners of the peer, its admin port; and both
/// of the engine that serves topics.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    pub echo: u16,
    pub websocket: u16,
    pub grpc: u16,
    pub grpc_tls: u16,
    /// HTTP/1.1 alone.
    pub plain: u16,
    /// HTTP/1.1 and h2c.
    pub mixed: u16,
    /// h2c alone.
    pub h2c: u16,
    /// HTTP/1.1 and HTTP/2.
    pub tls: u16,
    pub clear_to_clear: u16,
    pub tls_to_clear: u16,
    pub tls_to_tls: u16,
    /// Flows that messages of WebSocket clients start.
    pub messages: u16,
    pub admin: u16,
    pub topics: u16,
    pub topics_admin: u16,
    /// The engine with a WebSub hub, and who subscribes to it.
    pub hub: u16,
    pub hub_admin: u16,
    pub subscriber: u16,
}

/// How much the check `peers` does.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// The bytes of a large body.
    pub size: u64,
    /// Every client with every back end in every protocol.
    pub full: bool,
    /// Which part of the pairs, from 1, and of how many.
    pub part: (usize, usize),
}

impl Default for Extent {
    fn default() -> Self {
        Self {
            size: 1 << 30,
            full: false,
            part: (1, 1),
        }
    }
}

pub struct Bench {
    pub root: PathBuf,
    pub folder: PathBuf,
    pub python: PathBuf,
    /// The peer's.
    pub program: PathBuf,
    pub ports: Ports,
    pub extent: Extent,
    peer: Peer,
    processes: Vec<Process>,
    keep: bool,
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.processes.clear();
        match self.keep {
            true => eprintln!("configuration and logs: {}", self.folder.display()),
            false => drop(fs::remove_dir_all(&self.folder)),
        }
    }
}

impl Bench {
    pub fn start(
        root: &Path,
        python: PathBuf,
        peer: Peer,
        program: &Path,
        keep: bool,
    ) -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("intertie-interop-{}", std::process::id()));
        fs::create_dir(&folder)?;
        let mut bench = Self {
            root: root.to_path_buf(),
            folder,
            python,
            program: program.to_path_buf(),
            ports: ports()?,
            extent: Extent::default(),
            peer,
            processes: Vec::new(),
            keep,
        };
        bench.make_certificates()?;
        bench.start_backends()?;
        let (name, text) = peer.configuration(&bench.ports);
        fs::write(bench.folder.join(name), text)?;
        let command = peer.command(program, &bench.folder, &bench.ports);
        bench.spawn("peer", command, bench.ports.tls_to_tls)?;
        Ok(bench)
    }

    /// All ways to talk to the peer's listeners for HTTP.
    pub fn kinds(&self) -> [Kind; 6] {
        let kind = |name, port, is_tls, protocol| Kind {
            name,
            port,
            is_tls,
            protocol,
        };
        let ports = self.ports;
        [
            kind("h1", ports.plain, false, Protocol::H1),
            kind("h1 beside h2c", ports.mixed, false, Protocol::H1),
            kind("h2c beside h1", ports.mixed, false, Protocol::H2),
            kind("h2c", ports.h2c, false, Protocol::H2),
            kind("h1 TLS", ports.tls, true, Protocol::H1),
            kind("h2 TLS", ports.tls, true, Protocol::H2),
        ]
    }

    /// Whether the peer runs flows and serves topics.
    pub fn has_flows(&self) -> bool {
        self.peer == Peer::Intertie
    }

    pub fn kinds_of(&self, protocol: Protocol) -> Vec<Kind> {
        let kinds = self.kinds().into_iter();
        kinds.filter(|it| it.protocol == protocol).collect()
    }

    /// The ways through the peer to the gRPC back end.
    pub fn grpc_ways(&self) -> [Kind; 3] {
        let kind = |name, port, is_tls| Kind {
            name,
            port,
            is_tls,
            protocol: Protocol::H2,
        };
        [
            kind("h2c to h2c", self.ports.clear_to_clear, false),
            kind("TLS to h2c", self.ports.tls_to_clear, true),
            kind("TLS to TLS", self.ports.tls_to_tls, true),
        ]
    }

    /// A file of the temporary folder, as text for a command line.
    pub fn file(&self, name: &str) -> String {
        self.folder.join(name).to_string_lossy().into_owned()
    }

    pub fn script(&self, name: &str) -> PathBuf {
        tools::scripts(&self.root).join(name)
    }

    /// An authority, and a certificate of it for this machine's own address.
    fn make_certificates(&self) -> Result<(), Failure> {
        let key = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30";
        let authority = "-keyout ca.key -out ca.pem -subj /CN=Interop";
        let server = "-keyout server.key -out server.pem -subj /CN=localhost \
            -addext subjectAltName=DNS:localhost,IP:127.0.0.1 \
            -addext basicConstraints=critical,CA:FALSE -CA ca.pem -CAkey ca.key";
        for more in [authority, server] {
            let words = key.split(' ').chain(more.split_ascii_whitespace());
            let output = Command::new("openssl")
                .args(words)
                .current_dir(&self.folder)
                .output()?;
            if !output.status.success() {
                let problem = String::from_utf8_lossy(&output.stderr).into_owned();
                return Err(Failure::new(format!("openssl failed: {problem}")));
            }
        }
        // HAProxy wants both in one file.
        let (certificate, key) = (self.file("server.pem"), self.file("server.key"));
        let both = [fs::read(certificate)?, fs::read(key)?].concat();
        Ok(fs::write(self.folder.join("both.pem"), both)?)
    }

    fn start_backends(&mut self) -> Result<(), Failure> {
        let ports = self.ports;
        let grpc = format!("{} {} server.pem server.key", ports.grpc, ports.grpc_tls);
        let servers = [
            ("echo_server", ports.echo, ports.echo.to_string()),
            (
                "websocket_server",
                ports.websocket,
                ports.websocket.to_string(),
            ),
            ("grpc_server", ports.grpc_tls, grpc),
        ];
        for (name, port, arguments) in servers {
            let mut command = Command::new(&self.python);
            command
                .arg(self.script(&format!("{name}.py")))
                .args(arguments.split(' '))
                .env("PYTHONDONTWRITEBYTECODE", "1")
                .current_dir(&self.folder);
            self.spawn(name, command, port)?;
        }
        Ok(())
    }

    /// Starts a process and waits until it listens.
    fn spawn(&mut self, name: &str, command: Command, port: u16) -> Result<(), Failure> {
        let mut process = Process::start(&self.folder, name, command)?;
        process.listens(port)?;
        self.processes.push(process);
        Ok(())
    }

    /// The peer is still there, and ends in order when told to.
    pub fn stop_peer(&mut self) -> Outcome {
        match self.processes.last_mut() {
            Some(peer) => peer.stop(self.peer.stop_signal(), STOP_MAX),
            None => Err(Failure::new("it never ran")),
        }
    }

    /// The end of the peer's log.
    pub fn log_end(&self) -> String {
        let text = self.processes.last().map(Process::printed);
        let text = text.unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let end = lines.get(lines.len().saturating_sub(LOG_LINES)..);
        end.unwrap_or_default().join("\n")
    }
}

/// Free ports, all taken at once so that none comes twice.
fn ports() -> Result<Ports, Failure> {
    let mut listeners = Vec::new();
    let mut free = || -> Result<u16, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        listeners.push(listener);
        Ok(port)
    };
    Ok(Ports {
        echo: free()?,
        websocket: free()?,
        grpc: free()?,
        grpc_tls: free()?,
        plain: free()?,
        mixed: free()?,
        h2c: free()?,
        tls: free()?,
        clear_to_clear: free()?,
        tls_to_clear: free()?,
        tls_to_tls: free()?,
        messages: free()?,
        admin: free()?,
        topics: free()?,
        topics_admin: free()?,
        hub: free()?,
        hub_admin: free()?,
        subscriber: free()?,
    })
}
