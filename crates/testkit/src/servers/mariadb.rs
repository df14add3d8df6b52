//! MariaDB.

use std::process::Command;
use std::sync::LazyLock;
use std::sync::mpsc;
use std::thread;

use crate::certificates::Authority;
use crate::process::{Process, TempDir, free_port, wait_until};
use crate::servers::find;

/// A real MariaDB with TLS. Its user `app`, with [`MariaDb::PASSWORD`], may do everything.
pub struct MariaDb {
    port: u16,
    folder: TempDir,
    authority: String,
    process: Process,
}

impl MariaDb {
    /// The password of the user `app`.
    pub const PASSWORD: &str = "p@ss:w0rd/maria";

    /// One server for all tests of this process. It dies with the process. Each test makes
    /// databases of its own.
    pub fn shared() -> &'static Self {
        static SHARED: LazyLock<MariaDb> = LazyLock::new(MariaDb::start);
        &SHARED
    }

    /// Starts a server with an empty data folder: two to five seconds.
    pub fn start() -> Self {
        let folder = TempDir::new();
        let data = folder.path().join("data");
        // Servers remove what they find of temporary tables: each has a folder of its own.
        let temporary = folder.path().join("tmp");
        std::fs::create_dir(&temporary).unwrap();
        let installed = Command::new(program("mariadb-install-db"))
            .args(["--no-defaults", "--skip-test-db", "--skip-name-resolve"])
            .arg("--auth-root-authentication-method=normal")
            .args(as_root())
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--tmpdir={}", temporary.display()))
            .output()
            .unwrap();
        assert!(installed.status.success(), "{installed:?}");
        let authority = Authority::new("MariaDB tests");
        let issued = authority.issue(&["localhost", "127.0.0.1"]);
        folder.write("cert.pem", &issued.cert);
        folder.write("key.pem", &issued.key);
        folder.write("ca.pem", authority.pem());
        let port = free_port();
        let process = serve(&folder, port);
        let server = Self {
            port,
            folder,
            authority: authority.pem().to_owned(),
            process,
        };
        server.wait();
        let password = Self::PASSWORD;
        server.run(&format!(
            "create user app identified by '{password}'; grant all on *.* to app with grant option"
        ));
        server
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The authority of its certificate, PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The URL of a database, with user and password.
    pub fn url(&self, database: &str) -> String {
        let port = self.port;
        format!("mysql://app:p%40ss%3Aw0rd%2Fmaria@127.0.0.1:{port}/{database}")
    }

    /// Runs statements as root with the server's own client. What it prints has no heads.
    pub fn run(&self, sql: &str) -> String {
        let done = self.client().args(["-e", sql]).output().unwrap();
        assert!(done.status.success(), "{sql}: {done:?}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    /// Kills it and starts it again with the same data on the same port.
    pub fn restart(&mut self) {
        self.kill();
        self.go_on();
    }

    /// Starts it again after it was killed, with the same data on the same port.
    pub fn go_on(&mut self) {
        self.process = serve(&self.folder, self.port);
        self.wait();
    }

    /// Kills it. Its data stays.
    pub fn kill(&mut self) {
        self.process.signal("KILL");
        self.process.wait();
    }

    fn client(&self) -> Command {
        let mut client = Command::new(program("mariadb"));
        client
            .args([
                "--no-defaults",
                "--user=root",
                "--batch",
                "--skip-column-names",
            ])
            .arg("--default-character-set=utf8mb4")
            .arg(format!(
                "--socket={}",
                self.folder.path().join("s").display()
            ));
        client
    }

    fn wait(&self) {
        wait_until("MariaDB answers", || {
            let answer = self.client().args(["-e", "select 1"]).output().unwrap();
            answer.status.success()
        });
    }
}

/// Servers that all tests share are never dropped, so the kernel kills them. It does so when the
/// thread ends that has started them: a thread of its own, which ends with the process.
fn serve(folder: &TempDir, port: u16) -> Process {
    let path = folder.path().display();
    let mut command = Command::new(program("setpriv"));
    command
        .args(["--pdeathsig", "KILL", "--"])
        .arg(program("mariadbd"))
        .args([
            "--no-defaults",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
        ])
        .args(as_root())
        .arg(format!("--datadir={path}/data"))
        .arg(format!("--tmpdir={path}/tmp"))
        .arg(format!("--socket={path}/s"))
        .arg(format!("--pid-file={path}/pid"))
        .arg(format!("--port={port}"))
        .arg(format!("--ssl-cert={path}/cert.pem"))
        .arg(format!("--ssl-key={path}/key.pem"))
        .arg(format!("--ssl-ca={path}/ca.pem"))
        // What is committed outlives the process, not the machine; memory is short.
        .args([
            "--innodb-flush-log-at-trx-commit=2",
            "--innodb-buffer-pool-size=16M",
        ])
        .args(["--innodb-log-file-size=8M", "--max-connections=100"])
        .args(["--character-set-server=utf8mb4", "--performance-schema=off"]);
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let _ = sender.send(Process::start(&mut command));
        loop {
            thread::park();
        }
    });
    receiver.recv().unwrap()
}

fn as_root() -> Option<&'static str> {
    let id = Command::new("id").arg("-u").output().unwrap();
    (id.stdout == b"0\n").then_some("--user=root")
}

fn program(name: &str) -> std::path::PathBuf {
    let found = find(name);
    found.unwrap_or_else(|| {
        panic!("{name} is missing: `cargo xtask test` installs it (package mariadb-server)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mariadb_keeps_its_data_when_it_is_killed() {
        let mut server = MariaDb::start();
        server.run("create database a; create table a.b (c int); insert into a.b values (7)");
        server.restart();
        assert_eq!(server.run("select c from a.b"), "7\n");
        let port = server.port();
        drop(server);
        assert!(std::net::TcpStream::connect(("127.0.0.1", port)).is_err());
    }
}
