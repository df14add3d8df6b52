//! An origin server that believes nothing: it takes only requests that are byte for byte what
//! RFC 9112 says, and notes whatever is not. Written on its own, apart from the product's codec.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

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

/// What the back end has seen.
#[derive(Default)]
struct Log {
    requests: Vec<Received>,
    violations: Vec<String>,
}

/// The back end. It answers each request with 200 and the request's body.
pub struct StrictBackend {
    port: u16,
    log: Arc<Mutex<Log>>,
}

impl StrictBackend {
    /// Starts it on a free port.
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let log: Arc<Mutex<Log>> = Arc::default();
        let shared = Arc::clone(&log);
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let Ok(stream) = stream else { return };
                let log = Arc::clone(&shared);
                thread::spawn(move || serve(stream, number, &log));
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

    /// What was wrong with bytes that came.
    pub fn violations(&self) -> Vec<String> {
        self.log.lock().unwrap().violations.clone()
    }

    /// Forgets everything.
    pub fn clear(&self) {
        *self.log.lock().unwrap() = Log::default();
    }
}

fn serve(stream: TcpStream, connection: usize, log: &Mutex<Log>) {
    let mut input = Input {
        stream,
        waiting: Vec::new(),
    };
    loop {
        match request(&mut input, connection) {
            Ok(None) => return,
            Ok(Some(received)) => {
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nContent-Type: text/plain\r\n\r\n",
                    received.body.len()
                );
                let is_head = received.method == "HEAD";
                let body = if is_head {
                    Vec::new()
                } else {
                    received.body.clone()
                };
                log.lock().unwrap().requests.push(received);
                let answer = [head.into_bytes(), body].concat();
                if input.stream.write_all(&answer).is_err() {
                    return;
                }
            }
            Err(violation) => {
                log.lock().unwrap().violations.push(violation);
                let _ = input.stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
                return;
            }
        }
    }
}

struct Input {
    stream: TcpStream,
    waiting: Vec<u8>,
}

impl Input {
    fn fill(&mut self) -> bool {
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(count @ 1..) => {
                self.waiting.extend_from_slice(&bytes[..count]);
                true
            }
            _ => false,
        }
    }

    /// A line without its CRLF. None when the connection ends before it begins.
    fn line(&mut self) -> Result<Option<String>, String> {
        loop {
            if let Some(end) = self.waiting.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.waiting.drain(..=end).collect();
                let Some(line) = line.strip_suffix(b"\r\n") else {
                    return Err(format!("a line ends without CRLF: {:?}", shown(&line)));
                };
                let fits =
                    |byte: &u8| *byte == b'\t' || (0x20..0x7f).contains(byte) || *byte > 0x7f;
                if !line.iter().all(fits) {
                    return Err(format!("control characters in a line: {:?}", shown(line)));
                }
                return Ok(Some(shown(line)));
            }
            if !self.fill() {
                return match self.waiting.is_empty() {
                    true => Ok(None),
                    false => Err(format!("cut within a line: {:?}", shown(&self.waiting))),
                };
            }
        }
    }

    fn exactly(&mut self, count: usize) -> Result<Vec<u8>, String> {
        while self.waiting.len() < count {
            if !self.fill() {
                return Err("cut within a body".to_owned());
            }
        }
        Ok(self.waiting.drain(..count).collect())
    }
}

fn shown(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| char::from(*byte)).collect()
}

fn request(input: &mut Input, connection: usize) -> Result<Option<Received>, String> {
    let Some(line) = input.line()? else {
        return Ok(None);
    };
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words.as_slice() else {
        return Err(format!("no request line: {line:?}"));
    };
    let target_fits = (target.starts_with('/') || *target == "*")
        && target
            .bytes()
            .all(|byte| (0x21..0x7f).contains(&byte) && byte != b'#');
    if !is_token(method) || !target_fits || *version != "HTTP/1.1" {
        return Err(format!("no request line: {line:?}"));
    }
    let headers = fields(input)?;
    let mut received = Received {
        method: (*method).to_owned(),
        target: (*target).to_owned(),
        headers,
        body: Vec::new(),
        connection,
    };
    let host = received.all("host");
    if host.len() != 1 || host[0].is_empty() || host[0].contains([' ', ',', '/', '@']) {
        return Err(format!("Host is {host:?}"));
    }
    received.body = body(input, &received)?;
    Ok(Some(received))
}

fn fields(input: &mut Input) -> Result<Vec<(String, String)>, String> {
    let mut headers = Vec::new();
    loop {
        let line = input.line()?.ok_or("cut within a head")?;
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

fn body(input: &mut Input, received: &Received) -> Result<Vec<u8>, String> {
    let (lengths, codings) = (
        received.all("content-length"),
        received.all("transfer-encoding"),
    );
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(Vec::new()),
        ([length], []) => {
            if length.is_empty() || !length.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(format!("Content-Length is {length:?}"));
            }
            input.exactly(length.parse().map_err(|_| "Content-Length is too large")?)
        }
        ([], ["chunked"]) => chunks(input),
        _ => Err(format!("framing is {lengths:?} and {codings:?}")),
    }
}

fn chunks(input: &mut Input) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    loop {
        let line = input.line()?.ok_or("cut within chunks")?;
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
    for (name, _) in fields(input)? {
        let name = name.to_ascii_lowercase();
        if ["content-length", "transfer-encoding", "host", "connection"].contains(&name.as_str()) {
            return Err(format!("the trailer {name}"));
        }
    }
    Ok(content)
}

fn is_token(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RawClient, wait_until};

    #[test]
    fn it_takes_what_is_right_and_notes_what_is_not() {
        let backend = StrictBackend::start();
        let mut client = RawClient::connect(backend.port());
        client.send("POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(client.response().text(), "hi");
        client.send(
            "POST /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
             2\r\nho\r\n0\r\nX: y\r\n\r\n",
        );
        assert_eq!(client.response().text(), "ho");
        assert_eq!(backend.requests().len(), 2);
        let wrong = [
            "GET /  HTTP/1.1\r\nHost: h\r\n\r\n",
            "GET / HTTP/1.1\nHost: h\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : h\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\n folded\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: h\r\nA: \u{1}\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: +1\r\n\r\nx",
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
            "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\
             Transfer-Encoding: chunked\r\n\r\nx",
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1;a\r\nx\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n\
             0\r\nContent-Length: 1\r\n\r\n",
        ];
        for (count, text) in wrong.iter().enumerate() {
            RawClient::connect(backend.port()).send(text);
            wait_until(text, || backend.violations().len() == count + 1);
        }
        assert_eq!(backend.requests().len(), 2);
    }
}
