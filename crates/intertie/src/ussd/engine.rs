//! The engine behind the phone: one that runs, or one that is started for it with a data folder
//! that is removed at the end.

use std::fs;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{SocketAddr as SocketName, UnixDatagram};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use component::dialogue::{NEUTRAL_MEDIA_TYPE, Screen, SessionInput};

/// How long an engine may take to start.
const START_MAX: Duration = Duration::from_secs(30);
/// The longest wait for a screen.
const ANSWER_MAX: Duration = Duration::from_secs(120);
/// More than any screen.
const REPLY_MAX: u64 = 1 << 20;

/// Where the menu's trigger is.
pub(super) struct Place {
    address: String,
    path: String,
    headers: String,
}

impl Place {
    /// On this machine, whatever else the listener's address takes.
    pub fn new(address: &str, path: &str, headers: &[String]) -> Self {
        let port = address.rsplit(':').next().unwrap_or(address);
        let host = address.strip_suffix(port).unwrap_or_default();
        let host = match host.trim_end_matches(':') {
            "" | "0.0.0.0" | "[::]" => "127.0.0.1",
            host => host,
        };
        let headers = headers.iter().map(|line| format!("{line}\r\n")).collect();
        Self {
            address: format!("{host}:{port}"),
            path: path.to_owned(),
            headers,
        }
    }

    /// At another engine.
    pub fn at(self, url: &str) -> anyhow::Result<Self> {
        let rest = url
            .strip_prefix("http://")
            .context("--url begins with http://")?;
        let (address, path) = match rest.split_once('/') {
            Some((address, path)) if !path.is_empty() => (address, format!("/{path}")),
            Some((address, _)) => (address, self.path),
            None => (rest, self.path),
        };
        let address = match address.contains(':') {
            true => address.to_owned(),
            false => format!("{address}:80"),
        };
        Ok(Self {
            address,
            path,
            headers: self.headers,
        })
    }
}

/// An engine.
pub(super) struct Engine {
    place: Place,
    started: Option<Started>,
}

/// One that was started for this.
struct Started {
    child: Child,
    /// With its data and its log.
    folder: PathBuf,
    /// What it logs, from where it was read last.
    log: fs::File,
}

impl Engine {
    /// One that runs.
    pub fn running(place: Place) -> Self {
        Self {
            place,
            started: None,
        }
    }

    /// Starts one.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start(paths: &[PathBuf], place: Place) -> anyhow::Result<Self> {
        if TcpStream::connect(&place.address).is_ok() {
            bail!(
                "something listens on {} already: stop it, or try the menu there with --url",
                place.address
            );
        }
        let folder = own_folder()?;
        let (data, log) = (folder.join("data"), folder.join("log"));
        let cannot = || format!("cannot write to {}", log.display());
        let file = fs::File::create(&log).with_context(cannot)?;
        let reader = fs::File::open(&log).with_context(cannot)?;
        let ready = ReadySocket::new(&folder)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.env("NOTIFY_SOCKET", &ready.name);
        // Whose watchdog this is does not wait for the child.
        command.env_remove("WATCHDOG_USEC");
        command.arg("run").args(paths).arg("--data").arg(&data);
        command.args(["--admin", "off", "--workers", "1"]);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file);
        let child = command.spawn().context("cannot start an engine")?;
        let mut started = Started {
            child,
            folder,
            log: reader,
        };
        let start = Instant::now();
        while !ready.wait(Duration::from_millis(20))? {
            if started.child.try_wait()?.is_some() || start.elapsed() > START_MAX {
                bail!(
                    "the engine does not start:\n{}",
                    started.logged().trim_end()
                );
            }
        }
        // What it has said of its start is of no interest here.
        started.logged();
        Ok(Self {
            place,
            started: Some(started),
        })
    }

    /// What the engine that was started for this has warned of since the last time: why a screen
    /// says that something has failed.
    pub fn warnings(&mut self) -> String {
        let logged = self.started.as_mut().map(Started::logged);
        let logged = logged.unwrap_or_default();
        logged.lines().filter_map(warning).collect()
    }

    /// Tells what has happened, and gets the screen.
    ///
    /// # Errors
    /// When nobody answers, or not with a screen.
    pub fn ask(&self, input: &SessionInput) -> anyhow::Result<Screen> {
        let Place {
            address,
            path,
            headers,
        } = &self.place;
        let nobody = || format!("no answer from http://{address}{path}");
        let mut stream = connect(address).with_context(nobody)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        let body = input.to_bytes();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\
             Content-Type: {NEUTRAL_MEDIA_TYPE}\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(&body)?;
        let mut reply = BufReader::new(stream.take(REPLY_MAX));
        let mut status = String::new();
        reply.read_line(&mut status).with_context(nobody)?;
        let mut length = None;
        loop {
            let mut line = String::new();
            if reply.read_line(&mut line)? == 0 || line == "\r\n" {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse::<u64>().ok();
            }
        }
        let mut body = Vec::new();
        reply
            .take(length.unwrap_or(REPLY_MAX))
            .read_to_end(&mut body)?;
        let screen = serde_json::from_slice(&body).ok();
        match (status.split(' ').nth(1), screen) {
            (Some("200"), Some(screen)) => Ok(screen),
            _ => bail!(
                "http://{address}{path} answered {}: {}",
                status.trim_end(),
                String::from_utf8_lossy(&body)
            ),
        }
    }
}

