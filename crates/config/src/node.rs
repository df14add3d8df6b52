//! A YAML value with its place.

use crate::source::Span;

/// A YAML value with its place.
#[derive(Clone, Debug)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Where it stands.
    pub span: Span,
}

/// A value of the YAML 1.2 core schema.
#[derive(Clone, Debug)]
pub enum Value {
    /// `null`, `~` or nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number.
    Number(Number),
    /// Text.
    String(String),
    /// A list.
    Sequence(Vec<Node>),
    /// A mapping, in the order of the file; every key stands once.
    Mapping(Vec<Entry>),
}

/// One entry of a mapping.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key; one that is a number or a boolean is its text.
    pub key: String,
    /// Where the key stands.
    pub key_span: Span,
    /// The value.
    pub value: Node,
}

/// A finite number, with its text as it stands in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Number {
    text: String,
}

impl Number {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into() }
    }

    /// The text as it stands in the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The value, when it is an integer that fits; `0x` and `0o` are understood.
    pub fn as_i64(&self) -> Option<i64> {
        let (sign, digits) = match self.text.strip_prefix('-') {
            Some(digits) => ("-", digits),
            None => ("", self.text.strip_prefix('+').unwrap_or(&self.text)),
        };
        let (radix, digits) = match (digits.strip_prefix("0x"), digits.strip_prefix("0o")) {
            (Some(digits), _) => (16, digits),
            (_, Some(digits)) => (8, digits),
            _ => (10, digits),
        };
        i64::from_str_radix(&format!("{sign}{digits}"), radix).ok()
    }

    /// The value as a JSON number (RFC 8259, section 6): the text of the file where that is one.
    pub fn json_text(&self) -> Option<String> {
        if is_json_number(&self.text) {
            return Some(self.text.clone());
        }
        self.as_i64().map(|whole| whole.to_string())
    }

    /// The value as a floating-point number.
    pub fn as_f64(&self) -> f64 {
        match self.as_i64() {
            Some(whole) => whole as f64,
            None => self.text.parse().unwrap_or_default(),
        }
    }
}

impl Node {
    /// The value under a key of a mapping.
    pub fn get(&self, key: &str) -> Option<&Self> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// The entry with this key of a mapping.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.as_mapping()?.iter().find(|entry| entry.key == key)
    }

    /// The text of a string.
    pub fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// The items of a list.
    pub fn as_sequence(&self) -> Option<&[Self]> {
        match &self.value {
            Value::Sequence(items) => Some(items),
            _ => None,
        }
    }

    /// The entries of a mapping.
    pub fn as_mapping(&self) -> Option<&[Entry]> {
        match &self.value {
            Value::Mapping(entries) => Some(entries),
            _ => None,
        }
    }

    /// What the value is, in the words of messages.
    pub fn type_name(&self) -> &'static str {
        match &self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "a boolean",
            Value::Number(_) => "a number",
            Value::String(_) => "a string",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
        }
    }

    /// The value as JSON. Whole numbers that fit are exact; others are floating-point.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Number(number) => match number.as_i64() {
                Some(whole) => whole.into(),
                None => number.as_f64().into(),
            },
            Value::String(text) => text.as_str().into(),
            Value::Sequence(items) => items.iter().map(Self::to_json).collect(),
            Value::Mapping(entries) => {
                let members = entries
                    .iter()
                    .map(|entry| (entry.key.clone(), entry.value.to_json()));
                serde_json::Value::Object(members.collect())
            }
        }
    }
}

/// The grammar of RFC 8259, section 6.
fn is_json_number(text: &str) -> bool {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (
            mantissa,
            Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent)),
        ),
        None => (unsigned, None),
    };
    let (integer, fraction) = match mantissa.split_once('.') {
        Some((integer, fraction)) => (integer, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits(integer)
        && (integer == "0" || !integer.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_numbers_are_told() {
        for text in [
            "0",
            "-0",
            "12",
            "1.50",
            "1e9",
            "-1.2E-3",
            "12345678901234567890123",
        ] {
            assert!(is_json_number(text), "{text}");
        }
        for text in [
            "", "-", "+1", "01", ".5", "5.", "0x1F", "0o7", "1e", "1e+", "1_0", "--1",
        ] {
            assert!(!is_json_number(text), "{text}");
        }
    }
}
