//! Writes a YAML tree as JSON text.
//!
//! Numbers keep the text they have in the file wherever that is a JSON number; `serde_json::Value`
//! would round them.

use config::{Entry, Node, Number, Value};

/// The tree as compact JSON.
pub(crate) fn to_bytes(node: &Node) -> Vec<u8> {
    let mut text = String::new();
    write(node, &mut text);
    text.into_bytes()
}

/// The depth is bounded by the loader of YAML, so recursion is too.
fn write(node: &Node, out: &mut String) {
    match &node.value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => write_number(number, out),
        Value::String(text) => write_string(text, out),
        Value::Sequence(items) => write_list('[', items, ']', out, write),
        Value::Mapping(entries) => write_list('{', entries, '}', out, write_member),
    }
}

fn write_list<T>(
    open: char,
    items: &[T],
    close: char,
    out: &mut String,
    write_item: fn(&T, &mut String),
) {
    out.push(open);
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        write_item(item, out);
    }
    out.push(close);
}

fn write_member(entry: &Entry, out: &mut String) {
    write_string(&entry.key, out);
    out.push(':');
    write(&entry.value, out);
}

fn write_string(text: &str, out: &mut String) {
    out.push_str(&serde_json::Value::from(text).to_string());
}

fn write_number(number: &Number, out: &mut String) {
    let text = number.text();
    if is_json_number(text) {
        out.push_str(text);
    } else if let Some(integer) = number.as_i64() {
        out.push_str(&integer.to_string());
    } else {
        out.push_str(&serde_json::Value::from(number.as_f64()).to_string());
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
