//! Reads JSON (RFC 8259), strictly.

use std::fmt;

use bytes::Bytes;
use jaq_json::{Map, Num};

use super::{DEPTH_LIMIT, decode_escape};
use crate::stop::{STOPPED, StopCheck};
use crate::value::{self, Value};

/// Why a text is not JSON, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// The reason.
    pub message: &'static str,
    /// The line of the text, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl fmt::Display for JsonError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            message,
            line,
            column,
        } = self;
        write!(formatter, "{message} at line {line}, column {column}")
    }
}

impl std::error::Error for JsonError {}

/// Reads the one value of a JSON text. Numbers keep their spelling; of members with the same name
/// the last one stays. Strings without escapes point into `text` and keep it alive.
///
/// # Errors
/// When the text is not UTF-8, is not one JSON value, or has more than `depth_max` (at most 512)
/// levels.
pub fn parse(text: &Bytes, depth_max: usize) -> Result<Value, JsonError> {
    let fail = |fault: Fault| fault.locate(text);
    if let Err(error) = std::str::from_utf8(text) {
        return Err(fail(Fault {
            at: error.valid_up_to(),
            message: "the text is not UTF-8",
        }));
    }
    let mut reader = Reader::new(text, depth_max);
    let value = reader.value().map_err(fail)?;
    reader.skip_space();
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(fail(reader.fault("more text behind the value"))),
    }
}

pub(super) struct Fault {
    at: usize,
    message: &'static str,
}

impl Fault {
    fn locate(self, text: &[u8]) -> JsonError {
        let before = text.get(..self.at).unwrap_or(text);
        let line_start = memchr::memrchr(b'\n', before).map_or(0, |at| at + 1);
        let line = before.get(line_start..).unwrap_or_default();
        JsonError {
            message: self.message,
            line: 1 + memchr::memchr_iter(b'\n', before).count(),
            column: 1 + String::from_utf8_lossy(line).chars().count(),
        }
    }
}

pub(super) struct Reader<'a> {
    whole: &'a Bytes,
    pub(super) text: &'a [u8],
    pub(super) at: usize,
    depth_left: usize,
    stop: StopCheck,
}

/// How many members an object has room for at first.
const MEMBERS: usize = 8;

/// Marks bytes of a word that end a run of plain ones: quotes, backslashes and control
/// characters. The lowest mark is exact; others may be false.
#[inline]
pub(super) fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = ONES << 7;
    // A byte below the one that is subtracted borrows from its highest bit. With this bit flipped,
    // the quote comes right behind the control characters: 0x22 becomes 0x20, and 0x20 0x22.
    let controls_and_quotes = (word ^ (ONES * 0x02)).wrapping_sub(ONES * 0x21);
    let backslashes = (word ^ (ONES * u64::from(b'\\'))).wrapping_sub(ONES);
    (controls_and_quotes | backslashes) & !word & HIGHS
}

/// Where the text of a string lies, without its quotes.
#[derive(Clone, Copy)]
pub(super) struct StringSpan {
    pub start: usize,
    pub end: usize,
    pub has_escapes: bool,
}

impl<'a> Reader<'a> {
    /// Reads from the start of a text that is UTF-8.
    pub(super) fn new(whole: &'a Bytes, depth_max: usize) -> Self {
        Self {
            whole,
            text: whole,
            at: 0,
            depth_left: depth_max.min(DEPTH_LIMIT),
            stop: StopCheck::new(0),
        }
    }

    /// Fails when nobody waits for the value any more. Asked for each entry.
    #[inline]
    fn check_stop(&mut self) -> Result<(), Fault> {
        match self.stop.is_stopped(self.at) {
            true => Err(self.fault(STOPPED)),
            false => Ok(()),
        }
    }

    pub(super) fn fault(&self, message: &'static str) -> Fault {
        Fault {
            at: self.at,
            message,
        }
    }

