//! Iridium: an engine of Transact-SQL that speaks TDS 7.4 (crates.io: `iridium_server`). It stands
//! in for SQL Server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, mpsc};
use std::thread;

use crate::process::{Process, TempDir, free_port};
use crate::servers::find;

/// A real Iridium, all in memory and in clear text: its TLS is 1.3, which TDS 7.4 does not have.
pub struct Iridium {
    port: u16,
    folder: TempDir,
    process: Process,
}

impl Iridium {
    /// The user.
    pub const USER: &str = "sa";
    /// Its password.
    pub const PASSWORD: &str = "p@ss:w0rd/iri";

    /// One server for all tests of this process. It dies with the process. Each test
    /// makes tables of its own.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<Iridium> = LazyLock::new(Iridium::start);
        &SHARED
    }

    /// Starts a server.
    pub fn start() -> Self {
        let (folder, port) = (TempDir::new(), free_port());
        let process = serve(&folder, port);
        Self {
            port,
            folder,
            process,
        }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a database, with user and password.
    pub fn url(&self, database: &str) -> String {
        let port = self.port;
        format!("sqlserver://sa:p%40ss%3Aw0rd%2Firi@127.0.0.1:{port}/{database}")
    }

    /// Kills it and starts it again on the same port. Its data is gone.
    pub fn restart(&mut self) {
        self.process.signal("KILL");
        self.process.wait();
        self.process = serve(&self.folder, self.port);
    }
}

/// Servers that all tests share are never dropped, so the kernel kills them. It does so when the
/// thread ends that has started them: a thread of its own, which ends with the process.
fn serve(folder: &TempDir, port: u16) -> Process {
    let setpriv = find("setpriv").expect("setpriv is missing (package util-linux)");
    let mut command = Command::new(setpriv);
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program())
        .args(["--memory", "--no-tls", "--host", "127.0.0.1"])
        .args(["--port", &port.to_string()])
        .args(["--user", Iridium::USER, "--password", Iridium::PASSWORD])
        .current_dir(folder.path());
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut process = Process::start(&mut command);
        process.wait_for_port(port);
        let _ = sender.send(process);
        loop {
            thread::park();
        }
    });
    receiver.recv().expect("Iridium does not start")
}

/// Where `cargo xtask test` puts it: below the folder in which cargo builds, in which this test
/// lies too (`target/debug/deps/`).
fn program() -> PathBuf {
    let here = std::env::current_exe().unwrap();
    let folders = here.ancestors().skip(1);
    let places = folders.map(|folder: &Path| folder.join("tools/bin/iridium-server"));
    let found = places.take(4).find(|place| place.is_file());
    found.expect("iridium-server is missing: `cargo xtask test` installs it below target/tools")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iridium_starts_and_leaves_nothing_behind() {
        let mut server = Iridium::start();
        let port = server.port();
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        server.restart();
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        drop(server);
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}
