//! Child processes, temporary folders, free ports.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A folder that is removed when it is dropped.
pub struct TempDir(PathBuf);

impl TempDir {
    /// A new empty folder.
    #[allow(clippy::new_without_default, reason = "it makes a folder")]
    pub fn new() -> Self {
        Self::new_in(&std::env::temp_dir())
    }

    /// A new empty folder on another file system than those of [`TempDir::new`] are on, where files
    /// can only be moved to by copying them.
    ///
    /// # Panics
    /// Where there is none: set `TMPDIR` to a folder that is not on the file system of `/dev/shm`.
    pub fn elsewhere() -> Self {
        use std::os::unix::fs::MetadataExt as _;
        let shared_memory = Path::new("/dev/shm");
        let device = |path: &Path| std::fs::metadata(path).map(|it| it.dev());
        let temporary = device(&std::env::temp_dir()).unwrap();
        let is_other = device(shared_memory).is_ok_and(|it| it != temporary);
        assert!(
            is_other,
            "this test needs a second file system: /dev/shm is none beside that of TMPDIR"
        );
        Self::new_in(shared_memory)
    }

    fn new_in(parent: &Path) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("intertie-test-{}-{number}", std::process::id());
        let path = parent.join(name);
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

/// The ports that tests hand out, below those that Linux takes by itself (`ip_local_port_range` is
/// 32768 to 60999): a port that the kernel chooses may be the source of someone's connection, or
/// another test's listener, before the server that it was meant for has opened it.
const PORTS: Range<u16> = 20_000..32_000;

/// A port that was free a moment ago, and that this process was not given before.
pub fn free_port() -> u16 {
    // Processes that run at the same time begin at different places.
    static NEXT: LazyLock<AtomicU32> =
        LazyLock::new(|| AtomicU32::new(std::process::id().wrapping_mul(97)));
    let count = u32::from(PORTS.end - PORTS.start);
    (0..count)
        .map(|_| NEXT.fetch_add(1, Ordering::Relaxed) % count)
        .map(|it| PORTS.start + u16::try_from(it).unwrap())
        .find(|it| TcpListener::bind(("127.0.0.1", *it)).is_ok())
        .expect("a port is free")
}

/// How long it may take until something is true: a broker that starts again on a machine where
/// others work needs half a minute by itself.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Waits until something is true; panics when it is not in good time.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < WAIT_MAX, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A child process, killed when it is dropped. What it prints is kept.
pub struct Process {
    child: Child,
    output: Arc<Mutex<Output>>,
}

/// What a process has printed.
#[derive(Default)]
struct Output {
    stdout: String,
    stderr: String,
    /// Both, in the order in which they came.
    both: String,
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
        let output: Arc<Mutex<Output>> = Arc::default();
        keep(child.stdout.take().unwrap(), &output, |it| &mut it.stdout);
        keep(child.stderr.take().unwrap(), &output, |it| &mut it.stderr);
        Self { child, output }
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far, stdout and stderr together.
    pub fn output(&self) -> String {
        self.output.lock().unwrap().both.clone()
    }

    /// What it has printed to stdout so far.
    pub fn stdout(&self) -> String {
        self.output.lock().unwrap().stdout.clone()
    }

    /// What it has printed to stderr so far.
    pub fn stderr(&self) -> String {
        self.output.lock().unwrap().stderr.clone()
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
        // The shell's own, for the program `kill` is not on every machine.
        let status = Command::new("sh")
            .args(["-c", "kill -s \"$0\" \"$1\"", name, &self.id().to_string()])
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

    /// The time in nanoseconds for which its threads that still run have been on a processor
    /// (the first number of `schedstat`, proc(5)).
    pub fn cpu_ns(&self) -> u64 {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.id())).unwrap();
        // A thread may end between the list and the look.
        let times = tasks.filter_map(|task| {
            std::fs::read_to_string(task.unwrap().path().join("schedstat")).ok()
        });
        let times = times.map(|text| text.split(' ').next().unwrap().parse::<u64>().unwrap());
        times.sum()
    }

    /// The resident memory in KiB.
    pub fn resident_kib(&self) -> u64 {
        self.status_kib("VmRSS:")
    }

    /// The most resident memory so far, in KiB.
    pub fn peak_kib(&self) -> u64 {
        self.status_kib("VmHWM:")
    }

    fn status_kib(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.id());
        let status = std::fs::read_to_string(path).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
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

fn keep(
    mut source: impl Read + Send + 'static,
    output: &Arc<Mutex<Output>>,
    own: fn(&mut Output) -> &mut String,
) {
    let output = Arc::clone(output);
    thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = source.read(&mut bytes) {
            let text = String::from_utf8_lossy(&bytes[..count]);
            let mut output = output.lock().unwrap();
            own(&mut output).push_str(&text);
            output.both.push_str(&text);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Process {
        Process::start(Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn what_a_process_prints_is_kept_apart_and_together() {
        let mut process = shell("echo out; echo err >&2; exit 7");
        process.wait_for("out");
        process.wait_for("err");
        assert_eq!(process.wait().code(), Some(7));
        assert_eq!(
            (process.stdout(), process.stderr()),
            ("out\n".into(), "err\n".into())
        );
    }

    #[test]
    fn signals_arrive_and_a_dropped_process_is_dead() {
        let mut process =
            shell("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.01; done");
        process.wait_for("up");
        assert!(process.cpu_ns() > 0 && process.resident_kib() > 0);
        process.signal("TERM");
        process.wait_for("bye");
        assert_eq!(process.wait().code(), Some(3));
        assert_eq!(process.stdout(), "up\nbye\n");
        let sleeper = shell("exec sleep 600");
        let path = PathBuf::from(format!("/proc/{}", sleeper.id()));
        assert!(path.exists());
        drop(sleeper);
        assert!(!path.exists());
    }

    #[test]
    fn a_temporary_folder_goes_with_its_owner() {
        let folder = TempDir::new();
        let file = folder.write("a/b.txt", "text");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "text");
        let path = folder.path().to_owned();
        drop(folder);
        assert!(!path.exists());
    }
}
