//! The beginning of TLS on a connection in clear text (RFC 3207). It is our own, for nothing that
//! came in clear text may be taken for an answer behind it: what stands behind the server's consent
//! is refused.

use std::io::{self, Error, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use lettre::transport::smtp::client::AsyncTokioStream;
use net::Wire;
use net::tls::Client;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};

/// The most bytes of one answer.
const ANSWER_MAX: usize = 8 * 1024;

/// Begins TLS on a connection that has just been made.
///
/// # Errors
/// When the server does not offer it, or it cannot be agreed on.
pub(super) async fn begin(mut wire: Wire, hello: &str, client: &Client) -> io::Result<Stream> {
    let greeting = answer(&mut wire).await?;
    expect(&greeting, "220")?;
    wire.write_all(format!("EHLO {hello}\r\n").as_bytes())
        .await?;
    let offered = answer(&mut wire).await?;
    expect(&offered, "250")?;
    let mut lines = offered.lines().filter_map(|line| line.get(4..));
    if !lines.any(|word| word.trim().eq_ignore_ascii_case("STARTTLS")) {
        return Err(Error::other("the server does not offer STARTTLS"));
    }
    wire.write_all(b"STARTTLS\r\n").await?;
    expect(&answer(&mut wire).await?, "220")?;
    let wire = wire.encrypt(client).await?;
    // The driver wants to be greeted; over TLS the server does not say it again.
    Ok(Stream {
        first: b"220 ready\r\n",
        wire,
    })
}

fn expect(answer: &str, code: &str) -> io::Result<()> {
    match answer.starts_with(code) {
        true => Ok(()),
        false => {
            let shown: String = answer.chars().take(200).collect();
            let why = format!("the server said {}", shown.trim_end().escape_debug());
            Err(Error::other(why))
        }
    }
}

/// One answer with all its lines, and nothing behind it.
async fn answer(wire: &mut Wire) -> io::Result<String> {
    let mut bytes = Vec::new();
    let mut piece = [0; 1024];
    loop {
        if let Some(end) = end_of_answer(&bytes) {
            if end < bytes.len() {
                let why = "the server said more than was asked, in clear text";
                return Err(Error::new(ErrorKind::InvalidData, why));
            }
            let no_text = |_| Error::new(ErrorKind::InvalidData, "an answer that is no text");
            return String::from_utf8(bytes).map_err(no_text);
        }
        if bytes.len() > ANSWER_MAX {
            let why = "the server's answer is too long";
            return Err(Error::new(ErrorKind::InvalidData, why));
        }
        match wire.read(&mut piece).await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => bytes.extend_from_slice(piece.get(..count).unwrap_or_default()),
        }
    }
}

/// Where an answer ends: behind the first line without `-` behind its code.
fn end_of_answer(bytes: &[u8]) -> Option<usize> {
    let mut start = 0;
    loop {
        let rest = bytes.get(start..)?;
        let length = rest.iter().position(|byte| *byte == b'\n')? + 1;
        if rest.get(3) != Some(&b'-') {
            return Some(start + length);
        }
        start += length;
    }
}

/// What the driver speaks over.
#[derive(Debug)]
pub(super) struct Stream {
    /// What is read before anything of the connection.
    first: &'static [u8],
    wire: Wire,
}

impl Stream {
    /// A connection on which the server has said nothing yet.
    pub fn fresh(wire: Wire) -> Self {
        Self { first: b"", wire }
    }
}

impl AsyncTokioStream for Stream {
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.wire.peer())
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let count = self.first.len().min(space.remaining());
            let (now, later) = self.first.split_at_checked(count).unwrap_or((b"", b""));
            space.put_slice(now);
            self.first = later;
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.wire).poll_read(context, space)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.wire).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.wire).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_with_its_last_line() {
        assert_eq!(end_of_answer(b""), None);
        assert_eq!(end_of_answer(b"220 ready"), None);
        assert_eq!(end_of_answer(b"220 ready\r\n"), Some(11));
        assert_eq!(end_of_answer(b"250-a\r\n"), None);
        assert_eq!(end_of_answer(b"250-a\r\n250 b\r\n250 c\r\n"), Some(14));
    }
}
