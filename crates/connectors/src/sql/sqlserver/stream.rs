//! A connection that reads no more than a limit between two rows: the client gathers a row whole,
//! whatever its size.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The most bytes between two rows. The limits of a step are lower. Tests come to it soon.
const READ_MAX: usize = if cfg!(test) { 4 << 20 } else { 64 << 20 };

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
            return Poll::Ready(Err(io::ErrorKind::FileTooLarge.into()));
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[test]
    fn what_is_read_between_two_rows_has_a_limit() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let chunk = vec![0; 1 << 20];
            while stream.write_all(&chunk).is_ok() {}
        });
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_io().build().unwrap();
        runtime.block_on(async {
            let stream = TcpStream::connect(address).await.unwrap();
            let (mut stream, meter) = Metered::new(stream);
            let mut chunk = vec![0; 1 << 20];
            for _ in 0..3 {
                stream.read_exact(&mut chunk).await.unwrap();
            }
            meter.reset();
            for _ in 0..3 {
                stream.read_exact(&mut chunk).await.unwrap();
            }
            assert!(!meter.is_full());
            while stream.read_exact(&mut chunk).await.is_ok() {}
            assert!(meter.is_full());
        });
    }
}
