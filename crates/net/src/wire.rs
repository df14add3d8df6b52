//! A byte stream to another system for drivers that bring their own protocol: a socket in clear
//! text, or one with TLS of our own settings over it.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::tls::{Client, TlsStream};

/// A byte stream to another system.
#[derive(Debug)]
pub struct Wire {
    stream: Stream,
    peer: SocketAddr,
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

impl Wire {
    /// Connects in clear text to the first address of a host that answers. It may wait for as long
    /// as the system does: whoever calls it sets a limit.
    ///
    /// # Errors
    /// When the host has no address, or none answers.
    pub async fn connect(host: &str, port: u16) -> io::Result<Self> {
        let socket = TcpStream::connect((host, port)).await?;
        socket.set_nodelay(true)?;
        let peer = socket.peer_addr()?;
        let stream = Stream::Plain(socket);
        Ok(Self { stream, peer })
    }

    /// Begins TLS; ready when both sides have agreed on keys and the other side is who it must be.
    ///
    /// # Errors
    /// When they cannot agree, and when there is TLS already.
    pub async fn encrypt(self, client: &Client) -> io::Result<Self> {
        let Stream::Plain(socket) = self.stream else {
            return Err(io::Error::other("the connection is encrypted already"));
        };
        let mut stream = Box::new(TlsStream::client(socket, client)?);
        poll_fn(|context| stream.poll_handshake(context)).await?;
        Ok(Self {
            stream: Stream::Tls(stream),
            peer: self.peer,
        })
    }

    /// The address of the other side.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }
}

impl AsyncRead for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, space),
            Stream::Tls(stream) => stream.poll_read(context, space),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Tls(stream) => stream.poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(_) => Poll::Ready(Ok(())),
            Stream::Tls(stream) => stream.poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => stream.poll_finish(context),
        }
    }
}
