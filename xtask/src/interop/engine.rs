//! An engine with topics that ends and starts again while clients follow them, and the flows of a
//! page that subscribes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::bench::Bench;
use super::process::Process;
use super::report::Outcome;
use super::run::{Ran, run};
use crate::command::Failure;

/// Where the result of a page lies, seen from the engine's folder.
pub const RESULT: &str = "results/chromium";
/// How long the engine may take to end: longer than it drains.
const STOP_MAX: Duration = Duration::from_secs(40);

/// An engine that runs `flows.yaml` of its folder, always with the same data folder.
pub struct Engine<'a> {
    process: Process,
    bench: &'a Bench,
    folder: PathBuf,
    ports: Ports,
    starts: u32,
}

/// The ports of an engine.
#[derive(Clone, Copy)]
pub struct Ports {
    /// The one of its flows.
    pub flows: u16,
    /// The admin port.
    pub admin: u16,
}

impl<'a> Engine<'a> {
    /// Writes the flows and starts the engine.
    pub fn start(
        bench: &'a Bench,
        folder: &Path,
        ports: Ports,
        flows: &str,
    ) -> Result<Self, Failure> {
        fs::write(folder.join("flows.yaml"), flows)?;
        Ok(Self {
            process: start(bench, folder, ports, 1)?,
            bench,
            folder: folder.to_owned(),
            ports,
            starts: 1,
        })
    }

    /// Ends it by a signal: in order, unless it is `KILL`.
    pub fn stop(&mut self, signal: &str) -> Outcome {
        if signal != "KILL" {
            return self.process.stop(signal, STOP_MAX);
        }
        self.process.signal(signal)?;
        self.process.end(STOP_MAX)?;
        Ok(String::new())
    }

    /// Starts it again after it has ended.
    pub fn start_again(&mut self) -> Result<(), Failure> {
        self.starts += 1;
        self.process = start(self.bench, &self.folder, self.ports, self.starts)?;
        Ok(())
    }

    /// What the admin port counts.
    pub fn metrics(&self) -> Result<String, Failure> {
        let url = format!("http://127.0.0.1:{}/metrics", self.ports.admin);
        let words = ["--silent", "--show-error", "--noproxy", "*", &url];
        Ok(run(20, "curl", words)?.text())
    }

    /// A failure with what the engine and its clients have printed.
    pub fn with_log<'b>(
        &'b self,
        failure: &Failure,
        clients: impl IntoIterator<Item = (&'b str, &'b Process)>,
    ) -> Failure {
        let printers = clients.into_iter().chain([("the engine", &self.process)]);
        let printed = printers.map(|(name, process)| format!("{name}: {}", process.printed()));
        let printed: Vec<String> = printed.collect();
        let ran = Ran {
            stderr: printed.join("\n"),
            ..Ran::default()
        };
        ran.failure(&failure.to_string())
    }
}

/// Starts it for the `start`th time, with the data folder of the one before.
fn start(bench: &Bench, folder: &Path, ports: Ports, start: u32) -> Result<Process, Failure> {
    let mut command = Command::new(&bench.program);
    command
        .args(["run", "flows.yaml", "--workers", "2", "--data", "data"])
        .args(["--admin", &format!("127.0.0.1:{}", ports.admin)])
        .current_dir(folder);
    let mut engine = Process::start(folder, &format!("engine-{start}"), command)?;
    engine.listens(ports.flows)?;
    Ok(engine)
}

/// The flow of this name that serves a file of the folder at `/PATH`, as this media type.
pub fn file_flow(port: u16, name: &str, path: &str, file: &str, media: &str) -> String {
    format!(
        "flow: {name}
from: {{ http: \"GET 127.0.0.1:{port}/{path}\" }}
steps:
  - read-file: {{ folder: ., name: {file}, decode: text }}
  - reply: {{ headers: {{ Content-Type: {media} }} }}
"
    )
}

/// The flow to which a page sends its result: it lies at [`RESULT`] then.
pub fn result_flow(port: u16) -> String {
    format!(
        "flow: result
from: {{ http: \"POST 127.0.0.1:{port}/result\" }}
steps:
  - write-file: {{ folder: results, name: chromium }}
  - reply: {{ status: 204 }}
"
    )
}
