//! The values of expressions: JSON, and byte strings.

use std::borrow::Cow;

use bytes::Bytes;
use jaq_json::Num;

pub use jaq_json::Val as Value;

/// How many characters of a value an error message shows.
const SHOWN_MAX: usize = 200;

/// An object; of members with the same name the last one stays.
pub fn object(members: impl IntoIterator<Item = (String, Value)>) -> Value {
    let members = members.into_iter().map(|(key, value)| (text(key), value));
    Value::obj(members.collect())
}

/// An array.
pub fn array(items: impl IntoIterator<Item = Value>) -> Value {
    items.into_iter().collect()
}

/// A text string.
pub fn text(text: impl Into<String>) -> Value {
    Value::utf8_str(text.into().into_bytes())
}

/// A byte string.
pub fn bytes(bytes: Bytes) -> Value {
    Value::byte_str(bytes)
}

/// An integer.
pub fn integer(number: i64) -> Value {
    match isize::try_from(number) {
        Ok(number) => Value::Num(Num::Int(number)),
        Err(_) => self::number(&number.to_string()),
    }
}

/// A number; NaN and the infinities are refused when they are written as JSON.
pub fn float(number: f64) -> Value {
    Value::Num(Num::Float(number))
}

/// The most digits of an integer that is calculated with exactly: reading and writing one
/// takes time in proportion to the square of its digits.
const EXACT_DIGITS_MAX: usize = 1000;

/// A decimal literal as JSON writes it. It keeps its spelling until it is calculated with; what
/// is no number becomes a NaN then.
pub fn number(text: &str) -> Value {
    let is_whole = text.bytes().all(|it| it.is_ascii_digit() || it == b'-');
    if !is_whole || text == "-0" || text.len() > EXACT_DIGITS_MAX {
        return decimal(text);
    }
    match Num::from_str_radix(text, 10) {
        Some(number) => Value::Num(number),
        None => decimal(text),
    }
}

/// A number that is not whole, or too long to be treated as such.
fn decimal(text: &str) -> Value {
    match is_json_number(text) {
        true => Value::Num(Num::Dec(text.to_owned().into())),
        false => float(text.parse().unwrap_or(f64::NAN)),
    }
}

/// What people write as a number: a JSON number, or one with a `+`, zeros in front, or a bare
/// point. None for anything else.
pub(crate) fn parse_number(text: &str) -> Option<Value> {
    if is_json_number(text) {
        return Some(number(text));
    }
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let is_odd = |it: u8| !it.is_ascii_digit() && !matches!(it, b'.' | b'e' | b'E' | b'+' | b'-');
    if digits.bytes().any(is_odd) {
        return None;
    }
    let plain = digits.trim_start_matches('0');
    let zero = if plain.starts_with(|it: char| it.is_ascii_digit()) {
        ""
    } else {
        "0"
    };
    let plain = format!("{sign}{zero}{plain}");
    match is_json_number(&plain) && digits.starts_with(|it: char| it.is_ascii_digit()) {
        true => Some(number(&plain)),
        false => text.parse().ok().map(float),
    }
}

/// Whether a text is a number as JSON spells it.
fn is_json_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let behind_digits = |text: &str| {
        text.len()
            - text
                .trim_start_matches(|it: char| it.is_ascii_digit())
                .len()
    };
    let whole = behind_digits(digits);
    if whole == 0 || whole > 1 && digits.starts_with('0') {
        return false;
    }
    let mut rest = digits.get(whole..).unwrap_or_default();
    if let Some(fraction) = rest.strip_prefix('.') {
        match behind_digits(fraction) {
            0 => return false,
            length => rest = fraction.get(length..).unwrap_or_default(),
        }
    }
    if let Some(exponent) = rest.strip_prefix(['e', 'E']) {
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let length = behind_digits(exponent);
        return length > 0 && length == exponent.len();
    }
    rest.is_empty()
}

/// The kind of a value: `null`, `boolean`, `number`, `string`, `bytes`, `array` or `object`.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Num(_) => "number",
        Value::TStr(_) => "string",
        Value::BStr(_) => "bytes",
        Value::Arr(_) => "array",
        Value::Obj(_) => "object",
    }
}

/// A member of an object; none for everything else.
pub fn get<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Obj(members) => members.get(&text(key)),
        _ => None,
    }
}

/// The text of a text string that is UTF-8.
#[inline]
pub fn as_text(value: &Value) -> Option<&str> {
    match value {
        Value::TStr(text) => std::str::from_utf8(text).ok(),
        _ => None,
    }
}

/// The entries of an array.
pub fn as_array(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Arr(items) => Some(items),
        _ => None,
    }
}

/// The members of an object, those left out whose name is no text.
pub fn members(value: &Value) -> Option<impl Iterator<Item = (&str, &Value)>> {
    match value {
        Value::Obj(members) => {
            let members = members.iter();
            Some(members.filter_map(|(key, value)| Some((as_text(key)?, value))))
        }
        _ => None,
    }
}

