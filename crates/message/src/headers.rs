//! Header fields: one block of bytes and the places of names and values in it.
//!
//! The same entries describe a head that still lies in a connection's buffer ([`HeadersView`]) and
//! one that a message owns ([`Headers`]), so that taking a head out of a buffer is one copy.

use crate::field::Field;

/// The place of one field line in a block of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Where the name begins and ends.
    pub name: (u32, u32),
    /// Where the value begins and ends, without the white space around it.
    pub value: (u32, u32),
    /// Which field it is.
    pub field: Field,
}

/// Header fields that lie in somebody else's bytes.
#[derive(Clone, Copy, Debug)]
pub struct HeadersView<'a> {
    bytes: &'a [u8],
    entries: &'a [Entry],
}

impl<'a> HeadersView<'a> {
    /// A view of `entries`, whose places are places in `bytes`.
    pub fn new(bytes: &'a [u8], entries: &'a [Entry]) -> Self {
        Self { bytes, entries }
    }

    /// Every field line in order: which field, its name, its value.
    #[inline]
    pub fn iter(self) -> impl DoubleEndedIterator<Item = (Field, &'a [u8], &'a [u8])> {
        self.entries.iter().map(move |entry| {
            (
                entry.field,
                slice(self.bytes, entry.name),
                slice(self.bytes, entry.value),
            )
        })
    }

    /// Every field line in order. Of a line that is left out nothing but the field is looked at.
    #[inline]
    pub fn lines(self) -> impl Iterator<Item = FieldLine<'a>> {
        let bytes = self.bytes;
        self.entries
            .iter()
            .map(move |entry| FieldLine { bytes, entry })
    }

    /// A copy without the lines of some fields.
    #[inline]
    pub fn without(self, is_left_out: impl Fn(Field) -> bool) -> Headers {
        if !self.entries.iter().any(|it| is_left_out(it.field)) {
            return self.to_owned();
        }
        let kept = self.entries.iter().filter(|it| !is_left_out(it.field));
        let mut headers = Headers::with_room(self.bytes, self.entries.len());
        headers.entries.extend(kept.copied());
        headers
    }

    /// The value of the first line of this known field.
    pub fn first(self, field: Field) -> Option<&'a [u8]> {
        let first = self.entries.iter().find(|entry| entry.field == field);
        first.map(|entry| slice(self.bytes, entry.value))
    }

    /// The value of the first line with this name, whatever its case.
    pub fn get(self, name: &str) -> Option<&'a [u8]> {
        self.iter()
            .find(|(_, found, _)| found.eq_ignore_ascii_case(name.as_bytes()))
            .map(|(_, _, value)| value)
    }

    /// How many field lines there are.
    pub fn len(self) -> usize {
        self.entries.len()
    }

    /// Whether there is no field line.
    pub fn is_empty(self) -> bool {
        self.entries.is_empty()
    }

    /// A copy that owns its bytes.
    pub fn to_owned(self) -> Headers {
        let mut headers = Headers::with_room(self.bytes, self.entries.len());
        headers.entries.extend_from_slice(self.entries);
        headers
    }
}

/// One field line of a [`HeadersView`].
#[derive(Clone, Copy, Debug)]
pub struct FieldLine<'a> {
    bytes: &'a [u8],
    entry: &'a Entry,
}

impl<'a> FieldLine<'a> {
    /// Which field it is.
    #[inline]
    pub fn field(self) -> Field {
        self.entry.field
    }

    /// The name.
    #[inline]
    pub fn name(self) -> &'a [u8] {
        slice(self.bytes, self.entry.name)
    }

    /// The value.
    #[inline]
    pub fn value(self) -> &'a [u8] {
        slice(self.bytes, self.entry.value)
    }

    /// The bytes from the name to the value's end where they are `Name: value`, so that the line
    /// can be copied at once.
    #[inline]
    pub fn whole(self) -> Option<&'a [u8]> {
        let Entry { name, value, .. } = *self.entry;
        let behind = self.bytes.get(name.1 as usize..)?;
        let is_plain = name.1 + 2 == value.0 && behind.first_chunk() == Some(b": ");
        is_plain.then(|| slice(self.bytes, (name.0, value.1)))
    }
}

/// Bytes and lines that a copy of a head has room for beside its own: flows replace some fields.
const SPARE_BYTES: usize = 64;
const SPARE_LINES: usize = 2;

fn slice(bytes: &[u8], (start, end): (u32, u32)) -> &[u8] {
    bytes.get(start as usize..end as usize).unwrap_or_default()
}

/// The header fields of a message, in order; a name may stand on several lines.
#[derive(Clone, Debug, Default)]
pub struct Headers {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

impl Headers {
    /// No field lines.
    pub fn new() -> Self {
        Self::default()
    }

