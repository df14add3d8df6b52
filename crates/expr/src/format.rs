//! Bodies that are not JSON: XML, forms and CSV, as values and back.

use std::collections::HashMap;

use bytes::Bytes;

use crate::convert::{JsonToXml, XmlToJson};
use crate::json;
use crate::value::{self, Value};

/// Reads an XML document as the object with `@` attributes and `#content`.
///
/// # Errors
/// When it is not well-formed, declares or uses entities, or is nested more than `depth_max` deep.
pub fn from_xml(bytes: &Bytes, depth_max: usize) -> Result<Value, String> {
    let options = XmlToJson {
        depth_max,
        ..XmlToJson::default()
    };
    let mut text = Vec::new();
    options
        .convert(bytes, &mut text)
        .map_err(|error| error.to_string())?;
    json::parse(&text.into(), usize::MAX).map_err(|error| error.to_string())
}

/// Writes a value as an XML document of at most `size_max` bytes.
///
/// # Errors
/// When the value is not JSON or says what XML cannot.
pub fn to_xml(value: &Value, size_max: usize) -> Result<Vec<u8>, String> {
    let mut text = Vec::new();
    json::write(value, size_max, &mut text).map_err(|error| error.to_string())?;
    let options = JsonToXml {
        output_max: size_max,
        depth_max: usize::MAX,
        ..JsonToXml::default()
    };
    let mut xml = Vec::new();
    options
        .convert(&text, &mut xml)
        .map_err(|error| error.to_string())?;
    Ok(xml)
}

/// Reads `application/x-www-form-urlencoded`: texts, or arrays of texts for repeated names.
///
/// # Errors
/// When a name or value is not UTF-8.
pub fn from_form(bytes: &[u8]) -> Result<Value, String> {
    let mut members: Vec<(String, Value)> = Vec::new();
    // Whoever sends a form with many names must not make each of them look at all others.
    let mut places: HashMap<String, usize> = HashMap::new();
    for pair in bytes.split(|it| *it == b'&').filter(|it| !it.is_empty()) {
        let equals = memchr::memchr(b'=', pair).unwrap_or(pair.len());
        let (name, text) = pair.split_at(equals);
        let name = form_text(name)?;
        let text = value::text(form_text(text.get(1..).unwrap_or_default())?);
        let known = places.get(&name).copied();
        match known.and_then(|at| members.get_mut(at)) {
            None => {
                places.insert(name.clone(), members.len());
                members.push((name, text));
            }
            Some((_, Value::Arr(items))) => jaq_json::Rc::make_mut(items).push(text),
            Some((_, first)) => *first = value::array([std::mem::take(first), text]),
        }
    }
    Ok(value::object(members))
}

fn form_text(bytes: &[u8]) -> Result<String, String> {
    let mut text = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let digit = |at: usize| Some(char::from(*bytes.get(at)?).to_digit(16)? as u8);
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                text.push(high << 4 | low);
                at += 2;
            }
            (b'+', ..) => text.push(b' '),
            _ => text.push(*byte),
        }
        at += 1;
    }
    String::from_utf8(text).map_err(|_| "the form is not UTF-8".to_owned())
}

/// Writes an object as `application/x-www-form-urlencoded`; an array repeats its name, null
/// leaves it out.
///
/// # Errors
/// When the value is no object of texts, numbers, booleans or arrays of these.
pub fn to_form(value: &Value) -> Result<Vec<u8>, String> {
    let Some(members) = value::members(value) else {
        return Err(format!("a form is an object, not {}", value::shown(value)));
    };
    let mut out = Vec::new();
    for (name, member) in members {
        let items = match member {
            Value::Null => continue,
            Value::Arr(items) => items.as_slice(),
            single => std::slice::from_ref(single),
        };
        for item in items {
            let Some(text) = value::scalar_text(item) else {
                let shown = value::shown(item);
                return Err(format!("the field {name:?} of a form cannot be {shown}"));
            };
            if !out.is_empty() {
                out.push(b'&');
            }
            push_form_text(name, &mut out);
            out.push(b'=');
            push_form_text(&text, &mut out);
        }
    }
    Ok(out)
}