/// Whether a condition holds: everything but `null` and `false`.
pub fn is_truthy(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

/// The text of a text string, number or boolean; none for null, bytes, arrays and objects.
pub fn scalar_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::TStr(_) => as_text(value).map(Cow::Borrowed),
        Value::Bool(true) => Some(Cow::Borrowed("true")),
        Value::Bool(false) => Some(Cow::Borrowed("false")),
        Value::Num(Num::Dec(text)) => Some(Cow::Borrowed(text)),
        Value::Num(number) => Some(Cow::Owned(number.to_string())),
        Value::Null | Value::BStr(_) | Value::Arr(_) | Value::Obj(_) => None,
    }
}

/// A value for an error message: compact JSON of at most 200 characters, without control
/// characters.
pub fn shown(value: &Value) -> String {
    let mut shown = Shown {
        text: String::new(),
        left: SHOWN_MAX,
    };
    match shown.value(value) {
        Ok(()) => shown.text,
        Err(Full) => shown.text + "...",
    }
}

/// There is no room left.
struct Full;

struct Shown {
    text: String,
    left: usize,
}

impl Shown {
    fn push(&mut self, character: char) -> Result<(), Full> {
        self.left = self.left.checked_sub(1).ok_or(Full)?;
        self.text.push(character);
        Ok(())
    }

    fn push_all(&mut self, text: &str) -> Result<(), Full> {
        text.chars().try_for_each(|it| self.push(it))
    }

    fn value(&mut self, value: &Value) -> Result<(), Full> {
        match value {
            Value::Null => self.push_all("null"),
            Value::Bool(truth) => self.push_all(if *truth { "true" } else { "false" }),
            Value::Num(Num::Dec(text)) => self.push_all(text),
            Value::Num(Num::BigInt(number)) if number.bits() > 4096 => {
                self.push_all("(a number of more than 1000 digits)")
            }
            Value::Num(number) => self.push_all(&number.to_string()),
            Value::TStr(text) => self.string(text),
            Value::BStr(bytes) => {
                self.push('b')?;
                self.string(bytes)
            }
            Value::Arr(items) => {
                self.push('[')?;
                for (at, item) in items.iter().enumerate() {
                    self.comma(at)?;
                    self.value(item)?;
                }
                self.push(']')
            }
            Value::Obj(members) => {
                self.push('{')?;
                for (at, (key, member)) in members.iter().enumerate() {
                    self.comma(at)?;
                    self.value(key)?;
                    self.push(':')?;
                    self.value(member)?;
                }
                self.push('}')
            }
        }
    }

    fn comma(&mut self, at: usize) -> Result<(), Full> {
        match at {
            0 => Ok(()),
            _ => self.push(','),
        }
    }

    fn string(&mut self, bytes: &[u8]) -> Result<(), Full> {
        self.push('"')?;
        // The rest would be cut off anyway, and a character has at most four bytes.
        let bytes = bytes.get(..SHOWN_MAX * 4).unwrap_or(bytes);
        for character in String::from_utf8_lossy(bytes).chars() {
            match character {
                '"' | '\\' => self.push_all(&format!("\\{character}"))?,
                '\n' => self.push_all("\\n")?,
                '\r' => self.push_all("\\r")?,
                '\t' => self.push_all("\\t")?,
                _ if character.is_control() => {
                    self.push_all(&format!("\\u{:04x}", u32::from(character)))?;
                }
                _ => self.push(character)?,
            }
        }
        self.push('"')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_value_is_short_and_has_no_control_characters() {
        let value = object([("a\n\u{1b}".to_owned(), array([integer(1), Value::Null]))]);
        assert_eq!(shown(&value), r#"{"a\n\u001b":[1,null]}"#);
        let long = shown(&text("é".repeat(5000)));
        assert_eq!(long.chars().count(), SHOWN_MAX + 3);
        assert_eq!(shown(&bytes(Bytes::from_static(b"ab"))), r#"b"ab""#);
    }

    #[test]
    fn numbers_keep_their_spelling() {
        for text in [
            "0",
            "-0",
            "1.50",
            "1e5",
            "12345678901234567890",
            "-7",
            "1E+400",
        ] {
            assert_eq!(scalar_text(&number(text)).unwrap(), text);
        }
        let long = "9".repeat(100_000);
        assert_eq!(scalar_text(&number(&long)).unwrap(), long);
    }

    #[test]
    fn members_and_kinds() {
        let value = object([("a".to_owned(), integer(1)), ("a".to_owned(), integer(2))]);
        assert_eq!(get(&value, "a"), Some(&integer(2)));
        assert_eq!(get(&value, "b"), None);
        assert_eq!(members(&value).unwrap().count(), 1);
        assert_eq!(kind(&value), "object");
        assert!(members(&Value::Null).is_none());
        assert!(is_truthy(&integer(0)) && !is_truthy(&Value::Bool(false)));
    }
}
