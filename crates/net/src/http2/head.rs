//! Message heads and trailers, made of decoded field lines and checked on the way
//! (RFC 9113, sections 8.1 to 8.3).

use message::{Entry, Field, HeadersView};

use super::hpack::{DecodeError, Line, Sink};
use super::kind::{self, Kind};
use super::limits::Limits;

type Span = (u32, u32);

/// The size of a usual head.
const ROOM_BYTES: usize = 512;
const ROOM_LINES: usize = 16;

/// Field lines in one block of bytes, each as `name: value`, in the form of `message::Headers`.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// The text of all lines.
    pub bytes: Vec<u8>,
    /// Where the lines are in `bytes`.
    pub entries: Vec<Entry>,
}

impl Fields {
    /// With room for as many lines as are usual.
    pub fn with_room() -> Self {
        Self {
            bytes: Vec::with_capacity(ROOM_BYTES),
            entries: Vec::with_capacity(ROOM_LINES),
        }
    }

    /// The fields for reading.
    #[inline]
    pub fn view(&self) -> HeadersView<'_> {
        HeadersView::new(&self.bytes, &self.entries)
    }

    #[inline]
    fn text(&self, (start, end): Span) -> &[u8] {
        self.bytes
            .get(start as usize..end as usize)
            .unwrap_or_default()
    }

    fn push(&mut self, name: &[u8], value: &[u8], field: Field) -> Entry {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(name);
        let name_end = self.bytes.len() as u32;
        self.bytes.extend_from_slice(b": ");
        let value_start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(value);
        Entry {
            name: (start, name_end),
            value: (value_start, self.bytes.len() as u32),
            field,
        }
    }
}

/// The head of a request or a response. Its control data lies in the same block of bytes as its
/// fields. `:authority` is there as a field, `host`, too, as it would be in HTTP/1.1.
#[derive(Clone, Debug, Default)]
pub struct Head {
    /// The fields; several lines of `cookie` have become one (RFC 9113, section 8.2.3).
    pub fields: Fields,
    method: Span,
    scheme: Span,
    authority: Span,
    path: Span,
    status: u16,
    length: Option<u64>,
    is_end: bool,
    is_too_large: bool,
}

impl Head {
    /// `:method` of a request
    pub fn method(&self) -> &[u8] {
        self.fields.text(self.method)
    }

    /// `:scheme` of a request; empty for CONNECT
    pub fn scheme(&self) -> &[u8] {
        self.fields.text(self.scheme)
    }

    /// `:authority` of a request, else its `host`; empty when there is neither
    pub fn authority(&self) -> &[u8] {
        self.fields.text(self.authority)
    }

    /// `:path` of a request; empty for CONNECT
    pub fn path(&self) -> &[u8] {
        self.fields.text(self.path)
    }

    /// `:status` of a response
    pub fn status(&self) -> u16 {
        self.status
    }

    /// What `content-length` says. A body of another length resets the stream.
    pub fn content_length(&self) -> Option<u64> {
        self.length
    }

    /// Whether nothing follows the head.
    pub fn is_end(&self) -> bool {
        self.is_end
    }

    /// Whether the head of a request is above the limits, so that lines are missing: the answer is
    /// 431. Heads of responses never are: the engine resets the stream instead.
    pub fn is_too_large(&self) -> bool {
        self.is_too_large
    }

    /// Whether this is the head of an interim response (RFC 9110, section 15.2).
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status)
    }

    /// With room for a head of the usual size.
    pub(crate) fn with_room() -> Self {
        Self {
            fields: Fields::with_room(),
            ..Self::default()
        }
    }

    fn clear(&mut self) {
        let Fields { bytes, entries } = std::mem::take(&mut self.fields);
        *self = Self::default();
        self.fields = Fields { bytes, entries };
        self.fields.bytes.clear();
        self.fields.entries.clear();
    }
}

/// What a header section is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Request,
    Response,
    Trailers,
}

/// Makes a head of decoded lines.
#[derive(Debug)]
pub(crate) struct Assembler {
    head: Head,
    section: Section,
    size: usize,
    size_max: usize,
    size_hard_max: usize,
    fields_max: usize,
    is_malformed: bool,
    /// Whether a line has come that is no pseudo field.
    has_plain: bool,
    cookies: Vec<u8>,
    /// The place of the first `cookie` in the entries.
    cookie: Option<usize>,
}

