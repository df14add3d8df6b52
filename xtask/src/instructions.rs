//! How many instructions the engine executes for a request, outside the kernel, counted by
//! valgrind, for requests that are forwarded as they are, mapped and converted: a figure that other
//! load on the machine does not touch, so that a change of one percent shows. Times and system
//! calls are the business of `intertie-bench`.
//!
//! One run with few requests and one with many: the difference is what requests cost, without the
//! start.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::command::{Failure, program};
use crate::interop::process::{Process, free_port};
use crate::servers::{self, Needed};

const NEEDED: &[Needed] = &[
    Needed::new("valgrind", &["valgrind"]),
    Needed::new("h2load", &["nghttp2-client"]),
];
/// How many requests the two runs have.
const FEW: u64 = 1000;
const MANY: u64 = 4000;
/// How many requests are under way at a time.
const USERS: u64 = 100;
/// The bytes of a body that is only forwarded.
const BODY: usize = 50;
/// The members of others.
const MEMBERS: usize = 10;
const STOP_MAX: Duration = Duration::from_secs(60);

/// What clients speak, in clear text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Client {
    /// HTTP/1.1, each user on a connection.
    Http1,
    /// HTTP/2, all users on one connection.
    Http2Shared,
    /// HTTP/2, each user on a connection.
    Http2Alone,
}

/// What happens to a body of ten members before it is forwarded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Work {
    /// Nothing; the body is short and no JSON.
    Relay,
    /// Members become those of another object.
    Map,
    /// The same, some of them computed.
    Compute,
    /// It becomes XML.
    Convert,
}

impl Work {
    fn step(self) -> String {
        let member = |at: usize| match (self, at % 3) {
            (Self::Compute, 1) => format!("(.field{at} | ascii_upcase)"),
            (Self::Compute, 2) => format!("(.field{at} + .field0)"),
            _ => format!(".field{at}"),
        };
        match self {
            Self::Relay => String::new(),
            Self::Convert => "  - convert: { from: json, to: xml }\n".to_owned(),
            Self::Map | Self::Compute => {
                let members = (0..MEMBERS).map(|at| format!("to{at}: {}", member(at)));
                let members = members.collect::<Vec<_>>().join(", ");
                format!("  - map: '{{ {members} }}'\n")
            }
        }
    }

    fn body(self) -> String {
        if self == Self::Relay {
            return "x".repeat(BODY);
        }
        let members = (0..MEMBERS).map(|at| format!("\"field{at}\":\"some text of number {at}\""));
        format!("{{{}}}", members.collect::<Vec<_>>().join(","))
    }
}

/// What is measured: the protocols of client and back end, and the work between them.
struct Scenario {
    name: &'static str,
    client: Client,
    back_h2: bool,
    work: Work,
}

const SCENARIOS: [Scenario; 9] = [
    Scenario::new("h1c -> h1c", Client::Http1, false),
    Scenario::new("h1c -> h2c", Client::Http1, true),
    Scenario::new("h2c, one connection -> h1c", Client::Http2Shared, false),
    Scenario::new("h2c, one connection -> h2c", Client::Http2Shared, true),
    Scenario::new("h2c, one stream each -> h1c", Client::Http2Alone, false),
    Scenario::new("h2c, one stream each -> h2c", Client::Http2Alone, true),
    Scenario::working("h1c -> map -> h1c", Work::Map),
    Scenario::working("h1c -> compute -> h1c", Work::Compute),
    Scenario::working("h1c -> json to xml -> h1c", Work::Convert),
];

impl Scenario {
    const fn new(name: &'static str, client: Client, back_h2: bool) -> Self {
        Self {
            name,
            client,
            back_h2,
            work: Work::Relay,
        }
    }

    const fn working(name: &'static str, work: Work) -> Self {
        Self {
            work,
            ..Self::new(name, Client::Http1, false)
        }
    }

    /// The flow file: the work, then `forward`.
    fn flow(&self, port: u16, back: u16) -> String {
        let protocols = |is_h2| if is_h2 { "[h2]" } else { "[http/1.1]" };
        let (client, back_protocols) = (
            match self.client {
                Client::Http1 => "[http/1.1]",
                Client::Http2Shared | Client::Http2Alone => "[h2, http/1.1]",
            },
            protocols(self.back_h2),
        );
        format!(
            "engine:\n  listen: \"127.0.0.1:{port}\"\n---\nflow: relay\nuse:\n  back: {{ http: \
             \"http://127.0.0.1:{back}\", protocols: {back_protocols} }}\nfrom:\n  http: {{ path: /, \
             method: POST, protocols: {client} }}\nsteps:\n{}  - forward: back:/\n",
            self.work.step()
        )
    }
}

