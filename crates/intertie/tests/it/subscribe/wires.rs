//! Every event in order on every way to a subscriber, read by clients that others have made: curl
//! for HTTP/1.1 and HTTP/2, with TLS and gzip; Python's websockets for `permessage-deflate`.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use testkit::servers::websocket_reader;
use testkit::{Authority, Process, TempDir, free_port};

use super::publish;
use crate::support::Engine;

/// How many events there are.
const EVENTS: u64 = 120;

/// A topic of events that is published to at one address and read at another.
struct Place {
    folder: TempDir,
    publish: u16,
    listen: u16,
    is_tls: bool,
    engine: Engine,
}

impl Place {
    fn start(is_tls: bool) -> Self {
        let folder = TempDir::new();
        let (publish, listen) = (free_port(), free_port());
        let authority = Authority::new("ours");
        let issued = authority.issue(&["localhost"]);
        let cert = folder.write("server.pem", &issued.cert);
        let key = folder.write("server.key", &issued.key);
        folder.write("ca.pem", authority.pem());
        let secured = match is_tls {
            true => format!(
                "tls: {{ cert: '{}', key: '{}' }}",
                cert.display(),
                key.display()
            ),
            false => "protocols: [h2, http/1.1]".to_owned(),
        };
        // Nobody is cut for being slow: the machine may be busy.
        let file = folder.write(
            "topics.yaml",
            &format!(
                "topic: events\npayload: event\ndurability: memory\nkeep: {{ bytes: 256MiB }}\n\
                 publish: {{ http: 'POST localhost:{publish}/topics/events' }}\n\
                 subscribe:\n  listen: 'localhost:{listen}'\n  {secured}\n  compression: true\n  \
                 slow: {{ buffer: 256MiB, time: 5m }}\n"
            ),
        );
        let engine = Engine::run(&[&file], &[]);
        Self {
            folder,
            publish,
            listen,
            is_tls,
            engine,
        }
    }

    fn url(&self, scheme: &str, way: &str, query: &str) -> String {
        let secure = if self.is_tls { "s" } else { "" };
        let port = self.listen;
        format!("{scheme}{secure}://localhost:{port}/topics/events/{way}{query}")
    }

    fn curl(&self, is_h2: bool, is_gzip: bool, query: &str) -> Process {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--no-buffer", "--include"]);
        command
            .arg("--cacert")
            .arg(self.folder.path().join("ca.pem"));
        command.arg(match (is_h2, self.is_tls) {
            (false, _) => "--http1.1",
            (true, true) => "--http2",
            (true, false) => "--http2-prior-knowledge",
        });
        if is_gzip {
            command.arg("--compressed");
        }
        command.arg(self.url("http", "sse", query));
        Process::start(&mut command)
    }

    fn websocket(&self, is_deflate: bool, query: &str) -> Process {
        let ca = self.folder.path().join("ca.pem");
        websocket_reader(&self.url("ws", "ws", query), &ca, is_deflate)
    }

    /// Readers of every kind, with what their heads have to say.
    fn readers(&self, query: &str) -> Vec<Reader> {
        let mut readers = Vec::new();
        for (is_h2, is_compressed) in [(false, false), (false, true), (true, false), (true, true)] {
            readers.push(Reader {
                process: self.curl(is_h2, is_compressed, query),
                head: [
                    if is_h2 { "HTTP/2 200" } else { "HTTP/1.1 200" },
                    "content-encoding: gzip",
                ],
                is_compressed,
                is_websocket: false,
            });
        }
        for is_compressed in [false, true] {
            readers.push(Reader {
                process: self.websocket(is_compressed, query),
                head: ["extensions ", "permessage-deflate"],
                is_compressed,
                is_websocket: true,
            });
        }
        readers
    }
}

/// A client that reads.
struct Reader {
    process: Process,
    /// What its head says, and what it says besides when events are compressed.
    head: [&'static str; 2],
    is_compressed: bool,
    is_websocket: bool,
}

impl Reader {
    /// Whether the stream has begun.
    fn has_begun(&self) -> bool {
        let text = self.process.output();
        match self.is_websocket {
            true => text.contains("\"type\":\"subscribed\""),
            false => text.contains("retry: "),
        }
    }

