//! The load of WebSocket proxying: clients that send messages at instants that are fixed in advance
//! to a service that reverses their letters, and compare each answer.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token, Waker};

use super::books::{Books, Window};
use super::case::Case;
use super::fan::{Edges, Plan};
use super::reader::{Arrivals, Tally};
use super::system::{self, System};
use super::unit;
use crate::bench::pacer::Pacer;
use crate::bench::{http, net};
use crate::stamp;
use crate::websocket::{self, TEXT};
use crate::wire::invalid;

const WAKER: Token = Token(usize::MAX);
const PORTION: usize = 100;
/// How long the answers to a portion of handshakes may take.
const OPEN_MAX: Duration = Duration::from_secs(20);
const TURN: Duration = Duration::from_millis(10);
/// How long answers may take after the window.
const DRAIN_MAX: u64 = 10_000_000;
const LEAD: u64 = 50_000;
const ROOM: usize = 64 * 1024;
/// Instants are multiples of this, in microseconds: a thread that is woken for each message costs
/// more than the message.
const GRAIN: u64 = 1000;
/// Messages are parts of so many letters.
const LETTERS: usize = 1 << 20;

/// Where a client is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Asked,
    Open,
    Ended,
}

struct Client {
    stream: TcpStream,
    state: State,
    raw: Vec<u8>,
    /// What the socket has not taken.
    out: Vec<u8>,
    /// Messages without an answer: the instant, and where in the letters they begin.
    sent: VecDeque<(u64, usize)>,
}

/// Clients of a case.
pub(super) struct Echo<'a> {
    case: &'a Case,
    poll: Poll,
    room: Vec<u8>,
    letters: Vec<u8>,
    /// The tokens of clients, where they need one.
    pub tokens: Vec<String>,
    clients: Vec<Client>,
    /// The numbers of clients that are open at the start.
    open: Vec<usize>,
    sent: u64,
    pub tally: Tally,
    pub books: Books,
    /// Connections that were not made.
    pub failed: u64,
    /// Connections that ended.
    pub cut: u64,
    pub first_cut: Option<String>,
}

impl<'a> Echo<'a> {
    /// A load without connections.
    ///
    /// # Errors
    /// When the kernel gives no `epoll`.
    pub fn new(case: &'a Case) -> anyhow::Result<Self> {
        let mut letters = Vec::new();
        stamp::letters(0x1AB, LETTERS + case.bytes, &mut letters);
        Ok(Self {
            case,
            poll: Poll::new()?,
            room: vec![0; ROOM],
            letters,
            tokens: Vec::new(),
            clients: Vec::new(),
            open: Vec::new(),
            sent: 0,
            tally: Tally::default(),
            books: Books::new(1, 0)?,
            failed: 0,
            cut: 0,
            first_cut: None,
        })
    }

    /// Connects all clients; those that are not let in are counted.
    ///
    /// # Errors
    /// When the kernel's poll fails.
    pub fn connect(&mut self, system: System, address: SocketAddr) -> anyhow::Result<()> {
        let mut events = Events::with_capacity(1024);
        let mut made = 0;
        while made < self.case.users {
            let begin = self.clients.len();
            let end = (made + PORTION).min(self.case.users);
            for index in made..end {
                let mut first = system::subscription(system, self.case, address, 1);
                if let Some(token) = self.tokens.get(index) {
                    first = system::with_field(&first, &system::bearer(token));
                }
                match net::connect(address, &first) {
                    Ok(stream) => self.add(stream)?,
                    Err(error) => self.fail(&error),
                }
            }
            made = end;
            let start = Instant::now();
            let is_asking = |client: &Client| client.state == State::Asked;
            while self.clients.iter().skip(begin).any(is_asking) && start.elapsed() < OPEN_MAX {
                self.turn(&mut events)?;
            }
        }
        let clients = self.clients.iter().enumerate();
        let open = clients.filter(|(_, client)| client.state == State::Open);
        self.open = open.map(|(index, _)| index).collect();
        self.failed = (self.case.users - self.open.len()) as u64;
        self.cut = 0;
        Ok(())
    }

    fn add(&mut self, mut stream: TcpStream) -> io::Result<()> {
        let token = Token(self.clients.len());
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll
            .registry()
            .register(&mut stream, token, interest)?;
        self.clients.push(Client {
            stream,
            state: State::Asked,
            raw: Vec::new(),
            out: Vec::new(),
            sent: VecDeque::new(),
        });
        Ok(())
    }

    fn fail(&mut self, error: &io::Error) {
        self.cut += 1;
        self.first_cut.get_or_insert_with(|| error.to_string());
    }

    fn turn(&mut self, events: &mut Events) -> anyhow::Result<()> {
        match self.poll.poll(events, Some(TURN)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result.context("poll")?,
        }
        for event in events.iter().filter(|event| event.token() != WAKER) {
            let Token(index) = event.token();
            let Some(client) = self.clients.get_mut(index) else {
                continue;
            };
            if client.state == State::Ended {
                continue;
            }
            let mut desk = Desk {
                letters: &self.letters,
                size: self.case.bytes,
                tally: &mut self.tally,
                books: &mut self.books,
            };
            let result = client
                .write()
                .and_then(|()| client.read(&mut self.room, &mut desk));
            if let Err(error) = result {
                client.state = State::Ended;
                self.fail(&error);
            }
        }
        Ok(())
    }

