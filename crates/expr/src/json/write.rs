//! Writes values as JSON, and refuses what JSON does not have.

use std::fmt;

use jaq_json::{Map, Num};

use super::DEPTH_LIMIT;
use crate::jq::is_stopped;
use crate::stop::{STEP, STOPPED};
use crate::value::Value;

/// Why a value cannot be written as JSON, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotJson {
    /// The reason.
    pub message: &'static str,
    /// Where in the value: `.a[3].b`.
    pub path: String,
}

impl fmt::Display for NotJson {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} at {}", self.message, self.path)
    }
}

impl std::error::Error for NotJson {}

/// Appends a value as compact JSON.
///
/// # Errors
/// When the value holds a NaN, an infinity, a byte string, text that is not UTF-8 or a member
/// whose name is no text, has more than 512 levels, or needs more than `size_max` bytes. `out` is
/// as it was then.
pub fn write(value: &Value, size_max: usize, out: &mut Vec<u8>) -> Result<(), NotJson> {
    let start = out.len();
    let mut writer = Writer {
        limit: start.saturating_add(size_max),
        next_check: start.saturating_add(size_max.min(STEP)),
        out,
        depth_left: DEPTH_LIMIT,
        path: Vec::new(),
    };
    let result = writer.value(value);
    if let Err(message) = result {
        let path = writer.path();
        out.truncate(start);
        return Err(NotJson { message, path });
    }
    Ok(())
}

struct Writer<'a> {
    out: &'a mut Vec<u8>,
    limit: usize,
    /// How long it may be before the limit and the flag that ends the work are looked at.
    next_check: usize,
    depth_left: usize,
    /// Where the writer failed, the innermost place first.
    path: Vec<String>,
}

impl Writer<'_> {
    fn path(&self) -> String {
        if self.path.is_empty() {
            return ".".to_owned();
        }
        let path: String = self.path.iter().rev().map(String::as_str).collect();
        match path.starts_with('[') {
            true => format!(".{path}"),
            false => path,
        }
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), &'static str> {
        if bytes.len() > self.next_check.saturating_sub(self.out.len()) {
            self.check(bytes.len())?;
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    /// Looks whether so many bytes more are allowed, and whether anybody waits for them.
    #[cold]
    fn check(&mut self, more: usize) -> Result<(), &'static str> {
        if more > self.limit.saturating_sub(self.out.len()) {
            return Err("the text is too large");
        }
        if is_stopped() {
            return Err(STOPPED);
        }
        let end = self.out.len().saturating_add(more);
        self.next_check = self.limit.min(end.saturating_add(STEP));
        Ok(())
    }

    fn value(&mut self, value: &Value) -> Result<(), &'static str> {
        match value {
            Value::Null => self.put(b"null"),
            Value::Bool(true) => self.put(b"true"),
            Value::Bool(false) => self.put(b"false"),
            Value::Num(number) => self.number(number),
            Value::TStr(text) => self.string(text),
            Value::BStr(_) => Err("a byte string is not JSON"),
            Value::Arr(items) => self.nested(|it| it.array(items)),
            Value::Obj(members) => self.nested(|it| it.object(members)),
        }
    }

    fn nested(
        &mut self,
        write: impl FnOnce(&mut Self) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        self.depth_left = self
            .depth_left
            .checked_sub(1)
            .ok_or("more than 512 levels within each other")?;
        write(self)?;
        self.depth_left += 1;
        Ok(())
    }

    fn number(&mut self, number: &Num) -> Result<(), &'static str> {
        match number {
            Num::Int(number) => self.integer(*number),
            Num::Dec(text) => self.put(text.as_bytes()),
            Num::Float(number) if number.is_nan() => Err("NaN is not JSON"),
            Num::Float(number) if number.is_infinite() => Err("an infinite number is not JSON"),
            Num::Float(_) | Num::BigInt(_) => self.put(number.to_string().as_bytes()),
        }
    }

    fn integer(&mut self, number: isize) -> Result<(), &'static str> {
        let mut digits = [0; 20];
        let mut start = digits.len();
        let mut left = number.unsigned_abs();
        for (at, digit) in digits.iter_mut().enumerate().rev() {
            *digit = b'0' + (left % 10) as u8;
            left /= 10;
            start = at;
            if left == 0 {
                break;
            }
        }
        if number < 0 {
            self.put(b"-")?;
        }
        self.put(digits.get(start..).unwrap_or_default())
    }

    fn array(&mut self, items: &[Value]) -> Result<(), &'static str> {
        self.put(b"[")?;
        for (at, item) in items.iter().enumerate() {
            if at > 0 {
                self.put(b",")?;
            }
            let result = self.value(item);
            if result.is_err() {
                self.path.push(format!("[{at}]"));
            }
            result?;
        }
        self.put(b"]")
    }

    fn object(&mut self, members: &Map) -> Result<(), &'static str> {
        self.put(b"{")?;
        for (at, (key, member)) in members.iter().enumerate() {
            if at > 0 {
                self.put(b",")?;
            }
            let Value::TStr(name) = key else {
                return Err("the name of a member is no text");
            };
            self.string(name)?;
            self.put(b":")?;
            let result = self.value(member);
            if result.is_err() {
                self.path.push(crate::jq::path_part(name));
            }
            result?;
        }
        self.put(b"}")
    }

    fn string(&mut self, text: &[u8]) -> Result<(), &'static str> {
        // Before it is looked through: it may be far longer than what may be written.
        let length = text.len().saturating_add(2);
        if length > self.next_check.saturating_sub(self.out.len()) {
            self.check(length)?;
        }
        // Most texts: they are UTF-8 and stand as they are.
        if is_plain_ascii(text) {
            self.out.reserve(text.len() + 2);
            self.out.push(b'"');
            self.out.extend_from_slice(text);
            self.out.push(b'"');
            return Ok(());
        }
        self.unusual_string(text)
    }

    fn unusual_string(&mut self, text: &[u8]) -> Result<(), &'static str> {
        if std::str::from_utf8(text).is_err() {
            return Err("text that is not UTF-8");
        }
        self.put(b"\"")?;
        let mut rest = text;
        while let Some(at) = special(rest) {
            let (plain, special) = rest.split_at(at);
            self.put(plain)?;
            let Some((byte, behind)) = special.split_first() else {
                break;
            };
            self.escape(*byte)?;
            rest = behind;
        }
        self.put(rest)?;
        self.put(b"\"")
    }

    #[cold]
    fn escape(&mut self, byte: u8) -> Result<(), &'static str> {
        match byte {
            b'"' => self.put(b"\\\""),
            b'\\' => self.put(b"\\\\"),
            b'\n' => self.put(b"\\n"),
            b'\r' => self.put(b"\\r"),
            b'\t' => self.put(b"\\t"),
            8 => self.put(b"\\b"),
            12 => self.put(b"\\f"),
            _ => self.put(format!("\\u{byte:04x}").as_bytes()),
        }
    }
}

