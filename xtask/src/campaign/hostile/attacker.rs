//! One thread of an attack: it opens connections to a server, floods them or lets bytes drip, and
//! expects to be cut off.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;
use socket2::{Domain, Socket, Type};

/// How long an attacker waits for what a server does.
const PATIENCE: Duration = Duration::from_secs(8);
/// The same for the beginning of an answer: many attempts matter more than late answers.
const PATIENCE_ONCE: Duration = Duration::from_millis(300);
/// Between two looks at connections on which nothing moves.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// What one connection of a flood is given before the next one has its turn.
const TURN: usize = 256 * 1024;

/// Where the server under attack listens.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    pub http: u16,
    pub h2: u16,
    pub tls: u16,
    pub admin: u16,
    /// The server that stands in for all that the engine calls.
    pub back_end: u16,
}

pub struct Attacker {
    pub ports: Ports,
    pub random: Rng,
    /// Where it comes from; the machine says so without.
    pub address: Option<Ipv4Addr>,
    until: Instant,
    /// Connections of floods, and requests, frames or messages: whatever the attack consists of.
    pub sent: u64,
    /// Connections that the server has ended.
    pub cut: u64,
}

/// Bytes for many connections at once.
#[derive(Clone, Copy)]
pub struct Flood<'a> {
    pub port: u16,
    pub connections: u64,
    /// What each sends first.
    pub opening: &'a [u8],
    /// Whether what the server sends is read.
    pub reads: bool,
    /// After each round in which every connection has sent once; none when they send as fast as
    /// they can.
    pub pause: Option<Duration>,
    /// After which the connections are closed and others opened.
    pub time: Duration,
}

impl<'a> Flood<'a> {
    /// As fast as the server takes it, its answers read, for two seconds.
    pub fn new(port: u16, connections: u64, opening: &'a [u8]) -> Self {
        Self {
            port,
            connections,
            opening,
            reads: true,
            pause: None,
            time: Duration::from_secs(2),
        }
    }

    /// Nothing is read.
    pub fn unread(mut self) -> Self {
        self.reads = false;
        self
    }

    /// Each connection sends once, then all wait.
    pub fn slow(mut self, millis: u64) -> Self {
        self.pause = Some(Duration::from_millis(millis));
        self
    }

    pub fn seconds(mut self, seconds: u64) -> Self {
        self.time = Duration::from_secs(seconds);
        self
    }
}

/// A connection of a flood.
struct FloodConnection {
    stream: TcpStream,
    bytes: Vec<u8>,
    at: usize,
    turn: u64,
    is_cut: bool,
}

impl Attacker {
    pub fn new(ports: Ports, seed: u64, time: Duration) -> Self {
        Self {
            ports,
            random: Rng::with_seed(seed),
            address: None,
            until: Instant::now() + time,
            sent: 0,
            cut: 0,
        }
    }

    pub fn goes_on(&self) -> bool {
        Instant::now() < self.until
    }

    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Sleeps, but not beyond the end of the attack.
    pub fn pause(&self, time: Duration) {
        thread::sleep(time.min(self.left()));
    }

    /// One of these.
    pub fn any<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.random.usize(..of.len())]
    }

    pub fn connect(&self, port: u16) -> io::Result<TcpStream> {
        let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = match self.address {
            None => TcpStream::connect(to)?,
            Some(address) => {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
                socket.bind(&SocketAddr::from((address, 0)).into())?;
                socket.connect(&to.into())?;
                socket.into()
            }
        };
        let patience = PATIENCE.min(self.left()).max(Duration::from_millis(50));
        stream.set_read_timeout(Some(patience))?;
        stream.set_write_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Sends something on a new connection, and reads the beginning of the answer.
    pub fn try_once(&mut self, port: u16, bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut stream = self.connect(port)?;
        stream.set_read_timeout(Some(PATIENCE_ONCE))?;
        self.sent += 1;
        // A server that refuses early has answered all the same.
        let written = stream.write_all(bytes);
        let mut answer = vec![0; 16 * 1024];
        let read = stream.read(&mut answer);
        answer.truncate(read.or_else(|error| written.map(|()| 0).map_err(|_| error))?);
        Ok(answer)
    }

    /// Posts a body, and reads the whole answer.
    pub fn post(&mut self, path: &str, headers: &str, body: &[u8]) -> io::Result<()> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{headers}\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        let mut stream = self.connect(self.ports.http)?;
        self.sent += 1;
        let written = stream
            .write_all(head.as_bytes())
            .and_then(|()| stream.write_all(body));
        let read = io::copy(&mut stream, &mut io::sink());
        written.and(read.map(drop))
    }

    pub fn post_json(&mut self, path: &str, body: &str) -> io::Result<()> {
        self.post(path, "Content-Type: application/json\r\n", body.as_bytes())
    }

    /// Opens connections and sends on each what `next` makes of its turn, counted from 0, until the
    /// server has cut all of them or the time is over. Nothing at all means that this one is done.
    pub fn flood(
        &mut self,
        flood: Flood<'_>,
        mut next: impl FnMut(u64, &mut Rng) -> Vec<u8>,
    ) -> io::Result<()> {
        let end = self.until.min(Instant::now() + flood.time);
        let mut connections = Vec::new();
        while (connections.len() as u64) < flood.connections && Instant::now() < end {
            let stream = self.connect(flood.port)?;
            stream.set_nonblocking(true)?;
            self.sent += 1;
            connections.push(FloodConnection {
                stream,
                bytes: flood.opening.to_vec(),
                at: 0,
                turn: 0,
                is_cut: false,
            });
        }
        let mut answers = vec![0; 64 * 1024];
        while Instant::now() < end && !connections.is_empty() {
            let mut has_moved = false;
            for connection in &mut connections {
                let sent = connection.send(&flood, &mut self.random, &mut next);
                self.sent += sent;
                has_moved |= sent > 0;
                if flood.reads {
                    has_moved |= connection.drain(&mut answers);
                }
            }
            let before = connections.len();
            connections.retain(|connection| !connection.is_cut);
            self.cut += (before - connections.len()) as u64;
            match flood.pause {
                Some(pause) => self.pause(pause),
                None if has_moved => {}
                None => thread::sleep(LOOK_EVERY),
            }
        }
        Ok(())
    }
}

impl FloodConnection {
    /// Sends as much as the server takes, or once when there are pauses. How many turns began.
    fn send(
        &mut self,
        flood: &Flood<'_>,
        random: &mut Rng,
        next: &mut impl FnMut(u64, &mut Rng) -> Vec<u8>,
    ) -> u64 {
        let (mut turns, mut written) = (0, 0);
        while written < TURN {
            if self.at == self.bytes.len() {
                if flood.pause.is_some() && turns > 0 {
                    break;
                }
                self.bytes = next(self.turn, random);
                self.at = 0;
                if self.bytes.is_empty() {
                    break;
                }
                self.turn += 1;
                turns += 1;
            }
            let (_, rest) = self.bytes.split_at(self.at);
            match self.stream.write(rest) {
                Ok(count) => {
                    self.at += count;
                    written += count;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => {
                    self.is_cut = true;
                    break;
                }
            }
        }
        turns
    }

    /// Reads what there is; whether there was something.
    fn drain(&mut self, into: &mut [u8]) -> bool {
        match self.stream.read(into) {
            Ok(0) => {
                self.is_cut = true;
                false
            }
            Ok(_) => true,
            Err(error) => {
                self.is_cut |= error.kind() != ErrorKind::WouldBlock;
                false
            }
        }
    }
}
