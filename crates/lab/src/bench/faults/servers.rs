//! The broker and the database of a row: real ones with temporary folders, which can be killed and
//! started again on the same files and ports. What they acknowledge they keep when they are killed.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::Signal;

use super::super::glu::amqp::Client;
use super::super::glu::parts::{self, output};
use super::super::process::{self, Cores, Process};

/// The user of the flows, and its password at the broker and the database: what must show nowhere.
pub(super) const USER: &str = "lab";
pub(super) const PASSWORD: &str = "Kestrel-41-Quarry";
/// The exchange of the flows, and the queue that gets what is published there.
pub(super) const QUEUE: &str = "orders";

/// How long a server may take to serve after it was started.
const SERVES_MAX: Duration = Duration::from_secs(90);
/// A broker and tools that do not take the cores of the others by waiting.
const ERLANG: &str = "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none";
/// Where the tool of RabbitMQ is, which the one in the path starts as another user.
const CONTROL: [&str; 2] = [
    "/usr/lib/rabbitmq/bin/rabbitmqctl",
    "/opt/rabbitmq/sbin/rabbitmqctl",
];

/// How a broker keeps a queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum QueueType {
    /// Messages are on disk when they are confirmed; acknowledgements follow later.
    Classic,
    /// Messages and acknowledgements are in a log on disk.
    Quorum,
}

/// A broker.
pub(super) struct Broker {
    pub address: SocketAddr,
    folder: PathBuf,
    cores: Cores,
    script: PathBuf,
    /// Where nodes look each other up, and where they talk.
    ports: (SocketAddr, SocketAddr),
    node: Option<Process>,
    _mapper: Process,
}

