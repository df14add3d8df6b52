//! CPU per request beside HAProxy: the system under test on one core, load and back end on the
//! other, systems alternating within one run. The back end is a second Intertie that echoes.

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::command::{Failure, cargo, program};
use crate::servers;

/// More of the busy time than this on other processes spoils a sample.
const FOREIGN_MAX: f64 = 0.08;

/// One line of the table.
struct Row {
    name: &'static str,
    system: System,
    connections: usize,
    bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Passthrough,
    JsonToXml,
    HaProxy,
}

/// What one sample says.
struct Sample {
    requests_per_second: f64,
    microseconds: f64,
    errors: String,
}

/// Measures and prints the table.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    let (seconds, rounds) = options(arguments)?;
    servers::ensure(servers::FOR_MEASURING)?;
    cargo(root)
        .args(["build", "--profile", "dist", "--package", "intertie"])
        .run()?;
    let bench = Bench::start(&binary(root))?;
    println!("{}", machine(&bench)?);
    let mut rows = Vec::new();
    for (connections, bytes) in [(100, 50), (1000, 1024)] {
        for (name, system) in [
            ("intertie", System::Passthrough),
            ("haproxy", System::HaProxy),
        ] {
            rows.push(Row {
                name,
                system,
                connections,
                bytes,
            });
        }
    }
    for bytes in [50, 1024] {
        for (name, system) in [
            ("intertie", System::Passthrough),
            ("json-to-xml", System::JsonToXml),
        ] {
            rows.push(Row {
                name,
                system,
                connections: 100,
                bytes,
            });
        }
    }
    // Two rows make a pair whose systems alternate.
    for pair in rows.chunks(2) {
        let mut samples: BTreeMap<usize, Vec<Sample>> = BTreeMap::new();
        for _ in 0..rounds {
            for (at, row) in pair.iter().enumerate() {
                samples
                    .entry(at)
                    .or_default()
                    .push(bench.sample(row, seconds)?);
            }
        }
        print_pair(pair, &samples);
    }
    Ok(())
}

