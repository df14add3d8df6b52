//! RabbitMQ.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::certificates::Authority;
use crate::process::{TempDir, free_port};
use crate::servers::find;

/// Where Debian keeps the programs, which can be run by anybody there.
const PROGRAMS: &str = "/usr/lib/rabbitmq/bin";

/// A real RabbitMQ with the user `guest`. It ends when it is dropped, or with the process.
pub struct Rabbitmq {
    port: u16,
    tls_port: u16,
    epmd_port: u16,
    node_port: u16,
    node: String,
    authority: Authority,
    folder: TempDir,
    _names: Guarded,
    server: Mutex<Option<Guarded>>,
}

impl Rabbitmq {
    /// Starts a broker with these lines in its settings beside the usual ones.
    pub fn start(settings: &str) -> Self {
        let folder = TempDir::new();
        let [port, tls_port] = [free_port(), free_port()];
        let [epmd_port, node_port] = [free_port(), free_port()];
        let authority = Authority::new("mq");
        let issued = authority.issue(&["localhost", "127.0.0.1"]);
        folder.write("ca.pem", authority.pem());
        folder.write("cert.pem", &issued.cert);
        folder.write("key.pem", &issued.key);
        folder.write("plugins", "[].\n");
        let path = folder.path().display();
        let text = format!(
            "listeners.tcp.1 = 127.0.0.1:{port}\nlisteners.ssl.1 = 127.0.0.1:{tls_port}\n\
             ssl_options.cacertfile = {path}/ca.pem\nssl_options.certfile = {path}/cert.pem\n\
             ssl_options.keyfile = {path}/key.pem\nssl_options.verify = verify_none\n\
             ssl_options.fail_if_no_peer_cert = false\n\
             disk_free_limit.absolute = 1MB\nvm_memory_high_watermark.absolute = 2GB\n\
             log.console = true\nlog.console.level = warning\nlog.file = false\n{settings}\n"
        );
        folder.write("rabbitmq.conf", &text);
        let epmd = find("epmd").expect("epmd is missing: package erlang-base");
        let mut names = Command::new(epmd);
        names.args(["-port", &epmd_port.to_string(), "-address", "127.0.0.1"]);
        let broker = Self {
            port,
            tls_port,
            epmd_port,
            node_port,
            node: format!("it{port}@localhost"),
            authority,
            folder,
            _names: Guarded::start(&names, None),
            server: Mutex::new(None),
        };
        broker.go_on();
        broker
    }

    /// The port for clear text.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The port for TLS. The certificate is for `localhost`.
    pub fn tls_port(&self) -> u16 {
        self.tls_port
    }

