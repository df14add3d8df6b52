//! The service at the end of a flow: it takes numbered messages over HTTP and remembers each, in
//! the memory of the bench, which no fault of a row touches.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};

use super::tally::{Found, number};
use crate::wire::{BodyLength, Buffer, body_length, invalid, read_chunked};

const FIELDS_MAX: usize = 64;
const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
    Content-Length: 17\r\n\r\n{\"accepted\":true}";

struct Shared {
    delay: Duration,
    /// Requests that have not been answered, now and at most.
    flight: (AtomicUsize, AtomicUsize),
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    found: Found,
    /// When each arrived.
    instants: Vec<Instant>,
    /// Requests without a number.
    strange: u64,
}

/// A service that takes messages.
pub(super) struct Sink {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl Sink {
    /// Serves on a thread of its own until the process ends. Every answer waits for so long.
    ///
    /// # Errors
    /// When no address or thread is to be had.
    pub fn start(delay: Duration) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            delay,
            flight: Default::default(),
            taken: Mutex::default(),
        });
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let served = Arc::clone(&shared);
        let thread = thread::Builder::new().name("sink".to_owned());
        thread.spawn(move || runtime.block_on(accept(listener, served)))?;
        Ok(Self { address, shared })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.shared.taken()
    }

    /// What has come.
    pub fn found(&self) -> Found {
        self.taken().found.clone()
    }

    /// How many requests have come, repeated ones included.
    pub fn arrivals(&self) -> usize {
        self.taken().instants.len()
    }

    /// When messages came.
    pub fn instants(&self) -> Vec<Instant> {
        self.taken().instants.clone()
    }

    /// Requests that held no number.
    pub fn strange(&self) -> u64 {
        self.taken().strange
    }

    /// How many requests waited for their answers at once, at most.
    pub fn most_in_flight(&self) -> usize {
        self.shared.flight.1.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, body: &[u8]) {
        let mut taken = self.taken();
        taken.instants.push(Instant::now());
        match number(body) {
            Some(number) => taken.found.add(number),
            None => taken.strange += 1,
        }
    }
}

async fn accept(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let Ok(listener) = TcpListener::from_std(listener) else {
        return;
    };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                // How a connection ends is its client's business.
                tokio::spawn(async move { drop(serve(stream, &shared).await) });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

async fn serve(mut stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut input = Buffer::default();
    let mut body = Vec::new();
    loop {
        let Some(length) = whole(input.bytes(), &mut body)? else {
            if !input.read(&mut stream).await? {
                return Ok(());
            }
            continue;
        };
        input.take(length);
        shared.take(&body);
        let now = shared.flight.0.fetch_add(1, Ordering::Relaxed) + 1;
        shared.flight.1.fetch_max(now, Ordering::Relaxed);
        if !shared.delay.is_zero() {
            tokio::time::sleep(shared.delay).await;
        }
        shared.flight.0.fetch_sub(1, Ordering::Relaxed);
        stream.write_all(REPLY).await?;
    }
}

/// The length of the request at the start, if it is whole; its body is put into `body`.
fn whole(bytes: &[u8], body: &mut Vec<u8>) -> std::io::Result<Option<usize>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Request::new(&mut fields);
    let status = head.parse(bytes).map_err(|_| invalid("no request"))?;
    let httparse::Status::Complete(start) = status else {
        return Ok(None);
    };
    let rest = bytes.get(start..).unwrap_or_default();
    let length = match body_length(head.headers)? {
        BodyLength::Chunked => read_chunked(rest, body)?,
        length => {
            let length = match length {
                BodyLength::Exactly(length) => length,
                _ => 0,
            };
            rest.get(..length).map(|part| {
                body.clear();
                body.extend_from_slice(part);
                length
            })
        }
    };
    Ok(length.map(|length| start + length))
}

#[cfg(test)]
mod tests {
    use super::super::client::{Request, ask};
    use super::*;

    #[test]
    fn messages_are_counted_by_number() {
        let sink = Sink::start(Duration::from_millis(1)).unwrap();
        for body in [r#"{"id":1}"#, r#"{"id":1}"#, r#"{"id":2}"#, "?"] {
            let reply = ask(sink.address(), &Request::post("/x", body)).unwrap();
            assert_eq!(reply.text(), r#"{"accepted":true}"#);
        }
        assert_eq!((sink.found().len(), sink.arrivals()), (2, 4));
        assert_eq!((sink.strange(), sink.instants().len()), (1, 4));
        assert_eq!(sink.most_in_flight(), 1);
    }

    #[test]
    fn requests_are_read_when_they_are_whole() {
        let mut body = Vec::new();
        let text = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nabPOST";
        assert_eq!(whole(&text[..20], &mut body).unwrap(), None);
        assert_eq!(whole(text, &mut body).unwrap(), Some(text.len() - 4));
        assert_eq!(body, b"ab");
        assert!(whole(b"\0\r\n\r\n", &mut body).is_err());
    }
}
