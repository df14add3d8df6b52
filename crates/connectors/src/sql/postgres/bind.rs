//! Arguments of a statement for PostgreSQL. They go as texts, which the server reads as what its
//! parameter's type is: exactly, whatever the type; bytes go as they are.

use std::error::Error;

use bytes::{BufMut, Bytes, BytesMut};
use expr::Value;
use expr::value;
use tokio_postgres::types::{Format, IsNull, Kind, ToSql, Type, to_sql_checked};

use crate::sql::error::SqlError;

/// The most bytes that a JSON argument may have.
const JSON_MAX: usize = 64 * 1024 * 1024;

/// An argument as it is sent.
#[derive(PartialEq, Eq)]
pub(super) enum Bound {
    Null,
    Text(Vec<u8>),
    Bytes(Bytes),
}

// Values are nobody's business but the database's.
impl std::fmt::Debug for Bound {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("argument")
    }
}

impl Bound {
    /// A value for a parameter of this type.
    ///
    /// # Errors
    /// When the type can have no such value, naming the argument.
    pub fn new(name: &str, argument: &Value, kind: &Type) -> Result<Self, SqlError> {
        let refused = |why: String| SqlError::argument(name, why);
        let kind = plain(kind);
        let is_json = matches!(*kind, Type::JSON | Type::JSONB);
        let is_bytes = *kind == Type::BYTEA;
        let text = match argument {
            Value::Null => return Ok(Self::Null),
            Value::BStr(bytes) if is_bytes => return Ok(Self::Bytes(Bytes::clone(bytes))),
            Value::TStr(bytes) if is_bytes => return Ok(Self::Bytes(Bytes::clone(bytes))),
            Value::BStr(_) => {
                return Err(refused(format!(
                    "is bytes, but its type is {}",
                    kind.name()
                )));
            }
            Value::TStr(text) => text.to_vec(),
            value if is_json => json(value).map_err(refused)?,
            Value::Arr(items) => match kind.kind() {
                Kind::Array(of) => {
                    let mut text = Vec::new();
                    array(items, of, &mut text).map_err(refused)?;
                    text
                }
                _ => {
                    return Err(refused(format!(
                        "is an array, but its type is {}",
                        kind.name()
                    )));
                }
            },
            Value::Obj(_) => {
                return Err(refused(format!(
                    "is an object, but its type is {}",
                    kind.name()
                )));
            }
            Value::Bool(_) | Value::Num(_) => scalar(argument, kind),
        };
        if text.contains(&0) {
            let why = "has a NUL character, which no text of PostgreSQL holds";
            return Err(SqlError::character(name, why));
        }
        if std::str::from_utf8(&text).is_err() {
            return Err(refused("is no UTF-8".into()));
        }
        Ok(Self::Text(text))
    }
}

/// The type below domains.
fn plain(kind: &Type) -> &Type {
    let mut kind = kind;
    while let Kind::Domain(of) = kind.kind() {
        kind = of;
    }
    kind
}

fn scalar(argument: &Value, kind: &Type) -> Vec<u8> {
    let text = value::scalar_text(argument).unwrap_or_default();
    let is_whole = matches!(*kind, Type::INT2 | Type::INT4 | Type::INT8 | Type::OID);
    // What has been calculated with may be an integer written as one with a fraction.
    match text.strip_suffix(".0").filter(|_| is_whole) {
        Some(whole) => whole.as_bytes().to_vec(),
        None => text.as_bytes().to_vec(),
    }
}

fn json(argument: &Value) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    expr::json::write(argument, JSON_MAX, &mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

/// An array as the server reads it (its manual, section 8.15.6).
fn array(items: &[Value], of: &Type, text: &mut Vec<u8>) -> Result<(), String> {
    text.push(b'{');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            text.push(b',');
        }
        let is_json = matches!(*of, Type::JSON | Type::JSONB);
        match item {
            Value::Null => text.extend_from_slice(b"NULL"),
            Value::TStr(item) => quoted(item, text),
            item if is_json => quoted(&json(item)?, text),
            Value::Arr(items) => array(items, of, text)?,
            Value::Bool(_) | Value::Num(_) => quoted(&scalar(item, of), text),
            Value::BStr(_) | Value::Obj(_) => {
                let kind = value::kind(item);
                return Err(format!(
                    "is an array with {kind}, but its type has {}",
                    of.name()
                ));
            }
        }
    }
    text.push(b'}');
    Ok(())
}

fn quoted(item: &[u8], text: &mut Vec<u8>) {
    text.push(b'"');
    for byte in item {
        if matches!(byte, b'"' | b'\\') {
            text.push(b'\\');
        }
        text.push(*byte);
    }
    text.push(b'"');
}

impl ToSql for Bound {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => return Ok(IsNull::Yes),
            Self::Text(text) => out.put_slice(text),
            Self::Bytes(bytes) => out.put_slice(bytes),
        }
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        match self {
            Self::Bytes(_) => Format::Binary,
            Self::Null | Self::Text(_) => Format::Text,
        }
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bound(json: &str, kind: &Type) -> Result<String, String> {
        let value = expr::json::parse(&Bytes::copy_from_slice(json.as_bytes()), 9).unwrap();
        match Bound::new("a", &value, kind) {
            Ok(Bound::Null) => Ok("null".to_owned()),
            Ok(Bound::Text(text)) => Ok(String::from_utf8(text).unwrap()),
            Ok(Bound::Bytes(bytes)) => Ok(format!("{bytes:?}")),
            Err(error) => Err(error.message),
        }
    }

    #[test]
    fn values_become_what_the_server_reads() {
        let ok = |text: &str| Ok(text.to_owned());
        assert_eq!(bound("null", &Type::INT4), ok("null"));
        assert_eq!(bound("7.0", &Type::INT4), ok("7"));
        assert_eq!(bound("7.50", &Type::NUMERIC), ok("7.50"));
        assert_eq!(bound("\"7\"", &Type::INT8), ok("7"));
        assert_eq!(bound("true", &Type::BOOL), ok("true"));
        assert_eq!(bound("\"a\\\\000\"", &Type::BYTEA), ok(r#"b"a\\000""#));
        assert_eq!(bound("{\"a\":[1]}", &Type::JSONB), ok("{\"a\":[1]}"));
        assert_eq!(bound("[1,2]", &Type::JSON), ok("[1,2]"));
        let list = r#"["a\"b\\",null,"NULL"]"#;
        assert_eq!(
            bound(list, &Type::TEXT_ARRAY),
            ok(r#"{"a\"b\\",NULL,"NULL"}"#)
        );
        assert_eq!(
            bound("[[1],[2]]", &Type::INT4_ARRAY),
            ok(r#"{{"1"},{"2"}}"#)
        );
        assert_eq!(
            bound("[{\"a\":1}]", &Type::JSONB_ARRAY),
            ok(r#"{"{\"a\":1}"}"#)
        );
    }

    #[test]
    fn what_cannot_be_bound_names_the_argument() {
        for (json, kind) in [
            ("[1]", Type::TEXT),
            ("{}", Type::INT4_ARRAY),
            ("[{}]", Type::INT4_ARRAY),
            ("\"a\\u0000\"", Type::TEXT),
            ("[\"\\u0000\"]", Type::TEXT_ARRAY),
        ] {
            let found = bound(json, &kind).unwrap_err();
            assert!(found.starts_with("the argument `a` "), "{json}: {found}");
        }
    }
}
