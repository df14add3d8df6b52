//! Starts the binary on free ports.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::{Process, RawClient, Response, TempDir, free_port};

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
        let mut command = command();
        command.envs(variables.iter().copied());
        command.arg("run").args(paths).args(options);
        let has_data = options.iter().any(|it| it.starts_with("--data"));
        let data = (!has_data).then(TempDir::new);
        if let Some(data) = &data {
            command.arg("--data").arg(data.path().join("data"));
        }
        command.args(["--workers", "2", "--admin", &format!("127.0.0.1:{admin}")]);
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
        "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
    ));
    client.response()
}

pub fn post(port: u16, path: &str, content_type: &str, body: &str) -> Response {
    let mut client = RawClient::connect(port);
    client.send(format!(
        "POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: {content_type}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    client.response()
}
