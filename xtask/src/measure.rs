//! CPU per request beside HAProxy: the system under test on one core, load and back end on the
//! other, systems alternating within one run. The back end is a second Intertie that echoes.
//!
//! A system's CPU time is the scheduler's run time of all its threads. What else ran on a core is
//! that core's busy time without the run time of what we put there: a sample with too much of it is
//! taken again.

mod load;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::command::{Failure, cargo, program};
use crate::servers;

/// The part of a core's time that others may use in a sample.
const FOREIGN_MAX: f64 = 0.08;
/// How often a sample is taken before a spoiled one is kept.
const TRIES_MAX: usize = 4;
/// Ticks of a second in `/proc/stat` and `/proc/self/stat` (USER_HZ, proc(5)): 100 on Linux.
const TICKS: f64 = 100.0;
/// The core of load and back end, and that of the system under test.
const CORES: [&str; 2] = ["0", "1"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Passthrough,
    JsonToXml,
    HaProxy,
}

/// Two systems that alternate: connections, bytes of the body, the system, and what it is compared
/// with.
const PAIRS: [(usize, usize, [System; 2]); 4] = [
    (100, 50, [System::Passthrough, System::HaProxy]),
    (1000, 1024, [System::Passthrough, System::HaProxy]),
    (100, 50, [System::JsonToXml, System::Passthrough]),
    (100, 1024, [System::JsonToXml, System::Passthrough]),
];

/// What one sample says.
#[derive(Debug, Default)]
struct Sample {
    requests_per_second: f64,
    microseconds: f64,
    /// The larger part of a core's time that others used.
    foreign: f64,
    errors: String,
}

/// All samples of one system of a pair.
#[derive(Debug, Default)]
struct Series {
    samples: Vec<Sample>,
    /// Samples that were taken again.
    repeated: usize,
}

/// CPU time used so far, in seconds.
struct Clock {
    /// Of each core, by all.
    cores: [f64; 2],
    backend: f64,
    system: f64,
    /// Of load generators that have ended.
    load: f64,
}

/// Measures and prints the table.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    let (seconds, rounds) = options(arguments)?;
    if std::env::var_os("HAPROXY").is_none() {
        servers::ensure(servers::PEER)?;
    }
    servers::ensure(servers::FOR_MEASURING)?;
    cargo(root)
        .args(["build", "--profile", "dist", "--package", "intertie"])
        .run()?;
    let bench = Bench::start(&binary(root))?;
    println!("{}; {rounds} rounds of {seconds} s", machine()?);
    for (connections, bytes, systems) in PAIRS {
        let mut series = [Series::default(), Series::default()];
        for _ in 0..rounds {
            for (system, series) in systems.iter().zip(&mut series) {
                bench.add_sample(series, *system, connections, bytes, seconds)?;
            }
        }
        print!("{}", table(connections, bytes, systems, &series));
    }
    Ok(())
}

fn options(arguments: &[String]) -> Result<(u64, usize), Failure> {
    let (mut seconds, mut rounds) = (4, 3);
    for pair in arguments.chunks(2) {
        let value = pair.get(1).and_then(|value| value.parse::<u64>().ok());
        match (pair.first().map(String::as_str), value) {
            (Some("--seconds"), Some(value)) => seconds = value.max(1),
            (Some("--rounds"), Some(value)) => rounds = value.max(1) as usize,
            _ => return Err(Failure::new("measure [--seconds N] [--rounds N]")),
        }
    }
    Ok((seconds, rounds))
}

fn binary(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target
        .unwrap_or_else(|| root.join("target"))
        .join("dist/intertie")
}

/// The medians of a pair. The ratio is that of neighbours in time, for what else goes on in the
/// machine is common to them.
fn table(connections: usize, bytes: usize, systems: [System; 2], series: &[Series; 2]) -> String {
    let mut text = "
| system | connections | bytes | requests/s | CPU us/request | from - to | ratio | foreign CPU | \
        repeated | errors |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |
"
    .to_owned();
    for (system, Series { samples, repeated }) in systems.iter().zip(series) {
        let times = samples.iter().map(|sample| sample.microseconds);
        let ratios = samples.iter().zip(&series[1].samples);
        let ratios = ratios.map(|(one, other)| one.microseconds / other.microseconds);
        let errors: Vec<&str> = samples
            .iter()
            .map(|sample| sample.errors.as_str())
            .collect();
        let errors = errors.concat();
        text.push_str(&format!(
            "| {} | {connections} | {bytes} | {:.0} | {:.2} | {:.2} - {:.2} | {:.2} | {:.0} % | \
             {repeated} | {} |\n",
            system.name(),
            median(samples.iter().map(|sample| sample.requests_per_second)),
            median(times.clone()),
            times.clone().fold(f64::INFINITY, f64::min),
            times.fold(0.0, f64::max),
            median(ratios),
            100.0
                * samples
                    .iter()
                    .map(|sample| sample.foreign)
                    .fold(0.0, f64::max),
            if errors.is_empty() { "0" } else { &errors }
        ));
    }
    text
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() % 2 {
        0 => (values[half - 1] + values[half]) / 2.0,
        _ => values[half],
    }
}

