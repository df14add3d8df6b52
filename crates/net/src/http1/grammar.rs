//! The grammar of heads (RFC 9112, sections 2 to 5; RFC 9110, section 5), read in one pass where
//! they lie. Nothing is repaired: a line ends with CR LF, a name and its colon stand together, and
//! no line is folded.

use super::head::{HeadError, Version};

/// Where a part of the bytes begins and ends.
pub(super) type Span = (u32, u32);

/// Why a head was not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// What is there may be the beginning of a head.
    Incomplete,
    /// The protocol version is neither HTTP/1.0 nor HTTP/1.1.
    Version,
    /// It is no head.
    Refused(HeadError),
}

impl From<HeadError> for Stop {
    fn from(error: HeadError) -> Self {
        Self::Refused(error)
    }
}

const BAD_REQUEST_LINE: HeadError = HeadError::bad("malformed request line");
const BAD_STATUS_LINE: HeadError = HeadError::bad("malformed status line");
const BAD_NAME: HeadError = HeadError::bad("malformed field name");
const BAD_VALUE: HeadError = HeadError::bad("malformed field value");
const BAD_LINE_END: HeadError = HeadError::bad("malformed line end");
/// RFC 9112, section 2.2 lets a recipient take a bare line feed as a line end; others do not.
const BARE_LINE_FEED: HeadError = HeadError::bad("a line ends without a carriage return");

/// The parts of a request line.
pub(super) struct RequestLine {
    pub method: Span,
    pub target: Span,
    /// What the target consists of: bits of [`TARGET`].
    pub target_class: u8,
    pub version: Version,
    /// Where the next line begins.
    pub end: usize,
}

/// The parts of a status line.
pub(super) struct StatusLine {
    pub version: Version,
    /// Three digits: 0 to 999.
    pub status: u16,
    /// Empty when it is not ASCII.
    pub reason: Span,
    /// Where the next line begins.
    pub end: usize,
}

/// A line behind the first one of a head.
pub(super) enum Line<'a> {
    Field(FieldLine<'a>),
    /// The empty line, and where what follows the head begins.
    End(usize),
}

/// One field line.
pub(super) struct FieldLine<'a> {
    pub name: &'a [u8],
    /// Without the white space around it.
    pub value: &'a [u8],
    pub name_span: Span,
    pub value_span: Span,
    /// Where the next line begins.
    pub end: usize,
}

/// Reads the request line that begins at `at` (RFC 9112, section 3). Method and version are
/// checked; of the target only that it is visible ASCII.
#[inline]
pub(super) fn request_line(bytes: &[u8], at: usize) -> Result<RequestLine, Stop> {
    let method = (at, at + token_length(tail(bytes, at)));
    match bytes.get(method.1) {
        Some(b' ') if method.0 < method.1 => {}
        Some(_) => return Err(BAD_REQUEST_LINE.into()),
        None => return Err(Stop::Incomplete),
    }
    let start = method.1 + 1;
    let mut target_class = 0;
    let length = tail(bytes, start).iter().position(|byte| {
        let class = TARGET[usize::from(*byte)];
        target_class |= class & !TARGET_END;
        class == TARGET_END
    });
    let Some(length) = length else {
        return Err(Stop::Incomplete);
    };
    let target = (start, start + length);
    if length == 0 || bytes.get(target.1) != Some(&b' ') {
        return Err(BAD_REQUEST_LINE.into());
    }
    let (version, end) = version(bytes, target.1 + 1)?;
    let end = line_end(bytes, end, BAD_LINE_END)?;
    Ok(RequestLine {
        method: span(method),
        target: span(target),
        target_class,
        version,
        end,
    })
}

