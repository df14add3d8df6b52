//! Distinguished names, as certificates have them and as people write them (RFC 4514):
//! `CN=shop,O=Example`, the most special part first.

use std::fmt;
use std::str::FromStr;

use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{BmpString, Ia5StringRef};
use x509_cert::der::asn1::{ObjectIdentifier, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::{Encode as _, Tag, Tagged as _};
use x509_cert::name::Name;

use crate::hex;

/// The most bytes of a name that is written, and of a value.
const TEXT_MAX: usize = 4096;
/// The most attributes of a name.
const ATTRIBUTES_MAX: usize = 50;

/// Names of types of attributes: those of RFC 4514, section 3, then what OpenSSL writes for others
/// that are common.
const TYPES: [(&str, &str); 15] = [
    ("CN", "2.5.4.3"),
    ("L", "2.5.4.7"),
    ("ST", "2.5.4.8"),
    ("O", "2.5.4.10"),
    ("OU", "2.5.4.11"),
    ("C", "2.5.4.6"),
    ("STREET", "2.5.4.9"),
    ("DC", "0.9.2342.19200300.100.1.25"),
    ("UID", "0.9.2342.19200300.100.1.1"),
    ("serialNumber", "2.5.4.5"),
    ("emailAddress", "1.2.840.113549.1.9.1"),
    ("SN", "2.5.4.4"),
    ("GN", "2.5.4.42"),
    ("title", "2.5.4.12"),
    ("organizationIdentifier", "2.5.4.97"),
];

/// A distinguished name. Two are the same when they have the same attributes in the same order, to
/// the letter: stricter than RFC 5280, section 7.1, which ignores case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistinguishedName {
    /// The parts in the order of the certificate, the most general first. Those of several
    /// attributes have them sorted, for they are sets.
    parts: Vec<Vec<Attribute>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Attribute {
    kind: ObjectIdentifier,
    value: Content,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Content {
    Text(String),
    /// What is no text, in DER.
    Other(Vec<u8>),
}

/// The name has control characters, is too long, or is not written as RFC 4514 says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameProblem;

impl DistinguishedName {
    pub(super) fn of(name: &Name) -> Result<Self, NameProblem> {
        let mut parts = Vec::new();
        for part in &name.0 {
            let attributes = part.0.iter().map(attribute);
            let mut attributes = attributes.collect::<Result<Vec<_>, _>>()?;
            attributes.sort();
            parts.push(attributes);
        }
        Self::checked(parts)
    }

    /// The first value of the most special `CN`, when it is a text.
    #[must_use]
    pub fn common_name(&self) -> Option<&str> {
        let mut all = self.parts.iter().rev().flatten();
        all.find_map(|it| match &it.value {
            Content::Text(text) if type_name(&it.kind) == Some("CN") => Some(&**text),
            _ => None,
        })
    }

    fn checked(parts: Vec<Vec<Attribute>>) -> Result<Self, NameProblem> {
        let is_fine = |value: &Content| match value {
            Content::Text(text) => text.len() <= TEXT_MAX && !text.chars().any(char::is_control),
            Content::Other(bytes) => bytes.len() <= TEXT_MAX,
        };
        let mut all = parts.iter().flatten();
        match all.all(|it| is_fine(&it.value)) && parts.iter().flatten().count() <= ATTRIBUTES_MAX {
            true => Ok(Self { parts }),
            false => Err(NameProblem),
        }
    }
}

fn attribute(attribute: &AttributeTypeAndValue) -> Result<Attribute, NameProblem> {
    let value = &attribute.value;
    // In a type that says text there must be text.
    let text = match value.tag() {
        Tag::PrintableString => PrintableStringRef::try_from(value).map(|it| it.to_string()),
        Tag::Utf8String => Utf8StringRef::try_from(value).map(|it| it.to_string()),
        Tag::Ia5String => Ia5StringRef::try_from(value).map(|it| it.to_string()),
        Tag::TeletexString => TeletexStringRef::try_from(value).map(|it| it.to_string()),
        Tag::BmpString => value.decode_as::<BmpString>().map(|it| it.to_string()),
        _ => {
            let der = value.to_der().map_err(|_| NameProblem)?;
            return Ok(Attribute {
                kind: attribute.oid,
                value: Content::Other(der),
            });
        }
    };
    Ok(Attribute {
        kind: attribute.oid,
        value: Content::Text(text.map_err(|_| NameProblem)?),
    })
}

fn type_name(kind: &ObjectIdentifier) -> Option<&'static str> {
    let number = kind.to_string();
    let known = TYPES.iter().find(|(_, it)| *it == number);
    known.map(|(name, _)| *name)
}

/// As RFC 4514 writes it.
impl fmt::Display for DistinguishedName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, part) in self.parts.iter().rev().enumerate() {
            for (inner, attribute) in part.iter().enumerate() {
                let separator = match (number, inner) {
                    (0, 0) => "",
                    (_, 0) => ",",
                    _ => "+",
                };
                formatter.write_str(separator)?;
                match type_name(&attribute.kind) {
                    Some(name) => write!(formatter, "{name}=")?,
                    None => write!(formatter, "{}=", attribute.kind)?,
                }
                match &attribute.value {
                    Content::Text(text) => formatter.write_str(&escaped(text))?,
                    Content::Other(der) => write!(formatter, "#{}", hex::encode(der))?,
                }
            }
        }
        Ok(())
    }
}

