//! Values of MySQL as JSON, and back. The binary protocol is used throughout, so numbers and dates
//! come as such (MySQL Internals: "Binary Protocol Value").

use std::fmt::Write as _;

use expr::value::{self, Value};
use mysql_async::Column;
use mysql_async::Value as Raw;
use mysql_async::consts::ColumnType;

use crate::sql::Decimals;
use crate::sql::error::SqlError;
use crate::sql::text::base64;

/// The character set `binary`: bytes that are no text.
const BINARY: u16 = 63;

/// The most levels of a value of type `json`; the server has at most 100.
const DEPTH_MAX: usize = 512;

/// What an argument is bound as.
///
/// # Errors
/// For a number that no database has.
pub fn bind(name: &str, argument: &Value) -> Result<Raw, SqlError> {
    match argument {
        Value::Null => Ok(Raw::NULL),
        Value::Bool(it) => Ok(Raw::Int(i64::from(*it))),
        Value::TStr(text) => Ok(Raw::Bytes(text.to_vec())),
        Value::BStr(bytes) => Ok(Raw::Bytes(bytes.to_vec())),
        Value::Num(_) => {
            let text = value::scalar_text(argument).unwrap_or_default();
            bind_number(&text).ok_or_else(|| SqlError::argument(name, "is no number"))
        }
        Value::Arr(_) | Value::Obj(_) => Err(SqlError::argument(
            name,
            format_args!("is {}", value::kind(argument)),
        )),
    }
}

/// Whole numbers as such, those with an exponent as `double`, all others as their digits, which are
/// said to be a `decimal` where they are bound.
fn bind_number(text: &str) -> Option<Raw> {
    if let Ok(number) = text.parse() {
        return Some(Raw::Int(number));
    }
    if let Ok(number) = text.parse() {
        return Some(Raw::UInt(number));
    }
    let number: f64 = text.parse().ok().filter(|it: &f64| it.is_finite())?;
    match text.contains(['e', 'E']) {
        true => Some(Raw::Double(number)),
        false => Some(Raw::Bytes(text.as_bytes().to_vec())),
    }
}

/// A `timestamp` as [`read`] writes it, as a moment again: MySQL takes no text that ends with `Z`.
pub fn moment(raw: &Raw) -> Option<Raw> {
    let Raw::Bytes(bytes) = raw else {
        return None;
    };
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('Z')?;
    let (date, time) = text.split_once('T')?;
    let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time, ':')?;
    let is_fraction = (1..=6).contains(&fraction.len()) && digits(fraction);
    let micros = format!("{fraction:0<6}")
        .parse()
        .ok()
        .filter(|_| is_fraction)?;
    let small = |number: u16| u8::try_from(number).ok();
    Some(Raw::Date(
        year,
        small(month)?,
        small(day)?,
        small(hour)?,
        small(minute)?,
        small(second)?,
        micros,
    ))
}

fn numbers(text: &str, between: char) -> Option<[u16; 3]> {
    let parts = text
        .split(between)
        .map(|it| it.parse().ok().filter(|_| digits(it)));
    let parts: Vec<u16> = parts.collect::<Option<_>>()?;
    parts.try_into().ok()
}

fn digits(text: &str) -> bool {
    text.bytes().all(|it| it.is_ascii_digit())
}

/// About how many bytes a value took on its way.
pub fn size(raw: &Raw) -> usize {
    match raw {
        Raw::Bytes(bytes) => bytes.len() + 1,
        _ => 8,
    }
}

/// A value of a column as JSON.
///
/// # Errors
/// When it is text that is not UTF-8, or a number that JSON does not have.
pub fn read(raw: Raw, column: &Column, decimals: Decimals) -> Result<Value, SqlError> {
    match raw {
        Raw::NULL => Ok(Value::Null),
        Raw::Int(number) => Ok(value::integer(number)),
        Raw::UInt(number) => Ok(value::number(&number.to_string())),
        // The shortest text of the single precision number: 0.1, not 0.10000000149.
        Raw::Float(number) => {
            finite(f64::from(number), column).map(|_| value::number(&number.to_string()))
        }
        Raw::Double(number) => finite(number, column).map(value::float),
        Raw::Date(year, month, day, hour, minute, second, micros) => {
            let mut text = format!("{year:04}-{month:02}-{day:02}");
            let kind = column.column_type();
            if !matches!(
                kind,
                ColumnType::MYSQL_TYPE_DATE | ColumnType::MYSQL_TYPE_NEWDATE
            ) {
                let _ = write!(text, "T{hour:02}:{minute:02}:{second:02}");
                fraction(&mut text, micros);
            }
            if matches!(
                kind,
                ColumnType::MYSQL_TYPE_TIMESTAMP | ColumnType::MYSQL_TYPE_TIMESTAMP2
            ) {
                text.push('Z');
            }
            Ok(value::text(text))
        }
        Raw::Time(is_negative, days, hours, minutes, seconds, micros) => {
            let hours = u64::from(days) * 24 + u64::from(hours);
            let sign = if is_negative { "-" } else { "" };
            let mut text = format!("{sign}{hours:02}:{minutes:02}:{seconds:02}");
            fraction(&mut text, micros);
            Ok(value::text(text))
        }
        Raw::Bytes(bytes) => read_bytes(bytes, column, decimals),
    }
}

fn finite(number: f64, column: &Column) -> Result<f64, SqlError> {
    match number.is_finite() {
        true => Ok(number),
        false => Err(odd(column, "holds a number that JSON does not have")),
    }
}

