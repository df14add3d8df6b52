//! Forms (`application/x-www-form-urlencoded`) in UTF-8, read strictly: two readers must not see
//! two requests.

use std::fmt;

/// The most parameters of one form.
const PARAMETERS_MAX: usize = 200;

/// A form's parameters in their order, decoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form(Vec<(String, String)>);

/// Why a text is no form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormError {
    /// A `%` without two hexadecimal digits.
    Encoding,
    /// Decoded, it is not UTF-8.
    Utf8,
    /// It has more than 200 parameters.
    TooMany,
    /// The parameter of this name is there twice.
    Twice(&'static str),
}

impl fmt::Display for FormError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Encoding => formatter.write_str("malformed percent-encoding"),
            Self::Utf8 => formatter.write_str("the form is not UTF-8"),
            Self::TooMany => formatter.write_str("too many parameters"),
            Self::Twice(name) => write!(formatter, "{name} is there twice"),
        }
    }
}

impl Form {
    /// Reads a form, or the query of a URL.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(text: &[u8]) -> Result<Self, FormError> {
        let mut parameters = Vec::new();
        for part in text.split(|byte| *byte == b'&').filter(|it| !it.is_empty()) {
            if parameters.len() == PARAMETERS_MAX {
                return Err(FormError::TooMany);
            }
            let end = part.iter().position(|byte| *byte == b'=');
            let (name, value) = part.split_at(end.unwrap_or(part.len()));
            let value = value.strip_prefix(b"=").unwrap_or(value);
            parameters.push((decode(name)?, decode(value)?));
        }
        Ok(Self(parameters))
    }

    /// The parameter of this name.
    ///
    /// # Errors
    /// When it is there more than once.
    pub fn one(&self, name: &'static str) -> Result<Option<&str>, FormError> {
        let mut values = self.all(name);
        match (values.next(), values.next()) {
            (value, None) => Ok(value),
            _ => Err(FormError::Twice(name)),
        }
    }

    /// All parameters of this name.
    pub fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.0.iter().filter(move |it| it.0 == name);
        named.map(|it| it.1.as_str())
    }
}

fn decode(text: &[u8]) -> Result<String, FormError> {
    let digit = |byte: Option<&u8>| char::from(*byte?).to_digit(16);
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.iter();
    while let Some(byte) = rest.next() {
        decoded.push(match byte {
            b'+' => b' ',
            b'%' => {
                let pair = digit(rest.next()).zip(digit(rest.next()));
                let (high, low) = pair.ok_or(FormError::Encoding)?;
                (high << 4 | low) as u8
            }
            other => *other,
        });
    }
    String::from_utf8(decoded).map_err(|_| FormError::Utf8)
}

/// Adds `NAME=VALUE` to a form or a query, after an `&` when it is not the first. All but
/// unreserved characters (RFC 3986, section 2.3) are encoded, so that every reader sees the same.
pub fn push(name: &str, value: &str, text: &mut String) {
    if !text.is_empty() && !text.ends_with(['?', '&']) {
        text.push('&');
    }
    encode(name, text);
    text.push('=');
    encode(value, text);
}

fn encode(value: &str, text: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            text.push(char::from(byte));
            continue;
        }
        text.push('%');
        for digit in [byte >> 4, byte & 15] {
            text.extend(DIGITS.get(usize::from(digit)).map(|it| char::from(*it)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_decoded() {
        let form = Form::parse(b"a=%2Fx%C3%A4+y&b&&=c&d=e=f&%61%2Db=1").unwrap();
        assert_eq!(form.one("a"), Ok(Some("/x\u{e4} y")));
        assert_eq!(form.one("b"), Ok(Some("")));
        assert_eq!(form.one(""), Ok(Some("c")));
        assert_eq!(form.one("d"), Ok(Some("e=f")));
        assert_eq!(form.one("a-b"), Ok(Some("1")));
        assert_eq!(form.one("z"), Ok(None));
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        for text in [&b"a=%"[..], b"a=%2", b"a=%2g", b"%zz=1"] {
            assert_eq!(Form::parse(text), Err(FormError::Encoding));
        }
        assert_eq!(Form::parse(b"a=%ff"), Err(FormError::Utf8));
        assert_eq!(Form::parse(b"a=\xff"), Err(FormError::Utf8));
        let many = "a=1&".repeat(PARAMETERS_MAX + 1);
        assert_eq!(Form::parse(many.as_bytes()), Err(FormError::TooMany));
        let form = Form::parse(b"a=1&%61=2").unwrap();
        assert_eq!(form.one("a"), Err(FormError::Twice("a")));
        assert_eq!(form.all("a").collect::<Vec<_>>(), ["1", "2"]);
    }

    #[test]
    fn every_text_survives_the_round_trip() {
        let odd: String = (0..0x300).filter_map(char::from_u32).collect();
        let mut text = String::new();
        push("hub.topic", &odd, &mut text);
        push(&odd, "x", &mut text);
        let form = Form::parse(text.as_bytes()).unwrap();
        assert_eq!(form.one("hub.topic"), Ok(Some(odd.as_str())));
        assert_eq!(form.0.get(1), Some(&(odd, "x".to_owned())));
        assert!(text.bytes().all(|it| it.is_ascii_graphic()));
    }
}
