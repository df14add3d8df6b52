//! The engine of a row: the binary as users see it, which can be killed and started again on the
//! same flow file, ports and data folder, and what it said of itself in all its lives.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::super::process::{self, Cores, Process};
use super::client::{self, Request};
use super::servers::wait_for;

/// What an engine is started with.
pub(super) struct Plan<'a> {
    pub binary: &'a Path,
    pub folder: &'a Path,
    pub cores: &'a Cores,
    /// The flow file, with `@LISTEN@` and other marks.
    pub flow: &'a str,
    /// What stands for the marks.
    pub marks: Vec<(&'static str, String)>,
    /// Values of secrets, by the names of their environment variables.
    pub secrets: Vec<(&'static str, String)>,
    /// Whether it keeps messages in a folder.
    pub has_data: bool,
}

/// An engine.
pub(super) struct Engine {
    /// Where its flows listen.
    pub listen: SocketAddr,
    admin: SocketAddr,
    binary: PathBuf,
    folder: PathBuf,
    cores: Cores,
    secrets: Vec<(&'static str, String)>,
    has_data: bool,
    running: Option<Process>,
    lives: usize,
    peak: u64,
}

impl Engine {
    /// Writes its flow file and starts it.
    ///
    /// # Errors
    /// When it does not start, with what it printed.
    pub fn start(plan: Plan<'_>) -> anyhow::Result<Self> {
        let folder = plan.folder.join("engine");
        fs::create_dir_all(&folder)?;
        let listen = process::free_address()?;
        let mut flow = plan.flow.replace("@LISTEN@", &listen.to_string());
        for (mark, text) in &plan.marks {
            flow = flow.replace(mark, text);
        }
        fs::write(folder.join("flow.yaml"), flow)?;
        let mut engine = Self {
            listen,
            admin: process::free_address()?,
            binary: plan.binary.to_owned(),
            folder,
            cores: plan.cores.clone(),
            secrets: plan.secrets,
            has_data: plan.has_data,
            running: None,
            lives: 0,
            peak: 0,
        };
        engine.start_again()?;
        Ok(engine)
    }

    /// Starts it on the files it has, and waits until it is ready.
    ///
    /// # Errors
    /// When it is not, with what it printed.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        self.lives += 1;
        let mut command = Command::new(&self.binary);
        command.arg("run").arg(self.folder.join("flow.yaml"));
        command.args(["--workers", "2", "--admin", &self.admin.to_string()]);
        if self.has_data {
            command.arg("--data").arg(self.folder.join("data"));
        }
        command.envs(self.secrets.iter().map(|(name, value)| (name, value)));
        let log = self.log_of(self.lives);
        let (cores, own) = (&self.cores.stub, &self.cores.load);
        self.running = Some(Process::start(&mut command, cores, own, self.admin, &log)?);
        wait_for("the engine", || {
            let reply = client::ask(self.admin, &Request::get("/ready"))?;
            anyhow::ensure!(reply.is_good(), "{}", reply.text());
            Ok(())
        })
    }

    /// Ends it with `kill -9`.
    pub fn kill(&mut self) {
        self.note_peak();
        if let Some(mut running) = self.running.take() {
            running.kill();
        }
    }

    /// The most memory that it has had in all lives, in bytes.
    pub fn peak(&self) -> u64 {
        let now = self.running.as_ref().map(Process::family);
        let now = now.map_or(0, |family| process::memory(&family).0);
        self.peak.max(now)
    }

    /// Reads the most memory now, in case it is killed later.
    fn note_peak(&mut self) {
        self.peak = self.peak();
    }

    /// What it shows at its admin port.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn metrics(&self) -> anyhow::Result<String> {
        Ok(client::ask(self.admin, &Request::get("/metrics"))?.text())
    }

    /// What it printed in all lives.
    pub fn log(&self) -> String {
        let texts = (1..=self.lives).map(|life| fs::read(self.log_of(life)).unwrap_or_default());
        let texts: Vec<u8> = texts.flatten().collect();
        String::from_utf8_lossy(&texts).into_owned()
    }

    /// Stops it in good order and says how long that took.
    pub fn stop(&mut self) -> Duration {
        self.note_peak();
        let begun = std::time::Instant::now();
        drop(self.running.take());
        begun.elapsed()
    }

    fn log_of(&self, life: usize) -> PathBuf {
        self.folder.join(format!("engine-{life}.log"))
    }
}
