//! A client that writes raw bytes and reads responses strictly.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

/// No test waits longer than this for bytes.
const PATIENCE: Duration = Duration::from_secs(10);

/// A client connection.
pub struct RawClient {
    stream: TcpStream,
    waiting: Vec<u8>,
}

/// A response, read to its end.
#[derive(Clone, Debug, Default)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// The field lines in order, names as they came.
    pub headers: Vec<(String, String)>,
    /// The content, without chunk framing.
    pub body: Vec<u8>,
    /// The field lines behind a chunked body.
    pub trailers: Vec<(String, String)>,
}

impl Response {
    /// The value of the first line with this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(other, _)| other.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// The content as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl RawClient {
    /// Connects to a port of this machine.
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            waiting: Vec::new(),
        }
    }

    /// Writes bytes. The other side may have closed already.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Writes bytes in pieces of this size with a pause between.
    pub fn send_slowly(&mut self, bytes: &[u8], size: usize, pause: Duration) {
        for piece in bytes.chunks(size) {
            self.send(piece);
            std::thread::sleep(pause);
        }
    }

    /// Says that nothing more will be written.
    pub fn finish(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Says that nothing more will be written, once something has come back or a moment has gone
    /// by: a proxy may give a request up whose client is gone.
    pub fn finish_after_reply(&mut self) {
        self.stream
            .set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        let mut byte = [0; 4096];
        while let Ok(count @ 1..) = self.stream.read(&mut byte) {
            self.waiting.extend_from_slice(&byte[..count]);
            let soon = Some(Duration::from_millis(30));
            self.stream.set_read_timeout(soon).unwrap();
        }
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        self.finish();
    }

    /// Reads the response to a request that is not HEAD.
    pub fn response(&mut self) -> Response {
        self.response_to("GET")
    }

    /// Reads one response head and its body, which HEAD has not.
    pub fn response_to(&mut self, method: &str) -> Response {
        let head = self.until(b"\r\n\r\n");
        let text = String::from_utf8(head).expect("a head in ASCII");
        let mut lines = text.trim_end_matches("\r\n\r\n").split("\r\n");
        let status_line = lines.next().unwrap();
        assert!(status_line.starts_with("HTTP/1.1 "), "{status_line}");
        let status = status_line[9..12].parse().expect("a status");
        let headers = lines.map(field).collect();
        let mut response = Response {
            status,
            headers,
            ..Response::default()
        };
        if method == "HEAD" || status < 200 || status == 204 || status == 304 {
            return response;
        }
        match (
            response.header("Transfer-Encoding"),
            response.header("Content-Length"),
        ) {
            (Some(coding), None) => {
                assert_eq!(coding, "chunked");
                self.chunks(&mut response);
            }
            (None, Some(length)) => {
                response.body = self.exactly(length.parse().expect("a length"));
            }
            (None, None) => response.body = self.rest(),
            (Some(_), Some(_)) => panic!("both framings in {text}"),
        }
        response
    }

    fn chunks(&mut self, response: &mut Response) {
        loop {
            let line = self.until(b"\r\n");
            let digits = std::str::from_utf8(&line[..line.len() - 2]).unwrap();
            let size = usize::from_str_radix(digits, 16).expect("a plain chunk size");
            if size == 0 {
                break;
            }
            response.body.extend(self.exactly(size));
            assert_eq!(self.exactly(2), b"\r\n");
        }
        loop {
            let line = self.until(b"\r\n");
            if line == b"\r\n" {
                return;
            }
            let line = String::from_utf8(line).unwrap();
            response.trailers.push(field(line.trim_end()));
        }
    }

    /// Reads up to and including these bytes.
    pub fn until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            let found = self
                .waiting
                .windows(end.len())
                .position(|window| window == end);
            if let Some(at) = found {
                return self.waiting.drain(..at + end.len()).collect();
            }
            assert!(self.fill() > 0, "closed before {end:?}: {:?}", self.shown());
        }
    }

    /// Reads this many bytes.
    pub fn exactly(&mut self, count: usize) -> Vec<u8> {
        while self.waiting.len() < count {
            assert!(
                self.fill() > 0,
                "closed before {count} bytes: {:?}",
                self.shown()
            );
        }
        self.waiting.drain(..count).collect()
    }

    /// Reads until the other side closes, a reset included.
    pub fn rest(&mut self) -> Vec<u8> {
        while self.fill() > 0 {}
        std::mem::take(&mut self.waiting)
    }

    /// Whether the other side has closed and sent nothing more.
    pub fn is_closed(&mut self) -> bool {
        self.rest().is_empty()
    }

    /// Reads nothing for a while: true when no byte came and the connection is open.
    pub fn stays_silent(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let silent = self.waiting.is_empty()
            && matches!(self.stream.read(&mut [0]), Err(error) if is_timeout(&error));
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        silent
    }

    fn fill(&mut self) -> usize {
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(count) => {
                self.waiting.extend_from_slice(&bytes[..count]);
                count
            }
            Err(error) if is_timeout(&error) => panic!("nothing came; so far {:?}", self.shown()),
            Err(_) => 0,
        }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.waiting).into_owned()
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
    )
}

fn field(line: &str) -> (String, String) {
    let (name, value) = line
        .split_once(": ")
        .unwrap_or_else(|| panic!("no field: {line:?}"));
    (name.to_owned(), value.to_owned())
}
