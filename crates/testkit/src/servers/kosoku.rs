//! The 517 cases of Autobahn's test suite of WebSocket, by kosoku of PyPI.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

use super::python;

/// How a peer has done in one case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Its number, such as `7.1.5`.
    pub case: String,
    /// `OK`, `NON-STRICT`, `INFORMATIONAL`, `UNIMPLEMENTED`, `FAILED` or `ERROR`.
    pub behaviour: String,
    /// The same about how the connection ended.
    pub close: String,
}

impl Verdict {
    /// Whether it is none of those that let a peer pass.
    pub fn is_failure(&self) -> bool {
        let passes = |it: &str| matches!(it, "OK" | "NON-STRICT" | "INFORMATIONAL");
        !passes(&self.behaviour) || !passes(&self.close)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            case,
            behaviour,
            close,
        } = self;
        write!(formatter, "{case}: {behaviour}, close {close}")
    }
}

/// Runs the cases of these patterns, such as `7.*`, against a server.
pub fn kosoku(url: &str, patterns: &[&str], folder: &Path) -> Vec<Verdict> {
    let reports = folder.join("kosoku");
    let mut command = Command::new(python().with_file_name("kosoku"));
    command.arg(url).arg("--outdir").arg(&reports);
    command.args(["--parallelism", "4"]);
    for pattern in patterns {
        command.args(["--include", pattern]);
    }
    let output = command.output().expect("kosoku can be started");
    let index = fs::read_to_string(reports.join("index.json")).unwrap_or_default();
    let verdicts = read(&index);
    assert!(!verdicts.is_empty(), "no report: {output:?}");
    verdicts
}

/// The report: a case on a line, then what is said of it, a member on a line.
fn read(index: &str) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = Vec::new();
    for line in index.lines() {
        let mut texts = line.split('"').skip(1).step_by(2);
        let (Some(name), value) = (texts.next(), texts.next().unwrap_or_default()) else {
            continue;
        };
        match (name, verdicts.last_mut()) {
            ("behavior", Some(verdict)) => verdict.behaviour = value.to_owned(),
            ("behaviorClose", Some(verdict)) => verdict.close = value.to_owned(),
            (case, _) if line.ends_with('{') && is_case(case) => verdicts.push(Verdict {
                case: case.to_owned(),
                ..Verdict::default()
            }),
            _ => {}
        }
    }
    verdicts
}

/// Numbers with points between; the member around the cases is the address.
fn is_case(name: &str) -> bool {
    name.contains('.') && name.bytes().all(|it| it.is_ascii_digit() || it == b'.')
}