fn options(arguments: &[String]) -> Result<(u64, usize), Failure> {
    let (mut seconds, mut rounds) = (4, 3);
    for pair in arguments.chunks(2) {
        let value = pair.get(1).and_then(|value| value.parse::<u64>().ok());
        match (pair[0].as_str(), value) {
            ("--seconds", Some(value)) => seconds = value.max(1),
            ("--rounds", Some(value)) => rounds = value.max(1) as usize,
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

fn print_pair(pair: &[Row], samples: &BTreeMap<usize, Vec<Sample>>) {
    let medians: Vec<f64> = samples
        .values()
        .map(|samples| median(samples.iter().map(|sample| sample.microseconds)))
        .collect();
    let baseline = usize::from(pair[1].system == System::HaProxy);
    println!(
        "\n| system | connections | bytes | requests/s | CPU us/request | ratio | errors |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | --- |"
    );
    for (at, row) in pair.iter().enumerate() {
        let rate = median(samples[&at].iter().map(|sample| sample.requests_per_second));
        let errors: Vec<&str> = samples[&at]
            .iter()
            .map(|sample| sample.errors.as_str())
            .collect();
        let errors = errors.concat();
        println!(
            "| {} | {} | {} | {rate:.0} | {:.2} | {:.2} | {} |",
            row.name,
            row.connections,
            row.bytes,
            medians[at],
            // Of neighbours in time: what else goes on in the machine is common to them.
            median(
                samples[&at]
                    .iter()
                    .zip(samples[&baseline].iter())
                    .map(|(one, other)| { one.microseconds / other.microseconds })
            ),
            if errors.is_empty() { "0" } else { &errors }
        );
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// All processes that a measurement needs, in a temporary folder.
struct Bench {
    folder: PathBuf,
    children: Vec<Child>,
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
            intertie: 0,
            haproxy: 0,
            ports,
        };
        let backend = bench.write("backend.yaml", &backend_flow(ports))?;
        let flows = bench.write("flows.yaml", &flows(ports))?;
        let config = bench.write("haproxy.cfg", &haproxy_config(ports))?;
        let options = ["--workers", "1", "--admin", "off"];
        let run = |file: &Path| {
            let mut command = Command::new(intertie);
            command.arg("run").arg(file).args(options);
            command
        };
        bench.spawn("0", &run(&backend), ports.backend)?;
        bench.intertie = bench.spawn("1", &run(&flows), ports.intertie)?;
        let mut haproxy = Command::new(haproxy());
        haproxy.arg("-f").arg(config).arg("-db");
        bench.haproxy = bench.spawn("1", &haproxy, ports.haproxy)?;
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

    fn sample(&self, row: &Row, seconds: u64) -> Result<Sample, Failure> {
        let (process, port, path) = match row.system {
            System::Passthrough => (self.intertie, self.ports.intertie, "/passthrough"),
            System::JsonToXml => (self.intertie, self.ports.intertie, "/transform"),
            System::HaProxy => (self.haproxy, self.ports.haproxy, "/service/EchoService"),
        };
        let script = self.write("post.lua", &lua(row.bytes))?;
        let url = format!("http://127.0.0.1:{port}{path}");
        self.load(row.connections, 1, &script, &url)?;
        let (busy, cpu) = (all_busy()?, self.own_busy()?);
        let before = process_ns(process)?;
        let output = self.load(row.connections, seconds, &script, &url)?;
        let used = process_ns(process)? - before;
        let foreign = (all_busy()? - busy) - (self.own_busy()? - cpu);
        // The load generator has ended and is not in any list: half of the time is its own.
        let load = seconds as f64;
        if foreign - load > FOREIGN_MAX * 2.0 * load {
            eprintln!(
                "warning: other processes used {:.1} s of CPU",
                foreign - load
            );
        }
        parse(&output, used)
    }

    fn load(
        &self,
        connections: usize,
        seconds: u64,
        script: &Path,
        url: &str,
    ) -> Result<String, Failure> {
        program("taskset")
            .args(["-c", "0", "wrk", "-t1", "-c", &connections.to_string()])
            .args([
                "-d",
                &format!("{seconds}s"),
                "-s",
                &script.display().to_string(),
                url,
            ])
            .output()
    }

    /// Seconds of CPU that our own processes have used.
    fn own_busy(&self) -> Result<f64, Failure> {
        let mut sum = 0.0;
        for child in &self.children {
            sum += process_ns(child.id())? as f64 / 1e9;
        }
        Ok(sum)
    }
}

fn parse(output: &str, used_ns: u64) -> Result<Sample, Failure> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    let count = output.lines().find_map(|line| {
        line.split_once(" requests in ")
            .and_then(|(count, _)| number(count))
    });
    let rate = output
        .lines()
        .find_map(|line| line.strip_prefix("Requests/sec:").and_then(number));
    let is_error = |line: &&str| line.contains("Non-2xx") || line.contains("Socket errors");
    let errors: Vec<&str> = output.lines().filter(is_error).map(str::trim).collect();
    let (Some(count), Some(rate)) = (count, rate) else {
        return Err(Failure::new(format!("wrk said: {output}")));
    };
    Ok(Sample {
        requests_per_second: rate,
        microseconds: used_ns as f64 / 1000.0 / count,
        errors: errors.concat(),
    })
}

/// The run time of all threads of a process, as the scheduler counts it.
fn process_ns(process: u32) -> Result<u64, Failure> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let text = fs::read_to_string(task?.path().join("schedstat"))?;
        sum += text
            .split(' ')
            .next()
            .and_then(|time| time.parse::<u64>().ok())
            .unwrap_or(0);
    }
    Ok(sum)
}

/// Seconds of CPU that everything on the machine has used.
fn all_busy() -> Result<f64, Failure> {
    let text = fs::read_to_string("/proc/stat")?;
    let numbers: Vec<f64> = text
        .lines()
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .skip(1)
        .filter_map(|number| number.parse().ok())
        .collect();
    // user, nice, system, then idle and I/O wait, then interrupts and what was stolen.
    let idle: f64 = numbers.iter().skip(3).take(2).sum();
    Ok((numbers.iter().take(8).sum::<f64>() - idle) / 100.0)
}

fn machine(bench: &Bench) -> Result<String, Failure> {
    let processor = fs::read_to_string("/proc/cpuinfo")?;
    let processor = processor
        .lines()
        .find(|line| line.starts_with("model name"));
    let haproxy = program(haproxy()).args(["-v"]).output()?;
    Ok(format!(
        "{}; kernel {}; {}; ports {} {} {}",
        processor.unwrap_or_default(),
        fs::read_to_string("/proc/sys/kernel/osrelease")?.trim(),
        haproxy.lines().next().unwrap_or_default(),
        bench.ports.backend,
        bench.ports.intertie,
        bench.ports.haproxy
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

/// A body of exactly this many bytes: `{\"size\":\"50B\",\"payload\":[...]}` with strings of ten
/// characters, as the published measurements use.
fn lua(bytes: usize) -> String {
    let characters: Vec<char> = ('0'..='9').chain('A'..='Z').chain('a'..='z').collect();
    let mut body = format!("{{\"size\":\"{bytes}B\",\"payload\":[");
    let mut at = 0;
    loop {
        // Two quotes, and what closes the list and the object.
        let left = bytes.saturating_sub(body.len() + 2);
        let length = match left {
            0..=2 => break,
            3..=12 => left - 2,
            // A rest that is too short for a string of its own is taken along.
            13..=15 => left - 2 - 4,
            _ => 10,
        };
        let text = characters.iter().cycle().skip(at).take(length);
        at += length;
        body.push_str(&format!("\"{}\"", text.collect::<String>()));
        if bytes - body.len() > 2 {
            body.push(',');
        }
    }
    body.push_str("]}");
    format!(
        "wrk.method = 'POST'\nwrk.headers['Content-Type'] = 'application/json'\n\
         wrk.body = '{body}'\nassert(#wrk.body == {bytes}, #wrk.body)\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_their_size_and_are_json() {
        for bytes in [50, 51, 64, 100, 500, 1024, 10_240] {
            let script = lua(bytes);
            let body = script
                .split("wrk.body = '")
                .nth(1)
                .unwrap()
                .split('\'')
                .next()
                .unwrap();
            assert_eq!(body.len(), bytes, "{body}");
            assert!(body.ends_with("\"]}") && !body.contains(",,"), "{body}");
        }
    }
}
