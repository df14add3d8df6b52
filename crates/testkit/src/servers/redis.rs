//! Redis.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::Issued;
use crate::process::{Process, TempDir, free_port};
use crate::servers::find;

/// A real redis-server. What it has been told is on its disk when it answers, so that it can be
/// stopped and started again.
pub struct Redis {
    port: u16,
    tls_port: Option<u16>,
    folder: TempDir,
    process: Option<Process>,
}

impl Redis {
    /// Starts a server without users.
    pub fn start() -> Self {
        Self::start_with("", None)
    }

    /// Starts a server with these lines in its configuration, and with TLS on a second port.
    pub fn start_with(lines: &str, tls: Option<&Issued>) -> Self {
        let folder = TempDir::new();
        let (port, tls_port) = (free_port(), tls.map(|_| free_port()));
        let path = folder.path().display();
        let mut text = format!(
            "port {port}\nbind 127.0.0.1\ndir {path}\nappendonly yes\nappendfsync always\n\
             save \"\"\ndaemonize no\nprotected-mode no\n{lines}\n"
        );
        if let (Some(tls), Some(port)) = (tls, tls_port) {
            folder.write("server.pem", &tls.cert);
            folder.write("server.key", &tls.key);
            text.push_str(&format!(
                "tls-port {port}\ntls-cert-file {path}/server.pem\n\
                 tls-key-file {path}/server.key\ntls-auth-clients no\n"
            ));
        }
        folder.write("redis.conf", &text);
        let mut server = Self {
            port,
            tls_port,
            folder,
            process: None,
        };
        server.again();
        server
    }

    /// Starts it again after [`Redis::kill`], with the data that it had.
    pub fn again(&mut self) {
        let binary = find("redis-server").expect(
            "redis-server is missing: `cargo xtask test` installs it (package redis-server)",
        );
        let config = self.folder.path().join("redis.conf");
        let mut process = Process::start(Command::new(binary).arg(config));
        process.wait_for_port(self.port);
        process.wait_for("Ready to accept connections");
        self.process = Some(process);
    }

    /// Ends it without a word.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Holds it up, so that it answers nobody, or lets it go on.
    pub fn hold(&self, hold: bool) {
        let process = self.process.as_ref().expect("it does not run");
        process.signal(if hold { "STOP" } else { "CONT" });
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its port for TLS.
    pub fn tls_port(&self) -> u16 {
        self.tls_port.expect("it has no TLS")
    }

    /// Gives a command on a new connection. A list is `[a, b]`, nothing is `nil`, an error begins
    /// with `-`.
    pub fn ask(&self, command: &[&str]) -> String {
        self.ask_as(None, command)
    }

    /// The same as a user with a password.
    pub fn ask_as(&self, who: Option<(&str, &str)>, command: &[&str]) -> String {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let time = Some(Duration::from_secs(10));
        stream.set_read_timeout(time).unwrap();
        let mut stream = BufReader::new(stream);
        if let Some((user, password)) = who {
            let answer = talk(&mut stream, &["AUTH", user, password]);
            assert_eq!(answer, "OK");
        }
        talk(&mut stream, command)
    }
}

/// One command and its answer (RESP2).
fn talk(stream: &mut BufReader<TcpStream>, command: &[&str]) -> String {
    let mut text = format!("*{}\r\n", command.len());
    for word in command {
        text.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.get_mut().write_all(text.as_bytes()).unwrap();
    answer(stream)
}

fn answer(stream: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    let line = line.trim_end();
    let (kind, rest) = line.split_at(1);
    match kind {
        "$" if rest == "-1" => "nil".to_owned(),
        "*" if rest == "-1" => "nil".to_owned(),
        "$" => {
            let mut bytes = vec![0; rest.parse::<usize>().unwrap() + 2];
            stream.read_exact(&mut bytes).unwrap();
            bytes.truncate(bytes.len() - 2);
            String::from_utf8_lossy(&bytes).into_owned()
        }
        "*" => {
            let items: Vec<String> = (0..rest.parse().unwrap()).map(|_| answer(stream)).collect();
            format!("[{}]", items.join(", "))
        }
        "-" => line.to_owned(),
        _ => rest.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redis_keeps_its_data_over_a_kill() {
        let mut redis = Redis::start();
        assert_eq!(redis.ask(&["SET", "a", "å b"]), "OK");
        assert_eq!(redis.ask(&["RPUSH", "l", "1", "2"]), "2");
        assert_eq!(redis.ask(&["LRANGE", "l", "0", "-1"]), "[1, 2]");
        assert!(redis.ask(&["INCR", "l"]).starts_with("-WRONGTYPE"));
        redis.kill();
        assert!(TcpStream::connect(("127.0.0.1", redis.port())).is_err());
        redis.again();
        assert_eq!(redis.ask(&["GET", "a"]), "å b");
        assert_eq!(redis.ask(&["GET", "none"]), "nil");
    }
}