impl System {
    fn name(self) -> &'static str {
        match self {
            Self::Passthrough => "intertie",
            Self::JsonToXml => "json-to-xml",
            Self::HaProxy => "haproxy",
        }
    }
}

/// All processes that a measurement needs, in a temporary folder.
struct Bench {
    folder: PathBuf,
    children: Vec<Child>,
    backend: u32,
    intertie: u32,
    haproxy: u32,
    ports: Ports,
}

#[derive(Clone, Copy)]
struct Ports {
    backend: u16,
    intertie: u16,
    haproxy: u16,
}

impl Drop for Bench {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Bench {
    fn start(intertie: &Path) -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("intertie-measure-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let ports = Ports {
            backend: free_port()?,
            intertie: free_port()?,
            haproxy: free_port()?,
        };
        let mut bench = Self {
            folder,
            children: Vec::new(),
            backend: 0,
            intertie: 0,
            haproxy: 0,
            ports,
        };
        let backend = bench.write("backend.yaml", &backend_flow(ports))?;
        let flows = bench.write("flows.yaml", &flows(ports))?;
        let config = bench.write("haproxy.cfg", &haproxy_config(ports))?;
        let run = |file: &Path| -> Result<Command, Failure> {
            let mut command = Command::new(intertie);
            command.arg("run").arg(file).args(["--workers", "1"]);
            command
                .arg("--admin")
                .arg(format!("127.0.0.1:{}", free_port()?));
            Ok(command)
        };
        bench.backend = bench.spawn(CORES[0], &run(&backend)?, ports.backend)?;
        bench.intertie = bench.spawn(CORES[1], &run(&flows)?, ports.intertie)?;
        let mut haproxy = Command::new(haproxy());
        haproxy.arg("-f").arg(config).arg("-db");
        bench.haproxy = bench.spawn(CORES[1], &haproxy, ports.haproxy)?;
        Ok(bench)
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, Failure> {
        let path = self.folder.join(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    /// Starts a program on one core; its number is that of the program, for `taskset` becomes it.
    fn spawn(&mut self, core: &str, command: &Command, port: u16) -> Result<u32, Failure> {
        let child = Command::new("taskset")
            .args(["-c", core])
            .arg(command.get_program())
            .args(command.get_args())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let number = child.id();
        self.children.push(child);
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if start.elapsed() > Duration::from_secs(10) {
                return Err(Failure::new(format!("{command:?} does not listen")));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(number)
    }

    /// Takes a sample, again when others have used too much of a core meanwhile.
    fn add_sample(
        &self,
        series: &mut Series,
        system: System,
        connections: usize,
        bytes: usize,
        seconds: u64,
    ) -> Result<(), Failure> {
        let mut tries = 1;
        loop {
            let sample = self.sample(system, connections, bytes, seconds)?;
            if sample.foreign <= FOREIGN_MAX || tries == TRIES_MAX {
                if sample.foreign > FOREIGN_MAX {
                    let part = 100.0 * sample.foreign;
                    eprintln!(
                        "warning: {}: others used {part:.0} % of a core",
                        system.name()
                    );
                }
                series.samples.push(sample);
                return Ok(());
            }
            tries += 1;
            series.repeated += 1;
        }
    }

    fn sample(
        &self,
        system: System,
        connections: usize,
        bytes: usize,
        seconds: u64,
    ) -> Result<Sample, Failure> {
        let (process, port, path) = match system {
            System::Passthrough => (self.intertie, self.ports.intertie, "/passthrough"),
            System::JsonToXml => (self.intertie, self.ports.intertie, "/transform"),
            System::HaProxy => (self.haproxy, self.ports.haproxy, "/service/EchoService"),
        };
        let script = self.write("post.lua", &load::lua(bytes))?;
        let url = format!("http://127.0.0.1:{port}{path}");
        load::run(CORES[0], connections, 1, &script, &url)?;
        let (start, before) = (Instant::now(), self.clock(process)?);
        let output = load::run(CORES[0], connections, seconds, &script, &url)?;
        let (time, after) = (start.elapsed().as_secs_f64(), self.clock(process)?);
        let used = after.system - before.system;
        let beside = (after.backend - before.backend) + (after.load - before.load);
        let busy = |core: usize| after.cores[core] - before.cores[core];
        let load = load::parse(&output)?;
        Ok(Sample {
            requests_per_second: load.requests_per_second,
            microseconds: used * 1e6 / load.requests,
            foreign: (busy(0) - beside).max(busy(1) - used).max(0.0) / time,
            errors: load.errors,
        })
    }

    fn clock(&self, system: u32) -> Result<Clock, Failure> {
        let stat = fs::read_to_string("/proc/stat")?;
        let own = fs::read_to_string("/proc/self/stat")?;
        // Behind the name in parentheses; user and system time of children are fields 16 and 17.
        let own = own.rsplit(')').next().unwrap_or_default();
        let load: f64 = numbers(own).skip(12).take(2).sum();
        Ok(Clock {
            cores: [busy(&stat, CORES[0])?, busy(&stat, CORES[1])?],
            backend: run_time(self.backend)?,
            system: run_time(system)?,
            load: load / TICKS,
        })
    }
}

/// The seconds for which the threads of a process have run, as the scheduler counts them.
fn run_time(process: u32) -> Result<f64, Failure> {
    let mut sum = 0.0;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        sum += numbers(&text).next().unwrap_or(0.0);
    }
    Ok(sum / 1e9)
}

/// The seconds for which a core was not idle, what the host took of it included.
fn busy(stat: &str, core: &str) -> Result<f64, Failure> {
    let name = format!("cpu{core} ");
    let line = stat.lines().find_map(|line| line.strip_prefix(&name));
    let line = line.ok_or_else(|| Failure::new(format!("the machine has no core {core}")))?;
    // user, nice, system, then idle and I/O wait, then interrupts and what was stolen.
    let numbers: Vec<f64> = numbers(line).take(8).collect();
    let idle: f64 = numbers.iter().skip(3).take(2).sum();
    Ok((numbers.iter().sum::<f64>() - idle) / TICKS)
}

fn numbers(text: &str) -> impl Iterator<Item = f64> {
    let words = text.split_ascii_whitespace();
    words.map(|word| word.parse().unwrap_or(0.0))
}

fn machine() -> Result<String, Failure> {
    let processor = fs::read_to_string("/proc/cpuinfo")?;
    let model = processor
        .lines()
        .find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(": "));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let haproxy = program(haproxy()).args(["-v"]).output()?;
    Ok(format!(
        "{}; kernel {}; {}",
        model.unwrap_or_default().1,
        kernel.trim(),
        haproxy.lines().next().unwrap_or_default()
    ))
}

/// HAProxy, or the one that the variable HAPROXY names.
fn haproxy() -> PathBuf {
    let chosen = std::env::var_os("HAPROXY").map(PathBuf::from);
    chosen
        .or_else(|| servers::find("haproxy"))
        .unwrap_or_else(|| "haproxy".into())
}

fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

fn backend_flow(ports: Ports) -> String {
    format!(
        "flow: echo\nfrom: {{ http: any 127.0.0.1:{}/* }}\nsteps:\n  - reply: {{}}\n",
        ports.backend
    )
}

fn flows(
    Ports {
        backend, intertie, ..
    }: Ports,
) -> String {
    format!(
        "flow: passthrough
from: {{ http: POST 127.0.0.1:{intertie}/passthrough }}
steps:
  - forward: http://127.0.0.1:{backend}/service/EchoService
---
flow: json-to-xml
from: {{ http: POST 127.0.0.1:{intertie}/transform }}
steps:
  - convert: {{ from: json, to: xml }}
  - forward: http://127.0.0.1:{backend}/service/EchoService
"
    )
}

/// Equal work: kept connections on both sides, also when there are many of them (the pool ratios),
/// forwarding fields, one thread, no log.
fn haproxy_config(
    Ports {
        backend, haproxy, ..
    }: Ports,
) -> String {
    format!(
        "global
  nbthread 1
  maxconn 9000
  tune.pool-high-fd-ratio 90
  tune.pool-low-fd-ratio 80
defaults
  mode http
  timeout connect 5s
  timeout client 75s
  timeout server 60s
  http-reuse always
  option forwardfor
frontend front
  bind 127.0.0.1:{haproxy}
  default_backend back
backend back
  server one 127.0.0.1:{backend} pool-max-conn -1
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_time_leaves_idle_time_out() {
        let stat =
            "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 900 90 4 5 6 0 0\ncpu1 100 0 0 0 0 0 0 0 0 0\n";
        assert_eq!(busy(stat, "0").unwrap(), 0.21);
        assert_eq!(busy(stat, "1").unwrap(), 1.0);
        assert!(busy(stat, "2").is_err());
    }

    #[test]
    fn tables_hold_medians_and_ratios_of_neighbours() {
        let series = |times: [f64; 3]| {
            let sample = |microseconds| Sample {
                microseconds,
                ..Sample::default()
            };
            Series {
                samples: times.map(sample).into(),
                repeated: 1,
            }
        };
        let series = [series([8.0, 20.0, 9.0]), series([10.0, 40.0, 10.0])];
        let text = table(100, 50, [System::Passthrough, System::HaProxy], &series);
        let row = "| intertie | 100 | 50 | 0 | 9.00 | 8.00 - 20.00 | 0.80 | 0 % | 1 | 0 |\n";
        assert!(text.contains(row), "{text}");
        assert_eq!(median([4.0, 1.0, 2.0, 3.0].into_iter()), 2.5);
    }
}
