//! Bodies that are not JSON: XML, forms and CSV, as values and back.

use std::collections::{HashMap, HashSet};
use std::fmt;

use bytes::Bytes;

use crate::convert::{ConvertErrorKind, JsonToXml, XmlToJson};
use crate::json;
use crate::stop::{STOPPED, StopCheck};
use crate::value::{self, Value};

/// Why a value is not written in a format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotWritten {
    /// The result would have more bytes than it may have.
    TooLarge,
    /// Nobody waits for the result any more: see [`crate::jq::stoppable`].
    Stopped,
    /// The format cannot say it.
    Unmappable(String),
}

impl fmt::Display for NotWritten {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => formatter.write_str("the result is too large"),
            Self::Stopped => formatter.write_str(STOPPED),
            Self::Unmappable(reason) => formatter.write_str(reason),
        }
    }
}

impl From<String> for NotWritten {
    fn from(reason: String) -> Self {
        Self::Unmappable(reason)
    }
}

impl From<NotWritten> for String {
    fn from(error: NotWritten) -> Self {
        error.to_string()
    }
}

/// The bound of a result that is being written.
struct Bound {
    size_max: usize,
    stop: StopCheck,
}

impl Bound {
    fn new(size_max: usize) -> Self {
        let stop = StopCheck::new(0);
        Self { size_max, stop }
    }

