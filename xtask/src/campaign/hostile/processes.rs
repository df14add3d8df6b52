//! Processes and cores: who runs where, what a process holds, and how it ends.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::campaign::client;
use crate::command::{Failure, program};
use crate::memory;

const START_MAX: Duration = Duration::from_secs(40);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The core of the servers, and that of everybody else.
const SERVERS: &str = "0";
const CLIENTS: &str = "1";

/// What Linux counts processor time in, for programs (proc(5)): 100 to the second.
const TICK: Duration = Duration::from_millis(10);

/// The steal time of the servers' core (proc(5)) since the machine started: how long the host of a
/// virtual machine had it run others.
pub fn steal_time() -> Result<Duration, Failure> {
    let stat = fs::read_to_string("/proc/stat")?;
    let ticks = steal_ticks(&stat).ok_or_else(|| Failure::new("/proc/stat has no such core"))?;
    Ok(TICK * ticks)
}

fn steal_ticks(stat: &str) -> Option<u32> {
    let core = format!("cpu{SERVERS} ");
    let line = stat.lines().find_map(|it| it.strip_prefix(&core))?;
    line.split_whitespace().nth(7)?.parse().ok()
}

/// Moves this process, and all that it starts from now on, to the core of the clients.
pub fn pin_clients() -> Result<(), Failure> {
    let number = std::process::id().to_string();
    let command = program("taskset").args(["-a", "-c", "-p", CLIENTS, &number]);
    command.output().map(drop)
}

/// Lets the calling thread, and all that it starts, run before everybody else on their core (a
/// real-time priority, sched(7)). Hundreds of threads of attackers and their back end, however
/// nice, would make the good client wait for its core, which says nothing about the engine: under
/// `zero-window` that was 100 ms, while the engine rested. Only root may; says whether it has.
pub fn run_first() -> bool {
    let Ok(thread) = fs::read_link("/proc/thread-self") else {
        return false;
    };
    let Some(number) = thread.file_name().and_then(OsStr::to_str) else {
        return false;
    };
    let command = program("chrt").args(["-r", "-p", "1", number]);
    command.output().is_ok()
}

/// A program that ends when this process is killed, which leaves no time to end others.
pub fn ending_with_this(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]).arg(program);
    command
}

/// A process that ends with its owner.
pub struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What a process holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub memory_kib: u64,
    /// Without the files of the data folder.
    pub descriptors: u64,
}

impl Held {
    pub fn most(self, other: Self) -> Self {
        Self {
            memory_kib: self.memory_kib.max(other.memory_kib),
            descriptors: self.descriptors.max(other.descriptors),
        }
    }

    pub fn least(self, other: Self) -> Self {
        Self {
            memory_kib: self.memory_kib.min(other.memory_kib),
            descriptors: self.descriptors.min(other.descriptors),
        }
    }
}

impl Running {
    pub fn new(child: Child) -> Self {
        Self(child)
    }

    /// Starts a program on the core of the servers.
    pub fn server(
        binary: &Path,
        arguments: &[&str],
        folder: &Path,
        log: &Path,
    ) -> Result<Self, Failure> {
        let log = fs::File::create(log)?;
        let child = ending_with_this("taskset")
            .args(["-c", SERVERS])
            .arg(binary)
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        Ok(Self(child))
    }

    /// Starts a program where this process runs, behind everybody else there: what attackers cause
    /// in a back end is not to hold up the good client.
    pub fn client(binary: &Path, arguments: &[&str]) -> Result<Self, Failure> {
        let child = ending_with_this("nice")
            .args(["-n", "19"])
            .arg(binary)
            .args(arguments)
            .stdin(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }

    pub fn kill(&mut self) {
        // It may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    pub fn has_ended(&mut self) -> Result<bool, Failure> {
        Ok(self.0.try_wait()?.is_some())
    }

    /// Waits until somebody listens.
    pub fn listens(&mut self, port: u16) -> Result<(), Failure> {
        self.waits_for(|| TcpStream::connect(("127.0.0.1", port)).is_ok())
    }

    /// Waits until the engine is ready.
    pub fn is_ready(&mut self, admin: u16) -> Result<(), Failure> {
        self.waits_for(|| {
            let ready = client::ask(admin, "GET", "/ready", "");
            ready.is_ok_and(|it| it.status == 200)
        })
    }

    fn waits_for(&mut self, mut holds: impl FnMut() -> bool) -> Result<(), Failure> {
        let start = Instant::now();
        while start.elapsed() < START_MAX {
            if self.has_ended()? {
                return Err(Failure::new("a server ended before it listened"));
            }
            if holds() {
                return Ok(());
            }
            thread::sleep(LOOK_EVERY);
        }
        Err(Failure::new("a server does not listen"))
    }

    /// What its memory is.
    pub fn memory_parts(&self) -> Result<memory::Parts, Failure> {
        memory::parts(self.0.id())
    }

    pub fn held(&self) -> Result<Held, Failure> {
        let memory_kib = memory::resident(self.0.id())?;
        let descriptors = fs::read_dir(format!("/proc/{}/fd", self.0.id()))?;
        // How many files its data has is for what it keeps to say.
        let is_data = |file: &Path| {
            let file = fs::read_link(file).unwrap_or_default();
            file.components().any(|it| it.as_os_str() == "data")
        };
        let descriptors = descriptors.flatten().filter(|it| !is_data(&it.path()));
        let descriptors = descriptors.count() as u64;
        Ok(Held {
            memory_kib,
            descriptors,
        })
    }

    /// What a program printed, which has to end within this time; it is killed when it does not.
    pub fn printed(&mut self, most: Duration) -> Result<String, Failure> {
        let start = Instant::now();
        while !self.has_ended()? && start.elapsed() < most {
            thread::sleep(LOOK_EVERY);
        }
        self.kill();
        let mut text = String::new();
        if let Some(output) = &mut self.0.stdout {
            output.read_to_string(&mut text)?;
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_time_is_the_eighth_column_of_the_core() {
        let stat = "cpu  1 2 3 4 5 6 7 80 9 10\ncpu0 1 2 3 4 5 6 7 42 9 10\ncpu1 0 0 0 0 0 0 0 1";
        assert_eq!(steal_ticks(stat), Some(42));
        assert_eq!(steal_ticks("cpu  1 2 3"), None);
        assert!(steal_time().is_ok());
    }

    #[test]
    fn a_thread_runs_first_with_all_that_it_starts() {
        let policy = || {
            let stat = fs::read_to_string("/proc/thread-self/sched").unwrap_or_default();
            let line = stat.lines().find(|it| it.starts_with("policy"));
            line.and_then(|it| it.split_whitespace().last().map(str::to_owned))
        };
        let policies = thread::spawn(move || {
            let is_first = run_first();
            let started = thread::spawn(policy).join();
            is_first.then(|| [policy(), started.ok().flatten()])
        });
        // SCHED_RR is 2; who may not has no priority.
        if let Ok(Some(policies)) = policies.join() {
            assert_eq!(policies, [Some("2".to_owned()), Some("2".to_owned())]);
        }
        assert_eq!(policy().as_deref(), Some("0"));
    }

    #[test]
    fn a_process_is_looked_at() -> Result<(), Failure> {
        let child = Command::new("sleep").arg("60").spawn()?;
        let mut running = Running::new(child);
        let held = running.held()?;
        assert!(held.memory_kib > 0 && held.descriptors > 0, "{held:?}");
        assert_eq!(running.printed(Duration::ZERO)?, "");
        assert!(running.has_ended()?);
        Ok(())
    }
}
