//! A Debian that is booted beside this one: systemd runs the service as it does for users.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::command::{Failure, Program};
use crate::interop::process::{Process, wait_for};

const WAIT_MAX: Duration = Duration::from_secs(40);

/// A system that was booted; it is powered off when this is dropped.
pub struct Machine {
    process: Process,
    /// The number of its first process, as this system sees it.
    leader: String,
}

impl Machine {
    /// Boots the system of a folder. It has the network of this one.
    ///
    /// # Errors
    /// When systemd cannot run here, with what it printed.
    pub fn boot(root: &Path, logs: &Path) -> Result<Self, Failure> {
        let mut command = Command::new("systemd-nspawn");
        command.args([
            "--boot",
            "--register=no",
            "--keep-unit",
            "--console=pipe",
            "-D",
        ]);
        command.arg(root);
        let mut process = Process::start(logs, "systemd", command)?;
        let leader = wait_for(WAIT_MAX, || match process.ended()? {
            Some(status) => {
                let printed = process.printed();
                let message = format!("systemd-nspawn ended with {status}\n{printed}");
                Err(Failure::new(message))
            }
            None => Ok(child(process.id())),
        })?;
        let leader = leader.ok_or_else(|| Failure::new("systemd-nspawn starts nothing"))?;
        let machine = Self { process, leader };
        let is_up = || match machine.run(&["systemctl", "show-environment"]) {
            Ok(_) => Ok(Some(())),
            Err(_) => Ok(None),
        };
        match wait_for(WAIT_MAX, is_up)? {
            Some(()) => Ok(machine),
            None => Err(Failure::new(machine.process.printed())),
        }
    }

    /// Runs a program in it, and returns what that prints.
    pub fn run(&self, words: &[&str]) -> Result<String, Failure> {
        let mut command = Command::new("nsenter");
        command
            .args(["--all", "--target", &self.leader])
            .args(words);
        Program(command).output()
    }

    /// Waits until a property of the service has this value.
    pub fn becomes(&self, property: &str, wanted: &str) -> Result<(), Failure> {
        let mut last = String::new();
        let found = wait_for(WAIT_MAX, || {
            last = self.property(property)?;
            Ok((last == wanted).then_some(()))
        })?;
        found.ok_or_else(|| Failure::new(format!("{property} is {last}, not {wanted}")))
    }

    /// A property of the service.
    pub fn property(&self, name: &str) -> Result<String, Failure> {
        let option = format!("--property={name}");
        let text = self.run(&["systemctl", "show", "--value", &option, "intertie"])?;
        Ok(text.trim().to_owned())
    }
}

/// The first process that a process has started.
fn child(parent: u32) -> Option<String> {
    let path = PathBuf::from(format!("/proc/{parent}/task/{parent}/children"));
    let text = std::fs::read_to_string(path).ok()?;
    text.split_ascii_whitespace().next().map(str::to_owned)
}
