//! Webhooks that users manage by REST: schemathesis compares a running engine with the OpenAPI
//! document that it serves, and libraries of others verify the signatures of what comes.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Stdio;

use super::bench::Bench;
use super::engine::{Engine, Ports};
use super::report::{Outcome, Report};
use super::run::{Ran, limited, run};
use super::tools;
use crate::command::Failure;

const SECONDS: u32 = 120;
/// How long schemathesis may take.
const SCHEMATHESIS_SECONDS: u32 = 900;
/// How many requests it makes of each operation.
const EXAMPLES: &str = "40";
/// What it looks at: statuses, headers, media types and schemas of replies, what is created and
/// deleted.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,\
                      response_schema_conformance,response_headers_conformance,use_after_free,\
                      ensure_resource_availability";
/// The key that encrypts the secrets: nobody's.
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Checks the REST interface and the signatures.
pub fn check(bench: &Bench, report: &mut Report) {
    let file = bench.file("webhooks.json");
    let served = Served::start(bench);
    let mut served = match served {
        Ok(served) => served,
        Err(failure) => return report.add("webhooks", Err(failure)),
    };
    report.add("webhooks standardwebhooks", served.standardwebhooks(&file));
    report.add("webhooks svix", svix(bench, &file));
    report.add("webhooks schemathesis", served.schemathesis());
    report.add("webhooks: the engine ends", served.engine.stop("TERM"));
}

/// An engine with a topic whose webhooks a caller manages.
struct Served<'a> {
    bench: &'a Bench,
    engine: Engine<'a>,
    ports: Ports,
    /// Where the client receives.
    sink: u16,
    key: String,
}

fn free_port() -> Result<u16, Failure> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl<'a> Served<'a> {
    fn start(bench: &'a Bench) -> Result<Self, Failure> {
        let folder = bench.folder.join("webhooks");
        fs::create_dir_all(&folder)?;
        let keys = folder.join("keys").display().to_string();
        let words = ["keys", "add", "--file", &keys, "--id", "ann"];
        let added = run(SECONDS, &bench.program, words)?;
        let text = added.text();
        let key = text.split_whitespace().find(|it| it.starts_with("itk_"));
        let key = key.ok_or_else(|| added.failure("`keys add` has shown no key"))?;
        let ports = Ports {
            flows: free_port()?,
            admin: free_port()?,
        };
        let sink = free_port()?;
        let flows = flows(ports.flows, sink);
        Ok(Self {
            engine: Engine::start(bench, &folder, ports, &flows)?,
            bench,
            ports,
            sink,
            key: key.to_owned(),
        })
    }

    /// Receives events and has PyPI's standardwebhooks verify them.
    fn standardwebhooks(&self, file: &str) -> Outcome {
        let script = self
            .bench
            .script("webhooks_client.py")
            .display()
            .to_string();
        let (port, sink) = (self.ports.flows.to_string(), self.sink.to_string());
        let words = [&*script, &port, &self.key, &sink, file];
        shown(&run(SECONDS, &self.bench.python, words)?, "it has failed")
    }

    /// Has schemathesis compare the engine with its document.
    fn schemathesis(&self) -> Outcome {
        let program = self.bench.python.with_file_name("schemathesis");
        let url = format!(
            "http://127.0.0.1:{}/topics/news/webhooks/openapi.json",
            self.ports.flows
        );
        let base = format!("http://127.0.0.1:{}", self.ports.flows);
        let key = format!("X-Api-Key: {}", self.key);
        let words = [
            "run",
            &url,
            "--url",
            &base,
            "--header",
            &key,
            "--checks",
            CHECKS,
            "--max-examples",
            EXAMPLES,
            "--seed",
            "1",
            "--no-color",
        ];
        // It leaves a folder with what it has found where it runs.
        let output = limited(SCHEMATHESIS_SECONDS, program, words)
            .current_dir(&self.bench.folder)
            .stdin(Stdio::null())
            .output()?;
        let ran = Ran {
            succeeded: output.status.success(),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        };
        match ran.succeeded {
            true => Ok(summary(&ran)),
            false => Err(ran.failure("it has found something")),
        }
    }
}

/// The topics. Webhooks of `news` need not answer a challenge: those that schemathesis makes up
/// lead nowhere, and get no event, since nothing is published there.
fn flows(port: u16, sink: u16) -> String {
    format!(
        "engine:
  listen: 127.0.0.1:{port}
  egress: {{ allow: [127.0.0.0/8], schemes: [http, https], ports: [{sink}, 443] }}
  auth: {{ partners: {{ api_key: {{ keys: keys }} }} }}
---
topic: orders
payload: event
publish: {{ http: POST /orders, auth: none }}
subscribe:
  auth: partners
  allow_expressions: true
  webhooks:
    manage: {{ secrets_key: {KEY} }}
---
topic: news
payload: event
publish: {{ http: POST /news, auth: none }}
subscribe:
  auth: partners
  allow_expressions: true
  webhooks:
    manage: {{ secrets_key: {KEY}, per_caller: 1000, challenge: false }}
"
    )
}

/// Has npm's svix verify what has come.
fn svix(bench: &Bench, file: &str) -> Outcome {
    let packages = tools::node(&bench.root)?;
    let script = bench.script("webhooks_svix.mjs");
    let words = [script.as_path(), Path::new(file), packages.as_path()];
    shown(&run(SECONDS, "node", words)?, "it has failed")
}

/// What a client that has succeeded says in its last line.
fn shown(ran: &Ran, reason: &str) -> Outcome {
    match ran.succeeded {
        true => Ok(ran.text().trim().to_owned()),
        false => Err(ran.failure(reason)),
    }
}

/// How much schemathesis has done.
fn summary(ran: &Ran) -> String {
    let text = ran.text();
    let line = text.lines().find(|it| it.contains("generated, "));
    line.unwrap_or_default().trim().to_owned()
}