impl Broker {
    /// Starts RabbitMQ with the exchange and the queue of the flows.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub fn start(folder: &Path, cores: &Cores) -> anyhow::Result<Self> {
        Self::start_with(folder, cores, QueueType::Classic)
    }

    /// The same with a queue of this type.
    ///
    /// # Errors
    /// As [`Broker::start`].
    pub fn start_with(folder: &Path, cores: &Cores, kind: QueueType) -> anyhow::Result<Self> {
        let folder = folder.join("rabbitmq");
        fs::create_dir_all(&folder)?;
        let script = process::program("RABBITMQ_SERVER", &parts::RABBITMQ, "rabbitmq-server");
        let script = script.context(
            "RabbitMQ was not found: install rabbitmq-server, or name its script in \
             RABBITMQ_SERVER",
        )?;
        let address = process::free_address()?;
        let ports = (process::free_address()?, process::free_address()?);
        let mut mapper = Command::new("epmd");
        mapper.args(["-address", "127.0.0.1"]);
        mapper.args(["-port", &ports.0.port().to_string()]);
        let mapper = begin(&mut mapper, ports.0, &folder.join("epmd.log"), cores)?;
        fs::write(folder.join("enabled_plugins"), "[].")?;
        let definitions = folder.join("definitions.json");
        fs::write(&definitions, definitions_text(kind))?;
        fs::write(
            folder.join("rabbitmq.conf"),
            format!(
                "listeners.tcp.1 = {address}\ndisk_free_limit.absolute = 100MB\n\
                 load_definitions = {}\nlog.console = false\nlog.file.level = warning\n",
                definitions.display()
            ),
        )?;
        let mut broker = Self {
            address,
            folder,
            cores: cores.clone(),
            script,
            ports,
            node: None,
            _mapper: mapper,
        };
        broker.start_again()?;
        Ok(broker)
    }

    /// Starts it on the files it has, and waits until it serves.
    ///
    /// # Errors
    /// When it does not.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        let mut command = self.command(&self.script);
        // Without a shell around it that would stop it slowly.
        command.env("RUNNING_UNDER_SYSTEMD", "true");
        let log = self.folder.join("rabbitmq.log");
        self.node = Some(begin(&mut command, self.address, &log, &self.cores)?);
        wait_for("the broker", || Client::connect(self.address)?.ready(QUEUE))
    }

    /// Ends it with `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut node) = self.node.take() {
            node.kill();
        }
    }

    /// Raises or ends the memory alarm, by the limit that it compares its memory with.
    ///
    /// # Errors
    /// When the broker's tool fails.
    pub fn alarm(&self, is_on: bool) -> anyhow::Result<()> {
        let script = process::program("RABBITMQCTL", &CONTROL, "rabbitmqctl");
        let mut command = self.command(&script.context("rabbitmqctl was not found")?);
        let limit = if is_on { "0" } else { "0.6" };
        command.args(["set_vm_memory_high_watermark", limit]);
        output(&mut command).map(drop)
    }

    fn command(&self, script: &Path) -> Command {
        let at = |name: &str| self.folder.join(name);
        let mut command = Command::new(script);
        command
            .env("HOME", &self.folder)
            .env(
                "RABBITMQ_NODENAME",
                format!("lab-{}@localhost", self.address.port()),
            )
            .env("RABBITMQ_DIST_PORT", self.ports.1.port().to_string())
            .env("ERL_EPMD_PORT", self.ports.0.port().to_string())
            .env("RABBITMQ_CONFIG_FILE", at("rabbitmq.conf"))
            .env("RABBITMQ_MNESIA_BASE", at("data"))
            .env("RABBITMQ_LOG_BASE", at("log"))
            .env("RABBITMQ_PID_FILE", at("pid"))
            .env("ERL_CRASH_DUMP", at("erl_crash.dump"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", at("enabled_plugins"))
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", ERLANG);
        command
    }

    /// The URL for flows, with the password.
    pub fn url(&self) -> String {
        format!("amqp://{USER}:{PASSWORD}@{}", self.address)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // What it has stored is of no use any more.
        self.kill();
    }
}

/// Users, exchanges and queues as RabbitMQ imports them at its start.
fn definitions_text(kind: QueueType) -> String {
    let kind = match kind {
        QueueType::Classic => "classic",
        QueueType::Quorum => "quorum",
    };
    let permissions = |user: &str| {
        serde_json::json!({
            "user": user, "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"
        })
    };
    serde_json::json!({
        "users": [
            { "name": "guest", "password": "guest", "tags": "administrator" },
            { "name": USER, "password": PASSWORD, "tags": "" },
        ],
        "vhosts": [{ "name": "/" }],
        "permissions": [permissions("guest"), permissions(USER)],
        "exchanges": [{ "name": QUEUE, "vhost": "/", "type": "topic", "durable": true,
            "auto_delete": false, "internal": false, "arguments": {} }],
        "queues": [{ "name": QUEUE, "vhost": "/", "durable": true, "auto_delete": false,
            "arguments": { "x-queue-type": kind } }],
        "bindings": [{ "source": QUEUE, "vhost": "/", "destination": QUEUE,
            "destination_type": "queue", "routing_key": "#", "arguments": {} }],
    })
    .to_string()
}

/// The tables of the flows.
const TABLES: &str = "\
create table customer (id integer primary key, name text not null);
insert into customer select id, 'Customer ' || id from generate_series(1, 1000) id;
create table orders (id bigint primary key, customer_id integer not null, note text);
";

/// A database that flushes each commit, as it does by default.
pub(super) struct Database {
    pub address: SocketAddr,
    folder: PathBuf,
    programs: PathBuf,
    cores: Cores,
    server: Option<Process>,
}

impl Database {
    /// Starts PostgreSQL with the tables of the flows.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub fn start(folder: &Path, cores: &Cores) -> anyhow::Result<Self> {
        let folder = folder.join("postgres");
        fs::create_dir_all(&folder)?;
        let programs = parts::programs().context(
            "PostgreSQL was not found: install postgresql, or name the folder of its programs in \
             POSTGRES_BIN",
        )?;
        let mut database = Self {
            address: process::free_address()?,
            folder,
            programs,
            cores: cores.clone(),
            server: None,
        };
        database.make()?;
        database.start_again()?;
        database.run("postgres", &format!("create database {USER}"))?;
        database.run(USER, TABLES)?;
        Ok(database)
    }

    fn make(&self) -> anyhow::Result<()> {
        let password = self.folder.join("password");
        fs::write(&password, PASSWORD)?;
        if let Some((user, group)) = parts::unprivileged()? {
            chown(&self.folder, Some(user), Some(group))?;
            chown(&password, Some(user), Some(group))?;
        }
        let mut command = self.command("initdb")?;
        command.args([
            "--no-sync",
            "-A",
            "scram-sha-256",
            "-E",
            "UTF8",
            "--locale=C",
        ]);
        command.args(["-U", USER, "--pwfile"]).arg(&password);
        output(command.arg("-D").arg(self.folder.join("data"))).map(drop)
    }

    /// A program of the server as a user that it runs as.
    fn command(&self, name: &str) -> anyhow::Result<Command> {
        let mut command = Command::new(self.programs.join(name));
        if let Some((user, group)) = parts::unprivileged()? {
            command.uid(user).gid(group);
        }
        command.current_dir(&self.folder).env("LC_ALL", "C");
        Ok(command)
    }

    /// Starts it on the files it has, and waits until it serves.
    ///
    /// # Errors
    /// When it does not.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        let mut command = self.command("postgres")?;
        command.arg("-D").arg(self.folder.join("data"));
        command.args(["-p", &self.address.port().to_string()]);
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "max_connections=100",
        ] {
            command.args(["-c", setting]);
        }
        let log = self.folder.join("postgres.log");
        self.server = Some(begin(&mut command, self.address, &log, &self.cores)?);
        wait_for("the database", || self.run("postgres", "select 1"))
    }

    /// Ends it and the processes of its connections with `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill();
        }
    }

    /// Stops all its processes where they are, or lets them go on.
    pub fn send(&self, signal: Signal) {
        if let Some(server) = &self.server {
            server.send(signal);
        }
    }

    /// The numbers of all orders.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub fn orders(&self) -> anyhow::Result<Vec<u64>> {
        let text = self.ask("select id from orders")?;
        let numbers = text.lines().map(|line| line.trim().parse());
        let numbers: Result<_, _> = numbers.collect();
        numbers.context("an order without a number")
    }

    /// What a statement says.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub fn ask(&self, statement: &str) -> anyhow::Result<String> {
        self.run(USER, statement)
    }

    fn run(&self, database: &str, statements: &str) -> anyhow::Result<String> {
        let mut command = Command::new(self.programs.join("psql"));
        command.env("PGPASSWORD", PASSWORD);
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
        command.args(["-h", "127.0.0.1", "-p", &self.address.port().to_string()]);
        command.args(["-U", USER, "-d", database, "-c", statements]);
        output(&mut command)
    }

    /// The URL for flows, with the password.
    pub fn url(&self) -> String {
        format!("postgres://{USER}:{PASSWORD}@{}/{USER}", self.address)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.send(Signal::CONT);
        self.kill();
    }
}

