//! Flask-WebSub subscribes to a topic of the engine over TLS and publishes a page to its hub;
//! requests-websub-auth judges the signatures.

use std::fs;

use super::bench::Bench;
use super::engine::{Engine, Ports};
use super::report::Report;
use super::run::{Ran, run};
use super::scripts;
use crate::command::Failure;

const SECONDS: u32 = 180;

pub fn check(bench: &Bench, report: &mut Report) {
    if !bench.has_flows() {
        return report.add("websub", Ok("not asked: it has no topics".to_owned()));
    }
    let ports = Ports {
        flows: bench.ports.hub,
        admin: bench.ports.hub_admin,
    };
    let subscriber = bench.ports.subscriber;
    match play(bench, ports, subscriber) {
        Ok((ran, engine)) => {
            scripts::lines(report, "websub", &ran);
            let mut engine = engine;
            report.add("websub: the engine ends when told to", engine.stop("TERM"));
        }
        Err(failure) => report.add("websub", Err(failure)),
    }
}

fn play<'a>(bench: &'a Bench, ports: Ports, subscriber: u16) -> Result<(Ran, Engine<'a>), Failure> {
    let folder = bench.folder.join("websub");
    fs::create_dir(&folder)?;
    let engine = Engine::start(
        bench,
        &folder,
        ports,
        &flows(bench, ports.flows, subscriber),
    )?;
    let words = vec![
        format!("REQUESTS_CA_BUNDLE={}", bench.file("ca.pem")),
        bench.python.to_string_lossy().into_owned(),
        bench
            .script("websub_client.py")
            .to_string_lossy()
            .into_owned(),
        format!("https://localhost:{}", ports.flows),
        subscriber.to_string(),
    ];
    match run(SECONDS, "env", words) {
        Ok(ran) => Ok((ran, engine)),
        Err(failure) => Err(engine.with_log(&failure, [])),
    }
}

/// A topic that is published to, and one that follows a page.
fn flows(bench: &Bench, port: u16, subscriber: u16) -> String {
    let tls = format!(
        "{{ cert: {}, key: {} }}",
        bench.file("server.pem"),
        bench.file("server.key")
    );
    format!(
        "engine:
  public_url: https://localhost:{port}
  egress: {{ allow: [127.0.0.1], schemes: [http, https], ports: [{subscriber}] }}
---
topic: news
payload: event
publish:
  http: {{ listen: \"127.0.0.1:{port}\", method: POST, path: /topics/news, tls: {tls} }}
subscribe: {{ listen: \"127.0.0.1:{port}\", tls: {tls}, websub: {{}} }}
---
topic: page
payload: event
subscribe:
  listen: 127.0.0.1:{port}
  tls: {tls}
  websub: {{ url: \"http://127.0.0.1:{subscriber}/page\", content_type: text/html }}
"
    )
}
