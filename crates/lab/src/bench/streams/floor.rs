//! The floor of fan-out: a server that writes what is posted to a path to all who asked for that
//! path, one after the other, and does nothing else. No ids, no heartbeats, nothing is kept.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::rc::Rc;

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};

use crate::wire::{BodyLength, body_length, invalid};

const LISTENER: Token = Token(usize::MAX);
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
    Transfer-Encoding: chunked\r\n\r\n";
const POSTED: &[u8] = b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n";
const FIELDS_MAX: usize = 64;

/// Arguments of the hidden `intertie-bench write-loop`.
#[derive(Debug, clap::Args)]
pub(crate) struct WriteLoopArgs {
    /// Where to listen.
    #[arg(long)]
    listen: SocketAddr,
}

/// Serves until it is stopped.
///
/// # Errors
/// When it cannot listen.
pub(crate) fn run(args: &WriteLoopArgs) -> anyhow::Result<()> {
    crate::bench::process::allow_files()?;
    serve(crate::stub::listen(args.listen)?)
}

/// Serves a listener until something fails that is not a client's.
///
/// # Errors
/// When the kernel's poll fails.
pub(super) fn serve(listener: std::net::TcpListener) -> anyhow::Result<()> {
    let mut server = Server::new(listener)?;
    loop {
        server.turn()?;
    }
}

struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    /// What the socket has not taken yet.
    waiting: VecDeque<(Rc<[u8]>, usize)>,
}

struct Server {
    poll: Poll,
    events: Events,
    listener: TcpListener,
    clients: Vec<Option<Client>>,
    free: Vec<usize>,
    /// The clients that asked for a path.
    subscribers: HashMap<Vec<u8>, Vec<usize>>,
    room: Vec<u8>,
}

impl Server {
    fn new(listener: std::net::TcpListener) -> io::Result<Self> {
        let poll = Poll::new()?;
        let mut listener = TcpListener::from_std(listener);
        poll.registry()
            .register(&mut listener, LISTENER, Interest::READABLE)?;
        Ok(Self {
            poll,
            events: Events::with_capacity(1024),
            listener,
            clients: Vec::new(),
            free: Vec::new(),
            subscribers: HashMap::new(),
            room: vec![0; 256 * 1024],
        })
    }

