//! The broker and the databases of a campaign: real ones, in processes of an example of the crate
//! `testkit`, that are killed and started again on the same files.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::command::{Failure, cargo};

/// What the flows of the campaign write to.
const POSTGRES_TABLES: &str = "create table worked (n bigint primary key, p text); \
     create table entries (n bigint, side int, p text, primary key (n, side))";
const MARIADB_TABLES: &str = "create table announced (n bigint primary key, p text)";

/// Three servers.
pub struct Servers {
    pub broker: Server,
    pub postgres: Server,
    pub mariadb: Server,
}

impl Servers {
    /// Builds what starts them, and starts them.
    pub fn start(root: &Path, target: &Path, log: &File) -> Result<Self, Failure> {
        let build = ["build", "-p", "testkit", "--example", "real-server"];
        cargo(root).args(build).run()?;
        let binary = target.join("debug/examples/real-server");
        let start = |kind| Server::start(&binary, kind, log);
        let mut servers = Self {
            broker: start("rabbitmq")?,
            postgres: start("postgres")?,
            mariadb: start("mariadb")?,
        };
        servers.postgres.sql(POSTGRES_TABLES)?;
        servers.mariadb.sql(MARIADB_TABLES)?;
        Ok(servers)
    }
}

/// One of them. It ends when this is dropped, or with the campaign.
pub struct Server {
    kind: &'static str,
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    pub url: String,
}

impl Server {
    fn start(binary: &PathBuf, kind: &'static str, log: &File) -> Result<Self, Failure> {
        let mut command = Command::new(binary);
        let child = command.arg(kind).stdin(Stdio::piped());
        let child = child.stdout(Stdio::piped()).stderr(log.try_clone()?);
        let mut child = child.spawn()?;
        let gone = || Failure::new(format!("{kind} has no pipes"));
        let mut server = Self {
            kind,
            orders: child.stdin.take(),
            answers: BufReader::new(child.stdout.take().ok_or_else(gone)?),
            child,
            url: String::new(),
        };
        server.url = server.answer()?.trim().to_owned();
        Ok(server)
    }

    fn answer(&mut self) -> Result<String, Failure> {
        let mut text = String::new();
        loop {
            let mut line = String::new();
            if self.answers.read_line(&mut line)? == 0 {
                return Err(Failure::new(format!("{} has ended:\n{text}", self.kind)));
            }
            match line.as_str() {
                "done\n" => return Ok(text),
                line => text.push_str(line),
            }
        }
    }

    fn order(&mut self, order: &str) -> Result<String, Failure> {
        if let Some(orders) = &mut self.orders {
            writeln!(orders, "{order}")?;
        }
        self.answer()
    }

    pub fn kill(&mut self) -> Result<(), Failure> {
        self.order("kill").map(drop)
    }

    /// Starts it again, and waits until it serves.
    pub fn start_again(&mut self) -> Result<(), Failure> {
        self.order("start").map(drop)
    }

    /// Runs a statement: the lines that it gives.
    pub fn sql(&mut self, statement: &str) -> Result<String, Failure> {
        self.order(&format!("sql {statement}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.orders.take());
        // It has been told to end.
        let _ = self.child.wait();
    }
}
