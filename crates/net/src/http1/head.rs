//! What request and response heads have in common: limits, errors, field lines, connection options.

use message::{Entry, Field, Headers};

use super::body::Framing;
use super::grammar::{self, Line, Span, Stop};

/// The most field lines that can be configured.
pub(super) const FIELDS_MAX: usize = 256;

/// Limits on a head.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// The most bytes, start line and empty line included.
    pub bytes: usize,
    /// The most field lines; at most 256.
    pub fields: usize,
}

/// The protocol version of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
}

/// A head that is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadError {
    /// The status to answer with when it is a request.
    pub status: u16,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl HeadError {
    pub(super) const fn bad(reason: &'static str) -> Self {
        Self {
            status: 400,
            reason,
        }
    }

    pub(super) const fn with(status: u16, reason: &'static str) -> Self {
        Self { status, reason }
    }
}

/// What a message says about its connection.
#[derive(Clone, Debug, Default)]
pub struct ConnectionOptions {
    /// `Connection: close`
    pub close: bool,
    /// `Connection: keep-alive`
    pub keep_alive: bool,
    /// `Connection: upgrade`
    pub upgrade: bool,
    /// The places of other names it lists: fields that end here (RFC 9110, section 7.6.1).
    pub listed: Vec<(u32, u32)>,
}

impl ConnectionOptions {
    pub(super) fn clear(&mut self) {
        self.close = false;
        self.keep_alive = false;
        self.upgrade = false;
        self.listed.clear();
    }

    fn read(&mut self, head: &[u8], value: &[u8]) -> Result<(), HeadError> {
        for option in value.split(|&byte| byte == b',') {
            let option = option.trim_ascii();
            if option.eq_ignore_ascii_case(b"close") {
                self.close = true;
            } else if option.eq_ignore_ascii_case(b"keep-alive") {
                self.keep_alive = true;
            } else if option.eq_ignore_ascii_case(b"upgrade") {
                self.upgrade = true;
            } else if !option.is_empty() {
                if Field::of(option).is_framing() {
                    return Err(HeadError::bad(
                        "Connection names a field that may not be dropped",
                    ));
                }
                self.listed.push(place(head, option));
            }
        }
        Ok(())
    }

    /// Whether `Connection` lists this field name.
    #[inline]
    pub fn lists(&self, head: &[u8], name: &[u8]) -> bool {
        self.listed.iter().any(|&(start, end)| {
            let listed = head.get(start as usize..end as usize).unwrap_or_default();
            listed.eq_ignore_ascii_case(name)
        })
    }
}

/// The version is neither HTTP/1.0 nor HTTP/1.1.
pub(super) const BAD_VERSION: HeadError =
    HeadError::with(505, "the protocol version is not supported");
/// The head has more bytes than it may.
pub(super) const TOO_LARGE: HeadError = HeadError::with(431, "the head is too large");
const TOO_MANY_FIELDS: HeadError = HeadError::with(431, "too many header fields");

/// The fields that decide about framing, gathered while entries are made.
#[derive(Debug, Default)]
pub(super) struct FramingFields {
    pub length: Option<u64>,
    pub chunked: bool,
}

impl FramingFields {
    /// The framing these fields give, if any (RFC 9112, section 6.3). Both at once are refused.
    pub fn framing(&self) -> Result<Option<Framing>, HeadError> {
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(HeadError::bad(
                "both Content-Length and Transfer-Encoding are given",
            )),
            (true, None) => Ok(Some(Framing::Chunked)),
            (false, Some(length)) => Ok(Some(Framing::Length(length))),
            (false, None) => Ok(None),
        }
    }

    fn read(&mut self, field: Field, value: &[u8]) -> Result<(), HeadError> {
        if field == Field::ContentLength {
            if self.length.is_some() {
                return Err(HeadError::bad("Content-Length is given more than once"));
            }
            self.length = Some(parse_length(value)?);
        } else if field == Field::TransferEncoding {
            if self.chunked {
                return Err(HeadError::bad("Transfer-Encoding is given more than once"));
            }
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(HeadError::with(501, "a transfer coding is not supported"));
            }
            self.chunked = true;
        }
        Ok(())
    }
}

/// Digits only, as RFC 9110, section 8.6 has it; at most 18 of them.
fn parse_length(value: &[u8]) -> Result<u64, HeadError> {
    let digits = !value.is_empty() && value.len() <= 18 && value.iter().all(u8::is_ascii_digit);
    if !digits {
        return Err(HeadError::bad("malformed Content-Length"));
    }
    Ok(value
        .iter()
        .fold(0, |length, digit| length * 10 + u64::from(digit - b'0')))
}

