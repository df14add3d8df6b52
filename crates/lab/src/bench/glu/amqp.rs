//! A client of AMQP 0-9-1, as small as the lab needs it and independent of the product's: it
//! declares queues, publishes, and drains queues with as little work as possible, for the broker
//! shares its core. It blocks; each client has a thread of its own.
//!
//! Class and method numbers are those of the specification, `amqp0-9-1.xml`.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, bail, ensure};

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const END: u8 = 0xCE;
/// Type, channel and size before the payload, the end mark behind it.
const FRAME_HEAD: usize = 7;

const START: (u16, u16) = (10, 10);
const START_OK: (u16, u16) = (10, 11);
const TUNE: (u16, u16) = (10, 30);
const TUNE_OK: (u16, u16) = (10, 31);
const OPEN: (u16, u16) = (10, 40);
const OPEN_OK: (u16, u16) = (10, 41);
const CLOSE: (u16, u16) = (10, 50);
const CHANNEL_OPEN: (u16, u16) = (20, 10);
const CHANNEL_OPEN_OK: (u16, u16) = (20, 11);
const CHANNEL_CLOSE: (u16, u16) = (20, 40);
const DECLARE: (u16, u16) = (50, 10);
const DECLARE_OK: (u16, u16) = (50, 11);
const DELETE: (u16, u16) = (50, 40);
const DELETE_OK: (u16, u16) = (50, 41);
const CONSUME: (u16, u16) = (60, 20);
const CONSUME_OK: (u16, u16) = (60, 21);
const PUBLISH: (u16, u16) = (60, 40);
const DELIVER: (u16, u16) = (60, 60);
const ACK: (u16, u16) = (60, 80);
const SELECT: (u16, u16) = (85, 10);
const SELECT_OK: (u16, u16) = (85, 11);

/// Bits of `queue.declare`.
const PASSIVE: u8 = 1;
const DURABLE: u8 = 2;
/// The bit of `basic.consume` that wants no acknowledgements.
const NO_ACK: u8 = 2;
/// Property flags: the content type and the delivery mode are there.
const FLAGS: u16 = 0x9000;
const PERSISTENT: u8 = 2;

/// How long the broker may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(30);
const ROOM: usize = 256 * 1024;
/// More than this of one frame is refused.
const FRAME_MAX: usize = 1024 * 1024;
/// Bytes that are published in one write.
const BATCH: usize = 128 * 1024;

/// A connection with one channel.
pub(crate) struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    start: usize,
    end: usize,
    frame_max: usize,
}

/// A frame's place in the input.
#[derive(Clone, Copy)]
struct Frame {
    kind: u8,
    payload: (usize, usize),
}

