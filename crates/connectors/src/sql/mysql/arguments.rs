//! What the arguments of a statement are sent as.

use std::borrow::Cow;

use expr::Value;
use mysql_async::Value as Raw;

use crate::sql::error::SqlError;
use crate::sql::mysql::values;
use crate::sql::query;
use crate::sql::session::Statement;

/// The most digits of a `decimal`, and behind its point.
const DIGITS_MAX: usize = 65;
const SCALE_MAX: usize = 30;

/// The text of a statement, and what is bound to its places. `moments` says which arguments come
/// from columns of the type `timestamp`.
///
/// The protocol's client binds a decimal number as a text, and the server compares a `decimal` with
/// a text as two `double`. So the text says what it is: `cast(? as decimal(65,2))`.
pub fn bind<'a>(
    statement: &'a Statement,
    arguments: &[Value],
    moments: &[bool],
) -> Result<(Cow<'a, str>, Vec<Raw>), SqlError> {
    let mut bound = Vec::with_capacity(arguments.len());
    let mut scales = Vec::new();
    for (at, (name, argument)) in statement.names.iter().zip(arguments).enumerate() {
        let raw = values::bind(name, argument)?;
        let raw = match moments.get(at) {
            Some(true) => values::moment(&raw).unwrap_or(raw),
            _ => raw,
        };
        if let (Value::Num(_), Raw::Bytes(digits)) = (argument, &raw)
            && let Some(scale) = scale(digits)
        {
            scales.push((at, scale));
        }
        bound.push(raw);
    }
    Ok((with_casts(&statement.text, &scales), bound))
}

/// The digits behind the point of a number; `None` when a `decimal` has no room for it.
fn scale(digits: &[u8]) -> Option<usize> {
    let point = digits.iter().position(|it| *it == b'.');
    let scale = point.map_or(0, |at| digits.len() - at - 1);
    let count = digits.iter().filter(|it| it.is_ascii_digit()).count();
    (count <= DIGITS_MAX && scale <= SCALE_MAX).then_some(scale)
}

fn with_casts<'a>(text: &'a str, scales: &[(usize, usize)]) -> Cow<'a, str> {
    if scales.is_empty() {
        return Cow::Borrowed(text);
    }
    let places = query::placeholders(text);
    let mut made = String::with_capacity(text.len() + scales.len() * 30);
    let mut from = 0;
    for (number, scale) in scales {
        let Some(place) = places.get(*number) else {
            continue;
        };
        made.push_str(text.get(from..*place).unwrap_or_default());
        made.push_str(&format!("cast(? as decimal({DIGITS_MAX},{scale}))"));
        from = place + 1;
    }
    made.push_str(text.get(from..).unwrap_or_default());
    Cow::Owned(made)
}

#[cfg(test)]
mod tests {
    use expr::value;

    use super::*;

    fn sent(text: &str, arguments: &[Value], moments: &[bool]) -> (String, Vec<Raw>) {
        let statement = Statement {
            text: text.to_owned(),
            names: arguments.iter().map(|_| "a".to_owned()).collect(),
            ..Statement::default()
        };
        let (text, bound) = bind(&statement, arguments, moments).unwrap();
        (text.into_owned(), bound)
    }

    #[test]
    fn decimals_are_said_to_be_such() {
        let arguments = ["12.50", "7", "1e3", "-99999999999999999999"].map(value::number);
        let (text, bound) = sent("select '?', ?, /* ? */ ?, ?, ? -- ?", &arguments, &[]);
        assert_eq!(
            text,
            "select '?', cast(? as decimal(65,2)), /* ? */ ?, ?, cast(? as decimal(65,0)) -- ?"
        );
        assert_eq!(bound.first(), Some(&Raw::Bytes(b"12.50".into())));
        let long = [value::number(&format!("0.{}", "1".repeat(31)))];
        assert_eq!(sent("select ?", &long, &[]).0, "select ?");
    }

    #[test]
    fn what_comes_from_a_timestamp_goes_back_as_one() {
        let text = [
            value::text("2026-01-31T10:00:00.25Z"),
            value::text("2026-01-31T10:00:00Z"),
        ];
        let (_, bound) = sent("select ?, ?", &text, &[true, false]);
        let expected = [
            Raw::Date(2026, 1, 31, 10, 0, 0, 250_000),
            Raw::Bytes(b"2026-01-31T10:00:00Z".into()),
        ];
        assert_eq!(bound, expected);
    }
}
