//! Who publishes to a topic: one connection, requests one after the other. What is due waits for
//! the answer to the one before, and its clock runs from when it was due.

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use mio::net::TcpStream;

use super::http;
use crate::stamp;
use crate::wire::invalid;

/// Builds the request that publishes a body.
pub(super) type Request = Box<dyn Fn(&[u8], &mut Vec<u8>)>;

/// The connection of a topic's publisher.
pub(super) struct Publisher {
    stream: TcpStream,
    request: Request,
    /// The bytes of a body.
    size: usize,
    /// Numbers and instants that are due and not sent.
    due: VecDeque<(u64, u64)>,
    /// The instant of the one that has no answer yet.
    sent: Option<u64>,
    out: Vec<u8>,
    written: usize,
    input: Vec<u8>,
    scratch: Vec<u8>,
    /// The last number that was given out.
    pub last: u64,
}

/// What came of publishing.
pub(super) trait Answers {
    /// A request that was due at this instant has been answered with this status.
    fn answered(&mut self, at: u64, status: u16, reply: &[u8]);
}

impl Publisher {
    pub fn new(stream: TcpStream, request: Request, size: usize) -> Self {
        Self {
            stream,
            request,
            size,
            due: VecDeque::new(),
            sent: None,
            out: Vec::new(),
            written: 0,
            input: Vec::new(),
            scratch: Vec::new(),
            last: 0,
        }
    }

    /// The connection, to register it.
    pub fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// Publishes the next event, scheduled at this instant, as soon as the one before is answered.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn publish(&mut self, at: u64) -> io::Result<()> {
        self.last += 1;
        self.due.push_back((self.last, at));
        self.go_on()
    }

    /// How many are due and not answered.
    pub fn waiting(&self) -> usize {
        self.due.len() + usize::from(self.sent.is_some())
    }

    /// Writes what can be written.
    ///
    /// # Errors
    /// When the connection fails.
    pub fn go_on(&mut self) -> io::Result<()> {
        if self.sent.is_none()
            && let Some((number, at)) = self.due.pop_front()
        {
            let mut body = Vec::with_capacity(self.size);
            stamp::write(number, at, self.size, &mut body);
            self.out.clear();
            self.written = 0;
            (self.request)(&body, &mut self.out);
            self.sent = Some(at);
        }
        while let Some(rest) = self.out.get(self.written..).filter(|rest| !rest.is_empty()) {
            match self.stream.write(rest) {
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads answers, and goes on.
    ///
    /// # Errors
    /// When the connection fails, or what comes is no answer.
    pub fn read(&mut self, room: &mut [u8], answers: &mut dyn Answers) -> io::Result<()> {
        loop {
            match self.stream.read(room) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    let bytes = room.get(..count).unwrap_or_default();
                    self.input.extend_from_slice(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        while let Some((status, size)) = http::reply(&self.input, &mut self.scratch)? {
            let at = self.sent.take();
            let at = at.ok_or_else(|| invalid("an answer to nothing"))?;
            let reply = self.input.get(..size).unwrap_or_default();
            answers.answered(at, status, reply);
            self.input.drain(..size);
            self.go_on()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    use super::*;

    #[derive(Default)]
    struct Log(Vec<(u64, u16)>);

    impl Answers for Log {
        fn answered(&mut self, at: u64, status: u16, _reply: &[u8]) {
            self.0.push((at, status));
        }
    }

    #[test]
    fn requests_go_out_one_after_the_other() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        stream.set_nonblocking(true).unwrap();
        let request: Request = Box::new(|body, out| {
            out.extend_from_slice(body);
            out.push(b'\n');
        });
        let mut publisher = Publisher::new(TcpStream::from_std(stream), request, 80);
        publisher.publish(100).unwrap();
        publisher.publish(200).unwrap();
        assert_eq!((publisher.waiting(), publisher.last), (2, 2));
        let (mut reader, mut log) = (BufReader::new(&server), Log::default());
        for (number, status) in [(1, 202_u16), (2, 500)] {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let (stamp, _) = stamp::read(line.as_bytes()).unwrap();
            assert_eq!((stamp.number, stamp.at), (number, number * 100));
            let reply = format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n");
            (&server).write_all(reply.as_bytes()).unwrap();
            while log.0.len() < number as usize {
                publisher.read(&mut [0; 1000], &mut log).unwrap();
            }
        }
        assert_eq!(log.0, [(100, 202), (200, 500)]);
        assert_eq!(publisher.waiting(), 0);
        drop(reader);
        drop(server);
        while publisher.read(&mut [0; 1000], &mut log).is_ok() {}
    }
}