impl Assembler {
    /// An assembler that uses the memory of a head that is no longer needed.
    /// Lines above `limits` are dropped; a section above `size_hard_max` is an error.
    pub(crate) fn new(
        mut head: Head,
        section: Section,
        limits: &Limits,
        size_hard_max: usize,
    ) -> Self {
        head.clear();
        Self {
            head,
            section,
            size: 0,
            size_max: limits.header_list,
            size_hard_max,
            fields_max: limits.fields,
            is_malformed: false,
            has_plain: false,
            cookies: Vec::new(),
            cookie: None,
        }
    }

    /// The head, and whether it is well-formed as far as the head alone tells.
    pub(crate) fn finish(mut self, is_end: bool) -> (Head, bool) {
        if let Some(entry) = self.cookie.and_then(|at| self.head.fields.entries.get(at))
            && !self.cookies.is_empty()
        {
            let field = entry.field;
            let joined = self.head.fields.push(b"cookie", &self.cookies, field);
            if let Some(place) = self
                .cookie
                .and_then(|at| self.head.fields.entries.get_mut(at))
            {
                *place = joined;
            }
        }
        self.head.is_end = is_end;
        let is_whole = match self.section {
            Section::Request => self.is_request(),
            Section::Response => self.head.status != 0 && !(self.head.is_interim() && is_end),
            Section::Trailers => {
                let mut fields = self.head.fields.entries.iter();
                !fields.any(|entry| entry.field.breaks_trailers())
            }
        };
        let is_good = !self.is_malformed && (is_whole || self.head.is_too_large);
        (self.head, is_good)
    }

    /// Whether the pseudo fields that must be there are, and no other (RFC 9113, section 8.3.1).
    fn is_request(&self) -> bool {
        let head = &self.head;
        if head.method() == b"CONNECT" {
            return !head.authority().is_empty() && head.scheme == (0, 0) && head.path == (0, 0);
        }
        let is_path = head.path() != b"*" || head.method() == b"OPTIONS";
        head.method != (0, 0) && head.scheme != (0, 0) && head.path != (0, 0) && is_path
    }

    fn pseudo(&mut self, line: Line) -> bool {
        let wanted = match line.kind {
            Kind::Status => Section::Response,
            _ => Section::Request,
        };
        if self.section != wanted || self.has_plain {
            return false;
        }
        let start = line.start + line.name + 2;
        let span = (start as u32, (start + line.value) as u32);
        let place = match line.kind {
            Kind::Method => &mut self.head.method,
            Kind::Scheme => &mut self.head.scheme,
            Kind::Authority => &mut self.head.authority,
            Kind::Path => &mut self.head.path,
            _ => return self.status(span),
        };
        if *place != (0, 0) {
            return false;
        }
        *place = span;
        if line.kind == Kind::Authority && line.value > 0 {
            self.host(span);
        }
        true
    }

    fn status(&mut self, span: Span) -> bool {
        let is_first = self.head.status == 0;
        let status = kind::status(self.head.fields.text(span));
        self.head.status = status.unwrap_or_default();
        is_first && status.is_some()
    }

    /// Makes a `host` of `:authority`: the name is written over the end of the pseudo name.
    fn host(&mut self, value: Span) {
        const NAME: &[u8; 6] = b"host: ";
        let end = value.0 as usize;
        let start = end.saturating_sub(NAME.len());
        if let Some(place) = self.head.fields.bytes.get_mut(start..end) {
            place.copy_from_slice(NAME);
        }
        self.head.fields.entries.push(Entry {
            name: (start as u32, start as u32 + 4),
            value,
            field: Field::Host,
        });
    }

    fn field(&mut self, line: Line, field: Field) -> bool {
        let start = line.start as u32;
        let value = start + line.name as u32 + 2;
        let entry = Entry {
            name: (start, start + line.name as u32),
            value: (value, value + line.value as u32),
            field,
        };
        let is_kept = match field {
            Field::Host if self.section == Section::Request => match self.own_host(entry.value) {
                Some(is_kept) => is_kept,
                None => return false,
            },
            Field::ContentLength => match self.content_length(entry.value) {
                Some(is_kept) => is_kept,
                None => return false,
            },
            _ => true,
        };
        if is_kept {
            self.head.fields.entries.push(entry);
        } else {
            self.head.fields.bytes.truncate(line.start);
        }
        true
    }

