//! Pages in Chromium follow a locked topic by tickets: with `EventSource` and `WebSocket`, which
//! come again with the cookie, and with the script of the guide from another site, to which no
//! cookie goes. Meanwhile the engine is killed, and stopped in order, and started again, a proxy
//! before it cuts all connections, and credentials expire. Each must have every event once, in
//! order.

use std::fs;
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::bench::Bench;
use super::engine::{Engine, Ports, RESULT, file_flow, result_flow};
use super::process::{Process, free_port, wait_for};
use super::report::Report;
use super::run::{Ran, limited, run};
use super::scripts;
use super::topics::{receipt, subscribers};
use crate::command::Failure;

/// What is published: `{"number": 0}` and so on.
const EVENTS: u32 = 200;
/// What happens before which events.
const DISTURBANCES: [(u32, Disturbance); 5] = [
    (30, Disturbance::Cut),
    (60, Disturbance::Restart("KILL")),
    // Longer than the credentials of the page last.
    (90, Disturbance::Silence),
    (120, Disturbance::Cut),
    (150, Disturbance::Restart("TERM")),
];
const SILENCE: Duration = Duration::from_secs(10);
const SUBSCRIBERS: f64 = 3.0;
const SUBSCRIBE_MAX: Duration = Duration::from_secs(60);
const PAGE_SECONDS: u32 = 270;
const PAGE_MAX: Duration = Duration::from_secs(280);
/// The guide whose last script is the one for pages without cookies.
const GUIDE: &str = "docs/guides/browsers.md";

#[derive(Clone, Copy)]
enum Disturbance {
    /// The proxy closes all connections.
    Cut,
    /// The engine ends by this signal and starts again.
    Restart(&'static str),
    /// Nothing is published for a while.
    Silence,
}

pub fn check(bench: &Bench, report: &mut Report) {
    if !bench.has_flows() {
        return report.add("browsers", Ok("not asked: it has no topics".to_owned()));
    }
    let mut scene = match Scene::start(bench) {
        Ok(scene) => scene,
        Err(failure) => return report.add("browsers", Err(failure)),
    };
    let outcome = scene.play();
    let is_played = outcome.is_ok();
    let outcome = outcome.map_err(|it| scene.with_log(&it));
    report.add("browsers: restarts, cuts and expired credentials", outcome);
    if is_played {
        match scene.result() {
            Ok(ran) => scripts::lines(report, "browsers", &ran),
            Err(failure) => report.add("browsers", Err(scene.with_log(&failure))),
        }
    }
}

struct Scene<'a> {
    page: Process,
    engine: Engine<'a>,
    proxy: Proxy,
    folder: PathBuf,
    /// The port of the flows.
    port: u16,
}

impl<'a> Scene<'a> {
    fn start(bench: &'a Bench) -> Result<Self, Failure> {
        let folder = bench.folder.join("browsers");
        fs::create_dir(&folder)?;
        for page in ["browsers.html", "browsers.mjs"] {
            fs::copy(bench.script(page), folder.join(page))?;
        }
        let guide = fs::read_to_string(bench.root.join(GUIDE))?;
        fs::write(folder.join("follow.mjs"), script(&guide)?)?;
        let ports = Ports {
            flows: free_port()?,
            admin: free_port()?,
        };
        let proxy = Proxy::start(ports.flows)?;
        let flows = flows(ports.flows, proxy.port);
        let engine = Engine::start(bench, &folder, ports, &flows)?;
        let plain = scripts::CHROMIUM.split_ascii_whitespace();
        let profile = format!("--user-data-dir={}", bench.file("chromium-browsers"));
        let url = format!("http://127.0.0.1:{}/page?count={EVENTS}", proxy.port);
        let words = plain.chain(["--log-level=3", &profile, &url]);
        let command = limited(PAGE_SECONDS, Path::new("chromium"), words);
        Ok(Self {
            page: Process::start(&folder, "chromium", command)?,
            engine,
            proxy,
            folder,
            port: ports.flows,
        })
    }

    /// Publishes everything while connections and the engine come and go.
    fn play(&mut self) -> Result<String, Failure> {
        self.all_subscribe()?;
        for number in 0..EVENTS {
            if let Some((_, disturbance)) = DISTURBANCES.iter().find(|it| it.0 == number) {
                self.disturb(*disturbance)?;
            }
            self.publish(&format!("{{\"number\": {number}}}"))?;
        }
        self.publish("{\"end\": true}")?;
        Ok(format!("{EVENTS} events published"))
    }

