//! Subscribers of topics stay while the engine is killed, and while it is stopped in order, and
//! started again: Python's httpx-sse, npm's eventsource, and a page in Chromium with `EventSource`
//! and `WebSocket`. Each must have every event once, in order, and never be told of a gap.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::bench::Bench;
use super::engine::{Engine, Ports, RESULT, file_flow, result_flow};
use super::process::{Process, wait_for};
use super::report::Report;
use super::run::{Ran, limited, run};
use super::{scripts, tools};
use crate::command::Failure;

/// What is published: `{"number": 0}` and so on, every tenth in a second topic too.
const EVENTS: u32 = 300;
/// Before which events the engine goes away, and by which signal.
const OUTAGES: [(u32, &str); 2] = [(100, "KILL"), (200, "TERM")];
const EVENTS_TOPIC: &str = "events";
const TENTHS_TOPIC: &str = "tenths";
/// How many subscribe: httpx-sse, eventsource twice (once to both topics), and Chromium twice.
const SUBSCRIBERS: [(&str, f64); 2] = [(EVENTS_TOPIC, 5.0), (TENTHS_TOPIC, 1.0)];
/// How long they may take until all are there.
const SUBSCRIBE_MAX: Duration = Duration::from_secs(60);
/// How long a publication may take, with the engine's absence within.
const PUBLISH_MAX: Duration = Duration::from_secs(70);
/// How long a client may run, which is longer than its own limit.
const CLIENT_SECONDS: u32 = 270;
const CLIENT_MAX: Duration = Duration::from_secs(280);

pub fn check(bench: &Bench, report: &mut Report) {
    if !bench.has_flows() {
        return report.add("topics", Ok("not asked: it has none".to_owned()));
    }
    let mut scene = match Scene::start(bench) {
        Ok(scene) => scene,
        Err(failure) => return report.add("topics", Err(failure)),
    };
    let outcome = scene.play();
    let is_played = outcome.is_ok();
    report.add(
        "topics: the engine is away twice",
        outcome.map_err(|it| scene.with_log(&it)),
    );
    if is_played {
        scene.report_clients(report);
        let outcome = scene.engine.stop("TERM");
        report.add("topics: the engine ends when told to", outcome);
    }
}

/// A client, and where its lines come; without a file it prints them and ends.
struct Client {
    name: &'static str,
    process: Process,
    result: Option<PathBuf>,
}

/// The engine and its subscribers. Those end first.
struct Scene<'a> {
    clients: Vec<Client>,
    engine: Engine<'a>,
    bench: &'a Bench,
    folder: PathBuf,
}

impl<'a> Scene<'a> {
    fn start(bench: &'a Bench) -> Result<Self, Failure> {
        let folder = bench.folder.join("topics");
        fs::create_dir(&folder)?;
        for page in ["topics.html", "topics.mjs"] {
            fs::copy(bench.script(page), folder.join(page))?;
        }
        let ports = Ports {
            flows: bench.ports.topics,
            admin: bench.ports.topics_admin,
        };
        let mut scene = Self {
            clients: Vec::new(),
            engine: Engine::start(bench, &folder, ports, &flows(ports.flows))?,
            bench,
            folder,
        };
        scene.start_clients()?;
        Ok(scene)
    }

    fn start_clients(&mut self) -> Result<(), Failure> {
        let count = EVENTS.to_string();
        let packages = tools::node(&self.bench.root)?;
        let packages = packages.to_string_lossy().into_owned();
        let script = |name: &str| self.bench.script(name).to_string_lossy().into_owned();
        let (httpx, eventsource) = (
            script("httpx_sse_client.py"),
            script("eventsource_client.mjs"),
        );
        let events = self.url("/topics/events/sse");
        let words = vec![httpx, events, count.clone()];
        self.add_client("httpx-sse", &self.bench.python, words, None)?;
        let words = vec![eventsource, packages, self.url(""), count];
        self.add_client("eventsource", Path::new("node"), words, None)?;
        let result = Some(self.folder.join(RESULT));
        self.add_client("chromium", Path::new("chromium"), self.browser(), result)
    }

