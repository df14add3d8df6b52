//! Bytes of a connection that are not taken yet, and chunked bodies: what the stub and the load
//! generator share of HTTP/1.1.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The room that a read has at least.
const ROOM: usize = 16 * 1024;
/// More than this of one message is refused: these are tools, not servers.
const MESSAGE_MAX: usize = 256 * 1024 * 1024;

/// Bytes that have been read and not taken.
pub struct Buffer {
    data: Vec<u8>,
    start: usize,
    end: usize,
}

impl Default for Buffer {
    fn default() -> Self {
        Self {
            data: vec![0; ROOM],
            start: 0,
            end: 0,
        }
    }
}

impl Buffer {
    /// What has been read and not taken.
    pub fn bytes(&self) -> &[u8] {
        self.data.get(self.start..self.end).unwrap_or_default()
    }

    /// Takes the first bytes off.
    pub fn take(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Reads more. False at the end of the stream.
    ///
    /// # Errors
    /// When the stream fails, or the message becomes too long.
    pub async fn read<S: AsyncRead + Unpin>(&mut self, stream: &mut S) -> io::Result<bool> {
        if self.data.len() - self.end < ROOM / 2 {
            self.make_room()?;
        }
        let room = self.data.get_mut(self.end..).unwrap_or_default();
        let count = stream.read(room).await?;
        self.end += count;
        Ok(count > 0)
    }

    fn make_room(&mut self) -> io::Result<()> {
        self.data.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.data.len() - self.end < ROOM / 2 {
            if self.data.len() >= MESSAGE_MAX {
                return Err(invalid("the message is too long"));
            }
            self.data.resize(self.data.len() * 2, 0);
        }
        Ok(())
    }
}

/// An error that says what is wrong with the bytes of the peer.
pub fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// How long the body behind a head is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyLength {
    /// This many bytes.
    Exactly(usize),
    /// Chunks tell (RFC 9112 section 7.1).
    Chunked,
    /// No field says anything.
    #[default]
    Unknown,
}

/// The length that the fields of a head give.
pub fn body_length(fields: &[httparse::Header<'_>]) -> io::Result<BodyLength> {
    let mut length = BodyLength::Unknown;
    for field in fields {
        if field.name.eq_ignore_ascii_case("transfer-encoding") {
            return Ok(BodyLength::Chunked);
        }
        if field.name.eq_ignore_ascii_case("content-length") {
            let number = std::str::from_utf8(field.value).ok();
            let number = number.and_then(|text| text.trim().parse().ok());
            length = BodyLength::Exactly(number.ok_or_else(|| invalid("no Content-Length"))?);
        }
    }
    Ok(length)
}

/// Reads a whole chunked body: the bytes it takes on the wire, or `None` while it is incomplete.
pub fn read_chunked(bytes: &[u8], body: &mut Vec<u8>) -> io::Result<Option<usize>> {
    body.clear();
    let mut at = 0;
    loop {
        let Some(line) = line_at(bytes, at) else {
            return Ok(None);
        };
        let digits = line.split(|byte| *byte == b';').next().unwrap_or(line);
        let size = std::str::from_utf8(digits).ok();
        let size = size.and_then(|text| usize::from_str_radix(text.trim(), 16).ok());
        let size = size.ok_or_else(|| invalid("no chunk size"))?;
        at += line.len() + 2;
        if size == 0 {
            return Ok(trailer_end(bytes, at));
        }
        let end = at
            .checked_add(size)
            .ok_or_else(|| invalid("a huge chunk"))?;
        let Some(data) = bytes.get(at..end) else {
            return Ok(None);
        };
        body.extend_from_slice(data);
        at = end + 2;
    }
}

/// The line that begins at `at`, without its end.
fn line_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let rest = bytes.get(at..)?;
    let length = memchr::memmem::find(rest, b"\r\n")?;
    rest.get(..length)
}

/// Where the trailer section that begins at `at` ends.
fn trailer_end(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let line = line_at(bytes, at)?;
        at += line.len() + 2;
        if line.is_empty() {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunked_bodies_are_read_when_they_are_complete() {
        let text = b"4;a=b\r\nWiki\r\n5\r\npedia\r\n0\r\nT: 1\r\n\r\nrest";
        let whole = text.len() - 4;
        let mut body = Vec::new();
        for length in 0..whole {
            assert_eq!(read_chunked(&text[..length], &mut body).unwrap(), None);
        }
        assert_eq!(read_chunked(text, &mut body).unwrap(), Some(whole));
        assert_eq!(body, b"Wikipedia");
        assert!(read_chunked(b"x\r\n", &mut body).is_err());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn buffers_grow_and_are_reused() {
        let sent: Vec<u8> = (0..100_000_u32).map(|number| number as u8).collect();
        let mut stream = sent.as_slice();
        let mut buffer = Buffer::default();
        while buffer.read(&mut stream).await.unwrap() {}
        assert_eq!(buffer.bytes(), sent);
        buffer.take(99_999);
        assert_eq!(buffer.bytes(), &sent[99_999..]);
        buffer.take(5);
        assert!(buffer.bytes().is_empty());
    }
}