    fn disturb(&mut self, disturbance: Disturbance) -> Result<(), Failure> {
        self.all_subscribe()?;
        match disturbance {
            Disturbance::Cut => self.proxy.cut(),
            Disturbance::Silence => thread::sleep(SILENCE),
            Disturbance::Restart(signal) => {
                self.engine.stop(signal)?;
                self.engine.start_again()?;
            }
        }
        Ok(())
    }

    fn publish(&self, body: &str) -> Result<(), Failure> {
        let url = format!("http://127.0.0.1:{}/topics/events", self.port);
        let plain = ["--silent", "--show-error", "--fail", "--noproxy", "*"];
        let json = ["--header", "Content-Type: application/json", "--data"];
        let words = plain.into_iter().chain(json).chain([body, &url]);
        receipt(&run(20, "curl", words)?)?;
        Ok(())
    }

    /// Waits until every client is there, so that a disturbance hits all of them.
    fn all_subscribe(&self) -> Result<(), Failure> {
        let mut count = None;
        let found = wait_for(SUBSCRIBE_MAX, || {
            count = subscribers(&self.engine.metrics()?, "events");
            Ok((count >= Some(SUBSCRIBERS)).then_some(()))
        })?;
        found.ok_or_else(|| Failure::new(format!("{count:?} of {SUBSCRIBERS} subscribe")))
    }

    /// The lines of the page.
    fn result(&mut self) -> Result<Ran, Failure> {
        let ran = wait_for(PAGE_MAX, || {
            let text = fs::read(self.folder.join(RESULT)).ok();
            let is_over = self.page.ended()?.is_some();
            let of = |stdout| Ran {
                succeeded: true,
                stdout,
                stderr: String::new(),
            };
            Ok(match text {
                Some(text) => Some(of(text)),
                None => is_over.then(Ran::default),
            })
        })?;
        ran.ok_or_else(|| Failure::new("the page has no result"))
    }

    fn with_log(&self, failure: &Failure) -> Failure {
        self.engine.with_log(failure, [("chromium", &self.page)])
    }
}

/// The last script of the guide.
fn script(guide: &str) -> Result<String, Failure> {
    let blocks = guide.rsplit_once("```js\n");
    let block = blocks.and_then(|(_, rest)| rest.split_once("```"));
    let block = block.ok_or_else(|| Failure::new(format!("no script in {GUIDE}")))?;
    Ok(block.0.to_owned())
}

/// The topic, the page that subscribes to it, and where it sends its result. Browsers see the port
/// of the proxy.
fn flows(port: u16, proxy: u16) -> String {
    let engine = "engine:
  auth:
    staff:
      jwt: { issuer: 'https://id.example', audience: shop, clock_skew: 0s, secret: 'a secret of the issuer that has more than 32 bytes' }
";
    let topic = format!(
        "topic: events
payload: event
publish: {{ auth: none, http: \"POST 127.0.0.1:{port}/topics/events\" }}
subscribe:
  listen: \"127.0.0.1:{port}\"
  auth: staff
  heartbeat: 1s
  retry: 200ms
  cors: {{ origins: [\"http://127.0.0.1:{proxy}\"] }}
"
    );
    let script = |name, file| file_flow(port, name, file, file, "text/javascript");
    let documents = [
        engine.to_owned(),
        topic,
        file_flow(port, "page", "page", "browsers.html", "text/html"),
        script("script", "browsers.mjs"),
        script("follow", "follow.mjs"),
        result_flow(port),
    ];
    documents.join("---\n")
}

/// Passes bytes on to the engine, and cuts all connections when told to.
struct Proxy {
    port: u16,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    fn start(to: u16) -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let connections = Arc::new(Mutex::new(Vec::new()));
        let known = Arc::clone(&connections);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // Without the engine the connection ends, as behind every proxy.
                let Ok(server) = TcpStream::connect(("127.0.0.1", to)) else {
                    continue;
                };
                let pairs = [
                    (client.try_clone(), server.try_clone()),
                    (server.try_clone(), client.try_clone()),
                ];
                known
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .extend([client, server]);
                for (from, to) in pairs {
                    if let (Ok(from), Ok(to)) = (from, to) {
                        thread::spawn(move || pass(from, to));
                    }
                }
            }
        });
        Ok(Self { port, connections })
    }

    fn cut(&self) {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for connection in connections.drain(..) {
            // One that has ended already needs no end.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// Passes bytes on until either side ends; then both do.
fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
