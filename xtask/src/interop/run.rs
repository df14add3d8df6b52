//! Runs a client to its end, with a limit of time, and keeps what it prints.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

use crate::command::Failure;

/// How `timeout` of coreutils ends when the time was over.
const TIME_OVER: i32 = 124;
/// The most lines of a client's output that a failure shows.
const LINES_MAX: usize = 60;

/// What a client has left.
#[derive(Debug, Default)]
pub struct Ran {
    pub succeeded: bool,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Ran {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// A failure with the end of what the client printed.
    pub fn failure(&self, reason: &str) -> Failure {
        let text = format!("{}\n{}", self.text(), self.stderr);
        let lines: Vec<&str> = text.lines().filter(|it| !it.trim().is_empty()).collect();
        let shown = lines.get(lines.len().saturating_sub(LINES_MAX)..);
        Failure::new(format!(
            "{reason}\n{}",
            shown.unwrap_or_default().join("\n")
        ))
    }
}

/// Runs a program for at most so many seconds.
pub fn run<A: AsRef<OsStr>>(
    seconds: u32,
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = A>,
) -> Result<Ran, Failure> {
    let output = limited(seconds, program, arguments)
        .stdin(Stdio::null())
        .output()?;
    let ran = Ran {
        succeeded: output.status.success(),
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    match output.status.code() {
        Some(TIME_OVER) | None => Err(ran.failure(&format!("not done after {seconds} s"))),
        Some(_) => Ok(ran),
    }
}

/// A client that ends after so many seconds, also when nobody waits for it any more.
pub fn limited<A: AsRef<OsStr>>(
    seconds: u32,
    program: impl AsRef<OsStr>,
    arguments: impl IntoIterator<Item = A>,
) -> Command {
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=5", &seconds.to_string()])
        .arg(&program)
        .args(arguments)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("NO_PROXY", "*");
    command
}
