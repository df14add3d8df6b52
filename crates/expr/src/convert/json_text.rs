//! Reads JSON (RFC 8259) from bytes, strictly, and writes its strings as XML text.

use super::error::{ConvertErrorKind, Reason};
use crate::json::decode_escape;

/// A place in JSON text that has been found to be UTF-8.
pub(super) struct JsonText<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
}

/// Where XML text is written to; attributes need more escapes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Text,
    Attribute,
}

/// Bytes of a JSON string that can be copied to XML as they are.
const PLAIN: [bool; 256] = {
    let mut table = [true; 256];
    let mut byte = 0;
    while byte < 0x20 {
        table[byte] = false;
        byte += 1;
    }
    table[b'"' as usize] = false;
    table[b'\\' as usize] = false;
    table[b'&' as usize] = false;
    table[b'<' as usize] = false;
    table[b'>' as usize] = false;
    // The first byte of U+F000 to U+FFFF, two of which XML forbids.
    table[0xef] = false;
    table
};

/// How many bytes can be copied before the first that cannot; none when all can.
#[inline]
fn plain_run(bytes: &[u8]) -> Option<usize> {
    let (words, _) = bytes.as_chunks::<8>();
    for (at, word) in words.iter().enumerate() {
        let special = special_bytes(u64::from_le_bytes(*word));
        if special != 0 {
            return Some(at * 8 + special.trailing_zeros() as usize / 8);
        }
    }
    let seen = words.len() * 8;
    let rest = bytes.get(seen..).unwrap_or_default();
    let found = rest.iter().position(|byte| !PLAIN[usize::from(*byte)]);
    found.map(|at| seen + at)
}

/// Marks bytes of a word that are not plain. The lowest mark is exact; others may be false.
#[inline]
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = ONES << 7;
    // A byte that is zero borrows from its highest bit.
    let zeros = |word: u64| word.wrapping_sub(ONES) & !word & HIGHS;
    let is = |word: u64, byte: u8| zeros(word ^ (ONES * u64::from(byte)));
    let controls = word.wrapping_sub(ONES * 0x20) & !word & HIGHS;
    // `"` and `&` differ in one bit, and so do `<` and `>`.
    controls
        | is(word | (ONES * 0x04), b'&')
        | is(word | (ONES * 0x02), b'>')
        | is(word, b'\\')
        | is(word, 0xef)
}

impl<'a> JsonText<'a> {
    /// # Errors
    /// When the bytes are not UTF-8.
    pub fn new(bytes: &'a [u8]) -> Result<Self, Reason> {
        match std::str::from_utf8(bytes) {
            Ok(_) => Ok(Self { bytes, at: 0 }),
            Err(error) => Err(Reason::syntax(error.valid_up_to(), "the text is not UTF-8")),
        }
    }

    #[inline]
    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    #[inline]
    pub fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Takes this byte, behind white space.
    #[inline]
    pub fn require(&mut self, byte: u8, detail: &'static str) -> Result<(), Reason> {
        self.skip_space();
        if self.peek() != Some(byte) {
            return Err(Reason::syntax(self.at, detail));
        }
        self.at += 1;
        Ok(())
    }

    /// Takes this byte if it is the next one behind white space.
    #[inline]
    pub fn take(&mut self, byte: u8) -> bool {
        self.skip_space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Takes `true`, `false` or `null`.
    pub fn word(&mut self, word: &'static [u8]) -> Result<&'static [u8], Reason> {
        if self.bytes.get(self.at..self.at + word.len()) != Some(word) {
            return Err(Reason::syntax(self.at, "a value was expected"));
        }
        self.at += word.len();
        Ok(word)
    }

    /// Takes a number and returns its text.
    pub fn number(&mut self) -> Result<&'a [u8], Reason> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(self.bytes.get(start..self.at).unwrap_or_default())
    }

    fn digits(&mut self) -> Result<(), Reason> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start {
            return Err(Reason::syntax(start, "a value was expected"));
        }
        Ok(())
    }

