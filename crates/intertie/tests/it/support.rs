//! Starts the binary on free ports.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::{Authority, Issued, Process, RawClient, Response, TempDir, free_port};

/// The repository's folder.
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

pub fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_intertie"));
    command.current_dir(repository());
    command
}

/// Runs the binary to its end.
pub fn output(arguments: &[&str]) -> Output {
    command().args(arguments).output().unwrap()
}

/// A running engine.
pub struct Engine {
    pub process: Process,
    pub admin: u16,
    /// Where it may keep data: engines that run beside each other share no folder.
    pub data: Option<TempDir>,
}

impl Engine {
    /// Runs these files; ready when it returns.
    pub fn run(paths: &[&Path], options: &[&str]) -> Self {
        Self::run_in(paths, options, &[])
    }

    /// Runs these files with these variables in its environment.
    pub fn run_in(paths: &[&Path], options: &[&str], variables: &[(&str, &str)]) -> Self {
        let admin = free_port();
        let address = format!("127.0.0.1:{admin}");
        let options = [options, &["--admin", &address]].concat();
        Self::start(paths, &options, (admin, variables))
    }

    /// Runs these files, which say that the admin port is this one.
    pub fn run_by_file(paths: &[&Path], admin: u16, variables: &[(&str, &str)]) -> Self {
        Self::start(paths, &[], (admin, variables))
    }

    fn start(
        paths: &[&Path],
        options: &[&str],
        (admin, variables): (u16, &[(&str, &str)]),
    ) -> Self {
        let mut command = command();
        command.envs(variables.iter().copied());
        command.arg("run").args(paths).args(options);
        let has_data = options.iter().any(|it| it.starts_with("--data"));
        let data = (!has_data).then(TempDir::new);
        if let Some(data) = &data {
            command.arg("--data").arg(data.path().join("data"));
        }
        command.args(["--workers", "2"]);
        let mut process = Process::start(&mut command);
        process.wait_for_port(admin);
        let engine = Self {
            process,
            admin,
            data,
        };
        testkit::wait_until("it is ready", || engine.get("/ready").status == 200);
        engine
    }

    /// The value of a metric without labels.
    pub fn metric(&self, name: &str) -> f64 {
        let value = self.measured(name, &[]);
        value.unwrap_or_else(|| panic!("{name} is missing"))
    }

    /// The sum of a metric over all series with these labels; `None` when there is none.
    pub fn measured(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let page = self.get("/metrics").text();
        let values = page.lines().filter_map(|line| {
            let rest = line.strip_prefix(name)?;
            let (own, value) = match rest.strip_prefix('{') {
                Some(rest) => rest.split_once("} ")?,
                None => ("", rest.strip_prefix(' ')?),
            };
            // No value of a label has a comma where this is asked for.
            let has = |(name, value): &(&str, &str)| {
                own.split(',').any(|it| it == format!("{name}=\"{value}\""))
            };
            let value = value.split(' ').next().unwrap_or_default();
            labels
                .iter()
                .all(has)
                .then(|| value.parse::<f64>().unwrap())
        });
        values.reduce(|sum, value| sum + value)
    }

    /// A page of the admin port.
    pub fn get(&self, path: &str) -> Response {
        get(self.admin, path)
    }

    /// Tells it to stop and checks that it does so well.
    pub fn stop(self) -> String {
        self.process.signal("TERM");
        self.ended()
    }

    /// Waits until it has ended, which it has been told to, and checks that it does so well. A
    /// second signal would cut it short.
    pub fn ended(mut self) -> String {
        let status = self.process.wait();
        assert_eq!(status.code(), Some(0), "{}", self.process.output());
        drop(self.data.take());
        self.process.output()
    }
}

pub fn get(port: u16, path: &str) -> Response {
    let mut client = RawClient::connect(port);
    client.send(format!(
        "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
    ));
    client.response()
}

pub fn post(port: u16, path: &str, content_type: &str, body: &str) -> Response {
    let mut client = RawClient::connect(port);
    // Tests of servers share the machine with all others.
    client.set_patience(std::time::Duration::from_secs(40));
    client.send(format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    client.response()
}

/// A URL of the list of spellings that leads to this port by `http`, where something listens.
pub fn at_port(spelling: &str, port: u16) -> String {
    let (_, rest) = spelling.split_once("://").unwrap_or(("", spelling));
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    format!("http://{authority}:{port}{path}")
}

/// Makes a library of C that is put before the system's by `LD_PRELOAD`; gives its path.
pub fn library(folder: &TempDir, source: &str) -> PathBuf {
    let source = folder.write("shim.c", source);
    let library = folder.path().join("shim.so");
    let mut made = Command::new("cc");
    let made = made
        .args(["-shared", "-fPIC", "-o"])
        .args([&library, &source]);
    assert!(
        made.status().unwrap().success(),
        "the library cannot be made"
    );
    library
}

/// A folder for flows with TLS: it has `ca.pem`, and `server.pem` and `server.key` for `localhost`.
pub struct TlsFolder {
    pub folder: TempDir,
    pub authority: Authority,
}

impl TlsFolder {
    pub fn new() -> Self {
        let tls = Self {
            folder: TempDir::new(),
            authority: Authority::new("ours"),
        };
        tls.folder.write("ca.pem", tls.authority.pem());
        tls.put("server", &tls.authority.issue(&["localhost"]));
        tls
    }

    /// Writes `NAME.key` and `NAME.pem`.
    pub fn put(&self, name: &str, issued: &Issued) {
        self.folder.write(&format!("{name}.key"), &issued.key);
        self.folder.write(&format!("{name}.pem"), &issued.cert);
    }

    pub fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Runs these documents.
    pub fn run(&self, documents: &str) -> Engine {
        self.folder.write("flow.yaml", documents);
        Engine::run(&[self.folder.path()], &[])
    }

    /// A curl that trusts the certificates of the folder.
    pub fn curl(&self, seconds: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new("curl");
        command
            .args(["--silent", "--show-error", "--max-time", seconds])
            .args(["--cacert", &self.path("ca.pem")])
            .args(arguments);
        command
    }
}
