//! An origin server that believes nothing: it takes only requests that are byte for byte what
//! RFC 9112 says, and notes whatever is not. Written on its own, apart from the product's codec.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use crate::response::{is_token, latin1};

/// How the violation begins that is nobody's fault: a body that ends with its connection, which
/// nobody takes for a request.
pub(crate) const CUT_BODY: &str = "cut within a body";

/// A request that the back end has taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// The method.
    pub method: String,
    /// The request target.
    pub target: String,
    /// The field lines in order.
    pub headers: Vec<(String, String)>,
    /// The content.
    pub body: Vec<u8>,
    /// The field lines behind a chunked body.
    pub trailers: Vec<(String, String)>,
    /// The number of its connection.
    pub connection: usize,
}

impl Received {
    /// The value of the first line with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// All values of this name.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let same = self
            .headers
            .iter()
            .filter(|(other, _)| other.eq_ignore_ascii_case(name));
        same.map(|(_, value)| value.as_str()).collect()
    }
}

type Fields = Vec<(String, String)>;

/// What the back end has seen.
#[derive(Default)]
struct Log {
    requests: Vec<Received>,
    violations: Vec<String>,
    /// The connections on which something has come that is not a whole request yet.
    unfinished: BTreeSet<usize>,
}

/// What the back end answers to a request: bytes, head included.
type Handler = dyn Fn(&Received) -> Vec<u8> + Send + Sync;

/// The back end. It keeps connections open until the other side or a violation ends them.
pub struct StrictBackend {
    port: u16,
    log: Arc<Mutex<Log>>,
}

impl StrictBackend {
    /// Starts it on a free port. It answers each request with 200 and the request's body.
    pub fn start() -> Self {
        Self::answering(echo)
    }

    /// Starts it on a free port with answers of its own.
    pub fn answering(handler: impl Fn(&Received) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let log: Arc<Mutex<Log>> = Arc::default();
        let shared = Arc::clone(&log);
        let handler: Arc<Handler> = Arc::new(handler);
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let Ok(stream) = stream else { return };
                let (log, handler) = (Arc::clone(&shared), Arc::clone(&handler));
                thread::spawn(move || serve(stream, number, &log, &*handler));
            }
        });
        Self { port, log }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The requests taken so far.
    pub fn requests(&self) -> Vec<Received> {
        self.log.lock().unwrap().requests.clone()
    }

    /// How many requests came on each connection that had one.
    pub fn requests_by_connection(&self) -> BTreeMap<usize, usize> {
        let mut counts = BTreeMap::new();
        for received in &self.log.lock().unwrap().requests {
            *counts.entry(received.connection).or_default() += 1;
        }
        counts
    }

    /// What was wrong with bytes that came.
    pub fn violations(&self) -> Vec<String> {
        self.log.lock().unwrap().violations.clone()
    }

    /// Waits until every connection is closed or at rest between two requests. False when one is
    /// not in this time: then bytes lie on it that the next request would be read behind.
    pub fn settles(&self, patience: Duration) -> bool {
        let start = Instant::now();
        while !self.log.lock().unwrap().unfinished.is_empty() {
            if start.elapsed() > patience {
                return false;
            }
            thread::sleep(Duration::from_millis(1));
        }
        true
    }

    /// Forgets all requests and violations.
    pub fn clear(&self) {
        let mut log = self.log.lock().unwrap();
        log.requests.clear();
        log.violations.clear();
    }
}

fn echo(received: &Received) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nContent-Type: text/plain\r\n\r\n",
        received.body.len()
    );
    let body: &[u8] = match received.method.as_str() {
        "HEAD" => &[],
        _ => &received.body,
    };
    [head.as_bytes(), body].concat()
}

fn serve(stream: TcpStream, connection: usize, log: &Mutex<Log>, handler: &Handler) {
    let mut input = Input {
        stream,
        waiting: Vec::new(),
        connection,
        log,
    };
    loop {
        match request(&mut input) {
            Ok(None) => break,
            Ok(Some(received)) => {
                let answer = handler(&received);
                input.finished(received);
                if input.stream.write_all(&answer).is_err() {
                    break;
                }
            }
            Err(violation) => {
                log.lock().unwrap().violations.push(violation);
                let _ = input.stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
                break;
            }
        }
    }
    log.lock().unwrap().unfinished.remove(&connection);
}

