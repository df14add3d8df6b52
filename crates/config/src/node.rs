//! A YAML value with its place.

use crate::source::{SourceId, Span};

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
    /// The tree of a JSON value that is in no file, so that requests are checked and decoded as
    /// files are. Places are numbers that tell its nodes apart, see [`Node::path_of`].
    pub fn of_json(value: &serde_json::Value) -> Self {
        let mut count = 0;
        number(value, &mut count)
    }

    /// The keys that lead to what stands at a place in this tree, such as `batch.time`; none for
    /// the tree itself.
    pub fn path_of(&self, span: Span) -> Option<String> {
        let entries = self.as_mapping().unwrap_or_default().iter();
        let items = self.as_sequence().unwrap_or_default().iter().enumerate();
        let keyed = entries.map(|it| (it.key.clone(), it.key_span, &it.value));
        let numbered = items.map(|(at, it)| (at.to_string(), it.span, it));
        for (key, key_span, value) in keyed.chain(numbered) {
            if key_span == span || value.span == span {
                return Some(key);
            }
            if let Some(rest) = value.path_of(span) {
                return Some(format!("{key}.{rest}"));
            }
        }
        None
    }

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

/// A JSON value as a tree whose places count on from there.
fn number(value: &serde_json::Value, count: &mut usize) -> Node {
    *count += 1;
    let start = *count;
    let span = Span {
        source: SourceId(u32::MAX),
        start,
        end: start + 1,
    };
    let value = match value {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(number) => Value::Number(Number::new(number.to_string())),
        serde_json::Value::String(text) => Value::String(text.clone()),
        serde_json::Value::Array(items) => {
            Value::Sequence(items.iter().map(|item| number(item, count)).collect())
        }
        serde_json::Value::Object(members) => {
            let entries = members.iter().map(|(key, member)| {
                let value = number(member, count);
                Entry {
                    key: key.clone(),
                    key_span: value.span,
                    value,
                }
            });
            Value::Mapping(entries.collect())
        }
    };
    Node { value, span }
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
    fn json_becomes_a_tree_whose_places_are_told_apart() {
        let json = serde_json::json!({
            "batch": { "count": 5, "time": "1s" }, "list": [true, [null]], "far": -1.5e300,
        });
        let tree = Node::of_json(&json);
        assert_eq!(tree.to_json(), json);
        let path = |node: &Node| tree.path_of(node.span);
        let batch = tree.get("batch").unwrap();
        assert_eq!(path(batch).as_deref(), Some("batch"));
        assert_eq!(
            path(batch.get("time").unwrap()).as_deref(),
            Some("batch.time")
        );
        let list = tree.get("list").unwrap().as_sequence().unwrap();
        assert_eq!(path(&list[1]).as_deref(), Some("list.1"));
        assert_eq!(path(&tree), None);
    }

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