    /// Who has signed its certificate.
    pub fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("amqp://127.0.0.1:{}", self.port)
    }

    /// Kills it (SIGKILL). What it keeps on disk stays.
    pub fn kill(&self) {
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        *server = None;
    }

    /// Has what was declared on disk. RabbitMQ 3 confirms a declaration before that: one that is
    /// killed soon after it has no such queue when it starts again.
    pub fn sync_declarations(&self) {
        let told = self.control(&["eval", "mnesia:sync_log()."]);
        assert_eq!(told.trim(), "ok");
    }

    /// Starts it again, with what it has kept on disk.
    pub fn go_on(&self) {
        let mut program = self.program("rabbitmq-server");
        program.env("RABBITMQ_NODE_PORT", self.port.to_string());
        program.env("RABBITMQ_DIST_PORT", self.node_port.to_string());
        let output = self.folder.path().join("output");
        let started = Guarded::start(&program, Some(output.clone()));
        let mut server = self.server.lock().unwrap_or_else(PoisonError::into_inner);
        *server = Some(started);
        let start = Instant::now();
        let is_up = || {
            let ports = [self.port, self.tls_port];
            let mut open = ports.iter();
            open.all(|port| std::net::TcpStream::connect(("127.0.0.1", *port)).is_ok())
        };
        while !is_up() {
            let output = std::fs::read_to_string(&output).unwrap_or_default();
            assert!(
                start.elapsed() < Duration::from_secs(180),
                "RabbitMQ does not start: {output}"
            );
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Lets `rabbitmqctl` do something and returns what it prints. It takes a second or two.
    pub fn control(&self, arguments: &[&str]) -> String {
        let mut program = self.program("rabbitmqctl");
        let output = program.arg("-q").args(arguments).output().unwrap();
        let [told, errors] = [&output.stdout, &output.stderr].map(|it| String::from_utf8_lossy(it));
        assert!(output.status.success(), "{arguments:?}: {told}{errors}");
        told.into_owned()
    }

    /// Makes a virtual host that `guest` may use.
    pub fn add_vhost(&self, name: &str) {
        self.control(&["add_vhost", name]);
        self.control(&["set_permissions", "-p", name, "guest", ".*", ".*", ".*"]);
    }

    /// Sets or clears the alarm for too little memory: publishers are held up while it is set.
    pub fn set_memory_alarm(&self, is_set: bool) {
        let what = "{resource_limit, memory, node()}";
        let order = match is_set {
            true => format!("rabbit_alarm:set_alarm({{{what}, []}})."),
            false => format!("rabbit_alarm:clear_alarm({what})."),
        };
        self.control(&["eval", &order]);
    }

    /// Lets it crash, and returns where it writes what Erlang writes of that.
    pub fn crash(&self) -> PathBuf {
        let mut program = self.program("rabbitmqctl");
        // It fails, for the node is gone before it can answer.
        let _ = program
            .args(["-q", "eval", "erlang:halt(\"test\")."])
            .output();
        self.folder.path().join("erl_crash.dump")
    }

    fn program(&self, name: &str) -> Command {
        let path = PathBuf::from(PROGRAMS).join(name);
        assert!(
            path.is_file(),
            "{name} is missing: `cargo xtask test` installs it (package rabbitmq-server)"
        );
        let folder = self.folder.path();
        let mut program = Command::new(path);
        program
            .env("HOME", folder)
            .env("ERL_EPMD_PORT", self.epmd_port.to_string())
            .env("ERL_EPMD_ADDRESS", "127.0.0.1")
            .env("RABBITMQ_NODENAME", &self.node)
            .env("RABBITMQ_CONFIG_FILE", folder.join("rabbitmq.conf"))
            .env("RABBITMQ_MNESIA_BASE", folder.join("data"))
            .env("RABBITMQ_LOG_BASE", folder.join("log"))
            .env("RABBITMQ_ENABLED_PLUGINS_FILE", folder.join("plugins"))
            .env("RABBITMQ_PID_FILE", folder.join("pid"))
            .env("RABBITMQ_CONF_ENV_FILE", "/dev/null")
            // Or Erlang writes it into the folder that the test runs in.
            .env("ERL_CRASH_DUMP", folder.join("erl_crash.dump"))
            // Two schedulers: tests have other work for the machine.
            .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "+S 2:2 +sbwt none");
        program
    }
}

/// A program with all its children, killed when this is dropped or the process ends: then a pipe is
/// closed on which a shell waits.
struct Guarded(Child);

impl Guarded {
    fn start(program: &Command, output: Option<PathBuf>) -> Self {
        let script = "setsid \"$@\" </dev/null & read -r _; kill -KILL -$!; wait";
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "sh"]);
        shell.arg(program.get_program()).args(program.get_args());
        for (name, value) in program.get_envs() {
            shell.env(name, value.unwrap_or_default());
        }
        let stream = || match &output {
            None => Stdio::null(),
            Some(path) => {
                let mut options = OpenOptions::new();
                Stdio::from(options.create(true).append(true).open(path).unwrap())
            }
        };
        let child = shell
            .stdin(Stdio::piped())
            .stdout(stream())
            .stderr(stream());
        Self(child.spawn().unwrap())
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}
