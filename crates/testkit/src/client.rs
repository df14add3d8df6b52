//! A client that writes raw bytes and reads responses strictly.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use crate::response::{Response, ResponseReader, is_timeout};

/// No test waits longer than this for bytes.
const PATIENCE: Duration = Duration::from_secs(30);

/// A client connection.
pub struct RawClient {
    reader: ResponseReader<TcpStream>,
}

impl RawClient {
    /// Connects to a port of this machine.
    pub fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            reader: ResponseReader::new(stream),
        }
    }

    /// Writes bytes. The other side may have closed already.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.reader.source.write_all(bytes.as_ref());
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
        let _ = self.reader.source.shutdown(Shutdown::Write);
    }

    /// Says that nothing more will be written, once something has come back or a moment has gone
    /// by: a proxy may give a request up whose client is gone.
    pub fn finish_after_reply(&mut self) {
        self.set_patience(Duration::from_millis(300));
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = self.reader.source.read(&mut bytes) {
            self.reader.waiting.extend_from_slice(&bytes[..count]);
            self.set_patience(Duration::from_millis(30));
        }
        self.set_patience(PATIENCE);
        self.finish();
    }

    /// Reads the response to a request that is not HEAD.
    pub fn response(&mut self) -> Response {
        self.response_to("GET")
    }

    /// Reads one response head and its body, which HEAD has not. Interim responses are responses.
    pub fn response_to(&mut self, method: &str) -> Response {
        or_panic(self.reader.next(method))
    }

    /// Reads up to and including these bytes.
    pub fn until(&mut self, end: &[u8]) -> Vec<u8> {
        or_panic(self.reader.until(end))
    }

    /// Reads this many bytes.
    pub fn exactly(&mut self, count: usize) -> Vec<u8> {
        or_panic(self.reader.exactly(count))
    }

    /// Reads until the other side closes, a reset included.
    pub fn rest(&mut self) -> Vec<u8> {
        or_panic(self.reader.rest())
    }

    /// Whether the other side has closed and sent nothing more.
    pub fn is_closed(&mut self) -> bool {
        self.rest().is_empty()
    }

    /// Reads nothing for a while: true when no byte came and the connection is open.
    pub fn stays_silent(&mut self, time: Duration) -> bool {
        self.set_patience(time);
        let silent = self.reader.waiting.is_empty()
            && matches!(self.reader.source.peek(&mut [0]), Err(error) if is_timeout(&error));
        self.set_patience(PATIENCE);
        silent
    }

    /// Waits no longer than this for bytes from now on; without a call half a minute.
    pub fn set_patience(&self, time: Duration) {
        self.reader.source.set_read_timeout(Some(time)).unwrap();
    }
}

fn or_panic<T>(result: Result<T, String>) -> T {
    result.unwrap_or_else(|problem| panic!("{problem}"))
}
