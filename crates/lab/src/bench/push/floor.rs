//! The floor of push delivery: a loop that sends what is posted to a topic to all endpoints of that
//! topic, each over a connection of its own that is kept, and signs it for each as Standard
//! Webhooks 1.0 has it. Nothing is kept, and nothing is repeated.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;

use anyhow::Context;
use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use super::case::Kind;
use super::flow;
use crate::bench::http;
use crate::stamp;
use crate::wire::{BodyLength, body_length, invalid};

const LISTENER: Token = Token(usize::MAX);
/// Tokens of publishers begin here.
const PUBLISHERS: usize = 1 << 32;
const ACCEPTED: &[u8] = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
const FIELDS_MAX: usize = 64;
/// One read takes so many bytes at most.
const ROOM: usize = 256 * 1024;

/// Arguments of the hidden `intertie-bench push-loop`.
#[derive(Debug, clap::Args)]
pub(crate) struct PushLoopArgs {
    /// Where to listen for publishers.
    #[arg(long)]
    listen: SocketAddr,
    /// Where the endpoints are.
    #[arg(long)]
    to: SocketAddr,
    /// How many there are, of all topics.
    #[arg(long)]
    endpoints: usize,
    /// How many topics there are.
    #[arg(long, default_value_t = 1)]
    topics: usize,
    /// Sign each request with the secret of its endpoint.
    #[arg(long)]
    sign: bool,
}

/// Serves until it is stopped.
///
/// # Errors
/// When it cannot listen, or an endpoint is not there.
pub(crate) fn run(args: &PushLoopArgs) -> anyhow::Result<()> {
    crate::bench::process::allow_files()?;
    // Publishers are let in when all endpoints are connected.
    let server = Server::new(args)?;
    serve(server, crate::stub::listen(args.listen)?)
}

fn serve(mut server: Server, listener: std::net::TcpListener) -> anyhow::Result<()> {
    server.listen(listener)?;
    loop {
        server.turn()?;
    }
}

/// An event that goes to all endpoints of a topic.
struct Event {
    id: String,
    /// In seconds since 1970.
    timestamp: String,
    body: Vec<u8>,
}

/// An endpoint: at most one request at a time, in the order of events.
struct Endpoint {
    stream: TcpStream,
    /// The request line and the fields that never change.
    start: Vec<u8>,
    key: Option<hmac::Key>,
    waiting: VecDeque<Rc<Event>>,
    sent: Option<Rc<Event>>,
    /// The head of what is sent, and how many bytes of head and body are out.
    head: Vec<u8>,
    written: usize,
    input: Vec<u8>,
}

struct Publisher {
    stream: TcpStream,
    input: Vec<u8>,
    out: Vec<u8>,
}

struct Server {
    poll: Poll,
    events: Events,
    listener: Option<TcpListener>,
    publishers: Vec<Option<Publisher>>,
    endpoints: Vec<Endpoint>,
    topics: usize,
    /// How many events there were.
    count: u64,
    room: Vec<u8>,
}

impl Server {
    fn new(args: &PushLoopArgs) -> anyhow::Result<Self> {
        let poll = Poll::new()?;
        let mut endpoints = Vec::with_capacity(args.endpoints);
        for number in 0..args.endpoints {
            let mut endpoint = Endpoint::connect(args, number)
                .with_context(|| format!("endpoint {number} is not there"))?;
            let interest = Interest::READABLE | Interest::WRITABLE;
            poll.registry()
                .register(&mut endpoint.stream, Token(number), interest)?;
            endpoints.push(endpoint);
        }
        Ok(Self {
            poll,
            events: Events::with_capacity(1024),
            listener: None,
            publishers: Vec::new(),
            endpoints,
            topics: args.topics.max(1),
            count: 0,
            room: vec![0; ROOM],
        })
    }

    fn listen(&mut self, listener: std::net::TcpListener) -> io::Result<()> {
        let mut listener = TcpListener::from_std(listener);
        self.poll
            .registry()
            .register(&mut listener, LISTENER, Interest::READABLE)?;
        self.listener = Some(listener);
        Ok(())
    }

