//! The decoder of header sections (RFC 7541, section 6).

use super::super::kind::Kind;
use super::table::{Found, Table, fixed};
use super::{DecodeError, TABLE_SIZE, huffman, integer};

/// How many entries the static table has.
const FIXED: usize = 61;

/// A decoded field line: it is the end of the sink's bytes, as `name: value`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// Where the line begins.
    pub start: usize,
    /// The length of the name.
    pub name: usize,
    /// The length of the value.
    pub value: usize,
    /// What the name means.
    pub kind: Kind,
    /// Whether the kind allows the value.
    pub is_valid: bool,
}

/// Takes the decoded lines.
pub(crate) trait Sink {
    /// The bytes behind which a line is decoded.
    fn bytes(&mut self) -> &mut Vec<u8>;
    /// Takes the line at the end of the bytes. It may cut the bytes off there.
    fn line(&mut self, line: Line) -> Result<(), DecodeError>;
}

/// The decoder of one connection's header sections.
#[derive(Debug)]
pub(crate) struct Decoder {
    table: Table,
    /// The table size that the peer may use at most.
    limit: usize,
    /// Whether the next block must begin with a table size (RFC 7541, section 4.2).
    must_resize: bool,
}

impl Decoder {
    /// A decoder with the table that every connection begins with.
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(TABLE_SIZE),
            limit: TABLE_SIZE,
            must_resize: false,
        }
    }

    /// Says which table size the peer has been told and has acknowledged.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
        self.must_resize = self.table.size_max() > limit;
    }

    /// Decodes a whole header block.
    pub(crate) fn decode<S: Sink>(
        &mut self,
        block: &[u8],
        sink: &mut S,
    ) -> Result<(), DecodeError> {
        let mut input = self.resize(block)?;
        while let Some((&first, rest)) = input.split_first() {
            input = rest;
            if first & 0x80 != 0 {
                let index = integer::decode(first, 7, &mut input)?;
                self.indexed(index, sink)?;
            } else if first & 0x40 != 0 {
                let index = integer::decode(first, 6, &mut input)?;
                self.literal(index, true, &mut input, sink)?;
            } else if first & 0x20 != 0 {
                return Err(DecodeError::Malformed);
            } else {
                let index = integer::decode(first, 4, &mut input)?;
                self.literal(index, false, &mut input, sink)?;
            }
        }
        Ok(())
    }

    /// Takes the table sizes at the beginning of a block (RFC 7541, section 6.3).
    fn resize<'a>(&mut self, mut input: &'a [u8]) -> Result<&'a [u8], DecodeError> {
        while let Some((&first, rest)) = input.split_first() {
            if first & 0xe0 != 0x20 {
                break;
            }
            input = rest;
            let size = integer::decode(first, 5, &mut input)?;
            if size > self.limit {
                return Err(DecodeError::Malformed);
            }
            self.table.resize(size);
            self.must_resize = false;
        }
        if self.must_resize {
            return Err(DecodeError::Malformed);
        }
        Ok(input)
    }

    #[inline]
    fn found(&self, index: usize) -> Result<Found<'_>, DecodeError> {
        let found = match index.checked_sub(FIXED + 1) {
            None => fixed(index),
            Some(age) => self.table.get(age),
        };
        found.ok_or(DecodeError::Malformed)
    }

    #[inline]
    fn indexed<S: Sink>(&self, index: usize, sink: &mut S) -> Result<(), DecodeError> {
        let found = self.found(index)?;
        let bytes = sink.bytes();
        let start = bytes.len();
        bytes.extend_from_slice(found.line);
        sink.line(Line {
            start,
            name: found.name,
            value: found.line.len().saturating_sub(found.name + 2),
            kind: found.kind,
            is_valid: found.is_valid,
        })
    }

    fn literal<S: Sink>(
        &mut self,
        index: usize,
        is_indexed: bool,
        input: &mut &[u8],
        sink: &mut S,
    ) -> Result<(), DecodeError> {
        let bytes = sink.bytes();
        let start = bytes.len();
        let (name, kind) = if index == 0 {
            string(input, bytes)?;
            let name = bytes.get(start..).unwrap_or_default();
            (name.len(), Kind::of(name))
        } else {
            let found = self.found(index)?;
            bytes.extend_from_slice(found.line.get(..found.name).unwrap_or_default());
            (found.name, found.kind)
        };
        bytes.extend_from_slice(b": ");
        let at = bytes.len();
        string(input, bytes)?;
        let value = bytes.get(at..).unwrap_or_default();
        let line = Line {
            start,
            name,
            value: value.len(),
            kind,
            is_valid: kind.allows(value),
        };
        if is_indexed {
            self.table.insert(Found {
                line: bytes.get(start..).unwrap_or_default(),
                name,
                kind,
                is_valid: line.is_valid,
            });
        }
        sink.line(line)
    }
}

