//! What a plain scalar means: the YAML 1.2 core schema (YAML 1.2.2, section 10.3). `yes`, `no`,
//! `on` and `off` are text.

use crate::node::{Number, Value};

/// A number that is none: infinity or not-a-number.
pub(crate) struct NotFinite;

/// The value of a plain scalar.
pub(crate) fn resolve(text: &str) -> Result<Value, NotFinite> {
    Ok(match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" => Value::Bool(true),
        "false" | "False" | "FALSE" => Value::Bool(false),
        _ => match text.trim_start_matches(['+', '-']) {
            ".inf" | ".Inf" | ".INF" | ".nan" | ".NaN" | ".NAN" => return Err(NotFinite),
            _ if is_number(text) => finite(text)?,
            _ => Value::String(text.to_owned()),
        },
    })
}

/// A decimal number that is too large for a float would turn into infinity.
fn finite(text: &str) -> Result<Value, NotFinite> {
    let number = Number::new(text);
    if number.as_f64().is_finite() {
        Ok(Value::Number(number))
    } else {
        Err(NotFinite)
    }
}

fn is_number(text: &str) -> bool {
    let radix_digits = |prefix: &str, allowed: fn(u8) -> bool| {
        text.strip_prefix(prefix)
            .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(allowed))
    };
    if radix_digits("0x", |byte| byte.is_ascii_hexdigit())
        || radix_digits("0o", |byte| (b'0'..=b'7').contains(&byte))
    {
        return Number::new(text).as_i64().is_some();
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let exponent_fits = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    });
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
    let dots = mantissa.bytes().filter(|byte| *byte == b'.').count();
    exponent_fits && digits > 0 && dots <= 1 && digits + dots == mantissa.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scalars_mean_what_the_core_schema_says() {
        let kind = |text: &str| match resolve(text) {
            Ok(Value::Null) => "null",
            Ok(Value::Bool(_)) => "bool",
            Ok(Value::Number(_)) => "number",
            Ok(_) => "string",
            Err(NotFinite) => "not finite",
        };
        let cases = [
            ("null", "~ null"),
            ("bool", "true False"),
            (
                "number",
                "0 -1 +7 3.14 1e3 .5 5. 0x1F 0o17 12345678901234567890",
            ),
            (
                "string",
                "yes no on off 1_000 0b1 1:30 - . e5 1e 0x 0x11112222333344445 5s 1.2.3",
            ),
            ("not finite", ".inf -.INF .nan 1e999"),
        ];
        for (expected, texts) in cases {
            for text in texts.split(' ') {
                assert_eq!(kind(text), expected, "{text}");
            }
        }
        assert_eq!(Number::new("-0x1f").as_i64(), Some(-31));
    }
}