    #[inline]
    pub(super) fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    #[inline]
    pub(super) fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    fn value(&mut self) -> Result<Value, Fault> {
        self.skip_space();
        match self.peek() {
            Some(b'"') => self.string(),
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word(b"true", Value::Bool(true)),
            Some(b'f') => self.word(b"false", Value::Bool(false)),
            Some(b'n') => self.word(b"null", Value::Null),
            Some(_) => Err(self.fault("a value was expected")),
            None => Err(self.fault("the text ends where a value was expected")),
        }
    }

    fn word(&mut self, word: &'static [u8], value: Value) -> Result<Value, Fault> {
        self.skip_word(word).map(|()| value)
    }

    #[inline]
    pub(super) fn skip_word(&mut self, word: &[u8]) -> Result<(), Fault> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if !rest.starts_with(word) {
            return Err(self.fault("a value was expected"));
        }
        self.at += word.len();
        Ok(())
    }

    /// Skips a value that begins here. It has as many levels as are left: see [`Reader::enter`].
    pub(super) fn skip_value(&mut self) -> Result<(), Fault> {
        match self.peek() {
            Some(b'"') => self.skip_string().map(drop),
            Some(b'-' | b'0'..=b'9') => self.skip_number().map(drop),
            Some(b'{') => self.skip_object(),
            Some(b'[') => self.skip_array(),
            Some(b't') => self.skip_word(b"true"),
            Some(b'f') => self.skip_word(b"false"),
            Some(b'n') => self.skip_word(b"null"),
            _ => Err(self.fault("a value was expected")),
        }
    }

    fn skip_object(&mut self) -> Result<(), Fault> {
        if !self.enter(b'}')? {
            return Ok(());
        }
        loop {
            self.skip_name()?;
            self.skip_value()?;
            if !self.has_more(b'}')? {
                return Ok(());
            }
        }
    }

    fn skip_array(&mut self) -> Result<(), Fault> {
        if !self.enter(b']')? {
            return Ok(());
        }
        loop {
            self.skip_value()?;
            if !self.has_more(b']')? {
                return Ok(());
            }
        }
    }

    /// Skips the name of a member, the colon, and the space behind it.
    #[inline]
    pub(super) fn skip_name(&mut self) -> Result<StringSpan, Fault> {
        if self.peek() != Some(b'"') {
            return Err(self.fault("the name of a member was expected"));
        }
        let name = self.skip_string()?;
        self.skip_space();
        if self.peek() != Some(b':') {
            return Err(self.fault("`:` was expected"));
        }
        self.at += 1;
        self.skip_space();
        Ok(name)
    }

    /// Skips a string whose opening quote is here.
    #[inline]
    pub(super) fn skip_string(&mut self) -> Result<StringSpan, Fault> {
        self.at += 1;
        let start = self.at;
        self.plain_run();
        match self.peek() {
            Some(b'"') => {
                let end = self.at;
                self.at += 1;
                Ok(StringSpan {
                    start,
                    end,
                    has_escapes: false,
                })
            }
            _ => self.skip_escapes(start),
        }
    }

    #[cold]
    fn skip_escapes(&mut self, start: usize) -> Result<StringSpan, Fault> {
        loop {
            match self.peek() {
                Some(b'"') => {
                    let end = self.at;
                    self.at += 1;
                    return Ok(StringSpan {
                        start,
                        end,
                        has_escapes: true,
                    });
                }
                Some(b'\\') => drop(self.escape()?),
                Some(_) => return Err(self.fault("a control character in a string")),
                None => return Err(self.fault("the string has no end")),
            }
            self.plain_run();
        }
    }

    /// Enters an array or object, whose opening bracket is here: whether it has an entry, which
    /// then begins here. Each one that has takes a level until [`Reader::has_more`] has found its
    /// end.
    #[inline]
    pub(super) fn enter(&mut self, close: u8) -> Result<bool, Fault> {
        let Some(left) = self.depth_left.checked_sub(1) else {
            return Err(self.fault("too many levels within each other"));
        };
        self.at += 1;
        self.skip_space();
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(false);
        }
        self.depth_left = left;
        Ok(true)
    }

    /// Whether another entry follows, which then begins here, or the closing bracket.
    #[inline]
    pub(super) fn has_more(&mut self, close: u8) -> Result<bool, Fault> {
        self.skip_space();
        let byte = self.peek();
        if byte == Some(b',') {
            self.at += 1;
            self.skip_space();
            return Ok(true);
        }
        if byte != Some(close) {
            return Err(self.fault("`,` or the end was expected"));
        }
        self.at += 1;
        self.depth_left += 1;
        Ok(false)
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value, Fault>) -> Result<Value, Fault> {
        if self.depth_left == 0 {
            return Err(self.fault("too many levels within each other"));
        }
        self.depth_left -= 1;
        self.at += 1;
        let value = read(self)?;
        self.depth_left += 1;
        Ok(value)
    }

    fn array(&mut self) -> Result<Value, Fault> {
        let mut items = Vec::new();
        self.skip_space();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Arr(items.into()));
        }
        loop {
            items.push(self.value()?);
            self.check_stop()?;
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(self.fault("`,` or `]` was expected")),
            }
        }
        self.at += 1;
        Ok(Value::Arr(items.into()))
    }

    fn object(&mut self) -> Result<Value, Fault> {
        self.skip_space();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::obj(Map::default()));
        }
        let mut members = Map::with_capacity_and_hasher(MEMBERS, Default::default());
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.fault("the name of a member was expected"));
            }
            let key = self.string()?;
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.fault("`:` was expected"));
            }
            self.at += 1;
            let value = self.value()?;
            members.insert(key, value);
            self.check_stop()?;
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => break,
                _ => return Err(self.fault("`,` or `}` was expected")),
            }
        }
        self.at += 1;
        Ok(Value::obj(members))
    }

    fn number(&mut self) -> Result<Value, Fault> {
        let start = self.at;
        let is_whole = self.skip_number()?;
        let digits = self.text.get(start..self.at).unwrap_or_default();
        if is_whole && let Some(number) = small_integer(digits) {
            return Ok(Value::Num(Num::Int(number)));
        }
        let text = std::str::from_utf8(digits).unwrap_or_default();
        match is_whole {
            true => Ok(value::number(text)),
            false => Ok(Value::Num(Num::Dec(text.to_owned().into()))),
        }
    }

    /// Takes a number, and says whether it is whole.
    pub(super) fn skip_number(&mut self) -> Result<bool, Fault> {
        self.at += usize::from(self.peek() == Some(b'-'));
        match self.peek() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        let mut is_whole = true;
        if self.peek() == Some(b'.') {
            is_whole = false;
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            is_whole = false;
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.digits()?;
        }
        Ok(is_whole)
    }

    fn digits(&mut self) -> Result<(), Fault> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        match self.at == start {
            true => Err(self.fault("a digit was expected")),
            false => Ok(()),
        }
    }

    fn string(&mut self) -> Result<Value, Fault> {
        self.at += 1;
        let start = self.at;
        self.plain_run();
        match self.peek() {
            Some(b'"') => {
                let end = self.at;
                self.at += 1;
                Ok(Value::utf8_str(self.whole.slice(start..end)))
            }
            _ => self.string_with_escapes(start),
        }
    }

    /// Goes to the next quote, backslash or control character.
    #[inline]
    pub(super) fn plain_run(&mut self) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let (words, _) = rest.as_chunks::<8>();
        for word in words {
            let special = special_bytes(u64::from_le_bytes(*word));
            if special != 0 {
                self.at += special.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
        }
        let is_plain = |it: u8| it >= b' ' && it != b'"' && it != b'\\';
        while self.peek().is_some_and(is_plain) {
            self.at += 1;
        }
    }

    #[cold]
    fn string_with_escapes(&mut self, start: usize) -> Result<Value, Fault> {
        let mut text = self.text.get(start..self.at).unwrap_or_default().to_vec();
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Value::utf8_str(text));
                }
                Some(b'\\') => {
                    let character = self.escape()?;
                    text.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(_) => return Err(self.fault("a control character in a string")),
                None => return Err(self.fault("the string has no end")),
            }
            let run = self.at;
            self.plain_run();
            text.extend_from_slice(self.text.get(run..self.at).unwrap_or_default());
        }
    }

    pub(super) fn escape(&mut self) -> Result<char, Fault> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let (character, length) = decode_escape(rest).map_err(|message| self.fault(message))?;
        self.at += length;
        Ok(character)
    }
}

