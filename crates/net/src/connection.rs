//! A connected socket and the bytes read from it that nobody has used yet.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::Buffer;

/// A connected socket and the bytes read from it that nobody has used yet.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    /// What has been read and not been used.
    pub input: Buffer,
    peer: IpAddr,
}

impl Connection {
    /// Takes over a connected socket; small writes are sent at once (`TCP_NODELAY`).
    ///
    /// # Errors
    /// When the socket is already dead.
    pub fn new(stream: TcpStream, peer: SocketAddr) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            input: Buffer::default(),
            peer: peer.ip().to_canonical(),
        })
    }

    /// The address of the other side; IPv4 also where it is mapped into IPv6.
    pub fn peer(&self) -> IpAddr {
        self.peer
    }

    /// Reads once into the input buffer. `Ok(0)` means that the other side has finished. While
    /// nothing has been read, a waiting connection holds no buffer.
    #[inline]
    pub fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut space = ReadBuf::new(self.input.space());
        match Pin::new(&mut self.stream).poll_read(context, &mut space) {
            Poll::Ready(Ok(())) => {
                let count = space.filled().len();
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

    /// Writes some of these bytes, at least one.
    #[inline]
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match ready!(Pin::new(&mut self.stream).poll_write(context, bytes)) {
            Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            result => Poll::Ready(result),
        }
    }

    /// Writes waiting input bytes of another connection, at least one, and consumes them there.
    #[inline]
    pub fn poll_write_from(
        &mut self,
        context: &mut Context<'_>,
        source: &mut Buffer,
        count: usize,
    ) -> Poll<io::Result<usize>> {
        let bytes = source.bytes().get(..count).unwrap_or_default();
        let written = ready!(self.poll_write(context, bytes))?;
        source.consume(written);
        Poll::Ready(Ok(written))
    }

    /// Says that nothing more will be written.
    pub fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    /// Whether a connection on which nothing should arrive has been closed or has said something.
    /// Costs no system call while the kernel has reported nothing.
    pub fn is_stale(&self) -> bool {
        if !self.input.is_empty() {
            return true;
        }
        let mut context = Context::from_waker(Waker::noop());
        match self.stream.poll_read_ready(&mut context) {
            Poll::Pending => false,
            Poll::Ready(Err(_)) => true,
            Poll::Ready(Ok(())) => {
                let unread = self.stream.try_read(&mut [0]);
                !matches!(unread, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            }
        }
    }
}