    /// Takes a string, whose first quote is the next byte, and writes it as XML text.
    #[inline]
    pub fn string_to_xml(&mut self, place: Place, out: &mut Vec<u8>) -> Result<(), Reason> {
        self.at += 1;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let Some(run) = plain_run(rest) else {
                return Err(Reason::syntax(self.bytes.len(), "the string has no end"));
            };
            out.extend_from_slice(rest.get(..run).unwrap_or_default());
            self.at += run;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    let start = self.at;
                    let character = self.escape()?;
                    write_character(character, start, place, out)?;
                }
                Some(0xef) => self.private_or_last(out)?,
                Some(byte) if byte < 0x20 => {
                    return Err(Reason::syntax(self.at, "a control character in a string"));
                }
                byte => {
                    let character = char::from(byte.unwrap_or_default());
                    write_character(character, self.at, place, out)?;
                    self.at += 1;
                }
            }
        }
    }

    fn private_or_last(&mut self, out: &mut Vec<u8>) -> Result<(), Reason> {
        let character = self.bytes.get(self.at..self.at + 3).unwrap_or_default();
        if matches!(character, [_, 0xbf, 0xbe | 0xbf]) {
            return Err(forbidden_character(self.at));
        }
        out.extend_from_slice(character);
        self.at += 3;
        Ok(())
    }

    /// Takes a string and returns its text.
    pub fn string(&mut self) -> Result<String, Reason> {
        let mut text = String::new();
        self.at += 1;
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let run = rest
                .iter()
                .position(|byte| matches!(byte, b'"' | b'\\' | ..b' '));
            let Some(run) = run else {
                return Err(Reason::syntax(self.bytes.len(), "the string has no end"));
            };
            text.push_str(&String::from_utf8_lossy(
                rest.get(..run).unwrap_or_default(),
            ));
            self.at += run;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                _ => return Err(Reason::syntax(self.at, "a control character in a string")),
            }
        }
    }

    /// Takes an escape, whose backslash is the next byte.
    fn escape(&mut self) -> Result<char, Reason> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let wrong = |message| Reason::syntax(self.at, message);
        let (character, length) = decode_escape(rest).map_err(wrong)?;
        self.at += length;
        Ok(character)
    }
}

fn forbidden_character(offset: usize) -> Reason {
    Reason::new(
        ConvertErrorKind::Unmappable,
        offset,
        "a character that XML does not have",
    )
}

fn write_character(
    character: char,
    offset: usize,
    place: Place,
    out: &mut Vec<u8>,
) -> Result<(), Reason> {
    let escaped: &[u8] = match (character, place) {
        ('&', _) => b"&amp;",
        ('<', _) => b"&lt;",
        ('>', _) => b"&gt;",
        ('\r', _) => b"&#13;",
        ('"', Place::Attribute) => b"&quot;",
        ('\t', Place::Attribute) => b"&#9;",
        ('\n', Place::Attribute) => b"&#10;",
        ('\t' | '\n', Place::Text) => &[character as u8],
        ('\0'..='\u{1f}' | '\u{fffe}' | '\u{ffff}', _) => return Err(forbidden_character(offset)),
        _ => {
            out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            return Ok(());
        }
    };
    out.extend_from_slice(escaped);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_at_every_byte_that_is_not_plain_wherever_it_stands() {
        for byte in 0..=255_u8 {
            for at in 0..20 {
                let mut bytes = [b'x'; 24];
                bytes[at] = byte;
                bytes[23] = b'"';
                let expected = if PLAIN[usize::from(byte)] { 23 } else { at };
                assert_eq!(plain_run(&bytes), Some(expected), "{byte:#x} at {at}");
                bytes[at + 1..].fill(byte);
                let expected = (!PLAIN[usize::from(byte)]).then_some(at);
                assert_eq!(plain_run(&bytes), expected, "{byte:#x} from {at}");
            }
        }
    }
}
