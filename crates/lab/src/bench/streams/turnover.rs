//! Subscribers whose credentials end while others go on: tokens that expire, each followed by a
//! new one, and API keys that are revoked. One thread beside the load, which looks at nothing but
//! when their streams end and what is said then.

use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use serde::{Deserialize, Serialize};

use super::case::Case;
use super::system::{self, System};
use crate::bench::net;
use crate::bench::stats::{Latency, Stats};
use crate::bench::tokens::{self, Issuer};
use crate::stamp;

/// How long tokens are good for, in seconds.
const LIFE: usize = 12;
/// When the first of them expires at the earliest, in seconds from the start.
const FIRST: u64 = 2;
/// A stream that goes on for longer than this after its credential has ended is a fault: the
/// engine looks once a second, and the rest is for machines that are busy.
const LATE_MAX: u64 = 2_000_000;
const TURN: Duration = Duration::from_millis(20);
/// So much of what came last is kept: the event before the end of the stream.
const TAIL: usize = 2000;
const ROOM: usize = 64 * 1024;
/// The last chunk, behind the end of the one before it (RFC 9112 section 7.1): the stream has
/// ended, though the connection may go on.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";
/// Clients have numbers from here on: other tokens than those of the load.
const CLIENTS: usize = 10_000_000;

/// How streams ended whose credentials did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ends {
    /// Streams that ended because a token expired, or a key was revoked.
    pub expired: u64,
    pub revoked: u64,
    /// From the instant of expiry, or from when `keys revoke` was started, to the end of the
    /// stream.
    pub expiry: Latency,
    pub revocation: Latency,
    /// Streams that ended before their credential did.
    pub early: u64,
    /// Streams that went on two seconds after it.
    pub late: u64,
    /// Streams that ended without an event that says why.
    pub untold: u64,
    /// Clients that were not let in.
    pub refused: u64,
    pub first_error: Option<String>,
}

impl Ends {
    /// How many things went wrong.
    pub fn faults(&self) -> u64 {
        self.early + self.late + self.untold + self.refused
    }

    /// The sums of counts and the medians of times.
    pub fn median(rounds: &[&Self]) -> Self {
        let sum = |count: fn(&Self) -> u64| rounds.iter().map(|it| count(it)).sum();
        let latency = |of: fn(&Self) -> &Latency| {
            Latency::median(&rounds.iter().map(|it| of(it)).collect::<Vec<_>>())
        };
        Self {
            expired: sum(|it| it.expired),
            revoked: sum(|it| it.revoked),
            expiry: latency(|it| &it.expiry),
            revocation: latency(|it| &it.revocation),
            early: sum(|it| it.early),
            late: sum(|it| it.late),
            untold: sum(|it| it.untold),
            refused: sum(|it| it.refused),
            first_error: rounds.iter().find_map(|it| it.first_error.clone()),
        }
    }
}

/// API keys in a file, made and revoked by `intertie keys`.
#[derive(Clone, Debug)]
pub(super) struct ApiKeys {
    program: PathBuf,
    file: PathBuf,
    keys: Vec<String>,
}

impl ApiKeys {
    /// Makes the keys that are revoked in so long a time, or none.
    ///
    /// # Errors
    /// When `intertie keys` fails.
    pub fn make(
        program: PathBuf,
        file: PathBuf,
        case: &Case,
        time: Duration,
    ) -> anyhow::Result<Option<Self>> {
        if case.revoked == 0 {
            return Ok(None);
        }
        let count = (case.revoked as f64 * time.as_secs_f64() / 60.0).ceil() as usize + 1;
        let mut keys = Self {
            program,
            file,
            keys: Vec::new(),
        };
        for index in 0..count {
            let printed = keys.run("add", index)?;
            keys.keys.push(printed.trim().to_owned());
        }
        Ok(Some(keys))
    }

    fn run(&self, what: &str, index: usize) -> anyhow::Result<String> {
        let mut command = Command::new(&self.program);
        command.args(["keys", what, "--file"]).arg(&self.file);
        let output = command.args(["--id", &format!("key-{index}")]).output()?;
        ensure!(
            output.status.success(),
            "intertie keys {what}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    }
}

/// Which credential a client has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Credential {
    /// A token that expires at this time, in seconds since 1970.
    Token(u64),
    /// A key.
    Key,
}

struct Client {
    stream: TcpStream,
    credential: Credential,
    /// When its stream may end, in microseconds since 1970.
    due: Option<u64>,
    /// The reply's beginning, until it has been looked at; then what came last.
    tail: Vec<u8>,
    is_open: bool,
}

/// What is counted.
struct Tally {
    ends: Ends,
    expiry: Stats,
    revocation: Stats,
}

impl Tally {
    fn new() -> anyhow::Result<Self> {
        Ok(Self {
            ends: Ends::default(),
            expiry: Stats::new()?,
            revocation: Stats::new()?,
        })
    }

