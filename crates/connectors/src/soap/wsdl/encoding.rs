//! Encodings of files: WSDL files of older tools are ISO-8859-1, Windows code pages or UTF-16.

use bytes::Bytes;
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

/// How far an XML declaration reaches.
const DECLARATION_MAX: usize = 200;

/// A file in UTF-8, and its declaration, if it has one, says so (XML 1.0, section 4.3.3 and
/// appendix F).
///
/// # Errors
/// When its encoding is not known, or its bytes are not of it.
pub(super) fn to_utf8(bytes: Bytes) -> Result<Bytes, String> {
    let by_mark = Encoding::for_bom(&bytes).map(|(encoding, _)| encoding);
    let encoding = match by_mark {
        Some(encoding) => encoding,
        None if bytes.starts_with(b"<\0") => UTF_16LE,
        None if bytes.starts_with(b"\0<") => UTF_16BE,
        None => match declared(&bytes) {
            None => return Ok(bytes),
            Some(label) if label.eq_ignore_ascii_case(b"UTF-8") => return Ok(bytes),
            Some(label) => Encoding::for_label(label).ok_or_else(|| {
                let label = String::from_utf8_lossy(label);
                format!("the encoding `{}` is not known", label.escape_debug())
            })?,
        },
    };
    // The parser reads UTF-8 and skips its mark, unless the declaration says something else.
    if encoding == UTF_8 && declared(&bytes).is_none() {
        return Ok(bytes);
    }
    let (text, _, has_errors) = encoding.decode(&bytes);
    if has_errors {
        return Err(format!("the file is not in {}", encoding.name()));
    }
    let mut text = text.into_owned();
    if let Some(label) = declared(text.as_bytes()) {
        let start = label.as_ptr().addr() - text.as_ptr().addr();
        let end = start + label.len();
        text.replace_range(start..end, "UTF-8");
    }
    Ok(text.into())
}

/// The encoding that the XML declaration of a file names.
fn declared(bytes: &[u8]) -> Option<&[u8]> {
    let start = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let start = start.get(..start.len().min(DECLARATION_MAX))?;
    if !start.starts_with(b"<?xml") {
        return None;
    }
    let end = find(start, b"?>")?;
    let declaration = start.get(..end)?;
    let at = find(declaration, b"encoding")?;
    let value = declaration
        .get(at + b"encoding".len()..)?
        .trim_ascii_start();
    let value = value.strip_prefix(b"=")?.trim_ascii_start();
    let (quote, value) = value.split_first()?;
    let length = value.iter().position(|byte| byte == quote)?;
    value.get(..length)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|it| it == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> Result<String, String> {
        let read = to_utf8(Bytes::copy_from_slice(bytes))?;
        Ok(String::from_utf8(read.to_vec()).unwrap())
    }

    #[test]
    fn files_of_older_tools_become_utf8() {
        let utf16 = |big: bool| -> Vec<u8> {
            let text = "\u{feff}<?xml version='1.0' encoding='utf-16'?><ä/>";
            let units = text.encode_utf16();
            units
                .flat_map(|it| {
                    if big {
                        it.to_be_bytes()
                    } else {
                        it.to_le_bytes()
                    }
                })
                .collect()
        };
        let utf8 = "<?xml version='1.0' encoding='UTF-8'?><ä/>";
        let cases: &[(&[u8], &str)] = &[
            (b"<?xml version='1.0' encoding='ISO-8859-1'?><\xe4/>", utf8),
            (
                b"<?xml version='1.0' encoding='windows-1252'?><\xe4/>",
                utf8,
            ),
            (
                b"<?xml version=\"1.0\" encoding = \"windows-1255\"?><a/>",
                "<?xml version=\"1.0\" encoding = \"UTF-8\"?><a/>",
            ),
            (
                b"<?xml version='1.0' encoding='windows-1255'?><a>\xf9\xec\xe5\xed</a>",
                "<?xml version='1.0' encoding='UTF-8'?><a>\u{5e9}\u{5dc}\u{5d5}\u{5dd}</a>",
            ),
            ("<?xml version='1.0' encoding='utf8'?><ä/>".as_bytes(), utf8),
            (&utf16(true), utf8),
            (&utf16(false), utf8),
            (&utf16(false)[2..], utf8),
            (b"<a/>", "<a/>"),
            (b"<?xml version='1.0'?><a/>", "<?xml version='1.0'?><a/>"),
            ("\u{feff}<a/>".as_bytes(), "\u{feff}<a/>"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(text(bytes).as_deref(), Ok(*expected));
        }
    }

    #[test]
    fn an_unknown_encoding_is_named() {
        let told = text(b"<?xml version='1.0' encoding='klingon'?><a/>");
        assert_eq!(told.unwrap_err(), "the encoding `klingon` is not known");
        let told = text(b"<?xml version='1.0' encoding='utf8'?><\xe4/>");
        assert_eq!(told.unwrap_err(), "the file is not in UTF-8");
    }
}