/// Appends a string (RFC 7541, section 5.2) to `out`.
#[inline]
fn string(input: &mut &[u8], out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let (&first, rest) = input.split_first().ok_or(DecodeError::Malformed)?;
    *input = rest;
    let length = integer::decode(first, 7, input)?;
    let (text, rest) = input
        .split_at_checked(length)
        .ok_or(DecodeError::Malformed)?;
    *input = rest;
    if first & 0x80 != 0 {
        return huffman::decode(text, out);
    }
    out.extend_from_slice(text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Lines(Vec<u8>, Vec<String>);

    impl Sink for Lines {
        fn bytes(&mut self) -> &mut Vec<u8> {
            &mut self.0
        }

        fn line(&mut self, line: Line) -> Result<(), DecodeError> {
            assert_eq!(self.0.len(), line.start + line.name + 2 + line.value);
            let text = String::from_utf8_lossy(&self.0[line.start..]).into_owned();
            self.1.push(text);
            Ok(())
        }
    }

    fn bytes(hex: &str) -> Vec<u8> {
        let hex: String = hex.split_whitespace().collect();
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    fn lines(decoder: &mut Decoder, hex: &str) -> Result<Vec<String>, DecodeError> {
        let mut lines = Lines::default();
        decoder.decode(&bytes(hex), &mut lines)?;
        Ok(lines.1)
    }

    const FIRST: [&str; 4] = [
        ":method: GET",
        ":scheme: http",
        ":path: /",
        ":authority: www.example.com",
    ];

    #[test]
    fn field_representations_of_appendix_c_2() {
        let cases = [
            (
                "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
                "custom-key: custom-header",
                55,
            ),
            (
                "040c 2f73 616d 706c 652f 7061 7468",
                ":path: /sample/path",
                0,
            ),
            (
                "1008 7061 7373 776f 7264 0673 6563 7265 74",
                "password: secret",
                0,
            ),
            ("82", ":method: GET", 0),
        ];
        for (hex, line, size) in cases {
            let mut decoder = Decoder::new();
            assert_eq!(lines(&mut decoder, hex).unwrap(), [line]);
            assert_eq!(decoder.table.size(), size);
        }
    }

    fn requests(blocks: [&str; 3]) {
        let mut decoder = Decoder::new();
        assert_eq!(lines(&mut decoder, blocks[0]).unwrap(), FIRST);
        assert_eq!(decoder.table.size(), 57);
        let second = lines(&mut decoder, blocks[1]).unwrap();
        assert_eq!(second[..4], FIRST);
        assert_eq!(second[4..], ["cache-control: no-cache"]);
        assert_eq!(decoder.table.size(), 110);
        let third = lines(&mut decoder, blocks[2]).unwrap();
        let wanted = [
            ":method: GET",
            ":scheme: https",
            ":path: /index.html",
            ":authority: www.example.com",
            "custom-key: custom-value",
        ];
        assert_eq!(third, wanted);
        assert_eq!(decoder.table.size(), 164);
    }

    #[test]
    fn requests_of_appendix_c_3_and_c_4() {
        requests([
            "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
            "8286 84be 5808 6e6f 2d63 6163 6865",
            "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
        ]);
        requests([
            "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
            "8286 84be 5886 a8eb 1064 9cbf",
            "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
        ]);
    }

    fn responses(blocks: [&str; 3]) {
        let mut decoder = Decoder::new();
        decoder.table.resize(256);
        let first = [
            ":status: 302",
            "cache-control: private",
            "date: Mon, 21 Oct 2013 20:13:21 GMT",
            "location: https://www.example.com",
        ];
        assert_eq!(lines(&mut decoder, blocks[0]).unwrap(), first);
        assert_eq!(decoder.table.size(), 222);
        let second = lines(&mut decoder, blocks[1]).unwrap();
        assert_eq!(second[0], ":status: 307");
        assert_eq!(second[1..], first[1..]);
        assert_eq!(decoder.table.size(), 222);
        let third = lines(&mut decoder, blocks[2]).unwrap();
        let wanted = [
            ":status: 200",
            "cache-control: private",
            "date: Mon, 21 Oct 2013 20:13:22 GMT",
            "location: https://www.example.com",
            "content-encoding: gzip",
            "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
        ];
        assert_eq!(third, wanted);
        assert_eq!(decoder.table.size(), 215);
    }

    #[test]
    fn responses_of_appendix_c_5_and_c_6() {
        responses([
            "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 \
             2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 \
             6c65 2e63 6f6d",
            "4803 3330 37c1 c0bf",
            "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d \
             54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 \
             5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e \
             3d31",
        ]);
        responses([
            "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 \
             2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
            "4883 640e ffc1 c0bf",
            "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab \
             77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f \
             9587 3160 65c0 03ed 4ee5 b106 3d50 07",
        ]);
    }

    #[test]
    fn blocks_that_are_not_hpack_are_refused() {
        // Index 0, an index nobody set, cut strings, a size in the middle, too large a size.
        for hex in ["80", "be", "ff80", "4005 61", "40", "8220", "3fe21f", "0f"] {
            let found = lines(&mut Decoder::new(), hex);
            assert_eq!(found, Err(DecodeError::Malformed), "{hex}");
        }
        assert!(lines(&mut Decoder::new(), "3fe11f 20 82").is_ok());
    }

    #[test]
    fn a_smaller_limit_must_be_followed_by_a_size() {
        let mut decoder = Decoder::new();
        decoder.set_limit(100);
        assert_eq!(lines(&mut decoder, "82"), Err(DecodeError::Malformed));
        assert!(lines(&mut decoder, "3f45 82").is_ok());
        assert!(lines(&mut decoder, "82").is_ok());
    }
}
