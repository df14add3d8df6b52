//! Encodings other than UTF-8: documents of older systems are in ISO-8859-1, a Windows code page or
//! UTF-16.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE};

/// How far an XML declaration reaches.
const DECLARATION_MAX: usize = 200;

/// Why bytes are no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotText {
    /// Nobody knows the encoding that they are said to be in.
    Unknown(String),
    /// They are not in the encoding that they are said to be in.
    Malformed(&'static str),
}

impl fmt::Display for NotText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(label) => {
                write!(f, "the encoding `{}` is not known", label.escape_debug())
            }
            Self::Malformed(encoding) => write!(f, "the text is not {encoding}"),
        }
    }
}

impl std::error::Error for NotText {}

/// A text in the encoding that a label such as `iso-8859-1` stands for
/// (<https://encoding.spec.whatwg.org/#names-and-labels>), in UTF-8 without one. A byte order mark
/// goes before the label.
///
/// # Errors
/// When the label is not known, or the bytes are not in that encoding.
pub fn to_text<'a>(bytes: &'a [u8], label: Option<&str>) -> Result<Cow<'a, str>, NotText> {
    let encoding = match label {
        Some(label) => of_label(label.as_bytes())?,
        None => UTF_8,
    };
    let (text, encoding, is_malformed) = encoding.decode(bytes);
    match is_malformed {
        true => Err(NotText::Malformed(encoding.name())),
        false => Ok(text),
    }
}

/// The encoding of a label. `us-ascii` is a part of UTF-8, which is what most mean who write it.
fn of_label(label: &[u8]) -> Result<&'static Encoding, NotText> {
    let is_ascii = [&b"us-ascii"[..], b"ascii"]
        .iter()
        .any(|it| it.eq_ignore_ascii_case(label));
    if is_ascii {
        return Ok(UTF_8);
    }
    let unknown = || NotText::Unknown(String::from_utf8_lossy(label).into_owned());
    Encoding::for_label(label).ok_or_else(unknown)
}

/// An XML document in UTF-8, whose declaration, if it has one, says so. Its encoding is what a byte
/// order mark says, or the `charset` of its media type, or its first bytes and its declaration
/// (RFC 7303, section 3; XML 1.0, section 4.3.3 and appendix F). One that is in UTF-8 is left alone
/// and not checked.
///
/// # Errors
/// When its encoding is not known, or its bytes are not of it.
pub fn xml_to_utf8(xml: &Bytes, charset: Option<&str>) -> Result<Bytes, NotText> {
    if let Some(name) = known_by_its_start(xml) {
        return Err(NotText::Unknown(name.to_owned()));
    }
    let declared = declared(xml);
    let by_mark = Encoding::for_bom(xml).map(|(encoding, _)| encoding);
    let encoding = match (by_mark, charset) {
        (Some(encoding), _) => encoding,
        (None, _) if xml.starts_with(b"<\0") => UTF_16LE,
        (None, _) if xml.starts_with(b"\0<") => UTF_16BE,
        (None, Some(charset)) => of_label(charset.as_bytes())?,
        (None, None) => match declared {
            None => UTF_8,
            Some(label) => of_label(label)?,
        },
    };
    if encoding == UTF_8 && declared.is_none_or(is_utf8) {
        return Ok(xml.clone());
    }
    let (text, encoding, is_malformed) = encoding.decode(xml);
    if is_malformed {
        return Err(NotText::Malformed(encoding.name()));
    }
    let mut text = text.into_owned();
    if let Some(label) = self::declared(text.as_bytes()) {
        let start = label.as_ptr().addr() - text.as_ptr().addr();
        let end = start + label.len();
        text.replace_range(start..end, "UTF-8");
    }
    Ok(text.into())
}

/// The name of an encoding that is not read, but known by the first bytes of a document (XML 1.0,
/// appendix F). Those of UTF-32 look like UTF-16 to whoever reads two of them.
fn known_by_its_start(xml: &[u8]) -> Option<&'static str> {
    match xml {
        [0, 0, 0xfe, 0xff, ..] | [0xff, 0xfe, 0, 0, ..] => Some("UTF-32"),
        [0, 0, 0, b'<', ..] | [b'<', 0, 0, 0, ..] => Some("UTF-32"),
        [0x4c, 0x6f, 0xa7, 0x94, ..] => Some("EBCDIC"),
        _ => None,
    }
}