    /// The words for Chromium, which opens the page.
    fn browser(&self) -> Vec<String> {
        let plain = scripts::CHROMIUM.split_ascii_whitespace();
        let profile = format!("--user-data-dir={}", self.bench.file("chromium-topics"));
        let page = self.url(&format!("/page?count={EVENTS}"));
        // It complains about a desktop that is not there.
        let words = plain.chain(["--log-level=3", &profile, &page]);
        words.map(str::to_owned).collect()
    }

    fn add_client(
        &mut self,
        name: &'static str,
        program: &Path,
        arguments: Vec<String>,
        result: Option<PathBuf>,
    ) -> Result<(), Failure> {
        let command = limited(CLIENT_SECONDS, program, arguments);
        let process = Process::start(&self.folder, name, command)?;
        self.clients.push(Client {
            name,
            process,
            result,
        });
        Ok(())
    }

    /// Publishes everything; the engine is away in between.
    fn play(&mut self) -> Result<String, Failure> {
        self.all_subscribe()?;
        for number in 0..EVENTS {
            if let Some((_, signal)) = OUTAGES.iter().find(|it| it.0 == number) {
                self.outage(number, signal)?;
            }
            self.publish(EVENTS_TOPIC, number)?;
            if number % 10 == 0 {
                self.publish(TENTHS_TOPIC, number)?;
            }
        }
        for topic in [TENTHS_TOPIC, EVENTS_TOPIC] {
            let words = self.publication(topic, "end", "{\"end\": true}");
            receipt(&run(CLIENT_SECONDS, "curl", words)?)?;
        }
        Ok(format!("{EVENTS} events published"))
    }

    /// The engine goes away while somebody publishes, and comes back. What was acknowledged before
    /// is known by its key.
    fn outage(&mut self, number: u32, signal: &str) -> Result<(), Failure> {
        self.all_subscribe()?;
        let mut publisher = self.start_publisher(number)?;
        self.engine.stop(signal)?;
        self.engine.start_again()?;
        if !publisher.end(PUBLISH_MAX)?.success() {
            let printed = publisher.printed();
            return Err(Failure::new(format!("{number} is not taken: {printed}")));
        }
        for known in [number - 1, number] {
            if self.publish(EVENTS_TOPIC, known)? {
                let problem = format!("{known} was acknowledged, and is new after {signal}");
                return Err(Failure::new(problem));
            }
        }
        Ok(())
    }

    fn start_publisher(&self, number: u32) -> Result<Process, Failure> {
        let words = self.publication(EVENTS_TOPIC, &number.to_string(), &event(number));
        let command = limited(CLIENT_SECONDS, "curl", words);
        Process::start(&self.folder, &format!("publisher-{number}"), command)
    }

    /// Publishes a number; whether it was new.
    fn publish(&self, topic: &str, number: u32) -> Result<bool, Failure> {
        let words = self.publication(topic, &number.to_string(), &event(number));
        receipt(&run(CLIENT_SECONDS, "curl", words)?)
    }

    /// The words for a curl that tries again while the engine is away.
    fn publication(&self, topic: &str, key: &str, body: &str) -> Vec<String> {
        let seconds = (PUBLISH_MAX.as_secs() - 10).to_string();
        let patience = ["--retry", "100", "--retry-delay", "1", "--retry-max-time"];
        let url = self.url(&format!("/topics/{topic}"));
        let key = format!("Idempotency-Key: {key}");
        let plain = ["--silent", "--show-error", "--fail", "--noproxy", "*"];
        let tried = [&seconds, "--max-time", "10", "--retry-all-errors"];
        let json = ["--header", "Content-Type: application/json", "--header"];
        let sent = [&key, "--data", body, &url];
        let words = plain.into_iter().chain(patience).chain(tried);
        words.chain(json).chain(sent).map(str::to_owned).collect()
    }

