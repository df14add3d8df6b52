//! Child processes, temporary folders, free ports.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A folder that is removed when it is dropped.
pub struct TempDir(PathBuf);

impl TempDir {
    /// A new empty folder.
    #[allow(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("intertie-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file into it and returns its path.
    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// Waits until something is true; panics when it is not in good time.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "waited in vain until {what}"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// A child process, killed when it is dropped. What it prints is kept.
pub struct Process {
    child: Child,
    output: Arc<Mutex<String>>,
}

impl Process {
    /// Starts a program.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let output = Arc::new(Mutex::new(String::new()));
        keep(child.stdout.take().unwrap(), &output);
        keep(child.stderr.take().unwrap(), &output);
        Self { child, output }
    }

    /// What it has printed so far, stdout and stderr together.
    pub fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    /// Waits until it has printed this.
    pub fn wait_for(&self, text: &str) {
        wait_until(&format!("{text:?} was printed"), || {
            self.output().contains(text)
        });
    }

    /// Waits until it accepts connections on a port.
    pub fn wait_for_port(&mut self, port: u16) {
        wait_until(&format!("port {port} is open"), || {
            if let Ok(Some(status)) = self.child.try_wait() {
                panic!("ended with {status}: {}", self.output());
            }
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
    }

    /// Sends a signal by its name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args([format!("-{name}"), self.child.id().to_string()])
            .status()
            .unwrap();
        assert!(status.success());
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let mut ended = None;
        wait_until("the process has ended", || {
            ended = self.child.try_wait().unwrap();
            ended.is_some()
        });
        ended.unwrap()
    }

    /// The resident memory in KiB.
    pub fn resident_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status
            .lines()
            .find(|line| line.starts_with("VmRSS:"))
            .unwrap();
        line.split_ascii_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn keep(mut source: impl Read + Send + 'static, output: &Arc<Mutex<String>>) {
    let output = Arc::clone(output);
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = source.read(&mut bytes) {
            output
                .lock()
                .unwrap()
                .push_str(&String::from_utf8_lossy(&bytes[..count]));
        }
    });
}