impl Client {
    /// Connects as `guest`.
    ///
    /// # Errors
    /// When nobody answers, or not as the specification says.
    pub fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).context("cannot connect to the broker")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(ANSWER_MAX))?;
        stream.set_write_timeout(Some(ANSWER_MAX))?;
        let mut client = Self {
            stream,
            input: vec![0; ROOM],
            start: 0,
            end: 0,
            frame_max: 0,
        };
        client.stream.write_all(b"AMQP\0\0\x09\x01")?;
        client.answer(START)?;
        let mut arguments = Vec::new();
        arguments.extend_from_slice(&0_u32.to_be_bytes());
        short(&mut arguments, "PLAIN");
        let login = b"\0guest\0guest";
        arguments.extend_from_slice(&(login.len() as u32).to_be_bytes());
        arguments.extend_from_slice(login);
        short(&mut arguments, "en_US");
        client.send(0, START_OK, &arguments)?;
        let tune = client.answer(TUNE)?;
        let frame_max = tune.get(2..6).and_then(|bytes| bytes.try_into().ok());
        let frame_max = u32::from_be_bytes(frame_max.context("a short tune")?);
        client.frame_max = frame_max.clamp(4096, FRAME_MAX as u32) as usize;
        // The same channels and frames, and no heartbeats.
        let mut arguments = tune.get(..2).unwrap_or_default().to_vec();
        arguments.extend_from_slice(&(client.frame_max as u32).to_be_bytes());
        arguments.extend_from_slice(&[0, 0]);
        client.send(0, TUNE_OK, &arguments)?;
        client.call(0, OPEN, b"\x01/\0\0", OPEN_OK)?;
        client.call(1, CHANNEL_OPEN, b"\0", CHANNEL_OPEN_OK)?;
        Ok(client)
    }

    /// Makes sure of a durable queue, and says how many messages are ready in it.
    pub fn declare(&mut self, queue: &str) -> anyhow::Result<u32> {
        self.look(queue, DURABLE)
    }

    /// How many messages are ready in a queue.
    pub fn ready(&mut self, queue: &str) -> anyhow::Result<u32> {
        self.look(queue, PASSIVE | DURABLE)
    }

    fn look(&mut self, queue: &str, bits: u8) -> anyhow::Result<u32> {
        let mut arguments = vec![0, 0];
        short(&mut arguments, queue);
        arguments.push(bits);
        arguments.extend_from_slice(&0_u32.to_be_bytes());
        let answer = self.call(1, DECLARE, &arguments, DECLARE_OK)?;
        let at = 1 + usize::from(*answer.first().context("a short answer")?);
        let count = answer
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok());
        Ok(u32::from_be_bytes(count.context("a short answer")?))
    }

    /// Deletes a queue with all that is in it.
    pub fn delete(&mut self, queue: &str) -> anyhow::Result<()> {
        let mut arguments = vec![0, 0];
        short(&mut arguments, queue);
        arguments.push(0);
        self.call(1, DELETE, &arguments, DELETE_OK).map(drop)
    }

    /// Publishes persistent JSON messages, whose bodies are written one by one, to a queue, and
    /// waits until the broker has read them.
    pub fn publish(
        &mut self,
        queue: &str,
        count: u64,
        mut write: impl FnMut(u64, &mut Vec<u8>),
    ) -> anyhow::Result<()> {
        let mut out = Vec::with_capacity(BATCH + 4096);
        let mut body = Vec::new();
        for index in 0..count {
            body.clear();
            write(index, &mut body);
            self.message(&mut out, queue, &body);
            if out.len() >= BATCH {
                self.stream.write_all(&out)?;
                out.clear();
            }
        }
        self.stream.write_all(&out)?;
        self.ready(queue).map(drop)
    }

    fn message(&self, out: &mut Vec<u8>, queue: &str, body: &[u8]) {
        let mut arguments = vec![0, 0, 0];
        short(&mut arguments, queue);
        arguments.push(0);
        method(out, 1, PUBLISH, &arguments);
        let mut header = Vec::with_capacity(40);
        header.extend_from_slice(&PUBLISH.0.to_be_bytes());
        header.extend_from_slice(&[0, 0]);
        header.extend_from_slice(&(body.len() as u64).to_be_bytes());
        header.extend_from_slice(&FLAGS.to_be_bytes());
        short(&mut header, "application/json");
        header.push(PERSISTENT);
        frame(out, HEADER, 1, &header);
        for part in body.chunks(self.frame_max - FRAME_HEAD - 1) {
            frame(out, BODY, 1, part);
        }
    }

    /// Publishes persistent JSON messages to a queue and waits until the broker has confirmed each:
    /// it then keeps them when it is killed.
    pub fn publish_confirmed(
        &mut self,
        queue: &str,
        bodies: impl Iterator<Item = Vec<u8>>,
    ) -> anyhow::Result<()> {
        self.call(1, SELECT, b"\0", SELECT_OK)?;
        let mut waiting = BTreeSet::new();
        let mut out = Vec::with_capacity(BATCH + 4096);
        for (body, tag) in bodies.zip(1_u64..) {
            self.message(&mut out, queue, &body);
            waiting.insert(tag);
            if out.len() >= BATCH {
                self.stream.write_all(&out)?;
                out.clear();
            }
        }
        self.stream.write_all(&out)?;
        while !waiting.is_empty() {
            let answer = self.answer(ACK)?;
            let tag = answer.get(..8).and_then(|bytes| bytes.try_into().ok());
            let tag = u64::from_be_bytes(tag.context("a short confirmation")?);
            match answer.get(8) {
                Some(0) => drop(waiting.remove(&tag)),
                _ => waiting = waiting.split_off(&(tag + 1)),
            }
        }
        Ok(())
    }

    /// Gets all messages of a queue from now on; getting them removes them.
    pub fn consume(mut self, queue: &str, patience: Duration) -> anyhow::Result<Consumer> {
        let mut arguments = vec![0, 0];
        short(&mut arguments, queue);
        short(&mut arguments, "");
        arguments.push(NO_ACK);
        arguments.extend_from_slice(&0_u32.to_be_bytes());
        self.call(1, CONSUME, &arguments, CONSUME_OK)?;
        self.stream.set_read_timeout(Some(patience))?;
        Ok(Consumer {
            client: self,
            body: Vec::new(),
            wanted: None,
        })
    }

    fn call(
        &mut self,
        channel: u16,
        name: (u16, u16),
        arguments: &[u8],
        wanted: (u16, u16),
    ) -> anyhow::Result<Vec<u8>> {
        self.send(channel, name, arguments)?;
        self.answer(wanted)
    }

    fn send(&mut self, channel: u16, name: (u16, u16), arguments: &[u8]) -> anyhow::Result<()> {
        let mut out = Vec::new();
        method(&mut out, channel, name, arguments);
        Ok(self.stream.write_all(&out)?)
    }

    /// The arguments of the method that must come now.
    fn answer(&mut self, wanted: (u16, u16)) -> anyhow::Result<Vec<u8>> {
        loop {
            let frame = self.frame()?.context("the broker does not answer")?;
            if frame.kind == METHOD {
                let (name, arguments) = split_method(self.bytes(frame))?;
                ensure!(
                    name == wanted,
                    "the broker answers {wanted:?} with {name:?}"
                );
                return Ok(arguments.to_vec());
            }
        }
    }

    fn bytes(&self, frame: Frame) -> &[u8] {
        let (start, end) = frame.payload;
        self.input.get(start..end).unwrap_or_default()
    }

    /// The next frame; none when nothing came in time.
    fn frame(&mut self) -> anyhow::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.buffered()? {
                return Ok(Some(frame));
            }
            if self.start > 0 {
                self.input.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            if self.end == self.input.len() {
                ensure!(self.end < FRAME_MAX * 2, "a frame that is too long");
                self.input.resize(self.end * 2, 0);
            }
            let room = self.input.get_mut(self.end..).unwrap_or_default();
            match self.stream.read(room) {
                Ok(0) => bail!("the broker closed the connection"),
                Ok(count) => self.end += count,
                Err(error) if is_late(error.kind()) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn buffered(&mut self) -> anyhow::Result<Option<Frame>> {
        let bytes = self.input.get(self.start..self.end).unwrap_or_default();
        let [kind, _, _, a, b, c, d, ..] = *bytes else {
            return Ok(None);
        };
        let size = u32::from_be_bytes([a, b, c, d]) as usize;
        ensure!(size <= FRAME_MAX, "a frame of {size} bytes");
        let Some(end) = bytes.get(FRAME_HEAD + size) else {
            return Ok(None);
        };
        ensure!(*end == END, "a frame without its end");
        let payload = (self.start + FRAME_HEAD, self.start + FRAME_HEAD + size);
        self.start = payload.1 + 1;
        Ok(Some(Frame { kind, payload }))
    }
}

fn is_late(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
    )
}

