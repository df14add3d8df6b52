//! An encrypted stream: a socket and the TLS session over it.
//!
//! The stream owns what it has accepted: [`TlsStream::poll_write`] encrypts bytes and counts them
//! as written, and records that the socket does not take at once go out with the next write, flush
//! or read. At most one write's records wait, so backpressure reaches the caller with the write
//! after it.

use std::io::{self, Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use message::{CertificateSource, ClientCertificate};
use rustls::{ClientConnection, Connection as Session, HandshakeKind, ServerConnection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::{Client, Protocol, Server};

/// The most bytes that are encrypted before they are written: four full records.
const WRITE_MAX: usize = 64 * 1024;

/// An encrypted stream.
#[derive(Debug)]
pub(crate) struct TlsStream {
    socket: TcpStream,
    session: Session,
    /// Why records could not be written. Kept for the next write or flush: the bytes of the write
    /// that met it were accepted, and some of its records may have gone out.
    write_error: Option<io::Error>,
    closing: bool,
    /// How many bytes of records the socket has taken.
    records_taken: u64,
    /// The certificate that the other side has shown, if that is a client.
    certificate: Option<Arc<ClientCertificate>>,
}

impl TlsStream {
    pub fn server(socket: TcpStream, server: &Server) -> io::Result<Self> {
        let session = ServerConnection::new(server.config.clone()).map_err(io::Error::other)?;
        Ok(Self::new(socket, session.into()))
    }

    pub fn client(socket: TcpStream, client: &Client) -> io::Result<Self> {
        let session = ClientConnection::new(client.config.clone(), client.name.clone());
        Ok(Self::new(socket, session.map_err(io::Error::other)?.into()))
    }

    fn new(socket: TcpStream, mut session: Session) -> Self {
        session.set_buffer_limit(Some(WRITE_MAX));
        Self {
            socket,
            session,
            write_error: None,
            closing: false,
            records_taken: 0,
            certificate: None,
        }
    }

    /// Ready when both sides have agreed on keys.
    pub fn poll_handshake(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            while self.session.wants_write() {
                ready!(self.poll_records_out(context))?;
            }
            if !self.session.is_handshaking() {
                self.keep_certificate();
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_records_in(context))? == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    fn keep_certificate(&mut self) {
        if let Session::Server(session) = &self.session {
            let shown = session.peer_certificates().and_then(<[_]>::first);
            self.certificate = shown.map(|own| {
                let source = CertificateSource::Handshake(own.to_vec());
                Arc::new(ClientCertificate::new(source))
            });
        }
    }

    /// The certificate that the client has shown.
    pub fn certificate(&self) -> Option<&Arc<ClientCertificate>> {
        self.certificate.as_ref()
    }

    /// Whether an earlier session was taken up again (RFC 8446, section 2.2).
    pub fn is_resumed(&self) -> bool {
        self.session.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// What both sides have agreed to speak; none when the client named no protocol.
    pub fn protocol(&self) -> Option<Protocol> {
        match self.session.alpn_protocol()? {
            b"h2" => Some(Protocol::Http2),
            _ => Some(Protocol::Http1),
        }
    }

    /// Reads once, and writes records that wait. Nothing read means that the other side has
    /// properly ended the stream; an end without `close_notify` is an error (RFC 8446, section
    /// 6.1).
    #[inline]
    pub fn poll_read(
        &mut self,
        context: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.write_waiting(context);
        loop {
            match self.session.reader().read(space.initialize_unfilled()) {
                Ok(count) => {
                    space.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
            ready!(self.poll_records_in(context))?;
        }
    }

    /// Encrypts some of these bytes, once the records of the write before are out. They are the
    /// stream's from then on: the caller goes on behind them.
    #[inline]
    pub fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_flush(context))?;
        let piece = bytes.get(..WRITE_MAX).unwrap_or(bytes);
        let count = self.session.writer().write(piece)?;
        self.write_waiting(context);
        Poll::Ready(Ok(count))
    }

    /// Ready when the socket has taken every record.
    #[inline]
    pub fn poll_flush(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some(error) = self.write_error.take() {
            return Poll::Ready(Err(error));
        }
        while self.session.wants_write() {
            ready!(self.poll_records_out(context))?;
        }
        Poll::Ready(Ok(()))
    }

    /// Whether the socket has taken every record.
    pub fn is_flushed(&self) -> bool {
        !self.session.wants_write()
    }

    /// How many bytes of records the socket has taken; tells progress.
    pub fn records_taken(&self) -> u64 {
        self.records_taken
    }

    /// Writes records that wait, as far as the socket takes them.
    #[inline]
    fn write_waiting(&mut self, context: &mut Context<'_>) {
        if self.write_error.is_none()
            && self.session.wants_write()
            && let Poll::Ready(Err(error)) = self.poll_flush(context)
        {
            self.write_error = Some(error);
        }
    }

    /// Says that nothing more will be written: `close_notify`, then the end of the socket.
    pub fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.closing {
            self.closing = true;
            self.session.send_close_notify();
        }
        ready!(self.poll_flush(context))?;
        Pin::new(&mut self.socket).poll_shutdown(context)
    }

    /// Has the socket's end tell the other side that the stream was cut (TCP reset).
    pub fn abort(&self) -> io::Result<()> {
        self.socket.set_zero_linger()
    }

    fn poll_records_in(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut socket = Socket {
            stream: &mut self.socket,
            context,
        };
        let count = match self.session.read_tls(&mut socket) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Poll::Pending,
            Err(error) => return Poll::Ready(Err(error)),
        };
        if let Err(error) = self.session.process_new_packets() {
            // The other side should learn why; if the alert does not go out now it never will.
            let _ = self.poll_records_out(context);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, error)));
        }
        if !self.session.is_handshaking() {
            // Answers of the session itself, such as to a key update.
            self.write_waiting(context);
        }
        Poll::Ready(Ok(count))
    }

    fn poll_records_out(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut socket = Socket {
            stream: &mut self.socket,
            context,
        };
        match self.session.write_tls(&mut socket) {
            Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => {
                self.records_taken += count as u64;
                Poll::Ready(Ok(()))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

/// The socket as `rustls` wants it: what is pending is `WouldBlock`.
struct Socket<'a, 'b> {
    stream: &'a mut TcpStream,
    context: &'a mut Context<'b>,
}

impl Read for Socket<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut space = ReadBuf::new(buffer);
        match Pin::new(&mut *self.stream).poll_read(self.context, &mut space) {
            Poll::Ready(Ok(())) => Ok(space.filled().len()),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for Socket<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match Pin::new(&mut *self.stream).poll_write(self.context, bytes) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn write_vectored(&mut self, parts: &[io::IoSlice<'_>]) -> io::Result<usize> {
        // One record is the rule, and a plain send is cheaper than a gathering one.
        if let [part] = parts {
            return self.write(part);
        }
        match Pin::new(&mut *self.stream).poll_write_vectored(self.context, parts) {
            Poll::Ready(result) => result,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