    /// Runs load for the warm-up and the window, and waits for answers.
    ///
    /// # Errors
    /// When the kernel's poll fails.
    pub fn run(&mut self, plan: &Plan<'_>) -> anyhow::Result<Edges> {
        anyhow::ensure!(!self.open.is_empty(), "no client was let in");
        let start = stamp::now() + LEAD;
        let open = start + stamp::micros(plan.warm_up);
        let close = open + stamp::micros(plan.seconds);
        self.books.window = Window { open, close };
        let mut pace = Pace {
            start,
            period: (self.case.period_ms * 1e3) as u64,
            clients: self.open.len() as u64,
            next: 0,
        };
        let waker = Arc::new(Waker::new(self.poll.registry(), WAKER)?);
        let pacer = Pacer::start(start, GRAIN, waker)?;
        let mut events = Events::with_capacity(1024);
        let mut before = None;
        loop {
            let now = stamp::now();
            if now >= open && before.is_none() {
                before = Some((plan.watch.read()?, self.tally.clone(), self.sent));
            }
            if now >= close {
                break;
            }
            while let Some((index, at)) = pace.due(now) {
                self.send(index, at);
            }
            self.turn(&mut events)?;
        }
        let after = plan.watch.read()?;
        let (before, tally, sent) = before.context("the window did not open")?;
        let edges = Edges {
            before,
            after,
            delivered: self.tally.delivered - tally.delivered,
            bytes: self.tally.bytes - tally.bytes,
            published: self.sent - sent,
        };
        drop(pacer);
        while self.waiting() > 0 && stamp::now() < close + DRAIN_MAX {
            self.turn(&mut events)?;
        }
        self.tally.behind = self.waiting();
        Ok(edges)
    }

    /// How many messages have no answer.
    fn waiting(&self) -> u64 {
        self.clients
            .iter()
            .map(|client| client.sent.len() as u64)
            .sum()
    }

    fn send(&mut self, index: u64, at: u64) {
        let number = usize::try_from(index).unwrap_or(0);
        let Some(client) = self
            .open
            .get(number)
            .and_then(|it| self.clients.get_mut(*it))
        else {
            return;
        };
        self.sent += 1;
        let seed = stamp::hash(index, &self.sent.to_le_bytes());
        let begin = usize::try_from(seed % LETTERS as u64).unwrap_or(0);
        client.sent.push_back((at, begin));
        if client.state != State::Open {
            return;
        }
        let message = self
            .letters
            .get(begin..begin + self.case.bytes)
            .unwrap_or_default();
        let [key @ .., _, _, _, _] = seed.to_le_bytes();
        websocket::write_masked(TEXT, message, key, &mut client.out);
        if let Err(error) = client.write() {
            client.state = State::Ended;
            self.fail(&error);
        }
    }
}

/// What answers are compared with, and where they are counted.
struct Desk<'a> {
    letters: &'a [u8],
    size: usize,
    tally: &'a mut Tally,
    books: &'a mut Books,
}

impl Desk<'_> {
    fn answer(&mut self, sent: Option<(u64, usize)>, data: &[u8]) {
        let Some((at, begin)) = sent else {
            self.tally.duplicates += 1;
            return;
        };
        let message = self
            .letters
            .get(begin..begin + self.size)
            .unwrap_or_default();
        if data.len() == message.len() && data.iter().eq(message.iter().rev()) {
            self.tally.delivered += 1;
            self.books.arrived(0, at, false);
        } else {
            self.tally.corrupt += 1;
            let first = || String::from_utf8_lossy(data.get(..200).unwrap_or(data)).into_owned();
            self.tally.first_error.get_or_insert_with(first);
        }
    }
}

impl Client {
    fn write(&mut self) -> io::Result<()> {
        while !self.out.is_empty() {
            match self.stream.write(&self.out) {
                Ok(count) if count == self.out.len() => self.out.clear(),
                Ok(count) => drop(self.out.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn read(&mut self, room: &mut [u8], desk: &mut Desk<'_>) -> io::Result<()> {
        loop {
            let count = match self.stream.read(room) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            desk.tally.bytes += count as u64;
            desk.books.received();
            let bytes = room.get(..count).unwrap_or_default();
            if self.raw.is_empty() && self.state == State::Open {
                let taken = self.take(bytes, desk)?;
                self.raw
                    .extend_from_slice(bytes.get(taken..).unwrap_or_default());
            } else {
                let mut raw = std::mem::take(&mut self.raw);
                raw.extend_from_slice(bytes);
                let taken = self.take(&raw, desk)?;
                raw.drain(..taken);
                self.raw = raw;
            }
            if count < room.len() {
                return Ok(());
            }
        }
    }

    /// Takes what is whole; returns its bytes.
    fn take(&mut self, bytes: &[u8], desk: &mut Desk<'_>) -> io::Result<usize> {
        let mut at = 0;
        if self.state == State::Asked {
            let Some(head) = http::head(bytes)? else {
                return Ok(0);
            };
            if head.status != 101 {
                return Err(invalid(&format!("status {}", head.status)));
            }
            self.state = State::Open;
            at = head.size;
        }
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            let Some(unit) = unit::message(rest).map_err(invalid)? else {
                return Ok(at);
            };
            if let Some(data) = &unit.data {
                desk.answer(self.sent.pop_front(), data.bytes());
            }
            at += unit.size;
        }
        Ok(at)
    }
}

/// When clients send: one after the other, spread evenly over the period, at whole milliseconds.
struct Pace {
    start: u64,
    period: u64,
    clients: u64,
    /// The next message of all.
    next: u64,
}

impl Pace {
    /// The next client that is due, and since when.
    fn due(&mut self, now: u64) -> Option<(u64, u64)> {
        let after = self.next * self.period / self.clients;
        let at = self.start + after - after % GRAIN;
        if at > now {
            return None;
        }
        let client = self.next % self.clients;
        self.next += 1;
        Some((client, at))
    }
}

#[cfg(test)]
mod tests;
