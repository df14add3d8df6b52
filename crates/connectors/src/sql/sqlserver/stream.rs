//! A connection that reads no more than a limit between two rows: the client gathers a row whole,
//! whatever its size.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The most bytes between two rows. The limits of a step are lower.
const READ_MAX: usize = 64 * 1024 * 1024;

/// How much has been read since the last row.
#[derive(Clone)]
pub struct Meter(Arc<AtomicUsize>);

impl Meter {
    /// A row is complete.
    pub fn reset(&self) {
        self.0.store(0, Relaxed);
    }

    /// Whether the limit was reached.
    pub fn is_full(&self) -> bool {
        self.0.load(Relaxed) > READ_MAX
    }
}

/// The connection.
pub struct Metered {
    stream: TcpStream,
    read: Meter,
}

impl Metered {
    pub fn new(stream: TcpStream) -> (Self, Meter) {
        let read = Meter(Arc::default());
        let meter = read.clone();
        (Self { stream, read }, meter)
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.read.is_full() {
            let message = "a row of more than 64 MiB";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::FileTooLarge, message)));
        }
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let count = buffer.filled().len() - before;
        self.read.0.fetch_add(count, Relaxed);
        polled
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