/// Measures the binaries beside each other; the first one is what the others are compared with. The
/// last one is the back end of all, for what that replies is part of the work.
pub fn run(root: &Path, binaries: &[String]) -> Result<(), Failure> {
    let Some(back) = binaries.last() else {
        let usage = "name one or more binaries: cargo xtask instructions target/dist/intertie ...";
        return Err(Failure::new(usage));
    };
    servers::ensure(NEEDED)?;
    let folder = root.join("target/instructions");
    fs::create_dir_all(&folder)?;
    println!("instructions a request, outside the kernel:");
    for scenario in &SCENARIOS {
        fs::write(folder.join("body"), scenario.work.body())?;
        let mut line = format!("{:28}", scenario.name);
        let mut first = None;
        for binary in binaries {
            let count = measure(&folder, Path::new(binary), Path::new(back), scenario)?;
            let ratio = count / *first.get_or_insert(count);
            line += &format!("  {count:8.0} ({ratio:.3})");
        }
        println!("{line}");
    }
    Ok(())
}

fn measure(folder: &Path, binary: &Path, back: &Path, scenario: &Scenario) -> Result<f64, Failure> {
    let found = |file: &Path| {
        let failure = |error| Failure::new(format!("{}: {error}", file.display()));
        fs::canonicalize(file).map_err(failure)
    };
    let binaries = [found(binary)?, found(back)?];
    let few = instructions(folder, &binaries, scenario, FEW)?;
    let many = instructions(folder, &binaries, scenario, MANY)?;
    Ok((many as f64 - few as f64) / (MANY - FEW) as f64)
}

/// How many instructions the engine has executed from its start to its end.
fn instructions(
    folder: &Path,
    [binary, back]: &[PathBuf; 2],
    scenario: &Scenario,
    requests: u64,
) -> Result<u64, Failure> {
    let (port, back_port) = (free_port()?, free_port()?);
    let _back = stub(folder, back, scenario, back_port)?;
    let flow = folder.join("flow.yaml");
    fs::write(&flow, scenario.flow(port, back_port))?;
    let mut engine = engine(folder, binary, &flow, port)?;
    load(folder, scenario, port, requests)?;
    engine.stop("TERM", STOP_MAX)?;
    let printed = engine.printed();
    let counted = printed.lines().find_map(|line| {
        let (_, count) = line.split_once("Collected :")?;
        count.trim().parse().ok()
    });
    counted.ok_or_else(|| Failure::new(format!("valgrind has not counted:\n{printed}")))
}

fn stub(folder: &Path, binary: &Path, scenario: &Scenario, port: u16) -> Result<Process, Failure> {
    let mut command = Command::new(binary);
    let address = format!("127.0.0.1:{port}");
    let protocols = if scenario.back_h2 { "h2" } else { "http/1.1" };
    command.args(["stub", "echo", "--listen", &address]);
    command.args(["--protocols", protocols]);
    let mut stub = Process::start(folder, "stub", command)?;
    stub.listens(port)?;
    Ok(stub)
}

fn engine(folder: &Path, binary: &Path, flow: &Path, port: u16) -> Result<Process, Failure> {
    let out = |name: &str| -> PathBuf { folder.join(name) };
    let mut command = Command::new("valgrind");
    command.arg("--tool=callgrind");
    command.arg(format!(
        "--callgrind-out-file={}",
        out("callgrind.out").display()
    ));
    command.arg(binary).arg("run").arg(flow);
    command.args(["--workers", "1", "--admin", "off", "--data"]);
    command.arg(out("data"));
    let mut engine = Process::start(folder, "engine", command)?;
    engine.listens(port)?;
    Ok(engine)
}

fn load(folder: &Path, scenario: &Scenario, port: u16, requests: u64) -> Result<(), Failure> {
    let body = folder.join("body").display().to_string();
    let (count, users) = (requests.to_string(), USERS.to_string());
    let url = format!("http://127.0.0.1:{port}/");
    let mut arguments = vec!["-n", &count, "-d", &body];
    if scenario.work != Work::Relay {
        arguments.extend(["-H", "content-type: application/json"]);
    }
    match scenario.client {
        Client::Http1 => arguments.extend(["-c", &users, "--h1"]),
        Client::Http2Shared => arguments.extend(["-c", "1", "-m", &users]),
        Client::Http2Alone => arguments.extend(["-c", &users]),
    }
    arguments.push(&url);
    let printed = program("h2load").args(arguments).output()?;
    let wanted = format!("{requests} succeeded, 0 failed");
    match printed.contains(&wanted) {
        true => Ok(()),
        false => Err(Failure::new(format!("requests have failed:\n{printed}"))),
    }
}
