//! Request heads.

use message::{Entry, Field, HeadersView, Method};

use super::body::Framing;
use super::grammar::{self, RequestLine, Stop, TARGET_ODD, TARGET_QUERY};
use super::head::{
    BAD_VERSION, ConnectionOptions, FieldLines, HeadError, HeadLimits, Sender, TOO_LARGE, Version,
    check_size, part, place, read_fields,
};
use super::target::{host_matches, is_host, is_path, is_target};

/// A request head that lies at the front of a connection's buffer. All places are places in that
/// buffer; the value is used again for the next head.
#[derive(Debug)]
pub struct RequestHead {
    /// How many bytes of the buffer the head takes.
    pub length: usize,
    /// The method.
    pub method: Method,
    /// The version.
    pub version: Version,
    /// The place of the path; empty when an absolute target had none, which means `/`.
    pub path: (u32, u32),
    /// The place of the query, without the `?`.
    pub query: Option<(u32, u32)>,
    /// The field lines.
    pub entries: Vec<Entry>,
    /// How long the body is.
    pub framing: Framing,
    /// What it says about the connection.
    pub connection: ConnectionOptions,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// Whether the client asks to go on with WebSocket (RFC 6455, section 4.1).
    pub upgrades_to_websocket: bool,
}

impl Default for RequestHead {
    fn default() -> Self {
        Self {
            length: 0,
            method: Method::Get,
            version: Version::Http11,
            path: (0, 0),
            query: None,
            entries: Vec::new(),
            framing: Framing::None,
            connection: ConnectionOptions::default(),
            expects_continue: false,
            upgrades_to_websocket: false,
        }
    }
}

impl RequestHead {
    /// Reads a head from the front of `bytes`. `Ok(false)` means that more bytes are needed.
    ///
    /// # Errors
    /// When the head is malformed, too large, or could be understood in more than one way.
    pub fn parse(&mut self, bytes: &[u8], limits: HeadLimits) -> Result<bool, HeadError> {
        let Some(skipped) = leading_line_ends(bytes)? else {
            return Ok(false);
        };
        match self.read(bytes, skipped, limits) {
            Ok(()) => Ok(true),
            Err(Stop::Incomplete) => {
                check_size(bytes.get(skipped..).unwrap_or_default(), limits).map(|()| false)
            }
            Err(Stop::Version) => self.parse_as_http11(bytes, skipped, limits),
            Err(Stop::Refused(error)) => Err(error),
        }
    }

    fn read(&mut self, bytes: &[u8], skipped: usize, limits: HeadLimits) -> Result<(), Stop> {
        let start = grammar::request_line(bytes, skipped)?;
        let (entries, connection) = (&mut self.entries, &mut self.connection);
        let mut lines = FieldLines::default();
        read_fields(bytes, start.end, limits, entries, connection, &mut lines)?;
        if lines.end - skipped > limits.bytes {
            return Err(TOO_LARGE.into());
        }
        self.length = lines.end;
        self.version = start.version;
        let framing = lines.framing(self.version, Sender::Client)?;
        self.framing = framing.unwrap_or(Framing::None);
        self.method = read_method(part(bytes, start.method))?;
        self.read_target(bytes, &start, &lines)?;
        self.expects_continue = false;
        self.upgrades_to_websocket = false;
        if lines.has_expectations {
            self.read_expectations(bytes)?;
        }
        Ok(())
    }

    /// Reads a head of a later minor version as one of HTTP/1.1. Places in the copy, which is never
    /// longer than the largest head, are places in `bytes`.
    #[cold]
    fn parse_as_http11(
        &mut self,
        bytes: &[u8],
        skipped: usize,
        limits: HeadLimits,
    ) -> Result<bool, HeadError> {
        let head = bytes.get(skipped..).unwrap_or_default();
        if memchr::memchr(b'\n', head).is_none() {
            // Without the end of the line it is only the beginning of a version.
            let line = memchr::memmem::rfind(head, b" HTTP/1.").map(|at| head.len() - at);
            check_size(head, limits)?;
            return if line.is_some_and(|length| length <= 10) {
                Ok(false)
            } else {
                Err(BAD_VERSION)
            };
        }
        let minor = later_minor_version(head).ok_or(BAD_VERSION)?;
        let end = bytes.len().min(skipped + limits.bytes);
        let mut copy = bytes.get(..end).unwrap_or_default().to_vec();
        if let Some(byte) = copy.get_mut(skipped + minor) {
            *byte = b'1';
        }
        self.parse(&copy, limits)
    }

    /// The field lines, which lie in `bytes`.
    #[inline]
    pub fn headers<'a>(&'a self, bytes: &'a [u8]) -> HeadersView<'a> {
        HeadersView::new(bytes, &self.entries)
    }

