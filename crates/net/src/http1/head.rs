//! What request and response heads have in common: limits, errors, field lines, connection options.

use std::mem::MaybeUninit;

use httparse::Header;
use message::{Entry, Field, Headers};

use super::body::Framing;

/// The most field lines that can be configured.
pub(super) const FIELDS_MAX: usize = 256;

/// Room for `httparse` to note field lines in.
pub(super) type HeaderRoom<'a> = [MaybeUninit<Header<'a>>; FIELDS_MAX];

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

impl From<httparse::Error> for HeadError {
    fn from(error: httparse::Error) -> Self {
        match error {
            httparse::Error::HeaderName => Self::bad("malformed field name"),
            httparse::Error::HeaderValue => Self::bad("malformed field value"),
            httparse::Error::NewLine => Self::bad("malformed line end"),
            httparse::Error::Status => Self::bad("malformed status line"),
            httparse::Error::Token => Self::bad("malformed request line"),
            httparse::Error::TooManyHeaders => Self::with(431, "too many header fields"),
            httparse::Error::Version => Self::with(505, "the protocol version is not supported"),
        }
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

/// Notes the places of all field lines and reads those that decide about this connection.
pub(super) fn read_fields(
    head: &[u8],
    lines: &[Header<'_>],
    entries: &mut Vec<Entry>,
    connection: &mut ConnectionOptions,
) -> Result<FramingFields, HeadError> {
    entries.clear();
    connection.clear();
    let mut framing = FramingFields::default();
    for line in lines {
        let name = line.name.as_bytes();
        let value = line.value.trim_ascii();
        let field = Field::of(name);
        entries.push(Entry {
            name: place(head, name),
            value: place(head, value),
            field,
        });
        match field {
            Field::Connection => connection.read(head, value)?,
            Field::ContentLength | Field::TransferEncoding => framing.read(field, value)?,
            _ => {}
        }
    }
    Ok(framing)
}

/// Where a part of the head lies in it.
pub(super) fn place(head: &[u8], part: &[u8]) -> (u32, u32) {
    let start = (part.as_ptr() as usize).wrapping_sub(head.as_ptr() as usize);
    // An empty part may point anywhere; heads are bounded far below 4 GiB.
    let start = if start > head.len() { 0 } else { start as u32 };
    (start, start + part.len() as u32)
}

/// `httparse` takes a bare line feed as a line end; others do not, so it is refused
/// (RFC 9112, section 2.2).
pub(super) fn check_line_ends(head: &[u8]) -> Result<(), HeadError> {
    // Without a branch for each byte, so that many are looked at together.
    let behind = head.get(1..).unwrap_or_default();
    let mut bare = u8::from(head.first() == Some(&b'\n'));
    for (before, byte) in head.iter().zip(behind) {
        bare |= u8::from(*byte == b'\n') & u8::from(*before != b'\r');
    }
    match bare {
        0 => Ok(()),
        _ => Err(HeadError::bad("a line ends without a carriage return")),
    }
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

/// The fields of a trailer section that has been checked; none when it is empty.
pub(super) fn trailers(section: &[u8]) -> Option<Headers> {
    let room = &mut [httparse::EMPTY_HEADER; FIELDS_MAX];
    let Ok(httparse::Status::Complete((_, lines))) = httparse::parse_headers(section, room) else {
        return None;
    };
    let mut fields = Headers::new();
    for line in lines {
        fields.append(line.name, line.value.trim_ascii());
    }
    (!fields.view().is_empty()).then_some(fields)
}