/// The name of a method and its arguments.
///
/// # Errors
/// With what the broker says when it closes connection or channel.
fn split_method(payload: &[u8]) -> anyhow::Result<((u16, u16), &[u8])> {
    let [a, b, c, d, arguments @ ..] = payload else {
        bail!("a short method");
    };
    let name = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
    if name == CLOSE || name == CHANNEL_CLOSE {
        let text = arguments.get(3..).unwrap_or_default();
        let length = usize::from(arguments.get(2).copied().unwrap_or(0)).min(text.len());
        let text = String::from_utf8_lossy(text.get(..length).unwrap_or_default()).into_owned();
        bail!("the broker closes: {text}");
    }
    Ok((name, arguments))
}

/// Messages of one queue.
pub(crate) struct Consumer {
    client: Client,
    body: Vec<u8>,
    /// How long the body is that is being read.
    wanted: Option<usize>,
}

impl Consumer {
    /// The next message's body; none when none came in time.
    pub fn next(&mut self) -> anyhow::Result<Option<&[u8]>> {
        loop {
            let Some(frame) = self.client.frame()? else {
                return Ok(None);
            };
            let payload = self.client.bytes(frame);
            match frame.kind {
                METHOD => {
                    let (name, _) = split_method(payload)?;
                    ensure!(name == DELIVER, "the broker sends {name:?}");
                }
                HEADER => {
                    let size = payload.get(4..12).and_then(|bytes| bytes.try_into().ok());
                    let size = u64::from_be_bytes(size.context("a short header")?);
                    self.body.clear();
                    self.wanted = Some(usize::try_from(size)?);
                }
                BODY => self.body.extend_from_slice(payload),
                _ => {}
            }
            if self.wanted == Some(self.body.len()) {
                self.wanted = None;
                return Ok(Some(&self.body));
            }
        }
    }
}

fn short(out: &mut Vec<u8>, text: &str) {
    let text = text.get(..text.len().min(255)).unwrap_or_default();
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}

fn method(out: &mut Vec<u8>, channel: u16, name: (u16, u16), arguments: &[u8]) {
    let names = [name.0.to_be_bytes(), name.1.to_be_bytes()].concat();
    frame(out, METHOD, channel, &[&names, arguments].concat());
}

