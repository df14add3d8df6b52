//! Plays the service manager: starts what a unit says as the unit says it, and listens to what the
//! process tells (sd_notify(3)). For machines on which systemd is not the first process.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::command::Failure;
use crate::interop::process::Process;

const WAIT_MAX: Duration = Duration::from_secs(20);
/// What the process is told of the watchdog: it has to be heard each second.
const WATCHDOG_US: &str = "1000000";

/// A service that runs in a folder with a system of its own.
pub struct Service {
    process: Process,
    socket: UnixDatagram,
}

impl Service {
    /// Starts the unit's program as its user, and waits until it says that it is ready.
    pub fn start(root: &Path, logs: &Path) -> Result<Self, Failure> {
        let unit = fs::read_to_string(root.join("usr/lib/systemd/system/intertie.service"))?;
        let path = root.join("run/notify");
        let _ = fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        socket.set_read_timeout(Some(WAIT_MAX))?;
        let user = setting(&unit, "User")?;
        let mut command = Command::new("chroot");
        command.arg(format!("--userspec={user}:{}", setting(&unit, "Group")?));
        command.arg(root);
        let variables = fs::read_to_string(root.join("etc/default/intertie"))?;
        command.args(words(setting(&unit, "ExecStart")?, &variables)?);
        command.env("NOTIFY_SOCKET", "/run/notify");
        command.env("WATCHDOG_USEC", WATCHDOG_US);
        let process = Process::start(logs, "service", command)?;
        let service = Self { process, socket };
        service.hears("READY=1")?;
        service.hears("WATCHDOG=1")?;
        Ok(service)
    }

    /// Does what `systemctl reload` does.
    pub fn reload(&mut self) -> Result<(), Failure> {
        self.process.signal("HUP")?;
        self.hears("RELOADING=1")?;
        self.hears("READY=1")
    }

    /// Does what `systemctl stop` does.
    pub fn stop(mut self) -> Result<(), Failure> {
        self.process.signal("TERM")?;
        self.hears("STOPPING=1")?;
        let status = self.process.end(WAIT_MAX)?;
        match status.success() {
            true => Ok(()),
            false => Err(Failure::new(format!(
                "the service ended with {status}:\n{}",
                self.process.printed()
            ))),
        }
    }

    fn hears(&self, wanted: &str) -> Result<(), Failure> {
        let start = Instant::now();
        let mut bytes = [0; 4096];
        while start.elapsed() < WAIT_MAX {
            let Ok(count) = self.socket.recv(&mut bytes) else {
                break;
            };
            if bytes
                .get(..count)
                .is_some_and(|it| it.starts_with(wanted.as_bytes()))
            {
                return Ok(());
            }
        }
        let printed = self.process.printed();
        Err(Failure::new(format!(
            "the service did not tell {wanted}:\n{printed}"
        )))
    }
}

/// The words of a command line. A word that names a variable becomes the words of its value, as
/// systemd.service(5) says.
fn words<'a>(line: &'a str, variables: &'a str) -> Result<Vec<&'a str>, Failure> {
    let mut words = Vec::new();
    for word in line.split_ascii_whitespace() {
        match word.strip_prefix('$') {
            Some(name) => words.extend(setting(variables, name)?.split_ascii_whitespace()),
            None => words.push(word),
        }
    }
    Ok(words)
}

/// The value of a key of a unit, or of a variable of an environment file.
pub fn setting<'a>(unit: &'a str, key: &str) -> Result<&'a str, Failure> {
    let mut lines = unit.lines();
    let value = lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    value.ok_or_else(|| Failure::new(format!("the unit has no {key}=")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_by_their_whole_name() {
        let unit = "[Service]\nExecStartPre=/a\nExecStart=/b run $C\n";
        assert_eq!(setting(unit, "ExecStart").unwrap(), "/b run $C");
        assert!(setting(unit, "User").is_err());
    }

    #[test]
    fn variables_become_words() {
        let found = words("/b run $C", "# $C\nC=--a  1\n").unwrap();
        assert_eq!(found, ["/b", "run", "--a", "1"]);
        assert!(words("/b $D", "C=\n").is_err());
    }
}
