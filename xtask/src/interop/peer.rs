//! Whom the clients talk to: Intertie, or HAProxy in its place; their configuration.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::bench::Ports;
use crate::command::{Failure, cargo, target};
use crate::servers::{self, Needed};

/// The server between clients and back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Intertie,
    HaProxy,
}

impl Peer {
    pub fn needs(self) -> &'static [Needed] {
        match self {
            Self::Intertie => &[],
            Self::HaProxy => servers::PEER,
        }
    }

    /// Where the program is. Intertie is built, unless the variable INTERTIE names one.
    pub fn program(self, root: &Path) -> Result<PathBuf, Failure> {
        if self == Self::HaProxy {
            return Ok(servers::find("haproxy").unwrap_or_else(|| "haproxy".into()));
        }
        if let Some(chosen) = std::env::var_os("INTERTIE") {
            return Ok(std::path::absolute(chosen)?);
        }
        cargo(root)
            .args(["build", "--release", "--package", "intertie"])
            .run()?;
        Ok(target(root)?.join("release/intertie"))
    }

    /// The name and the text of the configuration, which lies beside the certificates.
    pub fn configuration(self, ports: &Ports) -> (&'static str, String) {
        match self {
            Self::Intertie => ("flows.yaml", flows(ports)),
            Self::HaProxy => ("haproxy.cfg", haproxy(ports)),
        }
    }

    /// The signal after which it ends in order, with 0.
    pub fn stop_signal(self) -> &'static str {
        match self {
            Self::Intertie => "TERM",
            Self::HaProxy => "USR1",
        }
    }

    pub fn command(self, program: &Path, folder: &Path, ports: &Ports) -> Command {
        let mut command = Command::new(program);
        match self {
            Self::Intertie => command
                .arg("run")
                .arg(folder.join("flows.yaml"))
                .args(["--workers", "1", "--admin"])
                .arg(format!("127.0.0.1:{}", ports.admin)),
            Self::HaProxy => command.args(["-db", "-f", "haproxy.cfg"]),
        };
        command.current_dir(folder);
        command
    }
}

/// Every kind of listener, each with a flow for HTTP and one for WebSocket, and gRPC by three ways.
fn flows(ports: &Ports) -> String {
    let tls = "tls: { cert: server.pem, key: server.key }, protocols: [h2, http/1.1]";
    let listeners = [
        ("plain", ports.plain, ""),
        ("mixed", ports.mixed, "protocols: [http/1.1, h2]"),
        ("h2c", ports.h2c, "protocols: [h2]"),
        ("tls", ports.tls, tls),
    ];
    let mut flows = Vec::new();
    for (name, port, keys) in listeners {
        flows.push(flow(name, port, "/*", keys, &http(ports.echo)));
        let name = format!("{name}-websocket");
        flows.push(flow(&name, port, "/ws", keys, &http(ports.websocket)));
    }
    let clear = format!("{{ http: \"{}\", protocols: [h2] }}", http(ports.grpc));
    let secure = format!(
        "{{ http: \"https://127.0.0.1:{}\", tls: {{ ca: ca.pem }}, protocols: [h2] }}",
        ports.grpc_tls
    );
    let ways = [
        (
            "clear-to-clear",
            ports.clear_to_clear,
            "protocols: [h2]",
            &clear,
        ),
        ("tls-to-clear", ports.tls_to_clear, tls, &clear),
        ("tls-to-tls", ports.tls_to_tls, tls, &secure),
    ];
    for (name, port, keys, backend) in ways {
        let flow = flow(name, port, "/*", keys, "backend:");
        let used = format!("\nuse:\n  backend: {backend}\nfrom:");
        flows.push(flow.replacen("\nfrom:", &used, 1));
    }
    flows.push(messages(ports.messages));
    flows.join("---\n")
}

/// A flow that sends messages back, and one that forwards to it.
fn messages(port: u16) -> String {
    let through = flow("through", port, "/through/*", "", &http(port));
    format!(
        "flow: messages
from:
  websocket:
    listen: \"127.0.0.1:{port}\"
    path: /messages
    message_max: 32MiB
    compression: true
steps:
  - reply: {{ status: 200 }}
---
{through}"
    )
}

fn http(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn flow(name: &str, port: u16, path: &str, keys: &str, target: &str) -> String {
    let comma = if keys.is_empty() { "" } else { ", " };
    format!(
        "flow: {name}
from:
  http: {{ listen: \"127.0.0.1:{port}\", path: {path}{comma}{keys} }}
steps:
  - forward: {target}/
"
    )
}

/// The same listeners; in clear text HAProxy takes h2c everywhere.
fn haproxy(ports: &Ports) -> String {
    let tls = "ssl crt both.pem alpn h2,http/1.1";
    let Ports {
        plain,
        mixed,
        h2c,
        tls: secure,
        echo,
        websocket,
        grpc,
        grpc_tls,
        ..
    } = ports;
    let (clear_to_clear, tls_to_clear) = (ports.clear_to_clear, ports.tls_to_clear);
    let tls_to_tls = ports.tls_to_tls;
    format!(
        "global
  nbthread 1
  maxconn 4000
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend http
  bind 127.0.0.1:{plain}
  bind 127.0.0.1:{mixed}
  bind 127.0.0.1:{h2c} proto h2
  bind 127.0.0.1:{secure} {tls}
  use_backend websocket if {{ path /ws }}
  default_backend echo
frontend grpc
  bind 127.0.0.1:{clear_to_clear} proto h2
  bind 127.0.0.1:{tls_to_clear} {tls}
  default_backend grpc
frontend grpc_tls
  bind 127.0.0.1:{tls_to_tls} {tls}
  default_backend grpc_tls
backend echo
  server one 127.0.0.1:{echo}
backend websocket
  server one 127.0.0.1:{websocket}
backend grpc
  server one 127.0.0.1:{grpc} proto h2
backend grpc_tls
  server one 127.0.0.1:{grpc_tls} ssl verify required ca-file ca.pem alpn h2
"
    )
}
