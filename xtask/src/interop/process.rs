//! A process that runs beside the chore: its log lies in the temporary folder, and it ends at the
//! latest when nobody holds it any more.

use std::fs::{self, File};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::report::Outcome;
use crate::command::{Failure, program};

/// How long a process may take until it listens.
const START_MAX: Duration = Duration::from_secs(20);
/// How long a process that is not needed any more may take to end: longer than `timeout` of
/// coreutils leaves its own.
const DROP_MAX: Duration = Duration::from_secs(6);
const LOOK_EVERY: Duration = Duration::from_millis(20);

pub struct Process {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Drop for Process {
    fn drop(&mut self) {
        // A process under `timeout` ends with it only when that is asked, not when it is killed.
        if self.signal("TERM").is_ok() {
            let _ = self.end(DROP_MAX);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    /// Starts a process, its log in `NAME.log`.
    pub fn start(folder: &Path, name: &str, mut command: Command) -> Result<Self, Failure> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .map_err(|error| Failure::new(format!("{name} cannot be started: {error}")))?;
        Ok(Self {
            name: name.to_owned(),
            log,
            child,
        })
    }

    /// Waits until somebody listens at the port, which fails when the process ends before.
    pub fn listens(&mut self, port: u16) -> Result<(), Failure> {
        let listens = wait_for(START_MAX, || {
            let listens = TcpStream::connect(("127.0.0.1", port)).is_ok();
            let is_over = listens || self.child.try_wait()?.is_some();
            Ok(is_over.then_some(listens))
        });
        match listens {
            Ok(Some(true)) => Ok(()),
            Ok(_) => Err(Failure::new(format!(
                "{} does not listen:\n{}",
                self.name,
                self.printed()
            ))),
            Err(failure) => Err(failure),
        }
    }

    /// Sends a signal, which fails when it has ended: its number may be somebody else's then.
    pub fn signal(&mut self, signal: &str) -> Result<(), Failure> {
        if let Some(status) = self.ended()? {
            let name = &self.name;
            return Err(Failure::new(format!("{name} had ended before: {status}")));
        }
        let number = self.child.id().to_string();
        program("kill").args(["-s", signal, &number]).output()?;
        Ok(())
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it has ended, if it has.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>, Failure> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for its end.
    pub fn end(&mut self, max: Duration) -> Result<ExitStatus, Failure> {
        let status = wait_for(max, || self.ended())?;
        let seconds = max.as_secs();
        status.ok_or_else(|| Failure::new(format!("{} still runs after {seconds} s", self.name)))
    }

    /// It is still there, and ends in order when told to.
    pub fn stop(&mut self, signal: &str, max: Duration) -> Outcome {
        self.signal(signal)?;
        match self.end(max)? {
            status if status.success() => Ok(String::new()),
            status => Err(Failure::new(format!("{}: {status}", self.name))),
        }
    }

    /// What it has printed so far, to stdout and stderr.
    pub fn printed(&self) -> String {
        let text = fs::read(&self.log).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }
}

/// A port that nobody listens at now.
pub fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.port())
}

/// Looks again and again until there is something; `None` when the time is over.
pub fn wait_for<T>(
    max: Duration,
    mut look: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<Option<T>, Failure> {
    let start = Instant::now();
    loop {
        let found = look()?;
        if found.is_some() || start.elapsed() > max {
            return Ok(found);
        }
        thread::sleep(LOOK_EVERY);
    }
}