    /// Waits for what comes, and does it.
    fn turn(&mut self) -> io::Result<()> {
        if let Err(error) = self.poll.poll(&mut self.events, None) {
            return match error.kind() {
                io::ErrorKind::Interrupted => Ok(()),
                _ => Err(error),
            };
        }
        let ready: Vec<(Token, bool, bool)> = self
            .events
            .iter()
            .map(|event| (event.token(), event.is_readable(), event.is_writable()))
            .collect();
        for (Token(index), is_readable, is_writable) in ready {
            if Token(index) == LISTENER {
                self.accept()?;
                continue;
            }
            let result = match (is_writable, is_readable) {
                (true, false) => self.write_waiting(index),
                (true, true) => self.write_waiting(index).and_then(|()| self.read(index)),
                _ => self.read(index),
            };
            if result.is_err() {
                self.remove(index);
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let (mut stream, _) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            stream.set_nodelay(true)?;
            let index = self.free.pop().unwrap_or(self.clients.len());
            let interest = Interest::READABLE | Interest::WRITABLE;
            self.poll
                .registry()
                .register(&mut stream, Token(index), interest)?;
            let client = Some(Client {
                stream,
                input: Vec::new(),
                waiting: VecDeque::new(),
            });
            match self.clients.get_mut(index) {
                Some(place) => *place = client,
                None => self.clients.push(client),
            }
        }
    }

    fn remove(&mut self, index: usize) {
        if let Some(place) = self.clients.get_mut(index)
            && place.take().is_some()
        {
            for indexes in self.subscribers.values_mut() {
                indexes.retain(|it| *it != index);
            }
            self.free.push(index);
        }
    }

    fn read(&mut self, index: usize) -> io::Result<()> {
        let Some(client) = self.clients.get_mut(index).and_then(Option::as_mut) else {
            return Ok(());
        };
        loop {
            match client.stream.read(&mut self.room) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    let bytes = self.room.get(..count).unwrap_or_default();
                    client.input.extend_from_slice(bytes);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        while let Some(client) = self.clients.get_mut(index).and_then(Option::as_mut) {
            let Some(request) = request(&client.input)? else {
                return Ok(());
            };
            if request.is_post {
                let body = client.input.get(request.head..request.size);
                let event = event(body.unwrap_or_default());
                client.input.drain(..request.size);
                self.write_all(&request.path, &event);
                self.send(index, &Rc::from(POSTED))?;
            } else {
                client.input.drain(..request.size);
                self.subscribers
                    .entry(request.path)
                    .or_default()
                    .push(index);
                self.send(index, &Rc::from(HEAD))?;
            }
        }
        Ok(())
    }

    /// The loop that everything is compared with.
    fn write_all(&mut self, path: &[u8], event: &Rc<[u8]>) {
        let mut gone = Vec::new();
        for index in self.subscribers.get(path).into_iter().flatten() {
            let client = self.clients.get_mut(*index).and_then(Option::as_mut);
            if client.is_some_and(|client| send(client, event).is_err()) {
                gone.push(*index);
            }
        }
        gone.into_iter().for_each(|index| self.remove(index));
    }

    fn send(&mut self, index: usize, bytes: &Rc<[u8]>) -> io::Result<()> {
        match self.clients.get_mut(index).and_then(Option::as_mut) {
            Some(client) => send(client, bytes),
            None => Ok(()),
        }
    }

    fn write_waiting(&mut self, index: usize) -> io::Result<()> {
        let Some(client) = self.clients.get_mut(index).and_then(Option::as_mut) else {
            return Ok(());
        };
        while let Some((bytes, at)) = client.waiting.front_mut() {
            *at += write_some(&mut client.stream, bytes.get(*at..).unwrap_or_default())?;
            if *at < bytes.len() {
                return Ok(());
            }
            client.waiting.pop_front();
        }
        Ok(())
    }
}

/// Writes to a client, or keeps what its socket does not take.
fn send(client: &mut Client, bytes: &Rc<[u8]>) -> io::Result<()> {
    let mut at = 0;
    if client.waiting.is_empty() {
        at = write_some(&mut client.stream, bytes)?;
    }
    if at < bytes.len() {
        client.waiting.push_back((Rc::clone(bytes), at));
    }
    Ok(())
}

fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        match stream.write(rest) {
            Ok(count) => at += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(at)
}

/// A whole request.
struct Request {
    is_post: bool,
    path: Vec<u8>,
    /// The bytes of the head, and of all.
    head: usize,
    size: usize,
}

/// The request at the beginning, once it is whole.
fn request(bytes: &[u8]) -> io::Result<Option<Request>> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut fields);
    let status = parsed.parse(bytes);
    let status = status.map_err(|error| invalid(&error.to_string()))?;
    let httparse::Status::Complete(head) = status else {
        return Ok(None);
    };
    let length = match body_length(parsed.headers)? {
        BodyLength::Exactly(length) => length,
        BodyLength::Unknown => 0,
        BodyLength::Chunked => return Err(invalid("a body in chunks")),
    };
    let size = head + length;
    let request = Request {
        is_post: parsed.method == Some("POST"),
        path: parsed.path.unwrap_or_default().as_bytes().to_vec(),
        head,
        size,
    };
    Ok((bytes.len() >= size).then_some(request))
}

/// An event in a chunk of its own.
fn event(data: &[u8]) -> Rc<[u8]> {
    let event = [b"data: ", data, b"\n\n"].concat();
    let size = format!("{:x}\r\n", event.len());
    Rc::from([size.as_bytes(), &event, b"\r\n"].concat())
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn what_is_posted_comes_to_all() {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = crate::stub::listen(address).unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || serve(listener));
        let connect = || std::net::TcpStream::connect(address).unwrap();
        let expect = |stream: &mut std::net::TcpStream, wanted: &[u8]| {
            let mut bytes = vec![0; wanted.len()];
            stream.read_exact(&mut bytes).unwrap();
            assert_eq!(String::from_utf8(bytes), String::from_utf8(wanted.to_vec()));
        };
        let mut other = connect();
        other.write_all(b"GET /other HTTP/1.1\r\n\r\n").unwrap();
        expect(&mut other, HEAD);
        let mut readers = [connect(), connect()];
        for reader in &mut readers {
            reader.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            expect(reader, HEAD);
        }
        let mut publisher = connect();
        let post = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi";
        publisher.write_all(&[&post[..], post].concat()).unwrap();
        expect(&mut publisher, &[POSTED, POSTED].concat());
        for reader in &mut readers {
            expect(reader, &b"a\r\ndata: hi\n\n\r\na\r\ndata: hi\n\n\r\n"[..]);
        }
        let post = b"POST /other HTTP/1.1\r\nContent-Length: 3\r\n\r\nyou";
        publisher.write_all(post).unwrap();
        expect(&mut other, b"b\r\ndata: you\n\n\r\n");
    }
}