/// Where the engine tells that it serves: as a service manager is told, sd_notify(3). By then all
/// that its start has to say is in the log, which a port that listens does not promise.
struct ReadySocket {
    socket: UnixDatagram,
    /// The value of `NOTIFY_SOCKET`: no file, whose path could be too long.
    name: String,
}

impl ReadySocket {
    fn new(folder: &Path) -> anyhow::Result<Self> {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        let address = SocketName::from_abstract_name(name.as_bytes())?;
        let socket = UnixDatagram::bind_addr(&address);
        Ok(Self {
            socket: socket.context("cannot listen for the start of an engine")?,
            name: format!("@{name}"),
        })
    }

    /// Whether the engine serves; waits for so long to be told.
    fn wait(&self, time: Duration) -> anyhow::Result<bool> {
        self.socket.set_read_timeout(Some(time))?;
        let mut message = [0; 256];
        match self.socket.recv(&mut message) {
            Ok(count) => Ok(message[..count].starts_with(b"READY=1")),
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Ok(false)
            }
            Err(error) => Err(error).context("cannot be told of the start of an engine"),
        }
    }
}

/// A line of the log, as people read it; none of those that tell nothing bad.
fn warning(line: &str) -> Option<String> {
    let Ok(entry) = serde_json::from_str::<serde_json::Value>(line) else {
        // The file asks for a log in words.
        let is_bad = line.contains(" WARN ") || line.contains(" ERROR ");
        return is_bad.then(|| format!("{line}\n"));
    };
    let member = |name: &str| entry.get(name)?.as_str().filter(|it| !it.is_empty());
    let level = member("level").filter(|it| ["WARN", "ERROR"].contains(it))?;
    let details: Vec<_> = ["step", "cause"].into_iter().filter_map(member).collect();
    let details = match details.is_empty() {
        true => String::new(),
        false => format!(" ({})", details.join(": ")),
    };
    let message = member("message").unwrap_or_default();
    Some(format!("{}: {message}{details}\n", level.to_lowercase()))
}

/// A new folder that nobody else can read, or has made before.
fn own_folder() -> anyhow::Result<PathBuf> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let since = since.unwrap_or_default().as_nanos();
    let name = format!("intertie-ussd-{}-{since}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let made = fs::DirBuilder::new().mode(0o700).create(&folder);
    made.with_context(|| format!("cannot make the folder {}", folder.display()))?;
    Ok(folder)
}

fn connect(address: &str) -> std::io::Result<TcpStream> {
    match address.parse::<SocketAddr>() {
        Ok(address) => TcpStream::connect_timeout(&address, Duration::from_secs(5)),
        Err(_) => TcpStream::connect(address),
    }
}

impl Started {
    /// What has been logged since the last time.
    fn logged(&mut self) -> String {
        let mut bytes = Vec::new();
        // A log that cannot be read tells nothing.
        let _ = self.log.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It has nothing that anybody needs, and may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_this_machine() {
        for (written, wanted) in [
            (":8080", "127.0.0.1:8080"),
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("127.0.0.1:81", "127.0.0.1:81"),
            ("[::]:81", "127.0.0.1:81"),
            ("[::1]:81", "[::1]:81"),
        ] {
            assert_eq!(Place::new(written, "/ussd", &[]).address, wanted);
        }
        let place = |url: &str| {
            let place = Place::new(":1", "/ussd", &[]).at(url).unwrap();
            format!("{}{}", place.address, place.path)
        };
        assert_eq!(place("http://a.example"), "a.example:80/ussd");
        assert_eq!(place("http://a.example:8/"), "a.example:8/ussd");
        assert_eq!(place("http://a.example:8/b/c"), "a.example:8/b/c");
        assert!(Place::new(":1", "/", &[]).at("https://a").is_err());
    }
}
