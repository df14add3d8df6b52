//! What flows of the suite talk to: a real RabbitMQ and a real PostgreSQL, started on free ports
//! with temporary folders, on the cores of the load, and killed at the end.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};

use super::super::process::{self, Cores, Process};
use super::amqp::Client;

/// Where the script of RabbitMQ is, which the one in the path starts as another user.
pub(crate) const RABBITMQ: [&str; 2] = [
    "/usr/lib/rabbitmq/bin/rabbitmq-server",
    "/opt/rabbitmq/sbin/rabbitmq-server",
];
/// A core of its own is what the broker has; schedulers that spin would take it from the load.
const ERLANG: &str = "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none";
/// How long RabbitMQ may take until it lets somebody in, once it listens.
const LET_IN_MAX: Duration = Duration::from_secs(60);
/// The user and the database of the flows.
const USER: &str = "lab";

/// The tables of the complex scenario.
const TABLES: &str = "\
create table customer (id integer primary key, name text not null, tier text not null,
  credit_limit integer not null);
insert into customer select id, 'Customer ' || id, 'gold', 1000000 from generate_series(1, 1000) id;
create table orders (id bigint primary key, customer_id integer not null, total integer not null,
  status text not null, placed_at timestamptz not null default now());
";

/// Everything that flows talk to.
pub(crate) struct Parts {
    pub broker: Broker,
    /// The database and the SOAP service, where a scenario has them.
    pub database: Option<Database>,
    pub soap: Option<(Process, SocketAddr)>,
}

impl Parts {
    /// Starts them.
    ///
    /// # Errors
    /// When one is not installed, or does not start.
    pub fn start(
        folder: &Path,
        cores: &Cores,
        own: &Path,
        is_complex: bool,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            broker: Broker::start(folder, cores)?,
            database: match is_complex {
                true => Some(Database::start(folder, cores)?),
                false => None,
            },
            soap: match is_complex {
                true => Some(soap(folder, cores, own)?),
                false => None,
            },
        })
    }

    /// Where they are.
    pub fn addresses(&self) -> Addresses {
        Addresses {
            broker: self.broker.address,
            database: self.database.as_ref().map(|it| it.address),
            soap: self.soap.as_ref().map(|(_, address)| *address),
        }
    }

    /// All processes.
    pub fn family(&self) -> Vec<u32> {
        let mut family = self.broker.family();
        family.extend(self.database.iter().flat_map(Database::family));
        family.extend(self.soap.iter().flat_map(|(stub, _)| stub.family()));
        family
    }
}

/// Where broker, database and SOAP service are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub broker: SocketAddr,
    pub database: Option<SocketAddr>,
    pub soap: Option<SocketAddr>,
}

impl Addresses {
    /// The broker's URL for flows.
    pub fn broker_url(&self) -> String {
        format!("amqp://guest:guest@{}", self.broker)
    }

    /// The database's URL for flows.
    pub fn database_url(&self) -> Option<String> {
        self.database.map(database_url)
    }
}

fn database_url(address: SocketAddr) -> String {
    format!("postgres://{USER}@{address}/{USER}")
}

/// Starts the SOAP service.
fn soap(folder: &Path, cores: &Cores, own: &Path) -> anyhow::Result<(Process, SocketAddr)> {
    let address = process::free_address()?;
    let mut command = Command::new(own);
    command.args(["stub", "soap", "--listen", &address.to_string()]);
    let stub = begin(command, address, &folder.join("soap.log"), cores)?;
    Ok((stub, address))
}

/// A broker.
pub(crate) struct Broker {
    pub address: SocketAddr,
    // In the order in which they end.
    broker: Process,
    mapper: Process,
}

