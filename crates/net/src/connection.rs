//! A connected socket, in clear text or encrypted, and the bytes read from it that nobody has used
//! yet.

use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use message::ClientCertificate;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::Buffer;
use crate::endpoint::Permit;
use crate::tls::{self, Protocol, TlsStream};

/// The most bytes that are written without getting ready to wait for the socket first: a head and
/// a small body.
const SMALL: usize = 4096;

/// A connected socket and the bytes read from it that nobody has used yet.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    /// What has been read and not been used.
    pub input: Buffer,
    peer: IpAddr,
    permit: Option<Permit>,
    /// Whether the last read has probably taken all that there was.
    is_drained: bool,
}

impl Connection {
    /// Takes over a connected socket in clear text; small writes are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// When the socket is already dead.
    pub fn new(stream: TcpStream, peer: SocketAddr) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self::over(Stream::Plain(stream), peer))
    }

    /// Takes over a connected socket on which a client begins TLS.
    ///
    /// # Errors
    /// When the socket is already dead.
    pub fn accept_tls(
        stream: TcpStream,
        peer: SocketAddr,
        server: &tls::Server,
    ) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let stream = Box::new(TlsStream::server(stream, server)?);
        Ok(Self::over(Stream::Tls(stream), peer))
    }

    /// Takes over a connected socket on which we begin TLS.
    ///
    /// # Errors
    /// When the socket is already dead.
    pub fn begin_tls(
        stream: TcpStream,
        peer: SocketAddr,
        client: &tls::Client,
    ) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let stream = Box::new(TlsStream::client(stream, client)?);
        Ok(Self::over(Stream::Tls(stream), peer))
    }

    fn over(stream: Stream, peer: SocketAddr) -> Self {
        Self {
            stream,
            input: Buffer::default(),
            peer: peer.ip().to_canonical(),
            permit: None,
            is_drained: false,
        }
    }

    /// Keeps the right to this connection for as long as there is the connection.
    pub(crate) fn hold(&mut self, permit: Permit) {
        self.permit = Some(permit);
    }

    /// Ready when TLS has been agreed on; at once in clear text.
    pub fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(_) => Poll::Ready(Ok(())),
            Stream::Tls(stream) => stream.poll_handshake(context),
        }
    }

    /// The protocol that both sides have agreed on by ALPN, if any.
    pub fn protocol(&self) -> Option<Protocol> {
        match &self.stream {
            Stream::Plain(_) => None,
            Stream::Tls(stream) => stream.protocol(),
        }
    }

    /// Whether TLS took an earlier session up again.
    pub fn is_resumed(&self) -> bool {
        match &self.stream {
            Stream::Plain(_) => false,
            Stream::Tls(stream) => stream.is_resumed(),
        }
    }

    /// The certificate that the client has shown while it shook hands, or in the session that was
    /// taken up again.
    pub fn certificate(&self) -> Option<&Arc<ClientCertificate>> {
        match &self.stream {
            Stream::Plain(_) => None,
            Stream::Tls(stream) => stream.certificate(),
        }
    }

    /// Whether the connection is encrypted.
    #[inline]
    pub fn is_tls(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }

    /// The address of the other side; IPv4 also where it is mapped into IPv6.
    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Reads once into the input buffer. `Ok(0)` means that the other side has finished. While
    /// nothing has been read, a waiting connection holds no buffer.
    #[inline]
    pub fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        // Then most likely it has to wait, for which it needs no buffer.
        if std::mem::take(&mut self.is_drained)
            && let Stream::Plain(stream) = &self.stream
            && stream.poll_read_ready(context)?.is_pending()
        {
            self.input.release();
            return Poll::Pending;
        }
        let mut space = ReadBuf::new(self.input.space());
        match self.stream.poll_read(context, &mut space) {
            Poll::Ready(Ok(())) => {
                let count = space.filled().len();
                self.is_drained = space.remaining() > 0;
                self.input.filled(count);
                if count == 0 {
                    self.input.release();
                }
                Poll::Ready(Ok(count))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                self.input.release();
                Poll::Pending
            }
        }
    }

    /// The same while something else is waited for, and the other side is only watched: it sends
    /// something ahead, or leaves.
    #[inline]
    pub fn poll_watch(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let polled = self.poll_fill(context);
        // What wakes the task next is not this connection.
        self.is_drained |= polled.is_pending();
        polled
    }

    /// Writes some of these bytes, at least one. They are the connection's from then on; over TLS
    /// some may still wait for the socket, see [`Connection::poll_flush`].
    #[inline]
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match ready!(self.stream.poll_write(context, bytes)) {
            Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            result => Poll::Ready(result),
        }
    }

    /// Whether [`Connection::poll_write_vectored`] takes bytes from several places without a copy:
    /// in clear text.
    #[inline]
    pub fn is_write_vectored(&self) -> bool {
        matches!(self.stream, Stream::Plain(_))
    }

    /// Writes some of these bytes as [`Connection::poll_write`] does, those of the second slice
    /// behind all of the first, in one system call.
    #[inline]
    pub fn poll_write_vectored(
        &mut self,
        context: &mut Context<'_>,
        [first, second]: [&[u8]; 2],
    ) -> Poll<io::Result<usize>> {
        let Stream::Plain(stream) = &mut self.stream else {
            return self.poll_write(context, first);
        };
        let slices = [IoSlice::new(first), IoSlice::new(second)];
        match ready!(Pin::new(stream).poll_write_vectored(context, &slices)) {
            Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            result => Poll::Ready(result),
        }
    }

    /// Ready when the socket has taken every byte that was written; always in clear text. Reading
    /// flushes too, so a task that goes on to wait for input need not ask.
    #[inline]
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(_) => Poll::Ready(Ok(())),
            Stream::Tls(stream) => stream.poll_flush(context),
        }
    }

    /// Whether the socket has taken every byte that was written.
    #[inline]
    pub fn is_flushed(&self) -> bool {
        match &self.stream {
            Stream::Plain(_) => true,
            Stream::Tls(stream) => stream.is_flushed(),
        }
    }

    /// How many bytes of TLS records the socket has taken; in clear text none. What is written is
    /// encrypted in pieces of up to 64 KiB, and whether a slow reader makes progress within a piece
    /// shows only here.
    #[inline]
    pub fn records_taken(&self) -> u64 {
        match &self.stream {
            Stream::Plain(_) => 0,
            Stream::Tls(stream) => stream.records_taken(),
        }
    }

    /// How many bytes the socket has taken, of so many that were written: over TLS those of its
    /// records, see [`Connection::records_taken`].
    #[inline]
    pub fn delivered(&self, written: u64) -> u64 {
        match &self.stream {
            Stream::Plain(_) => written,
            Stream::Tls(stream) => stream.records_taken(),
        }
    }

    /// Ends the connection by a TCP reset instead of a FIN, so that the other side cannot take what
    /// it got for all there was.
    pub fn abort(self) {
        // A socket on which the option cannot be set is closed already.
        let _ = match &self.stream {
            Stream::Plain(stream) => stream.set_zero_linger(),
            Stream::Tls(stream) => stream.abort(),
        };
    }

    /// Says that nothing more will be written.
    pub fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Tls(stream) => stream.poll_finish(context),
        }
    }

    /// Whether a connection on which nothing should arrive has been closed or has said something.
    /// Costs no system call while the kernel has reported nothing.
    pub fn is_stale(&mut self) -> bool {
        if !self.input.is_empty() {
            return true;
        }
        match &mut self.stream {
            // Asks the kernel only when it has reported something.
            Stream::Plain(stream) => {
                let unread = stream.try_read(&mut [0]);
                !matches!(unread, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            }
            // Session tickets may arrive at any time and are no news.
            Stream::Tls(stream) => {
                let mut context = Context::from_waker(Waker::noop());
                stream
                    .poll_read(&mut context, &mut ReadBuf::new(&mut [0]))
                    .is_ready()
            }
        }
    }
}

#[derive(Debug)]
enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    #[inline]
    fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(stream) => Pin::new(stream).poll_read(context, space),
            Self::Tls(stream) => stream.poll_read(context, space),
        }
    }

    #[inline]
    fn poll_write(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(stream) => {
                // The socket has room for so few bytes nearly always: then nobody need be woken.
                if bytes.len() <= SMALL
                    && let Ok(count) = stream.try_write(bytes)
                {
                    return Poll::Ready(Ok(count));
                }
                Pin::new(stream).poll_write(context, bytes)
            }
            Self::Tls(stream) => stream.poll_write(context, bytes),
        }
    }
}