/// Reads the status line at the front (RFC 9112, section 4). Empty lines before it are skipped.
#[inline]
pub(super) fn status_line(bytes: &[u8]) -> Result<StatusLine, Stop> {
    let mut at = 0;
    while let Some(b'\r' | b'\n') = bytes.get(at) {
        at = line_end(bytes, at, BAD_LINE_END)?;
    }
    let (version, at) = version(bytes, at)?;
    let status = match tail(bytes, at) {
        [b' ', a @ b'0'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9', ..] => [a, b, c]
            .into_iter()
            .fold(0, |status, digit| status * 10 + u16::from(digit - b'0')),
        [] => return Err(Stop::Incomplete),
        [b' ', digits @ ..] if digits.len() < 3 && digits.iter().all(u8::is_ascii_digit) => {
            return Err(Stop::Incomplete);
        }
        [b' ', ..] => return Err(BAD_STATUS_LINE.into()),
        _ => return Err(Stop::Version),
    };
    let at = at + 4;
    // The phrase is optional, and so is the space before it (RFC 9112, section 4).
    let start = at + usize::from(bytes.get(at) == Some(&b' '));
    let length = match start > at {
        true => text_length(tail(bytes, start)),
        false => 0,
    };
    let end = line_end(bytes, start + length, BAD_STATUS_LINE)?;
    let phrase = bytes.get(start..start + length).unwrap_or_default();
    let reason = match phrase.is_ascii() {
        true => (start, start + length),
        false => (start, start),
    };
    Ok(StatusLine {
        version,
        status,
        reason: span(reason),
        end,
    })
}

/// Reads the field line that begins at `at` (RFC 9112, section 5), or the end of the head.
#[inline(always)]
pub(super) fn line(bytes: &[u8], at: usize) -> Result<Line<'_>, Stop> {
    let rest = tail(bytes, at);
    let (name, rest) = rest.split_at(token_length(rest));
    let mut rest = match rest {
        [b':', rest @ ..] if !name.is_empty() => rest,
        _ => return end_or_error(bytes, at, name.len()),
    };
    // Nearly always it is one space.
    if let [b' ', more @ ..] = rest {
        rest = more;
    }
    while let Some((b' ' | b'\t', more)) = rest.split_first() {
        rest = more;
    }
    let start = bytes.len() - rest.len();
    let (mut value, rest) = rest.split_at(text_length(rest));
    let end = match rest {
        [b'\r', b'\n', rest @ ..] => bytes.len() - rest.len(),
        _ => line_end(bytes, bytes.len() - rest.len(), BAD_VALUE)?,
    };
    while let [more @ .., b' ' | b'\t'] = value {
        value = more;
    }
    Ok(Line::Field(FieldLine {
        name,
        value,
        name_span: span((at, at + name.len())),
        value_span: span((start, start + value.len())),
        end,
    }))
}

/// A line that begins with a name of this length, and has no colon behind it.
fn end_or_error(bytes: &[u8], at: usize, name: usize) -> Result<Line<'_>, Stop> {
    match bytes.get(at + name) {
        Some(b'\r' | b'\n') if name == 0 => line_end(bytes, at, BAD_LINE_END).map(Line::End),
        Some(_) => Err(BAD_NAME.into()),
        None => Err(Stop::Incomplete),
    }
}

/// The version that stands at `at`, and where it ends.
#[inline(always)]
fn version(bytes: &[u8], at: usize) -> Result<(Version, usize), Stop> {
    let rest = tail(bytes, at);
    match rest.first_chunk::<8>() {
        Some(b"HTTP/1.1") => Ok((Version::Http11, at + 8)),
        Some(b"HTTP/1.0") => Ok((Version::Http10, at + 8)),
        None if b"HTTP/1.".starts_with(rest) => Err(Stop::Incomplete),
        _ => Err(Stop::Version),
    }
}

/// Where the line behind the one that ends at `at` begins.
#[inline(always)]
fn line_end(bytes: &[u8], at: usize, otherwise: HeadError) -> Result<usize, Stop> {
    match tail(bytes, at) {
        [b'\r', b'\n', ..] => Ok(at + 2),
        [] | [b'\r'] => Err(Stop::Incomplete),
        [b'\n', ..] => Err(BARE_LINE_FEED.into()),
        _ => Err(otherwise.into()),
    }
}