/// What the field lines of a head have said, gathered while they were read.
#[derive(Debug, Default)]
pub(super) struct FieldLines {
    /// Where what follows the head begins.
    pub end: usize,
    pub framing: FramingFields,
    /// The value of the last `Host`.
    pub host: Option<Span>,
    pub is_host_repeated: bool,
    /// Whether there is an `Expect` or an `Upgrade`.
    pub has_expectations: bool,
    /// What is wrong with `Connection` and the fields that frame the body.
    refusal: Option<HeadError>,
}

impl FieldLines {
    /// The framing that the fields give.
    ///
    /// # Errors
    /// When one of them is malformed, or they contradict each other.
    pub fn framing(&self, version: Version, message: Sender) -> Result<Option<Framing>, HeadError> {
        if let Some(refusal) = self.refusal {
            return Err(refusal);
        }
        if self.framing.chunked && version == Version::Http10 {
            return Err(HeadError::bad(match message {
                Sender::Client => "Transfer-Encoding is given in an HTTP/1.0 request",
                Sender::Server => "Transfer-Encoding is given in an HTTP/1.0 reply",
            }));
        }
        self.framing.framing()
    }
}

/// Who has sent a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sender {
    Client,
    Server,
}

/// Reads the field lines that begin at `at`: notes the places of all, and in `lines`, which is
/// empty, what those say that decide about this message and its connection.
///
/// # Errors
/// When a line is malformed or there are too many. What lines say is judged when all are there.
pub(super) fn read_fields(
    bytes: &[u8],
    at: usize,
    limits: HeadLimits,
    entries: &mut Vec<Entry>,
    connection: &mut ConnectionOptions,
    lines: &mut FieldLines,
) -> Result<(), Stop> {
    entries.clear();
    connection.clear();
    let fields_max = limits.fields.min(FIELDS_MAX);
    lines.end = at;
    loop {
        let line = match grammar::line(bytes, lines.end)? {
            Line::Field(line) => line,
            Line::End(end) => {
                lines.end = end;
                return Ok(());
            }
        };
        if entries.len() == fields_max {
            return Err(TOO_MANY_FIELDS.into());
        }
        lines.end = line.end;
        let field = Field::of(line.name);
        entries.push(Entry {
            name: line.name_span,
            value: line.value_span,
            field,
        });
        let result = match field {
            Field::Connection => connection.read(bytes, line.value),
            Field::ContentLength | Field::TransferEncoding => lines.framing.read(field, line.value),
            Field::Host => {
                lines.is_host_repeated |= lines.host.is_some();
                lines.host = Some(line.value_span);
                continue;
            }
            Field::Expect | Field::Upgrade => {
                lines.has_expectations = true;
                continue;
            }
            _ => continue,
        };
        if let Err(refusal) = result {
            lines.refusal.get_or_insert(refusal);
        }
    }
}

/// The bytes of a part of a head.
#[inline]
pub(super) fn part(bytes: &[u8], (start, end): Span) -> &[u8] {
    bytes.get(start as usize..end as usize).unwrap_or_default()
}

/// Where a part of the head lies in it.
pub(super) fn place(head: &[u8], part: &[u8]) -> (u32, u32) {
    let start = (part.as_ptr() as usize).wrapping_sub(head.as_ptr() as usize);
    // An empty part may point anywhere; heads are bounded far below 4 GiB.
    let start = if start > head.len() { 0 } else { start as u32 };
    (start, start + part.len() as u32)
}

/// What to do about a head that is not complete yet.
pub(super) fn check_size(bytes: &[u8], limits: HeadLimits) -> Result<(), HeadError> {
    if bytes.len() < limits.bytes {
        return Ok(());
    }
    if memchr::memchr(b'\n', bytes).is_none() {
        return Err(HeadError::with(414, "the request target is too long"));
    }
    Err(HeadError::with(431, "the head is too large"))
}

/// Hands the lines of the trailer section at the front of `bytes` to `take`, name and value, and
/// answers how long the section is, its empty line included.
///
/// # Errors
/// When it is malformed, not complete, or has more lines than it may.
pub(super) fn read_trailers(
    bytes: &[u8],
    fields_max: usize,
    mut take: impl FnMut(&[u8], &[u8]),
) -> Result<usize, Stop> {
    let mut at = 0;
    for _ in 0..=fields_max {
        match grammar::line(bytes, at)? {
            Line::End(end) => return Ok(end),
            Line::Field(line) => {
                take(line.name, line.value);
                at = line.end;
            }
        }
    }
    Err(TOO_MANY_FIELDS.into())
}

/// The fields of a trailer section that has been checked; none when it is empty.
pub(super) fn trailers(section: &[u8]) -> Option<Headers> {
    let mut fields = Headers::new();
    let append = |name: &[u8], value: &[u8]| {
        fields.append(&String::from_utf8_lossy(name), value);
    };
    read_trailers(section, FIELDS_MAX, append).ok()?;
    (!fields.view().is_empty()).then_some(fields)
}
