//! PostgreSQL.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use crate::certificates::Authority;
use crate::process::{free_port, wait_until};

/// The password of the user `postgres` and of those that tests make.
const PASSWORD: &str = "tops3cret-pg";

/// Keeps the server for as long as its own input is open: it ends with the test, however that ends.
const KEEPER: &str = r#"
folder=$1; shift
start() { "$@" >>"$folder/log" 2>&1 & server=$!; }
start "$@"
while read -r order; do
  case $order in
    start) start "$@" ;;
    stop) kill -INT "$server"; wait "$server" ;;
    crash) kill -QUIT "$server"; wait "$server" ;;
    kill)
      kill -STOP "$server"
      kill -KILL "$server" $(cat "/proc/$server/task/$server/children"); wait "$server" ;;
  esac
  echo done
done
kill -QUIT "$server" 2>/dev/null; wait "$server"; rm -rf "$folder"
"#;

/// A real PostgreSQL that speaks TLS to those who want it. It ends when it is dropped, and with the
/// process: one may be shared by all tests.
pub struct Postgres {
    port: u16,
    #[cfg(test)]
    folder: PathBuf,
    authority: Authority,
    keeper: Mutex<(Child, Option<ChildStdin>, BufReader<ChildStdout>)>,
}

impl Postgres {
    /// Starts one with the database and user `postgres`.
    #[allow(clippy::new_without_default, reason = "it starts a server")]
    pub fn start() -> Self {
        let (port, folder) = (free_port(), new_folder());
        let authority = Authority::new("tests of PostgreSQL");
        let issued = authority.issue(&["localhost", "127.0.0.1"]);
        write(&folder, "password", PASSWORD, 0o644);
        let data = folder.join("data");
        let mut initdb = own(&programs().join("initdb"));
        initdb
            .args(["-U", "postgres", "-A", "scram-sha-256", "-E", "UTF8"])
            .args(["--locale=C", "--no-sync", "--pwfile"])
            .arg(folder.join("password"))
            .arg("-D")
            .arg(&data);
        run(&mut initdb);
        write(&data, "server.crt", &issued.cert, 0o600);
        write(&data, "server.key", &issued.key, 0o600);
        give_away(&data);
        let (mut keeper, settings) = (Command::new("sh"), settings(port, &folder));
        let server = own(&programs().join("postgres"));
        keeper
            .args(["-c", KEEPER, "keeper"])
            .arg(&folder)
            .arg(server.get_program())
            .args(server.get_args())
            .arg("-D")
            .arg(&data)
            .args(settings)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut keeper = keeper.spawn().unwrap();
        let orders = keeper.stdin.take();
        let replies = BufReader::new(keeper.stdout.take().unwrap());
        let server = Self {
            port,
            #[cfg(test)]
            folder,
            authority,
            keeper: Mutex::new((keeper, orders, replies)),
        };
        server.wait();
        server
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a database of it.
    pub fn url(&self, database: &str) -> String {
        self.url_of("postgres", database)
    }

    /// The URL of a database of it for a user with the usual password.
    pub fn url_of(&self, user: &str, database: &str) -> String {
        format!(
            "postgres://{user}:{PASSWORD}@127.0.0.1:{}/{database}",
            self.port
        )
    }

    /// The password of all users.
    pub fn password(&self) -> &'static str {
        PASSWORD
    }

    /// The certificate of whoever has issued the server's, PEM.
    pub fn authority(&self) -> &str {
        self.authority.pem()
    }

    /// A new empty database of this name.
    pub fn database(&self, name: &str) -> String {
        self.sql("postgres", &format!("create database {name}"));
        self.url(name)
    }

    /// Runs statements by `psql`: what they print, columns with `|` between.
    pub fn sql(&self, database: &str, text: &str) -> String {
        let output = self.psql(database, text).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}: {error}");
        String::from_utf8(output.stdout)
            .unwrap()
            .trim_end()
            .to_owned()
    }

    fn psql(&self, database: &str, text: &str) -> Command {
        let mut psql = Command::new(programs().join("psql"));
        psql.args([
            "-XAtq",
            "-v",
            "ON_ERROR_STOP=1",
            "-h",
            "127.0.0.1",
            "-U",
            "postgres",
        ])
        .args(["-p", &self.port.to_string(), "-d", database, "-c", text])
        .env("PGPASSWORD", PASSWORD);
        psql
    }

    /// Stops it in good order; what is under way is rolled back.
    pub fn stop(&self) {
        self.order("stop");
    }

    /// Lets it crash.
    pub fn crash(&self) {
        self.order("crash");
    }

    /// Kills it and the processes of its connections (SIGKILL). What it has on disk stays.
    pub fn kill(&self) {
        self.order("kill");
    }

    /// Starts it again on the same port, with what it has on disk.
    pub fn restart(&self) {
        self.order("start");
        self.wait();
    }

    fn order(&self, order: &str) {
        let mut keeper = self.keeper.lock().unwrap();
        let (_, orders, replies) = &mut *keeper;
        writeln!(orders.as_mut().unwrap(), "{order}").unwrap();
        let mut line = String::new();
        replies.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n");
    }

    fn wait(&self) {
        wait_until("PostgreSQL answers", || {
            let output = self.psql("postgres", "select 1").output();
            output.is_ok_and(|it| it.status.success())
        });
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let Ok(keeper) = self.keeper.get_mut() else {
            return;
        };
        keeper.1 = None;
        let _ = keeper.0.wait();
    }
}

/// Where its programs are: of the latest version that is installed.
fn programs() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let folders = versions.flatten().map(|it| it.path().join("bin"));
    let latest = folders.filter(|it| it.join("initdb").is_file()).max();
    latest.expect("PostgreSQL is missing: `cargo xtask test` installs it (package postgresql)")
}

fn settings(port: u16, folder: &Path) -> Vec<String> {
    let folder = folder.display();
    let settings = [
        "listen_addresses=127.0.0.1".to_owned(),
        format!("port={port}"),
        format!("unix_socket_directories={folder}/data"),
        "ssl=on".to_owned(),
        "max_connections=60".to_owned(),
        "fsync=off".to_owned(),
    ];
    settings
        .into_iter()
        .flat_map(|it| ["-c".to_owned(), it])
        .collect()
}

/// PostgreSQL refuses to run as root: then it runs as the user that its package makes.
fn own(program: &Path) -> Command {
    if !is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=postgres", "--regid=postgres", "--clear-groups"])
        .arg(program);
    command
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().unwrap();
    output.stdout == b"0\n"
}

/// A folder that the server may write to; whoever keeps the server removes it.
fn new_folder() -> PathBuf {
    let name = format!("intertie-postgres-{}-{}", std::process::id(), free_port());
    let folder = std::env::temp_dir().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    give_away(&folder);
    folder
}

fn give_away(folder: &Path) {
    if is_root() {
        run(Command::new("chown").args(["-R", "postgres"]).arg(folder));
    }
}

fn write(folder: &Path, name: &str, text: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_keeps_its_data_and_leaves_nothing_behind() {
        let server = Postgres::start();
        server.database("shop");
        server.sql("shop", "create table t (a int); insert into t values (7)");
        server.stop();
        server.restart();
        assert_eq!(server.sql("shop", "select a from t"), "7");
        server.crash();
        server.restart();
        assert_eq!(server.sql("shop", "select a from t"), "7");
        let folder = server.folder.clone();
        drop(server);
        assert!(!folder.exists());
    }
}