fn escaped(text: &str) -> String {
    let last = text.chars().count().saturating_sub(1);
    let mut escaped = String::with_capacity(text.len());
    for (index, letter) in text.chars().enumerate() {
        let is_special = match letter {
            '"' | '+' | ',' | ';' | '<' | '>' | '\\' | '=' => true,
            '#' => index == 0,
            ' ' => index == 0 || index == last,
            _ => false,
        };
        if is_special {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

/// Reads what [`fmt::Display`] and OpenSSL's `-nameopt RFC2253` write. Spaces around names and
/// values do not matter, unless they are escaped.
impl FromStr for DistinguishedName {
    type Err = NameProblem;

    fn from_str(text: &str) -> Result<Self, NameProblem> {
        if text.len() > TEXT_MAX {
            return Err(NameProblem);
        }
        let mut parts: Vec<Vec<Attribute>> = Vec::new();
        let mut part = Vec::new();
        let mut rest = text;
        loop {
            let (kind, behind) = rest.split_once('=').ok_or(NameProblem)?;
            let (value, end, behind) = read_value(behind)?;
            let kind = read_type(kind.trim_matches(' '))?;
            part.push(Attribute { kind, value });
            rest = behind;
            if end != Some('+') {
                part.sort();
                parts.push(std::mem::take(&mut part));
            }
            if end.is_none() {
                break;
            }
        }
        parts.reverse();
        Self::checked(parts)
    }
}

fn read_type(name: &str) -> Result<ObjectIdentifier, NameProblem> {
    let known = TYPES.iter().find(|(it, _)| name.eq_ignore_ascii_case(it));
    let number = known.map_or(name, |(_, number)| number);
    let kind = ObjectIdentifier::new(number).map_err(|_| NameProblem)?;
    // The library reads `1..2`, too, as something else.
    match kind.to_string() == number {
        true => Ok(kind),
        false => Err(NameProblem),
    }
}

/// A value, the separator behind it, and what follows that.
fn read_value(text: &str) -> Result<(Content, Option<char>, &str), NameProblem> {
    let text = text.trim_start_matches(' ');
    let mut bytes = Vec::new();
    // How many bytes at the end must not be taken for spaces without meaning.
    let mut kept = 0;
    let mut letters = text.char_indices();
    let mut end = (None, "");
    while let Some((index, letter)) = letters.next() {
        match letter {
            ',' | '+' | ';' => {
                let separator = if letter == '+' { '+' } else { ',' };
                end = (Some(separator), text.get(index + 1..).unwrap_or_default());
                break;
            }
            '\\' => {
                let (_, next) = letters.next().ok_or(NameProblem)?;
                match next.to_digit(16) {
                    Some(high) => {
                        let low = letters.next().and_then(|(_, it)| it.to_digit(16));
                        let byte = high << 4 | low.ok_or(NameProblem)?;
                        bytes.push(u8::try_from(byte).map_err(|_| NameProblem)?);
                    }
                    None if " \"#+,;<=>\\".contains(next) => push(&mut bytes, next),
                    None => return Err(NameProblem),
                }
                kept = bytes.len();
            }
            '"' | '<' | '>' | '\0' => return Err(NameProblem),
            ' ' => bytes.push(b' '),
            _ => {
                push(&mut bytes, letter);
                kept = bytes.len();
            }
        }
    }
    bytes.truncate(kept);
    let (separator, rest) = end;
    let is_other = text.starts_with('#');
    let value = String::from_utf8(bytes).map_err(|_| NameProblem)?;
    let value = match value.strip_prefix('#').filter(|_| is_other) {
        Some(digits) => Content::Other(bytes_of(digits)?),
        None => Content::Text(value),
    };
    Ok((value, separator, rest))
}

fn push(bytes: &mut Vec<u8>, letter: char) {
    bytes.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
}

/// The bytes of pairs of hexadecimal digits, at least one.
fn bytes_of(digits: &str) -> Result<Vec<u8>, NameProblem> {
    if digits.is_empty() || digits.len() % 2 == 1 || !digits.is_ascii() {
        return Err(NameProblem);
    }
    let pairs = (0..digits.len()).step_by(2);
    let byte = |at: usize| hex::decode::<1>(digits.get(at..at + 2)?);
    let bytes: Option<Vec<[u8; 1]>> = pairs.map(byte).collect();
    Ok(bytes.ok_or(NameProblem)?.concat())
}
