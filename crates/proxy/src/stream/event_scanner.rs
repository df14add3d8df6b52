//! Finds where the events of an event stream end (WHATWG HTML, section 9.2.6) as their bytes pass.

use memchr::memchr2;

const BOM: &[u8] = b"\xef\xbb\xbf";
const BOM_LENGTH: u8 = 3;
const DATA: &[u8] = b"data";

/// Where in an event stream we are.
#[derive(Debug, Default)]
pub(crate) struct EventScanner {
    line: Line,
    /// Whether something has come behind the last empty line.
    is_amid: bool,
    /// Whether the event has a line of data, so that it is dispatched.
    has_data: bool,
    /// Whether the last byte was a CR, so that an LF now belongs to it.
    after_cr: bool,
    /// How many bytes of a byte order mark there were at the very beginning; none may follow.
    mark: Option<u8>,
}

/// What has been seen of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Line {
    #[default]
    Empty,
    /// So many letters of `data`.
    Name(u8),
    /// `data:`
    Data,
    Other,
}

impl EventScanner {
    /// Follows the bytes. Before an event is complete `pass` is asked; what stops it is said in the
    /// answer: how many bytes come before that.
    pub fn scan<T>(
        &mut self,
        bytes: &[u8],
        mut pass: impl FnMut() -> Result<(), T>,
    ) -> Result<(), (usize, T)> {
        let mut at = self.skip_mark(bytes);
        while let Some(&byte) = bytes.get(at) {
            if std::mem::take(&mut self.after_cr) && byte == b'\n' {
                at += 1;
                continue;
            }
            if matches!(byte, b'\n' | b'\r') {
                if self.line == Line::Empty && self.has_data {
                    pass().map_err(|stop| (at, stop))?;
                }
                self.is_amid = self.line != Line::Empty;
                self.end_line();
                self.after_cr = byte == b'\r';
                at += 1;
            } else {
                at += self.go_on(byte, bytes.get(at..).unwrap_or_default());
            }
        }
        Ok(())
    }

    fn end_line(&mut self) {
        match self.line {
            Line::Empty => self.has_data = false,
            Line::Data => self.has_data = true,
            // A line without a colon is a field without a value.
            Line::Name(count) => self.has_data |= usize::from(count) == DATA.len(),
            Line::Other => {}
        }
        self.line = Line::Empty;
    }

    /// Whether nothing of an event is under way, so that another one could be put here. A line of
    /// an `id` alone counts: it would be that of the other one.
    pub fn is_between(&self) -> bool {
        !self.is_amid && self.line == Line::Empty
    }

    /// Takes bytes of a line; how many.
    fn go_on(&mut self, byte: u8, rest: &[u8]) -> usize {
        self.is_amid = true;
        let seen = match self.line {
            Line::Empty => 0,
            Line::Name(count) => count,
            Line::Data | Line::Other => {
                return memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
            }
        };
        self.line = match DATA.get(usize::from(seen)) {
            Some(letter) if *letter == byte => Line::Name(seen + 1),
            None if byte == b':' => Line::Data,
            _ => Line::Other,
        };
        1
    }

    /// One byte order mark at the beginning is no part of the first line.
    fn skip_mark(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while let (None | Some(..BOM_LENGTH), Some(byte)) = (self.mark, bytes.get(at)) {
            let seen = self.mark.unwrap_or(0);
            if BOM.get(usize::from(seen)) == Some(byte) {
                self.mark = Some(seen + 1);
                at += 1;
            } else {
                if seen > 0 {
                    self.line = Line::Other;
                }
                self.mark = Some(BOM_LENGTH);
            }
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_our_own_fits_only_behind_an_empty_line() {
        for (text, is_between) in [
            ("", true),
            (": beat\n", false),
            (": beat\n\n", true),
            ("data: 1", false),
            ("data: 1\n", false),
            ("data: 1\n\n", true),
            ("data: 1\r\n\r\n", true),
            ("data: 1\n\r", true),
            // It would become the id of the event behind it.
            ("id: 7\n", false),
            ("data: 1\n\nid: 7\n", false),
            ("event: x\n", false),
        ] {
            for cut in 0..=text.len() {
                let mut scanner = EventScanner::default();
                let (first, rest) = text.as_bytes().split_at(cut);
                let pass = || Ok::<_, ()>(());
                scanner.scan(first, pass).unwrap();
                scanner.scan(rest, pass).unwrap();
                assert_eq!(scanner.is_between(), is_between, "{text:?} {cut}");
            }
        }
    }

    fn count(stream: &[u8], size: usize) -> usize {
        let (mut scanner, mut count) = (EventScanner::default(), 0);
        for piece in stream.chunks(size) {
            let pass = || {
                count += 1;
                Ok::<(), ()>(())
            };
            scanner.scan(piece, pass).unwrap();
        }
        count
    }

    #[test]
    fn events_are_counted_whatever_their_line_ends_and_pieces() {
        let cases: [(&str, usize); 13] = [
            ("data: a\n\ndata: b\n\n", 2),
            ("data: a\r\n\r\ndata: b\r\n\r\n", 2),
            ("data: a\r\rdata: b\r\r", 2),
            ("data: a\r\n\ndata: b\n\r\n", 2),
            ("data\n\n", 1),
            ("data:\n\n", 1),
            ("event: x\n\n", 0),
            (": comment\n\n\n\n", 0),
            ("data: a\ndata: b\nid: 7\n\n", 1),
            ("database: a\n\n", 0),
            (" data: a\n\n", 0),
            ("data: not ended\n", 0),
            ("\u{feff}data: a\n\n\u{feff}data: b\n\n", 1),
        ];
        for (stream, expected) in cases {
            for size in 1..=stream.len() {
                let found = count(stream.as_bytes(), size);
                assert_eq!(found, expected, "{stream:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn it_stops_before_an_event_is_complete_and_goes_on_there() {
        let stream = b"data: a\r\n\r\ndata: b\n\n";
        let mut scanner = EventScanner::default();
        let stopped = scanner.scan(stream, || Err("no"));
        assert_eq!(stopped, Err((9, "no")));
        assert_eq!(
            scanner.scan(&stream[9..], || Err("still")),
            Err((0, "still"))
        );
        let mut count = 0;
        let pass = || {
            count += 1;
            Ok::<(), ()>(())
        };
        scanner.scan(&stream[9..], pass).unwrap();
        assert_eq!(count, 2);
    }
}