/// Whether a text is ASCII of which nothing must be escaped.
#[inline]
fn is_plain_ascii(text: &[u8]) -> bool {
    const HIGHS: u64 = u64::from_le_bytes([0x80; 8]);
    let is_plain = |word: &[u8; 8]| {
        let word = u64::from_le_bytes(*word);
        super::parse::special_bytes(word) | (word & HIGHS) == 0
    };
    match text.last_chunk() {
        // The last word may overlap the one before.
        Some(last) => text.as_chunks().0.iter().all(is_plain) && is_plain(last),
        None => {
            let is_plain = |it: &u8| (b' '..0x80).contains(it) && *it != b'"' && *it != b'\\';
            text.iter().all(is_plain)
        }
    }
}

/// Where the first byte is that must be escaped.
#[inline]
fn special(text: &[u8]) -> Option<usize> {
    let is_special = |it: &u8| *it < b' ' || *it == b'"' || *it == b'\\';
    let (words, rest) = text.as_chunks::<16>();
    for (at, word) in words.iter().enumerate() {
        // Without an early end the compiler looks at all sixteen at once.
        if word.iter().fold(false, |found, it| found | is_special(it)) {
            let within = word.iter().position(is_special)?;
            return Some(at * 16 + within);
        }
    }
    let seen = text.len() - rest.len();
    rest.iter().position(is_special).map(|at| seen + at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::{array, bytes, float, integer, number, object, text};

    fn written(value: &Value) -> Result<String, String> {
        let mut out = b">".to_vec();
        match write(value, 1000, &mut out) {
            Ok(()) => Ok(String::from_utf8(out.split_off(1)).unwrap()),
            Err(error) => {
                assert_eq!(out, b">");
                Err(error.to_string())
            }
        }
    }

    #[test]
    fn values_are_written_compactly() {
        let value = object([
            (
                "a\"\n\u{1}é".to_owned(),
                array([integer(-120), number("1.50"), float(0.1)]),
            ),
            (
                "b".to_owned(),
                array([Value::Null, Value::Bool(true), integer(0)]),
            ),
        ]);
        let expected = r#"{"a\"\n\u0001é":[-120,1.50,0.1],"b":[null,true,0]}"#;
        assert_eq!(written(&value).unwrap(), expected);
        for edge in [i64::MIN, i64::MAX, 9, 10, 99, 100] {
            assert_eq!(written(&integer(edge)).unwrap(), edge.to_string());
        }
    }

    #[test]
    fn texts_of_each_length_are_plain_or_not() {
        for length in 0..20 {
            let plain = "x".repeat(length);
            assert!(is_plain_ascii(plain.as_bytes()));
            for (at, special) in (0..length).zip(["\"", "\\", "\n", "é"].into_iter().cycle()) {
                let mut text = plain.clone();
                text.replace_range(at..=at, special);
                assert!(!is_plain_ascii(text.as_bytes()), "{text}");
            }
        }
        let (mut out, name) = (Vec::new(), text("x".repeat(20)));
        assert!(write(&name, 21, &mut out).is_err() && out.is_empty());
        assert!(write(&name, 22, &mut out).is_ok());
    }

    #[test]
    fn what_json_does_not_have_is_refused_with_its_path() {
        let at = |value| object([("a".to_owned(), array([integer(1), value]))]);
        let cases = [
            (at(float(f64::NAN)), "NaN is not JSON at .a[1]"),
            (
                array([float(f64::INFINITY)]),
                "an infinite number is not JSON at .[0]",
            ),
            (at(bytes("x".into())), "a byte string is not JSON at .a[1]"),
            (
                at(Value::utf8_str(&b"\xff"[..])),
                "text that is not UTF-8 at .a[1]",
            ),
            (text("x".repeat(1000)), "the text is too large at ."),
        ];
        for (value, expected) in cases {
            assert_eq!(written(&value).unwrap_err(), expected);
        }
        let deep = (0..513).fold(Value::Null, |value, _| array([value]));
        assert!(written(&deep).unwrap_err().contains("more than 512 levels"));
        let key = Value::obj([(integer(1), integer(2))].into_iter().collect());
        assert_eq!(
            written(&key).unwrap_err(),
            "the name of a member is no text at ."
        );
    }
}