/// Starts a server beside the engine.
fn begin(
    command: &mut Command,
    address: SocketAddr,
    log: &Path,
    cores: &Cores,
) -> anyhow::Result<Process> {
    Process::start(command, &cores.stub, &cores.load, address, log)
}

/// Waits until something works: servers listen before they serve.
pub(super) fn wait_for<T>(
    what: &str,
    mut attempt: impl FnMut() -> anyhow::Result<T>,
) -> anyhow::Result<()> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Ok(_) => return Ok(()),
            Err(error) if begun.elapsed() > SERVES_MAX => {
                bail!("{what} does not serve: {error:#}");
            }
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_bind_the_queue() {
        let value: serde_json::Value =
            serde_json::from_str(&definitions_text(QueueType::Quorum)).unwrap();
        assert_eq!(value["bindings"][0]["destination"], QUEUE);
        assert_eq!(value["users"][1]["password"], PASSWORD);
        assert_eq!(value["queues"][0]["arguments"]["x-queue-type"], "quorum");
        assert_eq!(value["permissions"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn what_works_later_is_waited_for() {
        let mut tries = 0;
        wait_for("it", || {
            tries += 1;
            anyhow::ensure!(tries > 2, "not yet");
            Ok(())
        })
        .unwrap();
        assert_eq!(tries, 3);
    }
}