impl Broker {
    /// Starts RabbitMQ with a node name, ports and folders of its own.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub fn start(folder: &Path, cores: &Cores) -> anyhow::Result<Self> {
        let folder = folder.join("rabbitmq");
        fs::create_dir_all(&folder)?;
        let script = process::program("RABBITMQ_SERVER", &RABBITMQ, "rabbitmq-server");
        let script = script.context(
            "RabbitMQ was not found: install rabbitmq-server, or name its script in \
             RABBITMQ_SERVER",
        )?;
        let names = process::free_address()?;
        let mut mapper = Command::new("epmd");
        mapper.args(["-address", "127.0.0.1", "-port", &names.port().to_string()]);
        let mapper = begin(mapper, names, &folder.join("epmd.log"), cores)?;
        let (address, nodes) = (process::free_address()?, process::free_address()?);
        fs::write(folder.join("enabled_plugins"), "[].")?;
        fs::write(folder.join("rabbitmq.conf"), config(address))?;
        let mut command = Command::new(script);
        let at = |name: &str| folder.join(name);
        command
            .env("HOME", &folder)
            .env(
                "RABBITMQ_NODENAME",
                format!("lab-{}@localhost", address.port()),
            )
            .env("RABBITMQ_DIST_PORT", nodes.port().to_string())
            .env("ERL_EPMD_PORT", names.port().to_string())
            .env("RABBITMQ_CONFIG_FILE", at("rabbitmq.conf"))
            .env("RABBITMQ_MNESIA_BASE", at("data"))
            .env("RABBITMQ_LOG_BASE", at("log"))
            .env("RABBITMQ_PID_FILE", at("pid"))
            .env("ERL_CRASH_DUMP", at("erl_crash.dump"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", at("enabled_plugins"))
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", ERLANG)
            // Without a shell around it that would stop it slowly.
            .env("RUNNING_UNDER_SYSTEMD", "true");
        let broker = begin(command, address, &folder.join("rabbitmq.log"), cores)?;
        let broker = Self {
            address,
            broker,
            mapper,
        };
        // It listens before it lets anybody in.
        let start = Instant::now();
        while let Err(error) = Client::connect(address) {
            if start.elapsed() > LET_IN_MAX {
                return Err(error.context("RabbitMQ lets nobody in"));
            }
            thread::sleep(Duration::from_millis(50));
        }
        Ok(broker)
    }

    /// Its processes.
    pub fn family(&self) -> Vec<u32> {
        [self.broker.family(), self.mapper.family()].concat()
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // What it has stored is of no use any more.
        self.broker.kill();
    }
}

fn config(address: SocketAddr) -> String {
    format!(
        "listeners.tcp.1 = {address}\ndisk_free_limit.absolute = 100MB\nlog.console = false\n\
         log.file.level = warning\n"
    )
}

/// A PostgreSQL with a database of its own.
pub(crate) struct Database {
    pub address: SocketAddr,
    folder: PathBuf,
    server: Process,
}

impl Database {
    /// Starts PostgreSQL with the tables of the complex scenario.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub fn start(folder: &Path, cores: &Cores) -> anyhow::Result<Self> {
        let database = Self::start_empty(folder, cores)?;
        database.run(USER, TABLES)?;
        Ok(database)
    }

    /// Starts PostgreSQL with an empty database. It does not wait for its disk, which is not what
    /// is measured.
    ///
    /// # Errors
    /// When it is not installed, or does not start.
    pub fn start_empty(folder: &Path, cores: &Cores) -> anyhow::Result<Self> {
        let folder = folder.join("postgres");
        fs::create_dir_all(&folder)?;
        let programs = programs().context(
            "PostgreSQL was not found: install postgresql, or name the folder of its programs in \
             POSTGRES_BIN",
        )?;
        let user = unprivileged()?;
        let as_user = |name: &str| {
            let mut command = Command::new(programs.join(name));
            if let Some((user, group)) = user {
                command.uid(user).gid(group);
            }
            command.current_dir(&folder).env("LC_ALL", "C");
            command
        };
        if let Some((user, group)) = user {
            chown(&folder, Some(user), Some(group))?;
        }
        let data = folder.join("data");
        let mut command = as_user("initdb");
        command.args([
            "--no-sync",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "-U",
            USER,
            "-D",
        ]);
        output(command.arg(&data))?;
        let address = process::free_address()?;
        let mut command = as_user("postgres");
        command.arg("-D").arg(&data);
        command.args(["-p", &address.port().to_string()]);
        for setting in [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "fsync=off",
            "synchronous_commit=off",
            "full_page_writes=off",
            "max_connections=300",
            "shared_buffers=64MB",
        ] {
            command.args(["-c", setting]);
        }
        let server = begin(command, address, &folder.join("postgres.log"), cores)?;
        let database = Self {
            address,
            folder: programs,
            server,
        };
        database.make()?;
        Ok(database)
    }