    /// Refuses a result that has so many bytes, when these are too many or nobody waits for it.
    #[inline]
    fn check(&mut self, size: usize) -> Result<(), NotWritten> {
        if size > self.size_max {
            return Err(NotWritten::TooLarge);
        }
        match self.stop.is_stopped(size) {
            true => Err(NotWritten::Stopped),
            false => Ok(()),
        }
    }
}

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
/// When the value is not JSON or says what XML cannot, or the document is too large.
pub fn to_xml(value: &Value, size_max: usize) -> Result<Vec<u8>, NotWritten> {
    let mut text = Vec::new();
    // JSON is at most a few times as long: `{"a":null}` is `<a/>`.
    let json_max = size_max.saturating_mul(4).saturating_add(1024);
    json::write(value, json_max, &mut text).map_err(|error| error.to_string())?;
    let options = JsonToXml {
        output_max: size_max,
        depth_max: usize::MAX,
        ..JsonToXml::default()
    };
    let mut xml = Vec::new();
    options
        .convert(&text, &mut xml)
        .map_err(|error| match error.kind {
            ConvertErrorKind::TooLarge => NotWritten::TooLarge,
            ConvertErrorKind::Stopped => NotWritten::Stopped,
            _ => NotWritten::Unmappable(error.to_string()),
        })?;
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
    let (mut stop, mut read) = (StopCheck::new(0), 0);
    for pair in bytes.split(|it| *it == b'&').filter(|it| !it.is_empty()) {
        read += pair.len() + 1;
        if stop.is_stopped(read) {
            return Err(STOPPED.to_owned());
        }
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

/// Writes an object as `application/x-www-form-urlencoded` of at most `size_max` bytes; an array
/// repeats its name, null leaves it out.
///
/// # Errors
/// When the value is no object of texts, numbers, booleans or arrays of these, or the form is too
/// large.
pub fn to_form(value: &Value, size_max: usize) -> Result<Vec<u8>, NotWritten> {
    let Some(members) = value::members(value) else {
        return Err(format!("a form is an object, not {}", value::shown(value)).into());
    };
    let mut out = Vec::new();
    let mut bound = Bound::new(size_max);
    for (name, member) in members {
        let items = match member {
            Value::Null => continue,
            Value::Arr(items) => items.as_slice(),
            single => std::slice::from_ref(single),
        };
        for item in items {
            let Some(text) = value::scalar_text(item) else {
                let shown = value::shown(item);
                return Err(format!("the field {name:?} of a form cannot be {shown}").into());
            };
            if !out.is_empty() {
                out.push(b'&');
            }
            push_form_text(name, &mut out, &mut bound)?;
            out.push(b'=');
            push_form_text(&text, &mut out, &mut bound)?;
        }
    }
    Ok(out)
}

/// Bytes of a text of a form that are written before the bound is looked at.
const FORM_PIECE: usize = 16 * 1024;

fn push_form_text(text: &str, out: &mut Vec<u8>, bound: &mut Bound) -> Result<(), NotWritten> {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for piece in text.as_bytes().chunks(FORM_PIECE) {
        bound.check(out.len().saturating_add(piece.len()))?;
        for &byte in piece {
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
    bound.check(out.len())
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
    let (mut stop, mut fields) = (StopCheck::new(0), 0);
    for (at, row) in rows.enumerate() {
        fields += row.len();
        if stop.is_stopped(fields) {
            return Err(STOPPED.to_owned());
        }
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
    let mut stop = StopCheck::new(0);
    while !rest.is_empty() {
        if stop.is_stopped(text.len() - rest.len()) {
            return Err(STOPPED.to_owned());
        }
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

/// Writes rows as CSV of at most `size_max` bytes with CRLF ends: arrays of scalars as they are,
/// objects in the order of the first object's names, which are the first line when there shall be a
/// header. Null is an empty field.
///
/// # Errors
/// When the value is no array of arrays or of objects of texts, numbers, booleans and nulls, an
/// object has a name that the first has not, or the result is too large.
pub fn to_csv(value: &Value, header: bool, size_max: usize) -> Result<String, NotWritten> {
    let Some(rows) = value::as_array(value) else {
        return Err(format!("CSV is an array of rows, not {}", value::shown(value)).into());
    };
    let names: Vec<&str> = match rows.first().and_then(value::members) {
        Some(members) => members.map(|(name, _)| name).collect(),
        None => Vec::new(),
    };
    let keys: Vec<Value> = names.iter().map(|name| value::text(*name)).collect();
    let mut csv = Csv {
        out: String::new(),
        bound: Bound::new(size_max),
    };
    if header && !names.is_empty() {
        csv.push_row(names.iter().map(|name| Ok((*name).into())))?;
    }
    for row in rows {
        match row {
            Value::Arr(fields) if header || names.is_empty() => {
                csv.push_row(fields.iter().map(csv_field))?;
            }
            Value::Obj(members) => {
                let mut found = 0;
                csv.push_row(keys.iter().map(|key| match members.get(key) {
                    Some(field) => {
                        found += 1;
                        csv_field(field)
                    }
                    None => Ok("".into()),
                }))?;
                if found < members.len() {
                    return Err(unknown_name(row, &names));
                }
            }
            _ => return Err(format!("a row of CSV cannot be {}", value::shown(row)).into()),
        }
    }
    Ok(csv.out)
}

/// A row has a name that the first has not.
fn unknown_name(row: &Value, names: &[&str]) -> NotWritten {
    let names: HashSet<&str> = names.iter().copied().collect();
    let mut members = value::members(row).into_iter().flatten();
    let name = members.find(|(name, _)| !names.contains(name));
    let name = name.map_or("member of such a name", |(name, _)| name);
    NotWritten::Unmappable(format!("the first row has no {name:?}"))
}

fn csv_field(value: &Value) -> Result<std::borrow::Cow<'_, str>, String> {
    match value {
        Value::Null => Ok("".into()),
        _ => value::scalar_text(value)
            .ok_or_else(|| format!("a field of CSV cannot be {}", value::shown(value))),
    }
}

/// CSV that is being written.
struct Csv {
    out: String,
    bound: Bound,
}

impl Csv {
    fn push_row<'a>(
        &mut self,
        fields: impl Iterator<Item = Result<std::borrow::Cow<'a, str>, String>>,
    ) -> Result<(), NotWritten> {
        let out = &mut self.out;
        for (at, field) in fields.enumerate() {
            let field = field?;
            if at > 0 {
                out.push(',');
            }
            // Before it is looked through: it may be far longer than what may be written.
            self.bound.check(out.len().saturating_add(field.len()))?;
            // A row of one empty field must not look like no row.
            let needs_quotes =
                field.contains(['"', ',', '\r', '\n']) || at == 0 && field.is_empty();
            if needs_quotes {
                out.push('"');
                out.push_str(&field.replace('"', "\"\""));
                out.push('"');
            } else {
                out.push_str(&field);
            }
            self.bound.check(out.len())?;
        }
        out.push_str("\r\n");
        self.bound.check(out.len())
    }
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
        assert_eq!(to_form(&value, 100).unwrap(), b"a=1&a=2&b=x+%26%C3%A9&c=");
        assert!(from_form(b"a=%ff").is_err());
        assert_eq!(
            to_form(&parsed(r#"{"a":null,"b":1.50,"c":[]}"#), 100).unwrap(),
            b"b=1.50"
        );
        assert!(
            to_form(&parsed(r#"{"a":{}}"#), 100)
                .unwrap_err()
                .to_string()
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
        let written = "a,b\r\n1,\"x,y\"\r\n\"\",true\r\n";
        assert_eq!(to_csv(&rows, true, 100).unwrap(), written);
        assert!(from_csv("a\n1,2", true).unwrap_err().contains("row 2"));
        assert!(from_csv("\"a", false).is_err());
        let odd = parsed(r#"[{"a":1,"b":1},{"b":2,"c":3}]"#);
        let error = to_csv(&odd, true, 100).unwrap_err();
        assert_eq!(error.to_string(), "the first row has no \"c\"");
    }

    /// What is refused is not written before: a text is looked at in pieces, and not at all when it
    /// is longer than the whole result may be.
    #[test]
    fn long_texts_are_not_written_before_they_are_refused() {
        let text = "ä".repeat(1_000_000);
        let mut out = Vec::new();
        let refused = push_form_text(&text, &mut out, &mut Bound::new(100_000));
        assert_eq!(refused, Err(NotWritten::TooLarge));
        assert!(out.len() <= 100_000 + 3 * FORM_PIECE, "{}", out.len());
        let mut csv = Csv {
            out: String::new(),
            bound: Bound::new(100_000),
        };
        let row = [Ok("a".into()), Ok("\"".repeat(1_000_000).into())];
        assert_eq!(csv.push_row(row.into_iter()), Err(NotWritten::TooLarge));
        assert_eq!(csv.out, "a,");
    }

    /// Each of many columns is looked up, and not looked for.
    #[test]
    fn many_columns_take_time_in_proportion() {
        let members: Vec<String> = (0..50_000).map(|at| format!("\"c{at}\":{at}")).collect();
        let backwards: Vec<&str> = members.iter().rev().map(String::as_str).collect();
        let (first, second) = (members.join(","), backwards.join(","));
        let rows = parsed(&format!("[{{{first}}},{{{second}}}]"));
        let csv = to_csv(&rows, true, 1 << 20).unwrap();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!((lines.len(), lines[1] == lines[2]), (3, true));
        assert!(lines[2].starts_with("0,1,2,"));
    }

    /// A hundred bytes become thousands: writers look at the bound while they write.
    #[test]
    fn results_are_bounded_while_they_are_written() {
        let name = "n".repeat(50);
        let list = format!("[{}1]", "1,".repeat(200_000));
        let named = parsed(&format!("{{\"{name}\":{list}}}"));
        assert_eq!(to_form(&named, 1000), Err(NotWritten::TooLarge));
        assert_eq!(to_xml(&named, 200_000), Err(NotWritten::TooLarge));
        let rows = format!("[{{\"a\":1,\"b\":1}}{}]", ",{}".repeat(1000));
        let rows = parsed(&rows);
        assert_eq!(to_csv(&rows, true, 1000), Err(NotWritten::TooLarge));
        assert!(to_csv(&rows, false, 10_000).is_ok());
        // What is written before the bound is noticed is short: one entry.
        let mut out = Vec::new();
        let options = JsonToXml {
            output_max: 1000,
            ..JsonToXml::default()
        };
        let json = format!("{{\"{name}\":{list}}}");
        let error = options.convert(json.as_bytes(), &mut out).unwrap_err();
        assert_eq!(error.kind, ConvertErrorKind::TooLarge);
        assert!(error.offset < 200, "{}", error.offset);
    }
}
