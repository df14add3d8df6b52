//! How many instructions the engine executes for a request, outside the kernel, counted by
//! valgrind: a figure that other load on the machine does not touch, so that a change of one
//! percent shows. Times and system calls are the business of `intertie-bench`.
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
/// The bytes of the body of a request that is only forwarded, and of its reply's.
const BODY: usize = 50;
/// The lines of the order that is mapped, converted or validated: some 1 KiB.
const ORDER_LINES: usize = 12;
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

/// What is measured: the protocols of client and back end, and the steps before `forward`.
struct Scenario {
    name: &'static str,
    client: Client,
    back_h2: bool,
    /// YAML of one step. Without it the body is opaque, with it an order in JSON.
    step: Option<&'static str>,
}

const SCENARIOS: [Scenario; 10] = [
    Scenario::new("h1c -> h1c", Client::Http1, false),
    Scenario::new("h1c -> h2c", Client::Http1, true),
    Scenario::new("h2c, one connection -> h1c", Client::Http2Shared, false),
    Scenario::new("h2c, one connection -> h2c", Client::Http2Shared, true),
    Scenario::new("h2c, one stream each -> h1c", Client::Http2Alone, false),
    Scenario::new("h2c, one stream each -> h2c", Client::Http2Alone, true),
    Scenario::with_step("h1c, map by paths", MAP_PATHS),
    Scenario::with_step("h1c, map that computes", MAP_COMPUTED),
    Scenario::with_step("h1c, JSON to XML", "convert: { from: json, to: xml }"),
    Scenario::with_step("h1c, validate", VALIDATE),
];

const MAP_PATHS: &str = "map: '{ id: .id, placed: .placed, name: .customer.name, email: \
                         .customer.email, address: .address, note: .note }'";
const MAP_COMPUTED: &str = "map: '{ id: .id, name: (.customer.name | ascii_upcase), total: \
                            ([.lines[] | .qty * .price] | add), skus: [.lines[].sku] }'";
const VALIDATE: &str = "validate: { schema: { type: object, required: [id, customer, lines], \
                        properties: { id: { type: integer, minimum: 1 }, lines: { type: array, \
                        minItems: 1, items: { type: object, additionalProperties: false, \
                        required: [sku, qty], properties: { sku: { type: string, pattern: \
                        \"^[A-Z]{2}-[0-9]{4}$\" }, qty: { type: integer, minimum: 1 }, price: { \
                        type: number } } } } } } }";

/// The order in JSON.
fn order() -> String {
    let line = r#"{"sku":"KB-1042","qty":2,"price":129.5}"#;
    let lines = [line; ORDER_LINES].join(",");
    let head = concat!(
        r#"{"id":10000000,"placed":"2026-03-14T09:26:53Z","customer":{"name":"Ada Lovelace","#,
        r#""email":"ada.lovelace@example.com"},"address":{"street":"12 St James's Square","#,
        r#""city":"London"},"note":"Leave it with the porter, ring twice, and call ahead when "#,
        r#"you are later than six o'clock.","lines":["#,
    );
    format!("{head}{lines}]}}")
}

impl Scenario {
    const fn new(name: &'static str, client: Client, back_h2: bool) -> Self {
        Self {
            name,
            client,
            back_h2,
            step: None,
        }
    }

    const fn with_step(name: &'static str, step: &'static str) -> Self {
        Self {
            step: Some(step),
            ..Self::new(name, Client::Http1, false)
        }
    }

    /// The name of the file that holds the body.
    fn body(&self) -> &'static str {
        match self.step {
            Some(_) => "order",
            None => "body",
        }
    }

    /// The flow file: `forward`, and the step before it if there is one.
    fn flow(&self, port: u16, back: u16) -> String {
        let protocols = |is_h2| if is_h2 { "[h2]" } else { "[http/1.1]" };
        let (client, back_protocols) = (
            match self.client {
                Client::Http1 => "[http/1.1]",
                Client::Http2Shared | Client::Http2Alone => "[h2, http/1.1]",
            },
            protocols(self.back_h2),
        );
        let step = self.step.map(|step| format!("  - {step}\n"));
        let step = step.unwrap_or_default();
        format!(
            "engine:\n  listen: \"127.0.0.1:{port}\"\n---\nflow: relay\nuse:\n  back: {{ http: \
             \"http://127.0.0.1:{back}\", protocols: {back_protocols} }}\nfrom:\n  http: {{ path: /, \
             method: POST, protocols: {client} }}\nsteps:\n{step}  - forward: back:/\n"
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
    fs::write(folder.join("body"), "x".repeat(BODY))?;
    fs::write(folder.join("order"), order())?;
    println!("instructions a request, outside the kernel:");
    for scenario in &SCENARIOS {
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
    let body = folder.join(scenario.body()).display().to_string();
    let (count, users) = (requests.to_string(), USERS.to_string());
    let url = format!("http://127.0.0.1:{port}/");
    let mut arguments = vec!["-n", &count, "-d", &body];
    if scenario.step.is_some() {
        arguments.extend(["-H", "Content-Type: application/json"]);
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