/// The number of at most 18 digits, other than `-0`, which would lose its sign.
fn small_integer(digits: &[u8]) -> Option<isize> {
    let (is_negative, digits) = match digits {
        [b'-', digits @ ..] => (true, digits),
        _ => (false, digits),
    };
    if digits.len() > 18 || is_negative && digits == b"0" {
        return None;
    }
    let add = |value: isize, digit: &u8| value * 10 + isize::from(digit - b'0');
    let value = digits.iter().fold(0, add);
    Some(if is_negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Value, String> {
        parse(&Bytes::copy_from_slice(text.as_bytes()), 100).map_err(|it| it.to_string())
    }

    #[test]
    fn what_is_json_is_read() {
        let text = r#" {"a":[1,-2.50,true,null,"x\u00e9\ud83d\ude00\n"],"b":{},"a":[]} "#;
        let value = read(text).unwrap();
        assert_eq!(value.to_string(), r#"{"a":[],"b":{}}"#);
        let value = read(r#"[1,-2.50,true,null,"x\u00e9\ud83d\ude00\n",-0,1e2]"#).unwrap();
        assert_eq!(value.to_string(), r#"[1,-2.50,true,null,"xé😀\n",-0,1e2]"#);
    }

    #[test]
    fn what_is_not_json_is_refused_with_its_place() {
        let cases = [
            (
                "",
                "the text ends where a value was expected at line 1, column 1",
            ),
            ("{\n \"a\" 1}", "`:` was expected at line 2, column 6"),
            ("[1,]", "a value was expected at line 1, column 4"),
            ("[1 2]", "`,` or `]` was expected at line 1, column 4"),
            (
                "{1:2}",
                "the name of a member was expected at line 1, column 2",
            ),
            ("01", "more text behind the value at line 1, column 2"),
            ("1.", "a digit was expected at line 1, column 3"),
            ("NaN", "a value was expected at line 1, column 1"),
            (
                "\"\u{1}\"",
                "a control character in a string at line 1, column 2",
            ),
            ("\"é", "the string has no end at line 1, column 3"),
            (
                r#""\ud800x""#,
                "half of a surrogate pair at line 1, column 2",
            ),
            (
                r#""\u12""#,
                "an escape that does not exist at line 1, column 2",
            ),
            ("1 // x", "more text behind the value at line 1, column 3"),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text).unwrap_err(), expected, "{text}");
        }
        assert!(parse(&Bytes::from_static(b"\"\xff\""), 9).is_err());
    }

    #[test]
    fn bytes_that_end_a_plain_run_are_found() {
        for byte in 0..=u8::MAX {
            let is_special = byte < b' ' || byte == b'"' || byte == b'\\';
            for at in 0..8 {
                let mut word = [b' '; 8];
                word[at] = byte;
                let marks = special_bytes(u64::from_le_bytes(word));
                let found = (marks != 0).then(|| marks.trailing_zeros() as usize / 8);
                assert_eq!(found, is_special.then_some(at), "{byte} at {at}");
            }
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(read(&nested(100)).is_ok());
        assert!(read(&nested(101)).unwrap_err().contains("too many levels"));
        let text = Bytes::from(nested(513));
        assert!(parse(&text, usize::MAX).is_err());
    }
}
