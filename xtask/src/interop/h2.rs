//! The clients made for HTTP/2: h2spec, nghttp and h2load (which speaks HTTP/1.1 too).

use std::fs;

use super::bench::{Bench, Kind, Protocol};
use super::report::{Outcome, Report};
use super::run::{Ran, run};
use super::tools;
use crate::command::Failure;

/// The one failure that is excused, and only on a listener that takes HTTP/1.1 in clear text too:
/// to it a wrong preface is a malformed request line, and it owes the 400 of HTTP/1.1 in reply.
const EXCUSED: [&str; 2] = [
    "Sends invalid connection preface",
    "the frame header looked like an HTTP/1.1 header",
];

/// How the outcome of h2spec is read.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reading {
    /// Whether failures are shown, not only counted.
    pub detailed: bool,
    /// Whether the listener takes HTTP/1.1 in clear text too.
    pub beside_h1: bool,
}

/// All suites of h2spec, without and with those that ask for what the RFC only recommends.
pub fn h2spec(bench: &Bench, report: &mut Report) {
    let program = match tools::h2spec(&bench.root) {
        Ok(program) => program,
        Err(failure) => return report.add("h2spec", Err(failure)),
    };
    for kind in bench.kinds_of(Protocol::H2) {
        let before = report.failed;
        for (name, strict) in [("", None), (" strict", Some("--strict"))] {
            let port = kind.port.to_string();
            let tls: &[&str] = if kind.is_tls { &["-t", "-k"] } else { &[] };
            let words = ["--port", &port, "--timeout", "3"].into_iter();
            let words = words.chain(tls.iter().copied()).chain(strict);
            // The strict run repeats the others: their failures have been shown.
            let reading = Reading {
                detailed: report.failed == before,
                beside_h1: kind.port == bench.ports.mixed,
            };
            let outcome = run(600, &program, words).and_then(|ran| suites(&ran, reading));
            report.add(&format!("h2spec{name} {}", kind.name), outcome);
        }
    }
}

/// Reads h2spec's last line; the failures stand before it.
pub(super) fn suites(ran: &Ran, reading: Reading) -> Outcome {
    let text = ran.text();
    let Some(count) = text.lines().find(|line| line.contains(" tests, ")) else {
        return Err(ran.failure("no summary"));
    };
    if ran.succeeded && count.ends_with(" 0 failed") {
        return Ok(count.to_owned());
    }
    let failures = text.split_once("Failures:").map_or("", |(_, rest)| rest);
    let is_excused = EXCUSED.iter().all(|words| failures.contains(words));
    if reading.beside_h1 && count.ends_with(" 1 failed") && is_excused {
        return Ok(format!(
            "{count}, excused: HTTP/1.1 answers a wrong preface"
        ));
    }
    let is_shown = |line: &&str| {
        let is_count = line.contains(" tests, ") || line.starts_with("Finished in");
        reading.detailed && !line.trim().is_empty() && !is_count
    };
    let lines: Vec<&str> = failures.lines().filter(is_shown).collect();
    Err(Failure::new(format!("{count}\n{}", lines.join("\n"))))
}

pub fn nghttp(bench: &Bench, report: &mut Report) {
    for kind in bench.kinds_of(Protocol::H2) {
        let name = format!("nghttp {}", kind.name);
        report.add(&format!("{name}: GET"), nghttp_get(&kind));
        let echo = [
            ("POST of 5 MiB", None),
            ("request trailers", Some("--trailer=x-sum: 7")),
        ];
        for (what, more) in echo {
            report.add(&format!("{name}: {what}"), nghttp_post(bench, &kind, more));
        }
    }
    for way in bench.grpc_ways() {
        let name = format!("nghttp {}: reply trailers", way.name);
        report.add(&name, nghttp_trailers(bench, &way));
    }
}

fn nghttp_get(kind: &Kind) -> Outcome {
    let ran = run(30, "nghttp", ["-v", "-y", &kind.url("/")])?;
    let is_whole = ran.text().contains(":status: 200") && ran.text().contains("; END_STREAM");
    match ran.succeeded && is_whole {
        true => Ok(String::new()),
        false => Err(ran.failure("no 200")),
    }
}

fn nghttp_post(bench: &Bench, kind: &Kind, more: Option<&str>) -> Outcome {
    let body: Vec<u8> = (0..251).cycle().take(5 * 1024 * 1024).collect();
    let (path, url) = (bench.file("sent"), kind.url("/echo"));
    fs::write(&path, &body)?;
    let words = ["-y", "-d", &path].into_iter().chain(more);
    let ran = run(60, "nghttp", words.chain([url.as_str()]))?;
    match ran.succeeded && ran.stdout == body {
        true => Ok(String::new()),
        false => Err(Failure::new(format!(
            "a body of {} bytes differs from that of {} bytes: {}",
            ran.stdout.len(),
            body.len(),
            ran.stderr
        ))),
    }
}

/// A gRPC call by hand: its status comes behind the body.
fn nghttp_trailers(bench: &Bench, way: &Kind) -> Outcome {
    let (path, url) = (bench.file("sent"), way.url("/interop.Test/Unary"));
    // No compression, a length of five, the message.
    fs::write(&path, b"\0\0\0\0\x05hello")?;
    let words = ["-v", "-y", "-d", &path, "-H", "te: trailers"];
    let more = ["-H", "content-type: application/grpc", &url];
    let ran = run(30, "nghttp", words.into_iter().chain(more))?;
    let text = ran.text();
    let (head, trailers) = text.split_once("hello").unwrap_or((&text, ""));
    match head.contains(":status: 200") && trailers.contains("grpc-status: 0") {
        true => Ok(String::new()),
        false => Err(ran.failure("no grpc-status behind the body")),
    }
}

pub fn h2load(bench: &Bench, report: &mut Report) {
    for kind in bench.kinds() {
        let url = kind.url("/bytes/100");
        let words = ["-c", "10", "-m", "10", "-n", "10000", &url].into_iter();
        let is_h1 = kind.protocol == Protocol::H1;
        let words = words.chain(is_h1.then_some("--h1"));
        let outcome = run(120, "h2load", words).and_then(|ran| load(&ran, &kind));
        report.add(&format!("h2load {}", kind.name), outcome);
    }
}

/// Reads what h2load counted: every request has its good reply, by the right protocol.
pub(super) fn load(ran: &Ran, kind: &Kind) -> Outcome {
    let protocol = match (kind.protocol, kind.is_tls) {
        (Protocol::H1, _) => "http/1.1",
        (Protocol::H2, true) => "h2",
        (Protocol::H2, false) => "h2c",
    };
    let text = ran.text();
    let wanted = [
        format!("Application protocol: {protocol}"),
        "10000 succeeded, 0 failed, 0 errored, 0 timeout".to_owned(),
        "status codes: 10000 2xx".to_owned(),
    ];
    match wanted.iter().find(|line| !text.contains(line.as_str())) {
        None => Ok(speed(&text)),
        Some(line) => Err(ran.failure(&format!("no `{line}` in"))),
    }
}

fn speed(text: &str) -> String {
    let line = text.lines().find(|line| line.starts_with("finished in"));
    line.unwrap_or_default().to_owned()
}
