//! The back ends: Node and Go, and nginx, Apache, lighttpd and Caddy, which serve files, refuse and
//! redirect themselves, and have the one in Go behind them for everything else.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::client::Link;
use crate::command::Failure;
use crate::interop::bench::Bench;
use crate::interop::process::Process;
use crate::servers;

/// Where the modules of Apache lie, below which it looks for `modules`.
const APACHE_ROOTS: [&str; 3] = ["/usr/lib/apache2", "/usr/lib64/httpd", "/usr/lib/httpd"];

/// Which back ends there are; the others need Go's.
pub const NAMES: [&str; 6] = ["go", "node", "nginx", "apache", "lighttpd", "caddy"];

/// A back end that runs.
pub struct Backend {
    pub name: &'static str,
    pub ports: Listeners,
    /// The engine's listeners for each protocol that the back end is spoken to with.
    pub engine: [EnginePorts; 4],
    _process: Process,
}

/// The ports of a back end.
#[derive(Clone, Copy, Debug)]
pub struct Listeners {
    pub clear: u16,
    pub tls: u16,
    pub h2c: u16,
}

/// The ports of the engine that lead to one back end by one protocol.
#[derive(Clone, Copy, Debug)]
pub struct EnginePorts {
    pub link: Link,
    /// HTTP/1.1 and h2c.
    pub clear: u16,
    pub tls: u16,
}

impl Listeners {
    fn port(self, link: Link) -> u16 {
        match link {
            Link::H1 => self.clear,
            Link::H1s | Link::H2 => self.tls,
            Link::H2c => self.h2c,
        }
    }
}

impl Backend {
    /// The URL that a client asks without the proxy.
    pub fn direct(&self, link: Link) -> String {
        url(link, self.ports.port(link))
    }

    /// The URL of the engine that leads to the back end by `to`.
    pub fn proxied(&self, link: Link, to: Link) -> String {
        let ports = self.engine.iter().find(|it| it.link == to);
        let port = ports.map_or(0, |it| if link.is_tls() { it.tls } else { it.clear });
        url(link, port)
    }

    /// Whether it passes an upload on, and the reply to it, while the upload goes on.
    pub fn streams_both_ways(&self) -> bool {
        matches!(self.name, "go" | "node")
    }

    pub fn addresses(&self) -> Vec<String> {
        let Listeners { clear, tls, h2c } = self.ports;
        [clear, tls, h2c]
            .map(|port| format!("127.0.0.1:{port}"))
            .to_vec()
    }

    /// The engine's flows for it.
    pub fn flows(&self) -> String {
        let flows = self.engine.iter().map(|ports| self.flows_to(*ports));
        flows.collect::<Vec<_>>().join("---\n")
    }

    fn flows_to(&self, ports: EnginePorts) -> String {
        let link = ports.link;
        let protocol = if link.is_h2() { "h2" } else { "http/1.1" };
        let trust = if link.is_tls() {
            ", tls: { ca: ca.pem }"
        } else {
            ""
        };
        let target = self.direct(link);
        let listeners = [
            ("clear", ports.clear, "protocols: [http/1.1, h2]"),
            (
                "tls",
                ports.tls,
                "tls: { cert: server.pem, key: server.key }",
            ),
        ];
        let flow = |(kind, port, keys): (&str, u16, &str)| {
            format!(
                "flow: {}-{}-{kind}
use:
  backend: {{ http: \"{target}\", protocols: [{protocol}]{trust} }}
from:
  http: {{ listen: \"127.0.0.1:{port}\", path: /*, {keys} }}
steps:
  - forward: backend:/
",
                self.name,
                link.name()
            )
        };
        listeners.map(flow).join("---\n")
    }
}

fn url(link: Link, port: u16) -> String {
    format!("{}://127.0.0.1:{port}", link.scheme())
}

/// What is used to start back ends.
pub struct Starter<'a> {
    pub bench: &'a Bench,
    pub folder: &'a Path,
    /// Go's back end, built.
    pub go: PathBuf,
    /// Takes a free port.
    pub port: &'a mut dyn FnMut() -> Result<u16, Failure>,
}

impl Starter<'_> {
    /// Starts a back end; `application` is the port of Go's.
    pub fn start(&mut self, name: &'static str, application: u16) -> Result<Backend, Failure> {
        let ports = Listeners {
            clear: (self.port)()?,
            tls: (self.port)()?,
            h2c: (self.port)()?,
        };
        let mut engine = [EnginePorts {
            link: Link::H1,
            clear: 0,
            tls: 0,
        }; 4];
        for (ports, link) in engine.iter_mut().zip(Link::ALL) {
            let (clear, tls) = ((self.port)()?, (self.port)()?);
            *ports = EnginePorts { link, clear, tls };
        }
        let command = self.command(name, ports, application)?;
        let mut process = Process::start(self.folder, name, command)?;
        for port in [ports.clear, ports.tls, ports.h2c] {
            process.listens(port)?;
        }
        Ok(Backend {
            name,
            ports,
            engine,
            _process: process,
        })
    }

    fn command(&self, name: &str, ports: Listeners, application: u16) -> Result<Command, Failure> {
        let mut command = match name {
            "go" | "node" => {
                let mut command = match name {
                    "go" => Command::new(&self.go),
                    _ => Command::new("node"),
                };
                if name == "node" {
                    command.arg(self.bench.script("peers/server.mjs"));
                }
                let numbers = [ports.clear, ports.tls, ports.h2c].map(|port| port.to_string());
                command.args(numbers).arg(self.folder);
                command
            }
            "nginx" => self.configured("nginx", &["-c"], "nginx.conf", ports, application)?,
            "apache" => {
                let flags = ["-DFOREGROUND", "-f"];
                self.configured("apache2", &flags, "apache.conf", ports, application)?
            }
            "lighttpd" => self.configured(
                "lighttpd",
                &["-D", "-f"],
                "lighttpd.conf",
                ports,
                application,
            )?,
            _ => {
                let flags = ["run", "--adapter", "caddyfile", "--config"];
                self.configured("caddy", &flags, "Caddyfile", ports, application)?
            }
        };
        command.env("HOME", self.folder).current_dir(self.folder);
        Ok(command)
    }

    /// A server with its configuration, in which `@NAME@` is replaced.
    fn configured(
        &self,
        program: &str,
        flags: &[&str],
        file: &str,
        ports: Listeners,
        application: u16,
    ) -> Result<Command, Failure> {
        let mut text = fs::read_to_string(self.bench.script(&format!("peers/{file}")))?;
        let modules = APACHE_ROOTS
            .into_iter()
            .find(|it| Path::new(it).join("modules").is_dir());
        let values = [
            ("@CLEAR@", ports.clear.to_string()),
            ("@TLS@", ports.tls.to_string()),
            ("@H2C@", ports.h2c.to_string()),
            ("@APPLICATION@", application.to_string()),
            ("@FOLDER@", self.folder.display().to_string()),
            ("@MODULES@", modules.unwrap_or_default().to_owned()),
        ];
        for (name, value) in values {
            text = text.replace(name, &value);
        }
        let path = self.folder.join(file);
        fs::write(&path, text)?;
        let found = servers::find(program);
        let found = found.ok_or_else(|| Failure::new(format!("{program} is missing")))?;
        let mut command = Command::new(found);
        command.args(flags).arg(path);
        Ok(command)
    }
}
