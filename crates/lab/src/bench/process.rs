//! Child processes on chosen cores, and what `/proc` says of them: CPU time, memory, and what
//! others use of the cores.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::awake::Awake;

/// Ticks of a second in `/proc/stat` (USER_HZ, proc(5)): 100 on Linux.
const TICKS: f64 = 100.0;
/// How long a system may take to listen, and to end.
const START_MAX: Duration = Duration::from_secs(180);
const END_MAX: Duration = Duration::from_secs(3);

/// Which cores are whose.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    pub load: Vec<usize>,
    pub stub: Vec<usize>,
    pub system: usize,
    /// What keeps them awake, and is not counted.
    pub awake: Option<Arc<Awake>>,
}

impl Cores {
    /// The system has one of its own; the rest is for load and stub.
    ///
    /// # Errors
    /// When this process may use fewer than two.
    pub fn of_machine() -> anyhow::Result<Self> {
        let set = sched_getaffinity(None)?;
        let all: Vec<usize> = (0..CpuSet::MAX_CPU)
            .filter(|core| set.is_set(*core))
            .collect();
        match all.as_slice() {
            [load, system] => Ok(Self {
                load: vec![*load],
                stub: vec![*load],
                system: *system,
                awake: None,
            }),
            [load, system, stub, rest @ ..] => Ok(Self {
                load: [&[*load], rest].concat(),
                stub: vec![*stub],
                system: *system,
                awake: None,
            }),
            _ => bail!("a measurement needs two cores at least"),
        }
    }

    /// The same ones, which never sleep from now on when `is_asked`. `own` is this program.
    ///
    /// # Errors
    /// When they cannot be kept awake.
    pub fn awake(mut self, is_asked: bool, own: &Path) -> anyhow::Result<Self> {
        if is_asked {
            let mut all = self.beside();
            all.insert(self.system);
            self.awake = Some(Arc::new(Awake::start(own, &all)?));
        }
        Ok(self)
    }

    /// The seconds for which the core of the system was busy, with what the host took of it.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn system_busy(&self) -> anyhow::Result<f64> {
        self.busy(self.system)
    }

    /// The same for each core of load and stub.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn beside_busy(&self) -> anyhow::Result<Vec<f64>> {
        self.beside().iter().map(|core| self.busy(*core)).collect()
    }

    fn busy(&self, core: usize) -> anyhow::Result<f64> {
        let stat = fs::read_to_string("/proc/stat")?;
        let spun = self.awake.as_ref().map_or(0.0, |awake| awake.spun(core));
        Ok(busy_of(&stat, core)? - spun)
    }

    /// All cores of load and stub.
    pub fn beside(&self) -> BTreeSet<usize> {
        self.load.iter().chain(&self.stub).copied().collect()
    }
}

/// Keeps the calling thread, and what it starts from now on, on these cores.
pub(crate) fn pin(cores: &[usize]) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    sched_setaffinity(None, &set).with_context(|| format!("cannot use the cores {cores:?}"))
}

