//! curl in each of its versions of HTTP; bodies are compared byte for byte.

use std::fs;

use super::bench::{Bench, Kind, Protocol};
use super::report::{Outcome, Report};
use super::run::run;
use crate::command::Failure;

const SMALL: usize = 50;
const LARGE: usize = 5 * 1024 * 1024;

/// One request and what must come back.
struct Request {
    name: &'static str,
    path: String,
    arguments: Vec<String>,
    status: &'static str,
    body: Vec<u8>,
}

pub fn check(bench: &Bench, report: &mut Report) {
    for kind in bench.kinds() {
        for request in requests(bench) {
            let name = format!("curl {}: {}", kind.name, request.name);
            report.add(&name, ask(bench, &kind, &request));
        }
        report.add(&format!("curl {}: HEAD", kind.name), head(bench, &kind));
    }
}

fn requests(bench: &Bench) -> Vec<Request> {
    let get = |name, size| Request {
        name,
        path: format!("/bytes/{size}"),
        arguments: Vec::new(),
        status: "200",
        body: pattern(size),
    };
    let sent = format!("@{}", bench.file("sent"));
    let post = |name, size, more: &[&str]| {
        let plain = ["--data-binary", &sent, "--header"].into_iter();
        Request {
            name,
            path: "/echo".to_owned(),
            arguments: plain
                .chain(more.iter().copied())
                .map(str::to_owned)
                .collect(),
            status: "200",
            body: pattern(size),
        }
    };
    // Without its own time-out curl waits for the 100 until its time is over.
    let patient = ["Expect: 100-continue", "--expect100-timeout", "60"];
    let missing = Request {
        name: "404",
        path: "/missing".to_owned(),
        arguments: Vec::new(),
        status: "404",
        body: b"not here\n".to_vec(),
    };
    vec![
        get("GET of 50 B", SMALL),
        get("GET of 5 MiB", LARGE),
        post("POST of 50 B", SMALL, &["Expect:"]),
        post("POST of 5 MiB", LARGE, &["Expect:"]),
        post("Expect: 100-continue", LARGE, &patient),
        missing,
    ]
}

/// The back end's bodies: bytes that repeat only after 251 of them.
fn pattern(size: usize) -> Vec<u8> {
    (0..251).cycle().take(size).collect()
}

fn ask(bench: &Bench, kind: &Kind, request: &Request) -> Outcome {
    fs::write(bench.folder.join("sent"), &request.body)?;
    let got = curl(
        bench,
        kind,
        &request.path,
        &request.arguments,
        request.status,
    )?;
    match got == request.body {
        true => Ok(String::new()),
        false => Err(Failure::new(format!(
            "a body of {} bytes differs from that of {} bytes",
            got.len(),
            request.body.len()
        ))),
    }
}

fn head(bench: &Bench, kind: &Kind) -> Outcome {
    let got = curl(bench, kind, "/bytes/50", &["--head".to_owned()], "200")?;
    let got = String::from_utf8_lossy(&got).to_ascii_lowercase();
    match got.contains("content-length: 50\r\n") {
        true => Ok(String::new()),
        false => Err(Failure::new(format!("no Content-Length: 50 in\n{got}"))),
    }
}

/// The body of the reply; its status and the version of HTTP are as wanted.
fn curl(
    bench: &Bench,
    kind: &Kind,
    path: &str,
    more: &[String],
    status: &str,
) -> Result<Vec<u8>, Failure> {
    let (ca, got) = (bench.file("ca.pem"), bench.file("got"));
    let (version, flag) = match (kind.protocol, kind.is_tls) {
        (Protocol::H1, _) => ("1.1", "--http1.1"),
        (Protocol::H2, true) => ("2", "--http2"),
        (Protocol::H2, false) => ("2", "--http2-prior-knowledge"),
    };
    fs::write(&got, "")?;
    let url = kind.url(path);
    let plain = [
        "--silent",
        "--show-error",
        "--max-time",
        "20",
        "--noproxy",
        "*",
    ];
    let chosen = [flag, "--cacert", &ca, "--output", &got];
    let told = ["--write-out", "%{http_code} %{http_version}", &url];
    let words = plain.into_iter().chain(chosen).chain(told);
    let ran = run(30, "curl", words.chain(more.iter().map(String::as_str)))?;
    let wanted = format!("{status} {version}");
    match ran.succeeded && ran.text() == wanted {
        true => Ok(fs::read(got)?),
        false => Err(ran.failure(&format!("not `{wanted}` but"))),
    }
}
