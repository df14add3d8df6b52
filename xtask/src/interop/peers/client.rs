//! The client processes: one for each language, which is sent requests line by line.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::outcome::{self, Outcome};
use crate::command::Failure;

/// How much longer than the client's own limit an answer may take: two requests, and a slow start.
const PATIENCE: u64 = 30;

/// The protocol between two of client, engine and back end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Link {
    /// HTTP/1.1 in clear text.
    H1,
    /// HTTP/1.1 over TLS.
    H1s,
    /// HTTP/2 over TLS.
    H2,
    /// HTTP/2 in clear text, with prior knowledge.
    H2c,
}

impl Link {
    pub const ALL: [Self; 4] = [Self::H1, Self::H1s, Self::H2, Self::H2c];

    pub fn name(self) -> &'static str {
        match self {
            Self::H1 => "h1",
            Self::H1s => "h1s",
            Self::H2 => "h2",
            Self::H2c => "h2c",
        }
    }

    pub fn is_tls(self) -> bool {
        matches!(self, Self::H1s | Self::H2)
    }

    pub fn is_h2(self) -> bool {
        matches!(self, Self::H2 | Self::H2c)
    }

    pub fn scheme(self) -> &'static str {
        if self.is_tls() { "https" } else { "http" }
    }
}

/// A library in one of its protocols.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    pub name: &'static str,
    pub language: &'static str,
    pub link: Link,
}

const fn mode(name: &'static str, language: &'static str, link: Link) -> Mode {
    Mode {
        name,
        language,
        link,
    }
}

pub const MODES: [Mode; 22] = [
    mode("go-h1", "go", Link::H1),
    mode("http-h1", "node", Link::H1),
    mode("undici-h1", "node", Link::H1),
    mode("aiohttp-h1", "python", Link::H1),
    mode("httpx-h1", "python", Link::H1),
    mode("java-h1", "java", Link::H1),
    // HttpClient with HTTP/2 in clear text: `Upgrade: h2c` with the first request.
    mode("java-h2u", "java", Link::H1),
    mode("curl-h1", "curl", Link::H1),
    mode("go-h1s", "go", Link::H1s),
    mode("http-h1s", "node", Link::H1s),
    mode("aiohttp-h1s", "python", Link::H1s),
    mode("java-h1s", "java", Link::H1s),
    mode("curl-h1s", "curl", Link::H1s),
    mode("go-h2", "go", Link::H2),
    mode("http2-h2", "node", Link::H2),
    mode("undici-h2", "node", Link::H2),
    mode("httpx-h2", "python", Link::H2),
    mode("java-h2", "java", Link::H2),
    mode("curl-h2", "curl", Link::H2),
    mode("go-h2c", "go", Link::H2c),
    mode("http2-h2c", "node", Link::H2c),
    mode("curl-h2c", "curl", Link::H2c),
];

/// How the client of a language is started.
pub type Start = Box<dyn Fn() -> Command>;

/// A running client.
struct Running {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The clients, started when first asked, and again when they hang.
pub struct Clients {
    starts: BTreeMap<&'static str, Start>,
    running: BTreeMap<&'static str, Running>,
}

impl Clients {
    pub fn new(starts: BTreeMap<&'static str, Start>) -> Self {
        Self {
            starts,
            running: BTreeMap::new(),
        }
    }

    /// Has a client do something; a client that says nothing is an outcome too.
    pub fn ask(
        &mut self,
        language: &'static str,
        folder: &Path,
        line: &str,
        seconds: u64,
    ) -> Result<Outcome, Failure> {
        if !self.running.contains_key(language) {
            let start = self.starts.get(language);
            let start = start.ok_or_else(|| Failure::new(format!("no client of {language}")))?;
            let running = run(language, folder, start())?;
            self.running.insert(language, running);
        }
        let Some(running) = self.running.get_mut(language) else {
            return Err(Failure::new("no client"));
        };
        writeln!(running.input, "{line}")?;
        let answer = running
            .lines
            .recv_timeout(Duration::from_secs(2 * seconds + PATIENCE));
        let problem = match answer {
            Ok(line) => match outcome::parse(&line) {
                Some(outcome) => return Ok(outcome),
                None => format!("the client printed `{line}`"),
            },
            Err(RecvTimeoutError::Timeout) => "the client hangs".to_owned(),
            Err(RecvTimeoutError::Disconnected) => "the client has ended".to_owned(),
        };
        self.running.remove(language);
        Ok(Outcome::from([("error".to_owned(), problem)]))
    }
}

fn run(language: &str, folder: &Path, mut command: Command) -> Result<Running, Failure> {
    let log = File::create(folder.join(format!("client-{language}.log")))?;
    let mut child = command
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(|error| Failure::new(format!("the client of {language}: {error}")))?;
    let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(Failure::new("no pipe"));
    };
    let (sender, lines) = channel();
    thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Ok(Running {
        child,
        input,
        lines,
    })
}