/// Allows as many open files as the machine lets us.
pub(crate) fn allow_files() -> anyhow::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )?;
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// A program: what a variable names, the first of some files that is there, or what is in the path.
pub(crate) fn program(variable: &str, files: &[&str], name: &str) -> Option<PathBuf> {
    if let Some(chosen) = std::env::var_os(variable) {
        return Some(PathBuf::from(chosen)).filter(|file| file.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    let in_path = places.map(|folder| folder.join(name));
    let mut files = files.iter().map(PathBuf::from).chain(in_path);
    files.find(|file| file.is_file())
}

/// A port that was free a moment ago.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// A program that is stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts a program on some cores, and waits until it listens.
    ///
    /// # Errors
    /// When it cannot be started, ends, or does not listen; with what it printed.
    pub fn start(
        command: &mut Command,
        cores: &[usize],
        own_cores: &[usize],
        address: SocketAddr,
        log: &Path,
    ) -> anyhow::Result<Self> {
        let output = File::create(log)?;
        pin(cores)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn();
        pin(own_cores)?;
        let program = command.get_program().to_string_lossy().into_owned();
        let child = child.with_context(|| format!("cannot start {program}"))?;
        let mut process = Self {
            child,
            log: log.to_owned(),
        };
        let start = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = process.child.try_wait()?;
            if ended.is_some() || start.elapsed() > START_MAX {
                bail!(
                    "{program} does not listen on {address}:\n{}",
                    process.printed()
                );
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(process)
    }

    /// The end of what it printed.
    pub fn printed(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Ends it and its descendants without asking.
    pub fn kill(&mut self) {
        for number in self.family() {
            signal(number, Signal::KILL);
        }
        // It cannot refuse.
        let _ = self.child.wait();
    }

    /// Sends it and its descendants a signal, such as STOP and CONT.
    pub fn send(&self, it: Signal) {
        for number in self.family() {
            signal(number, it);
        }
    }

    /// Its number and those of all its descendants.
    pub fn family(&self) -> Vec<u32> {
        family(self.child.id())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let family = self.family();
        signal(self.child.id(), Signal::TERM);
        let start = Instant::now();
        while let Ok(None) = self.child.try_wait() {
            if start.elapsed() > END_MAX {
                family
                    .iter()
                    .for_each(|number| signal(*number, Signal::KILL));
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn signal(number: u32, signal: Signal) {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // It may have ended on its own.
        let _ = kill_process(pid, signal);
    }
}

/// A process and its descendants, by the parents that `/proc` names.
fn family(root: u32) -> Vec<u32> {
    let numbers = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let parents: Vec<(u32, u32)> = numbers
        .filter_map(|number| Some((number, parent(number)?)))
        .collect();
    let mut family = vec![root];
    let mut at = 0;
    while let Some(member) = family.get(at).copied() {
        let children = parents.iter().filter(|(_, parent)| *parent == member);
        family.extend(children.map(|(number, _)| *number));
        at += 1;
    }
    family
}

fn parent(number: u32) -> Option<u32> {
    let text = fs::read_to_string(format!("/proc/{number}/stat")).ok()?;
    // Behind the name in parentheses come the state and the parent.
    let behind = text.rsplit(')').next()?;
    behind.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The seconds for which the threads of these processes have run, as the scheduler counts them.
pub(crate) fn run_time(processes: &[u32]) -> f64 {
    processes.iter().map(|number| run_time_of(*number)).sum()
}

fn run_time_of(number: u32) -> f64 {
    let tasks = fs::read_dir(format!("/proc/{number}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let times = tasks.filter_map(|task| {
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse::<f64>().ok()
    });
    times.sum::<f64>() / 1e9
}

/// Memory of some processes in bytes, peak and now; what they share counts for each.
pub(crate) fn memory(processes: &[u32]) -> (u64, u64) {
    let texts = processes
        .iter()
        .filter_map(|number| fs::read_to_string(format!("/proc/{number}/status")).ok());
    texts.fold((0, 0), |(peak, now), text| {
        (peak + field(&text, "VmHWM:"), now + field(&text, "VmRSS:"))
    })
}

/// Has the peak of the memory of some processes count from now on (proc(5), `clear_refs`).
pub(crate) fn forget_peak(processes: &[u32]) {
    for number in processes {
        // Where the kernel does not let us, the peak is that of the whole life.
        let _ = fs::write(format!("/proc/{number}/clear_refs"), "5");
    }
}

fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|line| line.split_ascii_whitespace().next()?.parse::<u64>().ok());
    number.unwrap_or(0) * 1024
}

/// The seconds for which a core was not idle. What the host took of the core counts as busy.
fn busy_of(stat: &str, core: usize) -> anyhow::Result<f64> {
    let name = format!("cpu{core} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&name));
    let line = line.with_context(|| format!("the machine has no core {core}"))?;
    // user, nice, system, then idle and I/O wait, then interrupts and what was stolen.
    let numbers = line.split_ascii_whitespace().take(8);
    let numbers: Vec<f64> = numbers.map(|it| it.parse().unwrap_or(0.0)).collect();
    let idle: f64 = numbers.iter().skip(3).take(2).sum();
    Ok((numbers.iter().sum::<f64>() - idle) / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_leaves_idle_time_out() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 900 90 4 5 6 0 0\ncpu1 100 0 0 0 0\n";
        assert_eq!(busy_of(stat, 0).unwrap(), 0.21);
        assert_eq!(busy_of(stat, 1).unwrap(), 1.0);
        assert!(busy_of(stat, 2).is_err());
    }

    #[test]
    fn memory_is_read_from_the_status() {
        let status = "Name:\tx\nVmHWM:\t   3072 kB\nVmRSS:\t   2048 kB\n";
        assert_eq!(field(status, "VmHWM:"), 3072 * 1024);
        assert_eq!(field(status, "VmRSS:"), 2048 * 1024);
        assert_eq!(field(status, "VmSwap:"), 0);
    }

    #[test]
    fn children_are_found_and_counted() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        assert!(family(std::process::id()).contains(&child.id()));
        assert!(run_time(&[std::process::id()]) > 0.0);
        assert!(memory(&[child.id()]).0 > 0);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
