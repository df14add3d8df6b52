//! Text of XML documents, references resolved, written as JSON strings.

use super::error::{ConvertErrorKind, Reason};

/// Checks what holds for every character of a document: UTF-8, and only characters that XML has
/// (XML 1.0, section 2.2).
pub(crate) fn check_characters(xml: &[u8]) -> Result<&str, Reason> {
    // XML 1.0, appendix F.1: a mark, or a `<` of two bytes.
    if matches!(
        xml,
        [0xfe, 0xff, ..] | [0xff, 0xfe, ..] | [b'<', 0, ..] | [0, b'<', ..]
    ) {
        return Err(Reason::syntax(
            0,
            "the document is in UTF-16, and only UTF-8 is read",
        ));
    }
    let text = std::str::from_utf8(xml)
        .map_err(|error| Reason::syntax(error.valid_up_to(), "the text is not UTF-8"))?;
    let control = |byte: &u8| *byte < b' ' && !matches!(byte, b'\t' | b'\n' | b'\r');
    if let Some(offset) = xml.iter().position(control) {
        return Err(Reason::syntax(offset, "a character that XML does not have"));
    }
    if let Some(offset) = text.find(['\u{fffe}', '\u{ffff}']) {
        return Err(Reason::syntax(offset, "a character that XML does not have"));
    }
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

/// The character behind a reference: `amp`, `#38`, `#x26`.
pub(super) fn reference(name: &str, offset: usize) -> Result<char, Reason> {
    let number = match name.strip_prefix("#x") {
        Some(digits) => Some((digits, 16)),
        None => name.strip_prefix('#').map(|digits| (digits, 10)),
    };
    if let Some((digits, radix)) = number {
        let plain = digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let character = u32::from_str_radix(digits, radix).ok().filter(|_| plain);
        return character
            .and_then(char::from_u32)
            .filter(|it| !matches!(it, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}'))
            .filter(|it| !matches!(it, '\u{fffe}' | '\u{ffff}'))
            .ok_or(Reason::syntax(offset, "a reference to no character"));
    }
    Ok(match name {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "apos" => '\'',
        "quot" => '"',
        _ => {
            let detail = "a reference to an entity; only the five predefined ones are allowed";
            return Err(Reason::new(ConvertErrorKind::Forbidden, offset, detail));
        }
    })
}

/// An attribute's value: references resolved, white space made spaces (XML 1.0, section 3.3.3).
pub(super) fn attribute_value(raw: &str, offset: usize) -> Result<String, Reason> {
    let mut value = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find(['&', '<', '\t', '\n', '\r']) {
        let (before, behind) = rest.split_at(at);
        value.push_str(before);
        rest = match behind.as_bytes() {
            [b'&', ..] => {
                let end = behind
                    .find(';')
                    .ok_or(Reason::syntax(offset, "`&` without `;`"))?;
                value.push(reference(behind.get(1..end).unwrap_or_default(), offset)?);
                behind.get(end + 1..).unwrap_or_default()
            }
            [b'<', ..] => return Err(Reason::syntax(offset, "`<` in an attribute")),
            [b'\r', b'\n', ..] => {
                value.push(' ');
                behind.get(2..).unwrap_or_default()
            }
            _ => {
                value.push(' ');
                behind.get(1..).unwrap_or_default()
            }
        };
    }
    value.push_str(rest);
    Ok(value)
}

/// Text with its line ends made line feeds (XML 1.0, section 2.11).
pub(super) fn line_ends(raw: &str, text: &mut String) {
    let mut rest = raw;
    while let Some((before, behind)) = rest.split_once('\r') {
        text.push_str(before);
        text.push('\n');
        rest = behind.strip_prefix('\n').unwrap_or(behind);
    }
    text.push_str(rest);
}

/// Appends a JSON string.
pub(super) fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    let bytes = text.as_bytes();
    let mut start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let escape: &[u8] = match byte {
            b'"' => b"\\\"",
            b'\\' => b"\\\\",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            _ => continue,
        };
        out.extend_from_slice(bytes.get(start..at).unwrap_or_default());
        out.extend_from_slice(escape);
        start = at + 1;
    }
    out.extend_from_slice(bytes.get(start..).unwrap_or_default());
    out.push(b'"');
}