/// Where in a request a line is.
#[derive(Clone, Copy)]
enum Place {
    Start,
    Head,
    Body,
}

struct Input<'a> {
    stream: TcpStream,
    waiting: Vec<u8>,
    connection: usize,
    log: &'a Mutex<Log>,
}

impl Input<'_> {
    /// Notes a request, and whether something has come behind it.
    fn finished(&self, received: Received) {
        let mut log = self.log.lock().unwrap();
        log.requests.push(received);
        if self.waiting.is_empty() {
            log.unfinished.remove(&self.connection);
        }
    }

    fn fill(&mut self) -> bool {
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(count @ 1..) => {
                self.waiting.extend_from_slice(&bytes[..count]);
                self.log.lock().unwrap().unfinished.insert(self.connection);
                true
            }
            _ => false,
        }
    }

    /// A line without its CRLF. None when the connection ends before a request begins.
    fn line(&mut self, place: Place) -> Result<Option<String>, String> {
        loop {
            if let Some(end) = self.waiting.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.waiting.drain(..=end).collect();
                let Some(line) = line.strip_suffix(b"\r\n") else {
                    return Err(format!("a line ends without CRLF: {:?}", latin1(&line)));
                };
                let fits =
                    |byte: &u8| *byte == b'\t' || (0x20..0x7f).contains(byte) || *byte > 0x7f;
                if !line.iter().all(fits) {
                    return Err(format!("control characters in a line: {:?}", latin1(line)));
                }
                return Ok(Some(latin1(line)));
            }
            if !self.fill() {
                return match place {
                    Place::Start if self.waiting.is_empty() => Ok(None),
                    Place::Start | Place::Head => {
                        Err(format!("cut within a head: {:?}", latin1(&self.waiting)))
                    }
                    Place::Body => Err(CUT_BODY.to_owned()),
                };
            }
        }
    }

    fn exactly(&mut self, count: usize) -> Result<Vec<u8>, String> {
        while self.waiting.len() < count {
            if !self.fill() {
                return Err(CUT_BODY.to_owned());
            }
        }
        Ok(self.waiting.drain(..count).collect())
    }
}

fn request(input: &mut Input) -> Result<Option<Received>, String> {
    let Some(line) = input.line(Place::Start)? else {
        return Ok(None);
    };
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words.as_slice() else {
        return Err(format!("no request line: {line:?}"));
    };
    let target_fits = (target.starts_with('/') || (*target == "*" && *method == "OPTIONS"))
        && target
            .bytes()
            .all(|byte| (0x21..0x7f).contains(&byte) && byte != b'#');
    if !is_token(method) || !target_fits || *version != "HTTP/1.1" {
        return Err(format!("no request line: {line:?}"));
    }
    let headers = fields(input, Place::Head)?;
    let mut received = Received {
        method: (*method).to_owned(),
        target: (*target).to_owned(),
        headers,
        body: Vec::new(),
        trailers: Vec::new(),
        connection: input.connection,
    };
    let host = received.all("host");
    if host.len() != 1 || host[0].is_empty() || host[0].contains([' ', ',', '/', '@']) {
        return Err(format!("Host is {host:?}"));
    }
    (received.body, received.trailers) = body(input, &received)?;
    Ok(Some(received))
}

fn fields(input: &mut Input, place: Place) -> Result<Fields, String> {
    let mut headers = Vec::new();
    loop {
        let line = input.line(place)?.unwrap_or_default();
        if line.is_empty() {
            return Ok(headers);
        }
        let Some((name, value)) = line.split_once(':') else {
            return Err(format!("no field: {line:?}"));
        };
        if !is_token(name) {
            return Err(format!("no field name: {line:?}"));
        }
        headers.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
    }
}

fn body(input: &mut Input, received: &Received) -> Result<(Vec<u8>, Fields), String> {
    let (lengths, codings) = (
        received.all("content-length"),
        received.all("transfer-encoding"),
    );
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok((Vec::new(), Vec::new())),
        ([length], []) => {
            if length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(format!("Content-Length is {length:?}"));
            }
            let length = length.parse().map_err(|_| "Content-Length is too large")?;
            Ok((input.exactly(length)?, Vec::new()))
        }
        ([], ["chunked"]) => chunks(input),
        _ => Err(format!("framing is {lengths:?} and {codings:?}")),
    }
}