    /// No field lines, and room for so many, with so many bytes.
    pub fn with_capacity(lines: usize, bytes: usize) -> Self {
        Self {
            bytes: Vec::with_capacity(bytes),
            entries: Vec::with_capacity(lines),
        }
    }

    /// These bytes, and room for so many lines.
    fn with_room(bytes: &[u8], lines: usize) -> Self {
        let mut copy = Self::with_capacity(lines + SPARE_LINES, bytes.len() + SPARE_BYTES);
        copy.bytes.extend_from_slice(bytes);
        copy
    }

    /// The fields for reading.
    #[inline]
    pub fn view(&self) -> HeadersView<'_> {
        HeadersView {
            bytes: &self.bytes,
            entries: &self.entries,
        }
    }

    /// The value of the first line with this name, whatever its case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.view().get(name)
    }

    /// Adds a line behind the others. Neither name nor value is checked: see
    /// [`Headers::is_name`] and [`Headers::is_value`].
    pub fn append(&mut self, name: &str, value: impl AsRef<[u8]>) {
        let name = self.store(name.as_bytes());
        let value = self.store(value.as_ref());
        let field = Field::of(slice(&self.bytes, name));
        self.entries.push(Entry { name, value, field });
    }

    /// Replaces every line with this name by one line at the end.
    pub fn set(&mut self, name: &str, value: impl AsRef<[u8]>) {
        self.remove(name);
        self.append(name, value);
    }

    /// Removes every line with this name.
    pub fn remove(&mut self, name: &str) {
        let bytes = &self.bytes;
        self.entries
            .retain(|entry| !slice(bytes, entry.name).eq_ignore_ascii_case(name.as_bytes()));
    }

    /// Keeps only the lines whose field and name pass.
    pub fn retain(&mut self, passes: impl Fn(Field, &[u8]) -> bool) {
        let bytes = &self.bytes;
        self.entries
            .retain(|entry| passes(entry.field, slice(bytes, entry.name)));
    }

    /// Whether this text may be a field name: a token (RFC 9110, section 5.6.2).
    pub fn is_name(name: &str) -> bool {
        !name.is_empty() && name.bytes().all(is_token_byte)
    }

    /// Whether this text may be a field value: no control character but the tab, no white space
    /// around it (RFC 9110, section 5.5).
    pub fn is_value(value: &[u8]) -> bool {
        let edges = [value.first(), value.last()];
        value
            .iter()
            .all(|&byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
            && !edges
                .into_iter()
                .flatten()
                .any(|byte| matches!(byte, b' ' | b'\t'))
    }

    fn store(&mut self, text: &[u8]) -> (u32, u32) {
        let start = self.bytes.len() as u32;
        self.bytes.extend_from_slice(text);
        (start, self.bytes.len() as u32)
    }
}

fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(headers: &Headers) -> Vec<String> {
        headers
            .view()
            .iter()
            .map(|(_, name, value)| {
                format!(
                    "{}: {}",
                    String::from_utf8_lossy(name),
                    String::from_utf8_lossy(value)
                )
            })
            .collect()
    }

    #[test]
    fn lines_keep_their_order_and_repeat() {
        let mut headers = Headers::new();
        headers.append("Set-Cookie", "a=1");
        headers.append("Date", "now");
        headers.append("set-cookie", "b=2");
        assert_eq!(
            lines(&headers),
            ["Set-Cookie: a=1", "Date: now", "set-cookie: b=2"]
        );
        assert_eq!(headers.get("SET-COOKIE"), Some(&b"a=1"[..]));
    }

    #[test]
    fn set_replaces_every_line_of_the_name() {
        let mut headers = Headers::new();
        headers.append("A", "1");
        headers.append("B", "2");
        headers.append("a", "3");
        headers.set("A", "4");
        assert_eq!(lines(&headers), ["B: 2", "A: 4"]);
        headers.remove("b");
        assert_eq!(lines(&headers), ["A: 4"]);
    }

    #[test]
    fn known_fields_are_found_by_kind() {
        let mut headers = Headers::new();
        headers.append("content-type", "text/plain");
        assert_eq!(
            headers.view().first(Field::ContentType),
            Some(&b"text/plain"[..])
        );
        assert_eq!(headers.view().first(Field::Host), None);
    }

    #[test]
    fn names_and_values_that_would_break_a_head_are_told() {
        for name in ["", "a b", "a:b", "a\r\n", "ä"] {
            assert!(!Headers::is_name(name), "{name:?}");
        }
        assert!(Headers::is_name("X-Request_ID.1"));
        for value in ["a\r\nb", "a\0", " a", "a\t", "\x7f"] {
            assert!(!Headers::is_value(value.as_bytes()), "{value:?}");
        }
        assert!(Headers::is_value("a b\tc".as_bytes()));
        assert!(Headers::is_value(b""));
    }
}