    /// Waits for what comes, and does it.
    fn turn(&mut self) -> anyhow::Result<()> {
        if let Err(error) = self.poll.poll(&mut self.events, None) {
            return match error.kind() {
                io::ErrorKind::Interrupted => Ok(()),
                _ => Err(error.into()),
            };
        }
        let ready: Vec<(Token, bool)> = self
            .events
            .iter()
            .map(|event| (event.token(), event.is_readable()))
            .collect();
        for (token, is_readable) in ready {
            if token == LISTENER {
                self.accept()?;
            } else if let Some(index) = token.0.checked_sub(PUBLISHERS) {
                if self.read_publisher(index).is_err()
                    && let Some(publisher) = self.publishers.get_mut(index)
                {
                    *publisher = None;
                }
            } else if let Some(endpoint) = self.endpoints.get_mut(token.0) {
                if is_readable {
                    endpoint.read(&mut self.room)?;
                }
                endpoint.go_on()?;
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Some(listener) = &self.listener {
            let (mut stream, _) = match listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            let token = Token(PUBLISHERS + self.publishers.len());
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll
                .registry()
                .register(&mut stream, token, interest)?;
            self.publishers.push(Some(Publisher {
                stream,
                input: Vec::new(),
                out: Vec::new(),
            }));
        }
        Ok(())
    }

    fn read_publisher(&mut self, index: usize) -> anyhow::Result<()> {
        let Some(Some(publisher)) = self.publishers.get_mut(index) else {
            return Ok(());
        };
        read_all(&mut publisher.stream, &mut publisher.input, &mut self.room)?;
        while let Some((topic, body, size)) = request(&publisher.input)? {
            self.count += 1;
            let event = Rc::new(Event {
                id: format!("floor-{}", self.count),
                timestamp: (stamp::now() / 1_000_000).to_string(),
                body: publisher.input.get(body..size).unwrap_or_default().to_vec(),
            });
            publisher.input.drain(..size);
            publisher.out.extend_from_slice(ACCEPTED);
            let own = self.endpoints.iter_mut().skip(topic - 1);
            for endpoint in own.step_by(self.topics) {
                endpoint.waiting.push_back(Rc::clone(&event));
                endpoint.go_on()?;
            }
        }
        let count = write_some(&mut publisher.stream, &publisher.out, &[])?;
        publisher.out.drain(..count);
        Ok(())
    }
}

impl Endpoint {
    fn connect(args: &PushLoopArgs, number: usize) -> anyhow::Result<Self> {
        let stream = std::net::TcpStream::connect(args.to)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let segment = flow::segment(number);
        let secret = flow::secret(Kind::Webhooks, &segment);
        let encoded = secret.trim_start_matches("whsec_");
        let key = STANDARD.decode(encoded);
        let key = key.map_err(|error| anyhow::anyhow!("a secret that is no Base64: {error}"))?;
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let start = format!(
            "POST /e/{segment} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n",
            args.to
        );
        Ok(Self {
            stream: TcpStream::from_std(stream),
            start: start.into_bytes(),
            key: args.sign.then_some(key),
            waiting: VecDeque::new(),
            sent: None,
            head: Vec::new(),
            written: 0,
            input: Vec::new(),
        })
    }

    /// Writes what can be written: the rest of a request, or the next one.
    fn go_on(&mut self) -> io::Result<()> {
        if self.sent.is_none()
            && let Some(event) = self.waiting.pop_front()
        {
            self.begin(&event);
            self.sent = Some(event);
        }
        let Some(event) = &self.sent else {
            return Ok(());
        };
        let head = self.head.get(self.written..).unwrap_or_default();
        let at = self.written.saturating_sub(self.head.len());
        let body = event.body.get(at..).unwrap_or_default();
        self.written += write_some(&mut self.stream, head, body)?;
        Ok(())
    }

    /// Makes the head of a request, with the signature.
    fn begin(&mut self, event: &Event) {
        self.written = 0;
        self.head.clear();
        self.head.extend_from_slice(&self.start);
        // invariant: writing to a Vec does not fail.
        let _ = write!(
            self.head,
            "Content-Length: {}\r\nwebhook-id: {}\r\nwebhook-timestamp: {}\r\n",
            event.body.len(),
            event.id,
            event.timestamp
        );
        if let Some(key) = &self.key {
            let mut context = hmac::Context::with_key(key);
            for part in [
                event.id.as_bytes(),
                b".",
                event.timestamp.as_bytes(),
                b".",
                &event.body,
            ] {
                context.update(part);
            }
            let tag = STANDARD.encode(context.sign());
            let _ = write!(self.head, "webhook-signature: v1,{tag}\r\n");
        }
        self.head.extend_from_slice(b"\r\n");
    }

    /// Takes answers: any 2xx, or the loop ends.
    fn read(&mut self, room: &mut [u8]) -> anyhow::Result<()> {
        read_all(&mut self.stream, &mut self.input, room)?;
        let mut chunks = Vec::new();
        while !self.input.is_empty() {
            let Some((status, size)) = http::reply(&self.input, &mut chunks)? else {
                break;
            };
            anyhow::ensure!(
                (200..300).contains(&status),
                "an endpoint answered {status}"
            );
            self.input.drain(..size);
            self.sent = None;
            self.go_on()?;
        }
        Ok(())
    }
}

/// Reads until nothing is left, or the stream ends.
fn read_all(stream: &mut TcpStream, input: &mut Vec<u8>, room: &mut [u8]) -> io::Result<()> {
    loop {
        match stream.read(room) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => input.extend_from_slice(room.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Writes two pieces as far as the socket takes them, and returns how many bytes it has taken.
fn write_some(stream: &mut TcpStream, mut first: &[u8], mut second: &[u8]) -> io::Result<usize> {
    let mut written = 0;
    while !first.is_empty() || !second.is_empty() {
        match stream.write_vectored(&[IoSlice::new(first), IoSlice::new(second)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                written += count;
                let of_first = count.min(first.len());
                first = first.get(of_first..).unwrap_or_default();
                second = second.get(count - of_first..).unwrap_or_default();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(written)
}

/// The publication at the beginning, once it is whole: its topic from 1, where its body begins, and
/// its size.
fn request(bytes: &[u8]) -> io::Result<Option<(usize, usize, usize)>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut fields);
    let status = parsed.parse(bytes);
    let status = status.map_err(|error| invalid(&error.to_string()))?;
    let httparse::Status::Complete(head) = status else {
        return Ok(None);
    };
    let BodyLength::Exactly(length) = body_length(parsed.headers)? else {
        return Err(invalid("a publication without a length"));
    };
    let path = parsed.path.unwrap_or_default();
    let topic = path
        .strip_prefix("/topics/t")
        .and_then(|it| it.parse().ok());
    let topic = topic.filter(|it| *it > 0);
    let topic = topic.ok_or_else(|| invalid("there is no such topic"))?;
    let size = head + length;
    Ok((bytes.len() >= size).then_some((topic, head, size)))
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::bench::ask::Connection;
    use crate::stub::{self, SinkReport};

    #[test]
    fn what_is_posted_comes_signed_to_all_endpoints_of_the_topic() {
        let secret = flow::secret(Kind::Webhooks, "{}");
        let to = stub::spawn("webhook-sink", &["--secret", &secret]).unwrap();
        let args = PushLoopArgs {
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            to,
            endpoints: 4,
            topics: 2,
            sign: true,
        };
        let listener = stub::listen(args.listen).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || serve(Server::new(&args)?, listener));
        let mut publisher = Connection::open(address, None).unwrap();
        for number in 1..=5 {
            for topic in 1..=2 {
                let mut body = Vec::new();
                stamp::write(number, stamp::now(), 300_000, &mut body);
                let body = String::from_utf8(body).unwrap();
                let path = flow::topic_path(topic);
                let answer = publisher.post(&path, "", &body).unwrap();
                assert_eq!(answer.status, 202);
            }
        }
        let mut sink = Connection::open(to, None).unwrap();
        let begun = Instant::now();
        let report = loop {
            let path = "/report?first=1&last=5&endpoints=4";
            let body = sink.get(path).unwrap().body_of(200).unwrap();
            let report: SinkReport = serde_json::from_slice(&body).unwrap();
            if report.accepted == 20 || begun.elapsed() > Duration::from_secs(20) {
                break report;
            }
            thread::sleep(Duration::from_millis(10));
        };
        let wrong = [
            report.missing,
            report.duplicates,
            report.disordered,
            report.changed,
        ];
        assert_eq!((report.accepted, wrong), (20, [0; 4]));
        let signatures = report.signatures.unwrap();
        assert_eq!(
            (signatures.good, signatures.bad, signatures.absent),
            (20, 0, 0)
        );
    }
}
