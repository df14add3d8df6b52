//! Runs other programs and says which one failed.

use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why a chore ends.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The system's words name no file: the place in the code is told with them.
impl From<std::io::Error> for Failure {
    #[track_caller]
    fn from(error: std::io::Error) -> Self {
        let place = std::panic::Location::caller();
        Self(format!("{}:{}: {error}", place.file(), place.line()))
    }
}

/// A program to run.
pub struct Program(pub Command);

/// Cargo, in a folder. Where the variable CI is set it writes plainly and keeps nothing for a
/// second build.
pub fn cargo(folder: &Path) -> Program {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(folder);
    if std::env::var_os("CI").is_some() {
        command.env("CARGO_TERM_COLOR", "never");
        command.env("CARGO_INCREMENTAL", "0");
    }
    Program(command)
}

/// Cargo's target folder.
pub fn target(root: &Path) -> Result<PathBuf, Failure> {
    let chosen = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let chosen = chosen.unwrap_or_else(|| root.join("target"));
    Ok(std::path::absolute(chosen)?)
}

/// A program by name.
pub fn program(name: impl AsRef<OsStr>) -> Program {
    Program(Command::new(name))
}

impl Program {
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.0.args(arguments);
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.0.env(name, value);
        self
    }

    /// Says what is run, runs it, and fails when it does.
    pub fn run(mut self) -> Result<(), Failure> {
        let shown = self.shown();
        eprintln!("$ {shown}");
        match self.0.status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(Failure::new(format!("`{shown}` failed: {status}"))),
            Err(error) => Err(Failure::new(format!("`{shown}` cannot be run: {error}"))),
        }
    }

    /// Runs it and returns what it prints to stdout.
    pub fn output(mut self) -> Result<String, Failure> {
        let shown = self.shown();
        match self.0.output() {
            Ok(output) if output.status.success() => {
                Ok(String::from_utf8_lossy(&output.stdout).into_owned())
            }
            Ok(output) => {
                let problem = String::from_utf8_lossy(&output.stderr).into_owned();
                Err(Failure::new(format!("`{shown}` failed: {problem}")))
            }
            Err(error) => Err(Failure::new(format!("`{shown}` cannot be run: {error}"))),
        }
    }

    /// Says what is run, runs it and returns what it prints to stderr.
    pub fn log(mut self) -> Result<String, Failure> {
        let shown = self.shown();
        eprintln!("$ {shown}");
        match self.0.output() {
            Ok(output) => {
                let log = String::from_utf8_lossy(&output.stderr).into_owned();
                match output.status.success() {
                    true => Ok(log),
                    false => Err(Failure::new(format!("`{shown}` failed: {log}"))),
                }
            }
            Err(error) => Err(Failure::new(format!("`{shown}` cannot be run: {error}"))),
        }
    }

    fn shown(&self) -> String {
        let name = Path::new(self.0.get_program())
            .file_name()
            .unwrap_or_default();
        let mut words = vec![name.to_string_lossy()];
        words.extend(self.0.get_args().map(|argument| argument.to_string_lossy()));
        words.join(" ")
    }
}
