//! HPACK (RFC 7541): encodes every field as a literal, decodes everything.

use std::collections::{HashMap, VecDeque};
use std::sync::LazyLock;

/// The length in bits of every symbol's code; the code is canonical, so the lengths say all
/// (appendix B). Symbol 256 ends a string and never occurs.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11,
    10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8,
    15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5,
    6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23,
    23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21,
    23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25,
    26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26,
    28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// Appendix A.
#[rustfmt::skip]
const STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"),
    (":path", "/index.html"), (":scheme", "http"), (":scheme", "https"), (":status", "200"),
    (":status", "204"), (":status", "206"), (":status", "304"), (":status", "400"),
    (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""),
    ("accept", ""), ("access-control-allow-origin", ""), ("age", ""), ("allow", ""),
    ("authorization", ""), ("cache-control", ""), ("content-disposition", ""),
    ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""),
    ("date", ""), ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""), ("host", ""),
    ("if-match", ""), ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""),
    ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""), ("location", ""),
    ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""),
    ("vary", ""), ("via", ""), ("www-authenticate", ""),
];

/// Encodes fields as literals that are not indexed (section 6.2.2).
pub fn encode<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            integer(text.len(), &mut out);
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

/// With a prefix of seven bits (section 5.1).
fn integer(value: usize, out: &mut Vec<u8>) {
    if value < 127 {
        return out.push(value as u8);
    }
    out.push(127);
    let mut rest = value - 127;
    while rest >= 128 {
        out.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    out.push(rest as u8);
}

/// Decodes field blocks one after another.
pub struct Decoder {
    table: VecDeque<(String, String)>,
    size: usize,
    size_max: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            table: VecDeque::new(),
            size: 0,
            size_max: 4096,
        }
    }
}

impl Decoder {
    /// Decodes a whole field block.
    ///
    /// # Errors
    /// When it is malformed.
    pub fn decode(&mut self, block: &[u8]) -> Result<Vec<(String, String)>, String> {
        let mut input = Input { rest: block };
        let mut fields = Vec::new();
        while let Some(&first) = input.rest.first() {
            if first & 0x80 != 0 {
                let index = input.integer(7)?;
                fields.push(self.entry(index)?);
            } else if first & 0x40 != 0 {
                let field = self.literal(&mut input, 6)?;
                self.insert(field.clone());
                fields.push(field);
            } else if first & 0x20 != 0 {
                self.size_max = input.integer(5)?;
                if self.size_max > 4096 {
                    return Err("a table larger than allowed".to_owned());
                }
                self.evict();
            } else {
                fields.push(self.literal(&mut input, 4)?);
            }
        }
        Ok(fields)
    }

    fn literal(&self, input: &mut Input<'_>, prefix: u32) -> Result<(String, String), String> {
        let name = match input.integer(prefix)? {
            0 => input.text()?,
            index => self.entry(index)?.0,
        };
        Ok((name, input.text()?))
    }

    fn entry(&self, index: usize) -> Result<(String, String), String> {
        match index.checked_sub(1).ok_or("index 0")? {
            at if at < STATIC.len() => Ok((STATIC[at].0.to_owned(), STATIC[at].1.to_owned())),
            at => {
                let entry = self.table.get(at - STATIC.len());
                entry
                    .cloned()
                    .ok_or_else(|| format!("no entry of index {index}"))
            }
        }
    }

    fn insert(&mut self, field: (String, String)) {
        self.size += field.0.len() + field.1.len() + 32;
        self.table.push_front(field);
        self.evict();
    }

    fn evict(&mut self) {
        while self.size > self.size_max {
            let Some((name, value)) = self.table.pop_back() else {
                return;
            };
            self.size -= name.len() + value.len() + 32;
        }
    }
}

struct Input<'a> {
    rest: &'a [u8],
}

impl Input<'_> {
    fn byte(&mut self) -> Result<u8, String> {
        let (first, rest) = self.rest.split_first().ok_or("the block is cut off")?;
        self.rest = rest;
        Ok(*first)
    }

    fn integer(&mut self, prefix: u32) -> Result<usize, String> {
        let mask = (1_usize << prefix) - 1;
        let first = usize::from(self.byte()?) & mask;
        if first < mask {
            return Ok(first);
        }
        let (mut value, mut shift) = (first, 0);
        loop {
            let byte = usize::from(self.byte()?);
            value += (byte & 127) << shift;
            shift += 7;
            if byte & 128 == 0 {
                return Ok(value);
            }
            if shift > 28 {
                return Err("an integer that is too large".to_owned());
            }
        }
    }

    fn text(&mut self) -> Result<String, String> {
        let is_huffman = self.rest.first().is_some_and(|it| it & 0x80 != 0);
        let length = self.integer(7)?;
        let (text, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or("a string is cut off")?;
        self.rest = rest;
        let text = match is_huffman {
            true => huffman(text)?,
            false => text.to_vec(),
        };
        Ok(text.iter().map(|it| char::from(*it)).collect())
    }
}

fn huffman(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let (mut out, mut code, mut length) = (Vec::new(), 0_u32, 0_u8);
    for bit in bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1))
    {
        code = code << 1 | u32::from(bit);
        length += 1;
        if let Some(symbol) = symbol(code, length) {
            out.push(u8::try_from(symbol).map_err(|_| "the end within a string")?);
            (code, length) = (0, 0);
        }
        if length > 30 {
            return Err("no code".to_owned());
        }
    }
    match length < 8 && code == (1 << length) - 1 {
        true => Ok(out),
        false => Err("the padding is not all ones".to_owned()),
    }
}

/// The symbol of a code.
fn symbol(code: u32, length: u8) -> Option<usize> {
    static CODES: LazyLock<HashMap<(u8, u32), usize>> = LazyLock::new(codes);
    CODES.get(&(length, code)).copied()
}

/// Codes of one length follow each other, and those of the next one come behind them.
fn codes() -> HashMap<(u8, u32), usize> {
    let mut codes = HashMap::new();
    let mut code = 0;
    for length in 1..=30 {
        code <<= 1;
        for symbol in (0..257).filter(|it| LENGTHS[*it] == length) {
            codes.insert((length, code), symbol);
            code += 1;
        }
    }
    codes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_the_samples_of_the_rfc_are_decoded() {
        let long = "x".repeat(300);
        let block = encode([("name", "value"), ("other", &long)]);
        let fields = Decoder::default().decode(&block).unwrap();
        assert_eq!(fields[0], ("name".to_owned(), "value".to_owned()));
        assert_eq!(fields[1].1, long);
        // Appendix C.4: three requests with Huffman coding on one table.
        let mut decoder = Decoder::default();
        let first = b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
        let fields = decoder.decode(first).unwrap();
        assert_eq!(fields[3].1, "www.example.com");
        let second = b"\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf";
        let fields = decoder.decode(second).unwrap();
        assert_eq!(fields[3].1, "www.example.com");
        assert_eq!(
            fields[4],
            ("cache-control".to_owned(), "no-cache".to_owned())
        );
    }
}
