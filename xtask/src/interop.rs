//! Real clients and a conformance suite talk to every kind of listener: h2spec, curl, nghttp,
//! h2load, httpx, gRPC, Chromium, WebSocket and its 517 cases of Autobahn; and subscribers of
//! topics stay while the engine is killed and started again, in pages also while credentials expire
//! and connections are cut; and clients and back ends of several
//! languages meet with and without the engine between them; and tokens are judged by other
//! libraries; and browsers log in at real OpenID providers; and Flask-WebSub meets the hub; and
//! webhooks are managed by REST as their document says. With
//! `--haproxy` they talk to HAProxy instead, and all must pass: that tells a fault of the harness
//! from one of the engine. What HAProxy does not have, flows and topics, is not asked then.

pub mod bench;
mod browsers;
mod curl;
mod engine;
mod h2;
mod identity;
mod peer;
mod peers;
pub mod process;
pub mod report;
mod run;
pub mod scripts;
mod spellings;
#[cfg(test)]
mod tests;
mod tokens;
pub mod tools;
mod topics;
mod webhooks;
mod websub;

use std::path::Path;

use crate::command::Failure;
use crate::servers::{self, Needed};
use bench::{Bench, Extent};
use peer::Peer;
use report::Report;

/// What one kind of client checks.
struct Check {
    name: &'static str,
    needs: &'static [Needed],
    run: fn(&Bench, &mut Report),
}

const CHECKS: [Check; 18] = [
    Check {
        name: "h2spec",
        needs: tools::GO,
        run: h2::h2spec,
    },
    Check {
        name: "curl",
        needs: tools::CURL,
        run: curl::check,
    },
    Check {
        name: "nghttp",
        needs: tools::NGHTTP,
        run: h2::nghttp,
    },
    Check {
        name: "h2load",
        needs: tools::NGHTTP,
        run: h2::h2load,
    },
    Check {
        name: "httpx",
        needs: &[],
        run: scripts::httpx,
    },
    Check {
        name: "grpc",
        needs: &[],
        run: scripts::grpc,
    },
    Check {
        name: "chromium",
        needs: tools::CHROMIUM,
        run: scripts::chromium,
    },
    Check {
        name: "websocket",
        needs: &[],
        run: scripts::websocket,
    },
    Check {
        name: "autobahn",
        needs: &[],
        run: scripts::autobahn,
    },
    Check {
        name: "topics",
        needs: tools::TOPICS,
        run: topics::check,
    },
    Check {
        name: "browsers",
        needs: tools::BROWSERS,
        run: browsers::check,
    },
    Check {
        name: "peers",
        needs: tools::PEERS,
        run: peers::check,
    },
    Check {
        name: "tokens",
        needs: tools::TOKENS,
        run: tokens::check,
    },
    Check {
        name: "spellings",
        needs: tools::SPELLINGS,
        run: spellings::check,
    },
    Check {
        name: "identity",
        needs: tools::IDENTITY,
        run: identity::check,
    },
    Check {
        name: "websub",
        needs: &[],
        run: websub::check,
    },
    Check {
        name: "webhooks",
        needs: tools::TOKENS,
        run: webhooks::check,
    },
    Check {
        name: "packages",
        needs: &[],
        run: crate::package::check_in_interop,
    },
];

/// What the command line asks for.
struct Options {
    checks: Vec<&'static Check>,
    peer: Peer,
    /// Whether the temporary folder with configuration and logs stays.
    keep: bool,
    /// Whether the tables of earlier runs of `peers` are shown, and nothing is run.
    summary: bool,
    extent: Extent,
}

/// Runs the checks and prints a line for each; fails when one does.
pub fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    let options = options(arguments)?;
    if options.summary {
        return peers::summary(root, options.extent);
    }
    servers::ensure(&needed(&options))?;
    let python = tools::python(root)?;
    let program = options.peer.program(root)?;
    let mut bench = Bench::start(root, python, options.peer, &program, options.keep)?;
    bench.extent = options.extent;
    let mut report = Report::default();
    for check in &options.checks {
        (check.run)(&bench, &mut report);
    }
    report.add("the peer ends when told to", bench.stop_peer());
    if report.failed > 0 {
        eprintln!("the end of the peer's log:\n{}", bench.log_end());
    }
    report.finish()
}

fn options(arguments: &[String]) -> Result<Options, Failure> {
    let mut options = Options {
        checks: Vec::new(),
        peer: Peer::Intertie,
        keep: false,
        summary: false,
        extent: Extent::default(),
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--full" => options.extent.full = true,
            "--size" => options.extent.size = size(arguments.next())?,
            "--summary" => options.summary = true,
            "--part" => options.extent.part = part(arguments.next())?,
            "--haproxy" => options.peer = Peer::HaProxy,
            "--keep" => options.keep = true,
            name => options.checks.push(find(name)?),
        }
    }
    if options.checks.is_empty() {
        options.checks.extend(&CHECKS);
    }
    Ok(options)
}

/// A number of bytes, or of MB with `M` behind it.
fn size(text: Option<&String>) -> Result<u64, Failure> {
    let text = text.map_or("", String::as_str);
    let (digits, unit) = match text.strip_suffix('M') {
        Some(digits) => (digits, 1_000_000),
        None => (text, 1),
    };
    let number = digits.parse::<u64>().map(|number| number * unit);
    number.map_err(|_| {
        Failure::new(format!(
            "--size wants bytes or, as in 10M, MB, not `{text}`"
        ))
    })
}

/// A part and their number: `2/6`.
fn part(text: Option<&String>) -> Result<(usize, usize), Failure> {
    let text = text.map_or("", String::as_str);
    let numbers = text.split_once('/').and_then(|(part, count)| {
        let (part, count) = (part.parse().ok()?, count.parse().ok()?);
        (1..=count).contains(&part).then_some((part, count))
    });
    numbers.ok_or_else(|| Failure::new(format!("--part wants, as in 2/6, a part, not `{text}`")))
}

fn find(name: &str) -> Result<&'static Check, Failure> {
    let found = CHECKS.iter().find(|check| check.name == name);
    found.ok_or_else(|| {
        let names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
        let names = names.join(", ");
        Failure::new(format!("no check `{name}`; there are {names}"))
    })
}

/// The programs that the chosen checks use, each once.
fn needed(options: &Options) -> Vec<Needed> {
    let mut needed: Vec<Needed> = tools::ALWAYS.to_vec();
    needed.extend(options.peer.needs());
    needed.extend(options.checks.iter().flat_map(|check| check.needs));
    needed.sort_by_key(|it| it.name);
    needed.dedup_by_key(|it| it.name);
    needed
}
