//! Tells a service manager how the process is: the protocol of sd_notify(3), of which systemd and
//! others understand the same words. `NOTIFY_SOCKET` names a datagram socket; without it nobody is
//! told and nothing is done.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// What a service manager is told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum State<'a> {
    /// It serves: after the start and after each reload, whether that was taken over or refused.
    Ready(&'a str),
    /// It reads its files again.
    Reloading,
    /// It ends what is under way.
    Stopping,
    /// It is alive: asked for within each period of the watchdog.
    Alive,
}

impl State<'_> {
    fn message(self) -> String {
        match self {
            Self::Ready(status) => format!("READY=1\nSTATUS={}", status.replace('\n', " ")),
            Self::Reloading => "RELOADING=1\nSTATUS=Reloading".to_owned(),
            Self::Stopping => "STOPPING=1\nSTATUS=Stopping".to_owned(),
            Self::Alive => "WATCHDOG=1".to_owned(),
        }
    }
}

/// The service manager, if there is one.
#[derive(Debug)]
pub(crate) struct Supervisor {
    socket: Option<UnixDatagram>,
    /// How often it wants to hear that the process is alive: half of what it waits for.
    period: Option<Duration>,
    next: Instant,
    has_failed: bool,
}

impl Supervisor {
    /// The one that the environment names.
    ///
    /// # Errors
    /// When there is no such socket: a manager that waits to be told would kill the process later.
    pub fn from_environment() -> io::Result<Self> {
        let name = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty());
        let variable = |name| std::env::var(name).ok();
        let period = period(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"));
        Ok(Self {
            socket: name.map(|name| connect(&name)).transpose()?,
            period,
            next: Instant::now(),
            has_failed: false,
        })
    }

    /// Tells it. A failure is logged once: the process does its work whoever listens.
    pub fn notify(&mut self, state: State<'_>) {
        let Some(socket) = &self.socket else {
            return;
        };
        match socket.send(state.message().as_bytes()) {
            Ok(_) => self.has_failed = false,
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                tracing::warn!(%error, "the service manager cannot be told how the process is");
            }
            Err(_) => {}
        }
    }

    /// Tells it that the process is alive, when it is time to and `is_well` says so. A process that
    /// is not is restarted by it.
    pub fn keep_alive(&mut self, is_well: impl FnOnce() -> bool) {
        let Some(period) = self.period else {
            return;
        };
        let now = Instant::now();
        if now >= self.next && is_well() {
            self.next = now + period;
            self.notify(State::Alive);
        }
    }

    /// How often to look whether it is time: often enough for the watchdog.
    pub fn look_after(&self, usual: Duration) -> Duration {
        let period = self.period.unwrap_or(usual);
        usual.min(period).max(Duration::from_millis(1))
    }
}

/// Connects to a path, or to a name without a file, which begins with `@` (unix(7)).
fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // A manager that does not read must not hold up what is served.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Half of what the watchdog waits for, when it means this process.
fn period(microseconds: Option<String>, process: Option<String>) -> Option<Duration> {
    let is_ours = process.is_none_or(|id| id == std::process::id().to_string());
    let microseconds: u64 = microseconds?.parse().ok()?;
    (is_ours && microseconds > 0).then(|| Duration::from_micros(microseconds / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watchdog_is_told_twice_in_its_time_and_only_by_the_process_it_means() {
        let text = |text: &str| Some(text.to_owned());
        let own = std::process::id().to_string();
        let seconds = Some(Duration::from_secs(15));
        assert_eq!(period(text("30000000"), None), seconds);
        assert_eq!(period(text("30000000"), text(&own)), seconds);
        assert_eq!(period(text("30000000"), text("1")), None);
        assert_eq!(period(text("0"), None), None);
        assert_eq!(period(text("soon"), None), None);
        assert_eq!(period(None, None), None);
    }

    #[test]
    fn states_are_told_to_a_socket_with_and_without_a_file() {
        let folder = std::env::temp_dir().join(format!("supervisor-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("notify");
        let abstract_name = format!("intertie-supervisor-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let listeners = [
            (
                UnixDatagram::bind(&path).unwrap(),
                path.clone().into_os_string(),
            ),
            (
                UnixDatagram::bind_addr(&address).unwrap(),
                format!("@{abstract_name}").into(),
            ),
        ];
        for (listener, name) in listeners {
            let mut supervisor = Supervisor {
                socket: Some(connect(&name).unwrap()),
                period: Some(Duration::ZERO),
                next: Instant::now(),
                has_failed: false,
            };
            supervisor.notify(State::Ready("2 flows\nserved"));
            supervisor.keep_alive(|| false);
            supervisor.keep_alive(|| true);
            for expected in ["READY=1\nSTATUS=2 flows served", "WATCHDOG=1"] {
                let mut bytes = [0; 100];
                let count = listener.recv(&mut bytes).unwrap();
                assert_eq!(std::str::from_utf8(&bytes[..count]).unwrap(), expected);
            }
        }
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(connect(path.as_os_str()).is_err(), "nobody listens there");
    }
}
