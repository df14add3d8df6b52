//! One HTTP/1.1 connection of a user: a request, and its whole reply or what came instead.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::wire::{BodyLength, Buffer, body_length, read_chunked};

const FIELDS_MAX: usize = 64;
/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// What is asked.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub method: &'static str,
    pub path: String,
    pub body: Vec<u8>,
}

impl Request {
    pub fn get(path: &str) -> Self {
        Self {
            method: "GET",
            path: path.to_owned(),
            body: Vec::new(),
        }
    }

    pub fn post(path: &str, body: impl Into<Vec<u8>>) -> Self {
        Self {
            method: "POST",
            path: path.to_owned(),
            body: body.into(),
        }
    }

    fn text(&self, host: SocketAddr) -> Vec<u8> {
        let mut text = format!(
            "{} {} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            self.method,
            self.path,
            self.body.len()
        )
        .into_bytes();
        text.extend_from_slice(&self.body);
        text
    }
}

/// What came back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reply {
    pub status: u16,
    pub retry_after: Option<String>,
    pub body: Vec<u8>,
    /// Whether the connection ends behind it.
    pub is_last: bool,
}

impl Reply {
    /// Whether the request was taken.
    pub fn is_good(&self) -> bool {
        (200..300).contains(&self.status)
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// A connection that is made when it is needed, and again when it has ended.
pub(super) struct Client {
    address: SocketAddr,
    open: Option<(TcpStream, Buffer)>,
}

impl Client {
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            open: None,
        }
    }

    /// Connects, unless that is done.
    ///
    /// # Errors
    /// When nobody accepts.
    pub async fn connect(&mut self) -> anyhow::Result<()> {
        if self.open.is_none() {
            let stream = timeout(CONNECT_MAX, TcpStream::connect(self.address)).await??;
            stream.set_nodelay(true)?;
            self.open = Some((stream, Buffer::default()));
        }
        Ok(())
    }

    /// Sends a request and reads its reply.
    ///
    /// # Errors
    /// When the connection ends before the reply does, or nothing comes in time.
    pub async fn ask(&mut self, request: &Request, patience: Duration) -> anyhow::Result<Reply> {
        self.connect().await?;
        let (mut stream, mut input) = self.open.take().context("not connected")?;
        let text = request.text(self.address);
        let exchange = async {
            stream.write_all(&text).await?;
            read(&mut stream, &mut input).await
        };
        let reply = timeout(patience, exchange).await.context("no reply")??;
        if !reply.is_last {
            self.open = Some((stream, input));
        }
        Ok(reply)
    }
}

/// Asks once on a connection of its own, and blocks.
///
/// # Errors
/// As [`Client::ask`].
pub(super) fn ask(address: SocketAddr, request: &Request) -> anyhow::Result<Reply> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let patience = Duration::from_secs(60);
    runtime.block_on(Client::new(address).ask(request, patience))
}

async fn read(stream: &mut TcpStream, input: &mut Buffer) -> anyhow::Result<Reply> {
    loop {
        if let Some((reply, length)) = whole(input.bytes())? {
            input.take(length);
            return Ok(reply);
        }
        ensure!(input.read(stream).await?, "the connection ended");
    }
}

/// The reply at the start of these bytes and its length, if it is whole.
fn whole(bytes: &[u8]) -> anyhow::Result<Option<(Reply, usize)>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut head = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(start) = head.parse(bytes)? else {
        return Ok(None);
    };
    let mut reply = Reply {
        status: head.code.unwrap_or(0),
        is_last: head.version == Some(0),
        ..Reply::default()
    };
    for field in head.headers.iter() {
        let is = |name: &str| field.name.eq_ignore_ascii_case(name);
        reply.is_last |= is("connection") && field.value.eq_ignore_ascii_case(b"close");
        if is("retry-after") {
            reply.retry_after = Some(String::from_utf8_lossy(field.value).into_owned());
        }
    }
    let rest = bytes.get(start..).unwrap_or_default();
    let length = match body_length(head.headers)? {
        BodyLength::Exactly(length) => rest.get(..length).map(|body| {
            reply.body = body.to_vec();
            length
        }),
        BodyLength::Chunked => read_chunked(rest, &mut reply.body)?,
        BodyLength::Unknown if matches!(reply.status, 204 | 304) => Some(0),
        BodyLength::Unknown => bail!("a reply without a length"),
    };
    Ok(length.map(|length| (reply, start + length)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_when_they_are_whole() {
        let text = "HTTP/1.1 503 Busy\r\nRetry-After: 5\r\nContent-Length: 2\r\n\r\nab";
        for length in 0..text.len() {
            assert_eq!(whole(&text.as_bytes()[..length]).unwrap(), None);
        }
        let (reply, length) = whole(text.as_bytes()).unwrap().unwrap();
        assert_eq!(length, text.len());
        assert_eq!((reply.status, reply.is_good()), (503, false));
        assert_eq!(reply.retry_after.as_deref(), Some("5"));
        assert_eq!(reply.text(), "ab");
        let text = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
        assert_eq!(whole(text).unwrap().unwrap().0.body, b"a");
        assert!(whole(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(whole(b"nonsense\r\n\r\n").is_err());
    }
}