    fn error(&mut self, what: &str, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        let ends = &mut self.ends;
        ends.first_error
            .get_or_insert_with(|| format!("{what}: {text}"));
    }

    /// Enters that a stream ended at this instant, whose credential ended when it was due.
    fn ended(&mut self, credential: Credential, due: Option<u64>, at: u64, tail: &[u8]) {
        let Some(late) = due.and_then(|due| at.checked_sub(due)) else {
            self.ends.early += 1;
            return self.error("ended before its credential", tail);
        };
        let (count, stats, names): (_, _, &[&str]) = match credential {
            Credential::Token(_) => (&mut self.ends.expired, &mut self.expiry, &["expired"]),
            Credential::Key => (
                &mut self.ends.revoked,
                &mut self.revocation,
                &["revoked", "expired"],
            ),
        };
        *count += 1;
        stats.reply(Duration::from_micros(late));
        self.ends.late += u64::from(late > LATE_MAX);
        let is_told = names.iter().any(|name| {
            let event = format!("event: {name}\n");
            memchr::memmem::find(tail, event.as_bytes()).is_some()
        });
        if !is_told {
            self.ends.untold += 1;
            self.error("ended without an event", tail);
        }
    }

    fn into_ends(mut self) -> Ends {
        self.ends.expiry = self.expiry.latency();
        self.ends.revocation = self.revocation.latency();
        self.ends
    }
}

/// What clients of a case need.
pub(super) struct Setup {
    pub case: Case,
    pub address: SocketAddr,
    pub issuer: Arc<Issuer>,
    pub keys: Option<ApiKeys>,
}

/// Clients under way.
pub(super) struct Turnover {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<anyhow::Result<Ends>>,
}

impl Turnover {
    /// Connects clients, and has their credentials end one after the other. `None` for a case
    /// without such clients.
    ///
    /// # Errors
    /// When there is no thread or no `epoll`.
    pub fn start(setup: Setup) -> anyhow::Result<Option<Self>> {
        if setup.case.expiring + setup.case.revoked == 0 {
            return Ok(None);
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let mut crowd = Crowd {
            setup,
            poll: Poll::new()?,
            clients: Vec::new(),
            tally: Tally::new()?,
            is_over: Arc::clone(&is_over),
        };
        let thread = thread::Builder::new().name("turnover".to_owned());
        let thread = thread.spawn(move || {
            crowd.run()?;
            Ok(crowd.tally.into_ends())
        })?;
        Ok(Some(Self { is_over, thread }))
    }

    /// Waits for the streams that are due to end.
    ///
    /// # Errors
    /// When clients could not go on.
    pub fn finish(self) -> anyhow::Result<Ends> {
        self.is_over.store(true, Ordering::Relaxed);
        let joined = self.thread.join();
        joined.map_err(|_| anyhow!("the thread of credentials that end panicked"))?
    }
}

struct Crowd {
    setup: Setup,
    poll: Poll,
    clients: Vec<Option<Client>>,
    tally: Tally,
    is_over: Arc<AtomicBool>,
}

impl Crowd {
    fn run(&mut self) -> anyhow::Result<()> {
        let holders = (self.setup.case.expiring * LIFE).div_ceil(60);
        let start = tokens::now() + FIRST;
        for index in 0..holders {
            // The first expire one after the other, and so do those that follow them.
            self.connect(
                Credential::Token(start + (index * LIFE / holders) as u64),
                None,
            )?;
        }
        let keys = self.setup.keys.as_ref().map_or(0, |it| it.keys.len());
        let first_key = self.clients.len();
        for index in 0..keys {
            self.connect(Credential::Key, Some(index))?;
        }
        let period = 60_000_000 / (self.setup.case.revoked as u64).max(1);
        let (mut revoked, mut next) = (0, stamp::now() + FIRST * 1_000_000);
        let mut events = Events::with_capacity(1024);
        let mut room = vec![0; ROOM];
        while !self.is_over.load(Ordering::Relaxed) {
            if revoked < keys && stamp::now() >= next {
                self.revoke(first_key, revoked)?;
                revoked += 1;
                next += period;
            }
            self.turn(&mut events, &mut room)?;
        }
        let over = stamp::now();
        let is_awaited = |it: &Client| it.due.is_some_and(|due| due <= over);
        while self.clients.iter().flatten().any(is_awaited) && stamp::now() < over + LATE_MAX {
            self.turn(&mut events, &mut room)?;
        }
        let left = self.clients.iter().flatten().filter(|it| is_awaited(it));
        self.tally.ends.late += left.count() as u64;
        Ok(())
    }