    /// Takes `host`: it must not differ from `:authority`, and is kept when there is none.
    fn own_host(&mut self, value: Span) -> Option<bool> {
        let head = &mut self.head;
        if head.authority == (0, 0) || head.authority().is_empty() {
            head.authority = value;
            return Some(true);
        }
        let port: &[u8] = match head.scheme() {
            b"http" => b":80",
            b"https" => b":443",
            _ => b"",
        };
        let bare = |host: Span| {
            let host = head.fields.text(host);
            host.strip_suffix(port).unwrap_or(host)
        };
        let is_same = bare(value).eq_ignore_ascii_case(bare(head.authority));
        is_same.then_some(false)
    }

    /// Takes `content-length` (RFC 9110, section 8.6): several must be the same.
    fn content_length(&mut self, value: Span) -> Option<bool> {
        let text = self.head.fields.text(value);
        if text.is_empty() || text.len() > 18 {
            return None;
        }
        let mut length = 0u64;
        for byte in text {
            if !byte.is_ascii_digit() {
                return None;
            }
            length = length * 10 + u64::from(byte - b'0');
        }
        let is_first = self.head.length.is_none();
        if !is_first && self.head.length != Some(length) {
            return None;
        }
        self.head.length = Some(length);
        Some(is_first)
    }

    /// Takes `cookie` (RFC 9113, section 8.2.3).
    fn cookie(&mut self, line: Line) -> bool {
        let Some(first) = self.cookie else {
            self.cookie = Some(self.head.fields.entries.len());
            return self.field(line, Field::Other);
        };
        let fields = &mut self.head.fields;
        if self.cookies.is_empty()
            && let Some(entry) = fields.entries.get(first)
        {
            self.cookies.extend_from_slice(fields.text(entry.value));
        }
        let value = line.start + line.name + 2;
        self.cookies.extend_from_slice(b"; ");
        self.cookies
            .extend_from_slice(fields.bytes.get(value..).unwrap_or_default());
        fields.bytes.truncate(line.start);
        true
    }
}

