//! Requests one after the other on one connection, clear or over TLS: for what is asked beside the
//! load.

use std::io::{Read, Write};
use std::iter::{Skip, StepBy};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use socket2::{Domain, Protocol, Socket, Type};

use crate::bench::http;
use crate::pki;

/// How long an answer may take: a report of many posts is worked out first.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// Has so many threads each do their share of some numbered things; `work` gets the thread's number
/// and its share.
///
/// # Errors
/// What `work` fails with first.
pub(super) fn side_by_side(
    threads: usize,
    all: Range<usize>,
    work: impl Fn(usize, StepBy<Skip<Range<usize>>>) -> anyhow::Result<()> + Sync,
) -> anyhow::Result<()> {
    side_by_side_then(threads, all, work, || ())
}

/// The same; `then` is done when they are through, and still count as threads of this process.
///
/// # Errors
/// The same.
pub(super) fn side_by_side_then<T>(
    threads: usize,
    all: Range<usize>,
    work: impl Fn(usize, StepBy<Skip<Range<usize>>>) -> anyhow::Result<()> + Sync,
    then: impl FnOnce() -> T,
) -> anyhow::Result<T> {
    let through = Barrier::new(threads + 1);
    thread::scope(|scope| {
        let start = |number: usize| {
            let own = all.clone().skip(number).step_by(threads);
            let (work, through) = (&work, &through);
            scope.spawn(move || {
                // Whatever becomes of it, the others are not kept waiting.
                let done = panic::catch_unwind(AssertUnwindSafe(|| work(number, own)));
                through.wait();
                through.wait();
                done
            })
        };
        let started: Vec<_> = (0..threads).map(start).collect();
        through.wait();
        let result = then();
        through.wait();
        started.into_iter().try_for_each(|thread| {
            let ended = thread.join().flatten();
            ended.unwrap_or_else(|_| Err(anyhow::anyhow!("a thread of the load has ended early")))
        })?;
        Ok(result)
    })
}

trait Stream: Read + Write + Send {}

impl<T: Read + Write + Send> Stream for T {}

/// A connection.
pub(super) struct Connection {
    stream: Box<dyn Stream>,
    address: SocketAddr,
    input: Vec<u8>,
    room: Vec<u8>,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Connection {
    /// Connects in clear text, or over TLS where the file of an authority is given.
    ///
    /// # Errors
    /// When nobody listens, or the authority cannot be read.
    pub fn open(address: SocketAddr, authority: Option<&Path>) -> anyhow::Result<Self> {
        let stream =
            TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        Self::of(stream, address, authority)
    }

    /// Connects from an address of the loopback network, of 240, so that the peer sees several
    /// callers.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn open_from(caller: usize, address: SocketAddr) -> anyhow::Result<Self> {
        let last = u8::try_from(caller % 240 + 2)?;
        let source = SocketAddr::from((IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)), 0));
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        socket.bind(&source.into())?;
        socket.connect(&address.into())?;
        Self::of(socket.into(), address, None)
    }

    fn of(
        stream: TcpStream,
        address: SocketAddr,
        authority: Option<&Path>,
    ) -> anyhow::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        let stream: Box<dyn Stream> = match authority {
            None => Box::new(stream),
            Some(file) => {
                let config = pki::client_config(file, &["http/1.1".to_owned()])?;
                let name = ServerName::from(address.ip());
                Box::new(StreamOwned::new(
                    ClientConnection::new(config, name)?,
                    stream,
                ))
            }
        };
        Ok(Self {
            stream,
            address,
            input: Vec::new(),
            room: vec![0; 64 * 1024],
        })
    }

    /// Asks for a path.
    ///
    /// # Errors
    /// When no answer comes.
    pub fn get(&mut self, path: &str) -> anyhow::Result<Answer> {
        let address = self.address;
        self.send(format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes())
    }

    /// Posts a body. `fields` are header lines with their ends.
    ///
    /// # Errors
    /// When no answer comes.
    pub fn post(&mut self, path: &str, fields: &str, body: &str) -> anyhow::Result<Answer> {
        let (address, length) = (self.address, body.len());
        let request = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: {length}\r\n\
             {fields}\r\n{body}"
        );
        self.send(request.as_bytes())
    }

    fn send(&mut self, request: &[u8]) -> anyhow::Result<Answer> {
        self.stream.write_all(request)?;
        self.stream.flush()?;
        let mut chunks = Vec::new();
        loop {
            if let Some((status, size)) = http::reply(&self.input, &mut chunks)? {
                let head = http::head(&self.input)?.map_or(size, |head| head.size);
                let body = match chunks.is_empty() {
                    true => self.input.get(head..size).unwrap_or_default().to_vec(),
                    false => chunks,
                };
                self.input.drain(..size);
                return Ok(Answer { status, body });
            }
            let count = self.stream.read(&mut self.room)?;
            anyhow::ensure!(count > 0, "{} closed the connection", self.address);
            let bytes = self.room.get(..count).unwrap_or_default();
            self.input.extend_from_slice(bytes);
        }
    }
}