    fn revoke(&mut self, first: usize, index: usize) -> anyhow::Result<()> {
        if let Some(Some(client)) = self.clients.get_mut(first + index) {
            client.due = Some(stamp::now());
        }
        let keys = self.setup.keys.as_ref().context("there are no keys")?;
        keys.run("revoke", index).map(drop)
    }

    /// Connects a client with a new token, or with one of the keys.
    fn connect(&mut self, credential: Credential, key: Option<usize>) -> anyhow::Result<()> {
        let index = self.clients.len();
        let field = match (credential, key) {
            (Credential::Token(expires), _) => {
                system::bearer(&self.setup.issuer.token(CLIENTS + index, expires)?)
            }
            (Credential::Key, key) => {
                let keys = self.setup.keys.as_ref().map(|it| it.keys.as_slice());
                let key = keys.zip(key).and_then(|(keys, key)| keys.get(key));
                format!("X-Api-Key: {}", key.context("there is no such key")?)
            }
        };
        let (case, address) = (&self.setup.case, self.setup.address);
        let request = system::subscription(System::Intertie, case, address, 1);
        let mut stream = net::connect(address, &system::with_field(&request, &field))?;
        let registry = self.poll.registry();
        registry.register(&mut stream, Token(index), Interest::READABLE)?;
        self.clients.push(Some(Client {
            stream,
            credential,
            due: match credential {
                Credential::Token(expires) => Some(expires * 1_000_000),
                Credential::Key => None,
            },
            tail: Vec::new(),
            is_open: false,
        }));
        Ok(())
    }

    fn turn(&mut self, events: &mut Events, room: &mut [u8]) -> anyhow::Result<()> {
        match self.poll.poll(events, Some(TURN)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            result => result.context("poll")?,
        }
        for event in events.iter() {
            let Token(index) = event.token();
            let Some(place) = self.clients.get_mut(index) else {
                continue;
            };
            let Some(client) = place.as_mut() else {
                continue;
            };
            if client.read(room).is_ok() {
                continue;
            }
            let (credential, due) = (client.credential, client.due);
            let (is_open, tail) = (client.is_open, std::mem::take(&mut client.tail));
            *place = None;
            if !is_open {
                self.tally.ends.refused += 1;
                self.tally.error("not let in", &tail);
                continue;
            }
            self.tally.ended(credential, due, stamp::now(), &tail);
            if let Credential::Token(expires) = credential
                && !self.is_over.load(Ordering::Relaxed)
            {
                let expires = (expires + LIFE as u64).max(tokens::now() + 1);
                self.connect(Credential::Token(expires), None)?;
            }
        }
        Ok(())
    }
}

impl Client {
    /// Reads all there is. An error is the end of the stream.
    fn read(&mut self, room: &mut [u8]) -> io::Result<()> {
        loop {
            match self.stream.read(room) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.take(room.get(..count).unwrap_or_default());
                    if self.tail.ends_with(LAST_CHUNK) {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.is_open |= self.tail.starts_with(b"HTTP/1.1 200 ");
        if self.is_open && self.tail.len() > TAIL {
            self.tail.drain(..self.tail.len() - TAIL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_ends_are_judged_by_their_time_and_reason() {
        let mut tally = Tally::new().unwrap();
        let token = Credential::Token(10);
        let due = Some(10_000_000);
        tally.ended(token, due, 10_400_000, b"event: expired\ndata: {}\n\n");
        assert_eq!((tally.ends.expired, tally.ends.faults()), (1, 0));
        tally.ended(token, due, 9_999_999, b"event: expired\n");
        tally.ended(token, due, 12_100_000, b"event: expired\n");
        tally.ended(token, due, 10_000_000, b"retry: 5\n\n");
        tally.ended(Credential::Key, None, 5, b"event: revoked\n");
        tally.ended(Credential::Key, Some(4), 5, b"event: revoked\n");
        let ends = tally.into_ends();
        assert_eq!((ends.expired, ends.revoked), (3, 1));
        assert_eq!((ends.early, ends.late, ends.untold), (2, 1, 1));
        let error = ends.first_error.as_deref().unwrap();
        assert!(error.starts_with("ended before its credential"), "{error}");
        assert!((ends.expiry.max - 2100.0).abs() < 5.0, "{:?}", ends.expiry);
        let both = Ends::median(&[&ends, &ends]);
        assert_eq!((both.expired, both.faults()), (6, 8));
    }
}
