//! A TCP connection, in clear text or with TLS: one handle that reads and writes at the same time
//! and can end in every way there is (FIN, RST, with and without `close_notify`).

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use socket2::{Domain, SockRef, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use crate::certificates::{Authority, Issued};

/// The most bytes of one read.
const READ_MAX: usize = 64 * 1024;

/// The server's side of TLS.
#[derive(Clone)]
pub struct ServerTls(Arc<ServerConfig>);

impl ServerTls {
    /// A server with this certificate that speaks these protocols (RFC 7301), such as `h2`.
    pub fn new(issued: &Issued, protocols: &[&str]) -> Self {
        let chain = vec![CertificateDer::from_pem_slice(issued.cert.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
        let builder = ServerConfig::builder().with_no_client_auth();
        let mut config = builder.with_single_cert(chain, key).unwrap();
        config.alpn_protocols = ids(protocols);
        Self(Arc::new(config))
    }
}

/// The client's side of TLS.
#[derive(Clone)]
pub struct ClientTls(Arc<ClientConfig>);

impl ClientTls {
    /// A client that trusts this authority and offers these protocols.
    pub fn new(authority: &Authority, protocols: &[&str]) -> Self {
        let mut roots = RootCertStore::empty();
        let pem = authority.pem().as_bytes();
        roots
            .add(CertificateDer::from_pem_slice(pem).unwrap())
            .unwrap();
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let mut config = builder.with_no_client_auth();
        config.alpn_protocols = ids(protocols);
        Self(Arc::new(config))
    }
}

fn ids(protocols: &[&str]) -> Vec<Vec<u8>> {
    protocols.iter().map(|it| it.as_bytes().to_vec()).collect()
}

/// One connection. Clones are handles to the same one.
#[derive(Clone)]
pub struct Wire(Rc<RefCell<Inner>>);

struct Inner {
    /// None once it has been closed from this side.
    stream: Option<Stream>,
    /// Those that wait, to be woken when this side closes.
    reader: Option<Waker>,
    writer: Option<Waker>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }
}

trait Duplex: AsyncRead + AsyncWrite + Unpin {}

impl<T: AsyncRead + AsyncWrite + Unpin> Duplex for T {}

impl Wire {
    /// Connects to a port of this machine.
    ///
    /// # Errors
    /// When there is no connection, or no agreement on TLS.
    pub async fn connect(port: u16, tls: Option<&ClientTls>) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        let Some(tls) = tls else {
            return Ok(Self::new(Stream::Plain(stream)));
        };
        let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::clone(&tls.0));
        let stream = connector.connect(name, stream).await?;
        Ok(Self::new(Stream::Tls(Box::new(stream.into()))))
    }

    /// Takes a connection in.
    ///
    /// # Errors
    /// When there is no agreement on TLS.
    pub async fn accept(stream: TcpStream, tls: Option<&ServerTls>) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let Some(tls) = tls else {
            return Ok(Self::new(Stream::Plain(stream)));
        };
        let acceptor = TlsAcceptor::from(Arc::clone(&tls.0));
        let stream = acceptor.accept(stream).await?;
        Ok(Self::new(Stream::Tls(Box::new(stream.into()))))
    }

    fn new(stream: Stream) -> Self {
        Self(Rc::new(RefCell::new(Inner {
            stream: Some(stream),
            reader: None,
            writer: None,
        })))
    }

    /// Reads what there is, at most 64 KiB, behind what is in the buffer. 0 at the end: a FIN, and
    /// with TLS a `close_notify` before it.
    ///
    /// # Errors
    /// When the connection breaks, or its end is not announced (TLS), or this side has closed.
    pub async fn read(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let mut part = vec![0; READ_MAX];
        let count = poll_fn(|context| self.poll_read(context, &mut part)).await?;
        buffer.extend_from_slice(&part[..count]);
        Ok(count)
    }

    fn poll_read(&self, context: &mut Context<'_>, part: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut inner = self.0.borrow_mut();
        inner.reader = Some(context.waker().clone());
        let mut buffer = ReadBuf::new(part);
        let stream = duplex(&mut inner)?;
        Pin::new(stream)
            .poll_read(context, &mut buffer)
            .map_ok(|()| buffer.filled().len())
    }

    /// Writes all of this.
    ///
    /// # Errors
    /// When the connection breaks or this side has closed.
    pub async fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let count = poll_fn(|context| {
                let mut inner = self.0.borrow_mut();
                inner.writer = Some(context.waker().clone());
                Pin::new(duplex(&mut inner)?).poll_write(context, rest)
            });
            rest = &rest[count.await?..];
        }
        poll_fn(|context| {
            let mut inner = self.0.borrow_mut();
            inner.writer = Some(context.waker().clone());
            Pin::new(duplex(&mut inner)?).poll_flush(context)
        })
        .await
    }

    /// Says that nothing more is written: FIN, with TLS a `close_notify` before it.
    pub async fn finish(&self) {
        let _ = poll_fn(|context| {
            let mut inner = self.0.borrow_mut();
            inner.writer = Some(context.waker().clone());
            Pin::new(duplex(&mut inner)?).poll_shutdown(context)
        })
        .await;
    }

    /// Closes both directions, with TLS without a word. The kernel sends a FIN, or a RST when
    /// bytes lie unread.
    pub fn close(&self) {
        let mut inner = self.0.borrow_mut();
        inner.stream = None;
        for waker in [inner.reader.take(), inner.writer.take()] {
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Ends the connection by a RST (`SO_LINGER` of zero, socket(7)).
    pub fn reset(&self) {
        if let Some(stream) = &self.0.borrow().stream {
            let _ = SockRef::from(stream.tcp()).set_linger(Some(Duration::ZERO));
        }
        self.close();
    }

    /// Whether this side has not closed it.
    pub fn is_open(&self) -> bool {
        self.0.borrow().stream.is_some()
    }
}

fn duplex(inner: &mut Inner) -> io::Result<&mut dyn Duplex> {
    match &mut inner.stream {
        Some(Stream::Plain(stream)) => Ok(stream),
        Some(Stream::Tls(stream)) => Ok(stream),
        None => Err(io::Error::new(
            io::ErrorKind::NotConnected,
            "this side has closed",
        )),
    }
}

/// A listening socket at a free port, whose connections take half a megabyte that nobody has read.
/// Those of a tight one take a few kilobytes, and their peers have little on the way: the segments
/// are small (`TCP_MAXSEG`), and with them the peer's send buffer at its beginning.
pub fn listen(is_tight: bool) -> std::net::TcpListener {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    // Without a size the kernel takes more and more, as much as 32 MB on some machines.
    let size = if is_tight { 2048 } else { 256 * 1024 };
    socket.set_recv_buffer_size(size).unwrap();
    if is_tight {
        socket.set_tcp_mss(88).unwrap();
    }
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    socket.bind(&address.into()).unwrap();
    socket.listen(1024).unwrap();
    socket.into()
}