    /// Its processes; each connection has one.
    pub fn family(&self) -> Vec<u32> {
        self.server.family()
    }

    /// The URL of the database.
    pub fn url(&self) -> String {
        database_url(self.address)
    }

    fn make(&self) -> anyhow::Result<()> {
        // It listens before it lets anybody in.
        let mut tries = 0;
        while let Err(error) = self.run("postgres", &format!("create database {USER}")) {
            tries += 1;
            ensure!(tries < 100, "{error:#}");
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Forgets the orders of earlier samples.
    pub fn clear(&self) -> anyhow::Result<()> {
        self.run(USER, "truncate orders").map(drop)
    }

    /// The ids of all orders.
    pub fn orders(&self) -> anyhow::Result<Vec<u64>> {
        let text = self.run(USER, "select id from orders")?;
        let ids = text.lines().map(|line| line.trim().parse());
        ids.collect::<Result<_, _>>()
            .context("an order without an id")
    }

    pub(super) fn run(&self, database: &str, statements: &str) -> anyhow::Result<String> {
        let mut command = Command::new(self.folder.join("psql"));
        command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1"]);
        command.args(["-h", "127.0.0.1", "-p", &self.address.port().to_string()]);
        command.args(["-U", USER, "-d", database, "-c", statements]);
        output(&mut command)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.server.kill();
    }
}

/// Where the programs of PostgreSQL are: the newest of Debian's folders, if nothing is said.
pub(crate) fn programs() -> Option<PathBuf> {
    if let Some(chosen) = std::env::var_os("POSTGRES_BIN") {
        return Some(PathBuf::from(chosen)).filter(|folder| folder.join("postgres").is_file());
    }
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let folders = versions.flatten().map(|entry| entry.path().join("bin"));
    let there = folders.filter(|folder| folder.join("postgres").is_file());
    let newest = there.max_by_key(|folder| {
        let version = folder.parent().and_then(Path::file_name);
        version.and_then(|name| name.to_str()?.parse::<u32>().ok())
    });
    newest.or_else(|| {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).find(|folder| folder.join("initdb").is_file())
    })
}

/// The user and group to run a server as that refuses to run as root; none when this is not root.
pub(crate) fn unprivileged() -> anyhow::Result<Option<(u32, u32)>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    let chosen = ["postgres", "nobody"].into_iter();
    let found = chosen
        .filter_map(|name| user(&users, name))
        .next()
        .context("no user but root to run PostgreSQL as")?;
    Ok(Some(found))
}

fn user(users: &str, name: &str) -> Option<(u32, u32)> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let is_it = fields.next() == Some(name);
        let mut numbers = fields.skip(1).map(|field| field.parse().ok());
        is_it.then_some((numbers.next()??, numbers.next()??))
    })
}

/// Starts a server on the cores of the stubs.
fn begin(
    mut command: Command,
    address: SocketAddr,
    log: &Path,
    cores: &Cores,
) -> anyhow::Result<Process> {
    Process::start(&mut command, &cores.stub, &cores.load, address, log)
}

pub(crate) fn output(command: &mut Command) -> anyhow::Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    let output = output.with_context(|| format!("cannot start {program}"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        bail!("{program} failed: {}", told.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found() {
        let users = "daemon:x:1:1:d:/:/bin/false\nnobody:x:65534:65535:n:/:/bin/false\nbad\n";
        assert_eq!(user(users, "nobody"), Some((65534, 65535)));
        assert_eq!(user(users, "bad"), None);
        assert_eq!(user(users, "other"), None);
    }
}