#[inline(always)]
fn tail(bytes: &[u8], at: usize) -> &[u8] {
    bytes.get(at..).unwrap_or_default()
}

/// Heads are bounded far below 4 GiB.
#[inline(always)]
fn span((start, end): (usize, usize)) -> Span {
    (start as u32, end as u32)
}

/// How many bytes at the front are a token (RFC 9110, section 5.6.2). Eight at a time, so that the
/// loop is unrolled.
#[inline(always)]
fn token_length(bytes: &[u8]) -> usize {
    let is_other = |byte: &u8| !TOKEN[usize::from(*byte)];
    let mut rest = bytes;
    while let Some((eight, more)) = rest.split_first_chunk::<8>() {
        if let Some(at) = eight.iter().position(is_other) {
            return bytes.len() - rest.len() + at;
        }
        rest = more;
    }
    let at = rest.iter().position(is_other).unwrap_or(rest.len());
    bytes.len() - rest.len() + at
}

const TOKEN: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 0x80 {
        table[byte] = matches!(
            byte as u8,
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'!' | b'#' | b'$' | b'%' | b'&' | b'\''
                | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~'
        );
        byte += 1;
    }
    table
};

/// How many bytes at the front may stand in a field value or a reason phrase: all but control
/// characters, the tab excepted (RFC 9110, section 5.5). Scans 8 bytes at a time, and [`CHUNK`] in
/// longer values, as tokens and cookies are.
#[inline(always)]
fn text_length(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    loop {
        while let Some((eight, more)) = rest.split_first_chunk::<8>() {
            let at = first_control(u64::from_le_bytes(*eight));
            if at < 8 {
                rest = tail(rest, at);
                break;
            }
            rest = more;
            if bytes.len() - rest.len() == CHUNK {
                rest = skip_text(rest);
            }
        }
        match rest {
            [byte, more @ ..] if is_text(*byte) => rest = more,
            _ => return bytes.len() - rest.len(),
        }
    }
}

/// How many bytes are scanned at a time in values that are longer than this.
const CHUNK: usize = 32;

/// Skips the chunks that are text to the last byte, and returns the rest. There is no branch within
/// a chunk, so that the compiler can vectorise it.
#[inline(never)]
fn skip_text(bytes: &[u8]) -> &[u8] {
    let mut rest = bytes;
    while let Some((chunk, more)) = rest.split_first_chunk::<CHUNK>()
        && chunk.iter().fold(true, |all, &it| all & is_text(it))
    {
        rest = more;
    }
    rest
}

#[inline(always)]
fn is_text(byte: u8) -> bool {
    (byte == b'\t') | ((byte >= b' ') & (byte != 0x7f))
}

/// Where in a little-endian word the first control character stands, 8 when there is none. The
/// lowest bit that each subtraction leaves is right; those above it may come from a borrow.
#[inline(always)]
fn first_control(word: u64) -> usize {
    const ONES: u64 = u64::from_le_bytes([0x01; 8]);
    const HIGH: u64 = u64::from_le_bytes([0x80; 8]);
    let below_space = word.wrapping_sub(ONES * 0x20) & !word;
    let delete = word ^ (ONES * 0x7f);
    let delete = delete.wrapping_sub(ONES) & !delete;
    ((below_space | delete) & HIGH).trailing_zeros() as usize / 8
}

/// The byte ends a request target: all but visible ASCII.
const TARGET_END: u8 = 1;
/// The target has a `?`.
pub(super) const TARGET_QUERY: u8 = 2;
/// The target has a byte that [`super::target`] must look at: one that is not ordinary, or one
/// that may be part of a dot segment.
pub(super) const TARGET_ODD: u8 = 4;

/// What a byte makes of a request target.
const TARGET: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = match byte as u8 {
            0..=b' ' | 0x7f.. => TARGET_END,
            b'?' => TARGET_QUERY,
            b'.' => TARGET_ODD,
            _ if super::target::ORDINARY[byte] => 0,
            _ => TARGET_ODD,
        };
        byte += 1;
    }
    table
};

#[cfg(test)]
mod tests;