    /// The path, which lies in `bytes`.
    #[inline]
    pub fn path<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        match part(bytes, self.path) {
            b"" => b"/",
            path => path,
        }
    }

    /// The query, which lies in `bytes`.
    #[inline]
    pub fn query<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        self.query.map(|query| part(bytes, query))
    }

    /// Whether the client will send another request on this connection
    /// (RFC 9112, section 9.3).
    #[inline]
    pub fn keeps_alive(&self) -> bool {
        !self.connection.close && (self.version == Version::Http11 || self.connection.keep_alive)
    }

    fn read_target(
        &mut self,
        bytes: &[u8],
        line: &RequestLine,
        lines: &FieldLines,
    ) -> Result<(), HeadError> {
        let host = self.read_host(bytes, lines)?;
        let target = part(bytes, line.target);
        let is_plain = target.first() == Some(&b'/') && line.target_class & TARGET_ODD == 0;
        let (authority, path) = match is_plain {
            true => (None, target),
            false => split_target(&self.method, target)?,
        };
        if let Some(authority) = authority {
            // RFC 9112, section 3.2.2 lets the target win; whoever looks at Host would differ.
            if !is_host(authority) || !host.is_none_or(|host| host_matches(host, authority)) {
                return Err(HeadError::bad("the request target and Host differ"));
            }
        }
        let (start, end) = match is_plain {
            true => line.target,
            false => place(bytes, path),
        };
        let question = match line.target_class & TARGET_QUERY {
            0 => None,
            _ => memchr::memchr(b'?', path),
        };
        let (path, query) = match question {
            Some(at) => (path.get(..at).unwrap_or_default(), path.get(at + 1..)),
            None => (path, None),
        };
        let fits = || {
            let is_empty = authority.is_some() && path.is_empty();
            (is_path(path) || path == b"*" || is_empty) && query.is_none_or(is_target)
        };
        if !is_plain && !fits() {
            return Err(HeadError::bad("malformed request target"));
        }
        let path_end = start + path.len() as u32;
        self.path = (start, path_end);
        self.query = query.map(|_| (path_end + 1, end));
        Ok(())
    }

    /// The one `Host` field; HTTP/1.0 may have none (RFC 9112, section 3.2).
    fn read_host<'a>(
        &self,
        bytes: &'a [u8],
        lines: &FieldLines,
    ) -> Result<Option<&'a [u8]>, HeadError> {
        if lines.is_host_repeated {
            return Err(HeadError::bad("Host is given more than once"));
        }
        match lines.host.map(|host| part(bytes, host)) {
            Some(host) if !is_host(host) => Err(HeadError::bad("malformed Host")),
            None if self.version == Version::Http11 => Err(HeadError::bad("Host is missing")),
            host => Ok(host),
        }
    }

    fn read_expectations(&mut self, bytes: &[u8]) -> Result<(), HeadError> {
        for entry in &self.entries {
            match entry.field {
                Field::Expect => {
                    if !part(bytes, entry.value).eq_ignore_ascii_case(b"100-continue") {
                        return Err(HeadError::with(417, "the expectation is not supported"));
                    }
                    self.expects_continue =
                        self.version == Version::Http11 && self.framing != Framing::None;
                }
                Field::Upgrade => {
                    self.upgrades_to_websocket = self.version == Version::Http11
                        && self.connection.upgrade
                        && self.framing == Framing::None
                        && self.method == Method::Get
                        && part(bytes, entry.value).eq_ignore_ascii_case(b"websocket");
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// How many empty lines before a request are ignored. RFC 9112, section 2.2 asks for at least one;
/// old clients send a line end behind a body, and some of them two.
const EMPTY_LINES_MAX: usize = 2;

/// How many bytes the empty lines before a request take. None while the last of them is not whole.
fn leading_line_ends(bytes: &[u8]) -> Result<Option<usize>, HeadError> {
    let mut skipped = 0;
    for _ in 0..EMPTY_LINES_MAX {
        match bytes.get(skipped..) {
            Some([b'\r', b'\n', ..]) => skipped += 2,
            Some([b'\r']) => return Ok(None),
            _ => break,
        }
    }
    match bytes.get(skipped) {
        Some(b'\r' | b'\n') => Err(HeadError::bad("malformed request line")),
        _ => Ok(Some(skipped)),
    }
}

/// Where the minor version stands, when the first line ends with a later minor version of HTTP/1:
/// such a request is understood as one of HTTP/1.1 (RFC 9110, section 2.5).
fn later_minor_version(head: &[u8]) -> Option<usize> {
    let end = memchr::memchr(b'\n', head)?;
    let line = head.get(..end)?;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let (minor, before) = line.split_last()?;
    let is_later = before.ends_with(b" HTTP/1.") && matches!(minor, b'2'..=b'9');
    is_later.then_some(before.len())
}

fn read_method(name: &[u8]) -> Result<Method, HeadError> {
    match name {
        b"CONNECT" => Err(HeadError::with(501, "CONNECT is not supported")),
        // The connection preface of HTTP/2 (RFC 9113, section 3.4).
        b"PRI" => Err(BAD_VERSION),
        name => Ok(Method::from_token(name)),
    }
}

/// The authority of an absolute target, and path and query.
fn split_target<'a>(
    method: &Method,
    target: &'a [u8],
) -> Result<(Option<&'a [u8]>, &'a [u8]), HeadError> {
    if target.first() == Some(&b'/') || (target == b"*" && *method == Method::Options) {
        return Ok((None, target));
    }
    let scheme = target.get(..7).unwrap_or_default();
    if !scheme.eq_ignore_ascii_case(b"http://") {
        return Err(HeadError::bad("malformed request target"));
    }
    let rest = target.get(7..).unwrap_or_default();
    let end = memchr::memchr2(b'/', b'?', rest).unwrap_or(rest.len());
    Ok((rest.get(..end), rest.get(end..).unwrap_or_default()))
}

#[cfg(test)]
mod tests;
