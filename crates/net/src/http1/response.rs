//! Response heads.

use std::time::Duration;

use message::{Entry, Field, HeadersView, Method};

use super::body::Framing;
use super::grammar::{self, Stop};
use super::head::{
    BAD_VERSION, ConnectionOptions, FieldLines, HeadError, HeadLimits, Sender, TOO_LARGE, Version,
    check_size, part, read_fields,
};

/// A response head that lies at the front of a connection's buffer. All places are places in that
/// buffer; the value is used again for the next head.
#[derive(Debug)]
pub struct ResponseHead {
    /// How many bytes of the buffer the head takes.
    pub length: usize,
    /// The status, 100 to 999.
    pub status: u16,
    /// The place of the reason phrase.
    pub reason: (u32, u32),
    /// The version.
    pub version: Version,
    /// The field lines.
    pub entries: Vec<Entry>,
    /// How long the body is.
    pub framing: Framing,
    /// What it says about the connection.
    pub connection: ConnectionOptions,
}

impl Default for ResponseHead {
    fn default() -> Self {
        Self {
            length: 0,
            status: 0,
            reason: (0, 0),
            version: Version::Http11,
            entries: Vec::new(),
            framing: Framing::None,
            connection: ConnectionOptions::default(),
        }
    }
}

impl ResponseHead {
    /// Reads the head of a reply to a request with this method from the front of `bytes`.
    /// `Ok(false)` means that more bytes are needed.
    ///
    /// # Errors
    /// When the head is malformed, too large, or could be understood in more than one way.
    pub fn parse(
        &mut self,
        bytes: &[u8],
        method: &Method,
        limits: HeadLimits,
    ) -> Result<bool, HeadError> {
        match self.read(bytes, method, limits) {
            Ok(()) => Ok(true),
            Err(Stop::Incomplete) => check_size(bytes, limits).map(|()| false),
            Err(Stop::Version) => Err(BAD_VERSION),
            Err(Stop::Refused(error)) => Err(error),
        }
    }

    fn read(&mut self, bytes: &[u8], method: &Method, limits: HeadLimits) -> Result<(), Stop> {
        let start = grammar::status_line(bytes)?;
        let (entries, connection) = (&mut self.entries, &mut self.connection);
        let mut lines = FieldLines::default();
        read_fields(bytes, start.end, limits, entries, connection, &mut lines)?;
        if lines.end > limits.bytes {
            return Err(TOO_LARGE.into());
        }
        self.length = lines.end;
        self.status = start.status;
        if self.status < 100 {
            return Err(HeadError::bad("malformed status").into());
        }
        self.reason = start.reason;
        self.version = start.version;
        let framing = lines.framing(self.version, Sender::Server)?;
        self.framing = if has_no_body(self.status, method) {
            Framing::None
        } else {
            framing.unwrap_or(Framing::UntilClose)
        };
        Ok(())
    }

    /// The field lines, which lie in `bytes`.
    #[inline]
    pub fn headers<'a>(&'a self, bytes: &'a [u8]) -> HeadersView<'a> {
        HeadersView::new(bytes, &self.entries)
    }

    /// The reason phrase, which lies in `bytes`.
    #[inline]
    pub fn reason<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        part(bytes, self.reason)
    }

    /// Whether it is an interim reply: another head follows (RFC 9110, section 15.2).
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }

    /// Whether another request may be sent on the connection.
    #[inline]
    pub fn keeps_alive(&self) -> bool {
        !self.connection.close
            && self.framing != Framing::UntilClose
            && (self.version == Version::Http11 || self.connection.keep_alive)
    }

    /// How long the server says it keeps the idle connection (`Keep-Alive: timeout=5`).
    pub fn keep_alive_time(&self, bytes: &[u8]) -> Option<Duration> {
        let value = self.headers(bytes).first(Field::KeepAlive)?;
        let value = std::str::from_utf8(value).ok()?;
        let seconds = value
            .split(',')
            .find_map(|part| part.trim().strip_prefix("timeout="))?;
        Some(Duration::from_secs(
            seconds.trim().parse::<u32>().ok()?.into(),
        ))
    }
}

/// Whether such a reply never has a body, whatever its fields say (RFC 9112, section 6.3).
fn has_no_body(status: u16, method: &Method) -> bool {
    *method == Method::Head || status < 200 || status == 204 || status == 304
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HeadLimits = HeadLimits {
        bytes: 4096,
        fields: 20,
    };

    fn parse(text: &str) -> Result<Option<ResponseHead>, HeadError> {
        let mut head = ResponseHead::default();
        let done = head.parse(text.as_bytes(), &Method::Get, LIMITS)?;
        Ok(done.then_some(head))
    }

    #[test]
    fn framing_follows_status_and_fields() {
        let cases = [
            ("200 OK\r\nContent-Length: 5", Framing::Length(5)),
            ("200 OK\r\nTransfer-Encoding: chunked", Framing::Chunked),
            ("200 OK\r\nServer: x", Framing::UntilClose),
            ("204 No Content\r\nContent-Length: 5", Framing::None),
            ("304 Not Modified\r\nContent-Length: 5", Framing::None),
            ("103 Early Hints\r\nLink: x", Framing::None),
        ];
        for (text, framing) in cases {
            let head = parse(&format!("HTTP/1.1 {text}\r\n\r\n")).unwrap().unwrap();
            assert_eq!(head.framing, framing, "{text}");
        }
        let mut head = ResponseHead::default();
        let text = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert!(head.parse(text, &Method::Head, LIMITS).unwrap());
        assert_eq!(head.framing, Framing::None);
    }

    #[test]
    fn ambiguous_replies_are_refused() {
        let cases = [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n",
            "HTTP/1.1 099 No\r\n\r\n",
            "HTTP/2.0 200 OK\r\n\r\n",
            "ICY 200 OK\r\n\r\n",
        ];
        for text in cases {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn keep_alive_is_seen() {
        let text = "HTTP/1.1 200 OK\r\nKeep-Alive: timeout=7, max=3\r\nContent-Length: 0\r\n\r\n";
        let head = parse(text).unwrap().unwrap();
        assert!(head.keeps_alive());
        assert_eq!(
            head.keep_alive_time(text.as_bytes()),
            Some(Duration::from_secs(7))
        );
        let head = parse("HTTP/1.0 200\r\n\r\n").unwrap().unwrap();
        assert!(!head.keeps_alive());
    }

    #[test]
    fn every_prefix_needs_more() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        for end in 0..text.len() {
            assert!(parse(&text[..end]).unwrap().is_none(), "{end}");
        }
    }
}