    /// Waits until every client is there, so that an outage hits all of them.
    fn all_subscribe(&mut self) -> Result<(), Failure> {
        let mut metrics = String::new();
        let found = wait_for(SUBSCRIBE_MAX, || {
            metrics = self.engine.metrics()?;
            let mut all = SUBSCRIBERS.into_iter();
            let are_there = all.all(|(topic, count)| subscribers(&metrics, topic) >= Some(count));
            Ok(are_there.then_some(()))
        })?;
        found.ok_or_else(|| {
            let counts = SUBSCRIBERS.map(|(topic, _)| subscribers(&metrics, topic));
            let seconds = SUBSCRIBE_MAX.as_secs();
            let wanted = format!("{counts:?} of {SUBSCRIBERS:?}");
            Failure::new(format!("not all subscribe after {seconds} s: {wanted}"))
        })
    }

    /// The lines of every client.
    fn report_clients(&mut self, report: &mut Report) {
        for client in &mut self.clients {
            let name = format!("topics {}", client.name);
            match client.result() {
                Ok(ran) => scripts::lines(report, &name, &ran),
                Err(failure) => report.add(&name, Err(failure)),
            }
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.bench.ports.topics)
    }

    /// A failure of the whole, with what the engine and the clients have said.
    fn with_log(&self, failure: &Failure) -> Failure {
        let clients = self.clients.iter().map(|it| (it.name, &it.process));
        self.engine.with_log(failure, clients)
    }
}

impl Client {
    /// Waits until its lines are there.
    fn result(&mut self) -> Result<Ran, Failure> {
        let ran = wait_for(CLIENT_MAX, || {
            if let Some(text) = self.result.as_ref().and_then(|it| fs::read(it).ok()) {
                return Ok(Some(Ran {
                    succeeded: true,
                    stdout: text,
                    stderr: String::new(),
                }));
            }
            let status = self.process.ended()?;
            Ok(status.map(|status| Ran {
                succeeded: status.success() && self.result.is_none(),
                stdout: self.process.printed().into_bytes(),
                stderr: String::new(),
            }))
        })?;
        ran.ok_or_else(|| Failure::new("it has no result"))
    }
}

/// Two topics on the disk, the page that subscribes to one, and where it sends its result.
fn flows(port: u16) -> String {
    let topic = |name: &str| {
        format!(
            "topic: {name}
payload: event
publish: {{ http: \"POST 127.0.0.1:{port}/topics/{name}\" }}
subscribe: {{ listen: \"127.0.0.1:{port}\", heartbeat: 1s, retry: 200ms }}
"
        )
    };
    let documents = [
        topic(EVENTS_TOPIC),
        topic(TENTHS_TOPIC),
        file_flow(port, "page", "page", "topics.html", "text/html"),
        file_flow(
            port,
            "script",
            "topics.mjs",
            "topics.mjs",
            "text/javascript",
        ),
        result_flow(port),
    ];
    documents.join("---\n")
}

fn event(number: u32) -> String {
    format!("{{\"number\": {number}}}")
}

/// Whether the event of a receipt is new.
pub(super) fn receipt(ran: &Ran) -> Result<bool, Failure> {
    let text = ran.text();
    match (
        text.contains("\"new\":true"),
        text.contains("\"new\":false"),
    ) {
        (true, false) if ran.succeeded => Ok(true),
        (false, true) if ran.succeeded => Ok(false),
        _ => Err(ran.failure("no receipt")),
    }
}

/// How many subscribe to a topic, as the admin port says.
pub(super) fn subscribers(metrics: &str, topic: &str) -> Option<f64> {
    let step = format!("step=\"{topic}\"}}");
    let mut lines = metrics.lines();
    let line = lines.find(|it| it.contains("topic_subscribers{") && it.contains(&step))?;
    line.rsplit(' ').next()?.parse().ok()
}