fn push_form_text(text: &str, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in text.bytes() {
        match byte {
            b' ' => out.push(b'+'),
            b'*' | b'-' | b'.' | b'_' => out.push(byte),
            _ if byte.is_ascii_alphanumeric() => out.push(byte),
            _ => out.extend([
                b'%',
                DIGITS[usize::from(byte >> 4)],
                DIGITS[usize::from(byte & 15)],
            ]),
        }
    }
}

/// Reads CSV (RFC 4180): an array of arrays of texts or, with a header, of objects whose names
/// are the fields of the first row.
///
/// # Errors
/// When a quote is not closed, or a row has not as many fields as the first.
pub fn from_csv(text: &str, header: bool) -> Result<Value, String> {
    let mut rows = csv_rows(text)?.into_iter();
    if !header {
        let rows = rows.map(|row| value::array(row.into_iter().map(value::text)));
        return Ok(value::array(rows));
    }
    let names = rows.next().unwrap_or_default();
    let mut objects = Vec::new();
    for (at, row) in rows.enumerate() {
        if row.len() != names.len() {
            let (found, wanted) = (row.len(), names.len());
            let number = at + 2;
            return Err(format!(
                "row {number} has {found} fields, the header has {wanted}"
            ));
        }
        let members = names.iter().cloned().zip(row.into_iter().map(value::text));
        objects.push(value::object(members));
    }
    Ok(value::array(objects))
}

fn csv_rows(text: &str) -> Result<Vec<Vec<String>>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut rows = Vec::new();
    let mut row = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (field, behind) = match rest.strip_prefix('"') {
            Some(quoted) => quoted_field(quoted)
                .ok_or_else(|| format!("a quote in row {} is not closed", rows.len() + 1))?,
            None => {
                let end = rest.find([',', '\n', '\r']).unwrap_or(rest.len());
                let (field, behind) = rest.split_at(end);
                (field.to_owned(), behind)
            }
        };
        row.push(field);
        let line_end = behind
            .strip_prefix("\r\n")
            .or_else(|| behind.strip_prefix(['\n', '\r']));
        if let Some(behind) = line_end {
            rows.push(std::mem::take(&mut row));
            rest = behind;
        } else if let Some(behind) = behind.strip_prefix(',') {
            rest = behind;
            if rest.is_empty() {
                row.push(String::new());
            }
        } else if behind.is_empty() {
            rest = behind;
        } else {
            return Err(format!(
                "text behind a closing quote in row {}",
                rows.len() + 1
            ));
        }
    }
    if !row.is_empty() {
        rows.push(row);
    }
    Ok(rows)
}

/// The field behind an opening quote, and what follows its closing quote.
fn quoted_field(quoted: &str) -> Option<(String, &str)> {
    let mut field = String::new();
    let mut rest = quoted;
    loop {
        let (before, behind) = rest.split_once('"')?;
        field.push_str(before);
        match behind.strip_prefix('"') {
            Some(behind) => {
                field.push('"');
                rest = behind;
            }
            None => return Some((field, behind)),
        }
    }
}

/// Writes rows as CSV with CRLF ends: arrays of scalars as they are, objects under a header of
/// the first object's names. Null is an empty field.
///
/// # Errors
/// When the value is no array of arrays or of objects of texts, numbers, booleans and nulls, or
/// an object has a name that the first has not.
pub fn to_csv(value: &Value) -> Result<String, String> {
    let Some(rows) = value::as_array(value) else {
        return Err(format!(
            "CSV is an array of rows, not {}",
            value::shown(value)
        ));
    };
    let mut out = String::new();
    let names: Vec<&str> = match rows.first().and_then(value::members) {
        Some(members) => members.map(|(name, _)| name).collect(),
        None => Vec::new(),
    };
    if !names.is_empty() {
        push_row(names.iter().map(|name| Ok((*name).into())), &mut out)?;
    }
    for row in rows {
        match row {
            Value::Arr(fields) => push_row(fields.iter().map(csv_field), &mut out)?,
            Value::Obj(members) => {
                let is_odd = |(name, _): &(&str, &Value)| !names.contains(name);
                if let Some((name, _)) = value::members(row).and_then(|mut it| it.find(is_odd)) {
                    return Err(format!("the first row has no {name:?}"));
                }
                let field = |name: &&str| {
                    members
                        .get(&value::text(*name))
                        .map_or(Ok("".into()), csv_field)
                };
                push_row(names.iter().map(field), &mut out)?;
            }
            _ => return Err(format!("a row of CSV cannot be {}", value::shown(row))),
        }
    }
    Ok(out)
}