fn chunks(input: &mut Input) -> Result<(Vec<u8>, Fields), String> {
    let mut content = Vec::new();
    loop {
        let line = input.line(Place::Body)?.unwrap_or_default();
        let is_size = !line.is_empty()
            && line.len() <= 15
            && line.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_size {
            return Err(format!("no chunk size: {line:?}"));
        }
        let size = usize::from_str_radix(&line, 16).map_err(|_| "no chunk size")?;
        if size == 0 {
            break;
        }
        content.extend(input.exactly(size)?);
        if input.exactly(2)? != b"\r\n" {
            return Err("a chunk does not end where its size says".to_owned());
        }
    }
    let trailers = fields(input, Place::Body)?;
    for (name, _) in &trailers {
        let name = name.to_ascii_lowercase();
        if ["content-length", "transfer-encoding", "host", "connection"].contains(&name.as_str()) {
            return Err(format!("the trailer {name}"));
        }
    }
    Ok((content, trailers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RawClient, wait_until};

    const PATIENCE: Duration = Duration::from_secs(10);

    #[test]
    fn it_takes_what_is_right() {
        let backend = StrictBackend::start();
        let mut client = RawClient::connect(backend.port());
        client.send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(client.response().text(), "hi");
        client.send(
            "POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
             2\r\nho\r\n0\r\nX: y\r\n\r\nHEAD /c HTTP/1.1\r\nHost: h\r\n\r\n",
        );
        assert_eq!(client.response().text(), "ho");
        assert_eq!(client.response_to("HEAD").status, 200);
        let mut other = RawClient::connect(backend.port());
        other.send("OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\n\r\n");
        assert_eq!(other.response().status, 200);
        let requests = backend.requests();
        assert_eq!(requests[1].trailers, [("X".to_owned(), "y".to_owned())]);
        assert_eq!(requests[2].target, "/c");
        assert_eq!(
            backend.requests_by_connection(),
            BTreeMap::from([(0, 3), (1, 1)])
        );
        assert_eq!(backend.violations(), Vec::<String>::new());
        assert!(backend.settles(PATIENCE));
    }

    #[test]
    fn it_answers_as_its_handler_says() {
        let backend = StrictBackend::answering(|received| {
            format!(
                "HTTP/1.1 418 {}\r\nContent-Length: 0\r\n\r\n",
                received.target
            )
            .into()
        });
        let mut client = RawClient::connect(backend.port());
        client.send("GET /tea HTTP/1.1\r\nHost: h\r\n\r\n");
        let response = client.response();
        assert_eq!((response.status, response.reason.as_str()), (418, "/tea"));
    }

    #[test]
    fn it_notes_what_is_wrong() {
        const POST: &str = "POST / HTTP/1.1\r\nHost: h\r\n";
        const CHUNKED: &str = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
        let heads = [
            ("GET /  HTTP/1.1\r\nHost: h\r\n\r\n", "no request line"),
            ("GET  / HTTP/1.1\r\nHost: h\r\n\r\n", "no request line"),
            (" GET / HTTP/1.1\r\nHost: h\r\n\r\n", "no request line"),
            ("\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "no request line"),
            ("GET / HTTP/1.0\r\nHost: h\r\n\r\n", "no request line"),
            ("GET / http/1.1\r\nHost: h\r\n\r\n", "no request line"),
            ("G(T / HTTP/1.1\r\nHost: h\r\n\r\n", "no request line"),
            ("GET * HTTP/1.1\r\nHost: h\r\n\r\n", "no request line"),
            ("GET a HTTP/1.1\r\nHost: h\r\n\r\n", "no request line"),
            (
                "GET http://h/ HTTP/1.1\r\nHost: h\r\n\r\n",
                "no request line",
            ),
            ("GET /#a HTTP/1.1\r\nHost: h\r\n\r\n", "no request line"),
            ("GET /\u{e4} HTTP/1.1\r\nHost: h\r\n\r\n", "no request line"),
            (
                "GET /\u{1} HTTP/1.1\r\nHost: h\r\n\r\n",
                "control characters",
            ),
            ("GET / HTTP/1.1\nHost: h\r\n\r\n", "without CRLF"),
            ("GET / HTTP/1.1\r\nHost: h\n\r\n", "without CRLF"),
            (
                "GET / HTTP/1.1\r\nHost: h\rX: y\r\n\r\n",
                "control characters",
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nA: \0\r\n\r\n",
                "control characters",
            ),
            (
                "GET / HTTP/1.1\r\nHost: h\r\nA: \u{7f}\r\n\r\n",
                "control characters",
            ),
            ("GET / HTTP/1.1\r\n\r\n", "Host is"),
            ("GET / HTTP/1.1\r\nHost: \r\n\r\n", "Host is"),
            ("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", "Host is"),
            ("GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", "Host is"),
            ("GET / HTTP/1.1\r\nHost : h\r\n\r\n", "no field name"),
            ("GET / HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n", "no field"),
            ("GET / HTTP/1.1\r\nHost: h\r\n: x\r\n\r\n", "no field name"),
            ("GET / HTTP/1.1\r\nHost: h\r\nA\r\n\r\n", "no field"),
        ];
        let bodies = [
            ("Content-Length: +1\r\n\r\nx", "Content-Length is"),
            ("Content-Length: 1, 1\r\n\r\nx", "Content-Length is"),
            ("Content-Length: \r\n\r\nx", "Content-Length is"),
            (
                "Content-Length: 99999999999999999999\r\n\r\nx",
                "Content-Length is",
            ),
            (
                "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
                "framing is",
            ),
            (
                "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx",
                "framing is",
            ),
            ("Transfer-Encoding: gzip\r\n\r\n", "framing is"),
            ("Transfer-Encoding: gzip, chunked\r\n\r\n", "framing is"),
            ("Transfer-Encoding: Chunked\r\n\r\n", "framing is"),
        ];
        let chunks = [
            ("1;a\r\nx\r\n0\r\n\r\n", "no chunk size"),
            ("0x1\r\nx\r\n0\r\n\r\n", "no chunk size"),
            ("+1\r\nx\r\n0\r\n\r\n", "no chunk size"),
            (" 1\r\nx\r\n0\r\n\r\n", "no chunk size"),
            ("\r\nx\r\n0\r\n\r\n", "no chunk size"),
            ("ffffffffffffffff\r\nx", "no chunk size"),
            ("1\nx\r\n0\r\n\r\n", "without CRLF"),
            ("1\r\nxx\r\n0\r\n\r\n", "does not end"),
            ("0\r\nContent-Length: 1\r\n\r\n", "the trailer"),
            ("0\r\nX : y\r\n\r\n", "no field name"),
        ];
        let backend = StrictBackend::start();
        let samples = heads
            .iter()
            .map(|(text, said)| ((*text).to_owned(), said))
            .chain(
                bodies
                    .iter()
                    .map(|(text, said)| (format!("{POST}{text}"), said)),
            )
            .chain(
                chunks
                    .iter()
                    .map(|(text, said)| (format!("{CHUNKED}{text}"), said)),
            );
        for (text, said) in samples {
            backend.clear();
            let mut client = RawClient::connect(backend.port());
            client.send(&text);
            assert!(client.rest().starts_with(b"HTTP/1.1 400 "), "{text:?}");
            let violations = backend.violations();
            assert!(
                violations.len() == 1 && violations[0].contains(said),
                "{text:?} {violations:?}"
            );
            assert_eq!(backend.requests(), []);
        }
    }

    #[test]
    fn bytes_behind_a_request_are_seen() {
        let backend = StrictBackend::start();
        let mut client = RawClient::connect(backend.port());
        client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\nG");
        assert_eq!(client.response().status, 200);
        assert!(!backend.settles(Duration::from_millis(50)));
        drop(client);
        assert!(backend.settles(PATIENCE));
        assert_eq!(backend.violations(), ["cut within a head: \"G\""]);
    }

    #[test]
    fn cuts_within_heads_and_bodies_are_told_apart() {
        let cases = [
            ("GET / HT", "cut within a head"),
            ("GET / HTTP/1.1\r\nHost: h\r\nX:", "cut within a head"),
            ("GET / HTTP/1.1\r\nHost: h\r\n", "cut within a head"),
            (
                "P / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nx",
                CUT_BODY,
            ),
            (
                "P / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
                CUT_BODY,
            ),
            (
                "P / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx",
                CUT_BODY,
            ),
            (
                "P / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX",
                CUT_BODY,
            ),
        ];
        for (text, said) in cases {
            let backend = StrictBackend::start();
            RawClient::connect(backend.port()).send(text);
            wait_until(text, || !backend.violations().is_empty());
            assert!(backend.violations()[0].starts_with(said), "{text:?}");
        }
    }
}