fn frame(out: &mut Vec<u8>, kind: u8, channel: u16, payload: &[u8]) {
    out.push(kind);
    out.extend_from_slice(&channel.to_be_bytes());
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes());
    out.extend_from_slice(payload);
    out.push(END);
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// A broker that answers as it was told and says what it was sent.
    fn broker(answers: Vec<Vec<u8>>) -> (SocketAddr, thread::JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            // In small pieces: frames come as the network likes.
            for piece in answers.concat().chunks(5) {
                stream.write_all(piece).unwrap();
            }
            let mut sent = Vec::new();
            stream.read_to_end(&mut sent).unwrap();
            sent
        });
        (address, thread)
    }

    fn answer(channel: u16, name: (u16, u16), arguments: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        method(&mut out, channel, name, arguments);
        out
    }

    fn greeting() -> Vec<Vec<u8>> {
        vec![
            answer(0, START, b"\0\x09"),
            answer(0, TUNE, &[7, 255, 0, 0, 0x10, 0, 0, 60]),
            answer(0, OPEN_OK, b"\0"),
            answer(1, CHANNEL_OPEN_OK, &[0; 4]),
        ]
    }

    #[test]
    fn messages_are_published_in_frames_and_counted() {
        let mut answers = greeting();
        answers.push(answer(1, DECLARE_OK, b"\x01q\0\0\0\x02\0\0\0\0"));
        let (address, thread) = broker(answers);
        let mut client = Client::connect(address).unwrap();
        let body = vec![b'x'; 5000];
        client
            .publish("q", 2, |_, out| out.extend_from_slice(&body))
            .unwrap();
        drop(client);
        let sent = thread.join().unwrap();
        assert!(sent.starts_with(b"AMQP\0\0\x09\x01"));
        let wanted = [
            answer(1, PUBLISH, b"\0\0\0\x01q\0"),
            b"\x02\0\x01\0\0\0\x20\0\x3c\0\0\0\0\0\0\0\0\x13\x88\x90\0\x10application/json\x02\xCE"
                .to_vec(),
            b"\x03\0\x01\0\0\x0f\xf8xxx".to_vec(),
        ];
        let wanted = wanted.concat();
        assert_eq!(memchr::memmem::find_iter(&sent, &wanted).count(), 2);
        assert!(memchr::memmem::find(&sent, b"\x03\0\x01\0\0\x03\x90xxx").is_some());
    }

    #[test]
    fn confirmations_are_waited_for() {
        let mut answers = greeting();
        answers.push(answer(1, SELECT_OK, b""));
        answers.push(answer(1, ACK, &[0, 0, 0, 0, 0, 0, 0, 3, 0]));
        answers.push(answer(1, ACK, &[0, 0, 0, 0, 0, 0, 0, 2, 1]));
        let (address, thread) = broker(answers);
        let mut client = Client::connect(address).unwrap();
        let bodies = (0..3).map(|_| b"a".to_vec());
        client.publish_confirmed("q", bodies).unwrap();
        drop(client);
        assert!(
            thread
                .join()
                .unwrap()
                .ends_with(b"\x03\0\x01\0\0\0\x01a\xCE")
        );
    }

    #[test]
    fn deliveries_are_put_together() {
        let mut answers = greeting();
        answers.push(answer(1, CONSUME_OK, b"\x01t"));
        for parts in [vec![b"ab".as_slice(), b"cd"], vec![], vec![b"e"]] {
            answers.push(answer(1, DELIVER, b"\x01t"));
            let size = parts.iter().map(|part| part.len()).sum::<usize>() as u64;
            let mut out = Vec::new();
            let header = [&b"\0\x3c\0\0"[..], &size.to_be_bytes(), &[0, 0]].concat();
            frame(&mut out, HEADER, 1, &header);
            parts.iter().for_each(|part| frame(&mut out, BODY, 1, part));
            answers.push(out);
        }
        let (address, _thread) = broker(answers);
        let client = Client::connect(address).unwrap();
        let mut consumer = client.consume("q", Duration::from_millis(300)).unwrap();
        for wanted in [b"abcd".as_slice(), b"", b"e"] {
            assert_eq!(consumer.next().unwrap(), Some(wanted));
        }
        assert_eq!(consumer.next().unwrap(), None);
    }

    #[test]
    fn refusals_are_told() {
        let mut answers = greeting();
        answers.push(answer(1, CHANNEL_CLOSE, b"\x01\x94\x09NOT_FOUND\0\0\0\0"));
        let (address, _thread) = broker(answers);
        let mut client = Client::connect(address).unwrap();
        let error = client.ready("q").unwrap_err().to_string();
        assert_eq!(error, "the broker closes: NOT_FOUND");
        let (address, _thread) = broker(vec![b"AMQP\0\0\x09\x01".to_vec()]);
        assert!(Client::connect(address).is_err());
    }
}