impl Answer {
    /// The body of an answer that must have this status.
    ///
    /// # Errors
    /// When it has another one, with the beginning of the body.
    pub fn body_of(self, status: u16) -> anyhow::Result<Vec<u8>> {
        let shown = self.body.get(..self.body.len().min(300));
        anyhow::ensure!(
            self.status == status,
            "{} instead of {status}: {}",
            self.status,
            String::from_utf8_lossy(shown.unwrap_or_default())
        );
        Ok(self.body)
    }
}

/// A form as a body (WHATWG URL section 5).
pub(super) fn form(pairs: &[(&str, &str)]) -> String {
    let encode = |text: &str| -> String {
        let letter = |byte: u8| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        };
        text.bytes().map(letter).collect()
    };
    let pairs = pairs
        .iter()
        .map(|(name, value)| format!("{name}={}", encode(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// The sum of a metric over all its labels, as `/metrics` has it.
pub(super) fn metric(text: &str, name: &str) -> Option<f64> {
    let values = text.lines().filter_map(|line| {
        let rest = line.strip_prefix(name)?;
        let value = match rest.strip_prefix('{') {
            Some(labels) => labels.rsplit('}').next()?,
            None => rest,
        };
        let value = value.strip_prefix(' ')?;
        value.split_ascii_whitespace().next()?.parse::<f64>().ok()
    });
    let values: Vec<f64> = values.collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stub;

    #[test]
    fn answers_are_read_one_after_the_other() {
        let address = stub::spawn("echo", &[]).unwrap();
        let mut connection = Connection::open_from(7, address).unwrap();
        for body in ["one", "two"] {
            let answer = connection.post("/", "X: y\r\n", body).unwrap();
            assert_eq!(answer.body_of(200).unwrap(), body.as_bytes());
        }
        let error = connection.get("/").unwrap().body_of(204).unwrap_err();
        assert!(
            error.to_string().starts_with("200 instead of 204"),
            "{error}"
        );
    }

    #[test]
    fn sinks_are_asked_over_tls() {
        let folder = std::env::temp_dir().join(format!("lab-ask-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let identity = pki::Identity::make(&folder).unwrap();
        let [cert, key] = [&identity.cert, &identity.key].map(|path| path.to_str().unwrap());
        let address = stub::spawn("webhook-sink", &["--cert", cert, "--key", key]).unwrap();
        let mut connection = Connection::open(address, Some(&identity.ca)).unwrap();
        let body = connection.get("/count").unwrap().body_of(200).unwrap();
        assert_eq!(body, br#"{"posts":0,"accepted":0}"#);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn forms_and_metrics() {
        let form = form(&[("hub.mode", "subscribe"), ("hub.topic", "http://a/b?c")]);
        assert_eq!(form, "hub.mode=subscribe&hub.topic=http%3A%2F%2Fa%2Fb%3Fc");
        let text = "# TYPE a gauge\na{x=\"1}\"} 2\na{x=\"2\"} 3\nab 7\nb 4.5\n";
        assert_eq!(metric(text, "a"), Some(5.0));
        assert_eq!((metric(text, "b"), metric(text, "c")), (Some(4.5), None));
    }
}
