//! Clients whose checks are scripts: Python's httpx, grpcio, websockets and kosoku, and a page in
//! Chromium.

use super::bench::{Bench, Protocol};
use super::report::{Outcome, Report};
use super::run::{Ran, run};
use crate::command::Failure;

/// Chromium without a window, that asks nobody but us.
pub const CHROMIUM: &str = "--headless --no-sandbox --disable-gpu --disable-quic \
    --no-first-run --disable-background-networking --disable-component-update --disable-sync \
    --disable-dev-shm-usage --ignore-certificate-errors --no-proxy-server";
/// It shows the page as it is after some seconds of its own clock, and ends.
const SHOW: [&str; 2] = ["--dump-dom", "--virtual-time-budget=5000"];

pub fn httpx(bench: &Bench, report: &mut Report) {
    for kind in bench.kinds() {
        let protocol = match kind.protocol {
            Protocol::H1 => "h1",
            Protocol::H2 => "h2",
        };
        let arguments = [kind.url(""), bench.file("ca.pem"), protocol.to_owned()];
        python(bench, report, "httpx", kind.name, &arguments);
    }
}

pub fn grpc(bench: &Bench, report: &mut Report) {
    for way in bench.grpc_ways() {
        let authority = match way.is_tls {
            true => bench.file("ca.pem"),
            false => "-".to_owned(),
        };
        let arguments = [format!("127.0.0.1:{}", way.port), authority];
        python(bench, report, "grpc", way.name, &arguments);
    }
}

pub fn websocket(bench: &Bench, report: &mut Report) {
    for kind in bench.kinds_of(Protocol::H1) {
        let url = kind.url("/ws").replacen("http", "ws", 1);
        let arguments = [url, bench.file("ca.pem")];
        python(bench, report, "websocket", kind.name, &arguments);
    }
}

/// The cases of Autobahn's test suite: a flow that sends messages back, and a flow that forwards to
/// it. Other peers have no flows.
pub fn autobahn(bench: &Bench, report: &mut Report) {
    let port = bench.ports.messages;
    for (name, path) in [("a flow", "/messages"), ("forwarded", "/through/messages")] {
        let name = format!("autobahn {name}");
        let script = bench.script("autobahn_client.py");
        let words = [
            script.to_string_lossy().into_owned(),
            format!("ws://127.0.0.1:{port}{path}"),
            bench.file(&name),
        ];
        match bench.has_flows() {
            false => report.add(&name, Ok("not asked: it has no flows".to_owned())),
            true => match run(1800, &bench.python, words) {
                Ok(ran) => lines(report, &name, &ran),
                Err(failure) => report.add(&name, Err(failure)),
            },
        }
    }
}

/// Runs `CLIENT_client.py` and counts the lines that it prints.
fn python(bench: &Bench, report: &mut Report, client: &str, kind: &str, arguments: &[String]) {
    let script = bench.script(&format!("{client}_client.py"));
    let mut words = vec![script.to_string_lossy().into_owned()];
    words.extend_from_slice(arguments);
    let name = format!("{client} {kind}");
    match run(300, &bench.python, words) {
        Ok(ran) => lines(report, &name, &ran),
        Err(failure) => report.add(&name, Err(failure)),
    }
}

/// Reads `ok NAME` and `FAILED NAME: reason`.
pub(super) fn lines(report: &mut Report, name: &str, ran: &Ran) {
    let before = report.passed + report.failed;
    for line in ran.text().lines() {
        if let Some(what) = line.strip_prefix("ok ") {
            report.add(&format!("{name}: {what}"), Ok(String::new()));
        } else if let Some(what) = line.strip_prefix("FAILED ") {
            let (what, reason) = what.split_once(": ").unwrap_or((what, ""));
            report.add(&format!("{name}: {what}"), Err(Failure::new(reason)));
        }
    }
    if !ran.succeeded || report.passed + report.failed == before {
        report.add(name, Err(ran.failure("the script did not end well")));
    }
}

/// A page that fetches 20 bodies at a time, over every kind of listener that browsers know.
pub fn chromium(bench: &Bench, report: &mut Report) {
    let kinds = bench.kinds().into_iter();
    for kind in kinds.filter(|it| it.is_tls || it.protocol == Protocol::H1) {
        let (protocol, more) = match kind.protocol {
            Protocol::H1 => ("http/1.1", Some("--disable-http2")),
            Protocol::H2 => ("h2", None),
        };
        let profile = format!("--user-data-dir={}", bench.file("chromium"));
        let page = kind.url("/page");
        let words = CHROMIUM.split_ascii_whitespace();
        let words = words.chain(SHOW).chain(more);
        let ran = run(
            60,
            "chromium",
            words.chain([profile.as_str(), page.as_str()]),
        );
        let outcome = ran.and_then(|ran| page_result(&ran, protocol));
        report.add(&format!("chromium {}: 20 fetches", kind.name), outcome);
    }
}

/// Reads what the page says at its end.
pub(super) fn page_result(ran: &Ran, protocol: &str) -> Outcome {
    let text = ran.text();
    let result = text.split_once("id=\"result\">");
    let result = result.and_then(|(_, rest)| rest.split_once('<'));
    let wanted = format!("done 20 {protocol}");
    match result {
        Some((found, _)) if found == wanted => Ok(String::new()),
        Some((found, _)) => Err(Failure::new(format!("`{found}` instead of `{wanted}`"))),
        None => Err(ran.failure("no page")),
    }
}
