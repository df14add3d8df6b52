//! A back end that does exactly what a script says: slow, broken, rude.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use socket2::SockRef;

/// One thing that the back end does on a connection.
#[derive(Clone, Debug)]
pub enum Action {
    /// Reads until these bytes have come.
    ReadUntil(&'static [u8]),
    /// Reads a whole request: its head, and the body that Content-Length or chunks say it has.
    ReadRequest,
    /// Writes bytes.
    Send(Vec<u8>),
    /// Waits.
    Pause(Duration),
    /// Does nothing more until the other side closes.
    Stall,
    /// Closes, which is also what the end of the script does.
    Close,
    /// Ends the connection by a reset: SO_LINGER of zero (socket(7)).
    Reset,
    /// Says that nothing more is written, and goes on.
    HalfClose,
}

/// A back end with a script for each connection in the order they come; the last one repeats.
pub struct ScriptedBackend {
    port: u16,
    accepted: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
    received: Arc<Mutex<Vec<u8>>>,
}

impl ScriptedBackend {
    /// Starts it on a free port.
    pub fn start(scripts: Vec<Vec<Action>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let backend = Self {
            port,
            accepted: Arc::default(),
            closed: Arc::default(),
            received: Arc::default(),
        };
        let (accepted, closed, received) = (
            backend.accepted.clone(),
            backend.closed.clone(),
            backend.received.clone(),
        );
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                let number = accepted.fetch_add(1, Ordering::SeqCst);
                let script = scripts.get(number).or(scripts.last()).unwrap().clone();
                let (closed, received) = (closed.clone(), received.clone());
                thread::spawn(move || {
                    let player = Player {
                        stream,
                        waiting: Vec::new(),
                        received: &received,
                    };
                    player.play(&script);
                    closed.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        backend
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// How many connections it has accepted.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    /// How many connections have ended.
    pub fn closed(&self) -> usize {
        self.closed.load(Ordering::SeqCst)
    }

    /// All bytes it has read.
    pub fn received(&self) -> String {
        String::from_utf8_lossy(&self.received.lock().unwrap()).into_owned()
    }
}

/// Plays one script on one connection.
struct Player<'a> {
    stream: TcpStream,
    waiting: Vec<u8>,
    received: &'a Mutex<Vec<u8>>,
}

impl Player<'_> {
    fn play(mut self, script: &[Action]) {
        for action in script {
            let goes_on = match action {
                Action::ReadUntil(end) => self.until(end).is_some(),
                Action::ReadRequest => self.request().is_some(),
                Action::Send(bytes) => self.stream.write_all(bytes).is_ok(),
                Action::Pause(time) => {
                    thread::sleep(*time);
                    true
                }
                Action::Stall => {
                    while self.read() {}
                    true
                }
                Action::Close => false,
                Action::Reset => {
                    let socket = SockRef::from(&self.stream);
                    socket.set_linger(Some(Duration::ZERO)).unwrap();
                    false
                }
                Action::HalfClose => {
                    let _ = self.stream.shutdown(Shutdown::Write);
                    true
                }
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Takes a request; None when the connection ends before the request does.
    fn request(&mut self) -> Option<()> {
        let head = self.until(b"\r\n\r\n")?;
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let value = |name: &str| {
            let mut lines = head.lines();
            lines
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
        };
        if value("transfer-encoding:").is_some() {
            return self.chunks();
        }
        let length: usize = value("content-length:").map_or(0, |text| text.parse().unwrap());
        self.exactly(length)
    }

    fn chunks(&mut self) -> Option<()> {
        loop {
            let line = self.until(b"\r\n")?;
            let digits = String::from_utf8_lossy(&line);
            match usize::from_str_radix(digits.trim(), 16).unwrap() {
                0 => break,
                size => self.exactly(size + 2)?,
            }
        }
        while self.until(b"\r\n")? != b"\r\n" {}
        Some(())
    }

    fn until(&mut self, end: &[u8]) -> Option<Vec<u8>> {
        loop {
            let windows = self.waiting.windows(end.len());
            if let Some(at) = windows.into_iter().position(|window| window == end) {
                return Some(self.waiting.drain(..at + end.len()).collect());
            }
            if !self.read() {
                return None;
            }
        }
    }

    fn exactly(&mut self, count: usize) -> Option<()> {
        while self.waiting.len() < count {
            if !self.read() {
                return None;
            }
        }
        self.waiting.drain(..count);
        Some(())
    }

    fn read(&mut self) -> bool {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(count @ 1..) => {
                self.waiting.extend_from_slice(&bytes[..count]);
                self.received
                    .lock()
                    .unwrap()
                    .extend_from_slice(&bytes[..count]);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RawClient, wait_until};

    #[test]
    fn scripts_are_played_in_order_and_the_last_repeats() {
        let backend = ScriptedBackend::start(vec![
            vec![
                Action::ReadRequest,
                Action::Send(b"one".to_vec()),
                Action::ReadUntil(b"!"),
                Action::Send(b"two".to_vec()),
                Action::HalfClose,
                Action::Stall,
            ],
            vec![Action::Send(b"three".to_vec()), Action::Close],
        ]);
        let mut first = RawClient::connect(backend.port());
        first.send("POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi");
        assert_eq!(first.exactly(3), b"one");
        first.send("!");
        assert_eq!(first.rest(), b"two");
        assert_eq!(backend.closed(), 0);
        drop(first);
        wait_until("it is gone", || backend.closed() == 1);
        for _ in 0..2 {
            assert_eq!(RawClient::connect(backend.port()).rest(), b"three");
        }
        assert_eq!(backend.accepted(), 3);
        assert!(backend.received().ends_with("hi!"));
    }

    #[test]
    fn chunked_requests_are_read_to_their_end() {
        let actions = vec![Action::ReadRequest, Action::Send(b"ok".to_vec())];
        let backend = ScriptedBackend::start(vec![actions]);
        let mut client = RawClient::connect(backend.port());
        client.send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n");
        assert!(client.stays_silent(Duration::from_millis(50)));
        client.send("X: y\r\n\r\n");
        assert_eq!(client.rest(), b"ok");
    }

    #[test]
    fn a_reset_is_not_a_close() {
        let backend = ScriptedBackend::start(vec![vec![Action::ReadUntil(b"!"), Action::Reset]]);
        let mut stream = TcpStream::connect(("127.0.0.1", backend.port())).unwrap();
        stream.write_all(b"!").unwrap();
        let error = stream.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    }
}