/// The fraction of a second without zeros at its end.
fn fraction(text: &mut String, micros: u32) {
    if micros > 0 {
        let digits = format!("{micros:06}");
        let _ = write!(text, ".{}", digits.trim_end_matches('0'));
    }
}

fn odd(column: &Column, why: &str) -> SqlError {
    let name = column.name_str();
    SqlError::unsupported(format_args!("the column `{}` {why}", name.escape_debug()))
}

fn read_bytes(bytes: Vec<u8>, column: &Column, decimals: Decimals) -> Result<Value, SqlError> {
    let kind = column.column_type();
    match kind {
        ColumnType::MYSQL_TYPE_BIT => read_bits(&bytes, column),
        ColumnType::MYSQL_TYPE_GEOMETRY => Ok(value::text(base64(&bytes))),
        ColumnType::MYSQL_TYPE_JSON => expr::json::parse(&bytes.into(), DEPTH_MAX)
            .map_err(|error| odd(column, &format!("holds no JSON: {error}"))),
        ColumnType::MYSQL_TYPE_DECIMAL | ColumnType::MYSQL_TYPE_NEWDECIMAL => {
            let text = text_of(bytes, column)?;
            Ok(match decimals {
                Decimals::Number => value::number(&text),
                Decimals::Text => value::text(text),
            })
        }
        _ if column.character_set() == BINARY => Ok(value::text(base64(&bytes))),
        _ => text_of(bytes, column).map(value::text),
    }
}

fn text_of(bytes: Vec<u8>, column: &Column) -> Result<String, SqlError> {
    String::from_utf8(bytes).map_err(|_| {
        odd(
            column,
            "holds bytes that are no UTF-8: cast it to `binary` or convert it in SQL",
        )
    })
}

/// `bit(n)`: a number without sign, most significant byte first.
fn read_bits(bytes: &[u8], column: &Column) -> Result<Value, SqlError> {
    if bytes.len() > 8 {
        return Err(odd(column, "holds more than 64 bits"));
    }
    let number = bytes
        .iter()
        .fold(0, |sum: u64, byte| (sum << 8) | u64::from(*byte));
    Ok(value::number(&number.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(raw: Raw, kind: ColumnType) -> String {
        let column = Column::new(kind).with_name(b"c").with_character_set(45);
        match read(raw, &column, Decimals::Number) {
            Ok(value) => value::shown(&value),
            Err(error) => error.message,
        }
    }

    #[test]
    fn values_become_json() {
        use ColumnType as Kind;
        let date = Raw::Date(2026, 1, 31, 12, 0, 0, 500_000);
        let cases = [
            (
                Raw::UInt(u64::MAX),
                Kind::MYSQL_TYPE_LONGLONG,
                "18446744073709551615",
            ),
            (Raw::Float(0.1), Kind::MYSQL_TYPE_FLOAT, "0.1"),
            (date.clone(), Kind::MYSQL_TYPE_DATE, "\"2026-01-31\""),
            (
                date.clone(),
                Kind::MYSQL_TYPE_DATETIME,
                "\"2026-01-31T12:00:00.5\"",
            ),
            (
                date,
                Kind::MYSQL_TYPE_TIMESTAMP,
                "\"2026-01-31T12:00:00.5Z\"",
            ),
            (
                Raw::Time(true, 34, 22, 59, 59, 0),
                Kind::MYSQL_TYPE_TIME,
                "\"-838:59:59\"",
            ),
            (Raw::Bytes(vec![1, 0]), Kind::MYSQL_TYPE_BIT, "256"),
            (
                Raw::Bytes(vec![0; 9]),
                Kind::MYSQL_TYPE_BIT,
                "the column `c` holds more than 64 bits",
            ),
            (
                Raw::Bytes(b"1.50".into()),
                Kind::MYSQL_TYPE_NEWDECIMAL,
                "1.50",
            ),
            (
                Raw::Bytes(b"{\"a\":[1.0]}".into()),
                Kind::MYSQL_TYPE_JSON,
                "{\"a\":[1.0]}",
            ),
            (
                Raw::Double(f64::NAN),
                Kind::MYSQL_TYPE_DOUBLE,
                "the column `c` holds a number that JSON does not have",
            ),
        ];
        for (raw, kind, expected) in cases {
            assert_eq!(shown(raw, kind), expected);
        }
        let found = shown(Raw::Bytes(vec![0xff]), Kind::MYSQL_TYPE_STRING);
        assert!(found.starts_with("the column `c` holds bytes that are no UTF-8"));
    }

    #[test]
    fn moments_are_read_back() {
        let of = |text: &str| moment(&Raw::Bytes(text.into()));
        let moment = Raw::Date(2026, 1, 31, 12, 0, 0, 500_000);
        assert_eq!(of("2026-01-31T12:00:00.5Z"), Some(moment));
        for text in [
            "2026-01-31T12:00:00",
            "2026-01-31Z",
            "Z",
            "a-b-cTd:e:fZ",
            "1-2-3T4:5:6.Z",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn numbers_are_bound_exactly() {
        let is = |text: &str| bind("a", &value::number(text)).ok();
        assert_eq!(is("-7"), Some(Raw::Int(-7)));
        assert_eq!(is("18446744073709551615"), Some(Raw::UInt(u64::MAX)));
        assert_eq!(is("12.50"), Some(Raw::Bytes(b"12.50".into())));
        assert_eq!(is("1e300"), Some(Raw::Double(1e300)));
        assert!(bind("a", &value::float(f64::INFINITY)).is_err());
        assert!(bind("a", &value::array([])).is_err());
    }
}
