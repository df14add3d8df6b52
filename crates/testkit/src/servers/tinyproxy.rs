//! Tinyproxy, a proxy that takes `CONNECT`.

use std::process::Command;

use crate::process::{Process, TempDir, free_port};
use crate::servers::find;

/// A real forward proxy.
pub struct Tinyproxy {
    port: u16,
    folder: TempDir,
    _process: Process,
}

impl Tinyproxy {
    /// Starts one that connects to any port, with these lines in its configuration.
    pub fn start(more: &str) -> Self {
        let (folder, port) = (TempDir::new(), free_port());
        let log = folder.path().join("log");
        let text = format!(
            "Port {port}\nListen 127.0.0.1\nTimeout 60\nMaxClients 100\nLogLevel Connect\n\
             LogFile \"{}\"\n{more}\n",
            log.display()
        );
        let config = folder.write("tinyproxy.conf", &text);
        let binary = find("tinyproxy")
            .expect("tinyproxy is missing: `cargo xtask test` installs it (package tinyproxy-bin)");
        let mut process = Process::start(Command::new(binary).arg("-d").arg("-c").arg(config));
        process.wait_for_port(port);
        Self {
            port,
            folder,
            _process: process,
        }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}