impl Sink for Assembler {
    #[inline]
    fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.head.fields.bytes
    }

    #[inline]
    fn line(&mut self, line: Line) -> Result<(), DecodeError> {
        self.size += line.name + line.value + 32;
        let has_room = self.size <= self.size_max;
        if self.is_malformed || !has_room || self.head.fields.entries.len() >= self.fields_max {
            self.head.fields.bytes.truncate(line.start);
            self.head.is_too_large |= !self.is_malformed;
            if self.size > self.size_hard_max {
                return Err(DecodeError::TooLarge);
            }
            return Ok(());
        }
        self.has_plain |= matches!(line.kind, Kind::Plain(_) | Kind::Cookie);
        let is_good = line.is_valid
            && match line.kind {
                Kind::Plain(field) => self.field(line, field),
                Kind::Cookie => self.cookie(line),
                Kind::Refused => false,
                _ => self.pseudo(line),
            };
        self.is_malformed |= !is_good;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(section: Section, lines: &[(&str, &str)]) -> Option<Head> {
        let limits = Limits::default();
        let mut assembler = Assembler::new(Head::default(), section, &limits, 1 << 20);
        for (name, value) in lines {
            let start = assembler.bytes().len();
            let text = format!("{name}: {value}");
            assembler.bytes().extend_from_slice(text.as_bytes());
            let kind = Kind::of(name.as_bytes());
            let line = Line {
                start,
                name: name.len(),
                value: value.len(),
                kind,
                is_valid: kind.allows(value.as_bytes()),
            };
            assembler.line(line).unwrap();
        }
        let (head, is_good) = assembler.finish(false);
        is_good.then_some(head)
    }

    fn request(more: &[(&str, &str)]) -> Option<Head> {
        let mut lines = vec![
            (":method", "GET"),
            (":authority", "a.example"),
            (":scheme", "http"),
            (":path", "/p"),
        ];
        lines.extend_from_slice(more);
        head(Section::Request, &lines)
    }

    fn text(head: &Head) -> String {
        head.fields
            .view()
            .lines()
            .map(|line| String::from_utf8_lossy(line.whole().unwrap()).into_owned() + "|")
            .collect()
    }

    #[test]
    fn a_request_has_its_parts() {
        let found = request(&[("accept", "*/*"), ("content-length", "12")]).unwrap();
        assert_eq!(found.method(), b"GET");
        assert_eq!(found.scheme(), b"http");
        assert_eq!(found.authority(), b"a.example");
        assert_eq!(found.path(), b"/p");
        assert_eq!(found.content_length(), Some(12));
        assert_eq!(
            text(&found),
            "host: a.example|accept: */*|content-length: 12|"
        );
        assert_eq!(
            found.fields.view().first(Field::Host),
            Some(&b"a.example"[..])
        );
    }

    #[test]
    fn cookies_are_joined_where_the_first_was() {
        let cookies = [
            ("cookie", "a=1"),
            ("x", "y"),
            ("cookie", "b=2"),
            ("cookie", "c=3"),
        ];
        let found = request(&cookies).unwrap();
        assert_eq!(text(&found), "host: a.example|cookie: a=1; b=2; c=3|x: y|");
    }

    #[test]
    fn hosts_must_agree() {
        assert!(request(&[("host", "b.example")]).is_none());
        let found = request(&[("host", "A.example:80"), ("x", "y")]).unwrap();
        assert_eq!(text(&found), "host: a.example|x: y|");
        let lines = [
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            ("host", "h"),
        ];
        let found = head(Section::Request, &lines).unwrap();
        assert_eq!(
            (found.authority(), &text(&found)[..]),
            (&b"h"[..], "host: h|")
        );
        assert!(head(Section::Request, &[&lines[..], &[("host", "i")]].concat()).is_none());
    }

    #[test]
    fn malformed_requests_are_told() {
        let bad: [&[(&str, &str)]; 12] = [
            &[("Accept", "a")],
            &[("connection", "close")],
            &[("te", "gzip")],
            &[("transfer-encoding", "chunked")],
            &[("x", "a\n")],
            &[("x", "y"), (":path", "/")],
            &[(":path", "/")],
            &[(":authority", "b")],
            &[(":status", "200")],
            &[(":protocol", "websocket")],
            &[("content-length", "1"), ("content-length", "2")],
            &[("content-length", "+1")],
        ];
        for more in bad {
            assert!(request(more).is_none(), "{more:?}");
        }
        assert!(request(&[("te", "trailers"), ("content-length", "1")]).is_some());
        let base = [(":method", "GET"), (":scheme", "http"), (":path", "/")];
        for missing in 0..3 {
            let mut lines = base.to_vec();
            lines.remove(missing);
            assert!(head(Section::Request, &lines).is_none(), "{missing}");
        }
        assert!(head(Section::Request, &base).is_some());
        let star = [(":method", "GET"), (":scheme", "http"), (":path", "*")];
        assert!(head(Section::Request, &star).is_none());
    }

    #[test]
    fn connect_has_an_authority_only() {
        let lines = [(":method", "CONNECT"), (":authority", "a:1")];
        assert!(head(Section::Request, &lines).is_some());
        assert!(head(Section::Request, &[lines[0], lines[1], (":path", "/")]).is_none());
        assert!(head(Section::Request, &lines[..1]).is_none());
    }

    #[test]
    fn responses_have_one_status_and_trailers_none() {
        assert_eq!(
            head(Section::Response, &[(":status", "204")])
                .unwrap()
                .status(),
            204
        );
        assert!(head(Section::Response, &[("x", "y")]).is_none());
        assert!(head(Section::Response, &[(":status", "200"), (":status", "200")]).is_none());
        assert!(head(Section::Response, &[(":status", "200"), (":path", "/")]).is_none());
        assert!(head(Section::Trailers, &[("x", "y")]).is_some());
        assert!(head(Section::Trailers, &[(":status", "200")]).is_none());
        for name in ["host", "content-length", "te", "proxy-authorization"] {
            let value = if name == "te" { "trailers" } else { "1" };
            assert!(head(Section::Trailers, &[("x", "y"), (name, value)]).is_none());
        }
    }
}