    /// How many events have come.
    fn count(&self) -> u64 {
        self.process.stdout().matches("\"end\"]}").count() as u64
    }

    /// The numbers of the ids, and the events.
    fn events(&self) -> Vec<(u64, String)> {
        let text = self.process.stdout();
        let number = |id: &str| id.rsplit_once('-').unwrap().1.parse::<u64>().unwrap();
        if self.is_websocket {
            let events = text.lines().filter_map(|it| it.strip_prefix("{\"id\":\""));
            let events = events.filter(|it| it.contains("\"type\":\"event\""));
            let event = |it: &str| {
                let (id, rest) = it.split_once('"').unwrap();
                let (_, data) = rest.split_once("\"data\":").unwrap();
                (number(id), data.strip_suffix('}').unwrap().to_owned())
            };
            return events.map(event).collect();
        }
        let (_, body) = text.replace("\r\n", "\n").split_once("\n\n").map_or_else(
            || panic!("no head: {text}"),
            |(head, body)| (head.to_owned(), body.to_owned()),
        );
        let blocks = body
            .split("\n\n")
            .filter(|it| it.contains("event: event\n"));
        let event = |block: &str| {
            let field = |name: &str| {
                let line = block.lines().find_map(|line| line.strip_prefix(name));
                line.unwrap_or_else(|| panic!("no {name}in {block}"))
                    .to_owned()
            };
            (number(&field("id: ")), field("data: "))
        };
        blocks.map(event).collect()
    }

    /// Checks what has come and how it has ended.
    fn check(mut self, expected: &[(u64, String)], what: &str) {
        let status = self.process.wait();
        let (out, errors) = (self.process.stdout(), self.process.stderr());
        let kind = format!("{what} {:?} {}: {errors}", self.head, self.is_compressed);
        assert!(status.success(), "{kind}");
        assert!(out.starts_with(self.head[0]), "{kind}: {:.300}", out);
        let begin = out.get(..1000).unwrap_or(&out).to_ascii_lowercase();
        assert_eq!(begin.contains(self.head[1]), self.is_compressed, "{kind}");
        if self.is_websocket {
            assert!(out.ends_with("closed 1001\n"), "{kind}");
        }
        let events = self.events();
        let numbers = |it: &[(u64, String)]| it.iter().map(|it| it.0).collect::<Vec<_>>();
        assert_eq!(numbers(&events), numbers(expected), "{kind}");
        assert!(events == expected, "{kind}: not as they were published");
    }
}

/// Most of some bytes, and some that are larger than what HTTP/2 and sockets take at once.
fn event(number: u64) -> String {
    let length = match number % 40 {
        7 => 200_000,
        other => other * 17,
    };
    let pad: String = (0..length)
        .map(|at| char::from(b'a' + ((at * at + number) % 13) as u8))
        .collect();
    format!("{{\"n\":{number},\"pad\":[\"{pad}\",\"end\"]}}")
}

fn wait_long(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < Duration::from_secs(90), "in vain: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn every_reader_gets_every_event(is_tls: bool) {
    let place = Place::start(is_tls);
    let expected: Vec<(u64, String)> = (1..=EVENTS).map(|it| (it, event(it))).collect();
    let mut readers = place.readers("");
    for reader in &readers {
        wait_long("it has begun", || {
            assert!(
                reader.process.stderr().is_empty(),
                "{}",
                reader.process.output()
            );
            reader.has_begun()
        });
    }
    let (early, late) = expected.split_at(expected.len() / 2);
    for (_, event) in early {
        publish(place.publish, "events", event);
    }
    // These get half of them out of the history, while more are coming.
    readers.extend(place.readers("?from=earliest"));
    for (_, event) in late {
        publish(place.publish, "events", event);
    }
    for reader in &readers {
        wait_long("all is there", || reader.count() >= EVENTS);
    }
    let Place { engine, .. } = place;
    engine.stop();
    for (at, reader) in readers.into_iter().enumerate() {
        reader.check(&expected, &format!("reader {at}"));
    }
}

#[test]
fn every_event_comes_in_order_without_tls() {
    every_reader_gets_every_event(false);
}

#[test]
fn every_event_comes_in_order_with_tls() {
    every_reader_gets_every_event(true);
}