/// Whether the parser takes a declared encoding for UTF-8.
fn is_utf8(label: &[u8]) -> bool {
    [&b"utf-8"[..], b"us-ascii"]
        .iter()
        .any(|it| it.eq_ignore_ascii_case(label))
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

    fn utf16(text: &str, big: bool) -> Vec<u8> {
        let units = text.encode_utf16();
        let bytes = units.map(|it| {
            if big {
                it.to_be_bytes()
            } else {
                it.to_le_bytes()
            }
        });
        bytes.flatten().collect()
    }

    fn xml(bytes: &[u8], charset: Option<&str>) -> Result<String, String> {
        let read = xml_to_utf8(&Bytes::copy_from_slice(bytes), charset);
        let read = read.map_err(|error| error.to_string())?;
        Ok(String::from_utf8(read.to_vec()).unwrap())
    }

    #[test]
    fn documents_of_older_systems_become_utf8() {
        let marked = |big| utf16("\u{feff}<?xml version='1.0' encoding='utf-16'?><ä/>", big);
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
            (&marked(true), utf8),
            (&marked(false), utf8),
            (&marked(false)[2..], utf8),
            (b"<a/>", "<a/>"),
            (b"<?xml version='1.0'?><a/>", "<?xml version='1.0'?><a/>"),
            ("\u{feff}<a/>".as_bytes(), "\u{feff}<a/>"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(xml(bytes, None).as_deref(), Ok(*expected));
        }
    }

    #[test]
    fn a_charset_goes_before_the_declaration_and_a_mark_before_both() {
        let latin1 = b"<?xml version='1.0' encoding='utf-8'?><\xe4/>";
        let utf8 = "<?xml version='1.0' encoding='UTF-8'?><ä/>";
        assert_eq!(xml(latin1, Some("Latin1")).as_deref(), Ok(utf8));
        let declared = "<?xml version='1.0' encoding='latin1'?><ä/>";
        assert_eq!(xml(declared.as_bytes(), Some("utf-8")).as_deref(), Ok(utf8));
        let marked = format!("\u{feff}{declared}");
        assert_eq!(xml(marked.as_bytes(), Some("latin1")).as_deref(), Ok(utf8));
        let bare = utf16("<ä/>", true);
        assert_eq!(xml(&bare, Some("utf-16")).as_deref(), Ok("<ä/>"));
        assert_eq!(xml(b"<a/>", Some("US-ASCII")).as_deref(), Ok("<a/>"));
    }

    #[test]
    fn an_encoding_that_is_not_known_or_does_not_hold_is_named() {
        let told = xml(b"<?xml version='1.0' encoding='klingon'?><a/>", None);
        assert_eq!(told.unwrap_err(), "the encoding `klingon` is not known");
        let told = xml(b"<?xml version='1.0' encoding='utf8'?><\xe4/>", None);
        assert_eq!(told.unwrap_err(), "the text is not UTF-8");
        let utf32 = |of: fn(u32) -> [u8; 4], text: &str| -> Vec<u8> {
            text.chars().flat_map(|it| of(u32::from(it))).collect()
        };
        for text in ["<a/>", "\u{feff}<a/>"] {
            for of in [u32::to_be_bytes, u32::to_le_bytes] {
                let told = xml(&utf32(of, text), None);
                assert_eq!(told.unwrap_err(), "the encoding `UTF-32` is not known");
            }
        }
        let told = xml(b"\x4c\x6f\xa7\x94\x93\x40", None);
        assert_eq!(told.unwrap_err(), "the encoding `EBCDIC` is not known");
        let told = xml(b"<a/>", Some("utf-32"));
        assert_eq!(told.unwrap_err(), "the encoding `utf-32` is not known");
        let told = xml(&utf16("<a/>", true)[..7], None);
        assert_eq!(told.unwrap_err(), "the text is not UTF-16BE");
    }

    #[test]
    fn texts_are_read_by_their_label() {
        let cases: &[(&[u8], Option<&str>, &str)] = &[
            ("\u{feff}ä".as_bytes(), None, "ä"),
            (b"\xe4", Some("ISO-8859-1"), "ä"),
            (b"\x80", Some("windows-1252"), "€"),
            (b"\xc4", Some("koi8-r"), "д"),
            (b"\xff\xfe\xe4\x00", Some("utf-8"), "ä"),
            (b"\x83\x65", Some("shift_jis"), "テ"),
        ];
        for (bytes, label, expected) in cases {
            assert_eq!(to_text(bytes, *label).as_deref(), Ok(*expected));
        }
        assert_eq!(to_text(b"\xe4", None), Err(NotText::Malformed("UTF-8")));
        let unknown = Err(NotText::Unknown("klingon".to_owned()));
        assert_eq!(to_text(b"a", Some("klingon")), unknown);
    }
}
