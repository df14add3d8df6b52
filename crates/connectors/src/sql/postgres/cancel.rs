//! The order to stop a statement. It goes over a connection of its own (PostgreSQL's manual,
//! "Canceling Requests in Progress"), which the server closes when it has sent the signal. Who does
//! not wait for that may use the first connection again before the signal arrives, and it stops
//! another statement.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{CancelToken, NoTls};

use super::Connector;

/// Asks the server to stop what the connection of the token does. When it returns, the signal has
/// been sent.
///
/// # Errors
/// When the server cannot be asked.
pub(super) async fn cancel(connector: Connector, token: CancelToken) -> Result<(), String> {
    let address = (connector.host.as_str(), connector.port);
    let stream = TcpStream::connect(address).await;
    let stream = UntilClosed(stream.map_err(|error| error.to_string())?);
    let asked = match connector.tls {
        None => token.cancel_query_raw(stream, NoTls).await,
        Some(mut secure) => {
            let tls = MakeTlsConnect::<UntilClosed>::make_tls_connect(&mut secure, "");
            let tls = tls.map_err(|error| error.to_string())?;
            token.cancel_query_raw(stream, tls).await
        }
    };
    asked.map_err(|error| error.to_string())
}

/// A connection whose end is that of the other side: to shut it down waits for it.
struct UntilClosed(TcpStream);

impl AsyncRead for UntilClosed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for UntilClosed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut bytes = [0; 64];
            let mut buffer = ReadBuf::new(&mut bytes);
            // An error is an end too.
            let read = ready!(Pin::new(&mut self.0).poll_read(context, &mut buffer));
            if read.is_err() || buffer.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
    }
}