fn csv_field(value: &Value) -> Result<std::borrow::Cow<'_, str>, String> {
    match value {
        Value::Null => Ok("".into()),
        _ => value::scalar_text(value)
            .ok_or_else(|| format!("a field of CSV cannot be {}", value::shown(value))),
    }
}

fn push_row<'a>(
    fields: impl Iterator<Item = Result<std::borrow::Cow<'a, str>, String>>,
    out: &mut String,
) -> Result<(), String> {
    for (at, field) in fields.enumerate() {
        let field = field?;
        if at > 0 {
            out.push(',');
        }
        // A row of one empty field must not look like no row.
        let needs_quotes = field.contains(['"', ',', '\r', '\n']) || at == 0 && field.is_empty();
        if needs_quotes {
            out.push('"');
            out.push_str(&field.replace('"', "\"\""));
            out.push('"');
        } else {
            out.push_str(&field);
        }
    }
    out.push_str("\r\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Value {
        json::parse(&Bytes::copy_from_slice(text.as_bytes()), 100).unwrap()
    }

    #[test]
    fn xml_there_and_back() {
        let xml = Bytes::from_static(b"<a x=\"1\"><b>t</b><b/></a>");
        let value = from_xml(&xml, 10).unwrap();
        assert_eq!(value, parsed(r#"{"a":{"@x":"1","b":["t",null]}}"#));
        assert_eq!(to_xml(&value, 1000).unwrap(), xml);
        assert!(from_xml(&xml, 1).is_err());
        assert!(to_xml(&value, 10).is_err());
    }

    #[test]
    fn forms_there_and_back() {
        let value = from_form(b"a=1&b=x+%26%C3%A9&a=2&c&").unwrap();
        assert_eq!(value, parsed(r#"{"a":["1","2"],"b":"x &é","c":""}"#));
        assert_eq!(to_form(&value).unwrap(), b"a=1&a=2&b=x+%26%C3%A9&c=");
        assert!(from_form(b"a=%ff").is_err());
        assert_eq!(
            to_form(&parsed(r#"{"a":null,"b":1.50,"c":[]}"#)).unwrap(),
            b"b=1.50"
        );
        assert!(
            to_form(&parsed(r#"{"a":{}}"#))
                .unwrap_err()
                .contains("\"a\"")
        );
    }

    #[test]
    fn csv_there_and_back() {
        let text = "a,b\r\n1,\"x \"\"y\"\", z\"\r\n,\"l\nm\"\r\n";
        let value = from_csv(text, true).unwrap();
        let expected = r#"[{"a":"1","b":"x \"y\", z"},{"a":"","b":"l\nm"}]"#;
        assert_eq!(value, parsed(expected));
        assert_eq!(
            from_csv("1,2\n3,", false).unwrap(),
            parsed(r#"[["1","2"],["3",""]]"#)
        );
        let rows = parsed(r#"[{"a":1,"b":"x,y"},{"b":true}]"#);
        assert_eq!(to_csv(&rows).unwrap(), "a,b\r\n1,\"x,y\"\r\n\"\",true\r\n");
        assert!(from_csv("a\n1,2", true).unwrap_err().contains("row 2"));
        assert!(from_csv("\"a", false).is_err());
        assert!(to_csv(&parsed(r#"[{"a":1},{"b":2}]"#)).is_err());
    }
}
