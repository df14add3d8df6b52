//! A mail server: `aiosmtpd` of PyPI, which keeps each mail as a file.

use std::path::PathBuf;
use std::process::Command;

use crate::Issued;
use crate::process::{Process, TempDir, free_port};
use crate::servers::python;

const SCRIPT: &str = include_str!("smtp.py");

/// How a mail server encrypts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// Not at all.
    Plain,
    /// With STARTTLS, and only then it takes mail, from `shop` with the password `pass/word1`.
    StartTls,
    /// From the first byte, with the same user.
    Tls,
}

/// A real mail server. It does not know recipients that begin with `nobody`, and cannot take mail
/// for those that begin with `later`.
pub struct MailServer {
    port: u16,
    folder: TempDir,
    _process: Process,
}

impl MailServer {
    /// Starts a server with this certificate.
    pub fn start(security: Security, issued: &Issued) -> Self {
        let folder = TempDir::new();
        let port = free_port();
        let script = folder.write("smtp.py", SCRIPT);
        folder.write("server.pem", &issued.cert);
        folder.write("server.key", &issued.key);
        let mails = folder.write("mails/.keep", "");
        let mails = mails.parent().expect("it has a folder").to_owned();
        let mut command = Command::new(python());
        command
            .arg(script)
            .arg(port.to_string())
            .arg(format!("{security:?}"));
        command.arg(folder.path()).arg(&mails);
        let mut process = Process::start(&mut command);
        process.wait_for_port(port);
        Self {
            port,
            folder,
            _process: process,
        }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The mails that it has taken, in their order, as JSON: `from`, `to`, `headers`, `parts` and
    /// `defects`, as Python's `email` reads them.
    pub fn mails(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path().join("mails")).unwrap();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|file| file.extension().is_some_and(|it| it == "json"));
        files.sort();
        let texts = files
            .iter()
            .map(|file| std::fs::read_to_string(file).unwrap());
        texts.collect()
    }
}
